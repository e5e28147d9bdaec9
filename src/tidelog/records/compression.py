"""The codecs of the record formats: one table, two functions.

Three bits of a batch's attributes name the codec. It covers the records of a version 2 batch, or the value of a
wrapper message in versions 0 and 1; headers stay plain.

    id  name    stream                                              levels
     0  none    the bytes themselves                                –
     1  gzip    gzip_stream.py: RFC 1952, members in a row          1..9, -1 (the default) lets zlib choose
     2  snappy  snappy_stream.py: xerial framing, or a raw block    –
     3  lz4     lz4_frame.py: one LZ4 frame                         1..17, 9 (the default) is the fast compressor
     4  zstd    zstd_stream.py: frames in a row, version 2 only     -131072..22, default 3

A compressed stream comes from outside. A broken one raises `DecompressionError` and nothing else; one that would grow
beyond `max_size` raises `DecompressedSizeError`, without the memory it asks for: sizes that a stream announces are
compared with the cap first, and streams that announce none are decoded piece by piece.

>>> stream = compress(Codec.LZ4, b"tide" * 1000)
>>> len(stream), decompress(Codec.LZ4, stream) == b"tide" * 1000
(44, True)

Kafka: org.apache.kafka.common.compress.Compression, org.apache.kafka.common.record.CompressionType.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.errors import DecompressedSizeError, InvalidRequestError, UnsupportedCompressionError
from tidelog.records import gzip_stream, lz4_frame, snappy_stream, zstd_stream
from tidelog.records.varint import Buffer

__all__ = [
    "DEFAULT_LEVEL",
    "LEVELS",
    "MAX_DECOMPRESSED_BYTES",
    "Codec",
    "LevelRange",
    "check_level",
    "compress",
    "decompress",
]

# Kafka has no such cap and trusts the JVM's heap. Its own batches stay near 1 MB (max.message.bytes), so this leaves
# room for a ratio of 256.
MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


class Codec(IntEnum):
    """The codecs by the id that is stored."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in configurations and dumps, in lower case."""
        return self.name.lower()

    @classmethod
    def from_id(cls, codec_id: int) -> "Codec":
        """The codec of three attribute bits. 5, 6 and 7 fit the bits but name nothing."""
        try:
            return cls(codec_id)
        except ValueError:
            raise UnsupportedCompressionError(f"codec id {codec_id} is unknown, the known ones are 0 to 4") from None

    @classmethod
    def from_name(cls, name: str) -> "Codec":
        """The codec of a name as Kafka spells it; the case matters."""
        for codec in cls:
            if codec.label == name:
                return codec
        known = ", ".join(codec.label for codec in cls)
        raise InvalidRequestError(f"codec name {name!r} is unknown, the known ones are {known}")


class LevelRange(NamedTuple):
    """The levels a codec takes: from `lowest` to `highest`, and `default`, which for gzip lies outside."""

    lowest: int
    highest: int
    default: int

    def allows(self, level: int) -> bool:
        return self.lowest <= level <= self.highest or level == self.default


LEVELS: Final = {
    Codec.GZIP: LevelRange(1, 9, -1),
    Codec.LZ4: LevelRange(1, 17, 9),
    Codec.ZSTD: LevelRange(-131072, 22, 3),
}
DEFAULT_LEVEL: Final = {codec: levels.default for codec, levels in LEVELS.items()}


def check_level(codec: Codec, level: int) -> None:
    """Raise `InvalidRequestError` unless `codec` takes `level`."""
    if codec not in LEVELS:
        raise InvalidRequestError(f"{codec.label} takes no level, {level} was given")
    levels = LEVELS[codec]
    if not levels.allows(level):
        known = f"{levels.lowest} to {levels.highest} (default {levels.default})"
        raise InvalidRequestError(f"{codec.label} takes levels {known}, not {level}")


class _Functions(NamedTuple):
    compress: Callable[[memoryview, int, int], bytes]  # data, level, magic
    decompress: Callable[[memoryview, int, int], bytes]  # data, max_size, magic
    oldest_magic: int = 0


def _copy(data: memoryview, max_size: int) -> bytes:
    if len(data) > max_size:
        raise DecompressedSizeError(f"none: {len(data)} bytes, {max_size} are allowed")
    return bytes(data)


# The message format matters to lz4 alone: in magic 0 its header checksum is wrong on purpose.
_FUNCTIONS: Final = {
    Codec.NONE: _Functions(
        lambda data, level, magic: bytes(data),
        lambda data, max_size, magic: _copy(data, max_size),
    ),
    Codec.GZIP: _Functions(
        lambda data, level, magic: gzip_stream.compress(data, level),
        lambda data, max_size, magic: gzip_stream.decompress(data, max_size),
    ),
    Codec.SNAPPY: _Functions(
        lambda data, level, magic: snappy_stream.compress(data),
        lambda data, max_size, magic: snappy_stream.decompress(data, max_size),
    ),
    Codec.LZ4: _Functions(
        lambda data, level, magic: lz4_frame.compress(data, level, broken_checksum=magic == 0),
        lambda data, max_size, magic: lz4_frame.decompress(data, max_size, check_header=magic != 0),
    ),
    Codec.ZSTD: _Functions(
        lambda data, level, magic: zstd_stream.compress(data, level),
        lambda data, max_size, magic: zstd_stream.decompress(data, max_size),
        oldest_magic=2,
    ),
}


def _functions(codec: Codec, magic: int) -> _Functions:
    functions = _FUNCTIONS[Codec.from_id(codec)]
    if magic < functions.oldest_magic:
        raise UnsupportedCompressionError(f"{codec.label} does not exist in message format {magic}")
    return functions


def compress(codec: Codec, data: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """`data` as a stream of `codec` for a message format; no level means the codec's default."""
    functions = _functions(codec, magic)
    if level is None:
        level = DEFAULT_LEVEL.get(codec, 0)
    else:
        check_level(codec, level)
    return functions.compress(memoryview(data).cast("B"), level, magic)


def decompress(codec: Codec, data: Buffer, *, magic: int = 2, max_size: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The plain bytes of a stream of `codec`, at most `max_size` of them."""
    return _functions(codec, magic).decompress(memoryview(data).cast("B"), max_size, magic)
