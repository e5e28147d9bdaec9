"""A broker's storage with 100 and with 2,000 partitions in two roots: what opening, holding and closing them takes.

Every measurement is made by a new process: memory that was used before is not given back to the system.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.log import IdempotentBatches
from bench.measure import Report
from tidelog.log import LogConfig, UnifiedLog
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import random_topic_id, uuid_text

FEW, MANY = 100, 2000
PARTITIONS_A_TOPIC = 20
SEGMENTS = 3
TURNS = 2
LINEAR = 1.5  # a partition among many may cost so many times as much as one among few
OPENED_WITHIN_S = 5

_OPEN_AND_CLOSE = """
import gc, json, os, resource, sys, time
from tidelog.log.compaction.log_cleaner import LogCleaner
from tidelog.log.manager.log_manager import LogManager

def now():
    return time.perf_counter(), time.process_time(), len(os.listdir("/proc/self/fd")), memory()

def memory():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def since(before):
    return [now - then for now, then in zip(now(), before)]

before = now()
manager = LogManager.open(sys.argv[1:])
opened = since(before)
count = len(manager.logs)
before = now()
manager.close()
closed = since(before)
json.dump({"count": count, "opened": opened, "closed": closed}, sys.stdout)
"""


def run(report: Report) -> None:
    """Rows of a broker's storage."""
    few: dict[str, float] = {}
    for count in (FEW, MANY):
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home:
            roots = _make_roots(Path(home), count)
            crashed = _measure(roots, count)  # nothing says that they were closed
            clean = [_measure(roots, count) for _ in range(TURNS)]
        opened = _best([turn["opened"] for turn in clean])
        rows = Rows(report, count, few)
        rows.add_time("open {} partitions, clean", opened, at_most=OPENED_WITHIN_S)
        rows.add_time("open {} partitions, everything recovered", crashed["opened"])
        rows.add_time("close {} partitions", _best([turn["closed"] for turn in clean]))
        _, _, files, memory = opened
        rows.add_each("open files of {} partitions", files / count, "each")
        rows.add_each("memory of {} partitions", memory / count / 1024, "KiB each")


def _best(turns: list[list[float]]) -> list[float]:
    """Of each figure the lowest: whatever comes on top is somebody else's."""
    return [min(figures) for figures in zip(*turns, strict=True)]


class Rows:
    """Rows about so many partitions. `few` are the figures of a partition among few, by what they tell."""

    def __init__(self, report: Report, count: int, few: dict[str, float]) -> None:
        self._report = report
        self._count = count
        self._few = few

    def add_time(self, name: str, taken: list[float], at_most: float | None = None) -> None:
        """Wall time in all, most of which is waiting for the disk, and CPU time of each partition."""
        wall_s, cpu_s = taken[:2]
        self._report.add(name.format(self._count), wall_s, "s", at_most=at_most)
        self.add_each(f"{name}, CPU", cpu_s / self._count * 1000, "ms each")

    def add_each(self, name: str, value: float, unit: str) -> None:
        """What a partition costs, and how that compares with one among few."""
        ratio = value / self._few.setdefault(name, value)
        is_few = self._count == FEW
        self._report.add(name.format(self._count), value, unit, against=None if is_few else f"{FEW} partitions",
                         ratio=None if is_few else ratio, at_most=None if is_few else LINEAR)  # fmt: skip


def _make_roots(home: Path, count: int) -> list[Path]:
    """Two roots with partitions that hold the same few batches; each topic has its id."""
    template = home / "template-0"
    batches = IdempotentBatches(40, 100)
    with UnifiedLog.open(template, LogConfig(segment_bytes=12_000)) as log:
        while len(log.segments) < SEGMENTS:
            log.append_as_leader(batches.take(1)[0], 0)
    chance = random.Random(count)
    roots = [home / "disk1", home / "disk2"]
    for number in range(count):
        topic, partition = divmod(number, PARTITIONS_A_TOPIC)
        if partition == 0:
            topic_id = random_topic_id(chance)
        directory = roots[number % 2] / f"topic{topic}-{partition}"
        shutil.copytree(template, directory)
        (directory / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {uuid_text(topic_id)}", encoding="ascii")
    return roots


def _measure(roots: list[Path], count: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _OPEN_AND_CLOSE, *map(str, roots)], capture_output=True, text=True, check=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["count"] == count
    return figures
