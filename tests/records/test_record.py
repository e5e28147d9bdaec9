"""One record of version 2: a table of records with their bytes, and every way in which the bytes can be wrong."""

from typing import NamedTuple

import pytest

from tests.behaviours import behaviour
from tidelog.columns import decode
from tidelog.errors import InvalidRecordError
from tidelog.records import (
    Codec,
    Header,
    NewRecord,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    compress,
    record_size,
)
from tidelog.records.record import (
    MAX_RECORD_OVERHEAD,
    RecordBases,
    read_record,
    record_size_upper_bound,
    write_record,
)
from tidelog.records.varint import write_varint

NO_BASES = RecordBases(base_offset=0, base_timestamp_ms=0, base_sequence=-1, log_append_time_ms=None)


class Case(NamedTuple):
    offset_delta: int
    timestamp_delta: int
    record: NewRecord
    hex: str


def new(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> NewRecord:
    return NewRecord(key, value, headers=tuple(Header(*header) for header in headers))


CASES = {
    "key and value": Case(0, 0, new(b"k1", b"v1"), "14 00 00 00 04 6b31 04 7631 00"),
    "null key": Case(1, 5, new(None, b"v2"), "10 00 0a 02 01 04 7632 00"),
    "null value": Case(2, 10, new(b"k1", None), "10 00 14 04 04 6b31 01 00"),
    "both null": Case(0, 0, new(None, None), "0c 00 00 00 01 01 00"),
    "both empty": Case(0, 0, new(b"", b""), "0c 00 00 00 00 00 00"),
    "headers, one null": Case(
        0, 0, new(None, b"v", ("h", b"x"), ("n", None)), "1c 00 00 00 01 02 76 04 02 68 02 78 02 6e 01"
    ),
    "an empty name and value": Case(0, 0, new(None, None, ("", b"")), "10 00 00 00 01 01 02 00 00"),
    "a name twice": Case(
        0, 0, new(None, None, ("a", b"2"), ("a", b"1")), "1c 00 00 00 01 01 04 02 61 02 32 02 61 02 31"
    ),
    "a name beyond ASCII": Case(0, 0, new(None, None, ("é鍵", b"1")), "1c 00 00 00 01 01 02 0a c3a9 e98db5 02 31"),
    "an older timestamp": Case(0, -65, new(None, None), "0e 00 81 01 00 01 01 00"),
    "the largest deltas": Case(2**31 - 1, 2**63 - 1, new(None, None), "26 00 feffffffffffffffff01 feffffff0f 01 01 00"),
    "the smallest delta": Case(0, -(2**63), new(None, None), "1e 00 ffffffffffffffffff01 00 01 01 00"),
    "a length of two bytes": Case(0, 0, new(None, b"x" * 58), "80 01 00 00 00 01 74 " + "78" * 58 + " 00"),
    "a value of 64 bytes": Case(0, 0, new(None, b"x" * 64), "8e 01 00 00 00 01 80 01 " + "78" * 64 + " 00"),
}
ALL_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def read(data: bytes, bases: RecordBases = NO_BASES) -> Record:
    """The one record that `data` is, from its first byte to its last."""
    record, position = read_record(data, 0, len(data), bases)
    assert position == len(data)
    return record


def raw(*parts: bytes | int, length: int | None = None) -> bytes:
    """A record of hand-made fields behind the attributes: numbers become varints. `length` lies about the size."""
    body = bytearray(1)
    for part in parts:
        if isinstance(part, int):
            write_varint(body, part)
        else:
            body += part
    out = bytearray()
    write_varint(out, len(body) if length is None else length)
    return bytes(out + body)


@behaviour("REC-031")
@ALL_CASES
def test_a_record_is_written_as_its_bytes_in_the_size_predicted(case: Case) -> None:
    out = bytearray(b"before")
    write_record(out, case.offset_delta, case.timestamp_delta, case.record)
    assert out == b"before" + bytes.fromhex(case.hex)
    assert record_size(case.offset_delta, case.timestamp_delta, case.record) == len(bytes.fromhex(case.hex))


@behaviour("REC-031")
@ALL_CASES
def test_bytes_are_read_as_their_record_and_what_follows_is_left_alone(case: Case) -> None:
    data = bytes.fromhex(case.hex)
    wanted = Record(case.offset_delta, case.timestamp_delta, case.record.key, case.record.value, case.record.headers)
    assert read_record(data, 0, len(data), NO_BASES) == (wanted, len(data))
    assert read_record(data + data, 0, 2 * len(data), NO_BASES) == (wanted, len(data))
    assert read_record(memoryview(b"\xff" + data + b"\xff"), 1, 1 + len(data), NO_BASES) == (wanted, 1 + len(data))


@behaviour("REC-045")
@ALL_CASES
def test_a_record_cut_off_anywhere_is_invalid(case: Case) -> None:
    data = bytes.fromhex(case.hex)
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError):
            read_record(data[:size], 0, size, NO_BASES)
        with pytest.raises(InvalidRecordError):  # the bytes are there, but they are not the batch's
            read_record(data, 0, size, NO_BASES)


@ALL_CASES
def test_a_declared_length_that_is_not_consumed_exactly_is_invalid(case: Case) -> None:
    body = bytes.fromhex(case.hex)[2 if case.hex.startswith("8") else 1 :]
    for by in (-1, 1):
        out = bytearray()
        write_varint(out, len(body) + by)
        with pytest.raises(InvalidRecordError):
            read(bytes(out) + body + b"\x00")


@behaviour("REC-032")
def test_a_record_has_its_place_and_time_from_the_bases_of_its_batch() -> None:
    out = bytearray()
    write_record(out, 10, 323, new(b"k", b"v"))
    record = read(bytes(out), RecordBases(37, 1_000_000, 723, None))
    assert (record.offset, record.timestamp_ms, record.sequence) == (47, 1_000_323, 733)


@behaviour("REC-033")
@pytest.mark.parametrize("offset_delta", [0, 1, 10, 2**31 - 1])
def test_without_a_base_sequence_a_record_has_none_whatever_its_delta(offset_delta: int) -> None:
    out = bytearray()
    write_record(out, offset_delta, 0, new(None, None))
    assert read(bytes(out)).sequence == -1
    assert read(bytes(out), NO_BASES._replace(base_sequence=-2)).sequence == -1


def test_the_time_of_the_append_takes_the_place_of_every_timestamp() -> None:
    out = bytearray()
    write_record(out, 0, 323, new(None, None))
    record = read(bytes(out), NO_BASES._replace(base_timestamp_ms=5, log_append_time_ms=99))
    assert (record.timestamp_ms, record.timestamp_type) == (99, TimestampType.LOG_APPEND_TIME)


def test_offsets_and_timestamps_beyond_64_bits_wrap_as_in_java() -> None:
    out = bytearray()
    write_record(out, 2, 3, new(None, None))
    record = read(bytes(out), NO_BASES._replace(base_offset=2**63 - 1, base_timestamp_ms=2**63 - 1))
    assert (record.offset, record.timestamp_ms) == (-(2**63) + 1, -(2**63) + 2)


def test_the_attributes_of_a_record_are_ignored() -> None:
    data = bytearray.fromhex(CASES["key and value"].hex)
    for attributes in (1, 0x7F, 0x80, 0xFF):
        data[1] = attributes
        assert read(bytes(data)) == Record(0, 0, b"k1", b"v1")


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_negative_length_of_key_value_or_header_value_reads_as_null(length: int) -> None:
    assert read(raw(0, 0, length, length, 1, 1, b"h", length)) == Record(0, 0, None, None, (Header("h", None),))


def test_lengths_in_more_bytes_than_needed_are_read() -> None:
    assert read(bytes.fromhex("9800 00 8000 8000 8200 6b 8000 8000")) == Record(0, 0, b"k", b"")


# -- bytes that are no record --------------------------------------------------------------------------------------

HEADER = (1, b"h", 1, b"v")  # name and value, a byte each
INVALID = [
    pytest.param(
        raw(0, 0, -1, -1, 2, *HEADER), "inside a variable-length", marks=behaviour("REC-034"), id="a header short"
    ),
    pytest.param(
        raw(0, 0, -1, -1, 1, *HEADER, *HEADER), "4 bytes left over", marks=behaviour("REC-035"), id="a header too many"
    ),
    pytest.param(
        raw(0, 0, 105, bytes(96), length=100),
        "a field of 105 bytes, 95 are left",
        marks=behaviour("REC-036"),
        id="a key beyond the body",
    ),
    pytest.param(
        raw(0, 0, -1, 105, bytes(95)),
        "a field of 105 bytes, 95",
        marks=behaviour("REC-037"),
        id="a value beyond the body",
    ),
    pytest.param(raw(0, 0, -1, -1, -1), "-1 headers in 0 bytes", marks=behaviour("REC-038"), id="-1 headers"),
    pytest.param(
        raw(0, 0, -1, -1, 2**31 - 1, bytes(4)), "2147483647 headers in 4", marks=behaviour("REC-038"), id="many headers"
    ),
    pytest.param(raw(0, 0, -1, -1, 5, *HEADER), "5 headers in 4 bytes", marks=behaviour("REC-038"), id="5 in 4 bytes"),
    pytest.param(
        raw(0, 0, -1, -1, 1, 5, b"h", -1), "a field of 5", marks=behaviour("REC-039"), id="a name beyond the body"
    ),
    pytest.param(raw(0, 0, -1, -1, 1, -1, -1), "without a name", marks=behaviour("REC-040"), id="a null name"),
    pytest.param(raw(0, 0, -1, -1, 1, -2, -1), "without a name", marks=behaviour("REC-040"), id="a negative name"),
    pytest.param(
        raw(0, 0, -1, -1, 1, 1, b"h", 2, b"v"),
        "a field of 2 bytes",
        marks=behaviour("REC-041"),
        id="a header value beyond",
    ),
    pytest.param(raw(), "inside a variable-length", marks=behaviour("REC-042"), id="attributes alone"),
    pytest.param(raw(b"\x80\x80"), "inside a variable-length", marks=behaviour("REC-043"), id="half a timestamp"),
    pytest.param(
        raw(b"\xff" * 10 + b"\x01", 0, -1, -1, 0),
        "does not end in time",
        marks=behaviour("REC-044"),
        id="11 bytes of time",
    ),
    pytest.param(
        raw(0, 0, -1, length=10), "a record of 10 bytes, 4", marks=behaviour("REC-045"), id="6 bytes of 10 missing"
    ),
    pytest.param(raw(0, b"\xff" * 5 + b"\x01", -1, -1, 0), "does not end in time", id="6 bytes of offset"),
    pytest.param(b"\x00", "a record of 0 bytes", id="no attributes"),
    pytest.param(b"\x01\x00\x00\x00\x01\x01\x00", "a record of -1 bytes", id="a negative length"),
    pytest.param(b"\xff\xff\xff\xff\xff\x01", "does not end in time", id="6 bytes of length"),
    pytest.param(b"", "inside a variable-length", id="nothing"),
]


@pytest.mark.parametrize(("data", "message"), INVALID)
def test_bytes_that_are_no_record_are_invalid_in_every_codec(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        read(data)
    for codec in Codec:
        batch = batch_around(data, codec)
        with pytest.raises(InvalidRecordError):
            list(RecordBatch(batch).records())
        for columns in (["key", "value", "headers"], ["offset"]):  # keys and values wanted, or skipped
            with pytest.raises(InvalidRecordError):
                list(decode(batch, columns))


def batch_around(body: bytes, codec: Codec) -> bytearray:
    """A batch of one record whose body is these bytes, with a right checksum."""
    header = RecordBatch(build_batch([NewRecord(b"key", b"value")])).header
    return header._replace(attributes=codec).seal(compress(codec, body))


def test_a_broken_name_is_read_with_replacement_characters() -> None:
    assert read(raw(0, 0, -1, -1, 1, 2, b"\xed\xa0", -1)).headers == (Header("�", None),)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_producer_reserves_enough_wherever_the_record_ends_up(case: Case) -> None:
    bound = record_size_upper_bound(case.record)
    assert record_size(case.offset_delta, case.timestamp_delta, case.record) <= bound
    assert record_size(2**31 - 1, -(2**63), case.record) <= bound
    assert MAX_RECORD_OVERHEAD == 21


def test_every_record_of_a_batch_shows_the_label_of_its_timestamp_type() -> None:
    assert [kind.label for kind in TimestampType] == ["NoTimestampType", "CreateTime", "LogAppendTime"]
    assert [TimestampType(number).name for number in (-1, 0, 1)] == [kind.name for kind in TimestampType]
