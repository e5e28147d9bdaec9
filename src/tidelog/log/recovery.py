"""Recovering a segment: what a crash may have left is read batch by batch, and everything beside it is made anew.

The first batch whose size or checksum is wrong, and an incomplete one at the end, are cut off with all that follows.
Offset, time and transaction index, leader epochs and producer state are rebuilt on the way.

Kafka: LogSegment.recover.
"""

from collections.abc import Iterator

from tidelog.errors import InvalidRecordError, OffsetOverflowError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.config import LogConfig
from tidelog.log.leader_epochs import LeaderEpochCache
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.segment import LogSegment
from tidelog.log.time_index import TimestampOffset
from tidelog.records.batch import MAGIC, RecordBatch
from tidelog.records.control import end_txn_marker_of

__all__ = ["SegmentRecovery", "rebuild_indexes"]


class SegmentRecovery:
    """The recovery of one segment. `bytes_cut` counts what had to go."""

    def __init__(
        self, segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochCache, config: LogConfig
    ) -> None:
        self.bytes_cut = 0
        self._segment = segment
        self._producers = producers
        self._epochs = epochs
        self._indexer = _Indexer(segment, config.index_interval_bytes)

    def run(self) -> Iterator[None]:
        """Recover, yielding after each stretch. Raises CorruptIndexError where offsets go back."""
        segment = self._segment
        self._indexer.start()
        segment.txn_index.reset()
        valid = 0
        for window in read_windows(segment.log.file, 0, segment.size, verify=True):
            is_sound = self._take(window)
            valid = self._indexer.position
            if not is_sound:
                break
            yield
        self.bytes_cut = segment.size - valid
        segment.log.truncate_to(valid)
        self._indexer.finish()

    def _take(self, window: BatchWindow) -> bool:
        """Take in a window; False if a marker cannot be read: it stays, as it does in Kafka, and what follows goes."""
        for batch in window.batches:
            if not self._segment.fits(batch.last_offset):
                raise OffsetOverflowError(
                    f"offset {batch.last_offset} does not fit the segment of base offset {self._segment.base_offset}"
                )
            self._indexer.add(batch)
            if batch.magic >= MAGIC:
                self._note_epoch(batch)
                try:
                    self._note_producer(batch, window)
                except InvalidRecordError:
                    return False
        return True

    def _note_epoch(self, batch: BatchInfo) -> None:
        latest = self._epochs.latest_epoch
        if batch.leader_epoch >= 0 and (latest is None or batch.leader_epoch > latest):
            self._epochs.assign(batch.leader_epoch, batch.base_offset)

    def _note_producer(self, batch: BatchInfo, window: BatchWindow) -> None:
        producers = self._producers
        if batch.producer_id >= 0:
            updates: dict[int, ProducerAppendInfo] = {}
            marker = end_txn_marker_of(RecordBatch(window.bytes_of(batch))) if batch.is_control else None
            txn = producers.stage(updates, batch, AppendOrigin.REPLICATION, marker)
            producers.apply(updates)
            if txn is not None:
                if txn.is_aborted:
                    self._segment.add_aborted(txn, producers.last_stable_offset(txn))
                producers.complete_txn(txn)
        producers.map_end_offset = batch.last_offset + 1


class _Indexer:
    """The offset and time index of a segment, made anew from its batches."""

    def __init__(self, segment: LogSegment, interval: int) -> None:
        self.position = 0  # of the next batch
        self._segment = segment
        self._interval = interval
        self._last_indexed = 0

    def start(self) -> None:
        """Empty both indexes and give them room."""
        segment = self._segment
        for index in (segment.offset_index, segment.time_index):
            index.truncate()
            index.resize(index.max_size)
        segment.max_timestamp = TimestampOffset(-1, segment.base_offset)

    def add(self, batch: BatchInfo) -> None:
        """Note the next batch."""
        segment = self._segment
        if batch.max_timestamp_ms > segment.max_timestamp.timestamp_ms:
            segment.max_timestamp = TimestampOffset(batch.max_timestamp_ms, batch.last_offset)
        if self.position - self._last_indexed > self._interval:
            segment.index_batch(batch.last_offset, self.position)
            self._last_indexed = self.position
        self.position += batch.size

    def finish(self) -> None:
        """Write the last time entry and trim."""
        segment = self._segment
        segment.offset_index.trim()
        segment.time_index.maybe_append(*segment.max_timestamp, skip_full=True)
        segment.time_index.trim()
        segment.wrong_index = None


def rebuild_indexes(segment: LogSegment, config: LogConfig) -> None:
    """Make the offset and time index of a segment anew, of which a reader found one to be wrong."""
    indexer = _Indexer(segment, config.index_interval_bytes)
    indexer.start()
    for batch in segment.log.batches():
        indexer.add(batch)
    indexer.finish()
