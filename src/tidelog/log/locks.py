"""Locks on files and directories that keep out every other process, a JVM too, and every other caller in this one.

A file. Java's FileChannel takes a POSIX record lock on it, and such a lock has two traps. It does not keep out its own
process: the second caller is given the lock as well. And closing *any* descriptor of the file drops it, even one that
was opened only to read. Linux has the same lock bound to the open file instead of the process (an "open file
description" lock): it conflicts with Java's lock in both directions, and has neither trap. Systems without it take
Java's own lock; there, nothing in the process may open and close a locked file.

A directory cannot be opened for writing, so it has no record locks. There `flock` is taken, which keeps out whoever
else takes `flock`.

Beside the system's lock stands a register of what this process has locked, by device and inode. It is asked before
the file is opened, so that a caller who comes second cannot drop the lock of the first by closing a descriptor.

A child made by fork inherits descriptors, and with them a share of both kinds of lock: it would keep them when its
parent dies. So it closes them first thing. It holds no locks.
"""

import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from contextlib import suppress

from tidelog.errors import LockedError
from tidelog.log.guarded_paths import parent_directory

__all__ = ["HeldLock", "LockShare", "lock_path"]

_TRIES = 100
# struct flock of 64-bit Linux: type, whence, start, length (0: to the end, however far), process (0: of the file).
_WHOLE_FILE = struct.Struct("@hhqqi4x")

_mutex = threading.Lock()
_held: dict[tuple[int, int], "HeldLock"] = {}  # by device and inode


class HeldLock:
    """A lock that this process has, until `release`. Dropping the object does not release it."""

    __slots__ = ("_descriptor", "_inode", "path", "shares")

    def __init__(self, path: str, descriptor: int, inode: tuple[int, int], *, is_shared: bool = False) -> None:
        self.path = path
        self.shares: set[LockShare] | None = set() if is_shared else None
        self._descriptor = descriptor
        self._inode = inode

    def release(self) -> None:
        with _mutex:
            if _held.get(self._inode) is self:
                del _held[self._inode]
                os.close(self._descriptor)  # the last descriptor of this open file, so the lock goes with it

    def __repr__(self) -> str:
        return f"HeldLock({self.path!r})"


class LockShare:
    """The share of one caller in a lock that several of this process have. The last to release it lets others in."""

    __slots__ = ("_lock",)

    def __init__(self, lock: HeldLock) -> None:
        self._lock = lock
        assert lock.shares is not None
        lock.shares.add(self)

    def release(self) -> None:
        shares = self._lock.shares
        assert shares is not None
        with _mutex:
            was_last = shares == {self}
            shares.discard(self)
        if was_last:
            self._lock.release()


def lock_path(path: str, *, shared: bool = False) -> HeldLock | LockShare:
    """Lock a file, created if it is missing, or a directory. OSError is what the system refused.

    Callers who all ask for a `shared` lock have it together. Raises LockedError when somebody has it.
    """
    with _mutex:
        if shared:
            held = _shared_lock_of(path)
            if held is not None:
                return LockShare(held)
        lock = _take(path, is_shared=shared)
        return LockShare(lock) if shared else lock


def _shared_lock_of(path: str) -> HeldLock | None:
    with suppress(FileNotFoundError):
        held = _held.get(_inode_of(os.stat(path)))
        if held is not None and held.shares:
            return held
    return None


def _take(path: str, *, is_shared: bool) -> HeldLock:
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            _check_not_held(path, _inode_of(os.stat(path)))
        descriptor, inode = _open_locked(path)
        # Whoever had it before may have removed the file between our opening and locking, as Kafka does when it
        # stops. Then this lock is on a file without a name, and keeps out nobody.
        with suppress(FileNotFoundError):
            if _inode_of(os.stat(path)) == inode:
                lock = _held[inode] = HeldLock(path, descriptor, inode, is_shared=is_shared)
                return lock
        os.close(descriptor)
    raise LockedError(f"{path}: others keep taking and removing it")


def _open_locked(path: str) -> tuple[int, tuple[int, int]]:
    descriptor = _open_file_or_directory(path)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif stat.S_ISREG(found.st_mode):
            _lock_record(descriptor)
        else:
            raise ValueError("a lock is taken on a regular file, and this is none: remove it")
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EAGAIN):
            raise LockedError(f"{path}: locked by another process") from error
        raise
    return descriptor, _inode_of(found)


def _open_file_or_directory(path: str) -> int:
    """A file is made, and never through a link; a directory may be reached through one, and nothing is made there."""
    with parent_directory(path) as (name, directory):
        try:
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=directory)
        except IsADirectoryError:
            pass
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            if not os.path.isdir(path):
                raise ValueError("a symbolic link, and no lock is taken through links: remove it") from error
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _lock_record(descriptor: int) -> None:
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is not None and sys.platform == "linux" and sys.maxsize > 1 << 32:
        try:
            fcntl.fcntl(descriptor, command, _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            if error.errno != errno.EINVAL:  # a kernel, or a file system, that does not know it
                raise
        else:
            return
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _check_not_held(path: str, inode: tuple[int, int]) -> None:
    if inode in _held:
        raise LockedError(f"{path}: locked by this process, as {_held[inode].path}")


def _inode_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _forget_all() -> None:
    for lock in _held.values():
        os.close(lock._descriptor)
    _held.clear()
    _mutex.release()


os.register_at_fork(before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_forget_all)
