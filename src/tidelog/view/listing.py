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

__all__ = ["PartitionListing", "SegmentListing", "list_roots"]


class SegmentListing(NamedTuple):
    """One segment: what its headers say, and the state of its files."""

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
        known = known._replace(
            segments=len(partition.segments),
            bytes=sum(segment.file_size for segment in partition.segments),
            topic_id=None if partition.topic_id is None else uuid_text(partition.topic_id),
        )
        return known._replace(
            log_start_offset=partition.log_start_offset,
            log_end_offset=partition.log_end_offset,
            high_watermark=partition.high_watermark,
            largest_timestamp_ms=_newest(partition),
            details=tuple(map(_list_segment, partition.segments)) if with_segments else (),
            notices=partition.notices,
        )

    try:
        return PartitionView(root, directory).looking_again(look)
    except TidelogError as error:
        return known._replace(problem=str(error))


def _newest(partition: PartitionView) -> int | None:
    """The largest timestamp of the last segment that holds something; None if its records have none."""
    filled = [segment for segment in partition.segments if segment.next_offset > segment.base_offset]
    newest = filled[-1].open().max_timestamp.timestamp_ms if filled else -1
    return newest if newest >= 0 else None


def _list_segment(segment: SegmentView) -> SegmentListing:
    summary = segment.summary
    entries = _entries_in(segment, segment.open())
    return SegmentListing(
        segment.base_offset,
        segment.next_offset,
        segment.file_size,
        summary.batches,
        summary.records,
        summary.codecs,
        summary.magics,
        summary.first_timestamp_ms,
        summary.largest_timestamp_ms,
        summary.smallest_timestamp_ms,
        dict(_file_states(segment, entries)),
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


def _file_states(segment: SegmentView, entries: dict[str, int]) -> Iterator[tuple[str, str]]:
    for suffix in SEGMENT_SUFFIXES:
        if suffix == LOG_SUFFIX:
            left = segment.file_size - segment.size
            yield suffix, f"{left} bytes behind the last batch" if left else "whole"
        elif suffix in entries:
            number = entries[suffix]
            yield suffix, "1 entry" if number == 1 else f"{number} entries"
        elif suffix != TXN_INDEX_SUFFIX:  # there is one from the first abort on
            yield suffix, "missing"
