"""The bodies of batches as plain bytes: where the records of each lie, decompressed where need be.

The result is a table of addresses, three words a batch: the first byte, the end, and the end of the memory that may
be read. Behind every body at least SLACK bytes may be read, so that the decoder need not ask before each small load.
Batches that are stored plain stay where they are, except the last ones of a buffer that ends too soon behind them.
"""

from collections.abc import Sequence
from ctypes import memmove
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import InvalidRequestError
from tidelog.kernels.buffers import address_of, hold
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
DEFAULT_BUDGET = 64 << 20


class Bodies(NamedTuple):
    """Addresses of bodies, [batch, (first, end, limit)], and the memory that keeps them true.

    The table may end early: before a stream that is `broken`, or when enough has been decompressed at once.
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


def open_bodies(
    buffer: Any, scan: HeaderScan, *, max_size: int = MAX_DECOMPRESSED_BYTES, budget: int = DEFAULT_BUDGET
) -> Bodies:
    """The bodies of version 2 batches that a scan of `buffer` found; none may decompress to more than `max_size`.

    Once each codec has given `budget` bytes, the table ends, and the caller comes again for the rest: small batches
    can decompress to any amount of memory together.

    An empty batch has no body worth opening, whatever follows its header.
    """
    view = hold(buffer)
    address, size = address_of(view)
    count = len(scan.rows)
    rows, positions = np.ascontiguousarray(scan.rows), np.ascontiguousarray(scan.positions)
    table = np.empty((count, 3), np.int64)
    total, tight = locate(address, size, rows.ctypes.data, positions.ctypes.data, count, table.ctypes.data)
    if tight < 0:
        scan.ensure_of(view)
        raise InvalidRequestError("the scan names a batch that is smaller than its header")
    owners: list[object] = [view, rows, positions]
    broken: int | None = None
    end = count
    were_compressed = bool(scan.seen & Seen.COMPRESSED)
    if were_compressed:
        codecs = scan.rows["attributes"] & _CODEC_BITS
        codecs[scan.rows["records_count"] == 0] = Codec.NONE
        decompressor = Decompressor(max_size)
        for codec in np.unique(codecs[codecs != Codec.NONE]):
            which = np.flatnonzero(codecs == codec)
            opened = decompressor.open(int(codec), view, table[which], budget)
            table[which[: opened.done]] = opened.table
            owners.append(opened.owners)
            if opened.done < len(which):  # this one is broken, or there was enough
                stop = int(which[opened.done])
                if stop < end:
                    end, broken = stop, stop if opened.is_broken else None
        table = table[:end]
        total, tight = int((table[:, 1] - table[:, 0]).sum()), int((table[:, 2] - table[:, 1] < SLACK).sum())
    if tight:
        owners.append(_give_room(table))
    return Bodies(table, owners, total, were_compressed, broken)


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64)")
def locate(address: int, size: int, rows: int, positions: int, count: int, table: int) -> tuple[int, int]:
    """Fill the table with where the bodies of `count` batches lie: bytes of all, and how many have no room behind.

    That is -1 where a batch is not inside the buffer: the scan was of another one.
    """
    limit = address + size
    total = 0
    tight = 0
    for index in range(count):
        batch = address + word_at(positions, index)
        end = batch + PREFIX_SIZE + big_i32(rows + ROW_SIZE * index + 8)
        if batch < address or end > limit or end - batch < BATCH_HEADER_SIZE:
            return 0, -1
        put_word(table, BODY_WORDS * index, batch + BATCH_HEADER_SIZE)
        put_word(table, BODY_WORDS * index + 1, end)
        put_word(table, BODY_WORDS * index + 2, limit)
        total += end - batch - BATCH_HEADER_SIZE
        tight += limit - end < SLACK
    return total, tight


def _give_room(table: Int64Array) -> object:
    """Move bodies, and their headers with them, that end too close to the end of the buffer.

    Only bodies that are stored plain can: those that were decompressed have room. Gives back the memory they moved to.
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
