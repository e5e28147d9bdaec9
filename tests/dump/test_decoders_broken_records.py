"""Bytes that are not what they should be: every decoder answers with a text, or with the exception of the tool."""

import contextlib
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dump.test_decoders import records_of
from tests.golden import corpus
from tidelog.dump.decoders import decoder_for
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import release
from tidelog.protocol import coordinator_record
from tidelog.records.record import Record

OPTIONS = {
    "offsets-decoder": [
        "0.9.0.1",
        "0.10.0",
        "0.10.2",
        "1.0.0",
        "2.0",
        "2.4.0",
        "2.7",
        "3.3",
        "3.7",
        "3.8",
        "4.0",
        "4.3",
    ],
    "transaction-log-decoder": ["0.11", "2.4.0", "2.4.1", "2.8", "3.7", "4.0", "4.1", "4.3"],
    "cluster-metadata-decoder": ["2.8", "3.0", "3.6", "4.3"],
    "remote-log-metadata-decoder": ["3.9", "4.3"],
    "share-group-state-decoder": ["4.0", "4.3"],
}
TOPICS = {
    "offsets-decoder": "__consumer_offsets",
    "transaction-log-decoder": "__transaction_state",
    "cluster-metadata-decoder": "__cluster_metadata",
}


@functools.cache
def real_records(option: str) -> list[Record]:
    """Records of the topic that the option is for, as Kafka wrote them."""
    topic = TOPICS.get(option)
    return [
        record
        for partition in corpus.partitions("kafka-4.3/8-consumer-offsets", "kafka-4.3/9-metadata", "dump-formats")
        if topic and partition.path.name.startswith(topic)
        for log in partition.logs
        for record in records_of(log)
    ] or [Record(0, 0, b"\x00\x00\x00\x01a", b"\x01\x00\x00\x00\x00"), Record(0, 0, b"\x00\x01", b"\x01\x02\x00")]


@st.composite
def broken(draw: st.DrawFn, data: bytes | None) -> bytes | None:
    """The bytes with a few others in their place, or cut, or longer."""
    if data is None:
        return draw(st.none() | st.binary(max_size=8))
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(start + 6, len(data))))
    return data[:start] + draw(st.binary(max_size=6)) + draw(st.just(data[end:]) | st.just(b""))


CASES = [(option, tool) for option, tools in OPTIONS.items() for tool in tools]


@pytest.mark.parametrize(("option", "tool"), CASES)
def test_broken_bytes_give_a_text_or_the_exception_of_the_tool(option: str, tool: str) -> None:
    decoder = decoder_for(option, release(tool))
    records = real_records(option)

    @settings(max_examples=25)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(records))
        record = record._replace(key=data.draw(broken(record.key)), value=data.draw(broken(record.value)))
        with contextlib.suppress(JavaError):
            assert all(text is None or isinstance(text, str) for text in decoder.decode(record))

    check()


@given(record_type=st.integers(0, 30), key=st.binary(max_size=40), value=st.binary(max_size=80))
def test_the_newest_tool_is_never_ended_by_a_record_with_a_key(record_type: int, key: bytes, value: bytes) -> None:
    prefix = record_type.to_bytes(2, "big")
    for option in ("offsets-decoder", "transaction-log-decoder", "share-group-state-decoder"):
        text, _ = decoder_for(option, release("4.3")).decode(Record(7, 0, prefix + key, b"\x00\x00" + value))
        assert text is not None
        assert text.startswith(('{"type":', "Unknown record type ", "Error at offset 7, skipping. "))


def test_every_type_of_group_record_is_decoded() -> None:
    decoder = decoder_for("offsets-decoder", release("4.3"))
    known = [number for number in range(24) if number not in (9, 18)]
    for number in known:
        key, value = coordinator_record("group", number)
        assert value is not None
        text, payload = decoder.decode(
            Record(0, 0, number.to_bytes(2, "big") + key.write(key.new(), 0), b"\x00\x00" + value.write(value.new(), 0))
        )
        assert text is not None
        assert text.startswith(f'{{"type":"{number}","data":{{')
        assert payload is not None
        assert payload.startswith('{"version":"0","data":{')
