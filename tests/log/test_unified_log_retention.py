"""What a log lets go: below its start, beyond its size, older than its time, and never above the high watermark."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    HOUR,
    NOW,
    a_log,
    all_replicated,
    bases_of,
    batch,
    clock_of,
    epochs_of,
    fill,
    lead,
    names_in,
    of_producer,
    offsets_in,
    snapshots_of,
)
from tidelog.errors import OffsetOutOfRangeError
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.names import SEGMENT_SUFFIXES
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

ONE = len(batch(1))
OLD = NOW - HOUR


def three_segments(tmp_path: Path | str, *, timestamp_ms: int = NOW, **topic: Any) -> UnifiedLog:
    """Fifteen records in segments of five, all replicated."""
    log = a_log(tmp_path, **{"segment_bytes": 5 * ONE, **topic})
    for _ in range(15):
        lead(log, 1, timestamp_ms=timestamp_ms)
    assert bases_of(log) == [0, 5, 10]
    all_replicated(log)
    return log


def let_delay_pass(log: UnifiedLog) -> None:
    clock_of(log).advance(log.config.file_delete_delay_ms)
    log.tick()


def test_deletion_of_several_segments_leaves_no_hole_whatever_order_directory_changes_reach_the_disk_in() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW), unordered_directories=True)
    disk.make_directory("/data")
    disk.sync_all()
    log = a_log("/data", fs=disk, segment_bytes=5 * ONE, retention_bytes=5 * ONE)
    for _ in range(20):
        lead(log, 1)
    all_replicated(log)
    log.flush()
    for call in range(1, 30):
        again = disk.copy()
        log = a_log("/data", fs=again, segment_bytes=5 * ONE, retention_bytes=5 * ONE)
        all_replicated(log)
        again.cut_at(again.calls + call)
        with suppress(PowerLost):
            log.delete_old_segments()
        for seed in range(8):
            found = offsets_in(a_log("/data", fs=again.after_crash(Random(seed))))
            assert found == list(range(20))[-len(found) :]


@pytest.mark.parametrize("is_rolled", [False, True])
def test_deletion_does_not_forget_where_the_log_ends_whatever_reaches_the_disk(is_rolled: bool) -> None:
    disk = SimulatedFileSystem(ManualClock(NOW), unordered_directories=True)
    disk.make_directory("/data")
    disk.sync_all()
    log = a_log("/data", fs=disk, retention_bytes=0)
    lead(log, 3)
    all_replicated(log)
    log.flush()
    disk.sync_all()
    for call in range(1, 14):
        again = disk.copy()
        log = a_log("/data", fs=again, retention_bytes=0, recovery_point=3)
        all_replicated(log)
        again.sync_all()
        if is_rolled:
            log.roll()
        again.cut_at(again.calls + call)
        with suppress(PowerLost):
            log.delete_old_segments()
        for seed in range(12):
            assert a_log("/data", fs=again.after_crash(Random(seed))).log_end_offset == 3


def test_what_goes_is_not_flushed_before() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = three_segments("/data", fs=disk, retention_bytes=5 * ONE)
    before = len(disk.journal)
    assert log.delete_old_segments() == 2
    synced = [str(call) for call in list(disk.journal)[before:] if " sync /" in f" {call}"]
    assert [name for name in synced if name.endswith(f"{10:020}.log")]
    assert not [name for name in synced if f"{0:020}" in name or f"{5:020}" in name]
    assert log.recovery_point >= log.log_start_offset == 10


def test_a_host_that_waits_for_the_disk_elsewhere_is_given_the_flush_as_a_task() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = a_log("/data", fs=disk, segment_bytes=5 * ONE, retention_bytes=5 * ONE)
    log.local.schedule.take_disk_tasks()
    for _ in range(15):
        lead(log, 1)
    all_replicated(log)
    for task in log.local.schedule.take_disk_tasks():
        task.abandon()  # as if the disk were slow
    before = len(disk.journal)
    assert log.delete_old_segments() == 0
    assert list(disk.journal)[before:] == []
    for task in log.local.schedule.take_disk_tasks():
        task.step(0)
        task.finish()
    lead(log, 1)  # which is not flushed, and not needed
    assert log.delete_old_segments() == 2
    assert bases_of(log)[0] == 10


# -- by the log start --------------------------------------------------------------------------------------------------


@behaviour("LOG-098")
def test_segments_wholly_below_the_log_start_go(tmp_path: Path) -> None:
    log = three_segments(tmp_path)
    for start, bases in ((1, [0, 5, 10]), (6, [5, 10]), (15, [10])):
        assert log.delete_records(start)
        log.delete_old_segments()
        assert (log.log_start_offset, bases_of(log)) == (start, bases)


@behaviour("LOG-120")
def test_the_log_start_cannot_be_raised_past_the_high_watermark(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 100)
    log.update_high_watermark(25)
    with pytest.raises(OffsetOutOfRangeError) as refusal:
        log.delete_records(26)
    assert (refusal.value.error_code, log.log_start_offset) == (1, 0)
    assert log.delete_records(25)
    assert not log.delete_records(25)


@behaviour("LOG-038")
def test_a_log_start_behind_two_segments_takes_their_snapshots_along(tmp_path: Path) -> None:
    log = a_log(tmp_path, file_delete_delay_ms=0)
    for sequence in range(3):
        if sequence:
            log.roll()
        lead(log, of_producer(1, sequence))
    all_replicated(log)
    assert snapshots_of(log) == [1, 2]
    log.delete_records(2)
    assert log.delete_old_segments() == 2
    let_delay_pass(log)
    assert (bases_of(log), snapshots_of(log)) == ([2], [2])


@behaviour("LOG-103")
def test_a_compacted_log_lets_go_what_lies_below_its_start(tmp_path: Path) -> None:
    log = three_segments(tmp_path, timestamp_ms=OLD, retention_ms=10_000, cleanup_policy=("compact",))
    log.delete_records(5)
    assert log.delete_old_segments() == 1
    assert bases_of(log) == [5, 10]


@behaviour("LOG-134")
def test_without_any_policy_only_the_log_start_lets_segments_go(tmp_path: Path) -> None:
    log = three_segments(tmp_path, timestamp_ms=OLD, retention_ms=10_000, retention_bytes=0, cleanup_policy=())
    assert log.delete_old_segments() == 0
    log.delete_records(5)
    assert log.delete_old_segments() == 1
    assert bases_of(log) == [5, 10]


# -- by size -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kept", "bases"), [(10, [5, 10]), (15, [0, 5, 10]), (14, [0, 5, 10])])
@behaviour("LOG-099")
def test_the_oldest_segments_go_while_enough_bytes_are_left(tmp_path: Path, kept: int, bases: list[int]) -> None:
    log = three_segments(tmp_path, retention_bytes=kept * ONE)
    log.delete_old_segments()
    assert bases_of(log) == bases


# -- by time -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-100")
def test_old_segments_go_and_fresh_ones_stay(tmp_path: Path) -> None:
    log = three_segments(tmp_path, timestamp_ms=10, retention_ms=10_000)
    assert log.delete_old_segments() == 3
    assert (bases_of(log), log.size) == ([15], 0)
    fresh = three_segments(tmp_path / "fresh", retention_ms=10_000)
    clock_of(fresh).advance(10_000)
    assert fresh.delete_old_segments() == 0
    clock_of(fresh).advance(1)
    assert fresh.delete_old_segments() == 3


@behaviour("LOG-101", "LOG-102")
def test_a_compacted_log_forgets_by_time_only_if_told_to(tmp_path: Path) -> None:
    log = three_segments(tmp_path, timestamp_ms=OLD, retention_ms=10_000, cleanup_policy=("compact",))
    os.utime(log.segments[0].log.path, (OLD / 1000, OLD / 1000))
    assert log.delete_old_segments() == 0
    both = three_segments(
        tmp_path / "both", timestamp_ms=OLD, retention_ms=10_000, cleanup_policy=("compact", "delete")
    )
    assert both.delete_old_segments() == 3
    assert bases_of(both) == [15]


@pytest.mark.parametrize("count", [0, 1, 25])
@behaviour("LOG-064")
def test_a_log_that_lets_all_go_keeps_its_end(tmp_path: Path, count: int) -> None:
    log = a_log(tmp_path, segment_bytes=ONE, retention_ms=0)
    for _ in range(count):
        lead(log, 1, timestamp_ms=NOW - 10)
    all_replicated(log)
    assert log.delete_old_segments() == count
    assert (bases_of(log), log.size, log.log_end_offset) == ([count], 0, count)
    assert log.delete_old_segments() == 0
    assert lead(log, 1).first_offset == count


@behaviour("LOG-104")
def test_a_log_start_can_clear_the_way_for_time(tmp_path: Path) -> None:
    log = a_log(tmp_path, retention_ms=900)
    for number, timestamp_ms in enumerate((NOW + 100, NOW, NOW + 100)):
        if number:
            log.roll()
        lead(log, 1, timestamp_ms=timestamp_ms)
    all_replicated(log)
    clock_of(log).advance(901)
    assert log.delete_old_segments() == 0
    log.delete_records(1)
    assert log.delete_old_segments() == 2
    assert log.delete_old_segments() == 0
    assert bases_of(log) == [2]


# -- which of them -----------------------------------------------------------------------------------------------------


@behaviour("LOG-128")
def test_the_first_segment_that_must_stay_ends_the_walk(tmp_path: Path) -> None:
    log = a_log(tmp_path, retention_ms=10_000)
    for number, timestamp_ms in enumerate((OLD, OLD, NOW, OLD, OLD)):
        if number:
            log.roll()
        lead(log, 1, timestamp_ms=timestamp_ms)
    all_replicated(log)
    assert log.delete_old_segments() == 2
    assert bases_of(log) == [2, 3, 4]
    log.delete_records(3)
    log.config = replace(log.config, retention_ms=-1)
    assert log.delete_old_segments() == 1  # the one whose successor begins at the log start
    assert bases_of(log) == [3, 4]


@pytest.mark.parametrize(("last", "deleted"), [(1, 10), (0, 9)])
@behaviour("LOG-129")
def test_the_active_segment_goes_only_with_something_in_it(tmp_path: Path, last: int, deleted: int) -> None:
    log = a_log(tmp_path, retention_ms=10_000)
    fill(log, [1] * 9 + [last], timestamp_ms=OLD)
    assert len(log.segments) == 10
    all_replicated(log)
    active = log.active_segment
    assert log.delete_old_segments() == deleted
    assert (len(log.segments), log.size) == (1, 0)
    assert (log.active_segment is active) == (not last)


@behaviour("LOG-095")
def test_nothing_at_or_above_the_high_watermark_goes(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=5 * ONE, retention_ms=999)
    for _ in range(100):
        lead(log, 1, timestamp_ms=OLD)
    assert log.delete_old_segments() == 0
    assert (log.log_start_offset, len(log.segments)) == (0, 20)
    for high_watermark in range(25, 31):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments()
        assert log.log_start_offset == bases_of(log)[0] == high_watermark // 5 * 5


# -- what goes with a segment ------------------------------------------------------------------------------------------


@behaviour("LOG-082")
def test_deleted_segments_are_renamed_at_once_and_gone_after_the_delay(tmp_path: Path) -> None:
    log = three_segments(tmp_path, timestamp_ms=OLD, retention_ms=999, file_delete_delay_ms=1000)
    log.flush()
    before = [name for name in names_in(log) if name.endswith(SEGMENT_SUFFIXES)]
    assert len(before) == 9
    log.delete_old_segments()
    assert {f"{name}.deleted" for name in before} <= set(names_in(log, ".deleted"))
    assert not {*before} & {*names_in(log)}
    clock_of(log).advance(999)
    log.tick()
    assert {f"{name}.deleted" for name in before} <= set(names_in(log, ".deleted"))
    clock_of(log).advance(1)
    log.tick()
    assert names_in(log, ".deleted") == []


@pytest.mark.parametrize("has_empty_active", [False, True])
@behaviour("LOG-037")
def test_the_snapshots_of_deleted_segments_go_and_the_one_at_the_log_end_stays(
    tmp_path: Path, has_empty_active: bool
) -> None:
    log = a_log(tmp_path, retention_bytes=0, retention_ms=60_000, file_delete_delay_ms=0)
    for sequence in range(3):
        if sequence:
            log.roll()
        lead(log, of_producer(1, sequence))
    if has_empty_active:
        log.roll()
    all_replicated(log)
    assert snapshots_of(log) == ([1, 2, 3] if has_empty_active else [1, 2])
    clock_of(log).advance(60_001)
    log.delete_old_segments()
    let_delay_pass(log)
    assert (snapshots_of(log), log.log_start_offset) == ([3], 3)


@behaviour("LOG-096")
def test_when_all_segments_go_the_latest_epoch_begins_at_the_log_end(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=5 * ONE, retention_ms=999)
    for epoch, count in ((0, 4), (1, 6)):
        for _ in range(count):
            lead(log, 1, timestamp_ms=OLD, epoch=epoch)
    all_replicated(log)
    log.delete_old_segments()
    assert (bases_of(log), log.size) == ([10], 0)
    assert epochs_of(log) == [(1, 10)]


@pytest.mark.parametrize(
    ("given", "left"),
    [([(0, 5), (1, 5), (2, 5)], [(1, 5), (2, 10)]), ([(0, 7), (1, 3), (2, 5)], [(0, 5), (1, 7), (2, 10)])],
)
@behaviour("LOG-107")
def test_epochs_begin_no_earlier_than_the_log(
    tmp_path: Path, given: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    log = a_log(tmp_path, segment_bytes=5 * ONE, retention_bytes=10 * ONE)
    for epoch, count in given:
        for _ in range(count):
            lead(log, 1, epoch=epoch)
    all_replicated(log)
    assert log.delete_old_segments() == 1
    assert epochs_of(log) == left
    log.tick()
    assert [tuple(entry) for entry in log.leader_epochs.checkpoint.read()] == left
