"""Finding an offset or a time in one segment. What a reader, `explain` and recovery do is this, and nothing else.

By offset: the greatest index entry not above the target gives a position; from there batches are walked until one
ends at or after the target. By time: the greatest time-index entry not above the target gives an offset, that offset
a position, and from there the first batch whose largest timestamp reaches the target is opened.

An index is a hint. The batch that an entry points to must be the batch the entry speaks of; if it is not, the entry is
reported as wrong and the walk begins at position 0, so that a damaged index costs time and never an answer.

A trace, where one is given, is told every step: `explain` prints it.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, Protocol

from tidelog.errors import CorruptIndexError, CorruptionError, UnsupportedError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch, scan_batches
from tidelog.log.files import ReadFile
from tidelog.log.offset_index import OffsetPosition
from tidelog.log.offsets import TimestampAndOffset
from tidelog.log.time_index import TimestampOffset
from tidelog.records.batches import batch_of

__all__ = [
    "BatchRead",
    "BatchWalked",
    "IndexUsed",
    "SegmentChosen",
    "SegmentLookup",
    "Step",
    "TimeIndexUsed",
    "WrongIndex",
]


class SegmentChosen(NamedTuple):
    """The segment that must hold the target, if any does."""

    base_offset: int


class IndexUsed(NamedTuple):
    """The entry of the offset index from whose position the walk begins."""

    offset: int
    position: int


class TimeIndexUsed(NamedTuple):
    """The entry of the time index before whose offset nothing reaches the target."""

    timestamp_ms: int
    offset: int


class BatchWalked(NamedTuple):
    """A batch whose header was read on the way."""

    batch: BatchInfo


class BatchRead(NamedTuple):
    """A batch whose records were read."""

    batch: BatchInfo


class WrongIndex(NamedTuple):
    """An index entry that does not fit the log: the walk begins at 0 instead."""

    what: str


Step = SegmentChosen | IndexUsed | TimeIndexUsed | BatchWalked | BatchRead | WrongIndex


class OffsetLookup(Protocol):
    """What a lookup needs of an offset index."""

    def lookup(self, target: int) -> OffsetPosition: ...


class TimeLookup(Protocol):
    """What a lookup needs of a time index."""

    def lookup(self, timestamp_ms: int) -> TimestampOffset: ...


class SegmentLookup:
    """Lookups in one segment: its file, how much of it is batches, and its two indexes."""

    __slots__ = ("_file", "_index", "_time_index", "_trace", "base_offset", "bytes_left", "size", "wrong_index")

    def __init__(
        self,
        base_offset: int,
        file: ReadFile,
        size: int,
        index: OffsetLookup,
        time_index: TimeLookup,
        trace: list[Step] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.wrong_index: str | None = None  # what was wrong with the index, if something was
        self.bytes_left = 0  # behind the last complete batch, where a search came to the end
        self._file = file
        self.size = size
        self._index = index
        self._time_index = time_index
        self._trace = trace

    def find_offset(self, target: int) -> BatchInfo | None:
        """The first batch that ends at or after `target`."""
        batch = None
        for batch in self.batches_from(target):
            if self._trace is not None:
                self._trace.append(BatchWalked(batch))
            if batch.last_offset >= target:
                return batch
        self._walked_to(batch)
        return None

    def find_time(self, target_ms: int, first_offset: int) -> TimestampAndOffset | None:
        """The first record, in the order of offsets, at or after `target_ms` and not below `first_offset`."""
        batch = None
        for batch in self.batches_from(max(self._offset_before(target_ms), first_offset)):
            if self._trace is not None:
                self._trace.append(BatchWalked(batch))
            if batch.max_timestamp_ms >= target_ms:
                found = self._first_record(batch, target_ms, first_offset)
                if found is not None:
                    return found
        self._walked_to(batch)
        return None

    def _walked_to(self, last: BatchInfo | None) -> None:
        """Note how many bytes lie behind the last batch of a walk that found nothing."""
        self.bytes_left = self.size - (0 if last is None else last.position + last.size)

    def find_max_timestamp(self, hint: TimestampOffset) -> TimestampAndOffset | None:
        """The first record that has the largest timestamp of the segment, `hint.timestamp_ms`."""
        for batch in self.batches_from(hint.offset):
            if batch.max_timestamp_ms == hint.timestamp_ms:
                return self._first_record(batch, hint.timestamp_ms, -1)
        return None

    def largest_behind(self, entry: TimestampOffset | None) -> TimestampOffset:
        """The largest timestamp of the segment, which is that of the last time entry or of a batch behind it."""
        latest = TimestampOffset(-1, self.base_offset)
        start = self.base_offset if entry is None else self._believed(entry)
        try:
            for batch in self.headers_from(start):
                if batch.max_timestamp_ms > latest.timestamp_ms:
                    latest = TimestampOffset(batch.max_timestamp_ms, batch.last_offset)
        except CorruptionError:  # a torn tail ends the segment; what lies before it counts
            pass
        return latest

    def _first_record(self, batch: BatchInfo, target_ms: int, first_offset: int) -> TimestampAndOffset | None:
        if self._trace is not None:
            self._trace.append(BatchRead(batch))
        records = batch_of(read_batch(self._file, batch))
        records.ensure_valid()  # an answer made of damaged records would be believed
        for record in records:
            if record.timestamp_ms >= target_ms and record.offset >= first_offset:
                epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
                return TimestampAndOffset(record.timestamp_ms, record.offset, epoch)
        return None

    def _offset_before(self, target_ms: int) -> int:
        """An offset below which nothing reaches `target_ms`, by the time index if it can be believed."""
        try:
            entry = self._time_index.lookup(target_ms)
        except CorruptIndexError as error:
            self._report(str(error))
            return self.base_offset
        return self.base_offset if entry.timestamp_ms < 0 else self._believed(entry)

    def _believed(self, entry: TimestampOffset) -> int:
        """The offset of a time entry, or the start of the segment if the entry is wrong."""
        fault = self.fault_of(entry)
        if fault is not None:
            self._report(fault)
            return self.base_offset
        if self._trace is not None:
            self._trace.append(TimeIndexUsed(*entry))
        return entry.offset

    def fault_of(self, entry: TimestampOffset) -> str | None:
        """What is wrong with a time entry: the batch that holds its offset must have its timestamp."""
        try:
            batch = next(
                (batch for batch in self.headers_from(entry.offset) if batch.last_offset >= entry.offset), None
            )
        except CorruptionError:
            batch = None
        if batch is None or batch.max_timestamp_ms != entry.timestamp_ms:
            return f"the time index says {entry.timestamp_ms} of offset {entry.offset}, the log does not"
        return None

    def batches_from(self, target: int) -> Iterator[BatchInfo]:
        """The batches from the index entry of `target` on, or all of them if the entry is wrong."""
        return self.headers_from(target)

    def headers_from(self, target: int) -> Iterator[BatchInfo]:
        """The same, in whatever order their offsets are."""
        try:
            entry = self._index.lookup(target)
        except CorruptIndexError as error:
            self._report(str(error))
            return scan_batches(self._file, 0, self.size)
        if entry.position:
            batches = scan_batches(self._file, entry.position, self.size)
            first = _first_of(batches)
            if first is not None and self._is_batch_of(first, entry):
                if self._trace is not None:
                    self._trace.append(IndexUsed(*entry))
                return chain((first,), batches)
            self._report(f"the index says offset {entry.offset} is at position {entry.position}, the log does not")
        elif self._trace is not None:
            self._trace.append(IndexUsed(*entry))
        return scan_batches(self._file, 0, self.size)

    def _is_batch_of(self, batch: BatchInfo, entry: OffsetPosition) -> bool:
        """Whether the batch that an index entry points to can be the one it speaks of.

        Its first offset must not lie behind the entry's. That is all an entry can be held to: 4.3 stores the last
        offset of the batch, releases up to 1.1 the first, and those between the last one of the whole append, of which
        the batch was the first.
        """
        first_offset = batch.base_offset
        if batch.is_legacy and batch.codec_id:
            try:
                first_offset = batch_of(read_batch(self._file, batch)).base_offset
            except (CorruptionError, UnsupportedError):
                return False
        return self.base_offset <= first_offset <= entry.offset

    def _report(self, what: str) -> None:
        self.wrong_index = what
        if self._trace is not None:
            self._trace.append(WrongIndex(what))


def _first_of(batches: Iterator[BatchInfo]) -> BatchInfo | None:
    """The first of `batches`, or None where there is no sound one."""
    try:
        return next(batches, None)
    except CorruptionError:
        return None
