"""Decompression of many small streams.

lz4 and snappy are decoded by kernels, a run of streams in one call, one behind the other into one scratch buffer.
How much will come out is not known, and what a stream announces is a claim. So the buffer is a guess from the
compressed bytes; when it is full, the streams that are left go to another. A stream for which a buffer of its own is
too small starts again in one four times as large, until the cap.

zstd and gzip go through their libraries, stream by stream. What their fast paths do not take (several frames or
members, bytes behind the end, anything wrong) is left to `tidelog.records`, and so is what counts as broken: here only
the index of a stream is known.

One thing is not equal: isal takes Huffman codes that are not complete, which zlib refuses. A damaged stream does not
pass for that reason, since its checksum is verified, but one that was made so on purpose does.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import zstandard
from isal import isal_zlib

from tidelog.errors import TidelogError
from tidelog.kernels.buffers import address_of, hold
from tidelog.kernels.lz4 import BROKEN, LARGEST_BLOCK, decompress_lz4
from tidelog.kernels.memory import SLACK
from tidelog.kernels.snappy import decompress_snappy
from tidelog.records.compression import Codec, decompress

__all__ = ["Decompressor", "Opened"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]

# The first guess: nearly all batches shrink to more than a quarter, and an lz4 block wants 64 KiB free.
_GUESSED_RATIO = 4
_GUESSED_EXTRA = 64 * 1024
_GROWTH = 4

_GZIP = 31  # zlib's number for the largest window inside a gzip member
_PLAIN_GZIP_MEMBER = bytes.fromhex("1f8b0800")  # deflate, and none of the optional fields

# What zstd can give, told from its format: 128 KiB from a block, which takes 4 bytes or more.
_ZSTD_BLOCK = 128 * 1024
_MOST_FROM_ONE_ZSTD_BYTE = _ZSTD_BLOCK // 4
_ZSTD_RLE_BLOCK, _ZSTD_PACKED_BLOCK = 1, 2


class Opened(NamedTuple):
    """Where streams were decompressed to: all of them, or those before one that is broken, or as many as are enough."""

    table: Int64Array  # [stream, (first address, end, end of readable memory)]
    owners: Sequence[object]  # the memory that keeps the addresses true
    is_broken: bool = False

    @property
    def done(self) -> int:
        """How many; where that is not all, the next one is broken or was left for later."""
        return len(self.table)

    @property
    def broken(self) -> int | None:
        """The index of the stream that is broken."""
        return self.done if self.is_broken else None


class Decompressor:
    """Decompresses runs of streams, none of them to more than `max_size` bytes. Each thread needs its own."""

    def __init__(self, max_size: int, magic: int = 2) -> None:
        self.max_size = max_size
        self.magic = magic

    def open(self, codec: int, buffer: memoryview, streams: Int64Array, budget: int = sys.maxsize) -> Opened:
        """Decompress streams that lie in `buffer`, given as rows of (first address, end, end of readable memory).

        It stops when the plain bytes reach `budget`, which one stream may exceed.
        """
        if codec == Codec.LZ4:
            return self._run(self._lz4, streams, budget)
        if codec == Codec.SNAPPY:
            return self._run(self._snappy, streams, budget)
        return self._one_by_one(codec, buffer, streams, budget)

    def _lz4(self, streams: int, count: int, results: int, target: int, capacity: int) -> tuple[int, int]:
        return decompress_lz4(streams, count, results, target, capacity, self.max_size, int(self.magic != 0))

    def _snappy(self, streams: int, count: int, results: int, target: int, capacity: int) -> tuple[int, int]:
        return decompress_snappy(streams, count, results, target, capacity, self.max_size)

    def _run(
        self, kernel: Callable[[int, int, int, int, int], tuple[int, int]], streams: Int64Array, budget: int
    ) -> Opened:
        streams = np.ascontiguousarray(streams)
        table = np.empty_like(streams)
        owners: list[object] = []
        enough = self.max_size + LARGEST_BLOCK  # no stream ever fills more before it is refused
        done = capacity = total = 0
        while done < len(streams) and total < budget:
            left = int((streams[done:, 1] - streams[done:, 0]).sum())
            capacity = max(_GUESSED_RATIO * left + _GUESSED_EXTRA, min(_GROWTH * capacity, enough))
            scratch = np.empty(capacity + SLACK, np.uint8)
            opened, outcome = kernel(
                streams[done:].ctypes.data,
                len(streams) - done,
                table[done:].ctypes.data,
                scratch.ctypes.data,
                capacity,
            )
            done += opened
            if opened:
                owners.append(scratch)
                total += int(table[done - 1, 1]) - int(table[done - opened, 0])
                capacity = 0
            if outcome == BROKEN:
                return Opened(table[:done], owners, is_broken=True)
        return Opened(table[:done], owners)

    def _one_by_one(self, codec: int, buffer: memoryview, streams: Int64Array, budget: int) -> Opened:
        address, _ = address_of(buffer)
        # Each result is copied: a library that gets its memory back works in the same few pages all the time.
        plain = bytearray()
        edges = [0]
        is_broken = False
        for start, end, _ in streams.tolist():
            if len(plain) >= budget:
                break
            try:
                plain += self._decompress(codec, buffer[start - address : end - address])
            except TidelogError:  # whoever asks for this stream again will be told why
                is_broken = True
                break
            edges.append(len(plain))
        plain += bytes(SLACK)
        held = hold(plain)
        table = np.empty((len(edges) - 1, streams.shape[1]), np.int64)
        table[:, 0] = edges[:-1]
        table[:, 1] = edges[1:]
        table[:, 2] = len(plain)
        table += address_of(held)[0]
        return Opened(table, [held], is_broken)

    def _decompress(self, codec: int, stream: memoryview) -> bytes:
        data = None
        if codec == Codec.GZIP:
            data = self._gunzip(stream)
        elif codec == Codec.ZSTD and self.magic >= 2:
            data = self._unzstd(stream)
        if data is not None and len(data) <= self.max_size:
            return data
        return decompress(Codec.from_id(codec), stream, magic=self.magic, max_size=self.max_size)

    def _gunzip(self, stream: memoryview) -> bytes | None:
        """One member without optional fields and nothing behind it, or None."""
        if stream[:4] != _PLAIN_GZIP_MEMBER:
            return None
        member = isal_zlib.decompressobj(_GZIP)
        try:
            data: bytes = member.decompress(stream, self.max_size + 1)  # 0 would mean "no limit"
        except isal_zlib.error:  # type: ignore[misc]  # its stubs call it an instance
            return None
        return data if member.eof and not member.unused_data else None

    def _unzstd(self, stream: memoryview) -> bytes | None:
        """One frame that cannot grow beyond the cap, and nothing behind it, or None."""
        if len(stream) * _MOST_FROM_ONE_ZSTD_BYTE > self.max_size and _most_from_zstd(stream) > self.max_size:
            return None
        frame = self._zstd.decompressobj()
        try:
            if zstandard.frame_content_size(stream) > self.max_size:  # the decoder may take an empty frame that lies
                return None
            data = frame.decompress(stream)
        except zstandard.ZstdError:
            return None
        return data if frame.eof and not frame.unused_data else None

    @cached_property
    def _zstd(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor()  # costs more to make than a batch of 16 KiB to decompress


def _most_from_zstd(stream: memoryview) -> int:
    """How many bytes the first frame of a stream can give at most, told by the heads of its blocks.

    A head is u24: 1 bit "last", 2 bits kind, 21 bits size. A packed block gives up to 128 KiB, any other its size.
    """
    try:
        position = zstandard.frame_header_size(stream)
    except zstandard.ZstdError:
        return 0  # gives nothing but an error
    most, head = 0, 0
    while position < len(stream) and not head & 1:
        head = int.from_bytes(stream[position : position + 3], "little")
        kind, size = head >> 1 & 3, head >> 3
        most += _ZSTD_BLOCK if kind == _ZSTD_PACKED_BLOCK else size
        position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
    return most
