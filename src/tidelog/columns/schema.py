"""The columns of a log as a table: their names, their Arrow types, and where each comes from.

The first eight are those of Spark's Kafka source, under its names. `topic` and `partition` are not in the bytes; they
are constants that the caller knows.
"""

from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

from tidelog.errors import InvalidRequestError

__all__ = ["BATCH_COLUMNS", "DEFAULT_COLUMNS", "HEADERS_TYPE", "RECORD_COLUMNS", "TimestampUnit", "schema_of"]

TimestampUnit = Literal["ms", "us"]

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

# What each record brings.
RECORD_COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),  # -1 where a record has none, as in Spark's source
    "headers": HEADERS_TYPE,  # null for a record without headers
    "sequence": pa.int32(),
}

# What a record has from its batch.
BATCH_COLUMNS: dict[str, pa.DataType] = {
    "timestampType": pa.int32(),  # 0 CreateTime, 1 LogAppendTime, -1 none (magic 0)
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "codec": pa.string(),  # none, gzip, snappy, lz4, zstd
    "position": pa.int64(),  # of the batch's first byte in its file
}

CONSTANT_COLUMNS: dict[str, pa.DataType] = {"topic": pa.string(), "partition": pa.int32()}

ALL_COLUMNS = {**RECORD_COLUMNS, **BATCH_COLUMNS, **CONSTANT_COLUMNS}

# What a decoder gives that was not asked for anything in particular: everything that is in the bytes.
DEFAULT_COLUMNS = (*RECORD_COLUMNS, *BATCH_COLUMNS)


def schema_of(columns: Iterable[str] | None = None, timestamp_unit: TimestampUnit = "ms") -> pa.Schema:
    """The schema of a choice of columns, in the order given. Every field is nullable, as Spark wants it.

    >>> schema_of(["key", "timestamp"])
    key: binary
    timestamp: timestamp[ms, tz=UTC]
    """
    if timestamp_unit not in ("ms", "us"):
        raise InvalidRequestError(f"timestamp unit {timestamp_unit!r}, known are 'ms' and 'us'")
    if isinstance(columns, str):
        raise InvalidRequestError(f"columns are a list of names; for one column write [{columns!r}]")
    fields = []
    for name in DEFAULT_COLUMNS if columns is None else columns:
        if name not in ALL_COLUMNS:
            raise InvalidRequestError(f"no column {name!r}; there are {', '.join(ALL_COLUMNS)}")
        fields.append(pa.field(name, pa.timestamp(timestamp_unit, "UTC") if name == "timestamp" else ALL_COLUMNS[name]))
    schema = pa.schema(fields)
    if len(set(schema.names)) != len(schema):
        raise InvalidRequestError(f"a column is named twice: {', '.join(schema.names)}")
    return schema
