"""What prints the dumps of these pages: every byte of a batch on a line with its name and its value.

The names and values come from `tidelog.records`; this file only knows how many bytes each field takes. It walks the
bytes once, from the first to the last, and then asks the reader for the records: both must agree.

    >>> from tidelog.records import NewRecord, build_batch
    >>> print(annotate(build_batch([NewRecord(b"k", None, 5)]), start=57))
      57  00 00 00 01              records_count           1
      61  0e                       record 0: length        7
      62  00                       attributes              0
      63  00                       timestamp_delta         0
      64  00                       offset_delta            0
      65  02                       key_length              1
      66  6b                       key                     b'k'
      67  01                       value_length            -1
      68  00                       header_count            0
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.records import BATCH_HEADER_SIZE, BatchHeader, Codec, ControlType, LegacyBatch, RecordBatch, batch_of
from tidelog.records.varint import Buffer, read_varint, read_varlong

__all__ = ["annotate", "annotate_lz4"]

_BYTES_A_LINE = 8

# The fields of a version 2 header, in order, and their sizes.
_HEADER_SIZES = dict(zip(BatchHeader._fields, (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4), strict=True))
assert sum(_HEADER_SIZES.values()) == BATCH_HEADER_SIZE

_FLAGS = {0x08: "LogAppendTime", 0x10: "transactional", 0x20: "control", 0x40: "delete horizon"}


class Field(NamedTuple):
    """Bytes that belong together."""

    position: int
    data: bytes
    name: str
    value: object

    def lines(self) -> Iterator[str]:
        """The field on one line, or on several where it is longer than eight bytes."""
        for start in range(0, max(len(self.data), 1), _BYTES_A_LINE):
            part = self.data[start : start + _BYTES_A_LINE]
            words = f"  {self.name:<26}{self.value}" if start == 0 else ""
            yield f"{self.position + start:>4}  {part.hex(' '):<23}{words}".rstrip()


class _Walk:
    """A position that moves over the bytes and leaves fields behind."""

    def __init__(self, data: Buffer) -> None:
        self.data = bytes(data)
        self.position = 0
        self.fields: list[Field] = []

    def take(self, size: int, name: str, value: object = None) -> bytes:
        """The next `size` bytes; without a value they are shown as they are."""
        data = self.data[self.position : self.position + size]
        assert len(data) == size, f"{name} at {self.position} ends beyond the bytes"
        self.fields.append(Field(self.position, data, name, data if value is None else value))
        self.position += size
        return data

    def number(self, layout: str, name: str) -> int:
        (value,) = struct.unpack_from(layout, self.data, self.position)
        self.take(struct.calcsize(layout), name, value)
        return int(value)

    def varint(self, name: str) -> int:
        value, end = read_varint(self.data, self.position, len(self.data))
        self.take(end - self.position, name, value)
        return value

    def varlong(self, name: str) -> int:
        value, end = read_varlong(self.data, self.position, len(self.data))
        self.take(end - self.position, name, value)
        return value

    def sized(self, size: int, name: str) -> bytes | None:
        """A field whose length was just read; a negative one is null and takes no bytes."""
        return self.take(size, name) if size > 0 else None if size < 0 else b""

    def text(self, start: int) -> str:
        assert self.position == len(self.data), f"{len(self.data) - self.position} bytes have no name"
        return "\n".join(line for field in self.fields if field.position >= start for line in field.lines())


def annotate(data: Buffer, *, start: int = 0) -> str:
    """A batch or a legacy entry, field by field; `start` leaves out what comes before that position."""
    batch, walk = batch_of(data), _Walk(data)
    if isinstance(batch, RecordBatch):
        _header(walk, batch)
        if batch.codec is Codec.NONE:
            seen = [_record(walk, batch, index) for index in range(batch.count)]
            assert seen == [(record.key, record.value, list(record.headers)) for record in batch]
        else:
            walk.take(len(walk.data) - walk.position, "records", f"{batch.count} records, {batch.codec.label}")
    else:
        _entry(walk, batch)
    return walk.text(start)


def _attributes(bits: int) -> str:
    words = [Codec.from_id(bits & 7).label, *(word for bit, word in _FLAGS.items() if bits & bit)]
    return f"{bits:#x} {', '.join(words)}"


def _header(walk: _Walk, batch: RecordBatch) -> None:
    shown = {"crc": f"{batch.crc:#010x}", "attributes": _attributes(batch.header.attributes)}
    for name, size in _HEADER_SIZES.items():
        walk.take(size, name, shown.get(name, getattr(batch.header, name)))


Seen = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def _record(walk: _Walk, batch: RecordBatch, index: int) -> Seen:
    length = walk.varint(f"record {index}: length")
    end = walk.position + length
    walk.take(1, "attributes", 0)
    walk.varlong("timestamp_delta")
    walk.varint("offset_delta")
    key_length = walk.varint("key_length")
    key = _control_key(walk) if batch.is_control else walk.sized(key_length, "key")
    value_length = walk.varint("value_length")
    value = _marker_value(walk) if batch.is_control else walk.sized(value_length, "value")
    headers = []
    for _ in range(walk.varint("header_count")):
        name = walk.sized(walk.varint("header_key_length"), "header_key")
        assert name is not None
        headers.append((name.decode(), walk.sized(walk.varint("header_value_length"), "header_value")))
    assert walk.position == end
    return key, value, headers


def _control_key(walk: _Walk) -> bytes:
    key = walk.data[walk.position : walk.position + 4]
    walk.number(">h", "key: version")
    walk.take(2, "key: type", f"{key[3]} {ControlType.parse(key).name}")
    return key


def _marker_value(walk: _Walk) -> bytes:
    start = walk.position
    walk.number(">h", "value: version")
    walk.number(">i", "value: coordinator_epoch")
    return walk.data[start : walk.position]


def _entry(walk: _Walk, entry: LegacyBatch) -> None:
    walk.number(">q", "offset")
    walk.number(">i", "size")
    walk.take(4, "crc", f"{entry.crc:#010x}")
    magic = walk.number(">b", "magic")
    walk.take(1, "attributes", _attributes(walk.data[walk.position]))
    if magic == 1:
        walk.number(">q", "timestamp")
    key = walk.sized(walk.number(">i", "key_length"), "key")
    value_length = walk.number(">i", "value_length")
    if entry.codec is Codec.NONE:
        value = walk.sized(value_length, "value")
        assert [(key, value)] == [(record.key, record.value) for record in entry]
    else:
        walk.take(value_length, "value", f"{len(entry.inner_messages())} messages, {entry.codec.label}")


def annotate_lz4(frame: bytes) -> str:
    """An LZ4 frame as Kafka writes it: no sums, no content size."""
    walk = _Walk(frame)
    walk.take(4, "magic", "")
    walk.take(1, "FLG", "version 1, independent blocks")
    walk.take(1, "BD", "blocks of 64 KiB")
    walk.take(1, "HC", "xxh32 of FLG and BD, second byte")
    while size := walk.number("<I", "block size"):
        if size >> 31:
            walk.fields[-1] = walk.fields[-1]._replace(value=f"{size & 0x7FFFFFFF}, stored")
        walk.take(size & 0x7FFFFFFF, "block", "")
    walk.fields[-1] = walk.fields[-1]._replace(name="end mark")
    return walk.text(0)
