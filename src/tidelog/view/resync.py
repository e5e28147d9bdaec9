"""Finding the next sound batch behind bytes that are none.

A batch has no mark at its start. But its version, its length, its offsets and, above all, its checksum leave next to no
chance that other bytes pass for one; and where the length of the broken batch leads to a sound one, nobody searches.
"""

from typing import Any

import numpy as np

from tidelog.errors import CorruptionError, UnsupportedError
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.files import ReadFile
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC, batch_of
from tidelog.records.java import MAX_INT32
from tidelog.records.legacy import MIN_MESSAGE_SIZE

__all__ = ["Resync", "is_zero"]

_CHUNK = 1 << 20
_SMALLEST_V2 = BATCH_HEADER_SIZE - PREFIX_SIZE
_LEGACY_HEAD = 26

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class Resync:
    """Looks for sound batches of one segment."""

    def __init__(self, file: ReadFile, size: int, base_offset: int) -> None:
        self._file = file
        self._size = size
        self._base_offset = base_offset

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
            if not self._fits(info.base_offset, info.last_offset):
                return None
            batch = batch_of(self._file.read(position, length + PREFIX_SIZE))
            batch.ensure_valid()
        except (CorruptionError, UnsupportedError):
            return None
        return info

    def _fits(self, first: int, last: int) -> bool:
        return self._base_offset <= first <= last <= self._base_offset + MAX_INT32

    def next_sound(self, start: int, *, legacy: bool) -> int | None:
        """The position of the first sound batch at or after `start`; entries of the old formats only if wished."""
        while self._size - start > HEADER_SIZE_UP_TO_MAGIC:
            data = self._file.read(start, _CHUNK)
            for candidate in self._candidates(np.frombuffer(data, np.uint8), start, legacy).tolist():
                if self.sound_at(candidate) is not None:
                    return int(candidate)
            if start + len(data) >= self._size or len(data) <= BATCH_HEADER_SIZE:
                return None
            start += len(data) - BATCH_HEADER_SIZE
        return None

    def swallowed(self, start: int, end: int) -> int | None:
        """Where sound batches begin, behind `start`, that stand one behind the other and reach `end` exactly.

        The length of a broken batch may be wrong though it leads to a sound one, and cover those between.
        A batch that somebody has put into the value of a record ends before the record does, and is none of them.
        """
        at = self.next_sound(start, legacy=True)
        while at is not None and at < end:
            first = at
            while at < end and (info := self.sound_at(at)) is not None:
                at += info.size
            if at == end or (at > end and at == self._size):
                return first
            at = self.next_sound(max(at, first + 1), legacy=True)
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
        return at[(relative >= 0) & (relative <= MAX_INT32)]


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
