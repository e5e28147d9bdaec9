"""Whatever a producer sends, the kernel and the readable path agree, and what is stored is what it said."""

import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import codecs, fields, headers, legacy_entries, logs, producers, record_batches
from tidelog.errors import TidelogError
from tidelog.log.batch_info import batch_info
from tidelog.log.config import LogConfig
from tidelog.log.fact_finder import FactFinder
from tidelog.log.origin import AppendOrigin
from tidelog.log.validator import ValidatedBatches, validate_and_assign
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Codec,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    read_memory_batches,
)

NOW = 1_700_000_000_000
READABLE, KERNEL = FactFinder(readable_bytes=sys.maxsize), FactFinder(readable_bytes=0)

_near_times = st.one_of(st.just(-1), st.integers(NOW - 2000, NOW + 2000), st.just(0))
_records = st.builds(NewRecord, fields, fields, _near_times, st.one_of(st.just(()), headers))
_limits = st.sampled_from([0, 1000, 2**63 - 1])

configs = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from([("delete",), ("compact",)]),
    compression_type=st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=_limits,
    message_timestamp_after_max_ms=_limits,
)
origins = st.sampled_from([AppendOrigin.CLIENT, AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
first_offsets = st.sampled_from([0, 1, 1_234_567, 2**40])


@st.composite
def sent_batches(draw: st.DrawFn) -> bytes:
    """What a producer sends."""
    records = draw(st.lists(_records, min_size=1, max_size=6))
    return bytes(build_batch(records, codec=draw(codecs), **draw(producers())))


@st.composite
def strange_batches(draw: st.DrawFn) -> bytes:
    """The same with header fields that nobody would send, under a checksum that holds."""
    batch = draw(sent_batches())
    header = BatchHeader.unpack(batch)
    changes = {
        "attributes": st.sampled_from([header.attributes ^ bit for bit in (8, 16, 32, 64, 128, 256)]),
        "last_offset_delta": st.sampled_from([-1, 0, header.last_offset_delta + 1]),
        "base_timestamp_ms": st.sampled_from([-(2**63), -2, -1, 0, NOW, 2**63 - 1]),
        "max_timestamp_ms": st.sampled_from([-2, -1, 0, NOW, 2**63 - 1]),
        "producer_id": st.sampled_from([-2, -1, 5]),
        "producer_epoch": st.sampled_from([-1, 0]),
        "base_sequence": st.sampled_from([-2, -1, 0]),
        "records_count": st.sampled_from([-1, 0, header.records_count - 1, header.records_count + 1]),
    }
    names = draw(st.lists(st.sampled_from(sorted(changes)), min_size=1, max_size=2, unique=True))
    changed = header._replace(**{name: draw(changes[name]) for name in names})
    return bytes(changed.seal(batch[BATCH_HEADER_SIZE:]))


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """Records with a wrong byte among them, under a checksum that holds."""
    batch = draw(sent_batches())
    body = bytearray(batch[BATCH_HEADER_SIZE:])
    body[draw(st.integers(0, len(body) - 1))] ^= draw(st.integers(1, 255))
    return bytes(BatchHeader.unpack(batch).seal(body))


buffers = st.one_of(
    sent_batches(), sent_batches(), strange_batches(), strange_batches(), damaged_batches(),
    record_batches, legacy_entries, logs,
)  # fmt: skip


def validated(
    data: bytes, config: LogConfig, origin: AppendOrigin, first_offset: int, finder: FactFinder
) -> ValidatedBatches:
    buffer = memoryview(bytearray(data))
    infos, position = [], 0
    for batch in read_memory_batches(buffer):
        infos.append(batch_info(buffer, position))
        position += batch.size_in_bytes
    try:
        return validate_and_assign(
            buffer, infos, config=config, origin=origin, first_offset=first_offset, now_ms=NOW, leader_epoch=3,
            finder=finder,
        )  # fmt: skip
    except TidelogError:
        assert buffer == data, "what is refused must not be changed"
        raise


def outcome(*args: Any) -> tuple[Any, ...]:
    """The result, or the error and the records it names."""
    try:
        return tuple(validated(*args))
    except TidelogError as error:
        return type(error), str(error), getattr(error, "record_errors", None)


@given(buffers, configs, origins, first_offsets)
def test_the_kernel_and_the_readable_path_agree(
    data: bytes, config: LogConfig, origin: AppendOrigin, first_offset: int
) -> None:
    readable = outcome(data, config, origin, first_offset, READABLE)
    assert outcome(data, config, origin, first_offset, KERNEL) == readable


@given(st.one_of(sent_batches(), strange_batches()), configs, first_offsets)
def test_what_is_stamped_in_place_is_what_the_setters_of_a_batch_would_write(
    data: bytes, config: LogConfig, first_offset: int
) -> None:
    try:
        result = validated(data, config, AppendOrigin.CLIENT, first_offset, KERNEL)
    except TidelogError:
        return
    if result.size_may_have_changed:
        return
    expected = RecordBatch(bytearray(data))
    times = [record.timestamp_ms for record in expected]
    expected.set_last_offset(first_offset + len(times) - 1)
    expected.set_partition_leader_epoch(3)
    if config.uses_append_time:
        expected.set_max_timestamp(TimestampType.LOG_APPEND_TIME, NOW)
    else:
        expected.set_max_timestamp(TimestampType.CREATE_TIME, max(-1, *times))
    assert result.buffer == expected.buffer
    assert result.batches == [batch_info(expected.buffer)]
    assert (result.max_timestamp_ms, result.next_offset) == (expected.max_timestamp_ms, expected.next_offset)


@given(sent_batches(), configs, first_offsets)
def test_what_is_taken_says_the_same_at_its_new_place(data: bytes, config: LogConfig, first_offset: int) -> None:
    sent = RecordBatch(data)
    answer = outcome(data, config, AppendOrigin.CLIENT, first_offset, READABLE)
    if isinstance(answer[0], type):
        assert answer[2]  # the batch is sound: only rules of the topic, which name records, can speak against it
        return
    result = ValidatedBatches(*answer)
    batch = RecordBatch(result.buffer)
    batch.ensure_valid()
    same = config.target_codec is None or config.target_codec is sent.codec
    assert result.size_may_have_changed is not same
    assert batch.codec is (sent.codec if same else config.target_codec)
    assert [(record.offset, record.sequence) for record in batch] == [
        (first_offset + index, record.sequence) for index, record in enumerate(sent)
    ]
    assert [(record.key, record.value, record.headers) for record in batch] == [
        (record.key, record.value, record.headers) for record in sent
    ]
    assert [record.timestamp_ms for record in batch] == [
        NOW if config.uses_append_time else record.timestamp_ms for record in sent
    ]
    assert (batch.producer_id, batch.producer_epoch, batch.is_transactional) == (
        sent.producer_id, sent.producer_epoch, sent.is_transactional,
    )  # fmt: skip


@given(st.lists(_records, min_size=1, max_size=6), codecs, codecs.filter(bool), producers(), first_offsets)
def test_compressing_the_bytes_of_records_anew_gives_what_writing_the_records_would(
    records: list[NewRecord], source: Codec, target: Codec, producer: dict[str, Any], first_offset: int
) -> None:
    if source is target:
        return
    config = LogConfig(compression_type=target.label, message_timestamp_after_max_ms=2**63 - 1)
    sent = bytes(build_batch(records, codec=source, **producer))
    result = validated(sent, config, AppendOrigin.CLIENT, first_offset, KERNEL)
    level = config.level_for(target)
    assert result.buffer == build_batch(
        records, codec=target, level=level, base_offset=first_offset, partition_leader_epoch=3, **producer
    )
