"""JSON is what Kafka's converters write, and text is what Jackson prints."""

import json
import math
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import protocol
from tidelog.errors import InvalidRequestError
from tidelog.protocol.json_text import java_double

PRODUCE = protocol.request(0)
TOPIC = protocol.metadata_record(2)
FETCH = protocol.request(1)


def test_fields_stand_in_the_order_of_the_tables() -> None:
    value = protocol.message("OffsetCommitValue").new(offset=5, metadata="m", commit_timestamp=9)
    node = protocol.message("OffsetCommitValue").to_json(value, 3)
    assert protocol.json_text(node) == '{"offset":5,"leaderEpoch":-1,"metadata":"m","commitTimestamp":9}'


def test_a_uuid_is_22_characters_of_base64_for_addresses() -> None:
    value = TOPIC.new(name="t", topic_id=uuid.UUID(bytes=b"\xfb\xff" * 8))
    assert TOPIC.to_json(value, 0) == {"name": "t", "topicId": "-__7__v_-__7__v_-__7_w"}
    assert TOPIC.from_json(TOPIC.to_json(value, 0), 0) == value


def test_tagged_fields_are_written_unless_they_are_at_their_default() -> None:
    assert "clusterId" not in FETCH.to_json(FETCH.new(), 12)
    assert FETCH.to_json(FETCH.new(cluster_id="c"), 12)["clusterId"] == "c"
    assert FETCH.to_json(FETCH.new(cluster_id="c"), 12)["replicaId"] == -1
    assert FETCH.from_json(FETCH.to_json(FETCH.new(cluster_id="c"), 12), 12) == FETCH.new(cluster_id="c")


@pytest.mark.parametrize(
    ("form", "wanted"),
    [("base64", {"records": "AQI="}), ("size", {"recordsSizeInBytes": 2}), ("empty", {"records": ""})],
)
def test_record_data_is_written_in_three_forms(form: Any, wanted: dict[str, Any]) -> None:
    topic = {"name": "t", "partition_data": [{"index": 1, "records": b"\1\2"}]}
    node = PRODUCE.to_json(PRODUCE.new(topic_data=[topic]), 9, records=form)
    assert node["topicData"][0]["partitionData"] == [{"index": 1, **wanted}]


@pytest.mark.parametrize("form", ["base64", "size", "empty"])
def test_record_data_that_is_null_is_null_in_every_form(form: Any) -> None:
    topic = {"name": "t", "partition_data": [{"index": 1, "records": None}]}
    node = PRODUCE.to_json(PRODUCE.new(topic_data=[topic]), 9, records=form)
    assert node["topicData"][0]["partitionData"] == [{"index": 1, "records": None}]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ([], "TopicRecord is a JSON object, not"),
        ({"name": "t"}, "TopicRecord has no topicId, which version 0 must have"),
        ({"name": None, "topicId": ""}, "name of TopicRecord is None"),
        ({"name": 5, "topicId": ""}, "name of TopicRecord cannot be 5: it is of type string"),
        ({"name": "t", "topicId": "AAAA"}, "cannot be 'AAAA': it is base64 of a uuid"),
        ({"name": "t", "topicId": "\u00e9"}, "it is base64 of a uuid"),
    ],
)
def test_json_that_is_no_message_is_refused(node: Any, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        TOPIC.from_json(node, 0)
    assert reason in str(caught.value)


@pytest.mark.parametrize("acks", [True, 1.5, "1", [], {}])
def test_a_number_is_a_whole_number(acks: Any) -> None:
    node = {"transactionalId": None, "acks": acks, "timeoutMs": 1, "topicData": []}
    with pytest.raises(InvalidRequestError, match="acks of ProduceRequest cannot be .*: it is of type int16"):
        PRODUCE.from_json(node, 9)


def test_an_array_is_an_array() -> None:
    node = {"transactionalId": None, "acks": 1, "timeoutMs": 1, "topicData": {}}
    with pytest.raises(InvalidRequestError, match="topicData of ProduceRequest is a JSON array, not {}"):
        PRODUCE.from_json(node, 9)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_the_text_is_json(node: Any) -> None:
    assert json.loads(protocol.json_text(node)) == node


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_a_double_is_spelt_as_java_does_and_means_the_same(bits: int) -> None:
    (value,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    text = java_double(value)
    if math.isnan(value):
        assert text == "NaN"
    else:
        assert float(text) == value
        digits, _, exponent = text.removeprefix("-").partition("E")
        if "Infinity" not in text:
            assert digits.count(".") == 1
            assert digits[-1].isdigit()
            assert not exponent or 1 <= float(digits) < 10
