"""The options of a write, understood: where to, which topic, and how its log is made."""

import uuid
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog.columns import ColumnEncoder
from tidelog.columns.dealt_encoder import DealtEncoder
from tidelog.errors import InvalidRequestError, InvalidTopicError
from tidelog.log.config import LogConfig
from tidelog.log.files import ReadFileSystem
from tidelog.log.names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, check_topic_name
from tidelog.log.partition_metadata import ZERO_UUID, parse_uuid
from tidelog.spark.option_values import OptionValues, parsed_json, shown
from tidelog.spark.places import Places
from tidelog.tables.broker_dirs import BrokerDirs

__all__ = ["WriteOptions", "ensure_writable_topic", "unwritten_words"]

_NO_PATH = (
    "no path: name the log directory to write to, as in .save('/var/lib/kafka'), "
    "for a stream .start('/var/lib/kafka'), or .option('path', ...)"
)
_OTHER_DIRS = "write with `tidelog load --config server.properties`"
_OTHER_OR_ONLY_DIR = f"{_OTHER_DIRS}, or set the option onlyLogDir=true if the broker has no other"
_BATCH_BYTES = 64 << 10
_SIZES = ("segment.bytes", "index.interval.bytes", "max.message.bytes")
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
_MOST_PARTITIONS = 1_000_000  # each is a directory, with files that are made and synced


class WriteOptions(NamedTuple):
    """What a write was told. It can be pickled."""

    root: str
    topic: str | None = None
    partitions: int | None = None
    topic_id: uuid.UUID | None = None
    overwrite: bool = False
    codec: str = "none"
    batch_bytes: int = _BATCH_BYTES
    configs: tuple[tuple[str, str], ...] = ()
    lock_timeout_ms: int = _MINUTE_MS
    staging_retention_ms: int = _DAY_MS
    partitions_by_topic: tuple[tuple[str, int], ...] = ()
    is_only_log_dir: bool = False

    @property
    def wanted(self) -> int | dict[str, int] | None:
        """How many partitions new topics get: all of them, or each."""
        return dict(self.partitions_by_topic) or self.partitions

    @classmethod
    def of(cls, values: OptionValues, *, overwrite: bool) -> "WriteOptions":
        """What options say."""
        topic, topic_id = values.text("topic"), values.text("topicId")
        by_topic = _by_topic(values)
        if topic is not None and by_topic and topic not in by_topic:
            raise InvalidRequestError(f"partitions names {_named(by_topic)}, and the topic that is written is {topic}")
        default = LogConfig()
        sizes = {name: values.size(name, default=getattr(default, name.replace(".", "_"))) for name in _SIZES}
        options = cls(
            root=_root_of(values),
            topic=topic,
            partitions=values.positive("partitions") if not by_topic else by_topic.get(topic or ""),
            topic_id=None if topic_id is None else parse_uuid(topic_id),
            overwrite=overwrite,
            codec=values.text("compression") or "none",
            batch_bytes=values.size("batch.bytes", default=_BATCH_BYTES),
            configs=tuple((name, str(size)) for name, size in sizes.items()),
            lock_timeout_ms=values.duration_ms("lockTimeout", default=_MINUTE_MS),
            staging_retention_ms=values.duration_ms("stagingRetention", default=_DAY_MS),
            partitions_by_topic=() if topic is not None else tuple(by_topic.items()),
            is_only_log_dir=values.flag("onlyLogDir", default=False),
        )
        options._ensure_sound(values)
        return options

    def _ensure_sound(self, values: OptionValues) -> None:
        """Refuse on the driver what would be refused by every task."""
        ColumnEncoder(codec=self.codec, batch_size=self.batch_bytes)
        LogConfig.from_properties(dict(self.configs))
        if self.topic is not None:
            ensure_writable_topic(self.topic)
        for count in (self.partitions, *dict(self.partitions_by_topic).values()):
            if count is not None and count > _MOST_PARTITIONS:
                raise InvalidRequestError(f"partitions={count}: a topic gets {_MOST_PARTITIONS} at most")
        if self.topic_id == ZERO_UUID:
            raise InvalidRequestError("topicId is zero, by which Kafka means that there is no id: leave it out")
        if self.overwrite and not values.flag("overwriteTopic", default=False):
            raise InvalidRequestError(
                "mode overwrite (or complete) would delete what the topic holds: "
                "use mode append, or say that it is meant by option overwriteTopic=true"
            )
        for name, is_given in (("topicId", self.topic_id is not None), ("mode overwrite", self.overwrite)):
            if is_given and self.topic is None:
                raise InvalidRequestError(f"{name} is for one topic: name it by the option topic")

    def broker_dirs(self, fs: ReadFileSystem) -> BrokerDirs:
        """The log directory, as the only one that this write knows of its broker."""
        only = self.is_only_log_dir
        return BrokerDirs(fs, [self.root], are_all=only, ways=_OTHER_DIRS, ways_unlisted=_OTHER_OR_ONLY_DIR)

    @property
    def config(self) -> LogConfig:
        """How the logs are made."""
        return LogConfig.from_properties(dict(self.configs))

    def encoder(self) -> DealtEncoder:
        """An encoder for the rows of all partitions, the offsets of each of which begin with 0."""
        config = self.config
        size = min(self.batch_bytes, config.segment_bytes, config.max_message_bytes)
        return DealtEncoder(codec=self.codec, batch_size=size)


def ensure_writable_topic(topic: str) -> None:
    """Raise InvalidTopicError if there can be no such topic, or it is one of Kafka's own."""
    check_topic_name(topic)
    if topic == CLUSTER_METADATA_TOPIC or topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic} is a topic of Kafka's own, which is not written to from here")


def _by_topic(values: OptionValues) -> dict[str, int]:
    """The numbers of partitions that the option gives for each topic; none where it is one number, or absent."""
    text = values.text("partitions")
    if text is None or not text.startswith("{"):
        return {}
    try:
        found = parsed_json(text)
    except ValueError:
        found = None
    if type(found) is not dict or not found or any(type(count) is not int or count < 1 for count in found.values()):
        raise InvalidRequestError(
            f'partitions is a number, or one for each new topic as in {{"orders": 12, "clicks": 3}}, not {shown(text)}'
        )
    return found


def unwritten_words(by_topic: Iterable[str], written: Collection[str]) -> str | None:
    """A sentence about the topics that the option partitions names and that are not written; None if all are."""
    names = [name for name in by_topic if name not in written]
    if not names:
        return None
    from difflib import get_close_matches  # only for this sentence

    nearest = get_close_matches(names[0], written, n=1)
    return f"partitions names {_named(names)}, and nothing was written there" + (
        f"; the nearest topic that was written is {nearest[0]}" if nearest else ""
    )


def _named(topics: Iterable[str]) -> str:
    return shown(", ".join(topics))


def _root_of(values: OptionValues) -> str:
    """The one directory to write to."""
    paths = Places.of(values, no_path=_NO_PATH).paths
    if len(paths) != 1:
        raise InvalidRequestError(f"a write goes to one log directory, not to {len(paths)}: {', '.join(paths)}")
    path = paths[0].removeprefix("file://")
    if "://" in path:
        raise InvalidRequestError(
            f"{path} is no directory: a write needs one that driver and executors share, as by NFS or on one machine"
        )
    return path.rstrip("/") or "/"
