"""Spark writing rows: as a topic through `format("tidelog")`, and as Parquet through its own writer.

Both get the same rows from Spark's memory and write them with the settings that a user gets who asks for nothing: ours
without compression, as a producer sends them, to a topic of eight partitions that the keys choose; Parquet with snappy.
What counts is the CPU time of all processes, with the commit. What it takes to bring the rows out of Spark's memory,
found by writing them to nowhere, is taken off on both sides, so that it does not make them look alike. All ways are
warmed up several times: the JVM compiles for as long, which is paid once in a session and not for each million rows.

Spark asks after every row how many bytes its Arrow batch has, unless only the number of rows is bounded: half of what
the JVM spends on any Python writer. Both settings are measured, see docs/spark.md.
"""

import os
import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench import shapes
from bench.measure import GIGA, MEGA, Report
from bench.process_tree import cpu_of_tree
from tidelog.log.local_files import LocalFileSystem
from tidelog.spark.commit import Order, commit, look
from tidelog.spark.dealing import Dealer, shapes_of
from tidelog.spark.staged_pieces import attempt_name, new_job
from tidelog.spark.staging import Staging, stage_rows
from tidelog.spark.write_options import WriteOptions

TOPIC = "orders"
PARTITIONS = 8
ROWS = 3_000_000
TURNS = 5
_WARM_UP = 3
_FILES = 4
_BOUND = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_BOUND = str((1 << 31) - 1)


def run(report: Report, spark: SparkSession, folder: Path) -> None:
    """The rows of the writer."""
    folder.mkdir()
    _against_parquet(report, spark, folder)
    _commit(report, folder)


def _rows() -> pa.Table:
    table = shapes.table("a", ROWS)
    times = table.column("timestamp").cast(pa.timestamp("ms", "UTC"))
    return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", times)


def _against_parquet(report: Report, spark: SparkSession, folder: Path) -> None:
    frame = _in_memory(spark, folder / "input")
    ways: dict[str, Callable[[], None]] = {
        "as it is set": lambda: _write_topic(frame, folder / "root"),
        "ours": lambda: _with_batches_of_rows(spark, lambda: _write_topic(frame, folder / "root")),
        "parquet": lambda: _write_parquet(frame, folder / "parquet"),
        "nothing": lambda: frame.write.format("noop").mode("overwrite").save(),
    }
    for _ in range(_WARM_UP):
        for work in ways.values():
            work()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, work in ways.items():
            taken[name].append(_cpu(work))
    frame.unpersist()
    reading = statistics.median(taken["nothing"])
    for way, name, goal in (("ours", "", 1.0), ("as it is set", ", Arrow batches bounded by bytes", None)):
        pairs = zip(taken[way], taken["parquet"], strict=True)
        ratio = statistics.median((theirs - reading) / (ours - reading) for ours, theirs in pairs)
        report.add(f"Spark: writing 1 M rows{name}", (statistics.median(taken[way]) - reading) / ROWS * MEGA,
                   "s of CPU", against="Spark's Parquet writer", ratio=ratio, at_least=goal)  # fmt: skip


def _with_batches_of_rows(spark: SparkSession, work: Callable[[], None]) -> None:
    """Work while only the number of rows bounds an Arrow batch."""
    before = spark.conf.get(_BOUND)
    assert before is not None
    spark.conf.set(_BOUND, _NO_BOUND)
    try:
        work()
    finally:
        spark.conf.set(_BOUND, before)


def _in_memory(spark: SparkSession, path: Path) -> DataFrame:
    """The rows in Spark's memory, in as many partitions as it makes of some files."""
    path.mkdir()
    table = _rows()
    for number in range(_FILES):
        share = table.slice(number * ROWS // _FILES, ROWS // _FILES)
        pq.write_table(share, path / f"{number}.parquet")
    frame = spark.read.parquet(str(path)).cache()
    assert frame.count() == ROWS
    return frame


def _write_topic(frame: DataFrame, root: Path) -> None:
    _make_empty(root)
    options = {"topic": TOPIC, "partitions": str(PARTITIONS)}
    frame.write.format("tidelog").mode("append").options(**options).save(str(root))


def _write_parquet(frame: DataFrame, path: Path) -> None:
    _make_empty(path)
    frame.write.mode("append").parquet(str(path))


def _make_empty(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()


def _cpu(work: Callable[[], None]) -> float:
    started = cpu_of_tree(os.getpid())
    work()
    return cpu_of_tree(os.getpid()) - started


def _commit(report: Report, folder: Path) -> None:
    """The time from the end of the last task until everything is there and on the disk."""
    batches = _rows().combine_chunks().to_batches(max_chunksize=10_000)
    speeds = []
    for _ in range(TURNS):
        _make_empty(folder / "root")
        options = WriteOptions(str(folder / "root"), TOPIC, PARTITIONS)
        shapes_there = shapes_of(look(options), TOPIC, PARTITIONS)
        job = new_job(random.Random())
        staging = Staging(LocalFileSystem(), options, attempt_name(job, random.Random()))
        pieces = stage_rows(batches, Dealer(TOPIC, shapes_there, PARTITIONS, first=0), staging)
        started = time.monotonic()
        commit(Order(options, list(pieces), {TOPIC: PARTITIONS}, job))
        speeds.append((time.monotonic() - started) / sum(piece.size for piece in pieces) * GIGA)
    report.add("Spark: commit of 1 GB", statistics.median(speeds), "s")
