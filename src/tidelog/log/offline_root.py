"""A root that no broker has open, taken to be worked on, and left as a broker would expect it.

    with OfflineRoot("/var/lib/kafka/data") as root:
        for partition in root.partitions("orders"):
            with root.open_log(partition, LogConfig(cleanup_policy=...)) as log: ...

The lock of the root is held, so no broker starts meanwhile. A root that was not closed in good order is refused: its
logs want to be recovered first, by the broker that knows them. From the first log that is opened on the marker of the
clean stop is gone, so that whatever interrupts the work makes the next broker look closely, and when all is done the
same marker is put back.
"""

from types import TracebackType

from tidelog.errors import InvalidRequestError, InvalidTopicError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileLock, FileSystem, join, read_whole, write_atomically
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

__all__ = ["OfflineRoot"]


class OfflineRoot:
    """One directory of `log.dirs`. With `dry_run` nothing in it is changed, whatever is done to its logs."""

    def __init__(
        self, path: str, *, fs: FileSystem | None = None, clock: Clock | None = None, dry_run: bool = False
    ) -> None:
        if fs is None:
            from tidelog.log.local_files import LocalFileSystem

            fs = LocalFileSystem()
        self.path = path.rstrip("/") or "/"
        self.clock = SystemClock() if clock is None else clock
        self.is_dry_run = dry_run
        self._disk = fs
        self._fs: FileSystem = OverlayFileSystem(fs) if dry_run else fs
        self._lock: FileLock | None = None
        self._marker: bytes | None = None  # what the marker said, while it is taken away

    def __enter__(self) -> "OfflineRoot":
        self._ensure_root()
        self._lock = self._disk.lock(join(self.path, LOCK_FILE))
        try:
            if not CleanShutdownFile(self._disk, self.path).exists():
                raise InvalidRequestError(
                    f"{self.path} was not closed in good order: start the broker on it and stop it, then try again"
                )
        except TidelogError:
            self._unlock()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._marker is not None and kind is None:
                write_atomically(self._fs, CleanShutdownFile(self._fs, self.path).path, self._marker)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        """Leave no lock file behind, as a broker that stops."""
        assert self._lock is not None
        self._disk.remove(join(self.path, LOCK_FILE))
        self._lock.release()

    def _ensure_root(self) -> None:
        found = self._disk.stat(self.path)
        if found is None or not found.is_directory:
            raise InvalidRequestError(f"{self.path} is no directory")
        known = (META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, CLEAN_SHUTDOWN)
        if not any(self._disk.stat(join(self.path, name)) is not None for name in known):
            raise InvalidRequestError(f"{self.path} is no log directory of a broker: it has no {META_PROPERTIES}")

    # -- what is in it -------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, in order; those on their way out or in are not among them."""
        found = []
        for name in self._disk.list(self.path):
            if is_delete_directory(name) or is_stray_directory(name) or is_future_directory(name):
                continue
            try:
                partition = parse_directory_name(name)
            except InvalidTopicError:  # a file of the root
                continue
            if partition.topic == topic and topic != CLUSTER_METADATA_TOPIC:
                found.append(partition)
        return sorted(found)

    def checkpointed(self, name: str, partition: TopicPartition) -> int | None:
        """The offset of a partition in one of the root's checkpoints."""
        return OffsetCheckpoint(self._fs, join(self.path, name)).read().get(partition)

    # -- work ----------------------------------------------------------------------------------------------------

    def open_log(
        self, partition: TopicPartition, config: LogConfig, *, producer_id_expiration_ms: int = 86_400_000
    ) -> UnifiedLog:
        """The log of a partition with what the checkpoints say. Without a high watermark it is the log start."""
        self._take_marker()
        return UnifiedLog.open(
            join(self.path, str(partition)),
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

    def note_cleaned(self, partition: TopicPartition, first_dirty: int) -> None:
        """Write down up to where a log is clean."""
        checkpoint = OffsetCheckpoint(self._fs, join(self.path, CLEANER_CHECKPOINT))
        checkpoint.write({**checkpoint.read(), partition: first_dirty})

    def _take_marker(self) -> None:
        marker = CleanShutdownFile(self._fs, self.path)
        if self._marker is None:
            self._marker = read_whole(self._fs, marker.path)
            marker.delete()
