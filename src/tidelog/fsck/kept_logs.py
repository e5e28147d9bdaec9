"""A file system on which no `.log` file can lose a byte, and no other file goes unnoticed.

Indexes and snapshots are rebuilt by loading a log the way a broker does after a crash, and such a start cuts what it
does not like. After a repair there is nothing to cut; should there be, it ends here and the bytes stay. Snapshots that
it removes, and checkpoints that it replaces, are kept first. Indexes that are sound are spared: what it writes to them
stays in memory.
"""

from collections.abc import Callable, Collection, Generator

from tidelog.errors import StorageError
from tidelog.log.files import Creation, FileLock, FileStat, FileSystem, ReadFile, WriteFile
from tidelog.log.names import LOG_SUFFIX, PARTITION_METADATA
from tidelog.log.overlay_files import OverlayFileSystem
from tidelog.records.varint import Buffer

__all__ = ["KeptLogs"]


class KeptLogs:
    """The files of `below`; logs cannot be cut, renamed or removed, and the topic id is nobody's business.

    Files that are `spared` can be changed in memory only.
    """

    def __init__(self, below: FileSystem, keep: Callable[[str], None], spared: Collection[str] = ()) -> None:
        self._below = below
        self._keep = keep  # is given the path of a file that is about to go
        self._spared = frozenset(spared)
        self._view = OverlayFileSystem(below)  # holds what became of those that are spared
        self._ours: set[str] = set()  # what was not there before

    def list(self, directory: str) -> "list[str]":
        return self._view.list(directory)

    def stat(self, path: str) -> FileStat | None:
        return None if path.endswith(f"/{PARTITION_METADATA}") else self._view.stat(path)

    def open(self, path: str) -> ReadFile:
        return self._view.open(path)

    def hide(self, path: str) -> None:
        """Let a file that is spared seem not to be there; another one is not touched."""
        if self._is_spared(path):
            self._view.remove(path)

    def _is_spared(self, path: str) -> bool:
        """Whether a path is that of a file that is spared, or of one that is on its way to or from its place."""
        directory, _, name = path.rpartition("/")
        return f"{directory}/{'.'.join(name.split('.')[:2])}" in self._spared

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        if self._is_spared(path):
            return self._view.open_write(path, create=create)
        if create and self._below.stat(path) is None:
            self._ours.add(path)
        file = self._below.open_write(path, create=create)
        return _KeptFile(file) if path.endswith(LOG_SUFFIX) else file

    def rename(self, source: str, target: str) -> None:
        _ensure_no_log(source, "be renamed")
        if self._is_spared(source):
            self._view.rename(source, target)
            return
        self._let_go(target)
        if source in self._ours:
            self._ours.add(target)
        self._below.rename(source, target)

    def remove(self, path: str) -> bool:
        _ensure_no_log(path, "be removed")
        if self._is_spared(path):
            return self._view.remove(path)
        self._let_go(path)
        return self._below.remove(path)

    def _let_go(self, path: str) -> None:
        if path not in self._ours and self._below.stat(path) is not None:
            self._keep(path)

    def make_directory(self, path: str) -> None:
        self._below.make_directory(path)

    def remove_directory(self, path: str) -> bool:
        raise StorageError(f"{path}: a repair removes no directory")

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        yield
        return self.remove_directory(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        (self._view if self._is_spared(path) else self._below).set_modified(path, modified_ms)

    def sync_directory(self, path: str) -> None:
        self._below.sync_directory(path)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        return self._below.lock(path, shared=shared)


def _ensure_no_log(path: str, deed: str) -> None:
    if path.endswith(LOG_SUFFIX):
        raise StorageError(f"{path}: recovery would have it {deed}, though it was found sound")


class _KeptFile:
    """A log that is open."""

    def __init__(self, below: WriteFile) -> None:
        self.path = below.path
        self._below = below

    @property
    def size(self) -> int:
        return self._below.size

    @property
    def descriptor(self) -> int | None:
        return self._below.descriptor

    def read(self, position: int, size: int) -> bytes:
        return self._below.read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        return self._below.read_into(position, target)

    def write_at(self, position: int, data: Buffer) -> None:
        raise StorageError(f"{self.path}: recovery would write to it")

    def resize(self, size: int) -> None:
        if size < self._below.size:
            raise StorageError(f"{self.path}: recovery would cut it to {size} bytes, though it was found sound")

    def sync(self) -> None:
        self._below.sync()

    def close(self) -> None:
        self._below.close()


def _is_a_file_system(fs: KeptLogs) -> FileSystem:  # for the type checker
    return fs
