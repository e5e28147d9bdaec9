"""Apache Kafka opens what processes of ours have left that were killed with kill -9, many at once.

A broker makes three topics and stops. Then one process after the other works on directories of its own and is killed;
what its logs are goes into the partitions of the broker, leftovers of compactions and torn files included. The broker
starts as after a crash of its own, recovers them, and must serve what we serve from the same files, up to the end that
the process had been told.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.broker_clients import Consumed
from tests.compat.written_log import read_log
from tests.property.kills import kill
from tests.property.manager_model import LogModel
from tests.property.manager_run import PARTITIONS, ROOTS, random_workload
from tests.property.real_runs import Course, Interrupted, for_one_process, make_roots
from tidelog.log import Isolation, LogConfig, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, TopicPartition

KILLS = 10
SEED = 16
TOPICS = [partition.topic for partition in PARTITIONS]


@dataclass
class Left:
    """What a kill has left of one log, and what is made of it."""

    partition: TopicPartition  # of the broker
    states: list[LogModel]  # what it may be
    ours: Consumed
    committed: Consumed
    theirs: Consumed = field(default_factory=lambda: Consumed([], 0))
    theirs_committed: Consumed = field(default_factory=lambda: Consumed([], 0))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[Left]:
    place = tmp_path_factory.mktemp("kills")
    root = place / "root"
    with Broker.format(root).running() as broker:
        for topic in TOPICS:
            clients.create_topic(broker, topic, KILLS)
    CleanShutdownFile(LocalFileSystem(), str(root)).delete()
    OffsetCheckpoint(LocalFileSystem(), str(root / RECOVERY_POINT_CHECKPOINT)).write({})
    found: list[Left] = []
    starts: dict[TopicPartition, int] = {}
    for number in range(KILLS):
        workload = for_one_process(random_workload(SEED, number))
        directory = place / f"killed-{number}"
        make_roots(directory)
        done = kill(workload, directory, Random(f"compat {number}"))
        run = Course(workload).interrupted(done)
        for partition in PARTITIONS:
            home = home_of(run, directory, partition)
            if home is not None:
                found.append(hand_over(home, partition, TopicPartition(partition.topic, number), root, run, starts))
    OffsetCheckpoint(LocalFileSystem(), str(root / LOG_START_CHECKPOINT)).write(starts)
    with Broker(root).running() as broker:
        for one in found:
            topic, partition = one.partition
            one.theirs = clients.consume(broker, topic, partition)
            one.theirs_committed = clients.consume(broker, topic, partition, committed=True)
    return found


def home_of(run: Interrupted, directory: Path, partition: TopicPartition) -> Path | None:
    """The root that has a log. In the middle of a move both have it, and a person would remove the old one."""
    homes = [Path(f"{directory}{root}") for root in ROOTS if Path(f"{directory}{root}/{partition}").exists()]
    if len(homes) == 2 and run.moving is not None:
        return Path(f"{directory}{run.moving[1]}")
    return homes[0] if homes else None


def hand_over(
    home: Path, ours: TopicPartition, theirs: TopicPartition, root: Path, run: Interrupted,
    starts: dict[TopicPartition, int],
) -> Left:  # fmt: skip
    """Give the files of a log to a partition of the broker, and read a copy of them ourselves."""
    target = root / str(theirs)
    metadata = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(home / str(ours), target)
    (target / "partition.metadata").write_bytes(metadata)
    checkpoint = home / LOG_START_CHECKPOINT
    noted = OffsetCheckpoint(LocalFileSystem(), str(checkpoint)).read() if checkpoint.exists() else {}
    if ours in noted:
        starts[theirs] = noted[ours]
    copy = home.parent / "copies" / str(ours)
    shutil.copytree(home / str(ours), copy)
    with UnifiedLog.open(copy, LogConfig(), log_start_offset=noted.get(ours, 0)) as log:
        log.update_high_watermark(log.log_end_offset)
        read = Consumed(read_log(log), log.log_end_offset)
        committed = Consumed(read_log(log, Isolation.COMMITTED), log.last_stable_offset)
    return Left(theirs, [state for state in run.states[ours] if state is not None], read, committed)


def test_there_is_something_in_most_of_what_was_left(left: list[Left]) -> None:
    assert len(left) > KILLS
    assert sum(bool(one.ours.records) for one in left) > KILLS


def test_the_broker_serves_every_batch_that_had_been_acknowledged(left: list[Left]) -> None:
    for one in left:
        assert one.theirs.end in {state.end for state in one.states}, one.partition


def test_the_broker_serves_what_we_serve(left: list[Left]) -> None:
    for one in left:
        assert one.theirs == one.ours, one.partition


def test_the_broker_knows_what_is_committed_as_we_do(left: list[Left]) -> None:
    for one in left:
        assert one.theirs_committed == one.committed, one.partition
