"""A small language for tests of decompression.

opened(Codec.LZ4, stream, stream)      what the decompressor gives for a run of streams: a list of bytes
refuses(Codec.LZ4, stream)             whether both the decompressor and `tidelog.records` refuse it
"""

import ctypes
import random
from collections.abc import Sequence

import numpy as np

from tidelog.errors import DecompressionError
from tidelog.kernels.buffers import address_of
from tidelog.kernels.decompress import Decompressor, Int64Array, Opened
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress

SIZES = (0, 1, 15, 16, 17, 31, 32, 33, 1000, 65_535, 65_536, 65_537, 98_304, 300 * 1024)
KINDS = ("random", "constant", "text", "mixed")


def sample(kind: str, size: int) -> bytes:
    """Plain bytes of a kind, the same every time."""
    rng = random.Random(f"{kind} {size}")
    if kind == "random":
        return rng.randbytes(size)
    if kind == "constant":
        return b"\x2a" * size
    lines = []
    written = 0
    while written < size:
        if kind == "mixed" and rng.random() < 0.1:
            lines.append(rng.choice((rng.randbytes(rng.randrange(90)), bytes(rng.randrange(2000)))))
        lines.append(b'{"user":%d,"status":"%s","page":"/p/%d"}' % (rng.randrange(10**6), b"paid", rng.randrange(50)))
        written += len(lines[-1])
    return b"".join(lines)[:size]


def table_of(streams: Sequence[bytes]) -> tuple[bytes, Int64Array]:
    """Streams one behind the other, and the rows that tell where each lies."""
    buffer = b"".join(streams)
    sizes = np.array([len(stream) for stream in streams], np.int64)
    address, size = address_of(buffer)
    table = np.empty((len(streams), 3), np.int64)
    table[:, 1] = address + sizes.cumsum()
    table[:, 0] = table[:, 1] - sizes
    table[:, 2] = address + size
    return buffer, table


def bytes_at(first: int, end: int) -> bytes:
    return ctypes.string_at(first, end - first)


def open_streams(
    codec: int, *streams: bytes, max_size: int = MAX_DECOMPRESSED_BYTES, magic: int = 2
) -> tuple[list[bytes], Opened]:
    """The plain bytes of all streams before the first broken one, and the answer itself."""
    buffer, table = table_of(streams)
    answer = Decompressor(max_size, magic).open(codec, buffer, table)
    rows = answer.table[: answer.broken].tolist()
    assert all(first <= end <= limit for first, end, limit in rows)
    return [bytes_at(first, end) for first, end, _ in rows], answer


def opened(codec: int, *streams: bytes, max_size: int = MAX_DECOMPRESSED_BYTES, magic: int = 2) -> list[bytes]:
    plains, answer = open_streams(codec, *streams, max_size=max_size, magic=magic)
    assert answer.broken is None
    return plains


def refuses(codec: Codec, stream: bytes, *, max_size: int = MAX_DECOMPRESSED_BYTES, magic: int = 2) -> bool:
    """Whether the stream is refused. Both ways of reading must be of one mind."""
    try:
        truth = decompress(codec, stream, max_size=max_size, magic=magic)
    except DecompressionError:
        truth = None
    plains, answer = open_streams(codec, stream, max_size=max_size, magic=magic)
    assert plains == ([] if truth is None else [truth])
    assert answer.broken == (0 if truth is None else None)
    return truth is None
