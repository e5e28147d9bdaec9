"""A file system that records which files were changed through it, so that a repair reports every one of them.

A repair makes all of its changes through a RecordedFiles. Loading a log, which rebuilds indexes and producer snapshots,
and finishing an interrupted compaction decide for themselves which files they write. Those are found here, and every
changed file that the plan did not name gets a line of its own.
"""

from collections.abc import Collection, Generator, Iterator
from hashlib import sha256

from tidelog.log.files import Creation, FileLock, FileStat, FileSystem, ReadFile, WriteFile, join, opened
from tidelog.log.names import LOG_SUFFIX

__all__ = ["RecordedFiles"]

_CHUNK = 1 << 20


class RecordedFiles:
    """The files of `below`. Call `forget` at the beginning of a round, and `lines` at its end."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self._before: dict[str, str | None] = {}  # by changed path: its content before, None if it did not exist

    def forget(self) -> None:
        """Record only the changes from now on."""
        self._before = {}

    def lines(self, named: Collection[str]) -> Iterator[str]:
        """A line for every file that has changed, except those that are `named` already."""
        for path in sorted(self._before.keys() - set(named)):
            before, now = self._before[path], self._content(path)
            if before != now:
                change = "removed" if now is None else "created" if before is None else "rewritten"
                yield f"{path}: {change}, as by a broker that starts after a crash"

    def _touch(self, path: str) -> None:
        if path not in self._before:
            self._before[path] = self._content(path)

    def _content(self, path: str) -> str | None:
        """A digest of the content of a path. For a log the size is enough: no byte in the middle is overwritten."""
        stat = self._below.stat(path)
        if stat is None:
            return None
        if stat.is_directory or path.endswith(LOG_SUFFIX):
            return str(stat.size)
        digest, position = sha256(), 0
        with opened(self._below.open(path)) as file:
            while data := file.read(position, _CHUNK):
                digest.update(data)
                position += len(data)
        return digest.hexdigest()

    # -- the file system -----------------------------------------------------------------------------------------

    def list(self, directory: str) -> "list[str]":
        return self._below.list(directory)

    def stat(self, path: str) -> FileStat | None:
        return self._below.stat(path)

    def open(self, path: str) -> ReadFile:
        return self._below.open(path)

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        self._touch(path)
        return self._below.open_write(path, create=create)

    def rename(self, source: str, target: str) -> None:
        self._touch(source)
        self._touch(target)
        self._below.rename(source, target)

    def remove(self, path: str) -> bool:
        self._touch(path)
        return self._below.remove(path)

    def make_directory(self, path: str) -> None:
        self._touch(path)
        self._below.make_directory(path)

    def remove_directory(self, path: str) -> bool:
        for name in self._below.list(path) if self._below.stat(path) is not None else ():
            self._touch(join(path, name))
        self._touch(path)
        return self._below.remove_directory(path)

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        yield
        return self.remove_directory(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._below.set_modified(path, modified_ms)

    def sync_directory(self, path: str) -> None:
        self._below.sync_directory(path)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        return self._below.lock(path, shared=shared)


def _is_a_file_system(fs: RecordedFiles) -> FileSystem:  # for the type checker
    return fs
