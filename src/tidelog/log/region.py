"""What a read gives back: not bytes, but where they lie.

A region names an open file, a position and a size, so that a server can hand it to `sendfile` and a table scan can
read it where it wants. It holds the file open: deleting the segment meanwhile takes the name away, not the bytes.
Truncation does cut them; `read` then raises, and a server must close the connection it already promised them to.
"""

from dataclasses import dataclass

from tidelog.errors import StorageError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.files import ReadFile
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.transaction_index import AbortedTxnEntry

__all__ = ["Region"]


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of one segment, beginning with a whole batch; the end may lie inside one."""

    start: OffsetMetadata  # base offset of the first batch and where it lies; the limit itself if nothing is read
    file: ReadFile | None = None
    position: int = 0
    size: int = 0
    first_batch: BatchInfo | None = None
    is_first_batch_incomplete: bool = False
    aborted: tuple[AbortedTxnEntry, ...] | None = None  # None: not asked for

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes."""
        if not self.size or self.file is None:
            return b""
        data = self.file.read(self.position, self.size)
        if len(data) < self.size:
            raise StorageError(f"{self.file.path}: cut at {self.position + len(data)}, under a reader")
        return data
