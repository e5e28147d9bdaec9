"""The bodies of batches as plain bytes: where the records of each lie, decompressed where need be.

The result is a table of addresses, three words a batch: the first byte, the end, and the end of the memory that may
be read (wide copies look a little further than they must). Batches that are stored plain are not copied.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidelog.kernels.buffers import address_of
from tidelog.kernels.decompress import Decompressor
from tidelog.records.batch import BATCH_HEADER_SIZE, RecordBatch
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, Codec

__all__ = ["Bodies", "open_bodies"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]

_CODEC_BITS = 0x07


class Bodies(NamedTuple):
    """Addresses of bodies, [batch, (first, end, limit)], and the memory that keeps them true."""

    table: Int64Array
    owners: Sequence[object]

    @property
    def are_stored(self) -> bool:
        """Whether nothing was compressed, so that bodies lie where their batches lie."""
        return len(self.owners) == 1

    @property
    def sizes(self) -> Int64Array:
        return self.table[:, 1] - self.table[:, 0]

    def pick(self, which: slice) -> "Bodies":
        """Some of them."""
        return Bodies(self.table[which], self.owners)


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
    if codecs.any():
        codecs[rows["records_count"] == 0] = Codec.NONE
        decompressor = Decompressor(max_size)
        for codec in np.unique(codecs[codecs != Codec.NONE]):
            which = np.flatnonzero(codecs == codec)
            opened = decompressor.open(int(codec), buffer, table[which])
            if opened.broken is not None:
                _explain(buffer, rows, positions, int(which[opened.broken]), max_size)
            table[which] = opened.table
            owners.append(opened.owners)
    return Bodies(table, owners)


def _explain(buffer: Any, rows: np.ndarray[Any, Any], positions: Int64Array, index: int, max_size: int) -> None:
    """Let the readable path say what is wrong with a batch."""
    start = int(positions[index])
    batch = RecordBatch(memoryview(buffer).cast("B")[start : start + 12 + int(rows["batch_length"][index])])
    batch.records_bytes(max_size)
    raise AssertionError(f"{batch}: the kernels refuse a body that tidelog.records can decompress")
