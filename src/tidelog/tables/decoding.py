"""Rows of Kafka's internal topics, with what keys and values say in the place of their bytes.

    {"type":"OffsetCommit","data":{"group":"g","topic":"orders","partition":0}}     a key
    {"version":3,"data":{"offset":15,...}}                                          a value

A topic of metadata has no keys: there the type stands with the value. What cannot be decoded stays as it is.
"""

from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidRequestError
from tidelog.protocol import json_text
from tidelog.records.record import Record
from tidelog.tables.rows import Row
from tidelog.tables.text import JsonText
from tidelog.view.internal_topics import INTERNAL_TOPICS, DecodedRecord, decode_internal

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decoded", "decoded_row", "ensure_decodable"]


def ensure_decodable(topic: str) -> None:
    """Raise InvalidRequestError if nothing is known of what the records of a topic say."""
    if topic not in INTERNAL_TOPICS:
        raise InvalidRequestError(
            f"{topic} is no topic of Kafka's own; {', '.join(sorted(INTERNAL_TOPICS))} are decoded"
        )


def decoded_row(row: Row, topic: str) -> Row:
    """The same row with key and value as JSON."""
    key, value = _decoded(topic, row["offset"], row["key"], row["value"])
    return {**row, "key": key, "value": value}


def decoded(batch: "pa.RecordBatch", topic: str) -> "pa.RecordBatch":
    """The same rows with keys and values as JSON."""
    import pyarrow as pa

    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    pairs = [_decoded(topic, *row) for row in zip(*columns, strict=True)]
    for place, name in enumerate(("key", "value")):
        texts = pa.array([pair[place] for pair in pairs], pa.binary())
        batch = batch.set_column(batch.schema.get_field_index(name), name, texts)
    return batch


def _decoded(topic: str, offset: int, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
    return _texts(key, value, decode_internal(topic, Record(offset, -1, key, value)))


def _texts(key: bytes | None, value: bytes | None, record: DecodedRecord) -> tuple[bytes | None, bytes | None]:
    of_value: dict[str, Any] = {"version": record.version, "data": record.value}
    if record.key is not None:
        key = _words({"type": record.type, "data": record.key})
    elif record.type:
        of_value = {"type": record.type, **of_value}
    return key, value if record.value is None else _words(of_value)


def _words(node: dict[str, Any]) -> JsonText:
    return JsonText(json_text(node).encode())
