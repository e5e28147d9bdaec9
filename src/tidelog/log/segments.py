"""The segments of a log by base offset, whether they are written to or only read.

The list is replaced as a whole whenever it changes, so a reader in another thread walks over the list it took and
never over half of a change. What is remembered about a list is kept with that list, and goes with it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

from tidelog.errors import InvalidRequestError
from tidelog.log.segment_reader import SegmentReader

__all__ = ["LogSegments"]

S = TypeVar("S", bound=SegmentReader)


class _Listing(Generic[S]):
    """One state of the list."""

    __slots__ = ("bases", "maxima", "segments")

    def __init__(self, segments: tuple[S, ...], maxima: tuple[int, ...] = ()) -> None:
        self.bases = tuple(segment.base_offset for segment in segments)
        self.segments = segments
        self.maxima = maxima  # of the first segments: the largest timestamp up to each, as far as it was needed


class LogSegments(Generic[S]):
    """An ordered map of segments."""

    def __init__(self) -> None:
        self._listing: _Listing[S] = _Listing(())
        self.active: S  # the last one; not set while there is none

    def __len__(self) -> int:
        return len(self._listing.bases)

    def __iter__(self) -> Iterator[S]:
        return iter(self._listing.segments)

    def __contains__(self, base_offset: int) -> bool:
        return self.get(base_offset) is not None

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return self._listing.bases

    @property
    def first(self) -> S:
        return self._listing.segments[0]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._listing.segments)

    def get(self, base_offset: int) -> S | None:
        """The segment of exactly this base offset."""
        listing = self._listing
        at = bisect_left(listing.bases, base_offset)
        return listing.segments[at] if at < len(listing.bases) and listing.bases[at] == base_offset else None

    def floor(self, offset: int) -> S | None:
        """The last segment that does not begin behind `offset`."""
        listing = self._listing
        at = bisect_right(listing.bases, offset)
        return listing.segments[at - 1] if at else None

    def lower(self, offset: int) -> S | None:
        """The last segment that begins before `offset`."""
        listing = self._listing
        at = bisect_left(listing.bases, offset)
        return listing.segments[at - 1] if at else None

    def higher(self, offset: int) -> S | None:
        """The first segment that begins behind `offset`."""
        listing = self._listing
        at = bisect_right(listing.bases, offset)
        return listing.segments[at] if at < len(listing.bases) else None

    def from_offset(self, offset: int) -> tuple[S, ...]:
        """The segment that `offset` falls into, and all behind it."""
        listing = self._listing
        return listing.segments[max(bisect_right(listing.bases, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> tuple[S, ...]:
        """The segments that hold offsets of [start, end): from the one `start` falls into to the last before `end`."""
        if start > end:
            raise InvalidRequestError(f"segments from offset {start} to {end}")
        if start == end:
            return ()
        listing = self._listing
        return listing.segments[max(bisect_right(listing.bases, start) - 1, 0) : bisect_left(listing.bases, end)]

    def inactive_from(self, offset: int) -> tuple[S, ...]:
        """The segments but the active one, from the one that `offset` falls into on."""
        if not self or offset > self.active.base_offset:
            return ()
        return self.between(offset, self.active.base_offset)

    def first_reaching(self, timestamp_ms: int) -> S | None:
        """The first segment whose largest timestamp is not below the given one.

        Found by bisection in the running maximum over the segments, which does not change any more but for the active
        one, and is remembered as far as it was ever needed.
        """
        listing = self._listing
        segments, maxima = listing.segments, listing.maxima
        largest = maxima[-1] if maxima else -1
        more = []
        for segment in segments[len(maxima) : -1]:
            if largest >= timestamp_ms:
                break
            largest = max(largest, segment.largest_timestamp_ms)
            more.append(largest)
        if more:
            maxima = listing.maxima = (*maxima, *more)
        at = bisect_left(maxima, timestamp_ms)
        if at < len(maxima):
            return segments[at]
        return segments[-1] if segments and segments[-1].largest_timestamp_ms >= timestamp_ms else None

    def add(self, segment: S) -> S | None:
        """Add a segment; the one of the same base offset that it replaces, if there is one."""
        listing = self._listing
        at = bisect_left(listing.bases, segment.base_offset)
        replaced = (
            listing.segments[at] if at < len(listing.bases) and listing.bases[at] == segment.base_offset else None
        )
        behind = at + (replaced is not None)
        segments = (*listing.segments[:at], segment, *listing.segments[behind:])
        self._set(_Listing(segments, listing.maxima[:at]))
        return replaced

    def remove(self, base_offset: int) -> None:
        """Take a segment out of the list. Its files are not touched."""
        self._set(_Listing(tuple(segment for segment in self if segment.base_offset != base_offset)))

    def clear(self) -> None:
        """Take all segments out of the list."""
        self._set(_Listing(()))

    def _set(self, listing: _Listing[S]) -> None:
        if listing.segments:
            self.active = listing.segments[-1]
        self._listing = listing
