"""One partition as it lies in a directory: its segments, its bounds, its records.

A view shows what was found by one look; `refresh` looks again. Reading goes up to the end that the look found. Segments
that are deleted or replaced meanwhile are found again, or passed over if their records are gone (stretches.py).
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack

from tidelog.errors import CheckpointError, InvalidRequestError, StorageError
from tidelog.log.checkpoints import EpochEntry, read_epochs
from tidelog.log.files import join
from tidelog.log.list_offsets import MAX_TIMESTAMP, offset_for_time
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.log.offsets import TimestampAndOffset, as_offset
from tidelog.log.partition_metadata import read_topic_id
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.log.watermarks import Isolation
from tidelog.records.batches import Batch
from tidelog.records.record import Record
from tidelog.view.files import ViewFiles
from tidelog.view.left_out import LeftOut, Zeros
from tidelog.view.look import Look, looking_again, take_look
from tidelog.view.lost_segments import LostSegment, lost_segments
from tidelog.view.root import PartitionDirectory, RootView
from tidelog.view.segment import SegmentEnd, SegmentView
from tidelog.view.stretches import Stretch, batches_between, stretches_between
from tidelog.view.timed import TimedPartition
from tidelog.view.transactions import Transactions

if TYPE_CHECKING:
    from tidelog.view.explain import Explanation
    from tidelog.view.scan import Scan, ScanOptions

__all__ = ["EndBound", "PartitionView", "ensure_flag"]

EndBound = Literal["logEnd", "highWatermark"]

Answer = TypeVar("Answer")


class PartitionView:
    """A partition directory."""

    def __init__(
        self,
        root: RootView,
        directory: PartitionDirectory,
        check: Callable[["PartitionView"], None] | None = None,
    ) -> None:
        self.directory = directory
        self.topic_partition: TopicPartition = directory.topic_partition
        self.path = join(root.path, directory.name)
        self._root = root
        self._check = check
        self._look: Look | None = None

    @classmethod
    def at(cls, files: ViewFiles, path: str) -> "PartitionView":
        """The partition in a directory, with the bounds that the checkpoints beside it know."""
        root = RootView.around(files, path)
        return cls(root, PartitionDirectory.parse(path.rstrip("/").rpartition("/")[2]))

    def __repr__(self) -> str:
        return f"PartitionView({self.path!r})"

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    @property
    def root(self) -> str:
        """The path of the root it lies in."""
        return self._root.path

    @property
    def files(self) -> ViewFiles:
        """What it is read from."""
        return self._root.files

    def refresh(self) -> "PartitionView":
        """The same partition, looked at anew."""
        return PartitionView(self._root.refresh(), self.directory, self._check)

    def check_before_reading(self, check: Callable[["PartitionView"], None]) -> None:
        """Have something checked before the first read; what it raises keeps everybody from reading."""
        self._check = check

    def ensure_copies_agree(self) -> None:
        """Raise CorruptionError if another copy of the partition contradicts this one."""
        if self._check is not None:
            self._check(self)
            self._check = None

    # -- what lies there -----------------------------------------------------------------------------------------

    @property
    def look(self) -> Look:
        """What the directory was found to hold, when it was first asked for."""
        if self._look is None:
            self._look = take_look(self.files, self.path)
        return self._look

    def take_look(self) -> Look:
        """What it holds now."""
        try:
            return take_look(self.files.fresh(), self.path)
        except StorageError as error:
            if self.files.fresh().stat(self.path) is None:
                raise StorageError(f"{self.path} is gone: its topic was deleted, or it was moved") from error
            raise

    @property
    def segments(self) -> tuple[SegmentView, ...]:
        """The segments, in the order of their offsets."""
        return self.look.segments

    @cached_property
    def _end(self) -> SegmentEnd:
        """Where the last segment ends, when it was first asked for."""

        def look_again() -> None:
            self._look = self.take_look()

        return looking_again(
            lambda: self.segments[-1].end if self.segments else SegmentEnd(0, 0, None, None), look_again, self.path
        )

    @property
    def left_out(self) -> LeftOut | None:
        """What lies after the last batch that can be read, if anything does."""
        end = self._end
        if not end.left_out:
            return None
        return LeftOut(self.segments[-1].path, end.position, end.left_out, end.next_offset, end.bare_problem)

    @cached_property
    def lost_segments(self) -> tuple[LostSegment, ...]:
        """The segments before the last one that have lost all their batches, as far as their indexes prove it."""
        return lost_segments(self.look, self.take_look)

    @property
    def zeros_at_end(self) -> Zeros | None:
        """The zeros that lie after the last batch, if nothing else does. They may have been preallocated."""
        end = self._end
        if not end.zeros:
            return None
        return Zeros(self.segments[-1].path, end.position, end.zeros, end.next_offset, self.missing is not None)

    @property
    def missing(self) -> str | None:
        """Why records may be missing at the end, by the checkpoints that know of more; None if none are."""
        return self.missing_after(self.log_end_offset)

    def missing_after(self, end: int) -> str | None:
        """The same for one who has read up to another end.

        After the end was read, a running broker may append and then write the checkpoint: the end is read again after
        the checkpoint. Or it may truncate and then write the checkpoint: that is read again, too.
        """
        if self._checkpoint_beyond(end) is None:
            return None
        again = self.refresh()
        end = max(end, again._end.next_offset)
        found = None if self._checkpoint_beyond(end) is None else again._checkpoint_beyond(end)
        return None if found is None else f"{found[0]} was {found[1]} and the log ends at {end}: records may be missing"

    def _checkpoint_beyond(self, end: int) -> tuple[str, int] | None:
        """A bound that a checkpoint knows and that lies after an end, in words and its offset."""
        watermark = self._root.checkpointed(HIGH_WATERMARK_CHECKPOINT, self.directory)
        flushed = self._root.checkpointed(RECOVERY_POINT_CHECKPOINT, self.directory)
        if watermark is not None and watermark > end:
            return "the high watermark", watermark
        if flushed is not None and flushed > max(end, self._end.next_offset):  # an unfinished write has flushed more
            return "the recovery point", flushed
        return None

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self.looking_again(lambda view: sum(segment.size for segment in view.segments))

    def looking_again(self, question: Callable[["PartitionView"], Answer]) -> Answer:
        """The answer to a question about all segments, asked anew when one of them went away under it."""
        view = self

        def look_again() -> None:
            nonlocal view
            view = view.refresh()

        return looking_again(lambda: question(view), look_again, self.path)

    # -- bounds --------------------------------------------------------------------------------------------------

    @cached_property
    def log_start_offset(self) -> int:
        """The first offset that may be read: that of the checkpoint, kept within what is there."""
        known = self._root.checkpointed(LOG_START_CHECKPOINT, self.directory) or 0
        if not self.segments:
            return max(known, 0)
        return min(max(known, self.segments[0].base_offset), self._end.next_offset)

    @cached_property
    def log_end_offset(self) -> int:
        """The offset behind the last complete valid batch, or of the first that a write in progress has appended."""
        end = self._end.next_offset if self.segments else self.log_start_offset
        undone = self._root.undone(self.directory)
        return end if undone is None else max(min(end, undone[0]), self.log_start_offset)

    @cached_property
    def high_watermark(self) -> int:
        """Up to where all replicas had the log: the checkpoint's word, up to 5 s old; without one the log end."""
        known = self._root.checkpointed(HIGH_WATERMARK_CHECKPOINT, self.directory)
        if known is None:
            return self.log_end_offset
        return min(max(known, self.log_start_offset), self.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        """Up to where every transaction is decided, and not above the high watermark."""
        return self._transactions.last_stable_offset(self.high_watermark)

    def limit_of(self, *, committed: bool = False, end_bound: EndBound = "logEnd") -> int:
        """The first offset that a reader may not see. With `committed` no open transaction lies before it."""
        ensure_flag(committed, "committed")
        if end_bound not in ("logEnd", "highWatermark"):
            raise InvalidRequestError(f"{end_bound!r} is no end of a log; there are 'logEnd' and 'highWatermark'")
        limit = self.log_end_offset if end_bound == "logEnd" else self.high_watermark
        return self._transactions.last_stable_offset(limit) if committed else limit

    @cached_property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Which leader wrote from which offset on, as far as the log reaches; empty where that is not known."""
        try:
            entries = read_epochs(self.files, join(self.path, LEADER_EPOCH_CHECKPOINT))
        except (CheckpointError, StorageError):
            return ()
        before = [entry for entry in entries if entry.start_offset <= self.log_start_offset]
        first = [EpochEntry(before[-1].epoch, self.log_start_offset)] if before else []
        return (*first, *(e for e in entries if self.log_start_offset < e.start_offset <= self.log_end_offset))

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the last leader: by the epoch checkpoint, without one by the last batch."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else self._end.leader_epoch

    @cached_property
    def topic_id(self) -> uuid.UUID | None:
        """The id of the topic; None where the directory does not say."""
        try:
            return read_topic_id(self.files, join(self.path, PARTITION_METADATA))
        except (CheckpointError, StorageError):
            return None

    @property
    def unfinished_notice(self) -> str | None:
        """What to tell a reader if records of this partition are not shown: a write of them is not finished."""
        return None if self._root.undone(self.directory) is None else self._root.unfinished_notice

    @property
    def notices(self) -> tuple[str, ...]:
        """What is odd about the directory and does not keep anybody from reading it."""
        lost = map(str, self.lost_segments)
        return (*self.look.notices, *lost, *self._notices_of_the_end(), *self._notices_of_checkpoints())

    def _notices_of_the_end(self) -> Iterator[str]:
        yield from (what for what in (self._end.damage, self._end.problem) if what is not None)
        undone = self._root.undone(self.directory)
        if undone is not None:
            yield f"{undone[1]} is unfinished: what it has appended from offset {undone[0]} on is not shown"
        if self.missing is not None:
            yield self.missing

    @property
    def start_notice(self) -> str | None:
        """Why records that were deleted may be shown: the checkpoint that knows where the log starts is damaged."""
        damage = self._root.damage(LOG_START_CHECKPOINT, self.directory)
        return None if damage is None else f"{damage}; the log starts with its first segment"

    def _notices_of_checkpoints(self) -> Iterator[str]:
        if self.start_notice is not None:
            yield self.start_notice
        name = HIGH_WATERMARK_CHECKPOINT
        known = self._root.checkpointed(name, self.directory)
        if self.directory.mark is None and (known is None or known < 0):
            damage = self._root.damage(name, self.directory)
            why = damage or f"{join(self.root, name)} does not know {self.topic_partition}"
            yield f"{why}; the high watermark is taken to be the log {'end' if known is None else 'start'}"
        for name, read in ((LEADER_EPOCH_CHECKPOINT, read_epochs), (PARTITION_METADATA, read_topic_id)):
            try:
                read(self.files, join(self.path, name))
            except (CheckpointError, StorageError) as error:
                yield f"{error}; the file is not used"

    # -- reading -------------------------------------------------------------------------------------------------

    def stretches(self, from_offset: int | None = None, to_offset: int | None = None) -> Iterator[Stretch]:
        """The pieces of open segments that hold a range of offsets, each offset in one of them."""
        self.ensure_copies_agree()
        first, limit = self._range(from_offset, to_offset, self.log_end_offset)
        yield from stretches_between(self.look, self.take_look, first, limit)

    def batches(
        self,
        from_offset: int | None = None,
        to_offset: int | None = None,
        *,
        committed: bool = False,
        end_bound: EndBound = "logEnd",
        verify: bool = True,
    ) -> Iterator[Batch]:
        """The batches that hold a range of offsets, in order, whole; those of markers too, unless `committed`."""
        ensure_flag(verify, "verify")
        self.ensure_copies_agree()
        first, limit = self._range(from_offset, to_offset, self.limit_of(committed=committed, end_bound=end_bound))
        batches = batches_between(self.look, self.take_look, first, limit, verify=verify)
        yield from self._committed(batches, limit) if committed else batches

    def read(
        self,
        from_offset: int | None = None,
        to_offset: int | None = None,
        *,
        committed: bool = False,
        end_bound: EndBound = "logEnd",
        verify: bool = True,
    ) -> Iterator[Record]:
        """The records from one offset to before another, as far as there are any; never those of markers.

        With `committed` what transactions that were aborted or are not decided have written is left out.
        """
        first, limit = self._range(from_offset, to_offset, self.limit_of(committed=committed, end_bound=end_bound))
        for batch in self.batches(first, limit, committed=committed, end_bound=end_bound, verify=verify):
            if not batch.is_control:
                yield from (record for record in batch.records() if first <= record.offset < limit)
            first = max(first, batch.next_offset)  # an old segment may wrap a record again that was given

    def _range(self, from_offset: int | None, to_offset: int | None, limit: int) -> tuple[int, int]:
        """A range of offsets, cut to what there is."""
        first = 0 if from_offset is None else as_offset(from_offset, "an offset to begin with")
        stop = limit if to_offset is None else as_offset(to_offset, "an offset to end before")
        return max(first, self.log_start_offset), min(stop, limit)

    def _committed(self, batches: Iterator[Batch], limit: int) -> Iterator[Batch]:
        """Leave out what was aborted. The list of that is made when there is the first batch of a transaction."""
        for batch in batches:
            if batch.is_transactional and not batch.is_control:
                found = self.aborted_transactions(batch.base_offset, limit)
                yield from _without_aborted(chain((batch,), batches), found)
                return
            if not batch.is_control:
                yield batch

    def aborted_transactions(
        self, from_offset: int | None = None, to_offset: int | None = None
    ) -> list[AbortedTxnEntry]:
        """The aborted transactions that overlap a range of offsets, in the order of their markers."""
        first, limit = self._range(from_offset, to_offset, self.log_end_offset)
        return self._transactions.aborted(first, limit)

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(
            self.files,
            self.look,
            self.take_look,
            log_start=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end=self.log_end_offset,
        )

    # -- lookups -------------------------------------------------------------------------------------------------

    def first_offset_reaching(self, timestamp_ms: int) -> int | None:
        """Below which offset no record reaches a time; None if none does at all. What a scan begins with."""
        return TimedPartition(self).looking_again(lambda log: log.first_offset_reaching(timestamp_ms))

    def offset_for_time(
        self, timestamp_ms: int, *, committed: bool = False, end_bound: EndBound = "logEnd"
    ) -> TimestampAndOffset | None:
        """The first record at or after a time, as a broker answers; -1 to -6 have their meaning (list_offsets.py).

        `committed` and `end_bound` as in `read`. A consumer of a broker that reads committed data is
        `committed=True, end_bound="highWatermark"`.
        """
        self.limit_of(committed=committed, end_bound=end_bound)  # refuses what is none
        self.ensure_copies_agree()
        if timestamp_ms == MAX_TIMESTAMP and not self.segments:
            return None
        timed = TimedPartition(self, limit=lambda: self.limit_of(committed=committed, end_bound=end_bound))
        return timed.looking_again(lambda log: offset_for_time(log, timestamp_ms, Isolation.LOG_END))

    def explain(
        self,
        *,
        offset: int | None = None,
        time: int | None = None,
        committed: bool = False,
        end_bound: EndBound = "logEnd",
    ) -> "Explanation":
        """How an offset or a time is found: every step, by the code that finds it."""
        from tidelog.view.explain import explain

        return explain(self, offset=offset, time=time, committed=committed, end_bound=end_bound)

    def scan(self, **options: "Unpack[ScanOptions]") -> "Scan":
        """The records as Arrow batches, looked at anew with every reading; the options are those of `Scan.of`."""
        from tidelog.view.scan import Scan

        return Scan.of(lambda: (self.refresh(),), **options)


def ensure_flag(value: object, name: str) -> None:
    """Raise InvalidRequestError for what is no flag: to Python the text "false" is true."""
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} is True or False, not {value!r}")


def _without_aborted(batches: Iterable[Batch], aborted: Iterable[AbortedTxnEntry]) -> Iterator[Batch]:
    """The batches with records that were not aborted.

    An aborted transaction ends at the offset of its marker, not at the batch that holds it: that may be lost.
    """
    waiting: dict[int, deque[AbortedTxnEntry]] = {}  # by producer
    for txn in sorted(aborted, key=lambda txn: txn.last_offset):
        waiting.setdefault(txn.producer_id, deque()).append(txn)
    for batch in batches:
        if batch.is_control:
            continue
        ahead = waiting.get(batch.producer_id) if batch.is_transactional else None
        while ahead and ahead[0].last_offset < batch.base_offset:
            ahead.popleft()
        if not ahead or ahead[0].first_offset > batch.last_offset:
            yield batch
