"""The offset index (`.index`): where in the log a batch begins.

    row := i32 offset - base of the segment, i32 position in the `.log`          8 bytes, offsets increase

Sparse: one entry per `index.interval.bytes` of log. The offset is the last of the batch that begins at the position;
releases up to 1.1 stored the first, so whoever reads must walk from the position until the offset is reached.

Kafka: OffsetIndex.
"""

import struct
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, InvalidRequestError
from tidelog.log.files import FileSystem, ReadFile
from tidelog.log.index_file import TAIL_ROWS, IndexEntries, IndexFile, Row
from tidelog.records.java import MAX_INT32

__all__ = ["OffsetEntries", "OffsetIndex", "OffsetPosition"]

_ROW = struct.Struct(">ii")
_SIZE = _ROW.size
_pack = _ROW.pack
_TAIL_BYTES = TAIL_ROWS * _SIZE


class OffsetPosition(NamedTuple):
    """An offset, and the position of the batch that holds it."""

    offset: int
    position: int


class OffsetEntries(IndexEntries[OffsetPosition]):
    """The entries of an offset index, read from any file."""

    __slots__ = ()
    ROW = _ROW

    @property
    def last(self) -> OffsetPosition:
        """The last entry; the start of the segment if there is none."""
        return self.entry(self._count - 1) if self._count else OffsetPosition(self.base_offset, 0)

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if there is none."""
        return self.last.offset

    def lookup(self, target: int) -> OffsetPosition:
        """The entry with the greatest offset not above `target`; the start of the segment if there is none."""
        found = self._greatest_at_most(target - self.base_offset)
        return OffsetPosition(self.base_offset, 0) if found is None else self._checked(*found)

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """An entry that lies at or after `position`, None if there is none: nothing before it has its offset.

        It is the first such entry, but the second where the very first one lies at `position`, as in Kafka.
        """
        found = self._least_at_least(position, column=1)
        return None if found is None else self._checked(*found)

    def _checked(self, slot: int, row: Row) -> OffsetPosition:
        self._check_neighbours(slot)
        if row[1] < 0:
            raise CorruptIndexError(f"{self._file.path}: slot {slot} points to position {row[1]}")
        return self._entry_of(row)

    def _entry_of(self, row: Row) -> OffsetPosition:
        return OffsetPosition(self.base_offset + row[0], row[1])


class OffsetIndex(IndexFile):
    """The offset index of a segment, read and written."""

    __slots__ = ("_last_offset",)
    ROW = _ROW

    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_size: int = -1) -> None:
        super().__init__(fs, path, base_offset, max_size)
        self._last_offset = base_offset - 1  # below everything that may come, while there is nothing

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if there is none."""
        self._open()
        return self._last_offset if self._count else self.base_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Its offset must be above that of the last one."""
        if not self._is_counted:
            self._open()
        count = self._count
        if count >= self._capacity:
            raise InvalidRequestError(f"{self.path}: the index is full, with {count} entries")
        relative = offset - self.base_offset
        if offset <= self._last_offset or relative > MAX_INT32:
            raise self._refusal(offset)
        if not 0 <= position <= MAX_INT32:
            raise InvalidRequestError(f"{self.path}: position {position} does not fit an index entry")
        written, rows = self._tail
        rows += _pack(relative, position)
        if len(rows) >= _TAIL_BYTES:
            file = self._file or self._open_if_possible()
            if file is not None:
                file.write_at(written * _SIZE, rows)
                written, rows = count + 1, b""
        self._last_offset = offset
        self._tail = (written, rows)  # in one piece: readers go by it
        self._count = count + 1

    def _refusal(self, offset: int) -> Exception:
        if self._count and offset <= self._last_offset:
            return CorruptIndexError(
                f"{self.path}: offset {offset} in slot {self._count}, behind offset {self._last_offset}"
            )
        return self._overflow(offset)

    def reader(self) -> OffsetEntries:
        """The entries that are there now."""
        file = self._file
        if file is None:
            file = self._open()
        return OffsetEntries(file, self.base_offset, *self._tail)

    def entry(self, number: int) -> OffsetPosition:
        """The entry in a slot, counted from 0."""
        return self.reader().entry(number)

    def lookup(self, target: int) -> OffsetPosition:
        """The entry with the greatest offset not above `target`; the start of the segment if there is none."""
        return self.reader().lookup(target)

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """An entry that lies at or after `position`; None if there is none."""
        return self.reader().upper_bound(position)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from `offset` on."""
        self._keep(self.reader()._count_below(offset - self.base_offset))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the last offset is below the base or the file ends inside an entry."""
        if self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: the last offset {self._last_offset} is below the base {self.base_offset}"
            )
        super().sanity_check()

    def _remember(self, file: ReadFile, written: int, rows: bytes = b"") -> None:
        entries = OffsetEntries(file, self.base_offset, written, rows)
        count = len(entries)
        self._last_offset = entries.last.offset if count else self.base_offset - 1
        self._tail = (written, rows)
        self._count = count
