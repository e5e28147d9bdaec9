"""What is written is read again, in every version of every message; and the JSON of it too."""

import math
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.values import Dice, Version, all_versions
from tidelog import protocol

VERSIONS = list(all_versions())
PRODUCE = protocol.request(0)


def check_round_trip(version: Version, value: protocol.Struct) -> None:
    message, number = version
    data = message.write(value, number)
    again, end = message.read_from(b"ab" + data + b"yz", number, 2)
    assert end == 2 + len(data)
    assert message.write(again, number) == data
    assert repr(again) == repr(value)  # nan is not equal to itself, its text is
    if "nan" not in repr(value):
        assert again == value
    assert message.read(memoryview(bytearray(data)), number, record_views=True).unknown_tags == value.unknown_tags


def test_all_messages_are_there() -> None:
    assert len(protocol.message_names()) == 280
    assert len(VERSIONS) == 728


@pytest.mark.parametrize("seed", range(3))
def test_every_version_of_every_message_is_read_as_written(seed: int) -> None:
    dice = Dice(Random(seed))
    for version in VERSIONS:
        check_round_trip(version, dice.value(version))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(VERSIONS), st.randoms(use_true_random=False))
def test_any_value_is_read_as_written(version: Version, random: Random) -> None:
    check_round_trip(version, Dice(random).value(version))


def test_json_of_every_version_is_read_as_written() -> None:
    dice = Dice(Random(7))
    for version in VERSIONS:
        message, number = version
        value = dice.value(version)
        node = message.to_json(value, number)
        again = message.from_json(node, number)
        assert message.write(again, number) == message.write(without_unknown_tags(value), number)
        assert protocol.json_text(message.to_json(again, number)) == protocol.json_text(node)


def without_unknown_tags(value: Any) -> Any:
    """Kafka's JSON does not hold them."""
    if isinstance(value, list):
        return [without_unknown_tags(element) for element in value]
    if not isinstance(value, protocol.Struct):
        return value
    return type(value)(**{name: without_unknown_tags(getattr(value, name)) for name in value.field_defaults})


def test_a_value_of_defaults_takes_no_more_than_it_must() -> None:
    """Tagged fields at their default are not written: the last byte of a flexible message counts none."""
    for message, number in VERSIONS:
        if number not in message.flexible_versions:
            continue
        nothing_null = all(field.default is not None or field.is_nullable(number) for field in message.fields)
        if nothing_null:
            assert message.write(message.new(), number)[-1:] == b"\0", (message, number)


def test_records_may_be_views_of_the_buffer() -> None:
    topic = {"name": "orders", "partition_data": [{"index": 3, "records": b"batches"}]}
    data = bytearray(PRODUCE.write(PRODUCE.new(acks=-1, topic_data=[topic]), 9))
    read = PRODUCE.read(data, 9, record_views=True)
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    data[data.index(b"batches")] = ord("B")
    assert bytes(records) == b"Batches"
    assert PRODUCE.write(read, 9) == data


def test_the_pieces_of_a_message_hold_its_records_without_a_copy() -> None:
    records = bytes(70_000)
    value = PRODUCE.new(topic_data=[{"name": "orders", "partition_data": [{"index": 3, "records": records}]}])
    parts = PRODUCE.write_parts(value, 9)
    assert any(part is records for part in parts)
    assert b"".join(parts) == PRODUCE.write(value, 9)


def test_a_double_that_is_no_number_survives() -> None:
    quota = protocol.message("ClientQuotaRecord")
    data = quota.write(quota.new(value=math.nan), 0)
    assert math.isnan(quota.read(data, 0).value)
    assert '"value":"NaN"' in protocol.json_text(quota.to_json(quota.read(data, 0), 0))


def test_structs_are_equal_if_all_of_them_is() -> None:
    heartbeat = protocol.response(12)
    assert heartbeat.new(error_code=5) == heartbeat.new(error_code=5)
    assert heartbeat.new(error_code=5) != heartbeat.new(error_code=6)
    assert heartbeat.new() != heartbeat.new(unknown_tags={9: b""})
    assert heartbeat.new() != protocol.response(13).new()
    assert repr(heartbeat.new(unknown_tags={9: b""})) == (
        "HeartbeatResponse(throttle_time_ms=0, error_code=0, unknown_tags={9: b''})"
    )
