"""A look at every record of many batches, in one pass, without taking anything out; and their headers as columns.

Told of each batch: whether its checksum holds, whether its records can be read to the last byte, whether their offsets
lie inside the batch (in which order is up to the producer), and whether the largest timestamp of its header is that of
its records. What the kernel finds wrong is read again by `verdict_of`, which is the same in words.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import DecompressedSizeError, InvalidRecordError, TidelogError
from tidelog.kernels.bodies import open_bodies
from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.decode import BODY_WORDS, ROW_SIZE, skip_headers
from tidelog.kernels.headers import HeaderScan, Seen
from tidelog.kernels.memory import (
    big_i16,
    big_i32,
    big_i64,
    big_u32,
    copy_bytes,
    little_u16,
    load_i64,
    load_u8,
    opaque,
    put_word,
    store_8,
    word_at,
)
from tidelog.kernels.runtime import inlined, inner, kernel
from tidelog.kernels.system import read_at
from tidelog.kernels.varint import fold, varint_at, varlong_at
from tidelog.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC
from tidelog.records.compression import Codec

__all__ = [
    "COLUMNS",
    "BatchVerdict",
    "RecordWalk",
    "header_columns",
    "look_through",
    "look_through_file",
    "verdict_of",
    "walk_records",
]


class BatchVerdict(IntEnum):
    """What a walk over the records of a batch found, the worst first."""

    SOUND = 0
    WRONG_CHECKSUM = 1
    BROKEN = 2  # the stream, or a record in it; or there are more or fewer than the header says
    WRONG_OFFSETS = 3  # of a record, outside the batch
    WRONG_TIME = 4  # the header names another largest timestamp
    TOO_LARGE = 5  # it decompresses to more than MAX_DECOMPRESSED_BYTES, so its records were not read


class RecordWalk(NamedTuple):
    """A verdict per batch, and how many records were walked over."""

    verdicts: np.ndarray[Any, np.dtype[np.uint8]]
    records: int


# Kernels take plain numbers.
_SOUND, _WRONG_CHECKSUM, _BROKEN, _WRONG_OFFSETS, _WRONG_TIME, _ = (int(verdict) for verdict in BatchVerdict)
COLUMNS = ("position", "size", "first", "last", "time", "epoch", "count", "attributes", "magic", "producer")
_LARGEST_CODEC = max(int(codec) for codec in Codec)
_UNDER_CRC = BATCH_HEADER_SIZE - ATTRIBUTES_POSITION

# Of three numbers that stand one behind the other, one byte each or two, two and one: the bits that say "goes on".
_ENDS_OF_1_1_1 = 0x80_80_80
_ENDS_OF_2_2_1 = 0x80_80_80_80_80
_GOES_ON_IN_2_2_1 = 0x00_00_80_00_80

_FAR = 1 << 62  # two numbers below it have a sum that does not wrap
_SMALLEST_RECORD = 6  # attributes, two deltas, two sizes and a number of headers, a byte each

# Of a number of two bytes that is not negative: the bits that say so.
_FORM_OF_SIZE = 0x80_81
_SIZE_OF_TWO_BYTES = 0x00_80


@inlined
def _turned(folded: int) -> int:
    """A folded number of few bits as one that is right if it is not negative, and negative if it is."""
    return folded >> 1 | folded << 63


@inlined
def _size_of(folded: int) -> int:
    """What a folded size takes up: a negative one, as that of a null, nothing."""
    return folded >> 1 & (folded & 1) - 1


@inlined
def _size_at(address: int) -> tuple[int, int]:
    """A size, 0 if it is negative as that of a null, and the address behind it. Most are of two bytes."""
    pair = little_u16(address)
    if pair & _FORM_OF_SIZE == _SIZE_OF_TWO_BYTES:
        return pair >> 8 << 6 | pair >> 1 & 0x3F, address + 2
    size, address = varint_at(address)
    return size & ~(size >> 63), address


@inner
def walk_one(header: int, address: int, end: int) -> int:
    """Walk over the records between two addresses, behind which SLACK bytes may be read.

    As in decode.py, a field is read first and compared with the record's end afterwards. Deltas of offsets and the size
    of a key are left folded, as they are written: an odd one is negative.
    """
    is_append_time = load_u8(header + 22) & 8
    first = address
    most = big_i32(header + 23)
    count = big_i32(header + 57)
    signs = 0
    highest = 0
    latest = -1  # of the time deltas, if one is not negative
    farthest = 0  # of those that are far from 0, without their sign
    if count < 0:
        return _BROKEN
    for _ in range(count):
        size, address = _size_at(address)
        if size < _SMALLEST_RECORD or size > end - address:
            return _BROKEN
        record_end = address + size
        next_record = opaque(record_end)  # see decode.py
        fields = load_i64(address + 1)  # the first three: nearly always one byte each, or two, two and one
        if fields & _ENDS_OF_1_1_1 == 0:
            time_delta = _turned(fields & 0x7F)
            delta = fields >> 8 & 0x7F
            key = fields >> 16 & 0x7F
            address += 4
        elif fields & _ENDS_OF_2_2_1 == _GOES_ON_IN_2_2_1:
            time_delta = _turned(fields & 0x7F | fields >> 1 & 0x3F80)
            delta = fields >> 16 & 0x7F | fields >> 17 & 0x3F80
            key = fields >> 32 & 0x7F
            address += 6
        else:
            time_delta, address = varlong_at(address + 1)
            if address > record_end:
                return _BROKEN
            farthest = max(farthest, time_delta ^ time_delta >> 63)
            delta, address = varint_at(address)
            if address > record_end:
                return _BROKEN
            delta = fold(delta)
            key, address = varint_at(address)
            key = fold(key)
            if _size_of(key) > record_end - address:
                return _BROKEN
        signs |= delta
        highest = max(highest, delta)
        latest = max(latest, time_delta)
        # A key whose size is one byte is compared with the record's end only now, together with the value.
        size, address = _size_at(address + _size_of(key))
        # Behind the value there is nearly always one byte, which says that there are no headers.
        if size != record_end - address - 1 or load_u8(record_end - 1) != 0:
            if size > record_end - address:
                return _BROKEN
            size, address = varint_at(address + size)
            if size:
                address = skip_headers(address, record_end, size)
            if address != record_end:
                return _BROKEN
        address = next_record
    if count != 0:
        if address != end:
            return _BROKEN
        if signs & 1 or highest >> 1 > most:
            return _WRONG_OFFSETS
        if not is_append_time:
            base = big_i64(header + 27)
            may_wrap = base < -1 or base >= _FAR or farthest >= _FAR
            max_timestamp = _max_timestamp(first, count, base) if latest < 0 or may_wrap else base + latest
            if max_timestamp != big_i64(header + 35):
                return _WRONG_TIME
    return _SOUND


@inner
def _max_timestamp(address: int, count: int, base: int) -> int:
    """The largest timestamp of sound records, at least -1. The sum of a base and a delta may wrap."""
    max_timestamp = -1
    for _ in range(count):
        size, address = varint_at(address)
        delta, _ = varlong_at(address + 1)
        max_timestamp = max(max_timestamp, base + delta)
        address += size
    return max_timestamp


@kernel("int64(int64, int64, int64, int64, int64)")
def walk(headers: int, bodies: int, batches: int, verify: int, verdicts: int) -> int:
    """Write a verdict for each batch; how many records those have that can be read.

    With `verify` checksums are compared, for which the 61 bytes before each body must be its header.
    """
    records = 0
    for batch in range(batches):
        header = headers + batch * ROW_SIZE
        address = word_at(bodies, BODY_WORDS * batch)
        end = word_at(bodies, BODY_WORDS * batch + 1)
        if verify and crc32c_at(address - _UNDER_CRC, end - address + _UNDER_CRC) != big_u32(header + 17):
            verdict = _WRONG_CHECKSUM
        else:
            verdict = walk_one(header, address, end)
        if verdict != _WRONG_CHECKSUM and verdict != _BROKEN:
            records += big_i32(header + 57)
        store_8(verdicts + batch, verdict)
    return records


@inner
def look_on(
    window: int, start: int, end: int, position: int, rows: int, positions: int, deep: int
) -> tuple[int, int, int]:
    """Take in the batches between two places of a window whose first byte stands at `position` of a file.

    That is: compare their checksums, with `deep` walk over their records, and note their headers and positions, for
    which the caller has made room. It ends before the first batch about which anything is out of the ordinary, and at
    one that is not all there. Of that the bytes which are there are copied before the window, if they are not more than
    the window is large, so that the next part of the file can be read behind them.

    Gives back how many batches there were, where the next one begins in the window, and whether that one is odd.
    """
    address = window + start
    stop = window + end
    found = 0
    while stop - address > HEADER_SIZE_UP_TO_MAGIC:
        size = big_i32(address + 8) + PREFIX_SIZE
        if load_u8(address + 16) != MAGIC or size < BATCH_HEADER_SIZE:
            return found, address - window, 1
        if size > stop - address:
            break
        if deep and load_u8(address + 22) & 7:
            return found, address - window, 1
        if crc32c_at(address + ATTRIBUTES_POSITION, size - ATTRIBUTES_POSITION) != big_u32(address + 17):
            return found, address - window, 1
        if deep and walk_one(address, address + BATCH_HEADER_SIZE, address + size) != _SOUND:
            return found, address - window, 1
        copy_bytes(rows + found * ROW_SIZE, address, BATCH_HEADER_SIZE)
        put_word(positions, found, position + address - window)
        address += size
        found += 1
    left = stop - address
    if 0 < left <= end:
        copy_bytes(window - left, address, left)
    return found, address - window, 0


@kernel("UniTuple(int64, 3)(int64, int64, int64, int64, int64, int64, int64)")
def look_through(
    window: int, start: int, end: int, position: int, rows: int, positions: int, deep: int
) -> tuple[int, int, int]:
    """`look_on`, from Python."""
    return look_on(window, start, end, position, rows, positions, deep)


@kernel("UniTuple(int64, 4)(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def look_through_file(
    descriptor: int,
    at: int,
    stop: int,
    position: int,
    window: int,
    size: int,
    rows: int,
    positions: int,
    room: int,
    deep: int,
) -> tuple[int, int, int, int]:
    """`look_on` through one window of `size` bytes after the other, from `at` in an open file up to `stop`.

    The next batch begins at `position`. What there is of it before `at` stands before the window. It ends early where
    there might not be `room` for the headers of a window, where there is less to read than there should be, behind a
    window in which no batch ends, and at anything odd.

    Gives back how many batches there were, where the next one begins, up to where was read, and whether it is odd.
    """
    found = 0
    while at < stop and (room - found) * BATCH_HEADER_SIZE >= 2 * size:
        wanted = min(size, stop - at)
        if read_at(descriptor, window, wanted, at) != wanted:
            return found, position, at, 1
        some, end, is_odd = look_on(
            window, position - at, wanted, at, rows + found * ROW_SIZE, positions + found * 8, deep
        )
        found += some
        position = at + end
        at += wanted
        if is_odd or at - position > size:
            return found, position, at, is_odd
    return found, position, at, 0


@kernel("int64(int64, int64, int64, int64)")
def fill_columns(rows: int, positions: int, count: int, target: int) -> int:
    """Write ten columns of `count` words, of as many version 2 headers: see COLUMNS. How many of them cannot be."""
    odd = 0
    for index in range(count):
        row = rows + index * ROW_SIZE
        delta = big_i32(row + 23)
        attributes = big_i16(row + 21)
        magic = load_u8(row + 16)
        put_word(target, index, word_at(positions, index))
        put_word(target, count + index, big_i32(row + 8) + PREFIX_SIZE)
        put_word(target, 2 * count + index, big_i64(row))
        put_word(target, 3 * count + index, big_i64(row) + delta)
        put_word(target, 4 * count + index, big_i64(row + 35))
        put_word(target, 5 * count + index, big_i32(row + 12))
        put_word(target, 6 * count + index, big_i32(row + 57))
        put_word(target, 7 * count + index, attributes)
        put_word(target, 8 * count + index, magic)
        put_word(target, 9 * count + index, big_i64(row + 43))
        odd += delta < 0 or attributes & 7 > _LARGEST_CODEC or magic > MAGIC
    return odd


def header_columns(rows: Any, positions: Any) -> tuple[Any, int]:
    """The headers of version 2 batches as COLUMNS, and how many have a field that no batch can have."""
    columns = np.empty((len(COLUMNS), len(rows)), np.int64)
    rows, positions = np.ascontiguousarray(rows), np.ascontiguousarray(positions)
    return columns, fill_columns(rows.ctypes.data, positions.ctypes.data, len(rows), columns.ctypes.data)


def walk_records(buffer: Any, scan: HeaderScan) -> RecordWalk:
    """Walk over the records of version 2 batches that a scan of `buffer` found.

    Checksums are compared on the way, where the scan has not done so and no batch is compressed.
    """
    count = len(scan.rows)
    verdicts = np.empty(count, np.uint8)
    verify = int(not scan.seen & (Seen.CHECKED | Seen.COMPRESSED))
    start = records = 0
    while start < count:
        part = scan.pick(slice(start, None)) if start else scan
        bodies = open_bodies(buffer, part)
        opened = len(bodies.table)
        rows = np.ascontiguousarray(part.rows)
        records += walk(rows.ctypes.data, bodies.table.ctypes.data, opened, verify, verdicts[start:].ctypes.data)
        start += opened
        if bodies.broken is not None:
            batch = scan.batch_in(buffer, start)
            is_too_large = isinstance(batch, RecordBatch) and verdict_of(batch)[0] is BatchVerdict.TOO_LARGE
            verdicts[start] = BatchVerdict.TOO_LARGE if is_too_large else BatchVerdict.BROKEN
            start += 1
    return RecordWalk(verdicts, records)


def verdict_of(batch: RecordBatch) -> tuple[BatchVerdict, str]:
    """The verdict on one batch, read record by record, and what is wrong in words.

    >>> from tidelog.records import NewRecord, build_batch
    >>> verdict_of(RecordBatch(build_batch([NewRecord(b"k", b"v", 70)])))
    (<BatchVerdict.SOUND: 0>, '')
    """
    header = batch.header
    try:
        batch.ensure_valid()
    except TidelogError as error:
        return BatchVerdict.WRONG_CHECKSUM, str(error)
    deltas: list[int] = []
    max_timestamp = -1
    try:
        for record in batch.records():
            deltas.append(record.offset - batch.base_offset)
            max_timestamp = max(max_timestamp, record.timestamp_ms)
    except DecompressedSizeError as error:
        return BatchVerdict.TOO_LARGE, str(error)
    except (InvalidRecordError, TidelogError) as error:
        return BatchVerdict.BROKEN, str(error)
    if deltas:
        if min(deltas) < 0 or max(deltas) > header.last_offset_delta:
            words = f"offset deltas from {min(deltas)} to {max(deltas)}, the batch ends with {header.last_offset_delta}"
            return BatchVerdict.WRONG_OFFSETS, words
        if max_timestamp != header.max_timestamp_ms and not header.attributes & 8:
            return (
                BatchVerdict.WRONG_TIME,
                f"the largest timestamp is {max_timestamp}, the header says {header.max_timestamp_ms}",
            )
    return BatchVerdict.SOUND, ""
