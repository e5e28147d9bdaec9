"""The local disk and the simulated one: one suite, run against both, and the two compared on random calls."""

import errno
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import LockedError, StorageError
from tidelog.log.files import FileStat, FileSystem, WriteFile, join, parent_of, read_whole, write_atomically
from tidelog.log.local_files import LocalFile, LocalFileSystem
from tidelog.testing.disk import SimulatedFileSystem


class Place(NamedTuple):
    """A file system and a directory in it to work in."""

    fs: FileSystem
    root: str

    def __truediv__(self, name: str) -> str:
        return join(self.root, name)

    def create(self, name: str, data: bytes = b"") -> str:
        file = self.fs.open_write(self / name)
        file.write_at(0, data)
        file.close()
        return self / name


@pytest.fixture(params=["local", "simulated", "unordered"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(LocalFileSystem(), str(tmp_path))
    fs = SimulatedFileSystem(unordered_directories=request.param == "unordered")
    fs.make_directory(str(tmp_path))
    return Place(fs, str(tmp_path))


def test_a_new_file_is_empty_and_an_old_one_is_not_cut(place: Place) -> None:
    file = place.fs.open_write(place / "a")
    assert file.size == 0
    file.write_at(0, b"abc")
    assert place.fs.open_write(place / "a").size == 3


def test_bytes_that_were_never_written_are_zero(place: Place) -> None:
    file = place.fs.open_write(place / "a")
    file.write_at(3, b"xyz")
    assert file.read(0, 100) == b"\0\0\0xyz"
    file.resize(8)
    assert file.read(0, 100) == b"\0\0\0xyz\0\0"
    file.resize(4)
    file.resize(6)
    assert file.read(0, 100) == b"\0\0\0x\0\0"


def test_a_read_is_short_only_where_the_file_ends(place: Place) -> None:
    file = place.fs.open_write(place / "a")
    file.write_at(0, bytes(range(100)))
    assert file.read(90, 5) == bytes(range(90, 95))
    assert file.read(90, 50) == bytes(range(90, 100))
    assert file.read(100, 5) == b""
    assert file.read(1 << 40, 5) == b""
    assert file.read(5, 0) == b""


def test_a_size_out_of_a_broken_file_costs_no_memory(place: Place) -> None:
    file = place.fs.open_write(place / "a")
    file.write_at(0, b"abc")
    assert file.read(1, 1 << 62) == b"bc"
    assert file.read(5, 1 << 62) == b""


def test_reading_into_a_buffer_says_how_much_there_was(place: Place) -> None:
    file = place.fs.open_write(place / "a")
    file.write_at(0, b"abcdef")
    target = bytearray(b"........")
    assert file.read_into(2, memoryview(target)) == 4
    assert target == b"cdef...."
    assert file.read_into(6, memoryview(target)) == 0
    assert file.read_into(0, memoryview(target)[:2]) == 2
    assert target == b"abef...."


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_can_be_written(place: Place, kind: Callable[[bytes], bytes]) -> None:
    file = place.fs.open_write(place / "a")
    file.write_at(1, kind(b"abc"))
    assert file.read(0, 9) == b"\0abc"


def test_an_open_file_stays_readable_when_its_name_goes(place: Place) -> None:
    path = place.create("a", b"abc")
    file = place.fs.open(path)
    place.fs.rename(path, place / "b")
    assert file.read(0, 9) == b"abc"
    place.fs.remove(place / "b")
    assert file.read(0, 9) == b"abc"
    assert file.size == 3


def test_a_closed_file_is_refused_and_closing_twice_is_harmless(place: Place) -> None:
    file = place.fs.open_write(place / "a")
    file.close()
    file.close()
    assert file.descriptor is None
    attempts: list[Callable[[], object]] = [
        lambda: file.size,
        lambda: file.read(0, 1),
        lambda: file.read_into(0, memoryview(bytearray(1))),
        lambda: file.write_at(0, b"x"),
        lambda: file.resize(1),
        file.sync,
    ]
    for attempt in attempts:
        with pytest.raises(StorageError, match="Bad file descriptor"):
            attempt()


@pytest.mark.parametrize("position", [-1, 1 << 63, 1 << 70])
def test_a_position_that_no_file_has_is_refused(place: Place, position: int) -> None:
    file = place.fs.open_write(place / "a")
    with pytest.raises(StorageError):
        file.read(position, 1)
    with pytest.raises(StorageError):
        file.read_into(position, memoryview(bytearray(1)))
    with pytest.raises(StorageError):
        file.write_at(position, b"x")
    with pytest.raises(StorageError):
        file.resize(position)
    assert file.size == 0


def test_what_the_system_refuses_names_the_path_and_keeps_the_cause(place: Place) -> None:
    with pytest.raises(StorageError) as caught:
        place.fs.open(place / "missing")
    assert str(caught.value) == f"{place / 'missing'}: No such file or directory"
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOENT


@pytest.mark.parametrize("name", ["zero\0character", "n" * 256])
def test_a_name_that_no_file_has_is_refused(place: Place, name: str) -> None:
    attempts: list[Callable[[str], object]] = [
        place.fs.open,
        place.fs.open_write,
        place.fs.stat,
        place.fs.list,
        place.fs.remove,
        place.fs.make_directory,
        place.fs.remove_directory,
        place.fs.sync_directory,
        place.fs.lock,
        lambda path: place.fs.rename(path, place / "b"),
        lambda path: place.fs.set_modified(path, 0),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt(place / name)


def test_stat_tells_files_directories_and_nothing_apart(place: Place) -> None:
    path = place.create("a", b"abc")
    place.fs.set_modified(path, 1_700_000_000_123)
    place.fs.make_directory(place / "d")
    assert place.fs.stat(path) == FileStat(3, 1_700_000_000_123)
    directory = place.fs.stat(place / "d")
    assert directory is not None
    assert directory.is_directory
    assert directory.size == 0
    assert place.fs.stat(place / "missing") is None
    assert place.fs.stat(place / "missing/too") is None
    assert place.fs.stat(place / "a/under-a-file") is None


def test_names_are_listed_sorted(place: Place) -> None:
    for name in ("c", "a", "B"):
        place.create(name)
    place.fs.make_directory(place / "b")
    assert place.fs.list(place.root) == ["B", "a", "b", "c"]
    with pytest.raises(StorageError, match="Not a directory"):
        place.fs.list(place / "a")
    with pytest.raises(StorageError, match="No such file"):
        place.fs.list(place / "missing")


def test_a_directory_cannot_be_opened_as_a_file(place: Place) -> None:
    for attempt in (place.fs.open, place.fs.open_write):
        with pytest.raises(StorageError, match="Is a directory"):
            attempt(place.root)


def test_a_file_for_reading_cannot_be_written(place: Place) -> None:
    assert not hasattr(place.fs.open(place.create("a")), "write_at")


def test_a_rename_replaces_a_file(place: Place) -> None:
    place.create("a", b"new")
    place.create("b", b"old")
    place.fs.rename(place / "a", place / "b")
    assert place.fs.list(place.root) == ["b"]
    assert read_whole(place.fs, place / "b") == b"new"
    place.fs.rename(place / "b", place / "b")
    assert read_whole(place.fs, place / "b") == b"new"


def test_a_renamed_directory_takes_its_files_along(place: Place) -> None:
    place.fs.make_directory(place / "t-0")
    file = place.fs.open_write(place / "t-0/a")
    place.fs.rename(place / "t-0", place / "t-0.x-delete")
    file.write_at(0, b"later")
    assert place.fs.stat(place / "t-0") is None
    assert read_whole(place.fs, place / "t-0.x-delete/a") == b"later"


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("missing", "b", "No such file"),
        ("file", "missing/b", "No such file"),
        ("file", "other/b", "Not a directory"),
        ("file", "empty", "Is a directory"),
        ("full", "file", "Not a directory"),
        ("empty", "full", "Directory not empty"),
        ("full", "full/below", "Invalid argument"),
    ],
)
def test_a_rename_that_cannot_be_done_changes_nothing(place: Place, source: str, target: str, reason: str) -> None:
    place.create("file", b"1")
    place.create("other", b"2")
    place.fs.make_directory(place / "empty")
    place.fs.make_directory(place / "full")
    place.create("full/x", b"3")
    with pytest.raises(StorageError, match=f"{source} to .*{target}: {reason}"):
        place.fs.rename(place / source, place / target)
    assert tree_of(place.fs, place.root) == {"empty": {}, "file": b"1", "full": {"x": b"3"}, "other": b"2"}


def test_removing_says_whether_there_was_something(place: Place) -> None:
    place.create("a")
    assert place.fs.remove(place / "a")
    assert not place.fs.remove(place / "a")
    place.fs.make_directory(place / "d/e")
    place.create("d/e/f")
    with pytest.raises(StorageError, match="Is a directory"):
        place.fs.remove(place / "d")
    assert place.fs.remove_directory(place / "d")
    assert not place.fs.remove_directory(place / "d")
    assert place.fs.list(place.root) == []


def test_a_file_in_the_place_of_a_directory_is_an_error(place: Place) -> None:
    place.create("d")
    with pytest.raises(StorageError, match="Not a directory"):
        place.fs.remove_directory(place / "d")
    with pytest.raises(StorageError, match="Not a directory"):
        place.fs.remove(place / "d/a")
    with pytest.raises(StorageError, match="Not a directory"):
        place.fs.open_write(place / "d/a")
    with pytest.raises(StorageError, match="Not a directory"):
        place.fs.sync_directory(place / "d")
    with pytest.raises(StorageError, match="File exists"):
        place.fs.make_directory(place / "d")
    with pytest.raises(StorageError, match="Not a directory"):
        place.fs.make_directory(place / "d/e/f")


def test_making_a_directory_makes_its_parents_and_is_harmless_twice(place: Place) -> None:
    place.fs.make_directory(place / "a/b/c")
    place.create("a/b/c/x")
    place.fs.make_directory(place / "a/b/c")
    assert tree_of(place.fs, place.root) == {"a": {"b": {"c": {"x": b""}}}}


def test_more_parents_can_be_missing_than_python_nests_calls(tmp_path: Path) -> None:
    path = str(tmp_path / "x") + "/a" * (sys.getrecursionlimit() + 100)
    LocalFileSystem().make_directory(path)
    try:
        assert os.path.isdir(path)
    finally:
        os.removedirs(path)  # the one that removes what the test has made would nest its calls


def test_syncing_a_directory_that_is_gone_is_harmless(place: Place) -> None:
    place.fs.sync_directory(place / "missing")
    place.fs.sync_directory(place.root)


def test_a_small_file_is_replaced_as_a_whole(place: Place) -> None:
    place.create("checkpoint.tmp", b"left over by a crash, and longer than what comes")
    write_atomically(place.fs, place / "checkpoint", b"0\n1\n")
    write_atomically(place.fs, place / "checkpoint", b"0\n2\n")
    assert tree_of(place.fs, place.root) == {"checkpoint": b"0\n2\n"}


def test_a_lock_keeps_out_the_next_caller_until_it_is_released(place: Place) -> None:
    first = place.fs.lock(place / ".lock")
    assert place.fs.list(place.root) == [".lock"]
    with pytest.raises(LockedError):
        place.fs.lock(place / ".lock")
    first.release()
    second = place.fs.lock(place / ".lock")
    first.release()  # twice, and it has nothing to say any more
    with pytest.raises(LockedError):
        place.fs.lock(place / ".lock")
    second.release()


def test_a_directory_can_be_locked(place: Place) -> None:
    lock = place.fs.lock(place.root)
    with pytest.raises(LockedError):
        place.fs.lock(place.root)
    lock.release()
    place.fs.lock(place.root).release()
    assert place.fs.list(place.root) == []


def test_a_lock_needs_a_directory_to_be_in(place: Place) -> None:
    with pytest.raises(StorageError, match="No such file"):
        place.fs.lock(place / "missing/.lock")


def test_many_threads_write_many_places_of_one_file(place: Place) -> None:
    file = place.fs.open_write(place / "a")

    def write(worker: int) -> None:
        for index in range(200):
            file.write_at((index * 8 + worker) * 4, worker.to_bytes(4, "big"))

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read(0, 1 << 20) == b"".join(worker.to_bytes(4, "big") for worker in range(8)) * 200


# The local disk alone.


def test_the_descriptor_goes_with_the_last_reference(tmp_path: Path) -> None:
    file = LocalFileSystem().open_write(str(tmp_path / "a"))
    descriptor = file.descriptor
    assert descriptor is not None
    os.fstat(descriptor)
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_descriptors_are_not_inherited_by_programs(tmp_path: Path) -> None:
    file = LocalFileSystem().open_write(str(tmp_path / "a"))
    assert file.descriptor is not None
    assert not os.get_inheritable(file.descriptor)


def test_a_full_disk_is_a_storage_error() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("the system has no /dev/full")
    file = LocalFile("/dev/full", os.open("/dev/full", os.O_RDWR))  # a file system opens no devices
    with pytest.raises(StorageError, match="^/dev/full: the disk is full$"):
        file.write_at(0, b"x")


def test_short_counts_of_the_system_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, preadv, pwrite = os.pread, os.preadv, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: preadv(fd, [into[0][:3]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    file = LocalFileSystem().open_write(str(tmp_path / "a"))
    file.write_at(2, b"abcdefgh")
    target = bytearray(8)
    assert file.read(0, 100) == b"\0\0abcdefgh"
    assert file.read(2, 7) == b"abcdefg"
    assert file.read_into(2, memoryview(target)) == 8
    assert target == b"abcdefgh"


def test_wide_elements_are_written_whole(tmp_path: Path) -> None:
    file = LocalFileSystem().open_write(str(tmp_path / "a"))
    file.write_at(0, memoryview(b"abcdefgh").cast("I"))
    assert file.read(0, 100) == b"abcdefgh"


def test_files_that_go_while_their_directory_is_removed_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / name).touch()
    unlink = os.unlink

    def unlink_as_second(path: str, **place: int) -> None:
        unlink(path, **place)  # somebody else was faster
        unlink(path, **place)

    monkeypatch.setattr(os, "unlink", unlink_as_second)
    assert LocalFileSystem().remove_directory(str(tmp_path / "d"))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link").symlink_to(tmp_path / "kept")
    LocalFileSystem().remove_directory(str(tmp_path / "d"))
    assert (tmp_path / "kept" / "a").exists()


def test_new_files_have_the_rights_that_the_mask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LocalFileSystem().open_write(str(tmp_path / "a")).close()
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_the_files_say_what_they_are(tmp_path: Path) -> None:
    file = LocalFileSystem().open_write(str(tmp_path / "a"))
    assert isinstance(file, LocalFile)
    assert repr(file) == f"LocalFile('{tmp_path}/a')"


# Both, call by call.

_NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f/g", "a/x"])
_CALLS = st.one_of(
    st.tuples(
        st.sampled_from(
            ["list", "stat", "open", "open_write", "remove", "make_directory", "remove_directory", "sync_directory"]
        ),
        _NAMES,
    ),
    st.tuples(st.just("rename"), _NAMES, _NAMES),
    st.tuples(st.just("set_modified"), _NAMES, st.integers(0, 1 << 41)),
    st.tuples(st.just("write"), st.integers(0, 3), st.integers(-1, 1500), st.binary(max_size=40)),
    st.tuples(st.just("read"), st.integers(0, 3), st.integers(-1, 1500), st.integers(-1, 1500)),
    st.tuples(st.just("resize"), st.integers(0, 3), st.integers(-1, 1500)),
    st.tuples(st.just("sync"), st.integers(0, 3)),
    st.tuples(st.just("close"), st.integers(0, 3)),
    st.tuples(st.just("lock"), _NAMES),
    st.tuples(st.just("release"), st.integers(0, 3)),
)


class Machine:
    """Makes calls and puts down what they answer."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self.fs = fs
        self.root = root
        self.files: list[WriteFile] = []
        self.locks: list[object] = []

    def answer(self, call: tuple[object, ...]) -> object:
        try:
            return self._answer(*call)
        except LockedError:
            return "locked"
        except StorageError as error:
            return str(error)

    def _answer(self, name: str, *arguments: object) -> object:
        if name in ("write", "read", "resize", "sync", "close"):
            number, *rest = arguments
            if not self.files:
                return None
            file = self.files[number % len(self.files)]
            return getattr(file, "write_at" if name == "write" else name)(*rest), None if name == "close" else file.size
        if name == "release":
            return self.locks[arguments[0] % len(self.locks)].release() if self.locks else None
        paths = [join(self.root, argument) if isinstance(argument, str) else argument for argument in arguments]
        answer = getattr(self.fs, name)(*paths)
        if name == "open_write":
            self.files.append(answer)
        if name == "lock":
            self.locks.append(answer)
        if name in ("open", "open_write"):
            return answer.size
        if name == "stat" and answer is not None:
            return answer.size, answer.is_directory
        return None if name == "lock" else answer


@settings(max_examples=300, deadline=None)
@given(st.lists(_CALLS, max_size=40))
def test_both_file_systems_answer_every_call_alike(calls: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as root:
        local = Machine(LocalFileSystem(), root)
        disk = SimulatedFileSystem()
        disk.make_directory(root)
        simulated = Machine(disk, root)
        try:
            for call in calls:
                assert simulated.answer(call) == local.answer(call), call
            assert tree_of(disk, root) == tree_of(local.fs, root)
            assert tree_of(disk.copy(), root) == tree_of(local.fs, root)
        finally:
            for lock in local.locks:
                lock.release()


def tree_of(fs: FileSystem, path: str) -> dict[str, object]:
    """All names and contents below a directory."""
    tree: dict[str, object] = {}
    for name in fs.list(path):
        found = fs.stat(join(path, name))
        assert found is not None
        assert parent_of(join(path, name)) == path
        tree[name] = tree_of(fs, join(path, name)) if found.is_directory else read_whole(fs, join(path, name))
    return tree


# -- what is no file ---------------------------------------------------------------------------------------------------


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    fs = LocalFileSystem()
    for path, what in ((tmp_path / "pipe", "a named pipe"), ("/dev/null", "a device")):
        for opening in (fs.open, fs.open_write):
            with pytest.raises(StorageError, match=f"{path}: not a regular file but {what}"):
                opening(str(path))


def test_an_open_file_is_an_ordinary_descriptor(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    file = fs.open_write(str(tmp_path / "a"))
    reading = fs.open(str(tmp_path / "a"))
    assert all(one.descriptor is not None and os.get_blocking(one.descriptor) for one in (file, reading))
