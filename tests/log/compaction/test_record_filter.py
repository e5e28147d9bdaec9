"""What compaction leaves of a batch: what Kafka's own tests say of filtering, in words and by kernels alike.

    rest = filtered(batch, keys={b"a": 7})      the map says: the last `a` is at offset 7

Every batch here goes both ways where both can take it, and must come out the same.
"""

from typing import Any

import numpy as np
import pytest

from tests.behaviours import behaviour
from tidelog.errors import CorruptionError, InvalidRecordError, InvalidTimestampError
from tidelog.kernels.compaction_runs import Room
from tidelog.kernels.headers import scan_headers
from tidelog.kernels.indexing import IndexState, index_batches
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.compaction.offset_map import DictOffsetMap, TableOffsetMap
from tidelog.log.compaction.record_filter import Fate, FilterCounts, FilterRules, filter_batch
from tidelog.log.compaction.window_filter import filter_window
from tidelog.records import (
    BatchAttributes,
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    NewRecord,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_end_txn_marker,
    build_message_set,
    empty_batch,
    read_batches,
)

NOW, RETENTION = 1_700_000_000_000, 86_400_000
HORIZON = NOW + RETENTION
ALL = 2**62
all_codecs = pytest.mark.parametrize("codec", list(Codec))
PRODUCER: dict[str, Any] = {"producer_id": 1234, "producer_epoch": 15, "base_sequence": 100}


class Filtered:
    """What is left of some bytes, and what was counted."""

    def __init__(self, data: bytes, counts: FilterCounts) -> None:
        self.data = data
        self.counts = counts
        self.batches = [batch for batch in read_batches(data) if isinstance(batch, RecordBatch)]
        assert all(batch.is_valid for batch in self.batches)
        assert counts.bytes_kept == len(data)
        assert counts.batches_kept == len(self.batches)

    @property
    def batch(self) -> RecordBatch:
        """The only batch."""
        (batch,) = self.batches
        return batch

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch]

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.records]


def filtered(
    data: bytes | bytearray,
    *,
    keys: dict[bytes, int] | None = None,
    fate: Fate = Fate.LOOK,
    ends_empty_txn: bool = False,
    latest: int = ALL,
    now_ms: int = NOW,
    retention_ms: int = RETENTION,
    keeps_legacy_deletes: bool = False,
) -> Filtered:
    """Filter batches under one fate."""
    rules = FilterRules(latest, now_ms, retention_ms, keeps_legacy_deletes)
    offset_map, counts = DictOffsetMap(1000), FilterCounts()
    for key, offset in (keys or {}).items():
        offset_map.put(key, offset)
    batches = list(read_batches(data))
    rests = [filter_batch(batch, fate, ends_empty_txn, offset_map, rules, counts) for batch in batches]
    result = Filtered(b"".join(rest for rest in rests if rest is not None), counts)
    assert counts.bytes_read == len(data)
    if all(isinstance(batch, RecordBatch) for batch in batches):
        assert _by_kernels(data, keys or {}, fate, ends_empty_txn, rules) == (result.data, counts)
    return result


def _by_kernels(
    data: bytes | bytearray, keys: dict[bytes, int], fate: Fate, ends_empty_txn: bool, rules: FilterRules
) -> tuple[bytes, FilterCounts]:
    window = BatchWindow(memoryview(data), 0, scan_headers(data))
    offset_map, counts = TableOffsetMap(1000), FilterCounts()
    for key, offset in keys.items():
        offset_map.put(key, offset)
    fates, marks = np.full(len(window), fate, np.uint8), np.full(len(window), ends_empty_txn, np.uint8)
    return bytes(filter_window(window, fates, marks, offset_map, rules, counts)), counts


def record(key: bytes | None, value: bytes | None = b"v", timestamp_ms: int = 5) -> NewRecord:
    return NewRecord(key, value, timestamp_ms)


def keyless_and_keyed(**options: Any) -> bytearray:
    """Seven records in four batches, four of them with a key."""
    return (
        build_batch([record(None, b"a", 10)], base_offset=0, **options)
        + build_batch([record(b"1", b"b", 11), record(None, b"c", 12)], base_offset=1, **options)
        + build_batch(
            [record(None, b"d", 13), record(b"4", b"e", 20), record(b"5", b"f", 15)], base_offset=3, **options
        )
        + build_batch([record(b"6", b"g", 16)], base_offset=6, **options)
    )


# -- which records stay ------------------------------------------------------------------------------------------------


def test_a_record_goes_if_a_later_one_has_its_key() -> None:
    rest = filtered(build_batch([record(b"a"), record(b"b"), record(b"a")]), keys={b"a": 2, b"b": 1})
    assert rest.offsets == [1, 2]
    assert (rest.counts.records_read, rest.counts.records_kept, rest.counts.superseded) == (3, 2, 1)


def test_a_record_whose_key_is_not_in_the_map_stays() -> None:
    assert filtered(build_batch([record(b"a")]), keys={b"b": 10}).offsets == [0]


def test_records_behind_the_map_stay_whatever_they_are() -> None:
    batch = build_batch([record(None), record(b"a"), record(None), record(b"a", None)], base_offset=5)
    rest = filtered(batch, keys={b"a": 9}, latest=6)
    assert rest.offsets == [7, 8]
    assert (rest.counts.invalid, rest.counts.superseded) == (1, 1)


def test_a_record_without_a_key_goes_and_is_counted() -> None:
    rest = filtered(build_batch([record(None), record(b"")]))
    assert (rest.offsets, rest.counts.invalid) == ([1], 1)


@all_codecs
def test_a_batch_that_loses_nothing_is_copied_as_it_is(codec: Codec) -> None:
    batch = bytearray(build_batch([record(b"a", b"v" * 500)], codec=codec))
    assert filtered(batch).data == batch


# -- batches -----------------------------------------------------------------------------------------------------------


@behaviour("REC-052")
@all_codecs
def test_the_leader_epoch_stays(codec: Codec) -> None:
    batch = build_batch([record(None), record(b"a"), record(b"b")], partition_leader_epoch=67, codec=codec)
    rest = filtered(batch).batch
    assert (rest.partition_leader_epoch, rest.codec) == (67, codec)
    assert [found.key for found in rest] == [b"a", b"b"]


@behaviour("REC-052")
@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_the_old_formats_have_no_leader_epoch(magic: int) -> None:
    rest = filtered(build_message_set(magic, [record(None), record(b"a"), record(b"b")]))
    assert [batch.partition_leader_epoch for batch in rest.batches] == [-1, -1]


@behaviour("REC-053", "REC-054")
@pytest.mark.parametrize("fate", [Fate.LOOK_RETAIN, Fate.EMPTY_RETAIN])
@all_codecs
def test_a_batch_that_loses_everything_but_must_stay_is_its_header(fate: Fate, codec: Codec) -> None:
    records = [record(None, timestamp_ms=10), record(None, timestamp_ms=20), record(None, timestamp_ms=15)]
    options = {**PRODUCER, "is_transactional": True, "partition_leader_epoch": 5}
    rest = filtered(build_batch(records, base_offset=3, codec=codec, **options), fate=fate)
    assert len(rest.data) == 61
    batch = rest.batch
    assert (batch.base_offset, batch.last_offset, batch.count) == (3, 5, 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (1234, 15, 100, 102)
    assert (batch.is_transactional, batch.is_control, batch.codec) == (True, False, Codec.NONE)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.partition_leader_epoch) == (-1, 20, 5)
    assert rest.counts.records_kept == 0
    assert rest.counts.records_read == 3
    assert time_and_offset(rest.data) == (20, 5)


def time_and_offset(data: bytes) -> tuple[int, int]:
    """The largest time of some batches, and the last offset of the batch that has it: what the time index gets."""
    scan = scan_headers(data)
    entries = index_batches(scan, start=0, base_offset=0, interval=0, state=IndexState(0, -1, -1, -1, -1, 0))
    assert entries is not None
    return entries.state.max_timestamp_ms, entries.state.offset_of_max


def an_empty_batch() -> bytearray:
    attributes = BatchAttributes(is_transactional=True, is_control=True)
    return empty_batch(base_offset=3, last_offset=5, max_timestamp_ms=20, attributes=attributes, **PRODUCER)


@behaviour("REC-055")
@pytest.mark.parametrize("fate", [Fate.LOOK_RETAIN, Fate.EMPTY_RETAIN])
def test_an_empty_batch_that_must_stay_stays_as_it_is(fate: Fate) -> None:
    rest = filtered(an_empty_batch(), fate=fate)
    assert rest.data == an_empty_batch()
    assert rest.counts == FilterCounts(batches_read=1, batches_kept=1, bytes_read=61, bytes_kept=61)


@behaviour("REC-056")
@pytest.mark.parametrize("fate", [Fate.LOOK, Fate.DELETE])
def test_an_empty_batch_that_need_not_stay_goes(fate: Fate) -> None:
    rest = filtered(an_empty_batch(), fate=fate)
    assert rest.data == b""
    assert rest.counts == FilterCounts(batches_read=1, bytes_read=61)


@behaviour("REC-057")
def test_a_batch_that_is_to_be_deleted_goes_whatever_is_in_it_and_nobody_looks() -> None:
    batch = build_batch([record(b"a")])
    batch[61:] = b"\xff" * len(batch[61:])  # would be found out
    rest = filtered(batch, fate=Fate.DELETE)
    assert rest.data == b""
    assert rest.counts == FilterCounts(batches_read=1, bytes_read=len(batch), unlooked=1)


@behaviour("REC-061")
@all_codecs
def test_gaps_stay_and_so_do_the_first_and_the_last_offset(codec: Codec) -> None:
    builder = BatchBuilder(base_offset=0, codec=codec)
    for offset, key in ((5, None), (8, b"8"), (10, None)):
        builder.append(record(key, timestamp_ms=offset), offset)
    rest = filtered(builder.build())
    assert rest.offsets == [8]
    assert (rest.batch.base_offset, rest.batch.last_offset, rest.batch.max_timestamp_ms) == (0, 10, 8)


@behaviour("REC-061")
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_the_old_formats_begins_and_ends_with_what_is_left(magic: int) -> None:
    records = [record(None), record(b"8"), record(None)]
    rest = filtered(build_message_set(magic, records, base_offset=7, codec=Codec.GZIP))
    assert rest.offsets == [8]
    assert (rest.batch.base_offset, rest.batch.last_offset, rest.batch.codec) == (8, 8, Codec.GZIP)


@behaviour("REC-062")
@all_codecs
def test_the_producer_is_still_known_by_what_is_left(codec: Codec) -> None:
    records = [record(None), record(b"1"), record(b"2"), record(None)]
    rest = filtered(build_batch(records, base_offset=40, codec=codec, is_transactional=True, **PRODUCER))
    batch = rest.batch
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (1234, 15, 100, 103)
    assert (batch.base_offset, batch.last_offset, batch.is_transactional) == (40, 43, True)
    assert [(found.offset, found.sequence) for found in batch] == [(41, 101), (42, 102)]


@behaviour("REC-063")
@all_codecs
def test_a_target_that_is_too_small_grows_until_the_whole_input_is_through(codec: Codec) -> None:
    data = b"".join(
        build_batch([record(None), record(b"%d" % offset, b"v" * 300)], base_offset=offset, codec=codec)
        for offset in range(0, 100, 2)
    )
    offset_map, counts = TableOffsetMap(1000), FilterCounts()
    offset_map.room = Room(target_size=64, notes=3)
    window = BatchWindow(memoryview(data), 0, scan_headers(data))
    fates, marks = np.full(50, Fate.LOOK, np.uint8), np.zeros(50, np.uint8)
    rest = filter_window(window, fates, marks, offset_map, FilterRules(ALL, NOW, RETENTION, False), counts)
    assert Filtered(bytes(rest), counts).offsets == list(range(1, 100, 2))
    assert counts.bytes_read == len(data)


@behaviour("REC-064", "REC-065")
@all_codecs
def test_what_was_read_and_kept_is_counted(codec: Codec) -> None:
    data = keyless_and_keyed(codec=codec)
    rest = filtered(data)
    counts = rest.counts
    assert (counts.records_read, counts.records_kept, counts.invalid) == (7, 4, 3)
    assert (counts.bytes_read, counts.bytes_kept) == (len(data), len(rest.data))
    assert rest.offsets == [1, 4, 5, 6]
    assert [batch.max_timestamp_ms for batch in rest.batches] == [11, 20, 16]
    assert [batch.last_offset for batch in rest.batches] == [2, 5, 6]
    assert time_and_offset(rest.data) == (20, 5)


@behaviour("REC-066")
@all_codecs
def test_the_time_of_the_append_stays(codec: Codec) -> None:
    by_broker = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": 99, "codec": codec}
    rest = filtered(keyless_and_keyed(**by_broker))
    assert {batch.timestamp_type for batch in rest.batches} == {TimestampType.LOG_APPEND_TIME}
    assert {batch.max_timestamp_ms for batch in rest.batches} == {99}
    assert [found.timestamp_ms for found in rest.records] == [99] * 4


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_the_old_formats_come_out_in_version_2(magic: int, codec: Codec) -> None:
    records = [record(b"a", timestamp_ms=7), record(b"b", timestamp_ms=9)]
    rest = filtered(build_message_set(magic, records, base_offset=3, codec=codec))
    assert rest.offsets == [3, 4]
    assert {batch.magic for batch in rest.batches} == {2}
    assert {batch.codec for batch in rest.batches} == {codec}
    assert {batch.timestamp_type for batch in rest.batches} == {TimestampType.CREATE_TIME}
    assert [found.timestamp_ms for found in rest.records] == ([-1, -1] if magic == 0 else [7, 9])


def test_an_old_wrapper_timed_by_the_broker_stays_so() -> None:
    by_broker: dict[str, Any] = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": 99}
    rest = filtered(build_message_set(1, [record(b"a"), record(None)], codec=Codec.LZ4, **by_broker))
    assert (rest.batch.timestamp_type, rest.batch.max_timestamp_ms) == (TimestampType.LOG_APPEND_TIME, 99)


@pytest.mark.parametrize("fate", [Fate.LOOK_RETAIN, Fate.EMPTY_RETAIN])
def test_an_old_entry_that_loses_everything_but_must_stay_is_an_empty_batch(fate: Fate) -> None:
    rest = filtered(build_message_set(1, [record(None, timestamp_ms=8)], base_offset=7), fate=fate)
    assert (rest.batch.base_offset, rest.batch.last_offset, rest.batch.count) == (7, 7, 0)
    assert rest.batch.max_timestamp_ms == 8


# -- tombstones and markers --------------------------------------------------------------------------------------------


@all_codecs
def test_a_tombstone_that_is_kept_for_the_first_time_gets_a_horizon(codec: Codec) -> None:
    records = [record(b"a", timestamp_ms=5), record(b"b", None, 10), record(b"c", timestamp_ms=15)]
    rest = filtered(build_batch(records, codec=codec))
    assert rest.batch.delete_horizon_ms == rest.batch.base_timestamp_ms == HORIZON
    assert [found.timestamp_ms for found in rest.records] == [5, 10, 15]
    assert (rest.batch.max_timestamp_ms, rest.counts.tombstones_kept) == (15, 1)
    assert filtered(rest.data, now_ms=HORIZON - 1).data == rest.data, "and then waits"


def test_a_tombstone_goes_when_its_horizon_is_reached_and_the_batch_keeps_the_horizon() -> None:
    waiting = filtered(build_batch([record(b"a"), record(b"b", None), record(b"c")])).data
    rest = filtered(waiting, now_ms=HORIZON)
    assert (rest.offsets, rest.batch.delete_horizon_ms) == ([0, 2], HORIZON)
    assert (rest.counts.tombstones_dropped, rest.counts.tombstones_kept) == (1, 0)


def test_a_tombstone_behind_the_map_is_kept_after_its_horizon() -> None:
    waiting = filtered(build_batch([record(b"a", None)], base_offset=7)).data
    assert filtered(waiting, now_ms=HORIZON, latest=6).data == waiting
    assert filtered(waiting, now_ms=HORIZON, latest=7).data == b""


def test_a_retention_time_beyond_all_clocks_gives_no_horizon() -> None:
    rest = filtered(build_batch([record(b"a", None, 5)]), retention_ms=2**63 - 1)
    assert (rest.batch.delete_horizon_ms, rest.batch.base_timestamp_ms) == (None, 5)


@pytest.mark.parametrize("magic", [0, 1])
def test_tombstones_of_the_old_formats_stay_while_their_segment_is_young(magic: int) -> None:
    data = build_message_set(magic, [record(b"a", None)])
    assert filtered(data, keeps_legacy_deletes=False).data == b""
    kept = filtered(data, keeps_legacy_deletes=True)
    assert kept.batch.delete_horizon_ms == HORIZON, "as a batch of version 2 it has one"


def marker() -> bytearray:
    return build_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 3), producer_id=7, producer_epoch=1, timestamp_ms=5, offset=20
    )


def test_a_marker_stays_whatever_the_map_says() -> None:
    assert filtered(marker(), keys={bytes(list(RecordBatch(marker()))[0].key or b""): 99}).data == marker()


def test_the_marker_of_a_transaction_without_data_gets_a_horizon() -> None:
    rest = filtered(marker(), ends_empty_txn=True)
    assert rest.batch.delete_horizon_ms == HORIZON
    assert (rest.batch.is_control, rest.batch.is_transactional, rest.batch.base_sequence) == (True, True, -1)
    assert [found._replace(timestamp_ms=5) for found in rest.records] == list(RecordBatch(marker()))
    assert filtered(rest.data, ends_empty_txn=True).data == rest.data
    assert rest.counts.tombstones_kept == 0


# -- batches that nobody writes ----------------------------------------------------------------------------------------


def odd_records() -> bytearray:
    """Two records of which the first goes; the second has attributes, and long ways to say lengths."""
    batch = BatchBuilder(base_offset=0)
    batch.append(NewRecord(None, b"x", 5)).append(NewRecord(b"k", None, 5))
    body = bytearray.fromhex("0e 00 00 00 01 02 78 00") + bytearray.fromhex("18 03 00 02 8200 6b 85808000 8000")
    header = RecordBatch(batch.build()).header
    return header.seal(body)


def test_what_is_written_anew_is_written_in_the_shortest_way() -> None:
    rest = filtered(odd_records(), retention_ms=2**63 - 1)
    expected = BatchBuilder(base_offset=0).append(NewRecord(b"k", None, 5), 1).build()
    assert rest.data == expected


def test_names_of_headers_that_are_no_utf8_are_mended() -> None:
    batch = build_batch([record(None), NewRecord(b"k", b"v", 5, (Header("n\u00e9", b"1"),))])
    at = batch.index("n\u00e9".encode())
    batch[at + 1 : at + 3] = b"\xff\xff"
    assert filtered(batch).records[0].headers == (Header("n\ufffd\ufffd", b"1"),)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"producer_id": -1, "is_transactional": True}, InvalidRecordError),
        ({"producer_epoch": -1}, InvalidRecordError),
        ({"base_sequence": -1}, InvalidRecordError),
        ({"base_timestamp_ms": -10}, InvalidTimestampError),
    ],
)
def test_what_no_producer_may_say_is_copied_but_not_written_anew(
    change: dict[str, Any], error: type[CorruptionError]
) -> None:
    batch = RecordBatch(build_batch([record(b"a"), record(b"b")], **PRODUCER))
    attributes = batch.attributes._replace(is_transactional=change.pop("is_transactional", False))
    odd = batch.header._replace(attributes=attributes.pack(), **change).seal(bytearray(batch.buffer[61:]))
    assert filtered(odd).data == odd
    with pytest.raises(error):
        filtered(odd, keys={b"a": 1})


def test_offsets_that_do_not_increase_are_copied_but_not_written_anew() -> None:
    batch = RecordBatch(build_batch([record(b"a"), record(b"b"), record(b"c")]))
    body = bytearray(batch.buffer[61:])
    size = len(body) // 3
    odd = batch.header.seal(body[size : 2 * size] + body[:size] + body[2 * size :])
    assert filtered(odd).data == odd
    assert filtered(odd, keys={b"a": 9}).offsets == [1, 2]
    with pytest.raises(InvalidRecordError, match="increase"):
        filtered(odd, keys={b"c": 9})


def test_counts_are_added() -> None:
    total = FilterCounts(batches_read=1, invalid=2)
    total.add(FilterCounts(batches_read=3, superseded=4))
    assert total == FilterCounts(batches_read=4, invalid=2, superseded=4)
