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

import os
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from tidelog.errors import (
    InconsistentTopicIdError,
    InvalidRequestError,
    LogClosedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from tidelog.log.analysis import AppendInfo, analyse
from tidelog.log.batch_info import BatchInfo
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileLock, FileSystem, join, parent_of
from tidelog.log.leader_epochs import EpochEnd, LeaderEpochCache
from tidelog.log.list_offsets import offset_for_time
from tidelog.log.local_log import LocalLog
from tidelog.log.lookup import Step
from tidelog.log.names import TopicPartition, parse_directory_name
from tidelog.log.offsets import OffsetMetadata, TimestampAndOffset
from tidelog.log.origin import AppendOrigin
from tidelog.log.partition_metadata import PartitionMetadataFile
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_entry import BatchMetadata
from tidelog.log.producer_rebuild import rebuild_producer_state
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.producer_txn import CompletedTxn
from tidelog.log.quick_append import QUICK_APPEND
from tidelog.log.region import Region
from tidelog.log.retention import deletable_segments
from tidelog.log.segment import LogSegment
from tidelog.log.tasks import Call, Schedule
from tidelog.log.validator import validate_and_assign
from tidelog.log.verification import NO_GUARD, VerificationGuard
from tidelog.records.batch import MAGIC, RecordBatch
from tidelog.records.builder import build_batch
from tidelog.records.control import end_txn_marker_of
from tidelog.records.java import MAX_INT32
from tidelog.records.record import NewRecord

__all__ = ["Isolation", "LogOffsets", "UnifiedLog"]

_ANY_EPOCH = MAX_INT32


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = "log end"  # a follower
    HIGH_WATERMARK = "high watermark"  # a consumer
    COMMITTED = "last stable offset"  # a consumer that wants committed transactions only


class LogOffsets(NamedTuple):
    """The four bounds of a log at one moment, with their places in the files."""

    log_start_offset: int
    log_end: OffsetMetadata
    high_watermark: OffsetMetadata
    last_stable_offset: OffsetMetadata


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
        on_failure: Callable[[str, StorageError], None] | None = None,
    ) -> None:
        self.local = local
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        self.failure: StorageError | None = None  # the disk error that took the directory offline
        self.high_watermark_listeners: list[Callable[[int], None]] = []
        self._partition_metadata = partition_metadata
        self._locks = locks
        self._on_failure = on_failure
        self._high_watermark = OffsetMetadata(log_start_offset)
        self._first_unstable: OffsetMetadata | None = None
        self.topic_id: uuid.UUID | None = None
        self._assign_topic_id_on_open(topic_id)
        local.recovery_point = max(local.recovery_point, log_start_offset)
        self._update_first_unstable()

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
        verification: bool = False,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        rng: random.Random | None = None,
        schedule: Schedule | None = None,
        lock: bool = True,
        on_failure: Callable[[str, StorageError], None] | None = None,
    ) -> "UnifiedLog":
        """Load the log of a partition directory, creating it if there is none, and recover it unless told it is clean.

        `recovery_point`, `log_start_offset` and `clean_shutdown` are what the checkpoints of the root say; without
        them everything is checked. With `lock` no other process and no other caller can have the directory open.
        """
        from tidelog.log.loader import LogLoader
        from tidelog.log.local_files import LocalFileSystem

        clock = clock or SystemClock()
        loader = LogLoader(
            os.fspath(directory),
            config or LogConfig(),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            producer_id_expiration_ms=producer_id_expiration_ms,
            verification=verification,
            clock=clock,
            fs=fs or LocalFileSystem(),
            rng=rng or random.Random(),
            schedule=schedule or Schedule(clock),
            lock=lock,
        )
        return loader.load(topic_id=topic_id, on_failure=on_failure)

    def __enter__(self) -> "UnifiedLog":
        return self

    def __exit__(self, *exception: object) -> None:
        if not self.local.is_closed:
            self.close()

    def __repr__(self) -> str:
        return f"UnifiedLog({self.directory}, offsets {self.log_start_offset} to {self.log_end_offset})"

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        return self.local.directory

    @property
    def topic_partition(self) -> TopicPartition:
        return parse_directory_name(self.directory.rpartition("/")[2])

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
    def size(self) -> int:
        """Bytes of all batches."""
        return self.local.segments.size

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on the disk."""
        return self.local.recovery_point

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, records: Iterable[NewRecord], *, leader_epoch: int | None = None) -> AppendInfo:
        """Append records as one batch and let readers see them: the convenience of a log that stands alone."""
        batch = build_batch(records)
        epoch = self.leader_epochs.latest_epoch if leader_epoch is None else leader_epoch
        info = self.append_as_leader(memoryview(batch), epoch or 0)
        self.update_high_watermark(self.log_end_offset)
        self.tick()
        return info

    def append_as_leader(
        self,
        buffer: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard = NO_GUARD,
    ) -> AppendInfo:
        """Append batches to a log that this process leads. `buffer` is stamped in place, so it must be writable."""
        if origin is AppendOrigin.REPLICATION:
            raise InvalidRequestError("a leader does not append what it replicates: see append_as_follower")
        return self._append(buffer, origin, leader_epoch, verification_guard)

    def append_as_follower(self, buffer: memoryview, leader_epoch: int = _ANY_EPOCH) -> AppendInfo:
        """Append a leader's batches as they are. Batches of an epoch above `leader_epoch` are left out."""
        return self._append(buffer, AppendOrigin.REPLICATION, leader_epoch, NO_GUARD)

    def _append(
        self, buffer: memoryview, origin: AppendOrigin, leader_epoch: int, guard: VerificationGuard
    ) -> AppendInfo:
        if self.failure is not None or self.local.is_closed:
            self._ensure_usable()
        if self._partition_metadata.is_dirty:
            self._partition_metadata.flush()
        if origin is AppendOrigin.CLIENT:
            info = QUICK_APPEND.append(self, buffer, leader_epoch)
            if info is not None:
                return info
        batches = analyse(buffer, origin, leader_epoch, self.local.config.max_message_bytes)
        if not batches:
            return AppendInfo(-1, -1, log_start_offset=self.log_start_offset)
        try:
            return self._append_batches(buffer, batches, origin, leader_epoch, guard)
        except StorageError as error:
            self.fail(error)
            raise

    def _append_batches(
        self,
        buffer: memoryview,
        batches: list[BatchInfo],
        origin: AppendOrigin,
        leader_epoch: int,
        guard: VerificationGuard,
    ) -> AppendInfo:
        local = self.local
        config = local.config
        log_end = local.log_end.offset
        now_ms = local.clock.now_ms()
        log_append_time_ms = -1
        if origin.assigns_offsets:
            validated = validate_and_assign(
                buffer, batches, config=config, origin=origin, first_offset=log_end, now_ms=now_ms,
                leader_epoch=leader_epoch,
            )  # fmt: skip
            buffer, batches = validated.buffer, validated.batches
            max_timestamp_ms, log_append_time_ms = validated.max_timestamp_ms, validated.log_append_time_ms
            if validated.size_may_have_changed:
                _ensure_sizes(batches, config.max_message_bytes)
        else:
            _ensure_behind(batches, log_end)
            max_timestamp_ms = max(batch.max_timestamp_ms for batch in batches)
        last = batches[-1]
        size = last.position + last.size
        self._assign_epochs(batches)
        if size > config.segment_bytes:
            raise RecordListTooLargeError(f"{size} bytes in one append, a segment holds {config.segment_bytes}")
        if local.segments.active.should_roll(config, size, max_timestamp_ms, last.last_offset, now_ms):
            self.roll(_first_offset(batches))
        first_offset = batches[0].base_offset
        info = AppendInfo(first_offset, last.last_offset, max_timestamp_ms, log_append_time_ms, self.log_start_offset)
        updates, completed, duplicate = self._check_producers(buffer, batches, origin, guard)
        if duplicate is not None:
            info.first_offset, info.last_offset = duplicate.first_offset, duplicate.last_offset
            info.log_append_time_ms, info.is_duplicate = duplicate.timestamp_ms, True
            return info
        local.append(buffer[:size] if len(buffer) != size else buffer, batches)
        info.size = size
        if self._high_watermark.offset >= local.log_end.offset:
            self._set_high_watermark(local.log_end)
        if updates:
            self.producers.apply(updates)
        for txn in completed:
            if txn.is_aborted:
                local.segments.active.add_aborted(txn, self.producers.last_stable_offset(txn))
            self.producers.complete_txn(txn)
        self.producers.map_end_offset = last.last_offset + 1
        if updates:
            self._update_first_unstable()
        if local.log_end.offset - local.recovery_point >= config.flush_messages:
            self.flush()
        return info

    def _assign_epochs(self, batches: Sequence[BatchInfo]) -> None:
        epochs = self.leader_epochs
        for batch in batches:
            if batch.magic >= MAGIC:
                if batch.leader_epoch != epochs.latest_epoch:
                    epochs.assign(batch.leader_epoch, batch.base_offset)
            elif epochs.entries:
                epochs.clear_and_flush()  # the old formats know no epochs: what is cached would mislead a follower

    def _check_producers(
        self, buffer: memoryview, batches: Sequence[BatchInfo], origin: AppendOrigin, guard: VerificationGuard
    ) -> tuple[dict[int, ProducerAppendInfo], list[CompletedTxn], BatchMetadata | None]:
        """Producer state as it will be, the transactions that end, and the batch that this append repeats."""
        producers = self.producers
        updates: dict[int, ProducerAppendInfo] = {}
        completed: list[CompletedTxn] = []
        for batch in batches:
            if batch.producer_id < 0:
                continue
            if origin is AppendOrigin.CLIENT:
                duplicate = producers.find_duplicate(batch)
                if duplicate is not None:
                    return {}, [], duplicate
            marker = start = None
            if batch.is_transactional:
                if origin.assigns_offsets:
                    producers.check_verification(batch, guard)
                active = self.local.segments.active
                start = OffsetMetadata(batch.base_offset, active.base_offset, active.size + batch.position)
                if batch.is_control:
                    marker = end_txn_marker_of(RecordBatch(buffer[batch.position : batch.position + batch.size]))
            txn = producers.stage(updates, batch, origin, marker, start=start)
            if txn is not None:
                completed.append(txn)
        return updates, completed, None

    def roll(self, first_offset: int | None = None) -> LogSegment:
        """Begin a new segment, with a snapshot of the producers at its base; what lies before is flushed soon."""
        segment = self.local.roll(first_offset)
        base_offset = segment.base_offset
        self.producers.map_end_offset = base_offset
        snapshot = self.producers.take_snapshot(sync=False)

        def flush() -> None:
            if snapshot is not None and self.local.fs.stat(snapshot) is not None:
                file = self.local.fs.open_write(snapshot)
                file.sync()
                file.close()
            self.flush_to(base_offset)

        self.local.schedule.soon(Call("flush", self._guarded(flush), waits_for_disk=True))
        return segment

    # -- watermarks ----------------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.local.log_end.offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between log start and log end; what it is now."""
        if offset < self.log_start_offset:
            target = OffsetMetadata(self.log_start_offset)
        elif offset >= self.log_end_offset:
            target = self.local.log_end
        else:
            target = OffsetMetadata(offset)
        self._set_high_watermark(target)
        return target.offset

    def raise_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, as a leader does; whether it moved."""
        if offset > self.log_end_offset:
            raise InvalidRequestError(f"a high watermark of {offset}, the log ends at {self.log_end_offset}")
        if offset <= self.high_watermark:
            return False
        self.update_high_watermark(offset)
        return True

    def _set_high_watermark(self, target: OffsetMetadata) -> None:
        if target.offset < 0:
            raise InvalidRequestError(f"a high watermark of {target.offset}")
        self._high_watermark = target
        self.producers.on_high_watermark(target.offset)
        for listener in self.high_watermark_listeners:
            listener(target.offset)
        self._update_first_unstable()

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose end is not below the high watermark."""
        return None if self._first_unstable is None else self._first_unstable.offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self._first_unstable
        high_watermark = self._high_watermark.offset
        return high_watermark if unstable is None else min(unstable.offset, high_watermark)

    def _update_first_unstable(self) -> None:
        unstable = self.producers.first_unstable
        if unstable is not None and unstable.offset < self.log_start_offset:
            unstable = OffsetMetadata(self.log_start_offset)
        self._first_unstable = unstable

    def offsets(self) -> LogOffsets:
        """The four bounds, each with its place."""
        return LogOffsets(
            self.log_start_offset,
            self.local.log_end,
            self._limit(Isolation.HIGH_WATERMARK),
            self._limit(Isolation.COMMITTED),
        )

    def _limit(self, isolation: Isolation) -> OffsetMetadata:
        """Up to where a reader may see, with its place in the files."""
        if isolation is Isolation.LOG_END:
            return self.local.log_end
        limit = self._high_watermark
        if limit.is_offset_only:
            limit = self._locate(limit)
            if self._high_watermark.offset == limit.offset:
                self._high_watermark = limit
        unstable = self._first_unstable
        if isolation is Isolation.COMMITTED and unstable is not None and unstable.offset < limit.offset:
            if unstable.is_offset_only:
                unstable = self._locate(unstable)
                if self.first_unstable_offset == unstable.offset:
                    self._first_unstable = unstable
            return unstable
        return limit

    def _locate(self, place: OffsetMetadata) -> OffsetMetadata:
        try:
            return self.local.locate(place.offset)
        except OffsetOutOfRangeError:
            return place

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
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.directory}: the log starts at {self.log_start_offset}"
            )
        return self.local.read(
            offset,
            max_bytes,
            self._limit(isolation),
            at_least_one=at_least_one,
            with_aborted=isolation is Isolation.COMMITTED,
            trace=trace,
        )

    def offset_for_time(
        self,
        timestamp_ms: int,
        isolation: Isolation = Isolation.LOG_END,
        *,
        trace: list[Step] | None = None,
    ) -> TimestampAndOffset | None:
        """The first record at or behind a time, as a broker answers; the specials -1 to -6 as in list_offsets.py."""
        self._ensure_usable()
        return offset_for_time(self, timestamp_ms, isolation, trace)

    def limit_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader of this isolation may not see."""
        if isolation is Isolation.LOG_END:
            return self.log_end_offset
        return self.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.last_stable_offset

    # -- epochs --------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epochs.latest_epoch

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Note that the leader of `epoch` begins at `start_offset`, as a new leader does before its first append."""
        self.leader_epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest known epoch not above `epoch`, and where it ends."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- deleting and truncating ---------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> bool:
        """Raise the log start; whether it moved. Files go with `delete_old_segments`."""
        self._ensure_usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(f"a log start of {offset}, the high watermark is {self.high_watermark}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local.recovery_point = max(self.local.recovery_point, offset)
        self.leader_epochs.truncate_from_start(offset)
        self._flush_epochs_soon()
        self.producers.on_log_start(offset)
        self._update_first_unstable()
        return True

    def delete_old_segments(self) -> int:
        """Delete the segments that the log start, retention.bytes and retention.ms let go; how many."""
        self._ensure_usable()
        return sum(self._delete_segments(segments) for segments in deletable_segments(self))

    def _delete_segments(self, segments: Sequence[LogSegment]) -> int:
        if not segments:
            return 0
        gone = list(segments)
        if len(gone) == len(self.local.segments) and self.roll().base_offset == gone[-1].base_offset:
            gone.pop()  # an empty active segment: the roll has replaced it
        if gone:
            following = self.local.segments.higher(gone[-1].base_offset)
            assert following is not None
            self.delete_records(following.base_offset)
            self.local.remove(gone)
        self._delete_snapshots(segments)
        return len(segments)

    def _delete_snapshots(self, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
        marked = [self.producers.mark_snapshot_for_deletion(segment.base_offset) for segment in segments]
        paths = [path for path in marked if path is not None]

        def delete() -> None:
            for path in paths:
                self.local.fs.remove(path)

        if at_once:
            delete()
        elif paths:
            self.local.schedule.after(self.config.file_delete_delay_ms, Call("delete snapshots", self._guarded(delete)))

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from `offset` on; whether there was anything."""
        self._ensure_usable()
        if offset < 0:
            raise InvalidRequestError(f"a log truncated to offset {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self._flush_epochs_soon()
            return False
        if self.local.segments.first.base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        gone = self.local.truncate_to(offset)
        self._delete_snapshots(gone)
        self.leader_epochs.truncate_from_end(offset)
        self._flush_epochs_soon()
        self.log_start_offset = min(offset, self.log_start_offset)
        self._rebuild_producers(offset)
        if self.high_watermark >= offset:
            self._set_high_watermark(self.local.log_end)
        else:
            self._forget_places()
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and begin anew at `offset`."""
        self._ensure_usable()
        self.local.truncate_fully(offset)
        self.leader_epochs.clear_and_flush()
        self.producers.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._rebuild_producers(offset)
        self._set_high_watermark(self.local.log_end)

    def _rebuild_producers(self, end_offset: int) -> None:
        work = rebuild_producer_state(
            self.producers, self.local.segments, self.log_start_offset, end_offset, self.local.clock
        )
        for _ in work:
            pass
        self._update_first_unstable()

    def _forget_places(self) -> None:
        """Positions may have moved: look them up again when they are needed."""
        self._high_watermark = OffsetMetadata(self._high_watermark.offset)
        self._update_first_unstable()

    def _flush_epochs_soon(self) -> None:
        if self.leader_epochs.is_dirty:
            self.local.schedule.soon(Call("flush epochs", self._guarded(self.leader_epochs.flush)))

    # -- flushing and closing ------------------------------------------------------------------------------------

    def flush(self, *, force: bool = False) -> None:
        """Return when everything is on the disk. With `force` an empty active segment too, its indexes created."""
        self._ensure_usable()
        self._flush(self.log_end_offset + force, self.log_end_offset)

    def flush_to(self, offset: int) -> None:
        """Return when everything below `offset` is on the disk."""
        self._flush(offset, offset)

    def _flush(self, flush_offset: int, recovery_point: int) -> None:
        if flush_offset > self.local.recovery_point:
            self.local.flush(flush_offset)
            self.local.mark_flushed(recovery_point)

    def tick(self, budget_ms: float = float("inf")) -> None:
        """Run what is due: deferred flushes, deletions, rewritten checkpoints. A host with many logs shares one."""
        self.local.schedule.run_due(budget_ms)
        for segment in self.local.segments:
            if segment.wrong_index is not None:
                self._mend(segment)

    def _mend(self, segment: LogSegment) -> None:
        from tidelog.log.recovery import rebuild_indexes

        rebuild_indexes(segment, self.config)
        if segment is self.active_segment:
            segment.resize_indexes(self.config.segment_index_bytes)

    def close(self) -> None:
        """Flush, take a snapshot of the producers, trim and close every file, let others in."""
        try:
            self._ensure_usable()
            self._partition_metadata.flush()
            self.flush(force=True)
            self.leader_epochs.flush()
            self.producers.take_snapshot()
            self.local.close()
        except StorageError as error:
            self.fail(error)
            raise
        finally:
            for lock in self._locks:
                lock.release()

    def release(self) -> None:
        """Give everything back without writing, as for a directory that failed. Harmless if done twice."""
        self.local.release()
        for lock in self._locks:
            lock.release()

    def delete(self) -> None:
        """Delete the log with its directory."""
        self._ensure_usable()
        self.leader_epochs.clear()
        self._delete_snapshots(self.local.delete(), at_once=True)
        self.local.delete_directory()
        for lock in self._locks:
            lock.release()

    def rename(self, name: str) -> None:
        """Rename the directory, as for deletion; what was to be written to it is written to the new one."""
        self._ensure_usable()
        self._partition_metadata.flush()
        if self.local.rename(name):
            self.producers.directory = self.directory
            self.leader_epochs.checkpoint.path = join(
                self.directory, self.leader_epochs.checkpoint.path.rpartition("/")[2]
            )
            self._partition_metadata.path = join(self.directory, self._partition_metadata.path.rpartition("/")[2])

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Note the id of the topic; it is written before the next append."""
        if self.topic_id is not None and self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to topic id {self.topic_id}, not to {topic_id}")
        self.topic_id = topic_id
        self._partition_metadata.record(topic_id)

    def _assign_topic_id_on_open(self, topic_id: uuid.UUID | None) -> None:
        stored = self._partition_metadata.read()
        if stored is not None and topic_id is not None and stored != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to topic id {stored}, not to {topic_id}")
        self.topic_id = stored or topic_id
        if stored is None and topic_id is not None:
            self._partition_metadata.record(topic_id)

    # -- producers -----------------------------------------------------------------------------------------------

    def remove_expired_producers(self) -> None:
        """Forget the producers that have not written for producer.id.expiration.ms."""
        self.producers.remove_expired(self.local.clock.now_ms())

    # -- failure -------------------------------------------------------------------------------------------------

    def _ensure_usable(self) -> None:
        if self.failure is not None:
            raise LogClosedError(f"{self.directory} is offline: {self.failure}") from self.failure
        self.local.ensure_open()

    def fail(self, error: StorageError) -> None:
        """The disk refused: from now on nothing is written here, and whoever has the other logs of this root knows."""
        if isinstance(error, LogClosedError) or self.failure is not None:
            return
        self.failure = error
        if self._on_failure is not None:
            self._on_failure(parent_of(self.directory), error)

    def _guarded(self, function: Callable[[], object]) -> Callable[[], object]:
        """`function` such that a disk error takes the directory offline, and that does nothing once it is."""

        def run() -> None:
            if self.failure is None and not self.local.is_closed:
                try:
                    function()
                except StorageError as error:
                    self.fail(error)
                    raise

        return run


def _ensure_sizes(batches: Sequence[BatchInfo], limit: int) -> None:
    for batch in batches:
        if batch.size > limit:
            raise MessageTooLargeError(f"a batch of {batch.size} bytes after recompression, the topic allows {limit}")


def _ensure_behind(batches: Sequence[BatchInfo], log_end: int) -> None:
    first = batches[0]
    if first.base_offset < log_end:
        raise UnexpectedAppendOffsetError(
            f"offsets {first.base_offset} to {batches[-1].last_offset} appended to a log that ends at {log_end}",
            first.base_offset,
            batches[-1].last_offset,
        )


def _first_offset(batches: Sequence[BatchInfo]) -> int:
    """Where a segment for these batches must begin at the latest.

    The first offset of a legacy wrapper is not known without decompression; it is less than 2^31 below the last.
    """
    first = batches[0]
    return batches[-1].last_offset - MAX_INT32 if first.is_legacy else first.base_offset
