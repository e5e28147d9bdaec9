"""The content of a file on a disk, its newer content in memory, and what is left of that when the power goes.

A file has two contents. The one that everybody reads is in memory; the one on the disk follows when the file is synced.
What lies between them is the list of writes and resizes since. When the power goes, some of that has reached the disk
on its own, in no order:

- Each sector of 512 bytes was last carried to the disk at some moment of its own, with all that had been written into
  it until then. So a write of several sectors is torn, and a later write may be there where an earlier one is lost.
- Size, time and place of the blocks were last carried at another moment. The size may be ahead of the data: bytes that
  never arrived read as zero. It may be behind: then what lies beyond is lost. While a file grows by a write it may stop
  at any sector.
- Cutting a file frees its blocks, and what is written there afterwards goes to other blocks. Where the cut is not on
  the disk, neither are they.
"""

from __future__ import annotations

from random import Random

__all__ = ["SECTOR", "FileNode"]

SECTOR = 512


class FileNode:
    """A file without its name.

    Both contents may be shorter than the size: what they lack reads as zero. So an index of 10 MiB, made before its
    first entry, costs nothing.
    """

    __slots__ = ("data", "disk_data", "disk_modified_ms", "disk_size", "modified_ms", "pending", "size")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.size = 0
        self.modified_ms = modified_ms
        self.disk_data = bytearray()
        self.disk_size = 0
        self.disk_modified_ms = modified_ms
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data) of a write, (size, None) of a resize

    def read(self, position: int, size: int) -> bytes:
        """The bytes in memory."""
        end = min(position + size, self.size)
        data = bytes(self.data[position:end])
        return data + bytes(max(0, end - position - len(data)))

    def write(self, position: int, data: bytes) -> None:
        """Write in memory."""
        if data:
            self.pending.append((position, data))
            _write(self.data, position, data)
            end = position + len(data)
            if end > self.size:
                self.size = end

    def resize(self, size: int) -> None:
        """Cut or extend in memory."""
        self.pending.append((size, None))
        del self.data[size:]
        self.size = size

    def sync(self) -> None:
        """Carry everything to the disk."""
        for position, data in self.pending:
            if data is None:
                del self.disk_data[position:]
            else:
                _write(self.disk_data, position, data)
        self.pending.clear()
        self.disk_size = self.size
        self.disk_modified_ms = self.modified_ms

    def copy(self) -> FileNode:
        """The same file once more, with the same things synced."""
        node = FileNode(self.modified_ms)
        node.data, node.size = bytearray(self.data), self.size
        node.disk_data, node.disk_size = bytearray(self.disk_data), self.disk_size
        node.disk_modified_ms = self.disk_modified_ms
        node.pending = list(self.pending)
        return node

    def after_crash(self, rng: Random) -> FileNode:
        """What is on the disk when the power goes now."""
        node = FileNode(rng.choice((self.disk_modified_ms, self.modified_ms)))
        node.disk_modified_ms = node.modified_ms
        # Whole files are often all there or all lost, as a disk is idle or far behind. The others are torn.
        fate = rng.choice(("kept", "lost", "torn", "torn")) if self.pending else "kept"
        if fate == "kept":
            node.data, node.size = bytearray(self.data), self.size
        else:
            node.data, node.size = bytearray(self.disk_data), self.disk_size
        if fate == "torn":
            self._tear(node, rng)
        node.disk_data, node.disk_size = bytearray(node.data), node.size
        return node

    def _tear(self, node: FileNode, rng: Random) -> None:
        count = len(self.pending)
        size_moment = rng.randint(0, count)
        data_moments: dict[int, int] = {}  # of each sector
        image = node.data
        size = self.disk_size
        first_unplaced = 1 << 63  # the first sector whose block is not the disk's block any more
        for moment, (position, data) in enumerate(self.pending):
            if data is not None:
                for start in range(position - position % SECTOR, position + len(data), SECTOR):
                    if start < first_unplaced and moment < _moment(data_moments, start, count, rng):
                        piece_start = max(start, position)
                        _write(image, piece_start, data[piece_start - position : start + SECTOR - position])
                grown = max(size, position + len(data))
            elif position >= size:
                grown = position
            elif moment < size_moment:
                del image[position:]
                grown = position
            else:
                whole = position + -position % SECTOR
                first_unplaced = min(first_unplaced, whole)
                # The sector of the cut stays where it is. Its end is cleared in memory, and may be carried so.
                if position < whole and moment < _moment(data_moments, whole - SECTOR, count, rng):
                    image[position:whole] = bytes(len(image[position:whole]))
                grown = size
            if moment < size_moment:
                size = grown
            elif moment == size_moment and data is not None and rng.random() < 0.5:
                size = rng.choice([size, *range(size + -size % SECTOR, grown, SECTOR)])
        del image[size:]
        node.size = size


def _write(content: bytearray, position: int, data: bytes) -> None:
    gap = position - len(content)
    if gap > 0:
        content.extend(bytes(gap))
    content[position : position + len(data)] = data


def _moment(moments: dict[int, int], sector: int, count: int, rng: Random) -> int:
    """When a sector was last carried to the disk: before this one of the pending changes."""
    moment = moments.get(sector)
    if moment is None:
        moment = moments[sector] = rng.choice((0, count, rng.randint(0, count)))
    return moment
