"""What the metadata log of a cluster says of its topics (which there are, and their configs) and of its brokers' disks.

A root of a KRaft broker holds `__cluster_metadata-0`: snapshots (`<end offset>-<epoch>.checkpoint`) and the log behind
them. The newest snapshot is read, then the log from its end on. Records between the beginning and the end of a metadata
transaction count when it has ended.

    topic_configs(tidelog.open("kafka-logs")["__cluster_metadata", 0])    {'orders': {'cleanup.policy': 'compact'}, ...}

What a broker's own properties set as defaults for all topics is not in the log.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.errors import CorruptionError, UnsupportedError
from tidelog.log.files import join, read_whole
from tidelog.log.names import CLUSTER_METADATA_TOPIC
from tidelog.log.partition_metadata import parse_uuid
from tidelog.records.batches import Batch, read_batches
from tidelog.records.record import Record
from tidelog.view.internal_topics import DecodedRecord, decode_internal
from tidelog.view.partition import PartitionView

__all__ = ["ClusterTopic", "broker_log_dirs", "cluster_topics", "topic_configs", "topic_ids"]

_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_TOPIC = 2  # the type of resource that a config belongs to

Configs = dict[str, dict[str, str]]


class ClusterTopic(NamedTuple):
    """A topic of the cluster: its id, and the brokers that each of its partitions is assigned to."""

    topic_id: uuid.UUID
    replicas: Mapping[int, tuple[int, ...]]


def topic_configs(metadata: PartitionView) -> Configs:
    """The configs that were set for each topic of the cluster, by Kafka's names."""
    return _replayed(metadata).configs


def broker_log_dirs(metadata: PartitionView) -> dict[int, tuple[str, ...]]:
    """The ids of the log directories that each broker of the cluster has registered; none of releases before 3.7."""
    return _replayed(metadata).log_dirs


def topic_ids(metadata: PartitionView) -> dict[str, uuid.UUID]:
    """The ids of the topics of the cluster, by their names."""
    return _replayed(metadata).ids


def cluster_topics(metadata: PartitionView) -> dict[str, ClusterTopic]:
    """The topics of the cluster, by their names."""
    known = _replayed(metadata)
    return {name: ClusterTopic(topic_id, known.replicas.get(name, {})) for name, topic_id in known.ids.items()}


def _replayed(metadata: PartitionView) -> "_Topics":
    known = _Topics()
    end_offset = 0
    snapshot = _newest_snapshot(metadata)
    if snapshot is not None:
        end_offset = int(snapshot.partition("-")[0])
        for record in _records_in(metadata, snapshot):
            known.take(record)
    for batch in metadata.batches(max(end_offset, metadata.log_start_offset)):
        for record in _data_of(batch):
            if record.offset >= end_offset:
                known.take(record)
    return known


def _newest_snapshot(metadata: PartitionView) -> str | None:
    """The name of the snapshot that reaches furthest."""
    return max(filter(_SNAPSHOT.fullmatch, metadata.files.list(metadata.path)), default=None)


def _records_in(metadata: PartitionView, snapshot: str) -> Iterator[Record]:
    path = join(metadata.path, snapshot)
    try:
        for batch in read_batches(read_whole(metadata.files, path)):
            batch.ensure_valid()
            yield from _data_of(batch)
    except CorruptionError as error:
        raise type(error)(f"{path}: {error}") from error


def _data_of(batch: Batch) -> Iterator[Record]:
    return iter(()) if batch.is_control else iter(batch)


class _Topics:
    """Topics and their configs, as far as the records have been taken."""

    def __init__(self) -> None:
        self.configs: Configs = {}
        self.log_dirs: dict[int, tuple[str, ...]] = {}  # ids of the log directories, by broker
        self._names: dict[str, str] = {}  # by id
        self._replicas: dict[str, dict[int, tuple[int, ...]]] = {}  # by id and partition
        self._open: list[DecodedRecord] | None = None  # the records of a metadata transaction that has not ended

    @property
    def ids(self) -> dict[str, uuid.UUID]:
        """The ids of the topics, by name."""
        return {name: parse_uuid(topic_id) for topic_id, name in self._names.items()}

    @property
    def replicas(self) -> dict[str, dict[int, tuple[int, ...]]]:
        """The brokers that the partitions of each topic are assigned to."""
        return {name: self._replicas.get(topic_id, {}) for topic_id, name in self._names.items()}

    def take(self, record: Record) -> None:
        """Note the next record. Of a type that is not known it can say nothing about topics or configs."""
        decoded = decode_internal(CLUSTER_METADATA_TOPIC, record)
        if decoded.problem is not None and decoded.type:
            raise UnsupportedError(f"{CLUSTER_METADATA_TOPIC}, offset {record.offset}: {decoded.problem}")
        if decoded.type == "BeginTransactionRecord":
            self._open = []
        elif decoded.type in ("EndTransactionRecord", "AbortTransactionRecord"):
            ended, self._open = self._open or [], None
            for held in ended if decoded.type == "EndTransactionRecord" else ():
                self._apply(held)
        elif self._open is not None:
            self._open.append(decoded)
        else:
            self._apply(decoded)

    def _apply(self, decoded: DecodedRecord) -> None:
        fields = decoded.value or {}
        if decoded.type == "TopicRecord":
            self._names[fields["topicId"]] = fields["name"]
            self.configs.setdefault(fields["name"], {})
        elif decoded.type in ("PartitionRecord", "PartitionChangeRecord"):
            if fields.get("replicas") is not None:  # a change may not be about them
                self._replicas.setdefault(fields["topicId"], {})[fields["partitionId"]] = tuple(fields["replicas"])
        elif decoded.type in ("RegisterBrokerRecord", "BrokerRegistrationChangeRecord"):
            if fields.get("logDirs") or decoded.type == "RegisterBrokerRecord":  # a change may not be about them
                self.log_dirs[fields["brokerId"]] = tuple(fields.get("logDirs") or ())
        elif decoded.type == "UnregisterBrokerRecord":
            self.log_dirs.pop(fields["brokerId"], None)
        elif decoded.type == "RemoveTopicRecord":
            self.configs.pop(self._names.pop(fields["topicId"], ""), None)
            self._replicas.pop(fields["topicId"], None)
        elif decoded.type == "ConfigRecord" and fields["resourceType"] == _TOPIC:
            configs = self.configs.setdefault(fields["resourceName"], {})
            if fields["value"] is None:
                configs.pop(fields["name"], None)
            else:
                configs[fields["name"]] = fields["value"]
