"""Damage to the records of a metadata log: what a later release, a hand, or a defect of a controller may have written.

    RECORD_DAMAGES["a record of an unknown type"](roots, random.Random(5))

Every batch is sound: what is wrong is what it says.
"""

import random
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tidelog.fsck.cluster_image import decode_metadata
from tidelog.protocol import message
from tidelog.records import Codec, Header, NewRecord, RecordBatch, build_batch, read_batches

METADATA = "__cluster_metadata-0"
FRAME = 1  # the version of what precedes each record
UNKNOWN_TAG = bytes([1, 99, 2, 7, 7])  # one field, its tag, its size, and its bytes
SECOND_BROKER, NOBODY = 2, uuid.UUID(int=4711)

Roots = Sequence[Path]
Damage = Callable[[Roots, random.Random], object]
Values = list[bytes | None]


def framed(kind: str, version: int = 0, **fields: object) -> bytes:
    """A record of the metadata log."""
    schema = message(kind)
    assert schema.api_key is not None
    return bytes([FRAME, schema.api_key, version]) + schema.write(schema.new(**fields), version)


# -- at the end of the log ---------------------------------------------------------------------------------------------


def newest_log(roots: Roots) -> Path:
    path = max((roots[0] / METADATA).glob("*.log"))
    path.chmod(0o644)
    return path


def add(roots: Roots, values: Sequence[bytes | None], **options: Any) -> None:
    """Add a batch of records to the metadata log; `skip` leaves out offsets, `epoch` is added to that of the log."""
    log = newest_log(roots)
    last = list(read_batches(log.read_bytes()))[-1]
    assert isinstance(last, RecordBatch)
    offset, epoch = last.next_offset + options.pop("skip", 0), last.partition_leader_epoch + options.pop("epoch", 0)
    keys, headers = options.pop("keys", [None] * len(values)), options.pop("headers", ())
    records = [NewRecord(key, value, 0, headers) for key, value in zip(keys, values, strict=True)]
    data = build_batch(records, base_offset=offset, partition_leader_epoch=epoch, **options)
    log.write_bytes(log.read_bytes() + data)


def adds(kind: str, version: int = 0, **fields: object) -> Damage:
    return lambda roots, rng: add(roots, [framed(kind, version, **fields)])


def adds_bytes(*values: bytes | None, **options: Any) -> Damage:
    return lambda roots, rng: add(roots, values, **options)


def adds_control(kind: int, value: bytes | None, **options: Any) -> Damage:
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    return lambda roots, rng: add(roots, [value], keys=[key], is_control=True, **options)


# -- what is known of the cluster --------------------------------------------------------------------------------------


def replayed(roots: Roots) -> list[tuple[str, Any]]:
    """The records of the newest snapshot, and of the log behind it."""
    folder = roots[0] / METADATA
    snapshot = max(folder.glob("*.checkpoint"))
    end = int(snapshot.name[:20])
    found = []
    for path in (snapshot, *sorted(folder.glob("*.log"))):
        for batch in read_batches(path.read_bytes()):
            is_needed = path == snapshot or batch.base_offset >= end
            found += [decode_metadata(record.value) for record in batch if is_needed and not batch.is_control]
    return found


def last_of(roots: Roots, kind: str, **wanted: object) -> Any:
    """The last record of a kind."""
    return [
        record
        for name, record in replayed(roots)
        if name == kind and all(getattr(record, field) == value for field, value in wanted.items())
    ][-1]


def topic_id(roots: Roots, topic: str) -> uuid.UUID:
    found = last_of(roots, "TopicRecord", name=topic).topic_id
    assert isinstance(found, uuid.UUID)
    return found


def again(kind: str, version: int, of_topic: str | None = None, write_version: int = -1, **changes: object) -> Damage:
    """The last record of a kind once more, with other values, and the version that it says it has."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        wanted = {} if of_topic is None else {"topic_id": topic_id(roots, of_topic)}
        record = last_of(roots, kind, **wanted)
        for name, value in changes.items():
            setattr(record, name, value)
        said = version if write_version == -1 else write_version
        add(roots, [bytes([FRAME, message(kind).api_key or 0, said]) + message(kind).write(record, version)])

    return hurt


def changes_partition(**fields: object) -> Damage:
    """A change of orders-1."""
    return lambda roots, rng: add(
        roots,
        [framed("PartitionChangeRecord", 2, **{"topic_id": topic_id(roots, "orders"), "partition_id": 1, **fields})],
    )


def changes_broker(kind: str, version: int = 0, **fields: object) -> Damage:
    """A record that names the broker in its epoch."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        epoch = last_of(roots, "RegisterBrokerRecord").broker_epoch
        names = ("broker_id", "broker_epoch") if "broker_id" in message(kind).new().__slots__ else ("id", "epoch")
        add(roots, [framed(kind, version, **dict(zip(names, (1, epoch), strict=True)), **fields)])

    return hurt


def adds_partition(**fields: object) -> Damage:
    """A fifth partition of a topic."""
    whole: dict[str, object] = {
        "partition_id": 4, "replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0,
        "directories": [uuid.UUID(int=1)], **fields,
    }  # fmt: skip
    return lambda roots, rng: add(
        roots, [framed("PartitionRecord", 2, **{"topic_id": topic_id(roots, "orders"), **whole})]
    )


# -- in the middle -----------------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[Values], Values | None]) -> None:
    """Change the records of each batch; None removes the batch. Offsets of what follows remain."""
    path.chmod(0o644)
    data = bytearray()
    for batch in read_batches(path.read_bytes()):
        assert isinstance(batch, RecordBatch)
        values = None if batch.is_control else change([record.value for record in batch])
        if batch.is_control:
            data += batch.buffer
        elif values:
            place = {"base_offset": batch.base_offset, "partition_leader_epoch": batch.partition_leader_epoch}
            data += build_batch([NewRecord(None, value, 0) for value in values], **place)
    path.write_bytes(data)


def newest_snapshot(roots: Roots) -> Path:
    return max((roots[0] / METADATA).glob("*.checkpoint"))


def in_snapshot(change: Callable[[Values, random.Random], Values | None]) -> Damage:
    return lambda roots, rng: rewrite(newest_snapshot(roots), lambda values: change(values, rng))


def in_log(change: Callable[[Values, random.Random], Values | None]) -> Damage:
    return lambda roots, rng: rewrite(newest_log(roots), lambda values: change(values, rng))


def without(kind: str, count: int = 1_000) -> Callable[[Values, random.Random], Values]:
    """Some records of a kind are removed, or all."""

    def change(values: Values, rng: random.Random) -> Values:
        found = [value for value in values if decode_metadata(value)[0] == kind]
        gone = rng.sample(found, k=min(count, len(found)))
        return [value for value in values if value not in gone]

    return change


def shuffled(values: Values, rng: random.Random) -> Values:
    return rng.sample(values, k=len(values))


def one_twice(values: Values, rng: random.Random) -> Values:
    at = rng.randrange(len(values))
    return [*values[: at + 1], values[at], *values[at + 1 :]]


def one_less(values: Values, rng: random.Random) -> Values:
    at = rng.randrange(len(values))
    return values[:at] + values[at + 1 :]


def two_exchanged(values: Values, rng: random.Random) -> Values:
    found = list(values)
    one, other = rng.randrange(len(values)), rng.randrange(len(values))
    found[one], found[other] = found[other], found[one]
    return found


def with_tags(values: Values, rng: random.Random) -> Values:
    """Each record that ends without tagged fields has one of a later release."""
    return [value[:-1] + UNKNOWN_TAG if value and value[-1] == 0 else value for value in values]


def with_level(name: str, level: int) -> Callable[[Values, random.Random], Values]:
    def change(values: Values, rng: random.Random) -> Values:
        return [
            framed("FeatureLevelRecord", name=name, feature_level=level)
            if value is not None and value[1] == message("FeatureLevelRecord").api_key and name.encode() in value
            else value
            for value in values
        ]

    return change


def of_features(name: str, *levels: int) -> dict[str, Damage]:
    return {
        f"{name} {level}": adds("FeatureLevelRecord", name=name, feature_level=level) for level in levels
    }  # fmt: skip


BROKER_CONFIGS = (  # broker, name and value
    ("1", "log.cleaner.threads", "many"), ("", "log.cleaner.threads", "many"), ("", "log.cleaner.threads", "0"),
    ("1", "num.io.threads", "-1"), ("", "num.io.threads", "4"), ("1", "listeners", "nonsense"),
    ("1", "node.id", "7"), ("1", "log.dirs", "/nowhere"), ("", "log.segment.bytes", "10"),
    ("", "log.retention.ms", "soon"), ("", "min.insync.replicas", "0"), ("1", "min.insync.replicas", "3"),
    ("", "min.insync.replicas", "x"), ("", "unclean.leader.election.enable", "perhaps"),
    ("", "compression.type", "none"), ("", "metric.reporters", "no.Such"), ("", "log.cleanup.policy", "keep"),
    ("", "message.max.bytes", "x"), ("1", "ssl.keystore.location", "/nowhere"), ("", "max.connections", "0"),
    ("2", "log.cleaner.threads", "many"), ("1", "advertised.listeners", "nonsense"),
)  # fmt: skip
TOPIC_CONFIGS = (
    ("cleanup.policy", "keep"), ("cleanup.policy", ""), ("cleanup.policy", "compact,delete"),
    ("retention.ms", None), ("retention.ms", "-2"), ("retention.ms", " 5000000 "), ("max.message.bytes", "-1"),
    ("segment.bytes", "1048576"), ("segment.bytes", "1e9"), ("compression.type", "none"),
    ("compression.type", "zstd"), ("compression.zstd.level", "99"), ("compression.gzip.level", "0"),
    ("min.insync.replicas", "0"), ("min.insync.replicas", "3"), ("message.timestamp.type", "Now"),
    ("preallocate", "yes"), ("preallocate", "TRUE"), ("remote.storage.enable", "true"),
    ("remote.storage.enable", "maybe"), ("local.retention.ms", "5"), ("local.retention.bytes", "-9"),
    ("message.format.version", "0.9"), ("message.downconversion.enable", "x"), ("index.interval.bytes", "-1"),
    ("segment.index.bytes", "3"), ("segment.index.bytes", "4"), ("segment.index.bytes", "12"), ("segment.ms", "0"),
    ("segment.jitter.ms", "-1"), ("flush.ms", "-1"), ("min.cleanable.dirty.ratio", "2"),
    ("min.compaction.lag.ms", "-1"), ("max.compaction.lag.ms", "0"),
    ("min.compaction.lag.ms", "99999999999999999999"), ("leader.replication.throttled.replicas", "x"),
    ("leader.replication.throttled.replicas", "*"), ("unclean.leader.election.enable", "no"),
    ("internal.segment.bytes", "x"), ("internal.segment.bytes", "1"), ("file.delete.delay.ms", "-1"),
    ("remote.log.copy.disable", "true"), ("remote.log.delete.on.disable", "x"),
    ("message.timestamp.before.max.ms", "-1"), ("", "x"), ("delete.retention.ms", "x"), ("flush.messages", "0"),
)  # fmt: skip
ENTRY: dict[str, Any] = {"id": uuid.UUID(int=80), "resource_type": 2, "resource_name": "orders", "pattern_type": 3,
                         "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
SCRAM: dict[str, Any] = {"name": "a", "mechanism": 1, "salt": b"s" * 8, "stored_key": b"k" * 32,
                         "server_key": b"k" * 32, "iterations": 4096}  # fmt: skip
UNASSIGNED, LOST = uuid.UUID(int=1), uuid.UUID(int=2)
NO_ELR: dict[str, Any] = {"leader": -1, "eligible_leader_replicas": [], "last_known_elr": []}
TOPIC = framed("TopicRecord", name="another", topic_id=NOBODY)
BEGIN, END, ABORT = (framed(f"{word}TransactionRecord") for word in ("Begin", "End", "Abort"))
RECORD_DAMAGES: dict[str, Damage] = {
    **of_features("metadata.version", 0, 6, 7, 19, 20, 22, 29, 30, 31),
    **of_features("kraft.version", 0, 1, 2, -1),
    **of_features("group.version", 0, 1, 2, -1),
    **of_features("transaction.version", 0, 1, 2, 3),
    **of_features("share.version", 0, 1, 2),
    **of_features("streams.version", 0, 1, 2),
    **of_features("eligible.leader.replicas.version", 0, 1, 2),
    **of_features("unheard.of", 0, 1, -1),
    **of_features("", 0, 1),
    **{f"{name} {level} in the snapshot": in_snapshot(with_level(name, level)) for name, level in (
        ("metadata.version", 29), ("metadata.version", 20), ("metadata.version", 7), ("metadata.version", 6),
        ("metadata.version", 31), ("group.version", 0), ("group.version", 9), ("streams.version", 0),
        ("eligible.leader.replicas.version", 0), ("transaction.version", 0),
    )},
    "a record of an unknown type": adds_bytes(bytes([FRAME, 99, 0, 0])),
    "a record of a type that was removed": adds_bytes(bytes([FRAME, 6, 0, 0])),
    "a record of an unknown version": adds_bytes(bytes([FRAME, 2, 9]) + framed("TopicRecord", name="x")[3:]),
    "a frame of version 0": adds_bytes(bytes([0, 20, 0, 0])),
    "a frame of version 2": adds_bytes(bytes([2, 20, 0, 0])),
    "a type of two bytes": adds_bytes(bytes([FRAME, 0x94, 0, 0, 0])),
    "a record that ends early": adds_bytes(framed("TopicRecord", name="another", topic_id=NOBODY)[:-3]),
    "a record that ends late": adds_bytes(framed("TopicRecord", name="another", topic_id=NOBODY) + b"\0"),
    "an empty record": adds_bytes(b""),
    "a record of one byte": adds_bytes(bytes([FRAME])),
    "a record without a value": adds_bytes(None),
    "a record with a key": adds_bytes(framed("NoOpRecord"), keys=[b"key"]),
    "a record with headers": adds_bytes(framed("NoOpRecord"), headers=(Header("name", b"value"),)),
    "a record of an unknown version with structures": again(
        "RegisterBrokerRecord", 4, write_version=9, broker_epoch=99
    ),
    "an unknown tagged field": adds_bytes(framed("NoOpRecord")[:-1] + UNKNOWN_TAG),
    "an unknown tagged field of a topic": adds_bytes(
        framed("TopicRecord", name="another", topic_id=NOBODY)[:-1] + UNKNOWN_TAG
    ),
    "a tagged field twice": adds_bytes(framed("NoOpRecord")[:-1] + bytes([2, 99, 1, 7, 99, 1, 7])),
    "a compressed batch": adds_bytes(framed("NoOpRecord"), codec=Codec.GZIP),
    "a transactional batch": adds_bytes(
        framed("NoOpRecord"), is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    ),
    "a batch of a producer": adds_bytes(framed("NoOpRecord"), producer_id=7, producer_epoch=0, base_sequence=0),
    "a gap of offsets": adds_bytes(framed("NoOpRecord"), skip=5),
    "a large gap of offsets": adds_bytes(framed("NoOpRecord"), skip=2**33),
    "a later epoch": adds_bytes(framed("NoOpRecord"), epoch=5),
    "the last epoch": adds_bytes(framed("NoOpRecord"), epoch=2**31 - 8),
    "an earlier epoch": adds_bytes(framed("NoOpRecord"), epoch=-1),
    "no epoch": adds_bytes(framed("NoOpRecord"), epoch=-100),
    "an abort marker": adds_control(0, bytes(6)),
    "a commit marker": adds_control(1, bytes(6), is_transactional=True, producer_id=7, producer_epoch=0),
    "a change of leaders": adds_control(2, message("LeaderChangeMessage").write(
        message("LeaderChangeMessage").new(leader_id=1), 0)),
    "a change of leaders to another node": adds_control(2, message("LeaderChangeMessage").write(
        message("LeaderChangeMessage").new(leader_id=7), 0)),
    "a change of leaders of a later version": adds_control(2, bytes([0, 9]) + bytes(8)),
    "the header of a snapshot": adds_control(3, message("SnapshotHeaderRecord").write(
        message("SnapshotHeaderRecord").new(), 0)),
    "the footer of a snapshot": adds_control(4, message("SnapshotFooterRecord").write(
        message("SnapshotFooterRecord").new(), 0)),
    **{f"kraft.version {level} as a control record": adds_control(5, message("KRaftVersionRecord").write(
        message("KRaftVersionRecord").new(kraft_version=level), 0)) for level in (0, 1, 2, -1)},
    "no voters": adds_control(6, message("VotersRecord").write(message("VotersRecord").new(), 0)),
    "an unknown control record": adds_control(9, b"\0\0\0"),
    "a control record without a value": adds_control(2, None),
    "a topic again": again("TopicRecord", 0),
    "a topic again with another name": again("TopicRecord", 0, name="another"),
    "a topic with an empty name": adds("TopicRecord", name="", topic_id=NOBODY),
    "a topic with a slash": adds("TopicRecord", name="a/b", topic_id=NOBODY),
    "a topic with a dot": adds("TopicRecord", name=".", topic_id=NOBODY),
    "a topic with a long name": adds("TopicRecord", name="x" * 300, topic_id=NOBODY),
    "a topic that collides": adds("TopicRecord", name="__consumer.offsets", topic_id=NOBODY),
    "a topic with a zero id": adds("TopicRecord", name="another", topic_id=uuid.UUID(int=0)),
    "a topic with the id of the metadata": adds("TopicRecord", name="another", topic_id=uuid.UUID(int=1)),
    "a topic named like the metadata": adds("TopicRecord", name="__cluster_metadata", topic_id=NOBODY),
    "a removed topic": lambda roots, rng: add(roots, [framed("RemoveTopicRecord", topic_id=topic_id(roots, "orders"))]),
    "a topic without partitions": adds("TopicRecord", name="another", topic_id=NOBODY),
    "a partition again": again("PartitionRecord", 2),
    "a partition again with an old epoch": again("PartitionRecord", 2, "orders", partition_epoch=0, leader_epoch=0),
    "one more partition": adds_partition(),
    "a partition of no topic": adds_partition(topic_id=NOBODY),
    "a partition behind a gap": adds_partition(partition_id=9),
    "a partition with a negative number": adds_partition(partition_id=-3),
    "a partition without replicas": adds_partition(replicas=[], isr=[], leader=-1, directories=[]),
    "a partition with a replica twice": adds_partition(replicas=[1, 1], directories=[NOBODY, NOBODY]),
    "a partition with too few directories": adds_partition(replicas=[1, 2]),
    "a partition with too many directories": adds_partition(directories=[NOBODY, NOBODY]),
    "a partition without directories": adds_partition(directories=[]),
    "a partition without ISR": adds_partition(isr=[], leader=-1),
    "a partition with a foreign ISR": adds_partition(isr=[7]),
    "a partition without a leader": adds_partition(leader=-1),
    "a partition with the leader -2": adds_partition(leader=-2),
    "a partition with a foreign leader": adds_partition(leader=7),
    "a partition of another broker": adds_partition(replicas=[2], isr=[2], leader=2),
    "a partition that recovers": adds_partition(leader_recovery_state=1),
    "a partition that recovers somehow": adds_partition(leader_recovery_state=9),
    "a partition that is moved": adds_partition(replicas=[1, 2], directories=[UNASSIGNED] * 2, adding_replicas=[2]),
    "a partition with negative epochs": adds_partition(leader_epoch=-1, partition_epoch=-1),
    "a partition in a lost directory": adds_partition(directories=[uuid.UUID(int=2)]),
    "a partition in a migrating directory": adds_partition(directories=[uuid.UUID(int=0)]),
    "a partition in a reserved directory": adds_partition(directories=[uuid.UUID(int=55)]),
    "a partition in an unknown directory": adds_partition(directories=[NOBODY]),
    "a change of nothing": changes_partition(),
    "a change of no partition": changes_partition(partition_id=77),
    "a change of no topic": changes_partition(topic_id=NOBODY),
    "a change to a foreign leader": changes_partition(leader=7),
    "a change to no leader": changes_partition(leader=-1),
    "a change to no ISR": changes_partition(isr=[], leader=-1),
    "a change to no ISR and no ELR": changes_partition(isr=[], **NO_ELR),
    "a change to a foreign ISR": changes_partition(isr=[7], **NO_ELR),
    "a change to other replicas": changes_partition(replicas=[2], isr=[2], leader=2, directories=[uuid.UUID(int=1)]),
    "a change to more replicas": changes_partition(replicas=[1, 2]),
    "a change to no replicas": changes_partition(replicas=[], isr=[], leader=-1, directories=[]),
    "a change to another directory": changes_partition(directories=[NOBODY]),
    "a change to the lost directory": changes_partition(directories=[uuid.UUID(int=2)]),
    "a change to no directory": changes_partition(directories=[uuid.UUID(int=1)]),
    "a change to two directories": changes_partition(directories=[uuid.UUID(int=1), uuid.UUID(int=1)]),
    "a change to a recovery of some kind": changes_partition(leader_recovery_state=9),
    "a change that is unfinished": changes_partition(removing_replicas=[1], adding_replicas=[2]),
    "the broker again": again("RegisterBrokerRecord", 4),
    "the broker in an earlier epoch": again("RegisterBrokerRecord", 4, broker_epoch=1),
    "the broker in a late epoch": again("RegisterBrokerRecord", 4, broker_epoch=10**9),
    "the broker in another incarnation": again("RegisterBrokerRecord", 4, incarnation_id=uuid.UUID(int=5)),
    "the broker unfenced": again("RegisterBrokerRecord", 4, fenced=False),
    "the broker without directories": again("RegisterBrokerRecord", 4, log_dirs=[]),
    "the broker without listeners": again("RegisterBrokerRecord", 4, end_points=[]),
    "the broker without features": again("RegisterBrokerRecord", 4, features=[]),
    "the broker as one of ZooKeeper": again("RegisterBrokerRecord", 4, is_migrating_zk_broker=True),
    "the broker with other directories": again(
        "RegisterBrokerRecord", 4, log_dirs=[uuid.UUID(int=200 + number) for number in range(3)]
    ),
    "the broker with a directory twice": again("RegisterBrokerRecord", 4, log_dirs=[uuid.UUID(int=200)] * 3),
    "the broker with reserved directories": again(
        "RegisterBrokerRecord", 4, log_dirs=[uuid.UUID(int=number) for number in range(3)]
    ),
    "a second broker": again("RegisterBrokerRecord", 4, broker_id=SECOND_BROKER, incarnation_id=uuid.UUID(int=6)),
    "a second broker with the same directories": again(
        "RegisterBrokerRecord", 4, broker_id=SECOND_BROKER, incarnation_id=uuid.UUID(int=6), fenced=False
    ),
    "a second broker without features": again(
        "RegisterBrokerRecord", 4, broker_id=SECOND_BROKER, incarnation_id=uuid.UUID(int=6), features=[],
        log_dirs=[uuid.UUID(int=300)],
    ),
    "a negative broker": again("RegisterBrokerRecord", 4, broker_id=-5, log_dirs=[uuid.UUID(int=300)]),
    "the broker unregistered": changes_broker("UnregisterBrokerRecord"),
    "the broker fenced": changes_broker("FenceBrokerRecord"),
    "the broker unfenced by a record": changes_broker("UnfenceBrokerRecord"),
    "the broker changed": changes_broker("BrokerRegistrationChangeRecord", 2, fenced=-1),
    "the broker changed somehow": changes_broker("BrokerRegistrationChangeRecord", 2, fenced=7),
    "the broker shut down somehow": changes_broker("BrokerRegistrationChangeRecord", 2, in_controlled_shutdown=7),
    "the broker with one directory": changes_broker(
        "BrokerRegistrationChangeRecord", 2, log_dirs=[uuid.UUID(int=200)]
    ),
    "the directories cordoned": changes_broker(
        "BrokerRegistrationChangeRecord", 3, cordoned_log_dirs=[uuid.UUID(int=200)]
    ),
    "the controller again": again("RegisterControllerRecord", 0),
    "the controller without listeners": again("RegisterControllerRecord", 0, end_points=[]),
    "the controller without features": again("RegisterControllerRecord", 0, features=[]),
    "a second controller": again("RegisterControllerRecord", 0, controller_id=SECOND_BROKER),
    "a second controller without features": again(
        "RegisterControllerRecord", 0, controller_id=SECOND_BROKER, features=[]
    ),
    **{f"a config of resource type {kind} named {name!r}": adds(
        "ConfigRecord", resource_type=kind, resource_name=name, name="unheard.of", value="x")
       for kind, name in ((0, ""), (1, ""), (2, ""), (4, ""), (4, "1"), (4, "x"), (8, "1"), (16, "a"), (32, "a"),
                          (99, "a"), (-1, "a"))},
    **{f"broker config {name}={value} of {broker!r}": adds(
        "ConfigRecord", resource_type=4, resource_name=broker, name=name, value=value)
       for broker, name, value in BROKER_CONFIGS},
    **{f"topic config {name}={value!r}": adds(
        "ConfigRecord", resource_type=2, resource_name="orders", name=name, value=value)
       for name, value in TOPIC_CONFIGS},
    "segments that compaction never gets": adds_bytes(
        framed("ConfigRecord", resource_type=2, resource_name="orders", name="min.compaction.lag.ms", value="100"),
        framed("ConfigRecord", resource_type=2, resource_name="orders", name="max.compaction.lag.ms", value="10"),
    ),
    "local retention above retention": adds_bytes(
        framed("ConfigRecord", resource_type=2, resource_name="orders", name="retention.ms", value="100"),
        framed("ConfigRecord", resource_type=2, resource_name="orders", name="local.retention.ms", value="1000"),
    ),
    "a quota": adds("ClientQuotaRecord", key="producer_byte_rate", value=1.0),
    "a quota of users": adds(
        "ClientQuotaRecord", key="producer_byte_rate", value=1e9,
        entity=[message("ClientQuotaRecord").structs["EntityData"](entity_type="user", entity_name="a")],
    ),
    "a quota of nothing known": adds("ClientQuotaRecord", key="unheard.of", value=1.0),
    "a quota that is no number": adds("ClientQuotaRecord", key="producer_byte_rate", value=float("nan")),
    "an ACL": adds("AccessControlEntryRecord", **ENTRY),
    "an ACL twice": adds_bytes(*[framed("AccessControlEntryRecord", **ENTRY)] * 2),
    "an ACL of an unknown resource": adds("AccessControlEntryRecord", **{**ENTRY, "resource_type": 77}),
    "an ACL with an unknown pattern": adds("AccessControlEntryRecord", **{**ENTRY, "pattern_type": 77}),
    "an ACL with an unknown operation": adds("AccessControlEntryRecord", **{**ENTRY, "operation": 77}),
    "an ACL with an unknown permission": adds("AccessControlEntryRecord", **{**ENTRY, "permission_type": 0}),
    "an ACL of a broken principal": adds("AccessControlEntryRecord", **{**ENTRY, "principal": "nobody"}),
    "a credential": adds("UserScramCredentialRecord", **SCRAM),
    "a credential twice": adds_bytes(*[framed("UserScramCredentialRecord", **SCRAM)] * 2),
    "a credential of an unknown kind": adds("UserScramCredentialRecord", **{**SCRAM, "mechanism": 9}),
    "a credential without iterations": adds("UserScramCredentialRecord", **{**SCRAM, "iterations": 0}),
    "a removed credential of an unknown kind": adds("RemoveUserScramCredentialRecord", name="a", mechanism=9),
    "a removed credential": adds("RemoveUserScramCredentialRecord", name="a", mechanism=1),
    "a token": adds("DelegationTokenRecord", owner="User:a", requester="User:a", token_id="t"),
    "a token of a broken owner": adds("DelegationTokenRecord", owner="a", requester="", token_id="t"),
    "a removed token": adds("RemoveDelegationTokenRecord", token_id="t"),
    **{f"producer ids up to {number}": adds("ProducerIdsRecord", broker_id=1, broker_epoch=0, next_producer_id=number)
       for number in (-1, 999, 1_000, 1_001, 10**12, 2**63 - 1)},
    **{f"ZooKeeper state {state}": adds("ZkMigrationStateRecord", zk_migration_state=state)
       for state in (0, 1, 2, 3, 4, 9)},
    "the ELR of all cleared": adds("ClearElrRecord"),
    "the ELR of a topic cleared": adds("ClearElrRecord", topic_name="orders"),
    "the ELR of no topic cleared": adds("ClearElrRecord", topic_name="nowhere"),
    "a metadata transaction that does not end": adds_bytes(
        BEGIN, TOPIC
    ),
    "a metadata transaction that is aborted": adds_bytes(
        BEGIN, TOPIC, ABORT
    ),
    "a metadata transaction that ends": adds_bytes(
        BEGIN, TOPIC, END
    ),
    "a metadata transaction that is wrong and aborted": adds_bytes(
        BEGIN, framed("RemoveTopicRecord", topic_id=NOBODY), ABORT
    ),
    "a metadata transaction with a level that is wrong": adds_bytes(
        BEGIN, framed("FeatureLevelRecord", name="group.version", feature_level=9),
    ),
    "an aborted transaction that was not begun": adds("AbortTransactionRecord"),
    **{f"a snapshot without any {kind}": in_snapshot(without(kind)) for kind in (
        "FeatureLevelRecord", "RegisterBrokerRecord", "RegisterControllerRecord", "TopicRecord", "PartitionRecord",
        "ConfigRecord", "ProducerIdsRecord",
    )},
    **{f"a snapshot without one {kind}": in_snapshot(without(kind, 1)) for kind in (
        "FeatureLevelRecord", "TopicRecord", "PartitionRecord", "ConfigRecord",
    )},
    "a snapshot in disorder": in_snapshot(shuffled),
    "a snapshot with a record twice": in_snapshot(one_twice),
    "a snapshot with a record less": in_snapshot(one_less),
    "a snapshot with two records exchanged": in_snapshot(two_exchanged),
    "a snapshot with unknown tagged fields": in_snapshot(with_tags),
    "a snapshot with unknown records": in_snapshot(lambda values, rng: [*values, bytes([FRAME, 99, 0, 0])]),
    "a snapshot without a record": in_snapshot(lambda values, rng: None),
    **{f"a log without any {kind}": in_log(without(kind)) for kind in (
        "PartitionChangeRecord", "BrokerRegistrationChangeRecord", "NoOpRecord",
    )},
    "a log with a record twice": in_log(one_twice),
    "a log with a record less": in_log(one_less),
    "a log in disorder": in_log(shuffled),
    "a log with unknown tagged fields": in_log(with_tags),
}  # fmt: skip
