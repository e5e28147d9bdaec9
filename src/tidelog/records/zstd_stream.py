"""Zstandard (RFC 8878), written and read as a stream.

Kafka's writer does not know how much is to come, so its frames have neither content size nor checksum: magic
`28 b5 2f fd`, a descriptor of 0, a byte for the window (0x58 at level 3: 2 MiB), blocks. Ours are the same; only the
frame of an empty input states its size, 0, as Kafka's does.

The reader accepts any number of frames one behind the other, with or without content size (which must then be true),
with or without checksum (which must then be right), and skips skippable frames. No bytes at all are an empty stream.
It rejects a frame that is cut off, bytes between or behind frames that are not a frame, dictionaries, windows above
128 MiB (the decoder's own limit, in Java too) and the formats that preceded version 0.8. All of it is Kafka's
behaviour save two cases: when a second frame is cut off within the same read buffer, Kafka takes the stream as ended,
and Kafka's library still reads the formats that zstd had before 0.8.

Only version 2 of the message format may carry zstd; `compression` sees to that.

Kafka: org.apache.kafka.common.compress.ZstdCompression.
"""

import threading

import zstandard

from tidelog.errors import DecompressedSizeError, DecompressionError
from tidelog.records.varint import Buffer

__all__ = ["compress", "decompress"]

_MAGIC = bytes.fromhex("28b52ffd")

# A block takes at least 4 bytes and gives at most 128 KiB, so n bytes of input never give more than n of these.
_MOST_FROM_ONE_BYTE = 128 * 1024 // 4
_SMALLEST_FEED = 64

# Higher levels need contexts of up to 700 MB, which nobody wants to keep.
_HIGHEST_LEVEL_KEPT = 3


class _Contexts(threading.local):
    """Compressors and a decompressor per thread: making one costs more than using it on a batch of 16 KiB."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if level > _HIGHEST_LEVEL_KEPT:
            return zstandard.ZstdCompressor(level)
        if level not in self.compressors:
            self.compressors[level] = zstandard.ZstdCompressor(level)
        return self.compressors[level]


_contexts = _Contexts()


def compress(data: Buffer, level: int = 3) -> bytes:
    """One frame. Levels are -131072 (fast) to 22 (small)."""
    stream = _contexts.compressor(level).compressobj()
    head = stream.compress(data) if len(data) else b""
    return head + stream.flush()


def decompress(data: Buffer, max_size: int) -> bytes:
    """The plain bytes of all frames together, at most `max_size` of them."""
    view = memoryview(data)
    parts: list[bytes] = []
    left, position = max_size, 0
    while position < len(view):
        frame, position = _read_frame(view, position, left)
        parts.append(frame)
        left -= len(frame)
    return b"".join(parts)


def _read_frame(view: memoryview, start: int, max_size: int) -> tuple[bytes, int]:
    """The plain bytes of the frame at `start`, and the position behind it."""
    _check_content_size(view[start:], start, max_size)
    stream = _contexts.decompressor.decompressobj()
    parts: list[bytes] = []
    left, position = max_size, start
    while not stream.eof:
        if position >= len(view):
            raise DecompressionError(f"zstd, position {start}: the stream ended prematurely inside this frame")
        # The decoder gives all that its input holds, so the input is cut to what the cap still allows.
        end = min(position + max(left // _MOST_FROM_ONE_BYTE, _SMALLEST_FEED), len(view))
        try:
            parts.append(stream.decompress(view[position:end]))
        except zstandard.ZstdError as error:
            raise DecompressionError(f"zstd, position {start}: {error}") from error
        left -= len(parts[-1])
        if left < 0:
            raise DecompressedSizeError(f"zstd, position {start}: more than the {max_size} bytes allowed")
        position = end
    return b"".join(parts), position - len(stream.unused_data)


def _check_content_size(frame: memoryview, start: int, max_size: int) -> None:
    """Refuse a frame that announces too much. What is not a plain frame is left for the decoder to judge."""
    if frame[: len(_MAGIC)] != _MAGIC:
        return
    try:
        content_size = zstandard.get_frame_parameters(frame).content_size
    except zstandard.ZstdError as error:
        raise DecompressionError(f"zstd, position {start}: {error}") from error
    if content_size != zstandard.CONTENTSIZE_UNKNOWN and content_size > max_size:
        raise DecompressedSizeError(f"zstd, position {start}: {content_size} more bytes, {max_size} are allowed")
