"""What lies in log directories, partition by partition and, on request, segment by segment.

Everything that is there is listed, each copy of a partition and what is deleted or set aside too; not what a task of
Spark's has staged, which is no partition. What cannot be read is listed with its problem. Without segments a listing
costs some reads per partition; with them the header of every batch is walked over.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.errors import TidelogError
from tidelog.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TopicPartition,
)
from tidelog.log.partition_metadata import uuid_text
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.transaction_index import TransactionEntries
from tidelog.view.partition import PartitionView
from tidelog.view.root import PartitionDirectory, RootView
from tidelog.view.segment import SegmentView
from tidelog.view.segment_summary import SegmentSummary, summary_of

__all__ = ["PartitionListing", "SegmentListing", "list_roots"]


class SegmentListing(NamedTuple):
    """One segment: what its headers and the times of its records say, and the state of its files."""

    base_offset: int
    next_offset: int
    bytes: int
    batches: int
    records: int
    codecs: tuple[str, ...]
    magics: tuple[int, ...]
    first_timestamp_ms: int | None
    largest_timestamp_ms: int | None
    smallest_timestamp_ms: int | None
    files: dict[str, str]  # by suffix: how many entries, how many bytes, or that it is missing
    entries: dict[str, int]  # of the indexes that are there, by suffix


class PartitionListing(NamedTuple):
    """One directory of a partition. Where there is a problem the numbers are those that could still be had."""

    root: str
    directory: str
    partition: TopicPartition
    mark: str | None  # `delete`, `stray` or `future`
    segments: int = 0
    bytes: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None
    largest_timestamp_ms: int | None = None
    topic_id: str | None = None
    notices: tuple[str, ...] = ()
    problem: str | None = None
    details: tuple[SegmentListing, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        told = self._asdict()
        del told["partition"], told["details"]
        told = {"topic": self.partition.topic, "partition": self.partition.partition, **told}
        if self.details:
            told["details"] = [segment._asdict() for segment in self.details]
        return told


def list_roots(
    roots: Iterable[RootView], topics: frozenset[str] | None = None, *, with_segments: bool = False
) -> Iterator[PartitionListing]:
    """The partitions of some roots, or those of some topics."""
    for root in roots:
        for directory in root.directories:
            if topics is None or directory.topic_partition.topic in topics:
                yield _list(root, directory, with_segments)


def _list(root: RootView, directory: PartitionDirectory, with_segments: bool) -> PartitionListing:
    known = PartitionListing(root.path, directory.name, directory.topic_partition, directory.mark)

    def look(partition: PartitionView) -> PartitionListing:
        nonlocal known
        shown = _shown_of(partition)
        known = known._replace(
            segments=len(shown),
            bytes=sum(one.size for one in shown),
            topic_id=None if partition.topic_id is None else uuid_text(partition.topic_id),
        )
        return known._replace(
            log_start_offset=partition.log_start_offset,
            log_end_offset=partition.log_end_offset,
            high_watermark=partition.high_watermark,
            largest_timestamp_ms=_newest(shown),
            details=tuple(map(_list_segment, shown)) if with_segments else (),
            notices=partition.notices,
        )

    try:
        return PartitionView(root, directory).looking_again(look)
    except TidelogError as error:
        return known._replace(problem=str(error))


class _Shown(NamedTuple):
    """A segment as readers see it: an unfinished write hides what it has appended."""

    segment: SegmentView
    size: int
    next_offset: int
    is_whole: bool = True

    @property
    def summary(self) -> SegmentSummary:
        return self.segment.summary if self.is_whole else summary_of(self.segment.open().log.file, self.size)


def _shown_of(partition: PartitionView) -> list[_Shown]:
    """The segments of a partition without those that hold nothing but records of an unfinished write."""
    segments = partition.segments
    if partition.unfinished_notice is None:
        return [_Shown(segment, segment.file_size, segment.next_offset) for segment in segments]
    end = partition.log_end_offset
    ends = {stretch.segment.base_offset: stretch.end for stretch in partition.stretches()}
    found = []
    for segment in segments:
        is_below = segment.next_offset <= partition.log_start_offset  # no reader begins there, and it is whole
        if not is_below and segment.base_offset >= max(end, segments[0].base_offset + 1):
            break
        if is_below or segment.next_offset <= end:
            found.append(_Shown(segment, segment.file_size, segment.next_offset))
        else:
            found.append(_Shown(segment, ends.get(segment.base_offset, 0), end, is_whole=False))
    return found


def _newest(shown: list[_Shown]) -> int | None:
    """The largest timestamp of the last segment that holds something; None if its records have none."""
    filled = [one for one in shown if one.next_offset > one.segment.base_offset]
    if not filled:
        return None
    if not filled[-1].is_whole:
        return filled[-1].summary.largest_timestamp_ms
    newest = filled[-1].segment.open().max_timestamp.timestamp_ms
    return newest if newest >= 0 else None


def _list_segment(shown: _Shown) -> SegmentListing:
    segment = shown.segment
    size = segment.size if shown.is_whole else shown.size
    summary = summary_of(segment.open().log.file, size, reads_records=True)
    entries = _entries_in(segment, segment.open())
    return SegmentListing(
        segment.base_offset,
        shown.next_offset,
        shown.size,
        summary.batches,
        summary.records,
        summary.codecs,
        summary.magics,
        summary.first_timestamp_ms,
        summary.largest_timestamp_ms,
        summary.smallest_timestamp_ms,
        dict(_file_states(shown, entries)),
        entries,
    )


def _entries_in(segment: SegmentView, reader: SegmentReader) -> dict[str, int]:
    assert isinstance(reader.txn_index, TransactionEntries), "a segment that is only read"
    entries = {
        INDEX_SUFFIX: reader.offset_index.entries,
        TIME_INDEX_SUFFIX: reader.time_index.entries,
        TXN_INDEX_SUFFIX: len(reader.txn_index),
    }
    return {suffix: number for suffix, number in entries.items() if suffix in segment.files}


def _file_states(shown: _Shown, entries: dict[str, int]) -> Iterator[tuple[str, str]]:
    segment = shown.segment
    for suffix in SEGMENT_SUFFIXES:
        if suffix == LOG_SUFFIX and not shown.is_whole:
            yield suffix, f"{segment.file_size - shown.size} bytes of an unfinished write"
        elif suffix == LOG_SUFFIX:
            left = segment.file_size - segment.size
            yield suffix, f"{left} bytes behind the last batch" if left else "whole"
        elif suffix in entries:
            number = entries[suffix]
            yield suffix, "1 entry" if number == 1 else f"{number} entries"
        elif suffix != TXN_INDEX_SUFFIX:  # there is one from the first abort on
            yield suffix, "missing"
