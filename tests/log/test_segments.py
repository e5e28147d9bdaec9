"""The map of segments by base offset."""

import os
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import a_segment, batch, open_segment
from tidelog.errors import InvalidRequestError
from tidelog.log.names import LOG_SUFFIX, SEGMENT_SUFFIXES, file_name
from tidelog.log.segment import LogSegment
from tidelog.log.segments import LogSegments
from tidelog.records.java import MAX_INT32


def segments_of(directory: Path, *bases: int) -> LogSegments:
    """Empty segments at these base offsets, added in this order."""
    segments = LogSegments()
    for base in bases:
        segments.add(a_segment(directory, base))
    return segments


def base_of(segment: LogSegment | None) -> int | None:
    return None if segment is None else segment.base_offset


def bases_of(segments: tuple[LogSegment, ...]) -> list[int]:
    return [segment.base_offset for segment in segments]


def test_segments_are_in_order_of_their_base_however_they_came(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, 5, 1, 7, 3)
    assert segments.base_offsets == (1, 3, 5, 7)
    assert (segments.first.base_offset, segments.active.base_offset, len(segments)) == (1, 7, 4)
    segments.remove(7)
    segments.remove(1)
    assert (segments.first.base_offset, segments.active.base_offset, len(segments)) == (3, 5, 2)
    segments.clear()
    assert not segments
    assert segments.get(3) is None


@behaviour("SEG-029")
def test_a_segment_replaces_the_one_of_the_same_base(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, 0, 2)
    old, new = segments.get(0), open_segment(tmp_path, 0)
    assert segments.add(new) is old
    assert segments.get(0) is new
    assert segments.base_offsets == (0, 2)


@behaviour("SEG-030")
def test_segments_between_two_offsets_go_by_their_bases(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, 0, 1, 2, 3, 4)
    assert bases_of(segments.between(1, 1)) == []
    assert bases_of(segments.between(1, 2)) == [1]
    assert bases_of(segments.between(1, 3)) == [1, 2]
    assert bases_of(segments.between(0, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidRequestError):
        segments.between(2, 1)


@behaviour("SEG-030")
def test_the_first_segment_between_two_offsets_is_the_one_that_the_start_falls_into(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, 10, 20, 30)
    assert bases_of(segments.between(15, 30)) == [10, 20]
    assert bases_of(segments.between(5, 11)) == [10]
    assert bases_of(segments.from_offset(25)) == [20, 30]
    assert bases_of(segments.from_offset(5)) == [10, 20, 30]


@behaviour("SEG-031")
def test_floor_lower_and_higher_of_an_offset(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, 1, 3, 5, 7)
    assert [base_of(segments.floor(offset)) for offset in (0, 1, 2, 3, 8)] == [None, 1, 1, 3, 7]
    assert [base_of(segments.lower(offset)) for offset in (1, 2, 3, 8)] == [None, 1, 1, 7]
    assert [base_of(segments.higher(offset)) for offset in (0, 4, 5, 7)] == [1, 5, 7, None]


@behaviour("SEG-032")
def test_inactive_segments_leave_out_the_active_one(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, 0, 1, 2, 3, 4, 5)
    assert bases_of(segments.inactive_from(0)) == [0, 1, 2, 3, 4]
    assert bases_of(segments.inactive_from(2)) == [2, 3, 4]
    assert bases_of(segments.inactive_from(5)) == []
    assert bases_of(segments.inactive_from(6)) == []


@behaviour("SEG-033")
def test_the_size_of_a_log_is_more_than_one_segment_can_have(tmp_path: Path) -> None:
    segments = LogSegments()
    for base in (0, 1):
        path = tmp_path / file_name(base, LOG_SUFFIX)
        path.touch()
        os.truncate(path, MAX_INT32)  # sparse: no bytes on the disk
        segments.add(open_segment(tmp_path, base))
    assert segments.size == 4_294_967_294


@behaviour("SEG-034")
def test_segments_follow_their_directory(tmp_path: Path) -> None:
    old, new = tmp_path / "old-0", tmp_path / "new-0"
    old.mkdir()
    used, unused = a_segment(old, 0, batch(0), batch(1)), a_segment(old, 2)
    old.rename(new)
    for segment in (used, unused):
        segment.moved_to(str(new))
        files = (segment.log, segment.offset_index, segment.time_index, segment.txn_index)
        expected = [str(new / file_name(segment.base_offset, suffix)) for suffix in SEGMENT_SUFFIXES]
        assert [file.path for file in files] == expected
    assert unused.offset_index.entries == 0  # its file is made now
    used.change_suffix("", ".deleted")
    used.delete()
    assert sorted(path.name for path in new.iterdir()) == [f"{2:020}.index", f"{2:020}.log"]
    assert not old.exists()
