"""kill -9 of an executor while it writes into the directory of a real broker, moment by moment (executor_deaths.py).

Spark tries the task again elsewhere. Every record is there once, in order, as the broker serves it; of a job that could
not be saved there is nothing, and what its attempts left is swept, or removed by the broker.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.compat.broker import Broker
from tests.compat.broker_clients import consume
from tests.compat.executor_deaths import ROW_BYTES, ROWS, ROWS_OF_TASK
from tests.compat.kafka_tools import ROOT
from tests.compat.test_spark_writer import PARTITIONS, new_broker

TIMEOUT_S = 400


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deaths")


@pytest.fixture(scope="module")
def broker(place: Path) -> Broker:
    return new_broker(place / "root")


@pytest.fixture(scope="module")
def found(broker: Broker, place: Path) -> dict[str, Any]:
    """What the job has told, and every write of it is in the root."""
    (place / "job").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.executor_deaths", str(broker.root), str(place / "job")],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT),
             "SPARK_HOME": str(Path(pyspark.__file__).parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def served(broker: Broker) -> dict[str, list[list[int]]]:
    """The numbers that a broker serves, by write, a list for each partition."""
    numbers: dict[str, list[list[int]]] = {}
    for partition in range(PARTITIONS):
        for record in consume(broker, "orders", partition).records:
            name, _, number = (record.key or b"").decode().partition("-")
            if name != "first":
                assert record.value == number[-1:].encode() * ROW_BYTES
                lists = numbers.setdefault(name, [[] for _ in range(PARTITIONS)])
                lists[partition].append(int(number))
    return numbers


def check_all_once(lists: list[list[int]]) -> None:
    """Every number is there once, and those of a task are in order."""
    assert sorted(number for numbers in lists for number in numbers) == list(range(ROWS))
    for numbers in lists:
        for task in range(0, ROWS, ROWS_OF_TASK):
            of_task = [number for number in numbers if task <= number < task + ROWS_OF_TASK]
            assert of_task == sorted(of_task)


def test_an_executor_that_is_killed_leaves_pieces_and_its_task_is_done_again(found: dict[str, Any]) -> None:
    whole = ROWS_OF_TASK * ROW_BYTES
    for name in ("staging", "staged", "told", "stream"):
        [left] = found[name]["left"]
        assert len(left) == PARTITIONS
        assert all(left.values())
        assert (sum(left.values()) < whole) == (name == "staging")
        assert found[name]["after"] == {}  # swept by the commit of the same job


def test_a_job_that_could_not_be_saved_is_swept_by_age(found: dict[str, Any]) -> None:
    first, second = found["lost"]["left"]  # two attempts, and then Spark has given up
    assert len(first) == PARTITIONS
    assert all(first.values())
    assert second.items() > first.items()
    assert found["lost"]["after"].items() >= first.items()
    assert found["soon"] == found["lost"]["after"]  # too young for the commit of another job
    assert found["late"] == {}
    assert found["end"] == {}


def test_a_broker_serves_every_record_once_whoever_died(found: dict[str, Any], broker: Broker) -> None:
    with broker.running():
        writes = served(broker)
    assert sorted(writes) == ["late", "lost", "soon", "staged", "staging", "stream", "told"]
    for lists in writes.values():
        check_all_once(lists)
    assert not [name for name in os.listdir(broker.root) if name.endswith(("-stray", "-delete"))]


def test_a_broker_that_starts_on_what_the_dead_left_serves_nothing_of_it(found: dict[str, Any], place: Path) -> None:
    """The root as it was when the job had failed."""
    copy = place / "job" / "copy"
    left = set(os.listdir(copy)) & set(found["lost"]["after"])
    assert left
    hasty = {"log.segment.delete.delay.ms": 1, "log.initial.task.delay.ms": 1}
    with Broker(copy, hasty).running() as broker:
        writes = served(broker)
        deadline = time.monotonic() + 60
        while left & set(os.listdir(copy)):
            assert time.monotonic() < deadline, "the broker has not removed what was staged"
            time.sleep(0.05)  # between two looks
    assert sorted(writes) == ["staged", "staging", "stream", "told"]
    for lists in writes.values():
        check_all_once(lists)
