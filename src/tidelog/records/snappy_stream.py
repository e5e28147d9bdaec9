"""Snappy, in the framing of snappy-java ("xerial") and without any.

A framed stream is a header of 16 bytes and chunks, all numbers big-endian:

    82 53 4e 41 50 50 59 00    magic
    version, compatible        i32 each, 1 and 1
    chunk*                     i32 size and a raw block of that size

The writer cuts its input every 32,768 bytes; an empty input is the header alone. librdkafka and others write one raw
block instead, with no framing.

What the reader accepts and rejects is what snappy-java does:

- fewer than 16 bytes, or 16 that do not begin with the magic: the whole input is one raw block;
- otherwise chunks follow to the end; the versions of the first header are not looked at;
- 1 to 3 bytes behind the last chunk are ignored;
- a chunk size of 0x82534e41 is the head of another header (streams may be concatenated). It must be whole, carry
  the whole magic and a version of 1 or more. (Only here are we stricter: snappy-java skips 16 bytes when the second
  half of the magic is wrong.)
- any other chunk size must be positive and lie within the input.

A raw block is a preamble (the plain size as a varint of at most 5 bytes, below 2^32, longer than needed or not) and
elements, each a tag byte whose two low bits tell its kind:

    0  literal, size-1 in the six high bits, or for 60..63 in the next 1..4 bytes; the bytes follow
    1  copy of 4..11 bytes, offset of 11 bits        2  copy of 1..64, offset u16 LE        3  copy of 1..64, u32 LE

A block is rejected when an element is cut off by the end of the block, when an offset is 0 or reaches before the
first plain byte, when an element would write beyond the size of the preamble, or when the elements end before it. So
nothing can trail a block: every element writes at least one byte. An empty block (no preamble) is rejected; a
preamble of 0 with nothing behind it is the empty block. An offset smaller than the copy repeats what it writes.

The preamble is a claim. It is compared with the cap, and with what the densest element can do (64 bytes from 3)
before anything is allocated.

Format: https://github.com/google/snappy/blob/main/format_description.txt. Kafka: SnappyCompression.
"""

import struct
from collections.abc import Iterator

import cramjam

from tidelog.errors import DecompressedSizeError, DecompressionError
from tidelog.records.varint import Buffer

__all__ = ["compress", "decompress"]

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = struct.Struct(
    ">"
    "8s"  # magic
    "i"  # version
    "i"  # compatible
)
_WRITTEN_HEADER = _HEADER.pack(_MAGIC, 1, 1)
_OLDEST_VERSION = 1
_CHUNK_SIZE = struct.Struct(">i")
_ANOTHER_HEADER = _CHUNK_SIZE.unpack(_MAGIC[:4])[0]
_WRITTEN_CHUNK = 32 * 1024  # plain bytes

_PREAMBLE_BYTES = 5
_DENSEST_COPY = (64, 3)  # plain bytes, stored bytes


def compress(data: Buffer) -> bytes:
    """A framed stream. Snappy has no levels."""
    view = memoryview(data)
    parts: list[bytes] = [_WRITTEN_HEADER]
    for start in range(0, len(view), _WRITTEN_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _WRITTEN_CHUNK]))
        parts += (_CHUNK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: Buffer, max_size: int) -> bytes:
    """The plain bytes of a framed stream or of one raw block, at most `max_size` of them."""
    parts: list[bytes] = []
    size = 0
    for start, block in _blocks(memoryview(data)):
        parts.append(_decompress_block(start, block, max_size - size))
        size += len(parts[-1])
    return b"".join(parts)


def _blocks(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Each raw block with its position."""
    if len(view) < _HEADER.size or view[: len(_MAGIC)] != _MAGIC:
        yield 0, view
        return
    position = _HEADER.size
    while len(view) - position >= _CHUNK_SIZE.size:
        (chunk_size,) = _CHUNK_SIZE.unpack_from(view, position)
        if chunk_size == _ANOTHER_HEADER:
            position = _another_header_end(view, position)
            continue
        position += _CHUNK_SIZE.size
        if not 0 < chunk_size <= len(view) - position:
            raise DecompressionError(
                f"snappy, position {position}: a chunk of {chunk_size} bytes, {len(view) - position} are left"
            )
        yield position, view[position : position + chunk_size]
        position += chunk_size


def _another_header_end(view: memoryview, position: int) -> int:
    if len(view) - position < _HEADER.size:
        raise DecompressionError(f"snappy, position {position}: the stream ended prematurely inside a header")
    magic, version, _ = _HEADER.unpack_from(view, position)
    if magic != _MAGIC:
        raise DecompressionError(f"snappy, position {position}: found {magic.hex(' ')}, wanted {_MAGIC.hex(' ')}")
    if version < _OLDEST_VERSION:
        raise DecompressionError(f"snappy, position {position}: version {version}, wanted 1 or more")
    return position + _HEADER.size


def _decompress_block(start: int, block: memoryview, max_size: int) -> bytes:
    size = _plain_size(start, block)
    if size > max_size:
        raise DecompressedSizeError(f"snappy, position {start}: {size} more bytes, {max_size} are allowed")
    plain, stored = _DENSEST_COPY
    if size * stored > len(block) * plain:
        raise DecompressionError(f"snappy, position {start}: {len(block)} bytes cannot give the {size} they announce")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy, position {start}: {error}") from error


def _plain_size(start: int, block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:_PREAMBLE_BYTES]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise DecompressionError(f"snappy, position {start}: the size at the head of a block does not end")
    if size > 0xFFFFFFFF:
        raise DecompressionError(f"snappy, position {start}: a size of {size} does not fit 32 bits")
    return size
