"""What a new process pays: compilation once per machine, then loading."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Report

_FIRST_DECODE = """
import resource, time
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
import numba, numpy, pyarrow
from tidelog.records import NewRecord, build_batch
log = build_batch([NewRecord(b"k", b"v", 1)])
started = cpu()
from tidelog.columns import decode
rows = sum(batch.num_rows for batch in decode(log, ["key", "value", "offset", "timestamp"]))
assert rows == 1
print(cpu() - started, time.monotonic())
"""
_ALL = """
import resource
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
import numba, numpy, pyarrow
started = cpu()
from tidelog.kernels import catalogue
others = ("indexing.", "key_table.", "compaction.", "log_lines.", "record_walk.", "index_check.", "deal.")
for kernel in sorted(catalogue.kernels(), key=lambda kernel: kernel.name.startswith(others)):
    if others and kernel.name.startswith(others):
        print(cpu() - started)
        others = ()
    kernel.compile()
print(cpu() - started)
"""


def _run(code: str, cache: str) -> tuple[float, list[float]]:
    """When the process was started, by the clock that all processes share, and the figures it printed."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TIDELOG_KERNEL_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return started, [float(figure) for figure in done.stdout.split()]


def run(report: Report) -> None:
    """Start-up rows. Compiling is CPU time beyond the imports of numba, numpy and pyarrow; a first decode is wall time
    from the start of the process until its rows are there, imports included."""
    with tempfile.TemporaryDirectory() as folder:
        cache = str(Path(folder, "kernels"))
        _, (cpu, _) = _run(_FIRST_DECODE, cache)
        report.add("cold cache: scan and decode compiled", cpu, "s CPU", at_most=3.0)
        warm = statistics.median(
            decoded - started for started, (_, decoded) in (_run(_FIRST_DECODE, cache) for _ in range(9))
        )
        report.add("warm cache: new process to first decode", warm, "s", at_most=0.6)
    with tempfile.TemporaryDirectory() as folder:
        _, (of_columns, cpu) = _run(_ALL, str(Path(folder, "kernels")))
        report.add("cold cache: kernels of records and columns compiled", of_columns, "s CPU", at_most=12.0)
        report.add("cold cache: every kernel compiled", cpu, "s CPU")
