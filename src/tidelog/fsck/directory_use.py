"""What a node uses a directory for: the logs of a broker, or the metadata log alone.

A controller has no other logs, and neither has a `metadata.log.dir` outside of `log.dirs`. Kafka creates no checkpoints
there, leaves no mark of a clean stop, and does not look at what else lies in the directory.

Kafka: KafkaRaftManager for the metadata log, LogManager for everything else.
"""

from tidelog.errors import InvalidTopicError
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_DIRECTORY,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    parse_directory_name,
)

__all__ = ["CHECKPOINTS", "has_metadata_only", "is_of_broker", "is_partition_name"]

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
_OF_A_BROKER = (*CHECKPOINTS, CLEAN_SHUTDOWN)


def is_of_broker(fs: ReadFileSystem, root: str) -> bool:
    """Whether a broker has had a directory among its `log.dirs`: it creates checkpoints before it loads a log.

    False for one that was formatted only, too.
    """
    return any(
        name in _OF_A_BROKER or (name != CLUSTER_METADATA_DIRECTORY and is_partition_name(name))
        for name in fs.list(root)
    )


def has_metadata_only(fs: ReadFileSystem, root: str) -> bool:
    """Whether a directory holds the metadata log, and is none of a broker's `log.dirs`."""
    return fs.stat(join(root, CLUSTER_METADATA_DIRECTORY)) is not None and not is_of_broker(fs, root)


def is_partition_name(name: str) -> bool:
    """Whether a directory of this name holds a partition, or what is left of one."""
    try:
        parse_directory_name(name)
    except InvalidTopicError:
        return False
    return True
