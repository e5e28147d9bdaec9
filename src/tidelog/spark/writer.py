"""What Spark calls to write: tasks that stage, and the driver that commits.

The object that commits is another one, in another process, than those that write: all that the commit must know is in
the messages of the tasks, and in the options.
"""

import ctypes
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.errors import StorageError, UnsupportedError
from tidelog.log.files import join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import PARTITION_METADATA, TopicPartition
from tidelog.log.partition_metadata import read_topic_id
from tidelog.spark.commit import Order, commit, look, withdraw
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.dealing import Dealer, TopicShape, ensure_counted, shapes_of
from tidelog.spark.option_values import OptionValues
from tidelog.spark.row_input import RowInput
from tidelog.spark.staged_pieces import Piece, attempt_name, job_of_batch, new_job
from tidelog.spark.staging import Staging, stage_rows
from tidelog.spark.worker import prepare_worker
from tidelog.spark.write_options import WriteOptions, unwritten_words
from tidelog.tables.assignment import known_sizes
from tidelog.tables.stray_topics import stray_warning

__all__ = ["BatchWriter", "Staged", "StreamWriter", "Write", "prepare_write"]

_log = logging.getLogger("tidelog.spark")

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt
_KEPT_BYTES = 128 << 20
_LARGEST_KEPT = 32 << 20  # in one piece


@dataclass
class Staged(WriterCommitMessage):
    """What one attempt of a task has staged."""

    task: int  # the index of the Spark partition
    query: str | None
    pieces: tuple[Piece, ...]
    counts: dict[str, int]  # partitions of the topics that got rows
    dealt: frozenset[str] = frozenset()  # new topics of unknown size, with rows that name no partition


class Write(NamedTuple):
    """A write that was understood. It can be pickled."""

    options: WriteOptions
    columns: RowInput
    shapes: dict[str, TopicShape]
    job: str  # of a batch: a stream has one for each of its batches

    def stage(self, batches: Iterator[pa.RecordBatch], *, is_stream: bool) -> Staged:
        """Stage the rows of a Spark partition."""
        prepare_worker()
        _keep_freed_memory()
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if is_stream and not (query and batch):
            raise UnsupportedError("Spark has not told the id of the query and of its batch: it cannot be written once")
        job = job_of_batch(str(query), int(batch or 0)) if is_stream else self.job
        number, options = context.partitionId(), self.options
        dealer = Dealer(options.topic, self.shapes, options.wanted, first=number)
        staging = Staging(LocalFileSystem(), options, attempt_name(job, random.Random()))
        pieces = stage_rows(map(self.columns.rows, batches), dealer, staging)
        topics = {piece.topic for piece in pieces}
        counts = {topic: dealer.shape_of(topic).partitions for topic in topics}
        return Staged(number, query, pieces, counts, frozenset(dealer.dealt))

    def order(self, messages: Sequence[WriterCommitMessage | None]) -> Order:
        """What the tasks of a job have staged, in the order of the Spark partitions."""
        prepare_worker()
        staged = sorted((each for each in messages if isinstance(each, Staged)), key=lambda each: each.task)
        if len(staged) != len(messages):
            raise StorageError(f"{len(messages) - len(staged)} of {len(messages)} tasks have not told what they staged")
        counts = {topic: shape.partitions for topic, shape in self.shapes.items() if topic == self.options.topic}
        for each in staged:
            for topic, count in each.counts.items():  # of a new one each task knows the partitions that its rows name
                counts[topic] = max(count, counts.get(topic, 0))
        for topic in frozenset[str]().union(*(each.dealt for each in staged)):
            ensure_counted(topic, counts[topic])
        return Order(self.options, [piece for each in staged for piece in each.pieces], counts)


@cache
def _keep_freed_memory() -> None:
    """Let the C library keep some freed memory for the next rows.

    Left alone it gives back what a batch of rows has taken, and gets it again for the next, which the system clears
    page by page: a fifth of the time of a task.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # there is one in glibc
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _pieces(messages: Sequence[WriterCommitMessage | None]) -> list[Piece]:
    return [piece for each in messages if isinstance(each, Staged) for piece in each.pieces]


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        return self._write.stage(iterator, is_stream=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let all of it be there."""
        order = self._write.order(messages)
        unwritten = unwritten_words(dict(self._write.options.partitions_by_topic), order.counts)
        if unwritten is not None:  # a topic may have no rows today
            _log.warning("%s", unwritten)
        commit(order._replace(job=self._write.job))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let nothing of it be there."""
        withdraw(_pieces(messages), self._write.options, self._write.job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each of them once."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        return self._write.stage(iterator, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Let all of the batch be there, unless it is."""
        order = self._write.order(messages)
        query = next((each.query for each in messages if isinstance(each, Staged) and each.query), None)
        if query is not None:
            order = order._replace(key=BatchKey(query, batchId), job=job_of_batch(query, batchId))
        commit(order)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what is known to be staged. Another attempt at the same batch may be under way."""
        withdraw(_pieces(messages), self._write.options, None)


def _warn_of_stray(options: WriteOptions, there: Sequence[TopicPartition]) -> None:
    """Say so if the topic lies in the directory of a broker whose cluster does not know it; a new one is told later."""
    fs = LocalFileSystem()
    numbers = sorted(place.partition for place in there if place.topic == options.topic)
    if options.topic is not None and numbers:
        path = join(join(options.root, f"{options.topic}-{numbers[0]}"), PARTITION_METADATA)
        warning = stray_warning(fs, [options.root], {options.topic: read_topic_id(fs, path)}, ())
        if warning is not None:
            _log.warning("%s", warning)


def prepare_write(values: OptionValues, schema: StructType, *, overwrite: bool) -> Write:
    """What options and columns ask for; refused here, on the driver, if it cannot be. The root is put in order."""
    prepare_worker()
    options = WriteOptions.of(values, overwrite=overwrite)
    columns = RowInput.of(schema, has_topic=options.topic is not None)
    there = look(options)
    _warn_of_stray(options, there)
    is_replaced = overwrite and options.partitions is not None
    fs = LocalFileSystem()
    known, may_lack = known_sizes(fs, options.root, there), options.broker_dirs(fs).may_lack_some
    shapes = shapes_of([] if is_replaced else there, options.topic, options.partitions, known, may_lack=may_lack)
    return Write(options, columns, shapes, new_job(random.Random()))
