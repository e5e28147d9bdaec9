"""Locks between processes: against plain POSIX record locks, against a JVM, and across fork."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.errors import LockedError, StorageError
from tidelog.log.files import read_whole
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.locks import lock_path

FS = LocalFileSystem()

# Each tries to take a lock for every line it is given, and answers "held" or "refused".
PLAIN_HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in sys.stdin:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("refused", flush=True)
    else:
        print("held", flush=True)
"""
TIDELOG_HOLDER = """
import sys
from tidelog.errors import LockedError
from tidelog.log.local_files import LocalFileSystem
for _ in sys.stdin:
    try:
        LocalFileSystem().lock(sys.argv[1])
    except LockedError:
        print("refused", flush=True)
    else:
        print("held", flush=True)
"""
JAVA_HOLDER = """
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Scanner;

class Holder {
    public static void main(String[] arguments) throws Exception {
        FileChannel channel = FileChannel.open(
            Path.of(arguments[0]), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            lines.nextLine();
            System.out.println(channel.tryLock() == null ? "refused" : "held");
        }
    }
}
"""


class Holder(NamedTuple):
    """Another process."""

    process: subprocess.Popen[str]

    def try_to_lock(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(*command: str) -> Iterator[Holder]:
    """A holder that is gone afterwards."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Holder(process)
        finally:
            process.kill()


def plain_holder(path: str) -> AbstractContextManager[Holder]:
    """Another process that takes POSIX record locks."""
    return running(sys.executable, "-c", PLAIN_HOLDER, path)


@pytest.fixture(params=["plain", "tidelog", "java"])
def holder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The command of another process that locks a path."""
    if request.param == "java":
        java = shutil.which("java")
        if java is None:
            pytest.skip("no java on this machine")
        (tmp_path / "Holder.java").write_text(JAVA_HOLDER)
        return java, str(tmp_path / "Holder.java")
    return sys.executable, "-c", PLAIN_HOLDER if request.param == "plain" else TIDELOG_HOLDER


@pytest.fixture(params=["of the file", "of the process"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of record lock, as a system without the first has only the second."""
    if request.param == "of the process":
        monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    return str(request.param)


def test_another_process_keeps_us_out_until_it_dies(holder: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    with running(*holder, path) as other:
        assert other.try_to_lock() == "held"
        with pytest.raises(LockedError, match="locked by another process"):
            FS.lock(path)
        other.die()
        FS.lock(path).release()


def test_we_keep_another_process_out_until_we_release(holder: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FS.lock(path)
    with running(*holder, path) as other:
        assert other.try_to_lock() == "refused"
        lock.release()
        assert other.try_to_lock() == "held"


def test_a_directory_is_locked_between_processes(tmp_path: Path) -> None:
    lock = FS.lock(str(tmp_path))
    with running(sys.executable, "-c", TIDELOG_HOLDER, str(tmp_path)) as other:
        assert other.try_to_lock() == "refused"
        lock.release()
        assert other.try_to_lock() == "held"
        with pytest.raises(LockedError):
            FS.lock(str(tmp_path))
        other.die()
        FS.lock(str(tmp_path)).release()


def test_a_second_caller_in_the_process_is_refused_and_does_not_drop_the_lock(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FS.lock(path)
    with pytest.raises(LockedError, match="locked by this process"):
        FS.lock(path)
    with plain_holder(path) as other:
        assert other.try_to_lock() == "refused"
    lock.release()


def test_another_name_of_a_locked_file_is_the_same_file(kind: str, tmp_path: Path) -> None:
    lock = FS.lock(str(tmp_path / ".lock"))
    os.link(tmp_path / ".lock", tmp_path / "link")
    (tmp_path / "symbolic").symlink_to(".lock")
    for name in ("link", "symbolic"):
        with pytest.raises(LockedError, match="locked by this process"):
            FS.lock(str(tmp_path / name))
    lock.release()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="the system has no locks of open files")
def test_reading_a_locked_file_does_not_drop_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FS.lock(path)
    assert read_whole(FS, path) == b""  # opens and closes a descriptor of it
    with plain_holder(path) as other:
        assert other.try_to_lock() == "refused"
    lock.release()


def test_a_lock_is_kept_when_its_object_is_dropped(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    FS.lock(path)
    with pytest.raises(LockedError):
        FS.lock(path)


def test_a_file_that_was_removed_and_made_again_is_another_file(kind: str, tmp_path: Path) -> None:
    first = FS.lock(str(tmp_path / ".lock"))
    FS.remove(str(tmp_path / ".lock"))
    second = FS.lock(str(tmp_path / ".lock"))
    first.release()
    with pytest.raises(LockedError):
        FS.lock(str(tmp_path / ".lock"))
    second.release()


def test_a_file_that_its_owner_removes_before_we_have_the_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".lock"
    monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    lockf = fcntl.lockf
    taken: list[int] = []

    def lockf_after_removal(descriptor: int, flags: int) -> None:
        if not taken:
            path.unlink()
        taken.append(descriptor)
        lockf(descriptor, flags)

    monkeypatch.setattr(fcntl, "lockf", lockf_after_removal)
    lock = lock_path(str(path))
    assert len(taken) == 2
    with plain_holder(str(path)) as other:
        assert other.try_to_lock() == "refused"
    lock.release()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("locked", [".lock", "."])
def test_a_child_made_by_fork_holds_nothing(locked: str, kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / locked)
    lock = FS.lock(path)
    ready, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        lock.release()  # of no effect: it is the parent's
        try:
            FS.lock(path)
        except LockedError:
            os.write(ready[1], b"refused")
        else:
            os.write(ready[1], b"held")
        os.read(go_on[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 10) == b"refused"
        lock.release()
        FS.lock(path).release()  # though the child lives
    finally:
        os.write(go_on[1], b".")
        os.waitpid(child, 0)
        for descriptor in (*ready, *go_on):
            os.close(descriptor)


def test_of_many_threads_one_gets_the_lock(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    words: list[str] = []
    barrier = threading.Barrier(8)

    def take() -> None:
        barrier.wait()
        try:
            lock_path(path)
        except LockedError:
            words.append("refused")
        else:
            words.append("held")

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(words) == ["held"] + ["refused"] * 7


def test_what_the_system_refuses_is_a_storage_error_and_no_lock(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory") as caught:
        FS.lock(str(tmp_path / "missing" / ".lock"))
    assert not isinstance(caught.value, LockedError)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to list open descriptors")
def test_what_is_no_regular_file_is_refused_and_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(StorageError, match="taken on a regular file, and this is none: remove it"):
            FS.lock(str(tmp_path / ".lock"))
    assert len(os.listdir("/proc/self/fd")) == before
