"""Roots that somebody else has, that cannot be used, that fail while in use; and how all of them are left."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import all_replicated, fill, lead, names_in
from tests.log.manager.managers import (
    ORDERS,
    VIEWS,
    a_manager,
    after,
    directories_in,
    is_marked_clean,
    offsets_in_file,
    open_files,
    partitions,
    unloaded,
)
from tidelog.errors import LockedError, LogClosedError, StorageError
from tidelog.log import LogManager, TopicPartition, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from tidelog.testing.disk import SimulatedFileSystem

IO_ERROR = "Input/output error"
ROOTS = ["/a", "/b"]


def two_roots(disk: SimulatedFileSystem, **options: object) -> LogManager:
    """Partition 0 and 2 of a topic in one root, 1 and 3 in the other, with five records each."""
    manager = a_manager(ROOTS, fs=disk, **options)
    for partition in partitions(4):
        log = manager.get_or_create(partition)
        lead(log, 5)
        all_replicated(log)
    return manager


# -- entering ----------------------------------------------------------------------------------------------------------


@behaviour("MGR-006")
def test_a_path_that_cannot_be_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    with a_manager([tmp_path / "good", "/\0"]) as manager:
        assert [root.path for root in manager.live_roots] == [f"{tmp_path}/good"]
        assert any("is offline" in notice for notice in manager.notices)
        lead(manager.get_or_create(ORDERS, is_new=True))
        assert directories_in(tmp_path / "good") == ["orders-0"]


@behaviour("MGR-007")
def test_a_root_that_cannot_be_written_to_is_offline_and_not_locked() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/b")
    disk.fail(operation="create", path="/b/*", error="Permission denied")
    manager = a_manager(ROOTS, fs=disk)
    assert [root.path for root in manager.live_roots] == ["/a"]
    assert "Permission denied" in str(manager.roots[1].failure)
    disk.heal()
    a_manager("/b", fs=disk).close()
    manager.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_real_directory_without_permission_is_offline(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir(mode=0o500)
    with a_manager([tmp_path / "a", tmp_path / "b"]) as manager:
        assert len(manager.live_roots) == 1


def test_without_a_root_that_can_be_used_there_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(StorageError, match=r"no log directory can be used: .*/a is not a directory; .*null"):
        a_manager([tmp_path / "a", "/\0"])


@behaviour("MGR-008")
def test_a_root_that_somebody_has_is_not_entered(tmp_path: Path) -> None:
    with a_manager([tmp_path / "a", tmp_path / "b"]):
        with pytest.raises(LockedError, match=f"{tmp_path}/b/.lock"):
            a_manager([tmp_path / "c", tmp_path / "b"])
        with pytest.raises(LockedError):
            UnifiedLog.open(tmp_path / "a" / "orders-0")
        a_manager(tmp_path / "c").close()  # it was let go
    a_manager(tmp_path / "b").close()


def test_another_process_cannot_have_a_root_that_is_in_use(tmp_path: Path) -> None:
    program = f"from tidelog.log import LogManager; LogManager.open({str(tmp_path)!r}).close()"
    with a_manager(tmp_path):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "LockedError" in done.stderr
    subprocess.run([sys.executable, "-c", program], check=True)


@behaviour("MGR-009")
def test_the_lock_file_is_there_while_the_root_is_in_use(tmp_path: Path) -> None:
    with a_manager(tmp_path):
        assert (tmp_path / LOCK_FILE).read_bytes() == b""
    assert not (tmp_path / LOCK_FILE).exists()


@behaviour("MGR-011")
def test_the_epoch_of_the_last_stop_is_told_if_all_roots_agree(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots) as manager:
        assert manager.stopped_epoch is None
        manager.broker_epoch = 3
    with a_manager(roots, broker_epoch=4) as manager:
        assert manager.stopped_epoch == 3
    CleanShutdownFile(LocalFileSystem(), str(roots[1])).write(5)
    with a_manager(roots) as manager:
        assert manager.stopped_epoch is None
    for epochs, told in (((6, 6), 6), ((6, None), None)):
        for root, epoch in zip(roots, epochs, strict=True):
            marker = CleanShutdownFile(LocalFileSystem(), str(root))
            marker.delete()
            if epoch is not None:
                marker.write(epoch)
        manager = unloaded(roots)
        assert manager.stopped_epoch == told
        manager.close()
    (tmp_path / "c").touch()
    manager = unloaded([roots[0], tmp_path / "c"])
    assert manager.stopped_epoch is None  # a root that cannot be read says nothing
    manager.close()


# -- failing -----------------------------------------------------------------------------------------------------------


def test_a_root_that_fails_takes_its_logs_with_it_and_no_others() -> None:
    disk = SimulatedFileSystem()
    told: list[LogRoot] = []
    manager = two_roots(disk, on_offline=told.append)
    lost = manager.logs[ORDERS]
    manager.get_or_create(partitions(4)[1], root="/a", future=True)
    manager.fail_root("/a", StorageError("pulled out"))
    assert list(manager.logs) == [partitions(4)[1], partitions(4)[3]]
    assert dict(manager.future_logs) == {}
    assert manager.offline_logs == {partitions(4)[0]: "/a", partitions(4)[2]: "/a"}
    assert told == [manager.roots[0]]
    assert manager.live_roots == manager.roots[1:]
    with pytest.raises(LogClosedError, match="is offline: pulled out"):
        lead(lost)
    lead(manager.logs[partitions(4)[1]], 1)
    a_manager("/a", fs=disk).close()  # others may have it
    manager.fail_root("/a", StorageError("again"))
    assert told == [manager.roots[0]]


def test_nothing_is_written_to_a_root_that_failed() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    fill(manager.logs[ORDERS], [1, 1, 1])
    manager.delete(partitions(4)[2])
    after(manager, seconds=30)
    manager.fail_root("/a", StorageError("pulled out"))
    before = disk.calls
    after(manager, hours=1)
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_starts()
    manager.checkpoint_high_watermarks()
    manager.close()
    told = disk.journal[before - disk.calls :]
    assert told
    assert not [line for line in told if " /a" in line]
    assert [is_marked_clean(root, disk) for root in ROOTS] == [False, True]


def test_a_checkpoint_that_waits_for_a_thread_is_not_written_to_a_root_that_failed() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    manager.clock.advance(minutes=1)  # type: ignore[attr-defined]
    tasks = []
    for _ in range(50):
        manager.schedule.run_due(0)  # one slice
        tasks += manager.schedule.take_disk_tasks()
    assert [task.name for task in tasks] == ["write checkpoint"] * 6
    manager.fail_root("/a", StorageError("pulled out"))
    before = disk.calls
    for task in tasks:
        task.step(0)
        task.finish()
    told = disk.journal[before - disk.calls :]
    assert [line for line in told if " /b/" in line]
    assert not [line for line in told if " /a/" in line]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [(RECOVERY_POINT_CHECKPOINT, 30), (LOG_START_CHECKPOINT, 30), (HIGH_WATERMARK_CHECKPOINT, 5)],
)
def test_a_root_whose_checkpoint_cannot_be_written_goes_offline(name: str, seconds: int) -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    disk.fail(path=f"/a/{name}.tmp", error=IO_ERROR)
    after(manager, seconds=seconds)
    manager.tick()
    assert [root.path for root in manager.live_roots] == ["/b"]
    assert set(manager.offline_logs.values()) == {"/a"}


def test_a_disk_that_fails_under_an_append_takes_its_root_offline_with_the_next_tick() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    disk.fail(operation="write", path="/a/*.log", error=IO_ERROR)
    with pytest.raises(StorageError, match=IO_ERROR):
        lead(manager.logs[ORDERS])
    assert manager.live_roots == manager.roots[1:]  # at once: nothing new goes there
    manager.tick()
    assert ORDERS not in manager.logs
    assert manager.offline_logs[ORDERS] == "/a"


def test_a_disk_error_in_another_thread_is_dealt_with_by_the_owner() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    manager.logs[ORDERS].roll()
    disk.fail(operation="sync*", path="/a/*", error=IO_ERROR)
    tasks = manager.schedule.take_disk_tasks()
    assert tasks
    helper = threading.Thread(target=lambda: [task.step(0) for task in tasks])
    helper.start()
    helper.join()
    assert ORDERS in manager.logs  # nobody takes it away under the hands of its owner
    manager.tick()
    assert ORDERS not in manager.logs


def test_when_the_last_root_has_failed_the_host_is_told() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    manager.fail_root("/a", StorageError("first"))
    manager.tick()
    manager.fail_root("/b", StorageError("second"))
    for _ in range(2):
        with pytest.raises(StorageError, match="no log directory can be used: first; second"):
            manager.tick()
    with pytest.raises(StorageError, match="no log directory can be used"):
        manager.get_or_create(VIEWS, is_new=True)
    manager.close()


def test_a_removal_that_fails_takes_its_root_offline() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    manager.delete(ORDERS)
    disk.fail(operation="remove", path="/a/*-delete/*", error=IO_ERROR)
    after(manager, minutes=1)
    assert [root.path for root in manager.live_roots] == ["/b"]
    assert manager.directories_to_remove == ()


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_stop_leaves_everything_as_the_next_start_wants_it() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    manager.logs[ORDERS].delete_records(2)
    manager.close()
    left = disk.after_crash()  # all of it is on the disk
    for root in ROOTS:
        assert is_marked_clean(root, left)
        assert disk.stat(f"{root}/{LOCK_FILE}") is None
    assert offsets_in_file("/a", RECOVERY_POINT_CHECKPOINT, left) == {"orders-0": 5, "orders-2": 5}
    assert offsets_in_file("/a", LOG_START_CHECKPOINT, left) == {"orders-0": 2}
    assert offsets_in_file("/b", HIGH_WATERMARK_CHECKPOINT, left) == {"orders-1": 5, "orders-3": 5}
    with a_manager(ROOTS, fs=left) as again:
        assert [log.log_start_offset for log in again.logs.values()] == [2, 0, 0, 0]
        assert [log.log_end_offset for log in again.logs.values()] == [5] * 4


@behaviour("CKP-017")
def test_after_a_stop_the_file_has_the_last_high_watermark_of_each_log(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        fill(log, [3, 3, 3])
        log.update_high_watermark(8)
        lead(manager.get_or_create(VIEWS), 2)
    assert offsets_in_file(tmp_path, HIGH_WATERMARK_CHECKPOINT) == {"orders-0": 8, "views-0": 0}


def test_the_marker_is_the_last_word_of_a_stop() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    before = disk.calls
    manager.close()
    told = [" ".join(line.split()[1:3]) for line in disk.journal[before - disk.calls :] if " /a" in line]
    last = told.index("create /a/.kafka_cleanshutdown")
    assert [line.split()[0] for line in told[last:]] == [
        "create",
        "resize",
        "write",
        "sync",
        "sync_directory",
        "remove",
    ]
    assert told[-1] == "remove /a/.lock"
    renames = [line.split()[1] for line in told[:last] if line.startswith("rename /a/")]
    assert renames[-3:] == [
        f"/a/{name}.tmp" for name in (LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
    ]


@behaviour("MGR-010", "MGR-036")
def test_all_logs_are_closed_and_a_root_with_one_that_fails_gets_no_marker() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk, broker_epoch=3)
    before = offsets_in_file("/a", RECOVERY_POINT_CHECKPOINT, disk)
    logs = dict(manager.logs)
    disk.fail(operation="sync", path="/a/orders-0/*", error=IO_ERROR)
    with pytest.raises(StorageError, match="not all was closed in good order: /a/orders-0/.*Input/output error"):
        manager.close()
    assert [is_marked_clean(root, disk) for root in ROOTS] == [False, True]
    assert CleanShutdownFile(disk, "/b").read() == 3
    assert offsets_in_file("/a", RECOVERY_POINT_CHECKPOINT, disk) == before
    for partition, log in logs.items():
        assert log.local.is_closed
        assert (log.failure is None) == (partition != ORDERS)
    assert names_in(logs[partitions(4)[2]], ".snapshot")
    manager.close()  # twice is harmless
    disk.heal()
    assert len(a_manager(ROOTS, fs=disk).logs) == 4


def test_a_directory_that_vanished_leaves_no_marker(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    manager = a_manager(roots)
    for partition in partitions(2):
        lead(manager.get_or_create(partition), 2)
    for path in (roots[0] / "orders-0").iterdir():
        path.unlink()
    (roots[0] / "orders-0").rmdir()
    with pytest.raises(StorageError, match="orders-0"):
        manager.close()
    assert [is_marked_clean(root) for root in roots] == [False, True]
    assert not any((root / LOCK_FILE).exists() for root in roots)


def test_a_marker_that_cannot_be_written_is_told() -> None:
    disk = SimulatedFileSystem()
    manager = two_roots(disk)
    disk.fail(operation="create", path="/a/.kafka_cleanshutdown", error=IO_ERROR)
    with pytest.raises(StorageError, match="kafka_cleanshutdown"):
        manager.close()
    assert [is_marked_clean(root, disk) for root in ROOTS] == [False, True]
    disk.heal()
    a_manager(ROOTS, fs=disk).close()


def test_a_manager_that_was_never_loaded_is_closed_without_a_trace(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        lead(manager.get_or_create(ORDERS), 3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    unloaded(tmp_path).close()
    manager = unloaded(tmp_path)
    manager.load_task()
    manager.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_the_files_of_all_logs_are_given_back(tmp_path: Path) -> None:
    manager = a_manager([tmp_path / "a", tmp_path / "b"])
    for partition in partitions(4):
        lead(manager.get_or_create(partition), 3)
    manager.delete(TopicPartition("orders", 0))
    manager.delete(TopicPartition("orders", 1), stray=True)
    assert open_files(tmp_path / "b")
    manager.fail_root(tmp_path / "b", StorageError("pulled out"))
    assert not open_files(tmp_path / "b")
    manager.close()
    assert not open_files(tmp_path)
