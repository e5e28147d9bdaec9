"""A partition that is only looked at, as the lookups by time want it (log/list_offsets.py)."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tidelog.log.checkpoints import EpochEntry
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.watermarks import Isolation
from tidelog.view.look import Look, looking_again
from tidelog.view.ordered_lookup import OrderedReader
from tidelog.view.segment import SegmentView
from tidelog.view.stretches import lies_on_old_ones

if TYPE_CHECKING:
    from tidelog.view.partition import PartitionView

__all__ = ["TimedPartition"]

Answer = TypeVar("Answer")


class TimedPartition:
    """The bounds of a partition and its segments, each opened when it is asked."""

    def __init__(self, view: "PartitionView", look: Look | None = None, limit: Callable[[], int] | None = None) -> None:
        self._look = view.look if look is None else look  # replaced when a segment goes away
        self._view = view
        self._limit = limit  # the first offset that a reader may not see; without one, the log end

    @property
    def log_start_offset(self) -> int:
        return self._view.log_start_offset

    @property
    def latest_epoch(self) -> int | None:
        return self._view.latest_epoch

    @property
    def earliest_epoch(self) -> EpochEntry | None:
        epochs = self._view.leader_epochs
        return epochs[0] if epochs else None

    @property
    def segments(self) -> Iterator[SegmentReader]:
        """The segments, one after the other."""
        return (self._open(segment) for segment in self._look.segments)

    def _open(self, segment: SegmentView) -> OrderedReader:
        """A segment, with the offset that a record found in it must lie below."""
        look, reader, following = self._look, segment.open(), self._look.next_of(segment)
        reader.limit_offset = None if following is None else following.base_offset
        reader.may_reach_over = lambda: lies_on_old_ones(look, reader, segment.end)
        return reader

    def limit_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see. A view says it with `committed` and `end_bound`, as `read`."""
        return self._view.log_end_offset if self._limit is None else self._limit()

    def first_segment_reaching(self, timestamp_ms: int) -> SegmentReader | None:
        """The first segment whose largest timestamp is not below the given one.

        Where reading is dear, segments are passed over on the word of their time indexes alone, as a broker does.
        """
        is_remote = self._view.files.is_remote
        for segment in self._look.segments:
            if is_remote and (known := segment.indexed_timestamp_ms) is not None and known < timestamp_ms:
                continue
            if segment.largest_timestamp_ms >= timestamp_ms:
                return self._open(segment)
        return None

    def first_offset_reaching(self, timestamp_ms: int) -> int | None:
        """The first offset, not below the log start, of a record at or after a time; None if there is none.

        A broker asks one segment, the first whose largest time reaches it. That may lie below the log start, or have
        no times but that of its file; here the next one is asked.
        """
        for segment, following in zip(self._look.segments, [*self._look.segments[1:], None], strict=True):
            if following is not None and following.base_offset <= self.log_start_offset:
                continue
            known = segment.indexed_timestamp_ms if self._view.files.is_remote else None
            if known is not None and known < timestamp_ms:
                continue
            found = self._open(segment).find_time(timestamp_ms, self.log_start_offset)
            if found is not None:
                return found.offset
        return None

    def looking_again(self, question: Callable[["TimedPartition"], Answer]) -> Answer:
        """The answer to a question, asked again with a fresh look when a segment went away or changed under it."""

        def look_again() -> None:
            self._look = self._view.take_look()

        return looking_again(lambda: question(self), look_again, self._view.path)
