"""Nothing is removed on the strength of bytes that power loss can take back.

Each test lets a record go because of something that was appended and not flushed, then crashes the disk many times. The
record was flushed: after each crash either it is there, or what supersedes it.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.log.compaction.compacting import Producer, a_cleaner, a_compacted_log, compact, put, to_clean
from tests.log.logs import NOW, a_log, all_replicated, batch, end_txn, last_sequences, lead
from tidelog.log import Isolation, LogConfig, LogManager, ManagerConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.cleaner_states import IN_PROGRESS
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, TopicPartition
from tidelog.log.offline_compaction import CompactionSettings, compact_partition
from tidelog.log.offline_root import OfflineRoot
from tidelog.records import ControlType, NewRecord
from tidelog.testing.disk import SimulatedFileSystem

CRASHES = 40
ROOT = "/data"
TOPIC = TopicPartition("topic", 0)
SMALL = LogConfig(
    segment_bytes=1024, segment_index_bytes=1024, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.05
)


def on_a_disk(*, unordered: bool = False) -> tuple[SimulatedFileSystem, UnifiedLog]:
    """A compacted log on a simulated disk, with one record of key 1 that is flushed."""
    disk = SimulatedFileSystem(ManualClock(NOW), unordered_directories=unordered)
    log = a_compacted_log(ROOT, fs=disk, delete_retention_ms=1000)
    put(log, 1)
    log.flush()
    return disk, log


def after_crashes(disk: SimulatedFileSystem) -> Iterator[UnifiedLog]:
    """The log as many crashes leave it, all replicated."""
    for seed in range(CRASHES):
        log = a_compacted_log(ROOT, fs=disk.after_crash(Random(seed)))
        all_replicated(log)
        yield log


def values(log: UnifiedLog) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in log.records(isolation=Isolation.COMMITTED)]


@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_that_is_not_flushed_removes_nothing(kind: ControlType, unordered: bool) -> None:
    disk, log = on_a_disk(unordered=unordered)
    lead(log, batch([NewRecord(b"1", b"new", NOW)], producer_id=7, producer_epoch=0, base_sequence=0,
                    is_transactional=True))  # fmt: skip
    log.roll()
    end_txn(log, 7, kind)  # in the active segment
    all_replicated(log)
    compact(log)
    other = ControlType.ABORT if kind is ControlType.COMMIT else ControlType.COMMIT
    for found in after_crashes(disk):
        expected = b"new" if kind is ControlType.COMMIT else b"1"
        if found.last_stable_offset == 1:  # the marker is gone, and whoever coordinates decides otherwise
            end_txn(found, 7, other)
            all_replicated(found)
            expected = b"new" if other is ControlType.COMMIT else b"1"
        assert values(found) == [(b"1", expected)]


@pytest.mark.parametrize("value", [b"new", None])
def test_a_newer_value_or_tombstone_that_recovery_found_in_the_page_cache_removes_nothing(value: bytes | None) -> None:
    """A broker was killed whose last segments the disk has not seen: Kafka flushes what it rolls later."""
    disk, log = on_a_disk()
    log.release()
    for base, record in ((1, NewRecord(b"1", value, NOW)), (2, NewRecord(b"2", b"2", NOW))):
        data = base.to_bytes(8, "big") + batch([record])[8:]
        disk.open_write(f"{ROOT}/topic-0/{base:020}.log").write_at(0, data)
    disk.sync_directory(f"{ROOT}/topic-0")
    again = a_compacted_log(ROOT, fs=disk, recovery_point=1, segment_bytes=100)  # no two segments in one group
    assert (again.log_end_offset, again.recovery_point) == (3, 1)
    all_replicated(again)
    for _ in a_cleaner(again).clean(to_clean(again)):
        for found in after_crashes(disk):
            assert dict(values(found)).get(b"1", b"nothing") in (b"1", value)
    for found in after_crashes(disk):
        assert dict(values(found)).get(b"1", b"nothing") == value


def test_the_sequence_of_a_producer_does_not_go_back_because_its_last_batch_was_not_flushed() -> None:
    disk, log = on_a_disk()
    producer = Producer(log, 7)
    producer(1)
    log.roll()
    put(log, 1)  # the batch of the producer is superseded, and stays only as its last one
    log.roll()
    all_replicated(log)
    log.flush()
    before = last_sequences(log)[7]
    producer(5)  # its last batch now: above the high watermark, in the active segment, not flushed
    compact(log)
    for found in after_crashes(disk):
        assert last_sequences(found).get(7, -1) >= before


def test_a_producer_that_writes_during_a_round_keeps_the_batch_that_the_round_has_flushed() -> None:
    disk, log = on_a_disk()
    producer = Producer(log, 7)
    producer(1)
    log.roll()
    put(log, 1)
    log.roll()
    all_replicated(log)
    work = a_cleaner(log).clean(to_clean(log))
    next(work)
    producer(5)  # the round has begun: this one is not flushed by it
    for _ in work:
        pass
    for found in after_crashes(disk):
        assert last_sequences(found).get(7, -1) >= 0


def test_segments_beyond_retention_bytes_stay_until_the_newer_ones_are_on_the_disk() -> None:
    one = len(batch(1))
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = a_log(ROOT, fs=disk, segment_bytes=5 * one, retention_bytes=8 * one, file_delete_delay_ms=0)
    for _ in range(13):  # 5, 5, and 3 in the active segment
        lead(log, 1)
    all_replicated(log)
    log.flush_to(10)
    assert log.delete_old_segments() == 1
    log.tick()
    for seed in range(CRASHES):
        found = a_log(ROOT, fs=disk.after_crash(Random(seed)))
        assert found.size >= 8 * one


def test_a_log_that_was_moved_to_another_root_is_on_the_disk_before_the_old_one_goes() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    config = ManagerConfig(cleaner=CleanerConfig(enable=False), file_delete_delay_ms=0, initial_task_delay_ms=0)
    clock = ManualClock(NOW)
    manager = LogManager.open(["/one", "/two"], SMALL, clock=clock, fs=disk, config=config)
    current = manager.get_or_create(TOPIC, root="/one")
    put(current, 1, 2, 3)
    all_replicated(current)
    current.flush()
    copy = manager.get_or_create(TOPIC, root="/two", future=True)
    copy.append_as_follower(memoryview(bytearray(current.read(0, 1 << 20).read())))
    manager.replace_current_with_future(TOPIC)
    clock.advance(60_000)
    for _ in range(5):
        manager.tick()
    assert not manager.directories_to_remove
    for seed in range(CRASHES):
        again = LogManager.open(["/one", "/two"], SMALL, clock=clock, fs=disk.after_crash(Random(seed)), config=config)
        assert again.find(TOPIC) is not None
        assert again.get_or_create(TOPIC).log_end_offset == 3
        again.close()


def test_compaction_without_a_broker_flushes_a_directory_that_was_copied_there() -> None:
    """The marker of a clean stop says that the broker has flushed it; nobody has flushed the copy."""
    disk, log = on_a_disk()
    log.roll()
    lead(log, batch([NewRecord(b"1", b"new", NOW)]))
    log.roll()
    put(log, 9)
    log.close()
    OffsetCheckpoint(disk, f"{ROOT}/{HIGH_WATERMARK_CHECKPOINT}").write({TOPIC: 3})
    OffsetCheckpoint(disk, f"{ROOT}/recovery-point-offset-checkpoint").write({TOPIC: 3})
    CleanShutdownFile(disk, ROOT).write()
    copy = SimulatedFileSystem(ManualClock(NOW))
    copy.make_directory(f"{ROOT}/topic-0")
    for directory in (ROOT, f"{ROOT}/topic-0"):
        for name in disk.list(directory):
            if not disk.stat(f"{directory}/{name}").is_directory:  # type: ignore[union-attr]
                source = disk.open(f"{directory}/{name}")
                copy.open_write(f"{directory}/{name}").write_at(0, source.read(0, source.size))
                if name != f"{1:020}.log":  # all is on the disk but the new value
                    copy.open_write(f"{directory}/{name}").sync()
    for directory in (f"{ROOT}/topic-0", ROOT, "/"):
        copy.sync_directory(directory)
    settings = CompactionSettings.parse({"segment.bytes": "1048576"})
    settings = settings._replace(topic=replace(settings.topic, segment_bytes=100))  # no two segments in one group

    def on_progress(_done: int, _total: int) -> None:
        for found in after_crashes(copy):
            assert dict(values(found))[b"1"] in (b"1", b"new")

    with OfflineRoot(ROOT, fs=copy, clock=ManualClock(NOW)) as root:
        done = compact_partition(root, TOPIC, settings, on_progress)
    assert done.error is None
    assert done.rounds


def test_a_host_that_waits_for_the_disk_elsewhere_is_given_the_flush_and_the_round_waits_for_it() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    clock = ManualClock(NOW)
    config = ManagerConfig(cleaner=CleanerConfig(backoff_ms=10), initial_task_delay_ms=0)
    manager = LogManager.open(ROOT, SMALL, clock=clock, fs=disk, config=config)
    log = manager.get_or_create(TOPIC)
    put(log, 1)
    log.flush()
    put(log, 1)
    log.roll()
    put(log, 2)  # not flushed
    all_replicated(log)
    for task in manager.schedule.take_disk_tasks():
        task.step(1)
        task.finish()
    assert manager.cleaner is not None
    clock.advance(20_000)
    tasks = []
    for _ in range(6):
        tasks += manager.schedule.take_disk_tasks()
        manager.tick()
        clock.advance(20)
    flushes = [task for task in tasks if task.name == "flush"]
    assert flushes, "the flush was not put into the schedule"
    assert manager.cleaner.state_of(TOPIC) is IN_PROGRESS
    assert values(log)[0] == (b"1", b"1")
    assert len(values(log)) == 3, "nothing is removed before the flush is over"
    for task in flushes:
        task.step(1)
        task.finish()
    for _ in range(6):
        clock.advance(20)
        manager.tick()
    assert log.recovery_point == 3
    assert len(values(log)) == 2
