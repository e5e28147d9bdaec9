"""What a broker must know about the records of one batch before it stores them, found in one walk.

The walk checks the structure of every record (lengths, headers, nothing left over) and gathers what the rules of a
topic ask for: the largest timestamp, the first record outside the allowed times, the first without a key, and whether
offset deltas count 0, 1, 2. Which of these are errors is the log validator's business, not this room's.
"""

from typing import Any, NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.kernels.buffers import address_of, hold
from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.decode import skip_headers
from tidelog.kernels.memory import big_i32, big_i64, big_u32, load_u8, opaque
from tidelog.kernels.runtime import kernel
from tidelog.kernels.varint import read_varint, read_varlong
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES

__all__ = ["BatchFacts", "validate_batch"]

NONE = -1
_SOUND, _WRONG_CHECKSUM, _BROKEN, _WRONG_FRAME = range(4)
_CODEC_BYTE, _CODEC_BITS = 22, 0x07
_MIN_TIME, _MAX_TIME = -(2**63), 2**63 - 1


class BatchFacts(NamedTuple):
    """What a walk over a sound batch found."""

    max_timestamp_ms: int  # -1 if no record has a time
    first_early_or_late: int  # index of the first record outside the allowed times, or -1
    first_without_key: int  # index, or -1
    offsets_are_consecutive: bool


@kernel("UniTuple(int64, 5)(int64, int64, int64, int64, int64, int64, int64)")
def walk_batch(
    batch: int, size: int, body: int, body_end: int, verify: int, earliest: int, latest: int
) -> tuple[int, int, int, int, int]:
    """Walk a batch of `size` >= 61 bytes whose plain records lie between `body` and `body_end`."""
    max_timestamp = -1
    first_outside = NONE
    first_without_key = NONE
    consecutive = 1
    if big_i32(batch + 8) + PREFIX_SIZE != size or load_u8(batch + 16) != MAGIC:  # neither is under the checksum
        return _WRONG_FRAME, 0, 0, 0, 0
    if verify and crc32c_at(batch + 21, size - 21) != big_u32(batch + 17):
        return _WRONG_CHECKSUM, 0, 0, 0, 0
    is_append_time = load_u8(batch + 22) & 8
    base_timestamp = big_i64(batch + 35) if is_append_time else big_i64(batch + 27)
    timestamp_mask = 0 if is_append_time else -1
    count = big_i32(batch + 57)
    address = body
    if count < 0:
        return _BROKEN, 0, 0, 0, 0
    for index in range(count):
        length, address = read_varint(address, body_end)
        if length <= 0 or length > body_end - address:
            return _BROKEN, 0, 0, 0, 0
        record_end = address + length
        next_record = opaque(record_end)  # see decode.py
        delta, address = read_varlong(address + 1, record_end)
        timestamp = base_timestamp + (delta & timestamp_mask)
        delta, address = read_varint(address, record_end)
        consecutive &= delta == index
        length, address = read_varint(address, record_end)
        if length > record_end - address:
            return _BROKEN, 0, 0, 0, 0
        if length < 0 and first_without_key < 0:
            first_without_key = index
        length, address = read_varint(address + (length & ~(length >> 63)), record_end)
        if length > record_end - address:
            return _BROKEN, 0, 0, 0, 0
        length, address = read_varint(address + (length & ~(length >> 63)), record_end)
        if length:
            address = skip_headers(address, record_end, length)
        if address != record_end:
            return _BROKEN, 0, 0, 0, 0
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if first_outside < 0 and timestamp != -1 and (timestamp < earliest or timestamp > latest):
            first_outside = index
        address = next_record
    if count != 0 and address != body_end:
        return _BROKEN, 0, 0, 0, 0
    return _SOUND, max_timestamp, first_outside, first_without_key, consecutive


def validate_batch(
    buffer: Any,
    *,
    earliest_ms: int = _MIN_TIME,
    latest_ms: int = _MAX_TIME,
    verify: bool = True,
    max_size: int = MAX_DECOMPRESSED_BYTES,
) -> BatchFacts:
    """Check the version 2 batch that `buffer` is, decompressing it where need be.

    Raises CorruptRecordError for a wrong checksum or size, InvalidRecordError for a broken record. Times between
    `earliest_ms` and `latest_ms`, both included, and -1 (none) are allowed; the first other one is named in the facts.

    >>> from tidelog.records import NewRecord, build_batch
    >>> validate_batch(build_batch([NewRecord(b"k", b"v", 70), NewRecord(None, b"v", 50)]), latest_ms=60)
    BatchFacts(max_timestamp_ms=70, first_early_or_late=0, first_without_key=1, offsets_are_consecutive=True)
    """
    view = hold(buffer)
    address, size = address_of(view)
    if size < BATCH_HEADER_SIZE:
        raise CorruptRecordError(f"a batch of {size} bytes, its header alone takes {BATCH_HEADER_SIZE}")
    body, body_size = address + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE
    if view[_CODEC_BYTE] & _CODEC_BITS:
        batch = RecordBatch(view)
        _ensure_framed(batch)
        if verify:
            batch.ensure_valid()
        records = batch.records_bytes(max_size) if batch.count > 0 else b""  # else nothing is looked at
        body, body_size = address_of(hold(records))  # `records` lives until this function ends
        verify = False
    status, max_timestamp, outside, without_key, consecutive = walk_batch(
        address, size, body, body + body_size, int(verify), earliest_ms, latest_ms
    )
    if status != _SOUND:
        _explain(view, status, max_size)
    return BatchFacts(max_timestamp, outside, without_key, bool(consecutive))


def _explain(buffer: Any, status: int, max_size: int) -> None:
    """Let the readable path say what is wrong with a batch that the kernel refuses."""
    batch = RecordBatch(buffer)
    _ensure_framed(batch)
    if status == _WRONG_CHECKSUM:
        batch.ensure_valid()
    for _ in batch.records(max_size):
        pass
    raise AssertionError(f"{batch}: the kernels refuse a batch that tidelog.records can read")


def _ensure_framed(batch: RecordBatch) -> None:
    """Magic and length, which no checksum covers, must be those of the bytes that came."""
    says = batch.header.batch_length + PREFIX_SIZE
    if batch.magic != MAGIC or says != batch.size_in_bytes:
        raise CorruptRecordError(
            f"a batch of magic {batch.magic} and {says} bytes by its header; "
            f"magic {MAGIC} and {batch.size_in_bytes} bytes were expected"
        )
