"""The time index (`.timeindex`): up to which offset nothing is younger than a timestamp.

    row := i64 timestamp, i32 offset - base of the segment          12 bytes, timestamps increase, offsets do not fall

An entry (T, O) says that T is the largest timestamp up to offset O, so a record above T lies behind O. O is the last
offset of the first batch that reached T; up to 3.6 it could be any offset of that batch. The last entry of a segment
that was rolled or closed holds its largest timestamp: one slot is kept free for it.

Kafka: TimeIndex.
"""

import struct
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, InvalidRequestError
from tidelog.log.files import FileSystem, ReadFile
from tidelog.log.index_file import TAIL_ROWS, IndexEntries, IndexFile, Row
from tidelog.records.java import MAX_INT32

__all__ = ["TimeEntries", "TimeIndex", "TimestampOffset"]

_ROW = struct.Struct(">qi")
_SIZE = _ROW.size
_pack = _ROW.pack
_TAIL_BYTES = TAIL_ROWS * _SIZE
_MAX_TIMESTAMP = 2**63 - 1
_NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    """A timestamp, and an offset up to which nothing is above it."""

    timestamp_ms: int
    offset: int


class TimeEntries(IndexEntries[TimestampOffset]):
    """The entries of a time index, read from any file."""

    __slots__ = ()
    ROW = _ROW

    @property
    def last(self) -> TimestampOffset:
        """The last entry; no timestamp, and the base offset, if there is none."""
        return self.entry(self._count - 1) if self._count else TimestampOffset(_NO_TIMESTAMP, self.base_offset)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; no timestamp, and the base offset, if there is none."""
        return self.last

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The entry with the greatest timestamp not above the given; no timestamp, and the base, if there is none."""
        found = self._greatest_at_most(timestamp_ms)
        if found is None:
            return TimestampOffset(_NO_TIMESTAMP, self.base_offset)
        slot, row = found
        self._check_neighbours(slot)
        return self._entry_of(row)

    def _entry_of(self, row: Row) -> TimestampOffset:
        return TimestampOffset(row[0], self.base_offset + row[1])


class TimeIndex(IndexFile):
    """The time index of a segment, read and written."""

    __slots__ = ("_last",)
    ROW = _ROW

    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_size: int = -1) -> None:
        super().__init__(fs, path, base_offset, max_size)
        self._last = TimestampOffset(_NO_TIMESTAMP, base_offset)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; no timestamp, and the base offset, if there is none."""
        if not self._is_counted:
            self._open()
        return self._last

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if there is none."""
        return self.last_entry.offset

    @property
    def is_full(self) -> bool:
        """Whether only the slot is free that is kept for the last entry of the segment."""
        if not self._is_counted:
            self._open()
        return self._count >= self._capacity - 1

    def maybe_append(self, timestamp_ms: int, offset: int, *, skip_full: bool = False) -> None:
        """Add an entry if its timestamp is above that of the last one. Neither number may fall.

        `skip_full` is for the last entry of a segment, which may take the slot that is kept free.
        """
        if not self._is_counted:
            self._open()
        count = self._count
        if count >= self._capacity - 1 and not skip_full:
            raise InvalidRequestError(f"{self.path}: the time index is full, with {count} entries")
        last_ms, last_offset = self._last
        if count and (offset < last_offset or timestamp_ms < last_ms):
            raise self._refusal(timestamp_ms, offset)
        if timestamp_ms <= last_ms:
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_INT32:
            raise self._overflow(offset)
        if count >= self._capacity or timestamp_ms > _MAX_TIMESTAMP:
            raise InvalidRequestError(f"{self.path}: no room for {timestamp_ms} in slot {count} of {self._capacity}")
        written, rows = self._tail
        rows += _pack(timestamp_ms, relative)
        if len(rows) >= _TAIL_BYTES:
            file = self._file or self._open_if_possible()
            if file is not None:
                file.write_at(written * _SIZE, rows)
                written, rows = count + 1, b""
        self._last = TimestampOffset(timestamp_ms, offset)
        self._tail = (written, rows)  # in one piece: readers go by it
        self._count = count + 1

    def _refusal(self, timestamp_ms: int, offset: int) -> Exception:
        if offset < self._last.offset:
            return CorruptIndexError(
                f"{self.path}: offset {offset} in slot {self._count}, behind offset {self._last.offset}"
            )
        return InvalidRequestError(
            f"{self.path}: timestamp {timestamp_ms} in slot {self._count}, behind {self._last.timestamp_ms}"
        )

    def reader(self) -> TimeEntries:
        """The entries that are there now."""
        file = self._file
        if file is None:
            file = self._open()
        return TimeEntries(file, self.base_offset, *self._tail)

    def entry(self, number: int) -> TimestampOffset:
        """The entry in a slot, counted from 0."""
        return self.reader().entry(number)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The entry with the greatest timestamp not above the given; no timestamp, and the base, if there is none."""
        return self.reader().lookup(timestamp_ms)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from `offset` on, by the column of offsets."""
        self._keep(self.reader()._count_below(offset - self.base_offset, column=1))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the last entry is below the first or the base, or the file ends inside one."""
        last = self.last_entry
        if self._count:
            first_ms = self.entry(0).timestamp_ms
            if last.timestamp_ms < first_ms:
                raise CorruptIndexError(f"{self.path}: the last timestamp {last.timestamp_ms} is below {first_ms}")
            if last.offset < self.base_offset:
                raise CorruptIndexError(
                    f"{self.path}: the last offset {last.offset} is below the base {self.base_offset}"
                )
        super().sanity_check()

    def _remember(self, file: ReadFile, written: int, rows: bytes = b"") -> None:
        entries = TimeEntries(file, self.base_offset, written, rows)
        self._last = entries.last
        self._tail = (written, rows)
        self._count = len(entries)
