"""The batch source: planned once per `load`, on the driver; read by the tasks."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.bounds import Bound, ranges
from tidelog.spark.planning import Task, plan_tasks
from tidelog.spark.read_options import ReadOptions
from tidelog.spark.row_schema import RowSchema
from tidelog.spark.task_reader import read_task
from tidelog.spark.worker import prepare_worker

__all__ = ["BatchReader"]


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
        tasks = plan_tasks(logs, wanted, options.splits, options.reach, skip_damage=options.skip_damage)
        return list(tasks) or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, Task)
        return read_task(partition, self._options, self._schema)
