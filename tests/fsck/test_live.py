"""Checks of sound logs: beside a process that works on them, and of what kills and copies leave of them."""

import os
from pathlib import Path

import pytest

from tests.fsck.live import alarms, live_root
from tidelog.fsck import check
from tidelog.log import LogConfig, LogManager, ManualClock, TopicPartition
from tidelog.log.manager.manager_config import ManagerConfig
from tidelog.records import NewRecord, build_batch

CHECKS = 6
PARTITION = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=100, retention_ms=-1)
NOW = 1_700_000_000_000


def test_no_check_beside_a_process_at_work_finds_anything() -> None:
    """Rolls, retention, compaction, truncation, topics that come and go; `make campaign` runs many more checks."""
    with live_root(1) as root:
        for number in range(CHECKS):
            report = check(str(root), deep=bool(number % 2))
            assert alarms(report) == []
            assert report.counts["batches"] > 100


class Broker:
    """A LogManager that can be killed."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(NOW)
        self.root = root
        self.manager = LogManager.open(str(root), CONFIG, clock=self.clock, config=ManagerConfig(verification=False))
        self.log = self.manager.get_or_create(PARTITION)

    def append(self, count: int = 1, *, producer: int = -1, sequence: int = -1, size: int = 40) -> None:
        data = build_batch(
            [NewRecord(b"k", b"x" * size, self.clock.now_ms()) for _ in range(count)],
            producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
            is_transactional=producer >= 0,
        )  # fmt: skip
        self.log.append_as_leader(memoryview(bytearray(data)), 0)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.clock.advance(10)

    def kill(self) -> None:
        for root in self.manager.roots:
            root.unlock()
            for log in root.logs.values():
                log.release()

    def alarms(self) -> list[str]:
        return alarms(check(str(self.root), deep=True))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_log_that_was_truncated_and_written_again_is_sound(tmp_path: Path, is_killed: bool) -> None:
    """Entries of before the truncation lie in its indexes, behind those that count."""
    broker = Broker(tmp_path / "r")
    for _ in range(20):
        broker.append()
    broker.log.tick()
    broker.manager.truncate_to({PARTITION: 5})
    for _ in range(3):
        broker.append(3, size=90)
    broker.log.tick()
    if is_killed:
        broker.kill()
    assert broker.alarms() == []
    if not is_killed:
        broker.manager.close()
        assert broker.alarms() == []


def test_a_transaction_that_was_open_when_its_beginning_was_deleted_is_sound(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "r")
    broker.append(producer=7, sequence=0)
    for _ in range(5):
        broker.append()
    broker.append(producer=7, sequence=1)
    broker.log.roll()
    broker.append(producer=7, sequence=2)
    broker.log.delete_records(7)
    broker.log.delete_old_segments()
    broker.log.roll()
    broker.append()
    broker.manager.close()
    assert broker.alarms() == []


def test_a_log_start_that_a_kill_has_lost_is_no_damage(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "r")
    for _ in range(6):
        broker.append()
    broker.log.delete_records(3)
    broker.log.tick()
    broker.clock.advance(10)
    broker.log.tick()
    broker.kill()
    assert broker.alarms() == []
    again = Broker(tmp_path / "r")
    assert again.log.log_start_offset == 0
    again.manager.close()
    assert again.alarms() == []


def test_offsets_that_a_first_round_of_compaction_removed_are_no_warning_before_its_checkpoint(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "r")
    for _ in range(6):
        broker.append()
    broker.kill()
    log = tmp_path / "r" / "t-0" / f"{0:020}.log"
    data = log.read_bytes()
    size = len(data) // 6
    log.write_bytes(data[:size] + data[3 * size :])
    os.remove(log.with_suffix(".index"))
    assert broker.alarms() == []


def test_a_log_that_was_truncated_and_closed_has_its_largest_timestamp_in_the_time_index(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "r")
    for _ in range(12):
        broker.append()
    broker.log.tick()
    broker.manager.truncate_to({PARTITION: 11})
    broker.manager.close()
    assert broker.alarms() == []
