"""The state of a cluster after replaying its metadata log: topics, their replicas and configs,
brokers and controllers.

The records of a metadata transaction take effect when it ends. Kafka does not start on a metadata log that it cannot
replay, so that is an error here: a record that does not match its schema, a change of a partition that does not exist,
a topic that is created twice. The rules are those of a controller, which are stricter than those of a broker.

Kafka: QuorumController.replay and the managers below it, MetadataDelta, MetadataRecordSerde.
"""

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.errors import CorruptionError, ProtocolError
from tidelog.log.partition_metadata import uuid_text
from tidelog.protocol import metadata_record
from tidelog.view.internal_topics import read_frame

__all__ = ["METADATA_VERSION", "ClusterImage", "Replicas", "decode_metadata"]

METADATA_VERSION = "metadata.version"
_FEATURES = {  # the levels that Kafka 4.3 supports
    METADATA_VERSION: (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
_TOPIC_CONFIG = 2  # the type of resource of a config that belongs to a topic


@dataclass(frozen=True)
class Replicas:
    """The brokers that hold a partition, and the log directory of each, in the same order."""

    brokers: tuple[int, ...]
    directories: tuple[uuid.UUID, ...]

    def directory_of(self, broker: int) -> uuid.UUID | None:
        """The directory that the partition is assigned to on a broker; None if there is none."""
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
    api_key, version, position = read_frame(data)
    kind = metadata_record(api_key)
    value, end = kind.read_from(data, version, position)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the {kind.name}")
    return kind.name, value


class ClusterImage:
    """The metadata after the records that were replayed so far."""

    def __init__(self) -> None:
        self.topics: dict[uuid.UUID, Topic] = {}
        self.configs: dict[str, dict[str, str]] = {}  # those that topics have themselves, by topic
        self.features: dict[str, int] = {}
        self.brokers: dict[int, int] = {}  # how many directories each has registered
        self.controllers: set[int] = set()
        self.is_new = True  # no record was replayed, of any kind: Kafka creates a cluster
        self._open: list[tuple[str, Any]] | None = None  # the records of a metadata transaction that has not ended
        self._topic_names: set[str] = set()
        self._broker_epochs: dict[int, int] = {}
        self._acls: set[uuid.UUID] = set()
        self._credentials: set[tuple[str, int]] = set()  # of SCRAM: user and mechanism
        self._next_producer_id: int | None = None

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        """The ids of all topics, by name."""
        return {topic.name: topic_id for topic_id, topic in self.topics.items()}

    def take(self, data: bytes | None) -> None:
        """Replay the next record."""
        kind, record = decode_metadata(data)
        self.is_new = False
        if kind == "BeginTransactionRecord":
            if self._open is not None:
                raise CorruptionError("a metadata transaction begins inside of another one")
            self._open = []
        elif kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._open is None:
                raise CorruptionError("the end of a metadata transaction that did not begin")
            ended, self._open = self._open, None
            for held in ended if kind == "EndTransactionRecord" else ():
                self._apply(*held)
        elif self._open is not None:
            self._open.append((kind, record))
        else:
            self._apply(kind, record)

    def set_feature(self, name: str, level: int) -> None:
        """Set the level of a feature. Raises CorruptionError for one that Kafka 4.3 does not support."""
        lowest, highest = _FEATURES.get(name, (0, 0))
        if not lowest <= level <= highest:
            known = f"{lowest} to {highest}" if name in _FEATURES else "no such feature"
            raise CorruptionError(f"{name} {level}; Kafka 4.3 knows {known}")
        self.features[name] = level

    def _apply(self, kind: str, record: Any) -> None:
        match kind:
            case "TopicRecord" | "RemoveTopicRecord" | "PartitionRecord" | "PartitionChangeRecord":
                self._apply_to_topics(kind, record)
            case "ConfigRecord" if record.resource_type == _TOPIC_CONFIG:
                configs = self.configs.setdefault(record.resource_name, {})
                if record.value is None:
                    configs.pop(record.name, None)
                else:
                    configs[record.name] = record.value
            case "FeatureLevelRecord":
                self.set_feature(record.name, record.feature_level)
            case "RegisterControllerRecord":
                self.controllers.add(record.controller_id)
            case "ProducerIdsRecord":
                if self._next_producer_id is not None and record.next_producer_id <= self._next_producer_id:
                    raise CorruptionError(
                        f"producer ids go back from {self._next_producer_id} to {record.next_producer_id}"
                    )
                self._next_producer_id = record.next_producer_id
            case "AccessControlEntryRecord":
                self._acls.add(record.id)
            case "RemoveAccessControlEntryRecord":
                _remove(self._acls, record.id, f"ACL {uuid_text(record.id)}")
            case "UserScramCredentialRecord":
                self._credentials.add((record.name, record.mechanism))
            case "RemoveUserScramCredentialRecord":
                _remove(self._credentials, (record.name, record.mechanism), f"SCRAM credential of {record.name!r}")
            case _:
                self._apply_to_brokers(kind, record)

    def _apply_to_topics(self, kind: str, record: Any) -> None:
        match kind:
            case "TopicRecord":
                if record.name in self._topic_names:
                    raise CorruptionError(f"a second record that creates topic {record.name!r}")
                self._topic_names.add(record.name)
                self.topics[record.topic_id] = Topic(record.name)
            case "RemoveTopicRecord":
                name = self._topic(record.topic_id).name
                self._topic_names.discard(name)
                self.configs.pop(name, None)
                del self.topics[record.topic_id]
            case "PartitionRecord":
                replicas = Replicas(tuple(record.replicas), tuple(record.directories))
                self._topic(record.topic_id).partitions[record.partition_id] = replicas
            case "PartitionChangeRecord":
                self._change(record)

    def _apply_to_brokers(self, kind: str, record: Any) -> None:
        match kind:
            case "RegisterBrokerRecord":
                self.brokers[record.broker_id] = len(record.log_dirs or ())
                self._broker_epochs[record.broker_id] = record.broker_epoch
            case "UnregisterBrokerRecord":
                self._ensure_registered(record.broker_id, record.broker_epoch)
                del self.brokers[record.broker_id], self._broker_epochs[record.broker_id]
            case "FenceBrokerRecord" | "UnfenceBrokerRecord":
                self._ensure_registered(record.id, record.epoch)
            case "BrokerRegistrationChangeRecord":
                self._ensure_registered(record.broker_id, record.broker_epoch)
                if record.log_dirs:
                    self.brokers[record.broker_id] = len(record.log_dirs)

    def _ensure_registered(self, broker: int, epoch: int) -> None:
        if self._broker_epochs.get(broker) != epoch:
            raise CorruptionError(f"a change of broker {broker} in epoch {epoch}, which is not registered")

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


def _remove(known: set[Any], one: object, what: str) -> None:
    if one not in known:
        raise CorruptionError(f"the removal of {what}, which does not exist")
    known.remove(one)
