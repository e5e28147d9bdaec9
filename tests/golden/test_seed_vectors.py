"""Batches printed in documents and specifications, rebuilt from their records: the same size, checksum and bytes."""

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.records import (
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    LegacyBatch,
    NewRecord,
    RecordBatch,
    TimestampType,
    batch_of,
    build_batch,
    build_end_txn_marker,
    build_message_set,
    empty_batch,
    plain_batch_size,
)

SEED = corpus.facts("seed-walkthrough", "seed-vectors.json")


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("vector", SEED["batches"], ids=lambda vector: vector["id"])
def test_a_printed_batch_is_rebuilt_from_its_records(vector: dict) -> None:
    builder = BatchBuilder(
        base_offset=vector["baseOffset"],
        codec=Codec[vector["codec"].upper()],
        partition_leader_epoch=vector["partitionLeaderEpoch"],
        producer_id=vector["producerId"],
        producer_epoch=vector["producerEpoch"],
        base_sequence=vector["baseSequence"],
        is_transactional=vector["isTransactional"],
        is_control=vector["isControl"],
    )
    records = [
        NewRecord(from_hex(record["keyHex"]), from_hex(record["valueHex"]), record["timestamp"])
        for record in vector["records"]
    ]
    for record in records:
        builder.append(record)
    batch = RecordBatch(builder.build())
    assert batch.buffer.hex() == vector["batchHex"]
    assert (batch.crc, batch.size_in_bytes) == (vector["crc"], vector["size"])
    assert batch.is_valid
    assert (batch.last_offset, batch.max_timestamp_ms) == (vector["lastOffset"], vector["maxTimestamp"])
    assert batch.timestamp_type.label == vector["timestampType"]
    assert plain_batch_size(records) == vector["size"]


def test_every_printed_batch_is_there() -> None:
    assert len(SEED["batches"]) == 24


@pytest.mark.parametrize("example", SEED["sizeExamples"], ids=lambda example: f"{len(example['records'])} records")
def test_a_printed_size_is_that_of_its_records(example: dict) -> None:
    records = [NewRecord(key.encode(), value.encode(), 1_700_000_000_000) for key, value in example["records"]]
    assert plain_batch_size(records) == len(build_batch(records)) == example["size"]


# -- the vectors of the specification of the formats ---------------------------------------------------------------

TIME = 1_700_000_000_000

PLAIN = bytes.fromhex(
    "0000000000000000000000550000000002f571305e0000000000020000018bcfe568000000018bcfe5680affffffffffffffff"
    "ffffffffffff0000000314000000046b31047631001e000a02010476320402680278026e0110001404046b310100"
)
COMMIT = bytes.fromhex(
    "00000000000000030000004200000002022d22b4320030000000000000018bcfe56be80000018bcfe56be8"
    "00000000000003e80003ffffffff000000012000000008000000010c00000000000700"
)
EMPTY = bytes.fromhex(
    "0000000000000064000000310000000502195cd72a000000000004ffffffffffffffff0000018bcfe56fd0"
    "000000000000002a00010000000a00000000"
)
V0 = bytes.fromhex("0000000000000005000000101fecd70a0000000000016b0000000176")
V1 = bytes.fromhex("00000000000000050000001839268c3301000000018bcfe56800000000016b0000000176")

RECORDS = [
    NewRecord(b"k1", b"v1", TIME),
    NewRecord(None, b"v2", TIME + 5, (Header("h", b"x"), Header("n", None))),
    NewRecord(b"k1", None, TIME + 10),
]


def test_a_batch_of_three_records_is_written_as_specified() -> None:
    assert build_batch(RECORDS, partition_leader_epoch=0) == PLAIN


def test_a_batch_of_three_records_is_read_as_specified() -> None:
    batch = RecordBatch(PLAIN)
    assert batch.is_valid
    assert (batch.size_in_bytes, batch.crc) == (97, 4117835870)
    assert (batch.base_offset, batch.last_offset, batch.count) == (0, 2, 3)
    assert (batch.partition_leader_epoch, batch.max_timestamp_ms) == (0, TIME + 10)
    assert [NewRecord(r.key, r.value, r.timestamp_ms, r.headers) for r in batch.records()] == RECORDS
    assert [record.offset for record in batch.records()] == [0, 1, 2]


def test_a_commit_marker_is_written_as_specified() -> None:
    marker = build_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, coordinator_epoch=7),
        producer_id=1000,
        producer_epoch=3,
        timestamp_ms=TIME + 1000,
        offset=3,
        partition_leader_epoch=2,
    )
    assert marker == COMMIT


def test_a_commit_marker_is_read_as_specified() -> None:
    batch = RecordBatch(COMMIT)
    (record,) = batch.records()
    assert batch.is_valid
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.size_in_bytes, batch.partition_leader_epoch) == (78, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1000, 3, -1)
    assert (record.offset, record.timestamp_ms) == (3, TIME + 1000)
    assert EndTxnMarker.parse(record) == EndTxnMarker(ControlType.COMMIT, coordinator_epoch=7)


def test_an_empty_batch_is_written_as_specified() -> None:
    batch = empty_batch(
        base_offset=100,
        last_offset=104,
        max_timestamp_ms=TIME + 2000,
        partition_leader_epoch=5,
        producer_id=42,
        producer_epoch=1,
        base_sequence=10,
    )
    assert batch == EMPTY


def test_an_empty_batch_is_read_as_specified() -> None:
    batch = RecordBatch(EMPTY)
    assert batch.is_valid
    assert list(batch.records()) == []
    assert (batch.base_offset, batch.last_offset, batch.count) == (100, 104, 0)
    assert (batch.base_sequence, batch.last_sequence) == (10, 14)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, TIME + 2000)


@pytest.mark.parametrize(("magic", "vector"), [(0, V0), (1, V1)])
def test_a_message_of_an_old_format_is_written_as_specified(magic: int, vector: bytes) -> None:
    assert build_message_set(magic, [NewRecord(b"k", b"v", TIME)], base_offset=5) == vector


@pytest.mark.parametrize(
    ("vector", "timestamp_ms", "timestamp_type"),
    [(V0, -1, TimestampType.NO_TIMESTAMP_TYPE), (V1, TIME, TimestampType.CREATE_TIME)],
)
def test_a_message_of_an_old_format_is_read_as_specified(
    vector: bytes, timestamp_ms: int, timestamp_type: TimestampType
) -> None:
    batch = batch_of(vector)
    (record,) = batch.records()
    assert isinstance(batch, LegacyBatch)
    assert batch.is_valid
    assert (record.offset, record.key, record.value) == (5, b"k", b"v")
    assert (record.timestamp_ms, record.timestamp_type) == (timestamp_ms, timestamp_type)


TWO = [NewRecord(b"key1", b"value1", 283843), NewRecord(b"key2", b"value2", 1234)]


@behaviour("REC-050")
def test_the_checksum_of_a_batch_is_that_of_kafkas_own_test() -> None:
    assert RecordBatch(build_batch(TWO)).crc == 3851219455


@behaviour("REC-051")
@pytest.mark.parametrize(("magic", "crc"), [(0, 1978725405), (1, 109425508)])
def test_the_checksum_of_a_message_is_that_of_kafkas_own_test(magic: int, crc: int) -> None:
    assert batch_of(build_message_set(magic, TWO[:1])).crc == crc
