"""Medians of CPU time, and the table of what was measured."""

import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

GIGA = 1e9
MEGA = 1e6
TURNS = 11
RESULTS = Path(__file__).with_name("results.json")


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def cpu_seconds(work: Callable[[], object], runs: int = 5) -> float:
    """Median CPU time of one call, after one that warms up, with the garbage collector off."""
    work()
    gc.collect()
    gc.disable()
    try:
        taken = [_cpu(work) for _ in range(runs)]
    finally:
        gc.enable()
    return statistics.median(taken)


@dataclass
class Row:
    """One line of the results. `holds` says whether the goal was reached; a row without a goal always holds."""

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    goal: str | None = None
    holds: bool = True


class Report:
    """Collects rows, prints each as it comes, writes them all."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        against: str | None = None,
        ratio: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Note one figure. A goal applies to the ratio where there is one, else to the value."""
        judged = value if ratio is None else ratio
        goal, holds = None, True
        if at_least is not None:
            goal, holds = f">= {at_least:g}", judged >= at_least
        if at_most is not None:
            goal, holds = f"<= {at_most:g}", judged <= at_most
        row = Row(name, _short(value), unit, against, None if ratio is None else _short(ratio), goal, holds)
        self.rows.append(row)
        compared = "" if row.ratio is None else f"{row.ratio:>9.3g} x {against}"
        verdict = "" if goal is None else f"  goal {goal}: {'holds' if holds else 'MISSED'}"
        print(f"{name:<44}{row.value:>10.4g} {unit:<9}{compared}{verdict}", flush=True)

    def add_speed(self, name: str, work: Callable[[], object], size: int, *, at_least: float | None = None) -> float:
        """Note the speed of work on `size` bytes, as a ratio to a copy from memory to memory; its CPU seconds.

        Work and copy take turns, and the ratio is the median over the turns: the neighbours of a shared machine come
        and go, but seldom within a hundredth of a second.
        """
        source, target = _copy_buffers()
        work()
        seconds, ratios = [], []
        gc.collect()
        gc.disable()
        try:
            for _ in range(TURNS):
                taken = _cpu(work)
                copying = _cpu(lambda: np.copyto(target, source))
                seconds.append(taken)
                ratios.append((size / taken) / (source.nbytes / copying))
        finally:
            gc.enable()
        median = statistics.median(seconds)
        self.add(
            name, size / median / GIGA, "GB/s", against="memcpy", ratio=statistics.median(ratios), at_least=at_least
        )
        return median

    def write(self) -> None:
        """Write bench/results.json."""
        machine = {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        }
        RESULTS.write_text(
            json.dumps({"machine": machine, "rows": [asdict(row) for row in self.rows]}, indent=1) + "\n"
        )
        print(f"wrote {RESULTS.parent.name}/{RESULTS.name}")


_buffers: list[np.ndarray] = []


def _copy_buffers() -> list[np.ndarray]:
    if not _buffers:
        source = np.random.default_rng(1).integers(0, 255, 256_000_000, np.uint8)
        _buffers.extend([source, source.copy()])
    return _buffers


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
