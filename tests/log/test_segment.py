"""One segment: what Kafka's own tests say of appending, reading, truncating, rolling and recovering it."""

import random
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import (
    FS,
    NOW,
    SMALL,
    a_segment,
    all_offsets,
    batch,
    offsets_in,
    open_segment,
    write,
)
from tidelog.errors import OffsetOverflowError
from tidelog.log import LogConfig, ManualClock
from tidelog.log.offsets import OffsetMetadata, TimestampAndOffset
from tidelog.log.segment import LogSegment
from tidelog.records.java import MAX_INT32

ALL = 1 << 20


def read(segment: LogSegment, offset: int, max_bytes: int = ALL) -> list[int]:
    return offsets_in(segment.read(offset, max_bytes, segment.size))


# -- appending -------------------------------------------------------------------------------------------------------


@behaviour("SEG-001")
@pytest.mark.parametrize(("base", "offset"), [(0, MAX_INT32 + 1), (100, 10), (1, MAX_INT32 + 2), (1 << 40, 0)])
def test_an_offset_that_no_index_entry_can_express_is_refused_and_nothing_is_written(
    tmp_path: Path, base: int, offset: int
) -> None:
    segment = a_segment(tmp_path, base)
    with pytest.raises(OffsetOverflowError):
        write(segment, batch(offset, timestamp_ms=1))
    assert (segment.size, segment.offset_index.entries) == (0, 0)


@behaviour("SEG-001")
@pytest.mark.parametrize(("base", "offset"), [(0, MAX_INT32), (100, 100), (100, MAX_INT32 + 100)])
def test_the_last_offset_that_an_index_entry_can_express_is_taken(tmp_path: Path, base: int, offset: int) -> None:
    segment = a_segment(tmp_path, base, batch(offset, timestamp_ms=1))
    assert segment.next_offset() == offset + 1


@behaviour("SEG-012")
def test_every_second_message_gets_a_time_entry_where_the_interval_is_just_under_two(tmp_path: Path) -> None:
    config = LogConfig(segment_index_bytes=1000, index_interval_bytes=2 * len(batch(40)) - 1)
    segment = a_segment(tmp_path, 40, *(batch(offset) for offset in range(40, 70)), config=config)
    assert (segment.time_index.entries, segment.offset_index.entries) == (14, 14)
    assert list(segment.offset_index.reader())[0] == (42, 2 * len(batch(40)))


@behaviour("SEG-037")
def test_one_append_of_several_batches_indexes_each_and_only_growing_timestamps_by_time(tmp_path: Path) -> None:
    times = [5, 10, 3, 10, 20, 1]
    data = b"".join(batch(number, timestamp_ms=time) for number, time in enumerate(times))
    segment = a_segment(tmp_path)
    write(segment, data)
    size = len(batch(0))
    assert list(segment.offset_index.reader()) == [(number, number * size) for number in range(1, 6)]
    assert list(segment.time_index.reader()) == [(10, 1), (20, 4)]
    assert segment.max_timestamp == (20, 4)


@behaviour("SEG-037")
def test_batches_of_one_append_are_indexed_as_if_they_had_come_one_by_one(tmp_path: Path) -> None:
    batches = [batch(number, b"v" * (number % 7 * 9), timestamp_ms=number * 37 % 50) for number in range(60)]
    config = LogConfig(segment_index_bytes=1000, index_interval_bytes=200)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    alone = a_segment(tmp_path / "a", 0, *batches, config=config)
    together = a_segment(tmp_path / "b", 0, config=config)
    write(together, b"".join(batches))
    for segment in (alone, together):
        segment.become_inactive()
    for name in (f"{0:020}.log", f"{0:020}.index", f"{0:020}.timeindex"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert 5 < alone.offset_index.entries < 60


@behaviour("SEG-027")
def test_the_first_timestamp_is_later_than_any_time_until_there_is_a_batch(tmp_path: Path) -> None:
    segment = a_segment(tmp_path)
    assert segment.first_batch_timestamp_ms == 2**63 - 1
    write(segment, batch(0, timestamp_ms=1000))
    write(segment, batch(1, timestamp_ms=10))
    assert segment.first_batch_timestamp_ms == 1000
    assert open_segment(tmp_path).first_batch_timestamp_ms == 1000


# -- reading ---------------------------------------------------------------------------------------------------------


@behaviour("SEG-002")
def test_nothing_is_read_from_an_empty_segment(tmp_path: Path) -> None:
    assert a_segment(tmp_path, 40).read(40, 300, 0) is None


@behaviour("SEG-003")
def test_an_offset_before_the_first_batch_is_read_from_the_first_batch(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40, batch(50, b"hello", b"there", b"little", b"bee"))
    assert read(segment, 41) == [50, 51, 52, 53]


@behaviour("SEG-004")
def test_nothing_is_read_behind_the_last_offset(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40, batch(50, b"hello", b"there"))
    assert segment.read(52, 200, segment.size) is None
    assert read(segment, 51) == [50, 51]


@behaviour("SEG-005")
def test_an_offset_in_a_gap_is_read_from_the_next_batch(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40, batch(50, b"hello", b"there"), batch(60, b"alpha", b"beta"))
    assert read(segment, 55) == [60, 61]


@behaviour("SEG-006")
@pytest.mark.parametrize("at_least_one", [True, False])
def test_without_a_known_limit_a_read_gives_a_place_and_no_bytes(tmp_path: Path, at_least_one: bool) -> None:
    first = batch(50, b"hello", b"there")
    segment = a_segment(tmp_path, 40, first, batch(52, b"alpha"))
    region = segment.read(52, 300, None, at_least_one=at_least_one)
    assert region is not None
    assert (region.start, region.size, region.read()) == (OffsetMetadata(52, 40, len(first)), 0, b"")


def test_a_read_is_cut_at_its_size_and_at_least_one_batch_is_whole_on_demand(tmp_path: Path) -> None:
    first, second = batch(0, b"hello"), batch(1, b"there")
    segment = a_segment(tmp_path, 0, first, second)
    cut = segment.read(0, len(first) + 5, segment.size)
    short = segment.read(0, 5, segment.size)
    whole = segment.read(0, 5, segment.size, at_least_one=True)
    assert cut is not None
    assert short is not None
    assert whole is not None
    assert (cut.read(), cut.is_first_batch_incomplete) == (bytes(first + second[:5]), False)
    assert (short.read(), short.is_first_batch_incomplete) == (bytes(first[:5]), True)
    assert (whole.read(), whole.is_first_batch_incomplete) == (bytes(first), False)


@behaviour("SEG-014")
def test_a_time_is_answered_by_the_first_record_at_or_behind_it(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40, *(batch(offset, b"msg") for offset in range(40, 50)))
    assert segment.largest_timestamp_ms == 490
    answers = {420: 42, 421: 43, 430: 43, 431: 44, 399: 40, 400: 40, 401: 41, 490: 49}
    for target, offset in answers.items():
        assert segment.find_time(target, 40) == TimestampAndOffset(offset * 10, offset, 0), target
    assert segment.find_time(491, 40) is None
    assert segment.find_time(400, 45) == TimestampAndOffset(450, 45, 0)


@behaviour("SEG-015")
def test_the_next_offset_is_the_base_until_something_is_appended(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40)
    assert segment.next_offset() == 40
    write(segment, batch(50, b"hello", b"there", b"you"))
    assert segment.next_offset() == 53


# -- truncating ------------------------------------------------------------------------------------------------------


@behaviour("SEG-007")
def test_truncating_to_what_was_just_appended_leaves_the_one_before_again_and_again(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40)
    for offset in range(40, 70):
        write(segment, batch(offset))
        write(segment, batch(offset + 1))
        assert read(segment, offset) == [offset, offset + 1]
        assert segment.truncate_to(offset + 1) == len(batch(offset + 1))
        assert read(segment, offset) == [offset]
        assert segment.next_offset() == offset + 1
    assert all_offsets(segment) == list(range(40, 70))


@behaviour("SEG-025")
def test_truncating_into_a_gap_removes_the_batch_behind_it(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40, batch(40), batch(43))
    segment.truncate_to(41)
    assert segment.size == len(batch(40))
    assert all_offsets(segment) == [40]


@behaviour("SEG-008", "SEG-009", "SEG-010")
def test_truncating_an_empty_segment_gives_its_indexes_room_again(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    closed = a_segment(tmp_path, 0, clock=clock)
    assert (closed.offset_index.entries, closed.time_index.entries) == (0, 0)
    closed.close()
    segment = LogSegment.open(FS, str(tmp_path), 0, SMALL, clock, random.Random(1))
    assert (segment.time_index.size_in_bytes, segment.offset_index.size_in_bytes) == (0, 0)
    assert segment.offset_index.is_full
    assert segment.time_index.is_full

    segment.truncate_to(57)

    assert segment.waited_ms(clock.now_ms(), 100) == 0
    assert not segment.offset_index.is_full
    assert not segment.time_index.is_full
    config = LogConfig(segment_bytes=1024, segment_ms=1000, segment_index_bytes=1000)
    assert not segment.should_roll(config, 100, NOW, 100, clock.now_ms())
    clock.advance(1001)  # an empty segment does not age
    assert not segment.should_roll(config, 100, NOW + 1001, 100, clock.now_ms())
    assert segment.should_roll(config, 100, NOW, MAX_INT32 + 200, clock.now_ms())


@behaviour("SEG-009")
def test_a_segment_with_a_batch_is_rolled_when_record_time_says_so(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1024, segment_ms=1000, segment_index_bytes=1000)
    segment = a_segment(tmp_path, 0, batch(0, timestamp_ms=500), config=config)
    assert not segment.should_roll(config, 100, 1500, 1, NOW)
    assert segment.should_roll(config, 100, 1501, 1, NOW)
    assert segment.should_roll(config, 1024 - segment.size + 1, 500, 1, NOW)


@behaviour("SEG-011", "SEG-012")
def test_truncation_looks_up_largest_timestamp_and_next_offset_again(tmp_path: Path) -> None:
    config = LogConfig(segment_index_bytes=1000, index_interval_bytes=2 * len(batch(40)) - 1)
    segment = a_segment(tmp_path, 40, *(batch(offset) for offset in range(40, 70)), config=config)
    assert (segment.next_offset(), segment.time_index.entries) == (70, 14)
    segment.truncate_to(41)
    assert segment.time_index.entries == 0
    assert segment.largest_timestamp_ms == 400
    assert segment.next_offset() == 41


@behaviour("SEG-013")
def test_truncating_all_of_a_segment_begins_its_age_anew_and_takes_the_same_offsets_again(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    segment = a_segment(tmp_path, 40, batch(40, b"hello", b"there", timestamp_ms=-1), clock=clock)
    clock.advance(500)
    assert segment.waited_ms(clock.now_ms(), -1) == 500
    segment.truncate_to(0)
    assert segment.waited_ms(clock.now_ms(), -1) == 0
    assert not segment.time_index.is_full
    assert not segment.offset_index.is_full
    assert segment.read(0, 1024, segment.size) is None
    write(segment, batch(40, b"hello", b"there"))
    assert all_offsets(segment) == [40, 41]


def test_truncation_after_a_reopening_leaves_entries_that_are_still_right(tmp_path: Path) -> None:
    a_segment(tmp_path, 0, *(batch(offset) for offset in range(20))).close()
    segment = open_segment(tmp_path)
    segment.truncate_to(7)
    for offset in range(7, 12):
        write(segment, batch(offset))
    for offset in range(12):
        assert read(segment, offset)[0] == offset
    assert segment.wrong_index is None


# -- files -----------------------------------------------------------------------------------------------------------


@behaviour("SEG-016")
def test_index_files_appear_when_they_are_first_used_and_under_the_name_they_have_then(tmp_path: Path) -> None:
    def names() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir())

    segment = a_segment(tmp_path, 40)
    assert names() == [f"{40:020}.log"]
    segment.change_suffix("", ".deleted")
    assert names() == [f"{40:020}.log.deleted"]
    assert segment.offset_index.entries == 0
    assert segment.time_index.entries == 0
    assert names() == [f"{40:020}.index.deleted", f"{40:020}.log.deleted", f"{40:020}.timeindex.deleted"]


@behaviour("SEG-016")
def test_index_files_that_exist_are_renamed_with_the_log_and_used_on(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 40, *(batch(offset) for offset in range(40, 45)))
    segment.change_suffix("", ".swap")
    write(segment, batch(45))
    segment.change_suffix(".swap", "")
    segment.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{40:020}.index",
        f"{40:020}.log",
        f"{40:020}.timeindex",
    ]
    assert [entry.offset for entry in open_segment(tmp_path, 40).offset_index.reader()] == [41, 42, 43, 44, 45]


@behaviour("SEG-028")
def test_a_segment_without_transaction_index_can_be_deleted(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 0, batch(0), batch(1))
    assert not segment.txn_index.exists()
    segment.delete()
    assert list(tmp_path.iterdir()) == []


@behaviour("SEG-024")
def test_a_preallocated_segment_is_as_long_as_its_batches_once_it_is_closed(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=512 << 20, segment_index_bytes=1000, index_interval_bytes=10)
    segment = a_segment(
        tmp_path, 40, batch(50, b"hello", b"there"), batch(60, b"alpha", b"beta"), config=config, preallocate=True
    )
    path = tmp_path / f"{40:020}.log"
    assert path.stat().st_size == 512 << 20
    assert read(segment, 55) == [60, 61]
    size = segment.size
    segment.close()
    assert path.stat().st_size == size

    again = open_segment(tmp_path, 40, config)
    assert again.size == size
    assert read(again, 55) == [60, 61]
    write(again, batch(62))
    assert path.stat().st_size == size + len(batch(62))


def test_closing_writes_the_largest_timestamp_as_the_last_time_entry(tmp_path: Path) -> None:
    config = LogConfig(segment_index_bytes=1000, index_interval_bytes=4096)
    a_segment(
        tmp_path, 0, *(batch(offset, timestamp_ms=time) for offset, time in enumerate([3, 9, 4])), config=config
    ).close()
    segment = open_segment(tmp_path, 0, config)
    assert list(segment.time_index.reader()) == [(9, 1)]
    assert segment.max_timestamp == (9, 1)
