"""The local disk, behind the protocols of `files`.

Files are plain descriptors, read with `pread` and written with `pwrite`: no position to share between threads, no
buffer of Python's in between, nothing mapped. Only regular files are opened: a pipe or a device under the name of a
segment is refused, and nobody waits for it. What the system refuses becomes a StorageError that names the path, with
the system's own error as its cause.

Nothing is written through a symbolic link. A link in the place of a file can be read, as Kafka reads it; it can be
renamed, replaced and removed, and what it points to stays as it is. `guarded_paths` has the rules for links on the way
to a file. `LocalReadFiles` is the readable half, for those who never write: it follows every link.

A descriptor is closed by `close`, or with the last reference to its file. The number of a closed descriptor is given
to the next file that is opened, so `close` is for a file that nobody else can be reading; who has handed a file to
others (a region that is being sent, say) drops the reference instead.
"""

import builtins
import errno
import os
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import suppress

from tidelog.errors import StorageError, TooManyFilesError
from tidelog.log.file_sizes import check_size
from tidelog.log.files import Creation, FileLock, FileStat, FileSystem, ReadFile, WriteFile
from tidelog.log.guarded_paths import ensure_not_shared, is_guarded, parent_directory, resolved_file, set_owner
from tidelog.log.locks import lock_path
from tidelog.log.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from tidelog.records.varint import Buffer

__all__ = [
    "DISK_FULL",
    "FULL",
    "LocalFile",
    "LocalFileSystem",
    "LocalReadFile",
    "LocalReadFiles",
    "ensure_plain_files",
    "leads_nowhere",
    "own_as",
    "storage_error",
]

FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL = "the disk is full"

# Beside OSError: a path with a zero character or a lone surrogate is a ValueError, a position above 2^63 an
# OverflowError. All three mean that the system cannot do it.
_REFUSALS = (OSError, ValueError, OverflowError)

_NO_DESCRIPTOR = (1 << 31) - 1  # no open file has it, and unlike -1 every call says so in the same words
_SURE_SIZE = 1 << 20  # reads up to here are not compared with the size of the file first
_MOST_NESTED = 64  # directories inside each other that are removed; a log has none
_LINKED = "a symbolic link, and nothing is written through links: replace it by the file that it points to"
_LOG_FILES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def storage_error(path: str, error: Exception) -> StorageError:
    """What the system said about a path, as the engine's error. Raise it `from` the system's.

    >>> storage_error("/a/b", FileNotFoundError(2, "No such file or directory"))
    StorageError('/a/b: No such file or directory')
    """
    if isinstance(error, OSError) and error.errno in FULL:
        return StorageError(f"{path}: {DISK_FULL}")
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


class LinkedFile(LocalReadFile):
    """What a symbolic link leads to, open for reading. A change is refused: it would be made elsewhere."""

    __slots__ = ()

    def write_at(self, position: int, data: Buffer) -> None:
        raise StorageError(f"{self.path}: {_LINKED}")

    def resize(self, size: int) -> None:
        raise StorageError(f"{self.path}: {_LINKED}")

    def sync(self) -> None:
        """Nothing was written to it."""


class LocalReadFiles:
    """The disk of this machine, to be read. It has no state, so any number of them are the same."""

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


class LocalFileSystem(LocalReadFiles):
    """The disk of this machine, to be read and written."""

    __slots__ = ()

    def open(self, path: str) -> ReadFile:
        """Open an existing file for reading. Root reads through no link of another user: it may write what it reads.

        Nor does it read a hard link to another user's file.
        """
        return super().open(path) if not is_guarded() else self._open_link(path, LocalReadFile)

    def _open_link(self, path: str, kind: type[LocalReadFile]) -> LocalReadFile:
        """Open what may be a link for reading; the file goes by the name that it was asked for by."""
        try:
            try:
                return _opened_itself(path, path, kind)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                return _opened_itself(resolved_file(path), path, kind)
        except _REFUSALS as error:
            raise storage_error(path, error) from error

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0) | (os.O_EXCL if create == "new" else 0)
        try:
            with parent_directory(path) as (name, directory):
                try:
                    file = LocalFile(path, _open(name, flags, directory))
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                else:
                    _ensure_regular(file, directory)
                    return file
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        if create:
            raise StorageError(f"{path}: {_LINKED}")
        linked = self._open_link(path, LinkedFile)
        assert isinstance(linked, LinkedFile)
        return linked

    def rename(self, source: str, target: str) -> None:
        try:
            with parent_directory(source) as (name, directory), parent_directory(target) as (new_name, new_directory):
                os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=new_directory)
        except _REFUSALS as error:
            raise storage_error(f"{source} to {target}", error) from error

    def remove(self, path: str) -> bool:
        try:
            with parent_directory(path) as (name, directory):
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return False
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        return True

    def make_directory(self, path: str) -> None:
        try:
            _make_directories(path)
        except _REFUSALS as error:
            raise storage_error(path, error) from error

    def remove_directory(self, path: str) -> bool:
        steps = self.remove_in_steps(path)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        try:
            with parent_directory(path) as (name, directory):
                yield from _remove_tree(name, directory, 1)
        except FileNotFoundError:
            return False
        except _REFUSALS as error:
            raise storage_error(path, error) from error
        return True

    def set_modified(self, path: str, modified_ms: int) -> None:
        try:
            with parent_directory(path) as (name, directory):
                times = modified_ms * 1_000_000, modified_ms * 1_000_000
                os.utime(name, ns=times, dir_fd=directory, follow_symlinks=False)
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


def ensure_plain_files(fs: FileSystem, directory: str) -> None:
    """Raise StorageError if a file of the log in a partition directory is a link, a pipe, a device, or far too large.

    For a command that would otherwise find out when half of its change is made. Elsewhere than on the local disk there
    is nothing of the kind.
    """
    if not isinstance(fs, LocalFileSystem):
        return
    path = directory
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(_LOG_FILES):
                    path = entry.path
                    found = entry.stat(follow_symlinks=False)
                    _ensure_kind(found.st_mode)
                    check_size(path, found.st_size)
    except _REFUSALS as error:
        raise storage_error(path, error) from error


def leads_nowhere(path: str) -> bool:
    """Whether a path of this machine is a symbolic link to nothing, which `stat` takes for nothing at all."""
    return os.path.islink(path) and not os.path.exists(path)


def own_as(path: str, model: os.stat_result, mode: int) -> None:
    """Give a file or directory the owner of another one, as far as the system allows it, and a mode.

    A broker must be able to open what root has written. A link is left as it is, and so is what it points to.
    """
    try:
        set_owner(path, model.st_uid, model.st_gid, mode)
    except _REFUSALS as error:
        raise storage_error(path, error) from error


def _open(name: str, flags: int, directory: int | None = None) -> int:
    """A descriptor, at once: the opening of a named pipe would wait for whoever opens its other end, and wake him up.

    What is there is looked at first; O_NONBLOCK is for a pipe that comes in between. Somebody who has a lease on a
    regular file is waited for.
    """
    with suppress(FileNotFoundError):  # it may be one to be made
        mode = os.stat(name, dir_fd=directory, follow_symlinks=not flags & os.O_NOFOLLOW).st_mode
        if not stat.S_ISLNK(mode):  # which the opening refuses in the system's words
            _ensure_kind(mode)
    try:
        return os.open(name, flags | os.O_NONBLOCK, 0o666, dir_fd=directory)  # Python adds O_CLOEXEC
    except BlockingIOError:
        return os.open(name, flags, 0o666, dir_fd=directory)


def _opened_itself(path: str, name: str, kind: type[LocalReadFile]) -> LocalReadFile:
    """The file at a path that is no link, open for reading, under the name that it was asked for by."""
    with parent_directory(path) as (last, directory):
        file = kind(name, _open(last, os.O_RDONLY | os.O_NOFOLLOW, directory))
        _ensure_regular(file, directory)
        return file


def _ensure_regular(file: LocalReadFile, directory: int | None = None) -> None:
    """Refuse what has no bytes at positions: a directory, which can be opened for reading, a pipe, a device.

    And, for root, a file in `directory` that may be another user's under a second name.
    """
    assert file.descriptor is not None
    found = os.fstat(file.descriptor)
    _ensure_kind(found.st_mode)
    ensure_not_shared(found, directory)
    os.set_blocking(file.descriptor, True)  # O_NONBLOCK was for the opening; regular files hardly know it


def _ensure_kind(mode: int) -> None:
    """Raise OSError or ValueError for a mode that is not that of a regular file."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise ValueError(_LINKED)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise ValueError(f"not a regular file but {_KINDS.get(stat.S_IFMT(mode), 'something else')}")


def _make_directories(path: str) -> None:
    """As `os.makedirs`, where each is made in a directory that is open."""
    missing: list[str] = []
    while True:
        try:
            _make_one_directory(path)
            break
        except FileNotFoundError:
            above = os.path.dirname(path.rstrip("/"))
            if not above or above == path:
                raise
            missing.append(path)
            path = above
    while missing:
        _make_one_directory(missing.pop())


def _make_one_directory(path: str) -> None:
    try:
        with parent_directory(path) as (name, directory):
            os.mkdir(name, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError:
        if not os.path.isdir(path):  # Linux looks at the rights before it looks whether there is one
            raise


def _remove_tree(name: str, directory: int | None, depth: int) -> Generator[None, None, None]:
    """Remove what has a name, a file after each step. A link goes and what it points to stays.

    Whatever happens to the names meanwhile, only what was in the directory that was opened is removed. Names that go
    while this runs are what was wanted: delayed deletes of segments work in the same directory.
    """
    if depth > _MOST_NESTED:
        raise ValueError(f"directories are nested deeper than {_MOST_NESTED} levels in it: remove them by hand")
    if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=directory)
        return
    inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        with os.scandir(inside) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_directory in found:
            with suppress(FileNotFoundError):
                if is_directory:
                    yield from _remove_tree(child, inside, depth + 1)
                else:
                    os.unlink(child, dir_fd=inside)
            yield
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=directory)
