"""A file system on which a repair is rehearsed: everything happens in memory, and nothing where it would.

Logs are large. A file that is rewritten from pieces of others remembers which they are instead of their bytes: so
long as it is filled by `copy_range`, a segment of a gigabyte takes no memory.
"""

from collections.abc import Generator
from typing import NamedTuple

from tidelog.errors import CorruptionError, StorageError
from tidelog.log.files import (
    Creation,
    FileLock,
    FileStat,
    FileSystem,
    ReadFile,
    ReadFileSystem,
    WriteFile,
    join,
    opened,
    parent_of,
)
from tidelog.log.local_files import LocalReadFiles
from tidelog.records.varint import Buffer

__all__ = ["CHUNK", "RehearsalFileSystem", "copy_range", "is_local"]

CHUNK = 4 << 20


def is_local(fs: ReadFileSystem) -> bool:
    """Whether paths are those of this machine, even if nothing is written to them."""
    return isinstance(fs.below if isinstance(fs, RehearsalFileSystem) else fs, LocalReadFiles)


def copy_range(source: ReadFile, start: int, size: int, target: WriteFile, at: int) -> None:
    """Copy bytes of one file into another, all of them."""
    if isinstance(target, _RehearsedFile):
        target.refer(source, start, size, at)
        return
    done = 0
    while done < size:
        data = source.read(start + done, min(CHUNK, size - done))
        if not data:
            raise CorruptionError(f"{source.path}: it became shorter while it was copied")
        target.write_at(at + done, data)
        done += len(data)


class _Extent(NamedTuple):
    """Bytes, or where they are."""

    size: int
    data: bytes | None = None  # None, and no path: zeros
    path: str | None = None  # of a file below
    start: int = 0

    def read(self, below: ReadFileSystem, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        if self.path is not None:
            with opened(below.open(self.path)) as file:
                return file.read(self.start + position, size)
        return bytes(size) if self.data is None else self.data[position : position + size]

    def part(self, position: int, size: int) -> "_Extent":
        if self.path is not None:
            return self._replace(size=size, start=self.start + position)
        return _Extent(size, None if self.data is None else self.data[position : position + size])


class _Content:
    """What is in a file, whatever its name is."""

    def __init__(self, below: ReadFileSystem, extents: list[_Extent], modified_ms: int) -> None:
        self._below = below
        self.extents = extents
        self.modified_ms = modified_ms

    @property
    def size(self) -> int:
        return sum(extent.size for extent in self.extents)

    def read(self, position: int, size: int) -> bytes:
        found = []
        for extent in self.extents:
            if position < extent.size and size > 0:
                data = extent.read(self._below, position, size)
                found.append(data)
                size -= len(data)
                position = extent.size
            position -= extent.size
        return b"".join(found)

    def cut(self, start: int, end: int) -> list[_Extent]:
        """The extents of a range."""
        found, at = [], 0
        for extent in self.extents:
            low, high = max(start - at, 0), min(end - at, extent.size)
            if low < high:
                found.append(extent.part(low, high - low))
            at += extent.size
        return found

    def put(self, position: int, extent: _Extent) -> None:
        size = self.size
        hole = [_Extent(position - size)] if position > size else []
        self.extents = [*self.cut(0, position), *hole, extent, *self.cut(position + extent.size, size)]

    def resize(self, size: int) -> None:
        more = size - self.size
        self.extents = [*self.extents, _Extent(more)] if more > 0 else self.cut(0, size)


class RehearsalFileSystem:
    """The files of `below`, which are never written, and over them what was changed."""

    def __init__(self, below: ReadFileSystem) -> None:
        self.below = below
        self._files: dict[str, _Content | None] = {}  # by path; None: there is none any more
        self._directories: dict[str, bool] = {}  # whether there is one: made, or removed

    def list(self, directory: str) -> list[str]:
        directory = directory.rstrip("/") or "/"
        names = set(self.below.list(directory)) if self._is_below(directory) else set()
        for path in (*self._files, *self._directories):
            if parent_of(path) == directory:
                name = path.rpartition("/")[2]
                (names.discard if self.stat(path) is None else names.add)(name)
        return sorted(names)

    def _is_below(self, directory: str) -> bool:
        if not all(self._directories.get(one, True) for one in _with_parents(directory)):
            return False
        return directory not in self._directories or self.below.stat(directory) is not None

    def stat(self, path: str) -> FileStat | None:
        path = path.rstrip("/") or "/"
        if path in self._files:
            content = self._files[path]
            return None if content is None else FileStat(content.size, content.modified_ms)
        if self._directories.get(path):
            return FileStat(0, 0, is_directory=True)
        return self.below.stat(path) if self._is_below(path) else None

    def open(self, path: str) -> ReadFile:
        return self.below.open(path) if path not in self._files else self.open_write(path, create=False)

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        if create == "new" and self.stat(path) is not None:
            raise StorageError(f"{path}: File exists")
        return _RehearsedFile(path, self._content(path, create=bool(create)))

    def _content(self, path: str, *, create: bool = False) -> _Content:
        content = self._files.get(path)
        if content is None:
            found = self.stat(path)
            if found is None and not create:
                raise StorageError(f"{path}: No such file or directory")
            if found is not None and found.is_directory:
                raise StorageError(f"{path}: Is a directory")
            extents = [] if found is None else [_Extent(found.size, path=path)]
            content = _Content(self.below, extents, 0 if found is None else found.modified_ms)
            self._files[path] = content
        return content

    def rename(self, source: str, target: str) -> None:
        self._files[target] = self._content(source)
        self._files[source] = None

    def remove(self, path: str) -> bool:
        was_there = self.stat(path) is not None
        self._files[path] = None
        return was_there

    def make_directory(self, path: str) -> None:
        for one in _with_parents(path):
            if self.stat(one) is None:
                self._directories[one] = True

    def remove_directory(self, path: str) -> bool:
        was_there = self.stat(path) is not None
        for name in self.list(path) if was_there else ():
            found = self.stat(join(path, name))
            (self.remove_directory if found is not None and found.is_directory else self.remove)(join(path, name))
        self._directories[path] = False
        return was_there

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        yield
        return self.remove_directory(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._content(path).modified_ms = modified_ms

    def sync_directory(self, path: str) -> None:
        """Nothing reaches a disk."""

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        """Nothing is written, so nobody need be kept out."""
        return _NoLock()


def _with_parents(path: str) -> list[str]:
    path = path.rstrip("/") or "/"
    return [path] if parent_of(path) == path else [*_with_parents(parent_of(path)), path]


class _RehearsedFile:
    """An open file."""

    descriptor = None

    def __init__(self, path: str, content: _Content) -> None:
        self.path = path
        self.content = content

    @property
    def size(self) -> int:
        return self.content.size

    def read(self, position: int, size: int) -> bytes:
        return self.content.read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        data = self.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        if len(data):  # as on a disk, nothing reaches nowhere
            self.content.put(position, _Extent(len(data), bytes(data)))

    def refer(self, source: ReadFile, start: int, size: int, at: int) -> None:
        """Take bytes of another file, as they are now, without reading them."""
        if isinstance(source, _RehearsedFile):
            for extent in source.content.cut(start, start + size):
                self.content.put(at, extent)
                at += extent.size
        elif size:
            self.content.put(at, _Extent(size, path=source.path, start=start))

    def resize(self, size: int) -> None:
        self.content.resize(size)

    def sync(self) -> None:
        """Nothing reaches a disk."""

    def close(self) -> None:
        """Whatever refers to it goes on reading."""


class _NoLock:
    def release(self) -> None:
        """Nothing is held."""


def _is_a_file_system(fs: RehearsalFileSystem) -> FileSystem:  # for the type checker
    return fs
