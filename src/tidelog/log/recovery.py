"""Recovering a segment: what a crash may have left is read batch by batch, and everything beside it is made anew.

The first batch whose size or checksum is wrong, and an incomplete one at the end, are cut off with all that follows.
So are the first whose offsets do not come after those before it, and a marker that cannot be read. What follows these
may be sound: what is cut there is set aside.
Offset, time and transaction index, leader epochs and producer state are rebuilt on the way.

Kafka: LogSegment.recover.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, CorruptionError, InvalidRequestError, UnsupportedError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.config import LogConfig
from tidelog.log.indexer import Indexer
from tidelog.log.leader_epochs import LeaderEpochCache
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_rebuild import worth_replaying
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.producer_txn import CompletedTxn
from tidelog.log.segment import LogSegment
from tidelog.records.batch import MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.control import end_txn_marker_of

__all__ = ["Cut", "LogCut", "SegmentRecovery"]

_SECTOR = 512  # bytes that a disk writes as one, or a divisor of it


class Cut(NamedTuple):
    """Where the recovery of a segment cuts it, and why."""

    position: int
    reason: str
    is_sound: bool = False  # batches that may be sound go, because of their offsets or of a marker


class LogCut(NamedTuple):
    """What the loading of a log has taken out of it: the end of a segment, and the segments after it."""

    path: str  # of the segment
    position: int
    size: int  # bytes of the segment from there on
    following: tuple[str, ...]  # the segments that went with it
    following_size: int
    reason: str
    is_kept: bool = False  # beside the segments, under other names


class SegmentRecovery:
    """The recovery of one segment. `bytes_cut` counts what had to go.

    Kafka keeps a marker that it cannot read, and then cannot start: `keeps_unreadable` rehearses that.
    `before_cut` is called before anything is cut: once it is, nobody can see any more that something was wrong here.
    """

    keeps_unreadable = False

    def __init__(
        self,
        segment: LogSegment,
        producers: ProducerStateManager,
        epochs: LeaderEpochCache,
        config: LogConfig,
        before_cut: Callable[[Cut], None] = lambda cut: None,
    ) -> None:
        self.bytes_cut = 0
        self._before_cut = before_cut
        self._segment = segment
        self._producers = producers
        self._epochs = epochs
        self._interval = config.index_interval_bytes
        self._last_offset = segment.base_offset - 1  # of the batch before the next one
        self._problem = "an incomplete batch"
        self._cut: Cut | None = None  # before batches that have the size and the checksum of sound ones

    def run(self) -> Iterator[None]:
        """Recover, yielding after each stretch."""
        segment = self._segment
        self._indexer = Indexer(segment.offset_index, segment.time_index, self._interval)
        segment.txn_index.reset()
        for window in read_windows(segment.log.file, 0, segment.size, verify=True):
            if not self._take(window):
                break
            if window.problem is not None:
                self._problem = str(window.problem)
            yield
        valid = self._indexer.position
        self.bytes_cut = segment.size - valid
        if self.bytes_cut:
            self._before_cut(self._cut or Cut(valid, self._problem))
        segment.log.truncate_to(valid)
        if self.bytes_cut:
            segment.log.flush()  # or what is appended next could have the old bytes behind it
        self._indexer.finish()
        segment.max_timestamp = self._indexer.max_timestamp
        segment.wrong_index = None
        segment.release_indexes()

    def _take(self, window: BatchWindow) -> bool:
        """Take in a window; False if the segment ends in it.

        It ends before a batch whose offset was lost or goes back, and before a marker that cannot be read. If that one
        stayed, it would end every recovery to come, and what is appended behind it would be cut each time.
        """
        wrong = self._first_out_of_order(window)
        if wrong is not None:
            window = window.first(wrong)
        return self._take_all(window) and wrong is None

    def _first_out_of_order(self, window: BatchWindow) -> int | None:
        """The first batch of a window whose offsets do not come after those of the batch before it, by its number.

        The checksum does not cover the offset. If a batch begins in the last bytes of a sector, a crash can lose those
        and keep the rest: the checksum holds and the offset is zero. What a crash tore is not worth keeping; any other
        batch is.
        """
        before = self._last_offset
        if not len(window):
            return None
        self._last_offset = window.batch(len(window) - 1).last_offset
        if window.scan is not None and window.batch(0).base_offset > before and self._last_offset < MAX_OFFSET:
            first_offsets = window.scan.rows["base_offset"].astype("i8")
            last_offsets = first_offsets + window.scan.rows["last_offset_delta"]
            if (first_offsets[1:] > last_offsets[:-1]).all() and (last_offsets >= first_offsets).all():
                return None
        for number, batch in enumerate(window.batches):
            if not before < batch.base_offset <= batch.last_offset < MAX_OFFSET:
                is_torn = _has_lost_head(window.bytes_of(batch), batch.position)
                offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
                reason = f"a batch of {offsets}, where offsets from {before + 1} on are expected"
                self._cut = Cut(batch.position, reason, is_sound=not is_torn)
                return number
            before = batch.last_offset
        return None

    def _take_all(self, window: BatchWindow) -> bool:
        unreadable = self._note_producers(window)
        followed = len(window)  # batches up to which the producers are known
        if unreadable is not None:
            followed = [batch.position for batch in window.batches].index(unreadable.position)
            window = window.first(followed + self.keeps_unreadable)
        if self._indexer.add_window(window):
            self._note_epochs(window)
        else:
            for batch in window.batches:
                self._indexer.add(batch)
                self._note_epoch(batch)
        if followed:
            self._producers.map_end_offset = window.batch(followed - 1).last_offset + 1
        return unreadable is None

    def _note_epochs(self, window: BatchWindow) -> None:
        scan, latest = window.scan, self._epochs.latest_epoch
        if scan is not None and latest is not None and not (scan.rows["partition_leader_epoch"] > latest).any():
            return
        for batch in window.batches:
            self._note_epoch(batch)

    def _note_epoch(self, batch: BatchInfo) -> None:
        latest = self._epochs.latest_epoch
        if batch.magic >= MAGIC and batch.leader_epoch >= 0 and (latest is None or batch.leader_epoch > latest):
            self._epochs.assign(batch.leader_epoch, batch.base_offset)

    def _note_producers(self, window: BatchWindow) -> BatchInfo | None:
        """Follow the producers through a window; the marker that cannot be read, if there is one."""
        producers = self._producers
        for batch in worth_replaying(window):
            updates: dict[int, ProducerAppendInfo] = {}
            try:
                marker = end_txn_marker_of(RecordBatch(window.bytes_of(batch))) if batch.is_control else None
            except (CorruptionError, UnsupportedError) as error:
                reason = f"a marker that cannot be read: {error}"
                self._cut = Cut(batch.position, reason, is_sound=True) if not self.keeps_unreadable else None
                return batch
            txn = producers.stage(updates, batch, AppendOrigin.REPLICATION, marker)
            producers.apply(updates)
            if txn is not None:
                if txn.is_aborted:
                    self._add_aborted(txn)
                producers.complete_txn(txn)
        return None

    def _add_aborted(self, txn: CompletedTxn) -> None:
        try:
            self._segment.add_aborted(txn, self._producers.last_stable_offset(txn))
        except InvalidRequestError as error:  # a marker before the last one, where offsets are not compared (fsck)
            raise CorruptIndexError(f"{self._segment}: offsets go back") from error


def _has_lost_head(data: memoryview, position: int) -> bool:
    """Whether nothing is left of a batch up to the next boundary of sectors, which lies before the end of its size."""
    head = -position % _SECTOR
    return 0 < head < PREFIX_SIZE and not any(data[:head])
