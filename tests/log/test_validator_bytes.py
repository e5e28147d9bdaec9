"""The bytes that a leader stores: stamped in place, compressed anew, or made from the old formats."""

import pytest

from tests.behaviours import behaviour
from tests.log import validating
from tests.log.validating import (
    BY_BROKER,
    COMPRESSED,
    EPOCH,
    FIRST,
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
)
from tidelog.errors import InvalidTimestampError
from tidelog.log.origin import AppendOrigin
from tidelog.records import (
    BATCH_HEADER_SIZE,
    Codec,
    Header,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    build_message_set,
    compress,
)

validate = validating.validate  # a fixture: each test runs with the readable path and with the kernel

# -- times -------------------------------------------------------------------------------------------------------


@behaviour("VAL-020", "VAL-023")
def test_the_broker_stamps_a_plain_batch_with_its_time(validate: Validate) -> None:
    data = build_batch(three(1234, 1235, 1236), **PRODUCER)
    result = validate(data, message_timestamp_type="LogAppendTime")
    batch = result_batch(result)
    assert [record.timestamp_ms for record in batch] == [NOW] * 3
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (batch.max_timestamp_ms, batch.base_timestamp_ms, batch.size_in_bytes) == (NOW, 1234, len(data))
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp, result.log_append_time_ms) == (NOW, FIRST + 2, NOW)
    assert not result.size_may_have_changed


@behaviour("VAL-021", "VAL-023")
@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_broker_stamps_a_compressed_batch_without_opening_it(validate: Validate, codec: Codec) -> None:
    data = build_batch(three(1234, 1235, 1236), codec=codec)
    result = validate(data, message_timestamp_type="LogAppendTime", compression_type=codec.label)
    batch = result_batch(result)
    assert [record.timestamp_ms for record in batch] == [NOW] * 3
    assert (batch.max_timestamp_ms, batch.base_timestamp_ms) == (NOW, 1234)
    assert batch.buffer[BATCH_HEADER_SIZE:] == data[BATCH_HEADER_SIZE:]
    assert result.offset_of_max_timestamp == FIRST + 2
    assert not result.size_may_have_changed


@behaviour("VAL-022", "VAL-023")
def test_old_messages_get_the_time_of_the_broker(validate: Validate) -> None:
    data = build_message_set(0, three(), codec=Codec.GZIP)
    result = validate(data, message_timestamp_type="LogAppendTime")
    batch = result_batch(result)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, NOW)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in batch] == [NOW] * 3
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp, result.log_append_time_ms) == (NOW, FIRST + 2, NOW)


@behaviour("VAL-023")
@pytest.mark.parametrize("source", list(Codec))
def test_the_time_of_the_broker_survives_another_codec(validate: Validate, source: Codec) -> None:
    target = "lz4" if source is not Codec.LZ4 else "zstd"
    data = build_batch(three(1234, 1235, 1236), codec=source)
    result = validate(data, message_timestamp_type="LogAppendTime", compression_type=target)
    batch = result_batch(result)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1234, NOW)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp, result.log_append_time_ms) == (NOW, FIRST + 2, NOW)


def test_only_the_broker_says_log_append_time(validate: Validate) -> None:
    topic = {"message_timestamp_type": "LogAppendTime"}
    for data in (
        build_batch(three(), **BY_BROKER),
        build_batch(three(), codec=Codec.GZIP, **BY_BROKER),
        build_message_set(1, three(), codec=Codec.GZIP, **BY_BROKER),
    ):
        with pytest.raises(InvalidTimestampError, match="for the broker to say") as caught:
            validate(data, **topic)
        assert len(caught.value.record_errors) == 3
        with pytest.raises(InvalidTimestampError, match="for the broker to say"):
            validate(data, compression_type="zstd", **topic)


@pytest.mark.parametrize("target", ["producer", "lz4"])
def test_a_topic_with_times_of_producers_makes_such_times_theirs(validate: Validate, target: str) -> None:
    """A quirk of Kafka: the batch is taken, and its broker's time becomes the producer's."""
    result = validate(build_batch(three(1, 2, 3), **BY_BROKER), compression_type=target)
    batch = result_batch(result)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.max_timestamp_ms == result.max_timestamp_ms == NOW - 5
    times = [1, 2, 3] if target == "producer" else [NOW - 5] * 3  # in place the differences are left alone
    assert [record.timestamp_ms for record in batch] == times
    nobody = resealed(build_batch(three(1, 2, 3), **BY_BROKER), max_timestamp_ms=-1)
    with pytest.raises(InvalidTimestampError, match="for the broker to say"):
        validate(nobody, compression_type=target)


@behaviour("VAL-024", "VAL-025")
def test_a_plain_batch_keeps_what_its_producer_said(validate: Validate) -> None:
    data = build_batch(three(NOW - 1, NOW + 1, NOW), is_transactional=True, **PRODUCER)
    result = validate(data, first_offset=0)
    batch = result_batch(result)
    assert [record.timestamp_ms for record in batch] == [NOW - 1, NOW + 1, NOW]
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (NOW - 1, NOW + 1)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1324, 10, 984)
    assert batch.is_transactional
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp, result.log_append_time_ms) == (NOW + 1, 2, -1)


@pytest.mark.parametrize("wrong_max_ms", [0, NOW + 99])
def test_a_wrong_max_timestamp_is_put_right(validate: Validate, wrong_max_ms: int) -> None:
    data = resealed(build_batch(three(NOW - 1, NOW + 1)), max_timestamp_ms=wrong_max_ms)
    result = validate(data)
    assert result_batch(result).max_timestamp_ms == result.max_timestamp_ms == NOW + 1


def test_bits_without_a_name_stay_until_the_field_is_written(validate: Validate) -> None:
    data = resealed(build_batch(three()), attributes=0x180)
    assert result_batch(validate(data)).header.attributes == 0x180
    assert result_batch(validate(data, message_timestamp_type="LogAppendTime")).header.attributes == 0x08
    assert result_batch(validate(data, compression_type="lz4")).header.attributes == 0x03


# -- codecs ------------------------------------------------------------------------------------------------------


@behaviour("VAL-026", "VAL-034")
@pytest.mark.parametrize(("level", "topic_level"), [(9, 1), (1, 9), (-1, 5)])
def test_a_batch_in_the_codec_of_the_topic_keeps_its_bytes(validate: Validate, level: int, topic_level: int) -> None:
    data = build_batch(three() * 50, codec=Codec.GZIP, level=level)
    result = validate(data, compression_type="gzip", compression_gzip_level=topic_level)
    assert bytes(result.buffer[16:]) == bytes(data[16:])  # behind the fields that are stamped
    assert not result.size_may_have_changed
    assert (result_batch(result).codec, result.offset_of_max_timestamp) == (Codec.GZIP, FIRST + 149)


@behaviour("VAL-027", "VAL-035", "VAL-036")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_codec_of_the_topic_is_stored(validate: Validate, source: Codec, target: Codec) -> None:
    records = [
        NewRecord(b"k%d" % index, b"value" * 20, NOW - index, (Header("h", b"x"), Header("n", None)))
        for index in range(40)
    ]
    levels = {"compression_gzip_level": 2, "compression_lz4_level": 12, "compression_zstd_level": 7}
    level = {Codec.GZIP: 2, Codec.LZ4: 12, Codec.ZSTD: 7}.get(target)
    data = build_batch(records, codec=source, is_transactional=True, **PRODUCER)
    result = validate(data, compression_type=topic_codec(target), **levels)
    batch = result_batch(result)
    assert batch.codec is target
    assert [record[1:5] for record in batch] == [
        (record.timestamp_ms, record.key, record.value, record.headers) for record in records
    ]
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, result.max_timestamp_ms) == (NOW, NOW, NOW)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1324, 10, 984)
    assert batch.is_transactional
    assert result.size_may_have_changed == (source is not target)
    if source is not target:
        as_a_producer_would = build_batch(
            records, codec=target, level=level, base_offset=FIRST, partition_leader_epoch=EPOCH,
            is_transactional=True, **PRODUCER,
        )  # fmt: skip
        assert result.buffer == as_a_producer_would


@behaviour("VAL-036")
@pytest.mark.parametrize("source", list(Codec))
def test_the_codec_of_the_producer_is_kept_where_the_topic_says_so(validate: Validate, source: Codec) -> None:
    result = validate(build_batch(three(), codec=source), compression_type="producer", compression_gzip_level=1)
    assert result_batch(result).codec is source
    assert not result.size_may_have_changed


@behaviour("VAL-036")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", LEGACY)
def test_the_codec_of_old_messages_is_kept_at_its_default_level(validate: Validate, magic: int, source: Codec) -> None:
    records = three() * 30
    result = validate(build_message_set(magic, records, codec=source, level=1 if source in (1, 3) else None))
    times = [record._replace(timestamp_ms=-1) for record in records] if magic == 0 else records
    assert result.buffer == build_batch(times, codec=source, base_offset=FIRST, partition_leader_epoch=EPOCH)


@behaviour("VAL-028")
def test_three_plain_messages_become_one_compressed_batch(validate: Validate) -> None:
    result = validate(build_message_set(1, three(NOW - 1, NOW + 1, NOW)), compression_type="gzip", first_offset=0)
    batch = result_batch(result)
    assert (batch.count, batch.codec) == (3, Codec.GZIP)
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp) == (NOW + 1, 2)


@behaviour("VAL-029")
@pytest.mark.parametrize("source", LEGACY)
def test_messages_of_magic_0_have_no_times(validate: Validate, source: Codec) -> None:
    result = validate(build_message_set(0, three(), codec=source))
    batch = result_batch(result)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, -1)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (result.max_timestamp_ms, result.offset_of_max_timestamp, result.log_append_time_ms) == (-1, -1, -1)


@behaviour("VAL-030")
def test_messages_of_magic_1_keep_their_times(validate: Validate) -> None:
    result = validate(build_message_set(1, three(NOW - 1, NOW + 1, NOW), codec=Codec.GZIP))
    batch = result_batch(result)
    assert [record.timestamp_ms for record in batch] == [NOW - 1, NOW + 1, NOW]
    assert (batch.timestamp_type, batch.codec) == (TimestampType.CREATE_TIME, Codec.GZIP)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (result.max_timestamp_ms, result.log_append_time_ms) == (NOW + 1, -1)


def test_a_wrapper_with_the_time_of_a_broker_gives_it_to_its_messages(validate: Validate) -> None:
    data = build_message_set(1, three(1, 2, 3), codec=Codec.GZIP, **BY_BROKER)
    assert [record.timestamp_ms for record in result_batch(validate(data))] == [NOW - 5] * 3


@pytest.mark.parametrize(
    "data",
    [
        raw_batch([0, 1], base_timestamp_ms=NOW - 9, time_deltas=[5, 6]),
        build_batch(three(5, 6, 7), delete_horizon_ms=100),
    ],
    ids=["base timestamp below every record", "delete horizon"],
)
def test_a_base_timestamp_of_another_kind_becomes_that_of_the_first_record(validate: Validate, data: bytes) -> None:
    times = [record.timestamp_ms for record in RecordBatch(data)]
    assert RecordBatch(data).base_timestamp_ms != times[0]
    batch = result_batch(validate(data, compression_type="gzip"))
    assert batch.base_timestamp_ms == times[0]
    assert batch.delete_horizon_ms is None
    assert [record.timestamp_ms for record in batch] == times


def test_a_delete_horizon_is_not_kept_even_where_it_is_the_first_time(validate: Validate) -> None:
    batch = result_batch(validate(build_batch(three(5, 6, 7), delete_horizon_ms=5), compression_type="gzip"))
    assert (batch.delete_horizon_ms, batch.base_timestamp_ms) == (None, 5)


@pytest.mark.parametrize("horizon_bit", [0, 0x40], ids=["records as they are", "records written anew"])
def test_a_compressed_control_batch_stays_one(validate: Validate, horizon_bit: int) -> None:
    body = bytes(MARKER[BATCH_HEADER_SIZE:])
    data = resealed(MARKER, compress(Codec.GZIP, body), attributes=0x30 | horizon_bit | Codec.GZIP)
    batch = result_batch(validate(data, origin=AppendOrigin.COORDINATOR, compression_type="lz4"))
    assert (batch.is_control, batch.is_transactional, batch.codec) == (True, True, Codec.LZ4)
