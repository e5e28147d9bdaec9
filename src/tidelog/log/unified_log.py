"""The log of one partition: what a broker, a coordinator, a follower and the metadata quorum append to and read from.

Three offsets bound what is there, and each has its owner:

    log start <= last stable offset <= high watermark <= log end

The log end moves with every append. The high watermark is what all in-sync replicas have; somebody above tells it
(`update_high_watermark`), an append alone never moves it forward. The last stable offset is the high watermark, or the
first offset of the oldest transaction that is still open or whose end is not yet below the high watermark. The log
start moves when records are deleted.

One thread owns a log and changes it. Reads and lookups may run beside it in other threads.

Kafka: kafka.log.UnifiedLog.
"""

import functools
import os
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from tidelog.errors import (
    CorruptRecordError,
    InconsistentTopicIdError,
    InvalidRequestError,
    LogClosedError,
    OffsetOutOfRangeError,
    StorageError,
    TooManyFilesError,
)
from tidelog.log.analysis import AppendInfo, analyse
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.deletion import Deletion
from tidelog.log.files import FileLock, FileSystem, join, no_turning_back, parent_of
from tidelog.log.full_append import append_batches
from tidelog.log.leader_epochs import EpochEnd, EpochEntry, LeaderEpochCache
from tidelog.log.list_offsets import offset_for_time
from tidelog.log.local_log import LocalLog
from tidelog.log.lookup import Step
from tidelog.log.names import parse_directory_name
from tidelog.log.offsets import TimestampAndOffset, as_offset
from tidelog.log.origin import AppendOrigin
from tidelog.log.partition_metadata import PartitionMetadataFile
from tidelog.log.producer_rebuild import rebuild_producer_state
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.quick_append import QUICK_APPEND
from tidelog.log.recovery import LogCut
from tidelog.log.region import Region
from tidelog.log.retention import deletable_segments
from tidelog.log.segment import LogSegment
from tidelog.log.segment_split import split_overflowed
from tidelog.log.segment_swap import replace_segments
from tidelog.log.tasks import Call, Schedule
from tidelog.log.upkeep import Upkeep
from tidelog.log.verification import NO_GUARD, VerificationGuard
from tidelog.log.watermarks import Isolation, LogOffsets, Watermarks, ensure_isolation
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.batches import read_batches
from tidelog.records.builder import build_batch
from tidelog.records.committed import AbortedTxn, committed_batches
from tidelog.records.java import MAX_INT32
from tidelog.records.record import NO_TIMESTAMP, NewRecord, Record

__all__ = ["UnifiedLog"]

_ANY_EPOCH = MAX_INT32
_READ_BYTES = 1 << 20
_APPEND_BUDGET_MS = 20  # what `append` spends at most on what is done beside the work

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _touches_disk(
    method: Callable[Concatenate["UnifiedLog", Parameters], Result],
) -> Callable[Concatenate["UnifiedLog", Parameters], Result]:
    """`method` such that what the disk refuses takes the directory offline."""

    @functools.wraps(method)
    def run(log: "UnifiedLog", /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return method(log, *args, **kwargs)
        except StorageError as error:
            log.fail(error)
            raise

    return run


class UnifiedLog:
    """One partition. `UnifiedLog.open` loads it; the constructor takes what a loader has found."""

    def __init__(
        self,
        local: LocalLog,
        producers: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        partition_metadata: PartitionMetadataFile,
        *,
        log_start_offset: int,
        topic_id: uuid.UUID | None = None,
        locks: Sequence[FileLock] = (),
        expiration_check_interval_ms: int = 600_000,
        on_failure: Callable[[str, StorageError], None] | None = None,
    ) -> None:
        self.local = local
        self.topic_partition = parse_directory_name(local.directory.rpartition("/")[2])
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.watermarks = Watermarks(local, producers, log_start_offset)
        self.failure: StorageError | None = None  # the disk error that took the directory offline
        self.notices: tuple[str, ...] = ()  # what a person should know of the recovery that opened this log
        self.cuts: tuple[LogCut, ...] = ()  # what loading has taken out of it
        self.retired: str | None = None  # why nothing is written here any more, of a log that was deleted or moved
        self._partition_metadata = partition_metadata
        self._locks = locks
        self._is_complete = False  # closed, with everything written
        self._on_failure = on_failure
        self.topic_id: uuid.UUID | None = None
        self._assign_topic_id_on_open(topic_id)
        local.recovery_point = max(local.recovery_point, log_start_offset)
        self._upkeep = Upkeep(self, expiration_check_interval_ms)
        self.tasks = local.tasks = self._upkeep.tasks
        local.fail = self.fail

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        config: LogConfig | None = None,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        topic_id: uuid.UUID | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        producer_id_expiration_check_interval_ms: int = 600_000,
        verification: bool = False,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        rng: random.Random | None = None,
        schedule: Schedule | None = None,
        lock: bool = True,
        high_watermark: int | None = None,
        on_failure: Callable[[str, StorageError], None] | None = None,
    ) -> "UnifiedLog":
        """Load the log of a partition directory, creating it if there is none, and recover it unless told it is clean.

        `recovery_point`, `log_start_offset`, `high_watermark` and `clean_shutdown` are what the files of the root say.
        A log does not keep them: without them everything is checked, the log starts at its first segment, and the high
        watermark is the log start until somebody moves it. With `lock` no other process and no other caller can have
        the directory open.
        """
        from tidelog.log.loader import LogLoader
        from tidelog.log.local_files import LocalFileSystem

        clock = SystemClock() if clock is None else clock
        loader = LogLoader(
            os.fspath(directory).rstrip("/"),
            LogConfig() if config is None else config,
            recovery_point=as_offset(recovery_point, "a recovery point"),
            log_start_offset=as_offset(log_start_offset, "a log start"),
            clean_shutdown=clean_shutdown,
            producer_id_expiration_ms=producer_id_expiration_ms,
            producer_id_expiration_check_interval_ms=producer_id_expiration_check_interval_ms,
            verification=verification,
            clock=clock,
            fs=LocalFileSystem() if fs is None else fs,
            rng=random.Random() if rng is None else rng,
            schedule=Schedule(clock) if schedule is None else schedule,
            lock=lock,
        )
        log = loader.load(topic_id=topic_id, on_failure=on_failure)
        if high_watermark is not None:
            log.update_high_watermark(high_watermark)
        return log

    def __enter__(self) -> "UnifiedLog":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.failure is not None:
            self.release()  # nothing more can be written
        elif not self.local.is_closed:
            self.close()

    def __repr__(self) -> str:
        return f"UnifiedLog({self.directory}, offsets {self.log_start_offset} to {self.log_end_offset})"

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        return self.local.directory

    @property
    def config(self) -> LogConfig:
        return self.local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.local.config = config

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return tuple(self.local.segments)

    @property
    def active_segment(self) -> LogSegment:
        return self.local.segments.active

    @property
    def losses(self) -> tuple[str, ...]:
        """What loading has taken out of the log, and what the first append will cut off, a sentence each."""
        doomed = self.active_segment.doomed
        if doomed is None:
            return self.notices
        position, size = doomed
        return (
            *self.notices,
            f"{size} bytes of {self.active_segment.log.path} from position {position} on are no part of the log, which "
            f"ends with offset {self.log_end_offset - 1}: the first batch that is appended replaces them",
        )

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self.local.segments.size

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on the disk."""
        return self.local.recovery_point

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, records: Iterable[NewRecord] | NewRecord, *, leader_epoch: int | None = None) -> AppendInfo:
        """Append records as one batch and let readers see them: the convenience of a log that stands alone.

        Records without a timestamp get the time of the clock, as a producer would have given it.
        """
        now_ms = self.local.clock.now_ms()
        timed = []
        for record in [records] if isinstance(records, NewRecord) else records:
            if not isinstance(record, NewRecord):
                raise InvalidRequestError(f"{record!r} is no NewRecord")
            timed.append(record._replace(timestamp_ms=now_ms) if record.timestamp_ms == NO_TIMESTAMP else record)
        batch = build_batch(timed)
        epoch = self.leader_epochs.latest_epoch if leader_epoch is None else leader_epoch
        info = self.append_as_leader(memoryview(batch), epoch or 0)
        self.update_high_watermark(self.log_end_offset)
        self.look_around()
        self._upkeep.tasks.run_due(_APPEND_BUDGET_MS)
        return info

    def append_as_leader(
        self,
        buffer: memoryview | bytearray,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard = NO_GUARD,
        *,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append batches to a log that this process leads. `buffer` is stamped in place, so it must be writable.

        `verification_guard` shows that the coordinator knows of the transaction that a first batch opens;
        `transaction_version` is the protocol of the coordinator that sends a marker.
        """
        if (
            origin is AppendOrigin.CLIENT
            and isinstance(buffer, memoryview)
            and self.failure is None
            and self.retired is None
            and not self.local.is_closed
            and not self._partition_metadata.is_dirty
        ):
            info = QUICK_APPEND.append(self, buffer, leader_epoch)
            if info is not None:
                return info
        if origin is AppendOrigin.REPLICATION:
            raise InvalidRequestError("a leader does not append what it replicates: see append_as_follower")
        return self._append(buffer, origin, leader_epoch, verification_guard, transaction_version)

    def append_as_follower(self, buffer: memoryview | bytearray, leader_epoch: int = _ANY_EPOCH) -> AppendInfo:
        """Append a leader's batches as they are. Batches of an epoch above `leader_epoch` are left out."""
        return self._append(buffer, AppendOrigin.REPLICATION, leader_epoch, NO_GUARD)

    def _append(
        self,
        buffer: memoryview | bytearray,
        origin: AppendOrigin,
        leader_epoch: int,
        guard: VerificationGuard,
        transaction_version: int = 0,
    ) -> AppendInfo:
        self._ensure_writable()
        if not isinstance(buffer, memoryview):
            buffer = memoryview(buffer)
        if self._partition_metadata.is_dirty:
            self.flush_partition_metadata()
        if origin.assigns_offsets and buffer.readonly:
            raise InvalidRequestError("the buffer is read-only and offsets are stamped into it: pass a bytearray")
        batches = analyse(buffer, origin, leader_epoch, self.local.config.max_message_bytes)
        if not batches:
            return AppendInfo(-1, -1, log_start_offset=self.log_start_offset)
        header = bytes(buffer[:BATCH_HEADER_SIZE]) if origin.assigns_offsets else b""
        try:
            return append_batches(self, buffer, batches, origin, leader_epoch, guard, transaction_version)
        except BaseException as error:
            if header:
                buffer[: len(header)] = header  # as it came, without the stamp: the caller may try again with it
            if isinstance(error, StorageError):
                self.fail(error)
            raise

    @_touches_disk
    def roll(self, first_offset: int | None = None) -> LogSegment:
        """Begin a new segment, with a snapshot of the producers at its base; what lies before is flushed soon."""
        self._ensure_writable()
        segment = self.local.roll(first_offset)
        self.producers.map_end_offset = segment.base_offset
        snapshot = self.producers.take_snapshot(sync=False)
        self._upkeep.flush_before(segment.base_offset, snapshot)
        return segment

    # -- watermarks ----------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.local.log_end.offset

    @property
    def high_watermark(self) -> int:
        return self.watermarks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.watermarks.last_stable_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose end is not below the high watermark."""
        return self.watermarks.first_unstable_offset

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between log start and log end; what it is now."""
        return self.watermarks.set_high_watermark(offset)

    def raise_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, as a leader does; whether it moved."""
        if offset > self.log_end_offset:
            raise InvalidRequestError(f"a high watermark of {offset}, the log ends at {self.log_end_offset}")
        if offset <= self.high_watermark:
            return False
        self.update_high_watermark(offset)
        return True

    def offsets(self) -> LogOffsets:
        """The four bounds, each with its place."""
        self._ensure_usable()
        return self.watermarks.offsets()

    # -- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.LOG_END,
        *,
        at_least_one: bool = True,
        trace: list[Step] | None = None,
    ) -> Region:
        """The batches from the one that holds `offset` on, as a region of one segment.

        The first batch may begin before `offset`, and the region may end inside a batch. At or behind the limit of the
        isolation it is empty. `at_least_one` raises `max_bytes` to the first batch where that is larger.
        """
        self._ensure_usable()
        offset = as_offset(offset, "an offset")
        ensure_isolation(isolation)
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.directory}: the log starts at {self.log_start_offset}"
            )
        try:
            return self.local.read(
                offset,
                max_bytes,
                self.watermarks.limit(isolation),
                at_least_one=at_least_one,
                with_aborted=isolation is Isolation.COMMITTED,
                trace=trace,
            )
        except StorageError as error:
            self.fail(error)
            raise

    @_touches_disk
    def offset_for_time(
        self,
        timestamp_ms: int,
        isolation: Isolation = Isolation.LOG_END,
        *,
        trace: list[Step] | None = None,
    ) -> TimestampAndOffset | None:
        """The first record at or after a time, as a broker answers; the specials -1 to -6 as in list_offsets.py."""
        self._ensure_usable()
        ensure_isolation(isolation)
        return self.local.looking_again(lambda: offset_for_time(self, timestamp_ms, isolation, trace))

    def records(self, offset: int | None = None, isolation: Isolation = Isolation.LOG_END) -> Iterator[Record]:
        """Every record from `offset`, or the log start, on, as a consumer of this isolation would be given them."""
        offset = self.log_start_offset if offset is None else as_offset(offset, "an offset")
        while True:
            region = self.read(offset, _READ_BYTES, isolation)
            if not region.size:
                return
            first = offset
            batches = list(read_batches(region.read()))
            aborted = [AbortedTxn(txn.producer_id, txn.first_offset) for txn in region.aborted or ()]
            for batch in committed_batches(batches, aborted):
                yield from (record for record in batch.records() if record.offset >= first)
            offset = batches[-1].next_offset
            if offset <= first:  # it would be read again and again
                what = f"offset {first - 1} is followed by {offset - 1}"
                raise CorruptRecordError(f"{self.directory}: {what}; `tidelog fsck` tells what can be saved")

    def limit_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see."""
        return self.watermarks.limit_offset(isolation)

    def first_segment_reaching(self, timestamp_ms: int) -> LogSegment | None:
        """The first segment whose largest timestamp is not below the given one."""
        return self.local.segments.first_reaching(timestamp_ms)

    # -- epochs --------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epochs.latest_epoch

    @property
    def earliest_epoch(self) -> EpochEntry | None:
        """The first epoch that is known, and where it begins."""
        return self.leader_epochs.earliest

    @_touches_disk
    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Note that the leader of `epoch` begins at `start_offset`, as a new leader does before its first append."""
        self._ensure_usable()
        self.leader_epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest known epoch not above `epoch`, and where it ends."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- deleting and truncating ---------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> bool:
        """Raise the log start; whether it moved. Segments wholly below it go with `delete_old_segments`.

        Whoever opens the log again must know the log start: a root keeps it in `log-start-offset-checkpoint`.
        """
        self._ensure_usable()
        offset = as_offset(offset, "a log start")
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(f"a log start of {offset}, the high watermark is {self.high_watermark}")
        if offset <= self.log_start_offset:
            return False
        self.flush_to(offset)  # the recovery point is never below the log start, and never says what is not so
        self._raise_log_start(offset)
        return True

    def _raise_log_start(self, offset: int) -> None:
        self.watermarks.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self._upkeep.flush_epochs()
        self.producers.on_log_start(offset)
        self.watermarks.follow_transactions()

    @_touches_disk
    def delete_old_segments(self) -> int:
        """Delete the segments that the log start, retention.bytes and retention.ms let go; how many.

        By default records older than a week go, by their own timestamps, as in Kafka.
        """
        self._ensure_usable()
        return sum(self._delete_segments(segments) for segments in deletable_segments(self))

    def _delete_segments(self, segments: Sequence[LogSegment]) -> int:
        if not segments:
            return 0
        gone = list(segments)
        if len(gone) == len(self.local.segments) and self.roll().base_offset == gone[-1].base_offset:
            gone.pop()  # an empty active segment: the roll has replaced it
        self.local.ensure_descriptors()
        with no_turning_back(self.fail):
            if gone:
                following = self.local.segments.higher(gone[-1].base_offset)
                assert following is not None
                if following.base_offset > self.log_start_offset:
                    self._raise_log_start(following.base_offset)
                # Before the last name that tells where the log ends goes, the next one is on the disk.
                self.local.fs.sync_directory(self.directory)
            # Snapshots first: one that outlives its segment could be loaded, and what follows it would be missing.
            self._delete_snapshots(segments)
            self.local.remove(gone)
            self.local.mark_flushed(self.log_start_offset)  # what lies below is gone, and need not be flushed for that
        return len(segments)

    @_touches_disk
    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Put segments whose files end in `.cleaned`, as compaction writes them, in the place of old ones."""
        self._ensure_usable()
        local = self.local
        with no_turning_back(self.fail):
            gone = replace_segments(local.fs, self.directory, local.segments, new, old, local.config, self.tasks)
            self._delete_snapshots(gone)
            self.watermarks.forget_places()

    @_touches_disk
    def split_overflowed(self, segment: LogSegment) -> None:
        """Cut a segment whose offsets do not fit its indexes into several."""
        self._ensure_usable()
        local = self.local
        gone = split_overflowed(
            local.fs, self.directory, segment, local.segments, local.config, local.clock, local.rng, self.tasks
        )
        self._delete_snapshots(gone)
        self.watermarks.forget_places()

    def _delete_snapshots(self, segments: Sequence[LogSegment]) -> None:
        marked = [self.producers.mark_snapshot_for_deletion(segment.base_offset) for segment in segments]
        deletion = Deletion(self.local.fs, paths=[path for path in marked if path is not None])
        if any(marked):
            self.tasks.after(self.config.file_delete_delay_ms, deletion)

    @_touches_disk
    def truncate_to(self, offset: int) -> bool:
        """Cut everything from `offset` on; whether there was anything."""
        self._ensure_writable()
        offset = as_offset(offset, "where a log is truncated")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self.leader_epochs.flush()
            return False
        if self.local.segments.first.base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        gone = self.local.truncate_to(offset)
        with no_turning_back(self.fail):
            self._delete_snapshots(gone)
            self.leader_epochs.truncate_from_end(offset)
            self.leader_epochs.flush()  # what is appended next may make the old entries look right
            self.watermarks.log_start_offset = min(offset, self.log_start_offset)
            self._rebuild_producers(offset)
            self.local.fs.sync_directory(self.directory)  # snapshots of what was cut must not come back either
            if self.high_watermark >= offset:
                self.watermarks.follow_truncation(offset)
            self.watermarks.forget_places()
        return True

    @_touches_disk
    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and begin anew at `offset`, or at a log start below it."""
        self._ensure_writable()
        offset = as_offset(offset, "where a log begins")
        if log_start_offset is not None and as_offset(log_start_offset, "a log start") > offset:
            raise InvalidRequestError(f"a log start of {log_start_offset}, above the log end {offset}")
        self.local.truncate_fully(offset)
        with no_turning_back(self.fail):
            self.leader_epochs.clear_and_flush()
            self.producers.truncate_fully_and_start_at(offset)
            self.watermarks.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._rebuild_producers(offset)
            self.local.fs.sync_directory(self.directory)
            self.watermarks.follow_truncation(offset)

    def _rebuild_producers(self, end_offset: int) -> None:
        work = rebuild_producer_state(
            self.producers, self.local.segments, self.log_start_offset, end_offset, self.local.clock
        )
        for _ in work:
            pass
        self.watermarks.follow_transactions()

    # -- flushing and closing ------------------------------------------------------------------------------------

    @_touches_disk
    def flush(self, *, force: bool = False) -> None:
        """Return when everything is on the disk. With `force` an empty active segment too, its indexes created."""
        self._ensure_usable()
        self._flush(self.log_end_offset + force, self.log_end_offset)

    @_touches_disk
    def flush_to(self, offset: int) -> None:
        """Return when everything below `offset` is on the disk. What lies behind the log end cannot be."""
        self._ensure_usable()
        offset = min(offset, self.log_end_offset)  # a flush that a roll has asked for may come behind a truncation
        self._flush(offset, offset)

    @_touches_disk
    def settle(self) -> None:
        """Return when power loss can take nothing of this log: batches, leader epochs, and the names of its files."""
        self.flush(force=True)
        self.leader_epochs.flush()
        self.local.fs.sync_directory(self.directory)

    def flush_soon(self, offset: int) -> Call:
        """Put a task into the schedule that has everything below `offset` on the disk when it is over.

        If it is over and the recovery point is lower, the disk or a truncation was in the way.
        """
        self._ensure_usable()
        return self._upkeep.flush_before(min(offset, self.log_end_offset))

    def _flush(self, flush_offset: int, recovery_point: int) -> None:
        if flush_offset > self.local.recovery_point:
            self.local.flush(flush_offset)
            self.local.mark_flushed(recovery_point)

    def tick(self, budget_ms: float = float("inf")) -> None:
        """Run what is due: flushes, deletions, checkpoints, indexes that readers found wrong. Hosts may share one."""
        self.look_around()
        self.local.schedule.run_due(budget_ms)

    @_touches_disk
    def look_around(self) -> None:
        """Find out what there is to do beside the work, and put it into the schedule."""
        self._ensure_usable()
        self._upkeep.look_around()

    def close(self) -> None:
        """Flush, take a snapshot of the producers, trim and close every file, let others in. Harmless if done twice."""
        if self._is_complete:
            return
        try:
            self._ensure_usable()
            self._partition_metadata.flush()
            self.active_segment.seal()  # before the flush: the next start believes the sizes of the files
            self.flush(force=True)
            self.leader_epochs.flush()
            self.producers.take_snapshot()
            for deletion in self._deletions():
                try:
                    deletion.run()  # nobody would, before the next start
                except StorageError:
                    deletion.abandon()  # its files are no part of the log: the stop is clean, and the next start tries
            self.local.fs.sync_directory(self.directory)  # without its snapshot a clean start knows no producer
            self.local.close()
            self._is_complete = True
        except BaseException as error:  # also a key pressed: whoever opens the directory next must be alone with it
            self.fail(error)
            self.local.release()
            raise
        finally:
            self._let_others_in()

    def _deletions(self) -> list[Deletion]:
        """What waits for file.delete.delay.ms."""
        return [task for task in self.tasks.waiting() if isinstance(task, Deletion)]

    def release(self) -> None:
        """Give everything back without writing, as for a directory that failed. Harmless if done twice."""
        self.local.release()
        self._let_others_in()

    def _let_others_in(self) -> None:
        """Give up the directory: no task of ours may touch it any more."""
        self.tasks.drop()
        for lock in self._locks:
            lock.release()

    def delete(self) -> None:
        """Delete the log with its directory, closed or not."""
        if self.failure is not None:
            self._ensure_usable()
        locks = self._locks
        if locks and self.local.is_closed and self.local.segments:
            locks = [self.local.fs.lock(self.directory)]  # closing it has let others in
        try:
            self._delete()
        finally:
            self.tasks.drop()
            for lock in locks:
                lock.release()

    @_touches_disk
    def _delete(self) -> None:
        # All files go with the directory. Kafka deletes the segments first, and where the directory is a link it would
        # delete them in the directory that the link points to; here the link alone goes.
        self.leader_epochs.clear()
        self.local.release()
        self.local.segments.clear()
        self.local.delete_directory()

    @_touches_disk
    def rename(self, name: str) -> None:
        """Rename the directory, as for deletion; what was to be written to it is written to the new one."""
        self._ensure_usable()
        self._partition_metadata.flush()
        if self.local.rename(name):
            for deletion in self._deletions():
                deletion.moved_to(self.directory)
            self.producers.directory = self.directory
            self.leader_epochs.checkpoint.path = join(
                self.directory, self.leader_epochs.checkpoint.path.rpartition("/")[2]
            )
            self._partition_metadata.path = join(self.directory, self._partition_metadata.path.rpartition("/")[2])

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Note the id of the topic; it is written before the next append."""
        if self.topic_id is not None and self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to topic id {self.topic_id}, not to {topic_id}")
        self._partition_metadata.record(topic_id)
        self.topic_id = topic_id  # last: the file may be another topic's, or the disk may refuse to show it

    @_touches_disk
    def flush_partition_metadata(self) -> None:
        """Write the topic id now, instead of before the next append."""
        self._partition_metadata.flush()

    def _assign_topic_id_on_open(self, topic_id: uuid.UUID | None) -> None:
        stored = self._partition_metadata.read()
        if stored is not None and topic_id is not None and stored != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to topic id {stored}, not to {topic_id}")
        self.topic_id = stored or topic_id
        if stored is None and topic_id is not None:
            self._partition_metadata.record(topic_id)

    # -- producers -----------------------------------------------------------------------------------------------

    def remove_expired_producers(self) -> None:
        """Forget the producers that have not written for producer.id.expiration.ms. The upkeep does it, too."""
        self.producers.remove_expired(self.local.clock.now_ms())

    # -- failure -------------------------------------------------------------------------------------------------

    def _ensure_usable(self) -> None:
        if self.failure is not None:
            raise LogClosedError(f"{self.directory} is offline: {self.failure}") from self.failure
        self.local.ensure_open()

    def _ensure_writable(self) -> None:
        self._ensure_usable()
        if self.retired is not None:
            raise LogClosedError(self.retired)

    def fail(self, error: BaseException) -> None:
        """Take the directory offline: from now on nothing is written here, and whoever has the root is told.

        What the disk refused does it, and so does whatever interrupts an append between its first byte and its last
        note: what is in memory is then not what is in the files. A closed log, and a process that may not open another
        file now, are no failures of the disk.
        """
        if isinstance(error, LogClosedError | TooManyFilesError) or self.failure is not None:
            return
        if not isinstance(error, StorageError):
            error = StorageError(f"{self.directory}: interrupted while it was written to, by {error!r}")
        self.failure = error
        if self._on_failure is not None:
            self._on_failure(parent_of(self.directory), error)
