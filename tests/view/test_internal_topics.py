"""Records of internal topics as plain values."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import corpus
from tidelog.errors import InvalidRequestError
from tidelog.protocol import coordinator_record, message, message_names, metadata_record
from tidelog.records import read_batches
from tidelog.records.record import Record
from tidelog.view.internal_topics import INTERNAL_TOPICS, TRANSACTION_STATES, DecodedRecord, decode_internal


def record_of(key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=0, timestamp_ms=0, key=key, value=value)


def records_of(log: Path) -> list[Record]:
    batches = read_batches(log.read_bytes())
    return [record for batch in batches if not batch.is_control for record in batch.records()]


def printed_values(partition: corpus.Partition, log: Path, option: str) -> list[tuple[str | None, str | None]]:
    """Key and payload of each record as Kafka's own tool printed them, as far as the corpus keeps them."""
    dump = corpus.dump(partition, log.name, f"--{option}")
    line = r"headerKeys: \[\](?! endTxnMarker| Leader| KRaft| Snapshot)(?: key: (\{.*?\}\}))?(?: payload: (.*))?\n"
    return [(key or None, payload or None) for key, payload in re.findall(line, dump.visible)]


def printed_records(partition: corpus.Partition, option: str) -> Iterator[tuple[Record, str | None, str | None]]:
    for log in [*partition.logs, *sorted(partition.path.glob("*.checkpoint"))]:
        printed = printed_values(partition, log, option)
        for record, (key, payload) in zip(records_of(log), printed, strict=False):
            yield record, key, payload


@pytest.mark.parametrize(
    ("case", "topic", "option"),
    [
        ("kafka-4.3/8-consumer-offsets", "__consumer_offsets", "offsets-decoder"),
        ("kafka-4.3/8-consumer-offsets", "__transaction_state", "transaction-log-decoder"),
        ("kafka-4.3/9-metadata", "__cluster_metadata", "cluster-metadata-decoder"),
    ],
)
def test_values_are_those_that_kafkas_tool_prints(case: str, topic: str, option: str) -> None:
    compared = 0
    for partition in corpus.partitions(case):
        if not partition.path.name.startswith(topic):
            continue
        for record, key, payload in printed_records(partition, option):
            decoded = decode_internal(topic, record)
            assert decoded.problem is None
            assert key is None or json.loads(key)["data"] == decoded.key
            if payload == "<DELETE>":
                assert decoded.value is None
            elif payload is not None:
                assert as_numbers(decoded.value) == json.loads(payload)["data"]
                assert decoded.version == int(json.loads(payload)["version"])
            compared += 1
    assert compared > 10


def as_numbers(value: dict[str, object] | None) -> dict[str, object]:
    """With the number of a transaction's state in place of its name."""
    assert value is not None
    if "transactionStatus" in value:
        return {**value, "transactionStatus": TRANSACTION_STATES.index(str(value["transactionStatus"]))}
    return value


def test_an_offset_commit() -> None:
    key = bytes.fromhex("0001 0001") + b"g" + bytes.fromhex("0001") + b"t" + bytes.fromhex("00000002")
    value = message("OffsetCommitValue")
    data = bytes.fromhex("0003") + value.write(value.new(offset=5, leader_epoch=1, metadata="m", commit_timestamp=9), 3)
    assert decode_internal("__consumer_offsets", record_of(key, data)) == DecodedRecord(
        key={"group": "g", "topic": "t", "partition": 2},
        value={"offset": 5, "leaderEpoch": 1, "metadata": "m", "commitTimestamp": 9},
        type="OffsetCommit",
        version=3,
    )
    tombstone = decode_internal("__consumer_offsets", record_of(key, None))
    assert (tombstone.value, tombstone.problem, tombstone.type) == (None, None, "OffsetCommit")


@pytest.mark.parametrize("version", range(5))
def test_the_first_kind_of_offset_key_goes_with_any_version_of_the_value(version: int) -> None:
    key = bytes.fromhex("0000 0000 0001") + b"t" + bytes(4)
    value = message("OffsetCommitValue")
    data = version.to_bytes(2, "big") + value.write(value.new(offset=5), version)
    decoded = decode_internal("__consumer_offsets", record_of(key, data))
    assert (decoded.type, decoded.problem) == ("OffsetCommit", None)
    assert decoded.value is not None
    assert decoded.value["offset"] == 5


def test_what_members_of_a_consumer_group_carry_is_opened() -> None:
    assignment = message("ConsumerProtocolAssignment")
    content = assignment.write(assignment.new(assigned_partitions=[{"topic": "t", "partitions": [0, 3]}]), 1)
    group = message("GroupMetadataValue")
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "subscription": b"?", "assignment": b""}
    for version in (1, 9):  # a version of the future begins like the newest
        member["assignment"] = version.to_bytes(2, "big") + content
        value = group.write(group.new(protocol_type="consumer", members=[member]), 3)
        decoded = decode_internal("__consumer_offsets", record_of(b"\x00\x02\x00\x01g", b"\x00\x03" + value))
        assert decoded.value is not None
        (found,) = decoded.value["members"]
        assert found["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [0, 3]}]
        assert found["subscription"] == base64.b64encode(b"?").decode()


def test_the_state_of_a_transaction_is_named() -> None:
    value = message("TransactionLogValue")
    for status, name in enumerate(TRANSACTION_STATES):
        data = b"\x00\x00" + value.write(value.new(transaction_status=status), 0)
        decoded = decode_internal("__transaction_state", record_of(b"\x00\x00\x00\x01x", data))
        assert decoded.value is not None
        assert (decoded.key, decoded.value["transactionStatus"]) == ({"transactionalId": "x"}, name)


def test_every_type_of_record_can_be_decoded() -> None:
    families = {"group": "__consumer_offsets", "share": "__share_group_state", "transaction": "__transaction_state"}
    types = {"group": [*range(9), *range(10, 18), *range(19, 24)], "share": [0, 1], "transaction": [0]}
    for family, topic in families.items():
        for number in types[family]:
            key, value = coordinator_record(family, number)
            assert value is not None
            version = value.valid_versions[-1]
            data = version.to_bytes(2, "big") + value.write(value.new(), version)
            decoded = decode_internal(topic, record_of(number.to_bytes(2, "big") + key.write(key.new(), 0), data))
            assert decoded.problem is None
            assert key.name in (f"{decoded.type}Key", f"Legacy{decoded.type}Key")


def test_every_record_of_the_metadata_log_can_be_decoded() -> None:
    names = [name for name in message_names() if message(name).kind == "metadata" and "Remote" not in name]
    assert len(names) > 20
    for name in names:
        api_key = message(name).api_key
        assert api_key is not None
        record_type = metadata_record(api_key)
        version = record_type.valid_versions[-1]
        data = bytes([1, api_key, version]) + record_type.write(record_type.new(), version)
        decoded = decode_internal("__cluster_metadata", record_of(None, data))
        assert (decoded.type, decoded.version, decoded.problem) == (name, version, None)


def test_remote_log_metadata() -> None:
    delete = message("RemotePartitionDeleteMetadataRecord")
    decoded = decode_internal("__remote_log_metadata", record_of(None, b"\x01\x02\x00" + delete.write(delete.new(), 0)))
    assert (decoded.type, decoded.problem) == ("RemotePartitionDeleteMetadataRecord", None)
    assert decode_internal("__remote_log_metadata", record_of(None, b"\x01\x09\x00")).problem == (
        "no record of remote log metadata has the key 9 in Kafka 4.3"
    )


@pytest.mark.parametrize(
    ("topic", "key", "value", "problem"),
    [
        ("__consumer_offsets", None, b"", "the record has no key"),
        ("__consumer_offsets", b"\x00", b"", "1 bytes are too few for the number that comes first"),
        ("__consumer_offsets", b"\x7f\xff", b"", "the group coordinator has no record type 32767 in Kafka 4.3"),
        ("__cluster_metadata", None, None, "the record has no value"),
        ("__cluster_metadata", None, b"\x00", "a frame of version 0; only version 1 is known"),
        ("__cluster_metadata", None, b"\x01\x14\x00\x00!", "1 bytes follow the NoOpRecord"),
    ],
)
def test_what_cannot_be_decoded_has_a_problem(topic: str, key: bytes | None, value: bytes | None, problem: str) -> None:
    decoded = decode_internal(topic, record_of(key, value))
    assert (decoded.value, decoded.problem) == (None, problem)


def test_a_key_that_can_be_read_is_kept_when_the_value_cannot() -> None:
    decoded = decode_internal("__consumer_offsets", record_of(b"\x00\x03\x00\x01g", b"\x00\x00\x01"))
    assert (decoded.key, decoded.type) == ({"groupId": "g"}, "ConsumerGroupMetadata")
    assert decoded.problem is not None


def test_another_topic_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'orders' is no internal topic"):
        decode_internal("orders", record_of(b"", b""))


@given(
    st.sampled_from(INTERNAL_TOPICS),
    st.none() | st.binary(max_size=3).map(lambda data: b"\x00" + data) | st.binary(max_size=40),
    st.none() | st.binary(max_size=60).map(lambda data: b"\x01" + data) | st.binary(max_size=60),
)
def test_nothing_in_a_record_raises(topic: str, key: bytes | None, value: bytes | None) -> None:
    decoded = decode_internal(topic, record_of(key, value))
    json.dumps(decoded)
    assert decoded.problem or decoded.type
