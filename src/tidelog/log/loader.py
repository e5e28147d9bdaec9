"""Loading a log from its directory, after a clean stop or a crash.

    1. leftovers of deletions and of compactions that did not commit go; those that did commit are completed
    2. segments are opened in order; one without its offset index, or with a broken transaction index, is recovered
    3. after an unclean stop all segments from the one that holds the recovery point on are recovered; the first one
       from which bytes are cut is the last one that is kept
    4. leader epochs beyond the log end or below the log start go
    5. producer state is rebuilt up to the log end

Loading is a task in slices: `LogLoader.task` gives it to a host that has other things to do.

Kafka: LogLoader.
"""

import random
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial

from tidelog.errors import CorruptIndexError, OffsetOverflowError, StorageError, TidelogError
from tidelog.log.checkpoints import LeaderEpochCheckpoint
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.deletion import Deletion
from tidelog.log.files import FileLock, FileSystem, join, make_lasting_directory, parent_of
from tidelog.log.indexer import rebuild_indexes
from tidelog.log.leader_epochs import LeaderEpochCache
from tidelog.log.leftovers import settle_leftovers
from tidelog.log.local_log import LocalLog
from tidelog.log.names import (
    CLEANED,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    SWAP,
    TIME_INDEX_SUFFIX,
    check_topic_name,
    file_name,
    is_delete_directory,
    is_index_file,
    offset_of,
    parse_directory_name,
)
from tidelog.log.partition_metadata import PartitionMetadataFile
from tidelog.log.producer_rebuild import rebuild_producer_state
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.recovery import Cut, LogCut, SegmentRecovery
from tidelog.log.segment import LogSegment
from tidelog.log.segment_split import split_overflowed
from tidelog.log.segment_swap import rename_deleted
from tidelog.log.segments import LogSegments
from tidelog.log.set_aside import copy_aside, free_name
from tidelog.log.tasks import Schedule, SlicedTask, Task
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import ensure_no_unfinished_write

__all__ = ["LogLoader"]

Steps = Generator[None, None, None]
_NOWHERE = 1 << 63


class LogLoader:
    """The loading of one log. Used once."""

    recovery: type[SegmentRecovery] = SegmentRecovery

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        *,
        recovery_point: int,
        log_start_offset: int,
        clean_shutdown: bool,
        producer_id_expiration_ms: int,
        producer_id_expiration_check_interval_ms: int = 600_000,
        verification: bool,
        clock: Clock,
        fs: FileSystem,
        rng: random.Random,
        schedule: Schedule,
        lock: bool,
    ) -> None:
        self.segments: LogSegments[LogSegment] = LogSegments()
        self.segments_left = 0  # to be recovered: what a progress bar shows
        self.notices: list[str] = []  # what a person should know of the recovery
        self.cuts: list[LogCut] = []
        self._directory = directory
        self._config = config
        self._recovery_point = recovery_point
        self._log_start = log_start_offset
        self._is_clean = clean_shutdown
        self._expiration_ms = producer_id_expiration_ms
        self._expiration_check_interval_ms = producer_id_expiration_check_interval_ms
        self._verification = verification
        self._clock = clock
        self._fs = fs
        self._rng = rng
        self._schedule = schedule
        self._is_deleted = is_delete_directory(directory.rpartition("/")[2])
        parse_directory_name(directory.rpartition("/")[2])
        self._is_locked = lock
        self._deferred = _Deferred()
        self._locks: list[FileLock] = []
        self._names: Sequence[str] = ()  # in the directory, when it was entered
        self._epochs: LeaderEpochCache
        self._producers: ProducerStateManager

    def _enter(self) -> None:
        """Take the directory, with the first slice: what is abandoned before that has taken nothing."""
        found = self._fs.stat(self._directory)
        if found is not None and not found.is_directory:
            raise StorageError(f"{self._directory} is not a directory")
        if found is None:
            check_topic_name(parse_directory_name(self._directory.rpartition("/")[2]).topic)
            if self._is_locked:
                ensure_no_unfinished_write(self._fs, parent_of(self._directory))
            make_lasting_directory(self._fs, self._directory)  # nothing in it is flushed while it can vanish itself
        if self._is_locked:
            self._locks = self._lock()
        self._names = self._fs.list(self._directory)
        epoch_checkpoint = LeaderEpochCheckpoint(self._fs, join(self._directory, LEADER_EPOCH_CHECKPOINT))
        if LEADER_EPOCH_CHECKPOINT not in self._names:
            epoch_checkpoint.create()
        self._epochs = LeaderEpochCache(epoch_checkpoint)
        self._producers = self._new_producers()

    def _lock(self) -> list[FileLock]:
        """The lock of the root, where a broker would take it, and the directory's own.

        A broker that stops removes its lock file, so the root of one is known by its identity as well. Several logs of
        one root may be open in this process.
        """
        root = parent_of(self._directory)
        is_root = any(self._fs.stat(join(root, name)) is not None for name in (LOCK_FILE, META_PROPERTIES))
        locks = [self._fs.lock(join(root, LOCK_FILE), shared=True)] if is_root else []
        try:
            locks.append(self._fs.lock(self._directory))
            ensure_no_unfinished_write(self._fs, root)  # its recovery may cut what is appended now
        except TidelogError:
            for lock in locks:
                lock.release()
            raise
        return locks

    def _new_producers(self) -> ProducerStateManager:
        return ProducerStateManager(
            self._fs,
            self._directory,
            self._clock,
            expiration_ms=self._expiration_ms,
            verification=self._verification,
        )

    def load(
        self,
        *,
        topic_id: uuid.UUID | None = None,
        on_failure: Callable[[str, StorageError], None] | None = None,
    ) -> UnifiedLog:
        """Load to the end."""
        return self.task(topic_id=topic_id, on_failure=on_failure).run()

    def task(
        self,
        *,
        topic_id: uuid.UUID | None = None,
        on_failure: Callable[[str, StorageError], None] | None = None,
    ) -> SlicedTask[UnifiedLog]:
        """Load in slices."""
        return SlicedTask(f"load {self._directory}", self._run(topic_id, on_failure), self._clock)

    def _run(
        self, topic_id: uuid.UUID | None, on_failure: Callable[[str, StorageError], None] | None
    ) -> Generator[None, None, UnifiedLog]:
        try:
            self._enter()
            yield from self._load_segments()
            log_end, recovery_point = 0, 0
            if self._is_deleted:
                if not self.segments:
                    self._create_segment(0)
            else:
                yield from self._recover()
                log_end, recovery_point = self._settle_ends()
                yield from self._prepare_to_append(log_end)
            self._epochs.truncate_from_end(log_end)
            self._epochs.truncate_from_start(self._log_start)
            self._epochs.flush()
            log_start = self._log_start
            if not self._config.remote_storage_enable:  # else what lies before the first segment may be elsewhere
                log_start = max(log_start, self.segments.first.base_offset)
            self._producers.remove_stray_snapshots(self.segments.base_offsets)
            yield from self._rebuild(self._producers, log_start, log_end, clean_shutdown=self._is_clean)
            if not self._is_clean:
                self._fs.sync_directory(self._directory)  # what was removed must not come back beside what is appended
            local = LocalLog(
                self._fs, self._directory, self._config, self._clock, self._rng, self._schedule, self.segments,
                recovery_point=recovery_point, log_end_offset=log_end,
            )  # fmt: skip
            log = UnifiedLog(
                local,
                self._producers,
                self._epochs,
                PartitionMetadataFile(self._fs, join(self._directory, PARTITION_METADATA)),
                log_start_offset=log_start,
                topic_id=topic_id,
                locks=self._locks,
                expiration_check_interval_ms=self._expiration_check_interval_ms,
                on_failure=on_failure,
            )
            for delay_ms, task in self._deferred.tasks:
                log.tasks.after(delay_ms, task)
            log.notices = tuple(self.notices)
            log.cuts = tuple(self.cuts)
            return log
        except BaseException:  # whatever it was, also that the task was abandoned: others may have the directory
            for segment in self.segments:
                segment.release()
            for _, task in self._deferred.tasks:
                task.abandon()
            for lock in self._locks:
                lock.release()
            raise

    # -- segments ------------------------------------------------------------------------------------------------

    def _load_segments(self) -> Steps:
        names = self._names
        if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
            self._settle_leftovers()
            names = self._fs.list(self._directory)
        while True:
            self.segments.clear()
            try:
                yield from self._open_segments(names)
                return
            except _Overflow as overflow:
                self._split(overflow.segment)
                names = self._fs.list(self._directory)

    def _open_segments(self, names: Sequence[str]) -> Steps:
        present = set(names)
        first_unflushed = self._first_unflushed(names)
        for name in names:
            if is_index_file(name):
                if file_name(offset_of(name), LOG_SUFFIX) not in present:
                    self._fs.remove(join(self._directory, name))
            elif name.endswith(LOG_SUFFIX):
                base_offset = offset_of(name)
                segment = self._open_segment(base_offset)
                try:
                    segment.check(is_time_index_new=file_name(base_offset, TIME_INDEX_SUFFIX) not in present)
                except CorruptIndexError:
                    # One that was not flushed has its turn later, behind the segments that its producers come from.
                    if base_offset < first_unflushed:
                        yield from self._recover_segment(segment)
                        segment.flush()  # the recovery point is beyond it: nobody will look at it again
                self.segments.add(segment)
                yield

    def _first_unflushed(self, names: Iterable[str]) -> int:
        """The base offset of the first segment that will be recovered anyway."""
        if self._is_clean or self._is_deleted:
            return _NOWHERE
        bases = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX)]
        return max((base for base in bases if base <= self._recovery_point), default=0)

    def _open_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        return LogSegment.open(
            self._fs, self._directory, base_offset, self._config, self._clock, self._rng, suffix=suffix
        )

    def _create_segment(self, base_offset: int) -> None:
        self.segments.add(
            LogSegment.create(
                self._fs, self._directory, base_offset, self._config, self._clock, self._rng,
                preallocate=self._config.preallocate and not self._is_deleted,
            )
        )  # fmt: skip

    # -- recovery ------------------------------------------------------------------------------------------------

    def _recover(self) -> Steps:
        while not self._is_clean:
            try:
                yield from self._recover_unflushed()
                return
            except _Overflow as overflow:
                self._split(overflow.segment)

    def _recover_unflushed(self) -> Steps:
        """Recover the segments that were not known to be on the disk; what follows a cut goes."""
        unflushed = self.segments.from_offset(self._recovery_point)
        for number, segment in enumerate(unflushed):
            self.segments_left = len(unflushed) - number
            following = unflushed[number + 1 :]
            # Where offsets go back, or an index cannot be written, Kafka empties the segment. Here batches before that
            # place are kept, and what the disk refuses ends the start and loses nothing.
            if (yield from self._recover_segment(segment, following)):
                break
        self.segments_left = 0

    def _recover_segment(
        self, segment: LogSegment, following: tuple[LogSegment, ...] = ()
    ) -> Generator[None, None, int]:
        """Recover one segment with the producer state at its base; how many bytes were cut.

        Where bytes must be cut the segments of `following` go first: with the bytes gone, the next start would keep
        them if this one ended here.
        """
        producers = self._new_producers()
        yield from self._rebuild(producers, self._log_start, segment.base_offset)
        recovery = self.recovery(
            segment, producers, self._epochs, self._config, before_cut=partial(self._before_cut, segment, following)
        )
        try:
            yield from recovery.run()
        except OffsetOverflowError as error:
            raise _Overflow(segment) from error
        producers.take_snapshot()
        self._producers.reload_snapshots()
        return recovery.bytes_cut

    def _before_cut(self, segment: LogSegment, following: tuple[LogSegment, ...], cut: Cut) -> None:
        """Take the segments after a cut out of the log, and say what goes. What may be sound is set aside."""
        reason = cut.reason.removeprefix(f"{segment.log.path}, position {cut.position}: ")
        self._note_cut(segment, cut.position, following, reason, is_kept=cut.is_sound)
        what = f"{segment.size - cut.position} bytes of {segment.log.path} from position {cut.position} on"
        if following:
            what += f", and the {len(following)} segments after it,"
        if cut.is_sound:
            names = self._set_aside(following)
            file = segment.log.file
            path = copy_aside(self._fs, self._directory, segment.base_offset, file, cut.position, segment.size)
            names.insert(0, path.rpartition("/")[2])
            self.notices.append(
                f"{what} are no longer part of the log: {cut.reason}. They are kept in {self._directory} as "
                f"{', '.join(names)}; copy one to a name that ends in .log to read it with `tidelog dump-log`"
            )
        else:
            self._remove(following)
            self.notices.append(f"{what} were cut off by recovery: {reason}")

    def _note_cut(
        self, segment: LogSegment, position: int, following: Sequence[LogSegment], reason: str, *, is_kept: bool = False
    ) -> None:
        """Write down what is about to go, while its size is known."""
        paths, size = tuple(one.log.path for one in following), sum(one.size for one in following)
        self.cuts.append(
            LogCut(segment.log.path, position, segment.size - position, paths, size, reason, is_kept=is_kept)
        )

    def _set_aside(self, segments: tuple[LogSegment, ...]) -> list[str]:
        """Take segments out of the log and keep their batches under other names, which are returned."""
        names: list[str] = []
        for segment in reversed(segments):  # the last one first: what a crash leaves has no hole
            self.segments.remove(segment.base_offset)
            if segment.size:
                segment.log.rename_to(free_name(self._fs, self._directory, segment.base_offset, 0))
                names.insert(0, segment.log.path.rpartition("/")[2])
                segment.log.release()
            else:
                segment.log.delete()
            for index in (segment.offset_index, segment.time_index, segment.txn_index):
                index.delete()
        self._fs.sync_directory(self._directory)
        for segment in segments:
            path = self._producers.mark_snapshot_for_deletion(segment.base_offset)
            if path is not None:
                self._fs.remove(path)
        return names

    def _rebuild(
        self, producers: ProducerStateManager, log_start: int, end: int, *, clean_shutdown: bool = False
    ) -> Iterator[None]:
        return rebuild_producer_state(
            producers, self.segments, log_start, end, self._clock, clean_shutdown=clean_shutdown
        )

    def _settle_ends(self) -> tuple[int, int]:
        """Log end and recovery point; without a segment that reaches the log start, one empty segment is made there."""
        log_end = self._end_of(self.segments.active) if self.segments else None
        if log_end is not None and log_end < self._log_start:
            # Somebody removed files. What is left lies below the log start, so nobody may read it.
            first, *others = self.segments
            reason = f"the log ends at offset {log_end}, before its log start {self._log_start}"
            self._note_cut(first, 0, others, reason)
            self._remove(tuple(self.segments))
            self._epochs.clear_and_flush()
            self._producers.truncate_fully_and_start_at(self._log_start)
            log_end = None
        if not self.segments:
            self._create_segment(self._log_start)
        if log_end is not None and self._is_clean:
            return log_end, log_end
        log_end = self._end_of(self.segments.active) if log_end is None else log_end
        return log_end, min(self._recovery_point, log_end)

    def _settle_leftovers(self) -> None:
        settle_leftovers(self._fs, self._directory, self._open_segment)

    def _end_of(self, segment: LogSegment) -> int:
        """The offset after the last batch of a segment."""
        return segment.next_offset()

    def _prepare_to_append(self, log_end: int) -> Steps:
        """Make sure that the active segment's indexes end as the log does, and give them room."""
        active = self.segments.active
        if self._is_clean:
            active.note_end(log_end)
        if log_end > active.base_offset:  # else it is empty, or torn and left as Kafka leaves it
            active.check_last_time()
        if active.wrong_index is not None:
            yield from rebuild_indexes(self._fs, active, self._config, is_active=lambda: True)
        active.resize_indexes(self._config.segment_index_bytes)

    def _remove(self, segments: tuple[LogSegment, ...]) -> None:
        """Take segments out of the log, with their snapshots; the files go after the delay."""
        if not segments:
            return
        for segment in reversed(segments):  # the last one first: what a crash leaves has no hole
            self.segments.remove(segment.base_offset)
            rename_deleted(self._fs, self._directory, [segment])
        self._fs.sync_directory(self._directory)
        marked = [self._producers.mark_snapshot_for_deletion(segment.base_offset) for segment in segments]

        paths = [path for path in marked if path is not None]
        self._deferred.after(self._config.file_delete_delay_ms, Deletion(self._fs, segments, paths))

    def _split(self, segment: LogSegment) -> None:
        """Cut a segment whose offsets do not fit into several that do."""
        for gone in split_overflowed(
            self._fs, self._directory, segment, self.segments, self._config, self._clock, self._rng, self._deferred
        ):
            self._producers.mark_snapshot_for_deletion(gone.base_offset)


class _Deferred:
    """What is to be done later, by the log that is not there yet."""

    def __init__(self) -> None:
        self.tasks: list[tuple[int, Task]] = []

    def after(self, delay_ms: float, task: Task, owner: object = None) -> None:
        self.tasks.append((int(delay_ms), task))


class _Overflow(Exception):
    """A segment holds an offset beyond what its indexes can express."""

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(segment)
        self.segment = segment
