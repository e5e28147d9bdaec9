"""Reading across the segments of a log, whether they are written to or only read.

Kafka: LocalLog.read.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from tidelog.errors import OffsetOutOfRangeError
from tidelog.log.lookup import Step
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.region import Region
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.segments import LogSegments
from tidelog.log.transaction_index import AbortedTxnEntry

__all__ = ["LogReader"]

S = TypeVar("S", bound=SegmentReader)


class LogReader(Generic[S]):
    """The segments of a log, and where it ended when they were looked at."""

    __slots__ = ("_log_end", "_segments")

    def __init__(self, segments: LogSegments[S], log_end: OffsetMetadata) -> None:
        self._segments = segments
        self._log_end = log_end

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit: OffsetMetadata,
        *,
        at_least_one: bool = False,
        with_aborted: bool = False,
        trace: list[Step] | None = None,
    ) -> Region:
        """The bytes from the batch that holds `offset` on, in one segment, up to the batch that holds `limit`."""
        log_end = self._log_end
        segment: SegmentReader | None = self._segments.floor(offset)
        if offset > log_end.offset or segment is None:
            raise OffsetOutOfRangeError(f"offset {offset}: the log ends at {log_end.offset}")
        if offset >= limit.offset:
            place = limit if offset == limit.offset else self.locate(offset)
            return Region(place, aborted=() if with_aborted else None)
        while segment is not None:
            end = _end_in(segment, limit)
            region = segment.read(offset, max_bytes, end, at_least_one=at_least_one, trace=trace)
            if region is not None:
                return self._with_aborted(offset, segment, region) if with_aborted else region
            # Compaction can leave nothing at the end of a segment: the next one goes on.
            segment = self._segments.higher(segment.base_offset)
        return Region(log_end, aborted=() if with_aborted else None)

    def locate(self, offset: int) -> OffsetMetadata:
        """Where the batch that holds `offset` begins; the log end for offsets behind the last batch."""
        log_end = self._log_end
        if offset == log_end.offset:
            return log_end
        start = self.read(offset, 1, log_end).start
        return start._replace(offset=offset)

    def _with_aborted(self, offset: int, segment: SegmentReader, region: Region) -> Region:
        """The same region with the transactions of which it holds data and that were aborted."""
        upper = segment.upper_bound(region.start.position + region.size)
        if upper is None:
            following = self._segments.higher(segment.base_offset)
            upper = following.base_offset if following is not None else self._log_end.offset
        return Region(
            region.start, region.file, region.position, region.size, region.first_batch,
            region.is_first_batch_incomplete, tuple(self.collect_aborted(offset, upper, segment)),
        )  # fmt: skip

    def collect_aborted(
        self, offset: int, upper: int, segment: SegmentReader | None = None
    ) -> Iterator[AbortedTxnEntry]:
        """The aborted transactions that overlap the offsets from `offset` to before `upper`."""
        segment = segment or self._segments.floor(offset)
        while segment is not None:
            found = segment.txn_index.collect(offset, upper)
            yield from found.transactions
            if found.is_complete:
                return
            segment = self._segments.higher(segment.base_offset)


def _end_in(segment: SegmentReader, limit: OffsetMetadata) -> int | None:
    """Up to which position of a segment may be read; None where that is not known, or nothing may."""
    if segment.base_offset < limit.segment_base:
        return segment.size
    if segment.base_offset == limit.segment_base and not limit.is_offset_only:
        return limit.position
    return None
