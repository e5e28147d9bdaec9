"""`tidelog spark diff`: what `tidelog diff` finds, read by many.

Small partitions are compared by one task each. A large one is cut at offsets where batches of both sides begin: what
lies before and what lies behind can be counted apart, and the sums are those of one walk. Where a side is damaged, or
out of order, one task walks the whole partition and says it in the words of `tidelog diff`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import CorruptionError, StorageError, UnsupportedError
from tidelog.fsck.batch_rows import BatchRows, read_rows
from tidelog.fsck.comparison import SideCounts, Tally, compare_batches
from tidelog.fsck.diff import DiffOptions, Paths, chosen, compare_partition, explained, extent_of, partitions_of
from tidelog.fsck.diff_result import Comparison, PartitionComparison
from tidelog.log.names import TopicPartition
from tidelog.spark.jobs.tasks import OnTasks, run_tasks
from tidelog.view.files import ReadOnlyFiles, ViewFiles
from tidelog.view.partition import PartitionView
from tidelog.view.pruning import plan
from tidelog.view.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.fsck.record_comparison import RecordTally

__all__ = ["diff"]

PART_BYTES = 64 << 20  # of one side
_SMALL_TOGETHER = 16 << 20
_TRIES = 20  # to find an offset near a cut at which batches of both sides begin
_TOLD = (CorruptionError, StorageError, UnsupportedError)  # what a comparison tells of a partition


class _Pair(NamedTuple):
    """Two copies of a partition, by their directories. It can be pickled."""

    name: TopicPartition
    a: str
    b: str


class _Range(NamedTuple):
    """Offsets of a pair."""

    pair: _Pair
    first: int
    limit: int


class _Counted(NamedTuple):
    """What was counted in a range: None where something was wrong, and the offsets that were seen on both sides."""

    tally: Tally | None
    spans: tuple[tuple[int, int], ...] = ()


def diff(
    spark: "SparkSession",
    a: Paths,
    b: Paths,
    *,
    topics: Sequence[str] | None = None,
    strict: bool = False,
    options: DiffOptions | None = None,
    part_bytes: int = PART_BYTES,
    on_tasks: OnTasks | None = None,
) -> Comparison:
    """Compare two sides, which driver and workers see under the same names. As `tidelog.fsck.diff.diff`."""
    ones, twos = partitions_of(a), partitions_of(b)
    if len(ones) == len(twos) == 1 and topics is None:  # two directories, whatever they are called
        names = [(*ones, *twos)]
    else:
        names = [(name, name) for name in chosen(sorted({*ones, *twos}), topics)]
    job = _Job(options or DiffOptions(), part_bytes)
    for one, two in names:
        job.add(one, ones.get(one), twos.get(two))
    return Comparison(tuple(job.run(spark, on_tasks)), strict)


class _Job:
    """The pairs, sorted by how they are compared."""

    def __init__(self, options: DiffOptions, part_bytes: int) -> None:
        self._options = options
        self._part_bytes = part_bytes
        self._order: list[TopicPartition] = []
        self._found: dict[TopicPartition, PartitionComparison] = {}  # what is known without a task
        self._views: dict[TopicPartition, tuple[PartitionView, PartitionView]] = {}
        self._sizes: dict[TopicPartition, tuple[int, int]] = {}
        self._whole: list[_Pair] = []
        self._cut: dict[TopicPartition, list[_Range]] = {}

    def add(self, name: TopicPartition, a: PartitionView | None, b: PartitionView | None) -> None:
        """Take on a pair."""
        self._order.append(name)
        try:
            known = PartitionComparison(str(name), extent_of(a), extent_of(b))
            if a is None or b is None or known.common is None:
                self._found[name] = known
                return
            a.ensure_copies_agree()
            b.ensure_copies_agree()
            self._sizes[name] = a.size, b.size
        except _TOLD:
            self._found[name] = compare_partition(name, a, b, self._options, lambda done, total: None)
            return
        self._found[name], self._views[name] = known, (a, b)
        pair, cuts = _Pair(name, a.path, b.path), []
        if max(self._sizes[name]) > self._part_bytes + self._part_bytes // 2:
            cuts = _wanted_cuts(a if a.size >= b.size else b, *known.common, self._part_bytes)
        ranges = list(_ranges(pair, a, b, known.common, cuts))
        if len(ranges) == 1:
            self._whole.append(ranges[0].pair)
        else:
            self._cut[name] = ranges

    def run(self, spark: "SparkSession", on_tasks: OnTasks | None) -> list[PartitionComparison]:
        """The comparisons, in the order of the pairs."""
        ranges = [one for group in self._cut.values() for one in group]
        counted = iter(run_tasks(spark, "diff: parts", partial(_count, self._options), ranges, on_tasks))
        differing: list[_Range] = []
        for name, group in self._cut.items():
            tally = _merged([next(counted) for _ in group])
            if tally is None:
                self._whole.append(group[0].pair)
                continue
            self._found[name] = self._told(name, tally)
            if tally.first is not None and self._options.records and self._found[name].error is None:
                differing += group
        whole = run_tasks(spark, "diff: partitions", partial(_compare_all, self._options), self._groups(), on_tasks)
        self._found.update(pair for group in whole for pair in group)
        self._add_records(differing, run_tasks(spark, "diff: records", _count_records, differing, on_tasks))
        return [self._found[name] for name in self._order]

    def _groups(self) -> list[list[_Pair]]:
        """Pairs that one task compares: small ones go together."""
        groups: list[list[_Pair]] = []
        filled = 0
        for pair in self._whole:
            size = sum(self._sizes[pair.name])
            if not groups or filled + size > _SMALL_TOGETHER:
                groups.append([])
                filled = 0
            groups[-1].append(pair)
            filled += size
        return groups

    def _told(self, name: TopicPartition, tally: Tally) -> PartitionComparison:
        """A comparison with what was counted, and the first difference."""
        found = replace(self._found[name], tally=tally)
        try:
            return found if tally.first is None else explained(found, *self._views[name], tally.first.offset)
        except _TOLD as error:
            return replace(found, error=" ".join(str(error).split()))

    def _add_records(self, ranges: Sequence[_Range], counted: "Sequence[RecordTally | str]") -> None:
        for one, tally in zip(ranges, counted, strict=True):
            name = one.pair.name
            found = self._found[name]
            if isinstance(tally, str):
                self._found[name] = replace(found, records=None, error=found.error or tally)
            elif found.error is None:
                self._found[name] = replace(found, records=_sum_of_records(found.records, tally))


# -- cuts --------------------------------------------------------------------------------------------------------------


def _ranges(
    pair: _Pair, a: PartitionView, b: PartitionView, common: tuple[int, int], cuts: Sequence[int]
) -> Iterator[_Range]:
    """The offsets of a pair, in parts that can be counted apart."""
    start, end = common
    first = start
    for wanted in cuts:
        cut = _common_start(a, b, max(wanted, first + 1), end)
        if cut is not None and first < cut < end:
            yield _Range(pair, first, cut)
            first = cut
    yield _Range(pair, first, end)


def _wanted_cuts(log: PartitionView, start: int, end: int, part_bytes: int) -> list[int]:
    """Offsets about `part_bytes` from each other; none where that cannot be told without reading."""
    try:
        pieces = list(plan(log, Request(from_offset=start, to_offset=end), max_bytes=part_bytes))
    except _TOLD:
        return []
    cuts, filled = [], 0
    for piece in pieces:
        if filled and filled + piece.size > part_bytes:
            cuts.append(piece.first_offset)
            filled = 0
        filled += piece.size
    return cuts


def _common_start(a: PartitionView, b: PartitionView, offset: int, end: int) -> int | None:
    """An offset not far behind `offset` that no batch of either side reaches over; None if there is none nearby."""
    try:
        for number in range(_TRIES):
            behind = _free_from((a, b)[number % 2], offset, end)
            if behind == offset and number:
                return offset
            offset = behind
    except _TOLD:
        pass
    return None


def _free_from(log: PartitionView, offset: int, end: int) -> int:
    """The offset itself if no batch reaches over it, else the one behind the batch that does."""
    for stretch in log.stretches(offset, end):
        for batch in stretch.reader.log.batches(stretch.start, stretch.end):
            is_over = not batch.is_legacy and batch.base_offset < offset <= batch.last_offset
            return batch.last_offset + 1 if is_over else offset
    return offset


# -- in a worker -------------------------------------------------------------------------------------------------------


def _count(options: DiffOptions, one: _Range) -> _Counted:
    """Count what two sides have in common in a range."""
    spans: list[list[int]] = [[], []]
    sides = []
    for path, span in zip((one.pair.a, one.pair.b), spans, strict=True):
        rows = read_rows(_view(path), one.first, one.limit, verify=options.verify)
        sides.append(_spanned(rows, span))
    try:
        tally = compare_batches(*sides, epochs=options.epochs)
    except _TOLD:
        return _Counted(None)
    return _Counted(tally, tuple((span[0], span[-1]) if span else (-1, -1) for span in spans))


def _spanned(rows: Iterator[BatchRows], span: list[int]) -> Iterator[BatchRows]:
    """The same rows, the first and the last offset of which are noted."""
    for batches in rows:
        if len(batches):
            span[:] = [span[0] if span else int(batches.first[0]), int(batches.last[-1])]
        yield batches


def _compare_all(options: DiffOptions, pairs: Sequence[_Pair]) -> list[tuple[TopicPartition, PartitionComparison]]:
    """Compare whole partitions."""
    return [
        (p.name, compare_partition(p.name, _view(p.a), _view(p.b), options, lambda done, total: None)) for p in pairs
    ]


def _count_records(one: _Range) -> "RecordTally | str":
    """Count the records that two sides have in common in a range; what is wrong, if that cannot be done."""
    from tidelog.fsck.record_comparison import compare_records, read_records

    try:
        a, b = (read_records(_view(path), one.first, one.limit) for path in (one.pair.a, one.pair.b))
        return compare_records(a, b)
    except _TOLD as error:
        return " ".join(str(error).split())


def _view(path: str) -> PartitionView:
    return PartitionView.at(_files(path), path)


def _files(path: str) -> ViewFiles:
    if "://" not in path:
        return ReadOnlyFiles()
    from tidelog.view.remote_files import files_at

    return files_at(path, None, None)[0]


# -- sums --------------------------------------------------------------------------------------------------------------


def _merged(parts: Sequence[_Counted]) -> Tally | None:
    """The sum of what was counted in the ranges of a pair, in order; None if they cannot be summed."""
    whole = Tally(SideCounts(), SideCounts())
    before = [-1, -1]
    for tally, spans in parts:
        if tally is None:
            return None
        for side, (first, last) in enumerate(spans):
            if last >= 0:
                if first <= before[side]:
                    return None
                before[side] = last
        whole.equal += tally.equal
        whole.different += tally.different
        whole.different_epoch += tally.different_epoch
        for mine, its in ((whole.left, tally.left), (whole.right, tally.right)):
            mine.only_here += its.only_here
            mine.other_bounds += its.other_bounds
        whole.first = whole.first or tally.first
    return whole


def _sum_of_records(one: "RecordTally | None", two: "RecordTally") -> "RecordTally":
    from tidelog.fsck.record_comparison import RecordTally

    if one is None:
        return two
    first = one.first_offset if one.first_offset is not None else two.first_offset
    return RecordTally(
        one.equal + two.equal,
        one.different + two.different,
        one.only_left + two.only_left,
        one.only_right + two.only_right,
        first,
    )
