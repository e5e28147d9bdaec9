"""The file systems the engine stands on, as two protocols.

`ReadFileSystem` is what a read-only look needs: the local disk, an object store and the simulator all have it.
`FileSystem` adds what a writer needs. Files are read and written at positions; nothing is mapped into memory, because
a store into a mapped page on a full disk, or a load from a file that was cut, kills a Python process, where a refused
`pwrite` is an error that takes one directory offline.

Every method raises StorageError and nothing else, whatever the system below says.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, Protocol

from tidelog.errors import InvalidRequestError, LogClosedError, StorageError, TooManyFilesError
from tidelog.log.file_sizes import check_size
from tidelog.records.varint import Buffer

__all__ = [
    "Creation",
    "FileLock",
    "FileStat",
    "FileSystem",
    "ReadFile",
    "ReadFileSystem",
    "WriteFile",
    "create_anew",
    "ensure_named",
    "fail_midway",
    "join",
    "make_lasting_directory",
    "no_turning_back",
    "parent_of",
    "write_atomically",
]


# Whether opening a file for writing creates it: not at all, where it is missing, or as a new file, which is an error
# where the name is taken.
Creation = bool | Literal["new"]


class FileStat(NamedTuple):
    """What a directory knows about an entry."""

    size: int
    modified_ms: int
    is_directory: bool = False


class ReadFile(Protocol):
    """An open file, read at positions. It stays readable when its name is changed or removed.

    The descriptor is given back by `close`, or when the last reference to the file goes.
    """

    path: str  # for messages; whoever renames an open file sets it

    @property
    def size(self) -> int:
        """Bytes in the file now."""

    @property
    def descriptor(self) -> int | None:
        """For sendfile; None where there is none."""

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only where the file ends."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position`; how many bytes were there."""

    def close(self) -> None:
        """Give the descriptor back. Closing twice is harmless."""


class WriteFile(ReadFile, Protocol):
    """An open file, written at positions too."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`. Bytes between the end and `position` become zero."""

    def resize(self, size: int) -> None:
        """Cut the file, or extend it by zeros."""

    def sync(self) -> None:
        """Return when data and size of the file are on the disk."""


class FileLock(Protocol):
    """A lock that is held until it is released."""

    def release(self) -> None:
        """Let others in. Releasing twice is harmless."""


class ReadFileSystem(Protocol):
    """Files by path, with `/` between the parts."""

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""

    def stat(self, path: str) -> FileStat | None:
        """Size and time of a file, or that it is a directory; None if there is nothing."""

    def open(self, path: str) -> ReadFile:
        """Open an existing file for reading."""


class FileSystem(ReadFileSystem, Protocol):
    """A file system that can be written to."""

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        """Open a file for reading and writing, without truncating it. Nothing is written through a symbolic link."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name in one step; a file of that name is replaced."""

    def remove(self, path: str) -> bool:
        """Remove a file; whether there was one."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; harmless if it is there."""

    def remove_directory(self, path: str) -> bool:
        """Remove a directory and all that is in it; whether there was one. Of a symbolic link, the link alone goes."""

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        """The same, one file after each step: a file system takes its time to let go of a gigabyte."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of last modification."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the disk. Harmless if the directory is gone."""

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        """Lock a file (created if missing) or a directory against every other process and every other caller.

        With `shared`, callers of this process who all say so have it together. Raises LockedError when somebody has it.
        """


def join(directory: str, name: str) -> str:
    """The path of a name in a directory."""
    return f"{directory.rstrip('/')}/{name}"


def ensure_named(path: str) -> str:
    """A path that is not empty: a variable that was never set must not mean this directory, or all of a disk."""
    if not path:
        raise InvalidRequestError("the name of a directory is empty: name a log directory, or . for this one")
    return path


def parent_of(path: str) -> str:
    """The directory that a path lies in."""
    return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def make_lasting_directory(fs: FileSystem, path: str) -> None:
    """Create a directory and its parents, and return when the names of all that were new are on the disk."""
    known = path  # the nearest directory above that is there
    while known not in ("/", ".") and fs.stat(known) is None:
        known = parent_of(known)
    fs.make_directory(path)
    while path != known:
        path = parent_of(path)
        fs.sync_directory(path)


def fail_midway(error: BaseException, fail: Callable[[BaseException], object]) -> None:
    """Tell `fail` of an error in the middle of a change, which the caller then raises.

    Memory and files may differ from here on, and a retry would build on that. So an error that otherwise says "try
    again" (no descriptor left, a file that is gone) is raised here, as a plain StorageError.
    """
    if isinstance(error, TooManyFilesError | LogClosedError):
        failure = StorageError(f"{error}, in the middle of a change")
        fail(failure)
        raise failure from error
    fail(error)


@contextmanager
def no_turning_back(fail: Callable[[BaseException], object] = lambda error: None) -> Iterator[None]:
    """Tell `fail` of whatever goes wrong inside, KeyboardInterrupt too: half of a change is made already."""
    try:
        yield
    except BaseException as error:
        fail_midway(error, fail)
        raise


@contextmanager
def opened(file: ReadFile) -> Iterator[ReadFile]:
    """Close `file` when the block ends."""
    try:
        yield file
    finally:
        file.close()


def read_whole(fs: ReadFileSystem, path: str) -> bytes:
    """All bytes of a small file. Raises StorageError for one that is larger than its kind can be (`file_sizes`)."""
    with opened(fs.open(path)) as file:
        size = file.size
        check_size(path, size)
        return file.read(0, size)


def open_existing(fs: FileSystem, path: str) -> WriteFile:
    """Open a file that was there when it was last looked at; LogClosedError if it is gone with its log.

    Renaming a directory for deletion, and deleting a segment, happen beside readers. That is no failure of the disk.
    """
    try:
        return fs.open_write(path, create=False)
    except StorageError as error:
        if fs.stat(path) is None:
            raise LogClosedError(f"{path} is gone") from error
        raise


def create_anew(fs: FileSystem, path: str) -> WriteFile:
    """Create a file that nobody else has a hand in. What a crash left under its name, or a planted link, is removed."""
    fs.remove(path)
    return fs.open_write(path, create="new")


def write_atomically(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace a small file so that a crash leaves the old content or the new, as Kafka writes checkpoints.

    Write beside it, sync, rename over it, sync the directory.
    """
    check_size(path, len(data))
    beside = f"{path}.tmp"
    file = create_anew(fs, beside)
    try:
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    fs.rename(beside, path)
    fs.sync_directory(parent_of(path))
