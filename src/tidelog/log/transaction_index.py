"""The transaction index (`.txnindex`): the aborted transactions whose ABORT marker lies in the segment.

    entry := i16 version 0, i64 producer id, i64 first offset, i64 last offset, i64 last stable offset       34 bytes

The first offset is that of the transaction's first record in this partition, which may lie in an earlier segment; the
last offset is the marker's, and increases. The last stable offset, as it was when the marker had been written, ends
a search: it is the first offset that an open transaction held back then, so every transaction that was aborted later
begins there or behind it, and one that is at or above the end of what a reader was given says that nothing further
can matter to that reader.

The file is there from the first abort on, is not preallocated, and is cut when the log is. A reader ignores what is
left of an entry at its end. Of the version only the first byte is looked at, as Kafka does.

Kafka: TransactionIndex, AbortedTxn.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, InvalidRequestError, UnsupportedError
from tidelog.log.file_sizes import check_size
from tidelog.log.files import FileSystem, ReadFile, WriteFile
from tidelog.log.held_file import HeldFile
from tidelog.log.open_files import OPEN_FILES
from tidelog.records.fields import pack

__all__ = ["AbortedTxnEntry", "CollectedTxns", "TransactionEntries", "TransactionIndex"]

_ENTRY = struct.Struct(">hqqqq")  # version, producer_id, first_offset, last_offset, last_stable_offset
_SIZE = _ENTRY.size
_VERSION = 0
_READ_AT_ONCE = 1024  # entries


class AbortedTxnEntry(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the ABORT marker
    last_stable_offset: int  # when the marker had been written


class CollectedTxns(NamedTuple):
    """The aborted transactions that a search found, and whether later segments cannot hold any more."""

    transactions: list[AbortedTxnEntry]
    is_complete: bool


class TransactionEntries:
    """The first `count` entries of a transaction index, read from any file; without a count, all that are complete."""

    __slots__ = ("_count", "_file")

    def __init__(self, file: ReadFile, count: int | None = None) -> None:
        self._file = file
        self._count = file.size // _SIZE if count is None else count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AbortedTxnEntry]:
        check_size(self._file.path, self._count * _SIZE)  # as long as a sparse file claims to be, this would not end
        for first in range(0, self._count, _READ_AT_ONCE):
            data = self._file.read(first * _SIZE, min(_READ_AT_ONCE, self._count - first) * _SIZE)
            # Less than was asked for: the log was truncated meanwhile, and what is gone was not to be seen.
            whole = data[: len(data) // _SIZE * _SIZE]
            for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(whole), first):
                if version >> 8 > _VERSION:
                    raise UnsupportedError(
                        f"{self._file.path}: entry {number} has version {version >> 8}, {_VERSION} is known"
                    )
                yield AbortedTxnEntry(*fields)

    def collect(self, fetch_offset: int, upper: int) -> CollectedTxns:
        """The transactions that overlap the offsets from `fetch_offset` to before `upper`."""
        return _collect(self, fetch_offset, upper)


def _collect(entries: Iterable[AbortedTxnEntry], fetch_offset: int, upper: int) -> CollectedTxns:
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            return CollectedTxns(found, is_complete=True)
    return CollectedTxns(found, is_complete=False)


class TransactionIndex(HeldFile):
    """The transaction index of a segment: one owner appends and truncates, any thread collects."""

    __slots__ = ("_count", "_is_probed", "_last_offset", "base_offset")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        super().__init__(fs, path)
        self.base_offset = base_offset
        self._is_probed = False  # whether it is known that there is a file, or that there is none
        self._count = 0
        self._last_offset: int | None = None

    @property
    def last_offset(self) -> int | None:
        """The last offset that the next entry must be above.

        None if there is no such bound. That is so of a file that was just opened too: as in Kafka, what an earlier
        run left is not held against what is appended now.
        """
        return self._last_offset

    def prepare(self) -> WriteFile:
        """The open file, created if need be."""
        return self._opened() or self._created()

    def append(self, entry: AbortedTxnEntry, file: WriteFile | None = None) -> None:
        """Add a transaction, whose marker must lie behind that of the last one.

        A caller that holds the open file passes it: none is opened then.
        """
        if self._last_offset is not None and entry.last_offset <= self._last_offset:
            raise InvalidRequestError(
                f"{self.path}: last offset {entry.last_offset} behind last offset {self._last_offset}"
            )
        data = pack(_ENTRY, _VERSION, *entry)
        file = file or self.prepare()
        file.write_at(self._count * _SIZE, data)
        self._last_offset = entry.last_offset
        self._count += 1  # last: readers go by it

    def entries(self) -> Iterator[AbortedTxnEntry]:
        """The transactions that are written now, in the order of their markers."""
        file = self._opened()
        return iter(()) if file is None else iter(TransactionEntries(file, self._count))

    def collect(self, fetch_offset: int, upper: int) -> CollectedTxns:
        """The transactions that overlap the offsets from `fetch_offset` to before `upper`."""
        return _collect(self.entries(), fetch_offset, upper)

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if a marker lies before the segment."""
        for entry in self.entries():
            if entry.last_offset < self.base_offset:
                raise CorruptIndexError(f"{self.path}: {entry} ends before the base offset {self.base_offset}")

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions from the first on whose marker lies at `offset` or behind."""
        last_offset: int | None = None
        for number, entry in enumerate(self.entries()):
            if entry.last_offset >= offset:
                self._cut(number, last_offset)
                return
            last_offset = entry.last_offset

    def reset(self) -> None:
        """Drop all transactions. A file that is there stays, empty."""
        self._cut(0, None)

    def _cut(self, count: int, last_offset: int | None) -> None:
        file = self._opened()
        self._count = count  # first: readers go by it
        self._last_offset = last_offset
        if file is not None:
            file.resize(count * _SIZE)

    def flush(self) -> None:
        """Return when the entries are on the disk. Without a file there is nothing to do."""
        file = self._opened()
        if file is not None:
            file.sync()

    def close(self) -> None:
        """Let go of the file for good."""
        self._let_go()

    def release(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        with self._lock:
            self._file = None
            self._is_probed = False
        OPEN_FILES.closed(self)

    def _opened(self) -> WriteFile | None:
        """The open file; None if there is none yet."""
        file = self._file
        if file is not None:
            return file
        with self._lock:
            self._check_not_closed()
            if not self._is_probed:
                if self.exists():
                    file = self._fs.open_write(self.path, create=False)
                    # What is left of a torn entry is written over, where Kafka would write behind it.
                    self._count = file.size // _SIZE
                    self._file = file  # behind the count: others see the file without taking the lock
                self._is_probed = True
            file = self._file
        if file is not None:
            OPEN_FILES.opened(self)
        return file

    def _created(self) -> WriteFile:
        with self._lock:
            self._check_not_closed()
            file = self._file = self._fs.open_write(self.path)
            self._is_probed = True
        OPEN_FILES.opened(self)
        return file
