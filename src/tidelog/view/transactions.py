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

A segment that lost its batches (lost_segments.py) lost its markers, too. Its transaction index still lists the aborted
transactions, and the snapshot after it lists the open ones. A transaction that was open before the segment and is in
neither was committed, if the index has entries. Otherwise its outcome is unknown, and readers of its records get an
error.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

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
from tidelog.view.lost_segments import LostSegment, lost_segments
from tidelog.view.ordered_lookup import OffsetOrder
from tidelog.view.segment import ADVICE, SegmentView, TransactionFile, with_advice
from tidelog.view.stretches import stretches_between

__all__ = ["Transactions", "UnknownOutcomeError"]


class UnknownOutcomeError(CorruptRecordError):
    """A segment that may have held the end of a transaction lost its batches."""


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
        self._known: dict[int, _Ended] = {}  # in closed segments, by base offset

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
            ended = self._ended_in(segment)
            _ensure_decided(ended.undecided, first, limit)
            for txn in ended.aborted:
                if txn.last_offset < tail.start:
                    yield txn
                    if txn.last_stable_offset >= limit:
                        return  # what was aborted later begins behind it
            segment = self._look.behind(segment, segment.base_offset)
        _ensure_decided(tail.undecided, first, limit)
        yield from tail.aborted

    # -- one segment ---------------------------------------------------------------------------------------------

    def _ended_in(self, segment: SegmentView) -> "_Ended":
        if segment.base_offset not in self._known:
            self._known[segment.base_offset] = self._find_ended_in(segment)
        return self._known[segment.base_offset]

    def _find_ended_in(self, segment: SegmentView) -> "_Ended":
        reader, end = segment.open_to_end()
        following = self._look.next_of(segment)
        # The log may have lost batches that the index still knows: its entries may reach up to the next segment.
        limit = end.next_offset if following is None else max(end.next_offset, following.base_offset)
        entries = reader.txn_index
        assert isinstance(entries, TransactionFile)
        is_sound = entries.is_sound(segment.base_offset, limit)
        if is_sound and (len(entries) or (end.position and self._had_no_markers(segment))):
            return _Ended(tuple(entries))
        if end.position:
            walked = _transactional(read_windows(reader.log.file, 0, end.position))
            had_markers = any(batch.is_control for batch, _ in walked)
        else:
            had_markers = bool(lost_segments(self._look, self._take_look, segment.base_offset, limit))
        if not had_markers:
            return _Ended()
        replay = self._replay(segment.base_offset, limit)
        return _Ended(
            tuple(txn for txn in replay.aborted if txn.last_offset >= segment.base_offset),
            tuple(txn for txn in replay.undecided if txn.lost.first_offset >= segment.base_offset),
        )

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
        lost = deque(lost_segments(self._look, self._take_look, replay.start, end))
        for stretch in stretches_between(self._look, self._take_look, replay.start, end):
            while lost and lost[0].first_offset < stretch.segment.base_offset:
                self._replay_lost(replay, lost.popleft())
            windows = read_windows(stretch.reader.log.file, stretch.start, stretch.end)
            for batch, data in _transactional(_in_order(windows, stretch.reader)):
                if replay.start <= batch.base_offset < end:
                    replay.take(batch, data)
        for segment in lost:
            self._replay_lost(replay, segment)
        return replay

    def _replay_lost(self, replay: "_Replay", lost: LostSegment) -> None:
        """Replay a segment that lost its batches, by its transaction index and the snapshot after it."""
        segment = self._look.holding(lost.first_offset)
        assert segment is not None
        entries = segment.open_whole().txn_index
        assert isinstance(entries, TransactionFile)
        aborted = tuple(entries) if entries.is_sound(lost.first_offset, lost.limit_offset) else ()
        replay.take_lost(lost, aborted, self._snapshot(lost.limit_offset))

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


class _Undecided(NamedTuple):
    """A transaction that was open when a lost segment began. Nobody knows whether it was committed."""

    producer_id: int
    first_offset: int
    lost: LostSegment

    def error(self) -> UnknownOutcomeError:
        what = f"the transaction of producer {self.producer_id} from offset {self.first_offset} on"
        return UnknownOutcomeError(f"{self.lost}; whether {what} was committed is unknown{ADVICE}")


class _Ended(NamedTuple):
    """The transactions that ended in a segment and were not committed, or may not have been."""

    aborted: tuple[AbortedTxnEntry, ...] = ()
    undecided: tuple[_Undecided, ...] = ()


def _ensure_decided(undecided: Iterable[_Undecided], first: int, limit: int) -> None:
    """Raise if a transaction that is undecided has records from `first` to before `limit`.

    The records after the lost segment do not depend on it: the next marker of their producer decides them.
    """
    for txn in undecided:
        if txn.first_offset < limit and first < txn.lost.first_offset:
            raise txn.error()


class _Replay:
    """Transactions in the order of the log: those that are open, and those that have ended."""

    def __init__(self, start: int, producers: Iterable[ProducerEntry]) -> None:
        self.start = start
        self.aborted: list[AbortedTxnEntry] = []
        self.undecided: list[_Undecided] = []
        self._open = _open_of(producers)
        self._ended: list[tuple[int, int]] = []  # first offset, offset of the marker
        self._maybe_open: dict[int, _Undecided] = {}  # by producer: lost segments may have ended them, or not

    def first_unstable(self, limit: int) -> int | None:
        """Where the lowest transaction begins that has no marker below `limit`."""
        for txn in self._maybe_open.values():
            if txn.lost.limit_offset <= limit:
                raise txn.error()
        undecided = [first for first in self._open.values() if first < limit]
        return min([*undecided, *(first for first, last in self._ended if last >= limit)], default=None)

    def take(self, batch: BatchInfo, data: memoryview) -> None:
        """Take in a transactional batch."""
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        marker = end_txn_marker_of(RecordBatch(data))
        if marker is not None:
            self._end_doubt(batch.producer_id, batch.base_offset)
        first = None if marker is None else self._open.pop(batch.producer_id, None)
        if marker is None or first is None:  # without data it ends nothing
            return
        self._ended.append((first, batch.base_offset))
        if marker.control_type is ControlType.ABORT:
            last_stable = min(self._open.values(), default=batch.next_offset)
            self.aborted.append(AbortedTxnEntry(batch.producer_id, first, batch.base_offset, last_stable))

    def take_lost(
        self, lost: LostSegment, aborted: Sequence[AbortedTxnEntry], after: Iterable[ProducerEntry] | None
    ) -> None:
        """Take in a lost segment: the entries of its transaction index, and the producers of the snapshot after it.

        An index without entries proves nothing: it may be lost as well. Without the snapshot a transaction that is not
        in the index may have been committed, or may still be open.
        """
        for txn in aborted:
            if txn.last_offset >= self.start:
                self._end_doubt(txn.producer_id, txn.last_offset)
                # One that began before it was committed in the segment: the index does not have it.
                first = self._open.pop(txn.producer_id, txn.first_offset)
                self._ended.append((first, txn.last_offset))
                self.aborted.append(txn)
        still_open = {} if after is None else _open_of(after)
        for producer, first in self._open.items():
            if still_open.get(producer) == first:
                continue
            self._ended.append((first, lost.limit_offset - 1))
            if after is None or not aborted:
                self.undecided.append(_Undecided(producer, first, lost))
            if after is None:
                self._maybe_open[producer] = self.undecided[-1]
        self._open = still_open

    def _end_doubt(self, producer_id: int, marker: int) -> None:
        """Note a marker of a producer: it ends a transaction that a lost segment has left in doubt, at the latest."""
        txn = self._maybe_open.pop(producer_id, None)
        if txn is not None:
            self._ended.append((txn.first_offset, marker))


def _open_of(producers: Iterable[ProducerEntry]) -> dict[int, int]:
    """Where the open transactions of some producers begin."""
    return {one.producer_id: one.txn_first_offset for one in producers if one.txn_first_offset is not None}


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
