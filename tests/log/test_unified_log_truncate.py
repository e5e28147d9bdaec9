"""Cutting a log: in the middle, wholly, and what becomes of watermarks, epochs, producers and indexes."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    NOW,
    a_log,
    all_replicated,
    bases_of,
    batch,
    epochs_of,
    follow,
    in_txn,
    last_sequences,
    lead,
    of_producer,
    offsets_in,
    opened_again,
    remove_snapshots,
    snapshots_of,
)
from tidelog.errors import InvalidRequestError
from tidelog.log import ManualClock, UnifiedLog
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

ONE = len(batch(1))


def with_open_txn(tmp_path: Path) -> UnifiedLog:
    """Three plain records and two of an open transaction, closed and opened again."""
    log = a_log(tmp_path)
    lead(log, 3)
    lead(log, in_txn(17, 0, 2, epoch=10))
    assert log.first_unstable_offset == 3
    log.close()
    again = opened_again(log, clean_shutdown=True)
    assert again.first_unstable_offset == 3
    return again


@pytest.mark.parametrize("cut", [UnifiedLog.truncate_to, UnifiedLog.truncate_fully_and_start_at])
@behaviour("LOG-004")
def test_a_transaction_that_is_cut_off_holds_nobody_back(
    tmp_path: Path, cut: Callable[[UnifiedLog, int], object]
) -> None:
    log = with_open_txn(tmp_path)
    cut(log, 0)
    assert (log.first_unstable_offset, last_sequences(log)) == (None, {})


@behaviour("LOG-005")
def test_a_log_that_begins_anew_can_be_told_its_start(tmp_path: Path) -> None:
    log = with_open_txn(tmp_path)
    log.truncate_fully_and_start_at(2, log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)
    assert (log.first_unstable_offset, last_sequences(log)) == (None, {})


@behaviour("LOG-007")
def test_the_high_watermark_is_cut_with_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    follow(log, batch(3, base_offset=3, partition_leader_epoch=0))
    all_replicated(log)
    log.truncate_to(3)
    assert log.high_watermark == 3
    lead(log, 3)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 3, 6)
    log.truncate_fully_and_start_at(4)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 4)
    assert not log.offsets().high_watermark.is_offset_only


@pytest.mark.parametrize("beyond", [0, 1])
@behaviour("LOG-025")
def test_an_epoch_without_records_goes_with_a_truncation_to_the_log_end(tmp_path: Path, beyond: int) -> None:
    log = a_log(tmp_path)
    follow(log, batch(2, base_offset=27, partition_leader_epoch=19))
    log.assign_epoch_start_offset(20, 29)
    assert epochs_of(log) == [(19, 27), (20, 29)]
    assert not log.truncate_to(29 + beyond)
    assert (epochs_of(log), log.log_end_offset) == ([(19, 27)], 29)


@behaviour("LOG-108")
def test_epochs_are_cut_with_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE)
    for offset in range(20):
        epoch = 0 if offset < 10 else 1 if offset < 16 else 2
        follow(log, batch(1, base_offset=offset, partition_leader_epoch=epoch))
    for target, entries in ((20, 3), (11, 2), (10, 1), (0, 0)):
        log.truncate_to(target)
        assert epochs_of(log) == [(0, 0), (1, 10), (2, 16)][:entries]
        log.tick()
        assert len(log.leader_epochs.checkpoint.read()) == entries


@behaviour("LOG-035")
def test_snapshots_above_the_cut_go_and_one_is_taken_at_it(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    lead(log, 1)
    log.producers.take_snapshot()
    lead(log, 1)
    log.producers.take_snapshot()
    assert snapshots_of(log) == [2, 3]
    for target, latest in ((2, 2), (1, 1), (0, None)):
        log.truncate_to(target)
        assert log.producers.latest_snapshot_offset == latest
        assert snapshots_of(log) == ([] if latest is None else [latest])
        assert log.producers.map_end_offset == target


@behaviour("LOG-036")
def test_without_snapshots_the_producers_are_found_in_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, of_producer(1, 0))
    lead(log, of_producer(1, 1))
    remove_snapshots(log)
    log.truncate_to(1)
    assert last_sequences(log) == {1: 0}


@behaviour("LOG-041")
def test_a_log_that_begins_anew_has_no_snapshots(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=ONE)
    for _ in range(3):
        lead(log, 1)
    log.producers.take_snapshot()
    assert (bases_of(log), snapshots_of(log), log.producers.map_end_offset) == ([0, 1, 2], [1, 2, 3], 3)
    log.truncate_fully_and_start_at(29)
    assert (bases_of(log), snapshots_of(log), log.producers.map_end_offset) == ([29], [], 29)


def ten(log: UnifiedLog) -> None:
    for _ in range(10):
        lead(log, 1)


@behaviour("LOG-078")
def test_a_cut_at_the_log_end_or_beyond_changes_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE)
    ten(log)
    for target in (10, 11):
        assert not log.truncate_to(target)
        assert (log.log_end_offset, log.size) == (10, 10 * ONE)
    with pytest.raises(InvalidRequestError):
        log.truncate_to(-1)


@behaviour("LOG-079")
def test_a_log_is_cut_in_the_middle_and_filled_again(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE)
    ten(log)
    assert log.truncate_to(5)
    assert (log.log_end_offset, log.size, offsets_in(log)) == (5, 5 * ONE, [0, 1, 2, 3, 4])
    assert log.truncate_to(0)
    assert (log.log_end_offset, log.size) == (0, 0)
    ten(log)
    assert (log.log_end_offset, log.size, bases_of(log)) == (10, 10 * ONE, [0])


@behaviour("LOG-080")
def test_a_cut_below_the_first_segment_empties_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE)
    ten(log)
    log.truncate_fully_and_start_at(1)
    assert (log.log_end_offset, log.size) == (1, 0)
    ten(log)
    assert log.log_end_offset == 11
    assert log.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, log.size, bases_of(log)) == (0, 0, 0, [0])


@behaviour("LOG-081")
def test_indexes_are_trimmed_when_a_segment_is_left_and_grow_when_it_is_cut(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE, index_interval_bytes=ONE - 1, segment_index_bytes=1200)
    for number in range(20):
        lead(log, 1, timestamp_ms=NOW + number)
    assert bases_of(log) == [0, 10]
    first = log.segments[0]
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (9, 9)
    assert Path(first.offset_index.path).stat().st_size == 72
    log.truncate_to(0)
    assert log.active_segment is first
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (1200 // 8, 1200 // 12)
    assert Path(first.offset_index.path).stat().st_size == 1200
    ten(log)
    assert bases_of(log) == [0]


@pytest.mark.parametrize("unordered", [False, True])
def test_an_empty_log_that_is_rolled_never_forgets_where_it_ends(unordered: bool) -> None:
    disk = SimulatedFileSystem(ManualClock(NOW), unordered_directories=unordered)
    disk.make_directory("/data")
    disk.sync_all()
    a_log("/data", fs=disk).truncate_fully_and_start_at(3)
    for call in range(1, 10):
        again = disk.copy()
        log = a_log("/data", fs=again)
        assert log.log_end_offset == 3
        again.cut_at(again.calls + call)
        with suppress(PowerLost):
            log.roll()
        for seed in range(10, 24):
            assert a_log("/data", fs=again.after_crash(Random(seed))).log_end_offset == 3
