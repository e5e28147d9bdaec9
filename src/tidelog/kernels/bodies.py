"""The bodies of batches as plain bytes: where the records of each lie, decompressed where need be.

The result is a table of addresses, three words a batch: the first byte, the end, and the end of the memory that may
be read. Behind every body at least SLACK bytes may be read, so that the decoder need not ask before each small load.
Batches that are stored plain stay where they are, except the last ones of a buffer that ends too soon behind them.
"""

from collections.abc import Sequence
from ctypes import memmove
from typing import Any, NamedTuple

import numpy as np

from tidelog.kernels.buffers import address_of
from tidelog.kernels.decode import BODY_WORDS, ROW_SIZE
from tidelog.kernels.decompress import Decompressor
from tidelog.kernels.headers import HeaderScan, Seen
from tidelog.kernels.memory import SLACK, big_i32, put_word, word_at
from tidelog.kernels.runtime import kernel
from tidelog.records.batch import BATCH_HEADER_SIZE, PREFIX_SIZE
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, Codec

__all__ = ["Bodies", "Int64Array", "open_bodies"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]

_CODEC_BITS = 0x07


class Bodies(NamedTuple):
    """Addresses of bodies, [batch, (first, end, limit)], and the memory that keeps them true.

    Where a stream is broken, the table ends before it.
    """

    table: Int64Array
    owners: Sequence[object]
    size: int  # of all
    were_compressed: bool
    broken: int | None = None

    @property
    def sizes(self) -> Int64Array:
        """Bytes of each."""
        return self.table[:, 1] - self.table[:, 0]

    def pick(self, which: slice) -> "Bodies":
        """Some of them."""
        table = self.table[which]
        return Bodies(table, self.owners, int((table[:, 1] - table[:, 0]).sum()), self.were_compressed)


def open_bodies(buffer: Any, scan: HeaderScan, *, max_size: int = MAX_DECOMPRESSED_BYTES) -> Bodies:
    """The bodies of version 2 batches that a scan of `buffer` found; none may decompress to more than `max_size`.

    An empty batch has no body worth opening, whatever follows its header.
    """
    address, size = address_of(buffer)
    count = len(scan.rows)
    rows, positions = np.ascontiguousarray(scan.rows), np.ascontiguousarray(scan.positions)
    table = np.empty((count, 3), np.int64)
    total, tight = locate(address, size, rows.ctypes.data, positions.ctypes.data, count, table.ctypes.data)
    owners: list[object] = [buffer]
    broken: int | None = None
    were_compressed = bool(scan.seen & Seen.COMPRESSED)
    if were_compressed:
        codecs = scan.rows["attributes"] & _CODEC_BITS
        codecs[scan.rows["records_count"] == 0] = Codec.NONE
        decompressor = Decompressor(max_size)
        for codec in np.unique(codecs[codecs != Codec.NONE]):
            which = np.flatnonzero(codecs == codec)
            opened = decompressor.open(int(codec), buffer, table[which])
            table[which] = opened.table
            owners.append(opened.owners)
            if opened.broken is not None:
                broken = min(int(which[opened.broken]), len(table) if broken is None else broken)
        table = table[:broken]
        total, tight = int((table[:, 1] - table[:, 0]).sum()), int((table[:, 2] - table[:, 1] < SLACK).sum())
    if tight:
        owners.append(_give_room(table))
    return Bodies(table, owners, total, were_compressed, broken)


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64)")
def locate(address: int, size: int, rows: int, positions: int, count: int, table: int) -> tuple[int, int]:
    """Fill the table with where the bodies of `count` batches lie: bytes of all, and how many have no room behind."""
    limit = address + size
    total = 0
    tight = 0
    for index in range(count):
        batch = address + word_at(positions, index)
        end = batch + PREFIX_SIZE + big_i32(rows + ROW_SIZE * index + 8)
        put_word(table, BODY_WORDS * index, batch + BATCH_HEADER_SIZE)
        put_word(table, BODY_WORDS * index + 1, end)
        put_word(table, BODY_WORDS * index + 2, limit)
        total += end - batch - BATCH_HEADER_SIZE
        tight += limit - end < SLACK
    return total, tight


def _give_room(table: Int64Array) -> object:
    """Move bodies, and their headers with them, that end too close to the end of readable memory.

    Gives back the memory they moved to.
    """
    which = np.flatnonzero(table[:, 2] - table[:, 1] < SLACK)
    sizes = table[which, 1] - table[which, 0] + BATCH_HEADER_SIZE
    room = np.empty(int(sizes.sum()) + SLACK, np.uint8)
    start = room.ctypes.data
    for index, size in zip(which.tolist(), sizes.tolist(), strict=True):
        memmove(start, int(table[index, 0]) - BATCH_HEADER_SIZE, size)
        table[index] = start + BATCH_HEADER_SIZE, start + size, room.ctypes.data + room.size
        start += size
    return room
