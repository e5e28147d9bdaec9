"""A log file as a sequence of chunks of whole batches.

Files are read by position into one buffer that is used again and again, not mapped: a mapped file that is truncated
under the reader kills the process, and the copy costs nothing beside the walk. Whatever can read at a position will
do as a source, so a file in an object store is read the same way.
"""

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tidelog.errors import StorageError
from tidelog.kernels.headers import DEFAULT_WINDOW_SIZE, HeaderScan, StopReason, ensure_not_corrupt, scan_headers
from tidelog.kernels.memory import SLACK

__all__ = ["DEFAULT_CHUNK_SIZE", "Chunk", "FileSource", "Source", "read_chunks"]

DEFAULT_CHUNK_SIZE = DEFAULT_WINDOW_SIZE
_SMALLEST_CHUNK = 64  # holds the length field of any batch


class Source(Protocol):
    """Bytes that can be read at any position."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position`; how many bytes were there."""


class FileSource:
    """A file of the local disk, its size as it was when it was opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a pipe
        except OSError as error:
            raise StorageError(f"{os.fspath(path)}: {error.strerror}") from error
        self.path = os.fspath(path)
        status = os.fstat(self._descriptor)
        if stat.S_ISDIR(status.st_mode):
            self.close()
            raise StorageError(f"{self.path}: a directory; name one of the .log files in it")
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise StorageError(f"{self.path}: a pipe, a device or a socket; name a regular file")
        self.size = status.st_size

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position`; how many bytes were there."""
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self._descriptor, [target[done:]], position + done)
            except OSError as error:
                raise StorageError(f"{self.path}, position {position + done}: {error.strerror}") from error
            if not count:
                break
            done += count
        return done

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "FileSource":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Chunk(NamedTuple):
    """Whole batches, where they lie in `data`, and where `data` stands in the file.

    Behind the last batch there may be more bytes; the scan says where batches end. All of it is valid until the next
    chunk is asked for.
    """

    data: memoryview
    position: int
    scan: HeaderScan


def read_chunks(
    source: Source,
    *,
    start: int = 0,
    end: int | None = None,
    verify: bool = False,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    first_size: int | None = None,
) -> Iterator[Chunk]:
    """The batches of a source between two positions, of which `start` must be that of a batch.

    With `verify` checksums are compared; a decoder that is given the chunk does so by itself.

    With `first_size` the first chunk is that small, and each following one twice as large as the one before. A caller
    that comes again after each of many damaged batches reads the rest of the file less often.

    A batch that is larger than a chunk gets a larger one. An incomplete batch at the end is left out. A length that
    no batch can have raises CorruptRecordError, once the batches before it have been delivered.
    """
    end = source.size if end is None else min(end, source.size)
    size = min(chunk_size, first_size or chunk_size)
    buffer = bytearray(min(max(size, _SMALLEST_CHUNK), max(end - start, 0)) + SLACK)
    position = start
    while position < end:
        view = memoryview(buffer)[: min(len(buffer) - SLACK, end - position)]
        filled = source.read_into(position, view)
        scan = scan_headers(view[:filled], verify=verify)
        if scan.end == 0 and scan.reason is StopReason.END:
            needed = _size_of_first(view[:filled])
            if filled < len(view) or needed is None or needed > end - position or needed <= len(view):
                return  # the file ends inside a batch
            buffer = bytearray(needed + SLACK)
            continue
        if scan.end:
            yield Chunk(memoryview(buffer), position, scan)
        position += scan.end
        ensure_not_corrupt(view, scan, base_position=position - scan.end)
        if filled < len(view):
            return
        if len(buffer) - SLACK < min(chunk_size, end - position):
            buffer = bytearray(min(2 * (len(buffer) - SLACK), chunk_size) + SLACK)


def _size_of_first(data: memoryview) -> int | None:
    return None if len(data) < 12 else 12 + int.from_bytes(data[8:12], "big", signed=True)
