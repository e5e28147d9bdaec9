"""The segments of a partition on the disk: rolling, reading, truncating, flushing, renaming, deleting."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import FS, NOW, SMALL, Partition, a_segment, bases, batch, infos, offsets_in
from tidelog.errors import InvalidRequestError, LogClosedError, OffsetOutOfRangeError, StorageError
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.local_log import LocalLog
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.region import Region
from tidelog.log.segment import LogSegment
from tidelog.log.segments import LogSegments
from tidelog.log.tasks import Schedule

ALL = 1 << 20


class Local(LocalLog):
    """A log of one empty segment at 0, with appends of one record."""

    def __init__(self, directory: Path) -> None:
        self.manual_clock = ManualClock(NOW)
        directory.mkdir()
        segments = LogSegments()
        segments.add(a_segment(directory, 0, clock=self.manual_clock))
        super().__init__(
            FS,
            str(directory),
            SMALL,
            self.manual_clock,
            random.Random(1),
            Schedule(self.manual_clock),
            segments,
            recovery_point=0,
            log_end_offset=0,
        )

    def write(self, count: int = 1) -> None:
        """Append that many batches of one record."""
        for _ in range(count):
            data = batch(self.log_end.offset)
            self.append(data, infos(data))

    def fill(self, *counts: int) -> "Local":
        """Segments of that many records each."""
        for number, count in enumerate(counts):
            if number:
                self.roll()
            self.write(count)
        return self

    def read_to(self, offset: int, limit: OffsetMetadata | None = None) -> Region:
        return self.read(offset, ALL, limit or self.log_end)

    @property
    def bases(self) -> list[int]:
        return list(self.segments.base_offsets)

    def files(self, suffix: str = "") -> list[str]:
        return sorted(path.name for path in Path(self.directory).iterdir() if path.name.endswith(suffix))


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path / "orders-0")


def log_files(*base_offsets: int, suffix: str = "") -> list[str]:
    return [f"{base:020}.log{suffix}" for base in base_offsets]


# -- appending and rolling -------------------------------------------------------------------------------------------


@behaviour("LOC-001")
def test_appending_moves_the_log_end_and_not_the_recovery_point(local: Local) -> None:
    assert (local.bases, local.recovery_point, local.log_end) == ([0], 0, OffsetMetadata(0, 0, 0))
    data = batch(0, b"one", b"two")
    local.append(data, infos(data))
    assert (local.recovery_point, local.log_end) == (0, OffsetMetadata(2, 0, len(data)))
    assert offsets_in(local.read_to(0)) == [0, 1]


@behaviour("LOC-004")
def test_rolling_an_empty_segment_replaces_it_by_another_of_the_same_base(local: Local) -> None:
    old = local.segments.active
    new = local.roll()
    assert (local.bases, new.base_offset) == ([0], 0)
    assert local.segments.active is new
    assert new is not old
    assert local.files(".log") == log_files(0)
    assert local.files(".deleted") == log_files(0, suffix=".deleted")
    local.manual_clock.advance(local.config.file_delete_delay_ms)
    local.schedule.run_due()
    assert local.files(".deleted") == []
    assert local.files(".log") == log_files(0)


@behaviour("LOC-005")
def test_rolling_an_empty_log_to_its_own_base_lets_appends_go_on_there(local: Local) -> None:
    new = local.roll(0)
    assert (local.bases, new.base_offset) == ([0], 0)
    local.write()
    assert (local.log_end.offset, offsets_in(local.read_to(0))) == (1, [0])
    local.log_end = OffsetMetadata(0, 0, 0)  # as nobody leaves it: the segment is not empty
    with pytest.raises(InvalidRequestError, match="exists"):
        local.roll(0)


@behaviour("LOC-006")
def test_a_roll_begins_at_the_log_end_or_where_it_is_asked_to_if_that_is_higher(local: Local) -> None:
    local.write()
    assert local.roll().base_offset == 1
    local.write()
    assert local.roll(1).base_offset == 2
    local.write()
    assert local.roll(10).base_offset == 10
    assert local.bases == [0, 1, 2, 10]
    assert local.log_end == OffsetMetadata(10, 10, 0)  # as whoever opens this log next finds it


@behaviour("LOC-006")
def test_a_segment_that_is_left_has_trimmed_indexes(local: Local) -> None:
    local.write(5)
    left = local.segments.active
    assert Path(left.offset_index.path).stat().st_size == 2000
    local.roll()
    assert Path(left.offset_index.path).stat().st_size == 4 * 8
    assert list(left.time_index.reader())[-1] == (40, 4)


@behaviour("LOC-007")
def test_a_roll_below_the_active_segment_is_refused(local: Local) -> None:
    local.write(3)
    local.roll(10)
    local.log_end = OffsetMetadata(5, 10, 0)
    with pytest.raises(InvalidRequestError, match="begins at 10"):
        local.roll(6)
    assert local.bases == [0, 10]


@behaviour("LOC-030")
def test_a_changed_configuration_is_obeyed_at_once(local: Local, tmp_path: Path) -> None:
    local.config = replace(SMALL, file_delete_delay_ms=5, segment_index_bytes=80)
    local.write()
    segment = local.roll()
    assert segment.offset_index.max_size == 80

    partition = Partition(tmp_path / "other", segment_bytes=10_000)
    log = partition.open()
    for offset in range(3):
        log.append_as_follower(memoryview(batch(offset)))
    assert bases(log) == [0]
    log.config = replace(log.config, segment_bytes=3 * len(batch(0)))
    for offset in range(3, 6):
        log.append_as_follower(memoryview(batch(offset)))
    assert bases(log) == [0, 3]


# -- reading ---------------------------------------------------------------------------------------------------------


@behaviour("LOC-018")
def test_a_read_in_an_older_segment_goes_to_its_end(local: Local) -> None:
    local.fill(3, 3, 2)
    assert offsets_in(local.read_to(1)) == [1, 2]
    assert offsets_in(local.read_to(3)) == [3, 4, 5]
    assert offsets_in(local.read_to(7)) == [7]


@behaviour("LOC-018")
def test_a_read_in_the_segment_of_the_limit_goes_to_the_limit(local: Local) -> None:
    local.fill(3, 3)
    limit = local.locate(5)
    assert offsets_in(local.read_to(3, limit)) == [3, 4]
    assert offsets_in(local.read_to(0, limit)) == [0, 1, 2]


@behaviour("LOC-019")
def test_a_read_at_the_limit_is_empty_and_lies_at_the_limit(local: Local) -> None:
    local.fill(3, 3)
    for limit in (local.locate(4), local.log_end, OffsetMetadata(4)):
        region = local.read_to(limit.offset, limit)
        assert (region.start, region.size, region.read()) == (limit, 0, b"")


@behaviour("LOC-020")
def test_a_read_above_the_limit_is_empty_and_knows_its_place(local: Local) -> None:
    local.fill(3, 3)
    region = local.read_to(4, local.locate(1))
    assert (region.start, region.size) == (OffsetMetadata(4, 3, len(batch(3))), 0)
    at_end = local.read_to(6, local.locate(1))
    assert (at_end.start, at_end.size) == (local.log_end, 0)


@behaviour("LOC-021")
@pytest.mark.parametrize("limit", [OffsetMetadata(5), OffsetMetadata(5, 0, 0)])
def test_a_read_whose_limit_has_no_place_behind_it_is_empty(local: Local, limit: OffsetMetadata) -> None:
    local.fill(3, 3)
    region = local.read_to(4, limit)
    assert (region.start, region.size) == (OffsetMetadata(4, 3, len(batch(3))), 0)


def test_a_read_behind_the_log_end_or_before_the_first_segment_is_out_of_range(local: Local) -> None:
    local.write(2)
    with pytest.raises(OffsetOutOfRangeError):
        local.read_to(3)
    local.truncate_fully(10)
    with pytest.raises(OffsetOutOfRangeError):
        local.read_to(9)


def test_a_read_goes_on_in_the_next_segment_where_the_end_of_one_was_compacted_away(local: Local) -> None:
    local.fill(3)
    local.roll(10)
    local.log_end = OffsetMetadata(10, 10, 0)
    local.write(2)
    assert offsets_in(local.read_to(5)) == [10, 11]


@behaviour("LOC-022")
def test_inactive_segments_from_an_offset(local: Local) -> None:
    local.fill(1, 1, 1, 1, 1, 1)
    assert [segment.base_offset for segment in local.segments.inactive_from(2)] == [2, 3, 4]
    assert local.segments.inactive_from(5) == ()
    assert local.segments.inactive_from(6) == ()


# -- flushing --------------------------------------------------------------------------------------------------------


@behaviour("LOC-010")
def test_a_flush_is_noted_with_its_time(local: Local) -> None:
    local.write()
    segment = local.roll()
    local.manual_clock.advance(77)
    local.flush(segment.base_offset)
    assert (local.recovery_point, local.last_flushed_ms) == (0, NOW)
    local.mark_flushed(segment.base_offset)
    assert (local.recovery_point, local.last_flushed_ms) == (1, NOW + 77)
    local.manual_clock.advance(1)
    local.mark_flushed(0)  # what is on the disk stays there
    assert (local.recovery_point, local.last_flushed_ms) == (1, NOW + 77)


@behaviour("LOC-011")
def test_a_flush_does_not_mind_that_its_directory_was_renamed_meanwhile(local: Local) -> None:
    local.fill(1, 1)
    for segment in local.segments:
        segment.flush()  # all files are open
    Path(local.directory).rename(local.directory + ".gone")
    local.flush(2)
    local.mark_flushed(2)
    assert local.recovery_point == 2


# -- truncating and deleting -----------------------------------------------------------------------------------------


@behaviour("LOC-014")
def test_segments_are_removed_at_once_or_after_the_delay(local: Local) -> None:
    local.fill(1, 1, 1, 1)
    first, second, third, _ = local.segments
    local.remove([first], at_once=True)
    assert local.bases == [1, 2, 3]
    assert local.files(".log") == log_files(1, 2, 3)
    assert local.files(".deleted") == []
    local.remove([second, third])
    assert local.bases == [3]
    assert [name for name in local.files(".deleted") if ".log" in name] == log_files(1, 2, suffix=".deleted")
    local.manual_clock.advance(local.config.file_delete_delay_ms - 1)
    local.schedule.run_due()
    assert local.files(".deleted") != []
    local.manual_clock.advance(1)
    local.schedule.run_due()
    assert local.files(".deleted") == []
    assert local.files(".log") == log_files(3)


@behaviour("LOC-015")
def test_replacing_the_active_segment_moves_the_log_end_and_not_the_recovery_point(local: Local) -> None:
    local.fill(1, 1)
    gone = local.truncate_fully(9)
    assert [segment.base_offset for segment in gone] == [0, 1]
    assert (local.bases, local.log_end, local.recovery_point) == ([9], OffsetMetadata(9, 9, 0), 0)
    assert [name for name in local.files(".deleted") if ".log" in name] == log_files(0, 1, suffix=".deleted")


@behaviour("LOC-016")
def test_a_full_truncation_leaves_one_empty_segment(local: Local) -> None:
    local.fill(3, 3, 3, 3, 3)
    local.mark_flushed(5)
    gone = local.truncate_fully(10)
    assert [segment.base_offset for segment in gone] == [0, 3, 6, 9, 12]
    assert (local.bases, local.segments.size) == ([10], 0)
    assert (local.log_end.offset, local.recovery_point) == (10, 5)
    local.write()
    assert offsets_in(local.read_to(10)) == [10]


@behaviour("LOC-017")
def test_a_truncation_removes_the_segments_behind_it_and_appends_go_on(local: Local) -> None:
    local.fill(3, 3, 3, 3, 3)
    gone = local.truncate_to(7)
    assert [segment.base_offset for segment in gone] == [9, 12]
    assert (local.bases, local.log_end.offset) == ([0, 3, 6], 7)
    assert offsets_in(local.read_to(6)) == [6]
    local.write()
    assert (local.log_end.offset, offsets_in(local.read_to(6))) == (8, [6, 7])


@behaviour("LOC-017")
def test_a_truncation_lowers_the_recovery_point(local: Local) -> None:
    local.fill(3, 3)
    local.mark_flushed(6)
    local.truncate_to(4)
    assert local.recovery_point == 4


@behaviour("LOC-002", "LOC-003")
def test_a_log_is_deleted_segments_first_and_then_its_directory(local: Local) -> None:
    local.fill(1, 1)
    with pytest.raises(InvalidRequestError, match="2 segments"):
        local.delete_directory()
    assert [segment.base_offset for segment in local.delete()] == [0, 1]
    assert (len(local.segments), local.files()) == (0, [])
    with pytest.raises(LogClosedError):
        local.roll()
    with pytest.raises(LogClosedError):
        local.truncate_fully(0)
    local.delete_directory()
    assert not Path(local.directory).exists()


# -- renaming and closing --------------------------------------------------------------------------------------------


@behaviour("LOC-008", "LOC-009")
def test_renaming_the_directory_moves_every_segment(local: Local) -> None:
    local.fill(2, 2)
    old = Path(local.directory)
    assert not local.rename("orders-0")
    assert local.rename("orders-0.0123456789abcdef0123456789abcdef-delete")
    new = Path(local.directory)
    assert (old.exists(), new.exists(), new.parent) == (False, True, old.parent)
    for segment in local.segments:
        for file in (segment.log, segment.offset_index, segment.time_index, segment.txn_index):
            assert Path(file.path).parent == new
    local.write()
    local.roll()
    assert not old.exists()
    assert offsets_in(local.read_to(2)) == [2, 3, 4]


def appends(log: UnifiedLog) -> Callable[[], object]:
    return lambda: log.append_as_follower(memoryview(batch(log.log_end_offset)))


@behaviour("LOC-012")
def test_a_closed_log_takes_nothing_and_can_be_closed_again(tmp_path: Path) -> None:
    log = Partition(tmp_path).open()
    appends(log)()
    log.close()
    size = Path(log.active_segment.log.path).stat().st_size
    for use in (appends(log), lambda: log.read(0, 1), lambda: log.roll(), lambda: log.truncate_to(0)):
        with pytest.raises(LogClosedError):
            use()
    log.close()
    assert Path(log.active_segment.log.path).stat().st_size == size == len(batch(0))


@behaviour("LOC-013")
def test_after_giving_back_its_files_a_log_can_neither_be_closed_nor_appended_to(tmp_path: Path) -> None:
    log = Partition(tmp_path).open()
    appends(log)()
    log.release()
    log.release()
    with pytest.raises(StorageError):
        log.close()
    with pytest.raises(StorageError):
        appends(log)()


def test_a_closed_segment_has_no_room_to_spare(local: Local) -> None:
    local.fill(3, 3)
    segments: list[LogSegment] = list(local.segments)
    local.close()
    local.close()
    for segment in segments:
        assert Path(segment.offset_index.path).stat().st_size == 2 * 8
        assert Path(segment.time_index.path).stat().st_size == 2 * 12
