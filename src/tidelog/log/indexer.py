"""Making the offset and the time index of a segment anew, from its batches.

An entry is due when more than `index.interval.bytes` lie between a batch and the last one that got an entry; then the
offset index gets the last offset of the batch, and the time index the largest timestamp so far. At the end the time
index gets the largest timestamp of all.
"""

from collections.abc import Callable, Iterator

from tidelog.errors import CorruptionError, InvalidRequestError, OffsetOverflowError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, no_turning_back
from tidelog.log.names import DELETED
from tidelog.log.offset_index import OffsetIndex
from tidelog.log.segment import LogSegment
from tidelog.log.time_index import TimeIndex, TimestampOffset
from tidelog.records.java import MAX_INT32

__all__ = ["Indexer", "rebuild_indexes"]


class Indexer:
    """Fills two indexes, which it empties first. `position` is where the next batch stands."""

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, interval: int) -> None:
        self.position = 0
        self.max_timestamp = TimestampOffset(-1, offset_index.base_offset)
        self._base_offset = offset_index.base_offset
        self._offsets = offset_index
        self._times = time_index
        self._interval = interval
        self._last_indexed = 0
        offset_index.reset()
        time_index.reset()

    def add(self, batch: BatchInfo) -> None:
        """Note the next batch."""
        if not 0 <= batch.last_offset - self._base_offset <= MAX_INT32:
            raise OffsetOverflowError(
                f"offset {batch.last_offset} does not fit a segment of base offset {self._base_offset}"
            )
        if batch.max_timestamp_ms > self.max_timestamp.timestamp_ms:
            self.max_timestamp = TimestampOffset(batch.max_timestamp_ms, batch.last_offset)
        if self.position - self._last_indexed > self._interval:
            if not (self._offsets.is_full or self._times.is_full):  # an index that lacks entries is none the worse
                self._offsets.append(batch.last_offset, self.position)
                self._times.maybe_append(*self.max_timestamp)
            self._last_indexed = self.position
        self.position += batch.size

    def add_window(self, window: BatchWindow) -> bool:
        """Note all batches of a window at once, by a kernel; False, and nothing done, if that is not possible."""
        if window.scan is None:
            return False
        from tidelog.kernels.indexing import IndexState, index_batches

        last_offset = self._offsets.last_offset if self._offsets.entries else self._base_offset - 1
        state = IndexState(self._last_indexed, *self.max_timestamp, last_offset, *self._times.last_entry)
        entries = index_batches(
            window.scan, start=window.position, base_offset=self._base_offset, interval=self._interval, state=state
        )
        if entries is None or not (self._offsets.has_room(entries.offsets) and self._times.has_room(entries.times)):
            return False
        self._offsets.extend(entries.offsets)
        self._times.extend(entries.times)
        self._last_indexed = entries.state.last_indexed
        self.max_timestamp = TimestampOffset(entries.state.max_timestamp_ms, entries.state.offset_of_max)
        self.position = window.end
        return True

    def finish(self) -> None:
        """Write the last time entry, if there is room for it, and trim."""
        if self._times.entries < self._times.max_entries:
            self._times.maybe_append(*self.max_timestamp, skip_full=True)
        self._offsets.trim()
        self._times.trim()


def rebuild_indexes(
    fs: FileSystem,
    segment: LogSegment,
    config: LogConfig,
    *,
    is_active: Callable[[], bool],
    is_stale: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Make the indexes of a segment anew, of which a reader has found one to be wrong; yields now and then.

    They are written beside the old ones, under names that any start-up would clean away, and take their place when
    they are complete and on the disk: neither a reader nor a crash finds half an index. The segment may grow and be
    rolled meanwhile; if it was cut or deleted, which `is_stale` tells, all was for nothing.
    """
    offsets = OffsetIndex(fs, _beside(segment.offset_index.path), segment.base_offset, config.segment_index_bytes)
    times = TimeIndex(fs, _beside(segment.time_index.path), segment.base_offset, config.segment_index_bytes)
    is_taken = False
    try:
        indexer = Indexer(offsets, times, config.index_interval_bytes)
        yield from _fill(indexer, segment)
        if not is_stale():
            if is_active():
                offsets.resize(config.segment_index_bytes)
                times.resize(config.segment_index_bytes)
            else:
                indexer.finish()
            offsets.flush()
            times.flush()
            is_taken = True  # from here on they may have their final names
            with no_turning_back():
                segment.take_indexes(offsets, times)
    finally:
        if not is_taken:
            offsets.delete()
            times.delete()


def _beside(path: str) -> str:
    return f"{path}.rebuilt{DELETED}"


def _fill(indexer: Indexer, segment: LogSegment) -> Iterator[None]:
    try:
        while indexer.position < segment.size:
            before = indexer.position
            for window in read_windows(segment.log.file, before, segment.size):
                if not indexer.add_window(window):
                    for batch in window.batches:
                        indexer.add(batch)
                yield
            if indexer.position == before:
                break  # the rest is no batch
    except (CorruptionError, InvalidRequestError, OffsetOverflowError):
        pass  # the log itself is damaged from here on: what was indexed before is right
