"""The segments of a log by base offset, whether they are written to or only read.

The list is replaced as a whole whenever it changes, so a reader in another thread walks over the list it took and
never over half of a change. What is remembered of the segments is kept with the list. The next list takes over what
cannot have changed, and whoever still has the old one writes into that: what a reader finds out of a segment while its
owner cuts it is never believed of what is appended there later.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from tidelog.errors import InvalidRequestError
from tidelog.log.segment_reader import SegmentReader

__all__ = ["LogSegments"]

S = TypeVar("S", bound=SegmentReader)

_NEVER = float("inf")


class _Listing(Generic[S]):
    """One state of the list."""

    __slots__ = ("bases", "largest", "maxima", "segments")

    def __init__(
        self,
        segments: tuple[S, ...] = (),
        bases: tuple[int, ...] = (),
        largest: dict[int, int] | None = None,
        maxima: tuple[int, ...] = (),
    ) -> None:
        self.segments = segments
        self.bases = bases
        self.largest = largest or {}  # timestamps by base offset, as far as known; not of the active one, which grows
        self.maxima = maxima  # of the first segments: the largest timestamp up to each

    def ask(self, question: Callable[[S], int], until_ms: float, most: float) -> None:
        """Make the maxima longer, until one reaches `until_ms` or `most` segments had to be asked."""
        maxima = self.maxima
        highest = maxima[-1] if maxima else -1
        more = []
        for segment in self.segments[len(maxima) : -1]:
            if highest >= until_ms or most <= 0:
                break
            largest = self.largest.get(segment.base_offset)
            if largest is None:
                largest = self.largest[segment.base_offset] = question(segment)
                most -= 1
            highest = max(highest, largest)
            more.append(highest)
        if more:
            self.maxima = (*maxima, *more)


class LogSegments(Generic[S]):
    """An ordered map of segments."""

    def __init__(self) -> None:
        self._listing: _Listing[S] = _Listing()
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
        one. Segments that nobody has asked yet are asked now, as far as they are needed.
        """
        listing = self._listing
        segments = listing.segments
        listing.ask(_largest_timestamp, timestamp_ms, len(segments))
        maxima = listing.maxima
        at = bisect_left(maxima, timestamp_ms)
        if at < len(maxima):
            return segments[at]
        return segments[-1] if segments and segments[-1].largest_timestamp_ms >= timestamp_ms else None

    @property
    def has_unknown_times(self) -> bool:
        """Whether a lookup by time may have to ask more segments than the active one."""
        listing = self._listing
        return len(listing.maxima) < len(listing.segments) - 1

    def learn_times(self, most: int) -> None:
        """Ask up to `most` segments for their largest timestamp, so that the next lookup by time need not."""
        self._listing.ask(_peeked_timestamp, _NEVER, most)

    def add(self, segment: S) -> S | None:
        """Add a segment; the one of the same base offset that it replaces, if there is one."""
        replaced = self.get(segment.base_offset)
        self.change(add=(segment,))
        return replaced

    def remove(self, base_offset: int) -> None:
        """Take a segment out of the list. Its files are not touched."""
        self.change(remove=(base_offset,))

    def clear(self) -> None:
        """Take all segments out of the list."""
        self._listing = _Listing()

    def change(self, *, remove: Iterable[int] = (), add: Iterable[S] = ()) -> None:
        """Take segments out of the list, by their base offsets, and add others, in one step for all readers.

        What is known of those is forgotten, and of the active one, which others may have followed until now.
        """
        old = self._listing
        new = {segment.base_offset: segment for segment in add}
        gone = {*remove, *new}
        if not gone:
            return
        first = bisect_left(old.bases, min(gone))
        behind = [segment for segment in old.segments[first:] if segment.base_offset not in gone]
        behind = sorted([*behind, *new.values()], key=lambda segment: segment.base_offset)
        segments = (*old.segments[:first], *behind)
        bases = (*old.bases[:first], *(segment.base_offset for segment in behind))
        largest = dict(old.largest)  # copied in one step: readers may be adding to it
        for base_offset in gone:
            largest.pop(base_offset, None)
        if segments:
            largest.pop(segments[-1].base_offset, None)
            self.active = segments[-1]
        self._listing = _Listing(segments, bases, largest, old.maxima[: min(first, max(len(segments) - 1, 0))])

    def frozen(self) -> "LogSegments[S]":
        """The list as it is now, which stays so, whatever is rolled, deleted or swapped meanwhile."""
        listing = self._listing
        frozen: LogSegments[S] = LogSegments.__new__(LogSegments)
        frozen._listing = listing
        if listing.segments:
            frozen.active = listing.segments[-1]
        return frozen


def _largest_timestamp(segment: SegmentReader) -> int:
    return segment.largest_timestamp_ms


def _peeked_timestamp(segment: SegmentReader) -> int:
    return segment.peek_largest_timestamp_ms()
