"""What a round keeps and drops of plain records: keys, tombstones, large batches, damage."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.compacting import (
    a_compacted_log,
    all_offsets,
    batches_in,
    compact,
    compact_twice,
    delete,
    files_of,
    fill_segments,
    horizons_in,
    keys_in,
    last_offsets,
    put,
    put_each,
    tombstones_in,
)
from tests.log.logs import DAY, MEGABYTE, NOW, bases_of, batch, clock_of, follow, lead
from tidelog.errors import CorruptionError, InvalidRecordError
from tidelog.log import UnifiedLog
from tidelog.log.names import file_name
from tidelog.records import NewRecord, RecordBatch
from tidelog.records.builder import build_message_set
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import write_message

# -- keys --------------------------------------------------------------------------------------------------------------


@behaviour("CLN-006")
def test_of_every_key_the_last_record_stays(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    written = fill_segments(log, 4)
    put_each(log, 1, 3, 5, 7, 9)
    again = [1, 3, 5, 7, 9]
    log.roll()
    size = log.size
    done = compact(log)
    kept = [key for key in range(written + 1) if key not in again]
    assert keys_in(log) == [*kept, *again]
    assert all_offsets(log) == [*kept, *range(written + 1, written + 6)]
    assert done.end_offset == log.log_end_offset
    assert done.stats.bytes_read == size
    assert done.stats.bytes_written == log.size < size
    assert done.stats.records.superseded == 5


def test_a_batch_that_loses_nothing_is_copied_as_it_is(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put(log, 1, 2, codec=Codec.GZIP)
    put(log, 2, 3)
    put(log, 3, 4)
    log.roll()
    before = [bytes(part.buffer) for part in batches_in(log)]
    compact(log)
    after = [bytes(part.buffer) for part in batches_in(log)]
    assert (keys_in(log), last_offsets(log)) == ([1, 2, 3, 4], [1, 3, 5])
    assert after[2] == before[2]
    assert before[0] != after[0]


@behaviour("CLN-008")
def test_the_new_segment_of_a_preallocating_log_ends_with_its_last_batch(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, preallocate=True)
    put_each(log, 0, 1, 0, 1, 0)
    log.roll()
    compact(log, 2, capacity=1)
    first = log.segments[0]
    assert Path(first.log.path).stat().st_size == first.size < 1024


@behaviour("CLN-038")
def test_what_may_not_be_cleaned_yet_is_not_touched(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    while len(log.segments) < 6:
        put(log, log.log_end_offset % 10)
    third = log.segments[2]
    before = {name: data for name, data in files_of(log).items() if name >= file_name(third.base_offset, "")}
    assert len(before) >= 12
    done = compact(log, end=third.base_offset + 1)
    assert done.end_offset == third.base_offset
    after = files_of(log)
    assert {name: after.get(name) for name in before} == before
    assert sum(offset < third.base_offset for offset in all_offsets(log)) == 10


@behaviour("CLN-040")
def test_records_without_a_key_go_and_are_counted(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, cleanup_policy=("delete",))
    while len(log.segments) < 2:
        lead(log, batch([NewRecord(None, b"unkeyed", NOW)]))
    unkeyed, size = log.log_end_offset, log.size
    log.roll()
    fill_segments(log, 5)
    expected = log.size - size
    done = compact(log)
    assert done.stats.records.invalid == unkeyed
    assert all(record.key is not None for part in batches_in(log) for record in part.records())
    assert log.size == expected


@behaviour("CLN-042")
def test_if_nothing_is_left_an_empty_batch_tells_where_the_log_goes_on(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=4096)
    put_each(log, *range(10))
    delete(log, *range(10))
    log.roll()
    put(log, 99)
    compact_twice(log)
    assert len(log.segments) == 2
    (retained,) = [part for part in batches_in(log) if part.last_offset < 20]
    assert (retained.last_offset, list(retained.records())) == (19, [])
    assert log.segments[0].next_offset() == log.active_segment.base_offset == 20


# -- tombstones --------------------------------------------------------------------------------------------------------


@behaviour("CLN-032")
def test_what_a_tombstone_deletes_is_gone(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    end = fill_segments(log, 2) + 1
    delete(log, *range(0, end, 2))
    fill_segments(log, 5)
    compact(log)
    assert not {*range(0, end, 2)}.intersection(keys_in(log))
    assert {*range(1, end, 2)}.issubset(keys_in(log))


def test_a_tombstone_goes_when_its_time_is_up_and_not_before(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put_each(log, 1, 2)
    delete(log, 1)
    log.roll()
    put(log, 3)
    log.roll()
    end = compact(log).end_offset
    assert (keys_in(log), tombstones_in(log), horizons_in(log)) == ([2, 3], [1], [NOW + DAY])
    clock_of(log).advance(DAY - 1)
    put(log, 4)
    log.roll()
    end = compact(log, end).end_offset
    assert (tombstones_in(log), horizons_in(log)) == ([1], [NOW + DAY])  # the horizon does not move
    clock_of(log).advance(1)
    put(log, 5)
    log.roll()
    compact(log, end)
    assert (keys_in(log), tombstones_in(log)) == ([2, 3, 4, 5], [])


@behaviour("CLN-057")
def test_the_time_of_a_tombstone_counts_from_its_first_round_whatever_its_own_timestamp_says(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, message_timestamp_after_max_ms=2 * DAY)
    lead(log, batch([NewRecord(b"0", b"0", NOW + DAY + 10_000)]))
    log.roll()
    compact(log)
    lead(log, batch([NewRecord(b"0", None, NOW - DAY - 10_000)]))
    log.roll()
    compact(log, 1)
    assert (tombstones_in(log), last_offsets(log)[0]) == ([0], 1)
    put(log, 1)
    log.roll()
    compact(log, 2)
    assert (tombstones_in(log), last_offsets(log)[0]) == ([0], 1)
    assert horizons_in(log) == [NOW + DAY]


# -- large batches, many windows ---------------------------------------------------------------------------------------


def large_messages(root: Path, count: int) -> UnifiedLog:
    """A log of messages of one MiB each, with the keys from 0 on."""
    log = a_compacted_log(root, segment_bytes=64 * MEGABYTE, max_message_bytes=2 * MEGABYTE)
    for key in range(count):
        lead(log, batch([NewRecord(b"%d" % key, bytes(MEGABYTE), NOW)]))
    return log


@behaviour("CLN-029")
def test_a_batch_larger_than_what_is_read_at_once_is_cleaned(tmp_path: Path) -> None:
    log = large_messages(tmp_path, 3)
    put_each(log, 1)
    log.roll()
    compact(log, window=1024)
    assert keys_in(log) == [0, 2, 1]


@behaviour("CLN-030")
def test_a_batch_larger_than_the_topic_would_take_today_is_cleaned(tmp_path: Path) -> None:
    log = large_messages(tmp_path, 2)
    log.config = replace(log.config, max_message_bytes=MEGABYTE // 2)
    put_each(log, 0)
    log.roll()
    compact(log, window=1024)
    assert keys_in(log) == [1, 0]


def corrupt_magic(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[16] = 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1024])


def overlong(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:12] = (1 << 30).to_bytes(4, "big")
    path.write_bytes(data)


def negative(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff" * 4
    path.write_bytes(data)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[MEGABYTE // 2] ^= 1
    path.write_bytes(data)


@behaviour("CLN-031")
@pytest.mark.parametrize("damage", [corrupt_magic, cut, overlong, negative, flipped])
@pytest.mark.parametrize("first_dirty", [0, 2])
def test_damage_ends_the_round_and_nothing_is_replaced(
    tmp_path: Path, damage: Callable[[Path], None], first_dirty: int
) -> None:
    log = large_messages(tmp_path, 2)
    log.roll()
    put_each(log, 0, 1)
    log.roll()
    damage(Path(log.segments[0].log.path))
    before = files_of(log)
    with pytest.raises(CorruptionError):
        compact(log, first_dirty, window=1024)
    assert files_of(log) == before
    assert bases_of(log) == [0, 2, 4]
    assert log.failure is None


# -- old formats -------------------------------------------------------------------------------------------------------


def old_message(magic: int, offset: int, key: int, value: bytes | None = b"old") -> bytearray:
    out = bytearray()
    write_message(out, magic, offset, NewRecord(b"%d" % key, value, NOW if magic else -1))
    return out


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_come_out_in_version_2(tmp_path: Path, magic: int) -> None:
    log = a_compacted_log(tmp_path)
    follow(log, *(old_message(magic, offset, offset % 3) for offset in range(5)))
    log.roll()
    put_each(log, 0)
    log.roll()
    compact(log)
    assert all(isinstance(part, RecordBatch) for part in batches_in(log))
    assert (all_offsets(log), keys_in(log)) == ([2, 4, 5], [2, 1, 0])


@behaviour("CLN-066")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_log_of_all_formats_keeps_the_last_value_of_every_key(tmp_path: Path, codec: Codec) -> None:
    log = a_compacted_log(tmp_path)
    values: dict[bytes | None, bytes | None] = {}
    for number in range(12):
        end = log.log_end_offset
        records = [NewRecord(b"%d" % ((end + n) % 7), b"value %d" % (end + n), NOW) for n in range(4)]
        magic = number % 3
        if magic == 2:
            follow(log, batch(records, base_offset=end, partition_leader_epoch=0, codec=codec))
        else:
            follow(log, build_message_set(magic, records, base_offset=end, codec=codec))
        values.update((record.key, record.value) for record in records)
    log.roll()
    size = log.size
    compact(log)
    assert log.size < size
    kept = [record for part in batches_in(log) for record in part.records()]
    assert {record.key: record.value for record in kept} == values
    assert [record.offset for record in kept] == list(range(41, 48))
    assert all(record.value == b"value %d" % record.offset for record in kept)


def test_a_tombstone_of_the_old_formats_waits_by_the_time_of_the_files(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put_each(log, 1)
    log.roll()
    follow(log, old_message(1, 1, 5, None))
    log.roll()
    for segment, modified_ms in zip(log.segments, (NOW, NOW - DAY + 1), strict=False):
        log.local.fs.set_modified(segment.log.path, modified_ms)
    compact(log, 1)  # the last clean segment is of NOW: what is older than a day before that, may go
    assert tombstones_in(log) == [5]
    log = a_compacted_log(tmp_path, name="topic-1")
    put_each(log, 1)
    log.roll()
    follow(log, old_message(1, 1, 5, None))
    log.roll()
    for segment, modified_ms in zip(log.segments, (NOW, NOW - DAY), strict=False):
        log.local.fs.set_modified(segment.log.path, modified_ms)
    compact(log, 1)
    assert (tombstones_in(log), last_offsets(log)) == ([], [0, 1])


def test_messages_of_magic_0_inside_a_set_of_magic_1_are_left_alone(tmp_path: Path) -> None:
    """Releases before 0.11 left such sets now and then. No reader of ours takes them, so they are not thrown away."""
    inner, outer = bytearray(), bytearray()
    for number in range(4):
        write_message(inner, 0, number, NewRecord(b"%d" % (number % 2), b"%d" % (25 + number)))
    write_message(outer, 1, 28, NewRecord(None, bytes(compress(Codec.GZIP, inner, magic=1)), NOW), codec=Codec.GZIP)
    log = a_compacted_log(tmp_path)
    follow(log, outer)
    log.roll()
    before = files_of(log)
    with pytest.raises(InvalidRecordError, match="magic 0 inside a wrapper of magic 1"):
        compact(log)
    assert files_of(log) == before
