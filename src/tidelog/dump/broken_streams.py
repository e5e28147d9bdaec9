"""What Java's decompressors say about a broken stream, and how much they give before they say it.

Each function follows the reader that Kafka uses for a codec: java.util.zip.GZIPInputStream, snappy-java's
SnappyInputStream, Kafka's own Lz4BlockInputStream, zstd-jni's ZstdInputStream. A reader gives bytes in pieces; the
piece in which it meets the break is lost. Some breaks are met when a stream is opened: those are raised at once.

A stream that gives more than the heap of Kafka's tools can hold breaks there, with Java's error: some bytes can stand
for gigabytes.
"""

import zlib

from tidelog.dump.java_errors import JavaError, heap_error, made_by_reflection
from tidelog.dump.java_streams import JavaStream
from tidelog.dump.log_file import KAFKA_EXCEPTION
from tidelog.dump.old_lz4 import failed_at
from tidelog.dump.releases import Release
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from tidelog.records.xxh32 import xxh32

__all__ = ["broken_stream"]

_IO = "java.io.IOException"
_END_OF_FILE = "java.io.EOFException"
_ZIP = "java.util.zip.ZipException"
_SNAPPY_IO = "org.xerial.snappy.SnappyIOException"
_SNAPPY_ERROR = "org.xerial.snappy.SnappyError"
_LZ4 = "net.jpountz.lz4.LZ4Exception"
_ZSTD = "com.github.luben.zstd.ZstdIOException"

_PIECE = 16 * 1024  # plain bytes that Kafka's readers ask for at once
_SNAPPY_PIECE = 2 * 1024
_GZIP_INPUT = 8 * 1024
_ZSTD_INPUT = 128 * 1024 + 3
_ZSTD_STEP = 1024
_ZSTD_LEAST = 5  # bytes, of the header of a frame
_LARGEST_SNAPPY_CHUNK = 512 * 1024 * 1024


def broken_stream(codec: Codec, data: memoryview, magic: int, release: Release, start: int) -> JavaStream:
    """The stream up to its break, or the exception that comes when it is opened."""
    try:
        return _open(codec, data, magic, release, start if release.is_at_least(0, 10, 2, 2) else None)
    except JavaError as error:
        if error.cause is not None and not release.is_at_least(0, 10, 0):
            error.cause.message = (error.cause.message or "").removesuffix(" (invalid magic bytes)") or None
        if codec is Codec.GZIP or release.is_at_least(0, 11) or not release.is_at_least(0, 10, 2):
            raise
        raise made_by_reflection(error.cause) from None  # as 0.10.2 makes these readers


def _open(codec: Codec, data: memoryview, magic: int, release: Release, start: int | None) -> JavaStream:
    match codec:
        case Codec.GZIP:
            return _gzip(data, release)
        case Codec.SNAPPY:
            return _snappy(data, release)
        case Codec.LZ4:
            return _lz4(data, magic, release, start)
        case Codec.ZSTD:
            return _zstd(data, release)
    raise AssertionError("plain bytes are no stream")


def _out_of_heap() -> JavaError:
    return JavaError("java.lang.OutOfMemoryError", "Java heap space")


def _at_opening(cause: JavaError) -> JavaError:
    return JavaError(KAFKA_EXCEPTION, str(cause), cause)


# -- gzip ----------------------------------------------------------------------------------------------------------


def _gzip(data: memoryview, release: Release) -> JavaStream:
    # Up to 1.0 the inflater has no output buffer: Kafka asks it for a single byte, or for a record.
    piece = _PIECE if release.is_at_least(1, 1) else 1
    position = _gzip_header(data)
    plain = bytearray()
    while len(plain) <= MAX_DECOMPRESSED_BYTES:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        member = bytearray()
        error = _inflate(inflater, data[position:], member, piece, MAX_DECOMPRESSED_BYTES - len(plain))
        plain += member
        if error is not None:
            return JavaStream(plain, error)
        trailer = data[len(data) - len(inflater.unused_data) :][:8]
        for wanted, stored in ((zlib.crc32(member), trailer[:4]), (len(member) & 0xFFFFFFFF, trailer[4:])):
            if len(stored) < 4:
                return JavaStream(plain, JavaError(_END_OF_FILE))
            if int.from_bytes(stored, "little") != wanted:
                return JavaStream(plain, JavaError(_ZIP, "Corrupt GZIP trailer"))
        position = len(data) - len(inflater.unused_data) + 8
        try:
            position += _gzip_header(data[position:])
        except JavaError:
            return JavaStream(plain)  # Java ignores what follows the last member
    return JavaStream(plain, _out_of_heap())


def _inflate(
    inflater: "zlib._Decompress", data: memoryview, plain: bytearray, size: int, most: int
) -> JavaError | None:
    """Inflate a member piece by piece; the error that ends it early."""
    for start in range(0, len(data), _GZIP_INPUT):
        pending: bytes | memoryview = data[start : start + _GZIP_INPUT]
        while len(pending) or inflater.unconsumed_tail:
            try:
                piece = inflater.decompress(pending, size)
            except zlib.error as error:
                return JavaError(_ZIP, str(error).partition(": ")[2])
            plain += piece
            if len(plain) > most:
                return _out_of_heap()
            if inflater.eof:
                if start + _GZIP_INPUT < len(data):  # the rest was never fed: hand it back as unused
                    inflater.decompress(data[start + _GZIP_INPUT :])
                return None
            pending = inflater.unconsumed_tail
    return JavaError(_END_OF_FILE, "Unexpected end of ZLIB input stream")


def _gzip_header(data: memoryview) -> int:
    """Where the deflated data begins."""
    if len(data) < 2:
        raise _at_opening(JavaError(_END_OF_FILE))
    if bytes(data[:2]) != b"\x1f\x8b":
        raise _at_opening(JavaError(_ZIP, "Not in GZIP format"))
    if len(data) < 3:
        raise _at_opening(JavaError(_END_OF_FILE))
    if data[2] != 8:
        raise _at_opening(JavaError(_ZIP, "Unsupported compression method"))
    if len(data) < 10:
        raise _at_opening(JavaError(_END_OF_FILE))
    flags, position = data[3], 10
    if flags & 4:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for bit in (8, 16):
        if flags & bit:
            end = bytes(data[position:]).find(b"\0")
            position = len(data) + 1 if end < 0 else position + end + 1
    if flags & 2:
        stored = data[position : position + 2]
        if len(stored) == 2 and int.from_bytes(stored, "little") != zlib.crc32(data[:position]) & 0xFFFF:
            raise _at_opening(JavaError(_ZIP, "Corrupt GZIP header"))
        position += 2
    if position > len(data):
        raise _at_opening(JavaError(_END_OF_FILE))
    return position


# -- snappy --------------------------------------------------------------------------------------------------------

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = 16


def _snappy(data: memoryview, release: Release) -> JavaStream:
    if not len(data):
        raise _at_opening(JavaError(_SNAPPY_IO, "[EMPTY_INPUT] Cannot decompress empty stream"))
    if len(data) < _SNAPPY_HEADER or bytes(data[:8]) != _SNAPPY_MAGIC:
        block = _snappy_block(data)
        if isinstance(block, JavaError):
            raise _at_opening(block)
        return JavaStream(block)
    buffer_size = _SNAPPY_PIECE if release.streams == "input" else 0
    plain = bytearray()
    position = _SNAPPY_HEADER
    while len(data) - position >= 4:
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size == int.from_bytes(_SNAPPY_MAGIC[:4], "big", signed=True):
            error = _snappy_header(data[position - 4 : position - 4 + _SNAPPY_HEADER])
            position += _SNAPPY_HEADER - 4
            if error is not None:
                return JavaStream(plain, error, buffer_size=buffer_size)
            continue
        block = _snappy_chunk(data[position:], size, release, has_buffer=bool(plain))
        if not isinstance(block, JavaError) and len(plain) + len(block) > MAX_DECOMPRESSED_BYTES:
            block = _out_of_heap()
        if isinstance(block, JavaError):
            return JavaStream(plain, block, buffer_size=buffer_size)
        plain += block
        position += size
    return JavaStream(plain)


def _snappy_header(header: memoryview) -> JavaError | None:
    """The header of a stream behind another."""
    if len(header) < _SNAPPY_HEADER:
        return JavaError(_SNAPPY_IO, "[FAILED_TO_UNCOMPRESS] Insufficient header size in a concatenated block")
    version = int.from_bytes(header[8:12], "big", signed=True)
    if bytes(header[:8]) == _SNAPPY_MAGIC and version < 1:
        return JavaError(
            _SNAPPY_IO,
            f"[INCOMPATIBLE_VERSION] Compressed with an incompatible codec version {version}. At least version 1 is "
            "required",
        )
    return None


def _snappy_chunk(rest: memoryview, size: int, release: Release, *, has_buffer: bool) -> bytes | JavaError:
    """The plain bytes of a chunk. Its buffer is that of the chunk before, if there was one and it is large enough."""
    if size < 0:
        if not release.is_at_least(3, 5, 1):
            negative = JavaError("java.lang.NegativeArraySizeException", str(size))
            return JavaError(_IO, "PARSING_ERROR(2)") if has_buffer else negative
        return JavaError(_SNAPPY_ERROR, f"[INVALID_CHUNK_SIZE] chunkSize is too big or negative : {size}")
    if size > _LARGEST_SNAPPY_CHUNK and release.is_at_least(3, 5, 2):
        return JavaError(
            _SNAPPY_ERROR,
            f"[FAILED_TO_UNCOMPRESS] Received chunkSize {size:,} is greater than max configured chunk size "
            f"{_LARGEST_SNAPPY_CHUNK:,}",
        )
    if size > len(rest):
        too_large = heap_error(size)
        if too_large is not None and release.is_at_least(3, 5, 1):
            return JavaError(_SNAPPY_ERROR, f"[INVALID_CHUNK_SIZE] {too_large.message}")
        return too_large or JavaError(_IO, "failed to read chunk")
    return _snappy_block(rest[:size])


def _snappy_block(block: memoryview) -> bytes | JavaError:
    import cramjam

    size = shift = 0
    for index, byte in enumerate(block[:5]):
        if index == 4 and byte > 15:
            return JavaError(_IO, "PARSING_ERROR(2)")
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        return JavaError(_IO, "PARSING_ERROR(2)")
    if size > MAX_DECOMPRESSED_BYTES:
        return _out_of_heap()
    try:
        plain = bytes(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, MemoryError):
        return JavaError(_IO, "FAILED_TO_UNCOMPRESS(5)")
    return plain


# -- lz4 -----------------------------------------------------------------------------------------------------------

_LZ4_MAGIC = bytes.fromhex("04224d18")
_PREMATURE = "Stream ended prematurely"


def _lz4(data: memoryview, magic: int, release: Release, start: int | None) -> JavaStream:
    position, block_size, flg = _lz4_header(data, magic)
    plain = bytearray()
    while True:
        block = _lz4_block(data, position, block_size, flg, release, start)
        if isinstance(block, JavaError):
            return JavaStream(plain, block)
        piece, position = block
        if not position:
            return JavaStream(plain)
        if len(plain) + len(piece) > MAX_DECOMPRESSED_BYTES:
            return JavaStream(plain, _out_of_heap())
        plain += piece


def _lz4_header(data: memoryview, magic: int) -> tuple[int, int, int]:
    """Where the first block begins, how large blocks are, and the flags."""
    if len(data) < 6:
        raise _at_opening(JavaError(_IO, _PREMATURE))
    if bytes(data[:4]) != _LZ4_MAGIC:
        raise _at_opening(JavaError(_IO, "Stream unsupported (invalid magic bytes)"))
    flg, bd = data[4], data[5]
    if flg & 0x03:
        raise _refused_descriptor("Reserved bits must be 0")
    if not flg & 0x20:
        raise _refused_descriptor("Dependent block stream is unsupported")
    if flg >> 6 != 1:
        raise _refused_descriptor(f"Version {flg >> 6} is unsupported")
    if bd & 0x0F:
        raise _refused_descriptor("Reserved2 field must be 0")
    if not 4 <= bd >> 4 & 7 <= 7:
        raise _refused_descriptor("Block size value must be between 4 and 7")
    if bd & 0x80:
        raise _refused_descriptor("Reserved3 field must be 0")
    end = 6
    if flg & 0x08:
        if len(data) < end + 8:
            raise _at_opening(JavaError(_IO, _PREMATURE))
        end += 8
    if magic != 0:
        if len(data) <= end:
            raise _at_opening(JavaError("java.nio.BufferUnderflowException"))
        if data[end] != xxh32(data[4:end]) >> 8 & 0xFF:
            raise _at_opening(JavaError(_IO, "Stream frame descriptor corrupted"))
    return end + 1, 1 << 2 * (bd >> 4) + 8, flg


def _refused_descriptor(message: str) -> JavaError:
    return _at_opening(JavaError("java.lang.RuntimeException", message))


def _lz4_block(
    data: memoryview, position: int, block_size: int, flg: int, release: Release, start: int | None
) -> tuple[bytes, int] | JavaError:
    """The plain bytes of a block and the position behind it, which is 0 at the end mark."""
    if len(data) - position < 4:
        return JavaError(_IO, _PREMATURE)
    size = int.from_bytes(data[position : position + 4], "little")
    stored, size = bool(size >> 31), size & 0x7FFFFFFF
    position += 4
    if size == 0:
        if flg & 0x04 and len(data) - position < 4:
            return JavaError("java.nio.BufferUnderflowException")
        return b"", 0
    if size > block_size:
        return JavaError(_IO, f"Block size {size} exceeded max: {block_size}")
    if len(data) - position < size:
        return JavaError(_IO, _PREMATURE)
    body = data[position : position + size]
    plain = bytes(body) if stored else _lz4_plain(body, block_size, release, 0 if start is None else start + position)
    if isinstance(plain, JavaError):
        return plain
    position += size
    if flg & 0x10:
        if len(data) - position < 4:
            return JavaError("java.nio.BufferUnderflowException")
        if int.from_bytes(data[position : position + 4], "little") != xxh32(body):
            return JavaError(_IO, "Block checksum mismatch")
        position += 4
    return plain, position


def _lz4_plain(body: memoryview, block_size: int, release: Release, start: int) -> bytes | JavaError:
    """The block, or the place in it that liblz4 objects to, counted from the start of Java's buffer.

    That buffer is the batch; up to 0.10.2.1 it is a copy of the block.
    """
    import lz4.block

    try:
        return bytes(lz4.block.decompress(body, uncompressed_size=block_size))
    except lz4.block.LZ4BlockError as error:
        code = int(str(error).rpartition(" ")[2])
        if not release.is_at_least(4, 2):
            code = failed_at(bytes(body), block_size) or code
        cause = JavaError(_LZ4, f"Error decoding offset {start + code} of input buffer")
        return JavaError(_IO, str(cause), cause)


# -- zstd ----------------------------------------------------------------------------------------------------------


def _zstd(data: memoryview, release: Release) -> JavaStream:
    import zstandard

    plain = bytearray()
    position = 0
    while position < len(data) or not len(data):
        stream = zstandard.ZstdDecompressor().decompressobj(write_size=_PIECE)
        rest = data[position:]
        if len(rest) < _ZSTD_LEAST and not release.is_at_least(3, 5):
            rest = rest[:0]  # older libraries do not look at it yet
        if _is_zstd_too_large(rest, plain):
            return JavaStream(plain, _out_of_heap())
        try:
            plain += stream.decompress(rest)
        except zstandard.ZstdError as error:
            return JavaStream(plain, _zstd_error(str(error).rpartition(": ")[2], release))
        if not stream.eof:
            is_read = position > 0 and (position - 1) // _ZSTD_INPUT == (len(data) - 1) // _ZSTD_INPUT
            return JavaStream(plain, None if is_read else _zstd_error(None, release))
        position = len(data) - len(stream.unused_data)
    return JavaStream(plain)


def _is_zstd_too_large(data: memoryview, plain: bytearray) -> bool:
    """Whether a stream gives more than fits after `plain`, which then has as much of it as fits.

    Three bytes can stand for 128 KiB, so a stream is fed in small steps.
    """
    import zstandard

    stream = zstandard.ZstdDecompressor().decompressobj(write_size=_PIECE)
    before = len(plain)
    try:
        for start in range(0, len(data), _ZSTD_STEP):
            piece = stream.decompress(data[start : start + _ZSTD_STEP])
            if len(plain) + len(piece) > MAX_DECOMPRESSED_BYTES:
                plain += piece[: MAX_DECOMPRESSED_BYTES - len(plain)]
                return True
            plain += piece
            if stream.eof:
                break
    except zstandard.ZstdError:
        pass  # it is broken before that
    del plain[before:]
    return False


def _zstd_error(reason: str | None, release: Release) -> JavaError:
    """An error of libzstd, or the end of the stream inside a frame."""
    if release.is_at_least(3, 5):
        return JavaError(_ZSTD, reason or "Truncated source")
    if reason == "Data corruption detected":
        reason = "Corrupted block detected"  # in the words of the older library
    return JavaError(_IO, f"Decompression error: {reason}" if reason else "Read error or truncated source")
