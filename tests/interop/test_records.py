"""Both ways with independent judges: they read what we write, and we read what they write, records and columns."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.errors import UnsupportedCodecError
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from tests.interop.judges import JUDGES, AioKafka, Judge, KafkaPython, Seen, SeenBatch
from tidelog.columns import ColumnEncoder, decode, encode
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.records import (
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    NewRecord,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
    build_end_txn_marker,
    build_message_set,
    cut_batches,
    empty_batch,
    read_batches,
)

T0 = 1_700_000_000_000
PADDING = b"the tide comes in, the tide goes out; " * 4  # so that compression pays and every judge uses it


def headers(*pairs: tuple[str, bytes | None]) -> tuple[Header, ...]:
    return tuple(Header(*pair) for pair in pairs)


RECORDS: dict[str, list[NewRecord]] = {
    "one": [NewRecord(b"key", PADDING, T0)],
    "nulls": [
        NewRecord(b"k", PADDING, T0),
        NewRecord(None, PADDING, T0 + 1),
        NewRecord(b"k", None, T0 + 2),
        NewRecord(None, None, T0 + 3),
        NewRecord(b"", b"", T0 + 4),
    ],
    "headers": [
        NewRecord(
            b"k", PADDING, T0, headers(("h", b"1"), ("h", b"2"), ("null", None), ("", b""), ("ключ 鍵 🌊", b"\0"))
        ),
        NewRecord(None, None, T0, headers(("only", PADDING))),
        NewRecord(b"none", PADDING, T0),
    ],
    "times": [NewRecord(None, PADDING, time) for time in (T0, T0 - 65, T0 + 100_000_000_000, 0, 1, T0)],
    "large": [NewRecord(b"k" * 5_000, PADDING * 700, T0), NewRecord(None, bytes(200_000), T0 + 1)],
    "many": [NewRecord(b"key %d" % i, b"value %d" % i * (i % 7), T0 + i * 37) for i in range(2_000)],
}
WITHOUT_HEADERS = {name: records for name, records in RECORDS.items() if name != "headers"}

PRODUCERS: dict[str, dict[str, Any]] = {
    "nobody": {},
    "idempotent": {"producer_id": 4_000_000_000, "producer_epoch": 7, "base_sequence": 12},
    "transactional": {"producer_id": 1, "producer_epoch": 32767, "base_sequence": 2**31 - 2, "is_transactional": True},
}

every_judge = pytest.mark.parametrize("judge", JUDGES, ids=repr)
every_codec = pytest.mark.parametrize("codec", list(Codec), ids=[codec.label for codec in Codec])
every_shape = pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS)
every_producer = pytest.mark.parametrize("producer", PRODUCERS.values(), ids=PRODUCERS)
every_legacy = pytest.mark.parametrize(
    ("judge", "magic", "codec"),
    [
        pytest.param(judge, magic, codec, id=f"{judge} v{magic} {codec.label}")
        for judge in JUDGES
        for magic in (0, 1)
        for codec in Codec
        if judge.can(magic, codec)
    ],
)


def wanted(records: Iterable[NewRecord], base_offset: int = 0, magic: int = 2) -> list[Seen]:
    return [
        Seen(
            base_offset + index,
            record.timestamp_ms if magic else -1,
            record.key,
            record.value,
            tuple(tuple(header) for header in record.headers),
            0 if magic else -1,
        )
        for index, record in enumerate(records)
    ]


def by_records(data: bytes) -> list[Seen]:
    """The records as `tidelog.records` reads them, every checksum verified."""
    seen = []
    for batch in read_batches(data):
        batch.ensure_valid()
        for r in batch:
            pairs = tuple(tuple(header) for header in r.headers)
            seen.append(Seen(r.offset, r.timestamp_ms, r.key, r.value, pairs, int(r.timestamp_type)))
    return seen


def by_columns(data: bytes) -> list[Seen]:
    """The records as `tidelog.columns` reads them."""
    seen = []
    for rows in decode(data, ["offset", "timestamp", "key", "value", "headers", "timestampType"]):
        columns = [
            (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist() for column in rows
        ]
        for offset, time, key, value, pairs, kind in zip(*columns, strict=True):
            seen.append(Seen(offset, time, key, value, tuple((p["key"], p["value"]) for p in pairs or ()), kind))
    return seen


def table(records: list[NewRecord]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "timestamp": pa.array([r.timestamp_ms for r in records], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[h._asdict() for h in r.headers] or None for r in records], HEADERS_TYPE),
        }
    )


def judged(judge: Judge, data: bytes) -> list[SeenBatch]:
    batches = judge.read(bytes(data))
    assert all(batch.is_valid for batch in batches), "the judge does not accept our checksum"
    return batches


def records_of(batches: list[SeenBatch]) -> list[Seen]:
    return [record for batch in batches for record in batch.records]


def fields_of(batch: RecordBatch) -> dict[str, int]:
    """The header as the judges name its fields."""
    return {
        "magic": batch.magic,
        "crc": batch.crc,
        "attributes": batch.header.attributes,
        "base_offset": batch.base_offset,
        "last_offset_delta": batch.header.last_offset_delta,
        "first_timestamp": batch.base_timestamp_ms,
        "max_timestamp": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control_batch": batch.is_control,
    }


# -- the judges ----------------------------------------------------------------------------------------------------


@every_judge
def test_the_judge_has_a_library_for_every_codec(judge: Judge) -> None:
    assert judge.codecs == dict.fromkeys([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], True)


def test_the_judges_know_every_pair_of_format_and_codec_but_one() -> None:
    unknown = {
        (repr(j), m, c) for j in JUDGES for m in (0, 1) for c in Codec if c is not Codec.ZSTD and not j.can(m, c)
    }
    assert unknown == {("aiokafka", 0, Codec.LZ4)}
    with pytest.raises(UnsupportedCodecError):
        AioKafka().read(bytes(build_message_set(0, RECORDS["one"], codec=Codec.LZ4)))


# -- they read what we write ---------------------------------------------------------------------------------------


@every_judge
@every_codec
@every_shape
@every_producer
def test_our_batches_are_read_by_others(
    judge: Judge, codec: Codec, records: list[NewRecord], producer: dict[str, Any]
) -> None:
    data = build_batch(records, base_offset=1234, codec=codec, partition_leader_epoch=3, **producer)
    [batch] = judged(judge, data)
    assert batch.records == wanted(records, 1234)
    assert batch.fields == fields_of(RecordBatch(data))


@every_judge
@every_codec
@every_producer
def test_our_many_batches_are_read_by_others(judge: Judge, codec: Codec, producer: dict[str, Any]) -> None:
    records = [record for group in RECORDS.values() for record in group]
    log, offset = bytearray(), 0
    for data in cut_batches(records, batch_size=4_096, codec=codec, **producer):
        batch = RecordBatch(data)
        batch.set_last_offset(offset + batch.header.last_offset_delta)
        offset = batch.next_offset
        log += data
    batches = judged(judge, log)
    assert len(batches) > 20
    assert records_of(batches) == wanted(records)
    assert [batch.fields for batch in batches] == [fields_of(batch) for batch in read_batches(log)]


@every_judge
@every_codec
@every_producer
def test_our_encoded_columns_are_read_by_others(judge: Judge, codec: Codec, producer: dict[str, Any]) -> None:
    records = [record for group in RECORDS.values() for record in group]
    data = encode(table(records), codec=codec, base_offset=77, batch_size=4_096, **producer)
    batches = judged(judge, data)
    assert len(batches) > 20
    assert records_of(batches) == wanted(records, 77)
    assert [batch.fields for batch in batches] == [fields_of(batch) for batch in read_batches(data)]


@every_judge
@every_codec
def test_our_encoded_stretches_are_read_one_by_one(judge: Judge, codec: Codec) -> None:
    """As a producer sends them: every batch begins at offset 0."""
    records, got = RECORDS["many"], []
    for stretch in ColumnEncoder(codec=codec, batch_size=2_000, base_offset=None).encode(table(records)):
        for data in stretch.batches():
            [batch] = judged(judge, bytes(data))
            assert [record.offset for record in batch.records] == list(range(len(batch.records)))
            got += [record._replace(offset=len(got) + i) for i, record in enumerate(batch.records)]
    assert got == wanted(records)


@every_legacy
@pytest.mark.parametrize("records", WITHOUT_HEADERS.values(), ids=WITHOUT_HEADERS)
def test_our_message_sets_are_read_by_others(judge: Judge, magic: int, codec: Codec, records: list[NewRecord]) -> None:
    data = build_message_set(magic, records, codec=codec, base_offset=1234)
    batches = judged(judge, data)
    assert records_of(batches) == wanted(records, 1234, magic)
    assert len(batches) == (len(records) if codec is Codec.NONE else 1)


@every_legacy
def test_our_appended_message_sets_are_read_by_others(judge: Judge, magic: int, codec: Codec) -> None:
    records = RECORDS["times"]
    data = build_message_set(
        magic, records, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=T0
    )
    stamped = [record._replace(timestamp_ms=T0) for record in records]
    kind = 1 if magic else -1
    assert records_of(judged(judge, data)) == [r._replace(timestamp_type=kind) for r in wanted(stamped, 0, magic)]


@every_judge
@every_codec
def test_our_append_times_and_horizons_are_read_by_others(judge: Judge, codec: Codec) -> None:
    records = RECORDS["times"]
    appended = build_batch(
        records, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=T0 + 9
    )
    stamped = [record._replace(timestamp_ms=T0 + 9) for record in records]
    assert records_of(judged(judge, appended)) == [r._replace(timestamp_type=1) for r in wanted(stamped)]
    horizon = build_batch(records, codec=codec, delete_horizon_ms=T0 + 86_400_000)
    assert records_of(judged(judge, horizon)) == wanted(records)


@every_judge
@every_codec
def test_our_compacted_batches_are_read_by_others(judge: Judge, codec: Codec) -> None:
    first, second = RECORDS["one"][0], RECORDS["nulls"][1]
    builder = BatchBuilder(base_offset=100, codec=codec).append(first, offset=103).append(second, offset=107)
    empty = empty_batch(base_offset=110, last_offset=119, max_timestamp_ms=T0)
    compacted, nothing = judged(judge, builder.build(last_offset=109) + empty)
    assert [record.offset for record in compacted.records] == [103, 107]
    assert (compacted.fields["base_offset"], compacted.fields["last_offset_delta"]) == (100, 9)
    assert (nothing.records, nothing.fields["last_offset_delta"]) == ([], 9)


@every_judge
@pytest.mark.parametrize(
    ("control_type", "marker"), [(ControlType.ABORT, ABORT_MARKER), (ControlType.COMMIT, COMMIT_MARKER)]
)
def test_our_markers_are_read_by_others(judge: Judge, control_type: ControlType, marker: ControlRecord) -> None:
    data = build_end_txn_marker(
        EndTxnMarker(control_type, 5), producer_id=9, producer_epoch=1, timestamp_ms=T0, offset=55
    )
    [batch] = judged(judge, data)
    [record] = batch.records
    assert batch.fields == fields_of(RecordBatch(data))
    assert (batch.fields["is_control_batch"], batch.fields["is_transactional"]) == (True, True)
    assert (record.offset, record.timestamp_ms) == (55, T0)
    assert ControlRecord.parse(record.key) == marker
    [theirs] = next(KafkaPython()._batches(bytes(data)))
    assert (theirs.abort, theirs.commit) == (control_type is ControlType.ABORT, control_type is ControlType.COMMIT)


@every_judge
def test_our_batches_of_the_quorum_are_read_by_others(judge: Judge) -> None:
    data = build_control_batch(
        [(ControlType.SNAPSHOT_HEADER, b"\0\0"), (ControlType.KRAFT_VERSION, b"")],
        timestamp_ms=T0,
        partition_leader_epoch=3,
    )
    [batch] = judged(judge, data)
    assert [ControlRecord.parse(record.key).type_ for record in batch.records] == [3, 5]


@every_judge
@every_codec
def test_others_see_a_flipped_bit_where_we_see_it(judge: Judge, codec: Codec) -> None:
    data = bytes(build_batch(RECORDS["nulls"], codec=codec))
    for position in [*range(17), 17, 21, 22, 40, 60, 61, len(data) - 1]:
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        if 8 <= position < 12 or position == 16:
            continue  # the length, where another batch would begin; the magic, which tells the reader
        [batch] = judge._batches(bytes(damaged))
        assert batch.validate_crc() == RecordBatch(damaged).is_valid == (position < 17)


# -- we read what they write ---------------------------------------------------------------------------------------


def read_both_ways(data: bytes) -> Iterator[list[Seen]]:
    yield by_records(data)
    yield by_columns(data)


@every_judge
@every_codec
@every_shape
@every_producer
def test_batches_of_others_are_read_by_us(
    judge: Judge, codec: Codec, records: list[NewRecord], producer: dict[str, Any]
) -> None:
    data = judge.write(2, codec, records, **producer)
    [batch] = read_batches(data)
    assert isinstance(batch, RecordBatch)
    assert batch.codec is codec, "the judge found that compression does not pay"
    assert {name: getattr(batch, name) for name in producer} == producer
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in records)
    for seen in read_both_ways(data):
        assert seen == wanted(records)


@every_judge
@every_shape
@every_producer
def test_others_write_our_bytes(judge: Judge, records: list[NewRecord], producer: dict[str, Any]) -> None:
    """Uncompressed, three writers that know nothing of each other agree on every byte but the leader epoch."""
    data = bytearray(judge.write(2, Codec.NONE, records, **producer))
    RecordBatch(data).set_partition_leader_epoch(-1)  # kafka-python writes 0
    assert data == build_batch(records, **producer)


@every_judge
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("records", WITHOUT_HEADERS.values(), ids=WITHOUT_HEADERS)
def test_others_write_our_messages(judge: Judge, magic: int, records: list[NewRecord]) -> None:
    assert judge.write(magic, Codec.NONE, records) == build_message_set(magic, records)


@every_judge
def test_many_batches_of_others_are_read_by_us(judge: Judge) -> None:
    log, offset, expected = bytearray(), 0, []
    for records in RECORDS.values():
        for codec in Codec:
            data = bytearray(judge.write(2, codec, records))
            RecordBatch(data).set_last_offset(offset + len(records) - 1)
            expected += wanted(records, offset)
            offset += len(records)
            log += data
    for seen in read_both_ways(bytes(log)):
        assert seen == expected


@every_legacy
@pytest.mark.parametrize("records", WITHOUT_HEADERS.values(), ids=WITHOUT_HEADERS)
def test_message_sets_of_others_are_read_by_us(
    judge: Judge, magic: int, codec: Codec, records: list[NewRecord]
) -> None:
    data = judge.write(magic, codec, records)
    assert {batch.codec for batch in read_batches(data)} == {codec}
    for seen in read_both_ways(data):
        assert seen == wanted(records, 0, magic)
