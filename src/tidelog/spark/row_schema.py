"""The columns of a source, in Spark's types and in Arrow's.

Without a wish they are those of Spark's Kafka source. A wish is a schema (`.schema("offset bigint, value string")`) or
the option `columns` ("offset, value string"): some of the columns below, in any order, written in any case; `key` and
`value` may be asked for as strings. Spark compares the schema of the batches with its own to the letter, so they are
made with the one that Spark itself derives.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import InvalidRecordError, InvalidRequestError

__all__ = ["CORRUPTION", "ON_DEMAND", "InvalidUtf8", "RowSchema", "default_schema", "schema_of_columns"]

CORRUPTION = "corruption"  # where and why something was left out
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_KAFKA: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
_MORE: dict[str, DataType] = {
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "sequence": IntegerType(),
    "isTransactional": BooleanType(),
    "segment": LongType(),
    "position": LongType(),
    "codec": StringType(),
    CORRUPTION: StringType(),
}
_ALL = {**_KAFKA, **_MORE}
ON_DEMAND = tuple(_MORE)
_BY_LOWER = {name.lower(): name for name in _ALL}
_TEXT = ("key", "value")

InvalidUtf8 = str  # "fail", "null" or "replace"


def default_schema(*, include_headers: bool = False) -> StructType:
    """The columns of Spark's Kafka source."""
    return StructType([StructField(n, t) for n, t in _KAFKA.items() if include_headers or n != "headers"])


def schema_of_columns(text: str) -> StructType:
    """The schema that the option `columns` asks for.

    >>> schema_of_columns("OFFSET, value string").simpleString()
    'struct<offset:bigint,value:string>'
    """
    fields = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, type_name = part.partition(" ")
        known = _known(name.strip("`"))
        wanted = type_name.strip().lower()
        if wanted not in ("", "string", _ALL[known].simpleString()) or (wanted == "string" and not _is_text(known)):
            raise _wrong_type(known, wanted)
        fields.append(StructField(known, StringType() if wanted == "string" else _ALL[known]))
    if not fields:
        raise InvalidRequestError(f"columns {text!r} names none; there are {_listed()}")
    return StructType(fields)


class RowSchema(NamedTuple):
    """The columns to give, and what must be done to those of a scan. It can be pickled."""

    names: tuple[str, ...]  # as a scan calls them
    arrow: pa.Schema  # as Spark wants them
    as_text: frozenset[str]
    invalid_utf8: InvalidUtf8

    @classmethod
    def of(cls, schema: StructType, invalid_utf8: InvalidUtf8 = "fail") -> "RowSchema":
        """What Spark asks for; refused here, on the driver, if it cannot be had."""
        names, as_text = [], set()
        for field in schema.fields:
            name = _known(field.name)
            if name in names:
                raise InvalidRequestError(f"column {name!r} is asked for twice")
            if isinstance(field.dataType, StringType) and name in _TEXT:
                as_text.add(name)
            elif field.dataType != _ALL[name]:
                raise _wrong_type(name, field.dataType.simpleString())
            if not field.nullable:
                raise InvalidRequestError(f"column {name!r} is asked for as NOT NULL; every column may be null")
            names.append(name)
        if not names:
            raise InvalidRequestError(f"no column is asked for; there are {_listed()}")
        return cls(tuple(names), to_arrow_schema(schema, timezone="UTC"), frozenset(as_text), invalid_utf8)

    @property
    def stored(self) -> list[str]:
        """The columns that a scan is asked for: one at least, to know how many rows there are.

        The offset is among them where an error has to name it.
        """
        names = [name for name in self.names if name != CORRUPTION]
        may_fail = self.as_text and self.invalid_utf8 == "fail"
        return names if names and not may_fail else list(dict.fromkeys([*names, "offset"]))

    def rows(self, batch: pa.RecordBatch, partition: str) -> pa.RecordBatch:
        """Rows of a scan of a partition as Spark wants them."""
        if not self.as_text and batch.schema.equals(self.arrow):
            return batch
        return pa.RecordBatch.from_arrays(
            [
                self._column(name, batch, kind, partition)
                for name, kind in zip(self.names, self.arrow.types, strict=True)
            ],
            schema=self.arrow,
        )

    def _column(self, name: str, batch: pa.RecordBatch, kind: pa.DataType, partition: str) -> pa.Array:
        if name == CORRUPTION:
            return pa.nulls(batch.num_rows, kind)
        column = batch.column(name)
        if name not in self.as_text:
            return column
        try:
            return column.cast(pa.string())  # where all of it is UTF-8, nothing is copied
        except pa.ArrowInvalid:
            if self.invalid_utf8 == "fail":
                raise _not_text(batch, name, partition) from None
        return _text(column, self.invalid_utf8)

    def corruption_rows(self, topic: str, partition: int, notices: Sequence[str]) -> pa.RecordBatch:
        """A row for each thing that was left out."""
        known: dict[str, Any] = {"topic": topic, "partition": partition}
        return pa.RecordBatch.from_arrays(
            [
                pa.array(notices if name == CORRUPTION else [known.get(name)] * len(notices), kind)
                for name, kind in zip(self.names, self.arrow.types, strict=True)
            ],
            schema=self.arrow,
        )


def _not_text(batch: pa.RecordBatch, name: str, partition: str) -> InvalidRecordError:
    values = enumerate(batch.column(name).to_pylist())
    row, wrong = next((row, value) for row, value in values if value is not None and _decoded(value, "strict") is None)
    return InvalidRecordError(
        f"{partition}: the {name} at offset {batch.column('offset')[row]} is not UTF-8: {wrong[:40]!r}; "
        f"set invalidUtf8 to null or replace, or read the {name} as binary"
    )


def _text(column: pa.Array, invalid: InvalidUtf8) -> pa.Array:
    """Bytes as text, where some of them are not UTF-8."""
    errors = "strict" if invalid == "null" else "replace"
    return pa.array([_decoded(value, errors) for value in column.to_pylist()], pa.string())


def _decoded(value: bytes | None, errors: str) -> str | None:
    try:
        return None if value is None else value.decode("utf-8", errors)
    except UnicodeDecodeError:
        return None


def _known(name: str) -> str:
    known = _BY_LOWER.get(name.lower())
    if known is None:
        raise InvalidRequestError(f"no column {name!r}; there are {_listed()}")
    return known


def _is_text(name: str) -> bool:
    return name in _TEXT or _ALL[name] == StringType()


def _wrong_type(name: str, asked: str) -> InvalidRequestError:
    types = f"{_ALL[name].simpleString()}{' or string' if name in _TEXT else ''}"
    return InvalidRequestError(f"column {name!r} is {types}, not {asked}; the columns are {_listed()}")


def _listed() -> str:
    return ", ".join(f"{name} {kind.simpleString()}" for name, kind in _ALL.items())
