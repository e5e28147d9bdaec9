"""The LZ4 frame, as much of it as Kafka speaks.

All numbers are little-endian:

    04 22 4d 18       magic
    FLG               version 01 | independent blocks | block checksums | content size | content checksum | 00
    BD                0 | block size code 4..7 (64 KiB, 256 KiB, 1 MiB, 4 MiB) | 0000
    [content size]    u64 if FLG says so
    HC                the second byte of the xxh32 of the descriptor (FLG, BD, content size)
    block*            u32 size, its high bit set if the bytes are stored as they are; bytes; [u32 xxh32 of the bytes]
    end mark          u32 0
    [content sum]     u32 if FLG says so

The writer sets FLG 0x60 and BD 0x40: independent blocks of 64 KiB, no sums, no size. HC is then 0x82; but the first
Kafka clients hashed the magic too and wrote 0x1a, so frames inside messages of magic 0 still do, and readers of
magic 0 skip the check. A block that would not shrink is stored.

What the reader accepts and rejects is what Kafka's does:

- exactly one frame; whatever follows its end is ignored. No skippable or legacy frames in front of it;
- version 1, independent blocks, reserved bits 0 (a dictionary id uses one), block size code 4..7, HC right;
- the content size is skipped and the content checksum read, neither is compared; block checksums are verified;
- a size of 0, stored or not, is the end mark. No block, packed or plain, is larger than the frame's block size;
- a frame without end mark has ended prematurely, whatever came before.

Blocks are judged by liblz4 (LZ4_decompress_safe, 1.9.4), here and in Java. A block is a row of sequences: a token
(literal size in the high half, match size - 4 in the low; 15 means that bytes follow which are added, up to one that
is not 255), literals, offset u16, match. The last sequence has literals only. With `in_left` the bytes of the block
behind the position, `out_left` the frame's block size less what is written, a block is rejected when

- it is empty (the single byte 00 is a block of no bytes, and accepted);
- a byte that adds to a literal size leaves fewer than 15 behind it, one that adds to a match size fewer than 4;
- literals leave fewer than 8 of `in_left` or 12 of `out_left`, unless they are the last: then they must leave exactly
  0 of `in_left` and not overrun `out_left`. This test is skipped for short literals (size < 15) when `in_left` >= 17
  and `out_left` >= 32 in front of them;
- an offset reaches before the first byte of the block;
- a match leaves fewer than 5 of `out_left`; not tested when the literals' test was skipped, the match size took no
  bytes of its own, and the offset is 8 or more.

An offset of 0, invalid by the LZ4 specification, is accepted and gives zero bytes.

Not supported, as in Kafka: dependent blocks, dictionaries, several frames.

Format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md. Kafka: Lz4BlockInputStream, Lz4BlockOutputStream.
"""

import struct
from typing import NamedTuple

import lz4.block

from tidelog.errors import DecompressedSizeError, DecompressionError
from tidelog.records.varint import Buffer
from tidelog.records.xxh32 import xxh32

__all__ = ["compress", "decompress"]

_MAGIC = bytes.fromhex("04224d18")
_VERSION = 0b01
_WRITTEN_DESCRIPTOR = bytes([0x60, 0x40])
_WRITTEN_BLOCK = 64 * 1024  # plain bytes
_HEADER_START_SIZE = len(_MAGIC) + len(_WRITTEN_DESCRIPTOR)
_CONTENT_SIZE_SIZE = 8

_U32 = struct.Struct("<I")
_STORED = 0x80000000
_END_MARK = _U32.pack(0)

_FAST_LEVEL = 9  # Kafka's default means the fast compressor; every other level the one that searches harder
_HIGHEST_LEVEL = 12  # of liblz4; Kafka allows 17


class _Frame(NamedTuple):
    block_size: int
    has_block_checksums: bool
    has_content_checksum: bool


def compress(data: Buffer, level: int = 9, *, broken_checksum: bool = False) -> bytes:
    """One frame. `broken_checksum` writes the HC byte of the first clients, as messages of magic 0 want it."""
    view = memoryview(data)
    hashed = _MAGIC + _WRITTEN_DESCRIPTOR if broken_checksum else _WRITTEN_DESCRIPTOR
    parts: list[bytes | memoryview] = [_MAGIC, _WRITTEN_DESCRIPTOR, bytes([_header_checksum(hashed)])]
    for start in range(0, len(view), _WRITTEN_BLOCK):
        plain = view[start : start + _WRITTEN_BLOCK]
        packed = _compress_block(plain, level)
        if len(packed) < len(plain):
            parts += (_U32.pack(len(packed)), packed)
        else:
            parts += (_U32.pack(len(plain) | _STORED), plain)
    parts.append(_END_MARK)
    return b"".join(parts)


def decompress(data: Buffer, max_size: int, *, check_header: bool = True) -> bytes:
    """The plain bytes of one frame, at most `max_size` of them. Readers of magic 0 do not check the HC byte."""
    view = memoryview(data)
    frame, position = _read_header(view, check_header)
    parts: list[bytes] = []
    left = max_size
    while True:
        size, stored, position = _read_block_size(view, position, frame)
        if size == 0:
            break
        body = _take(view, position, size)
        position += size
        if frame.has_block_checksums:
            position = _check_block(view, position, body)
        # One block may be decoded beyond the cap, at most 4 MiB: its end rules need the frame's block size.
        parts.append(bytes(body) if stored else _decompress_block(body, position, frame.block_size))
        left -= len(parts[-1])
        if left < 0:
            raise DecompressedSizeError(f"lz4, position {position}: more than {max_size} bytes")
    if frame.has_content_checksum:
        _take(view, position, _U32.size)
    return b"".join(parts)


def _header_checksum(descriptor: Buffer) -> int:
    return xxh32(descriptor) >> 8 & 0xFF


def _compress_block(plain: memoryview, level: int) -> bytes:
    if level == _FAST_LEVEL:
        return bytes(lz4.block.compress(plain, store_size=False))
    level = min(level, _HIGHEST_LEVEL)
    return bytes(lz4.block.compress(plain, mode="high_compression", compression=level, store_size=False))


def _take(view: memoryview, position: int, size: int) -> memoryview:
    if len(view) - position < size:
        raise DecompressionError(
            f"lz4, position {position}: the stream ended prematurely, {len(view) - position} of {size} bytes are left"
        )
    return view[position : position + size]


def _read_header(view: memoryview, check: bool) -> tuple[_Frame, int]:
    start = _take(view, 0, _HEADER_START_SIZE)
    if start[:4] != _MAGIC:
        raise DecompressionError(f"lz4: frame magic {bytes(start[:4]).hex(' ')} is not supported, wanted 04 22 4d 18")
    flg, bd = start[4], start[5]
    _check_flg(flg)
    _check_bd(bd)
    end = _HEADER_START_SIZE + (_CONTENT_SIZE_SIZE if flg & 0x08 else 0)
    (found,) = _take(view, end, 1)
    wanted = _header_checksum(view[len(_MAGIC) : end])
    if check and found != wanted:
        raise DecompressionError(f"lz4, position {end}: descriptor checksum {found:#04x}, computed {wanted:#04x}")
    return _Frame(1 << 2 * (bd >> 4) + 8, bool(flg & 0x10), bool(flg & 0x04)), end + 1


def _check_flg(flg: int) -> None:
    if flg >> 6 != _VERSION:
        raise DecompressionError(f"lz4: frame version {flg >> 6} is not supported, wanted 1")
    if not flg & 0x20:
        raise DecompressionError(f"lz4: FLG {flg:#04x}: dependent blocks are not supported")
    if flg & 0x03:
        raise DecompressionError(f"lz4: FLG {flg:#04x}: reserved bits are set")


def _check_bd(bd: int) -> None:
    if bd & 0x8F:
        raise DecompressionError(f"lz4: BD {bd:#04x}: reserved bits are set")
    if bd >> 4 < 4:
        raise DecompressionError(f"lz4: BD {bd:#04x}: block size code {bd >> 4}, wanted 4 to 7")


def _read_block_size(view: memoryview, position: int, frame: _Frame) -> tuple[int, bool, int]:
    """Size, whether the block is stored as it is, and the position behind."""
    (word,) = _U32.unpack(_take(view, position, _U32.size))
    size = word & ~_STORED
    if size > frame.block_size:
        raise DecompressionError(f"lz4, position {position}: block size {size} exceeds the frame's {frame.block_size}")
    return size, bool(word & _STORED), position + _U32.size


def _check_block(view: memoryview, position: int, body: memoryview) -> int:
    (found,) = _U32.unpack(_take(view, position, _U32.size))
    wanted = xxh32(body)
    if found != wanted:
        raise DecompressionError(f"lz4, position {position}: block checksum {found:#010x}, computed {wanted:#010x}")
    return position + _U32.size


def _decompress_block(body: memoryview, end: int, block_size: int) -> bytes:
    try:
        return bytes(lz4.block.decompress(body, uncompressed_size=block_size))
    except lz4.block.LZ4BlockError as error:
        raise DecompressionError(f"lz4: the block that ends at position {end} is broken: {error}") from error
