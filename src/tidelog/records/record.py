"""One record inside a version 2 batch.

    length           varint   bytes that follow this field
    attributes       i8       unused, written 0, ignored when read
    timestampDelta   varlong  to the batch's base timestamp
    offsetDelta      varint   to the batch's base offset
    keyLength, key   varint, bytes    -1 is null, and any negative length reads as null
    valueLength, value   the same
    headerCount      varint   then, per header: a UTF-8 name that cannot be null, and a value that can

A record says nothing without its batch, so the reader is given the batch's bases. What was read (`Record`) and what
is about to be written (`NewRecord`) are two types: the first has a place in a log, the second wants one.

Kafka: org.apache.kafka.common.record.DefaultRecord.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from tidelog.errors import InvalidRecordError, InvalidRequestError
from tidelog.records.java import decode_utf8, increment_sequence, wrap_int64
from tidelog.records.varint import (
    Buffer,
    read_varint,
    read_varlong,
    size_of_varint,
    size_of_varlong,
    write_varint,
    write_varlong,
)

__all__ = [
    "MAX_RECORD_OVERHEAD",
    "Header",
    "NewRecord",
    "Record",
    "RecordBases",
    "TimestampType",
    "read_record",
    "record_size",
    "record_size_upper_bound",
    "write_record",
]

NO_TIMESTAMP = -1
NO_SEQUENCE = -1

MAX_RECORD_OVERHEAD = 5 + 1 + 10 + 5  # length, attributes, timestampDelta, offsetDelta at their longest


class TimestampType(IntEnum):
    """Who set the timestamps of a batch; the value is the one of attribute bit 3."""

    NO_TIMESTAMP_TYPE = -1  # magic 0 has none
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """The word that Kafka's tools and configs use: `CreateTime`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Header(NamedTuple):
    """A name and a value attached to a record. Names may repeat and keep their order."""

    key: str
    value: bytes | None


class NewRecord(NamedTuple):
    """A record about to be written: it has no offset yet."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()


class Record(NamedTuple):
    """A record read from a log, whatever the format that stored it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    sequence: int = NO_SEQUENCE


class RecordBases(NamedTuple):
    """What a batch header lends to its records."""

    base_offset: int
    base_timestamp_ms: int
    base_sequence: int
    log_append_time_ms: int | None  # the timestamp of every record, where the broker set it


def read_record(buffer: Buffer, position: int, end: int, bases: RecordBases) -> tuple[Record, int]:
    """Read the record at `position` of a batch that ends at `end`; give back the position behind it."""
    body_size, position = read_varint(buffer, position, end)
    if not 0 < body_size <= end - position:
        raise InvalidRecordError(f"position {position}: a record of {body_size} bytes, {end - position} are left")
    end = position + body_size
    position += 1  # attributes
    timestamp_delta, position = read_varlong(buffer, position, end)
    offset_delta, position = read_varint(buffer, position, end)
    key, position = _read_bytes(buffer, position, end)
    value, position = _read_bytes(buffer, position, end)
    headers, position = _read_headers(buffer, position, end)
    if position != end:
        raise InvalidRecordError(f"position {position}: {end - position} bytes left over inside a record")
    record = Record(
        offset=wrap_int64(bases.base_offset + offset_delta),
        timestamp_ms=(
            wrap_int64(bases.base_timestamp_ms + timestamp_delta)
            if bases.log_append_time_ms is None
            else bases.log_append_time_ms
        ),
        key=key,
        value=value,
        headers=headers,
        timestamp_type=(
            TimestampType.CREATE_TIME if bases.log_append_time_ms is None else TimestampType.LOG_APPEND_TIME
        ),
        sequence=increment_sequence(bases.base_sequence, offset_delta) if bases.base_sequence >= 0 else NO_SEQUENCE,
    )
    return record, position


def _read_bytes(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(buffer, position, end)
    if size < 0:
        return None, position
    if size > end - position:
        raise InvalidRecordError(f"position {position}: a field of {size} bytes, {end - position} are left")
    return bytes(buffer[position : position + size]), position + size


def _read_headers(buffer: Buffer, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(buffer, position, end)
    if not 0 <= count <= end - position:  # a header takes two bytes at least, so this bounds the loop
        raise InvalidRecordError(f"position {position}: {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(buffer, position, end)
        if key is None:
            raise InvalidRecordError(f"position {position}: a header without a name")
        value, position = _read_bytes(buffer, position, end)
        headers.append(Header(decode_utf8(key), value))
    return tuple(headers), position


def write_record(out: bytearray, offset_delta: int, timestamp_delta: int, record: NewRecord) -> None:
    """Append one record. The bytes are those of Kafka's own writer, minimal in every length."""
    write_varint(out, _body_size(offset_delta, timestamp_delta, record))
    out.append(0)  # attributes
    write_varlong(out, timestamp_delta)
    write_varint(out, offset_delta)
    _write_bytes(out, record.key)
    _write_bytes(out, record.value)
    write_varint(out, len(record.headers))
    for header in record.headers:
        _write_bytes(out, _name_bytes(header))
        _write_bytes(out, header.value)


def _name_bytes(header: Header) -> bytes:
    try:
        return header.key.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"header name {header.key!r}: half of a surrogate pair has no UTF-8") from None


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


def record_size(offset_delta: int, timestamp_delta: int, record: NewRecord) -> int:
    """Bytes that `write_record` appends.

    >>> record_size(0, 0, NewRecord(b"key1", b"value1"))
    17
    """
    body = _body_size(offset_delta, timestamp_delta, record)
    return size_of_varint(body) + body


def record_size_upper_bound(record: NewRecord) -> int:
    """Bytes that suffice wherever in a batch the record ends up: what a producer reserves for the first one."""
    return MAX_RECORD_OVERHEAD + _payload_size(record)


def _body_size(offset_delta: int, timestamp_delta: int, record: NewRecord) -> int:
    return 1 + size_of_varlong(timestamp_delta) + size_of_varint(offset_delta) + _payload_size(record)


def _payload_size(record: NewRecord) -> int:
    fields: Iterable[bytes | None] = (
        record.key,
        record.value,
        *(part for header in record.headers for part in (_name_bytes(header), header.value)),
    )
    return size_of_varint(len(record.headers)) + sum(
        1 if field is None else size_of_varint(len(field)) + len(field) for field in fields
    )
