"""Spark Declarative Pipelines: a sink of a pipeline is a stream that Spark starts, with a name and a checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.logs import record, write
from tests.spark.session import SETTINGS, missing
from tidelog.view import open as open_logs

_SPEC = """\
name: copies
storage: file://{root}/storage
configuration:
  spark.sql.shuffle.partitions: "1"
libraries:
  - glob:
      include: flows/**
"""
_FLOW = """\
from pyspark import pipelines as dp

dp.create_sink("copies", "tidelog", {{"path": "{root}/sink", "topic": "copies", "partitions": "2"}})


@dp.append_flow(target="copies", name="copy")
def copy():
    orders = spark.readStream.format("tidelog").option("subscribe", "orders").option("startingOffsets", "earliest")
    return orders.load("{root}/source").select("key", "value")
"""


def test_a_pipeline_writes_into_a_log_directory(tmp_path: Path) -> None:
    reason = missing()
    if reason is not None:
        if os.environ.get("TIDELOG_REQUIRE_SPARK") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    write(tmp_path / "source", "orders", 0, (record(number) for number in range(50)))
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "copy.py").write_text(_FLOW.format(root=tmp_path))
    (tmp_path / "spark-pipeline.yml").write_text(_SPEC.format(root=tmp_path))
    ended = subprocess.run(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": _conf(tmp_path)},
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    logs = open_logs(tmp_path / "sink")
    values = [row.value for part in logs["copies"] for row in part.read()]
    assert sorted(values) == sorted(b"value-%d" % number for number in range(50))


def _conf(root: Path) -> str:
    """A directory with the settings of the other tests: nothing but the environment reaches the Spark of a pipeline."""
    directory = root / "conf"
    directory.mkdir()
    settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{root}/warehouse"}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (directory / "spark-defaults.conf").write_text("".join(lines))
    return str(directory)
