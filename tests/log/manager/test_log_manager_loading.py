"""Starting on roots that hold logs: what is loaded, what is set aside, and what ends the start."""

import gc
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import NOW, SMALL_INDEXES, all_replicated, fill, lead, offsets_in
from tests.log.manager.managers import (
    NO_CLEANER,
    ORDERS,
    VIEWS,
    a_manager,
    after,
    crashed,
    directories_in,
    is_marked_clean,
    offsets_in_file,
    open_files,
    partitions,
    unloaded,
)
from tidelog.errors import (
    CorruptionError,
    InvalidConfigError,
    InvalidTopicError,
    LockedError,
    StorageError,
    TooManyFilesError,
)
from tidelog.log import LogManager, ManagerConfig, ManualClock, TopicPartition, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.loader import LogLoader
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_directories import not_assigned_to
from tidelog.log.manager.root_loading import LoadProgress
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    is_stray_directory,
)
from tidelog.testing.disk import SimulatedFileSystem

FS = LocalFileSystem()
TOPIC_ID = uuid.UUID(int=0x1234567890)
UID = "7c" * 16
IO_ERROR = "Input/output error"


def stopped(root: Path | str, count: int = 2, *, topic: str = "orders", clean: bool = True, fs: object = None) -> None:
    """A root that was used: some partitions of a topic, each with five records."""
    manager = a_manager(root, fs=fs)
    for partition in partitions(count, topic):
        log = manager.get_or_create(partition, topic_id=TOPIC_ID)
        lead(log, 5)
        all_replicated(log)
    if clean:
        manager.close()
    else:
        manager.tick()
        crashed(manager)


def damage(root: Path, name: str = "orders-0") -> None:
    """Zeros behind the last batch, which a clean start does not repair and cannot read over."""
    with (root / name / f"{0:020}.log").open("ab") as file:
        file.write(bytes(300))


def cleanliness_of_loads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether logs are loaded as after a clean stop, as they come."""
    seen: list[bool] = []
    task = LogLoader.task

    def watched(loader: LogLoader, **options: object) -> object:
        seen.append(loader._is_clean)
        return task(loader, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LogLoader, "task", watched)
    return seen


# -- clean or not ------------------------------------------------------------------------------------------------------


@behaviour("LDR-001")
def test_the_marker_says_whether_logs_are_clean_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path)
    assert is_marked_clean(tmp_path)
    seen = cleanliness_of_loads(monkeypatch)
    manager = a_manager(tmp_path)
    assert seen == [True, True]
    assert not is_marked_clean(tmp_path)
    crashed(manager)
    seen.clear()
    manager = a_manager(tmp_path)
    assert seen == [False, False]
    assert all(offsets_in(log) == [0, 1, 2, 3, 4] for log in manager.logs.values())


@behaviour("LDR-002")
def test_whatever_happens_while_loading_counts_as_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path, count=4)
    manager = unloaded(tmp_path)
    task = manager.load_task()
    while len(manager.all_logs()) < 2:
        task.step(0)
    assert not is_marked_clean(tmp_path)
    crashed(manager)
    seen = cleanliness_of_loads(monkeypatch)
    assert len(a_manager(tmp_path).logs) == 4
    assert seen == [False] * 4


def test_the_marker_is_gone_for_good_before_a_log_is_touched() -> None:
    disk = SimulatedFileSystem()
    stopped("/data", fs=disk)
    before = len(disk.journal)
    manager = unloaded("/data", fs=disk)
    manager.load_task().run()
    told = [" ".join(line.split()[1:]) for line in disk.journal[before:]]
    removed = told.index("remove /data/.kafka_cleanshutdown")
    assert told[removed + 1] == "sync_directory /data"
    assert not any("/orders-" in line for line in told[: removed + 1])


# -- what the checkpoints say ------------------------------------------------------------------------------------------


def test_recovery_begins_where_the_checkpoint_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = a_manager(tmp_path)
    fill(manager.get_or_create(ORDERS), [3, 3, 3])
    manager.logs[ORDERS].flush()
    manager.checkpoint_recovery_points()
    crashed(manager)
    OffsetCheckpoint(FS, f"{tmp_path}/{RECOVERY_POINT_CHECKPOINT}").write({ORDERS: 4})
    recovered: list[int] = []
    recover = LogLoader._recover_segment

    def watched(loader: LogLoader, segment: object, *rest: object) -> object:
        recovered.append(segment.base_offset)  # type: ignore[attr-defined]
        return recover(loader, segment, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(LogLoader, "_recover_segment", watched)
    assert offsets_in(a_manager(tmp_path).logs[ORDERS]) == list(range(9))
    assert recovered == [3, 6]


def test_a_log_starts_where_the_checkpoint_says(tmp_path: Path) -> None:
    stopped(tmp_path)
    OffsetCheckpoint(FS, f"{tmp_path}/{LOG_START_CHECKPOINT}").write({ORDERS: 3})
    with a_manager(tmp_path) as manager:
        assert [log.log_start_offset for log in manager.logs.values()] == [3, 0]


@behaviour("CKP-015")
def test_the_high_watermark_comes_from_the_checkpoint_within_what_is_there(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        lead(log, 5)
        assert offsets_in_file(tmp_path, HIGH_WATERMARK_CHECKPOINT) == {}
        assert log.high_watermark == 0
        log.update_high_watermark(4)
        manager.checkpoint_high_watermarks()
        assert offsets_in_file(tmp_path, HIGH_WATERMARK_CHECKPOINT) == {"orders-0": 4}
    for written, found in ((4, 4), (17, 5), (-1, 0)):
        OffsetCheckpoint(FS, f"{tmp_path}/{HIGH_WATERMARK_CHECKPOINT}").write({ORDERS: written})
        with a_manager(tmp_path) as manager:
            assert manager.logs[ORDERS].high_watermark == found


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT])
def test_a_checkpoint_that_is_not_of_its_form_is_told_and_counts_as_empty(tmp_path: Path, name: str) -> None:
    stopped(tmp_path, clean=False)
    (tmp_path / name).write_text("0\n2\norders 0 x\n")
    with a_manager(tmp_path) as manager:
        assert [offsets_in(log) for log in manager.logs.values()] == [[0, 1, 2, 3, 4]] * 2
        [notice] = manager.notices
        assert notice == f"{tmp_path}/{name}: 1 entries where 2 are announced: it counts as empty"
    assert len(offsets_in_file(tmp_path, RECOVERY_POINT_CHECKPOINT)) == 2


# -- what lies in a root -----------------------------------------------------------------------------------------------


def test_only_partitions_are_loaded(tmp_path: Path) -> None:
    stopped(tmp_path, count=1)
    for name in ("__cluster_metadata-0", "remote-log-index-cache", f"gone-0.{UID}-delete", f"odd-0.{UID}-stray"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(b"what no log can hold")
    with a_manager(tmp_path) as manager:
        assert list(manager.logs) == [ORDERS]
        after(manager, hours=1)
        assert f"gone-0.{UID}-delete" not in directories_in(tmp_path)
        assert len(directories_in(tmp_path)) == 4


def test_a_directory_that_does_not_belong_there_ends_the_start_before_anything_is_touched(tmp_path: Path) -> None:
    stopped(tmp_path / "a")
    stopped(tmp_path / "b")
    (tmp_path / "b" / "backup").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InvalidTopicError, match=f"{tmp_path}/b/backup does not belong"):
        a_manager([tmp_path / "a", tmp_path / "b"], broker_epoch=7)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "b" / "backup").rmdir()
    a_manager(tmp_path / "b").close()


def test_two_directories_of_one_partition_end_the_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stopped(tmp_path / name, count=1)
    with a_manager(tmp_path / "b") as manager:
        lead(manager.logs[ORDERS], 2)
    with pytest.raises(CorruptionError) as caught:
        a_manager([tmp_path / "a", tmp_path / "b"])
    assert f"two directories, {tmp_path}/a/orders-0 (offsets 0 to 5, " in str(caught.value)
    assert f"{tmp_path}/b/orders-0 (offsets 0 to 7, " in str(caught.value)
    with a_manager([tmp_path / "a"]) as manager:
        assert offsets_in(manager.logs[ORDERS]) == [0, 1, 2, 3, 4]


def test_two_future_copies_of_one_partition_end_the_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stopped(tmp_path / name, count=1)
        (tmp_path / name / "orders-0").rename(tmp_path / name / f"orders-0.{UID}-future")
    with pytest.raises(CorruptionError, match="orders-0 has two directories"):
        a_manager([tmp_path / "a", tmp_path / "b"])


# -- strays ------------------------------------------------------------------------------------------------------------


@behaviour("MGR-019")
def test_a_log_that_is_declared_stray_is_set_aside(tmp_path: Path) -> None:
    stopped(tmp_path, count=3)
    with a_manager(tmp_path, is_stray=lambda log: log.topic_partition.partition == 1) as manager:
        assert [str(partition) for partition in manager.logs] == ["orders-0", "orders-2"]
        [stray] = [name for name in directories_in(tmp_path) if is_stray_directory(name)]
        assert stray.startswith("orders-1.")
        assert any(stray in notice for notice in manager.notices)
        lead(manager.get_or_create(TopicPartition("orders", 1)), 1)
    with a_manager(tmp_path) as manager:
        assert offsets_in(manager.logs[TopicPartition("orders", 1)]) == [0]


@behaviour("MGR-020")
def test_a_log_without_a_topic_id_is_stray_for_a_broker_and_for_nobody_else(tmp_path: Path) -> None:
    stopped(tmp_path)
    (tmp_path / "orders-1" / PARTITION_METADATA).unlink()
    with a_manager(tmp_path) as manager:
        assert len(manager.logs) == 2
    with a_manager(tmp_path, is_stray=lambda log: False) as manager:
        assert list(manager.logs) == [ORDERS]


@behaviour("MGR-021")
def test_a_log_is_stray_where_the_metadata_does_not_give_it_to_this_broker(tmp_path: Path) -> None:
    other_id = uuid.UUID(int=77)
    with a_manager(tmp_path) as manager:
        for name, topic_id in (("mine", TOPIC_ID), ("others", TOPIC_ID), ("recreated", other_id)):
            manager.get_or_create(TopicPartition(name, 0), topic_id=topic_id)
        manager.get_or_create(TopicPartition("mine", 5), topic_id=TOPIC_ID)
        logs = {str(partition): log for partition, log in manager.logs.items()}
        replicas = {(TOPIC_ID, 0): [1, 2]}

        def strays(broker: int) -> list[str]:
            is_stray = not_assigned_to(broker, lambda topic_id, number: replicas.get((topic_id, number)))
            return [name for name, log in logs.items() if is_stray(log)]

        assert strays(2) == ["recreated-0", "mine-5"]  # no such topic, no such partition
        assert strays(3) == list(logs)  # none of its replicas


def test_a_stray_log_is_no_second_directory(tmp_path: Path) -> None:
    stopped(tmp_path / "a", count=1)
    with a_manager(tmp_path / "b") as manager:
        lead(manager.get_or_create(ORDERS, topic_id=uuid.UUID(int=99)), 2)
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots, is_stray=lambda log: log.topic_id == TOPIC_ID) as manager:
        assert manager.root_of(ORDERS) is manager.roots[1]
        assert is_stray_directory(*directories_in(roots[0]))


def test_a_stray_name_is_on_the_disk_before_another_log_takes_the_old_one() -> None:
    disk = SimulatedFileSystem()
    stopped("/data", count=1, fs=disk)
    disk.sync_all()
    manager = a_manager("/data", fs=disk, is_stray=lambda log: True)
    log = manager.get_or_create(ORDERS, topic_id=TOPIC_ID)
    lead(log, 1)
    log.flush()
    left = disk.after_crash()
    assert len(directories_in("/data", left)) == 2
    assert offsets_in(a_manager("/data", fs=left).logs[ORDERS]) == [0]


# -- errors ------------------------------------------------------------------------------------------------------------


@behaviour("LDR-003")
def test_a_log_that_is_broken_ends_the_start_and_not_the_root(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    stopped(roots[0])
    stopped(roots[1], topic="views")
    damage(roots[0])
    manager = unloaded(roots)
    with pytest.raises(CorruptionError, match=f"{roots[0]}/orders-0 cannot be loaded: .*{0:020}.log"):
        manager.load_task().run()
    assert manager.live_roots == manager.roots
    manager.close()


def test_a_start_that_fails_gives_all_files_back(tmp_path: Path) -> None:
    stopped(tmp_path, count=3)
    damage(tmp_path, "orders-1")
    with pytest.raises(CorruptionError):
        a_manager(tmp_path)
    gc.collect()  # what was being read hangs on the error
    assert not open_files(tmp_path)


@behaviour("LDR-004")
@pytest.mark.parametrize("operation", ["open", "list", "resize"])
def test_what_the_disk_refuses_takes_the_root_offline_and_the_start_goes_on(operation: str) -> None:
    disk = SimulatedFileSystem()
    stopped("/a", count=3, fs=disk)
    stopped("/b", topic="views", fs=disk)
    disk.fail(operation=operation, path="/a/orders-1*", error=IO_ERROR)
    manager = a_manager(["/a", "/b"], fs=disk)
    assert [root.path for root in manager.live_roots] == ["/b"]
    assert [str(partition) for partition in manager.logs] == ["views-0", "views-1"]
    assert manager.offline_logs == {ORDERS: "/a"}  # the one that had been loaded
    assert IO_ERROR in str(manager.roots[0].failure)
    disk.heal()
    manager.close()
    assert [is_marked_clean(root, disk) for root in ("/a", "/b")] == [False, True]


@pytest.mark.parametrize("name", [LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA])
def test_a_small_file_of_a_log_that_is_not_of_its_form_takes_the_root_offline(tmp_path: Path, name: str) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    stopped(roots[0])
    (roots[0] / "orders-1" / name).write_text("nonsense")
    with a_manager(roots) as manager:
        assert [root.path for root in manager.live_roots] == [str(roots[1])]
        assert str(roots[0] / "orders-1" / name) in str(manager.roots[0].failure)


def test_a_start_without_a_single_root_fails() -> None:
    disk = SimulatedFileSystem()
    stopped("/a", fs=disk)
    disk.fail(operation="open", path="/a/orders-0/*", error=IO_ERROR)
    with pytest.raises(StorageError, match="no log directory can be used: /a/orders-0/.*Input/output error"):
        a_manager("/a", fs=disk)
    disk.heal()
    assert len(a_manager("/a", fs=disk).logs) == 2


def test_too_many_open_files_are_no_failure_of_a_root() -> None:
    disk = SimulatedFileSystem()
    stopped("/a", fs=disk)
    disk.fail(operation="open", path="/a/orders-1/*.log", error="Too many open files")
    with pytest.raises(TooManyFilesError):
        a_manager("/a", fs=disk)
    disk.heal()
    assert len(a_manager("/a", fs=disk).logs) == 2


def test_a_log_that_somebody_opened_by_hand_ends_the_start(tmp_path: Path) -> None:
    with UnifiedLog.open(tmp_path / "orders-0"):  # nothing says that this is a root
        with pytest.raises(LockedError, match="orders-0"):
            a_manager(tmp_path)
        assert not (tmp_path / LOCK_FILE).exists()
    with a_manager(tmp_path), pytest.raises(LockedError):
        UnifiedLog.open(tmp_path / "orders-0")


@behaviour("MGR-037")
def test_a_start_that_failed_can_be_repeated_and_corrupt_logs_leave_no_marker(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    stopped(roots[0], count=3)
    stopped(roots[1], topic="views", count=1)
    damage(roots[0], "orders-1")
    before = offsets_in_file(roots[0], RECOVERY_POINT_CHECKPOINT)
    with pytest.raises(CorruptionError):
        a_manager(roots)
    assert not any((root / LOCK_FILE).exists() for root in roots)
    assert [is_marked_clean(root) for root in roots] == [False, True]
    assert offsets_in_file(roots[0], RECOVERY_POINT_CHECKPOINT) == before
    with a_manager(roots) as manager:  # the first root is recovered now
        assert [len(offsets_in(log)) for log in manager.logs.values()] == [5] * 4
        manager.close()
        manager.close()
    assert all(is_marked_clean(root) for root in roots)


def test_what_was_not_loaded_keeps_its_checkpoints(tmp_path: Path) -> None:
    stopped(tmp_path, count=4)
    OffsetCheckpoint(FS, f"{tmp_path}/{LOG_START_CHECKPOINT}").write(dict.fromkeys(partitions(4), 2))
    manager = unloaded(tmp_path)
    task = manager.load_task()
    while len(manager.all_logs()) < 2:
        task.step(0)
    manager.close()
    expected = {str(partition): 5 for partition in partitions(4)}
    assert offsets_in_file(tmp_path, RECOVERY_POINT_CHECKPOINT) == expected
    assert offsets_in_file(tmp_path, HIGH_WATERMARK_CHECKPOINT) == expected
    assert set(offsets_in_file(tmp_path, LOG_START_CHECKPOINT).values()) == {2}
    assert len(offsets_in_file(tmp_path, LOG_START_CHECKPOINT)) == 4


@behaviour("MGR-012")
def test_a_root_that_was_not_loaded_to_the_end_gets_no_marker(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    stopped(roots[0], count=5, clean=False)
    manager = unloaded(roots)
    task = manager.load_task()
    while len(manager.all_logs()) < 2:
        task.step(0)
    manager.close()
    assert [is_marked_clean(root) for root in roots] == [False, True]
    assert len(a_manager(roots).logs) == 5


def test_a_clean_root_stays_clean_unless_a_log_was_left_half_loaded(tmp_path: Path) -> None:
    stopped(tmp_path, count=3)
    seen = set()
    for steps in range(12):
        manager = unloaded(tmp_path)
        task = manager.load_task()
        for _ in range(steps):
            task.step(0)
        is_between = not manager.roots[0].is_torn
        manager.close()
        assert is_marked_clean(tmp_path) == is_between
        seen.add(is_between)
        if not is_between:
            a_manager(tmp_path).close()
    assert seen == {True, False}


# -- slices and progress -----------------------------------------------------------------------------------------------


def test_roots_are_loaded_side_by_side(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots) as manager:
        for partition in partitions(6):
            manager.get_or_create(partition)
    manager = unloaded(roots)
    task = manager.load_task()
    order: list[str] = []
    while not task.step(0):
        order += [log.directory for log in manager.all_logs() if log.directory not in order]
    assert [directory.split("/")[-2] for directory in order] == ["a", "b"] * 3
    assert task.result is manager


def test_progress_is_told(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    manager = a_manager(roots)
    for partition in partitions(3):
        fill(manager.get_or_create(partition), [2, 2, 2])
    crashed(manager)
    told: list[LoadProgress] = []
    a_manager(roots, on_progress=told.append)
    assert [(progress.logs_done, progress.logs_total) for progress in told][-1] == (3, 3)
    assert max(progress.segments_left for progress in told) == 6  # a log of each root at a time
    assert told[-1].segments_left == 0
    assert [(root.root, root.logs_done, root.logs_total) for root in told[-1].roots] == [
        (str(roots[0]), 2, 2),
        (str(roots[1]), 1, 1),
    ]
    assert len(told) == len(set(told))  # nothing is told twice


def test_a_step_keeps_to_its_budget(tmp_path: Path) -> None:
    stopped(tmp_path, count=5)
    manager = unloaded(tmp_path)
    task = manager.load_task()
    steps = 1
    while not task.step(0):
        steps += 1
    assert steps > 5


# -- configs -----------------------------------------------------------------------------------------------------------


def test_logs_get_the_configs_of_their_topics(tmp_path: Path) -> None:
    stopped(tmp_path, count=1)
    with a_manager(tmp_path) as manager:
        manager.get_or_create(VIEWS)
    with a_manager(tmp_path, topic_configs={"views": {"retention.ms": "7"}}) as manager:
        assert manager.logs[VIEWS].config.retention_ms == 7
        assert manager.logs[VIEWS].config.segment_index_bytes == SMALL_INDEXES.segment_index_bytes
        assert manager.logs[ORDERS].config is SMALL_INDEXES
    with pytest.raises(InvalidConfigError):
        a_manager(tmp_path, topic_configs={"views": {"retention.ms": "soon"}})


@behaviour("MGR-027")
def test_a_config_that_changes_while_logs_are_loaded_holds_when_they_are(tmp_path: Path) -> None:
    stopped(tmp_path, count=2)
    with a_manager(tmp_path) as manager:
        manager.get_or_create(VIEWS)
    manager = unloaded(tmp_path, topic_configs={"views": {"retention.ms": "3"}})
    of_views = manager.configs.of("views")
    task = manager.load_task()
    while not manager.roots[0].is_torn:
        task.step(0)
    manager.update_topic_config("orders", {"retention.ms": "9"})  # in the middle of one of its logs
    task.run()
    assert [log.config.retention_ms for log in manager.logs.values()] == [9, 9, 3]
    assert manager.logs[VIEWS].config is of_views  # not read again
    manager.close()


@behaviour("MGR-028")
def test_defaults_that_change_while_logs_are_loaded_hold_when_they_are(tmp_path: Path) -> None:
    stopped(tmp_path, count=3)
    manager = unloaded(tmp_path)
    task = manager.load_task()
    while not manager.all_logs():
        task.step(0)
    task.step(0)
    manager.update_defaults(replace(SMALL_INDEXES, retention_ms=9))
    task.run()
    assert [log.config.retention_ms for log in manager.logs.values()] == [9, 9, 9]
    manager.close()


def test_logs_obey_the_config_of_the_manager(tmp_path: Path) -> None:
    config = ManagerConfig.from_properties(
        {"producer.id.expiration.ms": "5", "transaction.partition.verification.enable": "false"}
    )
    with LogManager.open(tmp_path, config=config, clock=ManualClock(NOW)) as manager:
        producers = manager.get_or_create(ORDERS).producers
        assert producers.expiration_ms == 5
        assert manager.cleaner is not None
    assert ManagerConfig(cleaner=NO_CLEANER).verification


@pytest.mark.parametrize("name", [LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT])
def test_a_start_that_cannot_read_a_checkpoint_does_not_empty_it(name: str) -> None:
    disk = SimulatedFileSystem()
    with a_manager("/a", fs=disk) as manager:
        log = manager.get_or_create(ORDERS)
        lead(log, 5)
        log.update_high_watermark(5)
        log.delete_records(2)
    before = offsets_in_file("/a", name, disk)
    assert before
    disk.fail(operation="open", path=f"/a/{name}", error="Too many open files", times=1)
    with pytest.raises(TooManyFilesError):
        a_manager("/a", fs=disk)
    assert offsets_in_file("/a", name, disk) == before
    assert a_manager("/a", fs=disk).logs[ORDERS].log_start_offset == 2
