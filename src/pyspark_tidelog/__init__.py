"""What Spark finds by itself: it imports every module named `pyspark_*` and takes its `DefaultSource`.

One such module that raises hides every Python source from Spark, without a word. So this one imports nothing but
pyspark and the standard library; what is wrong with the rest is said when the source is used.
"""

from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # noqa: BLE001 - whatever is wrong with pyspark, it is not for us to say it here
    pass
else:
    if TYPE_CHECKING:
        from pyspark.sql.types import StructType

    class DefaultSource(DataSource):
        """`format("tidelog")`: Kafka's log directories as tables and streams."""

        @classmethod
        def name(cls) -> str:
            """What it is called."""
            return "tidelog"

        def schema(self) -> "StructType":
            """The columns of Spark's Kafka source, or those of the option `columns`."""
            from tidelog.spark.source import schema_of_source

            return schema_of_source(self.options)

        def reader(self, schema: "StructType") -> Any:
            """A batch."""
            from tidelog.spark.source import batch_reader

            return batch_reader(self.options, schema)

        def streamReader(self, schema: "StructType") -> Any:
            """A stream."""
            from tidelog.spark.source import stream_reader

            return stream_reader(self.options, schema)

        def writer(self, schema: "StructType", overwrite: bool) -> Any:
            """A batch that is written."""
            from tidelog.spark.source import batch_writer

            return batch_writer(self.options, schema, overwrite)

        def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:
            """A stream that is written."""
            from tidelog.spark.source import stream_writer

            return stream_writer(self.options, schema, overwrite)
