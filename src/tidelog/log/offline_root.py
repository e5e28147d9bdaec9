"""A root that no broker has open, taken to be worked on, and left as a broker would expect it.

    with OfflineRoot("/var/lib/kafka/data") as root:
        for partition in root.partitions("orders"):
            with root.open_log(partition, LogConfig(cleanup_policy=...)) as log: ...

The lock of the root is held, so no broker starts meanwhile. A root that was not closed in good order is refused: its
logs want to be recovered first, by the broker that knows them. From the first log that is opened on the marker of the
clean stop is gone, so that whatever interrupts the work makes the next broker look closely. When every log that was
opened is closed in good order, whatever was found in it, the same marker is put back.

On the local disk new files get the owner and the mode of those that were there, as far as we may: a broker must be able
to open what root has written.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from tidelog.errors import InvalidRequestError, InvalidTopicError, LockedError, StorageError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileLock, FileStat, FileSystem, ensure_named, join, read_whole, write_atomically
from tidelog.log.local_files import LocalFileSystem, ensure_plain_files, own_as, storage_error
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    is_delete_directory,
    is_future_directory,
    is_stray_directory,
    parse_directory_name,
)
from tidelog.log.overlay_files import OverlayFileSystem
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import ensure_no_unfinished_write, journal_path

__all__ = ["OfflineRoot"]

_FILES_OF_A_ROOT = (META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, CLEAN_SHUTDOWN)  # one of them is in every root


class OfflineRoot:
    """One directory of `log.dirs`. With `dry_run` nothing in it is changed, whatever is done to its logs."""

    def __init__(
        self, path: str, *, fs: FileSystem | None = None, clock: Clock | None = None, dry_run: bool = False
    ) -> None:
        fs = LocalFileSystem() if fs is None else fs
        self.path = ensure_named(path).rstrip("/") or "/"
        self.clock = SystemClock() if clock is None else clock
        self.is_dry_run = dry_run
        self._disk = fs
        self._fs: FileSystem = OverlayFileSystem(fs) if dry_run else fs
        self._lock: FileLock | None = None
        self._marker: bytes | None = None  # what the marker said, while it is taken away
        self._owners: dict[str, os.stat_result] = {}  # of the files of the root, as they were
        self._unsettled: list[TopicPartition] = []  # opened, and not closed in good order
        self.unclean_because: str | None = None  # why the marker was not put back

    def __enter__(self) -> "OfflineRoot":
        self._ensure_root()
        self._owners = self._owners_in(self.path)
        try:
            self._lock = self._disk.lock(join(self.path, LOCK_FILE))
        except LockedError as error:
            raise LockedError(f"a broker or another tidelog has {self.path} open: stop it first") from error
        try:
            ensure_no_unfinished_write(self._disk, self.path)
            if not CleanShutdownFile(self._disk, self.path).exists():
                raise StorageError(
                    f"{self.path} was not closed in good order: run `tidelog recover {self.path}`, or start the broker "
                    "on it and stop it, then try again"
                )
        except TidelogError:
            self._unlock()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._marker is not None:
                self._put_marker_back(self._marker)
        finally:
            self._unlock()

    def _put_marker_back(self, marker: bytes) -> None:
        if self._unsettled:
            self.unclean_because = f"{', '.join(map(str, self._unsettled))} could not be closed in good order"
            return
        try:
            self._give_back(self.path, self._owners)
            write_atomically(self._fs, CleanShutdownFile(self._fs, self.path).path, marker)
            self._give_back(self.path, self._owners)
        except StorageError as error:
            self.unclean_because = str(error)

    def _unlock(self) -> None:
        """Leave no lock file behind, as a broker that stops."""
        assert self._lock is not None
        self._disk.remove(join(self.path, LOCK_FILE))
        self._lock.release()

    def _ensure_root(self) -> None:
        found = self._disk.stat(self.path)
        if found is None or not found.is_directory:
            raise InvalidRequestError(f"{self.path} is no directory")
        if any(self._disk.stat(join(self.path, name)) is not None for name in _FILES_OF_A_ROOT):
            return
        if journal_path(self._disk, self.path) is not None:
            return
        if any(name.endswith(".log") for name in self._disk.list(self.path)):
            whole = os.path.abspath(self.path)
            raise InvalidRequestError(
                f"this is the partition {os.path.basename(whole)}: name its parent {os.path.dirname(whole)}"
            )
        one, two, three = _FILES_OF_A_ROOT
        raise InvalidRequestError(
            f"{self.path} is no log directory of a broker: it has neither {one} nor {two} nor {three}"
        )

    # -- what is in it -------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, in order; those on their way out or in are not among them."""
        return sorted(partition for partition in self._all_partitions() if partition.topic == topic)

    @property
    def topics(self) -> list[str]:
        """The topics that have partitions here."""
        return sorted({partition.topic for partition in self._all_partitions()})

    def _all_partitions(self) -> Iterator[TopicPartition]:
        for name in self._disk.list(self.path):
            if is_delete_directory(name) or is_stray_directory(name) or is_future_directory(name):
                continue
            try:
                partition = parse_directory_name(name)
            except InvalidTopicError:  # a file of the root
                continue
            if partition.topic != CLUSTER_METADATA_TOPIC:
                yield partition

    def checkpointed(self, name: str, partition: TopicPartition) -> int | None:
        """The offset of a partition in one of the root's checkpoints."""
        return OffsetCheckpoint(self._fs, join(self.path, name)).read().get(partition)

    # -- work ----------------------------------------------------------------------------------------------------

    @contextmanager
    def open_log(
        self, partition: TopicPartition, config: LogConfig, *, producer_id_expiration_ms: int = 86_400_000
    ) -> Iterator[UnifiedLog]:
        """The log of a partition with what the checkpoints say. Without a high watermark it is the log start."""
        directory = join(self.path, str(partition))
        found = self._look(directory)  # if it cannot even be listed, nothing is touched
        ensure_plain_files(self._disk, directory)
        owners = self._owners_in(directory)
        self._take_marker()
        self._unsettled.append(partition)
        try:
            log = UnifiedLog.open(
                directory,
                config,
                recovery_point=self.checkpointed(RECOVERY_POINT_CHECKPOINT, partition) or 0,
                log_start_offset=self.checkpointed(LOG_START_CHECKPOINT, partition) or 0,
                high_watermark=self.checkpointed(HIGH_WATERMARK_CHECKPOINT, partition),
                clean_shutdown=True,
                producer_id_expiration_ms=producer_id_expiration_ms,
                clock=self.clock,
                fs=self._fs,
                lock=False,  # that of the root is held
            )
        except TidelogError:
            if self._look(directory) == found:  # it was not opened, and is as it was
                self._unsettled.remove(partition)
            self._give_back(directory, owners)
            raise
        try:
            yield log
        finally:
            try:
                if log.failure is None:
                    log.close()
                    self._unsettled.remove(partition)
                else:
                    log.release()  # nothing more can be written
            finally:
                self._give_back(directory, owners)

    def _look(self, directory: str) -> dict[str, FileStat | None]:
        return {name: self._fs.stat(join(directory, name)) for name in self._fs.list(directory)}

    def note_cleaned(self, partition: TopicPartition, first_dirty: int) -> None:
        """Write down up to where a log is clean."""
        checkpoint = OffsetCheckpoint(self._fs, join(self.path, CLEANER_CHECKPOINT))
        checkpoint.write({**checkpoint.read(), partition: first_dirty})

    def _take_marker(self) -> None:
        marker = CleanShutdownFile(self._fs, self.path)
        if self._marker is None:
            self._marker = read_whole(self._fs, marker.path)
            marker.delete()

    # -- whose the files are -------------------------------------------------------------------------------------

    @contextmanager
    def owners_kept(self, directory: str) -> Iterator[None]:
        """Inside, files of a directory may be replaced or added: behind it they have the owners and modes of before."""
        owners = self._owners_in(directory)
        try:
            yield
        finally:
            self._give_back(directory, owners)

    def _owners_in(self, directory: str) -> dict[str, os.stat_result]:
        """Owner and mode of the directory (as ".") and of every file in it; nothing where that is not our matter."""
        if self.is_dry_run or not isinstance(self._disk, LocalFileSystem):
            return {}
        try:
            with os.scandir(directory) as entries:
                found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
            return {".": os.stat(directory)} | {n: found[n] for n in sorted(found) if stat.S_ISREG(found[n].st_mode)}
        except OSError as error:
            raise storage_error(directory, error) from error

    def _give_back(self, directory: str, before: dict[str, os.stat_result]) -> None:
        """Give the files of a directory the owner and the mode they had; new ones those of a file of their kind."""
        by_kind = {_kind(name): model for name, model in reversed(before.items()) if name != "."}
        for name in self._owners_in(directory):
            if name in (".", LOCK_FILE):
                continue
            model = before.get(name) or by_kind.get(_kind(name)) or by_kind.get("log") or by_kind.get("checkpoint")
            wanted = model or before["."]
            mode = stat.S_IMODE(wanted.st_mode) & (0o7777 if model else 0o666)
            own_as(join(directory, name), wanted, mode)


def _kind(name: str) -> str:
    """`log` of 00000000000000000015.log, `checkpoint` of cleaner-offset-checkpoint."""
    return re.split(r"[.-]", name)[-1]
