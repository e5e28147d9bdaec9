"""A dump of a gibibyte: by `tidelog dump-log` and by Apache Kafka's own tool, each as a command that somebody types.

Wall time from the start of the process to its end, the output thrown away. Kernels have been compiled before, as they
are once per machine; everything else that a new process needs is part of the time, on both sides.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import shapes
from bench.measure import MEGA, Report
from tests.compat import kafka_tools
from tidelog.columns import ColumnEncoder

SEGMENT_BYTES = 1 << 30
BATCH_BYTES = 16 << 10
ROWS_A_TURN = 500_000
COMPARED_BYTES = 8 << 20  # of which both tools must print the same
TOOL = "org.apache.kafka.tools.DumpLogSegments"
# What kafka-run-class gives a tool.
JVM_OPTIONS = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
               "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
               "-Djava.awt.headless=true")  # fmt: skip


class Mode(NamedTuple):
    """A way to dump, how often each tool runs, and how many times as fast ours has to be."""

    name: str
    options: tuple[str, ...]
    runs: int
    at_least: float


MODES = (
    Mode("plain", (), runs=7, at_least=3),
    Mode("--print-data-log", ("--print-data-log",), runs=1, at_least=5),  # theirs takes half a minute
)


def run(report: Report) -> None:
    """Dump rows."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        path = Path(folder) / "00000000000000000000.log"
        size = write(path)
        why = kafka_tools.missing()
        if why is None:
            _ensure_equal(path)
        else:
            print(f"not measured against Kafka's tool: {why}")
        for mode in MODES:
            ours, theirs = _take_turns([*mode.options, "--files", str(path)], mode.runs, with_theirs=why is None)
            report.add(f"dump: {mode.name}, 1 GiB", size / MEGA / ours, "MB/s")
            if theirs is not None:
                report.add(f"Apache Kafka 4.3's dump: {mode.name}, 1 GiB", size / MEGA / theirs, "MB/s")
                report.add(f"dump: {mode.name}", ours, "s", against="Kafka's", ratio=theirs / ours,
                           at_least=mode.at_least)  # fmt: skip


def _take_turns(arguments: Sequence[str], runs: int, *, with_theirs: bool) -> tuple[float, float | None]:
    """Medians of our seconds and of theirs. The tools take turns: the neighbours of a shared machine come and go."""
    _seconds(_ours(arguments))  # compiles what is not compiled yet
    ours, theirs = list[float](), list[float]()
    for _ in range(runs):
        ours.append(_seconds(_ours(arguments)))
        if with_theirs:
            theirs.append(_seconds(_theirs(arguments)))
    return statistics.median(ours), statistics.median(theirs) if theirs else None


def write(path: Path) -> int:
    """A segment of records of 100 bytes in batches of 16 KiB; its size."""
    table = shapes.table("a", ROWS_A_TURN)
    encoder = ColumnEncoder(batch_size=BATCH_BYTES, base_offset=0, partition_leader_epoch=0)
    with open(path, "wb") as file:
        while file.tell() < SEGMENT_BYTES:
            for part in encoder.encode(table):
                file.write(part.data)
        return file.tell()


def _ours(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tidelog", "dump-log", *arguments]


def _theirs(arguments: Sequence[str]) -> list[str]:
    return ["java", *JVM_OPTIONS, "-cp", f"{kafka_tools.jars()}/*", TOOL, *arguments]


def _seconds(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def _ensure_equal(path: Path) -> None:
    """Both tools print the same of the first bytes."""
    arguments = ["--print-data-log", "--max-bytes", str(COMPARED_BYTES), "--files", str(path)]
    ours, theirs = (
        subprocess.run(command, capture_output=True, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout
        for command in (_ours(arguments), _theirs(arguments))
    )
    assert ours == theirs, "the tools print different lines"
