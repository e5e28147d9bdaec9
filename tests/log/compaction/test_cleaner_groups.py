"""Which segments become one, what goes with those whose place is taken, and segments that do not fit their indexes."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.compacting import (
    Producer,
    a_compacted_log,
    all_offsets,
    compact,
    fill_segments,
    put,
    put_each,
    settle,
)
from tests.log.logs import DAY, NOW, bases_of, batch, follow, names_in, snapshots_of
from tidelog.errors import CleaningAbortedError
from tidelog.log import UnifiedLog
from tidelog.log.compaction.segment_groups import group_segments
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, file_name
from tidelog.records import NewRecord
from tidelog.records.java import MAX_INT32


def at(offset: int, key: int = 0) -> bytearray:
    """A batch of a leader."""
    return batch([NewRecord(b"%d" % key, b"hello", NOW)], base_offset=offset, partition_leader_epoch=0)


def grouped(
    log: UnifiedLog, end: int | None = None, *, size: int = MAX_INT32, index_size: int = MAX_INT32
) -> list[int]:
    """How many segments each group has, in order."""
    config = replace(log.config, segment_bytes=size, segment_index_bytes=index_size)
    groups = group_segments(log.segments, config, log.log_end_offset if end is None else end)
    assert tuple(segment for group in groups for segment in group) == log.segments
    return [len(group) for group in groups]


@behaviour("CLN-043")
def test_segments_are_put_together_up_to_the_limits(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=300, index_interval_bytes=1)
    while len(log.segments) < 10:
        put(log, 1)
    assert grouped(log) == [10]
    assert grouped(log, size=14) == [1] * 10
    assert grouped(log, index_size=4) == [1] * 10
    sizes = [segment.size for segment in log.segments]
    assert {*grouped(log, size=sum(sizes[:3]) + 1)[:-1]} == {3}
    index_sizes = [segment.offset_index.size_in_bytes for segment in log.segments]
    time_sizes = [segment.time_index.size_in_bytes for segment in log.segments]
    limit = max(sum(index_sizes[:3]), sum(time_sizes[:3]))
    assert {*grouped(log, index_size=limit)[:-1]} == {3}
    assert grouped(log, size=sum(sizes[:3]) - 1)[0] == 2
    assert group_segments([], log.config, 0) == []


@behaviour("CLN-044")
def test_no_group_reaches_further_than_an_index_can_count(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=400, index_interval_bytes=1)
    fill_segments(log, 2)
    log.truncate_to(log.active_segment.base_offset)
    follow(log, at(MAX_INT32 - 1))
    put(log, 1)
    assert log.log_end_offset - 1 == MAX_INT32
    assert grouped(log) == [2]
    put(log, 1)
    assert grouped(log) == [1, 1]
    fill_segments(log, 4)
    assert grouped(log) == [1, 1, 2]


@behaviour("CLN-045")
def test_empty_segments_are_put_together_however_far_they_are_apart(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path)
    for number in range(3):
        put(log, 0)
        follow(log, at((number + 1) * (MAX_INT32 + 1) - 1))
        assert len(log.segments) == number + 1
    put(log, 0)
    end = log.active_segment.base_offset
    assert grouped(log, end) == [1, 1, 2]  # the last one is small, and the only one that is not to be cleaned

    compact(log)
    assert [segment.size > 0 for segment in log.segments] == [False, False, True, True]
    assert group_segments(log.segments[:3], log.config, end) == [list(log.segments[:2]), [log.segments[2]]]
    compact(log)
    assert [segment.size > 0 for segment in log.segments] == [False, True, True]
    assert all_offsets(log) == [end - 1, end]


@behaviour("CLN-046")
def test_a_segment_without_index_entries_is_not_taken_for_a_short_one(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=400, index_interval_bytes=400)
    follow(log, at(0), at(1))
    log.roll(MAX_INT32 // 2)
    follow(log, at(MAX_INT32 // 2))
    follow(log, at(MAX_INT32 + 1))
    assert [segment.offset_index.entries for segment in log.segments] == [0, 0]
    assert grouped(log) == [1, 1]


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=4096)
    for _ in range(5):
        put_each(log, 1, 2, 3)
        log.roll()
    for number, segment in enumerate(log.segments[:5]):
        log.local.fs.set_modified(segment.log.path, NOW - DAY + number * 1000)
    compact(log)
    assert bases_of(log) == [0, 15]
    assert all_offsets(log) == [12, 13, 14]
    assert log.segments[0].log.modified_ms == NOW - DAY + 4000  # as old as the last of those it replaces
    settle(log)
    assert not names_in(log, ".deleted")
    assert {name[:20] for name in names_in(log) if name.endswith(SEGMENT_SUFFIXES)} == {
        file_name(0, ""), file_name(15, ""),
    }  # fmt: skip


@behaviour("LOG-039")
def test_snapshots_of_segments_that_are_no_more_go_and_the_others_stay(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=4096)
    one, two = Producer(log, 1), Producer(log, 2)
    for producer in (one, two, one):
        producer(7)
        log.roll()
    put(log, 8)
    log.roll()
    assert snapshots_of(log) == [1, 2, 3, 4]
    compact(log, end=3)
    assert bases_of(log) == [0, 3, 4]
    assert snapshots_of(log) == [3, 4]
    assert names_in(log, ".snapshot.deleted") == [f"{file_name(offset, '.snapshot')}.deleted" for offset in (1, 2)]
    settle(log)
    assert not names_in(log, ".deleted")


@behaviour("CLN-050")
@pytest.mark.parametrize("end", [4, 5])
def test_a_segment_whose_offsets_do_not_fit_is_split_and_cleaned_the_next_time(tmp_path: Path, end: int) -> None:
    far = MAX_INT32 + 1
    offsets = [0, 1, far - 1, far, far + 1, 3 * far]
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for base, contained in {0: offsets, 4 * far: [4 * far], 5 * far: [5 * far]}.items():
        data = b"".join(at(offset, key=number % 2) for number, offset in enumerate(contained))
        (directory / file_name(base, LOG_SUFFIX)).write_bytes(data)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            (directory / file_name(base, suffix)).write_bytes(b"")
    log = a_compacted_log(tmp_path, clean_shutdown=True, recovery_point=5 * far)
    assert bases_of(log) == [0, 4 * far, 5 * far]
    with pytest.raises(CleaningAbortedError, match="split"):
        compact(log, end=end * far)
    assert bases_of(log) == [0, far, 3 * far, 4 * far, 5 * far]
    assert all_offsets(log) == [*offsets, 4 * far, 5 * far]
    assert not names_in(log, ".cleaned")

    compact(log, end=end * far)
    assert all(segment.fits(segment.next_offset() - 1) for segment in log.segments if segment.size)
    left = [far + 1, 3 * far, 4 * far, 5 * far]  # of the even keys and of the odd ones the last
    assert all_offsets(log) == (left if end == 4 else [3 * far, 4 * far, 5 * far])
