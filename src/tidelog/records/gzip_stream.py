"""gzip (RFC 1952), as Java writes it and as Java reads it.

One member is

    1f 8b         magic
    08            method: deflate
    flags         bit 1 header checksum, bit 2 extra field, bit 3 file name, bit 4 comment
    mtime         4 bytes        xfl    1 byte        os    1 byte
    [extra]       u16 length and as many bytes        [name], [comment]    each up to and with a zero byte
    [header crc]  u16, the low half of the CRC-32 of the header so far
    data          a raw deflate stream
    crc32         u32, of the plain bytes             isize  u32, their count modulo 2^32

with all numbers little-endian. The writer sets nothing that is optional, no time, and 0xff ("unknown") as operating
system, as Java 16 and later do.

What the reader accepts and rejects is what Java's GZIPInputStream does:

- the first member must be whole and right: header, header checksum if there is one, deflate data, crc32 and isize;
- the three high flag bits, reserved by the RFC, are ignored;
- behind a member, 18 bytes or fewer are ignored whatever they are (no member fits in 18 bytes);
- behind a member, 19 bytes or more that do not begin with a valid header are ignored too;
- if they do begin with one, they are the next member, which must be right to its end.

Java applies the rule of the 18 bytes only when they lie in its 8 KiB read buffer, and else wants a whole member;
here the place in the buffer does not matter.

Kafka: org.apache.kafka.common.compress.GzipCompression, java.util.zip.GZIPInputStream.
"""

import struct
import zlib

from tidelog.errors import DecompressedSizeError, DecompressionError
from tidelog.records.varint import Buffer

__all__ = ["compress", "decompress"]

_WRITTEN_HEADER = bytes.fromhex("1f8b0800 00000000 00ff")
_FIXED_HEADER_SIZE = len(_WRITTEN_HEADER)
_TRAILER = struct.Struct("<II")  # crc32, isize
_U16 = struct.Struct("<H")
_SMALLEST_TAIL = _FIXED_HEADER_SIZE + 1 + _TRAILER.size  # a shorter tail cannot hold a member

_HAS_HEADER_CRC, _HAS_EXTRA, _HAS_NAME, _HAS_COMMENT = 0x02, 0x04, 0x08, 0x10
_RAW_DEFLATE = -15
_MEMORY_LEVEL = 8

# zlib copies what it was given and did not need. Thousands of tiny members must not copy the whole rest each time.
_FEED_SIZE = 16 * 1024


def compress(data: Buffer, level: int = -1) -> bytes:
    """One member. Levels are 1 (fast) to 9 (small); -1 is zlib's choice, 6."""
    deflater = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE, _MEMORY_LEVEL)
    trailer = _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join([_WRITTEN_HEADER, deflater.compress(data), deflater.flush(), trailer])


def decompress(data: Buffer, max_size: int) -> bytes:
    """The plain bytes of all members together, at most `max_size` of them."""
    view = memoryview(data)
    parts: list[bytes] = []
    size, position = 0, _header_end(view, 0)
    while True:
        member, position = _read_member(view, position, max_size - size)
        parts.append(member)
        size += len(member)
        if len(view) - position < _SMALLEST_TAIL:
            break
        try:
            position = _header_end(view, position)
        except DecompressionError:
            break  # not a member: Java ignores such a tail
    return b"".join(parts)


def _header_end(view: memoryview, start: int) -> int:
    """The position behind the header that begins at `start`."""
    fixed = bytes(view[start : start + _FIXED_HEADER_SIZE])
    if len(fixed) < _FIXED_HEADER_SIZE:
        raise DecompressionError(f"gzip, position {start}: the stream ended prematurely, {len(fixed)} bytes of header")
    if fixed[:3] != _WRITTEN_HEADER[:3]:
        raise DecompressionError(f"gzip, position {start}: found {fixed[:3].hex(' ')}, wanted 1f 8b 08")
    flags, end = fixed[3], start + _FIXED_HEADER_SIZE
    if flags & _HAS_EXTRA:
        end += _U16.size + _read_u16(view, end)
    if flags & _HAS_NAME:
        end = _text_end(view, end)
    if flags & _HAS_COMMENT:
        end = _text_end(view, end)
    if flags & _HAS_HEADER_CRC:
        found, wanted = _read_u16(view, end), zlib.crc32(view[start:end]) & 0xFFFF
        if found != wanted:
            raise DecompressionError(f"gzip, position {end}: header checksum {found:#06x}, computed {wanted:#06x}")
        end += _U16.size
    if end > len(view):
        raise DecompressionError(f"gzip, position {start}: the stream ended prematurely inside a header")
    return end


def _read_u16(view: memoryview, position: int) -> int:
    if len(view) - position < _U16.size:
        raise DecompressionError(f"gzip, position {position}: the stream ended prematurely inside a header")
    return int(_U16.unpack_from(view, position)[0])


def _text_end(view: memoryview, position: int) -> int:
    for end in range(position, len(view)):
        if view[end] == 0:
            return end + 1
    raise DecompressionError(f"gzip, position {position}: the stream ended prematurely inside a header text")


def _read_member(view: memoryview, position: int, max_size: int) -> tuple[bytes, int]:
    """Inflate the data that begins at `position` and check its trailer; also the position behind the trailer."""
    plain, end = _inflate(view, position, max_size)
    if len(view) - end < _TRAILER.size:
        raise DecompressionError(f"gzip, position {end}: the stream ended prematurely, {len(view) - end} of 8 bytes")
    found, wanted = _TRAILER.unpack_from(view, end), (zlib.crc32(plain), len(plain) & 0xFFFFFFFF)
    if found != wanted:
        raise DecompressionError(
            f"gzip, position {end}: stored crc {found[0]:#010x} and size {found[1]}, "
            f"computed {wanted[0]:#010x} and {wanted[1]}"
        )
    return plain, end + _TRAILER.size


def _inflate(view: memoryview, position: int, max_size: int) -> tuple[bytes, int]:
    inflater = zlib.decompressobj(_RAW_DEFLATE)
    parts: list[bytes] = []
    left = max_size
    while not inflater.eof:
        if position >= len(view):
            raise DecompressionError(f"gzip, position {position}: the stream ended prematurely inside deflate data")
        try:
            # One byte more than allowed tells "exactly full" from "too much"; zlib would take 0 for "no limit".
            parts.append(inflater.decompress(view[position : position + _FEED_SIZE], left + 1))
        except zlib.error as error:
            raise DecompressionError(f"gzip, position {position}: {error}") from error
        left -= len(parts[-1])
        if left < 0:
            raise DecompressedSizeError(f"gzip: more than {max_size} bytes")
        position = min(position + _FEED_SIZE, len(view))
    return b"".join(parts), position - len(inflater.unused_data)
