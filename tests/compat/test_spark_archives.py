"""Code shipped as users ship it: an environment that was packed, sent along with `--archives`, unpacked by executors.

The commands are those of docs/spark.md. The driver finds the source, plans what tasks read and commits what they wrote;
Spark starts all of this, here and on executors, by one path. It leads to the environment that was packed on the driver,
and into the unpacked archive on executors, which have nothing else of it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.kafka_tools import ROOT
from tests.compat.test_spark_masters import QUIET, SPARK_HOME
from tests.spark.logs import record, write

TIMEOUT_S = 300
ROWS = 120
LIGHT_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {**QUIET, "spark.driver.extraJavaOptions": LIGHT_JVM, "spark.executor.extraJavaOptions": LIGHT_JVM}
JOB = """
import json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

def whereabouts(number):
    import sys, tidelog
    return {"python": sys.executable, "tidelog": tidelog.__file__}

logs, damaged, target = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
frame = spark.read.format("tidelog").option("minPartitions", 4).load(logs)
frame.select("key", "value").write.format("tidelog").option("topic", "copy").mode("append").save(target)
copied = spark.read.format("tidelog").load(target).selectExpr("cast(value as string) value").orderBy("offset").collect()
try:
    failure = str(spark.read.format("tidelog").load(damaged).collect())
except PySparkException as error:
    failure = str(error)
print(json.dumps({
    "rows": frame.count(), "copied": [row.value for row in copied], "failure": failure, "driver": sys.executable,
    "worker": spark.sparkContext.parallelize([0], 1).map(whereabouts).first(),
}))
spark.stop()
"""


def _run(*command: str, cwd: Path, **settings: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env={**env, **settings}, cwd=cwd)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with a job, logs, and a wheel of tidelog in a packed environment; PySpark is not in it."""
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", ".", str(ROOT), cwd=tmp_path)
    [wheel] = tmp_path.glob("tidelog-*.whl")
    _run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    _run("env/bin/pip", "install", "--quiet", wheel.name, "venv-pack", cwd=tmp_path)
    _run("env/bin/venv-pack", "-q", "-p", "env", "-o", "tidelog.tar.gz", "--compress-level", "1", cwd=tmp_path)
    (tmp_path / "environment").symlink_to("env")
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(ROWS)))
    _damage(tmp_path / "logs", tmp_path / "damaged")
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    yield tmp_path
    shutil.rmtree(tmp_path)  # pytest keeps the directories of three runs, and two environments are much


def test_workers_run_from_an_environment_that_was_sent_to_them(place: Path) -> None:
    home = _home(place / "spark")
    told = _run(
        str(home / "bin" / "spark-submit"), "--master", "local-cluster[1,1,1024]",
        *(f"--conf={name}={value}" for name, value in SETTINGS.items()),
        "--archives", "tidelog.tar.gz#environment", "job.py", "logs", "damaged", "copied",
        cwd=place, SPARK_HOME=str(home), PYSPARK_PYTHON="./environment/bin/python",
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert Path(answer["driver"]) == place / "environment" / "bin" / "python"
    assert answer["copied"] == [f"value-{number}" for number in range(ROWS)]
    assert answer["rows"] == ROWS
    unpacked = Path(answer["worker"]["python"]).parents[1]
    assert unpacked.name == "environment"
    assert unpacked.is_relative_to(home / "work")  # where executors run
    assert Path(answer["worker"]["tidelog"]).is_relative_to(unpacked)
    # The worker that reads is another one. It tells where its code is by what it says of damage.
    assert "tidelog fsck" in answer["failure"]
    assert f'File "{home}/work/' in answer["failure"]


def _home(place: Path) -> Path:
    """Spark's own directory, but for `work`, where its workers unpack what they are sent."""
    place.mkdir()
    for each in SPARK_HOME.iterdir():
        if each.name != "work":
            (place / each.name).symlink_to(each)
    return place


def _damage(logs: Path, copy: Path) -> None:
    shutil.copytree(logs, copy)
    log = min(copy.glob("orders-0/*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF  # in the records of the first batch
    log.write_bytes(data)
