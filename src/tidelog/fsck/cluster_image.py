"""The state of a cluster after replaying its metadata log: topics, their replicas and configs,
brokers and controllers.

The records of a metadata transaction take effect when it ends, and are replayed before that: what is wrong in one that
is aborted is wrong. Kafka does not start on a metadata log that it cannot replay, so that is an error here: a record
that does not match its schema, a change of a partition that does not exist, a topic that is created twice. The rules
are those of controllers and brokers together.

Kafka: QuorumController.replay and the managers below it, MetadataDelta, MetadataRecordSerde, MetadataImage.write.
"""

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.errors import CorruptionError, ProtocolError
from tidelog.fsck import feature_levels as levels
from tidelog.fsck.partition_state import Replicas
from tidelog.fsck.undo_log import UndoLog
from tidelog.log.manager.meta_properties import MIGRATING_DIRECTORY
from tidelog.log.partition_metadata import uuid_text
from tidelog.log.text_files import to_number
from tidelog.protocol import Struct, metadata_record
from tidelog.view.internal_topics import read_frame

__all__ = ["ClusterImage", "decode_metadata"]

_TOPIC_CONFIG, _BROKER_CONFIG = 2, 4  # types of resources of configs
_UNCLEAN_ELECTION = "unclean.leader.election.enable"
_MAX_INT16 = 2**15 - 1
_FENCED_CHANGES = (-1, 0, 1)
_SHUTDOWN_CHANGES = (0, 1)
_PRINCIPAL = re.compile(r"[^:]*:.*", re.DOTALL)


@dataclass(frozen=True)
class Topic:
    """A topic and its partitions."""

    name: str
    partitions: dict[int, Replicas] = field(default_factory=dict)


@dataclass(frozen=True)
class Broker:
    """A broker that has registered."""

    epoch: int
    directories: tuple[uuid.UUID, ...]
    is_of_zookeeper: bool
    has_cordoned: bool  # it says which of its directories are cordoned, be it none


def decode_metadata(data: bytes | None) -> tuple[str, Any]:
    """The type of a record of the metadata log, and the record itself.

    Kafka reads one of a later version as one of the last version it knows, unless there are structures in it.
    """
    if data is None:
        raise ProtocolError("a record without a value")
    api_key, version, position = read_frame(data)
    kind = metadata_record(api_key)
    if version > _MAX_INT16:
        raise ProtocolError(f"version {version} of a {kind.name}")
    known = min(version, kind.valid_versions[-1] if kind.valid_versions else 0)
    value, end = kind.read_from(data, known, position)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the {kind.name}")
    if version > known and _has_structures(value):
        raise ProtocolError(f"version {version} of a {kind.name}; {known} is the last that Kafka 4.3 knows")
    return kind.name, value


def _has_structures(value: Struct) -> bool:
    fields = (getattr(value, name) for name in value.__slots__)
    return any(isinstance(one, Struct) for held in fields if isinstance(held, list) for one in held)


class ClusterImage:
    """The metadata after the records that were replayed so far."""

    def __init__(self) -> None:
        self.topics: dict[uuid.UUID, Topic] = {}
        self.configs: dict[str, dict[str, str]] = {}  # those that topics have themselves, by topic
        self.broker_configs: dict[str, dict[str, str]] = {}  # by the id of a broker, as text; empty: of all
        self.features: dict[str, int] = {}
        self.brokers: dict[int, Broker] = {}
        self.controllers: set[int] = set()
        self.is_new = True  # no record was replayed, of any kind: Kafka creates a cluster
        self._undo = UndoLog()  # makes all changes, so that a metadata transaction can be aborted
        self._topic_names: dict[str, uuid.UUID] = {}
        self._directories: dict[uuid.UUID, int] = {}  # the broker of each
        self._acls: set[uuid.UUID] = set()
        self._credentials: set[tuple[str, int]] = set()  # of SCRAM: user and mechanism
        self._tokens: set[str] = set()
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
            if self._undo.is_open:
                raise CorruptionError("a metadata transaction begins inside of another one")
            self._undo.begin()
        elif kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            if not self._undo.is_open:
                raise CorruptionError("the end of a metadata transaction that did not begin")
            if kind == "AbortTransactionRecord":
                self._undo.abort()
            else:
                self._undo.keep()
        else:
            self._apply(kind, record)

    def abort_transaction(self) -> None:
        """Go back to where the metadata transaction began that has not ended, if there is one."""
        self._undo.abort()

    def set_feature(self, name: str, level: int) -> None:
        """Set the level of a feature. Raises CorruptionError for one that Kafka 4.3 does not support."""
        levels.ensure_supported(name, level)
        self._undo.put(self.features, name, level)

    def is_unclean_election_allowed(self, topic: str, broker: int) -> bool:
        """Whether a replica that is not in sync may lead a topic."""
        for configs in (self.configs.get(topic), self.broker_configs.get(str(broker)), self.broker_configs.get("")):
            if configs is not None and _UNCLEAN_ELECTION in configs:
                return configs[_UNCLEAN_ELECTION].strip().lower() == "true"
        return False

    def ensure_representable(self) -> None:
        """Raise CorruptionError if the metadata holds what its `metadata.version` cannot represent."""
        level = self.features.get(levels.METADATA_VERSION)
        for needed, what in self._needed_levels() if level is not None else ():
            if level is not None and level < needed:
                raise CorruptionError(
                    f"{levels.METADATA_VERSION} {level} cannot represent {what}, which {needed} and later can"
                )

    def _needed_levels(self) -> Iterator[tuple[int, str]]:
        for number, broker in self.brokers.items():
            if broker.is_of_zookeeper:
                yield levels.ZK_BROKERS, f"that broker {number} is of ZooKeeper"
            if broker.directories:
                yield levels.DIRECTORIES, f"the log directories of broker {number}"
            if broker.has_cordoned:
                yield levels.CORDONED_DIRECTORIES, f"the cordoned log directories of broker {number}"
        if self.controllers:
            yield levels.CONTROLLER_REGISTRATIONS, "the registration of controllers"
        if self._credentials:
            yield levels.SCRAM_CREDENTIALS, "credentials of SCRAM"
        if self._tokens:
            yield levels.DELEGATION_TOKENS, "delegation tokens"
        for topic in self.topics.values():
            for number, replicas in topic.partitions.items():
                if any(directory != MIGRATING_DIRECTORY for directory in replicas.directories):
                    yield levels.DIRECTORIES, f"the log directories of {topic.name}-{number}"

    def _apply(self, kind: str, record: Any) -> None:
        match kind:
            case "TopicRecord" | "RemoveTopicRecord" | "PartitionRecord" | "PartitionChangeRecord" | "ClearElrRecord":
                self._apply_to_topics(kind, record)
            case "ConfigRecord":
                self._set_config(record)
            case "FeatureLevelRecord":
                self.set_feature(record.name, record.feature_level)
            case "RegisterControllerRecord":
                self._undo.add(self.controllers, record.controller_id)
            case "ProducerIdsRecord":
                if self._next_producer_id is not None and record.next_producer_id <= self._next_producer_id:
                    raise CorruptionError(
                        f"producer ids go back from {self._next_producer_id} to {record.next_producer_id}"
                    )
                self._undo.put(vars(self), "_next_producer_id", record.next_producer_id)
            case "AccessControlEntryRecord":
                self._undo.add(self._acls, record.id)
            case "RemoveAccessControlEntryRecord":
                self._remove(self._acls, record.id, f"ACL {uuid_text(record.id)}")
            case "UserScramCredentialRecord":
                self._undo.add(self._credentials, (record.name, record.mechanism))
            case "RemoveUserScramCredentialRecord":
                who = (record.name, record.mechanism)
                self._remove(self._credentials, who, f"SCRAM credential of {record.name!r}")
            case "DelegationTokenRecord":
                for principal in (record.owner, record.requester, *record.renewers):
                    if not _PRINCIPAL.fullmatch(principal):
                        raise CorruptionError(f"a delegation token of {principal!r}, which is not type:name")
                self._undo.add(self._tokens, record.token_id)
            case "RemoveDelegationTokenRecord":
                self._undo.discard(self._tokens, record.token_id)
            case _:
                self._apply_to_brokers(kind, record)

    def _set_config(self, record: Any) -> None:
        if record.resource_type == _BROKER_CONFIG:
            if record.resource_name and to_number(record.resource_name, 32) is None:
                raise CorruptionError(f"a config of broker {record.resource_name!r}, which is not a number")
            table = self.broker_configs
        elif record.resource_type == _TOPIC_CONFIG:
            table = self.configs
        else:
            return
        if record.resource_name not in table:
            self._undo.put(table, record.resource_name, {})
        if record.value is None:
            self._undo.drop(table[record.resource_name], record.name)
        else:
            self._undo.put(table[record.resource_name], record.name, record.value)

    def _apply_to_topics(self, kind: str, record: Any) -> None:
        match kind:
            case "TopicRecord":
                if record.name in self._topic_names:
                    raise CorruptionError(f"a second record that creates topic {record.name!r}")
                if record.topic_id in self.topics and self.topics[record.topic_id].partitions:
                    raise CorruptionError(f"a second topic with the id {uuid_text(record.topic_id)}")
                self._undo.put(self._topic_names, record.name, record.topic_id)
                self._undo.put(self.topics, record.topic_id, Topic(record.name))
            case "RemoveTopicRecord":
                name = self._topic(record.topic_id).name
                self._undo.drop(self._topic_names, name)
                self._undo.drop(self.configs, name)
                self._undo.drop(self.topics, record.topic_id)
            case "PartitionRecord":
                partitions = self._topic(record.topic_id).partitions
                self._undo.put(partitions, record.partition_id, Replicas.of(record))
            case "PartitionChangeRecord":
                partitions = self._topic(record.topic_id).partitions
                found = partitions.get(record.partition_id)
                if found is None:
                    raise CorruptionError(
                        f"there is no partition {record.partition_id} of {uuid_text(record.topic_id)}"
                    )
                self._undo.put(partitions, record.partition_id, found.changed_by(record))
            case "ClearElrRecord":
                if record.topic_name and record.topic_name not in self._topic_names:
                    raise CorruptionError(f"there is no topic {record.topic_name!r} whose replicas are not eligible")
                for topic in self.topics.values():
                    if record.topic_name in ("", topic.name):
                        for number, replicas in topic.partitions.items():
                            self._undo.put(topic.partitions, number, replicas.without_eligible())

    def _apply_to_brokers(self, kind: str, record: Any) -> None:
        match kind:
            case "RegisterBrokerRecord":
                directories = tuple(record.log_dirs or ())
                self._move_directories(record.broker_id, directories)
                broker = Broker(
                    record.broker_epoch, directories, record.is_migrating_zk_broker,
                    has_cordoned=record.cordoned_log_dirs is not None,
                )  # fmt: skip
                self._undo.put(self.brokers, record.broker_id, broker)
            case "UnregisterBrokerRecord":
                self._registered(record.broker_id, record.broker_epoch)
                self._move_directories(record.broker_id, ())
                self._undo.drop(self.brokers, record.broker_id)
            case "FenceBrokerRecord" | "UnfenceBrokerRecord":
                self._registered(record.id, record.epoch)
            case "BrokerRegistrationChangeRecord":
                broker = self._registered(record.broker_id, record.broker_epoch)
                if record.fenced not in _FENCED_CHANGES or record.in_controlled_shutdown not in _SHUTDOWN_CHANGES:
                    raise CorruptionError(f"a change of broker {record.broker_id} that is unknown: {record}")
                directories = tuple(record.log_dirs or ()) or broker.directories
                if record.log_dirs:
                    self._move_directories(record.broker_id, directories)
                has_cordoned = broker.has_cordoned or record.cordoned_log_dirs is not None
                changed = replace(broker, directories=directories, has_cordoned=has_cordoned)
                self._undo.put(self.brokers, record.broker_id, changed)

    def _move_directories(self, broker: int, directories: tuple[uuid.UUID, ...]) -> None:
        """A directory belongs to one broker."""
        for directory in self.brokers[broker].directories if broker in self.brokers else ():
            if self._directories.get(directory) != broker:
                raise CorruptionError(f"broker {broker} has left directory {uuid_text(directory)} before")
            self._undo.drop(self._directories, directory)
        for directory in directories:
            other = self._directories.get(directory, broker)
            if other != broker:
                raise CorruptionError(f"brokers {other} and {broker} have the directory {uuid_text(directory)}")
            self._undo.put(self._directories, directory, broker)

    def _registered(self, number: int, epoch: int) -> Broker:
        broker = self.brokers.get(number)
        if broker is None or broker.epoch != epoch:
            raise CorruptionError(f"a change of broker {number} in epoch {epoch}, which is not registered")
        return broker

    def _topic(self, topic_id: uuid.UUID) -> Topic:
        if topic_id not in self.topics:
            raise CorruptionError(f"there is no topic {uuid_text(topic_id)}")
        return self.topics[topic_id]

    def _remove(self, known: set[Any], one: object, what: str) -> None:
        if one not in known:
            raise CorruptionError(f"the removal of {what}, which does not exist")
        self._undo.discard(known, one)
