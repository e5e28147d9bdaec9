"""What the metadata log of a cluster comes to, record by record: topics, who holds them, who belongs to the cluster.

Records between the beginning and the end of a metadata transaction count when it has ended. What Kafka cannot replay it
does not start on, and so it is an error here: a record that is not of its schema, a change of a partition that there is
not.

Kafka: MetadataDelta and the deltas below it, MetadataRecordSerde.
"""

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.errors import CorruptionError, ProtocolError, UnsupportedError
from tidelog.log.partition_metadata import uuid_text
from tidelog.protocol import metadata_record
from tidelog.records.varint import read_unsigned_varint

__all__ = ["METADATA_VERSION", "ClusterImage", "Replicas", "decode_metadata"]

METADATA_VERSION = "metadata.version"
_FRAME_VERSION = 1


@dataclass(frozen=True)
class Replicas:
    """Who holds a partition, and in which of their directories; the two go side by side."""

    brokers: tuple[int, ...]
    directories: tuple[uuid.UUID, ...]

    def directory_of(self, broker: int) -> uuid.UUID | None:
        """The directory that a broker is to have the partition in; None where nothing is said."""
        if broker not in self.brokers or len(self.directories) != len(self.brokers):
            return None
        return self.directories[self.brokers.index(broker)]


@dataclass
class Topic:
    """A topic and its partitions."""

    name: str
    partitions: dict[int, Replicas] = field(default_factory=dict)


def decode_metadata(data: bytes | None) -> tuple[str, Any]:
    """The type of a record of the metadata log, and the record itself."""
    if data is None:
        raise ProtocolError("a record without a value")
    frame_version, position = read_unsigned_varint(data, 0, len(data))
    if frame_version != _FRAME_VERSION:
        raise UnsupportedError(f"a frame of version {frame_version}; only version {_FRAME_VERSION} is known")
    api_key, position = read_unsigned_varint(data, position, len(data))
    version, position = read_unsigned_varint(data, position, len(data))
    kind = metadata_record(api_key)
    value, end = kind.read_from(data, version, position)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the {kind.name}")
    return kind.name, value


class ClusterImage:
    """The metadata as far as records have been taken."""

    def __init__(self) -> None:
        self.topics: dict[uuid.UUID, Topic] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, int] = {}  # how many directories each has registered
        self.controllers: set[int] = set()
        self.is_new = True  # no record has been taken, of whatever kind: Kafka begins a cluster
        self._open: list[tuple[str, Any]] | None = None  # the records of a metadata transaction that has not ended

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        """The ids of all topics, by name."""
        return {topic.name: topic_id for topic_id, topic in self.topics.items()}

    def take(self, data: bytes | None) -> None:
        """Replay the next record."""
        kind, record = decode_metadata(data)
        self.is_new = False
        if kind == "BeginTransactionRecord":
            self._open = []
        elif kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            ended, self._open = self._open or [], None
            for held in ended if kind == "EndTransactionRecord" else ():
                self._apply(*held)
        elif self._open is not None:
            self._open.append((kind, record))
        else:
            self._apply(kind, record)

    def _apply(self, kind: str, record: Any) -> None:
        match kind:
            case "TopicRecord":
                self.topics[record.topic_id] = Topic(record.name)
            case "PartitionRecord":
                replicas = Replicas(tuple(record.replicas), tuple(record.directories))
                self._topic(record.topic_id).partitions[record.partition_id] = replicas
            case "PartitionChangeRecord":
                self._change(record)
            case "RemoveTopicRecord":
                self._topic(record.topic_id)
                del self.topics[record.topic_id]
            case "FeatureLevelRecord":
                self.features[record.name] = record.feature_level
            case "RegisterBrokerRecord":
                self.brokers[record.broker_id] = len(record.log_dirs or ())
            case "UnregisterBrokerRecord":
                self.brokers.pop(record.broker_id, None)
            case "BrokerRegistrationChangeRecord":
                if record.broker_id not in self.brokers:
                    raise CorruptionError(f"a change of broker {record.broker_id}, which is not registered")
                if record.log_dirs:
                    self.brokers[record.broker_id] = len(record.log_dirs)
            case "RegisterControllerRecord":
                self.controllers.add(record.controller_id)

    def _topic(self, topic_id: uuid.UUID) -> Topic:
        if topic_id not in self.topics:
            raise CorruptionError(f"there is no topic {uuid_text(topic_id)}")
        return self.topics[topic_id]

    def _change(self, record: Any) -> None:
        partitions = self._topic(record.topic_id).partitions
        if record.partition_id not in partitions:
            raise CorruptionError(f"there is no partition {record.partition_id} of {uuid_text(record.topic_id)}")
        found = partitions[record.partition_id]
        if record.replicas is not None:
            found = replace(found, brokers=tuple(record.replicas))
        if record.directories is not None:
            found = replace(found, directories=tuple(record.directories))
        partitions[record.partition_id] = found
