"""Kafka started after a kill at every step of a write: it refuses to start, or serves all of the write or none of it.

    python -m tests.campaign --only killed-writes --seed 1 --cases 40

A broker creates a topic, takes a record and stops. Of its root a copy is made for each step: a commit of Spark's, or a
load, is killed there with a call to the disk. Where the journal is there Kafka must refuse to start and change nothing
of the logs; after `tidelog recover` it must start and serve all of a commit, or nothing of a load. Where there is no
journal Kafka must start at once, serve all or nothing, and remove what was staged.
"""

import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.compat.broker import Broker
from tests.compat.broker_clients import consume, create_topic, produce
from tests.spark.commits import ADDED, Values, commit_here
from tests.tables.loads import kill_in, load_here
from tidelog.log.names import UNFINISHED_WRITE
from tidelog.records import NewRecord
from tidelog.spark.recovery import recover

__all__ = ["Template", "judge", "run", "template_in"]

PARTITIONS = 3
BEFORE: Values = {0: [b"by a client"], 1: [], 2: []}
AFTER: Values = {number: [*BEFORE[number], *ADDED[number]] for number in range(PARTITIONS)}
WRITES: dict[str, Callable[[str, int], int]] = {"commit": commit_here, "load": load_here}
HASTY = {"log.segment.delete.delay.ms": 1, "log.initial.task.delay.ms": 1}


class Template(NamedTuple):
    """A root to copy, and how many calls to the disk each write takes."""

    root: Path
    calls: dict[str, int]


def template_in(place: Path) -> Template:
    """The root of a broker that has stopped."""
    broker = Broker.format(place / "template")
    with broker.running():
        create_topic(broker, "orders", PARTITIONS)
        produce(broker, "orders", 0, [NewRecord(b"first", b"by a client", 1_700_000_000_000)])
    calls = {}
    for name, write in WRITES.items():
        shutil.copytree(broker.root, place / f"whole-{name}")
        calls[name] = write(str(place / f"whole-{name}"), 0)
    return Template(broker.root, calls)


def judge(template: Template, place: Path, name: str, call: int) -> str:
    """Kill a write with a call, and let Kafka judge; what it did."""
    root = place / f"{name}-{call}"
    shutil.copytree(template.root, root)
    kill_in(WRITES[name], root, call)
    broker = Broker(root, HASTY)
    is_unfinished = (root / UNFINISHED_WRITE).exists()
    if is_unfinished:
        before = _logs(root)
        assert broker.refuses_to_start(), f"{name}, call {call}: Kafka starts on an unfinished write"
        assert _logs(root) == before, f"{name}, call {call}: Kafka has changed what is unfinished"
        recover([str(root)])
    allowed = [AFTER if name == "commit" else BEFORE] if is_unfinished else [BEFORE, AFTER]
    with broker.running():
        found = {number: [r.value for r in consume(broker, "orders", number).records] for number in range(PARTITIONS)}
        assert found in allowed, f"{name}, call {call}: Kafka serves {found}"
        _wait_until_swept(root)
    assert not [entry for entry in os.listdir(root) if entry.endswith("-stray")], f"{name}, call {call}: strays"
    shutil.rmtree(root)
    if is_unfinished:
        return f"{name}-refused-then-{'all' if found == AFTER else 'nothing'}"
    return f"{name}-{'all' if found == AFTER else 'nothing'}"


def _logs(root: Path) -> dict[str, bytes]:
    """The files of the topic, of what is staged for it, and of the journal."""
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith("__")]
    return {str(path): path.read_bytes() for folder in folders for path in folder.iterdir()}


def _wait_until_swept(root: Path) -> None:
    deadline = time.monotonic() + 60
    while any(name.endswith("-delete") for name in os.listdir(root)):
        assert time.monotonic() < deadline, f"Kafka does not remove what was staged: {os.listdir(root)}"
        time.sleep(0.05)


def run(seed: int, cases: int) -> Counter[str]:
    """Judge some steps of both writes, all of them if there are no more; how often what came of it."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        template = template_in(Path(place))
        steps = [(name, call) for name, calls in template.calls.items() for call in range(1, calls + 1)]
        for name, call in random.Random(seed).sample(steps, min(cases, len(steps))):
            counts[judge(template, Path(place), name, call)] += 1
    return counts
