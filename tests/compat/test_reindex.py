"""Every index and snapshot is deleted; a real broker rebuilds them at its start, and we on a copy: the same bytes."""

import shutil
import time
from pathlib import Path

import pytest

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.written_log import NO_PRODUCER, WrittenLog, files_of, write_plain, write_transactions
from tidelog.fsck.reindex import KINDS, Reindexed, ReindexSettings, reindex
from tidelog.log import LogConfig
from tidelog.log.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.records import Codec

TOPIC = "rebuilt"
PLAIN, TRANSACTIONS, PRODUCERS, STARTED_LATER, EMPTY = PARTITIONS = range(5)
CONFIG = LogConfig(segment_bytes=24 * 1024, index_interval_bytes=100)
HOUR_MS = 3_600_000
FS = LocalFileSystem()


class Rebuilt:
    """The root as it was written, as we rebuilt it and as the broker did."""

    def __init__(self, home: Path) -> None:
        self.written, self.ours, self.theirs = (home / name / "root" for name in ("written", "ours", "theirs"))
        with Broker.format(self._made(self.written)).running() as broker:
            clients.create_topic(broker, TOPIC, len(PARTITIONS), index_interval_bytes=CONFIG.index_interval_bytes)
        write(self.written)
        for copy in (self.ours, self.theirs):
            shutil.copytree(self.written, copy)
            for path in copy.glob(f"{TOPIC}-*/*"):
                if path.name.endswith(KINDS):
                    path.unlink()
        settings = ReindexSettings.parse({"index.interval.bytes": str(CONFIG.index_interval_bytes)})
        self.done: list[Reindexed] = reindex(str(self.ours), [TOPIC], settings=settings)
        with Broker(self.theirs).running():
            pass

    @staticmethod
    def _made(root: Path) -> Path:
        root.parent.mkdir()
        return root


def write(root: Path) -> None:
    """Fill the directories that the broker has made, and note in its root what it would have noted."""
    recovery_points = OffsetCheckpoint(FS, f"{root}/{RECOVERY_POINT_CHECKPOINT}")
    ends = recovery_points.read()
    now_ms = time.time_ns() // 1_000_000 - HOUR_MS  # producers of long ago would be forgotten
    for partition in PARTITIONS[:EMPTY]:
        directory = root / f"{TOPIC}-{partition}"
        epochs = LeaderEpochCheckpoint(FS, f"{directory}/{LEADER_EPOCH_CHECKPOINT}").read()
        epoch = epochs[-1].epoch
        log = WrittenLog(directory, CONFIG, seed=partition, now_ms=now_ms, leader_epoch=epoch, clean_shutdown=True)
        if partition == PLAIN:
            write_plain(log)
        elif partition == PRODUCERS:
            for producer in [NO_PRODUCER, 77, 78] * 60:
                log.send(codec=list(Codec)[log.end % 5], producer=producer)
        else:
            write_transactions(log)
        if partition == STARTED_LATER:
            start = log.end // 2
            log.delete_records(start)
            OffsetCheckpoint(FS, f"{root}/{LOG_START_CHECKPOINT}").write({TopicPartition(TOPIC, partition): start})
        log.close()
        ends[TopicPartition(TOPIC, partition)] = log.log.recovery_point
    recovery_points.write(ends)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Rebuilt:
    return Rebuilt(tmp_path_factory.mktemp("reindex"))


def beside_the_log(root: Path, partition: int) -> dict[str, bytes]:
    """Indexes and snapshots. An empty transaction index says what a missing one says."""
    found = files_of(root / f"{TOPIC}-{partition}")
    return {name: data for name, data in found.items() if name.endswith(KINDS) and not _is_empty(name, data)}


def _is_empty(name: str, data: bytes) -> bool:
    return name.endswith(".txnindex") and not data


@pytest.mark.parametrize("partition", PARTITIONS)
def test_our_rebuild_leaves_the_files_that_the_brokers_does(rebuilt: Rebuilt, partition: int) -> None:
    assert rebuilt.done[partition].error is None
    assert beside_the_log(rebuilt.ours, partition) == beside_the_log(rebuilt.theirs, partition)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_neither_touches_the_log(rebuilt: Rebuilt, partition: int) -> None:
    written, ours, theirs = (
        {name: data for name, data in files_of(root / f"{TOPIC}-{partition}").items() if name.endswith(".log")}
        for root in (rebuilt.written, rebuilt.ours, rebuilt.theirs)
    )
    assert written == ours == theirs


def test_there_was_something_to_rebuild(rebuilt: Rebuilt) -> None:
    kinds = {name[20:] for name in beside_the_log(rebuilt.theirs, TRANSACTIONS)}
    assert kinds == set(KINDS)
    assert len(beside_the_log(rebuilt.theirs, PLAIN)) > 6
    assert all(file.size_after for file in rebuilt.done[STARTED_LATER].files if file.name.endswith(".txnindex"))
