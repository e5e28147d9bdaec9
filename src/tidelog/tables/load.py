"""Rows of tables appended to the logs of a root, through the same engine that a broker's appends go through.

    rows -> the partition of each -> batches, encoded at memory speed -> UnifiedLog.append_as_leader

The partition is what the column `partition` says; else it follows from the key as with Kafka's own producers (murmur2);
rows without a key are dealt out one by one. Rows of a partition keep their order. A time that is missing is the time
of loading. All or nothing: what fails in the middle is cut off again.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.columns import ColumnEncoder, partition_for_keys
from tidelog.errors import InvalidRequestError, InvalidTopicError, LockedError, StorageError
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_manager import LogManager
from tidelog.log.names import (
    CLUSTER_METADATA_TOPIC,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    check_partition,
    parse_directory_name,
)
from tidelog.log.partition_metadata import random_topic_id
from tidelog.log.unified_log import UnifiedLog

__all__ = ["Loaded", "load_table"]

_BATCH_BYTES = 64 << 10
_MOST_PARTITIONS = 1000  # that rows can ask for by themselves: a wrong number must not make as many directories


class Loaded(NamedTuple):
    """What was appended to a partition."""

    partition: TopicPartition
    rows: int
    first_offset: int
    next_offset: int


def load_table(
    batches: Iterable[pa.RecordBatch],
    root: str,
    topic: str,
    *,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    compression: str = "none",
    topic_id: uuid.UUID | None = None,
    clock: Clock | None = None,
    fs: FileSystem | None = None,
    rng: random.Random | None = None,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> list[Loaded]:
    """Append rows to a topic of a root, which is made if there is none, and so are the directories of its partitions.

    `partitions` is how many the topic has; without it, as many as there are, or as the column `partition` names, or
    one. A root that somebody has open, or that was not closed in good order, is refused. `on_bytes` is told how much
    was appended so far.
    """
    fs = LocalFileSystem() if fs is None else fs
    clock = SystemClock() if clock is None else clock
    rng = random.Random() if rng is None else rng
    check_partition(TopicPartition(topic, 0))
    LogConfig.from_properties(configs or {})  # what is refused is refused before anything is made
    ensure_loadable(fs, root)
    try:
        manager = LogManager.open(root, topic_configs={topic: dict(configs or {})}, clock=clock, fs=fs, rng=rng)
    except LockedError as error:
        raise LockedError(f"a broker or another tidelog has {root} open: stop it first") from error
    with manager:
        manager.broker_epoch = -1 if manager.stopped_epoch is None else manager.stopped_epoch
        loading = _Loading(manager, topic, partitions, compression, topic_id)
        try:
            size = 0
            for batch in batches:
                loading.append(batch)
                size += batch.nbytes
                on_bytes(size)
            return loading.finish()
        except BaseException:
            loading.undo()
            raise


def ensure_loadable(fs: FileSystem, root: str) -> None:
    """Raise if a directory is neither new nor empty nor a root that was closed in good order."""
    about = fs.stat(root)
    if about is None:
        return
    if not about.is_directory:
        raise InvalidRequestError(f"{root} is a file: name a log directory, or one that is to be made")
    names = fs.list(root)
    if any(name.endswith(".log") for name in names):
        raise InvalidRequestError(f"{root} is the directory of a partition: name the log directory that it lies in")
    holds_logs = any(_is_partition(name) for name in names)
    if names and not holds_logs and not {META_PROPERTIES, RECOVERY_POINT_CHECKPOINT} & set(names):
        raise InvalidRequestError(f"{root} holds other things than logs: name a log directory, or a new one")
    if holds_logs and not CleanShutdownFile(fs, root).exists():
        raise StorageError(
            f"{root} was not closed in good order, or a broker has it open: "
            "start the broker on it and stop it, then try again"
        )


def _is_partition(name: str) -> bool:
    try:
        return parse_directory_name(name).topic != CLUSTER_METADATA_TOPIC
    except InvalidTopicError:
        return False


class _Loading:
    """The logs of a topic while rows are appended to them."""

    def __init__(
        self, manager: LogManager, topic: str, partitions: int | None, compression: str, topic_id: uuid.UUID | None
    ) -> None:
        self._manager = manager
        self._topic = topic
        self._compression = compression
        self._before: dict[int, int] = {}  # where each log ended
        self._new: list[int] = []
        self._without_key = 0
        there = {log.topic_partition.partition: log for log in manager.logs_of_topic(topic)}
        self._is_fixed = partitions is not None or bool(there)
        self._count = partitions or max(there, default=0) + 1
        if there and self._count <= max(there):
            raise InvalidRequestError(f"{topic} has {max(there) + 1} partitions already, which are not made fewer")
        self._topic_id = self._settled_id(there.values(), topic_id)
        ColumnEncoder(codec=compression)  # a codec that there is not is refused before anything is made

    def _settled_id(self, logs: Iterable[UnifiedLog], wanted: uuid.UUID | None) -> uuid.UUID:
        known = next((log.topic_id for log in logs if log.topic_id is not None), None)
        if known is not None and wanted is not None and known != wanted:
            raise InvalidRequestError(f"the topic {self._topic} has another id already; leave --topic-id out")
        return known or wanted or random_topic_id(self._manager.rng)

    def append(self, batch: pa.RecordBatch) -> None:
        """Append rows, each to its partition."""
        for partition, rows in self._dealt(batch):
            log = self._log(partition)
            config = log.config
            encoder = ColumnEncoder(
                codec=self._compression,
                base_offset=None,
                batch_size=min(_BATCH_BYTES, config.segment_bytes, config.max_message_bytes),
            )
            epoch = log.latest_epoch or 0
            for stretch in encoder.encode(rows):
                for data in stretch.batches():
                    log.append_as_leader(data, epoch)

    def _dealt(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        numbers = self._numbers(batch)
        rows = self._stored(batch)
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            yield first, rows
            return
        order = np.argsort(numbers, kind="stable")
        edges = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, edges):
            yield int(numbers[part[0]]), rows.take(pa.array(part))

    def _numbers(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The partition of each row."""
        numbers = pa.nulls(batch.num_rows, pa.int64())
        if "partition" in batch.schema.names:
            numbers = self._named(batch.column("partition"))
        if numbers.null_count and "key" in batch.schema.names and not pa.types.is_null(batch.column("key").type):
            numbers = (
                numbers.fill_null(0)
                if self._count == 1
                else _filled(numbers, partition_for_keys(batch.column("key"), self._count).cast(pa.int64()))
            )
        if numbers.null_count:
            dealt = (np.arange(numbers.null_count) + self._without_key) % self._count
            self._without_key += numbers.null_count
            values = np.array(numbers.fill_null(-1), np.int64)
            values[values < 0] = dealt
            return values
        return np.asarray(numbers, np.int64)

    def _named(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
            raise InvalidRequestError(f"column 'partition' holds numbers, not {column.type}")
        column = column.cast(pa.int64())
        low, high = _least_and_most(column)
        if low < 0 or high >= (self._count if self._is_fixed else _MOST_PARTITIONS):
            wrong = low if low < 0 else high
            raise InvalidRequestError(
                f"partition {wrong} of a row: {self._topic} has partitions 0 to {self._count - 1}; "
                "--partitions says how many there are to be"
            )
        self._count = max(self._count, high + 1)
        return column

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What is stored of rows: times are filled in, the partition is not among it."""
        now_ms = self._manager.clock.now_ms()
        names = [name for name in batch.schema.names if name != "partition"]
        rows = batch.select(names)
        if "timestamp" not in names:
            return rows.append_column("timestamp", pa.array(np.full(batch.num_rows, now_ms, np.int64)))
        times = rows.column("timestamp")
        if not times.null_count:
            return rows
        if pa.types.is_timestamp(times.type):
            now = pa.scalar(now_ms, pa.timestamp("ms", times.type.tz)).cast(times.type)
        else:
            times = times.cast(pa.int64()) if pa.types.is_null(times.type) else times
            now = pa.scalar(now_ms, pa.int64())
        return rows.set_column(names.index("timestamp"), "timestamp", times.fill_null(now))

    def _log(self, partition: int) -> UnifiedLog:
        place = TopicPartition(self._topic, partition)
        log = self._manager.get(place)
        if log is not None and partition in self._before:
            return log
        if log is None:
            self._new.append(partition)
        log = self._manager.get_or_create(place, topic_id=self._topic_id)
        self._before[partition] = log.log_end_offset
        return log

    def finish(self) -> list[Loaded]:
        """Make the partitions that got no row, and let readers see everything."""
        for partition in range(self._count):
            log = self._log(partition)
            log.update_high_watermark(log.log_end_offset)
            log.flush()
        return [
            Loaded(
                TopicPartition(self._topic, partition),
                self._log(partition).log_end_offset - before,
                before,
                self._log(partition).log_end_offset,
            )
            for partition, before in sorted(self._before.items())
        ]

    def undo(self) -> None:
        """Cut off what was appended, and take new partitions away."""
        places = {TopicPartition(self._topic, number): end for number, end in self._before.items()}
        new = [TopicPartition(self._topic, number) for number in self._new]
        self._manager.truncate_to({place: end for place, end in places.items() if place not in new})
        self._manager.delete_all(new)


def _filled(numbers: pa.Array, others: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.coalesce(numbers, others)


def _least_and_most(column: pa.Array) -> tuple[int, int]:
    import pyarrow.compute as pc

    bounds = pc.min_max(column)
    return bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
