"""How far a round goes: the map it makes of the dirty part, where it ends, and what it says of itself."""

from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.compacting import (
    a_cleaner,
    a_compacted_log,
    all_offsets,
    base_offsets,
    compact,
    delete,
    files_of,
    fill_segments,
    finished,
    keys_in,
    mapped,
    put,
    put_each,
    to_clean,
    transactional,
)
from tests.log.logs import NOW, all_replicated, batch, follow, lead
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.compaction.cleanable import CleanableLog, cleanable_log
from tidelog.log.compaction.cleaner import Cleaner, CleanerStats
from tidelog.log.compaction.throttle import Throttle
from tidelog.records import NewRecord


def found(log: UnifiedLog, first_dirty: int, end: int, keys: range, capacity: int = 1000) -> list[int]:
    """The offsets that the map of a round has for these keys."""
    offset_map = mapped(log, first_dirty, end, capacity)
    return [offset_map.get(b"%d" % key) for key in keys]


# -- the map -----------------------------------------------------------------------------------------------------------


@behaviour("CLN-047")
def test_the_map_has_the_keys_of_its_range_and_no_others(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    fill_segments(log, 6)
    bases = [segment.base_offset for segment in log.segments]
    for start, end in ((0, bases[1]), (bases[1], bases[3]), (bases[3], bases[5])):
        offset_map = mapped(log, start, end)
        assert (offset_map.size, offset_map.latest_offset) == (end - start, end - 1)
        assert [offset_map.get(b"%d" % key) for key in range(start, end)] == list(range(start, end))
        assert [offset_map.get(b"%d" % key) for key in (start - 1, end)] == [-1, -1]


def test_the_map_has_the_newest_offset_of_a_key(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put(log, 1, 2, 1, 3, 2)
    log.roll()
    assert found(log, 0, 5, range(1, 4)) == [2, 4, 3]
    assert found(log, 3, 5, range(1, 4)) == [-1, 4, 3]


def test_aborted_records_and_markers_are_not_in_the_map(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    one, two = transactional(log, 1, 2)
    put(log, 1)
    one(1, 2)
    two(3)
    one.abort()
    two.commit()
    log.roll()
    offset_map = mapped(log, 0, 6)
    assert (offset_map.size, offset_map.latest_offset) == (2, 5)
    assert [offset_map.get(b"%d" % key) for key in (1, 2, 3)] == [0, -1, 3]


@behaviour("CLN-048")
def test_a_segment_with_a_wide_gap_is_mapped_to_its_end(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    for key, offset in ((0, 0), (1, 7_206_178)):
        follow(log, batch([NewRecord(b"%d" % key, b"v", NOW)], base_offset=offset, partition_leader_epoch=0))
    log.roll()
    offset_map = mapped(log, 0, 7_206_179)
    assert (offset_map.size, offset_map.latest_offset) == (2, 7_206_178)
    assert [offset_map.get(b"0"), offset_map.get(b"1")] == [0, 7_206_178]


@behaviour("CLN-049")
def test_a_map_with_room_for_two_keys_stops_at_the_third(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put_each(log, 0, 1, 2, 3, 4)
    log.roll()
    offset_map = mapped(log, 2, 5, capacity=2)
    assert (offset_map.size, offset_map.latest_offset) == (2, 3)
    assert [offset_map.get(b"%d" % key) for key in range(5)] == [-1, -1, 2, 3, -1]


# -- where a round ends ------------------------------------------------------------------------------------------------


@behaviour("CLN-037")
def test_a_map_with_room_for_one_key_goes_on_by_one_key_a_round(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put_each(log, 0, 1, 0, 1, 0)
    log.roll()
    seen = []
    for first_dirty in (2, 3, 4):
        assert compact(log, first_dirty, capacity=1).end_offset == first_dirty + 1
        seen.append(all_offsets(log))
    assert seen == [[1, 2, 3, 4], [2, 3, 4], [3, 4]]
    assert keys_in(log) == [1, 0]


def test_a_round_that_ends_inside_a_batch_leaves_the_rest_of_the_batch_alone(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put(log, 1, 2, 1, 2, 3)
    log.roll()
    assert compact(log, capacity=2).end_offset == 2
    assert all_offsets(log) == [0, 1, 2, 3, 4]
    assert compact(log, 2, capacity=2).end_offset == 4
    assert (all_offsets(log), base_offsets(log)) == ([2, 3, 4], [0])


@behaviour("CLN-058")
def test_a_round_passes_gaps_between_segments(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=1 << 20)
    put_each(log, *range(10))
    log.roll(11)
    follow(log, batch([NewRecord(b"1015", b"1015", NOW)], base_offset=11, partition_leader_epoch=0))
    assert compact(log).end_offset == 11

    log = a_compacted_log(tmp_path, name="topic-1", segment_bytes=1 << 20)
    put_each(log, *range(10))
    log.roll(15)
    for offset in range(15, 25):
        follow(log, batch([NewRecord(b"%d" % offset, b"v", NOW)], base_offset=offset, partition_leader_epoch=0))
    log.roll(30)
    follow(log, batch([NewRecord(b"1015", b"1015", NOW)], base_offset=30, partition_leader_epoch=0))
    assert compact(log).end_offset == log.active_segment.base_offset == 30


def test_a_round_over_nothing_ends_where_it_began_and_touches_nothing(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put_each(log, 1, 1, 1)
    log.roll()
    end = compact(log).end_offset
    put_each(log, 1, 1)
    before = files_of(log)
    assert compact(log, end).end_offset == end == 3
    (producer,) = transactional(log, 1)
    log.roll()
    put(log, 7)
    producer(8)  # open: from here on nothing may be cleaned, though the segment goes on
    log.roll()
    all_replicated(log)
    before = files_of(log)
    undecided = cleanable_log(log, log.log_end_offset - 1, NOW)
    assert undecided.first_uncleanable_offset < undecided.first_dirty
    assert finished(a_cleaner(log).clean(undecided)).end_offset == undecided.first_dirty
    assert files_of(log) == before


# -- figures -----------------------------------------------------------------------------------------------------------


@behaviour("CLN-033")
def test_a_round_counts_what_it_read_and_wrote(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    put_each(log, 0, 1, 0, 1, 0)
    log.roll()
    size = log.size
    done = compact(log, 2, capacity=3)
    stats = done.stats
    assert done.end_offset == 5
    assert (stats.records.records_read, stats.bytes_read) == (5, size)
    assert (stats.records.records_kept, stats.bytes_written) == (2, log.size)
    assert stats.records.invalid == 0
    assert (stats.keys, stats.utilisation) == (2, 0.5)


def test_a_preview_says_what_a_round_will_do_and_does_nothing(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=300)
    (producer,) = transactional(log, 1)
    put_each(log, *range(5), *range(5))
    delete(log, 2)
    producer(1, 2)
    producer.abort()
    fill_segments(log, len(log.segments) + 1)
    before = files_of(log)
    seen = finished(a_cleaner(log).preview(to_clean(log)))
    assert files_of(log) == before
    assert seen == compact(log)
    assert files_of(log) != before


@behaviour("CLN-039")
def test_bytes_are_those_of_whole_segments(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=100)
    fill_segments(log, 6)
    sizes = [segment.size for segment in log.segments]
    bases = [segment.base_offset for segment in log.segments]
    whole = CleanableLog(log, bases[5], bases[5])
    assert (whole.total_bytes, whole.cleanable_bytes, whole.ratio) == (log.size - sizes[5], 0, 0)
    part = CleanableLog(log, bases[2], bases[4])
    assert part.clean_bytes == sum(sizes[:2])
    assert part.cleanable_bytes == sum(sizes[2:4])
    assert part.total_bytes == sum(sizes[:4])
    assert part.ratio == pytest.approx(sum(sizes[2:4]) / sum(sizes[:4]))


def test_all_that_is_read_and_written_counts_for_the_throttle(tmp_path: Path) -> None:
    class Counted(Throttle):
        total = 0.0

        def observe(self, amount: float) -> float:
            self.total += amount
            return 25.0

    log = a_compacted_log(tmp_path)
    put_each(log, 0, 1, 0, 1, 0)
    log.roll()
    size = log.size
    throttle = Counted(1.0, ManualClock(NOW))
    waits = list(Cleaner(a_cleaner(log).config, log.local.clock, throttle=throttle).clean(to_clean(log)))
    assert throttle.total == 2 * size + log.size  # for the map, for the copy, and the copy itself
    assert 25.0 in waits


def test_a_round_can_be_watched(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    fill_segments(log, 4)
    stats = CleanerStats()
    cleanable = to_clean(log)
    seen = [(stats.map_bytes, stats.bytes_read) for _ in a_cleaner(log).clean(cleanable, stats=stats)]
    assert seen == sorted(seen)
    assert stats.map_bytes + stats.bytes_read == stats.bytes_to_read == 2 * cleanable.total_bytes
    lead(log, batch(1))
