"""Messages before the classes that Kafka generates from the same tables: bytes, JSON, and what is refused."""

import base64
from random import Random

import pytest

from tests.compat import kafka_tools
from tests.compat.message_judge import Question, Verdict, judge_messages, kafka_catalogue
from tests.protocol.damage import damaged
from tests.protocol.values import Dice, Version, all_versions
from tidelog import protocol
from tidelog.errors import TidelogError
from tidelog.protocol import generate

VERSIONS = list(all_versions())
VALUES_PER_VERSION = 6


def test_the_tables_are_those_in_the_jars() -> None:
    assert kafka_tools.kafka_version() == generate.KAFKA_VERSION
    assert generate.tables(kafka_tools.jars()) == generate.TABLES.read_text(encoding="utf-8")


def test_apis_and_records_have_the_numbers_that_they_have_in_kafka() -> None:
    catalogue = kafka_catalogue()
    apis = [entry for entry in catalogue if "family" not in entry]
    records = [entry for entry in catalogue if "family" in entry]
    assert [api["key"] for api in apis] == list(protocol.api_keys())
    for api in apis:
        request, response = protocol.request(api["key"]), protocol.response(api["key"])
        if "request" not in api:
            assert not request.valid_versions
            continue
        assert (request.name + "Data", response.name + "Data") == (api["request"], api["response"])
        assert request.valid_versions == range(api["lowest"], api["highest"] + 1)
        assert request.schema.latest_version_unstable == api["unstable"]
        assert sorted(request.schema.listeners) == sorted(api["listeners"])
        for version, (of_request, of_response) in enumerate(
            zip(api["requestHeaders"], api["responseHeaders"], strict=True)
        ):
            assert protocol.request_header_version(api["key"], version) == of_request
            assert protocol.response_header_version(api["key"], version) == of_response
    assert len(records) == 26 + 25
    for record in records:
        if record["family"] == "metadata":
            assert protocol.metadata_record(record["type"]).name == record["value"]
        else:
            key, value = protocol.coordinator_record(record["family"], record["type"])
            assert (key.name, value and value.name) == (record["key"], record["value"])


@pytest.fixture(scope="module")
def values() -> list[tuple[Version, protocol.Struct]]:
    dice = Dice(Random(43))
    return [(version, dice.value(version)) for version in VERSIONS for _ in range(VALUES_PER_VERSION)]


@pytest.fixture(scope="module")
def verdicts(values: list[tuple[Version, protocol.Struct]]) -> list[Verdict]:
    return judge_messages(Question(version, version.message.write(value, version.number)) for version, value in values)


def test_kafka_reads_what_we_write_and_writes_the_same(
    values: list[tuple[Version, protocol.Struct]], verdicts: list[Verdict]
) -> None:
    for (version, value), verdict in zip(values, verdicts, strict=True):
        assert (verdict.error, verdict.refusal) == (None, None), version
        assert verdict.left == 0, version
        assert verdict.written == version.message.write(value, version.number), version


def test_our_json_is_the_text_of_kafka(values: list[tuple[Version, protocol.Struct]], verdicts: list[Verdict]) -> None:
    for (version, value), verdict in zip(values, verdicts, strict=True):
        node = version.message.to_json(value, version.number, records="size")
        assert protocol.json_text(node) == verdict.json, version


def test_kafka_reads_our_json() -> None:
    dice = Dice(Random(44))
    questions = []
    wanted = []
    for version in VERSIONS:
        if any("float64" in str(field) for field in version.message.fields):
            continue  # Kafka reads back none of the doubles it writes as text, nor whole ones
        value = version.message.from_json(version.message.to_json(dice.value(version), version.number), version.number)
        questions.append(Question(version, protocol.json_text(version.message.to_json(value, version.number))))
        wanted.append(version.message.write(value, version.number))
    for question, verdict, data in zip(questions, judge_messages(questions), wanted, strict=True):
        assert verdict.error is None, question
        assert verdict.written == data, question.version


def test_damaged_bytes_are_refused_where_kafka_refuses_them_and_mean_the_same_where_it_does_not() -> None:
    """What Kafka reads and then refuses to write (unknown tags out of order) is not compared further."""
    random = Random(45)
    dice = Dice(random)
    questions = []
    for version in VERSIONS:
        data = version.message.write(dice.value(version), version.number)
        questions += [Question(version, damaged(random, data)) for _ in range(12)]
    accepted = 0
    for question, verdict in zip(questions, judge_messages(questions), strict=True):
        (message, number), data = question
        assert isinstance(data, bytes)
        try:
            value, end = message.read_from(data, number, 0)
        except TidelogError as error:
            value, end, reason = None, len(data), str(error)
        else:
            reason = None
        assert (reason is None) == (verdict.error is None), (question.version, base64.b64encode(data), reason, verdict)
        if value is not None:
            assert len(data) - end == verdict.left
            assert protocol.json_text(message.to_json(value, number, records="size")) == verdict.json
            if verdict.written is not None:
                assert message.write(value, number) == verdict.written
            accepted += 1
    assert 1000 < accepted < len(questions) - 1000
