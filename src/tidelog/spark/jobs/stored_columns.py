"""Columns of any table that Spark reads, in the types of a record's: what `tidelog load` understands, Spark's does too.

    key, value   bytes, or text; in CSV and JSON also the base64 that `tidelog export` writes for what is no text
    partition    a number
    timestamp    a timestamp, a number of milliseconds, or text of either
    headers      a list of structs of key and value, or its JSON

Times and headers of other types are refused before Spark begins.
"""

from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidRequestError
from tidelog.spark.row_input import HEADERS
from tidelog.tables.text import BASE64_FIELD, BASE64_PREFIX

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["stored"]

_HEADERS_OF_TEXT = "array<struct<key:string,value:string>>"
_DIGITS = "([A-Za-z0-9+/]*=*)"
# Where texts and such objects stand in one column of JSON, Spark gives the objects as they are written.
_BASE64_IN = {"csv": f"^{BASE64_PREFIX}{_DIGITS}$", "json": rf'^\{{"{BASE64_FIELD}":"{_DIGITS}"\}}$'}


def stored(column: Any, role: str, kind: "DataType | None", form: str) -> Any:
    """A column in the type that is stored. `kind` is the type it has; None if it was made of the whole row."""
    if role in ("key", "value"):
        return _bytes(column, kind, form.lower())
    if role == "partition":
        return column.cast("int")
    return _time(column, kind) if role == "timestamp" else _headers(column, kind)


def _bytes(column: Any, kind: "DataType | None", form: str) -> Any:
    """A key or a value: bytes, or text in UTF-8. What is neither is written by `tidelog export` as base64."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType, StructType

    if isinstance(kind, BinaryType):
        return column
    if form == "json" and isinstance(kind, StructType) and kind.names == [BASE64_FIELD]:
        return F.unbase64(column[BASE64_FIELD])
    text = column.cast("string")
    pattern = _BASE64_IN.get(form)
    if pattern is None or not isinstance(kind, StringType):
        return text.cast("binary")
    return F.when(text.rlike(pattern), F.unbase64(F.regexp_extract(text, pattern, 1))).otherwise(text.cast("binary"))


def _time(column: Any, kind: "DataType | None") -> Any:
    """A time. Numbers are milliseconds, as in Kafka and in `tidelog load`; Spark's own cast takes them for seconds."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, IntegralType, StringType, TimestampNTZType, TimestampType

    if isinstance(kind, IntegralType):
        return F.timestamp_millis(column.cast("long"))
    if isinstance(kind, StringType):
        is_number = column.rlike(r"^\s*-?[0-9]+\s*$")
        return F.when(is_number, F.timestamp_millis(column.try_cast("long"))).otherwise(column.cast("timestamp"))
    if not isinstance(kind, TimestampType | TimestampNTZType | DateType):
        raise InvalidRequestError(
            f"a column of {kind.simpleString() if kind else 'nothing'} is no time: it holds timestamps, milliseconds, "
            "or text of either"
        )
    return column.cast("timestamp")


def _headers(column: Any, kind: "DataType | None") -> Any:
    """Headers. Text is their JSON, as `tidelog export` writes it into CSV; values may be text, too.

    Spark casts fields by their places. Those that have other names, or another order, would be mistaken.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StringType, StructType

    if isinstance(kind, StringType):
        return F.from_json(column, _HEADERS_OF_TEXT, {"mode": "FAILFAST"}).cast(HEADERS)
    one = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(one, StructType) or [name.lower() for name in one.names] != ["key", "value"]:
        raise InvalidRequestError(
            f"a column of {kind.simpleString() if kind else 'nothing'} has no headers: it holds {HEADERS}, or its JSON"
        )
    return column.cast(HEADERS)
