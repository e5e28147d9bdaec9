"""The columns of a DataFrame that is written: what Spark's Kafka sink takes, and the time of a record.

    key, value      binary or string; there is a value in every DataFrame, though it may be null
    topic           string, unless the option `topic` names one, which wins
    partition       int; null, or no such column, lets the key decide
    headers         array<struct<key string, value binary>>
    timestamp       timestamp; null, or no such column, is the time of writing

Other columns that a read gives (offset, timestampType, ...) are passed over, so that what was read can be written. Any
other column is refused: stored it would not be.
"""

from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from tidelog.errors import InvalidRequestError

__all__ = ["HEADERS", "RowInput"]

HEADERS = "array<struct<key:string,value:binary>>"
_TYPES = {
    "key": "binary or string",
    "value": "binary or string",
    "topic": "string",
    "partition": "int",
    "headers": HEADERS,
    "timestamp": "timestamp",
}
_PLAIN: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
# What a read tells beside them: it is made anew where a record is written. `corruption` is not among them, because a
# row that has it is no record.
_PASSED_OVER = frozenset({
    "offset", "timestamptype", "leaderepoch", "producerid", "producerepoch", "sequence", "istransactional", "segment",
    "position", "codec",
})  # fmt: skip


class RowInput(NamedTuple):
    """Which columns of a DataFrame are stored, and as what. It can be pickled."""

    positions: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, *, has_topic: bool) -> "RowInput":
        """What a schema gives to store; refused here, on the driver, if a column cannot be."""
        found: dict[str, int] = {}
        unknown = []
        for position, field in enumerate(schema.fields):
            name = field.name.lower()
            if name in _TYPES:
                if name in found:
                    raise InvalidRequestError(f"there are two columns {name!r}")
                if not _fits(name, field.dataType):
                    raise InvalidRequestError(
                        f"column {name!r} is {_TYPES[name]}, not {field.dataType.simpleString()}: cast it"
                    )
                found[name] = position
            elif name not in _PASSED_OVER:
                unknown.append(field.name)
        if unknown:
            raise InvalidRequestError(
                f"columns that cannot be stored: {', '.join(unknown)}; a record has "
                f"{', '.join(f'{name} {words}' for name, words in _TYPES.items())}"
            )
        if "value" not in found:
            raise InvalidRequestError("required column 'value' is missing")
        if "topic" not in found and not has_topic:
            raise InvalidRequestError("no topic: set the option topic, or have a column 'topic'")
        if has_topic:
            found.pop("topic", None)
        return cls(tuple(found.values()), tuple(found))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns to store of rows as Spark sends them."""
        return pa.RecordBatch.from_arrays([batch.column(position) for position in self.positions], list(self.names))


def _fits(name: str, kind: DataType) -> bool:
    if name != "headers":
        return isinstance(kind, _PLAIN[name])
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(element["value"].dataType, BinaryType)
