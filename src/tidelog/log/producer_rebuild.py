"""Producer state out of the log itself: the newest snapshot that can be believed, then every batch behind it.

Kafka: UnifiedLog.rebuildProducerState.
"""

from collections.abc import Iterator

from tidelog.errors import CorruptionError, CorruptRecordError, InvalidRecordError, UnsupportedError
from tidelog.log.batch_info import CONTROL, TRANSACTIONAL, BatchInfo
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.clock import Clock
from tidelog.log.files import parent_of
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_entry import MAX_CACHED_BATCHES
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.producer_txn import CompletedTxn
from tidelog.log.segment import LogSegment
from tidelog.log.segments import LogSegments
from tidelog.records.batch import RecordBatch
from tidelog.records.control import end_txn_marker_of

__all__ = ["rebuild_producer_state", "worth_replaying"]


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments[LogSegment],
    log_start_offset: int,
    end_offset: int,
    clock: Clock,
    *,
    clean_shutdown: bool = False,
) -> Iterator[None]:
    """Bring `producers` to the state they have before `end_offset`, yielding now and then.

    Snapshots are taken at the last two segments and at the end, so that the next start replays little. After a clean
    stop without any snapshot there can have been no producer, and nothing is replayed.
    """
    if producers.latest_snapshot_offset is None and clean_shutdown:
        for offset in [*segments.base_offsets[-2:], end_offset]:
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, clock.now_ms())
    if end_offset > producers.map_end_offset and not was_empty:
        for segment in segments.between(producers.map_end_offset, end_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in segments.base_offsets[-2:]:
                producers.take_snapshot()
            yield from _replay(producers, segment, start, end_offset)
    producers.map_end_offset = end_offset
    producers.take_snapshot()


def _replay(producers: ProducerStateManager, segment: LogSegment, start: int, end_offset: int) -> Iterator[None]:
    """Take in the batches of a segment from the one that holds `start` to the one that holds `end_offset`.

    Damage on the way is an error: state that lacks a batch would take a repeated one for new, and an open transaction
    for none.
    """
    updates: dict[int, ProducerAppendInfo] = {}
    completed: list[CompletedTxn] = []
    try:
        first = segment.find_offset(start)
        if first is None:
            return
        stop = segment.find_offset(end_offset)
        for window in read_windows(segment.log.file, first.position, stop.position if stop else segment.size):
            completed += _replay_window(producers, updates, window, segment.log.path)
            if window.problem is not None:
                raise window.problem
            yield
    except CorruptionError as error:
        root = parent_of(parent_of(segment.log.path))
        raise CorruptRecordError(
            f"{error}; `tidelog fsck --repair {root}` repairs the segment and keeps what it cuts in the quarantine"
        ) from error
    producers.apply(updates)
    for txn in completed:
        producers.complete_txn(txn)


def _replay_window(
    producers: ProducerStateManager, updates: dict[int, ProducerAppendInfo], window: BatchWindow, path: str
) -> Iterator[CompletedTxn]:
    """Stage the batches of a window by the rules of replication; the transactions that end in it.

    A marker that cannot be read is an error, as in Kafka: whoever guessed how its transaction ended could show aborted
    records to readers of committed data.
    """
    for batch in worth_replaying(window):
        try:
            marker = end_txn_marker_of(RecordBatch(window.bytes_of(batch))) if batch.is_control else None
        except (CorruptionError, UnsupportedError) as error:
            where = f"{path}, position {batch.position}, offset {batch.base_offset}"
            raise InvalidRecordError(f"{where}: a transaction marker that cannot be read: {error}") from error
        txn = producers.stage(updates, batch, AppendOrigin.REPLICATION, marker)
        if txn is not None:
            yield txn


def worth_replaying(window: BatchWindow) -> Iterator[BatchInfo]:
    """The batches of a window that leave a trace in producer state.

    Without transactions a producer is known by its last five batches, so of a long run of them, all of one epoch,
    the others can be passed over. The first one stays, too: producers are remembered in the order they came.
    """
    scan = window.scan
    if scan is None or (scan.rows["attributes"] & (TRANSACTIONAL | CONTROL)).any():
        yield from (batch for batch in window.batches if batch.producer_id >= 0)
        return
    by_producer: dict[int, list[int]] = {}
    for index, producer_id in enumerate(scan.rows["producer_id"].tolist()):
        if producer_id >= 0:
            by_producer.setdefault(producer_id, []).append(index)
    if not by_producer:
        return
    epochs = scan.rows["producer_epoch"].tolist()
    kept: list[int] = []
    for indexes in by_producer.values():
        is_one_epoch = len({epochs[index] for index in indexes}) == 1
        kept += [indexes[0], *indexes[1:][-MAX_CACHED_BATCHES:]] if is_one_epoch else indexes
    for index in sorted(kept):
        yield window.batch(index)
