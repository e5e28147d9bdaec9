"""What the engine knows about a batch without looking at its records.

One tuple serves appending, indexing, producer state, epochs, scanning and recovery, for both formats. Fields that a
legacy entry does not have hold the values that mean none.
"""

import struct
from typing import NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE
from tidelog.records.java import MAX_INT32
from tidelog.records.legacy import MESSAGE_OVERHEAD
from tidelog.records.varint import Buffer

__all__ = ["CONTROL", "TRANSACTIONAL", "BatchInfo", "batch_info"]

_CODEC, _LOG_APPEND_TIME = 0x07, 0x08
TRANSACTIONAL, CONTROL = 0x10, 0x20
_HEADER = struct.Struct(">qiibIhiqqqhii")  # as in records.batch
assert _HEADER.size == BATCH_HEADER_SIZE
_LEGACY_HEAD = struct.Struct(">qi4xbb")  # offset, size, crc, magic, attributes; the timestamp of magic 1 follows
_TIMESTAMP_POSITION = _LEGACY_HEAD.size


class BatchInfo(NamedTuple):
    """A batch: where it lies, which offsets it holds, and who wrote it."""

    position: int  # in its file or buffer
    size: int
    base_offset: int  # of a legacy entry: its last offset, since its first may need decompression
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int  # -1 in legacy entries
    magic: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int  # by the header; -1 in legacy entries

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def is_legacy(self) -> bool:
        return self.magic < MAGIC

    @property
    def codec_id(self) -> int:
        return self.attributes & _CODEC

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record the batch had when it was produced; -1 if it has none."""
        if self.base_sequence < 0:
            return -1
        last = self.base_sequence + (self.last_offset - self.base_offset)
        return last if last <= MAX_INT32 else last - MAX_INT32 - 1


def batch_info(buffer: Buffer, position: int = 0, file_position: int | None = None) -> BatchInfo:
    """The batch at `position` of `buffer`, whose header must be there up to the magic.

    `file_position` is what `BatchInfo.position` shall say, where the buffer is a window of a file.
    """
    where = position if file_position is None else file_position
    if len(buffer) - position < BATCH_HEADER_SIZE or not MAGIC <= buffer[position + 16] < 128:
        return _other_info(buffer, position, where)
    (base, length, epoch, magic, _, bits, delta, _, max_time, producer, producer_epoch, sequence, count) = (
        _HEADER.unpack_from(buffer, position)
    )
    return BatchInfo(
        where,
        length + PREFIX_SIZE,
        base,
        base + delta,
        max_time,
        epoch,
        magic,
        bits,
        producer,
        producer_epoch,
        sequence,
        count,
    )


def _other_info(buffer: Buffer, position: int, where: int) -> BatchInfo:
    """A legacy entry, or a version 2 batch that is too small for its own header."""
    offset, length, magic, attributes = _LEGACY_HEAD.unpack_from(buffer, position)
    size = length + PREFIX_SIZE
    if magic >= MAGIC:
        raise CorruptRecordError(f"position {where}: a batch of {size} bytes, its header alone takes 61")
    timestamp_ms = -1
    if magic:
        if size < PREFIX_SIZE + MESSAGE_OVERHEAD[1] or len(buffer) - position < _TIMESTAMP_POSITION + 8:
            raise CorruptRecordError(f"position {where}: {size} bytes are no entry of magic {magic}")
        timestamp_ms = int.from_bytes(buffer[position + 18 : position + 26], "big", signed=True)
    return BatchInfo(where, size, offset, offset, timestamp_ms, -1, magic, attributes, -1, -1, -1, -1)
