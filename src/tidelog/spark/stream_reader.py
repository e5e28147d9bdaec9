"""The stream: offsets by partition, as Spark's Kafka source writes them into its checkpoints.

`latestOffset` runs a hundred times a second while nothing happens; watch.py keeps that cheap. What the offsets of a
micro-batch come to is decided here on the driver, and read by tasks like those of a batch.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from math import ceil, floor
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.spark.bounds import Bound, OffsetRange, kept
from tidelog.spark.option_values import OptionValues
from tidelog.spark.planning import Task, plan_tasks
from tidelog.spark.read_options import ReadOptions
from tidelog.spark.row_schema import RowSchema
from tidelog.spark.task_reader import read_task
from tidelog.spark.watch import LOCAL_REFRESH_MS, REMOTE_REFRESH_MS, Watch

__all__ = ["Pace", "StreamReader"]

Offsets = dict[TopicPartition, int]
_FIFTEEN_MINUTES_MS = 15 * 60 * 1000
_LONGEST_PAUSE_S = 0.2  # a query that is stopped waits for the answer


class Pace(NamedTuple):
    """How much a micro-batch takes, and how long it waits for it."""

    most: int | None = None
    least: int | None = None
    max_delay_ms: int = _FIFTEEN_MINUTES_MS
    refresh_ms: int = LOCAL_REFRESH_MS

    @classmethod
    def of(cls, values: OptionValues, *, is_remote: bool) -> "Pace":
        """What options say of it."""
        most, least = values.positive("maxOffsetsPerTrigger"), values.positive("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise InvalidRequestError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
        return cls(
            most,
            least,
            values.duration_ms("maxTriggerDelay", default=_FIFTEEN_MINUTES_MS),
            values.duration_ms("refreshInterval", default=REMOTE_REFRESH_MS if is_remote else LOCAL_REFRESH_MS),
        )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is appended, and partitions that are added."""

    def __init__(
        self,
        options: ReadOptions,
        schema: RowSchema,
        starting: Bound,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._schema = schema
        self._starting = starting
        self._pace = pace
        self._clock = clock
        self._pause = pause
        self._watch: Watch | None = None  # made where it is used: tasks get this object too
        self._last_batch_at: float | None = None
        self._all_there_is: Offsets | None = None  # of AvailableNow
        self._latest: Offsets = {}
        self._initial: Offsets = {}  # where a query that is new has begun
        self._written: tuple[Offsets, dict[str, Any]] = {}, {}  # what was answered last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": None}

    @property
    def watch(self) -> Watch:
        """The directories, watched."""
        if self._watch is None:
            options = self._options
            self._watch = Watch(options.places, options.topics, options.reach, self._pace.refresh_ms, self._clock)
        return self._watch

    # -- offsets -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        self.watch.ends(now=True)
        self._options.topics.ensure_there(self.watch.logs)
        self._initial = self._starting.offsets(self.watch.logs, self.watch.chosen, self._options.reach)
        return _written(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a micro-batch takes, as the options say."""
        if self._pace.most is not None:
            return ReadMaxRows(self._pace.most)
        return ReadAllAvailable() if self._pace.least is None else ReadMinRows(self._pace.least)

    def prepareForTriggerAvailableNow(self) -> None:
        """From here on nothing counts but what is there now."""
        self._all_there_is = self.watch.ends(now=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; where it starts if there is nothing, or not enough, to read."""
        known, answered = self._written
        begun = known if start == answered else _read(start)
        if self._all_there_is is not None:
            self._latest = self._not_before(begun, self._all_there_is)
        else:
            self._latest = self._not_before(begun, self.watch.ends())
            if self._latest == begun:  # Spark asks again at once, and would get the same answer
                self._pause(min(self.watch.fresh_for_s, _LONGEST_PAUSE_S))
                self._latest = self._not_before(begun, self.watch.ends())
        if isinstance(limit, ReadAllAvailable):
            return self._answer(self._latest)
        if self._all_there_is is None and self._pace.least is not None and self._has_to_wait(begun):
            return start
        if isinstance(limit, ReadMaxRows):
            return self._answer(self._limited(begun, limit.max_rows))
        return self._answer(self._latest)

    def _not_before(self, begun: Offsets, ends: Offsets) -> Offsets:
        """Ends that do not lie before what was read, so long as that is there.

        A high watermark falls back where another copy is read, or a checkpoint is older than the log. Of a partition
        that has gone, `partitions` tells.
        """
        behind = [partition for partition, end in ends.items() if begun.get(partition, end) > end]
        if not behind:
            return ends
        reach, logs = self._options.reach.to_log_end, self.watch.logs
        reached = {p: reach.limit(logs[p]) for p in set(behind).intersection(logs.partitions)}
        return ends | {p: max(ends[p], min(begun[p], reached.get(p, begun[p]))) for p in behind}

    def _answer(self, offsets: Offsets) -> dict[str, Any]:
        """Offsets as the checkpoint has them; of many partitions that takes a while, and mostly nothing has changed."""
        if offsets != self._written[0]:
            self._written = offsets, _written(offsets)
        return self._written[1]

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends, for the progress of the query."""
        return self._answer(self._latest) if self._latest else None

    def _has_to_wait(self, begun: Mapping[TopicPartition, int]) -> bool:
        """Whether there are too few offsets, and the wait for them is not over."""
        now = self._clock()
        is_over = self._last_batch_at is None or (now - self._last_batch_at) * 1000 >= self._pace.max_delay_ms
        new = sum(end - begun.get(partition, 0) for partition, end in self._latest.items())
        if not is_over and new < (self._pace.least or 0):
            return True
        self._last_batch_at = now
        return False

    def _limited(self, begun: Offsets, most: int) -> Offsets:
        """Ends that are `most` offsets away together: each partition gives its share, a small one at least one."""
        firsts = {p: begun[p] if p in begun else self.watch.logs[p].log_start_offset for p in self._latest}
        sizes = {p: end - firsts[p] for p, end in self._latest.items() if end > firsts[p]}
        total = sum(sizes.values())
        ends = dict(self._latest)
        for partition, size in sizes.items():
            share = most * (size / total)
            ends[partition] = min(
                self._latest[partition], firsts[partition] + (ceil(share) if share < 1 else floor(share))
            )
        return ends

    def stop(self) -> None:
        """The query has ended."""
        if self._watch is not None:
            self._watch.close()

    # -- rows ----------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        begun, ended = _read(start), _read(end)
        logs, options = self.watch.logs, self._options
        reach = options.reach.to_log_end  # what is decided is read, wherever the high watermark is by now
        if any(self.watch.ends().get(p, -1) < limit for p, limit in ended.items()):
            self.watch.ends(now=True)  # an offset of an earlier run, or of a moment ago
            logs = self.watch.logs
        present = set(logs.partitions)
        gone = sorted((begun.keys() - ended.keys()) | (ended.keys() - present))
        if gone:  # also what is there again: from where on it was read would be forgotten
            options.report_loss(f"{', '.join(map(str, gone))} are gone, with what was not read of them")
        wanted = []
        for partition in sorted(ended):
            if partition not in present:
                continue
            first = begun[partition] if partition in begun else self._first_of_new(partition)
            limit = ended[partition]
            if limit < first:
                options.report_loss(f"{partition} goes back from offset {first} to {limit}: it was made anew")
                continue
            is_new = begun.get(partition) in (None, self._initial.get(partition))
            one = OffsetRange(partition, first, limit, told_from=0 if is_new else first)
            wanted.append(kept(one, logs[partition], reach, options.report_loss))
        tasks = plan_tasks(
            logs,
            [one for one in wanted if one.first < one.limit],
            options.splits,
            reach,
            skip_damage=options.skip_damage,
        )
        return list(tasks)

    def _first_of_new(self, partition: TopicPartition) -> int:
        """A partition that is new begins with 0; if it does not, something of it was missed."""
        first = self.watch.logs[partition].log_start_offset
        if first > 0:
            self._options.report_loss(f"{partition} is new and begins with offset {first}, not with 0")
        return first

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, Task)
        return read_task(partition, self._options, self._schema)


def _written(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Offsets as the checkpoint has them."""
    written: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        written.setdefault(topic, {})[str(partition)] = offset
    return written


def _read(written: Mapping[str, Any]) -> Offsets:
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, offsets in written.items()
            for partition, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise InvalidRequestError(f"the checkpoint has the offset {written}: it is of another source") from None
