"""The read half of a segment: finding offsets and times in a `.log` file with the help of the indexes beside it.

It writes nothing, creates nothing and locks nothing, so it works on whatever can be read: a directory of a live
broker, a backup, a bucket. A segment that is written to (segment.py) is read by the same methods. An index that is
missing is an index without entries; of a live or crashed one the zeros at its end do not count.
"""

from collections.abc import Iterator
from typing import Protocol

from tidelog.errors import CorruptionError, CorruptRecordError, InvalidRequestError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import scan_batches
from tidelog.log.file_sizes import check_size
from tidelog.log.files import ReadFile, ReadFileSystem, join
from tidelog.log.lookup import SegmentChosen, SegmentLookup, Step
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from tidelog.log.offset_index import OffsetEntries, OffsetPosition
from tidelog.log.offsets import OffsetMetadata, TimestampAndOffset
from tidelog.log.region import Region
from tidelog.log.time_index import TimeEntries, TimestampOffset
from tidelog.log.transaction_index import CollectedTxns, TransactionEntries

__all__ = ["NoFile", "ReadLogFile", "SegmentReader"]


class LogBytes(Protocol):
    """A `.log` file, as far as a reader needs it."""

    path: str
    size: int

    @property
    def file(self) -> ReadFile: ...

    @property
    def modified_ms(self) -> int: ...

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[BatchInfo]: ...


class Offsets(Protocol):
    """An offset index, as far as a reader needs it."""

    @property
    def entries(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    def lookup(self, target: int) -> OffsetPosition: ...

    def upper_bound(self, position: int) -> OffsetPosition | None: ...


class Times(Protocol):
    """A time index, as far as a reader needs it."""

    @property
    def entries(self) -> int: ...

    @property
    def last_entry(self) -> TimestampOffset: ...

    def lookup(self, timestamp_ms: int) -> TimestampOffset: ...


class Aborted(Protocol):
    """A transaction index, as far as a reader needs it."""

    def collect(self, fetch_offset: int, upper: int) -> CollectedTxns: ...


class SegmentReader:
    """A segment that can be looked up and read."""

    log: LogBytes
    offset_index: Offsets
    time_index: Times
    txn_index: Aborted

    def __init__(
        self, base_offset: int, log: LogBytes, offset_index: Offsets, time_index: Times, txn_index: Aborted
    ) -> None:
        self.base_offset = base_offset
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self.txn_index = txn_index
        self.wrong_index: str | None = None  # what a lookup found wrong with an index; an owner rebuilds it

    @classmethod
    def open_read_only(cls, fs: ReadFileSystem, directory: str, base_offset: int) -> "SegmentReader":
        """The segment of a base offset, as it lies there now."""

        def read(kind: str) -> ReadFile:
            path = join(directory, file_name(base_offset, kind))
            return NoFile(path) if fs.stat(path) is None else fs.open(path)

        return cls(
            base_offset,
            ReadLogFile(fs, join(directory, file_name(base_offset, LOG_SUFFIX))),
            OffsetEntries(read(INDEX_SUFFIX), base_offset),
            TimeEntries(read(TIME_INDEX_SUFFIX), base_offset),
            TransactionEntries(read(TXN_INDEX_SUFFIX)),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base offset {self.base_offset}, {self.size} bytes)"

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.log.size

    # -- timestamps ----------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the batch that has it; (-1, base offset) if there is none."""
        return self._look_up_max_timestamp()

    def _look_up_max_timestamp(self) -> TimestampOffset:
        """What the last entry of the time index says, unless the batches behind it know better."""
        if not self.size:
            return TimestampOffset(-1, self.base_offset)  # whatever is left in the file of an index that was cut
        last = self.time_index.last_entry
        lookup = self.lookup()
        try:
            latest = lookup.largest_behind(last if self.time_index.entries else None)
        finally:
            self._note_wrong_index(lookup)
        return latest

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of a record, or when the file was last written to if no record has one."""
        return self._or_when_written(self.max_timestamp)

    def peek_largest_timestamp_ms(self) -> int:
        """`largest_timestamp_ms`, asked for ahead: nothing of it is remembered here."""
        return self.largest_timestamp_ms

    def _or_when_written(self, latest: TimestampOffset) -> int:
        return latest.timestamp_ms if latest.timestamp_ms >= 0 else self.log.modified_ms

    # -- reading -------------------------------------------------------------------------------------------------

    def lookup(self, trace: list[Step] | None = None) -> SegmentLookup:
        """Lookups in the segment as it is now."""
        if trace is not None:
            trace.append(SegmentChosen(self.base_offset))
        log = self.log
        return SegmentLookup(self.base_offset, log.file, log.size, self.offset_index, self.time_index, trace)

    def find_offset(self, target: int, trace: list[Step] | None = None) -> BatchInfo | None:
        """The first batch that ends at or after `target`."""
        lookup = self.lookup(trace)
        found = lookup.find_offset(target)
        if lookup.wrong_index:
            self._note_wrong_index(lookup)
        return found

    def find_time(
        self, target_ms: int, first_offset: int, trace: list[Step] | None = None
    ) -> TimestampAndOffset | None:
        """The first record at or after `target_ms` and not below `first_offset`."""
        lookup = self.lookup(trace)
        found = lookup.find_time(target_ms, first_offset)
        self._note_wrong_index(lookup)
        if found is None:
            self._ensure_whole(lookup)
        return found

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that has the largest timestamp."""
        lookup = self.lookup()
        found = lookup.find_max_timestamp(self.max_timestamp)
        self._note_wrong_index(lookup)
        return found

    def _note_wrong_index(self, lookup: SegmentLookup) -> None:
        if lookup.wrong_index:
            self.wrong_index = lookup.wrong_index

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_position: int | None = None,
        *,
        at_least_one: bool = False,
        trace: list[Step] | None = None,
    ) -> Region | None:
        """The bytes from the batch that holds `offset` on, up to `max_position`; None if it all lies before.

        With `max_position` None the place is found and no byte is given. `at_least_one` raises `max_bytes` to the size
        of the first batch.
        """
        if max_bytes < 0:
            raise InvalidRequestError(f"a read of {max_bytes} bytes")
        lookup = self.lookup(trace)
        first = lookup.find_offset(offset)
        if lookup.wrong_index:
            self._note_wrong_index(lookup)
        if first is None:
            self._ensure_whole(lookup)
            return None
        start = OffsetMetadata(first.base_offset, self.base_offset, first.position)
        if at_least_one:
            max_bytes = max(max_bytes, first.size)
        if max_bytes == 0 or max_position is None:
            return Region(start)
        size = max(min(max_position - first.position, max_bytes), 0)
        return Region(start, self.log.file, first.position, size, first, max_bytes < first.size)

    def _ensure_whole(self, lookup: SegmentLookup) -> None:
        """Raise CorruptRecordError if a search that found nothing ended before the segment does.

        What was looked for may lie in the bytes behind. To go on in the next segment, as Kafka does, would be to leave
        records out in silence.
        """
        if lookup.bytes_left and lookup.size <= self.size:  # else it was truncated meanwhile
            raise CorruptRecordError(f"{self.log.path}: the last {lookup.bytes_left} bytes are no batch")

    def upper_bound(self, position: int) -> int | None:
        """An offset behind all that lies before a position, by the index; None if there is no entry to be had."""
        try:
            entry = self.offset_index.upper_bound(position)
            batch = None if entry is None else next(self.log.batches(entry.position), None)
        except CorruptionError as error:
            self.wrong_index = str(error)
            return None
        if entry is None:
            return None
        if batch is None or batch.base_offset > entry.offset:
            self.wrong_index = f"the index says offset {entry.offset} is at {entry.position}, the log does not"
            return None
        return entry.offset

    def next_offset(self) -> int:
        """The offset behind the last complete batch, found from the last index entry; the base offset if empty.

        Where the log ends before the batch of that entry, the answer is the base offset too: Kafka's answer, which
        only damage after a clean stop can bring about. Where the batch is there and has other offsets, the entry is
        wrong, and the log is believed.
        """
        target = self.offset_index.last_offset
        lookup = self.lookup()
        last = reached = None
        for last in lookup.batches_from(target):
            if reached is not None or last.last_offset >= target:
                reached = last
        if reached is not None:
            self._note_wrong_index(lookup)
        elif last is not None and not lookup.wrong_index and self.offset_index.entries:
            self.wrong_index = f"the index ends with offset {target}, the log with {last.last_offset}"
            reached = last
        return self.base_offset if reached is None else reached.next_offset


class ReadLogFile:
    """A `.log` file that somebody else writes, or nobody does. Raises StorageError if no segment can be that large."""

    def __init__(self, fs: ReadFileSystem, path: str) -> None:
        self.path = path
        self.file = fs.open(path)
        self.size = self.file.size
        self._fs = fs
        check_size(path, self.size)

    @property
    def modified_ms(self) -> int:
        """When the file was last written to, by the file system."""
        found = self._fs.stat(self.path)
        return found.modified_ms if found else 0

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[BatchInfo]:
        """The complete batches from a position on, which must be that of a batch."""
        return scan_batches(self.file, start, self.size if end is None else min(end, self.size))


class NoFile:
    """What is read of a file that is not there."""

    size = 0
    descriptor = None

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_into(self, position: int, target: memoryview) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""
