"""fsck after crashes: what a kill, a copy of a live directory, or a loss of power leaves of sound logs is no damage.

A LogManager works on a disk in memory: appends, transactions, rolls, retention, log starts, truncation, compaction,
topics that come and go, checkpoints. It is stopped at any call. Then must hold:

    1. After a kill, which loses nothing that was written, and in a copy of the directory, a check finds nothing worse
       than info.
    2. After a loss of power it finds no error. Warnings say what was not flushed: an end of a log that is torn, or that
       is gone though the high watermark was beyond it.
    3. When the logs were loaded again and closed, a check finds nothing worse than info.

`python -m tests.campaign --only crashed --seed 7 --cases 1` repeats case 7.
"""

import random
from collections import Counter

from tests.fsck.campaign import Broken
from tests.fsck.live_writer import MANAGER, PROPERTIES, SMALL, Work
from tidelog.fsck import Severity, check
from tidelog.log import LogManager, ManualClock
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

ROOT = "/kafka"
NOW = 1_700_000_000_000
STEPS = 250
TORN = {"LOG-TAIL", "LOG-ZEROS", "LOG-CRC", "LOG-LENGTH", "LOG-MAGIC", "CHK-RANGE"}


def _work(disk: SimulatedFileSystem, clock: ManualClock, rng: random.Random, steps: int) -> None:
    manager = LogManager.open(ROOT, SMALL, config=MANAGER, clock=clock, fs=disk)
    for topic, properties in PROPERTIES.items():
        manager.update_topic_config(topic, properties)
    work = Work(manager, rng, clock.now_ms)
    for number in range(steps):
        work.step()
        clock.advance(rng.randrange(10))
        if number % 7 == 0:
            manager.tick(5)


def judge(number: int) -> str:
    """Run one case; in a word what it was."""
    rng = random.Random(number)
    clock = ManualClock(NOW)
    disk = SimulatedFileSystem(clock)
    is_kill = number % 2 == 0
    cut = rng.randrange(20, 4000)
    disk.cut_at(cut)
    try:
        _work(disk, clock, rng, rng.randrange(20, STEPS))
        cut = disk.calls
    except PowerLost:
        pass
    case = f"crashed, case {number}: {'killed' if is_kill else 'the power lost'} at call {cut}"
    left = disk.copy() if is_kill else disk.after_crash(rng)
    _ensure_quiet(case, left, set() if is_kill else TORN)
    LogManager.open(ROOT, SMALL, config=MANAGER, clock=clock, fs=left).close()
    _ensure_quiet(f"{case}, loaded and closed", left, set())
    return "kill" if is_kill else "power"


def _ensure_quiet(case: str, disk: SimulatedFileSystem, allowed: set[str]) -> None:
    if disk.stat(ROOT) is None or not disk.list(ROOT):
        return
    report = check(ROOT, deep=True, fs=disk, jobs=1)
    bad = [
        f"{one.severity} {one.code} {one.file}: {one.message}"
        for one in report.findings
        if one.severity is not Severity.INFO and not (one.severity is Severity.WARNING and one.code in allowed)
    ]
    if bad:
        raise Broken(f"{case}: {bad[:4]}")


def run(seed: int, cases: int) -> Counter[str]:
    """Judge so many cases from the number `seed` on."""
    return Counter(f"crashed-{judge(number)}" for number in range(seed, seed + cases))
