"""Rows become the bytes that `cut_batches` makes of the same records, from whatever arrays they come."""

import tracemalloc
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.reference import rows_in
from tests.property.strategies import MAX_INT32, codecs, header_names, new_records, producers
from tidelog import columns
from tidelog.columns import decode
from tidelog.columns.dealt_encoder import DealtEncoder
from tidelog.columns.inputs import Inputs
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.errors import InvalidRequestError
from tidelog.records import Codec, Header, NewRecord, RecordBatch, cut_batches, read_batches
from tidelog.records.java import increment_sequence

records = st.lists(new_records, max_size=12)
batch_sizes = st.sampled_from([0, 1, 61, 68, 80, 100, 150, 300, 1000, 16_384, 1_000_000])

_SCHEMA = pa.schema(
    {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.timestamp("ms", "UTC"), "headers": HEADERS_TYPE}
)


class ColumnEncoder(columns.ColumnEncoder):
    """Batches as a producer sends them, unless an offset is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"base_offset": None, **options})


def encode(rows: pa.RecordBatch | pa.Table, **options: Any) -> bytes:
    """The same of the function."""
    return columns.encode(rows, **{"base_offset": None, **options})


def to_headers(headers: tuple[Header, ...]) -> list[dict[str, Any]] | None:
    return [header._asdict() for header in headers] or None


def to_arrow(rows: list[NewRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": [row.key for row in rows],
            "value": [row.value for row in rows],
            "timestamp": pa.array([row.timestamp_ms for row in rows], pa.int64()).cast(_SCHEMA.field(2).type),
            "headers": [to_headers(row.headers) for row in rows],
        },
        schema=_SCHEMA,
    )


def cut(rows: list[NewRecord], **options: Any) -> bytes:
    return b"".join(cut_batches(rows, **options))


def test_rows_get_consecutive_offsets_from_0_unless_told_otherwise() -> None:
    rows = to_arrow([NewRecord(b"k", b"v" * 40, number) for number in range(9)])
    log = columns.encode(rows, batch_size=200)
    assert [record.offset for batch in read_batches(log) for record in batch] == list(range(9))
    assert len(list(read_batches(log))) > 1


@given(records, batch_sizes, producers())
def test_encoded_rows_are_the_bytes_of_cut_batches(
    rows: list[NewRecord], batch_size: int, producer: dict[str, Any]
) -> None:
    options = {"batch_size": batch_size, **producer}
    assert encode(to_arrow(rows), **options) == cut(rows, **options)


@given(st.lists(new_records, min_size=1, max_size=30), batch_sizes, st.data())
def test_a_slice_is_encoded_as_the_rows_it_holds(rows: list[NewRecord], batch_size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows) - start))
    sliced = to_arrow(rows).slice(start, length)
    assert encode(sliced, batch_size=batch_size) == cut(rows[start : start + length], batch_size=batch_size)


@given(st.lists(new_records, min_size=1, max_size=30), batch_sizes, st.data())
def test_rows_can_be_chosen_by_their_numbers(rows: list[NewRecord], batch_size: int, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=40))
    start = data.draw(st.integers(0, 3))
    inputs = Inputs(to_arrow([NewRecord(b"before", None, 7)] * start + rows).slice(start))
    encoder = ColumnEncoder(batch_size=batch_size)
    encoded = b"".join(part.data for part in encoder.encode_some(inputs, np.array(order, np.int64)))
    assert encoded == cut([rows[number] for number in order], batch_size=batch_size)


@given(
    st.lists(st.tuples(new_records, st.integers(0, 3)), max_size=40),
    batch_sizes,
    st.lists(st.integers(0, 40), max_size=3),
)
def test_rows_that_are_dealt_out_are_those_of_each_partition_alone(
    rows: list[tuple[NewRecord, int]], batch_size: int, cuts: list[int]
) -> None:
    encoder = DealtEncoder(batch_size=batch_size)
    found = [bytearray() for _ in range(4)]
    assert [encoder.add_place() for _ in found] == [0, 1, 2, 3]
    for start, end in pairwise(sorted([0, *cuts, 40])):
        part = rows[start:end]
        numbers = np.array([number for _, number in part], np.int64)
        for number, encoded in encoder.encode(Inputs(to_arrow([row for row, _ in part])), numbers):
            found[number] += encoded.data
    for number, encoded in encoder.finish():
        found[number] += encoded.data
    for number, log in enumerate(found):
        mine = [row for row, its in rows if its == number]
        assert log == columns.encode(to_arrow(mine), base_offset=0, batch_size=batch_size)
        assert encoder.records(number) == len(mine)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("sizes", [[3 << 20, 10, 5 << 20], [40_000] * 90, [0] * 40_000])
def test_rows_that_need_more_room_than_there_is_are_handed_out_meanwhile(sizes: list[int], codec: Codec) -> None:
    rows = to_arrow([NewRecord(None, bytes(size), 5) for size in sizes])
    numbers = np.arange(len(sizes)) % 2
    for batch_size in (0, 65_536):
        encoder = DealtEncoder(batch_size=batch_size, codec=codec)
        found = [bytearray() for _ in range(2) if encoder.add_place() >= 0]
        for number, encoded in chain(encoder.encode(Inputs(rows), numbers), encoder.finish()):
            assert sum(encoded.sizes) == len(encoded.data)
            found[number] += encoded.data
        for number, log in enumerate(found):
            mine = rows.take(pa.array(np.flatnonzero(numbers == number)))
            assert log == columns.encode(mine, base_offset=0, batch_size=batch_size, codec=codec)


def test_rows_that_were_not_taken_in_to_their_end_leave_an_encoder_that_refuses_more() -> None:
    rows = Inputs(to_arrow([NewRecord(b"k", bytes(60_000), number) for number in range(100)]))
    numbers = np.zeros(100, np.int64)
    encoder = DealtEncoder()
    encoder.add_place()
    assert list(encoder.encode(rows, numbers))
    next(iter(encoder.encode(rows, numbers)))
    for work in (lambda: list(encoder.encode(rows, numbers)), lambda: list(encoder.finish()), encoder.add_place):
        with pytest.raises(InvalidRequestError, match="not taken in to their end"):
            work()


@pytest.mark.parametrize(("places", "size", "batch_size"), [(60, 3_000_000, 16_384), (6000, 30_000, 1_000_000)])
def test_the_room_of_many_partitions_is_bounded(places: int, size: int, batch_size: int) -> None:
    """Rows larger than a batch, or the open batches of many partitions, of 180 MB in all: a part of them is kept."""
    encoder = DealtEncoder(batch_size=batch_size)
    assert [encoder.add_place() for _ in range(places)] == list(range(places))
    found: list[bytes] = [b""] * places
    tracemalloc.start()
    try:
        for start in range(0, places, 10):
            numbers = np.arange(start, start + 10)
            rows = to_arrow([NewRecord(None, int(number).to_bytes(2, "big") * (size // 2), 5) for number in numbers])
            for number, encoded in encoder.encode(Inputs(rows), numbers):
                found[number] += sha256(encoded.data).digest()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 120_000_000
    for number, encoded in encoder.finish():
        found[number] += sha256(encoded.data).digest()
    for number in (0, places // 2, places - 1):
        alone = to_arrow([NewRecord(None, number.to_bytes(2, "big") * (size // 2), 5)])
        assert found[number] == sha256(columns.encode(alone, base_offset=0, batch_size=batch_size)).digest()


def test_the_room_of_one_partition_is_bounded_whatever_the_size_of_its_batches() -> None:
    """Batches may have a gigabyte and nothing fills one; what is closed before must not ask for twice the room."""
    encoder = DealtEncoder(batch_size=1 << 30)
    encoder.add_place()
    rows = Inputs(to_arrow([NewRecord(None, bytes(1_000_000), 5)] * 8))
    sizes: list[int] = []
    for _ in range(36):
        sizes += [len(encoded.data) for _, encoded in encoder.encode(rows, np.zeros(8, np.int64))]
    sizes += [len(encoded.data) for _, encoded in encoder.finish()]
    assert max(sizes) <= 64 << 20
    assert encoder.records(0) == 8 * 36


@pytest.mark.parametrize("order", [[0, 3], [-1]])
def test_numbers_of_rows_that_there_are_not_are_refused(order: list[int]) -> None:
    inputs = Inputs(to_arrow([NewRecord(b"k", b"v", 1)] * 3))
    with pytest.raises(InvalidRequestError, match="rows have the numbers 0 to 2"):
        list(ColumnEncoder().encode_some(inputs, np.array(order)))


@given(records, st.data())
def test_columns_sliced_each_for_itself_are_encoded_as_they_read(rows: list[NewRecord], data: st.DataObject) -> None:
    """Every column begins at another offset, and bitmaps at another bit."""
    columns = []
    for name in _SCHEMA.names:
        head = data.draw(st.integers(0, 11))
        padding = pa.nulls(head, _SCHEMA.field(name).type)
        columns.append(pa.concat_arrays([padding, to_arrow(rows).column(name)]).slice(head))
    assert encode(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)) == cut(rows)


TYPES = {
    "key": [pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary()), pa.binary_view()],
    "value": [pa.binary(), pa.large_binary()],
    "timestamp": [pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.int64()],
}


@given(st.data())
def test_arrays_of_other_types_are_encoded_as_what_they_hold(data: st.DataObject) -> None:
    times = st.one_of(st.just(-1), st.integers(0, 2**41))  # that nanoseconds can tell, too
    rows = [row._replace(timestamp_ms=data.draw(times)) for row in data.draw(records)]
    batch = to_arrow(rows)
    for name, types in TYPES.items():
        other = data.draw(st.sampled_from(types))
        batch = batch.set_column(batch.schema.get_field_index(name), name, batch.column(name).cast(other))
    assert encode(batch) == cut(rows)


@given(st.lists(st.tuples(st.none() | st.text(max_size=9), st.none() | st.text(max_size=9)), max_size=9), st.data())
def test_text_is_encoded_as_its_utf8(rows: list[tuple[str | None, str | None]], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([key for key, _ in rows], text), pa.array([value for _, value in rows], text)], ["key", "value"]
    )
    expected = [NewRecord(*(None if part is None else part.encode() for part in row)) for row in rows]
    assert encode(batch) == cut(expected)


@given(records, st.sets(st.sampled_from(_SCHEMA.names), min_size=1), st.booleans())
def test_a_column_that_is_missing_or_null_is_null_everywhere(
    rows: list[NewRecord], kept: set[str], as_nulls: bool
) -> None:
    batch = to_arrow(rows)
    for index, name in reversed(list(enumerate(_SCHEMA.names))):
        if name not in kept:
            batch = batch.set_column(index, name, pa.nulls(len(rows))) if as_nulls else batch.remove_column(index)
    expected = [
        NewRecord(
            row.key if "key" in kept else None,
            row.value if "value" in kept else None,
            row.timestamp_ms if "timestamp" in kept else -1,
            row.headers if "headers" in kept else (),
        )
        for row in rows
    ]
    assert encode(batch) == cut(expected)


@given(records)
def test_a_null_timestamp_is_none(rows: list[NewRecord]) -> None:
    batch = to_arrow(rows)
    nulled = pa.array([None if row.timestamp_ms == -1 else row.timestamp_ms for row in rows], pa.int64())
    assert encode(batch.set_column(2, "timestamp", nulled)) == cut(rows)


@given(st.lists(records, max_size=4), batch_sizes, st.integers(MAX_INT32 - 6, MAX_INT32))
def test_each_chunk_of_a_table_ends_a_batch_and_sequences_go_on(
    chunks: list[list[NewRecord]], batch_size: int, base_sequence: int
) -> None:
    producer = {"batch_size": batch_size, "producer_id": 5, "producer_epoch": 0}
    table = pa.Table.from_batches([to_arrow(chunk) for chunk in chunks], _SCHEMA)
    expected, sequence = b"", base_sequence
    for chunk in chunks:
        expected += cut(chunk, base_sequence=sequence, **producer)
        sequence = increment_sequence(sequence, len(chunk))
    assert encode(table, base_sequence=base_sequence, **producer) == expected
    encoder = ColumnEncoder(base_sequence=base_sequence, **producer)
    parts = [bytes(part.data) for chunk in chunks for part in encoder.encode(to_arrow(chunk))]
    assert b"".join(parts) == expected
    assert encoder.next_sequence == sequence


@given(st.lists(records, max_size=4), batch_sizes, st.sampled_from([0, 7, 2**40]), codecs)
def test_offsets_go_on_from_batch_to_batch_and_call_to_call(
    calls: list[list[NewRecord]], batch_size: int, base_offset: int, codec: Codec
) -> None:
    encoder = ColumnEncoder(batch_size=batch_size, base_offset=base_offset, codec=codec, partition_leader_epoch=3)
    log = b"".join(part.data for call in calls for part in encoder.encode(to_arrow(call)))
    batches = list(read_batches(log))
    written = [record for batch in batches for record in batch]
    assert [record.offset for record in written] == [base_offset + index for index in range(sum(map(len, calls)))]
    assert encoder.next_offset == base_offset + len(written)
    assert all(first.next_offset == second.base_offset for first, second in pairwise(batches))
    assert all(batch.partition_leader_epoch == 3 and batch.is_valid for batch in batches)


@given(records, batch_sizes, codecs, producers())
def test_compressed_batches_hold_the_same_records_in_the_same_cut(
    rows: list[NewRecord], batch_size: int, codec: Codec, producer: dict[str, Any]
) -> None:
    encoder = ColumnEncoder(batch_size=batch_size, codec=codec, **producer)
    encoded = [batch for part in encoder.encode(to_arrow(rows)) for batch in part.batches()]
    plain = [RecordBatch(batch) for batch in cut_batches(rows, batch_size=batch_size, **producer)]
    assert [list(RecordBatch(batch)) for batch in encoded] == [list(batch) for batch in plain]
    for batch, original in zip(map(RecordBatch, encoded), plain, strict=True):
        batch.ensure_valid()
        same = {"crc": 0, "batch_length": 0, "attributes": 0}
        assert batch.header._replace(**same) == original.header._replace(**same)
        assert batch.attributes == original.attributes._replace(codec_id=codec)


@given(st.lists(new_records, min_size=1, max_size=9), codecs)
def test_levels_change_the_size_not_the_records(rows: list[NewRecord], codec: Codec) -> None:
    level = {Codec.GZIP: 1, Codec.LZ4: 17, Codec.ZSTD: -5}.get(codec)
    assert rows_in(decode(encode(to_arrow(rows), codec=codec, level=level), ["value"])) == [
        (row.value,) for row in rows
    ]


@given(records, batch_sizes, codecs)
def test_decoding_gives_the_encoded_rows_back(rows: list[NewRecord], batch_size: int, codec: Codec) -> None:
    log = encode(to_arrow(rows), batch_size=batch_size, codec=codec, base_offset=0)
    expected = [(row.key, row.value, row.timestamp_ms, to_headers(row.headers)) for row in rows]
    assert rows_in(decode(log, _SCHEMA.names)) == expected


@settings(max_examples=3)
@given(st.sampled_from([1, 100_000, 20_000_000]), codecs)
def test_batches_may_be_larger_than_what_is_encoded_at_a_time(batch_size: int, codec: Codec) -> None:
    rows = [NewRecord(b"k%d" % index, bytes([index]) * 3_000_000, index, ()) for index in range(6)]
    log = encode(to_arrow(rows), batch_size=batch_size, codec=codec)
    assert [record.value for batch in read_batches(log) for record in batch] == [row.value for row in rows]
    if codec is Codec.NONE:
        assert log == cut(rows, batch_size=batch_size)


def test_sizes_and_counts_tell_the_batches_apart() -> None:
    rows = [NewRecord(b"k", b"v" * 40, index, ()) for index in range(10)]
    (part,) = ColumnEncoder(batch_size=200).encode(to_arrow(rows))
    expected = [bytes(batch) for batch in cut_batches(rows, batch_size=200)]
    assert [bytes(batch) for batch in part.batches()] == expected
    assert part.counts.tolist() == [RecordBatch(batch).count for batch in expected]


REFUSED = {
    "a time before 1970": {"timestamp": pa.array([-2], pa.int64())},
    "a fraction of a time": {"timestamp": pa.array([0.5])},
    "a time that is text": {"timestamp": pa.array(["yesterday"])},
    "a number as key": {"key": pa.array([1])},
    "a list as value": {"value": pa.array([[b"v"]])},
    "a header without a name": {"headers": pa.array([[{"key": None, "value": b"v"}]], HEADERS_TYPE)},
    "no header at all in the list": {"headers": pa.array([[None]], HEADERS_TYPE)},
    "headers that are text": {"headers": pa.array(["trace=1"])},
    "header values that are numbers": {"headers": pa.array([[{"key": "a", "value": 1}]])},
    "none of the columns": {"k": pa.array([b"k"])},
    "a name that is not UTF-8": {
        "headers": pa.array(
            [[{"key": b"\xff", "value": b""}]], pa.list_(pa.struct({"key": pa.binary(), "value": pa.binary()}))
        )
    },
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_record_can_hold_is_refused(what: str) -> None:
    with pytest.raises(InvalidRequestError):
        encode(pa.RecordBatch.from_pydict(REFUSED[what]))


@pytest.mark.parametrize(
    "options",
    [
        {"base_offset": -1},
        {"batch_size": -1},
        {"batch_size": 2**31},
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"is_transactional": True},
        {"codec": Codec.GZIP, "level": 10},
        {"codec": Codec.SNAPPY, "level": 1},
        {"partition_leader_epoch": 2**31},
        {"producer_id": 2**63, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 2**15, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2**31},
        {"base_offset": 2**63},
    ],
)
def test_options_that_no_producer_has_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        ColumnEncoder(**options)


def test_two_columns_of_one_name_are_refused() -> None:
    keys = pa.array([b"k"])
    with pytest.raises(InvalidRequestError):
        encode(pa.RecordBatch.from_arrays([keys, keys], ["key", "key"]))


def test_offsets_end_where_64_bits_end() -> None:
    rows = pa.RecordBatch.from_pydict({"key": [b"a", b"b"]})
    log = encode(rows, base_offset=2**63 - 2)
    assert [record.offset for batch in read_batches(log) for record in batch] == [2**63 - 2, 2**63 - 1]
    with pytest.raises(InvalidRequestError):
        encode(rows, base_offset=2**63 - 1)


@given(
    st.lists(st.lists(st.tuples(header_names, st.none() | st.binary(max_size=4)), max_size=3), max_size=8), st.data()
)
def test_lists_that_are_null_hide_what_lies_under_them(
    lists: list[list[tuple[str, bytes | None]]], data: st.DataObject
) -> None:
    """Arrow allows entries below a null list; they are no headers of that row, nor need they be sound."""
    hidden = data.draw(st.lists(st.booleans(), min_size=len(lists), max_size=len(lists)))
    pairs = [{"key": name, "value": value} for names in lists for name, value in names]
    ends = [0]
    for names in lists:
        ends.append(ends[-1] + len(names))
    array = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()),
        pa.array(pairs, HEADERS_TYPE.value_type),
        type=HEADERS_TYPE,
        mask=pa.array(hidden, pa.bool_()) if lists else None,
    )
    expected = [
        NewRecord(None, None, -1, () if is_hidden else tuple(Header(*pair) for pair in names))
        for names, is_hidden in zip(lists, hidden, strict=True)
    ]
    assert encode(pa.RecordBatch.from_arrays([array], ["headers"])) == cut(expected)


@pytest.mark.parametrize(
    ("unit", "ticks", "milliseconds"),
    [("s", 5, 5000), ("ms", 5, 5), ("us", 5999, 5), ("ns", 5_999_999, 5), ("us", -1000, -1), ("ns", None, -1)],
)
def test_times_of_every_unit_become_milliseconds(unit: str, ticks: int | None, milliseconds: int) -> None:
    rows = pa.RecordBatch.from_pydict({"timestamp": pa.array([ticks], pa.timestamp(unit))})
    assert [record.timestamp_ms for batch in read_batches(encode(rows)) for record in batch] == [milliseconds]


@pytest.mark.parametrize(("unit", "ticks"), [("us", -1500), ("s", 2**62), ("ms", -2)])
def test_times_that_cannot_be_stored_are_refused(unit: str, ticks: int) -> None:
    with pytest.raises(InvalidRequestError, match="timestamp"):
        encode(pa.RecordBatch.from_pydict({"timestamp": pa.array([ticks], pa.timestamp(unit))}))


@pytest.mark.parametrize("rows", [[{"key": b"k"}], {"key": [b"k"]}, b"k", None])
def test_rows_are_arrow(rows: Any) -> None:
    with pytest.raises(InvalidRequestError, match="pyarrow Table or RecordBatch"):
        encode(rows)


def test_a_misspelt_column_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'Value'"):
        encode(pa.table({"key": [b"k"], "Value": [b"v"]}))


def test_a_codec_may_be_given_by_name() -> None:
    rows = pa.table({"key": [b"k"]})
    assert encode(rows, codec="zstd") == encode(rows, codec=Codec.ZSTD)
    with pytest.raises(InvalidRequestError, match="zsdt"):
        encode(rows, codec="zsdt")


@pytest.mark.parametrize("data_type", [pa.bool_(), pa.duration("s"), pa.time32("s"), pa.float64(), pa.string()])
def test_only_timestamps_and_milliseconds_are_times(data_type: pa.DataType) -> None:
    with pytest.raises(InvalidRequestError, match="timestamps of type"):
        encode(pa.table({"timestamp": pa.array([None], data_type)}))


def test_two_encodings_may_be_under_way_at_once() -> None:
    first = pa.table({"value": pa.array([b"a" * 1000] * 20_000)})
    second = pa.table({"value": pa.array([b"b" * 10] * 3)})
    encoder = columns.ColumnEncoder()
    stretches = encoder.encode(first)
    parts = [bytes(next(stretches).data)]
    others = b"".join(part.data for part in encoder.encode(second))
    parts += [bytes(part.data) for part in stretches]
    assert len(parts) > 1
    values = {record.value for part in parts for batch in read_batches(part) for record in batch}
    assert values == {b"a" * 1000}
    offsets = [record.offset for data in (*parts, others) for batch in read_batches(data) for record in batch]
    assert sorted(offsets) == list(range(20_003))


@pytest.mark.parametrize("names", [("key", "val"), ("k", "value"), ("key",)])
def test_headers_have_a_key_and_a_value(names: tuple[str, ...]) -> None:
    element = pa.struct([(name, pa.string()) for name in names])
    with pytest.raises(InvalidRequestError, match="key and value"):
        encode(pa.table({"headers": pa.array([[dict.fromkeys(names, "x")]], pa.list_(element))}))
