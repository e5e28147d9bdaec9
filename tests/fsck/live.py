"""fsck beside a broker at work: no check of a sound root finds anything worse than info.

The writer is a process of its own (live_writer.py) that never rests. Each case is one check of its root, deep or not.
`python -m tests.campaign --only live --seed 7 --cases 100` runs a hundred checks beside a writer of seed 7.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.fsck import Report, Severity, check
from tidelog.log import TopicPartition
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEANER_CHECKPOINT

CHECKS_OF_A_WRITER = 50


class FalseAlarm(AssertionError):
    """A check has found something in a sound root."""


@contextmanager
def live_root(seed: int) -> Iterator[Path]:
    """A root that a process works on. When it has stopped, a last check finds nothing."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "kafka"
        command = [sys.executable, "-m", "tests.fsck.live_writer", str(root), str(seed)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            yield root
            assert writer.poll() is None, "the writer has died"
            writer.stdin.close()
        assert writer.returncode == 0
        found = alarms(check(str(root), deep=True, jobs=1))
        # If the process ends within the first round of compaction of a log, nothing here tells that it is compacted:
        # the root has no metadata log, and the checkpoint of the cleaner is written after a round.
        cleaned = OffsetCheckpoint(LocalFileSystem(), str(root / CLEANER_CHECKPOINT)).read()
        if not cleaned.get(TopicPartition("keys", 0)):
            found = [words for words in found if not words.startswith(f"warning LOG-GAP {root}/keys-0/")]
        if found:
            raise FalseAlarm(f"live, seed {seed}, after the writer has stopped: {found[:5]}")


def alarms(report: Report) -> list[str]:
    """What is worse than info, in words."""
    return [
        f"{one.severity.value} {one.code} {one.file} {one.message}"
        for one in report.findings
        if one.severity is not Severity.INFO
    ]


def run(seed: int, cases: int) -> Counter[str]:
    """Check so many times; a writer of its own for every fifty checks, and a last check when each has stopped."""
    found: Counter[str] = Counter()
    done = 0
    while done < cases:
        with live_root(seed + done // CHECKS_OF_A_WRITER) as root:
            for number in range(done, min(done + CHECKS_OF_A_WRITER, cases)):
                report = check(str(root), deep=bool(number % 2), jobs=1)
                if alarms(report):
                    raise FalseAlarm(f"live, seed {seed}, check {number}: {alarms(report)[:5]}")
                found["live-check"] += 1
            done = min(done + CHECKS_OF_A_WRITER, cases)
    return found
