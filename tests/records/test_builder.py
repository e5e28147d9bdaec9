"""Batches in the making: sizes, offsets, times, what is refused, and how a stream of records is cut."""

from collections.abc import Sequence

import pytest

from tests.behaviours import behaviour
from tidelog.errors import InvalidRequestError, UnsupportedError
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchBuilder,
    Codec,
    Header,
    LegacyBatch,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    build_message_set,
    cut_batches,
    plain_batch_size,
    read_batches,
)

APPEND_TIME = TimestampType.LOG_APPEND_TIME
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=[codec.label for codec in Codec])

# Null key, null value, headers with a null value, a minute between timestamps.
RECORDS = [
    NewRecord(b"key", b"value", 0),
    NewRecord(None, b"value", 60_000),
    NewRecord(b"key", None, 120_000),
    NewRecord(None, None, 180_000),
    NewRecord(b"key", b"value", 240_000, (Header("a", b"1"), Header("b", None), Header("ключ", b""))),
]


@behaviour("REC-019")
@pytest.mark.parametrize("count", range(len(RECORDS) + 1))
def test_the_size_predicted_is_the_size_built(count: int) -> None:
    assert plain_batch_size(RECORDS[:count]) == len(build_batch(RECORDS[:count]))


def test_the_builder_tells_its_size_and_what_it_would_be_with_one_more() -> None:
    builder = BatchBuilder(base_offset=100)
    assert builder.size_in_bytes == BATCH_HEADER_SIZE
    for record in RECORDS:
        predicted = builder.size_with(record)
        builder.append(record)
        assert builder.size_in_bytes == predicted == len(builder.build())
    assert builder.size_in_bytes == plain_batch_size(RECORDS)


@behaviour("REC-070")
@CODECS
def test_without_records_there_is_no_batch(codec: Codec) -> None:
    assert build_batch([], codec=codec) == b""
    assert BatchBuilder(codec=codec).build(last_offset=5) == b""
    assert list(cut_batches([], codec=codec)) == []
    assert plain_batch_size([]) == 0
    if codec is not Codec.ZSTD:
        assert build_message_set(1, [], codec=codec) == b""


def test_a_builder_may_be_asked_again_and_goes_on_from_there() -> None:
    builder = BatchBuilder().append(RECORDS[0])
    first = builder.build()
    assert builder.build() == first
    first[:] = bytes(len(first))  # what was given out is the caller's
    assert builder.append(RECORDS[1]).build() == build_batch(RECORDS[:2])


@CODECS
def test_every_field_given_is_in_the_header(codec: Codec) -> None:
    batch = RecordBatch(
        build_batch(
            RECORDS,
            base_offset=1_000_000_000_000,
            codec=codec,
            partition_leader_epoch=17,
            producer_id=4_000_000_000,
            producer_epoch=32_767,
            base_sequence=42,
            is_transactional=True,
        )
    )
    assert batch.is_valid
    assert (batch.base_offset, batch.last_offset) == (1_000_000_000_000, 1_000_000_000_004)
    assert (batch.codec, batch.partition_leader_epoch) == (codec, 17)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4_000_000_000, 32_767, 42)
    assert (batch.is_transactional, batch.is_control, batch.count) == (True, False, 5)


# -- offsets -------------------------------------------------------------------------------------------------------


@behaviour("REC-079")
def test_offsets_must_increase_inside_a_batch() -> None:
    builder = BatchBuilder().append(RECORDS[0], offset=0)
    for offset in (0, -1):
        with pytest.raises(InvalidRequestError, match=f"offset {offset} after 0"):
            builder.append(RECORDS[1], offset=offset)
    with pytest.raises(InvalidRequestError):  # an offset below the base
        BatchBuilder(base_offset=10).append(RECORDS[0], offset=9)
    assert builder.build() == build_batch(RECORDS[:1])  # a refused record leaves no trace


def test_offsets_may_have_gaps_and_go_on_behind_them() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(RECORDS[0], offset=7).append(RECORDS[1], offset=9).append(RECORDS[2])
    assert builder.next_offset == 11
    batch = RecordBatch(builder.build())
    assert (batch.base_offset, batch.last_offset, batch.count) == (5, 10, 3)
    assert [record.offset for record in batch] == [7, 9, 10]


def test_an_offset_may_lie_2_31_minus_1_above_the_base_and_not_one_more() -> None:
    base = 10
    with pytest.raises(InvalidRequestError, match="more than"):
        BatchBuilder(base_offset=base).append(RECORDS[0], offset=base + 2**31)
    batch = RecordBatch(BatchBuilder(base_offset=base).append(RECORDS[0], offset=base + 2**31 - 1).build())
    assert [record.offset for record in batch] == [base + 2**31 - 1]
    assert batch.header.last_offset_delta == 2**31 - 1


@CODECS
def test_a_batch_can_keep_a_last_offset_whose_record_is_gone(codec: Codec) -> None:
    builder = BatchBuilder(base_offset=100, codec=codec, producer_id=1, producer_epoch=0, base_sequence=7)
    builder.append(RECORDS[0], offset=102).append(RECORDS[1], offset=104)
    batch = RecordBatch(builder.build(last_offset=109))
    assert batch.is_valid
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (100, 109, 110, 2)
    assert (batch.base_sequence, batch.last_sequence) == (7, 16)
    assert [(record.offset, record.sequence) for record in batch] == [(102, 9), (104, 11)]
    assert builder.build(last_offset=104) == builder.build()


def test_a_last_offset_below_a_record_or_too_far_from_the_base_is_refused() -> None:
    builder = BatchBuilder(base_offset=100).append(RECORDS[0], offset=102)
    with pytest.raises(InvalidRequestError, match="last offset 101, below that of a record, 102"):
        builder.build(last_offset=101)
    with pytest.raises(InvalidRequestError, match="more than"):
        builder.build(last_offset=100 + 2**31)
    assert RecordBatch(builder.build(last_offset=100 + 2**31 - 1)).last_offset == 100 + 2**31 - 1


# -- times ---------------------------------------------------------------------------------------------------------


def test_the_base_timestamp_is_the_first_and_the_max_timestamp_the_largest() -> None:
    batch = RecordBatch(build_batch([NewRecord(None, None, time) for time in (5, 20, 3, -1)]))
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (5, 20)
    assert [record.timestamp_ms for record in batch] == [5, 20, 3, -1]


def test_records_without_a_time_make_a_batch_without_one() -> None:
    batch = RecordBatch(build_batch([NewRecord(None, b"v"), NewRecord(None, b"v")]))
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, -1)
    assert [record.timestamp_ms for record in batch] == [-1, -1]


@pytest.mark.parametrize("timestamp_ms", [-2, -(2**63)])
def test_a_negative_time_other_than_none_is_refused(timestamp_ms: int) -> None:
    builder = BatchBuilder()
    with pytest.raises(InvalidRequestError, match=f"timestamp {timestamp_ms}"):
        builder.append(NewRecord(None, None, timestamp_ms))
    assert builder.build() == b""


def test_the_time_of_the_append_is_the_max_timestamp_and_must_be_given() -> None:
    batch = RecordBatch(build_batch(RECORDS, timestamp_type=APPEND_TIME, log_append_time_ms=5))
    assert (batch.timestamp_type, batch.max_timestamp_ms, batch.base_timestamp_ms) == (APPEND_TIME, 5, 0)
    assert {record.timestamp_ms for record in batch} == {5}
    with pytest.raises(InvalidRequestError, match="the time of the append"):
        BatchBuilder(timestamp_type=APPEND_TIME)


def test_there_is_no_batch_without_a_timestamp_type() -> None:
    with pytest.raises(InvalidRequestError, match="has a timestamp type"):
        build_batch(RECORDS, timestamp_type=TimestampType.NO_TIMESTAMP_TYPE)


# -- producers -----------------------------------------------------------------------------------------------------

REFUSED = [
    pytest.param(
        {"is_transactional": True}, "needs a producer id", marks=behaviour("REC-072"), id="a transaction of nobody"
    ),
    pytest.param(
        {"producer_id": 1, "base_sequence": 0}, "without a producer epoch", marks=behaviour("REC-073"), id="no epoch"
    ),
    pytest.param(
        {"producer_id": 1, "producer_epoch": 0}, "base sequence -1", marks=behaviour("REC-074"), id="no sequence"
    ),
    pytest.param(
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": -2},
        "base sequence -2",
        marks=behaviour("REC-074"),
        id="a negative sequence",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_half_a_producer_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        BatchBuilder(**options)
    with pytest.raises(InvalidRequestError, match=message):
        list(cut_batches(RECORDS, **options))


@behaviour("REC-074")
def test_a_control_batch_of_a_producer_has_no_sequence() -> None:
    builder = BatchBuilder(producer_id=1, producer_epoch=0, is_control=True, is_transactional=True)
    assert RecordBatch(builder.append(RECORDS[0]).build()).base_sequence == -1


# -- the batches of a producer -------------------------------------------------------------------------------------


def records_of(batches: Sequence[bytearray]) -> list[NewRecord]:
    return [
        NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
        for batch in batches
        for record in RecordBatch(batch)
    ]


def test_a_stream_is_cut_where_the_next_record_no_longer_fits() -> None:
    records = [NewRecord(b"k", b"v" * 10, 1_000) for _ in range(100)]
    size_of_ten = plain_batch_size(records[:10])
    batches = list(cut_batches(records, batch_size=size_of_ten))
    assert [RecordBatch(batch).count for batch in batches] == [10] * 10
    assert {len(batch) for batch in batches} == {size_of_ten}
    batches = list(cut_batches(records, batch_size=size_of_ten - 1))
    assert [RecordBatch(batch).count for batch in batches] == [9] * 11 + [1]
    assert records_of(batches) == records


def test_batches_come_as_a_producer_sends_them() -> None:
    for data in cut_batches(RECORDS * 10, batch_size=200):
        batch = RecordBatch(data)
        assert (batch.base_offset, batch.partition_leader_epoch, batch.producer_id) == (0, -1, -1)
        assert [record.offset for record in batch] == list(range(batch.count))


def test_a_record_larger_than_a_batch_gets_one_of_its_own() -> None:
    large, small = NewRecord(b"k", bytes(1000), 5), NewRecord(b"k", b"v" * 20, 5)
    batches = list(cut_batches([small, large, large, small, small], batch_size=150))
    assert [RecordBatch(batch).count for batch in batches] == [1, 1, 1, 2]
    assert records_of(batches) == [small, large, large, small, small]


def test_the_room_is_what_the_first_record_may_need_as_producers_reserve_it() -> None:
    """A producer reserves 21 bytes for what a record says of itself: a second may slip in where they were not used."""
    small = NewRecord(None, None, 0)
    batches = list(cut_batches([small] * 10, batch_size=0))
    assert [RecordBatch(batch).count for batch in batches] == [3, 3, 3, 1]


@CODECS
def test_sequences_go_on_from_batch_to_batch_and_wrap(codec: Codec) -> None:
    records = [NewRecord(None, b"v" * 100, 1) for _ in range(10)]
    options = {"producer_id": 9, "producer_epoch": 1, "is_transactional": True, "codec": codec}
    batches = [RecordBatch(b) for b in cut_batches(records, batch_size=400, base_sequence=2**31 - 5, **options)]
    assert [batch.count for batch in batches] == [3, 3, 3, 1]
    assert [batch.base_sequence for batch in batches] == [2**31 - 5, 2**31 - 2, 1, 4]
    assert [record.sequence for batch in batches for record in batch] == [*range(2**31 - 5, 2**31), 0, 1, 2, 3, 4]
    assert all(batch.is_valid and batch.is_transactional and batch.codec is codec for batch in batches)


@CODECS
def test_the_size_before_compression_decides_where_to_cut(codec: Codec) -> None:
    records = [NewRecord(None, bytes(100), 1) for _ in range(50)]
    batches = [RecordBatch(batch) for batch in cut_batches(records, batch_size=1000, codec=codec)]
    assert [batch.count for batch in batches] == [8] * 6 + [2]


# -- the formats before version 2 ----------------------------------------------------------------------------------


@behaviour("REC-069")
@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_before_version_2(magic: int) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot be used with magic {magic}"):
        build_message_set(magic, RECORDS[:1], codec=Codec.ZSTD)


@pytest.mark.parametrize("magic", [-1, 2, 3])
def test_a_message_set_has_magic_0_or_1(magic: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"not {magic}"):
        build_message_set(magic, RECORDS[:1])


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_are_refused_before_version_2(magic: int) -> None:
    with pytest.raises(UnsupportedError, match="cannot have headers"):
        build_message_set(magic, RECORDS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_the_times_of_a_message_set_are_those_of_its_type(codec: Codec) -> None:
    records = [NewRecord(None, b"v", time) for time in (0, 2, 1)]
    created = list(read_batches(build_message_set(1, records, codec=codec)))
    assert [batch.max_timestamp_ms for batch in created] == ([0, 2, 1] if codec is Codec.NONE else [2])
    appended = list(
        read_batches(build_message_set(1, records, codec=codec, timestamp_type=APPEND_TIME, log_append_time_ms=9))
    )
    assert {batch.max_timestamp_ms for batch in appended} == {9}
    assert [r.timestamp_ms for batch in appended for r in batch] == [9, 9, 9]
    oldest = list(read_batches(build_message_set(0, records, codec=codec)))
    assert {batch.max_timestamp_ms for batch in oldest} == {-1}
    assert all(isinstance(batch, LegacyBatch) for batch in (*created, *appended, *oldest))


def test_a_record_without_a_time_and_one_at_the_end_of_time_share_a_batch() -> None:
    times = [-1, 2**63 - 1]
    batch = RecordBatch(build_batch([NewRecord(None, None, time) for time in times]))
    assert [record.timestamp_ms for record in batch] == times


@pytest.mark.parametrize(
    ("timestamp_ms", "options"),
    [
        (-2, {}),
        (0, {"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}),
        (0, {"timestamp_type": APPEND_TIME}),  # and no time of the append
    ],
)
def test_times_that_a_batch_refuses_are_refused_by_a_message_set(timestamp_ms: int, options: dict) -> None:
    with pytest.raises(InvalidRequestError):
        build_message_set(1, [NewRecord(None, b"v", timestamp_ms)], **options)
