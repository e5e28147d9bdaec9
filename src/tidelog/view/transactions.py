"""Which transactions of a partition were aborted, and which are not decided yet, by what lies in its directory.

The newest producer snapshot knows the transactions that were open at its offset; the batches behind it tell the rest:
a transaction begins with the first transactional batch of its producer and ends with the producer's next marker. That
replay covers at least the active segment, whose transaction index may be behind its log. The aborted ones of the
segments before stand in their `.txnindex`.

Where one is damaged, or is not there although the segment may have had aborts, its segment is walked and the markers
tell. A segment without aborts has no `.txnindex`, so absence alone proves nothing: the snapshot behind the segment must
know no producer that ever had a marker. Otherwise the headers of the segment are walked; topics without transactions
are spared.

A marker whose offset is damaged would end another transaction than its own, or none: the offsets of what is replayed
must rise.
"""

from collections.abc import Callable, Iterable, Iterator

from tidelog.errors import CorruptIndexError, CorruptRecordError, StorageError
from tidelog.log.batch_info import TRANSACTIONAL, BatchInfo
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.files import join, read_whole
from tidelog.log.names import SNAPSHOT_SUFFIX, file_name
from tidelog.log.producer_entry import ProducerEntry
from tidelog.log.producer_snapshot import parse_snapshot
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.batch import RecordBatch
from tidelog.records.control import ControlType, end_txn_marker_of
from tidelog.view.files import ViewFiles, is_gone
from tidelog.view.look import Look, looking_again
from tidelog.view.ordered_lookup import OffsetOrder
from tidelog.view.segment import SegmentView, TransactionFile, with_advice
from tidelog.view.stretches import stretches_between

__all__ = ["Transactions"]


class Transactions:
    """The transactions between two offsets of a partition."""

    def __init__(
        self,
        files: ViewFiles,
        look: Look,
        take_look: Callable[[], Look],
        *,
        log_start: int,
        high_watermark: int,
        log_end: int,
    ) -> None:
        self._files = files
        self._look = look
        self._take_look = take_look
        self._log_start = log_start
        self._high_watermark = high_watermark
        self._log_end = log_end
        self._tail: _Replay | None = None
        self._known: dict[int, tuple[AbortedTxnEntry, ...]] = {}  # of closed segments, by base offset

    def last_stable_offset(self, limit: int) -> int:
        """The first offset of the lowest transaction that is open, or ends at `limit` or behind it; else `limit`.

        The limit must not lie below the high watermark.
        """
        tail = looking_again(self._replay_of_tail, self._look_again, self._look.directory)
        first_unstable = tail.first_unstable(limit)
        return limit if first_unstable is None else min(max(first_unstable, self._log_start), limit)

    def aborted(self, first: int, limit: int) -> list[AbortedTxnEntry]:
        """The aborted transactions that overlap the offsets from `first` to before `limit`, by their markers."""
        found = looking_again(lambda: list(self._collect(first, limit)), self._look_again, self._look.directory)
        return [txn for txn in found if txn.last_offset >= first and txn.first_offset < limit]

    def _look_again(self) -> None:
        self._look = self._take_look()
        self._known.clear()

    def _collect(self, first: int, limit: int) -> Iterator[AbortedTxnEntry]:
        tail = self._replay_of_tail()
        segment = self._look.holding(first)
        while segment is not None and segment.base_offset < tail.start:
            for txn in self._aborted_in(segment):
                if txn.last_offset < tail.start:
                    yield txn
                    if txn.last_stable_offset >= limit:
                        return  # what was aborted later begins behind it
            segment = self._look.behind(segment, segment.base_offset)
        yield from tail.aborted

    # -- one segment ---------------------------------------------------------------------------------------------

    def _aborted_in(self, segment: SegmentView) -> tuple[AbortedTxnEntry, ...]:
        if segment.base_offset not in self._known:
            self._known[segment.base_offset] = tuple(self._find_aborted_in(segment))
        return self._known[segment.base_offset]

    def _find_aborted_in(self, segment: SegmentView) -> Iterable[AbortedTxnEntry]:
        reader, end = segment.open_to_end()
        entries = reader.txn_index
        assert isinstance(entries, TransactionFile)
        is_sound = entries.is_sound(segment.base_offset, end.next_offset)
        if is_sound and (len(entries) or self._had_no_markers(segment)):
            return entries
        walked = _transactional(read_windows(reader.log.file, 0, end.position))
        if not any(batch.is_control for batch, _ in walked):
            return ()
        replay = self._replay(segment.base_offset, end.next_offset)
        return [txn for txn in replay.aborted if txn.last_offset >= segment.base_offset]

    def _had_no_markers(self, segment: SegmentView) -> bool:
        """Whether the producers known behind a segment have never ended a transaction, nor have one open."""
        following = self._look.behind(segment, segment.base_offset)
        producers = None if following is None else self._snapshot(following.base_offset)
        return producers is not None and all(
            producer.coordinator_epoch < 0 and producer.txn_first_offset is None for producer in producers
        )

    # -- replaying -----------------------------------------------------------------------------------------------

    def _replay_of_tail(self) -> "_Replay":
        if self._tail is None:
            # A snapshot behind the high watermark would not know the transactions whose markers lie between the two.
            self._tail = self._replay(self._high_watermark, self._log_end)
        return self._tail

    def _replay(self, latest_start: int, end: int) -> "_Replay":
        """Replay up to `end` from the newest snapshot not behind `latest_start`, or from the first batch there is.

        That may lie below the log start, which segments reach over: a transaction that is open may have begun there.
        """
        first = self._look.segments[0].base_offset if self._look.segments else self._log_start
        replay = _Replay(first, ())
        for offset in reversed(self._look.snapshots):
            if first <= offset <= latest_start:
                producers = self._snapshot(offset)
                if producers is not None:
                    replay = _Replay(offset, producers)
                    break
        for stretch in stretches_between(self._look, self._take_look, replay.start, end):
            windows = read_windows(stretch.reader.log.file, stretch.start, stretch.end)
            for batch, data in _transactional(_in_order(windows, stretch.reader)):
                if replay.start <= batch.base_offset < end:
                    replay.take(batch, data)
        return replay

    def _snapshot(self, offset: int) -> list[ProducerEntry] | None:
        """The producers of a snapshot; None if there is none that can be believed."""
        path = join(self._look.directory, file_name(offset, SNAPSHOT_SUFFIX))
        if offset not in self._look.snapshots:
            return None
        try:
            return parse_snapshot(read_whole(self._files, path))
        except CorruptIndexError:
            return None
        except StorageError as error:
            if is_gone(self._files, path, error):
                return None
            raise


class _Replay:
    """Transactions in the order of the log: those that are open, and those that have ended."""

    def __init__(self, start: int, producers: Iterable[ProducerEntry]) -> None:
        self.start = start
        self.aborted: list[AbortedTxnEntry] = []
        self._open = {
            producer.producer_id: producer.txn_first_offset
            for producer in producers
            if producer.txn_first_offset is not None
        }
        self._ended: list[tuple[int, int]] = []  # first offset, offset of the marker

    def first_unstable(self, limit: int) -> int | None:
        """Where the lowest transaction begins that has no marker below `limit`."""
        undecided = [first for first in self._open.values() if first < limit]
        return min([*undecided, *(first for first, last in self._ended if last >= limit)], default=None)

    def take(self, batch: BatchInfo, data: memoryview) -> None:
        """Take in a transactional batch."""
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        marker = end_txn_marker_of(RecordBatch(data))
        first = None if marker is None else self._open.pop(batch.producer_id, None)
        if marker is None or first is None:  # without data it ends nothing
            return
        self._ended.append((first, batch.base_offset))
        if marker.control_type is ControlType.ABORT:
            last_stable = min(self._open.values(), default=batch.next_offset)
            self.aborted.append(AbortedTxnEntry(batch.producer_id, first, batch.base_offset, last_stable))


def _transactional(windows: Iterable[BatchWindow]) -> Iterator[tuple[BatchInfo, memoryview]]:
    """The transactional batches of a walk, markers among them, with their bytes."""
    for window in windows:
        for batch in _transactional_of(window):
            yield batch, window.bytes_of(batch)
        if window.problem is not None:
            raise with_advice(window.problem)


def _transactional_of(window: BatchWindow) -> Iterator[BatchInfo]:
    if window.scan is None:
        return (batch for batch in window.batches if batch.attributes & TRANSACTIONAL)
    return map(window.batch, (window.scan.rows["attributes"] & TRANSACTIONAL).nonzero()[0].tolist())


def _in_order(windows: Iterable[BatchWindow], reader: SegmentReader) -> Iterator[BatchWindow]:
    """The same windows of a segment. CorruptRecordError where the offsets of its batches do not rise."""
    order = OffsetOrder(reader.base_offset)
    for window in windows:
        if _rises(window, order):
            order.take(window.batch(len(window) - 1))
        else:
            for batch in window.batches:
                if (fault := order.fault_of(batch)) is not None:
                    raise with_advice(CorruptRecordError(f"{reader.log.path}, {fault}"))
        yield window


def _rises(window: BatchWindow, order: OffsetOrder) -> bool:
    """Whether the columns of a window, if it has some, show that the offsets rise: many are compared at once."""
    if window.scan is None or not len(window):
        return False
    first = window.scan.rows["base_offset"].astype("i8")
    last = first + window.scan.rows["last_offset_delta"]
    reached = order.base_offset - 1 if order.before is None else order.before.last_offset
    return bool(first[0] > reached and (first <= last).all() and (last[:-1] < first[1:]).all())
