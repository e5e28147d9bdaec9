"""The batch source: planned once per `load`, on the driver; read by the tasks."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.fsck.root_files import is_in_use
from tidelog.spark.bounds import Bound, OffsetRange, ranges
from tidelog.spark.planning import Task, plan_tasks
from tidelog.spark.read_options import ReadOptions
from tidelog.spark.row_schema import RowSchema
from tidelog.spark.task_reader import read_task
from tidelog.spark.worker import prepare_worker
from tidelog.view.log_dirs import LogDirView

__all__ = ["BatchReader"]

_log = logging.getLogger("tidelog.spark")


class BatchReader(DataSourceReader):
    """Reads a range of offsets of every partition that is asked for. It has no `pushFilters` on purpose: Spark keeps
    one plan per `load`, and what one query pushes down would be missing in the next."""

    def __init__(self, options: ReadOptions, schema: RowSchema, starting: Bound, ending: Bound) -> None:
        self._options = options
        self._schema = schema
        self._starting = starting
        self._ending = ending

    def partitions(self) -> list[InputPartition]:
        """The tasks, as the directories are now."""
        prepare_worker()
        options = self._options
        logs = options.places.open()
        options.topics.ensure_there(logs)
        wanted = ranges(
            logs, options.topics.choose(logs), self._starting, self._ending, options.reach, options.report_loss
        )
        if options.reach.end_bound == "logEnd":
            _warn_of_ends(logs, wanted)
        tasks = plan_tasks(logs, wanted, options.splits, options.reach, skip_damage=options.skip_damage)
        return list(tasks) or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, Task)
        return read_task(partition, self._options, self._schema)


def _warn_of_ends(logs: LogDirView, wanted: Sequence[OffsetRange]) -> None:
    """Warn of bytes at the end of logs that no reader gives. A broker at work leaves an incomplete batch there."""
    for one in wanted:
        partition = logs[one.partition]
        left_out = partition.left_out if one.limit == partition.log_end_offset else None
        if left_out is not None and left_out.size and not (left_out.is_incomplete and is_in_use(partition.root)):
            _log.warning("%s", left_out)
