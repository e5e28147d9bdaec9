"""Batches that Kafka was given are answered as Kafka answered, and what it took is stored with the same bytes."""

import dataclasses

import pytest

from tests.golden import corpus
from tests.log import validating
from tests.log.validating import EPOCH, HOUR_MS, NOW, Validate, raw_batch, resealed, three
from tidelog.errors import TidelogError
from tidelog.log.config import LogConfig
from tidelog.records import BATCH_HEADER_SIZE, Codec, RecordBatch, TimestampType, build_batch, read_memory_batches

validate = validating.validate  # a fixture: each test runs with the readable path and with the kernel


def _answers() -> dict[str, int]:
    raw = corpus.facts("kafka-4.3/2-records", "topics.json")["rec-times"]["raw"]
    return {note: answer["error"] for note, answer in raw}


def _raw_batches() -> dict[str, bytes]:
    """Batches as the notes of the corpus describe them."""
    two = build_batch(three(NOW, NOW + 1))
    appended = {"attributes": 0x08}
    return {
        "all timestamps -1": build_batch(three(-1, -1, -1)),
        "-1 first, then a time": build_batch(three(-1, NOW)),
        "header maxTimestamp too small": resealed(two, max_timestamp_ms=5),
        "header maxTimestamp too large": resealed(two, max_timestamp_ms=2**50),
        "LogAppendTime bit on a CreateTime topic": resealed(two, **appended),
        "LogAppendTime bit with -1": resealed(two, max_timestamp_ms=-1, **appended),
        "baseTimestamp below every record": raw_batch([0, 1], base_timestamp_ms=NOW - 9, time_deltas=[5, 6]),
        "timestamp -2": raw_batch([0], base_timestamp_ms=-2),
        "too far in the future": build_batch(three(NOW + 2 * HOUR_MS)),
        "record count too high": resealed(two, records_count=3),
        "last offset delta too high": resealed(two, last_offset_delta=2),
        "control bit": resealed(two, attributes=0x20),
        "unused attribute bit 7": resealed(two, attributes=0x80),
        "unused attribute bit 8": resealed(two, attributes=0x100),
        "delete horizon bit from a client": resealed(two, attributes=0x40),
        "bad crc": bytes(two[:17] + b"\0\0\0\0" + two[21:]),
        "two batches in one request": bytes(two * 2),
        "trailing garbage in the record area": resealed(two, bytes(two[BATCH_HEADER_SIZE:]) + b"garbage"),
        "record attributes byte 3": resealed(two, bytes(two[61:62]) + b"\3" + bytes(two[63:])),
        "offset deltas 0,2 (gap)": raw_batch([0, 2], last_offset_delta=2),
        "offset deltas 1,0 (order)": raw_batch([1, 0]),
        "gzip, offset deltas 1,0 (order)": raw_batch([1, 0], codec=Codec.GZIP),
        "empty batch": resealed(two, b"", records_count=0),
        "no batch at all": b"",
        "negative record count": resealed(two, records_count=-1),
    }


@pytest.mark.parametrize("note", sorted(_raw_batches()))
def test_kafka_answers_the_same(validate: Validate, note: str) -> None:
    try:
        validate(_raw_batches()[note])
        code = 0
    except TidelogError as error:
        code = error.error_code
    assert code == _answers()[note]


def test_what_kafka_was_asked_is_asked_here() -> None:
    elsewhere = {
        "base offset 5",  # the analysis, before
        "gzip, two members",  # the codecs
        "snappy, raw block without framing",
        "unknown codec 5",  # Kafka stumbles over it, UNKNOWN_SERVER_ERROR; here it is said what is wrong
    }
    assert {*_raw_batches()} | elsewhere == {*_answers()}


def _stored_batches() -> list[tuple[str, LogConfig, bytes]]:
    """Every batch that Kafka took from a client of 1-codecs and 2-records, where it was not written anew."""
    stored = []
    for name in ("kafka-4.3/1-codecs", "kafka-4.3/2-records"):
        topics = corpus.facts(name, "topics.json")
        for partition in corpus.partitions(name):
            topic = partition.path.name.rpartition("-")[0]
            config = LogConfig.from_properties(topics[topic]["configs"])
            config = dataclasses.replace(config, message_timestamp_after_max_ms=2**63 - 1)
            stored += [
                (f"{topic}@{batch.base_offset}", config, bytes(batch.buffer))
                for batch in read_memory_batches(partition.read())
            ]
    return stored


def test_what_kafka_stored_would_be_stored_with_the_same_bytes(validate: Validate) -> None:
    checked = 0
    for name, config, stored in _stored_batches():
        batch = RecordBatch(stored)
        asked = bytearray(stored)
        asked[:8], asked[12:16] = bytes(8), b"\xff" * 4  # what was stamped, as a client sends it
        if config.uses_append_time:
            sent = batch.attributes._replace(timestamp_type=TimestampType.CREATE_TIME).pack()
            asked = bytearray(resealed(asked, attributes=sent, max_timestamp_ms=batch.base_timestamp_ms))
        result = validate(asked, config=config, first_offset=batch.base_offset, now_ms=batch.max_timestamp_ms)
        expected = bytearray(stored)
        expected[12:16] = EPOCH.to_bytes(4, "big")
        assert result.buffer == expected, name
        checked += 1
    assert checked > 100
