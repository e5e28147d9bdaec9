"""The metadata of a cluster while metadata transactions begin and end."""

import copy
import tracemalloc
import uuid
from typing import Any

import pytest

from tidelog.fsck.cluster_image import ClusterImage
from tidelog.protocol import message

FRAME = 1
ORDERS, PAYMENTS, RETURNS = uuid.UUID(int=70), uuid.UUID(int=71), uuid.UUID(int=72)
ACL: dict[str, Any] = {"id": uuid.UUID(int=80), "resource_type": 2, "resource_name": "orders", "pattern_type": 3,
                       "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
SCRAM: dict[str, Any] = {"name": "a", "mechanism": 1, "salt": b"s", "stored_key": b"k", "server_key": b"k",
                         "iterations": 4096}  # fmt: skip
TOKEN: dict[str, Any] = {"owner": "User:a", "requester": "User:a", "renewers": [], "token_id": "t"}
BROKER: dict[str, Any] = {"broker_id": 1, "broker_epoch": 5, "incarnation_id": uuid.UUID(int=1), "fenced": False}


def framed(kind: str, /, version: int = 0, **fields: Any) -> bytes:
    schema = message(kind)
    assert schema.api_key is not None
    return bytes([FRAME, schema.api_key, version]) + schema.write(schema.new(**fields), version)


def config(resource: str, name: str, value: str | None, kind: int = 2) -> bytes:
    return framed("ConfigRecord", resource_type=kind, resource_name=resource, name=name, value=value)


def partition(topic: uuid.UUID, number: int, **fields: Any) -> bytes:
    whole: dict[str, Any] = {"replicas": [1], "isr": [1], "leader": 1, **fields}
    return framed("PartitionRecord", topic_id=topic, partition_id=number, **whole)


def registered(**fields: Any) -> bytes:
    return framed("RegisterBrokerRecord", 3, **{**BROKER, **fields})


BEGIN, END, ABORT = (framed(f"{word}TransactionRecord") for word in ("Begin", "End", "Abort"))
BEFORE = (
    framed("FeatureLevelRecord", name="metadata.version", feature_level=30),
    framed("TopicRecord", name="orders", topic_id=ORDERS),
    partition(ORDERS, 0), partition(ORDERS, 1),
    framed("TopicRecord", name="payments", topic_id=PAYMENTS), partition(PAYMENTS, 0),
    config("orders", "retention.ms", "1"), config("payments", "retention.ms", "1"), config("1", "a", "b", 4),
    registered(log_dirs=[uuid.UUID(int=5)]), registered(broker_id=2, log_dirs=[uuid.UUID(int=7)]),
    framed("ProducerIdsRecord", broker_id=1, broker_epoch=5, next_producer_id=1000),
    framed("AccessControlEntryRecord", **ACL), framed("UserScramCredentialRecord", **SCRAM),
    framed("DelegationTokenRecord", **TOKEN),
)  # fmt: skip
INSIDE = (
    framed("FeatureLevelRecord", name="metadata.version", feature_level=29),
    framed("FeatureLevelRecord", name="group.version", feature_level=1),
    framed("PartitionChangeRecord", topic_id=ORDERS, partition_id=0, leader=-1),
    framed("PartitionChangeRecord", topic_id=ORDERS, partition_id=0, isr=[]),
    partition(ORDERS, 1, leader=-1), partition(ORDERS, 2), framed("ClearElrRecord"),
    framed("RemoveTopicRecord", topic_id=PAYMENTS),
    framed("TopicRecord", name="payments", topic_id=RETURNS), partition(RETURNS, 0),
    config("payments", "retention.ms", "3"), config("orders", "retention.ms", None), config("orders", "a", "b"),
    config("returns", "retention.ms", "3"), config("1", "a", "c", 4), config("", "a", "c", 4),
    registered(broker_epoch=6, log_dirs=[uuid.UUID(int=6)]), registered(broker_id=3, log_dirs=[uuid.UUID(int=5)]),
    framed("BrokerRegistrationChangeRecord", 2, broker_id=1, broker_epoch=6, log_dirs=[uuid.UUID(int=8)]),
    framed("UnregisterBrokerRecord", broker_id=2, broker_epoch=5),
    framed("RegisterControllerRecord", controller_id=1, incarnation_id=uuid.UUID(int=1), zk_migration_ready=False),
    framed("ProducerIdsRecord", broker_id=1, broker_epoch=5, next_producer_id=2000),
    framed("RemoveAccessControlEntryRecord", id=ACL["id"]),
    framed("RemoveUserScramCredentialRecord", name="a", mechanism=1),
    framed("UserScramCredentialRecord", **{**SCRAM, "name": "b"}),
    framed("RemoveDelegationTokenRecord", token_id="t"), framed("DelegationTokenRecord", **{**TOKEN, "token_id": "u"}),
)  # fmt: skip


def replayed(*records: bytes) -> ClusterImage:
    image = ClusterImage()
    for record in records:
        image.take(record)
    return image


def held(image: ClusterImage) -> dict[str, Any]:
    return copy.deepcopy({name: value for name, value in vars(image).items() if name != "_undo"})


def test_an_aborted_transaction_leaves_the_metadata_as_it_was() -> None:
    assert held(replayed(*BEFORE, BEGIN, *INSIDE, ABORT)) == held(replayed(*BEFORE))


@pytest.mark.parametrize("count", range(1, len(INSIDE) + 1))
def test_a_transaction_without_an_end_is_undone(count: int) -> None:
    image = replayed(*BEFORE, BEGIN, *INSIDE[:count])
    assert held(image) != held(replayed(*BEFORE))
    image.abort_transaction()
    assert held(image) == held(replayed(*BEFORE))


def test_a_transaction_that_ends_keeps_its_changes() -> None:
    assert held(replayed(*BEFORE, BEGIN, *INSIDE, END)) == held(replayed(*BEFORE, *INSIDE))


def test_changes_after_a_transaction_are_not_undone_with_the_next_one() -> None:
    image = replayed(*BEFORE, BEGIN, END, *INSIDE, BEGIN, partition(ORDERS, 7), ABORT)
    assert held(image) == held(replayed(*BEFORE, *INSIDE))
    image.abort_transaction()
    assert held(image) == held(replayed(*BEFORE, *INSIDE))


def test_a_transaction_costs_what_it_changes_and_not_what_there_is() -> None:
    """Otherwise a log of many topics and many transactions takes minutes."""
    topics = [uuid.UUID(int=1_000 + number) for number in range(500)]
    image = replayed(*(framed("TopicRecord", name=str(one), topic_id=one) for one in topics))
    tracemalloc.start()
    try:
        image.take(BEGIN)
        image.take(partition(topics[0], 0))
        image.take(END)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000
