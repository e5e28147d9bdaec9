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
from tidelog.kernels.decode import SLACK
from tidelog.kernels.decompress import Decompressor
from tidelog.records.batch import BATCH_HEADER_SIZE
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
    were_compressed: bool
    broken: int | None = None

    @property
    def sizes(self) -> Int64Array:
        """Bytes of each."""
        return self.table[:, 1] - self.table[:, 0]

    def pick(self, which: slice) -> "Bodies":
        """Some of them."""
        return self._replace(table=self.table[which], broken=None)


def open_bodies(
    buffer: Any,
    rows: np.ndarray[Any, np.dtype[Any]],
    positions: Int64Array,
    *,
    max_size: int = MAX_DECOMPRESSED_BYTES,
) -> Bodies:
    """The bodies of version 2 batches that a scan of `buffer` found; none may decompress to more than `max_size`.

    An empty batch has no body worth opening, whatever follows its header.
    """
    address, size = address_of(buffer)
    table = np.empty((len(rows), 3), np.int64)
    table[:, 0] = positions + (address + BATCH_HEADER_SIZE)
    table[:, 1] = positions + (address + 12) + rows["batch_length"]
    table[:, 2] = address + size
    codecs = rows["attributes"] & _CODEC_BITS
    owners: list[object] = [buffer]
    broken: int | None = None
    were_compressed = bool(codecs.any())
    if were_compressed:
        codecs[rows["records_count"] == 0] = Codec.NONE
        decompressor = Decompressor(max_size)
        for codec in np.unique(codecs[codecs != Codec.NONE]):
            which = np.flatnonzero(codecs == codec)
            opened = decompressor.open(int(codec), buffer, table[which])
            table[which] = opened.table
            owners.append(opened.owners)
            if opened.broken is not None:
                broken = min(int(which[opened.broken]), len(rows) if broken is None else broken)
        table = table[:broken]
    owners += _give_room(table)
    return Bodies(table, owners, were_compressed, broken)


def _give_room(table: Int64Array) -> list[object]:
    """Move bodies that end too close to the end of readable memory. Gives back the memory they moved to."""
    is_tight = table[:, 2] - table[:, 1] < SLACK
    if not is_tight.any():
        return []
    which = np.flatnonzero(is_tight)
    sizes = table[which, 1] - table[which, 0]
    room = np.empty(int(sizes.sum()) + SLACK, np.uint8)
    start = room.ctypes.data
    for index, size in zip(which.tolist(), sizes.tolist(), strict=True):
        memmove(start, int(table[index, 0]), size)
        table[index] = start, start + size, room.ctypes.data + room.size
        start += size
    return [room]
