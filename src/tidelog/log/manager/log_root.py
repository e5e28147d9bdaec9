"""A root: one directory of `log.dirs`, with its lock, its identity, its checkpoints and its logs.

    meta.properties                     whose it is; without it the root has no id
    .lock                               held while somebody has the root
    .kafka_cleanshutdown                left by an orderly stop, taken away by the next start
    recovery-point-offset-checkpoint    up to where each log is on the disk: recovery begins there
    log-start-offset-checkpoint         where each log begins, unless that is where its first segment does
    replication-offset-checkpoint       the high watermark of each log
    cleaner-offset-checkpoint           up to where each log is compacted

What a disk refuses takes its root offline, and the other roots go on. A root that somebody else has is another matter:
two owners would destroy it, so nothing starts.

Kafka: LogManager, as far as it is about one directory.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import CheckpointError, StorageError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.files import FileLock, FileSystem, join, make_lasting_directory
from tidelog.log.manager.log_directories import DirectoryKind, LogDirectory, list_directories
from tidelog.log.manager.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from tidelog.log.manager.root_checkpoint import RootCheckpoint
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    OLD_JOURNALS,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import read_journal

__all__ = ["Bound", "LogRoot", "normal_path"]


class Bound(NamedTuple):
    """What a log is not above after a truncation, and after a crash in the middle of it."""

    flushed: int  # the recovery point
    end: int  # the log end, and with it the high watermark
    log_start: int


def normal_path(path: str | os.PathLike[str]) -> str:
    """The absolute path of a root, however it is written.

    >>> normal_path("/var/lib//kafka/../kafka/data/")
    '/var/lib/kafka/data'
    """
    return "/" + os.path.abspath(os.fspath(path)).lstrip("/")  # two slashes at the front are left by abspath


class LogRoot:
    """One root. `enter` takes it, `leave` gives it back; `failure` says why it is offline."""

    def __init__(self, fs: FileSystem, path: str | os.PathLike[str]) -> None:
        self.path = normal_path(path)
        self.failure: StorageError | None = None
        self.meta: MetaProperties | None = None
        self.was_bare = False  # nothing told those who opened a log by hand that it lies in a root
        self.was_clean = False  # the last stop was orderly
        self.broker_epoch: int | None = None  # of the broker that stopped in good order
        self.is_loaded = False  # every log that lies here is open
        self.is_torn = False  # the loading of a log was begun and not finished
        self.is_let_go = False  # it has failed, and nothing of it is in use any more
        self.lost: tuple[TopicPartition, ...] = ()  # the partitions that were in it when it failed
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.future_logs: dict[TopicPartition, UnifiedLog] = {}
        self.unloaded: dict[str, LogDirectory] = {}  # by path: those to be opened
        self.deleted: list[LogDirectory] = []  # that lay here when it was entered
        self.stray: list[str] = []
        # The names of directories whose logs were begun and not opened, of partitions and of their future logs.
        self.half_made: dict[tuple[TopicPartition, bool], str] = {}
        self.recovery_points = self._checkpoint(fs, RECOVERY_POINT_CHECKPOINT)
        self.log_starts = self._checkpoint(fs, LOG_START_CHECKPOINT)
        self.high_watermarks = self._checkpoint(fs, HIGH_WATERMARK_CHECKPOINT)
        self.cleaner_checkpoint = OffsetCheckpoint(fs, join(self.path, CLEANER_CHECKPOINT))
        self._fs = fs
        self._lock: FileLock | None = None
        self._marker = CleanShutdownFile(fs, self.path)
        self._is_begun = False  # the marker is gone and the checkpoints are known

    def __repr__(self) -> str:
        return f"LogRoot({self.path!r}{', offline' if self.failure else ''})"

    def _checkpoint(self, fs: FileSystem, name: str) -> RootCheckpoint:
        return RootCheckpoint(OffsetCheckpoint(fs, join(self.path, name)))

    @property
    def directory_id(self) -> uuid.UUID | None:
        """The id in `meta.properties`; None where there is none."""
        return None if self.meta is None else self.meta.directory_id

    @property
    def log_count(self) -> int:
        """How many logs lie here: a new one goes where there are fewest."""
        return len(self.logs) + len(self.future_logs)

    # -- entering and leaving ------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Make the directory if it is missing, lock it, and read whose it is and how it was left.

        Raises LockedError where somebody has it, and StorageError for whatever else makes it unusable.
        """
        self._make()
        self._fs.list(self.path)  # can it be read
        self.was_bare = all(self._fs.stat(join(self.path, name)) is None for name in (LOCK_FILE, META_PROPERTIES))
        self._lock = self._fs.lock(join(self.path, LOCK_FILE))
        try:
            self.meta = read_meta_properties(self._fs, self.path)
            self.was_clean = self._marker.exists()
            self.broker_epoch = self._marker.read()
        except CheckpointError as error:
            self.leave()
            raise StorageError(str(error)) from error
        except StorageError:
            self.unlock()
            raise

    def _make(self) -> None:
        found = self._fs.stat(self.path)
        if found is not None:
            if not found.is_directory:
                raise StorageError(f"{self.path} is not a directory")
            return
        make_lasting_directory(self._fs, self.path)

    def write_meta(self, meta: MetaProperties, now_ms: int) -> None:
        """Give the root an identity. Nothing here does so by itself."""
        write_meta_properties(self._fs, self.path, meta, now_ms)
        self.meta = meta

    def unlock(self) -> None:
        """Let others in; nothing is written, as for a root that failed."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def leave(self) -> None:
        """Let others in, without a trace: the lock file goes first, while nobody else can have it."""
        if self._lock is not None:
            try:
                self._fs.remove(join(self.path, LOCK_FILE))
            finally:
                self.unlock()

    def let_go(self) -> None:
        """Give everything back without a write: the root has failed."""
        assert self.failure is not None
        self.is_let_go = True
        self.lost = tuple(self.logs)
        for log in self._all_logs():
            log.fail(self.failure)
            log.release()
        self.logs.clear()
        self.future_logs.clear()
        self.unlock()

    def close(self, broker_epoch: int) -> list[TidelogError]:
        """Close every log and let others in; what could not be done.

        The marker of a clean stop is left only if all went well, and if nothing in here was left half loaded.
        """
        errors: list[TidelogError] = []
        for log in self._all_logs():
            try:
                log.close()
            except TidelogError as error:
                errors.append(error)
        try:
            if self._is_begun and not errors:
                self.write_starts()
                self.write_recovery_points()
                self.write_high_watermarks()
                is_whole = self.is_loaded or (self.was_clean and not self.is_torn)
                if is_whole and not self._has_half_made():
                    self._marker.write(broker_epoch)
            self.leave()
        except StorageError as error:
            errors.append(error)
        finally:
            self.unlock()
        return errors

    def _has_half_made(self) -> bool:
        """Whether the directory of a log lies here whose creation failed: it must not pass for one that was closed."""
        return any(self._fs.stat(join(self.path, name)) is not None for name in self.half_made.values())

    # -- loading -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Find out what lies here. Raises InvalidTopicError for a directory that does not belong here.

        A write that an earlier build of tidelog has left unfinished is no directory, and raises CheckpointError.
        """
        if any(self._fs.stat(join(self.path, name)) is not None for name in OLD_JOURNALS):
            read_journal(self._fs, self.path)
        for directory in list_directories(self._fs, self.path):
            if directory.kind is DirectoryKind.DELETED:
                self.deleted.append(directory)
            elif directory.kind is DirectoryKind.STRAY:
                self.stray.append(directory.path)
            else:
                self.unloaded[directory.path] = directory

    def begin(self) -> list[CheckpointError]:
        """Take the marker away, for good, and read the checkpoints; those that are not of their form count as empty."""
        self._marker.delete()
        self._is_begun = True
        checkpoints = (self.recovery_points, self.log_starts, self.high_watermarks)
        return [problem for problem in [checkpoint.load() for checkpoint in checkpoints] if problem is not None]

    def fail(self, error: StorageError) -> None:
        """Note why the root is offline. Nothing is written here any more."""
        if self.failure is None:
            self.failure = error
        for checkpoint in (self.recovery_points, self.log_starts, self.high_watermarks):
            checkpoint.stop()

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def recovery_offsets(self) -> dict[TopicPartition, int]:
        """The recovery point of every log of this root."""
        return self._kept(self.recovery_points) | {log.topic_partition: log.recovery_point for log in self._all_logs()}

    def start_offsets(self) -> dict[TopicPartition, int]:
        """The log starts that the first segment does not tell."""
        return self._kept(self.log_starts) | {
            log.topic_partition: log.log_start_offset
            for log in self._all_logs()
            if log.log_start_offset > log.local.segments.first.base_offset or log.config.remote_storage_enable
        }

    def high_watermark_offsets(self) -> dict[TopicPartition, int]:
        """The high watermarks that are known.

        Kafka names a partition here once the broker leads or follows it. An entry for one whose high watermark nobody
        has set would hide all of its records from readers, who take a partition without an entry to its log end.
        """
        logs = {log.topic_partition: log for log in self._all_logs()}
        known = {partition: log.high_watermark for partition, log in logs.items() if log.watermarks.is_known}
        return self._kept(self.high_watermarks) | known

    def _all_logs(self) -> Iterable[UnifiedLog]:
        """Every log. Where a current and a future one of a partition lie in one root, the current one has the word."""
        return (*self.future_logs.values(), *self.logs.values())

    def _kept(self, checkpoint: RootCheckpoint) -> dict[TopicPartition, int]:
        """The entries of logs that are not loaded yet, or never will be: nobody knows better."""
        if not self.unloaded:
            return {}
        entries = checkpoint.entries
        listed = [directory.partition for directory in self.unloaded.values() if directory.partition in entries]
        return {partition: entries[partition] for partition in listed}

    def write_starts(self) -> None:
        """Write where logs start."""
        self.log_starts.write(self.start_offsets())

    def write_recovery_points(self) -> None:
        """Write how much of each log is on the disk. After the log starts: it speaks of a log that starts there."""
        self.recovery_points.write(self.recovery_offsets())

    def write_high_watermarks(self) -> None:
        """Write the high watermark of each log."""
        self.high_watermarks.write(self.high_watermark_offsets())

    def lower(self, bounds: Mapping[TopicPartition, Bound]) -> None:
        """Lower what the files say of logs that are about to be truncated, so that a crash behind it finds no offset
        in them that is above what is left.
        """
        for checkpoint, offsets, limits in (
            (self.log_starts, self.start_offsets(), {tp: bound.log_start for tp, bound in bounds.items()}),
            (self.recovery_points, self.recovery_offsets(), {tp: bound.flushed for tp, bound in bounds.items()}),
            (self.high_watermarks, self.high_watermark_offsets(), {tp: bound.end for tp, bound in bounds.items()}),
        ):
            checkpoint.supersede()
            if any((checkpoint.get(partition) or 0) > limit for partition, limit in limits.items()):
                checkpoint.write({tp: min(offset, limits.get(tp, offset)) for tp, offset in offsets.items()})

    def forget(self, partition: TopicPartition) -> None:
        """Take out of the files what they say of a log that is gone, before another of its name is made."""
        for checkpoint in (self.log_starts, self.recovery_points, self.high_watermarks):
            checkpoint.supersede()
            if partition in checkpoint.entries:
                checkpoint.write({tp: offset for tp, offset in checkpoint.entries.items() if tp != partition})
        self.forget_cleaning(partition)

    # -- the checkpoint of the cleaner ---------------------------------------------------------------------------
    # A cleaner that runs reads the file whenever it looks for work, so what is changed here it knows at once.

    def forget_cleaning(self, partition: TopicPartition) -> None:
        """Take out of the file up to where a log that is gone was clean: what another of its name holds is not."""
        entries = self._cleaned()
        if entries.pop(partition, None) is not None:
            self.cleaner_checkpoint.write(entries)

    def lower_cleaning(self, partition: TopicPartition, offset: int) -> None:
        """Have the file say that a log is clean below `offset` at most."""
        entries = self._cleaned()
        if entries.get(partition, offset) > offset:
            self.cleaner_checkpoint.write({**entries, partition: offset})

    def _cleaned(self) -> dict[TopicPartition, int]:
        """What the file says. One that is not of its form says nothing of anybody; a cleaner refuses it anyhow."""
        try:
            return self.cleaner_checkpoint.read()
        except CheckpointError:
            return {}
