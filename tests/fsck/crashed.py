"""fsck after crashes: what a kill, a copy of a live directory, or a loss of power leaves of sound logs is no damage.

A LogManager works on a disk in memory: appends, transactions, rolls, retention, log starts, truncation, compaction,
topics that come and go, checkpoints. It is stopped at any call. Then must hold:

    1. After a kill, which loses nothing that was written, and in a copy of the directory, a check finds nothing worse
       than info.
    2. After a loss of power it finds no error. Warnings name only what was not flushed: bytes of the last segment of a
       log at or after its recovery point, and a high watermark beyond the log end. A disk keeps any of these pages and
       loses any other, and nothing in the files tells that from damage, so fsck cannot be asked to be silent.
    3. When the logs were loaded again and closed, a check finds nothing worse than info.

`python -m tests.campaign --only crashed --seed 7 --cases 1` repeats case 7.
"""

import random
from collections import Counter
from contextlib import suppress

from tests.fsck.campaign import Broken
from tests.fsck.live_writer import MANAGER, PROPERTIES, SMALL, Work
from tidelog.errors import CorruptionError
from tidelog.fsck import Finding, Severity, check
from tidelog.log import LogManager, ManualClock
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import join, read_whole
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, LOG_SUFFIX, RECOVERY_POINT_CHECKPOINT, offset_of
from tidelog.records import read_batches
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

ROOT = "/kafka"
NOW = 1_700_000_000_000
STEPS = 250
TORN = {"LOG-TAIL", "LOG-ZEROS", "LOG-CRC", "LOG-LENGTH", "LOG-MAGIC", "LOG-OFFSET", "LOG-ORDER"}


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
    _ensure_quiet(case, left, may_warn=not is_kill)
    LogManager.open(ROOT, SMALL, config=MANAGER, clock=clock, fs=left).close()
    _ensure_quiet(f"{case}, loaded and closed", left)
    return "kill" if is_kill else "power"


def _ensure_quiet(case: str, disk: SimulatedFileSystem, *, may_warn: bool = False) -> None:
    if disk.stat(ROOT) is None or not disk.list(ROOT):
        return
    report = check(ROOT, deep=True, fs=disk, jobs=1)
    bad = [
        f"{one.severity} {one.code} {one.file}: {one.message}"
        for one in report.findings
        if one.severity is not Severity.INFO and not (may_warn and _is_of_unflushed(disk, one))
    ]
    if bad:
        raise Broken(f"{case}: {bad[:4]}")


def _is_of_unflushed(disk: SimulatedFileSystem, finding: Finding) -> bool:
    """Whether a finding is a warning about what was never flushed."""
    if finding.severity is not Severity.WARNING:
        return False
    directory, _, name = finding.file.rpartition("/")
    if finding.code == "CHK-RANGE":
        return name == HIGH_WATERMARK_CHECKPOINT
    if finding.code not in TORN or finding.position is None or finding.topic_partition is None:
        return False
    flushed = OffsetCheckpoint(disk, join(ROOT, RECOVERY_POINT_CHECKPOINT)).read().get(finding.topic_partition, 0)
    reached = offset_of(name)
    with suppress(CorruptionError):  # an earlier finding
        for batch in read_batches(read_whole(disk, finding.file)[: finding.position]):
            reached = max(reached, batch.last_offset + 1)  # one may have lost its offset
    is_last = name == max(other for other in disk.list(directory) if other.endswith(LOG_SUFFIX))
    return is_last and reached >= flushed


def run(seed: int, cases: int) -> Counter[str]:
    """Judge so many cases from the number `seed` on."""
    return Counter(f"crashed-{judge(number)}" for number in range(seed, seed + cases))
