"""Rows of tables appended to the logs of a root, through the same engine that a broker's appends go through.

    rows -> the partition of each -> batches, encoded at memory speed -> UnifiedLog.append_as_leader

The partition is what the column `partition` says; else it follows from the key as with Kafka's own producers (murmur2);
rows without a key are dealt out one by one. Rows of a partition keep their order. A time that is missing is the time
of loading. All or nothing: what fails in the middle is cut off again.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.columns import ColumnEncoder, partition_for_keys
from tidelog.columns.inputs import cast_column
from tidelog.errors import (
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageTooLargeError,
    RecordListTooLargeError,
    TidelogError,
)
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, TopicPartition, check_partition
from tidelog.log.unified_log import UnifiedLog
from tidelog.tables.broker_dirs import LIST_ALL, NAME_ALL
from tidelog.tables.load_roots import LoadRoots
from tidelog.view.addresses import ensure_no_address, local_path

__all__ = ["Loaded", "load_table"]

_BATCH_BYTES = 64 << 10
_APPENDS_A_COUNT = 256  # so many batches go by between two counts of segments
_MOST_SEGMENTS = 10_000  # of three files each, that a load makes without being told to: a number too few is soon typed
_MOST_PARTITIONS = 1000  # that rows can ask for by themselves: a wrong number must not make as many directories


class Loaded(NamedTuple):
    """What was appended to a partition."""

    partition: TopicPartition
    rows: int
    first_offset: int
    next_offset: int


def load_table(
    batches: Iterable[pa.RecordBatch],
    root: str | Sequence[str],
    topic: str,
    *,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    compression: str = "none",
    topic_id: uuid.UUID | None = None,
    allow_internal: bool = False,
    many_segments: bool = False,
    clock: Clock | None = None,
    fs: FileSystem | None = None,
    rng: random.Random | None = None,
    on_bytes: Callable[[int], None] = lambda size: None,
    on_notice: Callable[[str], None] = lambda sentence: None,
    name_row: Callable[[int], str] = lambda row: f"row {row:,}",
    are_all_dirs: bool = False,
) -> list[Loaded]:
    """Append rows to a topic of a root, which is made if there is none, and so are the directories of its partitions.

    A broker with several log directories needs all of them named: a partition is loaded where it lies, a new one goes
    where the broker would put it. Formatted directories get no new partition unless a metadata log in them shows that
    none is missing, or `are_all_dirs` says so: the partition may be in another one.

    `partitions` is how many the topic has; without it, as many as there are, or as the column `partition` names, or
    one. Where the metadata log of the cluster lies in a root and knows the topic, it has the say, and gives the id of a
    new one; a row for a partition that it does not assign to this node is rejected. What is given back are the
    partitions that got rows or are new. A root that somebody has open, or that was not closed in good order, is
    refused; one that a load has left so is put in order first.

    A load that makes more than 10,000 segments is given up, unless `many_segments` says that it is meant. `on_bytes` is
    told how much was appended
    so far, `on_notice` what a person should know. `name_row` says which row of which file a row of the whole input is,
    counted from 1; a row is named when it is asked for. Whatever is raised, nothing is loaded.
    """
    _ensure_loadable_topic(topic, allow_internal)
    config = LogConfig.from_properties(configs or {})
    ColumnEncoder(codec=compression)  # what is refused is refused before anything is made
    roots = [root] if isinstance(root, str) else list(root)
    ensure_no_address(roots, "a load")
    with LoadRoots(
        [local_path(each) for each in roots],
        topic,
        config,
        fs=LocalFileSystem() if fs is None else fs,
        clock=SystemClock() if clock is None else clock,
        rng=random.Random() if rng is None else rng,
        on_notice=on_notice,
        are_all=are_all_dirs,
    ) as place:
        place.settle_topic_id(topic_id)
        loading = _Loading(place, topic, partitions, compression, on_notice, name_row)
        loading.most_segments = None if many_segments else _MOST_SEGMENTS
        size = 0
        for batch in batches:
            loading.append(batch)
            size += batch.nbytes
            on_bytes(size)
        return loading.finish()


def _ensure_loadable_topic(topic: str, allow_internal: bool) -> None:
    check_partition(TopicPartition(topic, 0))
    if topic == CLUSTER_METADATA_TOPIC:
        raise InvalidTopicError(f"{topic} is the metadata log of a cluster, which nothing is loaded into")
    if topic in INTERNAL_TOPICS and not allow_internal:
        raise InvalidTopicError(f"{topic} is a topic of Kafka's own, read by its brokers; --internal loads into it")


class _Part(NamedTuple):
    """Rows of a RecordBatch that go to one partition."""

    partition: int
    rows: pa.RecordBatch
    numbers: np.ndarray[Any, np.dtype[np.int64]] | None  # of the rows in their batch; None for all of them

    def number_of(self, row: int) -> int:
        """The number in the whole batch of one of these rows."""
        return row if self.numbers is None else int(self.numbers[row])


class _Loading:
    """The logs of a topic while rows are appended to them."""

    def __init__(
        self,
        root: LoadRoots,
        topic: str,
        partitions: int | None,
        compression: str,
        on_notice: Callable[[str], None],
        name_row: Callable[[int], str],
    ) -> None:
        self._root = root
        self._name_row = name_row
        self._rows = 0  # of the batches before
        self._on_notice = on_notice
        self._topic = topic
        self._compression = compression
        self._before: dict[int, int] = {}  # where the logs ended that got rows, or are new
        self._without_key = 0
        self.most_segments: int | None = None  # that may be made
        self._segments_before: dict[int, int] = {}
        self._is_all_named = True  # every row has said where it goes
        self._is_given = partitions is not None
        self._assigned = assigned = root.assignment
        self._is_known = (
            self._is_given
            or assigned is not None
            or (root.there == set(range(len(root.there))) and not (root.there and root.may_lack_some))
        )  # how many there are
        if assigned is not None:
            if partitions not in (None, assigned.size):
                raise InvalidRequestError(
                    f"--partitions {partitions}: {topic} has {_number(assigned.size)} by the metadata log of the "
                    "cluster; leave --partitions out, or add partitions with kafka-topics.sh --alter before the load"
                )
            self._count = assigned.size
            self._ours = np.array(assigned.ours(root.there), np.int64)
            return
        self._count = partitions or max(root.there, default=0) + 1
        if root.there and self._count <= max(root.there):
            raise InvalidRequestError(f"{topic} has {max(root.there) + 1} partitions already, which are not made fewer")

    def append(self, batch: pa.RecordBatch) -> None:
        """Append rows, each to its partition."""
        dealt = list(self._dealt(batch))
        logs = self._logs(part.partition for part in dealt)
        for part in dealt:
            self._append(logs[part.partition], part)
        self._rows += batch.num_rows

    def _append(self, log: UnifiedLog, part: "_Part") -> None:
        config = log.config
        encoder = ColumnEncoder(
            codec=self._compression,
            base_offset=None,
            batch_size=min(_BATCH_BYTES, config.segment_bytes, config.max_message_bytes),
            any_time=True,  # a broker has stored what was exported
        )
        epoch = log.latest_epoch or 0
        first = 0  # the row that a batch begins with
        for stretch in encoder.encode(part.rows):
            for number, (data, count) in enumerate(zip(stretch.batches(), stretch.counts.tolist(), strict=True)):
                try:
                    log.append_as_leader(data, epoch)
                except (InvalidTimestampError, MessageTooLargeError, RecordListTooLargeError) as error:
                    raise self._rejected(error, log, part, first, count) from error
                first += count
                if not number % _APPENDS_A_COUNT:
                    self._ensure_few_segments(config)
        self._ensure_few_segments(config)

    def _rejected(
        self, error: TidelogError, log: UnifiedLog, part: "_Part", first: int, count: int
    ) -> InvalidRequestError:
        """What keeps a batch out of a log, with the row that is to blame and the config that allows it."""
        if isinstance(error, InvalidTimestampError):
            first += error.record_errors[0].batch_index if error.record_errors else 0
            ways = "--set message.timestamp.after.max.ms=… (or .before.max.ms) allows more"
        elif isinstance(error, MessageTooLargeError):
            ways = "--set max.message.bytes=… allows more"
        else:
            ways = "--set segment.bytes=… allows more"
        row = self._name_row(self._rows + part.number_of(first) + 1)
        more = f" and the {count - 1:,} after it" if count > 1 and not isinstance(error, InvalidTimestampError) else ""
        return InvalidRequestError(f"{row}{more}: {log.topic_partition}: {error}; {ways}")

    def _ensure_few_segments(self, config: LogConfig) -> None:
        """Raise InvalidRequestError if so many segments were hardly meant."""
        if self.most_segments is not None and self.segments > self.most_segments:
            raise InvalidRequestError(
                f"with segment.bytes={config.segment_bytes} this makes more than {self.most_segments:,} segments, "
                "of three files each: --set segment.bytes=… makes fewer, --many-segments allows them"
            )

    def _logs(self, numbers: Iterable[int]) -> dict[int, UnifiedLog]:
        logs = self._root.logs(numbers)
        for number, log in logs.items():
            self._before.setdefault(number, log.log_end_offset)
            self._segments_before.setdefault(number, len(log.segments))
        return logs

    @property
    def segments(self) -> int:
        """How many segments were made."""
        logs = self._root.logs(self._segments_before)
        return sum(len(log.segments) - self._segments_before[number] for number, log in logs.items())

    def _dealt(self, batch: pa.RecordBatch) -> "Iterator[_Part]":
        numbers = self._numbers(batch)
        rows = self._stored(batch)
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            yield _Part(first, rows, None)
            return
        order = np.argsort(numbers, kind="stable")
        edges = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, edges):
            yield _Part(int(numbers[part[0]]), rows.take(pa.array(part)), part)

    def _numbers(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The partition of each row."""
        numbers = pa.nulls(batch.num_rows, pa.int64())
        if "partition" in batch.schema.names:
            numbers = self._named(batch.column("partition"))
        self._is_all_named = self._is_all_named and not numbers.null_count
        if numbers.null_count and not self._is_known:
            ways = LIST_ALL if self._root.may_lack_some else NAME_ALL
            raise InvalidRequestError(
                f"a row without a partition, and of {self._topic} only {_list(self._root.there)} are here: if the "
                f"broker has other log directories, {ways}; otherwise --partitions says how many there are"
            )
        if numbers.null_count and "key" in batch.schema.names and not pa.types.is_null(batch.column("key").type):
            numbers = (
                numbers.fill_null(0)
                if self._count == 1
                else _filled(numbers, partition_for_keys(batch.column("key"), self._count).cast(pa.int64()))
            )
        if numbers.null_count:
            turns = np.arange(self._count) if self._assigned is None or not len(self._ours) else self._ours
            dealt = turns[(np.arange(numbers.null_count) + self._without_key) % len(turns)]
            self._without_key += numbers.null_count
            values = np.array(numbers.fill_null(-1), np.int64)
            values[values < 0] = dealt
        else:
            values = np.asarray(numbers, np.int64)
        self._ensure_ours(values)
        return values

    def _ensure_ours(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Raise InvalidRequestError if a row goes to a partition that the metadata log assigns to other nodes."""
        if self._assigned is None or len(self._ours) == self._count:
            return
        wrong = np.flatnonzero(~np.isin(numbers, self._ours))
        if len(wrong):
            row, number = self._name_row(self._rows + int(wrong[0]) + 1), int(numbers[wrong[0]])
            raise InvalidRequestError(f"{row} goes to {self._topic}-{number}, {self._assigned.why_not_ours(number)}")

    def _named(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
            raise InvalidRequestError(f"column 'partition' holds numbers, not {column.type}")
        column = cast_column(column, pa.int64(), "partition")
        wrong = self._not_there(column)
        if wrong is not None:
            if self._assigned is not None:
                there: Iterable[int] = range(self._count)
                ways = "kafka-topics.sh --alter adds partitions"
            else:
                there = self._root.there or range(self._count)
                ways = "--partitions says how many there are to be"
            raise InvalidRequestError(f"partition {wrong} of a row: {self._topic} has {_list(there)}; {ways}")
        self._count = max(self._count, _least_and_most(column)[1] + 1)
        return column

    def _not_there(self, column: pa.Array) -> int | None:
        """A partition that rows name and that cannot be, if there is one."""
        if not self._is_known:
            return next(
                (number for number in column.unique().drop_null().to_pylist() if number not in self._root.there), None
            )
        low, high = _least_and_most(column)
        is_counted = self._is_given or self._assigned is not None or self._root.there
        limit = self._count if is_counted else _MOST_PARTITIONS
        return low if low < 0 else high if high >= limit else None

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What is stored of rows: times are filled in, the partition is not among it."""
        now_ms = self._root.clock.now_ms()
        names = [name for name in batch.schema.names if name != "partition"]
        rows = batch.select(names)
        if "timestamp" not in names:
            return rows.append_column("timestamp", pa.array(np.full(batch.num_rows, now_ms, np.int64)))
        times = rows.column("timestamp")
        if not times.null_count:
            return rows
        if pa.types.is_timestamp(times.type):
            now = pa.scalar(now_ms, pa.timestamp("ms", times.type.tz)).cast(times.type, safe=False)
        elif pa.types.is_integer(times.type) or pa.types.is_null(times.type):
            times, now = cast_column(times, pa.int64(), "timestamp"), pa.scalar(now_ms, pa.int64())
        else:
            return rows  # of a type that is refused
        return rows.set_column(names.index("timestamp"), "timestamp", times.fill_null(now))

    def finish(self) -> list[Loaded]:
        """Make the partitions that got no row, let readers see what was appended, and be done.

        Those of a topic that the cluster knows are left to the broker to make.
        """
        if self._is_known and self._assigned is None:
            self._logs(set(range(self._count)) - self._root.there)
        logs = self._root.logs(self._before)
        for log in logs.values():
            log.update_high_watermark(log.log_end_offset)
        done = [
            Loaded(log.topic_partition, log.log_end_offset - before, before, log.log_end_offset)
            for log, before in ((logs[number], before) for number, before in sorted(self._before.items()))
        ]
        self._root.finish()
        self._tell_of_empty(done)
        return done

    def _tell_of_empty(self, done: list[Loaded]) -> None:
        """Say so if rows could not go where a number of partitions seems to want them."""
        empty = sum(each.rows == 0 for each in done)
        if self._is_given and self._is_all_named and 0 < empty < len(done):
            self._on_notice(
                f"every row names its partition, so rows were not dealt out: {empty} of {self._count} partitions got "
                "none. Without the column `partition` they go by their keys"
            )


def _number(count: int) -> str:
    return "1 partition" if count == 1 else f"{count:,} partitions"


def _list(numbers: Iterable[int]) -> str:
    """Partitions in words."""
    ordered = sorted(numbers)
    if ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > 2:
        return f"partitions {ordered[0]} to {ordered[-1]}"
    return f"partition{'s' * (len(ordered) > 1)} {', '.join(map(str, ordered))}"


def _filled(numbers: pa.Array, others: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.coalesce(numbers, others)


def _least_and_most(column: pa.Array) -> tuple[int, int]:
    import pyarrow.compute as pc

    bounds = pc.min_max(column)
    return bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
