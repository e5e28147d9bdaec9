"""Offsets to tasks: by bytes at the boundaries of batches, then as `maxRecordsPerPartition` and `minPartitions` say.

    ranges -> pieces of at most `bytesPerPartition` -> tasks

Pieces of a Kafka partition that are small share a task. Partitions do not, as in Spark's Kafka source, unless there are
so many that starting tasks would take longer than reading.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from tidelog.log.names import TopicPartition
from tidelog.spark.bounds import OffsetRange, Reach
from tidelog.spark.option_values import OptionValues
from tidelog.view.log_dirs import LogDirView
from tidelog.view.pieces import Piece
from tidelog.view.pruning import plan
from tidelog.view.request import Request

__all__ = ["Splits", "Task", "plan_tasks"]

_log = logging.getLogger("tidelog.spark")

_MANY_TASKS = 64
_COST_OF_A_PARTITION = 4 << 20  # what opening one is worth, in bytes to read


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, in the order of offsets."""
        return self.value  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(piece.size for piece in self.pieces)


class Splits(NamedTuple):
    """How much a task takes on."""

    max_bytes: int
    max_records: int | None = None
    min_partitions: int | None = None

    @classmethod
    def of(cls, values: OptionValues) -> "Splits":
        """What options say of it."""
        return cls(
            values.size("bytesPerPartition", default=128 << 20),
            values.positive("maxRecordsPerPartition"),
            values.positive("minPartitions"),
        )


def plan_tasks(
    logs: LogDirView, wanted: Sequence[OffsetRange], splits: Splits, reach: Reach, *, skip_damage: bool = False
) -> list[Task]:
    """The tasks that read some offsets. Each offset is in exactly one."""
    planner = _Planner(logs, splits, reach, skip_damage)
    found = [group for one in wanted for group in planner.of_range(one)]
    if splits.min_partitions is not None and len(found) < splits.min_partitions:
        found = planner.cut_further(found, splits.min_partitions)
    if splits.max_records is None and splits.min_partitions is None and len(found) > _MANY_TASKS:
        found = list(_packed(found, splits.max_bytes))
    return [Task(group) for group in found]


class _Planner:
    def __init__(self, logs: LogDirView, splits: Splits, reach: Reach, skip_damage: bool) -> None:
        self._logs = logs
        self._splits = splits
        self._reach = reach
        self._skip_damage = skip_damage

    def of_range(self, wanted: OffsetRange) -> Iterator[list[Piece]]:
        """Pieces that go together, each group at most `max_bytes` and `max_records`."""
        most = self._splits.max_records
        parts = 1 if most is None else -(-(wanted.limit - wanted.first) // most)
        for pieces in self._cut(wanted, parts, self._splits.max_bytes):
            yield from _grouped(pieces, self._splits.max_bytes)

    def cut_further(self, groups: list[list[Piece]], least: int) -> list[list[Piece]]:
        """Cut the groups with the most offsets, so that there are about `least`."""
        ranges = [_range_of(group) for group in groups]
        total = sum(one.limit - one.first for one in ranges) or 1
        shares = [max(round((one.limit - one.first) / total * least), 1) for one in ranges]
        found = []
        for group, one, parts in zip(groups, ranges, shares, strict=True):
            if parts == 1:
                found.append(group)
            else:
                found.extend(self._cut(one, parts, None))
        return found

    def _cut(self, wanted: OffsetRange, parts: int, max_bytes: int | None) -> Iterator[list[Piece]]:
        """The pieces of each of some parts. Damage that begins in one part and ends in another is told of once."""
        told_from = wanted.told_from
        for part in _divided(wanted, parts):
            pieces = self._pieces(part, max_bytes)
            if pieces:
                yield [
                    pieces[0]._replace(told_from=told_from),
                    *(p._replace(told_from=p.first_offset) for p in pieces[1:]),
                ]
                told_from = part.limit

    def _pieces(self, wanted: OffsetRange, max_bytes: int | None) -> list[Piece]:
        request = Request(
            from_offset=wanted.first,
            to_offset=wanted.limit,
            committed=self._reach.committed,
            end_bound=self._reach.end_bound,
        )
        notices: list[str] = []  # what no reader will meet: it tells of the rest itself
        skipped = notices if self._skip_damage else None
        pieces = list(plan(self._logs[wanted.partition], request, max_bytes=max_bytes, notices=skipped))
        for notice in notices:
            _log.warning("%s", notice)
        return pieces


def _divided(wanted: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """About equal parts of some offsets, none of them empty."""
    first, left = wanted.first, min(parts, wanted.limit - wanted.first)
    while left > 0:
        limit = first + (wanted.limit - first) // left
        if first < limit:
            yield wanted._replace(first=first, limit=limit)
        first, left = limit, left - 1


def _grouped(pieces: Sequence[Piece], max_bytes: int) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.size > max_bytes:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.size
    if group:
        yield group


def _packed(groups: Sequence[list[Piece]], max_bytes: int) -> Iterator[list[Piece]]:
    """Groups put together, as long as many tasks remain."""
    sizes = [sum(piece.size for piece in group) + _COST_OF_A_PARTITION for group in groups]
    most = min(max_bytes, sum(sizes) // _MANY_TASKS)
    packed: list[Piece] = []
    filled = 0
    for group, size in zip(groups, sizes, strict=True):
        if packed and filled + size > most:
            yield packed
            packed, filled = [], 0
        packed.extend(group)
        filled += size
    if packed:
        yield packed


def _range_of(group: Sequence[Piece]) -> OffsetRange:
    first, last = group[0], group[-1]
    name = TopicPartition(first.topic, first.partition)
    return OffsetRange(name, first.first_offset, last.limit_offset, first.told_from)
