"""Comparing two replicas, backups or clusters: partition by partition, batch by batch, without reading records.

    comparison = diff("/backup/kafka", "/var/lib/kafka/data")
    for found in comparison.partitions:
        print(found.name, found.sentence)

Partitions are compared where both have offsets. That one begins later is retention, that one ends earlier is being
behind; neither is a contradiction, unless `strict` says so. Where batches differ, the first difference is shown with
both headers, and with the leader epochs that tell which side would be truncated: of two logs that claim an offset, the
one that was written in the larger epoch is right.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import CorruptionError, InvalidRequestError, StorageError, UnsupportedError
from tidelog.fsck.batch_rows import BatchRows, counting, read_rows
from tidelog.fsck.comparison import compare_batches
from tidelog.fsck.diff_result import BatchPlace, Comparison, EpochVerdict, Extent, PartitionComparison
from tidelog.log.batch_info import BatchInfo
from tidelog.log.checkpoints import EpochEntry
from tidelog.log.files import ReadFile
from tidelog.log.names import TopicPartition
from tidelog.records.batch import BATCH_HEADER_SIZE, PREFIX_SIZE, BatchHeader
from tidelog.view.log_dirs import LogDirView
from tidelog.view.opening import open as open_view
from tidelog.view.partition import PartitionView

if TYPE_CHECKING:
    from tidelog.fsck.record_comparison import RecordTally

__all__ = [
    "DiffOptions",
    "OnPartition",
    "chosen",
    "compare_partition",
    "diff",
    "explained",
    "extent_of",
    "partitions_of",
]

_AHEAD_FROM = 8 << 20  # bytes of both sides: below, a thread costs more than it wins

OnPartition = Callable[[str], Callable[[int, int], None]]  # a name; then bytes read so far, and in all
Paths = str | Sequence[str] | LogDirView


class DiffOptions(NamedTuple):
    """How closely to look."""

    verify: bool = True  # compare every checksum with its batch
    epochs: bool = True  # leader epochs must be equal
    records: bool = False  # where batches differ, look whether the records do


def diff(
    a: Paths,
    b: Paths,
    *,
    topics: Sequence[str] | None = None,
    strict: bool = False,
    options: DiffOptions | None = None,
    on_partition: OnPartition = lambda name: lambda done, total: None,
) -> Comparison:
    """Compare two sides: directories, lists of them, or views."""
    ones, twos = partitions_of(a), partitions_of(b)
    if len(ones) == len(twos) == 1 and topics is None:  # two directories, whatever they are called
        names = [(*ones, *twos)]
    else:
        names = [(name, name) for name in chosen(sorted({*ones, *twos}), topics)]
    found = (
        compare_partition(one, ones.get(one), twos.get(two), options or DiffOptions(), on_partition(str(one)))
        for one, two in names
    )
    return Comparison(tuple(found), strict)


def partitions_of(side: Paths) -> dict[TopicPartition, PartitionView]:
    """The partitions of one side by name."""
    view = side if isinstance(side, LogDirView) else open_view(side)
    return {partition.topic_partition: partition for partition in view}


def chosen(names: Sequence[TopicPartition], topics: Sequence[str] | None) -> list[TopicPartition]:
    """Those of some topics, each of which must be there; without topics, all."""
    if topics is None:
        return list(names)
    known = sorted({name.topic for name in names})
    for topic in topics:
        if topic not in known:
            nearest = get_close_matches(topic, known, n=1)
            hint = f"; the nearest is {nearest[0]}" if nearest else ""
            raise InvalidRequestError(f"there is no partition of topic {topic}{hint}")
    return [name for name in names if name.topic in topics]


def compare_partition(
    name: TopicPartition,
    a: PartitionView | None,
    b: PartitionView | None,
    options: DiffOptions,
    on_progress: Callable[[int, int], None],
) -> PartitionComparison:
    """Two copies of a partition. What is wrong with one of them is told in the result."""
    found = PartitionComparison(str(name), None, None)
    try:
        found = replace(found, a=extent_of(a), b=extent_of(b))
        if a is None or b is None or found.common is None:
            return found
        start, end = found.common
        on_bytes = counting(a.size + b.size, on_progress)
        ones, twos = (read_rows(side, start, end, verify=options.verify, on_bytes=on_bytes) for side in (a, b))
        with _read_beside(twos, is_large=a.size + b.size >= _AHEAD_FROM) as twos:
            tally = compare_batches(ones, twos, epochs=options.epochs)
        found = replace(found, tally=tally)
        if tally.first is None:
            return found
        found = explained(found, a, b, tally.first.offset)
        return replace(found, records=_compare_records(a, b, start, end)) if options.records else found
    except (CorruptionError, StorageError, UnsupportedError) as error:
        return replace(found, error=" ".join(str(error).split()))


@contextmanager
def _read_beside(rows: Iterator[BatchRows], *, is_large: bool) -> Iterator[Iterator[BatchRows]]:
    """Read one side in a thread, a window ahead, while the caller reads the other: reading and checksums need no GIL.

    An error is raised where its window would have come.
    """
    if not is_large:
        yield rows
        return
    with ThreadPoolExecutor(1, "tidelog-diff") as thread:

        def ahead() -> Iterator[BatchRows]:
            window = thread.submit(next, rows, None)
            while (read := window.result()) is not None:
                window = thread.submit(next, rows, None)
                yield read

        yield ahead()


def _compare_records(a: PartitionView, b: PartitionView, start: int, end: int) -> "RecordTally":
    from tidelog.fsck.record_comparison import compare_records, read_records  # which takes Arrow

    return compare_records(read_records(a, start, end), read_records(b, start, end))


def extent_of(log: PartitionView | None) -> Extent | None:
    """Where a copy begins and ends; None if there is none."""
    return None if log is None else Extent(log.path, log.log_start_offset, log.log_end_offset)


# -- the first difference ------------------------------------------------------------------------------------------


def explained(found: PartitionComparison, a: PartitionView, b: PartitionView, offset: int) -> PartitionComparison:
    """The same with the batches at the first difference, and the leaders that wrote them."""
    a_place, b_place = _place_of(a, offset), _place_of(b, offset)
    verdict = EpochVerdict(
        _epoch_at(offset, a_place, a.leader_epochs),
        _epoch_at(offset, b_place, b.leader_epochs),
        _history_from(offset, a.leader_epochs),
        _history_from(offset, b.leader_epochs),
    )
    return replace(found, a_place=a_place, b_place=b_place, epochs=verdict)


def _place_of(log: PartitionView, offset: int) -> BatchPlace | None:
    """The first batch that ends at an offset or behind it."""
    for stretch in log.stretches(offset):
        segment = stretch.reader.log
        for batch in segment.batches(stretch.start, stretch.end):
            if batch.last_offset >= offset:
                header = _header_of(batch, segment.file)
                place = segment.path, batch.position, batch.base_offset, batch.last_offset, batch.leader_epoch
                return BatchPlace(*place, header)
    return None


def _header_of(batch: BatchInfo, file: ReadFile) -> dict[str, int]:
    data = file.read(batch.position, BATCH_HEADER_SIZE)
    if not batch.is_legacy:
        return BatchHeader.unpack(data)._asdict()
    return {
        "offset": batch.base_offset,
        "size": batch.size - PREFIX_SIZE,
        "crc": int.from_bytes(data[PREFIX_SIZE : PREFIX_SIZE + 4], "big"),
        "magic": batch.magic,
        "attributes": batch.attributes,
    }


def _epoch_at(offset: int, place: BatchPlace | None, history: Sequence[EpochEntry]) -> int | None:
    """The epoch in which an offset was written: by the batch that holds it, else by the checkpoint."""
    if place is not None and place.first_offset <= offset and place.leader_epoch >= 0:
        return place.leader_epoch
    return max((entry.epoch for entry in history if entry.start_offset <= offset), default=None)


def _history_from(offset: int, history: Sequence[EpochEntry]) -> tuple[EpochEntry, ...]:
    """The epoch that holds an offset, and those that follow."""
    before = [entry for entry in history if entry.start_offset <= offset]
    return (*before[-1:], *(entry for entry in history if entry.start_offset > offset))
