"""Segments whose `.log` is empty although they held batches.

A gap between two batches tells nothing: compaction leaves gaps, and it leaves whole segments empty. But it writes their
indexes again, without an entry. Where the `.log` of a closed segment has no bytes and an index still has entries, the
records were lost by other means: a file system that was repaired, or a copy that broke off.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, SegmentGoneError
from tidelog.log.offsets import MAX_OFFSET
from tidelog.view.look import Look
from tidelog.view.segment import SegmentView

__all__ = ["LostSegment", "lost_segments"]


class LostSegment(NamedTuple):
    """A segment whose batches are gone."""

    path: str  # of its log
    first_offset: int  # that it may have held
    limit_offset: int  # the first of the next segment

    def __str__(self) -> str:
        offsets = f"{self.first_offset} to {self.limit_offset - 1}"
        return f"{self.path}: the file is empty, but its indexes have entries: offsets {offsets} are missing"


def lost_segments(
    look: Look, take_look: Callable[[], Look], first: int = 0, limit: int = MAX_OFFSET
) -> tuple[LostSegment, ...]:
    """The segments that lost their batches and may have held offsets from `first` to before `limit`.

    Two looks must agree: a broker may be truncating or compacting.
    """
    found = _lost_in(look, first, limit)
    again = _lost_in(take_look(), first, limit) if found else []
    return tuple(lost for lost in found if lost in again)


def _lost_in(look: Look, first: int, limit: int) -> list[LostSegment]:
    return [
        LostSegment(segment.path, segment.base_offset, following.base_offset)
        for segment, following in pairwise(look.segments)
        if first < following.base_offset and segment.base_offset < limit and _is_lost(segment)
    ]


def _is_lost(segment: SegmentView) -> bool:
    """Whether a log is empty and an index of it is not. An index of zeros was preallocated, and has no entries."""
    try:
        if segment.file_size:
            return False
        reader = segment.open_whole()
        last = reader.time_index.last_entry
        indexed = max(last.offset, reader.offset_index.last_offset)
    except (CorruptIndexError, SegmentGoneError):
        return False
    return last.timestamp_ms > 0 or indexed > segment.base_offset
