"""A root by itself: entered, looked at, its checkpoints written, left."""

import threading
import uuid
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.manager.managers import ORDERS, VIEWS
from tidelog.errors import CheckpointError, InvalidRequestError, InvalidTopicError, LockedError, StorageError
from tidelog.log import TopicPartition
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_directories import DirectoryKind, list_directories
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.manager.meta_properties import MetaProperties, write_meta_properties
from tidelog.log.manager.root_checkpoint import RootCheckpoint
from tidelog.log.manager.root_set import RootSet
from tidelog.log.names import CLEANER_CHECKPOINT, LOCK_FILE, META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from tidelog.testing.disk import SimulatedFileSystem

FS = LocalFileSystem()
UID = "7c" * 16
ID = uuid.UUID(int=1 << 100)


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/data/kafka/", "/data//kafka", "/data/./kafka", "/data/other/../kafka", "//data/kafka"]
)
def test_a_path_is_the_same_however_it_is_written(path: str) -> None:
    assert LogRoot(FS, path).path == "/data/kafka"


def test_a_relative_path_begins_where_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LogRoot(FS, "data").path == f"{tmp_path}/data"


def test_a_root_is_named_once() -> None:
    with pytest.raises(InvalidRequestError, match="named twice: /a, /b/../a/"):
        RootSet(FS, ["/a", "/b/../a/"])


@pytest.mark.parametrize("paths", [[], [""], ""])
def test_a_broker_has_a_root(paths: list[str] | str) -> None:
    with pytest.raises(InvalidRequestError, match="one directory or more"):
        RootSet(FS, paths)


def test_a_root_behind_two_names_is_entered_once(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with pytest.raises(LockedError, match="locked by this process"):
        RootSet(FS, [tmp_path / "data", tmp_path / "link"]).enter()
    RootSet(FS, [tmp_path / "data"]).enter()  # the first one was let go again


# -- entering ----------------------------------------------------------------------------------------------------------


def test_a_missing_root_is_made_and_every_directory_above_it_synced() -> None:
    disk = SimulatedFileSystem()
    LogRoot(disk, "/disk/kafka/logs").enter()
    told = [" ".join(line.split()[1:]) for line in disk.journal]
    assert told == [
        "make_directory /disk",
        "make_directory /disk/kafka",
        "make_directory /disk/kafka/logs",
        "sync_directory /disk/kafka",
        "sync_directory /disk",
        "sync_directory /",
        "create /disk/kafka/logs/.lock",
    ]


def test_a_root_that_is_there_is_only_locked() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/data")
    before = disk.calls
    root = LogRoot(disk, "/data")
    root.enter()
    assert disk.calls == before + 1
    root.leave()
    assert disk.list("/data") == []


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(StorageError, match="is not a directory"):
        LogRoot(FS, tmp_path / "data").enter()


@pytest.mark.parametrize(
    ("operation", "path"), [("list", "/data"), ("create", "/data/.lock"), ("open", "*.properties")]
)
def test_what_the_disk_refuses_leaves_no_lock(operation: str, path: str) -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/data")
    write_meta_properties(disk, "/data", MetaProperties(0), 0)
    disk.fail(operation=operation, path=path, error="Permission denied")
    with pytest.raises(StorageError, match="Permission denied"):
        LogRoot(disk, "/data").enter()
    disk.heal()
    LogRoot(disk, "/data").enter()


def test_a_root_of_nobody_knows_whom_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / META_PROPERTIES).write_text("version=5\n")
    with pytest.raises(StorageError, match=r"meta\.properties: version 5"):
        LogRoot(FS, tmp_path).enter()
    assert not (tmp_path / LOCK_FILE).exists()


@behaviour("MGR-032")
def test_the_directory_id_is_read_and_never_made_up(tmp_path: Path) -> None:
    write_meta_properties(FS, str(tmp_path), MetaProperties(1, "c", 1, ID), 0)
    (tmp_path / "none").mkdir()
    root, other = LogRoot(FS, tmp_path), LogRoot(FS, tmp_path / "none")
    root.enter()
    other.enter()
    assert (root.directory_id, other.directory_id) == (ID, None)
    assert not (tmp_path / "none" / META_PROPERTIES).exists()
    other.write_meta(MetaProperties(1, "c", 1, uuid.UUID(int=2 << 100)), 0)
    assert other.directory_id == uuid.UUID(int=2 << 100)
    assert (tmp_path / "none" / META_PROPERTIES).exists()


def test_two_roots_of_one_directory_id_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_meta_properties(FS, str(tmp_path / name), MetaProperties(1, "c", 1, ID), 0)
    with pytest.raises(InvalidRequestError, match=r"the same directory\.id"):
        RootSet(FS, [tmp_path / "a", tmp_path / "b"]).enter()


# -- what lies in it ---------------------------------------------------------------------------------------------------


@behaviour("MGR-018")
def test_directories_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name in (
        "orders-0",
        "a-1-2-0",
        f"orders-1.{UID}-future",
        f"orders-2.{UID}-delete",
        f"orders-3.{UID}-stray",
        "__cluster_metadata-0",
        "remote-log-index-cache",
    ):
        (tmp_path / name).mkdir()
    for name in ("meta.properties", "recovery-point-offset-checkpoint.tmp", "notes"):
        (tmp_path / name).touch()
    found = {str(each.partition): each.kind for each in list_directories(FS, str(tmp_path))}
    assert found == {
        "a-1-2-0": DirectoryKind.CURRENT,
        "orders-0": DirectoryKind.CURRENT,
        "orders-1": DirectoryKind.FUTURE,
        "orders-2": DirectoryKind.DELETED,
        "orders-3": DirectoryKind.STRAY,
    }


@pytest.mark.parametrize(
    "name", ["lost+found", "orders", "orders-", "orders-x", "-0", f"orders.{UID}-delete", "o-0-delete"]
)
def test_a_directory_of_any_other_name_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidTopicError, match="does not belong into a log directory"):
        list_directories(FS, str(tmp_path))


# -- checkpoints -------------------------------------------------------------------------------------------------------


def a_checkpoint(root: Path) -> RootCheckpoint:
    return RootCheckpoint(OffsetCheckpoint(FS, f"{root}/{RECOVERY_POINT_CHECKPOINT}"))


@behaviour("CKP-008")
def test_a_checkpoint_is_read_when_it_is_needed_and_once(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    file = OffsetCheckpoint(FS, checkpoint.file.path)
    file.write({ORDERS: 5})
    assert checkpoint.get(ORDERS) == 5
    assert checkpoint.get(VIEWS) is None
    file.write({ORDERS: 6})
    assert checkpoint.get(ORDERS) == 5


def test_a_checkpoint_that_is_not_of_its_form_counts_as_empty(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_text("1\n0\n")
    with pytest.raises(CheckpointError, match="version 1"):
        checkpoint.get(ORDERS)
    assert "version 1" in str(checkpoint.load())
    assert checkpoint.entries == {}


def test_what_was_asked_for_before_does_not_replace_what_is_newer(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    old = checkpoint.later({ORDERS: 10})
    checkpoint.write({ORDERS: 4})
    old()
    assert checkpoint.file.read() == {ORDERS: 4}
    newer = checkpoint.later({ORDERS: 5})
    newer()
    assert checkpoint.file.read() == checkpoint.entries == {ORDERS: 5}


def test_what_is_superseded_or_stopped_is_not_written(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    checkpoint.write({ORDERS: 1})
    late = checkpoint.later({ORDERS: 2})
    checkpoint.supersede()
    late()
    assert checkpoint.get(ORDERS) == 1
    late = checkpoint.later({ORDERS: 3})
    checkpoint.stop()
    late()
    assert checkpoint.file.read() == {ORDERS: 1}


def test_the_owner_waits_for_a_write_that_is_under_way(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    begun, may_end = threading.Event(), threading.Event()
    write = checkpoint.file.write

    def slow(offsets: dict[TopicPartition, int]) -> None:
        begun.set()
        assert may_end.wait(10)
        write(offsets)

    checkpoint.file.write = slow  # type: ignore[assignment,method-assign]
    other = threading.Thread(target=checkpoint.later({ORDERS: 10}))
    other.start()
    assert begun.wait(10)
    owner = threading.Thread(target=checkpoint.supersede)
    owner.start()
    owner.join(0.05)
    assert owner.is_alive()
    may_end.set()
    other.join(10)
    owner.join(10)
    assert checkpoint.get(ORDERS) == 10


def test_a_predecessors_entries_go_from_all_four_files(tmp_path: Path) -> None:
    root = LogRoot(FS, tmp_path)
    checkpoints = (root.recovery_points, root.log_starts, root.high_watermarks)
    files = (root.cleaner_checkpoint, *(checkpoint.file for checkpoint in checkpoints))
    for file in (root.cleaner_checkpoint, *checkpoints):
        file.write({ORDERS: 5, VIEWS: 6})
    root.forget(ORDERS)
    assert [file.read() for file in files] == [{VIEWS: 6}] * 4
    root.forget(TopicPartition("unknown", 3))
    assert [file.read() for file in files] == [{VIEWS: 6}] * 4


def test_the_cleaners_file_is_lowered_and_never_raised_or_made(tmp_path: Path) -> None:
    root = LogRoot(FS, tmp_path)
    root.lower_cleaning(ORDERS, 3)
    root.forget_cleaning(ORDERS)
    assert not (tmp_path / CLEANER_CHECKPOINT).exists()
    root.cleaner_checkpoint.write({ORDERS: 5, VIEWS: 6})
    root.lower_cleaning(ORDERS, 7)
    root.lower_cleaning(VIEWS, 4)
    assert root.cleaner_checkpoint.read() == {ORDERS: 5, VIEWS: 4}
    (tmp_path / CLEANER_CHECKPOINT).write_bytes(b"1\n0\n")  # of a form that is not known: nothing is said of anybody
    root.forget_cleaning(ORDERS)
    assert (tmp_path / CLEANER_CHECKPOINT).read_bytes() == b"1\n0\n"


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_root_that_was_only_entered_is_left_as_it_was(tmp_path: Path) -> None:
    CleanShutdownFile(FS, str(tmp_path)).write(7)
    a_checkpoint(tmp_path).write({ORDERS: 5})
    root = LogRoot(FS, tmp_path)
    root.enter()
    assert (root.was_clean, root.broker_epoch) == (True, 7)
    assert root.close(9) == []
    assert CleanShutdownFile(FS, str(tmp_path)).read() == 7
    assert a_checkpoint(tmp_path).get(ORDERS) == 5
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_lock_file_that_cannot_be_removed_keeps_nobody_out() -> None:
    disk = SimulatedFileSystem()
    root = LogRoot(disk, "/data")
    root.enter()
    disk.fail(operation="remove")
    assert [str(error) for error in root.close(1)] == ["/data/.lock: the disk is full"]
    LogRoot(disk, "/data").enter()
