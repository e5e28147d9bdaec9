"""The local disk, behind the protocols of `files`.

Files are plain descriptors, read with `pread` and written with `pwrite`: no position to share between threads, no
buffer of Python's in between, nothing mapped. Only regular files are opened: a pipe or a device under the name of a
segment is refused, and nobody waits for it. What the system refuses becomes a StorageError that names the path, with
the system's own error as its cause.

A descriptor is closed by `close`, or with the last reference to its file. The number of a closed descriptor is given
to the next file that is opened, so `close` is for a file that nobody else can be reading; who has handed a file to
others (a region that is being sent, say) drops the reference instead.
"""

import builtins
import errno
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

from tidelog.errors import StorageError, TooManyFilesError
from tidelog.log.files import FileLock, FileStat, ReadFile, WriteFile
from tidelog.log.locks import lock_path
from tidelog.records.varint import Buffer

__all__ = ["LocalFile", "LocalFileSystem", "LocalReadFile", "storage_error"]

# Beside OSError: a path with a zero character or a lone surrogate is a ValueError, a position above 2^63 an
# OverflowError. All three mean that the system cannot do it.
_REFUSALS = (OSError, ValueError, OverflowError)

_NO_DESCRIPTOR = (1 << 31) - 1  # no open file has it, and unlike -1 every call says so in the same words
_SURE_SIZE = 1 << 20  # reads up to here are not compared with the size of the file first
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def storage_error(path: str, error: Exception) -> StorageError:
    """What the system said about a path, as the engine's error. Raise it `from` the system's.

    >>> storage_error("/a/b", FileNotFoundError(2, "No such file or directory"))
    StorageError('/a/b: No such file or directory')
    """
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyFilesError(f"{path}: {reason}")
    return StorageError(f"{path}: {reason}")


class LocalReadFile:
    """A file that is open for reading."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @property
    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error(self.path, error) from error

    @property
    def descriptor(self) -> int | None:
        return None if self._descriptor == _NO_DESCRIPTOR else self._descriptor

    def read(self, position: int, size: int) -> bytes:
        if size > _SURE_SIZE:
            # pread allocates what it is asked for. A size out of a broken file must not cost memory.
            size = min(size, max(0, self.size - position))
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size:
                return data
            parts = [data]
            while data and (size := size - len(data)):
                position += len(data)
                data = os.pread(self._descriptor, size, position)
                parts.append(data)
        except _REFUSALS as error:
            raise storage_error(self.path, error) from error
        return b"".join(parts)

    def read_into(self, position: int, target: memoryview) -> int:
        wanted = len(target)
        done = 0
        try:
            if position < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))  # to preadv, -1 is where the last read ended
            while done < wanted:
                count = os.preadv(self._descriptor, [target[done:] if done else target], position + done)
                if not count:
                    break
                done += count
        except _REFUSALS as error:
            raise storage_error(self.path, error) from error
        return done

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _NO_DESCRIPTOR
        if descriptor != _NO_DESCRIPTOR:
            try:
                os.close(descriptor)
            except OSError as error:
                raise storage_error(self.path, error) from error

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _is_ending():  # else the system closes it, and the names that `close` needs may be gone
            self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class LocalFile(LocalReadFile):
    """A file that is open for reading and writing."""

    __slots__ = ()

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                self._write_rest(position, memoryview(data).cast("B"), written)
        except _REFUSALS as error:
            raise storage_error(self.path, error) from error

    def _write_rest(self, position: int, data: memoryview, written: int) -> None:
        # The system may write less than it is given: at most 2 GiB at once, and what still fits a disk that is filling
        # up. The next call then says why.
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)

    def resize(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except _REFUSALS as error:
            raise storage_error(self.path, error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise storage_error(self.path, error) from error


class LocalFileSystem:
    """The disk of this machine. It has no state, so any number of them are the same."""

    __slots__ = ()

    def list(self, directory: str) -> builtins.list[str]:
        try:
            return sorted(os.listdir(directory))
        except _REFUSALS as error:
            raise storage_error(directory, error) from error

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except _REFUSALS as error:
            if isinstance(error, OSError) and error.errno == errno.ELOOP:
                return None  # a link that leads to itself leads to nothing, as Java sees it too
            raise storage_error(path, error) from error
        is_directory = stat.S_ISDIR(found.st_mode)
        return FileStat(0 if is_directory else found.st_size, found.st_mtime_ns // 1_000_000, is_directory)

    def open(self, path: str) -> ReadFile:
        try:
            file = LocalReadFile(path, _open(path, os.O_RDONLY))
            _ensure_regular(file)
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        return file

    def open_write(self, path: str, *, create: bool = True) -> WriteFile:
        try:
            file = LocalFile(path, _open(path, os.O_RDWR | (os.O_CREAT if create else 0)))
            _ensure_regular(file)
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        return file

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
        except _REFUSALS as error:
            raise storage_error(f"{source} to {target}", error) from error

    def remove(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        return True

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except _REFUSALS as error:
            raise storage_error(path, error) from error

    def remove_directory(self, path: str) -> bool:
        try:
            _remove_tree(path)
        except FileNotFoundError:
            return False
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        return True

    def set_modified(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except _REFUSALS as error:
            raise storage_error(path, error) from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return  # renamed or removed meanwhile, and whoever did that answers for it
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise storage_error(path, error) from error
        finally:
            os.close(descriptor)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        try:
            return lock_path(path, shared=shared)
        except _REFUSALS as error:
            raise storage_error(path, error) from error


def _open(path: str, flags: int) -> int:
    """A descriptor, at once: the opening of a named pipe would wait for whoever opens its other end, and wake him up.

    What is there is looked at first; O_NONBLOCK is for a pipe that comes in between. Somebody who has a lease on a
    regular file is waited for.
    """
    with suppress(FileNotFoundError):  # it may be one to be made
        _ensure_kind(os.stat(path).st_mode)
    try:
        return os.open(path, flags | os.O_NONBLOCK, 0o666)  # Python adds O_CLOEXEC
    except BlockingIOError:
        return os.open(path, flags, 0o666)


def _ensure_regular(file: LocalReadFile) -> None:
    """Refuse what has no bytes at positions: a directory, which can be opened for reading, a pipe, a device."""
    assert file.descriptor is not None
    _ensure_kind(os.fstat(file.descriptor).st_mode)
    os.set_blocking(file.descriptor, True)  # O_NONBLOCK was for the opening; regular files hardly know it


def _ensure_kind(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise ValueError(f"not a regular file but {_KINDS.get(stat.S_IFMT(mode), 'something else')}")


def _remove_tree(path: str) -> None:
    # Names that go while this runs are what was wanted: delayed deletes of segments work in the same directory.
    with os.scandir(path) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    _remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
    os.rmdir(path)
