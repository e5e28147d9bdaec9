"""What lies in a root: which of its directories are logs, and in which state.

    orders-0                       a partition
    orders-0.<uid>-future          the copy of a partition that is being moved here from another root
    orders-0.<uid>-delete          on its way out: removed after the delay, also when the broker was stopped meanwhile
    orders-0.<uid>-stray           set aside, because nobody assigned it to this broker; never touched again
    __cluster_metadata-0           the log of the metadata quorum, which has an owner of its own
    remote-log-index-cache         of tiered storage

A directory of any other name does not belong here, and a start that finds one ends: whoever put it there, by mistake
perhaps, wants to know. So does a start on a root with an unfinished write (`tidelog.log.write_journal`). Files are not
looked at.

Kafka: LogManager.loadLogs and isStrayKraftReplica.
"""

import uuid
from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from tidelog.errors import InvalidTopicError
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_INDEX_CACHE,
    UNFINISHED_WRITE,
    TopicPartition,
    is_delete_directory,
    is_future_directory,
    is_stray_directory,
    parse_directory_name,
)
from tidelog.log.unified_log import UnifiedLog

__all__ = ["DirectoryKind", "LogDirectory", "list_directories", "not_assigned_to"]


class DirectoryKind(Enum):
    """What the name of a directory says about the log in it."""

    CURRENT = "current"
    FUTURE = "future"
    DELETED = "deleted"
    STRAY = "stray"


class LogDirectory(NamedTuple):
    """A directory of a root. Of one that is deleted or stray, the topic may lack its end."""

    path: str
    partition: TopicPartition
    kind: DirectoryKind


def list_directories(fs: ReadFileSystem, root: str) -> list[LogDirectory]:
    """The logs of a root, sorted by name. Raises InvalidTopicError for a directory that is none."""
    found = []
    for name in fs.list(root):
        path = join(root, name)
        about = fs.stat(path)
        if about is None or not about.is_directory or name == REMOTE_INDEX_CACHE:
            continue
        if name == UNFINISHED_WRITE:
            raise InvalidTopicError(f"{path}: a write was interrupted; run `tidelog recover {root}` first")
        try:
            partition = parse_directory_name(name)
        except InvalidTopicError as error:
            raise InvalidTopicError(f"{path} does not belong into a log directory: {error}") from error
        if partition.topic != CLUSTER_METADATA_TOPIC:
            found.append(LogDirectory(path, partition, _kind_of(name)))
    return found


def _kind_of(name: str) -> DirectoryKind:
    if is_delete_directory(name):
        return DirectoryKind.DELETED
    if is_stray_directory(name):
        return DirectoryKind.STRAY
    return DirectoryKind.FUTURE if is_future_directory(name) else DirectoryKind.CURRENT


def not_assigned_to(
    broker_id: int, replicas_of: Callable[[uuid.UUID, int], Collection[int] | None]
) -> Callable[[UnifiedLog], bool]:
    """Whether a log is none of this broker's, by the cluster's metadata: what a broker gives to a LogManager.

    `replicas_of` knows which brokers have a partition, by topic id and number; None where there is no such topic, or
    no such partition. A topic that was deleted and created again has another id, so what is left of the old one is
    nobody's. So is a log without an id: nothing was ever appended to it.
    """

    def is_stray(log: UnifiedLog) -> bool:
        if log.topic_id is None:
            return True
        replicas = replicas_of(log.topic_id, log.topic_partition.partition)
        return replicas is None or broker_id not in replicas

    return is_stray
