"""What a leader takes from a producer and what it refuses: batches, offsets, checksums, writers, keys, times."""

import pytest

from tests.behaviours import behaviour
from tests.log import validating
from tests.log.validating import (
    COMPRESSED,
    EPOCH,
    FIRST,
    HOUR_MS,
    LEGACY,
    MARKER,
    NOW,
    PAIRS,
    PRODUCER,
    Validate,
    raw_batch,
    resealed,
    result_batch,
    three,
    topic_codec,
    wrapper,
    wrapper_around,
)
from tidelog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    UnsupportedCompressionError,
)
from tidelog.log.batch_info import batch_info
from tidelog.log.config import LogConfig
from tidelog.log.origin import AppendOrigin
from tidelog.log.validator import validate_and_assign
from tidelog.records import Codec, NewRecord, build_batch, build_message_set, compress, empty_batch
from tidelog.records.legacy import write_message
from tidelog.records.record import write_record

validate = validating.validate  # a fixture: each test runs with the readable path and with the kernel

# -- how many batches --------------------------------------------------------------------------------------------


@behaviour("VAL-001")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_two_batches_of_version_2_are_refused(validate: Validate, source: Codec, target: Codec) -> None:
    data = build_batch(three(), codec=source) * 2
    with pytest.raises(InvalidRecordError, match="2 batches"):
        validate(data, compression_type=topic_codec(target))


@behaviour("VAL-001")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", list(Codec))
def test_two_wrappers_are_refused(validate: Validate, magic: int, target: Codec) -> None:
    data = build_message_set(magic, three(), codec=Codec.GZIP) * 2
    with pytest.raises(InvalidRecordError, match="2 batches"):
        validate(data, compression_type=topic_codec(target))


@behaviour("VAL-002")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "producer"])
def test_several_plain_messages_become_one_batch(validate: Validate, magic: int, target: str) -> None:
    result = validate(build_message_set(magic, three()), compression_type=target)
    batch = result_batch(result)
    assert [(record.offset, record.key) for record in batch] == [
        (FIRST, b"key0"), (FIRST + 1, b"key1"), (FIRST + 2, b"key2"),
    ]  # fmt: skip
    assert batch.codec is (Codec.GZIP if target == "gzip" else Codec.NONE)
    assert result.size_may_have_changed


def test_no_batch_at_all_is_refused(validate: Validate) -> None:
    with pytest.raises(InvalidRecordError, match="no batch"):
        validate(b"")


def test_messages_of_two_magics_are_refused(validate: Validate) -> None:
    with pytest.raises(InvalidRecordError, match="magic 1 behind magic 0"):
        validate(build_message_set(0, three()) + build_message_set(1, three()))
    with pytest.raises(InvalidRecordError, match="magic 2 behind magic 1"):
        validate(build_message_set(1, three()) + build_batch(three()))


@behaviour("VAL-003")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_empty_batch_is_refused(validate: Validate, source: Codec, target: Codec) -> None:
    empty = empty_batch(base_offset=0, last_offset=0, max_timestamp_ms=NOW, producer_id=5, producer_epoch=0,
                        base_sequence=0)  # fmt: skip
    with pytest.raises(InvalidRecordError, match="a batch of 0 records"):
        validate(resealed(empty, attributes=int(source)), compression_type=topic_codec(target))


# -- offsets -----------------------------------------------------------------------------------------------------


@behaviour("VAL-004")
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_batch_whose_records_share_an_offset_is_refused(validate: Validate, codec: Codec) -> None:
    with pytest.raises(InvalidRecordError, match="20 records over 1 offsets"):
        validate(raw_batch([0] * 20, codec=codec, last_offset_delta=0))


@behaviour("VAL-004")
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_that_share_an_offset_get_offsets_of_their_own(validate: Validate, magic: int) -> None:
    data = wrapper([(magic, 0, NewRecord(b"k", b"%d" % index, NOW)) for index in range(20)], magic=magic)
    batch = result_batch(validate(data, first_offset=0))
    assert [(record.offset, record.value) for record in batch] == [(index, b"%d" % index) for index in range(20)]


@behaviour("VAL-005")
@pytest.mark.parametrize("codec", list(Codec))
def test_the_count_of_offsets_is_the_count_of_records(validate: Validate, codec: Codec) -> None:
    data = build_batch(three(), codec=codec)
    assert validate(resealed(data, last_offset_delta=2, records_count=3)).next_offset == FIRST + 3
    for delta in (0, 15, -3):
        with pytest.raises(InvalidRecordError, match="a batch of 3 records over"):
            validate(resealed(data, last_offset_delta=delta, records_count=3))


@behaviour("VAL-006")
@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize(("delta", "count"), [(5, 6), (1, 2)])
def test_a_header_that_only_agrees_with_itself_is_refused(
    validate: Validate, source: Codec, target: Codec, delta: int, count: int
) -> None:
    data = resealed(build_batch(three(), codec=source), last_offset_delta=delta, records_count=count)
    with pytest.raises(InvalidRecordError, match="records"):
        validate(data, compression_type=topic_codec(target))


@behaviour("VAL-007")
def test_a_batch_that_ends_before_it_begins_is_refused(validate: Validate) -> None:
    data = resealed(build_batch(three()), base_offset=5, last_offset_delta=-2, records_count=3)
    with pytest.raises(InvalidRecordError, match="3 records over -1 offsets"):
        validate(data)
    with pytest.raises(InvalidRecordError, match="3 records over -1 offsets"):
        validate(data, origin=AppendOrigin.COORDINATOR)


@behaviour("VAL-031", "VAL-032")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_offsets_count_up_from_the_end_of_the_log(validate: Validate, source: Codec, target: Codec) -> None:
    result = validate(build_batch(three(), codec=source), compression_type=topic_codec(target))
    assert [record.offset for record in result_batch(result)] == [FIRST, FIRST + 1, FIRST + 2]
    assert result.next_offset == FIRST + 3


@behaviour("VAL-031", "VAL-032")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", LEGACY)
@pytest.mark.parametrize("target", list(Codec))
def test_offsets_of_old_messages_count_up_from_the_end_of_the_log(
    validate: Validate, magic: int, source: Codec, target: Codec
) -> None:
    data = build_message_set(magic, three(), codec=source, base_offset=40)
    result = validate(data, compression_type=topic_codec(target))
    assert [record.offset for record in result_batch(result)] == [FIRST, FIRST + 1, FIRST + 2]
    assert result.next_offset == FIRST + 3


def test_plain_records_out_of_order_are_stored_as_they_came_and_compressed_ones_refused(validate: Validate) -> None:
    result = validate(raw_batch([1, 0]))
    assert [record.offset for record in result_batch(result)] == [FIRST + 1, FIRST]
    with pytest.raises(OffsetsOutOfOrderError):
        validate(raw_batch([1, 0], codec=Codec.GZIP))


@pytest.mark.parametrize("source", [Codec.NONE, Codec.ZSTD])
def test_records_out_of_order_are_put_in_order_where_they_are_written_anew(validate: Validate, source: Codec) -> None:
    body = bytearray()
    write_record(body, 1, 0, NewRecord(b"a", b"first"))
    write_record(body, 0, 0, NewRecord(b"b", b"second"))
    data = resealed(build_batch(three(NOW, NOW), codec=source), compress(source, body))
    batch = result_batch(validate(data, compression_type="lz4"))
    assert [(record.offset, record.value) for record in batch] == [(FIRST, b"first"), (FIRST + 1, b"second")]


def test_a_batch_behind_the_start_of_its_buffer_is_stamped_where_it_lies() -> None:
    data = build_batch(three())
    buffer = memoryview(bytearray(b"x" * 10 + data + b"y"))
    info = batch_info(buffer, 10)
    result = validate_and_assign(
        buffer, [info], config=LogConfig(), origin=AppendOrigin.CLIENT, first_offset=9, now_ms=NOW, leader_epoch=EPOCH
    )
    assert result.buffer is buffer
    assert result.batches[0] == batch_info(buffer, 10)
    assert (result.batches[0].position, result.batches[0].base_offset) == (10, 9)
    assert (bytes(buffer[:10]), bytes(buffer[-1:])) == (b"x" * 10, b"y")


def test_what_cannot_be_stamped_is_the_callers_mistake() -> None:
    data = bytes(build_batch(three()))
    for buffer, epoch in ((memoryview(data), EPOCH), (memoryview(bytearray(data)), 2**31)):
        with pytest.raises(InvalidRequestError, match="cannot be written"):
            validate_and_assign(
                buffer, [batch_info(buffer)], config=LogConfig(), origin=AppendOrigin.CLIENT, first_offset=9,
                now_ms=NOW, leader_epoch=epoch,
            )  # fmt: skip


# -- what the bytes say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_a_wrong_checksum_is_corruption_whatever_else_is_wrong(validate: Validate, codec: Codec) -> None:
    data = bytearray(resealed(build_batch(three(), codec=codec), records_count=0))
    data[17] ^= 1
    for target in ("producer", "snappy"):
        with pytest.raises(CorruptRecordError, match="stored crc"):
            validate(data, compression_type=target)
    good = build_batch(three())
    with pytest.raises(CorruptRecordError, match="stored crc"):
        validate(good + data)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_checksum_of_an_old_message_is_corruption(validate: Validate, magic: int) -> None:
    data = build_message_set(magic, three())
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="stored crc"):
        validate(data)


@behaviour("VAL-008")
@pytest.mark.parametrize(("outer", "inner"), [(0, 1), (1, 0)])
def test_messages_of_another_magic_than_their_wrapper_are_all_named(validate: Validate, outer: int, inner: int) -> None:
    data = wrapper([(inner, index, NewRecord(b"k", b"v", NOW)) for index in range(20)], magic=outer)
    with pytest.raises(InvalidRecordError, match="20 records") as caught:
        validate(data)
    assert type(caught.value) is InvalidRecordError
    assert [error.batch_index for error in caught.value.record_errors] == list(range(20))


@behaviour("VAL-009")
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_checksum_inside_a_wrapper_is_corruption(validate: Validate, magic: int) -> None:
    inner = build_message_set(magic, three())
    inner[12] ^= 1  # the first byte of the first checksum
    with pytest.raises(CorruptRecordError, match="stored crc"):
        validate(wrapper_around(bytes(inner), magic=magic))


def test_wrappers_that_hold_no_messages_are_refused(validate: Validate) -> None:
    with pytest.raises(InvalidRecordError, match="around nothing"):
        validate(wrapper_around(b"", magic=1))
    with pytest.raises(InvalidRecordError, match="inside a wrapper"):
        validate(wrapper_around(bytes(build_message_set(1, three(), codec=Codec.LZ4)), magic=1))
    with pytest.raises(InvalidRecordError, match="below the last relative offset"):
        validate(wrapper([(1, 5, NewRecord(b"k", b"v", NOW))], magic=1, offset=4))
    out = bytearray()
    write_message(out, 1, 0, NewRecord(None, None, NOW), codec=Codec.GZIP)
    with pytest.raises(InvalidRecordError, match="without a value"):
        validate(out)


@pytest.mark.parametrize("target", ["producer", "lz4"])
def test_a_codec_that_does_not_exist_is_unsupported(validate: Validate, target: str) -> None:
    with pytest.raises(UnsupportedCompressionError):
        validate(resealed(build_batch(three()), attributes=5), compression_type=target)


# -- who writes --------------------------------------------------------------------------------------------------


@behaviour("VAL-010")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_producer_id_needs_a_sequence(validate: Validate, source: Codec, target: Codec) -> None:
    data = resealed(build_batch(three(), codec=source, **PRODUCER), base_sequence=-2)
    with pytest.raises(InvalidRecordError, match="base sequence -2 from producer 1324"):
        validate(data, compression_type=topic_codec(target))


@behaviour("VAL-012")
@pytest.mark.parametrize("target", ["producer", "snappy"])
def test_a_client_writes_no_control_batch(validate: Validate, target: str) -> None:
    with pytest.raises(InvalidRecordError, match="control batch"):
        validate(MARKER, compression_type=target)


@behaviour("VAL-013")
@pytest.mark.parametrize("target", ["snappy", "producer", "uncompressed"])
def test_a_marker_of_the_coordinator_is_not_compressed(validate: Validate, target: str) -> None:
    result = validate(MARKER, origin=AppendOrigin.COORDINATOR, compression_type=target)
    batch = result_batch(result)
    assert (batch.codec, batch.is_control, batch.is_transactional) == (Codec.NONE, True, True)
    assert (batch.base_offset, batch.base_sequence, batch.producer_id) == (FIRST, -1, 23423)
    assert not result.size_may_have_changed


def test_a_coordinator_writes_without_sequences(validate: Validate) -> None:
    data = resealed(build_batch(three()), producer_id=4, producer_epoch=0)
    assert result_batch(validate(data, origin=AppendOrigin.COORDINATOR)).base_sequence == -1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attributes": 0x10}, "transactional batch needs a producer id"),
        ({"producer_id": 4, "base_sequence": 0}, "without a producer epoch"),
    ],
)
def test_half_a_producer_is_not_written_anew(validate: Validate, fields: dict[str, int], message: str) -> None:
    data = resealed(build_batch(three()), **fields)
    assert result_batch(validate(data)).producer_id == fields.get("producer_id", -1)
    with pytest.raises(InvalidRecordError, match=message):
        validate(data, compression_type="gzip")


# -- keys --------------------------------------------------------------------------------------------------------

NO_KEYS = [
    NewRecord(b"k", b"v", NOW),
    NewRecord(None, b"v", NOW),
    NewRecord(b"", b"v", NOW),
    NewRecord(None, None, NOW),
]


@behaviour("VAL-011", "VAL-018")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_compacted_topic_takes_no_record_without_a_key(validate: Validate, source: Codec, target: Codec) -> None:
    data = build_batch(NO_KEYS, codec=source)
    with pytest.raises(InvalidRecordError, match="without a key") as caught:
        validate(data, compression_type=topic_codec(target), cleanup_policy=("compact", "delete"))
    assert [error.batch_index for error in caught.value.record_errors] == [1, 3]
    assert caught.value.error_code == 87
    assert validate(data, compression_type=topic_codec(target)).next_offset == FIRST + 4


@behaviour("VAL-011", "VAL-018")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", LEGACY)
def test_a_compacted_topic_takes_no_old_message_without_a_key(validate: Validate, magic: int, source: Codec) -> None:
    data = build_message_set(magic, NO_KEYS, codec=source)
    with pytest.raises(InvalidRecordError, match="without a key") as caught:
        validate(data, cleanup_policy=("compact",))
    wrapped = source is not Codec.NONE  # else each message is a batch of its own, and the first wrong one ends it
    assert [error.batch_index for error in caught.value.record_errors] == ([1, 3] if wrapped else [0])


# -- times -------------------------------------------------------------------------------------------------------


@behaviour("VAL-014")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_time_too_long_ago_is_refused(validate: Validate, codec: Codec) -> None:
    def data_at(time: int) -> list[bytearray]:
        records = three(time, time, time)
        return [build_message_set(1, records, codec=codec), build_batch(records, codec=codec)]

    for data in data_at(NOW - 1001):
        with pytest.raises(InvalidTimestampError) as caught:
            validate(data, message_timestamp_before_max_ms=1000)
        assert caught.value.error_code == 32
    for data in data_at(NOW - 1000):
        assert validate(data, message_timestamp_before_max_ms=1000).max_timestamp_ms == NOW - 1000


@behaviour("VAL-015", "VAL-016", "VAL-018")
@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize(
    "age_ms", [24 * HOUR_MS + 5 * 60_000, -HOUR_MS - 5 * 60_000], ids=["24 h 5 min ago", "1 h 5 min ahead"]
)
def test_every_record_with_a_time_too_far_away_is_named(
    validate: Validate, source: Codec, target: Codec, age_ms: int
) -> None:
    data = build_batch(three(*[NOW - age_ms] * 3), codec=source)
    with pytest.raises(InvalidTimestampError) as caught:
        validate(data, compression_type=topic_codec(target), message_timestamp_before_max_ms=24 * HOUR_MS)
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1, 2]
    assert str(NOW - age_ms) in caught.value.record_errors[0].message


@behaviour("VAL-018")
def test_only_the_records_at_fault_are_named(validate: Validate) -> None:
    times = [NOW, NOW + HOUR_MS + 1, NOW - HOUR_MS, NOW + HOUR_MS, NOW + 2 * HOUR_MS, -1]
    with pytest.raises(InvalidTimestampError, match=r"2 records are refused; record 1: timestamp") as caught:
        validate(build_batch(three(*times)))
    assert [error.batch_index for error in caught.value.record_errors] == [1, 4]


@behaviour("VAL-017")
def test_one_wrong_time_makes_it_an_error_of_times(validate: Validate) -> None:
    messages = [(1, 0, NewRecord(None, b"timestamp", 1200))]
    messages += [(0, 30 * index, NewRecord(None, b"%d" % index)) for index in range(1, 6)]
    with pytest.raises(InvalidTimestampError) as caught:
        validate(wrapper(messages, magic=1), message_timestamp_before_max_ms=1000)
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1, 2, 3, 4, 5]


def test_a_missing_key_and_a_wrong_time_make_it_an_error_of_times(validate: Validate) -> None:
    records = [NewRecord(None, b"v", NOW), NewRecord(b"k", b"v", NOW + 2 * HOUR_MS), NewRecord(None, b"v", 5)]
    with pytest.raises(InvalidTimestampError) as caught:
        validate(build_batch(records), cleanup_policy=("compact",), message_timestamp_before_max_ms=1000)
    errors = caught.value.record_errors
    assert [(error.batch_index, "key" in error.message) for error in errors] == [(0, True), (1, False), (2, True)]


@behaviour("VAL-019")
@pytest.mark.parametrize("target", ["producer", "gzip"])
def test_no_time_is_always_right(validate: Validate, target: str) -> None:
    topic = {"message_timestamp_before_max_ms": 0, "message_timestamp_after_max_ms": 0, "compression_type": target}
    for data in (build_batch(three(-1, -1)), build_message_set(1, three(-1, -1)), build_message_set(0, three(-1, -1))):
        result = validate(data, **topic)
        assert [record.timestamp_ms for record in result_batch(result)] == [-1, -1]
        assert (result.max_timestamp_ms, result.offset_of_max_timestamp) == (-1, -1)


def test_times_below_none_are_stored_as_they_came_but_not_written_anew(validate: Validate) -> None:
    data = raw_batch([0, 1], base_timestamp_ms=-2, time_deltas=[0, 2**40])
    assert [record.timestamp_ms for record in result_batch(validate(data))] == [-2, 2**40 - 2]
    with pytest.raises(InvalidTimestampError, match="below -1") as caught:
        validate(data, compression_type="gzip")
    assert caught.value.record_errors[0].batch_index == 0
    message = bytearray()
    write_message(message, 1, 0, NewRecord(b"k", b"v", -2))
    with pytest.raises(InvalidTimestampError, match="below -1"):
        validate(message)


def test_distances_of_times_wrap_as_java_lets_them(validate: Validate) -> None:
    ancient = raw_batch([0], base_timestamp_ms=-(2**63) + 5)
    with pytest.raises(InvalidTimestampError):
        validate(ancient)
    forever = {"message_timestamp_after_max_ms": 2**63 - 1}
    assert validate(ancient, **forever).max_timestamp_ms == -1
    assert validate(raw_batch([0], base_timestamp_ms=2**63 - 1), **forever).max_timestamp_ms == 2**63 - 1
    farthest = raw_batch([0], base_timestamp_ms=NOW - 2**63)  # whose distance is the number that has no opposite
    assert validate(farthest).max_timestamp_ms == -1
