"""No more files can be opened just now: before a change that is told and nothing else; in its middle it fails the root.

A root is not broken when a process has too many files open. But a change that is half made cannot be left so.
"""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.logs import lead, offsets_in
from tests.log.manager.managers import ORDERS, VIEWS, a_manager, after, directories_in, is_marked_clean, offsets_in_file
from tidelog.errors import LogClosedError, StorageError, TooManyFilesError
from tidelog.log import LogConfig, LogManager, UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    is_delete_directory,
    is_future_directory,
)
from tidelog.testing.disk import SimulatedFileSystem

EMFILE = "Too many open files"
RP, START = RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def live(manager: LogManager) -> list[str]:
    return [root.path for root in manager.live_roots]


def moving(disk: SimulatedFileSystem, **options: Any) -> LogManager:
    """A log of two records in /a, and its copy in /b."""
    manager = a_manager(["/a", "/b"], fs=disk, **options)
    for log in (manager.get_or_create(ORDERS, root="/a"), manager.get_or_create(ORDERS, root="/b", future=True)):
        lead(log, 2)
    return manager


@pytest.mark.parametrize("stray", [False, True])
def test_a_log_that_has_lost_its_name_takes_no_appends(disk: SimulatedFileSystem, stray: bool) -> None:
    manager = a_manager(["/a", "/b"], fs=disk)
    log = manager.get_or_create(ORDERS)
    disk.fail(operation="sync_directory", path="/a", error=EMFILE)
    with pytest.raises(StorageError, match=f"{EMFILE}, in the middle of a change"):
        manager.delete(ORDERS, stray=stray)
    assert dict(manager.logs) == {}
    assert live(manager) == ["/b"]
    assert log.local.is_closed
    with pytest.raises((LogClosedError, StorageError)):
        lead(log, 1)


def test_a_log_is_forgotten_as_soon_as_it_has_another_name(
    disk: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = a_manager("/a", fs=disk)
    manager.get_or_create(ORDERS)
    known: list[bool] = []
    sync = disk.sync_directory

    def look(path: str) -> None:
        known.append(ORDERS in manager.logs)
        sync(path)

    monkeypatch.setattr(disk, "sync_directory", look)
    manager.delete(ORDERS)
    assert not any(known)
    assert known


def test_before_the_rename_nothing_has_happened(disk: SimulatedFileSystem) -> None:
    manager = a_manager("/a", fs=disk)
    log = manager.get_or_create(ORDERS)
    disk.fail(operation="rename", path="/a/orders-0", error=EMFILE, times=1)
    with pytest.raises(TooManyFilesError):
        manager.delete(ORDERS)
    assert manager.logs[ORDERS] is log
    lead(log, 1)
    assert manager.delete(ORDERS)


def test_what_is_found_to_be_stray_is_set_aside_or_its_root_is_not_used(disk: SimulatedFileSystem) -> None:
    with a_manager(["/a", "/b"], fs=disk) as manager:
        manager.get_or_create(ORDERS, root="/a", topic_id=uuid.UUID(int=7))

    def is_stray(log: UnifiedLog) -> bool:
        disk.fail(operation="sync_directory", path="/a", error=EMFILE)
        return True

    manager = a_manager(["/a", "/b"], fs=disk, is_stray=is_stray)
    assert live(manager) == ["/b"]


@pytest.mark.parametrize("name", [CLEANER_CHECKPOINT, START, RP])
def test_a_log_that_is_gone_was_deleted_whatever_the_checkpoints_say(disk: SimulatedFileSystem, name: str) -> None:
    manager = a_manager("/a", fs=disk, cleaner=CleanerConfig())
    for partition in (ORDERS, VIEWS):
        log = manager.get_or_create(partition)
        lead(log, 5)
        log.update_high_watermark(5)
        log.delete_records(2)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    assert manager.cleaner is not None
    for partition in (ORDERS, VIEWS):
        manager.cleaner.update_checkpoint("/a", add=(partition, 1))
    disk.fail(operation="open", path=f"/a/{name}.tmp", error=EMFILE)
    assert manager.delete(ORDERS)
    assert EMFILE in manager.notices[-1]
    for other in (CLEANER_CHECKPOINT, START, RP):
        assert sorted(offsets_in_file("/a", other, disk)) == (["orders-0"] if other == name else []) + ["views-0"]
    assert live(manager) == ["/a"]
    disk.heal()
    manager.get_or_create(ORDERS)
    assert list(offsets_in_file("/a", name, disk)) == ["views-0"]


def test_a_cleaners_checkpoint_that_cannot_be_written_does_not_keep_the_others_back(disk: SimulatedFileSystem) -> None:
    manager = a_manager(["/a", "/b"], fs=disk, cleaner=CleanerConfig())
    for partition, root in ((ORDERS, "/a"), (VIEWS, "/b")):
        manager.get_or_create(partition, root=root)
    manager.checkpoint_recovery_points()
    disk.fail(path=f"/a/{CLEANER_CHECKPOINT}*", error="Input/output error")
    assert manager.delete_all([ORDERS, VIEWS]) == 2
    assert live(manager) == ["/b"]
    assert offsets_in_file("/b", RP, disk) == {}


def test_a_removal_goes_on_when_files_can_be_opened_again(disk: SimulatedFileSystem) -> None:
    manager = a_manager("/a", fs=disk, file_delete_delay_ms=60_000)
    lead(manager.get_or_create(ORDERS), 1)
    manager.delete(ORDERS)
    disk.fail(operation="list", path="/a/*-delete", error=EMFILE)
    after(manager, ms=60_000)
    [directory] = manager.directories_to_remove
    assert EMFILE in manager.notices[-1]
    disk.heal()
    after(manager, ms=60_000)
    assert manager.directories_to_remove == ()
    assert disk.stat(directory) is None
    assert live(manager) == ["/a"]


# -- moving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("root", "left"), [("/a", ["/b"]), ("/b", ["/a"])])
def test_a_move_that_stops_half_way_leaves_one_log(disk: SimulatedFileSystem, root: str, left: list[str]) -> None:
    manager = moving(disk)
    disk.fail(operation="sync_directory", path=root, error=EMFILE)
    with pytest.raises(StorageError, match=f"{EMFILE}, in the middle of a change"):
        manager.replace_current_with_future(ORDERS)
    assert live(manager) == left
    assert dict(manager.future_logs) == {}
    assert manager.logs[ORDERS].directory == f"{left[0]}/orders-0"
    assert offsets_in(manager.logs[ORDERS]) == [0, 1]
    lead(manager.logs[ORDERS], 1)


def test_records_that_were_deleted_do_not_come_back_with_a_copy(disk: SimulatedFileSystem) -> None:
    manager = moving(disk)
    manager.logs[ORDERS].update_high_watermark(2)
    manager.logs[ORDERS].delete_records(1)
    manager.replace_current_with_future(ORDERS)
    assert manager.logs[ORDERS].log_start_offset == 1
    assert offsets_in_file("/b", START, disk) == {"orders-0": 1}


def test_where_no_file_can_be_opened_a_move_does_not_begin(disk: SimulatedFileSystem) -> None:
    manager = moving(disk, cleaner=CleanerConfig())
    disk.fail(operation="open", path=f"/b/{CLEANER_CHECKPOINT}", error=EMFILE)
    with pytest.raises(TooManyFilesError):
        manager.replace_current_with_future(ORDERS)
    disk.heal()
    assert manager.logs[ORDERS].directory == "/a/orders-0"
    manager.replace_current_with_future(ORDERS)
    assert manager.logs[ORDERS].directory == "/b/orders-0"
    assert live(manager) == ["/a", "/b"]


def test_what_the_old_log_has_still_to_write_is_written_before_a_move_begins(disk: SimulatedFileSystem) -> None:
    manager = moving(disk)
    manager.logs[ORDERS].assign_topic_id(uuid.UUID(int=7))
    disk.fail(operation="open", path=f"/a/*/{PARTITION_METADATA}*", error=EMFILE)
    with pytest.raises(TooManyFilesError):
        manager.replace_current_with_future(ORDERS)
    assert live(manager) == ["/a", "/b"]
    assert manager.future_logs[ORDERS].directory != "/b/orders-0"


@pytest.mark.parametrize("path", [f"/a/{CLEANER_CHECKPOINT}.tmp", f"/b/{RP}.tmp", f"/a/{START}.tmp"])
def test_a_move_is_made_though_a_checkpoint_stays_behind(disk: SimulatedFileSystem, path: str) -> None:
    manager = moving(disk, cleaner=CleanerConfig())
    assert manager.cleaner is not None
    manager.cleaner.update_checkpoint("/a", add=(ORDERS, 1))
    disk.fail(operation="open", path=path, error=EMFILE)
    manager.replace_current_with_future(ORDERS)
    assert EMFILE in manager.notices[-1]
    assert live(manager) == ["/a", "/b"]
    assert manager.logs[ORDERS].directory == "/b/orders-0"
    assert [is_delete_directory(name) for name in directories_in("/a", disk)] == [True]


@pytest.mark.parametrize(
    "refuse",
    [
        lambda disk: disk.fail(operation="sync_directory", path="/b", error=EMFILE),
        lambda disk: disk.fail(operation="list", path="/b/*-future", error=EMFILE),
    ],
)
def test_a_copy_that_is_half_made_does_not_get_a_second_one_beside_it(
    disk: SimulatedFileSystem, refuse: Callable[[SimulatedFileSystem], None]
) -> None:
    manager = a_manager(["/a", "/b"], fs=disk)
    manager.get_or_create(ORDERS, root="/a")
    refuse(disk)
    with pytest.raises(StorageError, match="in the middle of a change"):
        manager.get_or_create(ORDERS, root="/b", future=True)
    disk.heal()
    with pytest.raises(StorageError, match="offline"):
        manager.get_or_create(ORDERS, root="/b", future=True)
    assert [is_future_directory(name) for name in directories_in("/b", disk)] == [True]


def test_a_log_that_is_half_made_is_made_to_the_end(disk: SimulatedFileSystem) -> None:
    manager = a_manager("/a", fs=disk)
    disk.fail(operation="sync_directory", path="/a", error=EMFILE, times=1)
    with pytest.raises(TooManyFilesError):
        manager.get_or_create(ORDERS)
    lead(manager.get_or_create(ORDERS), 1)
    assert live(manager) == ["/a"]


@pytest.mark.parametrize("path", ["*.log", "*.timeindex", "/a/orders-0"])
def test_a_log_that_is_half_made_does_not_pass_for_one_that_was_closed(disk: SimulatedFileSystem, path: str) -> None:
    manager = a_manager("/a", LogConfig(preallocate=True, segment_bytes=4096), fs=disk)
    lead(manager.get_or_create(VIEWS), 1)
    disk.fail(path=path, error=EMFILE, times=1)
    with pytest.raises(TooManyFilesError):
        manager.get_or_create(ORDERS)
    disk.heal()
    manager.close()
    with a_manager("/a", fs=disk) as manager:
        lead(manager.get_or_create(ORDERS), 2)
        assert offsets_in(manager.logs[ORDERS]) == [0, 1]
        assert offsets_in(manager.logs[VIEWS]) == [0]
    assert is_marked_clean("/a", disk)


def test_a_copy_whose_making_was_interrupted_is_made_to_the_end(
    disk: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = a_manager(["/a", "/b"], fs=disk)
    manager.get_or_create(ORDERS, root="/a")

    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(disk, "list", interrupt)
    with pytest.raises(KeyboardInterrupt):
        manager.get_or_create(ORDERS, root="/b", future=True)
    monkeypatch.undo()
    manager.get_or_create(ORDERS, root="/b", future=True)
    assert len(directories_in("/b", disk)) == 1
    manager.close()
    a_manager(["/a", "/b"], fs=disk).close()
