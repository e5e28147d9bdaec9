"""The `.log` file of a segment: batches back to back, from position 0, nothing else.

With `preallocate` the file is longer than its batches while it is written to; `size` is where the batches end. A file
is opened when somebody first reads or writes it, and may be let go when too many are open (open_files.py).
"""

from collections.abc import Iterator

from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import scan_batches
from tidelog.log.files import FileSystem, WriteFile
from tidelog.log.held_file import HeldFile
from tidelog.log.open_files import OPEN_FILES
from tidelog.records.java import MAX_INT32
from tidelog.records.varint import Buffer

__all__ = ["LogFile"]


class LogFile(HeldFile):
    """A `.log` file and the number of bytes in it that are batches."""

    __slots__ = ("size",)

    def __init__(self, fs: FileSystem, path: str, size: int) -> None:
        super().__init__(fs, path)
        self.size = size  # set after the bytes are written: other threads read up to here

    @classmethod
    def create(cls, fs: FileSystem, path: str, preallocated_size: int = 0) -> "LogFile":
        """Create an empty file, with room for `preallocated_size` bytes."""
        file = fs.open_write(path)
        if preallocated_size:
            file.resize(preallocated_size)
        log = cls(fs, path, 0)
        log._file = file
        OPEN_FILES.opened(log)
        return log

    @classmethod
    def open(cls, fs: FileSystem, path: str) -> "LogFile":
        """A file that exists, all of it batches as far as anybody knows."""
        found = fs.stat(path)
        size = found.size if found else 0
        if size > MAX_INT32:
            raise CorruptionError(f"{path}: {size} bytes, a segment has at most {MAX_INT32}")
        return cls(fs, path, size)

    @property
    def file(self) -> WriteFile:
        """The open file. A reader that comes when the segment is gone gets LogClosedError; it never makes one."""
        file = self._file
        return self._open() if file is None else file

    @property
    def modified_ms(self) -> int:
        """When the file was last written to, by the file system."""
        found = self._fs.stat(self.path)
        return found.modified_ms if found else 0

    def append(self, data: Buffer, file: WriteFile | None = None) -> None:
        """Write after the last batch, in one call. A caller that holds the open file passes it: none is opened then."""
        size = self.size
        end = size + len(data)
        if end > MAX_INT32:
            raise InvalidRequestError(f"{self.path}: {end} bytes, a segment has at most {MAX_INT32}")
        (file or self.file).write_at(size, data)
        self.size = end

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[BatchInfo]:
        """The complete batches from a position on, which must be that of a batch."""
        return scan_batches(self.file, start, self.size if end is None else min(end, self.size))

    def truncate_to(self, size: int) -> int:
        """Cut the batches from `size` on; how many bytes went. What was preallocated goes with them."""
        cut = self.size - size
        if cut < 0:
            raise InvalidRequestError(f"{self.path}: {self.size} bytes cannot be cut to {size}")
        self.size = size
        self.trim()
        return cut

    def trim(self) -> None:
        """Cut the file where its batches end. A file that ends there is not touched."""
        if self.file.size != self.size:
            self.file.resize(self.size)

    def flush(self) -> None:
        """Return when all is on the disk."""
        self.file.sync()

    def close(self) -> None:
        """Trim and close, for good."""
        try:
            if self._file is not None:
                self.trim()
        finally:
            self._let_go()
