"""The record batch of version 2: its header, its validity, its records, and what a broker stamps on it."""

import itertools
import struct
from collections.abc import Iterator

import pytest

from tests.behaviours import behaviour
from tidelog.errors import (
    CorruptRecordError,
    DecompressedSizeError,
    InvalidRecordError,
    InvalidRequestError,
    UnsupportedCompressionError,
)
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchAttributes,
    BatchBuilder,
    BatchHeader,
    Codec,
    Header,
    NewRecord,
    RecordBatch,
    TimestampType,
    batch_of,
    build_batch,
    compress,
    empty_batch,
    read_batches,
)

CREATE_TIME, APPEND_TIME = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=[codec.label for codec in Codec])
THREE = [NewRecord(b"a", b"1", 5), NewRecord(b"b", b"2", 10), NewRecord(None, None, 15)]

# Every field differs from every other, and from what a missing one would be.
HEADER = BatchHeader(
    base_offset=0x0102030405060708,
    batch_length=0x090A0B0C,
    partition_leader_epoch=0x0D0E0F10,
    magic=2,
    crc=0xF1F2F3F4,
    attributes=0x1516,
    last_offset_delta=0x1718191A,
    base_timestamp_ms=0x1B1C1D1E1F202122,
    max_timestamp_ms=0x232425262728292A,
    producer_id=0x2B2C2D2E2F303132,
    producer_epoch=0x3334,
    base_sequence=0x35363738,
    records_count=0x393A3B3C,
)
HEADER_BYTES = bytes.fromhex(
    "0102030405060708 090a0b0c 0d0e0f10 02 f1f2f3f4 1516 1718191a 1b1c1d1e1f202122 232425262728292a"
    "2b2c2d2e2f303132 3334 35363738 393a3b3c"
)


def batch(records: list[NewRecord], **options: object) -> RecordBatch:
    return RecordBatch(build_batch(records, **options))


def resealed(original: RecordBatch, body: bytes | None = None, **fields: int) -> RecordBatch:
    """The batch with other fields or another body, and the length and checksum that belong to them."""
    header = original.header._replace(**fields)
    return RecordBatch(header.seal(bytes(original.buffer[BATCH_HEADER_SIZE:]) if body is None else body))


# -- the header ----------------------------------------------------------------------------------------------------


def test_every_field_of_the_header_lies_where_the_format_says() -> None:
    assert BatchHeader.unpack(HEADER_BYTES) == HEADER
    assert BatchHeader.unpack(b"??" + HEADER_BYTES + b"?", 2) == HEADER
    assert BATCH_HEADER_SIZE == len(HEADER_BYTES) == 61
    sealed = HEADER.seal(b"body")
    unsealed = {"batch_length": HEADER.batch_length, "crc": HEADER.crc}
    assert BatchHeader.unpack(sealed)._replace(**unsealed) == HEADER
    assert RecordBatch(sealed).is_valid
    assert struct.unpack_from(">i", sealed, 8) == (len(sealed) - 12,)


@pytest.mark.parametrize("size", range(61))
def test_a_header_cut_off_anywhere_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptRecordError, match="its header alone takes 61"):
        RecordBatch(HEADER_BYTES[:size])
    with pytest.raises(CorruptRecordError, match=f"a batch of {size} bytes"):
        BatchHeader.unpack(b"???" + HEADER_BYTES[:size], 3)


def test_a_field_that_does_not_fit_the_header_is_the_callers_mistake() -> None:
    for fields in ({"producer_epoch": 2**15}, {"partition_leader_epoch": -(2**31) - 1}, {"base_offset": 2**63}):
        with pytest.raises(InvalidRequestError, match="do not fit"):
            HEADER._replace(**fields).seal(b"")


# bits, and what they are called
BITS = {
    0x00: BatchAttributes(),
    0x01: BatchAttributes(codec_id=1),
    0x04: BatchAttributes(codec_id=4),
    0x07: BatchAttributes(codec_id=7),
    0x08: BatchAttributes(timestamp_type=APPEND_TIME),
    0x10: BatchAttributes(is_transactional=True),
    0x20: BatchAttributes(is_control=True),
    0x30: BatchAttributes(is_transactional=True, is_control=True),
    0x40: BatchAttributes(has_delete_horizon=True),
    0x7B: BatchAttributes(3, APPEND_TIME, True, True, True),
}


@pytest.mark.parametrize(("bits", "attributes"), BITS.items(), ids=map(hex, BITS))
def test_attribute_bits_and_their_names_are_one(bits: int, attributes: BatchAttributes) -> None:
    assert BatchAttributes.unpack(bits) == attributes
    assert attributes.pack() == bits


@pytest.mark.parametrize("unknown", [0x80, 0x0100, 0x7F80, -0x8000, -1 & ~0x7F])
def test_attribute_bits_without_a_name_are_not_looked_at(unknown: int) -> None:
    for bits, attributes in BITS.items():
        assert BatchAttributes.unpack(bits | unknown) == attributes


@behaviour("REC-013")
def test_a_batch_of_two_records_reports_its_offsets_and_its_largest_time() -> None:
    two = batch([NewRecord(b"k1", b"v1", 1), NewRecord(b"k2", b"v2", 2)], base_offset=1234567)
    assert two.is_valid
    assert (two.base_offset, two.last_offset, two.next_offset) == (1234567, 1234568, 1234569)
    assert (two.base_timestamp_ms, two.max_timestamp_ms, two.count) == (1, 2, 2)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in two] == [
        (1234567, 1, b"k1", b"v1"),
        (1234568, 2, b"k2", b"v2"),
    ]


@behaviour("REC-014")
def test_without_a_producer_all_its_numbers_are_minus_one() -> None:
    plain = batch(THREE)
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence, plain.last_sequence) == (-1, -1, -1, -1)
    assert (plain.is_transactional, plain.is_control, plain.delete_horizon_ms) == (False, False, None)
    assert [record.sequence for record in plain] == [-1, -1, -1]


@behaviour("REC-015")
def test_sequences_count_on_from_the_base_sequence() -> None:
    two = batch(THREE[:2], producer_id=23423, producer_epoch=145, base_sequence=983)
    assert (two.producer_id, two.producer_epoch, two.base_sequence, two.last_sequence) == (23423, 145, 983, 984)
    assert [record.sequence for record in two] == [983, 984]
    gap = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=983).append(THREE[0]).append(THREE[1], offset=5)
    assert [record.sequence for record in RecordBatch(gap.build())] == [983, 988]


@behaviour("REC-016")
def test_sequences_begin_again_at_zero_inside_a_batch() -> None:
    three = batch(THREE, producer_id=1, producer_epoch=0, base_sequence=2147483646)
    assert [record.sequence for record in three] == [2147483646, 2147483647, 0]
    assert three.last_sequence == 0


def test_numbers_of_a_damaged_header_wrap_as_in_java() -> None:
    late = resealed(batch(THREE), base_offset=2**63 - 1)
    assert (late.last_offset, late.next_offset) == (-(2**63) + 1, -(2**63) + 2)
    assert [record.offset for record in late] == [2**63 - 1, -(2**63), -(2**63) + 1]


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_unsupported(codec_id: int) -> None:
    unknown = resealed(batch(THREE), attributes=codec_id)
    unknown.ensure_valid()
    with pytest.raises(UnsupportedCompressionError, match=f"codec id {codec_id}"):
        _ = unknown.codec
    with pytest.raises(UnsupportedCompressionError):
        list(unknown.records())


def test_a_batch_is_shown_by_its_offsets_count_and_size() -> None:
    assert repr(batch(THREE, base_offset=7)) == "RecordBatch(offsets 7 to 9, 3 records, 86 bytes)"


# -- validity ------------------------------------------------------------------------------------------------------


def test_the_checksum_covers_everything_behind_itself_and_nothing_before() -> None:
    data = build_batch(THREE, base_offset=7, partition_leader_epoch=3)
    for position, bit in itertools.product(range(len(data)), range(8)):
        data[position] ^= 1 << bit
        assert RecordBatch(data).is_valid == (position < 17), f"position {position}"
        data[position] ^= 1 << bit


@behaviour("REC-021")
def test_a_changed_last_offset_delta_is_corrupt() -> None:
    data = build_batch(THREE)
    struct.pack_into(">i", data, 23, 23)
    damaged = RecordBatch(data)
    assert not damaged.is_valid
    with pytest.raises(
        CorruptRecordError, match=r"batch at offset 0: stored crc 0x[0-9a-f]{8}, computed 0x[0-9a-f]{8}"
    ):
        damaged.ensure_valid()


@behaviour("REC-020")
def test_a_length_of_ten_is_corrupt_before_anything_else_is_read() -> None:
    data = build_batch(THREE)
    struct.pack_into(">i", data, 8, 10)
    for read in (lambda: next(read_batches(data)), lambda: batch_of(data), lambda: RecordBatch(data[: 12 + 10])):
        with pytest.raises(CorruptRecordError):
            read()


# -- the records ---------------------------------------------------------------------------------------------------

SIX = [
    NewRecord(b"1", b"first", 1),
    NewRecord(b"2", b"second", 3),
    NewRecord(None, b"no key", 2),
    NewRecord(b"4", None, 9),
    NewRecord(None, None, -1),
    NewRecord(b"", b"", 0, (Header("h", b"1"), Header("h", None), Header("", b""))),
]


@behaviour("REC-046")
@CODECS
@pytest.mark.parametrize("base_offset", [0, 57])
def test_six_records_are_read_twice_alike(codec: Codec, base_offset: int) -> None:
    six = batch(SIX, base_offset=base_offset, codec=codec)
    first, second = list(six), list(six.records())
    assert first == second
    assert [NewRecord(r.key, r.value, r.timestamp_ms, r.headers) for r in first] == SIX
    assert [record.offset for record in first] == list(range(base_offset, base_offset + 6))
    assert {record.timestamp_type for record in first} == {CREATE_TIME}


@behaviour("REC-022", "REC-023")
@CODECS
@pytest.mark.parametrize(("count", "delivered"), [(5, 3), (4, 3), (2, 2), (1, 1)])
def test_a_count_that_is_not_that_of_the_records_is_invalid(codec: Codec, count: int, delivered: int) -> None:
    three = resealed(batch(THREE, codec=codec), records_count=count)
    three.ensure_valid()
    records = three.records()
    assert len(list(itertools.islice(records, delivered))) == delivered
    with pytest.raises(InvalidRecordError, match=f"its {count}" if count > 3 else f"behind its {count} records"):
        next(records)


@CODECS
def test_a_negative_count_is_invalid(codec: Codec) -> None:
    for body in (None, compress(codec, b"")):
        with pytest.raises(InvalidRecordError, match="batch at offset 0: -1 records"):
            list(resealed(batch(THREE, codec=codec), body, records_count=-1))


@CODECS
@pytest.mark.parametrize("garbage", [b"\x00", b"\x01", b"\xff" * 20])
def test_bytes_behind_the_last_record_are_invalid(codec: Codec, garbage: bytes) -> None:
    body = compress(codec, bytes(batch(THREE).records_bytes()) + garbage)
    with pytest.raises(InvalidRecordError, match=f"{len(garbage)} bytes behind its 3 records"):
        list(resealed(batch(THREE, codec=codec), body))


@CODECS
def test_a_body_cut_off_anywhere_is_invalid(codec: Codec) -> None:
    plain = bytes(batch(THREE).records_bytes())
    for size in range(len(plain)):
        with pytest.raises(InvalidRecordError):
            list(resealed(batch(THREE, codec=codec), compress(codec, plain[:size])))


def test_a_body_that_decompresses_beyond_the_cap_is_invalid() -> None:
    large = batch([NewRecord(None, bytes(10_000))], codec=Codec.GZIP)
    size = len(large.records_bytes())
    assert len(list(large.records(max_size=size))) == 1
    with pytest.raises(DecompressedSizeError):
        list(large.records(max_size=size - 1))


# -- times ---------------------------------------------------------------------------------------------------------


@behaviour("REC-059")
@CODECS
def test_a_delete_horizon_takes_the_base_timestamp_and_the_records_keep_theirs(codec: Codec) -> None:
    stamped = batch(THREE, codec=codec, delete_horizon_ms=1_000_000)
    assert stamped.is_valid
    assert (stamped.base_timestamp_ms, stamped.delete_horizon_ms) == (1_000_000, 1_000_000)
    assert stamped.header.attributes & 0x40
    assert stamped.max_timestamp_ms == 15
    assert [record.timestamp_ms for record in stamped] == [5, 10, 15]


@CODECS
def test_in_a_log_append_time_batch_every_record_has_its_max_timestamp(codec: Codec) -> None:
    appended = batch(THREE, codec=codec, timestamp_type=APPEND_TIME, log_append_time_ms=99)
    assert (appended.timestamp_type, appended.max_timestamp_ms, appended.base_timestamp_ms) == (APPEND_TIME, 99, 5)
    assert [(r.timestamp_ms, r.timestamp_type) for r in appended] == [(99, APPEND_TIME)] * 3
    deltas = resealed(appended, attributes=codec)
    assert [record.timestamp_ms for record in deltas] == [5, 10, 15]  # the deltas are there, and are not looked at


# -- the empty batch -----------------------------------------------------------------------------------------------


@behaviour("REC-011")
def test_an_empty_batch_keeps_offsets_producer_and_sequences() -> None:
    empty = RecordBatch(
        empty_batch(
            base_offset=15,
            last_offset=37,
            max_timestamp_ms=1_700_000_000_000,
            partition_leader_epoch=15,
            producer_id=23423,
            producer_epoch=145,
            base_sequence=983,
        )
    )
    assert empty.is_valid
    assert (empty.size_in_bytes, empty.count, list(empty)) == (61, 0, [])
    assert (empty.magic, empty.base_offset, empty.last_offset, empty.next_offset) == (2, 15, 37, 38)
    assert (empty.producer_id, empty.producer_epoch) == (23423, 145)
    assert (empty.base_sequence, empty.last_sequence) == (983, 983 + 22)
    assert (empty.base_timestamp_ms, empty.max_timestamp_ms) == (-1, 1_700_000_000_000)
    assert empty.partition_leader_epoch == 15


@behaviour("REC-012")
@pytest.mark.parametrize("is_control", [False, True])
@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, APPEND_TIME])
def test_an_empty_batch_keeps_its_bits_but_for_codec_and_horizon(
    timestamp_type: TimestampType, is_transactional: bool, is_control: bool
) -> None:
    kept = BatchAttributes(0, timestamp_type, is_transactional, is_control)
    given = kept._replace(codec_id=Codec.LZ4, has_delete_horizon=True)
    empty = RecordBatch(empty_batch(base_offset=0, last_offset=0, max_timestamp_ms=5, attributes=given))
    assert empty.attributes == kept
    assert (empty.timestamp_type, empty.is_transactional, empty.is_control) == kept[1:4]
    assert (empty.codec, empty.delete_horizon_ms) == (Codec.NONE, None)


def test_the_body_of_a_batch_that_counts_no_records_is_not_looked_at() -> None:
    assert list(resealed(batch(THREE), body=b"\xff" * 9, records_count=0)) == []
    assert list(resealed(batch(THREE), body=b"\xff" * 9, records_count=0, attributes=Codec.ZSTD)) == []


# -- what a broker stamps ------------------------------------------------------------------------------------------


@behaviour("REC-024")
@CODECS
def test_setting_the_last_offset_renumbers_the_records_under_the_same_checksum(codec: Codec) -> None:
    three = batch(THREE, codec=codec)
    crc = three.crc
    three.set_last_offset(500)
    assert (three.base_offset, three.last_offset) == (498, 500)
    assert [record.offset for record in three] == [498, 499, 500]
    assert three.is_valid
    assert three.crc == crc


@behaviour("REC-025")
def test_setting_the_leader_epoch_leaves_the_checksum_alone() -> None:
    three = batch(THREE)
    crc = three.crc
    three.set_partition_leader_epoch(500)
    assert (three.partition_leader_epoch, three.crc) == (500, crc)
    assert three.is_valid
    assert RecordBatch(bytes(three.buffer)).partition_leader_epoch == 500


@behaviour("REC-026")
@CODECS
def test_setting_the_append_time_flips_the_type_and_gives_every_record_that_time(codec: Codec) -> None:
    three = batch(THREE, codec=codec)
    three.set_max_timestamp(APPEND_TIME, 15)
    assert (three.timestamp_type, three.max_timestamp_ms, three.codec) == (APPEND_TIME, 15, codec)
    assert three.is_valid
    assert [(record.timestamp_ms, record.timestamp_type) for record in three] == [(15, APPEND_TIME)] * 3


def test_setting_the_create_time_keeps_the_times_of_the_records() -> None:
    three = batch(THREE, timestamp_type=APPEND_TIME, log_append_time_ms=99)
    three.set_max_timestamp(CREATE_TIME, 15)
    assert three.is_valid
    assert (three.max_timestamp_ms, [record.timestamp_ms for record in three]) == (15, [5, 10, 15])


@behaviour("REC-027")
def test_there_is_no_batch_without_a_timestamp_type() -> None:
    three = batch(THREE)
    with pytest.raises(InvalidRequestError, match="has a timestamp type"):
        three.set_max_timestamp(TimestampType.NO_TIMESTAMP_TYPE, -1)
    with pytest.raises(InvalidRequestError):
        BatchAttributes(timestamp_type=TimestampType.NO_TIMESTAMP_TYPE).pack()
    assert three.buffer == build_batch(THREE)


def stamped_bits(bits: int) -> Iterator[tuple[TimestampType, int]]:
    for timestamp_type in (CREATE_TIME, APPEND_TIME):
        marked = resealed(batch(THREE), attributes=bits)
        marked.set_max_timestamp(timestamp_type, 77)
        assert marked.is_valid
        yield timestamp_type, marked.header.attributes


@pytest.mark.parametrize("bits", [0x10, 0x20, 0x30, 0x40, 0x70])
def test_stamping_a_time_keeps_the_bits_with_a_name_and_clears_the_others(bits: int) -> None:
    assert list(stamped_bits(bits)) == [(CREATE_TIME, bits), (APPEND_TIME, bits | 0x08)]
    assert list(stamped_bits(bits | 0x80)) == [(CREATE_TIME, bits), (APPEND_TIME, bits | 0x08)]
    assert list(stamped_bits(bits | 0x7F80)) == [(CREATE_TIME, bits), (APPEND_TIME, bits | 0x08)]


def test_stamping_the_time_that_is_already_there_changes_nothing() -> None:
    data = resealed(batch(THREE), attributes=0x80).buffer
    before = bytes(data)
    RecordBatch(data).set_max_timestamp(CREATE_TIME, 15)
    assert data == before


def test_the_setters_write_through_to_the_bytes_they_were_given() -> None:
    log = build_batch(THREE) + build_batch(THREE)
    _, second = read_batches(log)
    second.set_last_offset(5)
    second.set_partition_leader_epoch(9)
    second.set_max_timestamp(APPEND_TIME, 100)
    first, again = read_batches(bytes(log))
    assert (first.last_offset, first.max_timestamp_ms) == (2, 15)
    assert (again.base_offset, again.partition_leader_epoch, again.max_timestamp_ms) == (3, 9, 100)
    assert again.is_valid


@pytest.mark.parametrize("epoch", [2**31, -(2**31) - 1])
def test_a_stamp_that_does_not_fit_is_the_callers_mistake(epoch: int) -> None:
    with pytest.raises(InvalidRequestError, match="do not fit"):
        RecordBatch(build_batch([NewRecord(b"k", b"v")])).set_partition_leader_epoch(epoch)


def test_bytes_that_cannot_be_written_cannot_be_stamped() -> None:
    with pytest.raises(InvalidRequestError, match="read-only"):
        RecordBatch(bytes(build_batch([NewRecord(b"k", b"v")]))).set_last_offset(7)


def test_a_header_name_without_utf8_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        build_batch([NewRecord(b"k", b"v", headers=(Header("\ud800", b""),))])


def test_a_time_that_is_refused_leaves_the_batch_as_it_was() -> None:
    batch = RecordBatch(build_batch([NewRecord(b"k", b"v", 5)]))
    before = bytes(batch.buffer)
    with pytest.raises(InvalidRequestError):
        batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 2**70)
    assert bytes(batch.buffer) == before


@pytest.mark.parametrize(
    "record",
    [
        NewRecord("k", b"v"),  # type: ignore[arg-type]
        NewRecord(b"k", 5),  # type: ignore[arg-type]
        NewRecord(b"k", b"v", headers=(Header(b"n", b""),)),  # type: ignore[arg-type]
    ],
)
def test_a_record_that_is_refused_leaves_the_builder_as_it_was(record: NewRecord) -> None:
    builder = BatchBuilder().append(NewRecord(b"k", b"v"))
    before = builder.build()
    with pytest.raises(InvalidRequestError):
        builder.append(record)
    assert builder.build() == before
