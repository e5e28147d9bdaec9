"""Links, pipes and directories in the places of files: nothing outside is written or removed, and nothing waits.

The rules for root are tried as root, where another user owns the log directory.
"""

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.log import LogManager, ManualClock, TopicPartition, UnifiedLog
from tidelog.log.config import LogConfig
from tidelog.log.files import create_anew, write_atomically
from tidelog.log.guarded_paths import open_directory
from tidelog.log.local_files import LocalFileSystem, LocalReadFiles, ensure_plain_files, own_as
from tidelog.log.offline_root import OfflineRoot
from tidelog.records import NewRecord

FS = LocalFileSystem()
NOW = 1_700_000_000_000
BROKER = 1000  # the user who owns the log directory in the tests for root
ORDERS = TopicPartition("orders", 0)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it plays the broker's user and root")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that must stay as it is."""
    victim = tmp_path / "outside" / "victim"
    victim.parent.mkdir()
    victim.write_text("precious")
    return victim


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    directory = tmp_path / "inside"
    directory.mkdir()
    return directory


def planted(link: Path, target: Path) -> Path:
    """A link that the broker's user has made."""
    link.symlink_to(target)
    if os.geteuid() == 0:
        os.lchown(link, BROKER, BROKER)
    return link


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_not_created_through_a_link(inside: Path, outside: Path) -> None:
    planted(inside / "a", outside)
    with pytest.raises(StorageError, match="inside/a: a symbolic link, and nothing is written through links"):
        FS.open_write(str(inside / "a"))
    planted(inside / "b", outside.parent / "new")
    with pytest.raises(StorageError, match="symbolic link"):
        FS.open_write(str(inside / "b"))
    assert [path.name for path in outside.parent.iterdir()] == ["victim"]


def test_a_link_that_this_user_made_is_read_and_not_written(inside: Path, outside: Path) -> None:
    (inside / "a").symlink_to(outside)
    file = FS.open_write(str(inside / "a"), create=False)
    assert file.read(0, 100) == b"precious"
    for change in (lambda: file.write_at(0, b"x"), lambda: file.resize(0)):
        with pytest.raises(StorageError, match="nothing is written through links"):
            change()
    file.close()
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("leftover", ["link", "file", "pipe", "nothing"])
def test_an_atomic_write_replaces_whatever_has_the_temporary_name(inside: Path, outside: Path, leftover: str) -> None:
    beside = inside / "checkpoint.tmp"
    if leftover == "link":
        planted(beside, outside)
    elif leftover == "file":
        os.link(outside, beside)
    elif leftover == "pipe":
        os.mkfifo(beside)
    write_atomically(FS, str(inside / "checkpoint"), b"0\n0\n")
    assert (inside / "checkpoint").read_bytes() == b"0\n0\n"
    assert outside.read_text() == "precious"
    assert [path.name for path in inside.iterdir()] == ["checkpoint"]


def test_an_atomic_write_replaces_a_link_in_the_place_of_the_file(inside: Path, outside: Path) -> None:
    planted(inside / "checkpoint", outside)
    write_atomically(FS, str(inside / "checkpoint"), b"0\n0\n")
    assert not (inside / "checkpoint").is_symlink()
    assert outside.read_text() == "precious"


def test_a_new_file_is_created_exclusively(inside: Path) -> None:
    (inside / "a").touch()
    with pytest.raises(StorageError, match="File exists"):
        FS.open_write(str(inside / "a"), create="new")
    create_anew(FS, str(inside / "a")).close()


def test_a_lock_is_not_taken_through_a_link_or_on_a_pipe(inside: Path, outside: Path) -> None:
    planted(inside / ".lock", outside.parent / "made")
    with pytest.raises(StorageError, match="no lock is taken through links: remove it"):
        FS.lock(str(inside / ".lock"))
    assert not (outside.parent / "made").exists()
    os.mkfifo(inside / "pipe")
    with pytest.raises(StorageError, match="regular file"):
        FS.lock(str(inside / "pipe"))


def test_times_are_not_set_through_a_link(inside: Path, outside: Path) -> None:
    before = outside.stat().st_mtime_ns
    planted(inside / "a", outside)
    FS.set_modified(str(inside / "a"), NOW)
    assert outside.stat().st_mtime_ns == before


def test_a_partition_directory_with_anything_but_plain_files_is_named_before_a_change(
    inside: Path, outside: Path
) -> None:
    ensure_plain_files(FS, str(inside))
    (inside / "notes").symlink_to(outside)  # no file of a log
    ensure_plain_files(FS, str(inside))
    os.mkfifo(inside / "00000000000000000000.log")
    with pytest.raises(StorageError, match=r"00000000000000000000\.log: not a regular file but a named pipe"):
        ensure_plain_files(FS, str(inside))


# -- directories -----------------------------------------------------------------------------------------------------


def test_of_a_link_to_a_directory_the_link_alone_is_removed(inside: Path, outside: Path) -> None:
    planted(inside / "orders-0", outside.parent)
    assert FS.remove_directory(str(inside / "orders-0"))
    assert (outside.read_text(), [*inside.iterdir()]) == ("precious", [])


def test_directories_that_are_nested_too_deep_are_left(inside: Path) -> None:
    deep = inside / "orders-0" / "/".join("d" * 70)
    deep.mkdir(parents=True)
    with pytest.raises(StorageError, match="nested deeper than 64 levels"):
        FS.remove_directory(str(inside / "orders-0"))
    assert deep.exists()


def test_a_directory_that_is_exchanged_for_a_link_while_it_is_removed_loses_nothing_outside(
    inside: Path, outside: Path
) -> None:
    (inside / "d").mkdir()
    for name in ("victim", "other", "third"):
        (inside / "d" / name).touch()
    steps = FS.remove_in_steps(str(inside / "d"))
    next(steps)
    (inside / "d").rename(inside / "moved")
    (inside / "d").symlink_to(outside.parent)
    with pytest.raises(StorageError):
        list(steps)
    assert outside.read_text() == "precious"
    assert [*(inside / "moved").iterdir()] == []


def linked_partition(tmp_path: Path, clock: ManualClock) -> tuple[Path, Path]:
    """A root whose partition lies elsewhere, and the directory that it lies in."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    with LogManager.open(str(root), clock=clock) as manager:
        manager.get_or_create(ORDERS).append(NewRecord(b"k", b"v"))
    (root / "orders-0").rename(elsewhere)
    (root / "orders-0").symlink_to(elsewhere)
    return root, elsewhere


def test_a_partition_directory_that_is_a_link_is_served_and_only_the_link_is_deleted(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    root, elsewhere = linked_partition(tmp_path, clock)
    with LogManager.open(str(root), clock=clock) as manager:
        log = manager.logs[ORDERS]
        log.append(NewRecord(b"k", b"w"))
        assert log.log_end_offset == 2
        before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
        assert manager.delete(ORDERS)
        for _ in range(10):
            clock.advance(120_000)
            manager.tick()
        assert not any(path.name.startswith("orders-0") for path in root.iterdir())
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_a_log_that_is_opened_through_a_link_is_deleted_as_a_link(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    root, elsewhere = linked_partition(tmp_path, clock)
    log = UnifiedLog.open(root / "orders-0", clock=clock)
    log.delete()
    assert not (root / "orders-0").is_symlink()
    assert (elsewhere / "00000000000000000000.log").stat().st_size > 0


def test_a_link_with_the_name_of_a_deleted_log_is_removed_at_a_start(tmp_path: Path, outside: Path) -> None:
    clock = ManualClock(NOW)
    root = tmp_path / "root"
    root.mkdir()
    (root / f"x-0.{'a' * 32}-delete").symlink_to(outside.parent)
    with LogManager.open(str(root), clock=clock) as manager:
        for _ in range(10):
            clock.advance(120_000)
            manager.tick()
        assert not any(path.is_symlink() for path in root.iterdir())
    assert outside.read_text() == "precious"


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    with LogManager.open(str(tmp_path / "root")) as manager:
        manager.get_or_create(ORDERS).append(NewRecord(b"k", b"v"))
    assert (tmp_path / "disk" / "orders-0").is_dir()


# -- root ------------------------------------------------------------------------------------------------------------


def broker_owned(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        os.lchown(path, BROKER, BROKER)


@as_root
def test_root_does_not_write_through_a_directory_that_the_brokers_user_has_linked(inside: Path, outside: Path) -> None:
    planted(inside / "orders-0", outside.parent)
    path = str(inside / "orders-0" / "victim")
    said = f"orders-0 is a symbolic link that uid {BROKER} made, and root does not follow it: run the command as"
    changes: list[Callable[[], object]] = [
        lambda: FS.open_write(path),
        lambda: FS.open_write(path, create=False),
        lambda: FS.open(path),
        lambda: FS.remove(path),
        lambda: FS.rename(path, f"{path}.deleted"),
        lambda: FS.make_directory(f"{path}-directory"),
        lambda: FS.set_modified(path, NOW),
        lambda: FS.lock(path),
        lambda: own_as(path, inside.stat(), 0o777),
    ]
    for change in changes:
        with pytest.raises(StorageError, match=said):
            change()
    assert LocalReadFiles().open(path).read(0, 10) == b"precious"  # whoever only looks follows it, as Kafka does
    assert stat.S_IMODE(outside.stat().st_mode) != 0o777


@as_root
def test_root_follows_the_links_that_root_has_made(inside: Path, outside: Path) -> None:
    (inside / "first").symlink_to("second")
    (inside / "second").symlink_to(outside.parent)
    file = FS.open_write(str(inside / "first" / "victim"), create=False)
    file.write_at(0, b"PRECIOUS")
    file.close()
    assert outside.read_text() == "PRECIOUS"
    (inside / "file").symlink_to(outside)
    assert FS.open(str(inside / "file")).read(0, 100) == b"PRECIOUS"
    planted(inside / "third", Path("second"))
    (inside / "fourth").symlink_to("third")  # root's own, and it leads to one that is not
    with pytest.raises(StorageError, match="third is a symbolic link that uid"):
        FS.open_write(str(inside / "fourth" / "victim"))


@as_root
def test_root_does_not_read_a_linked_file_that_it_might_copy(inside: Path, outside: Path) -> None:
    planted(inside / "a", outside)
    with pytest.raises(StorageError, match=f"inside/a: it is a symbolic link that uid {BROKER} made"):
        FS.open(str(inside / "a"))


@as_root
def test_root_does_not_write_to_a_file_of_another_user_under_a_second_name(inside: Path, outside: Path) -> None:
    broker_owned(inside)
    os.link(outside, inside / "a")
    with pytest.raises(StorageError, match="uid 0 owns it, another user than the owner of its directory"):
        FS.open_write(str(inside / "a"))
    with pytest.raises(StorageError, match="hard links"):
        own_as(str(inside / "a"), inside.stat(), 0o600)
    assert outside.stat().st_uid == 0


@as_root
def test_root_never_writes_elsewhere_while_another_user_exchanges_a_directory_for_a_link(
    inside: Path, outside: Path
) -> None:
    """Whether a call finds the directory or the link is chance; that it stays inside is not."""
    real, link = inside / "real", planted(inside / "link", outside.parent)
    real.mkdir()
    is_over = threading.Event()

    def exchange() -> None:
        place = inside / "orders-0"
        while not is_over.is_set():
            os.rename(real, place)
            os.rename(place, real)
            os.rename(link, place)
            os.rename(place, link)

    swapper = threading.Thread(target=exchange)
    swapper.start()
    done = 0
    try:
        path = str(inside / "orders-0" / "victim")
        for _ in range(2_000):
            with suppress(StorageError):
                file = FS.open_write(path)
                done += 1
                file.write_at(0, b"overwritten")
            with suppress(StorageError):
                write_atomically(FS, path, b"overwritten")
            with suppress(StorageError):
                own_as(path, inside.stat(), 0o777)
            with suppress(StorageError):
                FS.remove(path)
    finally:
        is_over.set()
        swapper.join()
    assert outside.read_text() == "precious"
    assert [entry.name for entry in outside.parent.iterdir()] == ["victim"]
    assert done > 0  # or nothing was shown


@as_root
def test_a_log_of_the_brokers_user_with_a_linked_segment_is_not_opened_by_a_command_of_root(
    tmp_path: Path, outside: Path
) -> None:
    with LogManager.open(str(tmp_path / "root")) as manager:
        manager.get_or_create(ORDERS).append(NewRecord(b"k", b"v"))
    segment = tmp_path / "root" / "orders-0" / "00000000000000000000.log"
    segment.unlink()
    broker_owned(tmp_path / "root")
    planted(segment, outside)
    before = sorted(path.name for path in (tmp_path / "root").iterdir())
    with OfflineRoot(str(tmp_path / "root")) as root:
        opening = root.open_log(ORDERS, LogConfig())
        with pytest.raises(StorageError, match=r"\.log: a symbolic link"):
            opening.__enter__()
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == before
    assert outside.read_text() == "precious"


@as_root
def test_a_directory_is_opened_by_its_parts_where_proc_is_not_mounted(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_proc(path: str, *, dir_fd: int | None = None) -> str:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(path)
        return readlink(path, dir_fd=dir_fd)

    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", no_proc)
    descriptor = open_directory(str(inside))
    assert os.path.samestat(os.fstat(descriptor), inside.stat())
    os.close(descriptor)
    planted(inside / "orders-0", outside.parent)
    with pytest.raises(ValueError, match="root does not follow it"):
        open_directory(str(inside / "orders-0"))
