"""One segment as a reader finds it: files of one base offset, which may be gone the next moment.

A segment is opened whole or not at all. Its transaction index says which of its records were aborted, so a log of one
generation and an index of another, as compaction replaces both under the same names, would show what nobody committed.
The order of Kafka's renames (the log first, then its indexes) makes it possible to be sure: the log is opened first,
the indexes next, `.swap` before the plain name, and then the name of the log must still be that of the file in hand.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from tidelog.errors import (
    CorruptIndexError,
    CorruptionError,
    CorruptRecordError,
    SegmentGoneError,
    StorageError,
    UnsupportedError,
)
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch, scan_batches
from tidelog.log.batch_windows import read_windows
from tidelog.log.files import ReadFile, join
from tidelog.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.offset_index import OffsetEntries
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.segment_reader import NoFile, ReadLogFile
from tidelog.log.time_index import TimeEntries
from tidelog.log.transaction_index import TransactionEntries
from tidelog.records.batches import batch_of
from tidelog.view.files import ViewFiles, is_gone
from tidelog.view.ordered_lookup import OffsetOrder, OrderedReader
from tidelog.view.segment_summary import SegmentSummary, summary_of

__all__ = ["ADVICE", "SegmentEnd", "SegmentView", "TransactionFile", "with_advice"]

ENTRY_SIZE = 34  # of a transaction index
ADVICE = "; `tidelog fsck` tells what is damaged and what can be saved"

_END_BEFORE = "; the log ends before it"
_MOST_COUNTS = 5
_ZEROS_AT_ONCE = 1 << 20
_LAST_BATCHES = 1024  # so many failing ones can be an end; more are damage
_WALKED_AT_MOST = 4096  # batches from header to header; then windows are faster


Entries = TypeVar("Entries", OffsetEntries, TimeEntries)


class TransactionFile(TransactionEntries):
    """A transaction index as a reader finds it."""

    __slots__ = ()

    def is_sound(self, base_offset: int, next_offset: int) -> bool:
        """Whether the entries can be those of a segment: whole, in order, and with markers that lie in it."""
        if self._file.size % ENTRY_SIZE:
            return False
        last = base_offset - 1
        try:
            for entry in self:
                if not (0 <= entry.first_offset <= entry.last_offset and last < entry.last_offset < next_offset):
                    return False
                last = entry.last_offset
        except UnsupportedError:
            return False
        return True


class SegmentEnd(NamedTuple):
    """Where the batches of a segment end."""

    position: int
    next_offset: int
    leader_epoch: int | None  # of the last batch; None in the old formats and where there is none
    problem: str | None  # what is wrong with the bytes behind, if there are any that a live writer would not leave
    left_out: int = 0  # how many of them there are, zeros of a preallocated file apart
    damage: str | None = None  # what is no batch and lies before the last ones, if that was met
    zeros: int = 0  # bytes of zeros after the last batch, if nothing else follows it

    @property
    def bare_problem(self) -> str | None:
        """The problem without what follows from it."""
        return None if self.problem is None else self.problem.removesuffix(_END_BEFORE)


class SegmentView:
    """A segment. Only the last one of a partition may end with something that is no batch."""

    def __init__(
        self, files: ViewFiles, directory: str, base_offset: int, names: dict[str, str], *, is_active: bool = False
    ) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.is_active = is_active  # whether it was the last one, to which a broker appends
        self.files = names  # by suffix (`.log`, `.index` ...), as they were called when the directory was listed
        self._fs = files

    def __repr__(self) -> str:
        return f"SegmentView({self.path!r})"

    @property
    def path(self) -> str:
        """Where the log lies."""
        return join(self.directory, self.files[LOG_SUFFIX])

    @property
    def is_swap(self) -> bool:
        """Whether it is the output of a compaction that has committed and not yet got its final name."""
        return self.files[LOG_SUFFIX].endswith(SWAP)

    # -- opening -------------------------------------------------------------------------------------------------

    def open(self) -> OrderedReader:
        """Log and indexes of one generation, held open: they stay readable whatever happens to their names.

        The log of the active segment ends, for the reader, behind its last valid batch.
        """
        reader = self.open_whole()
        if self.is_active:
            reader.log.size = _tail(reader).position
        return reader

    def open_to_end(self) -> tuple[OrderedReader, SegmentEnd]:
        """The same, and where it ends. CorruptRecordError if a segment that is not active ends inside a batch."""
        reader = self.open_whole()
        if not self.is_active:
            return reader, _whole(reader)
        end = _tail(reader)
        reader.log.size = end.position
        return reader, end

    def open_whole(self) -> OrderedReader:
        """The same with all of the file, whatever it ends with."""
        try:
            log = ReadLogFile(self._fs, self.path)
        except StorageError as error:
            if is_gone(self._fs, self.path, error):
                raise SegmentGoneError(f"{self.path} is gone") from error
            raise
        offset_index, time_index, txn_index = (
            self._open_index(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        )
        if not self._fs.is_still(log.file):
            raise SegmentGoneError(f"{self.path} was replaced")
        return OrderedReader(
            self.base_offset,
            log,
            _entries_of(OffsetEntries, offset_index, self.base_offset),
            _entries_of(TimeEntries, time_index, self.base_offset),
            TransactionFile(txn_index),
        )

    def _open_index(self, suffix: str) -> ReadFile:
        plain = join(self.directory, file_name(self.base_offset, suffix))
        for path in (plain + SWAP, plain):
            try:
                if self._fs.stat(path) is not None:
                    return self._fs.open(path)
            except StorageError as error:
                if is_gone(self._fs, path, error):
                    raise SegmentGoneError(f"{path} is gone") from error
                raise
        return NoFile(plain)

    def why_no_entries(self, suffix: str) -> str:
        """Why an index has no entries, in words: there is no file, or nothing in it, or nothing that counts."""
        name = file_name(self.base_offset, suffix)
        places = (join(self.directory, name + mark) for mark in (SWAP, ""))
        found = next((stat for stat in map(self._fs.stat, places) if stat is not None), None)
        if found is None:
            return f"{name} is missing"
        return f"the {found.size} bytes of {name} are no entries" if found.size else f"{name} is empty"

    # -- where it ends -------------------------------------------------------------------------------------------

    @cached_property
    def end(self) -> SegmentEnd:
        """Where its batches end. Of the active segment that is behind the last complete batch that is valid."""
        return self.open_to_end()[1]

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.end.position

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch."""
        return self.end.next_offset

    @cached_property
    def file_size(self) -> int:
        """Bytes of the `.log` file, whatever they are."""
        found = self._fs.stat(self.path)
        if found is None:
            raise SegmentGoneError(f"{self.path} is gone")
        return found.size

    # -- what is in it -------------------------------------------------------------------------------------------

    @cached_property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of a record, or when the file was last written to if no record has one."""
        return self.open().largest_timestamp_ms

    @cached_property
    def indexed_timestamp_ms(self) -> int | None:
        """The largest timestamp of a record by the time index, which is closed with it; None if that does not know.

        One read of the end of one file tells it. The log is not asked.
        """
        if self.is_active:
            return None
        index = self._open_index(TIME_INDEX_SUFFIX)
        if index.size % TimeEntries.ROW.size:
            return None
        try:
            last = TimeEntries(index, self.base_offset).last
        except CorruptIndexError:
            return None
        return last.timestamp_ms if last.timestamp_ms >= 0 and last.offset >= self.base_offset else None

    @cached_property
    def summary(self) -> SegmentSummary:
        """What the headers of all batches say together. This walks over the whole segment."""
        return summary_of(self.open().log.file, self.size)

    @property
    def records(self) -> int:
        """How many records there are, by the headers; entries of the old formats count as one."""
        return self.summary.records

    @property
    def codecs(self) -> tuple[str, ...]:
        """The codecs of its batches."""
        return self.summary.codecs

    @property
    def first_timestamp_ms(self) -> int | None:
        """The timestamp of the first record."""
        return self.summary.first_timestamp_ms

    @property
    def last_timestamp_ms(self) -> int | None:
        """The largest timestamp of the last batch."""
        return self.summary.last_timestamp_ms

    def batches(self) -> Iterator[BatchInfo]:
        """The headers of its batches, in order."""
        reader, size = self.open(), self.size
        for window in read_windows(reader.log.file, 0, size):
            yield from window.batches
            if window.problem is not None:
                raise with_advice(window.problem)


def _entries_of(kind: type[Entries], index: ReadFile, base_offset: int) -> Entries:
    """The entries of an index. It is cut to its entries when its segment is rolled, maybe while they are counted."""
    for _ in range(_MOST_COUNTS):
        try:
            return kind(index, base_offset)
        except CorruptIndexError:
            continue
    return kind(NoFile(index.path), base_offset)


def with_advice(error: CorruptionError) -> CorruptRecordError:
    """The same damage, and what to do about it."""
    return CorruptRecordError(f"{error}{ADVICE}")


def _whole(reader: OrderedReader) -> SegmentEnd:
    """The end of a segment that nobody appends to: that of its file."""
    last, problem = _last_batches(reader)
    if problem is not None:
        raise with_advice(problem)
    end = _end_behind(reader, last[-1] if last else None)
    order = OffsetOrder(reader.base_offset)
    for batch in list(last)[-3:]:
        fault = order.fault_of(batch)
        if fault is not None:  # where it ends is not known
            raise with_advice(CorruptRecordError(f"{reader.log.path}, {fault}"))
    if end.position < reader.size:
        left = reader.size - end.position
        raise with_advice(
            CorruptRecordError(f"{reader.log.path}, position {end.position}: the last {left} bytes are no batch")
        )
    if end.next_offset > MAX_OFFSET:
        raise with_advice(
            CorruptRecordError(f"{reader.log.path}, position {last[-1].position}: {_beyond_offsets(last[-1])}")
        )
    return end


def _tail(reader: OrderedReader) -> SegmentEnd:
    """The end of the active segment: what is torn, not yet written, or failing at its very end does not count.

    Bytes that sound batches follow are damage and not the end: whoever reads them meets it.
    """
    file, damage = reader.log.file, None
    batches, problem = _last_batches(reader)
    while True:
        is_impossible = problem is not None  # a length that nobody would have begun to write
        walked = batches[-1].position + batches[-1].size if batches else 0
        end, failing = _sound_end(reader, batches)
        if end.position == reader.size or _is_zero(file, end.position, reader.size):
            return end._replace(damage=damage, zeros=reader.size - end.position)
        found = _sound_behind(reader, end.position, walked if failing is not None else None, is_impossible)
        if found is None or next(scan_batches(file, found, reader.size)).last_offset < end.next_offset:
            break  # a batch with smaller offsets is a stray copy, and no end of a log
        damage = damage or f"{file.path}, position {end.position}: no batch, but sound ones follow at {found}"
        start, stop, problem = _last_stretch(file, found, reader.size)
        batches = deque(scan_batches(file, start, stop), maxlen=_LAST_BATCHES)
    problem = failing or problem
    told = None if problem is None else f"{problem}{_END_BEFORE}"
    return end._replace(problem=told, left_out=reader.size - end.position, damage=damage)


def _sound_end(reader: OrderedReader, batches: deque[BatchInfo]) -> tuple[SegmentEnd, CorruptRecordError | None]:
    """The end after the last sound one of some batches, and what is wrong with the first of those that follow it."""
    file, problem, failing = reader.log.file, None, 0
    while batches:
        fault = _fault_of_last(reader, batches)
        if fault is None:
            break
        last = batches.pop()
        problem = CorruptRecordError(f"{file.path}, position {last.position}: {fault}")
        failing += 1
        if failing == _LAST_BATCHES:
            raise with_advice(problem)  # more than an end
        if not batches:
            batches = _batches_before(reader, last)
    return _end_behind(reader, batches[-1] if batches else None), problem


def _batches_before(reader: OrderedReader, batch: BatchInfo) -> deque[BatchInfo]:
    """The batches from an index entry on to a batch that has one itself; none if it is the first."""
    found = deque[BatchInfo]()
    if batch.position:
        for one in reader.lookup().headers_from(max(batch.base_offset - 1, reader.base_offset)):
            if one.position >= batch.position:
                break
            found.append(one)
    return found


def _sound_behind(reader: OrderedReader, position: int, walked: int | None, is_impossible: bool) -> int | None:
    """Where sound batches follow what looks like the end, which is at a position; None if it is the end.

    After a batch that seems to be incomplete, or whose checksum fails, they must reach the end of the file, one behind
    the other: a value may hold a batch, too, and is in the file before the record around it is complete. `walked` is
    the position behind the last of the batches that fail, if there are some.
    """
    from tidelog.view.resync import Resync

    search = Resync(reader.log.file, reader.size, reader.base_offset)
    found = None
    if walked is not None or not is_impossible:
        found = search.swallowed(position + 1, reader.size)
    if found is None and is_impossible:
        found = search.next_sound((position if walked is None else walked) + 1, legacy=False)
    return found


def _fault_of_last(reader: OrderedReader, batches: Sequence[BatchInfo]) -> str | None:
    """What is wrong with the last one of some batches."""
    last = batches[-1]
    if not last.is_legacy and last.base_offset < reader.base_offset:
        return f"offset {last.base_offset} before the first of the segment, {reader.base_offset}"
    if len(batches) > 1 and not _follows(reader, batches):
        return f"offset {last.last_offset} behind offset {batches[-2].last_offset}"
    if last.next_offset > MAX_OFFSET:
        return _beyond_offsets(last)
    try:
        batch_of(read_batch(reader.log.file, last)).ensure_valid()
    except CorruptionError as error:
        return str(error)
    return None


def _follows(reader: OrderedReader, batches: Sequence[BatchInfo]) -> bool:
    """Whether the last one of some batches can follow those before it.

    A first offset is under no checksum. If the one before it leaves a gap in which the last one lies, that one is
    wrong: it is damage in the middle of the log, and whoever reads it meets it.
    """
    *others, before, last = list(batches)[-3:]
    if last.is_legacy or before.is_legacy:
        return last.last_offset >= before.next_offset
    if last.base_offset >= before.next_offset:
        return True
    if before.position and not others:
        return False  # what lies before it is not known
    reached = others[0].next_offset if others else reader.base_offset
    room = last.base_offset - reached  # for the one before it, if that is wrong
    return before.base_offset > reached and room > before.last_offset - before.base_offset


def _beyond_offsets(batch: BatchInfo) -> str:
    """What is wrong with a batch after which no offset is left."""
    return f"offset {batch.last_offset}: the largest that a record can have is {MAX_OFFSET - 1}"


def _last_batches(reader: OrderedReader) -> tuple[deque[BatchInfo], CorruptionError | None]:
    """The last batches of a segment, and what is wrong behind them where a length is one that no batch can have."""
    file, last = reader.log.file, deque[BatchInfo](maxlen=_LAST_BATCHES)
    try:
        last_indexed = reader.offset_index.last_offset
    except CorruptIndexError:
        last_indexed = reader.base_offset
    try:
        for number, batch in enumerate(reader.lookup().headers_from(last_indexed), 1):
            last.append(batch)
            if number == _WALKED_AT_MOST:
                break
        else:
            return last, None
    except CorruptionError as error:
        return last, error
    # Without an index there is a long way to go.
    start, end, problem = _last_stretch(file, last[-1].position + last[-1].size, reader.size)
    last.extend(scan_batches(file, start, end))
    return last, problem


def _last_stretch(file: ReadFile, start: int, end: int) -> tuple[int, int, CorruptionError | None]:
    """Where the last batches between two positions begin and end, and what is wrong behind them."""
    begins, problem = deque([(start, 0)]), None  # positions in the last windows, and how many batches follow in each
    for window in read_windows(file, start, end):
        if len(window):
            first = max(len(window) - _LAST_BATCHES, 0)
            begins.append((window.batch(first).position, len(window) - first))
        while sum(count for _, count in begins) - begins[0][1] >= _LAST_BATCHES:
            begins.popleft()
        start, problem = window.end, window.problem
    return begins[0][0], start, problem


def _end_behind(reader: OrderedReader, last: BatchInfo | None) -> SegmentEnd:
    if last is None:
        return SegmentEnd(0, reader.base_offset, None, None)
    epoch = last.leader_epoch if last.leader_epoch >= 0 else None
    return SegmentEnd(last.position + last.size, last.next_offset, epoch, None)


def _is_zero(file: ReadFile, start: int, end: int) -> bool:
    """Whether nothing was written from a position on: a preallocated file, or one that lost a write in a crash."""
    for position in range(start, end, _ZEROS_AT_ONCE):
        if any(file.read(position, min(_ZEROS_AT_ONCE, end - position))):
            return False
    return True
