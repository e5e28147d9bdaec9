"""Frames that real clients and a real broker sent each other are read, understood and written as they were."""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.golden import corpus
from tidelog import protocol
from tidelog.errors import ProtocolError, UnsupportedError

CLIENTS = ["aiokafka", "broker", "java", "java-cli", "kafka-python", "kcat", "librdkafka", "raw-probe"]


class Frame(NamedTuple):
    """A recorded frame: the messages it is made of, their versions, and what is recorded of them."""

    data: bytes
    header: protocol.MessageType
    header_version: int
    body: protocol.MessageType
    version: int
    trailing: bytes
    header_json: Any
    body_json: Any


def frames(client: str) -> Iterator[Frame]:
    for pair in corpus.lines("wire", f"{client}.jsonl"):
        if "request_json" in pair:
            yield _frame(pair, "request", pair["api_version"])
        if pair["response"] is not None:
            yield _frame(pair, "response", pair.get("response_version", pair["api_version"]))


def _frame(pair: dict[str, Any], side: str, version: int) -> Frame:
    key = pair["api_key"]
    if side == "request":
        header, header_version = "RequestHeader", protocol.request_header_version(key, version)
        body = protocol.request(key)
    else:
        header, header_version = "ResponseHeader", protocol.response_header_version(key, version)
        body = protocol.response(key)
    return Frame(
        base64.b64decode(pair[side]),
        protocol.message(header),
        header_version,
        body,
        version,
        base64.b64decode(pair.get(f"{side}_trailing", "")),
        as_kafka_spells(pair[f"{side}_header"]),
        as_kafka_spells(pair[f"{side}_json"]),
    )


def as_kafka_spells(node: Any) -> Any:
    """The recording names fields as the tables do, Kafka's converters begin them with a small letter."""
    if isinstance(node, list):
        return [as_kafka_spells(element) for element in node]
    if isinstance(node, dict):
        return {name[0].lower() + name[1:]: as_kafka_spells(value) for name, value in node.items()}
    return node


def without_unknown_tags(node: Any) -> Any:
    """Kafka's converters do not write unknown tags; the recording does."""
    if isinstance(node, list):
        return [without_unknown_tags(element) for element in node]
    if isinstance(node, dict):
        return {name: without_unknown_tags(value) for name, value in node.items() if name != "_unknownTaggedFields"}
    return node


@pytest.mark.parametrize("client", CLIENTS)
def test_every_frame_says_what_was_recorded_and_is_written_to_the_same_bytes(client: str) -> None:
    count = 0
    for frame in frames(client):
        header, begin = frame.header.read_from(frame.data, frame.header_version, 0)
        body, end = frame.body.read_from(frame.data, frame.version, begin)
        assert frame.data[end:] == frame.trailing

        header_json = frame.header.to_json(header, frame.header_version)
        body_json = frame.body.to_json(body, frame.version)
        assert protocol.json_text(header_json) == protocol.json_text(without_unknown_tags(frame.header_json))
        assert protocol.json_text(body_json) == protocol.json_text(without_unknown_tags(frame.body_json))

        written = frame.header.write(header, frame.header_version) + frame.body.write(body, frame.version)
        assert written + frame.trailing == frame.data
        count += 1
    assert count > 100


@pytest.mark.parametrize("client", CLIENTS)
def test_the_recorded_json_is_written_to_the_recorded_bytes(client: str) -> None:
    for frame in frames(client):
        if "_unknownTaggedFields" in str((frame.header_json, frame.body_json)):
            continue
        header = frame.header.from_json(frame.header_json, frame.header_version)
        body = frame.body.from_json(frame.body_json, frame.version)
        written = frame.header.write(header, frame.header_version) + frame.body.write(body, frame.version)
        assert written + frame.trailing == frame.data


def read_request(data: bytes) -> protocol.Struct:
    header, begin = protocol.read_request_header(data)
    return protocol.request(header.request_api_key).read(data, header.request_api_version, begin)


def test_frames_that_the_broker_could_not_read_are_refused() -> None:
    refused = []
    for pair in corpus.lines("wire", "raw-probe.jsonl"):
        if "request_json" not in pair:
            data = base64.b64decode(pair["request"])
            with pytest.raises((ProtocolError, UnsupportedError)):
                read_request(data)
            refused.append(pair["scenario"])
    assert len(refused) == 13


def test_a_request_that_is_cut_anywhere_is_refused() -> None:
    """The last bytes of a body are always needed: no recorded request has a whole message in front of them."""
    for frame in [frame for frame in frames("java") if frame.body.kind == "request"][::5]:
        whole = frame.data[: len(frame.data) - len(frame.trailing)]
        for size in range(0, len(whole), max(1, len(whole) // 40)):
            with pytest.raises(ProtocolError):
                read_request(whole[:size])
