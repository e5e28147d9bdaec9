"""Checking a directory: headers and checksums, and every record, on one core and on all of them; comparing two.

The files lie in the page cache, and the check reads them as it reads any: what is measured is the whole command but
for its start.

All cores together read from one memory. A row of its own, a copy by as many threads, tells what that leaves to win.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from pathlib import Path

import numpy as np

from bench import shapes
from bench.measure import GIGA, Report
from tidelog.fsck import check
from tidelog.fsck.diff import diff
from tidelog.kernels.headers import scan_headers
from tidelog.log import LogConfig, UnifiedLog

_SEGMENTS = 4
_WINDOW = 1 << 20
_COPIED = 256_000_000
_TURNS = 7


def run(report: Report) -> None:
    """Check a partition of several segments, 100 B records in 16 KiB batches."""
    root = Path(tempfile.mkdtemp(prefix="tidelog-bench-fsck-"))
    try:
        size = _write(root)
        logs = sorted(root.glob("*/*.log"))
        report.add_speed("fsck, reading the files alone", lambda: _read(logs), size)
        _copying(report)
        for deep, name, goal in ((False, "headers and checksums", 0.5), (True, "every record", 0.35)):
            report.add_speed(
                f"fsck, {name}, per core", lambda deep=deep: check(str(root), deep=deep, jobs=1), size, at_least=goal
            )
            _all_cores(report, name, str(root), deep, size)
        _diff(report, root, size)
    finally:
        shutil.rmtree(root)


def _write(root: Path) -> int:
    """A partition whose segments are the same batches with other offsets; how many bytes of log."""
    data = bytearray(shapes.log("a"))
    directory = root / "orders-0"
    config = LogConfig(segment_bytes=len(data) + 1)
    with UnifiedLog.open(directory, config) as log:
        for _ in range(_SEGMENTS):
            scan = scan_headers(data)
            base = scan.rows["base_offset"].astype("i8") - int(scan.rows["base_offset"][0]) + log.log_end_offset
            for position, offset in zip(scan.positions.tolist(), base.tolist(), strict=True):
                data[position : position + 8] = offset.to_bytes(8, "big")
            log.append_as_follower(data)
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def _read(logs: list[Path]) -> None:
    """What a check cannot be faster than: files are read, not mapped, in windows that stay in a core's cache.

    Into pages of their own: between other pairs of places the system copies up to five times slower.
    """
    room = mmap(-1, _WINDOW)
    for path in logs:
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def _copying(report: Report) -> None:
    """A copy from memory to memory, in one thread against one per core."""
    cores = os.cpu_count() or 1
    source = np.ones(_COPIED, np.uint8)
    target = source.copy()

    def copy(threads: int) -> None:
        pairs = zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
        list(pool.map(lambda pair: np.copyto(*pair), pairs))

    with ThreadPoolExecutor(cores) as pool:
        one, all_of_them = _in_turns(lambda: copy(1), lambda: copy(cores))
    report.add(f"memcpy, {cores} cores", _COPIED / all_of_them / GIGA, "GB/s", against="one core",
               ratio=one / all_of_them)  # fmt: skip


def _all_cores(report: Report, name: str, root: str, deep: bool, size: int) -> None:
    """A check with one thread against one per core, and how many cores it kept busy."""
    cores = os.cpu_count() or 1
    one, all_of_them = _in_turns(*(lambda jobs=jobs: check(root, deep=deep, jobs=jobs) for jobs in (1, cores)))
    report.add(f"fsck, {name}, {cores} cores", size / all_of_them / GIGA, "GB/s", against="one core",
               ratio=one / all_of_them)  # fmt: skip
    busy = max(_cores_busy(lambda: check(root, deep=deep, jobs=cores)) for _ in range(_TURNS))
    report.add(f"fsck, {name}, cores busy", busy, "cores", at_least=0.8 * cores)


def _diff(report: Report, root: Path, size: int) -> None:
    """Two equal sides compared, against a copy of as many bytes by one core."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-diff-") as other:
        shutil.copytree(root, other, dirs_exist_ok=True)
        source = np.ones(_COPIED, np.uint8)
        target = source.copy()
        comparing, copying = _in_turns(lambda: diff(str(root), other), lambda: np.copyto(target, source))
    speed = 2 * size / comparing
    report.add("diff, headers and checksums, wall time", speed / GIGA, "GB/s", against="memcpy",
               ratio=speed * copying / _COPIED, at_least=0.4)  # fmt: skip


def _cores_busy(work: Callable[[], object]) -> float:
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.process_time() - cpu) / (time.perf_counter() - started)


def _in_turns(*works: Callable[[], object]) -> list[float]:
    """Wall time of each, the best of several turns: a neighbour that takes a core makes any other figure his own."""
    turns = [[_wall(work) for work in works] for _ in range(_TURNS)]
    return [min(times) for times in zip(*turns, strict=True)]


def _wall(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
