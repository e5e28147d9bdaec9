"""A damaged log file read as if the headers of some of its batches were right.

The length of a batch and its magic are not under its checksum. Where the next sound batch, or the end of the segment,
proves another length, the batch can be read with that one. The file itself stays as it is: `tidelog fsck --repair`
changes it.
"""

from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.files import ReadFile
from tidelog.log.segment_reader import SegmentReader
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC
from tidelog.view.resync import Headless, Resync

__all__ = ["MendedFile", "header_proven"]

_LENGTH_AT = 8


def header_proven(reader: SegmentReader, position: int, end: int) -> tuple[bytes, BatchInfo] | None:
    """The first bytes that make a version 2 batch of all that lies between two positions, if its checksum holds then;
    and what that batch is."""
    found = Headless(position, end)
    if not Resync(reader.log.file, end, reader.base_offset).is_headless(found):
        return None
    head = bytearray(reader.log.file.read(position, BATCH_HEADER_SIZE))
    head[_LENGTH_AT:PREFIX_SIZE] = found.length.to_bytes(4, "big")
    head[HEADER_SIZE_UP_TO_MAGIC - 1] = MAGIC
    return bytes(head[:HEADER_SIZE_UP_TO_MAGIC]), batch_info(bytes(head), 0, position)


class MendedFile:
    """An open file in which some bytes are others than those on the disk."""

    def __init__(self, file: ReadFile) -> None:
        self.path = file.path
        self._file = file
        self._right: dict[int, bytes] = {}  # by position

    def mend(self, position: int, data: bytes) -> None:
        """Read other bytes at a position from now on."""
        self._right[position] = data

    def is_mended(self, position: int) -> bool:
        """Whether other bytes are read at a position."""
        return position in self._right

    @property
    def size(self) -> int:
        """Bytes in the file now."""
        return self._file.size

    @property
    def descriptor(self) -> int | None:
        """None: what it leads to is not what is read here."""
        return None

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only where the file ends."""
        target = bytearray(max(min(size, self.size - position), 0))
        return bytes(target[: self.read_into(position, memoryview(target))])

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position`; how many bytes were there."""
        count = self._file.read_into(position, target)
        for at, data in self._right.items():
            first, stop = max(at, position), min(at + len(data), position + count)
            if first < stop:
                target[first - position : stop - position] = data[first - at : stop - at]
        return count

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()
