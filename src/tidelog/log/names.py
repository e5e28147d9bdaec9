"""What files and directories are called, and what their names say.

    <root>/orders-0/00000000000000000000.log
           ^^^^^^^^ topic, "-", partition: cut at the last dash
                    ^^^^^^^^^^^^^^^^^^^^ base offset in 20 digits, so that names sort as offsets do

A segment is up to four files of one base offset: `.log` (batches), `.index` (offset to position), `.timeindex` (time
to offset) and `.txnindex` (aborted transactions, absent until there is one). `.snapshot` is the state of the producers
just before an offset. What is not, or no longer, part of the log has a second suffix behind the whole name: `.deleted`
will be removed, `.cleaned` is being written, `.swap` is complete and about to take its final name.

A partition directory that is on its way out, or in, is called `orders-0.<uid>-delete`, `-stray` or `-future`, where
the uid is 32 hexadecimal digits. File systems allow 255 characters, so the topic is cut in `-delete` and `-stray`
names that would be longer: the topic read from such a name may lack its end.

Kafka: LogFileUtils, LocalLog and Topic.
"""

import random
import re
import uuid
from typing import NamedTuple

from tidelog.errors import CorruptionError, InvalidRequestError, InvalidTopicError
from tidelog.records.java import MAX_INT32

__all__ = [
    "BOOTSTRAP_CHECKPOINT",
    "CHECKPOINT_DELETED",
    "CLEANED",
    "CLEANER_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "CLUSTER_METADATA_DIRECTORY",
    "CLUSTER_METADATA_TOPIC",
    "COMMITTED_BATCHES",
    "DELETED",
    "DELETE_DIRECTORY",
    "FUTURE_DIRECTORY",
    "HIGH_WATERMARK_CHECKPOINT",
    "INDEX_SUFFIX",
    "INTERNAL_TOPICS",
    "JOURNAL_ASIDE",
    "JOURNAL_FILE",
    "LEADER_EPOCH_CHECKPOINT",
    "LOCK_FILE",
    "LOG_START_CHECKPOINT",
    "LOG_SUFFIX",
    "META_PROPERTIES",
    "OLD_JOURNALS",
    "PARTITION_METADATA",
    "RECOVERY_POINT_CHECKPOINT",
    "REMOTE_INDEX_CACHE",
    "SEGMENT_SUFFIXES",
    "SNAPSHOT_SUFFIX",
    "STAGED_FILE",
    "STRAY_DIRECTORY",
    "SWAP",
    "TIME_INDEX_SUFFIX",
    "TXN_INDEX_SUFFIX",
    "UNFINISHED_WRITE",
    "TopicPartition",
    "check_directory_name",
    "check_partition",
    "check_topic_name",
    "delete_directory_name",
    "file_name",
    "future_directory_name",
    "is_delete_directory",
    "is_future_directory",
    "is_index_file",
    "is_segment_file",
    "is_stray_directory",
    "new_uid",
    "offset_of",
    "parse_directory_name",
    "stray_directory_name",
    "topics_collide",
]

# Files of a segment, and the snapshots beside them.
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SNAPSHOT_SUFFIX = ".snapshot"

# Behind the whole name.
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
CHECKPOINT_DELETED = ".checkpoint.deleted"  # of the metadata log, whose snapshots are not ours to remove

# Other files of a partition directory.
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

# Files and directories of a root.
META_PROPERTIES = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
REMOTE_INDEX_CACHE = "remote-log-index-cache"
COMMITTED_BATCHES = "tidelog-commit.batches"  # ours: the last batch of each of Spark's streams that is committed

# Ours, while a load or a write of Spark's is unfinished: a directory whose name is not that of a partition. Kafka does
# not start on a root that holds one, and its error names the directory: the name says what to do.
UNFINISHED_WRITE = "unfinished-write.run-tidelog-recover"
JOURNAL_FILE = "journal"  # in it
JOURNAL_ASIDE = f"tidelog-journal-0.{32 * '0'}-delete"  # the directory before and after: Kafka removes it
OLD_JOURNALS = ("tidelog-commit.journal", "tidelog-load.journal")  # files that earlier builds of tidelog left

STAGED_FILE = "staged.batches"  # ours: what a task of Spark's has written, alone in a directory that is marked -delete

# Behind the name of a partition directory and a uid.
DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
CLUSTER_METADATA_DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"  # it has one partition
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_MAX_DIRECTORY_NAME = 255
_MAX_TOPIC_NAME = 249
_MAX_OFFSET = 2**63 - 1

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OFFSET = re.compile(r"[0-9]{1,20}")
_PARTITION = re.compile(
    r"\+?((?![\U00010000-\U0010ffff])\d){1,255}"
)  # Java reads a plus sign, leading zeros, other scripts
# Kafka's pattern is (\S+)-(\S+)\.(\S+)-delete. This one takes the same names, but looks at each character once.
_MARKED = re.compile(r"\S[^\s-]*-\S[^\s.]*\.\S+(-delete|-future|-stray)", re.ASCII)


class TopicPartition(NamedTuple):
    """A partition of a topic. As text it is the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def file_name(offset: int, suffix: str) -> str:
    """The name of a file of the segment, or of the snapshot, at an offset.

    >>> file_name(5120, LOG_SUFFIX)
    '00000000000000005120.log'
    """
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int:
    """The offset that a file name begins with; raises CorruptionError if it begins with anything else.

    >>> offset_of("00000000000000005120.timeindex.deleted")
    5120
    """
    digits, dot, _ = name.partition(".")
    if not dot or not _OFFSET.fullmatch(digits) or int(digits) > _MAX_OFFSET:
        raise CorruptionError(f"{name!r}: the name of a segment file or snapshot begins with an offset and a dot")
    return int(digits)


def is_segment_file(name: str) -> bool:
    """Whether a name is that of a log or of one of its indexes, in use: without a second suffix.

    The suffix alone decides, as in Kafka. A name that has one and no offset in front of it is refused by `offset_of`:
    it cannot be anything but damage.
    """
    return name.endswith(SEGMENT_SUFFIXES)


def is_index_file(name: str) -> bool:
    """Whether a name is that of an index of any of the three kinds, in use."""
    return name.endswith(SEGMENT_SUFFIXES[1:])


def parse_directory_name(name: str) -> TopicPartition:
    """The partition that a directory belongs to, also when it is marked `-delete`, `-future` or `-stray`.

    >>> parse_directory_name("orders-eu-3")
    TopicPartition(topic='orders-eu', partition=3)

    Raises InvalidTopicError for any other name. The topic is not checked any further: directories are read that an
    older release allowed.
    """
    plain = name
    if name.endswith((DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY)):
        plain = name.rpartition(".")[0] if _MARKED.fullmatch(name) else ""
    topic, _, partition = plain.rpartition("-")
    if not topic or not _PARTITION.fullmatch(partition) or int(partition) > MAX_INT32:
        raise InvalidTopicError(
            f"{name!r} is not the directory of a partition: such names are topic-partition, "
            "or topic-partition.uid-delete (-future, -stray)"
        )
    return TopicPartition(topic, int(partition))


def new_uid(rng: random.Random) -> str:
    """What makes the name of a marked directory unique: a random UUID of version 4 in 32 hexadecimal digits."""
    return uuid.UUID(int=rng.getrandbits(128), version=4).hex


def delete_directory_name(partition: TopicPartition, uid: str) -> str:
    """The name of a directory that waits to be removed, at most 255 characters.

    >>> delete_directory_name(TopicPartition("orders", 0), "7c" * 16)
    'orders-0.7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c-delete'
    """
    return _capped_name(partition, uid, DELETE_DIRECTORY)


def stray_directory_name(partition: TopicPartition, uid: str) -> str:
    """The name of a directory that nobody assigned to this broker, at most 255 characters."""
    return _capped_name(partition, uid, STRAY_DIRECTORY)


def future_directory_name(partition: TopicPartition, uid: str) -> str:
    """The name of a replica that is being moved in from another root. Not capped: its topic is needed whole."""
    return f"{partition}.{uid}{FUTURE_DIRECTORY}"


def _capped_name(partition: TopicPartition, uid: str, suffix: str) -> str:
    rest = f"-{partition.partition}.{uid}{suffix}"
    return partition.topic[: _MAX_DIRECTORY_NAME - len(rest)] + rest


def is_delete_directory(name: str) -> bool:
    """Whether a directory waits to be removed."""
    return _is_marked(name, DELETE_DIRECTORY)


def is_future_directory(name: str) -> bool:
    """Whether a directory is being moved in from another root."""
    return _is_marked(name, FUTURE_DIRECTORY)


def is_stray_directory(name: str) -> bool:
    """Whether a directory was set aside because nobody assigned it."""
    return _is_marked(name, STRAY_DIRECTORY)


def _is_marked(name: str, suffix: str) -> bool:
    marked = _MARKED.fullmatch(name)
    return marked is not None and marked[1] == suffix


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError unless a topic can be created under this name."""
    if not name:
        raise InvalidTopicError("a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic cannot be called {name!r}")
    if len(name) > _MAX_TOPIC_NAME:
        raise InvalidTopicError(f"a topic name of {len(name)} characters; {_MAX_TOPIC_NAME} are allowed: {name!r}")
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopicError(f"topic names are made of ASCII letters, digits, '.', '_' and '-': {name!r}")


def check_directory_name(name: str) -> None:
    """Raise InvalidTopicError unless a directory of a partition can be made under this name.

    Kafka checks the names of topics where they are created, not where they are stored: a topic may be a little longer
    here, as long as its directory fits.
    """
    if len(name) > _MAX_DIRECTORY_NAME:
        raise InvalidTopicError(f"a directory name of {len(name)} characters; {_MAX_DIRECTORY_NAME} fit: {name!r}")
    topic = parse_directory_name(name).topic
    if not _TOPIC_NAME.fullmatch(topic):
        raise InvalidTopicError(f"topic names are made of ASCII letters, digits, '.', '_' and '-': {topic!r}")


def check_partition(partition: object) -> None:
    """Raise InvalidRequestError unless this is a TopicPartition whose log can have a directory.

    Its parts must be a text and a number, and nothing that is merely equal to them or looks like them: the directory is
    named after what is printed, and the log is found again by what is equal.

    >>> check_partition(TopicPartition("orders", "0"))
    Traceback (most recent call last):
    tidelog.errors.InvalidRequestError: the number of a partition is an int from 0 to 2147483647, not '0'
    """
    if not isinstance(partition, TopicPartition):
        raise InvalidRequestError(f"pass a TopicPartition, not {partition!r}")
    topic, number = partition
    if type(number) is not int or not 0 <= number <= MAX_INT32:
        raise InvalidRequestError(f"the number of a partition is an int from 0 to {MAX_INT32}, not {number!r}")
    if type(topic) is not str:
        raise InvalidRequestError(f"the name of a topic is a str, not {topic!r}")
    if topic in ("", ".", ".."):
        raise InvalidTopicError(f"a topic cannot be called {topic!r}")
    check_directory_name(str(partition))


def topics_collide(one: str, other: str) -> bool:
    """Whether two topics are called the same where `.` and `_` are not told apart, as in names of metrics.

    >>> topics_collide("orders.eu", "orders_eu"), topics_collide("orders.eu", "orders-eu")
    (True, False)
    """
    return one.replace(".", "_") == other.replace(".", "_")
