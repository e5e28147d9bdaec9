"""The entries of `.index` and `.timeindex` files as the tool reads them: all of the file, zeros included.

The tool maps an index and takes every whole slot for an entry. It creates an index that is missing and then fails; we
fail in the same words and create nothing.

Kafka: OffsetIndex, TimeIndex, AbstractIndex.
"""

import struct
from typing import Generic, NamedTuple, TypeVar

from tidelog.dump.java_errors import JavaError, illegal_argument
from tidelog.dump.java_files import read_file
from tidelog.dump.java_text import JavaFile
from tidelog.dump.releases import Release
from tidelog.records.java import wrap_int64

__all__ = ["OffsetEntries", "OffsetEntry", "TimeEntries", "TimeEntry"]

_OFFSET_ENTRY = struct.Struct(">ii")  # offset - base offset, position
_TIME_ENTRY = struct.Struct(">qi")  # timestamp, offset - base offset
_WARM_BYTES = 8192

_Entry = TypeVar("_Entry")


class OffsetEntry(NamedTuple):
    """One slot of an offset index."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """One slot of a time index."""

    timestamp_ms: int
    offset: int


class _Entries(Generic[_Entry]):
    """All slots of an index file."""

    entry_size: int
    kind: str

    def __init__(self, file: JavaFile, base_offset: int, release: Release) -> None:
        self.file = file
        self.base_offset = base_offset
        self._release = release
        self.data = _read_index(file)
        self.count = len(self.data) // self.entry_size

    def _ensure_whole(self) -> None:
        """Complain about bytes behind the last slot."""
        if len(self.data) % self.entry_size == 0:
            return
        release = self._release
        path = self.file.name if not release.is_at_least(0, 10, 1) else self.file.absolute
        start = f"{self.kind} {path} is corrupt, found {len(self.data)} bytes which is"
        if release.is_at_least(1, 1):
            dot = "" if release.is_at_least(3, 5) else "."
            raise self._corrupt(f"{start} neither positive nor a multiple of {self.entry_size}{dot}")
        raise self._corrupt(f"{start} not positive or not a multiple of {self.entry_size}.")

    def _corrupt(self, message: str) -> JavaError:
        release = self._release
        if not release.is_at_least(1, 1):
            return illegal_argument(f"requirement failed: {message}")
        package = "org.apache.kafka.storage.internals.log" if release.is_at_least(3, 5) else "kafka.log"
        return JavaError(f"{package}.CorruptIndexException", message)


class OffsetEntries(_Entries[OffsetEntry]):
    """The slots of an offset index."""

    entry_size = _OFFSET_ENTRY.size
    kind = "Index file"

    def __getitem__(self, index: int) -> OffsetEntry:
        relative, position = _OFFSET_ENTRY.unpack_from(self.data, index * _OFFSET_ENTRY.size)
        return OffsetEntry(wrap_int64(self.base_offset + relative), position)

    def position_of(self, offset: int) -> int:
        """Where to begin to look for an offset. In an index out of order the answer is that of Kafka's own search."""
        slot = self._slot_of(offset)
        return 0 if slot < 0 else self[slot].position

    def _slot_of(self, offset: int) -> int:
        if not self.count:
            return -1
        last = self.count - 1
        first_warm = 0
        if self._release.is_at_least(2, 1):
            first_warm = max(0, last - _WARM_BYTES // _OFFSET_ENTRY.size)
            if self[first_warm].offset < offset:
                return self._search(offset, first_warm, last)
            last = first_warm
        if self[0].offset > offset:
            return -1
        return self._search(offset, 0, last)

    def _search(self, offset: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) >> 1
            found = self[middle].offset
            if found == offset:
                return middle
            if found > offset:
                high = middle - 1
            else:
                low = middle
        return low

    def ensure_sane(self) -> None:
        """The check of --index-sanity-check."""
        release, path = self._release, self.file.absolute
        last = self[self.count - 1].offset if self.count else self.base_offset
        if release.is_at_least(2, 0):
            if last < self.base_offset:
                is_java = release.is_at_least(3, 5)
                where, dot = (path, "") if is_java else (f"({path})", ".")
                raise self._corrupt(
                    f"Corrupt index found, index file {where} has non-zero size but the last offset is {last} which "
                    f"is less than the base offset {self.base_offset}{dot}"
                )
        elif self.count and last <= self.base_offset:
            start = f"Corrupt index found, index file ({path}) has non-zero size but the last offset is {last}"
            if release.is_at_least(1, 1):
                raise self._corrupt(f"{start} which is no greater than the base offset {self.base_offset}.")
            if release.is_at_least(0, 10, 1):
                raise self._corrupt(f"{start} which is no larger than the base offset {self.base_offset}.")
            raise self._corrupt(f"{start} and the base offset is {self.base_offset}")
        self._ensure_whole()


class TimeEntries(_Entries[TimeEntry]):
    """The slots of a time index."""

    entry_size = _TIME_ENTRY.size
    kind = "Time index file"

    def __getitem__(self, index: int) -> TimeEntry:
        timestamp_ms, relative = _TIME_ENTRY.unpack_from(self.data, index * _TIME_ENTRY.size)
        return TimeEntry(timestamp_ms, wrap_int64(self.base_offset + relative))

    def ensure_sane(self) -> None:
        """The check of --index-sanity-check."""
        if self.count:
            first, last = self[0], self[self.count - 1]
            start = f"Corrupt time index found, time index file ({self.file.absolute}) has non-zero size but the last"
            is_new = self._release.is_at_least(1, 1)
            if last.timestamp_ms < first.timestamp_ms:
                word = "less" if is_new else "no larger"
                raise self._corrupt(
                    f"{start} timestamp is {last.timestamp_ms} which is {word} than the first timestamp "
                    f"{first.timestamp_ms}"
                )
            if last.offset < self.base_offset:
                word = "less" if is_new else "smaller"
                raise self._corrupt(
                    f"{start} offset is {last.offset} which is {word} than the first offset {self.base_offset}"
                )
        self._ensure_whole()


def _read_index(file: JavaFile) -> bytes:
    try:
        return read_file(file, by_channel=False)
    except JavaError as error:
        if error.message is not None and error.message.endswith("(No such file or directory)"):
            raise illegal_argument("Invalid max index size: -1") from None
        raise
