"""What a manager does by itself: retention, flushes, checkpoints, compaction, and the upkeep of many logs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import NOW, SMALL_INDEXES, all_replicated, bases_of, batch, fill, lead, names_in, offsets_in
from tests.log.manager.managers import (
    INITIAL_DELAY,
    ORDERS,
    VIEWS,
    a_manager,
    after,
    offsets_in_file,
    partitions,
)
from tidelog.errors import InvalidConfigError, OffsetOutOfRangeError, StorageError
from tidelog.log import LogConfig, LogManager, ManualClock, TopicPartition, UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from tidelog.log.upkeep import Upkeep
from tidelog.records import NewRecord
from tidelog.testing.disk import SimulatedFileSystem

TEN_MINUTES = 10 * 60_000
KAFKA = TopicPartition("kafka", 0)
SMALL = replace(SMALL_INDEXES, segment_bytes=1024, retention_ms=TEN_MINUTES)
SINGLE = batch([NewRecord(None, b"test", NOW)])  # what Kafka's own test appends
BACKOFF = 15_000


def with_old_messages(manager: LogManager, count: int = 200, key: bytes | None = None) -> UnifiedLog:
    log = manager.get_or_create(KAFKA)
    for _ in range(count):
        lead(log, batch([NewRecord(key, b"test", NOW)]))
    all_replicated(log)
    return log


# -- retention ---------------------------------------------------------------------------------------------------------


@behaviour("MGR-013")
def test_old_segments_expire_to_a_single_one(tmp_path: Path) -> None:
    with a_manager(tmp_path, SMALL) as manager:
        log = with_old_messages(manager)
        assert len(log.segments) > 1
        after(manager, ms=TEN_MINUTES + 1)
        assert len(log.segments) == 1
        after(manager, ms=log.config.file_delete_delay_ms + 1)
        for segment in log.segments:
            segment.flush()  # the indexes of a new segment appear with its first use
        suffixes = sorted(name.partition(".")[2] or name for name in names_in(log))
        assert suffixes == ["index", "leader-epoch-checkpoint", "log", "snapshot", "timeindex"]
        with pytest.raises(OffsetOutOfRangeError):
            log.read(0, 1024)
        assert log.read(200, 1024).size == 0
        assert lead(log).first_offset == 200


@behaviour("MGR-014")
def test_a_log_is_cut_to_its_size(tmp_path: Path) -> None:
    segment_bytes = 10 * len(SINGLE)
    overrides = {"segment.bytes": str(segment_bytes), "retention.bytes": str(5 * segment_bytes + 10)}
    with a_manager(tmp_path, SMALL, topic_configs={"kafka": overrides}) as manager:
        log = with_old_messages(manager)
        assert len(log.segments) == 20
        after(manager, ms=INITIAL_DELAY)
        assert len(log.segments) == 6
        after(manager, ms=log.config.file_delete_delay_ms)
        assert len(names_in(log, ".log")) == 6
        assert names_in(log, ".deleted") == []
        assert lead(log).first_offset == 200


@behaviour("MGR-015")
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_logs_are_left_to_the_cleaner(tmp_path: Path, policy: str) -> None:
    with a_manager(tmp_path, SMALL, topic_configs={"kafka": {"cleanup.policy": policy}}) as manager:
        log = with_old_messages(manager, key=b"key")
        segments = len(log.segments)
        assert segments > 1
        after(manager, ms=TEN_MINUTES + 1)
        assert manager.delete_old_segments() == 0
        assert len(log.segments) == segments


def test_future_logs_expire_with_the_current_ones(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots, SMALL) as manager:
        for log in (
            manager.get_or_create(ORDERS, root=roots[0]),
            manager.get_or_create(ORDERS, root=roots[1], future=True),
        ):
            fill(log, [2, 2])
            all_replicated(log)
        manager.clock.advance(days=1)  # type: ignore[attr-defined]
        assert manager.delete_old_segments() == 4


def test_a_log_that_fails_does_not_keep_the_others_from_expiring() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], SMALL, fs=disk)
    for partition in partitions(4):
        log = manager.get_or_create(partition)
        fill(log, [2, 2])
        all_replicated(log)
    disk.fail(operation="rename", path="/a/orders-0/*", error="Input/output error")
    manager.clock.advance(days=1)  # type: ignore[attr-defined]
    assert manager.delete_old_segments() == 6
    assert [root.path for root in manager.live_roots] == ["/b"]


def test_retention_goes_on_log_by_log_within_the_budget(tmp_path: Path) -> None:
    with a_manager(tmp_path, SMALL, cleaner=CleanerConfig()) as manager:
        for partition in partitions(3):
            log = manager.get_or_create(partition)
            fill(log, [2, 2])
            all_replicated(log)
        manager.tick()
        manager.clock.advance(days=1)  # type: ignore[attr-defined]
        seen = []
        for _ in range(200):
            manager.schedule.run_due(0)
            seen.append(sum(len(log.segments) == 1 for log in manager.logs.values()))
        assert sorted(set(seen)) == [0, 1, 2, 3]
        assert manager.cleaner is not None
        assert {manager.cleaner.state_of(partition) for partition in manager.logs} == {None}  # none is left paused


# -- flushing ----------------------------------------------------------------------------------------------------------


@behaviour("MGR-016")
def test_logs_are_flushed_when_their_time_has_come(tmp_path: Path) -> None:
    overrides = {"kafka": {"flush.ms": "1000"}}
    with a_manager(tmp_path, SMALL, topic_configs=overrides, flush_scheduler_interval_ms=2000) as manager:
        log, other = with_old_messages(manager, 3), manager.get_or_create(VIEWS)
        lead(other, 1)
        flushed_ms = log.local.last_flushed_ms
        after(manager, ms=INITIAL_DELAY)
        assert log.local.last_flushed_ms == flushed_ms + INITIAL_DELAY
        assert (log.recovery_point, other.recovery_point) == (3, 0)
        lead(log, 1)
        after(manager, ms=1999)
        assert log.recovery_point == 3
        after(manager, ms=1)
        assert log.recovery_point == 4
        lead(log, 1)
        assert manager.flush_dirty() == 0  # flushed just now
        manager.clock.advance(1000)  # type: ignore[attr-defined]
        assert manager.flush_dirty() == 1


# -- when --------------------------------------------------------------------------------------------------------------


@behaviour("MGR-017")
def test_the_first_time_waits_for_the_initial_delay(tmp_path: Path) -> None:
    with a_manager(tmp_path, SMALL, initial_task_delay_ms=10_000, retention_check_interval_ms=7_000) as manager:
        log = with_old_messages(manager)
        log.delete_records(100)
        log.flush()
        bases = bases_of(log)
        after(manager, ms=9_999)
        assert bases_of(log) == bases
        assert offsets_in_file(tmp_path, RECOVERY_POINT_CHECKPOINT) == {}
        assert offsets_in_file(tmp_path, LOG_START_CHECKPOINT) == {}
        after(manager, ms=1)
        assert bases_of(log)[0] > 0
        assert offsets_in_file(tmp_path, RECOVERY_POINT_CHECKPOINT) == {"kafka-0": 200}
        assert offsets_in_file(tmp_path, LOG_START_CHECKPOINT) == {"kafka-0": 100}
        bases = bases_of(log)
        manager.update_topic_config("kafka", {"retention.bytes": "1"})
        after(manager, ms=6_999)
        assert bases_of(log) == bases
        after(manager, ms=1)
        assert bases_of(log) != bases


def test_checkpoints_are_written_each_at_its_time(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)

        def written() -> list[int | None]:
            names = (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT)
            return [offsets_in_file(tmp_path, name).get("orders-0") for name in names]

        lead(log, 1)
        all_replicated(log)
        log.flush()
        after(manager, ms=5_000)
        assert written() == [1, None, None]
        after(manager, ms=25_000)
        assert written() == [1, 1, None]
        lead(log, 1)
        all_replicated(log)
        log.delete_records(2)
        after(manager, ms=59_999)
        assert written() == [2, 1, None]
        after(manager, ms=1)
        assert written() == [2, 2, 2]


def test_an_interval_of_nothing_means_once(tmp_path: Path) -> None:
    with a_manager(tmp_path, recovery_point_checkpoint_interval_ms=0) as manager:
        log = manager.get_or_create(ORDERS)
        after(manager, ms=INITIAL_DELAY)
        lead(log, 1)
        log.flush()
        after(manager, hours=1)
        assert offsets_in_file(tmp_path, RECOVERY_POINT_CHECKPOINT) == {"orders-0": 0}


def test_work_that_fails_is_done_again_at_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_manager(tmp_path, SMALL) as manager:
        log = with_old_messages(manager)

        def broken() -> int:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(log, "delete_old_segments", broken)
            with pytest.raises(ZeroDivisionError):
                after(manager, ms=TEN_MINUTES + 1)
        after(manager, ms=300_000)
        assert len(log.segments) == 1


def test_what_waits_for_the_disk_can_be_done_in_another_thread(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        lead(log, 1)
        all_replicated(log)
        manager.clock.advance(5_000)  # type: ignore[attr-defined]
        taken = []
        for _ in range(10):
            manager.schedule.run_due(0)
            taken += manager.schedule.take_disk_tasks()
        assert [task.name for task in taken] == ["write checkpoint"]
        lead(log, 1)  # the owner goes on
        all_replicated(log)
        taken[0].step(0)
        taken[0].finish()
        assert offsets_in_file(tmp_path, HIGH_WATERMARK_CHECKPOINT) == {"orders-0": 1}


# -- many logs ---------------------------------------------------------------------------------------------------------


def test_every_log_is_asked_what_it_needs_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Upkeep] = []
    monkeypatch.setattr(Upkeep, "look_around", lambda upkeep: asked.append(upkeep))
    with a_manager(tmp_path) as manager:
        for partition in partitions(100):
            manager.get_or_create(partition)
        manager.tick()
        asked.clear()
        manager.tick()
        assert len(asked) == 16  # however often it is called, not many at a time
        for _ in range(4):
            after(manager, ms=300)
        assert len(set(asked)) == 100
        after(manager, hours=1)
        assert len(asked) <= 16 + 5 * 100


def test_an_index_that_a_reader_found_wrong_is_mended(tmp_path: Path) -> None:
    config = replace(SMALL_INDEXES, index_interval_bytes=1)
    with a_manager(tmp_path, config) as manager:
        log = manager.get_or_create(ORDERS)
        fill(log, [6, 1])
    index = tmp_path / "orders-0" / f"{0:020}.index"
    right = index.read_bytes()
    index.write_bytes(right[:4] + b"\0\0\0\7" + right[8:])
    with a_manager(tmp_path, config) as manager:
        log = manager.logs[ORDERS]
        log.read(1, 100)
        manager.tick()
        after(manager, seconds=1)
        assert index.read_bytes() == right


# -- configs -----------------------------------------------------------------------------------------------------------


def test_a_topic_config_holds_for_all_its_logs_at_once(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots) as manager:
        logs = [manager.get_or_create(partition) for partition in partitions(3)]
        logs.append(manager.get_or_create(ORDERS, root=roots[1], future=True))
        other = manager.get_or_create(VIEWS)
        manager.update_topic_config("orders", {"retention.ms": "5"})
        assert [log.config.retention_ms for log in logs] == [5] * 4
        assert other.config is SMALL_INDEXES
        assert manager.get_or_create(TopicPartition("orders", 9)).config.retention_ms == 5
        manager.update_topic_config("orders", {})
        assert all(log.config is SMALL_INDEXES for log in logs)


def test_a_topic_config_of_which_a_part_is_wrong_changes_nothing(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        manager.update_topic_config("orders", {"retention.ms": "5"})
        with pytest.raises(InvalidConfigError):
            manager.update_topic_config("orders", {"retention.ms": "6", "segment.bytes": "none"})
        assert log.config.retention_ms == manager.configs.of("orders").retention_ms == 5


def test_defaults_hold_where_nothing_was_set(tmp_path: Path) -> None:
    with a_manager(tmp_path, topic_configs={"views": {"retention.ms": "5"}}) as manager:
        orders, views = manager.get_or_create(ORDERS), manager.get_or_create(VIEWS)
        manager.update_defaults(LogConfig(retention_ms=7, segment_bytes=2000, segment_index_bytes=4096))
        assert (orders.config.retention_ms, views.config.retention_ms) == (7, 5)
        assert (orders.config.segment_bytes, views.config.segment_bytes) == (2000, 2000)
        manager.update_topic_config("views", {"min.compaction.lag.ms": "5000"})
        with pytest.raises(InvalidConfigError):
            manager.update_defaults(LogConfig(max_compaction_lag_ms=100))
        assert orders.config.retention_ms == 7


# -- compaction --------------------------------------------------------------------------------------------------------


def compacting(tmp_path: Path, **options: object) -> LogManager:
    """A manager with a cleaner, and two partitions of a compacted topic that have a lot to clean."""
    config = replace(SMALL_INDEXES, segment_bytes=1024)
    overrides = {"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}}
    cleaner = CleanerConfig(dedupe_buffer_size=1 << 16)
    manager = a_manager(tmp_path, config, topic_configs=overrides, cleaner=cleaner, **options)
    for partition in partitions(2):
        log = manager.get_or_create(partition)
        for number in range(60):
            lead(log, batch([NewRecord(b"key%d" % (number % 3), b"v" * 40, NOW)]))
        all_replicated(log)
    return manager


def test_compacted_logs_are_cleaned_and_their_checkpoint_is_kept(tmp_path: Path) -> None:
    with compacting(tmp_path) as manager:
        assert (tmp_path / CLEANER_CHECKPOINT).read_bytes() == b""
        after(manager, ms=BACKOFF)
        assert all(len(offsets_in(log)) < 20 for log in manager.logs.values())
        dirty = offsets_in_file(tmp_path, CLEANER_CHECKPOINT)
        assert sorted(dirty) == ["orders-0", "orders-1"]
        manager.delete(ORDERS)
        assert list(offsets_in_file(tmp_path, CLEANER_CHECKPOINT)) == ["orders-1"]
    with a_manager(tmp_path) as manager:
        assert manager.cleaner is None


def test_without_the_cleaner_its_checkpoint_is_not_made(tmp_path: Path) -> None:
    a_manager(tmp_path).close()
    assert not (tmp_path / CLEANER_CHECKPOINT).exists()


@behaviour("MGR-029")
def test_a_topic_that_is_no_longer_compacted_is_not_cleaned_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = compacting(tmp_path)
    cleaner = manager.cleaner
    assert cleaner is not None
    manager.clock.advance(BACKOFF)  # type: ignore[attr-defined]
    while cleaner.running is None:
        manager.schedule.run_due(0)
    aborted: list[TopicPartition] = []
    abort = cleaner.abort
    monkeypatch.setattr(cleaner, "abort", lambda partition: (aborted.append(partition), abort(partition)))
    manager.update_topic_config("orders", {"cleanup.policy": "delete"})
    assert aborted == partitions(2)
    assert cleaner.running is None
    assert all(log.config.deletes and not log.config.is_compacted for log in manager.logs.values())
    manager.update_topic_config("orders", {"cleanup.policy": "delete", "retention.ms": "-1"})
    assert aborted == partitions(2)
    manager.close()


@pytest.mark.parametrize("stray", [False, True])
def test_a_log_that_is_being_cleaned_can_be_deleted(tmp_path: Path, stray: bool) -> None:
    manager = compacting(tmp_path)
    cleaner = manager.cleaner
    assert cleaner is not None
    manager.clock.advance(BACKOFF)  # type: ignore[attr-defined]
    while cleaner.running is None:
        manager.schedule.run_due(0)
    log = cleaner.running[0].log
    manager.delete(log.topic_partition, stray=stray)
    assert cleaner.running is None
    assert names_in(log, ".cleaned") == []
    after(manager, ms=BACKOFF)
    assert len(manager.logs) == 1
    manager.close()


def test_what_is_truncated_is_not_being_cleaned_and_is_cleaned_again(tmp_path: Path) -> None:
    with compacting(tmp_path) as manager:
        after(manager, ms=BACKOFF)
        log, cleaner = manager.logs[ORDERS], manager.cleaner
        assert cleaner is not None
        first_dirty = cleaner.first_dirty_offsets[ORDERS]
        manager.truncate_to({ORDERS: first_dirty - 1})
        lowered = cleaner.first_dirty_offsets[ORDERS]
        assert lowered == log.active_segment.base_offset < first_dirty
        assert cleaner.state_of(ORDERS) is None
        manager.truncate_fully_and_start_at(ORDERS, 3)
        assert cleaner.first_dirty_offsets[ORDERS] == min(lowered, 3)
        assert cleaner.first_dirty_offsets[partitions(2)[1]] == first_dirty


def test_a_log_that_moves_takes_its_first_dirty_offset_along(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots, cleaner=CleanerConfig()) as manager:
        cleaner = manager.cleaner
        assert cleaner is not None
        manager.get_or_create(ORDERS, root=roots[0])
        manager.get_or_create(ORDERS, root=roots[1], future=True)
        cleaner.update_checkpoint(str(roots[0]), add=(ORDERS, 7))
        manager.replace_current_with_future(ORDERS)
        assert offsets_in_file(roots[0], CLEANER_CHECKPOINT) == {}
        assert offsets_in_file(roots[1], CLEANER_CHECKPOINT) == {"orders-0": 7}


def test_the_cleaner_leaves_a_root_that_failed_alone(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots, cleaner=CleanerConfig()) as manager:
        for partition in partitions(2):
            manager.get_or_create(partition)
        manager.fail_root(roots[0], StorageError("pulled out"))
        (roots[0] / CLEANER_CHECKPOINT).unlink()
        assert manager.cleaner is not None
        manager.cleaner.update_checkpoint(str(roots[0]), add=(ORDERS, 7))
        after(manager, hours=1)
        assert not (roots[0] / CLEANER_CHECKPOINT).exists()


def test_a_manager_with_a_clock_of_its_own_and_nothing_to_do_is_quiet(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with a_manager(tmp_path, clock=clock) as manager:
        due_ms = manager.schedule.next_due_in_ms
        assert due_ms == 5_000
        assert manager.schedule.run_due() == 0
