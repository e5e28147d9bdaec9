"""Snappy by the kernel: what `tidelog.records.snappy_stream` accepts and rejects, and the edges of blocks."""

import struct

import cramjam
import pytest

from tests.kernels import fuzz_codecs
from tests.kernels.fuzz_codecs import varint
from tests.kernels.streams import KINDS, SIZES, open_streams, opened, refuses, sample
from tidelog.records.compression import Codec, compress

HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
HELLO = b"\x05\x10hello"


def chunk(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_framed_and_unframed_streams_are_read(size: int, kind: str) -> None:
    plain = sample(kind, size)
    framed, raw = compress(Codec.SNAPPY, plain), bytes(cramjam.snappy.compress_raw(plain))
    assert opened(Codec.SNAPPY, framed, raw, framed) == [plain] * 3


def test_concatenated_streams_are_one() -> None:
    stream = HEADER + chunk(HELLO)
    assert opened(Codec.SNAPPY, stream + stream + HEADER + HEADER) == [b"hellohello"]
    for size in range(len(stream) + 4, len(stream) + len(HEADER)):
        assert refuses(Codec.SNAPPY, (stream + HEADER)[:size])


@pytest.mark.parametrize("version", [-1, 0, 1, 2])
def test_versions_matter_behind_the_first_header_only(version: int) -> None:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", version, 0)
    assert opened(Codec.SNAPPY, header + chunk(HELLO)) == [b"hello"]
    assert refuses(Codec.SNAPPY, HEADER + header + chunk(HELLO)) == (version < 1)


def test_another_header_must_carry_the_whole_magic() -> None:
    assert refuses(Codec.SNAPPY, HEADER + HEADER[:4] + b"PPY\x01" + HEADER[8:])


def test_up_to_three_bytes_behind_the_last_chunk_are_ignored() -> None:
    for tail in (b"", b"\x00", b"\xff\xff", b"\x00\x00\x01"):
        assert opened(Codec.SNAPPY, HEADER + chunk(HELLO) + tail) == [b"hello"]
    assert refuses(Codec.SNAPPY, HEADER + chunk(HELLO) + bytes(4))


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 8, 2**31 - 1])
def test_a_chunk_size_must_be_positive_and_lie_within_the_stream(size: int) -> None:
    assert refuses(Codec.SNAPPY, HEADER + struct.pack(">i", size) + HELLO)


def test_a_header_that_is_not_whole_is_a_raw_block() -> None:
    assert refuses(Codec.SNAPPY, b"")
    assert refuses(Codec.SNAPPY, HEADER[:15])
    assert opened(Codec.SNAPPY, HEADER, b"\x00") == [b"", b""]


def test_preambles_may_be_long_winded_but_not_without_end() -> None:
    for padding in range(5):
        assert opened(Codec.SNAPPY, varint(5, padding) + HELLO[1:]) == [b"hello"]
    assert refuses(Codec.SNAPPY, varint(5, 5) + HELLO[1:])
    assert refuses(Codec.SNAPPY, b"\xff\xff\xff\xff\x1f" + HELLO[1:])
    assert refuses(Codec.SNAPPY, b"\x85")


def test_a_block_gives_exactly_what_it_announces() -> None:
    for size in range(12):
        assert refuses(Codec.SNAPPY, varint(size) + HELLO[1:]) == (size != 5)


def test_a_block_cut_off_anywhere_is_refused() -> None:
    stream = bytes(cramjam.snappy.compress_raw(sample("mixed", 3000)))
    for size in range(len(stream)):
        assert refuses(Codec.SNAPPY, stream[:size])


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_literal_sizes_are_read_from_up_to_four_bytes(width: int) -> None:
    for size in (1, 60, 61, 200):
        plain = sample("random", size)
        block = varint(size) + bytes([59 + width << 2]) + (size - 1).to_bytes(4, "little")[:width] + plain
        assert opened(Codec.SNAPPY, block) == [plain]
        for cut in range(1, 2 + width):
            assert refuses(Codec.SNAPPY, block[:-size][: len(varint(size)) + cut])


@pytest.mark.parametrize("kind", [1, 2, 3])
@pytest.mark.parametrize("offset", [*range(1, 36), 64])
def test_copies_repeat_what_they_write(offset: int, kind: int) -> None:
    head = sample("random", offset)
    for size in range(4, 12) if kind == 1 else range(1, 65):
        literal = bytes([60 << 2, offset - 1]) + head
        if kind == 1:
            copy = bytes([offset >> 8 << 5 | (size - 4) << 2 | 1, offset & 0xFF])
        else:
            copy = bytes([size - 1 << 2 | kind]) + offset.to_bytes(4, "little")[: 2 * kind - 2]
        plain = head + (head * (size // offset + 1))[:size]
        assert opened(Codec.SNAPPY, varint(len(plain)) + literal + copy) == [plain]


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_offsets_of_zero_and_before_the_block_are_refused(kind: int) -> None:
    for offset in (0, 6, 255):
        copy = (
            bytes([5, offset]) if kind == 1 else bytes([4 << 2 | kind]) + offset.to_bytes(4, "little")[: 2 * kind - 2]
        )
        assert refuses(Codec.SNAPPY, b"\x0a\x10hello" + copy)
        assert refuses(Codec.SNAPPY, HEADER + chunk(HELLO) + chunk(b"\x0a\x10hello" + copy))


def test_a_run_ends_at_the_first_broken_stream() -> None:
    plains, answer = open_streams(Codec.SNAPPY, HELLO, HEADER, HELLO[:-1], HELLO)
    assert (plains, answer.broken) == ([b"hello", b""], 2)


def test_damaged_and_made_up_streams_are_judged_alike_and_stay_in_bounds() -> None:
    assert fuzz_codecs.run(seed=2, cases=3000, codecs=(Codec.SNAPPY,)) == 3000
