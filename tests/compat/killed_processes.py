"""Apache Kafka opens what processes of ours have left that were killed with kill -9, many at once.

A broker makes three topics and stops. Then one process after the other works on directories of its own and is killed
(tests/property/kills.py); its logs go into the partitions of the broker, leftovers of compactions and torn files
included. The broker starts as after a crash of its own, recovers them, and must serve what we serve from the same
files: the same records from the same log start to the same log end, which is one that the process may have reached. We
open the directories of each process as well, and judge them as the campaign `kills` does.

    run(seed, cases)    so many kills, A_BROKER of them by each broker. The moment of a kill is another one each time
"""

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.broker_clients import Consumed
from tests.compat.kafka_tools import missing
from tests.compat.written_log import read_log
from tests.property.kills import kill
from tests.property.manager_crashes import Broken, judge
from tests.property.manager_run import PARTITIONS, ROOTS, random_workload
from tests.property.real_runs import Course, DiskBelow, Interrupted, for_one_process, make_roots
from tidelog.log import Isolation, LogConfig, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, TopicPartition

A_BROKER = 100  # kills that one broker opens
TOPICS = [partition.topic for partition in PARTITIONS]
NOTHING = Consumed([], 0)


@dataclass
class Left:
    """What a kill has left of one log, and what we and a broker make of it."""

    number: int  # of the kill
    partition: TopicPartition  # of the broker
    ends: set[int]  # where it may end; empty if it was killed in a truncation, which may have come to any point
    noted_start: int | None  # in the checkpoint of log starts
    start: int
    ours: Consumed
    committed: Consumed
    their_start: int = -1
    theirs: Consumed = field(default_factory=lambda: NOTHING)
    theirs_committed: Consumed = field(default_factory=lambda: NOTHING)

    def fault(self) -> str | None:
        """What is wrong, in words for a person."""
        if self.ends and self.theirs.end not in self.ends:
            return f"the broker ends it at {self.theirs.end}, the process at one of {sorted(self.ends)}"
        if self.start != self.their_start:
            return f"the broker begins it at {self.their_start}, we at {self.start}"
        if self.theirs != self.ours:
            return f"the broker serves {_brief(self.theirs)}, we serve {_brief(self.ours)}"
        if self.theirs_committed != self.committed:
            return f"committed are {_brief(self.theirs_committed)} to the broker, {_brief(self.committed)} to us"
        return None


def _brief(read: Consumed) -> str:
    offsets = [record.offset for record in read.records]
    return f"{len(offsets)} records at {offsets[:3]}..{offsets[-3:]}, end {read.end}"


def kill_many(seed: int, numbers: range, place: Path) -> list[Left]:
    """Kill processes with these numbers, judge what they leave, and let one broker open it."""
    root = place / "root"
    with Broker.format(root).running() as broker:
        for topic in TOPICS:
            clients.create_topic(broker, topic, len(numbers))
    CleanShutdownFile(LocalFileSystem(), str(root)).delete()
    OffsetCheckpoint(LocalFileSystem(), str(root / RECOVERY_POINT_CHECKPOINT)).write({})
    found: list[Left] = []
    for slot, number in enumerate(numbers):
        found += _kill_one(seed, number, slot, place / f"killed-{number}", root)
    starts = {one.partition: one.noted_start for one in found if one.noted_start is not None}
    OffsetCheckpoint(LocalFileSystem(), str(root / LOG_START_CHECKPOINT)).write(starts)
    partitions = [one.partition for one in found]
    with Broker(root).running() as broker:
        theirs = clients.consume_all(broker, partitions)
        committed = clients.consume_all(broker, partitions, committed=True)
        their_starts = clients.log_starts(broker, partitions)
    for one in found:
        one.their_start = their_starts[one.partition]
        one.theirs, one.theirs_committed = theirs[one.partition], committed[one.partition]
    return found


def _kill_one(seed: int, number: int, slot: int, directory: Path, root: Path) -> list[Left]:
    """Kill one process; its logs become the partitions `slot` of the broker over `root`."""
    workload = for_one_process(random_workload(seed, number))
    rng = Random(f"compat {seed} {number}")
    make_roots(directory)
    done = kill(workload, directory, rng)
    run = Course(workload).interrupted(done)
    found = []
    for partition in PARTITIONS:
        home = _home_of(run, directory, partition)
        if home is not None:
            found.append(_hand_over(home, partition, TopicPartition(partition.topic, slot), root, run, number))
    try:
        judge(run, DiskBelow(directory), rng, is_power_loss=False)
    except Broken as broken:
        raise AssertionError(f"kill {number} of seed {seed}, in step {done + 1}, opened by us: {broken}") from broken
    shutil.rmtree(directory)
    return found


def _home_of(run: Interrupted, directory: Path, partition: TopicPartition) -> Path | None:
    """The root that has a log. In the middle of a move both have it, and a person would remove the old one."""
    homes = [Path(f"{directory}{root}") for root in ROOTS if Path(f"{directory}{root}/{partition}").exists()]
    if len(homes) == 2 and run.moving is not None:
        return Path(f"{directory}{run.moving[1]}")
    return homes[0] if homes else None


def _hand_over(
    home: Path, ours: TopicPartition, theirs: TopicPartition, root: Path, run: Interrupted, number: int
) -> Left:
    """Give the files of a log to a partition of the broker, and read a copy of them ourselves."""
    target = root / str(theirs)
    metadata = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(home / str(ours), target)
    (target / "partition.metadata").write_bytes(metadata)
    checkpoint = home / LOG_START_CHECKPOINT
    noted = OffsetCheckpoint(LocalFileSystem(), str(checkpoint)).read() if checkpoint.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / str(ours)
        shutil.copytree(home / str(ours), copy)
        with UnifiedLog.open(copy, LogConfig(), log_start_offset=noted.get(ours, 0)) as log:
            log.update_high_watermark(log.log_end_offset)
            start = log.log_start_offset
            read = Consumed(read_log(log), log.log_end_offset)
            committed = Consumed(read_log(log, Isolation.COMMITTED), log.last_stable_offset)
    ends = set() if run.is_truncating else {state.end for state in run.states[ours] if state is not None}
    return Left(number, theirs, ends, noted.get(ours), start, read, committed)


def run(seed: int, cases: int) -> Counter[str]:
    """Kill so many processes; the first log that we and the broker read differently ends it."""
    reason = missing()
    if reason is not None:
        raise AssertionError(f"cases of kind kills-kafka are opened by Apache Kafka: {reason}")
    done: Counter[str] = Counter()
    for first in range(0, cases, A_BROKER):
        numbers = range(first, min(first + A_BROKER, cases))
        with tempfile.TemporaryDirectory(prefix="tidelog-kills-", ignore_cleanup_errors=True) as place:
            found = kill_many(seed, numbers, Path(place))
        for one in found:
            fault = one.fault()
            if fault is not None:
                raise AssertionError(f"kill {one.number} of seed {seed}, {one.partition}: {fault}")
        done["kills-kafka"] += len(numbers)
        done["kills-kafka-logs"] += len(found)
        done["kills-kafka-records"] += sum(len(one.ours.records) for one in found)
    return done
