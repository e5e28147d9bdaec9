"""Compaction of one log: of every key the last record stays.

A round has two halves. First the dirty part, from where the last round ended to what may be cleaned, is read and the
newest offset of every key noted in a map of bounded size; when the map is full the round ends there. Then all segments
up to that end are copied, group by group, without the records that the map, the transactions or the time of a tombstone
let go (record_filter.py), and each copy takes the place of its group (segment_swap.py). Offsets do not change, and what
lies above the end of the round is copied as it is.

Nothing is removed on the strength of bytes that power loss could take back. A record goes because of a newer one, a
marker or a later batch of its producer, and these may lie anywhere up to the log end: a marker that decides a
transaction, and the last batch of a producer, are often in the active segment. So a round first flushes the log up to
its end, and goes by what it knew then. Kafka does not: there, the old value of a key can be gone from the disk before
the new one is on it.

A batch whose checksum is wrong ends the round with an error and its group is not replaced: it would get a new checksum,
and nobody could tell any more. Kafka does not look.

A round is a generator that yields wherever it may be interrupted: None, or how many milliseconds to wait. Closing it
gives the round up. Groups that were swapped stay, the rest is as it was.

Kafka: Cleaner.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from tidelog.errors import CleaningAbortedError, CorruptRecordError, OffsetOverflowError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_windows import WINDOW_BYTES, BatchWindow, read_windows
from tidelog.log.clock import Clock
from tidelog.log.compaction.batch_fates import BatchFates, aborted_in, is_left_out
from tidelog.log.compaction.cleanable import CleanableLog
from tidelog.log.compaction.cleaned_segment import CleanedSegment
from tidelog.log.compaction.cleaned_txns import CleanedTransactions
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.offset_map import DictOffsetMap, OffsetMap, TableOffsetMap, map_batch, map_window
from tidelog.log.compaction.record_filter import FilterCounts, FilterRules, filter_batch
from tidelog.log.compaction.segment_groups import group_segments
from tidelog.log.compaction.throttle import Throttle
from tidelog.log.producer_state import LastRecord
from tidelog.log.segment import LogSegment
from tidelog.records.batches import batch_of

__all__ = ["CleanedRound", "Cleaner", "CleanerStats"]

_KERNEL_FROM = 64 << 10  # bytes: below, loading the kernels takes longer than the round
_MANY_OFFSETS = 4096  # in however few bytes: they are compressed
_FLUSH_LOOK_MS = 1.0  # between two looks whether a flush is over
_RECORDS_AT_ONCE = 2000  # read by the readable path before others have a turn

Steps = Generator[float | None, None, None]


@dataclass
class CleanerStats:
    """What a round has done so far."""

    bytes_to_read: int = 0  # of both halves, by what was known at the start
    map_bytes: int = 0
    map_records: int = 0
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    utilisation: float = 0.0  # of the map
    records: FilterCounts = field(default_factory=FilterCounts)


class CleanedRound(NamedTuple):
    """Where the next round begins, and what this one did."""

    end_offset: int
    stats: CleanerStats


class Cleaner:
    """Cleans one log after the other, with one budget of memory and one of disk traffic."""

    def __init__(self, config: CleanerConfig, clock: Clock, *, throttle: Throttle | None = None) -> None:
        self.config = config
        self._clock = clock
        self._throttle = throttle

    def clean(
        self, cleanable: CleanableLog, now_ms: int | None = None, stats: CleanerStats | None = None
    ) -> Generator[float | None, None, CleanedRound]:
        """One round over a log. `stats`, if given, can be watched."""
        return self._round(cleanable, now_ms, stats, writes=True)

    def preview(
        self, cleanable: CleanableLog, now_ms: int | None = None, stats: CleanerStats | None = None
    ) -> Generator[float | None, None, CleanedRound]:
        """What a round would do, without doing it."""
        return self._round(cleanable, now_ms, stats, writes=False)

    def _round(
        self, cleanable: CleanableLog, now_ms: int | None, stats: CleanerStats | None, *, writes: bool
    ) -> Generator[float | None, None, CleanedRound]:
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        stats = CleanerStats() if stats is None else stats
        round_ = _Round(cleanable, self._map_for(cleanable), now_ms, stats, self._throttle, writes=writes)
        round_.window_bytes = self._window_bytes()
        yield from round_.run()
        return CleanedRound(round_.end_offset, stats)

    def _map_for(self, cleanable: CleanableLog) -> OffsetMap:
        offsets = cleanable.first_uncleanable_offset - cleanable.log.log_start_offset
        is_little = cleanable.total_bytes < _KERNEL_FROM and offsets < _MANY_OFFSETS
        return (DictOffsetMap if is_little else TableOffsetMap)(self.config.slots, self.config.load_factor)

    def _window_bytes(self) -> int:
        """What is read at once: a quarter of a second of the rate that is allowed, or else it would come in gusts."""
        rate = float("inf") if self._throttle is None else self._throttle.rate_per_s
        return int(max(min(rate / 4, WINDOW_BYTES), self.config.buffer_bytes, 4096))


class _Round:
    """One round over one log."""

    def __init__(
        self,
        cleanable: CleanableLog,
        offset_map: OffsetMap,
        now_ms: int,
        stats: CleanerStats,
        throttle: Throttle | None,
        *,
        writes: bool,
    ) -> None:
        self._log = cleanable.log
        self._first_dirty = cleanable.first_dirty
        self._first_uncleanable = cleanable.first_uncleanable_offset
        self._truncations = self._log.local.truncations
        self._map = offset_map
        self._now_ms = now_ms
        self._stats = stats
        self._throttle = throttle
        self._writes = writes
        self._txns = CleanedTransactions()
        self._is_fast = isinstance(offset_map, TableOffsetMap)
        self._last_records: Mapping[int, LastRecord] = {}
        self.window_bytes = WINDOW_BYTES
        stats.bytes_to_read = cleanable.cleanable_bytes + cleanable.total_bytes

    @property
    def end_offset(self) -> int:
        """Behind the last offset whose key is in the map; where the round began if there was nothing to clean."""
        return max(self._map.latest_offset + 1, self._first_dirty)

    def run(self) -> Steps:
        if self._first_dirty >= self._first_uncleanable:
            return
        self._last_records = self._log.producers.last_records()  # before the flush: a later batch is not covered by it
        if self._writes:
            yield from self._flush(self._log.log_end_offset)
        segments = self._log.local.segments
        clean = segments.between(0, self._first_dirty)
        oldest_delete_ms = clean[-1].log.modified_ms - self._log.config.delete_retention_ms if clean else 0
        yield from self._build_map()
        self._stats.keys = self._map.size
        self._stats.utilisation = self._map.utilisation
        to_clean = segments.between(0, self.end_offset)
        for group in group_segments(to_clean, self._log.config, self._first_uncleanable):
            yield from self._clean_group(group, oldest_delete_ms)

    def _flush(self, end: int) -> Steps:
        """Have everything that the round relies on, the bytes below `end`, on the disk.

        A host that waits for the disk in other threads is given the flush as a task, and the round waits for it.
        """
        if end > self._log.recovery_point and self._log.local.schedule.hands_out_disk_tasks:
            task = self._log.flush_soon(end)
            while not task.is_over:
                yield _FLUSH_LOOK_MS
                self._ensure_not_truncated()
        self._log.flush_to(end)  # nothing is left to do if the task has done it

    # -- the map -------------------------------------------------------------------------------------------------

    def _build_map(self) -> Steps:
        start, end = self._first_dirty, self._first_uncleanable
        dirty = self._log.local.segments.between(start, end)
        txns = CleanedTransactions()
        txns.add_aborted(self._log.local.collect_aborted(start, end))
        for segment, following in zip_longest(dirty, dirty[1:]):
            if (yield from self._map_segment(segment, txns)):
                return
            # There may be offsets between its last record and the next segment, and none of them is missing.
            self._map.update_latest((end if following is None else following.base_offset) - 1)

    def _map_segment(self, segment: LogSegment, txns: CleanedTransactions) -> Generator[float | None, None, bool]:
        """Note the keys of a segment; whether the map is full."""
        first = next(segment.lookup().batches_from(self._first_dirty), None)
        position = 0 if first is None else first.position
        for window in self._windows(segment, position):
            is_full = yield from self._map_window(window, txns)
            self._stats.map_bytes += window.end - window.position
            yield from self._pause(window.end - window.position)
            if is_full:
                return True
        return False

    def _map_window(self, window: BatchWindow, txns: CleanedTransactions) -> Generator[float | None, None, bool]:
        if window.scan is not None and isinstance(self._map, TableOffsetMap):
            import numpy as np

            wanted = np.ones(len(window), np.uint8)
            for index in aborted_in(window, txns):
                wanted[index] = 0
            mapped = map_window(self._map, window, wanted, self._first_dirty)
            self._stats.map_records += mapped.records
            return mapped.full
        for number, some in enumerate(_portions(window.batches)):
            if number:
                yield from self._pause(0)
            for batch in some:
                self._stats.map_records += max(batch.records_count, 1)
                if is_left_out(window, batch, txns):
                    if batch.last_offset >= self._first_dirty:
                        self._map.update_latest(batch.last_offset)
                elif map_batch(self._map, batch_of(window.bytes_of(batch)), self._first_dirty):
                    return True
        return False

    # -- the copy ------------------------------------------------------------------------------------------------

    def _clean_group(self, group: Sequence[LogSegment], oldest_delete_ms: int) -> Steps:
        """Write the segments of a group into a new one, and put it in their place."""
        self._ensure_not_truncated()
        target = CleanedSegment(self._log, group[0].base_offset) if self._writes else None
        try:
            self._txns.keep = target.add_aborted if target is not None else None
            fates = BatchFates(self._txns, self._last_records, self._first_uncleanable, self._now_ms)
            for segment, following in zip_longest(group, group[1:]):
                upper = segment.next_offset() if following is None else following.base_offset
                self._txns.add_aborted(self._log.local.collect_aborted(segment.base_offset, upper))
                retains_deletes = segment.log.modified_ms > oldest_delete_ms
                for data, fast, read in self._filtered(segment, fates, retains_legacy_deletes=retains_deletes):
                    if target is not None and data:
                        self._append(target, data, segment, fast=fast)
                    self._stats.bytes_read += read
                    self._stats.bytes_written += len(data)
                    yield from self._pause(read + len(data))
            if target is not None:
                segment = target.finish(group[-1].log.modified_ms)
                self._ensure_not_truncated()
                self._log.local.ensure_descriptors()
                # From here on it is the log's. If the swap is interrupted, start-up completes it or takes it back: the
                # old files may be on their way out, and the new ones all there is.
                target = None
                self._log.replace_segments([segment], group)
        finally:
            if target is not None:
                target.discard()
        yield from self._pause(0)

    def _append(self, target: CleanedSegment, data: memoryview, source: LogSegment, *, fast: bool) -> None:
        try:
            target.append(data, fast=fast)
        except OffsetOverflowError as error:
            target.discard()  # the parts may have its names
            self._log.split_overflowed(source)
            raise CleaningAbortedError(
                f"{source}: had offsets that do not fit and was split, to be cleaned anew"
            ) from error

    def _filtered(
        self, segment: LogSegment, fates: BatchFates, *, retains_legacy_deletes: bool
    ) -> Iterator[tuple[memoryview, bool, int]]:
        """What stays of a segment, window by window, whether kernels were used, and how many bytes were read."""
        rules = FilterRules(
            self._map.latest_offset, self._now_ms, self._log.config.delete_retention_ms, retains_legacy_deletes
        )
        for window in self._windows(segment):
            if window.scan is not None and isinstance(self._map, TableOffsetMap):
                from tidelog.log.compaction.window_filter import filter_window

                decided = fates.of_window(window)
                kept = filter_window(window, decided.fates, decided.marks, self._map, rules, self._stats.records)
                yield kept, True, window.end - window.position
            else:
                for some in _portions(window.batches):
                    yield self._filtered_by_batch(window, some, fates, rules), False, sum(batch.size for batch in some)

    def _filtered_by_batch(
        self, window: BatchWindow, batches: Sequence[BatchInfo], fates: BatchFates, rules: FilterRules
    ) -> memoryview:
        kept = bytearray()
        for batch in batches:
            fate, is_mark = fates.of(window, batch)
            data = batch_of(window.bytes_of(batch))
            kept += filter_batch(data, fate, is_mark, self._map, rules, self._stats.records) or b""
        return memoryview(kept)

    def _windows(self, segment: LogSegment, position: int = 0) -> Iterator[BatchWindow]:
        """The batches of a segment from a position on. What is no sound batch is an error: it is not thrown away."""
        file = segment.log.file
        for window in read_windows(
            file, position, segment.size, verify=True, fast=self._is_fast, window=self.window_bytes
        ):
            yield window
            if window.problem is not None:
                raise window.problem
            position = window.end
        if position < segment.size:
            raise CorruptRecordError(f"{segment.log.path}: the last {segment.size - position} bytes are no batch")

    # -- what may go wrong ---------------------------------------------------------------------------------------

    def _pause(self, size: int) -> Steps:
        """Let others work after so many bytes of disk traffic, and see whether they have left the log as it was."""
        yield None if self._throttle is None else self._throttle.observe(size) or None
        self._ensure_not_truncated()

    def _ensure_not_truncated(self) -> None:
        if self._truncations != self._log.local.truncations:
            raise CleaningAbortedError(f"{self._log.directory}: was truncated while it was being cleaned")


def _portions(batches: Sequence[BatchInfo]) -> Iterator[Sequence[BatchInfo]]:
    """The batches a few at a time, by the records in them; of an entry of the old formats nobody knows how many."""
    first = records = 0
    for number, batch in enumerate(batches, 1):
        records += max(batch.records_count, 1)
        if records >= _RECORDS_AT_ONCE or number == len(batches):
            yield batches[first:number]
            first, records = number, 0
