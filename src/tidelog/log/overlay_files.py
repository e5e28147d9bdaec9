"""A file system over another one that is only read: what is written stays in memory, and is forgotten.

For trying something out on real directories (what would this do?) without touching them. A file is copied into memory
when it is first written to, so this is for small files: indexes, checkpoints, snapshots. A log is only read.
"""

from collections.abc import Generator

from tidelog.errors import StorageError
from tidelog.log.files import Creation, FileStat, FileSystem, ReadFile, ReadFileSystem, WriteFile, parent_of, read_whole
from tidelog.records.varint import Buffer

__all__ = ["OverlayFileSystem"]


class OverlayFileSystem:
    """The files of `below`, and over them what was changed."""

    def __init__(self, below: ReadFileSystem) -> None:
        self._below = below
        self._files: dict[str, _Content | None] = {}  # by path; None: there is none any more
        self._directories: set[str] = set()

    def list(self, directory: str) -> list[str]:
        directory = directory.rstrip("/")
        names = set(self._below.list(directory)) if self._below.stat(directory) is not None else set()
        for path, file in self._files.items():
            if parent_of(path) == directory:
                (names.discard if file is None else names.add)(path.rpartition("/")[2])
        names.update(path.rpartition("/")[2] for path in self._directories if parent_of(path) == directory)
        return sorted(names)

    def stat(self, path: str) -> FileStat | None:
        if path in self._directories:
            return FileStat(0, 0, is_directory=True)
        if path not in self._files:
            return self._below.stat(path)
        file = self._files[path]
        return None if file is None else FileStat(file.size, file.modified_ms)

    def open(self, path: str) -> ReadFile:
        if path not in self._files:
            return self._below.open(path)
        return self.open_write(path, create=False)

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        if create == "new" and self.stat(path) is not None:
            raise StorageError(f"{path}: File exists")
        return _OverlayFile(path, self._content(path, create=bool(create)))

    def _content(self, path: str, *, create: bool) -> "_Content":
        content = self._files.get(path)
        if content is None:
            found = None if path in self._files else self._below.stat(path)
            if found is None and not create:
                raise StorageError(f"{path}: No such file or directory")
            content = self._files[path] = _Content(self._below, path, found)
        return content

    def rename(self, source: str, target: str) -> None:
        found = self.stat(source)
        if found is None or found.is_directory:
            raise StorageError(f"{source}: cannot be renamed to {target} in memory")
        self._files[target] = self._content(source, create=False)
        self._files[source] = None

    def remove(self, path: str) -> bool:
        was_there = self.stat(path) is not None
        self._files[path] = None
        return was_there

    def make_directory(self, path: str) -> None:
        if self.stat(path) is None:
            self._directories.add(path.rstrip("/"))

    def remove_directory(self, path: str) -> bool:
        raise StorageError(f"{path}: a directory cannot be removed in memory")

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        yield
        return self.remove_directory(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._content(path, create=False).modified_ms = modified_ms

    def sync_directory(self, path: str) -> None:
        """Nothing reaches a disk."""

    def lock(self, path: str, *, shared: bool = False) -> "_NoLock":
        """Nothing is written, so nobody need be kept out."""
        return _NoLock()


class _Content:
    """What is in a file, under whatever name: bytes of our own, or those of a file below."""

    def __init__(self, below: ReadFileSystem, path: str, found: FileStat | None) -> None:
        self.modified_ms = 0 if found is None else found.modified_ms
        self.data: bytearray | None = bytearray() if found is None else None
        self._below = below
        self._path_below = path
        self._size_below = 0 if found is None else found.size

    @property
    def size(self) -> int:
        return self._size_below if self.data is None else len(self.data)

    def open_below(self) -> ReadFile:
        return self._below.open(self._path_below)

    def own(self) -> bytearray:
        if self.data is None:
            self.data = bytearray(read_whole(self._below, self._path_below))
        return self.data


class _OverlayFile:
    """An open file. The descriptor below goes with the last reference to this object."""

    descriptor = None

    def __init__(self, path: str, content: _Content) -> None:
        self.path = path
        self._content = content
        self._below: ReadFile | None = None

    @property
    def size(self) -> int:
        return self._content.size

    def read(self, position: int, size: int) -> bytes:
        if self._content.data is not None:
            return bytes(self._content.data[position : position + size])
        if self._below is None:
            self._below = self._content.open_below()
        return self._below.read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        data = self.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        if not len(data):
            return  # as on a disk, nothing reaches nowhere
        own = self._content.own()
        if position > len(own):
            own.extend(bytes(position - len(own)))
        own[position : position + len(data)] = data

    def resize(self, size: int) -> None:
        own = self._content.own()
        if size < len(own):
            del own[size:]
        else:
            own.extend(bytes(size - len(own)))

    def sync(self) -> None:
        """Nothing reaches a disk."""

    def close(self) -> None:
        self._below = None


class _NoLock:
    def release(self) -> None:
        """Nothing is held."""


def _is_a_file_system(fs: OverlayFileSystem) -> FileSystem:  # for the type checker
    return fs
