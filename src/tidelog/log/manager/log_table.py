"""Which logs there are, and in which roots.

A partition has one log that counts, the current one, and while it is moved to another root a future one there. As long
as it has both it is not cleaned: what the checkpoint of the cleaner says must be true of the copy, too.

Kafka: LogManager, the part that only looks.
"""

import os
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog.errors import InvalidRequestError, InvalidTopicError, LogClosedError
from tidelog.log.files import FileSystem
from tidelog.log.manager.checks import Paths
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.manager.root_set import RootSet
from tidelog.log.names import TopicPartition, check_partition
from tidelog.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from tidelog.log.compaction.log_cleaner import LogCleaner

__all__ = ["LogTable"]


class LogTable:
    """The logs of several roots. `logs` and `future_logs` are views: they change as the logs do."""

    def __init__(self, fs: FileSystem, roots: Paths) -> None:
        self.root_set = RootSet(fs, roots)
        self.cleaner: LogCleaner | None = None
        self.is_loaded = False
        self.is_closed = False
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._future_logs: dict[TopicPartition, UnifiedLog] = {}

    @property
    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """The logs that count."""
        self._ensure_loaded()
        return MappingProxyType(self._logs)

    @property
    def future_logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """The copies of logs that are being moved."""
        self._ensure_loaded()
        return MappingProxyType(self._future_logs)

    @property
    def roots(self) -> tuple[LogRoot, ...]:
        return tuple(self.root_set)

    @property
    def live_roots(self) -> tuple[LogRoot, ...]:
        """The roots that have not failed."""
        return tuple(self.root_set.live)

    def root(self, path: str | os.PathLike[str]) -> LogRoot:
        """The root of a path; raises InvalidRequestError if it is none."""
        return self.root_set.named(path)

    def root_by_directory_id(self, directory_id: uuid.UUID) -> LogRoot | None:
        """The root of an id, live or not; None if no root that could be entered has it."""
        return next((root for root in self.root_set if root.directory_id == directory_id), None)

    def root_of(self, partition: TopicPartition, *, future: bool = False) -> LogRoot | None:
        """The root that a log lies in; None if there is no such log."""
        log = self.get(partition, future=future)
        return None if log is None else self.root_set.of(log)

    @property
    def stopped_epoch(self) -> int | None:
        """The epoch of the broker that stopped here in good order: the same in all roots, or None."""
        epochs = {None if root.failure else root.broker_epoch for root in self.root_set}
        return epochs.pop() if len(epochs) == 1 else None

    @property
    def offline_logs(self) -> dict[TopicPartition, str]:
        """The partitions whose log was lost with its root, and the paths of the roots."""
        return {partition: root.path for root in self.root_set for partition in root.lost}

    def all_logs(self) -> list[UnifiedLog]:
        """Every log, current and future."""
        return [*self._logs.values(), *self._future_logs.values()]

    def logs_of_topic(self, topic: str) -> list[UnifiedLog]:
        """Every log of a topic, current and future."""
        return [log for log in self.all_logs() if log.topic_partition.topic == topic]

    def get(self, partition: TopicPartition, *, future: bool = False) -> UnifiedLog | None:
        """The log of a partition, if there is one."""
        self._ensure_loaded()
        self.check(partition)
        return self.find(partition, future=future)

    def find(self, partition: TopicPartition, *, future: bool = False) -> UnifiedLog | None:
        """The same for whoever knows that it is a partition, also while the logs are loaded."""
        return (self._future_logs if future else self._logs).get(partition)

    def check(self, partition: TopicPartition) -> None:
        """Raise InvalidRequestError unless a log can be of this partition: it could be made here, or it lies here.

        Directories are loaded whose names an older release allowed.
        """
        try:
            check_partition(partition)
        except InvalidTopicError:
            if partition not in self._logs and partition not in self._future_logs:
                raise

    def _ensure_loaded(self) -> None:
        self._ensure_open()
        if not self.is_loaded:
            raise InvalidRequestError("the logs are not loaded yet: use LogManager.open, or run the load_task first")

    def _ensure_open(self) -> None:
        if self.is_closed:
            raise LogClosedError("the log manager is closed")

    def remember(self, root: LogRoot, partition: TopicPartition, log: UnifiedLog, *, is_future: bool = False) -> None:
        """Take a log in."""
        for logs in (self._future_logs, root.future_logs) if is_future else (self._logs, root.logs):
            logs[partition] = log
        if is_future:
            self._pause(partition)

    def forget(self, root: LogRoot, partition: TopicPartition, *, is_future: bool = False) -> None:
        """Let a log out."""
        was_moving = partition in self._future_logs
        for logs in (self._future_logs, root.future_logs) if is_future else (self._logs, root.logs):
            logs.pop(partition, None)
        if is_future and was_moving:
            self._resume(partition)

    def forget_root(self, root: LogRoot) -> None:
        """Let the logs of a root out, which itself still knows them."""
        for partition in root.logs:
            self._logs.pop(partition, None)
        for partition in root.future_logs:
            if self._future_logs.pop(partition, None) is not None:
                self._resume(partition)

    def forget_all(self) -> None:
        """Let every log out."""
        self._logs.clear()
        self._future_logs.clear()

    # -- cleaning ------------------------------------------------------------------------------------------------

    def pause_cleaning(self, partition: TopicPartition) -> None:
        """Give up the cleaning of a partition, if it is under way, and do not begin it before it is resumed.

        Pauses are counted. Where no cleaner runs there is nothing to do.
        """
        self.check(partition)
        self._pause(partition)

    def resume_cleaning(self, partition: TopicPartition) -> None:
        """Undo one pause. InvalidRequestError if there is none, unless no cleaner runs."""
        self.check(partition)
        self._resume(partition)

    def _pause(self, partition: TopicPartition) -> None:
        if self.cleaner is not None:
            self.cleaner.abort_and_pause(partition)

    def _resume(self, partition: TopicPartition) -> None:
        if self.cleaner is not None:
            self.cleaner.resume([partition])

    def set_cleaner(self, cleaner: "LogCleaner") -> None:
        """Have a cleaner from now on. It keeps off the partitions that are being moved."""
        self.cleaner = cleaner
        for partition in self._future_logs:
            self._pause(partition)
