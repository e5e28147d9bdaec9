"""A root that was damaged in many ways and mended, before a real broker.

The broker creates a topic and stops; we write into its directories, damage every partition in another way, and mend the
root. The broker must start on it and serve every record whose batch was not damaged.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.broker_clients import Consumed
from tests.compat.written_log import WrittenLog, write_plain, write_transactions
from tidelog.fsck import RepairResult, check, repair
from tidelog.fsck.quarantine import MANIFEST
from tidelog.log import LogConfig
from tidelog.log.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.records import read_batches

TOPIC = "mended"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CONFIG = LogConfig(segment_bytes=24 * 1024, index_interval_bytes=100)
HOUR_MS = 3_600_000


def logs_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def starts_in(log: Path) -> list[int]:
    starts = [0]
    for batch in read_batches(log.read_bytes()):
        starts.append(starts[-1] + batch.size_in_bytes)
    return starts


def write_over(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def corrupt_a_batch(directory: Path) -> None:
    log = logs_in(directory)[1]
    write_over(log, starts_in(log)[3] + 65, b"\xff\x00\xff")


def corrupt_a_length(directory: Path) -> None:
    log = logs_in(directory)[1]
    write_over(log, starts_in(log)[2] + 8, b"\x7f")


def exchange_segments(directory: Path) -> None:
    one, two = logs_in(directory)[0], logs_in(directory)[2]
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def tear_and_remove_indexes(directory: Path) -> None:
    *_, last = logs_in(directory)
    last.write_bytes(last.read_bytes()[:-20] + bytes(500))
    for path in directory.glob("*.index"):
        path.unlink()


def overwrite_at_random(directory: Path) -> None:
    rng = random.Random(1)
    for log in logs_in(directory)[:3]:
        write_over(log, rng.randrange(log.stat().st_size - 100), rng.randbytes(90))


def change_an_offset(directory: Path) -> None:
    log = logs_in(directory)[1]
    write_over(log, starts_in(log)[4], b"\x00\x00\x01")


def overflow_an_offset(directory: Path) -> None:
    log = logs_in(directory)[1]
    write_over(log, starts_in(log)[4], b"\x7f" + b"\xff" * 7)


def exchange_batches(directory: Path) -> None:
    log = logs_in(directory)[1]
    starts, data = starts_in(log), log.read_bytes()
    batches = [data[start:end] for start, end in zip(starts, starts[1:], strict=False)]
    batches[2], batches[9] = batches[9], batches[2]
    log.write_bytes(b"".join(batches))


def cut_a_segment(directory: Path) -> None:
    log = logs_in(directory)[1]
    log.write_bytes(log.read_bytes()[: starts_in(log)[5] + 30])


def spoil_everything_beside_the_log(directory: Path) -> None:
    for path in directory.iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.write_bytes(random.Random(2).randbytes(path.stat().st_size))
    (directory / "leader-epoch-checkpoint").write_text("nonsense")
    (directory / "partition.metadata").write_text("nonsense")
    (directory / "x.log").write_text("nonsense")


DAMAGE: list[Callable[[Path], None]] = [
    corrupt_a_batch, corrupt_a_length, exchange_segments, tear_and_remove_indexes, overwrite_at_random,
    change_an_offset, cut_a_segment, spoil_everything_beside_the_log, overflow_an_offset, exchange_batches,
]  # fmt: skip
NOTHING_LOST = (
    exchange_segments, change_an_offset, spoil_everything_beside_the_log, overflow_an_offset, exchange_batches,
)  # fmt: skip


@dataclass
class Story:
    """What was seen of the partitions."""

    root: Path
    logs: list[WrittenLog] = field(default_factory=list)
    result: RepairResult | None = None
    names: list[str] = field(default_factory=list)  # in the root, while the broker runs
    consumed: list[Consumed] = field(default_factory=list)
    committed: list[Consumed] = field(default_factory=list)

    def lost(self, partition: int) -> set[int]:
        """The offsets that the manifest says are no longer in the log."""
        assert self.result is not None
        found: set[int] = set()
        for place in self.result.quarantine:
            for line in (Path(place) / MANIFEST).read_bytes().splitlines():
                entry = json.loads(line)
                if entry["partition_directory"] == f"{TOPIC}-{partition}" and "missing_offsets" in entry:
                    first, last = entry["missing_offsets"]
                    found |= set(range(first, last + 1))
        return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    story = Story(tmp_path_factory.mktemp("mended") / "root")
    with Broker.format(story.root).running() as broker:
        clients.create_topic(broker, TOPIC, len(DAMAGE), index_interval_bytes=100)
    we_write(story)
    assert check(str(story.root), deep=True).codes() == set()
    for partition, damage in enumerate(DAMAGE):
        damage(story.root / f"{TOPIC}-{partition}")
    (story.root / "not-a-partition").mkdir()
    (story.root / "replication-offset-checkpoint").write_text("0\n9\nnonsense")
    story.result = repair(str(story.root), config=CONFIG)
    assert story.result.is_clean, story.result.after.findings
    with Broker(story.root).running() as broker:
        story.names = sorted(path.name for path in story.root.iterdir())
        for partition in range(len(DAMAGE)):
            story.consumed.append(clients.consume(broker, TOPIC, partition))
            story.committed.append(clients.consume(broker, TOPIC, partition, committed=True))
    return story


def we_write(story: Story) -> None:
    fs = LocalFileSystem()
    checkpoint = OffsetCheckpoint(fs, str(story.root / RECOVERY_POINTS))
    recovery_points = checkpoint.read()
    for partition in range(len(DAMAGE)):
        directory = story.root / f"{TOPIC}-{partition}"
        epochs = LeaderEpochCheckpoint(fs, str(directory / "leader-epoch-checkpoint")).read()
        log = WrittenLog(
            directory, CONFIG, seed=partition, now_ms=time.time_ns() // 1_000_000 - HOUR_MS,
            leader_epoch=epochs[-1].epoch, clean_shutdown=True,
        )  # fmt: skip
        write_transactions(log)
        write_plain(log, rounds=8)
        log.close()
        recovery_points[TopicPartition(TOPIC, partition)] = log.log.recovery_point
        story.logs.append(log)
    checkpoint.write(recovery_points)


every_damage = pytest.mark.parametrize(
    ("partition", "damage"), list(enumerate(DAMAGE)), ids=[damage.__name__ for damage in DAMAGE]
)


def test_the_broker_starts_and_sets_no_directory_aside(story: Story) -> None:
    assert [name for name in story.names if name.startswith(TOPIC)] == [
        f"{TOPIC}-{partition}" for partition in range(len(DAMAGE))
    ]
    assert "not-a-partition" not in story.names


@every_damage
def test_a_consumer_reads_every_record_that_was_not_damaged(
    story: Story, partition: int, damage: Callable[[Path], None]
) -> None:
    written, read = story.logs[partition].records, story.consumed[partition].records
    lost = {record.offset for record in written} - {record.offset for record in read}
    assert read == [record for record in written if record.offset not in lost]
    behind = range(min(lost, default=0), story.logs[partition].end) if damage is tear_and_remove_indexes else ()
    assert lost <= story.lost(partition) | set(behind)
    assert len(lost) < (1 if damage in NOTHING_LOST else 60 if damage is not cut_a_segment else 2000)


@every_damage
def test_a_consumer_of_committed_data_is_given_no_aborted_record(
    story: Story, partition: int, damage: Callable[[Path], None]
) -> None:
    committed = {record.offset for record in story.logs[partition].committed}
    read = [record.offset for record in story.committed[partition].records]
    if damage in NOTHING_LOST:
        assert read == sorted(committed)
    assert set(read) <= committed
