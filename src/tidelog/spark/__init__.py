"""Kafka's log directories in Spark, through PySpark: `format("tidelog")`, and jobs over whole directories.

    spark.read.format("tidelog").option("subscribe", "orders").load("kafka-logs")

Spark finds the source by itself (package pyspark_tidelog). Where it does not, because another package that it looks at
fails, `register(spark)` does the same.

A walk: source.py understands what was asked for (option_table, option_values, read_options); places and topics say what
is read, bounds from where to where, planning cuts that into tasks, task_reader reads one in a worker; a stream asks
watch where the logs end. To write, row_input and dealing bring rows to partitions and staging puts them aside; commit
makes a journal of all (commit_plan; the format is in tidelog.log.journal_format) and does what it says (commit_apply,
committed_batches); recovery does so for one that was interrupted. The jobs of `tidelog spark` are in jobs/.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `format("tidelog")` known to a session that has not found it."""
    from pyspark_tidelog import DefaultSource

    spark.dataSource.register(DefaultSource)
