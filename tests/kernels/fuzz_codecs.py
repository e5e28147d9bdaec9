"""Codecs under fire: sound and damaged streams, decoded by kernels and by `tidelog.records`.

Invariant: both give the same bytes, or both refuse. And no kernel touches memory that is not its own: sources and
targets lie between pages that nobody may touch, hard against one of them, so that one byte too far ends the process.

    run(seed=1, cases=10_000)       the number of cases, or an AssertionError that names the streams

A case is a run of one to four streams of one codec with one cap. Besides what compressors write there are blocks
drawn from the grammar of the format, which come much closer to its edges than damage to good streams does.
"""

import ctypes
import gzip
import mmap
import random
import struct
import zlib
from collections.abc import Callable

import lz4.frame
import numpy as np
import zstandard

from tests.kernels.streams import bytes_at
from tidelog.errors import DecompressionError
from tidelog.kernels.decompress import Decompressor, Int64Array
from tidelog.kernels.lz4 import BROKEN, FULL, LARGEST_BLOCK, decompress_lz4
from tidelog.kernels.memory import SLACK
from tidelog.kernels.snappy import decompress_snappy
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.xxh32 import xxh32

KERNEL_CODECS = (Codec.LZ4, Codec.SNAPPY)
CODECS = (*KERNEL_CODECS, Codec.GZIP, Codec.ZSTD)

_libc = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0


class Arena:
    """Memory between two pages that must not be touched."""

    def __init__(self, size: int) -> None:
        pages = -(-size // mmap.PAGESIZE)
        self._map = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.first = self._bytes.ctypes.data + mmap.PAGESIZE
        self.end = self.first + pages * mmap.PAGESIZE
        self.view = memoryview(self._map)[mmap.PAGESIZE : -mmap.PAGESIZE]
        for guard in (self.first - mmap.PAGESIZE, self.end):
            if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def put(self, data: bytes, *, against_the_end: bool) -> int:
        """Copy `data` to one of the edges; its address."""
        start = self.end - self.first - len(data) if against_the_end else 0
        self.view[start : start + len(data)] = data
        return self.first + start

    def get(self, first: int, end: int) -> bytes:
        return bytes(self.view[first - self.first : end - self.first])


class Bench:
    """Runs streams through a kernel and through the decompressor, in guarded memory."""

    def __init__(self) -> None:
        self.source = Arena(4 << 20)
        self.target = Arena(16 << 20)

    def lay(self, streams: list[bytes], *, against_the_end: bool) -> Int64Array:
        """The table of streams put one behind the other. What may be read ends where the last stream ends, or later."""
        sizes = np.array([len(stream) for stream in streams])
        data = b"".join(streams)
        table = np.empty((len(streams), 3), np.int64)
        table[:, 1] = self.source.put(data, against_the_end=against_the_end) + np.cumsum(sizes)
        table[:, 0] = table[:, 1] - sizes
        table[:, 2] = self.source.end
        return table

    def kernel(
        self, codec: Codec, table: Int64Array, capacity: int, max_size: int, magic: int, *, against_the_end: bool
    ) -> tuple[list[bytes], int]:
        """What came out, and the outcome."""
        results = np.empty_like(table)
        target = self.target.end - SLACK - capacity if against_the_end else self.target.first
        arguments = (table.ctypes.data, len(table), results.ctypes.data, target, capacity, max_size)
        done, outcome = (
            decompress_lz4(*arguments, int(magic != 0)) if codec == Codec.LZ4 else decompress_snappy(*arguments)
        )
        assert target <= results[:done].min(initial=target)
        assert results[:done, :2].max(initial=target) <= target + capacity
        assert results[:done, 2].max(initial=target) <= target + capacity + SLACK
        return [self.target.get(first, end) for first, end, _ in results[:done].tolist()], outcome

    def decompressor(
        self, codec: Codec, table: Int64Array, max_size: int, magic: int
    ) -> tuple[list[bytes], int | None]:
        """What came out, and the index of the first broken stream."""
        opened = Decompressor(max_size, magic).open(codec, self.source.view, table)
        done = len(table) if opened.broken is None else opened.broken
        return [bytes_at(first, end) for first, end, _ in opened.table[:done].tolist()], opened.broken


def readable(codec: Codec, stream: bytes, max_size: int, magic: int) -> bytes | None:
    """The truth; None is a refusal."""
    try:
        return decompress(codec, stream, max_size=max_size, magic=magic)
    except DecompressionError:
        return None


def check(bench: Bench, rng: random.Random, codec: Codec, streams: list[bytes], max_size: int, magic: int) -> None:
    """Compare all ways of decoding `streams`."""
    truth: list[bytes] = []
    for stream in streams:
        plain = readable(codec, stream, max_size, magic)
        if plain is None:
            break
        truth.append(plain)
    broken = None if len(truth) == len(streams) else len(truth)
    where = f"{codec.name}, max_size={max_size}, magic={magic}, [{', '.join(stream.hex() for stream in streams)}]"
    against_the_end = rng.random() < 0.7
    table = bench.lay(streams, against_the_end=against_the_end)
    if codec in KERNEL_CODECS:
        total = sum(map(len, truth))
        for capacity in (total + min(max_size, 4 << 20) + LARGEST_BLOCK, rng.randrange(total + 100)):
            plains, outcome = bench.kernel(codec, table, capacity, max_size, magic, against_the_end=rng.random() < 0.7)
            assert plains == truth[: len(plains)], where
            if outcome == FULL:
                assert capacity < total + LARGEST_BLOCK, where
            else:
                assert (len(plains), outcome) == (len(truth), 0 if broken is None else BROKEN), where
    assert bench.decompressor(codec, table, max_size, magic) == (truth, broken), where


# -- streams -------------------------------------------------------------------------------------------------------


def plain_bytes(rng: random.Random) -> bytes:
    """Something to compress: text, noise, runs, or all of them."""
    size = rng.choice((0, 1, 7, rng.randrange(40), rng.randrange(40), rng.randrange(600), rng.randrange(5000)))
    if rng.random() < 0.01:
        size = rng.randrange(60_000, 150_000)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return bytes([rng.randrange(256)]) * size
    word = rng.randbytes(rng.randrange(1, 24))
    if kind == 2:
        return (word * (size // len(word) + 1))[:size]
    parts = [rng.choice((word, b'{"user":', b'"amount":', b"%d" % rng.randrange(10**6))) for _ in range(size // 4)]
    return b"".join(parts)[:size]


def lz4_stream(rng: random.Random, plain: bytes, magic: int) -> bytes:
    if rng.random() < 0.3:
        return lz4_frame_of(rng, [lz4_block(rng) for _ in range(rng.randrange(1, 3))])
    if rng.random() < 0.5:
        return compress(Codec.LZ4, plain, magic=magic)
    return bytes(
        lz4.frame.compress(
            plain,
            block_size=rng.choice((4, 5, 6, 7)),
            block_linked=rng.random() < 0.1,
            compression_level=rng.choice((-3, 0, 3, 9)),
            content_checksum=rng.random() < 0.5,
            block_checksum=rng.random() < 0.5,
            store_size=rng.random() < 0.5,
        )
    )


def lz4_frame_of(rng: random.Random, blocks: list[bytes]) -> bytes:
    flags = 0x60 | rng.choice((0, 0x10)) | rng.choice((0, 4)) | rng.choice((0, 8))
    descriptor = bytes([flags, rng.choice((0x40, 0x40, 0x50, 0x70))]) + rng.randbytes(flags & 8)
    parts = [bytes.fromhex("04224d18"), descriptor, bytes([xxh32(descriptor) >> 8 & 0xFF])]
    for block in blocks:
        stored = rng.random() < 0.1
        parts += (struct.pack("<I", len(block) | stored << 31), block)
        if flags & 0x10:
            parts.append(struct.pack("<I", xxh32(block)))
    return b"".join([*parts, bytes(4), bytes(flags & 4)])


def lz4_block(rng: random.Random) -> bytes:
    """A block from the grammar; about half of them obey its end rules."""
    out = bytearray()
    written = 0

    def size_bytes(size: int) -> bytes:
        return b"" if size < 15 else bytes([255] * ((size - 15) // 255) + [(size - 15) % 255])

    for turn in range(rng.randrange(5)):
        literals = rng.choice((0, 0, 1, 5, 14, 15, 16, rng.randrange(40), rng.randrange(300)))
        match = rng.choice((0, 3, 14, 15, 16, rng.randrange(40), rng.randrange(700)))
        if turn == 0 and rng.random() < 0.3:  # to the end of a block of 64 KiB, but for a little
            literals = max(literals, 1)
            match = 65536 - rng.randrange(90) - literals - 4
        written += literals
        offset = min(rng.choice((0, 1, 2, 3, 7, 8, 9, 15, 16, 17, rng.randrange(1, 80), written)), written)
        offset = offset + 1 if rng.random() < 0.01 else offset
        out.append(min(literals, 15) << 4 | min(match, 15))
        out += size_bytes(literals) + rng.randbytes(literals) + struct.pack("<H", offset & 0xFFFF) + size_bytes(match)
        written += match + 4
    literals = rng.choice((0, 4, 5, 6, 11, 12, 13, rng.randrange(30), rng.randrange(100)))
    out.append(min(literals, 15) << 4 | rng.randrange(16))
    return bytes(out + size_bytes(literals) + rng.randbytes(literals))


def snappy_stream(rng: random.Random, plain: bytes, magic: int) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return snappy_block(rng)
    if kind == 1:
        return compress(Codec.SNAPPY, plain)
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", rng.choice((1, 1, 0)), 1)
    parts = [header]
    for _ in range(rng.randrange(4)):
        block = snappy_block(rng)
        parts += (struct.pack(">i", len(block)), block)
        if rng.random() < 0.2:
            parts.append(header)
    return b"".join([*parts, rng.randbytes(rng.choice((0, 0, 1, 3, 4)))])


def snappy_block(rng: random.Random) -> bytes:
    """A block from the grammar; most of them are sound."""
    out = bytearray()
    written = 0
    for _ in range(rng.randrange(1, 8)):
        kind = rng.randrange(4) if written else 0
        if kind == 0:
            size = rng.choice((1, 15, 16, 17, 32, 33, 60, 61, 256, rng.randrange(1, 60), rng.randrange(1, 400)))
            width = 0 if size <= 60 else rng.choice((1, 2, 3, 4)) if size <= 256 else rng.choice((2, 3, 4))
            out.append((size - 1 if width == 0 else 59 + width) << 2)
            out += (size - 1).to_bytes(4, "little")[:width] + rng.randbytes(size)
        else:
            size = rng.randrange(4, 12) if kind == 1 else rng.choice((1, 16, 17, 32, 33, 64, rng.randrange(1, 65)))
            offset = min(rng.choice((1, 2, 3, 7, 8, 9, 15, 16, 17, rng.randrange(1, 80), written)), written)
            if rng.random() < 0.01:
                offset = rng.choice((0, written + 1))
            offset = min(offset, 0x7FF) if kind == 1 else offset
            if kind == 1:
                out += bytes([offset >> 8 << 5 | (size - 4) << 2 | 1, offset & 0xFF])
            else:
                out.append(size - 1 << 2 | kind)
                out += offset.to_bytes(4, "little")[: 2 if kind == 2 else 4]
        written += size
    if rng.random() < 0.05:
        written += rng.choice((-1, 1, 64))
    return varint(written, rng.choice((0, 0, 0, 1, 3))) + bytes(out)


def varint(value: int, padding: int = 0) -> bytes:
    """An unsigned varint, up to `padding` bytes longer than it must be."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value | (0x80 if padding else 0)]) + (b"\x80" * (padding - 1) + b"\x00") * bool(padding))


def gzip_stream(rng: random.Random, plain: bytes, magic: int) -> bytes:
    def member(data: bytes) -> bytes:
        if rng.random() < 0.6:
            return compress(Codec.GZIP, data, level=rng.choice((-1, 1, 9)))
        flags = rng.choice((0, 1, 2, 4, 8, 16, 0x1E, 0x80))
        header = b"\x1f\x8b\x08" + bytes([flags]) + rng.randbytes(6)
        header += b"\x05\x00extra" * bool(flags & 4) + b"name\x00" * bool(flags & 8) + b"text\x00" * bool(flags & 16)
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) * bool(flags & 2)
        return header + gzip.compress(data, mtime=0)[10:]

    members = [member(plain)]
    while rng.random() < 0.15:
        members.append(rng.choice((members[0], member(plain[: rng.randrange(50)]))))
    return b"".join(members) + rng.randbytes(rng.choice((0, 0, 0, 0, 1, 18, 19, 40)))


def zstd_stream(rng: random.Random, plain: bytes, magic: int) -> bytes:
    def frame(data: bytes) -> bytes:
        if rng.random() < 0.5:
            return compress(Codec.ZSTD, data, level=rng.choice((-5, 1, 3)))
        if rng.random() < 0.1:
            return struct.pack("<II", 0x184D2A50 + rng.randrange(16), 5) + rng.randbytes(5)
        return zstandard.ZstdCompressor(
            level=rng.choice((-1, 1)), write_checksum=rng.random() < 0.5, write_content_size=rng.random() < 0.7
        ).compress(data)

    frames = [frame(plain)]
    while rng.random() < 0.15:
        frames.append(frame(plain[: rng.randrange(50)]))
    return b"".join(frames)


STREAMS: dict[Codec, Callable[[random.Random, bytes, int], bytes]] = {
    Codec.LZ4: lz4_stream,
    Codec.SNAPPY: snappy_stream,
    Codec.GZIP: gzip_stream,
    Codec.ZSTD: zstd_stream,
}


def damage(rng: random.Random, stream: bytes, other: bytes) -> bytes:
    """The stream with something wrong, mostly. Damage is likelier near the head, where most rules are."""
    data = bytearray(stream)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind = rng.randrange(7)
        where = rng.randrange(len(data) + 1)
        if rng.random() < 0.3:
            where = min(where, rng.randrange(24))
        if kind <= 1 and data:
            data[where % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 2 and data:
            data[where % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
        elif kind == 3:
            del data[where:]
        elif kind == 4:
            del data[where : where + rng.randrange(1, 9)]
        elif kind == 5:
            data[where:where] = rng.randbytes(rng.randrange(1, 9))
        else:
            data[where:] = other[rng.randrange(len(other) + 1) :]
    return bytes(data)


def case(bench: Bench, rng: random.Random, codec: Codec) -> None:
    """Make up a run of streams and check it."""
    magic = rng.choice((0, 1, 2)) if codec != Codec.ZSTD else 2
    streams: list[bytes] = []
    largest = 0
    for _ in range(rng.choice((1, 1, 2, 4))):
        plain = plain_bytes(rng)
        largest = max(largest, len(plain))
        stream = STREAMS[codec](rng, plain, magic)
        if rng.random() < 0.5:
            other = streams[-1] if streams else STREAMS[codec](rng, plain_bytes(rng), magic)
            stream = damage(rng, stream, other)
        streams.append(stream)
    max_size = rng.choice((1 << 20, 1 << 20, 1 << 20, 1 << 28, largest, max(largest - 1, 0), rng.randrange(200)))
    check(bench, rng, codec, streams, max_size, magic)


def run(seed: int, cases: int, codecs: tuple[Codec, ...] = CODECS) -> int:
    """Execute `cases` cases, spread over the codecs."""
    rng = random.Random(seed)
    bench = Bench()
    for number in range(cases):
        case(bench, rng, codecs[number % len(codecs)])
    return cases
