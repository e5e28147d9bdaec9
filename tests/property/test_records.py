"""The readable formats against any records, and against any bytes: what is written is read, and nothing else escapes.

Whatever the bytes are, reading them ends in records or in an error of ours.
"""

import contextlib
import random
import struct
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import (
    codecs,
    epochs,
    legacy_codecs,
    message_sets,
    mixed_logs,
    new_records,
    offsets,
    plain_records,
    producers,
    record_batches,
)
from tidelog.errors import TidelogError
from tidelog.records import (
    Batch,
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    Record,
    RecordBatch,
    TimestampType,
    batch_of,
    build_batch,
    build_message_set,
    committed_batches,
    compress,
    cut_batches,
    empty_batch,
    end_txn_marker_of,
    first_batch_size,
    plain_batch_size,
    read_batches,
    read_memory_batches,
    record_size,
)
from tidelog.records.java import increment_sequence
from tidelog.records.legacy import message_size
from tidelog.records.record import RecordBases, read_record, record_size_upper_bound, write_record

record_lists = st.lists(new_records, max_size=8)


def as_new(read: Iterable[Record]) -> list[NewRecord]:
    return [NewRecord(record.key, record.value, record.timestamp_ms, record.headers) for record in read]


# -- what is written is read ---------------------------------------------------------------------------------------


@given(record_lists, codecs, offsets, epochs, producers())
def test_batches_round_trip(
    written: list[NewRecord], codec: Codec, base_offset: int, epoch: int, producer: dict[str, object]
) -> None:
    data = build_batch(written, base_offset=base_offset, codec=codec, partition_leader_epoch=epoch, **producer)
    batches = list(read_batches(data))
    assert len(batches) == bool(written)
    for batch in batches:
        batch.ensure_valid()
        assert as_new(batch) == written
        assert [record.offset for record in batch] == list(range(base_offset, base_offset + len(written)))
        assert (batch.count, batch.last_offset) == (len(written), base_offset + len(written) - 1)
        assert (batch.codec, batch.partition_leader_epoch) == (codec, epoch)
        assert {name: getattr(batch, name) for name in producer} == producer
        assert batch.max_timestamp_ms == max(record.timestamp_ms for record in written)


@given(st.lists(st.tuples(new_records, st.integers(0, 1000)), min_size=1), codecs, offsets, st.integers(0, 1000))
def test_gaps_between_offsets_round_trip(
    written: list[tuple[NewRecord, int]], codec: Codec, base_offset: int, gone: int
) -> None:
    builder = BatchBuilder(base_offset=base_offset, codec=codec, producer_id=1, producer_epoch=0, base_sequence=5)
    given_offsets = []
    for record, gap in written:
        given_offsets.append(builder.next_offset + gap)
        builder.append(record, given_offsets[-1])
    batch = RecordBatch(builder.build(last_offset=given_offsets[-1] + gone))
    assert as_new(batch) == [record for record, _ in written]
    assert [record.offset for record in batch] == given_offsets
    assert (batch.base_offset, batch.last_offset) == (base_offset, given_offsets[-1] + gone)
    assert [record.sequence for record in batch] == [
        increment_sequence(5, offset - base_offset) for offset in given_offsets
    ]


@given(st.lists(new_records, min_size=1, max_size=8), codecs, st.integers(0, 2**62))
def test_times_of_a_delete_horizon_and_of_an_append_round_trip(
    written: list[NewRecord], codec: Codec, time: int
) -> None:
    horizon = RecordBatch(build_batch(written, codec=codec, delete_horizon_ms=time))
    assert (as_new(horizon), horizon.delete_horizon_ms, horizon.is_valid) == (written, time, True)
    appended = RecordBatch(
        build_batch(written, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=time)
    )
    assert as_new(appended) == [record._replace(timestamp_ms=time) for record in written]


@given(st.sampled_from([0, 1]), st.lists(plain_records, max_size=8), legacy_codecs, offsets)
def test_message_sets_round_trip(magic: int, written: list[NewRecord], codec: Codec, base_offset: int) -> None:
    data = build_message_set(magic, written, codec=codec, base_offset=base_offset)
    batches = list(read_batches(data))
    for batch in batches:
        batch.ensure_valid()
        assert (batch.magic, batch.codec) == (magic, codec)
    read = [record for batch in batches for record in batch]
    assert as_new(read) == (written if magic else [record._replace(timestamp_ms=-1) for record in written])
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(written)))
    assert len(batches) == (len(written) if codec is Codec.NONE else bool(written))


@given(mixed_logs)
def test_a_log_is_cut_into_its_batches_without_a_byte_lost(log: bytes) -> None:
    for read in (read_batches, read_memory_batches):
        batches = list(read(log))
        assert b"".join(batch.buffer for batch in batches) == log
        assert [batch_of(bytes(batch.buffer)).crc for batch in batches] == [batch.crc for batch in batches]


@given(mixed_logs, st.data())
def test_a_log_cut_off_anywhere_gives_the_batches_that_are_whole(log: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(log)))
    whole, position = [], 0
    for batch in read_batches(log):
        position += batch.size_in_bytes
        if position <= size:
            whole.append(bytes(batch.buffer))
    assert [bytes(batch.buffer) for batch in read_batches(log[:size])] == whole
    assert [bytes(batch.buffer) for batch in read_batches(log, 0, size)] == whole


# -- sizes told are sizes written ----------------------------------------------------------------------------------


@given(new_records, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_the_size_of_a_record_is_known_beforehand(record: NewRecord, offset_delta: int, timestamp_delta: int) -> None:
    out = bytearray()
    write_record(out, offset_delta, timestamp_delta, record)
    assert len(out) == record_size(offset_delta, timestamp_delta, record) <= record_size_upper_bound(record)
    read, position = read_record(out, 0, len(out), RecordBases(0, 0, -1, None))
    assert position == len(out)
    assert (read.offset, read.timestamp_ms) == (offset_delta, timestamp_delta)


@given(record_lists)
def test_the_size_of_a_batch_is_known_beforehand(written: list[NewRecord]) -> None:
    builder = BatchBuilder()
    for record in written:
        told = builder.size_with(record)
        assert builder.append(record).size_in_bytes == told
    assert len(builder.build()) == plain_batch_size(written) == (builder.size_in_bytes if written else 0)


@given(st.sampled_from([0, 1]), plain_records)
def test_the_size_of_a_message_is_known_beforehand(magic: int, record: NewRecord) -> None:
    assert len(build_message_set(magic, [record])) == message_size(magic, record.key, record.value)


# -- the batches of a producer -------------------------------------------------------------------------------------


@given(st.lists(new_records, max_size=30), st.integers(0, 2000), codecs, producers())
def test_cutting_loses_nothing_and_keeps_to_the_size(
    written: list[NewRecord], size: int, codec: Codec, producer: dict[str, object]
) -> None:
    batches = [RecordBatch(batch) for batch in cut_batches(written, batch_size=size, codec=codec, **producer)]
    assert [record for batch in batches for record in as_new(batch)] == written
    sequence = producer.get("base_sequence", -1)
    for batch in batches:
        batch.ensure_valid()
        inside = as_new(batch)
        limit = max(size, 61 + record_size_upper_bound(inside[0]))
        assert plain_batch_size(inside) <= limit
        assert (batch.base_sequence, batch.base_offset) == (sequence, 0)
        if producer:
            sequence = increment_sequence(sequence, len(inside))
    for batch, following in zip(batches, batches[1:], strict=False):
        inside = as_new(batch)
        limit = max(size, 61 + record_size_upper_bound(inside[0]))
        assert plain_batch_size([*inside, next(iter(as_new(following)))]) > limit  # no batch ends before it must


# -- bytes that mean harm ------------------------------------------------------------------------------------------


refused = contextlib.suppress(TidelogError)


def read_everything(data: bytes) -> None:
    """Ask for all there is; errors of ours are fine, others are not."""
    for read in (read_batches, read_memory_batches):
        batches: list[Batch] = []
        with refused:
            batches.extend(read(data))  # keeps what came before an error
        for batch in batches:
            read_batch(batch)
        with refused:
            list(committed_batches(batches, []))
    for look in (first_batch_size, batch_of):
        with refused:
            look(data)


def read_batch(batch: Batch) -> None:
    repr(batch)
    asked = [batch.ensure_valid, lambda: batch.codec, lambda: list(batch.records(1 << 20)), lambda: batch.base_offset]
    if isinstance(batch, RecordBatch):
        asked.append(lambda: end_txn_marker_of(batch))
        asked.append(lambda: [EndTxnMarker.parse(record) for record in batch.records(1 << 20)])
    else:
        asked.append(lambda: [inner.is_valid for inner in batch.inner_messages(1 << 20)])
    for name in ("count", "next_offset", "last_sequence", "timestamp_type", "max_timestamp_ms", "delete_horizon_ms"):
        getattr(batch, name)
    for ask in asked:
        with refused:
            ask()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_everything(data)


@given(st.binary(max_size=200), st.sampled_from([-1, 0, 1, 2, 3]), st.integers(0, 255), st.integers(-1, 200))
def test_any_bytes_behind_a_sound_prefix_are_read_or_refused(
    data: bytes, magic: int, attributes: int, length: int
) -> None:
    """The offset, a length that fits or nearly fits, the magic: past them the bytes are free."""
    body = struct.pack(">ib", 0, magic) + bytes([attributes]) + data
    read_everything(struct.pack(">qi", 5, len(body)) + body)
    read_everything(struct.pack(">qi", 5, length) + body)


@given(st.binary(max_size=200), codecs, st.integers(-2, 20), st.integers(0, 0x7F))
def test_any_body_under_a_right_checksum_is_read_or_refused(
    body: bytes, codec: Codec, count: int, attributes: int
) -> None:
    header = RecordBatch(empty_batch(base_offset=0, last_offset=max(count, 0), max_timestamp_ms=0)).header
    header = header._replace(records_count=count, last_offset_delta=count, attributes=attributes & ~0x07 | codec)
    for content in (body, compress(codec, body)):
        read_everything(bytes(header.seal(content)))


@given(st.one_of(record_batches, message_sets()), st.randoms(use_true_random=False))
def test_damaged_batches_are_read_or_refused(data: bytes, rng: random.Random) -> None:
    damaged = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(damaged))
        match rng.randrange(4):
            case 0:
                damaged[position] ^= 1 << rng.randrange(8)
            case 1:
                damaged[position] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del damaged[position : position + rng.randrange(1, 5)]
            case 3:
                damaged[position:position] = rng.randbytes(rng.randrange(1, 5))
        damaged = damaged or bytearray(1)
    read_everything(bytes(damaged))
    if len(damaged) >= 12:  # the same with a length that fits, so that the damage inside is reached
        struct.pack_into(">i", damaged, 8, len(damaged) - 12)
        read_everything(bytes(damaged))


@given(st.one_of(st.none(), st.binary(max_size=12)), st.one_of(st.none(), st.binary(max_size=12)))
def test_any_control_record_is_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    for parse in (lambda: ControlType.parse(key), lambda: EndTxnMarker.parse(Record(0, 0, key, value))):
        with refused:
            parse()
