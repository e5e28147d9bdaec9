"""The same job on executors of their own: a cluster in one machine, and a standalone master with two workers.

There the driver and the workers are different processes in different directories, tasks run twice where speculation
wants it, and nothing is shared but the log directory.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.compat.kafka_tools import ROOT
from tests.spark.logs import record, write

TIMEOUT_S = 300
SPARK_HOME = Path(pyspark.__file__).parent
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}
COUNTS = {0: 120, 1: 45}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _fill(tmp_path / "job")
    return tmp_path / "job"


def _fill(folder: Path) -> None:
    for partition, count in COUNTS.items():
        records = (record(number) for number in range(count))
        write(folder / "logs", "orders", partition, records, segment_bytes=2_000)


def scenario(master: str, folder: Path, **more: str) -> dict[str, object]:
    """Run the job in a process of its own."""
    settings = {**QUIET, **{name.replace("__", "."): value for name, value in more.items()}}
    command = [sys.executable, "-m", "tests.compat.spark_scenario", master, str(folder)]
    done = subprocess.run(
        [*command, *(f"{name}={value}" for name, value in settings.items())],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK_HOME), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _values() -> dict[str, list[str]]:
    return {str(partition): [f"value-{number}" for number in range(count)] for partition, count in COUNTS.items()}


def test_a_cluster_in_one_machine(folder: Path) -> None:
    answer = scenario("local-cluster[2,1,1024]", folder)
    assert answer["read"] == answer["copied"] == answer["streamed"] == _values()


def test_a_standalone_master_where_a_second_attempt_runs(tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    _fill(folder)
    with _cluster(tmp_path / "cluster") as master:
        answer = scenario(
            master, folder, spark__cores__max="2", spark__executor__cores="1", spark__speculation="true",
            spark__speculation__multiplier="1.2", spark__speculation__quantile="0.5",
            spark__speculation__interval="50ms", spark__speculation__minTaskRuntime="100ms",
        )  # fmt: skip
    assert "0-1" in answer["attempts"]  # type: ignore[operator]
    assert answer["hosts"] == ["127.0.0.1", "127.0.0.2"]
    assert answer["copied"] == answer["streamed"] == _values()


@contextmanager
def _cluster(place: Path) -> Iterator[str]:
    """A master, and two workers on addresses of their own."""
    place.mkdir()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(processes, place, "master", "127.0.0.1", "org.apache.spark.deploy.master.Master",
                        "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")  # fmt: skip
        address = _said(master, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            host = f"127.0.0.{number}"
            log = _start(processes, place, f"worker-{number}", host, "org.apache.spark.deploy.worker.Worker",
                         "--host", host, "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g",
                         "--work-dir", str(place / f"work-{number}"), address)  # fmt: skip
            _said(log, r"(Successfully registered with master)")
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait(60)


def _start(processes: "list[subprocess.Popen[bytes]]", place: Path, name: str, host: str, *command: str) -> Path:
    log = place / f"{name}.log"
    with log.open("wb") as output:
        processes.append(
            subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", *command],
                stdout=output,
                stderr=output,
                cwd=place,
                env={
                    **os.environ,
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_LOCAL_HOSTNAME": host,
                    "SPARK_NO_DAEMONIZE": "1",
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_IP": host,
                },
            )  # fmt: skip
        )
    return log


def _said(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 60
    while True:
        found = re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8", errors="replace")[-2000:]
        time.sleep(0.05)  # between two looks
