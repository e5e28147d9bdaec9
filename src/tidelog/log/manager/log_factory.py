"""Opening the logs of a manager: each with the config of its topic and what the checkpoints of its root say.

The manager holds the lock of the root, so a log takes none of its own.

Kafka: LogManager.loadLog and getOrCreateLog.
"""

import random
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.clock import Clock
from tidelog.log.files import FileSystem, join, no_turning_back
from tidelog.log.loader import LogLoader
from tidelog.log.manager.log_directories import LogDirectory
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.manager.manager_config import ManagerConfig
from tidelog.log.manager.topic_configs import TopicConfigs
from tidelog.log.names import TopicPartition
from tidelog.log.tasks import Call, Schedule
from tidelog.log.unified_log import UnifiedLog

__all__ = ["LogFactory"]


class LogFactory(NamedTuple):
    """What all logs of a manager have in common."""

    fs: FileSystem
    clock: Clock
    rng: random.Random
    schedule: Schedule
    config: ManagerConfig
    configs: TopicConfigs
    on_failure: Callable[[str, StorageError], None]

    def loader(self, root: LogRoot, directory: LogDirectory) -> LogLoader:
        """For a log that lies in a root. Raises LockedError if somebody has it open, from before we had the root."""
        if root.was_bare:  # else they have the lock of the root
            self.fs.lock(directory.path).release()
        partition = directory.partition
        return self._loader(
            directory.path,
            partition.topic,
            recovery_point=max(root.recovery_points.get(partition) or 0, 0),
            log_start_offset=max(root.log_starts.get(partition) or 0, 0),
            is_clean=root.was_clean,
        )

    def make_directory(self, root: LogRoot, partition: TopicPartition, name: str) -> None:
        """Make the directory of a new log. What the checkpoints say of one of its name that is gone, goes before."""
        root.forget(partition)
        with _at_once(partition, name):
            self.fs.make_directory(join(root.path, name))
            self.fs.sync_directory(root.path)

    def open_new(self, root: LogRoot, partition: TopicPartition, name: str, topic_id: uuid.UUID | None) -> UnifiedLog:
        """The log of a directory that is new, or was found there unasked."""
        directory = join(root.path, name)
        with _at_once(partition, name):
            is_empty = not self.fs.list(directory)
            loader = self._loader(directory, partition.topic, is_clean=is_empty)
            log = loader.load(topic_id=topic_id, on_failure=self.on_failure)
        if is_empty:
            log.update_high_watermark(0)  # it holds nothing, so that much is known of its replicas
        if topic_id is not None:
            self.write_topic_id(log)
        return log

    def write_topic_id(self, log: UnifiedLog) -> None:
        """Soon, write the topic id, so that a log without data is known after a crash, too."""
        log.tasks.soon(Call("write topic id", log.flush_partition_metadata, waits_for_disk=True))

    def _loader(
        self,
        directory: str,
        topic: str,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_clean: bool = False,
    ) -> LogLoader:
        return LogLoader(
            directory,
            self.configs.of(topic),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=is_clean,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            producer_id_expiration_check_interval_ms=self.config.producer_id_expiration_check_interval_ms,
            verification=self.config.verification,
            clock=self.clock,
            fs=self.fs,
            rng=self.rng,
            schedule=self.schedule,
            lock=False,
        )


def _at_once(partition: TopicPartition, name: str) -> AbstractContextManager[None]:
    """What is said of a log whose directory has a name of its own each time: half made, it would be a second copy.

    One that is called after its partition can be made to the end whenever somebody asks for it again.
    """
    return nullcontext() if name == str(partition) else no_turning_back()
