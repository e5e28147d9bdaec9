"""What holds for every codec: round trips, damage, bombs. The formats have tests of their own beside this file."""

import contextlib
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.block
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tidelog.errors import (
    DecompressedSizeError,
    DecompressionError,
    InvalidRequestError,
    UnsupportedCompressionError,
)
from tidelog.records import gzip_stream
from tidelog.records.compression import (
    DEFAULT_LEVEL,
    LEVELS,
    MAX_DECOMPRESSED_BYTES,
    Codec,
    check_level,
    compress,
    decompress,
)

PACKING = [codec for codec in Codec if codec is not Codec.NONE]
SIZES = [0, 1, 2, 15, 16, 17, 32767, 32768, 32769, 65535, 65536, 65537, 98304]

payloads = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda unit, size: (unit * size)[:size], st.binary(min_size=1, max_size=40), st.sampled_from(SIZES)),
)
# Contexts of zstd's high levels take hundreds of megabytes each; one of them is tried in test_zstd_stream.
LEVELS_TRIED = {
    Codec.GZIP: st.sampled_from([-1, *range(1, 10)]),
    Codec.LZ4: st.integers(1, 17),
    Codec.ZSTD: st.one_of(st.integers(-131072, 9), st.integers(-7, 9)),
}


def oldest_magic(codec: Codec) -> int:
    return 2 if codec is Codec.ZSTD else 0


def raises_only_our_own(codec: Codec, stream: bytes, magic: int) -> None:
    """Anything but a `DecompressionError` (or plain bytes) falls through and fails the test."""
    with contextlib.suppress(DecompressionError):
        decompress(codec, stream, magic=magic, max_size=1 << 20)


def test_ids_and_names_are_kafkas() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [codec.label for codec in Codec] == names
    assert [Codec.from_id(number) for number in range(5)] == [Codec.from_name(name) for name in names] == list(Codec)


def test_ids_that_name_nothing_are_unsupported() -> None:
    for number in (5, 6, 7, 8, -1):
        with pytest.raises(UnsupportedCompressionError, match=f"codec id {number} "):
            Codec.from_id(number)


def test_names_that_name_nothing_are_refused() -> None:
    for name in ("GZIP", "", "brotli", "producer", "uncompressed"):
        with pytest.raises(InvalidRequestError, match="the known ones are none, gzip, snappy, lz4, zstd"):
            Codec.from_name(name)


def test_levels_belong_to_three_codecs() -> None:
    assert DEFAULT_LEVEL == {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
    for codec, levels in LEVELS.items():
        for level in (levels.lowest, levels.highest, levels.default):
            check_level(codec, level)
    for codec in (Codec.NONE, Codec.SNAPPY):
        with pytest.raises(InvalidRequestError, match=f"{codec.label} takes no level, 1 was given"):
            compress(codec, b"", level=1)


def test_zstd_does_not_exist_before_version_2() -> None:
    for magic in (0, 1):
        with pytest.raises(UnsupportedCompressionError, match=f"zstd does not exist in message format {magic}"):
            compress(Codec.ZSTD, b"", magic=magic)
        with pytest.raises(UnsupportedCompressionError):
            decompress(Codec.ZSTD, compress(Codec.ZSTD, b""), magic=magic)


@behaviour("REC-123")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_none_gives_what_it_takes(magic: int) -> None:
    assert compress(Codec.NONE, b"tide", magic=magic) == decompress(Codec.NONE, b"tide", magic=magic) == b"tide"
    with pytest.raises(DecompressedSizeError):
        decompress(Codec.NONE, b"tide", magic=magic, max_size=3)


@pytest.mark.parametrize("codec", Codec)
@given(data=st.data(), payload=payloads)
@settings(max_examples=60, deadline=None)
def test_any_payload_round_trips_at_any_level_in_any_format(codec: Codec, data: st.DataObject, payload: bytes) -> None:
    magic = data.draw(st.integers(oldest_magic(codec), 2), "magic")
    level = data.draw(st.none() | LEVELS_TRIED.get(codec, st.none()), "level")
    stream = compress(codec, payload, level=level, magic=magic)
    assert decompress(codec, stream, magic=magic, max_size=len(payload)) == payload


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", SIZES)
def test_a_stream_fits_a_cap_of_its_size_and_no_smaller_one(codec: Codec, size: int) -> None:
    payload = b"tide" * (size // 4) + b"x" * (size % 4)
    stream = compress(codec, payload)
    assert decompress(codec, stream, max_size=size) == payload
    if size:
        with pytest.raises(DecompressedSizeError):
            decompress(codec, stream, max_size=size - 1)


@pytest.mark.parametrize("codec", Codec)
def test_any_bytes_like_object_will_do(codec: Codec) -> None:
    payload = b"tide" * 20_000
    stream = compress(codec, payload)
    inside = memoryview(b"<" + stream + b">")[1:-1]
    for source in (bytearray(payload), memoryview(payload), memoryview(bytearray(payload))):
        assert compress(codec, source) == stream
    for source in (bytearray(stream), inside, memoryview(bytearray(stream))):
        assert decompress(codec, source) == payload


@pytest.mark.parametrize("codec", PACKING)
@given(stream=st.binary(max_size=200), magic=st.integers(0, 2))
@example(stream=b"", magic=2)
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_raise_nothing_but_our_own_errors(codec: Codec, stream: bytes, magic: int) -> None:
    magic = max(magic, oldest_magic(codec))
    raises_only_our_own(codec, stream, magic)
    head = compress(codec, b"", magic=magic)
    for kept in (4, 7, 10, 16):
        raises_only_our_own(codec, head[:kept] + stream, magic)


@pytest.mark.parametrize("codec", PACKING)
@given(payload=payloads, data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_streams_raise_nothing_but_our_own_errors(codec: Codec, payload: bytes, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, payload))
    for _ in range(data.draw(st.integers(1, 3), "flips")):
        bit = data.draw(st.integers(0, len(stream) * 8 - 1), "bit")
        stream[bit // 8] ^= 1 << bit % 8
    raises_only_our_own(codec, bytes(stream), 2)
    raises_only_our_own(codec, bytes(stream[: data.draw(st.integers(0, len(stream)), "size")]), 2)


@pytest.mark.parametrize("codec", PACKING)
def test_every_single_bit_and_every_cut_of_a_stream_is_survived(codec: Codec) -> None:
    payload = b"the tide comes in, the tide goes out, " * 5
    stream = compress(codec, payload)
    for bit in range(len(stream) * 8):
        damaged = bytearray(stream)
        damaged[bit // 8] ^= 1 << bit % 8
        raises_only_our_own(codec, bytes(damaged), 2)
    for size in range(len(stream)):
        raises_only_our_own(codec, stream[:size], 2)


def gzip_bomb() -> bytes:
    """1 GiB of zeros in about 1 MB."""
    return gzip_stream.compress(bytes(64 << 20), 9) * 16


def gzip_bomb_of_one_member() -> bytes:
    """512 MiB of zeros whose end never comes, so that no trailer can give it away."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = deflater.compress(bytes(16 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH)
    return gzip_stream.compress(b"")[:10] + head * 32


def lz4_bomb() -> bytes:
    """1 GiB of zeros in about 4 MB: 4 MiB blocks, as dense as lz4 gets."""
    block = bytes(lz4.block.compress(bytes(4 << 20), store_size=False))
    return bytes.fromhex("04224d18 60 70 73") + (struct.pack("<I", len(block)) + block) * 256 + bytes(4)


def zstd_bomb() -> bytes:
    """1 GiB of zeros in 32 KiB: blocks of 4 bytes that say "128 KiB times 0"."""
    block = struct.pack("<I", (128 * 1024) << 3 | 1 << 1)[:3] + b"\0"
    return bytes.fromhex("28b52ffd 00 58") + block * 8192 + b"\x01\0\0"


def snappy_bomb() -> bytes:
    """1 GiB of zeros in chunks of 32 MiB. Snappy cannot shrink by more than 21."""
    block = bytes(cramjam.snappy.compress_raw(bytes(32 << 20)))
    return compress(Codec.SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * 32


def snappy_lie() -> bytes:
    """A block of 6 bytes that claims 4 GiB."""
    return bytes.fromhex("ffffffff0f00")


BOMBS = {
    "gzip, many members": (Codec.GZIP, gzip_bomb),
    "gzip, one member": (Codec.GZIP, gzip_bomb_of_one_member),
    "lz4": (Codec.LZ4, lz4_bomb),
    "snappy": (Codec.SNAPPY, snappy_bomb),
    "snappy, a lie": (Codec.SNAPPY, snappy_lie),
    "zstd": (Codec.ZSTD, zstd_bomb),
}

# The address space is limited behind the imports, so that even memory asked for and never touched counts.
REFUSE_IN_LITTLE_MEMORY = """
import resource, sys
from tidelog.errors import DecompressedSizeError
from tidelog.records.compression import Codec, decompress
codec, stream, cap, room = Codec.from_name(sys.argv[1]), sys.stdin.buffer.read(), int(sys.argv[2]), int(sys.argv[3])
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room,) * 2)
try:
    decompress(codec, stream, max_size=cap)
except DecompressedSizeError:
    sys.exit(42)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_memory(name: str) -> None:
    codec, make = BOMBS[name]
    cap, room = 1 << 20, 24 << 20
    command = [sys.executable, "-c", REFUSE_IN_LITTLE_MEMORY, codec.label, str(cap), str(room)]
    done = subprocess.run(command, input=make(), capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (42, "")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_under_the_default_cap(name: str) -> None:
    codec, make = BOMBS[name]
    assert MAX_DECOMPRESSED_BYTES == 256 << 20
    with pytest.raises(DecompressedSizeError):
        decompress(codec, make())
