"""Lookups that do not pass over a batch whose first offset is damaged.

The first offset of a version 2 batch is not under its checksum. A lookup walks from an index entry to the first batch
that reaches an offset: a batch whose first offset became smaller would be passed over without a word, and one whose
first offset became larger would be taken for what it is not. So every batch on the way must begin after the one before
it, and what is found must end before the one that follows it. Otherwise CorruptRecordError is raised.

The batch that the walk begins with has none before it. It is believed if the index entry has its first or its last
offset, which is what Kafka stores; otherwise the walk begins one entry earlier, and so meets it.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from tidelog.errors import CorruptionError, CorruptRecordError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import scan_batches
from tidelog.log.lookup import IndexUsed, SegmentChosen, SegmentLookup, Step
from tidelog.log.offset_index import OffsetPosition
from tidelog.log.offsets import TimestampAndOffset
from tidelog.log.segment_reader import SegmentReader

__all__ = ["Fault", "OffsetOrder", "OrderedLookup", "OrderedReader", "is_exact"]


class Fault(NamedTuple):
    """What is wrong with the offsets of the batch at a position."""

    position: int
    what: str

    def __str__(self) -> str:
        return f"position {self.position}: {self.what}"


class OffsetOrder:
    """Whether the first offsets of batches that follow one another in a segment can be right."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.before: BatchInfo | None = None  # the last one that was taken,
        self._reached = base_offset  # and the offset that it had to have at least

    def fault_of(self, batch: BatchInfo) -> Fault | None:
        """What is wrong with the next batch, or with the one before it; if nothing is, it is taken."""
        before = self.before
        if not batch.is_legacy:
            if batch.base_offset < self.base_offset:
                what = f"offset {batch.base_offset} before the first of the segment, {self.base_offset}"
                return Fault(batch.position, what)
            if before is not None and not before.is_legacy and batch.base_offset <= before.last_offset:
                return self._overlap(before, batch)
        self.take(batch)
        return None

    def take(self, batch: BatchInfo) -> None:
        """Take a batch without a question."""
        if self.before is not None:
            self._reached = self.before.next_offset
        elif batch.position:  # what lies before it is not known
            self._reached = batch.base_offset
        self.before = batch

    def _overlap(self, before: BatchInfo, batch: BatchInfo) -> Fault:
        """The one before is named if it would have room in the gap that is before it, or if it has fewer records than
        offsets: a header that was not read with its checksum may be wrong in that, too."""
        count = before.last_offset - before.base_offset + 1
        has_room = self._reached < before.base_offset and self._reached + count <= batch.base_offset
        is_doubtful = before.base_offset < batch.base_offset and before.records_count != count
        if has_room or is_doubtful:
            return Fault(before.position, f"offset {before.last_offset} before {batch.base_offset}")
        return Fault(batch.position, f"offset {batch.base_offset} behind {before.last_offset}")


class OrderedReader(SegmentReader):
    """A segment whose lookups watch the order of offsets."""

    limit_offset: int | None = None  # the base offset of the next segment, where that is known
    may_reach_over: Callable[[], bool] = staticmethod(lambda: False)  # whether that one is old, and this one compacted

    def lookup(self, trace: list[Step] | None = None) -> "OrderedLookup":
        """Lookups in the segment as it is now."""
        if trace is not None:
            trace.append(SegmentChosen(self.base_offset))
        log = self.log
        return OrderedLookup(self.base_offset, log.file, log.size, self.offset_index, self.time_index, trace)

    def find_time(
        self, target_ms: int, first_offset: int, trace: list[Step] | None = None
    ) -> TimestampAndOffset | None:
        """The first record at or after `target_ms` and not below `first_offset`."""
        found = super().find_time(target_ms, first_offset, trace)
        is_over = found is not None and self.limit_offset is not None and found.offset >= self.limit_offset
        if found is not None and is_over and not self.may_reach_over():
            raise CorruptRecordError(
                f"{self.log.path} holds offset {found.offset}, and the next segment begins with {self.limit_offset}"
            )
        return found


class OrderedLookup(SegmentLookup):
    """Lookups in one segment that raise CorruptRecordError where the offsets of its batches do not rise."""

    __slots__ = ("_met",)  # the index entry that a walk begins with, if it does with one

    def batches_from(self, target: int) -> Iterator[BatchInfo]:
        """The batches from the index entry of `target` on; each is given once it is known what follows it."""
        return self._in_order(self.headers_from(target))

    def headers_from(self, target: int) -> Iterator[BatchInfo]:
        """The same, in whatever order they are. One that an index entry does not know has one before it."""
        self._met: list[OffsetPosition] = []
        headers = super().headers_from(target)
        if not self._met:
            return headers
        entry, first = self._met[-1], next(headers, None)
        if first is None:
            return headers
        if first.position != entry.position or is_exact(first, entry):
            return chain((first,), headers)
        earlier = self._entry_before(entry)
        if self._trace is not None:
            self._trace.append(IndexUsed(*earlier))
        return scan_batches(self._file, earlier.position, self.size)

    def _is_batch_of(self, batch: BatchInfo, entry: OffsetPosition) -> bool:
        self._met.append(entry)
        return super()._is_batch_of(batch, entry)

    def _entry_before(self, entry: OffsetPosition) -> OffsetPosition:
        """The index entry before another one; if there is none to be had, the beginning of the segment."""
        beginning = OffsetPosition(self.base_offset, 0)
        try:
            earlier = self._index.lookup(entry.offset - 1)
            batch = next(scan_batches(self._file, earlier.position, self.size), None)
        except CorruptionError:
            return beginning
        is_before = earlier.position < entry.position and batch is not None and super()._is_batch_of(batch, earlier)
        return earlier if is_before else beginning

    def _in_order(self, headers: Iterator[BatchInfo]) -> Iterator[BatchInfo]:
        order = OffsetOrder(self.base_offset)
        problem: CorruptionError | None = None
        while True:
            try:
                batch = next(headers, None)
            except CorruptionError as error:  # no batch; the one before it is given first
                batch, problem = None, error
            before = order.before
            if batch is not None and (fault := order.fault_of(batch)) is not None:
                raise CorruptRecordError(f"{self._file.path}, {fault}")
            if before is not None:
                yield before
            if problem is not None:
                raise problem
            if batch is None:
                return


def is_exact(batch: BatchInfo, entry: OffsetPosition) -> bool:
    """Whether an index entry proves the first offset of the batch it points to."""
    return batch.is_legacy or entry.offset in (batch.base_offset, batch.last_offset)
