"""`tidelog spark export`: records into any format that Spark writes, all at once or what has come since the last time.

    records -> key and value as bytes, as text, or the value as columns of its JSON -> a writer of Spark

With a checkpoint it is a stream that ends when it has caught up (availableNow): a second run adds what is new, and each
record is in the output once, if the format keeps its promise to streams, as parquet, json, csv and orc do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import InvalidRequestError
from tidelog.spark.jobs.tasks import OnTasks, plain_errors, watched, watching
from tidelog.spark.option_values import OptionValues
from tidelog.spark.read_options import schema_for
from tidelog.spark.row_schema import CORRUPTION
from tidelog.spark.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

__all__ = ["CORRUPT", "ExportWishes", "Exported", "columns_of", "export"]

CORRUPT = "_corrupt_record"
_KEPT_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"
_ISOLATION = ("isolationlevel", "kafka.isolation.level")
_NO_BYTES = ("csv", "text")  # formats that cannot hold binary columns


@dataclass(frozen=True)
class ExportWishes:
    """What is to be written, and how."""

    form: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)  # of Spark's writer
    reading: Mapping[str, str] = field(default_factory=dict)  # of format("tidelog")
    mode: str = "error"  # append, overwrite, ignore or error: what if there is something already
    partition_by: Sequence[str] = ()
    key: str = "binary"  # or string
    value: str = "binary"  # or string, or json
    schema: str | None = None  # of the JSON: DDL
    checkpoint: str | None = None
    is_table: bool = False  # the target is a table of a catalog, not a path

    def ensure_sound(self) -> None:
        """Refuse what cannot be, before Spark is asked."""
        if self.value == "json" and not self.schema:
            raise InvalidRequestError('values as JSON need a schema: --schema "item INT, cents BIGINT"')
        if self.schema and self.value != "json":
            raise InvalidRequestError("a schema is for values as JSON: --value json")
        if self.checkpoint is not None and self.mode not in ("error", "append"):
            raise InvalidRequestError(f"with a checkpoint records are added: mode {self.mode} has no meaning there")
        if self.form.lower() in _NO_BYTES and "binary" in (self.key, self.value):
            raise InvalidRequestError(f"{self.form} holds no bytes: write text, by --key string --value string")


class Exported(NamedTuple):
    """What was written."""

    target: str
    records: int
    corrupt: int  # values that were no text, or no JSON of the schema
    damaged: int = 0  # places of the log that were left out
    batches: int | None = None  # of a stream


def export(
    spark: "SparkSession",
    paths: Sequence[str],
    target: str,
    wishes: ExportWishes,
    *,
    on_tasks: OnTasks | None = None,
) -> Exported:
    """Write the records of log directories to a path, or to a table."""
    wishes.ensure_sound()
    reading = {**_committed(wishes.reading), "paths": json.dumps(list(paths))}
    if wishes.checkpoint is not None:
        return _export_new(spark, reading, target, wishes, on_tasks)
    from pyspark.sql import Observation

    with watched(spark, "export", on_tasks):
        counted, left_out = Observation("tidelog"), Observation("damage")
        found = _read(spark.read, reading).load()
        rows = columns_of(_records_of(found.observe(left_out, *_damaged(found))), wishes)
        writer = rows.observe(counted, *_counts(rows)).write.format(wishes.form).mode(wishes.mode)
        writer = writer.options(**wishes.options)
        if wishes.partition_by:
            writer = writer.partitionBy(*wishes.partition_by)
        (writer.saveAsTable if wishes.is_table else writer.save)(target)
        told = _told(counted, rows, _counts(rows))
        damaged = _told(left_out, found, _damaged(found))["damaged"]
    return Exported(target, told["records"], told["corrupt"], damaged)


def _committed(reading: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a read, of committed records unless they say otherwise, as `tidelog export` reads."""
    if any(name.lower() in _ISOLATION for name in reading):
        return reading
    return {**reading, "isolationLevel": "read_committed"}


def _read(reader: Any, reading: Mapping[str, str]) -> Any:
    """A reader of Spark's, batch or stream; where damage is left out, with the column that tells of it."""
    values = OptionValues(reading)
    if values.word("onCorruption", ("fail", "skip"), default="fail") == "skip":
        schema = schema_for(values)
        reader = reader.schema(schema if CORRUPTION in schema.names else schema.add(CORRUPTION, "string"))
        reading = {name: text for name, text in reading.items() if name.lower() != "columns"}
    return reader.format(FORMAT).options(**reading)


def _records_of(rows: "DataFrame") -> "DataFrame":
    """Rows without those that only tell of damage."""
    return rows.filter(f"{CORRUPTION} IS NULL").drop(CORRUPTION) if CORRUPTION in rows.columns else rows


def _damaged(rows: "DataFrame") -> "list[Column]":
    from pyspark.sql import functions as F

    damaged = F.count(F.col(CORRUPTION)) if CORRUPTION in rows.columns else F.count(F.lit(None))
    return [damaged.alias("damaged")]


def _export_new(
    spark: "SparkSession", reading: Mapping[str, str], target: str, wishes: ExportWishes, on_tasks: OnTasks | None
) -> Exported:
    """Write what has come since the checkpoint was written last."""
    assert wishes.checkpoint is not None
    kept = spark.conf.get(_KEPT_PROGRESS)
    with plain_errors():
        spark.conf.set(_KEPT_PROGRESS, "100000")
        try:
            stream = _read(spark.readStream, {"startingOffsets": "earliest", **reading}).load()
            rows = columns_of(_records_of(stream.observe("damage", *_damaged(stream))), wishes)
            writer = rows.observe("tidelog", *_counts(rows)).writeStream.format(wishes.form).outputMode("append")
            writer = writer.options(**wishes.options).option("checkpointLocation", wishes.checkpoint)
            if wishes.partition_by:
                writer = writer.partitionBy(*wishes.partition_by)
            writer = writer.trigger(availableNow=True)
            query = (writer.toTable if wishes.is_table else writer.start)(target)
        finally:
            spark.conf.set(_KEPT_PROGRESS, str(kept))
        try:
            with watching(spark, str(query.runId), on_tasks):
                query.awaitTermination()
        finally:
            query.stop()
        progress = [each.observedMetrics for each in query.recentProgress]
        told = [each["tidelog"] for each in progress if "tidelog" in each]
        damaged = sum(each["damage"].damaged for each in progress if "damage" in each)
    return Exported(target, sum(row.records for row in told), sum(row.corrupt for row in told), damaged, len(told))


def _told(counted: "Observation", rows: "DataFrame", counts: "list[Column]") -> dict[str, Any]:
    """What Spark has counted while it wrote; else what it counts now, of the same snapshot.

    A catalog that writes the rows of a table by a query of its own, as that of Delta does, leaves it nothing to tell.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        told: dict[str, Any] = counted.get
    except Py4JJavaError as error:
        if "toPyRow" not in str(error):
            raise
        told = rows.agg(*counts).collect()[0].asDict()
    return told


def _counts(rows: "DataFrame") -> "list[Column]":
    from pyspark.sql import functions as F

    corrupt = F.count(F.col(CORRUPT)) if CORRUPT in rows.columns else F.count(F.lit(None))
    return [F.count(F.lit(1)).alias("records"), corrupt.alias("corrupt")]


def columns_of(records: "DataFrame", wishes: ExportWishes) -> "DataFrame":
    """Records with key and value as they are wished for. What cannot be read so is null, and stands in CORRUPT."""
    from pyspark.sql import functions as F

    as_text = [name for name, how in (("key", wishes.key), ("value", wishes.value)) if how != "binary"]
    found = records
    if as_text:
        found = found.withColumn(CORRUPT, F.coalesce(*(_text(name)[1] for name in as_text)))
        for name in as_text:
            found = found.withColumn(name, _text(name)[0])
    if wishes.value == "json":
        assert wishes.schema is not None
        found = _parsed(found, wishes.schema)
    return found


def _text(name: str) -> "tuple[Column, Column]":
    """A column of bytes as text, null where it is none; and what those bytes look like then."""
    from pyspark.sql import functions as F

    text = F.col(name).cast("string")
    valid = F.try_validate_utf8(text)
    return valid, F.when(F.col(name).isNotNull() & valid.isNull(), F.make_valid_utf8(text))


def _parsed(records: "DataFrame", schema: str) -> "DataFrame":
    """Records whose values are JSON, as a struct of what the schema names."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    wanted = StructType.fromDDL(schema)
    if not isinstance(wanted, StructType):
        raise InvalidRequestError(f"the schema {schema!r} is one type, and not the fields of an object")
    if CORRUPT in wanted.fieldNames():
        raise InvalidRequestError(f"{CORRUPT} is there by itself, and not for the schema")
    inner = StructType([*wanted.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = records.withColumn("__parsed", F.from_json("value", inner, options))
    is_bad = F.col(f"__parsed.{CORRUPT}").isNotNull() | (F.col("value").isNotNull() & F.col("__parsed").isNull())
    fields = [F.col(f"__parsed.`{name}`").alias(name) for name in wanted.fieldNames()]
    return (
        parsed.withColumn(CORRUPT, F.coalesce(F.col(CORRUPT), F.when(is_bad, F.col("value"))))
        .withColumn("value", F.when(F.col("value").isNotNull() & ~is_bad, F.struct(*fields)))
        .drop("__parsed")
    )
