"""What a leader takes from a producer, what it refuses, and the bytes that it stores.

Each test runs twice: with the readable path and with the kernel.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    TidelogError,
    UnsupportedCompressionError,
)
from tidelog.log.batch_info import batch_info
from tidelog.log.config import LogConfig
from tidelog.log.fact_finder import FactFinder
from tidelog.log.origin import AppendOrigin
from tidelog.log.validator import ValidatedBatches, validate_and_assign
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    build_end_txn_marker,
    build_message_set,
    compress,
    empty_batch,
    read_memory_batches,
)
from tidelog.records.legacy import write_message
from tidelog.records.record import write_record

NOW = 1_700_000_000_000
HOUR_MS = 60 * 60 * 1000
FIRST = 1_234_567
EPOCH = 7
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LEGACY = [codec for codec in Codec if codec is not Codec.ZSTD]
PAIRS = list(itertools.product(Codec, Codec))
PRODUCER = {"producer_id": 1324, "producer_epoch": 10, "base_sequence": 984}

Validate = Callable[..., ValidatedBatches]


@pytest.fixture(params=["readable", "kernel"])
def validate(request: pytest.FixtureRequest) -> Validate:
    """The validator with a topic of defaults and a client, at NOW; the buffer is a copy of what is given."""
    finder = FactFinder(readable_bytes=sys.maxsize if request.param == "readable" else 0)

    def run(
        data: bytes | bytearray,
        *,
        config: LogConfig | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        first_offset: int = FIRST,
        now_ms: int = NOW,
        **topic: object,
    ) -> ValidatedBatches:
        buffer = memoryview(bytearray(data))
        infos, position = [], 0
        for batch in read_memory_batches(buffer):
            infos.append(batch_info(buffer, position))
            position += batch.size_in_bytes
        return validate_and_assign(
            buffer,
            infos,
            config=config or LogConfig(**topic),  # type: ignore[arg-type]
            origin=origin,
            first_offset=first_offset,
            now_ms=now_ms,
            leader_epoch=EPOCH,
            finder=finder,
        )

    return run


def topic_codec(codec: Codec) -> str:
    return "uncompressed" if codec is Codec.NONE else codec.label


def three(*times: int) -> list[NewRecord]:
    return [NewRecord(b"key%d" % index, b"value%d" % index, time) for index, time in enumerate(times or (NOW,) * 3)]


def resealed(batch: bytes | bytearray, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields or another body, and the checksum that fits."""
    header = BatchHeader.unpack(batch)._replace(**fields)
    return bytes(header.seal(bytes(batch[BATCH_HEADER_SIZE:]) if body is None else body))


def raw_batch(
    deltas: Iterable[int], *, codec: Codec = Codec.NONE, time_deltas: Iterable[int] | None = None, **fields: int
) -> bytes:
    """A batch of one-letter records with the offset deltas given."""
    deltas = list(deltas)
    body = bytearray()
    for delta, time_delta in zip(deltas, time_deltas or [0] * len(deltas), strict=True):
        write_record(body, delta, time_delta, NewRecord(b"k", b"v"))
    header = {"attributes": int(codec), "records_count": len(deltas), "last_offset_delta": len(deltas) - 1, **fields}
    return resealed(build_batch([NewRecord(b"k", b"v", NOW)]), compress(codec, body), **header)


def wrapper(
    messages: list[tuple[int, int, NewRecord]], *, magic: int, codec: Codec = Codec.GZIP, offset: int | None = None
) -> bytes:
    """A wrapper around messages, given as magic, inner offset and record."""
    inner = bytearray()
    for inner_magic, inner_offset, record in messages:
        write_message(inner, inner_magic, inner_offset, record)
    return wrapper_around(bytes(inner), magic=magic, codec=codec, offset=messages[-1][1] if offset is None else offset)


def wrapper_around(inner: bytes, *, magic: int, codec: Codec = Codec.GZIP, offset: int = 0) -> bytes:
    out = bytearray()
    content = NewRecord(None, compress(codec, inner, magic=magic), NOW if magic else -1)
    write_message(out, magic, offset, content, codec=codec)
    return bytes(out)


def result_batch(result: ValidatedBatches) -> RecordBatch:
    """The one batch of the result, which must be sound and described rightly."""
    (info,) = result.batches
    batch = RecordBatch(result.buffer[info.position : info.position + info.size])
    batch.ensure_valid()
    assert info == batch_info(result.buffer, info.position)
    assert batch.partition_leader_epoch == EPOCH
    assert info.size == len(result.buffer)
    assert result.next_offset == batch.last_offset + 1
    return batch


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


MARKER = build_end_txn_marker(
    EndTxnMarker(ControlType.COMMIT, 3), producer_id=23423, producer_epoch=5, timestamp_ms=NOW
)


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


BY_BROKER = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": NOW - 5}


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
        resealed(build_batch(three(5, 6, 7)), base_timestamp_ms=2),
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


def test_a_compressed_control_batch_stays_one(validate: Validate) -> None:
    body = bytes(MARKER[BATCH_HEADER_SIZE:])
    data = resealed(MARKER, compress(Codec.GZIP, body), attributes=0x30 | Codec.GZIP)
    batch = result_batch(validate(data, origin=AppendOrigin.COORDINATOR, compression_type="lz4"))
    assert (batch.is_control, batch.is_transactional, batch.codec) == (True, True, Codec.LZ4)


# -- against real Kafka ------------------------------------------------------------------------------------------

GOLDEN_TIME = 1_794_771_593_000  # before the answers of the corpus, by less than an hour


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
    assert checked > 200
