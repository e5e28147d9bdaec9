"""A small job as users write them, for any master: read a batch and a stream, write them, read what was written.

    python -m tests.compat.spark_scenario MASTER FOLDER [NAME=VALUE ...]

prints one line of JSON. With `slow` in the folder's name, a task of the write waits for a second attempt of itself,
which speculation starts; every attempt leaves a file that tells of it.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 60


def main(master: str, folder: Path, settings: dict[str, str]) -> None:
    builder = SparkSession.builder.master(master).appName("scenario")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    logs = folder / "logs"
    batch = spark.read.format("tidelog").option("subscribe", "orders").option("minPartitions", "4").load(str(logs))
    attempts = folder / "attempts"
    attempts.mkdir(exist_ok=True)
    rows = batch.selectExpr("key", "value", "timestamp", "partition")
    rows = rows.mapInArrow(_noted(str(attempts), is_slow="slow" in folder.name), rows.schema)
    rows.write.format("tidelog").options(topic="copied", partitions="2").mode("append").save(str(folder / "written"))
    stream = spark.readStream.format("tidelog").options(subscribe="orders", startingOffsets="earliest").load(str(logs))
    query = (
        stream.selectExpr("key", "value", "timestamp", "partition")
        .writeStream.format("tidelog")
        .options(topic="streamed", partitions="2", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "written"))
    )
    query.awaitTermination()
    written = spark.read.format("tidelog").load(str(folder / "written"))
    sys.stdout.write(
        json.dumps(
            {
                "read": _summary(batch),
                "copied": _summary(written.where("topic = 'copied'")),
                "streamed": _summary(written.where("topic = 'streamed'")),
                "attempts": sorted(name for name in os.listdir(attempts)),
                "hosts": sorted({line for file in attempts.iterdir() for line in file.read_text().splitlines()}),
            }
        )
        + "\n"
    )
    spark.stop()


def _summary(frame: DataFrame) -> dict[str, list[object]]:
    """What tells that rows are all there, once, and in order."""
    found = frame.selectExpr("partition", "offset", "cast(value as string) value").orderBy("partition", "offset")
    rows = found.collect()
    partitions = sorted({row.partition for row in rows})
    return {str(number): [row.value for row in rows if row.partition == number] for number in partitions}


def _noted(folder: str, *, is_slow: bool):  # type: ignore[no-untyped-def]
    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number, attempt = context.partitionId(), context.attemptNumber()
        with open(f"{folder}/{number}-{attempt}", "w", encoding="utf-8") as file:
            file.write(os.environ.get("SPARK_LOCAL_HOSTNAME", "") or os.uname().nodename)
        yield from batches
        deadline = time.monotonic() + DEADLINE_S
        while is_slow and number == 0 and attempt == 0 and not os.path.exists(f"{folder}/0-1"):
            if time.monotonic() > deadline:
                raise TimeoutError("no second attempt was started")
            time.sleep(0.05)  # between two looks

    return note


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), dict(setting.split("=", 1) for setting in sys.argv[3:]))
