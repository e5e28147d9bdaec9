"""Decompression of many small streams.

lz4 and snappy are decoded by kernels, a whole run of batches in one call, into one buffer. zstd and gzip go through
their libraries, stream by stream, with contexts that are kept.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import TidelogError
from tidelog.kernels.buffers import address_of
from tidelog.records.compression import Codec, decompress

__all__ = ["Decompressor", "Opened"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class Opened(NamedTuple):
    """Where the streams were decompressed to, or the index of the first that is broken."""

    table: Int64Array
    owners: Sequence[object]
    broken: int | None = None


class Decompressor:
    """Decompresses runs of streams, none of them to more than `max_size` bytes."""

    def __init__(self, max_size: int, magic: int = 2) -> None:
        self.max_size = max_size
        self.magic = magic

    def open(self, codec: int, streams: Int64Array) -> Opened:
        """Decompress streams given as rows of (first address, end, limit)."""
        table = np.empty_like(streams)
        owners: list[bytes] = []
        for index, (start, end, _) in enumerate(streams.tolist()):
            try:
                data = decompress(Codec.from_id(codec), _view(start, end), magic=self.magic, max_size=self.max_size)
            except TidelogError:
                return Opened(table, owners, index)
            first, size = address_of(data)
            table[index] = first, first + size, first + size
            owners.append(data)
        return Opened(table, owners)


def _view(start: int, end: int) -> memoryview:
    import ctypes

    return memoryview((ctypes.c_char * (end - start)).from_address(start)).cast("B")
