"""What the offset index and the time index share: rows of two numbers in a file that is longer than its rows.

    file := row{count} zero bytes up to the preallocated size

An index file is created at `segment.index.bytes`, rounded down to whole rows and full of zeros, so that its rows can
be written without the file growing. It is cut to its rows when the segment is rolled or closed, and extended again
when the segment becomes the active one. Nothing in the file says how many rows are written: whoever opens one that
exists takes all of it for rows. That is right for a file that was trimmed, and after a crash it is not, which is why
recovery builds the indexes of the last segment anew.

Two halves. `IndexEntries` reads rows of any `ReadFile`, up to a count that does not change. `IndexFile` writes, several
rows at a time: the last ones, its tail, are in memory until there are enough of them, or until somebody needs the file
to be whole. A row is in the file before it leaves the tail, and where the file ends and the tail begins is told in one
piece, so a thread that looks something up while the owner appends finds every row in one of the two. Another process,
which has only the file, sees the last rows a little later. After a crash they are missing there, as the last rows of
any index may be: who flushes writes them first, so below a recovery point no row is missing.

A search probes the same rows as Kafka's, so that it gives the same answer even where damage left the rows unsorted:
first the warm section, the last 8 KiB, where nearly all lookups end and which is read at once; else the rows before.

Kafka: AbstractIndex, LazyIndex.
"""

import struct
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from tidelog.errors import (
    CorruptIndexError,
    InvalidRequestError,
    LogClosedError,
    OffsetOverflowError,
    StorageError,
    TooManyFilesError,
)
from tidelog.log.files import FileSystem, ReadFile, WriteFile, open_existing, parent_of
from tidelog.log.held_file import HeldFile
from tidelog.records.java import MAX_INT32

__all__ = ["IndexEntries", "IndexFile"]

_WARM_BYTES = 8192
_COLD_BYTES = 512  # what is left of the cold rows is read at once when it is no more than this
_ITERATED_BYTES = 65536
TAIL_ROWS = 16  # so many are written at once

Entry = TypeVar("Entry")
Row = tuple[int, int]


class IndexEntries(Generic[Entry]):
    """The first `count` rows of an index file, to be read, and those of a `tail` that is not in the file yet.

    Without a count the rows end where the zeros of a preallocated file begin; what was written cannot be told from
    what is left of a longer index that was truncated, so then the neighbours of every row found are looked at too.
    """

    __slots__ = ("_count", "_file", "_in_file", "_is_trusted", "_tail", "base_offset")

    ROW: ClassVar[struct.Struct]

    def __init__(self, file: ReadFile, base_offset: int, count: int | None = None, tail: bytes = b"") -> None:
        self.base_offset = base_offset
        self._file = file
        self._tail = tail
        self._is_trusted = count is not None
        self._in_file = self._file.size // self.ROW.size if count is None else count
        self._count = self._written_count() if count is None else count + len(tail) // self.ROW.size

    def __len__(self) -> int:
        return self._count

    @property
    def entries(self) -> int:
        """How many there are."""
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        step = _ITERATED_BYTES // self.ROW.size
        for first in range(0, self._count, step):
            for row in self.ROW.iter_unpack(self._read(first, min(first + step, self._count))):
                yield self._entry_of(row)

    def entry(self, number: int) -> Entry:
        """The entry in a slot, counted from 0."""
        if not 0 <= number < self._count:
            raise InvalidRequestError(f"{self._file.path}: entry {number} of an index of {self._count}")
        return self._entry_of(self._row(number))

    def _entry_of(self, row: Row) -> Entry:
        """The row with absolute offsets."""
        raise NotImplementedError

    def _greatest_at_most(self, target: int, column: int = 0) -> tuple[int, Row] | None:
        """The last slot whose number in `column` is not above `target`, and its row; None if there is none."""
        found = self._search(target, column)
        return None if found is None else (found[0], found[1])

    def _least_at_least(self, target: int, column: int) -> tuple[int, Row] | None:
        """The first slot whose number in `column` is not below `target`, and its row; None if there is none.

        As in Kafka an exact hit on slot 0, which no probe compares, is not noticed, and slot 1 is the answer.
        """
        found = self._search(target, column)
        if found is not None and found[2]:
            return found[0], found[1]
        slot = 0 if found is None else found[0] + 1
        return (slot, self._row(slot)) if slot < self._count else None

    def _count_below(self, target: int, column: int = 0) -> int:
        """How many entries stand before the first whose number in `column` is `target` or more."""
        found = self._search(target, column)
        if found is None:
            return 0
        return found[0] if found[1][column] == target else found[0] + 1

    def _search(self, target: int, column: int) -> tuple[int, Row, bool] | None:
        """The last slot not above `target`, its row, and whether a probe met the target itself."""
        count = self._count
        if count == 0:
            return None
        unpack, size = self.ROW.unpack_from, self.ROW.size
        first = low = max(0, count - 1 - _WARM_BYTES // size)
        high = count - 1
        window = self._read(low, count)
        warmest = unpack(window)[column]
        if warmest >= target:
            if (self._row(0)[column] if low else warmest) > target:
                return None
            low, high = 0, low
            while (high - low) * size >= _COLD_BYTES:
                middle = (low + high + 1) >> 1
                row = self._row(middle)
                if row[column] == target:
                    return middle, row, True
                if row[column] > target:
                    high = middle - 1
                else:
                    low = middle
            first, window = low, self._read(low, high + 1)
        is_exact = False
        while low < high:
            middle = (low + high + 1) >> 1
            probed = unpack(window, (middle - first) * size)[column]
            if probed > target:
                high = middle - 1
            else:
                low = middle
                if probed == target:
                    is_exact = True
                    break
        row = unpack(window, (low - first) * size)
        return low, row, is_exact

    def _check_neighbours(self, slot: int) -> None:
        """Raise CorruptIndexError if the entries around a slot that a lookup found do not increase.

        Only where nobody vouched for the count: of a truncated index old entries may be left behind the last one.
        """
        if self._is_trusted:
            return
        rows = list(self.ROW.iter_unpack(self._read(max(slot - 1, 0), min(slot + 2, self._count))))
        if any(row[0] >= following[0] for row, following in zip(rows, rows[1:], strict=False)):
            raise CorruptIndexError(f"{self._file.path}: the entries around slot {slot} do not increase")

    def _row(self, slot: int) -> Row:
        return self.ROW.unpack(self._read(slot, slot + 1))

    def _read(self, first: int, stop: int) -> bytes:
        """The bytes of some rows, which must all be there."""
        size, in_file = self.ROW.size, self._in_file
        if stop > in_file:
            of_tail = self._tail[max(first - in_file, 0) * size : (stop - in_file) * size]
            return of_tail if first >= in_file else self._read(first, in_file) + of_tail
        data = self._file.read(first * size, (stop - first) * size)
        if len(data) != (stop - first) * size:
            raise CorruptIndexError(
                f"{self._file.path}: ends {len(data)} bytes behind the start of slot {first}, "
                f"slots up to {stop - 1} were wanted"
            )
        return data

    def _written_count(self) -> int:
        """How many rows stand before the zeros, by bisection.

        A first row of zeros is the entry of the base offset if more follows, or if it is the whole file.
        """
        size = self.ROW.size
        zeros = bytes(size)
        rows = self._in_file
        if rows < 2 or self._read(rows - 1, rows) != zeros:
            return rows
        low, high = 1, rows - 1
        while low < high:
            middle = (low + high) >> 1
            if self._read(middle, middle + 1) == zeros:
                high = middle
            else:
                low = middle + 1
        return 0 if high == 1 and self._read(0, 1) == zeros else high


class IndexFile(HeldFile):
    """An index file that is written to: one owner appends and truncates, any thread looks up.

    The file is opened, or created with `max_size` bytes, when it is first used.
    """

    __slots__ = ("_capacity", "_count", "_is_counted", "_tail", "base_offset", "max_size")

    ROW: ClassVar[struct.Struct]

    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_size: int = -1) -> None:
        super().__init__(fs, path)
        self.base_offset = base_offset
        self.max_size = max_size  # of a new file; nothing that exists is changed by it
        self._is_counted = False  # whether count and capacity are known, as they are from the first opening on
        self._count = 0
        self._capacity = 0
        # How many rows are in the file, and the bytes of those that are not yet. Only the owner sets it.
        self._tail: tuple[int, bytes] = (0, b"")

    # -- what it holds -----------------------------------------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        """Whether the file is open."""
        return self._file is not None

    @property
    def entries(self) -> int:
        """How many entries there are."""
        self._open()
        return self._count

    @property
    def max_entries(self) -> int:
        """How many entries the file has room for."""
        self._open()
        return self._capacity

    @property
    def is_full(self) -> bool:
        """Whether the next append would be refused."""
        if not self._is_counted:
            self._open()
        return self._count >= self._capacity

    @property
    def size_in_bytes(self) -> int:
        """The bytes that the entries take, which a preallocated file is longer than."""
        return self.entries * self.ROW.size

    def sanity_check(self) -> None:
        """Raise CorruptIndexError if the file cannot be an index of this segment. The entries are not compared."""
        size = self._open().size
        if size % self.ROW.size:
            raise CorruptIndexError(f"{self.path}: {size} bytes are not a multiple of {self.ROW.size}")

    def prepare(self) -> None:
        """Know count and capacity, so that an append needs no descriptor; a file that does not exist is created."""
        if not self._is_counted:
            self._open()

    def has_room(self, entries: memoryview) -> bool:
        """Whether entries, as they are written, fit behind the last one with a slot to spare."""
        return self.entries + len(entries) // self.ROW.size < self._capacity

    def extend(self, entries: memoryview) -> None:
        """Add entries that somebody has checked, with one write. The file is then as if they had come one by one."""
        if entries:
            file, size = self._open(), self.ROW.size
            written, rows = self._tail
            rows += entries
            whole = len(rows) - len(rows) % (TAIL_ROWS * size)
            if whole:
                file.write_at(written * size, rows[:whole])
            self._remember(file, written + whole // size, rows[whole:])

    def write_tail(self) -> None:
        """Have all entries in the file. What cannot be written stays where it is."""
        written, rows = self._tail
        if rows:
            self._open().write_at(written * self.ROW.size, rows)
            self._tail = (self._count, b"")

    def try_write_tail(self) -> None:
        """Write the tail unless the process has no descriptor left; then the next call tries again."""
        if self._file is not None or self._open_if_possible() is not None:
            self.write_tail()

    # -- the file ----------------------------------------------------------------------------------------------------

    def truncate(self) -> None:
        """Drop all entries. The file keeps its size."""
        self._open()
        self._keep(0)

    def reset(self) -> None:
        """Drop all entries and make room for as many as a new index has."""
        self.truncate()
        self.resize(self.max_size)

    def resize(self, max_size: int) -> bool:
        """Make the file `max_size` bytes long, rounded down to whole entries; whether that changed it.

        Entries that do not fit any more are dropped.
        """
        file = self._open()
        if max_size < 0:
            raise InvalidRequestError(f"{self.path}: an index of {max_size} bytes")
        capacity = max_size // self.ROW.size
        if self._count > capacity:
            self._keep(capacity)
        self.write_tail()
        if file.size == capacity * self.ROW.size:
            return False
        file.resize(capacity * self.ROW.size)
        self._capacity = capacity
        return True

    def trim(self) -> None:
        """Cut the file to its entries, after which it is full."""
        self.resize(self.size_in_bytes)

    def flush(self) -> None:
        """Return when the entries are on the disk. Any thread may ask for it while the owner appends.

        The tail stays the owner's: it is written here, and the owner will write the same rows to the same place once
        more.
        """
        file = self._open()
        with self._lock:  # what is written must not have been truncated meanwhile
            written, rows = self._tail
            if rows:
                file.write_at(written * self.ROW.size, rows)
        file.sync()

    def retire(self) -> None:
        """Write no more: another index has the name. Whoever looks something up goes on with what is in the file."""
        with self._lock:
            self._tail = (self._tail[0], b"")
        self.release()

    def close(self) -> None:
        """Trim the file if it is open or lacks entries, and let go of it for good."""
        try:
            if self._file is not None or self._tail[1]:
                self.trim()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        super()._let_go()
        self._is_counted = False  # whoever asks next is told that the file was closed

    def _open_file(self) -> WriteFile:
        return self._opened_again() if self._is_counted else self._opened_first()

    def _opened_first(self) -> WriteFile:
        size = self.ROW.size
        is_new = not self.exists()
        if is_new and self.max_size < size:
            raise InvalidRequestError(f"{self.path}: a new index of {self.max_size} bytes, an entry takes {size}")
        file = self._made() if is_new else open_existing(self._fs, self.path)
        if is_new:
            file.resize(self.max_size // size * size)
        self._capacity = file.size // size
        self._remember(file, 0 if is_new else self._capacity)
        self._is_counted = True
        return file

    def _opened_again(self) -> WriteFile:
        file = open_existing(self._fs, self.path)
        written = self._tail[0]
        if file.size // self.ROW.size < written:
            raise CorruptIndexError(f"{self.path}: {file.size} bytes, there were {written} entries")
        return file

    def _open_if_possible(self) -> WriteFile | None:
        """Open the file, or return None if the process has no descriptor left: the rows then stay in the tail.

        An append calls this after its bytes are in the `.log`, where it is too late to fail for want of a descriptor.
        """
        try:
            return self._open()
        except TooManyFilesError:
            return None

    def _made(self) -> WriteFile:
        try:
            return self._fs.open_write(self.path)
        except StorageError as error:
            if self._fs.stat(parent_of(self.path)) is None:  # renamed meanwhile, for deletion
                raise LogClosedError(f"{self.path}: its directory is gone") from error
            raise

    def _keep(self, count: int) -> None:
        """Drop the entries from `count` on. Their bytes stay until they are written over or trimmed."""
        file = self._open()
        with self._lock:  # a flush in another thread must not write what is dropped here
            written, rows = self._tail
            self._remember(file, min(count, written), rows[: max(count - written, 0) * self.ROW.size])

    def _remember(self, file: ReadFile, written: int, rows: bytes = b"") -> None:
        """Set the count, the tail, and what the index knows of its last entry without reading it."""
        raise NotImplementedError

    def _overflow(self, offset: int) -> OffsetOverflowError:
        return OffsetOverflowError(
            f"{self.path}: offset {offset} is {offset - self.base_offset} above the base, "
            f"an index holds 0 to {MAX_INT32}"
        )
