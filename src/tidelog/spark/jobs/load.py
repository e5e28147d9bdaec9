"""`tidelog spark load`: a table of any format that Spark reads, as records of a log directory.

    a table -> key, value, partition, headers, timestamp -> one task for each partition -> format("tidelog")

Rows are sent to the task of their partition first, so that each partition is written in one go and in order: by the
column `offset` where there is one, else as they stand in the source. What the writer promises holds: before its commit
nothing is to be seen, behind it everything is.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tidelog.errors import InvalidRequestError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.spark.commit import look
from tidelog.spark.dealing import Dealer, TopicShape, shapes_of
from tidelog.spark.jobs.stored_columns import stored
from tidelog.spark.jobs.tasks import OnTasks, watched
from tidelog.spark.option_values import OptionValues
from tidelog.spark.source import FORMAT
from tidelog.spark.write_options import WriteOptions
from tidelog.tables.assignment import known_sizes
from tidelog.view.addresses import ensure_no_address, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["LoadWishes", "Loaded", "load"]

_STORED = ("key", "value", "partition", "headers", "timestamp")
_OFFSET, _PLACE = "offset", "__place"


@dataclass(frozen=True)
class LoadWishes:
    """What is read, and what becomes of its columns."""

    form: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)  # of Spark's reader
    schema: str | None = None  # of the source, for formats that do not know theirs: DDL
    key: str | None = None  # the column that is the key; without it `key`, if there is one
    value: str | None = None  # the column that is the value, or "json" for the whole row; without it `value`
    timestamp: str | None = None  # the column that is the time
    partitions: int | None = None  # of a new topic
    writing: Mapping[str, str] = field(default_factory=dict)  # of format("tidelog")


class Loaded(NamedTuple):
    """What a partition got."""

    partition: TopicPartition
    first_offset: int
    next_offset: int

    @property
    def records(self) -> int:
        """How many records."""
        return self.next_offset - self.first_offset


def load(
    spark: "SparkSession",
    source: str | Sequence[str],
    directory: str,
    topic: str,
    wishes: LoadWishes,
    *,
    on_tasks: OnTasks | None = None,
) -> list[Loaded]:
    """Append a table, by its path, its paths or its name, to a topic of a directory that all workers see."""
    ensure_no_address([directory], "a load")
    root = os.path.abspath(local_path(directory))
    options = {**wishes.writing, "topic": topic}
    if wishes.partitions is not None:
        options["partitions"] = str(wishes.partitions)
    with watched(spark, "load", on_tasks), _taken_away_if_empty(root):
        reader = spark.read.format(wishes.form).options(**wishes.options)
        if wishes.schema:
            reader = reader.schema(wishes.schema)
        table = reader.load(source if isinstance(source, str) else list(source))
        records = _records(table, wishes)
        writing = WriteOptions.of(OptionValues({**options, "path": root}), overwrite=False)
        there = look(writing)
        is_new = not any(place.topic == topic for place in there)
        before = {} if is_new else _ends(root, topic)
        fs = LocalFileSystem()
        known, may_lack = known_sizes(fs, root, there), writing.broker_dirs(fs).may_lack_some
        is_growing = is_new and wishes.partitions is None and topic not in known
        wanted = _named_partitions(records) if is_growing else wishes.partitions
        shape = shapes_of(there, topic, wanted, known, may_lack=may_lack)[topic]
        if shape.only is None:
            options["partitions"] = str(shape.partitions)  # refused if there are others when the rows are written
        rows = _dealt(records, topic, shape)
        rows.write.format(FORMAT).options(**options).mode("append").save(root)
    after = _ends(root, topic)
    return [
        Loaded(TopicPartition(topic, number), before.get(number, 0), end)
        for number, end in sorted(after.items())
        if end > before.get(number, 0)
    ]


# -- columns -----------------------------------------------------------------------------------------------------------


def _records(table: "DataFrame", wishes: LoadWishes) -> "DataFrame":
    """The columns that are stored, and one to order by."""
    from pyspark.sql import functions as F

    names = {name.lower(): name for name in table.columns}
    for role in ("key", "value", "timestamp"):
        wanted = getattr(wishes, role)
        if wanted is not None and wanted.lower() not in names and (role, wanted) != ("value", "json"):
            raise InvalidRequestError(f"no column {wanted!r} for the {role}; there are {', '.join(table.columns)}")
    columns = []
    for role in _STORED:
        wanted = getattr(wishes, role, None)
        if role == "value" and wanted == "json":
            column: Any = F.to_json(F.struct(*(F.col(f"`{name}`") for name in table.columns)))
        elif wanted is not None or role in names:
            column = F.col(f"`{names[(wanted or role).lower()]}`")
        else:
            continue
        columns.append(stored(column, role, _kind_of(table, wanted or role), wishes.form).alias(role))
    if wishes.value is None and "value" not in names:
        raise InvalidRequestError(
            f"no column 'value'; there are {', '.join(table.columns)}: name one by --value, or --value json for the row"
        )
    place = F.col(f"`{names[_OFFSET]}`").cast("long") if _OFFSET in names else F.monotonically_increasing_id()
    return table.select(*columns, place.alias(_PLACE))


def _kind_of(table: "DataFrame", name: str) -> "DataType | None":
    """The type of a column, however its name is written; None of one that is made here."""
    return next((field.dataType for field in table.schema.fields if field.name.lower() == name.lower()), None)


# -- partitions --------------------------------------------------------------------------------------------------------


def _named_partitions(records: "DataFrame") -> int | None:
    """How many partitions a new topic needs for those that rows name; None if they name none."""
    from pyspark.sql import functions as F

    if "partition" not in records.columns:
        return None
    largest = records.agg(F.max("partition")).collect()[0][0]
    return None if largest is None or largest < 0 else int(largest) + 1


def _dealt(records: "DataFrame", topic: str, shape: TopicShape) -> "DataFrame":
    """Records with their partitions, those of a partition in one task and in order."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    schema = records.schema
    if "partition" not in schema.names:
        schema = StructType([*schema.fields, StructField("partition", IntegerType())])
    numbered = records.mapInArrow(partial(_with_partitions, topic=topic, shape=shape), schema)
    tasks = max(min(shape.partitions, 4 * records.sparkSession.sparkContext.defaultParallelism), 1)
    return numbered.repartition(tasks, "partition").sortWithinPartitions("partition", _PLACE).drop(_PLACE)


def _with_partitions(batches: Iterator[pa.RecordBatch], *, topic: str, shape: TopicShape) -> Iterator[pa.RecordBatch]:
    """Rows with the partition that they name, that their key gives them, or whose turn it is."""
    dealer = Dealer(topic, {topic: shape}, None, first=0)
    for batch in batches:
        numbers = pa.array(dealer.numbers(topic, batch), pa.int32())
        at = batch.schema.get_field_index("partition")
        if at >= 0:
            yield batch.set_column(at, "partition", numbers)
        else:
            yield batch.append_column("partition", numbers)


@contextmanager
def _taken_away_if_empty(root: str) -> Iterator[None]:
    """Leave no directory behind that was made for a load that failed."""
    was_there = os.path.isdir(root)
    try:
        yield
    except BaseException:
        if not was_there:
            with suppress(OSError):  # it was not made, or there is something in it
                os.rmdir(root)
        raise


def _ends(root: str, topic: str) -> dict[int, int]:
    """Where the partitions of a topic end."""
    import tidelog

    return {partition.partition: partition.log_end_offset for partition in tidelog.open(root)[topic]}
