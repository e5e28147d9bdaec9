"""One walk of the kernel finds in a batch what a plain reading of its records finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.property.reference import facts_of
from tests.property.strategies import MAX_INT64, record_batches, timestamps
from tidelog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionError
from tidelog.kernels.validate import validate_batch
from tidelog.records import BatchHeader, Codec, NewRecord, build_batch
from tidelog.records.batch import BATCH_HEADER_SIZE

_bounds = st.one_of(timestamps, st.sampled_from([-(2**63), -2, MAX_INT64]))


def resealed(batch: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields or another body, and the checksum that fits."""
    plain = batch[BATCH_HEADER_SIZE:] if body is None else body
    return bytes(BatchHeader.unpack(batch)._replace(**fields).seal(plain))


@given(record_batches, _bounds, _bounds)
def test_facts_are_those_of_the_records(batch: bytes, earliest_ms: int, latest_ms: int) -> None:
    found = validate_batch(batch, earliest_ms=earliest_ms, latest_ms=latest_ms)
    assert found == facts_of(batch, earliest_ms, latest_ms)


@given(record_batches)
def test_any_buffer_can_be_validated(batch: bytes) -> None:
    facts = validate_batch(batch)
    assert validate_batch(bytearray(batch)) == facts
    assert validate_batch(memoryview(b"x" + batch + b"x")[1:-1]) == facts
    assert validate_batch(np.frombuffer(batch, np.uint8)) == facts


@behaviour("REC-021")
@given(record_batches, st.data())
def test_any_changed_byte_under_the_checksum_is_corruption(batch: bytes, data: st.DataObject) -> None:
    damaged = bytearray(batch)
    damaged[data.draw(st.integers(17, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordError, match="stored crc"):
        validate_batch(damaged)


@given(st.binary(max_size=60))
def test_fewer_bytes_than_a_header_are_corruption(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        validate_batch(data)


THREE = [NewRecord(b"k", b"value", 5, ()), NewRecord(None, b"value", 7, ()), NewRecord(b"k", None, 3, ())]


@behaviour("REC-022", "REC-023")
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [5, 2, 1, -1, 2**31 - 1])
def test_a_wrong_number_of_records_is_an_invalid_record(codec: Codec, count: int) -> None:
    batch = resealed(build_batch(THREE, codec=codec), records_count=count)
    with pytest.raises(InvalidRecordError):
        validate_batch(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_body_of_an_empty_batch_is_not_looked_at(codec: Codec) -> None:
    batch = resealed(build_batch(THREE, codec=codec), b"anything", records_count=0)
    assert validate_batch(batch) == facts_of(batch, 0, 0) == (-1, -1, -1, True)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec_id: int) -> None:
    with pytest.raises(UnsupportedCompressionError):
        validate_batch(resealed(build_batch(THREE), attributes=codec_id))


def test_a_checksum_is_not_compared_when_nobody_asks() -> None:
    batch = build_batch(THREE)
    batch[17] ^= 1
    assert validate_batch(batch, verify=False).max_timestamp_ms == 7


def test_times_at_the_bounds_are_allowed() -> None:
    batch = build_batch(THREE)
    assert validate_batch(batch, earliest_ms=3, latest_ms=7).first_early_or_late == -1
    assert validate_batch(batch, earliest_ms=4, latest_ms=7).first_early_or_late == 2
    assert validate_batch(batch, earliest_ms=3, latest_ms=6).first_early_or_late == 1


@pytest.mark.parametrize(("position", "value"), [(11, 1), (16, 0), (16, 3)])
def test_length_and_magic_are_checked_though_no_checksum_covers_them(position: int, value: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v")])
    batch[position] = value
    with pytest.raises(CorruptRecordError, match="expected"):
        validate_batch(batch)
