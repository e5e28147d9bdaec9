"""The logs of several roots: made, placed, found, deleted, moved."""

import uuid
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import all_replicated, bases_of, fill, lead, offsets_in
from tests.log.manager.managers import (
    ORDERS,
    VIEWS,
    a_manager,
    after,
    crashed,
    directories_in,
    offsets_in_file,
    partitions,
    unloaded,
)
from tidelog.errors import (
    InconsistentTopicIdError,
    InvalidRequestError,
    InvalidTopicError,
    LogClosedError,
    StorageError,
)
from tidelog.log import LogManager, TopicPartition
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.meta_properties import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetaProperties,
    write_meta_properties,
)
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    is_delete_directory,
    is_stray_directory,
)
from tidelog.testing.disk import SimulatedFileSystem

TOPIC_ID = uuid.UUID(int=0x1234567890)
MINUTE = 60_000


def roots_in(path: Path, count: int) -> list[Path]:
    return [path / f"root{number}" for number in range(count)]


def with_ids(roots: list[Path], *ids: uuid.UUID | None) -> list[Path]:
    for root, directory_id in zip(roots, ids, strict=True):
        root.mkdir()
        write_meta_properties(LocalFileSystem(), str(root), MetaProperties(1, "c", 1, directory_id), 0)
    return roots


# -- making and finding ------------------------------------------------------------------------------------------------


@behaviour("MGR-001")
def test_a_log_that_is_missing_is_made_and_takes_appends(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(TopicPartition("kafka", 0))
        assert directories_in(tmp_path) == ["kafka-0"]
        lead(log, 3)
        assert offsets_in(log) == [0, 1, 2]
        assert manager.get_or_create(TopicPartition("kafka", 0)) is log


@behaviour("MGR-002")
def test_looking_for_a_log_makes_none(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        assert manager.get(ORDERS) is None
        assert manager.root_of(ORDERS) is None
        assert directories_in(tmp_path) == []
        assert dict(manager.logs) == {}


@behaviour("MGR-003")
@pytest.mark.parametrize("no_directory", [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY, uuid.UUID(int=77)])
def test_a_directory_id_says_where_a_log_goes(tmp_path: Path, no_directory: uuid.UUID) -> None:
    ids = [None, uuid.UUID(int=1 << 100), uuid.UUID(int=2 << 100)]
    roots = with_ids(roots_in(tmp_path, 3), *ids)
    with a_manager(roots) as manager:
        for partition in partitions(5):
            manager.get_or_create(partition, directory_id=ids[2])
        assert directories_in(roots[2]) == [str(partition) for partition in partitions(5)]
        manager.get_or_create(VIEWS, directory_id=no_directory)
        assert manager.root_of(VIEWS) is manager.roots[0]


def test_a_root_can_be_named(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 3)
    with a_manager(roots) as manager:
        manager.get_or_create(ORDERS, root=f"{roots[2]}/")
        manager.get_or_create(VIEWS, root=manager.roots[2])
        assert directories_in(roots[2]) == ["orders-0", "views-0"]


def test_a_root_is_found_by_its_id_and_logs_by_their_topic(tmp_path: Path) -> None:
    ids = [uuid.UUID(int=1 << 100), None]
    roots = with_ids(roots_in(tmp_path, 2), *ids)
    with a_manager(roots) as manager:
        one, two, _ = [manager.get_or_create(partition) for partition in (*partitions(2), VIEWS)]
        copy = manager.get_or_create(two.topic_partition, root=roots[0], future=True)
        assert manager.logs_of_topic("orders") == [one, two, copy]
        assert manager.logs_of_topic("order") == []
        assert ids[0] is not None
        assert manager.root_by_directory_id(ids[0]) is manager.roots[0]
        assert manager.root_by_directory_id(uuid.UUID(int=77)) is None
        manager.fail_root(roots[0], StorageError("pulled out"))
        assert manager.root_by_directory_id(ids[0]) is manager.roots[0]


@behaviour("CKP-009")
def test_a_path_that_is_no_root_is_an_error(tmp_path: Path) -> None:
    with a_manager(tmp_path / "data") as manager:
        with pytest.raises(InvalidRequestError, match="none of the log directories"):
            manager.root(tmp_path)
        with pytest.raises(InvalidRequestError, match="none of the log directories"):
            manager.get_or_create(ORDERS, root=tmp_path)


@behaviour("MGR-004")
def test_new_logs_go_where_there_are_fewest(tmp_path: Path) -> None:
    with a_manager(roots_in(tmp_path, 3)) as manager:
        for partition in partitions(20):
            manager.get_or_create(partition)
            counts = [root.log_count for root in manager.roots]
            assert max(counts) - min(counts) <= 1
        assert len(manager.logs) == 20


def test_logs_that_were_found_and_future_ones_count_where_they_lie(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 3)
    with a_manager(roots) as manager:
        for partition in partitions(3):
            manager.get_or_create(partition, root=roots[0])
    with a_manager(roots) as manager:
        for partition in partitions(2):
            manager.get_or_create(partition, root=roots[1], future=True)
        for partition in partitions(4, "views"):
            manager.get_or_create(partition)
        assert [root.log_count for root in manager.roots] == [3, 3, 3]


@behaviour("MGR-005")
def test_the_next_root_is_tried_where_no_directory_can_be_made() -> None:
    disk = SimulatedFileSystem()
    roots = [f"/disk{number}" for number in range(5)]
    manager = a_manager(roots, fs=disk)
    for broken in ("/disk0/*", "/disk1/*"):
        disk.fail(operation="make_directory", path=broken, error="Input/output error")
    log = manager.get_or_create(ORDERS)
    assert log.directory == "/disk2/orders-0"
    assert [directories_in(root, disk) for root in roots] == [[], [], ["orders-0"], [], []]
    assert [root.path for root in manager.live_roots] == roots[2:]


def test_when_no_root_takes_a_log_it_is_said_why() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    disk.fail(operation="make_directory", error="Read-only file system")
    with pytest.raises(StorageError, match="/a/orders-0: Read-only file system; /b/orders-0: Read-only file system"):
        manager.get_or_create(ORDERS)
    assert manager.live_roots == ()


def test_a_root_that_is_named_is_the_only_one_tried() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    disk.fail(operation="make_directory", path="/b/*")
    with pytest.raises(StorageError, match="/b/orders-0"):
        manager.get_or_create(ORDERS, root="/b")
    with pytest.raises(StorageError, match="/b is offline"):
        manager.get_or_create(ORDERS, root="/b", is_new=True)
    assert directories_in("/a", disk) == []


def test_while_a_root_is_offline_only_new_partitions_are_made(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 2)
    with a_manager(roots) as manager:
        manager.fail_root(roots[0], StorageError("pulled out"))
        with pytest.raises(StorageError, match="may be in a root that is offline"):
            manager.get_or_create(ORDERS)
        with pytest.raises(StorageError, match="may be in a root that is offline"):
            manager.delete(ORDERS)
        assert manager.get_or_create(ORDERS, is_new=True).directory == f"{roots[1]}/orders-0"
        with pytest.raises(StorageError, match="may be in a root that is offline: views-0, views-1$"):
            manager.delete_all([*partitions(2, "views"), ORDERS])
        assert dict(manager.logs) == {}
        assert is_delete_directory(*directories_in(roots[1]))


@pytest.mark.parametrize("topic", ["", "a/b", "a b", "ä", "x" * 254, "a\0b"])
def test_a_topic_that_no_directory_can_be_called_after_is_refused(tmp_path: Path, topic: str) -> None:
    with a_manager(tmp_path) as manager:
        with pytest.raises(InvalidTopicError):
            manager.get_or_create(TopicPartition(topic, 0))
        assert manager.live_roots == manager.roots
        assert directories_in(tmp_path) == []


def test_a_topic_id_is_kept_and_compared(tmp_path: Path) -> None:
    manager = a_manager(tmp_path)
    log = manager.get_or_create(ORDERS, topic_id=TOPIC_ID)
    assert not (tmp_path / "orders-0" / PARTITION_METADATA).exists()
    manager.tick()
    assert (tmp_path / "orders-0" / PARTITION_METADATA).exists()  # without any data
    with pytest.raises(InconsistentTopicIdError):
        manager.get_or_create(ORDERS, topic_id=uuid.UUID(int=9))
    crashed(manager)
    manager = a_manager(tmp_path)
    assert manager.get_or_create(ORDERS, topic_id=TOPIC_ID).topic_id == log.topic_id == TOPIC_ID
    manager.get_or_create(VIEWS)
    manager.get_or_create(VIEWS, topic_id=TOPIC_ID)
    manager.tick()
    assert (tmp_path / "views-0" / PARTITION_METADATA).exists()


def test_before_the_logs_are_loaded_none_is_made(tmp_path: Path) -> None:
    manager = unloaded(tmp_path)
    with pytest.raises(InvalidRequestError, match="not loaded yet"):
        manager.get_or_create(ORDERS)
    manager.load_task().run()
    manager.get_or_create(ORDERS)
    with pytest.raises(InvalidRequestError, match="loaded once"):
        manager.load_task()


def test_a_manager_that_is_closed_says_so(tmp_path: Path) -> None:
    manager = a_manager(tmp_path)
    manager.close()
    for use in (manager.tick, manager.checkpoint_log_starts, lambda: manager.get_or_create(ORDERS)):
        with pytest.raises(LogClosedError, match="the log manager is closed"):
            use()


# -- deleting ----------------------------------------------------------------------------------------------------------


@behaviour("MGR-025")
def test_a_deleted_log_gets_another_name_at_once_and_goes_after_the_delay(tmp_path: Path) -> None:
    manager = a_manager(tmp_path, file_delete_delay_ms=MINUTE)
    log = manager.get_or_create(ORDERS)
    lead(log, 3)
    assert manager.delete(ORDERS)
    [name] = directories_in(tmp_path)
    assert is_delete_directory(name)
    assert manager.get(ORDERS) is None
    for segment in log.segments:
        for file in (segment.log, segment.offset_index, segment.time_index, segment.txn_index):
            assert file.path.startswith(f"{tmp_path}/{name}/")
    assert offsets_in(log) == [0, 1, 2]  # for whoever is reading it
    after(manager, ms=MINUTE - 1)
    assert manager.directories_to_remove == (f"{tmp_path}/{name}",)
    after(manager, ms=1)
    assert directories_in(tmp_path) == []
    assert manager.directories_to_remove == ()
    with pytest.raises(LogClosedError):
        log.read(0, 100)


@behaviour("MGR-026")
def test_a_topic_of_253_characters_can_be_made_and_deleted(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        longest = TopicPartition("x" * 253, 0)
        lead(manager.get_or_create(longest))
        manager.delete(longest)
        [name] = directories_in(tmp_path)
        assert len(name) == 255
        after(manager, ms=MINUTE)
        assert directories_in(tmp_path) == []


@behaviour("MGR-030")
def test_a_log_can_be_made_again_while_its_predecessor_waits(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        lead(manager.get_or_create(ORDERS), 5)
        manager.delete(ORDERS)
        again = manager.get_or_create(ORDERS)
        lead(again, 2)
        after(manager, ms=MINUTE)
        assert directories_in(tmp_path) == ["orders-0"]
        assert offsets_in(again) == [0, 1]


def test_a_large_log_is_removed_in_slices(tmp_path: Path) -> None:
    manager = a_manager(tmp_path)
    fill(manager.get_or_create(ORDERS), [1] * 20)
    manager.delete(ORDERS)
    [directory] = manager.directories_to_remove
    files = len(list(Path(directory).iterdir()))
    manager.clock.advance(MINUTE)  # type: ignore[attr-defined]
    seen = [files]
    while manager.directories_to_remove:
        manager.tick(budget_ms=0)
        seen.append(len(list(Path(directory).iterdir())) if Path(directory).exists() else 0)
    assert seen[0] > 60
    assert {before - now for before, now in zip(seen, seen[1:], strict=False)} <= {0, 1}


def test_logs_are_removed_one_at_a_time(tmp_path: Path) -> None:
    manager = a_manager(tmp_path)
    manager.delete_all([manager.get_or_create(TopicPartition("orders", number)).topic_partition for number in range(5)])
    directories = [Path(directory) for directory in manager.directories_to_remove]
    files = {directory: len(list(directory.iterdir())) for directory in directories}
    manager.clock.advance(MINUTE)  # type: ignore[attr-defined]
    while manager.directories_to_remove:
        manager.tick(budget_ms=0)
        begun = [d for d in directories if d.exists() and len(list(d.iterdir())) < files[d]]
        assert len(begun) <= 1, "each that is begun has descriptors open"
    assert not any(directory.exists() for directory in directories)


def test_what_was_deleted_before_a_stop_goes_after_the_next_start(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        lead(manager.get_or_create(ORDERS), 5)
        manager.delete(ORDERS)
    assert len(directories_in(tmp_path)) == 1
    with a_manager(tmp_path) as manager:
        assert dict(manager.logs) == {}
        after(manager, ms=MINUTE - 1)
        assert len(directories_in(tmp_path)) == 1
        after(manager, ms=1)
        assert directories_in(tmp_path) == []


@behaviour("MGR-035")
def test_without_a_delay_a_stop_does_not_take_longer(tmp_path: Path) -> None:
    manager = a_manager(tmp_path, file_delete_delay_ms=0)
    lead(manager.get_or_create(ORDERS), 5)
    manager.delete(ORDERS)
    manager.close()
    assert len(directories_in(tmp_path)) == 1
    with a_manager(tmp_path, file_delete_delay_ms=0) as manager:
        after(manager, seconds=30)
        assert directories_in(tmp_path) == []
        lead(manager.get_or_create(ORDERS), 5)
        manager.delete(ORDERS)
        manager.tick()
        assert directories_in(tmp_path) == []


def test_the_checkpoints_forget_a_log_that_is_deleted(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        for partition in (ORDERS, VIEWS):
            log = manager.get_or_create(partition)
            lead(log, 5)
            all_replicated(log)
            log.delete_records(2)
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_starts()
        manager.delete(ORDERS)
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT):
            assert offsets_in_file(tmp_path, name) == {"views-0": 2}


def test_many_logs_are_deleted_at_the_price_of_one() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    for partition in partitions(6):
        manager.get_or_create(partition)
    manager.get_or_create(partitions(1)[0], root="/b", future=True)
    before = len(disk.journal)
    assert manager.delete_all([*partitions(6), VIEWS]) == 7
    written = [line for line in disk.journal[before:] if " rename " in line and "checkpoint" in line]
    assert len(written) == 4
    assert dict(manager.logs) == dict(manager.future_logs) == {}


@pytest.mark.parametrize("stray", [False, True])
@pytest.mark.parametrize(("operation", "path"), [("rename", "/a/orders-0"), ("sync_directory", "/a")])
def test_a_log_that_cannot_be_renamed_for_good_takes_its_root_offline(operation: str, path: str, stray: bool) -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    manager.get_or_create(ORDERS)
    disk.fail(operation=operation, path=path, error="Input/output error")
    with pytest.raises(StorageError, match="Input/output error"):
        manager.delete(ORDERS, stray=stray)
    assert [root.path for root in manager.live_roots] == ["/b"]
    assert manager.offline_logs == ({ORDERS: "/a"} if operation == "rename" else {})  # renamed, it is no log any more


def test_deleting_what_is_not_there_is_harmless(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        assert not manager.delete(ORDERS)
        assert not manager.delete(ORDERS, future=True)


def test_a_log_that_is_set_aside_is_closed_and_stays(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        lead(log, 5)
        manager.delete(ORDERS, stray=True)
        [name] = directories_in(tmp_path)
        assert is_stray_directory(name)
        with pytest.raises(LogClosedError):
            log.read(0, 100)
        lead(manager.get_or_create(ORDERS), 1)
        after(manager, hours=1)
    with a_manager(tmp_path) as manager:
        after(manager, hours=1)
        assert sorted(directories_in(tmp_path)) == ["orders-0", name]
        assert manager.roots[0].stray == [f"{tmp_path}/{name}"]
        assert list(manager.logs) == [ORDERS]


# -- moving ------------------------------------------------------------------------------------------------------------


def moving(roots: list[Path]) -> LogManager:
    """A log of five records in the first root, and its copy in the second."""
    manager = a_manager(roots)
    for log in (
        manager.get_or_create(ORDERS, root=roots[0]),
        manager.get_or_create(ORDERS, root=roots[1], future=True),
    ):
        lead(log, 5)
    log = manager.logs[ORDERS]
    log.update_high_watermark(4)
    return manager


@behaviour("MGR-031")
def test_the_copy_takes_the_place_of_a_log(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 2)
    with moving(roots) as manager:
        future = manager.future_logs[ORDERS]
        manager.replace_current_with_future(ORDERS)
        assert manager.logs[ORDERS] is future
        assert dict(manager.future_logs) == {}
        assert (future.directory, future.high_watermark) == (f"{roots[1]}/orders-0", 4)
        assert manager.root_of(ORDERS) is manager.roots[1]
        assert is_delete_directory(*directories_in(roots[0]))
        assert offsets_in_file(roots[0], RECOVERY_POINT_CHECKPOINT) == {}
        assert list(offsets_in_file(roots[1], RECOVERY_POINT_CHECKPOINT)) == ["orders-0"]
        lead(future, 1)
        after(manager, ms=MINUTE)
        assert [directories_in(root) for root in roots] == [[], ["orders-0"]]
        assert offsets_in(future) == [0, 1, 2, 3, 4, 5]


def test_a_move_that_was_not_finished_goes_on_after_a_stop(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 2)
    moving(roots).close()
    assert offsets_in_file(roots[1], RECOVERY_POINT_CHECKPOINT) == {"orders-0": 5}
    with a_manager(roots) as manager:
        assert offsets_in(manager.future_logs[ORDERS]) == [0, 1, 2, 3, 4]
        assert offsets_in_file(roots[0], HIGH_WATERMARK_CHECKPOINT) == {"orders-0": 4}
        manager.replace_current_with_future(ORDERS)
        assert manager.logs[ORDERS].high_watermark == 4


def test_a_future_log_goes_to_another_root_that_is_named(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 2)
    with a_manager(roots) as manager:
        with pytest.raises(InvalidRequestError, match="no log that a future one could replace"):
            manager.get_or_create(ORDERS, root=roots[0], future=True)
        manager.get_or_create(ORDERS, root=roots[0])
        with pytest.raises(InvalidRequestError, match="is in .* already"):
            manager.get_or_create(ORDERS, root=roots[0], future=True)
        with pytest.raises(InvalidRequestError, match="none is"):
            manager.get_or_create(ORDERS, future=True)
        with pytest.raises(StorageError, match="has no future log"):
            manager.replace_current_with_future(ORDERS)
        with pytest.raises(StorageError, match="has no log"):
            manager.replace_current_with_future(VIEWS)


def test_a_move_is_on_the_disk_when_it_returns() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    for log in (manager.get_or_create(ORDERS, root="/a"), manager.get_or_create(ORDERS, root="/b", future=True)):
        lead(log, 5)
        log.flush()
    manager.replace_current_with_future(ORDERS)
    left = a_manager(["/a", "/b"], fs=disk.after_crash())
    assert left.logs[ORDERS].directory == "/b/orders-0"
    assert offsets_in(left.logs[ORDERS]) == [0, 1, 2, 3, 4]


def test_an_old_log_that_cannot_be_renamed_takes_its_root_offline_and_the_copy_stays() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    manager.get_or_create(ORDERS, root="/a")
    manager.get_or_create(ORDERS, root="/b", future=True)
    disk.fail(operation="rename", path="/a/*")
    with pytest.raises(StorageError):
        manager.replace_current_with_future(ORDERS)
    assert manager.logs[ORDERS].directory == "/b/orders-0"
    assert [root.path for root in manager.live_roots] == ["/b"]


def test_segments_of_a_log_in_use_follow_its_new_name(tmp_path: Path) -> None:
    roots = roots_in(tmp_path, 2)
    with moving(roots) as manager:
        future = manager.future_logs[ORDERS]
        future.roll()
        lead(future, 1)
        manager.replace_current_with_future(ORDERS)
        assert bases_of(future) == [0, 5]
        assert all(segment.log.path.startswith(f"{roots[1]}/orders-0/") for segment in future.segments)
