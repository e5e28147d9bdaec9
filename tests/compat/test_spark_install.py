"""The package as users install it: a wheel, in an environment of its own, which nobody has activated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.kafka_tools import ROOT
from tests.spark.logs import record, write

TIMEOUT_S = 600
JOB = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("tidelog").option("subscribe", "orders").load(sys.argv[1])
import tidelog
print(json.dumps({"rows": frame.count(), "from": tidelog.__file__}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what its extra `spark` wants."""
    place = tmp_path_factory.mktemp("install")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT))
    [wheel] = place.glob("tidelog-*.whl")
    _run(sys.executable, "-m", "venv", str(place / "environment"))
    _run(str(place / "environment" / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[spark]")
    return place / "environment"


def _run(*command: str, **settings: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env={**env, **settings}, cwd="/")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_spark_finds_the_source_of_an_installed_wheel(environment: Path, tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(40)))
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    python = str(environment / "bin" / "python")
    answer = json.loads(_run(python, str(tmp_path / "job.py"), str(tmp_path / "logs"), PYSPARK_PYTHON=python))
    assert answer["rows"] == 40
    assert Path(answer["from"]).is_relative_to(environment)


def test_a_job_of_ours_needs_no_setting_at_all(environment: Path, tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, (record(number) for number in range(40)))
    report = json.loads(_run(str(environment / "bin" / "tidelog"), "spark", "verify", str(tmp_path / "logs"), "--json"))
    assert report["records"] == 40


def test_the_doctor_tells_of_workers_that_have_no_tidelog(environment: Path) -> None:
    command = [str(environment / "bin" / "tidelog"), "doctor", "--json"]
    assert json.loads(_run(*command, PYSPARK_PYTHON=str(environment / "bin" / "python")))
    with pytest.raises(AssertionError):
        _run(*command, PYSPARK_PYTHON="/usr/bin/python3")
