"""Control batches: their keys, the markers that end transactions, and what the metadata quorum writes."""

import struct

import pytest

from tests.behaviours import behaviour
from tidelog.errors import InvalidRecordError, InvalidRequestError
from tidelog.records import (
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
    build_end_txn_marker,
    empty_batch,
    end_txn_marker_of,
)

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
KNOWN = [kind for kind in ControlType if kind is not ControlType.UNKNOWN]
ENDS = pytest.mark.parametrize("control_type", [ABORT, COMMIT])

KEYS = {
    ControlType.ABORT: "0000 0000",
    ControlType.COMMIT: "0000 0001",
    ControlType.LEADER_CHANGE: "0000 0002",
    ControlType.SNAPSHOT_HEADER: "0000 0003",
    ControlType.SNAPSHOT_FOOTER: "0000 0004",
    ControlType.KRAFT_VERSION: "0000 0005",
    ControlType.KRAFT_VOTERS: "0000 0006",
}


def control_record(key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=0, timestamp_ms=0, key=key, value=value)


# -- keys ----------------------------------------------------------------------------------------------------------


@behaviour("REC-113")
@pytest.mark.parametrize(("control_type", "key"), KEYS.items(), ids=lambda x: getattr(x, "name", None))
def test_every_known_type_has_its_key(control_type: ControlType, key: str) -> None:
    assert control_type.to_key() == bytes.fromhex(key)
    assert ControlType.parse(bytes.fromhex(key)) is control_type


def test_no_known_type_is_left_out() -> None:
    assert list(KEYS) == KNOWN


@behaviour("REC-113")
@pytest.mark.parametrize("number", [337, 7, -1, -2, 32767])
def test_a_type_of_a_later_release_is_unknown(number: int) -> None:
    assert ControlType.parse(struct.pack(">hh", 0, number)) is ControlType.UNKNOWN


@behaviour("REC-114")
@pytest.mark.parametrize("version", [0, 1, 5, 32767])
def test_a_key_of_a_later_version_is_read_by_its_type(version: int) -> None:
    for control_type in KNOWN:
        assert ControlType.parse(struct.pack(">hhi", version, control_type, 23)) is control_type


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00", b"\x00\x00\x00"])
def test_a_key_shorter_than_four_bytes_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match=f"a control key of {len(key or b'')} bytes"):
        ControlType.parse(key)


def test_a_key_of_a_negative_version_is_invalid() -> None:
    with pytest.raises(InvalidRecordError, match="version -1"):
        ControlType.parse(struct.pack(">hh", -1, COMMIT))


@behaviour("REC-117")
def test_an_unknown_type_cannot_be_written() -> None:
    with pytest.raises(InvalidRequestError, match="unknown type"):
        ControlType.UNKNOWN.to_key()


# -- the end of a transaction --------------------------------------------------------------------------------------


@ENDS
def test_a_marker_is_a_key_and_a_value_of_six_bytes(control_type: ControlType) -> None:
    record = EndTxnMarker(control_type, 0x01020304).to_record(timestamp_ms=5)
    assert record == NewRecord(bytes.fromhex(KEYS[control_type]), bytes.fromhex("0000 01020304"), 5)


@behaviour("REC-028", "REC-058")
@ENDS
def test_a_marker_batch_carries_everything_and_not_a_byte_more(control_type: ControlType) -> None:
    marker = EndTxnMarker(control_type, coordinator_epoch=15)
    data = build_end_txn_marker(
        marker, producer_id=1234, producer_epoch=7, timestamp_ms=1_000, offset=983, partition_leader_epoch=347
    )
    batch = RecordBatch(data)
    batch.ensure_valid()
    assert len(data) == batch.header.batch_length + 12 == 78
    assert (batch.is_control, batch.is_transactional, batch.header.attributes) == (True, True, 0x30)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1234, 7, -1)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (983, 983, 347)
    [record] = batch
    assert (record.offset, record.timestamp_ms, record.sequence) == (983, 1_000, -1)
    assert EndTxnMarker.parse(record) == end_txn_marker_of(batch) == marker


@behaviour("REC-117")
@pytest.mark.parametrize("control_type", [kind for kind in ControlType if kind not in (ABORT, COMMIT)])
def test_only_abort_and_commit_end_a_transaction(control_type: ControlType) -> None:
    with pytest.raises(InvalidRequestError, match=f"not with {control_type.name}"):
        EndTxnMarker(control_type, 1).to_record(0)
    key = struct.pack(">hh", 0, 337 if control_type is ControlType.UNKNOWN else control_type)
    with pytest.raises(InvalidRecordError, match=f"a {control_type.name} record is no end of a transaction"):
        EndTxnMarker.parse(control_record(key, bytes(6)))


@behaviour("REC-118")
@ENDS
@pytest.mark.parametrize("value", [None, *(bytes(size) for size in range(6))])
def test_a_value_shorter_than_six_bytes_is_invalid(control_type: ControlType, value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match=f"an end-transaction value of {len(value or b'')} bytes"):
        EndTxnMarker.parse(control_record(control_type.to_key(), value))


@behaviour("REC-118")
@ENDS
def test_a_value_of_a_negative_version_is_invalid(control_type: ControlType) -> None:
    with pytest.raises(InvalidRecordError, match="version -1"):
        EndTxnMarker.parse(control_record(control_type.to_key(), struct.pack(">hi", -1, 0)))


@behaviour("REC-119")
@ENDS
def test_a_value_of_a_later_version_yields_its_coordinator_epoch(control_type: ControlType) -> None:
    value = struct.pack(">hihh", 5, 79, 1, 2)
    assert EndTxnMarker.parse(control_record(control_type.to_key(), value)) == EndTxnMarker(control_type, 79)


def test_other_batches_hold_no_marker() -> None:
    plain = build_batch([NewRecord(b"k", b"v")])
    transactional = build_batch(
        [NewRecord(b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    quorum = build_control_batch([(ControlType.SNAPSHOT_FOOTER, b"")], timestamp_ms=0, partition_leader_epoch=1)
    marker = RecordBatch(build_end_txn_marker(EndTxnMarker(ABORT, 0), producer_id=1, producer_epoch=0, timestamp_ms=0))
    compacted = empty_batch(base_offset=0, last_offset=0, max_timestamp_ms=0, attributes=marker.attributes)
    for data in (plain, transactional, quorum, compacted):
        assert end_txn_marker_of(RecordBatch(data)) is None


@behaviour("REC-074")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_marker_is_read_too(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    batch = RecordBatch(builder.append(EndTxnMarker(COMMIT, 3).to_record(0)).build())
    assert (batch.codec, batch.base_sequence) == (codec, -1)
    assert end_txn_marker_of(batch) == EndTxnMarker(COMMIT, 3)


@behaviour("REC-072", "REC-073")
def test_a_marker_needs_a_producer_and_its_epoch() -> None:
    for producer_id, producer_epoch in [(-1, 0), (1, -1)]:
        with pytest.raises(InvalidRequestError):
            build_end_txn_marker(
                EndTxnMarker(COMMIT, 0), producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=0
            )


# -- the metadata quorum -------------------------------------------------------------------------------------------


def test_several_control_records_lie_in_one_batch_of_no_producer() -> None:
    records = [(ControlType.LEADER_CHANGE, b"one"), (ControlType.KRAFT_VERSION, b""), (ControlType.KRAFT_VOTERS, b"3")]
    batch = RecordBatch(build_control_batch(records, timestamp_ms=99, partition_leader_epoch=4, base_offset=10))
    batch.ensure_valid()
    assert (batch.header.attributes, batch.partition_leader_epoch, batch.producer_id) == (0x20, 4, -1)
    assert [(ControlType.parse(r.key), r.value) for r in batch] == records
    assert [(r.offset, r.timestamp_ms) for r in batch] == [(10, 99), (11, 99), (12, 99)]


@behaviour("REC-075")
@ENDS
def test_the_end_of_a_transaction_belongs_into_a_transactional_control_batch(control_type: ControlType) -> None:
    with pytest.raises(InvalidRequestError, match="belongs into a transactional control batch"):
        build_control_batch([(control_type, bytes(6))], timestamp_ms=0, partition_leader_epoch=0)


@behaviour("REC-076")
def test_a_leader_change_without_a_leader_epoch_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="leader epoch -1"):
        build_control_batch([(ControlType.LEADER_CHANGE, b"")], timestamp_ms=0, partition_leader_epoch=-1)
