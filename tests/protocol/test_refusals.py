"""Bytes that are no message raise errors of ours, soon and without much memory; so do values that are none."""

import time
import tracemalloc
import uuid
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.damage import damaged
from tests.protocol.values import Dice, Version, all_versions
from tidelog import protocol
from tidelog.errors import CorruptionError, InvalidRequestError, ProtocolError, UnsupportedError
from tidelog.protocol.schema import StructSchema

VERSIONS = list(all_versions())
METADATA = protocol.request(3)
PRODUCE = protocol.request(0)


# --- reading -----------------------------------------------------------------------------------------------------


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(version: Version, data: bytes) -> None:
    check(version, data)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(VERSIONS), st.randoms(use_true_random=False))
def test_any_damage_is_read_or_refused(version: Version, random: Random) -> None:
    data = version.message.write(Dice(random).value(version), version.number)
    check(version, damaged(random, data))


def check(version: Version, data: bytes) -> None:
    message, number = version
    value, reason = None, ""
    try:
        value, end = message.read_from(data, number, 0)
    except ProtocolError as error:
        reason = str(error)
    if value is None:
        assert reason.startswith(f"{message.name} version {number}: ")
        return
    assert end <= len(data)
    message.to_json(value, number)
    if "unknown_tags" not in repr(value):  # a damaged one may have a number that no writer may use
        written = message.write(value, number)
        assert message.write(message.read(written, number), number) == written


def test_damage_in_every_version_is_read_or_refused_soon() -> None:
    random = Random(11)
    dice = Dice(random)
    slowest = 0.0
    for version in VERSIONS:
        data = version.message.write(dice.value(version), version.number)
        check(version, data)  # what compiling takes does not count
        for _ in range(6):
            hostile = damaged(random, data)
            began = time.process_time()
            check(version, hostile)
            slowest = max(slowest, time.process_time() - began)
    assert slowest < 0.5


def test_a_count_that_cannot_be_is_refused_before_anything_is_made_for_it() -> None:
    for count in (b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00"):
        tracemalloc.start()
        try:
            with pytest.raises(
                ProtocolError, match="topics of MetadataRequest has .* elements, more than the 3 bytes left"
            ):
                METADATA.read(count + b"abc", 0)
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("count", [b"\x05", b"\xff\xff\xff\xff\x07"])
def test_an_array_of_numbers_is_compared_with_what_is_left(count: bytes) -> None:
    elect_leaders = protocol.request(43)
    whole = elect_leaders.new(topic_partitions=[{"topic": "a", "partitions": [1, 2, 3]}])
    data = elect_leaders.write(whole, 2)
    at = data.index(b"\x02a") + 2
    with pytest.raises(ProtocolError):
        elect_leaders.read(data[:at] + count + data[at + 1 :], 2)


def least_size(schema: StructSchema, version: Version) -> int:
    """How few bytes a struct can have."""
    message, number = version
    fixed = {
        "bool": 1,
        "int8": 1,
        "int16": 2,
        "uint16": 2,
        "int32": 4,
        "uint32": 4,
        "int64": 8,
        "float64": 8,
        "uuid": 16,
    }
    size = 1 if number in message.flexible_versions else 0
    for field in schema.fields:
        if number in field.versions and not field.is_tagged(number):
            size += fixed.get(field.type, 1)
    return size


def test_no_element_of_an_array_has_no_bytes() -> None:
    """Else a count could ask for more structs than the message has bytes, again and again."""
    for version in VERSIONS:
        for schema in version.message.schema.structs.values():
            if any(version.number in field.versions for field in schema.fields):
                assert least_size(schema, version) > 0, (version, schema.name)


@pytest.mark.parametrize(
    ("data", "version", "reason"),
    [
        (b"", 0, "the bytes end in the middle of it"),
        (b"\xff\xff\xff\xff", 0, "topics of MetadataRequest is null, which this version does not allow"),
        (b"\x00\x00\x00\x01\x00\x09orders", 0, "name of MetadataRequestTopic has a length of 9, and 6 bytes are left"),
        (b"\x00\x00\x00\x01\xff\xff", 0, "name of MetadataRequestTopic is null"),
        (b"\x02\x81\x80\x02", 9, "length of 32768; text has at most 32767 bytes"),
        # -2**31 - 1 is the largest number of a JVM, not null
        (b"\x80\x80\x80\x80\x08", 9, "topics of MetadataRequest"),
        (b"\x00\x01\x01\x01\x01\x80\x80\x80\x80\x80", 9, "a varint of more than five bytes"),
        (b"\x00\x01\x01\x01\x01\x05\x09ab", 9, "tag 5 of MetadataRequest has a length of 9, and 2 bytes are left"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, version: int, reason: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        METADATA.read(data, version)
    assert f"MetadataRequest version {version}: " in str(caught.value)
    assert reason in str(caught.value)
    assert isinstance(caught.value, CorruptionError)


def test_a_tag_of_another_version_is_refused() -> None:
    fetch = protocol.request(1)
    data = fetch.write(fetch.new(replica_state={"replica_id": 1}), 15)
    assert fetch.read(data, 15).replica_state.replica_id == 1
    without_tags = fetch.write(fetch.new(), 12)
    with pytest.raises(ProtocolError, match="tag 1 of FetchRequest does not exist in this version"):
        fetch.read(without_tags[:-1] + b"\x01\x01\x00", 12)


def test_a_struct_is_null_if_the_byte_in_front_is_negative_and_only_then() -> None:
    heartbeat = protocol.request(88)  # of a streams group; its topology may be null
    null = heartbeat.write(heartbeat.new(topology=None), 0)
    empty = heartbeat.write(heartbeat.new(topology={}), 0)
    at = next(at for at, (of_null, of_empty) in enumerate(zip(null, empty, strict=False)) if of_null != of_empty)
    assert (null[at], empty[at]) == (0xFF, 1)
    for byte in (0x80, 0xFF):
        assert heartbeat.read(null[:at] + bytes([byte]) + null[at + 1 :], 0).topology is None
    for byte in (0, 1, 0x7F):
        assert (
            heartbeat.read(empty[:at] + bytes([byte]) + empty[at + 1 :], 0).topology == heartbeat.structs["Topology"]()
        )


def test_a_tag_twice_counts_once_and_their_order_is_free() -> None:
    heartbeat = protocol.response(12)
    data = heartbeat.write(heartbeat.new(), 4)
    read = heartbeat.read(data[:-1] + b"\x03\x07\x01a\x02\x01b\x07\x01c", 4)
    assert read.unknown_tags == {7: b"c", 2: b"b"}
    assert heartbeat.write(read, 4) == data[:-1] + b"\x02\x02\x01b\x07\x01c"


def test_text_that_is_no_utf_8_is_replaced_as_java_does() -> None:
    """An encoded surrogate is one broken character there, and several in Python."""
    data = b"\x00\x00\x00\x01\x00\x08a\xed\xa0\x80\xff\xc3\xa9b"
    assert METADATA.read(data, 0).topics[0].name == "a\ufffd\ufffd\u00e9b"


def test_a_start_outside_the_bytes_is_refused() -> None:
    for start in (-1, 5):
        with pytest.raises(ProtocolError, match="lies outside the 4 bytes given"):
            METADATA.read(b"\0\0\0\0", 0, start)


# --- writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "version", "reason"),
    [
        ({"acks": 2**15}, 9, "acks of ProduceRequest is 32768, and not of type int16"),
        ({"acks": "all"}, 9, "acks of ProduceRequest is 'all', and not of type int16"),
        ({"transactional_id": b"x"}, 9, "transactionalId of ProduceRequest is b'x', and not of type string"),
        ({"transactional_id": "x" * 40_000}, 9, "and not of type string"),
        ({"transactional_id": "x" * 40_000}, 8, "and not of type string"),
        ({"transactional_id": "\ud800"}, 9, "and not of type string"),
        ({"topic_data": None}, 9, "topicData is None, which this version cannot say"),
        ({"topic_data": 7}, 9, "is 7, and not a list"),
        ({"topic_data": [7]}, 9, "7 is no TopicProduceData"),
        ({"topic_data": [{"name": None}]}, 9, "name of TopicProduceData is None, which cannot be"),
        ({"topic_data": [{"partition_data": [{"records": "x"}]}]}, 9, "is 'x', and not of type records"),
        ({"topic_data": [{"topic_id": "x"}]}, 13, "is 'x', and not of type uuid"),
        ({"unknown_tags": {0: b""}}, 8, "ProduceRequest has unknown tags, and this version has no tagged fields"),
    ],
)
def test_a_value_that_cannot_be_written_is_named(fields: dict[str, object], version: int, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        PRODUCE.write(PRODUCE.new(**fields), version)
    assert str(caught.value).startswith(f"ProduceRequest version {version}: ")
    assert reason in str(caught.value)


def test_a_value_in_a_field_that_the_version_has_not_is_refused_unless_it_may_be_ignored() -> None:
    request = METADATA.new(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(InvalidRequestError, match="allowAutoTopicCreation of MetadataRequest has a value"):
        METADATA.write(request, 3)
    with pytest.raises(InvalidRequestError, match="allowAutoTopicCreation of MetadataRequest has a value"):
        METADATA.to_json(request, 3)
    assert METADATA.read(METADATA.write(request, 4), 4) == request

    response = protocol.response(3)
    answered = response.new(cluster_id="c", throttle_time_ms=5)  # both may be ignored
    assert response.read(response.write(answered, 0), 0) == response.new()


def test_an_unknown_tag_with_a_number_of_our_own_is_refused() -> None:
    fetch = protocol.request(1)
    for tag in (0, -1, 2**31 - 1):
        with pytest.raises(InvalidRequestError, match="cannot be an unknown one"):
            fetch.write(fetch.new(unknown_tags={tag: b""}), 12)


def test_something_else_than_the_struct_is_refused() -> None:
    for value in (None, {}, METADATA.new()):
        with pytest.raises(InvalidRequestError, match="is no ProduceRequest"):
            PRODUCE.write(value, 9)  # type: ignore[arg-type]


# --- versions and names ------------------------------------------------------------------------------------------


def test_a_version_that_is_not_there_is_named() -> None:
    for attempt in (
        lambda: PRODUCE.read(b"", 2),
        lambda: PRODUCE.write(PRODUCE.new(), 2),
        lambda: PRODUCE.to_json(PRODUCE.new(), 2),
        lambda: PRODUCE.from_json({}, 2),
    ):
        with pytest.raises(UnsupportedError, match="ProduceRequest has no version 2; there are 3 to 13"):
            attempt()
    with pytest.raises(UnsupportedError, match="LeaderAndIsrRequest has no version any more"):
        protocol.request(4).read(b"", 0)


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="ResponseHeader has no field 'client'; it has correlation_id"):
        protocol.message("ResponseHeader").new(client="x")
    with pytest.raises(AttributeError, match="ResponseHeader has no field 'client'"):
        _ = protocol.message("ResponseHeader").new().client


def test_uuids_are_not_made_twice() -> None:
    identity = uuid.uuid4()
    topic = {"topic_id": identity, "partition_data": []}
    data = PRODUCE.write(PRODUCE.new(topic_data=[topic, topic]), 13)
    first, second = PRODUCE.read(data, 13).topic_data
    assert first.topic_id == identity
    assert first.topic_id is second.topic_id
