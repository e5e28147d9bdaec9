"""What of a log can be cleaned: from the first dirty offset to what is undecided, being written, or too young."""

from pathlib import Path
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    ABORT,
    COORDINATOR,
    HOUR,
    NOW,
    a_log,
    all_replicated,
    bases_of,
    batch,
    clock_of,
    fill,
    follow,
    in_txn,
    lead,
)
from tidelog.log import UnifiedLog
from tidelog.log.compaction.cleanable import CleanableLog, cleanable_log
from tidelog.records import EndTxnMarker, build_end_txn_marker

ONE = len(batch(1))


def compacted(tmp_path: Path, segments: list[int], *, timestamp_ms: int = NOW, **topic: Any) -> UnifiedLog:
    """A compacted log with segments of so many records, all replicated."""
    log = a_log(tmp_path, cleanup_policy=("compact",), **topic)
    fill(log, segments, timestamp_ms=timestamp_ms)
    all_replicated(log)
    return log


def of(log: UnifiedLog, checkpointed: int | None = None) -> CleanableLog:
    return cleanable_log(log, checkpointed, clock_of(log).now_ms())


# -- from where --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointed", [0, 5, 20])
def test_a_checkpoint_inside_the_log_says_where_it_becomes_dirty(tmp_path: Path, checkpointed: int) -> None:
    found = of(compacted(tmp_path, [5, 5, 5, 5]), checkpointed)
    assert (found.first_dirty, found.resets_checkpoint) == (checkpointed, False)


def test_without_a_checkpoint_a_log_is_dirty_from_its_start(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5, 5, 5])
    log.delete_records(3)
    found = of(log)
    assert (found.first_dirty, found.resets_checkpoint) == (3, False)


@behaviour("CLN-071", "CLN-086")
def test_a_checkpoint_beyond_the_log_end_says_nothing(tmp_path: Path) -> None:
    found = of(compacted(tmp_path, [5, 5, 5, 5]), 200)
    assert (found.first_dirty, found.resets_checkpoint) == (0, True)
    assert not of(found.log, 20).resets_checkpoint
    assert of(found.log, 21).resets_checkpoint


@behaviour("CLN-072", "CLN-086")
def test_a_checkpoint_below_the_log_start_says_nothing(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5, 5, 5, 5])
    log.delete_records(10)
    found = of(log, 0)
    assert (found.first_dirty, found.resets_checkpoint) == (10, True)
    assert not of(log, 10).resets_checkpoint
    assert of(log, 9).resets_checkpoint


# -- up to where -------------------------------------------------------------------------------------------------------


@behaviour("CLN-083")
def test_nothing_above_the_last_stable_offset_is_cleanable(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5, 5, 5, 5])
    log.update_high_watermark(12)
    found = of(log, 0)
    assert (found.first_dirty, found.uncleanable, found.first_uncleanable_offset) == (0, 12, 10)


@behaviour("CLN-083")
def test_the_active_segment_is_not_cleanable(tmp_path: Path) -> None:
    found = of(compacted(tmp_path, [5, 5, 5, 5]), 0)
    assert (found.first_dirty, found.uncleanable, found.first_uncleanable_offset) == (0, 15, 15)


@behaviour("CLN-084")
def test_segments_younger_than_the_lag_are_not_cleanable(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5, 5], min_compaction_lag_ms=HOUR)
    clock_of(log).advance(HOUR)
    log.roll()
    fill(log, [5, 5], timestamp_ms=NOW + HOUR)
    all_replicated(log)
    assert bases_of(log) == [0, 5, 10, 15]
    assert of(log, 0).first_uncleanable_offset == 10
    clock_of(log).advance(HOUR - 1)
    assert of(log, 0).first_uncleanable_offset == 10
    clock_of(log).advance(1)
    assert of(log, 0).first_uncleanable_offset == 15


@behaviour("CLN-084")
def test_the_first_young_segment_holds_up_the_old_ones_behind_it(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5], min_compaction_lag_ms=HOUR, timestamp_ms=NOW - 2 * HOUR)
    for timestamp_ms in (NOW, NOW - 2 * HOUR, NOW - 2 * HOUR):
        log.roll()
        lead(log, 1, timestamp_ms=timestamp_ms)
    all_replicated(log)
    assert of(log, 0).first_uncleanable_offset == 5
    assert of(log, 6).first_uncleanable_offset == 7  # only dirty segments are asked


def test_what_is_undecided_is_not_cleanable_where_young_segments_begin_behind_it(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5, 5], min_compaction_lag_ms=HOUR, timestamp_ms=NOW - HOUR)
    log.roll()
    fill(log, [5, 5])
    log.update_high_watermark(5)
    assert of(log).uncleanable == 5


@behaviour("CLN-085")
def test_undecided_data_is_not_cleanable_however_old_it_is(tmp_path: Path) -> None:
    log = compacted(tmp_path, [], min_compaction_lag_ms=HOUR)
    lead(log, in_txn(15, 0, 2))
    lead(log, in_txn(15, 2, 1))
    log.roll()
    log.update_high_watermark(3)
    clock_of(log).advance(HOUR + 1)
    assert (of(log, 0).first_dirty, of(log, 0).uncleanable) == (0, 0)
    abort = build_end_txn_marker(
        EndTxnMarker(ABORT, 15), producer_id=15, producer_epoch=0, timestamp_ms=NOW + HOUR + 1, offset=0,
        partition_leader_epoch=0,
    )  # fmt: skip
    lead(log, abort, origin=COORDINATOR)
    log.roll()
    log.update_high_watermark(4)
    assert of(log, 0).uncleanable == 3
    clock_of(log).advance(HOUR + 1)
    assert of(log, 0).uncleanable == 4


def test_the_uncleanable_offset_is_never_below_the_first_dirty_one(tmp_path: Path) -> None:
    log = compacted(tmp_path, [5, 5, 5])
    log.update_high_watermark(3)
    found = of(log, 7)
    assert (found.first_dirty, found.uncleanable, found.cleanable_bytes) == (7, 7, 0)


# -- how much ----------------------------------------------------------------------------------------------------------


@behaviour("CLN-039")
def test_bytes_are_those_of_whole_segments(tmp_path: Path) -> None:
    log = compacted(tmp_path, [2, 3, 4, 5])
    found = CleanableLog(log, 2, 9)
    assert (found.clean_bytes, found.cleanable_bytes, found.total_bytes) == (2 * ONE, 7 * ONE, 9 * ONE)
    assert found.ratio == 7 / 9
    cut = CleanableLog(log, 2, 7)  # in the middle of a segment
    assert (cut.first_uncleanable_offset, cut.cleanable_bytes, cut.total_bytes) == (5, 3 * ONE, 5 * ONE)


@behaviour("CLN-039")
def test_a_log_of_which_nothing_is_clean_is_all_dirty(tmp_path: Path) -> None:
    found = of(compacted(tmp_path, [2, 3, 1]))
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 5 * ONE, 1.0)


def test_a_segment_that_is_clean_in_part_counts_on_both_sides(tmp_path: Path) -> None:
    found = CleanableLog(compacted(tmp_path, [4, 1]), 2, 4)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (4 * ONE, 4 * ONE, 0.5)


@behaviour("CLN-073")
@pytest.mark.parametrize(("log_start", "checkpointed"), [(0, None), (2, 0), (0, 3), (0, 9)])
def test_of_a_log_with_one_segment_nothing_is_cleanable(
    tmp_path: Path, log_start: int, checkpointed: int | None
) -> None:
    log = compacted(tmp_path, [9])
    log.delete_records(log_start)
    found = of(log, checkpointed)
    assert (found.cleanable_bytes, found.ratio, found.is_due) == (0, 0.0, False)


def test_an_empty_log_is_not_due(tmp_path: Path) -> None:
    found = of(compacted(tmp_path, []), None)
    assert (found.total_bytes, found.ratio, found.is_due) == (0, 0.0, False)


# -- whether it is due -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "is_due"), [(0.49, True), (0.5, False), (0.51, False)])
def test_a_log_is_due_when_more_of_it_is_dirty_than_the_topic_allows(
    tmp_path: Path, ratio: float, is_due: bool
) -> None:
    log = compacted(tmp_path, [3, 3, 1], min_cleanable_dirty_ratio=ratio)
    assert of(log, 3).ratio == 0.5
    assert of(log, 3).is_due == is_due


@behaviour("CLN-062")
def test_a_log_is_due_when_its_oldest_dirty_batch_is_older_than_the_longest_lag(tmp_path: Path) -> None:
    log = compacted(tmp_path, [3, 1, 1], min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR, segment_ms=HOUR)
    clock_of(log).advance(HOUR)
    assert not of(log, 3).must_compact
    clock_of(log).advance(1)
    found = of(log, 3)
    assert (found.must_compact, found.delay_ms, found.is_due) == (True, 1, True)
    assert not of(log, 4).must_compact  # what is clean, and what is being written, is not asked


def test_a_log_that_must_be_compacted_waits_while_nothing_can_be(tmp_path: Path) -> None:
    log = compacted(tmp_path, [3, 1], min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR)
    clock_of(log).advance(2 * HOUR)
    log.update_high_watermark(0)
    found = of(log)
    assert (found.must_compact, found.cleanable_bytes, found.is_due) == (True, 0, False)


@pytest.mark.parametrize("timestamp_ms", [-1, 0])
def test_batches_without_a_time_force_nothing(tmp_path: Path, timestamp_ms: int) -> None:
    log = a_log(tmp_path, cleanup_policy=("compact",), max_compaction_lag_ms=HOUR)
    follow(log, batch(1, timestamp_ms=timestamp_ms, partition_leader_epoch=0))
    log.roll()
    follow(log, batch(1, timestamp_ms=NOW, base_offset=1, partition_leader_epoch=0))
    log.roll()
    all_replicated(log)
    assert not of(log).must_compact
    clock_of(log).advance(HOUR + 1)
    assert of(log).delay_ms == 1
