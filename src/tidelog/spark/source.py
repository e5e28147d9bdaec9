"""`format("tidelog")`: the source and the sink that Spark asks for readers and writers."""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from tidelog.spark.option_table import BATCH, STREAM, WRITE
from tidelog.spark.option_values import OptionValues
from tidelog.spark.read_options import ReadOptions, schema_for, warn_of
from tidelog.spark.row_schema import RowSchema

__all__ = ["FORMAT", "batch_reader", "batch_writer", "schema_of_source", "stream_reader", "stream_writer"]

FORMAT = "tidelog"


def schema_of_source(options: Mapping[str, str]) -> StructType:
    """The columns, where `.schema(...)` asks for none."""
    return schema_for(OptionValues(options))


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of one `load`."""
    from tidelog.spark.batch_reader import BatchReader
    from tidelog.spark.bounds import Bound

    warn_of(options, BATCH)
    values = OptionValues(options)
    understood = ReadOptions.of(values, is_stream=False)
    starting, ending = Bound.starting(values, default="earliest"), Bound.ending(values)
    starting.ensure_is_no_end()
    starting.ensure_fits(ending)
    return BatchReader(understood, RowSchema.of(schema, understood.invalid_utf8), starting, ending)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of one query."""
    from tidelog.spark.bounds import Bound
    from tidelog.spark.stream_reader import Pace, StreamReader

    warn_of(options, STREAM)
    values = OptionValues(options)
    understood = ReadOptions.of(values, is_stream=True)
    return StreamReader(
        understood,
        RowSchema.of(schema, understood.invalid_utf8),
        Bound.starting(values, default="latest"),
        Pace.of(values, is_remote=understood.places.is_remote),
    )


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of one `save`."""
    from tidelog.spark.writer import BatchWriter, prepare_write

    warn_of(options, WRITE)
    return BatchWriter(prepare_write(OptionValues(options), schema, overwrite=overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of one query."""
    from tidelog.spark.writer import StreamWriter, prepare_write

    warn_of(options, WRITE)
    return StreamWriter(prepare_write(OptionValues(options), schema, overwrite=overwrite))
