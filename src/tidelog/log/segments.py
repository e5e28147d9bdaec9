"""The segments of a log by base offset.

The list is replaced as a whole whenever it changes, so a reader in another thread walks over the list it took and
never over half of a change.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tidelog.errors import InvalidRequestError
from tidelog.log.segment import LogSegment

__all__ = ["LogSegments"]


class LogSegments:
    """An ordered map of segments."""

    def __init__(self) -> None:
        self._all: tuple[tuple[int, ...], tuple[LogSegment, ...]] = ((), ())  # one reference: bases and segments agree
        self.active: LogSegment  # the last one; not set while there is none
        self._maxima: tuple[tuple[LogSegment, ...], tuple[int, ...]] = ((), ())

    def __len__(self) -> int:
        return len(self._all[0])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._all[1])

    def __contains__(self, base_offset: int) -> bool:
        return self.get(base_offset) is not None

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return self._all[0]

    @property
    def first(self) -> LogSegment:
        return self._all[1][0]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._all[1])

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment of exactly this base offset."""
        bases, segments = self._all
        at = bisect_left(bases, base_offset)
        return segments[at] if at < len(bases) and bases[at] == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """The last segment that does not begin behind `offset`."""
        bases, segments = self._all
        at = bisect_right(bases, offset)
        return segments[at - 1] if at else None

    def lower(self, offset: int) -> LogSegment | None:
        """The last segment that begins before `offset`."""
        bases, segments = self._all
        at = bisect_left(bases, offset)
        return segments[at - 1] if at else None

    def higher(self, offset: int) -> LogSegment | None:
        """The first segment that begins behind `offset`."""
        bases, segments = self._all
        at = bisect_right(bases, offset)
        return segments[at] if at < len(bases) else None

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that `offset` falls into, and all behind it."""
        bases, segments = self._all
        return segments[max(bisect_right(bases, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """The segments that hold offsets of [start, end): from the one `start` falls into to the last before `end`."""
        if start > end:
            raise InvalidRequestError(f"segments from offset {start} to {end}")
        if start == end:
            return ()
        bases, segments = self._all
        return segments[max(bisect_right(bases, start) - 1, 0) : bisect_left(bases, end)]

    def inactive_from(self, offset: int) -> tuple[LogSegment, ...]:
        """The segments but the active one, from the one that `offset` falls into on."""
        if not self or offset > self.active.base_offset:
            return ()
        return self.between(offset, self.active.base_offset)

    def first_reaching(self, timestamp_ms: int) -> LogSegment | None:
        """The first segment whose largest timestamp is not below the given one.

        Found by bisection in the running maximum over the segments, which does not change any more but for the active
        one, and is remembered as far as it was ever needed.
        """
        segments = self._all[1]
        known, maxima = self._maxima
        if known != segments[: len(known)] or len(known) >= len(segments):
            known, maxima = (), ()
        largest = maxima[-1] if maxima else -1
        more = []
        for segment in segments[len(known) : -1]:
            if largest >= timestamp_ms:
                break
            largest = max(largest, segment.largest_timestamp_ms)
            more.append(largest)
        if more:
            maxima = (*maxima, *more)
            self._maxima = segments[: len(maxima)], maxima
        at = bisect_left(maxima, timestamp_ms)
        if at < len(maxima):
            return segments[at]
        return segments[-1] if segments and segments[-1].largest_timestamp_ms >= timestamp_ms else None

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Add a segment; the one of the same base offset that it replaces, if there is one."""
        bases, segments = self._all
        at = bisect_left(bases, segment.base_offset)
        replaced = segments[at] if at < len(bases) and bases[at] == segment.base_offset else None
        behind = at + (replaced is not None)
        self._set((*segments[:at], segment, *segments[behind:]))
        return replaced

    def remove(self, base_offset: int) -> None:
        """Take a segment out of the list. Its files are not touched."""
        self._set(tuple(segment for segment in self._all[1] if segment.base_offset != base_offset))
        self._maxima = (), ()  # the segment before may be the active one now, and change

    def clear(self) -> None:
        """Take all segments out of the list."""
        self._set(())

    def _set(self, segments: tuple[LogSegment, ...]) -> None:
        if segments:
            self.active = segments[-1]
        self._all = tuple(segment.base_offset for segment in segments), segments
