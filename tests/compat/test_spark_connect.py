"""Spark Connect: the program is a thin client, the source is found and run by the server it talks to."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.spark.logs import record, write

TIMEOUT_S = 600
RECORDS = 300
# Reads a topic, writes it to another directory, lets a stream copy that, and misspells an option.
JOB = """
import json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

logs, written, streamed, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
frame = spark.read.format("tidelog").option("subscribe", "orders").load(logs)
answer = {"session": type(spark).__module__, "columns": frame.columns}
answer["rows"] = sorted([row.partition, row.offset, bytes(row.value).decode()] for row in frame.collect())

rows = frame.select("key", "value", "timestamp")
rows.write.format("tidelog").option("topic", "copies").option("partitions", "3").mode("append").save(written)

stream = spark.readStream.format("tidelog").option("startingOffsets", "earliest").load(written)
sink = stream.select("key", "value").writeStream.format("tidelog").option("topic", "streamed")
sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(streamed).awaitTermination()

spark.sql(f"CREATE TEMPORARY VIEW copies USING tidelog OPTIONS (path '{written}', columns 'key string, offset')")
answer["by key"] = {row.key: row.n for row in spark.sql("SELECT key, count(*) n FROM copies GROUP BY key").collect()}
try:
    spark.read.format("tidelog").option("subscrib", "orders").load(logs).count()
except PySparkException as error:
    answer["error"] = str(error)
print(json.dumps(answer))
spark.stop()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("connect")
    for partition in range(2):
        write(place / "logs", "orders", partition, map(record, range(RECORDS)))
    (place / "job.py").write_text(JOB, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def answer(place: Path) -> Any:
    command = [sys.executable, "job.py", "logs", "written", "streamed", "checkpoint"]
    command[2:] = [str(place / name) for name in command[2:]]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=place, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def _values(path: Path, topic: str) -> list[bytes | None]:
    return [row["value"] for row in tidelog.open(path).scan(topic, columns=["value"]).to_table().to_pylist()]


def test_a_client_reads_what_is_there(answer: Any) -> None:
    assert answer["session"].startswith("pyspark.sql.connect")
    assert answer["columns"] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert answer["rows"] == [[partition, n, f"value-{n}"] for partition in range(2) for n in range(RECORDS)]


def test_a_client_writes_and_a_stream_of_it_does(answer: Any, place: Path) -> None:
    wanted = sorted(2 * [b"value-%d" % number for number in range(RECORDS)])
    assert sorted(filter(None, _values(place / "written", "copies"))) == wanted
    assert sorted(filter(None, _values(place / "streamed", "streamed"))) == wanted


def test_a_view_in_sql_has_what_the_client_wrote(answer: Any) -> None:
    assert answer["by key"] == {f"key-{key}": 2 * len(range(key, RECORDS, 7)) for key in range(7)}


def test_a_client_is_told_what_is_wrong_with_an_option(answer: Any) -> None:
    assert "unknown option 'subscrib'; do you mean 'subscribe'?" in answer["error"]
