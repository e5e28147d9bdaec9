"""Files whose reads are counted, so that an explanation can say what a lookup cost."""

from typing import NamedTuple

from tidelog.log.files import FileStat, ReadFile
from tidelog.view.files import ViewFiles

__all__ = ["CountedFiles", "Reads"]


class Reads(NamedTuple):
    """What was read of a file."""

    calls: int
    bytes: int


class CountedFiles:
    """Other files, and how much was read of each. `reads` may be emptied."""

    def __init__(self, files: ViewFiles, reads: dict[str, Reads] | None = None) -> None:
        self._files = files
        self.reads: dict[str, Reads] = {} if reads is None else reads  # by path

    @property
    def is_remote(self) -> bool:
        """Whether the others are."""
        return self._files.is_remote

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return self._files.list(directory)

    def stat(self, path: str) -> FileStat | None:
        """Size and time of a file, or that it is a directory; None if there is nothing."""
        return self._files.stat(path)

    def open(self, path: str) -> ReadFile:
        """Open an existing file for reading."""
        return _CountedFile(self._files.open(path), self.reads)

    def is_still(self, file: ReadFile) -> bool:
        """Whether the path of an open file still names this very file."""
        return self._files.is_still(file)

    def fresh(self) -> "CountedFiles":
        """The same files, with nothing remembered of them, counted together with these."""
        return CountedFiles(self._files.fresh(), self.reads)


class _CountedFile:
    def __init__(self, file: ReadFile, reads: dict[str, Reads]) -> None:
        self.path = file.path
        self._file = file
        self._reads = reads

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def descriptor(self) -> int | None:
        return self._file.descriptor

    def read(self, position: int, size: int) -> bytes:
        data = self._file.read(position, size)
        self._count(len(data))
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        count = self._file.read_into(position, target)
        self._count(count)
        return count

    def close(self) -> None:
        self._file.close()

    def _count(self, size: int) -> None:
        calls, total = self._reads.get(self.path, Reads(0, 0))
        self._reads[self.path] = Reads(calls + 1, total + size)
