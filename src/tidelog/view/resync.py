"""Finding the next sound batch behind bytes that are none.

A batch has no mark at its start. But its version, its length, its offsets and, above all, its checksum leave next to no
chance that other bytes pass for one; and where the length of the broken batch leads to a sound one, nobody searches.

The first 17 bytes of a version 2 batch (offset, length, leader epoch, version) are not under its checksum. The checksum
and what it covers are enough to know a batch by, if it is known where the batch ends: `headless` looks for those.
"""

from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import CorruptionError, UnsupportedError
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.files import ReadFile
from tidelog.log.offsets import MAX_OFFSET
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC, batch_of
from tidelog.records.checksum import crc32c_of
from tidelog.records.java import MAX_INT32
from tidelog.records.legacy import MIN_MESSAGE_SIZE

__all__ = ["Headless", "Resync", "is_zero"]

_CHUNK = 1 << 20
_SMALLEST_V2 = BATCH_HEADER_SIZE - PREFIX_SIZE
_LEGACY_HEAD = 26
_CRC_AT = HEADER_SIZE_UP_TO_MAGIC  # of a version 2 batch; what it covers follows
_MOST_MISSING = _CRC_AT - 1
_FIRST_CHUNK = 16 << 10
_NEAR = 4096
_MOST_SUMMED = 64 << 20  # bytes of checksums that one search may cost,
_MOST_TIMES_SUMMED = 4  # or so many times what is searched
_CODEC_BITS, _LARGEST_CODEC, _UNUSED_BITS = 0x07, 4, 0x80
_SIGN = 0x80

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class Headless(NamedTuple):
    """A version 2 batch whose checksum holds, whatever its first 17 bytes say."""

    start: int  # of its header
    end: int

    @property
    def length(self) -> int:
        """What its length field must say."""
        return self.end - self.start - PREFIX_SIZE


class Resync:
    """Looks for sound batches of one segment. With `any_offset` their offsets may be damaged."""

    def __init__(self, file: ReadFile, size: int, base_offset: int, *, any_offset: bool = False) -> None:
        self._file = file
        self._size = size
        self._base_offset = base_offset
        self._any_offset = any_offset

    def sound_at(self, position: int) -> BatchInfo | None:
        """The batch at a position, if it is one from its first byte to its last and could belong to the segment."""
        left = self._size - position
        if left <= HEADER_SIZE_UP_TO_MAGIC:
            return None
        head = self._file.read(position, min(BATCH_HEADER_SIZE, left))
        length = int.from_bytes(head[8:PREFIX_SIZE], "big", signed=True)
        magic = head[16] if len(head) > 16 else 0xFF
        if not MIN_MESSAGE_SIZE <= length <= left - PREFIX_SIZE or magic > MAGIC:
            return None
        try:
            info = batch_info(head, 0, position)
            if not self._any_offset and not self._fits(info.base_offset, info.last_offset):
                return None
            batch = batch_of(self._file.read(position, length + PREFIX_SIZE))
            batch.ensure_valid()
        except (CorruptionError, UnsupportedError):
            return None
        return info

    def _fits(self, first: int, last: int) -> bool:
        return self._base_offset <= first <= last <= min(self._base_offset + MAX_INT32, MAX_OFFSET - 1)

    def next_sound(self, start: int, *, legacy: bool, until: int | None = None) -> int | None:
        """The position of the first sound batch at or after `start`, and before `until`.

        Entries of the old formats only if wished.
        """
        until = self._size if until is None else until
        chunk = _FIRST_CHUNK  # the next one is near in most cases
        while self._size - start > HEADER_SIZE_UP_TO_MAGIC and start < until:
            data = self._file.read(start, min(chunk, until - start + BATCH_HEADER_SIZE))
            chunk = min(4 * chunk, _CHUNK)
            for candidate in self._candidates(np.frombuffer(data, np.uint8), start, legacy).tolist():
                if candidate >= until:
                    return None
                if self.sound_at(candidate) is not None:
                    return int(candidate)
            if start + len(data) >= self._size or len(data) <= BATCH_HEADER_SIZE:
                return None
            start += len(data) - BATCH_HEADER_SIZE
        return None

    def is_headless(self, found: Headless) -> bool:
        """Whether what stands between two positions is a version 2 batch, whatever its first 17 bytes say."""
        if found.end - found.start < BATCH_HEADER_SIZE:
            return False
        head = self._file.read(found.start, BATCH_HEADER_SIZE)
        if len(head) < BATCH_HEADER_SIZE:
            return False  # it was cut while we looked
        is_sane = bool(len(_with_sane_fields(np.frombuffer(head, np.uint8), np.zeros(1, np.int64))))
        return is_sane and self._sum_holds(found)

    def short_headed(self, position: int, end: int) -> Headless | None:
        """The batch between two positions of which some of the first 17 bytes are missing: it begins before its start.

        The checksum and what it covers must be there.
        """
        head = self._file.read(position, BATCH_HEADER_SIZE - 1)
        if end - position < BATCH_HEADER_SIZE - 1 or len(head) < BATCH_HEADER_SIZE - 1:
            return None
        data = np.frombuffer(bytes(_MOST_MISSING) + head, np.uint8)
        for candidate in _with_sane_fields(data, np.arange(_MOST_MISSING)).tolist():
            found = Headless(position - _MOST_MISSING + candidate, end)
            if found.length >= _SMALLEST_V2 and self._sum_holds(found):
                return found
        return None

    def _sum_holds(self, found: Headless) -> bool:
        at, computed = found.start + _CRC_AT + 4, 0
        stored = int.from_bytes(self._file.read(found.start + _CRC_AT, 4), "big")
        while at < found.end:
            data = self._file.read(at, min(_CHUNK, found.end - at))
            if not data:
                return False
            computed = crc32c_of(data, computed)
            at += len(data)
        return computed == stored

    def headless(self, start: int, end: int) -> Headless | None:
        """The batch that ends at `end`, and of which nothing stands before `start`, by its checksum alone."""
        return self.headless_near(start, end) or self.last_headless(start, end)

    def headless_near(self, start: int, end: int) -> Headless | None:
        """The same for a batch that begins close after `start`, as it does if bytes were inserted into its header."""
        candidates = self._headless_candidates(start, min(start + _NEAR, end - BATCH_HEADER_SIZE + 1))
        return self._first_headless(candidates, end, max(_MOST_SUMMED, _MOST_TIMES_SUMMED * (end - start)))

    def last_headless(self, start: int, end: int) -> Headless | None:
        """The same for a batch of any size: positions close to the end, whose checksums cost least, come first."""
        stop, size = end - BATCH_HEADER_SIZE + 1, _FIRST_CHUNK
        left = max(_MOST_SUMMED, _MOST_TIMES_SUMMED * (end - start))
        while stop > start and left > 0:
            first = max(start, stop - size)
            candidates = self._headless_candidates(first, stop)[::-1]
            found = self._first_headless(candidates, end, left)
            if found is not None:
                return found
            left -= int((end - candidates).sum())
            stop, size = first, min(2 * size, _CHUNK)
        return None

    def _headless_candidates(self, start: int, stop: int) -> Int64Array:
        """The positions of a range at which the fields under a checksum could be those of a version 2 batch."""
        size = stop - start + BATCH_HEADER_SIZE - 1
        data = np.frombuffer(self._file.read(start, size) if stop > start else b"", np.uint8)
        if len(data) < size or stop <= start:
            return np.empty(0, np.int64)  # it was cut while we looked
        return _with_sane_fields(data, _sane_count(data)) + start

    def _first_headless(self, candidates: Int64Array, end: int, most_summed: int) -> Headless | None:
        for candidate in candidates.tolist():
            found = Headless(candidate, end)
            if self._sum_holds(found):
                return found
            most_summed -= end - candidate
            if most_summed < 0:
                break
        return None

    def swallowed(self, start: int, end: int) -> int | None:
        """Where sound batches begin, behind `start`, that stand one behind the other and reach `end` exactly.

        The length of a broken batch may be wrong though it leads to a sound one, and cover those between.
        A batch that somebody has put into the value of a record ends before the record does, and is none of them.
        """
        at = self.next_sound(start, legacy=True, until=end)
        while at is not None and at < end:
            first = at
            while at < end and (info := self.sound_at(at)) is not None:
                at += info.size
            if at == end or (at > end and at == self._size):
                return first
            at = self.next_sound(max(at, first + 1), legacy=True, until=end)
        return None

    def _candidates(self, data: Bytes, start: int, legacy: bool) -> Int64Array:
        """Where in `data`, which stands at `start`, version, length and offsets are those of a batch."""
        magic = data[16:]
        found = [self._plausible(data, start, np.flatnonzero(magic == MAGIC), BATCH_HEADER_SIZE, _SMALLEST_V2)]
        if legacy:
            found.append(self._plausible(data, start, np.flatnonzero(magic < MAGIC), _LEGACY_HEAD, MIN_MESSAGE_SIZE))
        return np.sort(np.concatenate(found)) + start

    def _plausible(self, data: Bytes, start: int, at: Int64Array, head: int, smallest: int) -> Int64Array:
        at = at[at + head <= len(data)]
        length = _big(data, at + 8, 4).astype(np.int32)
        at = at[(length >= smallest) & (length <= self._size - PREFIX_SIZE - start - at)]
        relative = _big(data, at, 8) - self._base_offset
        is_near = (relative >= 0) & (relative <= MAX_INT32)
        if self._any_offset and head == BATCH_HEADER_SIZE:
            return np.union1d(at[is_near], _with_sane_fields(data, at[~is_near]))
        return at[is_near]


def _with_sane_fields(data: Bytes, at: Int64Array) -> Int64Array:
    """Of positions of version 2 batches those whose fields under the checksum could be such: random ones are not."""
    at = at[
        (data[at + 21] == 0) & (data[at + 22] & _UNUSED_BITS == 0) & (data[at + 22] & _CODEC_BITS <= _LARGEST_CODEC)
    ]
    delta, count = (_big(data, at + field, 4).astype(np.int32) for field in (23, 57))
    at = at[(delta >= 0) & (count > 0) & (count - 1 <= delta)]
    producer, sequence = _big(data, at + 43, 8), _big(data, at + 53, 4).astype(np.int32)
    epoch = _big(data, at + 51, 2).astype(np.int16)
    return at[(producer >= -1) & (epoch >= -1) & (sequence >= -1)]


def _sane_count(data: Bytes) -> Int64Array:
    """Where a version 2 batch could begin by its attributes and its number of records, at little cost a byte."""
    size = len(data) - BATCH_HEADER_SIZE + 1
    high, *others = (data[57 + byte : 57 + byte + size] for byte in range(4))
    has_records = high | others[0] | others[1] | others[2]
    return np.flatnonzero((data[21 : 21 + size] == 0) & (has_records != 0) & (high < _SIGN))


def _big(data: Bytes, at: Int64Array, size: int) -> Int64Array:
    """Numbers of `size` bytes at many positions."""
    value = np.zeros(len(at), np.int64)
    for byte in range(size):
        value = value << 8 | data[at + byte]
    return value


def is_zero(file: ReadFile, start: int, end: int) -> bool:
    """Whether all bytes between two positions are zero."""
    while start < end:
        data = file.read(start, min(_CHUNK, end - start))
        if not data or data.count(0) != len(data):
            return False
        start += len(data)
    return True
