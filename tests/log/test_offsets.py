"""Offsets with places: what can be compared and what cannot."""

import pytest

from tests.behaviours import behaviour
from tidelog.errors import InvalidRequestError
from tidelog.log.offsets import OffsetMetadata

UNPLACED = OffsetMetadata(1)
EARLY, LATE, NEXT_SEGMENT = OffsetMetadata(3, 0, 5), OffsetMetadata(6, 0, 100), OffsetMetadata(7, 7, 0)


@behaviour("SEG-035")
@pytest.mark.parametrize("other", [UNPLACED, EARLY, NEXT_SEGMENT])
def test_an_offset_without_place_is_on_no_older_and_on_no_same_segment(other: OffsetMetadata) -> None:
    assert UNPLACED.is_offset_only
    assert not UNPLACED.is_on_older_segment(other)
    assert not other.is_on_older_segment(UNPLACED)
    assert not UNPLACED.is_on_same_segment(other)
    assert not other.is_on_same_segment(UNPLACED)


@behaviour("SEG-035")
def test_places_are_compared_by_the_base_of_their_segment() -> None:
    assert EARLY.is_on_same_segment(LATE)
    assert not EARLY.is_on_older_segment(LATE)
    assert EARLY.is_on_older_segment(NEXT_SEGMENT)
    assert not NEXT_SEGMENT.is_on_older_segment(EARLY)
    assert not NEXT_SEGMENT.is_on_same_segment(EARLY)


@behaviour("SEG-036")
def test_bytes_are_counted_inside_one_segment() -> None:
    assert LATE.bytes_from(EARLY) == 95
    assert EARLY.bytes_from(LATE) == -95


@behaviour("SEG-036")
@pytest.mark.parametrize(("one", "other"), [(NEXT_SEGMENT, EARLY), (EARLY, UNPLACED), (UNPLACED, UNPLACED)])
def test_bytes_between_places_that_share_no_segment_are_not_counted(one: OffsetMetadata, other: OffsetMetadata) -> None:
    with pytest.raises(InvalidRequestError, match="one segment"):
        one.bytes_from(other)
