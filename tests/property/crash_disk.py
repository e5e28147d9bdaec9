"""A simulated disk with somebody who watches: the hook by which a crash campaign cuts at every call."""

from collections.abc import Callable, Generator

from tidelog.log.files import Creation, FileLock, FileStat, ReadFile, WriteFile
from tidelog.records.varint import Buffer
from tidelog.testing.disk import SimulatedFileSystem


class WatchedDisk:
    """A simulated disk that calls back behind every call that changed something."""

    def __init__(self, disk: SimulatedFileSystem, on_change: Callable[[], None]) -> None:
        self.disk = disk
        self._on_change = on_change
        self._calls = disk.calls

    def look(self) -> None:
        """Call back if something has changed."""
        if self.disk.calls != self._calls:
            self._calls = self.disk.calls
            self._on_change()

    def list(self, directory: str) -> list[str]:
        return self.disk.list(directory)

    def stat(self, path: str) -> FileStat | None:
        return self.disk.stat(path)

    def open(self, path: str) -> ReadFile:
        return self.disk.open(path)

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        file = WatchedFile(self.disk.open_write(path, create=create), self)
        self.look()
        return file

    def rename(self, source: str, target: str) -> None:
        self.disk.rename(source, target)
        self.look()

    def remove(self, path: str) -> bool:
        is_removed = self.disk.remove(path)
        self.look()
        return is_removed

    def make_directory(self, path: str) -> None:
        self.disk.make_directory(path)
        self.look()

    def remove_directory(self, path: str) -> bool:
        is_removed = self.disk.remove_directory(path)
        self.look()
        return is_removed

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        is_removed = yield from self.disk.remove_in_steps(path)
        self.look()
        return is_removed

    def set_modified(self, path: str, modified_ms: int) -> None:
        self.disk.set_modified(path, modified_ms)
        self.look()

    def sync_directory(self, path: str) -> None:
        self.disk.sync_directory(path)
        self.look()

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        return self.disk.lock(path, shared=shared)


class WatchedFile:
    """A file of a watched disk."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, file: WriteFile, disk: WatchedDisk) -> None:
        self.path = file.path
        self._file = file
        self._disk = disk

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def descriptor(self) -> int | None:
        return None

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        return self._file.read_into(position, target)

    def close(self) -> None:
        self._file.close()

    def write_at(self, position: int, data: Buffer) -> None:
        self._file.write_at(position, data)
        self._disk.look()

    def resize(self, size: int) -> None:
        self._file.resize(size)
        self._disk.look()

    def sync(self) -> None:
        self._file.sync()
        self._disk.look()
