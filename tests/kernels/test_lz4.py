"""LZ4 frames by the kernel: what `tidelog.records.lz4_frame` accepts and rejects, and the edges of its block rules."""

import itertools
import struct

import lz4.frame
import pytest

from tests.kernels import fuzz_codecs
from tests.kernels.streams import KINDS, SIZES, open_streams, opened, refuses, sample
from tidelog.records.compression import Codec, compress
from tidelog.records.xxh32 import xxh32

MAGIC = bytes.fromhex("04224d18")
END_MARK = bytes(4)
HELLO = b"\x50hello"


def frame(*blocks: bytes, flg: int = 0x60, bd: int = 0x40, content_size: bytes = b"", hc: int | None = None) -> bytes:
    """A frame up to its last block, without end mark."""
    descriptor = bytes([flg, bd]) + content_size
    checksum = xxh32(descriptor) >> 8 & 0xFF if hc is None else hc
    return MAGIC + descriptor + bytes([checksum]) + b"".join(blocks)


def packed(block: bytes) -> bytes:
    return struct.pack("<I", len(block)) + block


def stored(block: bytes) -> bytes:
    return struct.pack("<I", len(block) | 0x80000000) + block


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_frames_of_our_writer_are_read(size: int, kind: str) -> None:
    plain = sample(kind, size)
    streams = [compress(Codec.LZ4, plain, level=level) for level in (9, 1, 17)]
    assert opened(Codec.LZ4, *streams) == [plain] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_frames_of_the_lz4_package_are_read(size: int, kind: str) -> None:
    plain = sample(kind, size)
    streams = [
        lz4.frame.compress(
            plain,
            block_size=block_size,
            block_linked=False,
            content_checksum=content_checksum,
            block_checksum=block_checksum,
            store_size=store_size,
        )
        for block_size, content_checksum, block_checksum, store_size in itertools.product((4, 7), *[(False, True)] * 3)
    ]
    assert opened(Codec.LZ4, *streams) == [plain] * 16


def test_the_header_checksum_matters_from_magic_1_on() -> None:
    old = compress(Codec.LZ4, b"tide", magic=0)
    assert opened(Codec.LZ4, old, magic=0) == [b"tide"]
    assert refuses(Codec.LZ4, old, magic=1)
    assert refuses(Codec.LZ4, old, magic=2)


def test_every_byte_of_the_header_is_judged_as_the_readable_path_does() -> None:
    verdicts = {
        refuses(Codec.LZ4, frame(packed(HELLO), flg=flg, bd=bd, content_size=bytes(flg & 8)) + END_MARK)
        for flg in range(256)
        for bd in (0x00, 0x30, 0x40, 0x41, 0x48, 0x50, 0x60, 0x70, 0x80, 0xC0)
    }
    assert verdicts == {True, False}


def test_a_frame_cut_off_anywhere_is_refused() -> None:
    plain = sample("text", 70_000)
    stream = lz4.frame.compress(plain, block_linked=False, block_size=4, content_checksum=True, block_checksum=True)
    for size in [*range(60), *range(60, len(stream), 997), *range(len(stream) - 20, len(stream))]:
        assert refuses(Codec.LZ4, stream[:size])


def test_what_follows_the_end_of_a_frame_is_ignored() -> None:
    stream = frame(packed(HELLO)) + END_MARK
    assert opened(Codec.LZ4, stream + b"anything", stream + stream) == [b"hello", b"hello"]


def test_a_stored_size_of_zero_is_an_end_mark_too() -> None:
    assert opened(Codec.LZ4, frame(packed(HELLO)) + struct.pack("<I", 0x80000000)) == [b"hello"]


def test_stored_blocks_are_copied_up_to_the_block_size() -> None:
    full = sample("random", 65_536)
    assert opened(Codec.LZ4, frame(stored(full), stored(b"x")) + END_MARK) == [full + b"x"]
    assert refuses(Codec.LZ4, frame(stored(full + b"x")) + END_MARK)


def test_a_wrong_block_checksum_is_refused() -> None:
    right = packed(HELLO) + struct.pack("<I", xxh32(HELLO))
    wrong = packed(HELLO) + struct.pack("<I", xxh32(HELLO) ^ 1)
    assert opened(Codec.LZ4, frame(right, flg=0x70) + END_MARK) == [b"hello"]
    assert refuses(Codec.LZ4, frame(wrong, flg=0x70) + END_MARK)


def test_a_wrong_content_checksum_is_not_looked_at_but_must_be_there() -> None:
    stream = frame(packed(HELLO), flg=0x64) + END_MARK
    assert opened(Codec.LZ4, stream + b"sum!") == [b"hello"]
    assert refuses(Codec.LZ4, stream + b"su")


def test_dependent_blocks_are_refused() -> None:
    assert refuses(Codec.LZ4, lz4.frame.compress(sample("text", 100_000), block_linked=True, block_size=4))


def test_an_offset_of_zero_gives_zeros() -> None:
    block = b"\x10a\x00\x00" + b"\xd0twelve and one"[:14]
    assert opened(Codec.LZ4, frame(packed(block)) + END_MARK) == [b"a\0\0\0\0twelve and on"]


@pytest.mark.parametrize("offset", range(1, 40))
def test_matches_repeat_what_they_write(offset: int) -> None:
    head = bytes(range(offset))
    for size in (*range(4, 40), 63, 64, 65, 300):
        extra = size - 19
        tail = b"" if extra < 0 else bytes([255] * (extra // 255) + [extra % 255])
        literals = bytes([min(offset, 15) << 4 | min(size - 4, 15)]) + (bytes([offset - 15]) if offset >= 15 else b"")
        block = literals + head + struct.pack("<H", offset) + tail + b"\xf0\x05" + b"z" * 20
        plain = head + (head * (size // offset + 1))[:size] + b"z" * 20
        assert opened(Codec.LZ4, frame(packed(block)) + END_MARK) == [plain]


def test_blocks_that_end_near_their_limits_are_judged_by_the_rules() -> None:
    """A long match fills a block of 64 KiB up to a few bytes; then all short tails are tried."""
    verdicts = set()
    for free in range(36):
        match = 65_536 - free - 1 - 4 - 15
        head = b"\x1fa\x01\x00" + bytes([255] * (match // 255) + [match % 255])
        for literals in range(14):
            block = head + bytes([literals << 4]) + b"l" * literals
            verdicts.add(refuses(Codec.LZ4, frame(packed(block)) + END_MARK))
            for offset in (1, 8):
                sequence = bytes([literals << 4 | 2]) + b"l" * literals + struct.pack("<H", offset) + b"\x00"
                verdicts.add(refuses(Codec.LZ4, frame(packed(head + sequence)) + END_MARK))
                verdicts.add(refuses(Codec.LZ4, frame(packed(head + sequence[:-1] + b"\xd0" + b"e" * 13)) + END_MARK))
    assert verdicts == {True, False}


def test_a_run_ends_at_the_first_broken_stream() -> None:
    good = frame(packed(HELLO)) + END_MARK
    plains, answer = open_streams(Codec.LZ4, good, good, good[:-1], good)
    assert (plains, answer.broken) == ([b"hello", b"hello"], 2)


def test_damaged_and_made_up_streams_are_judged_alike_and_stay_in_bounds() -> None:
    assert fuzz_codecs.run(seed=1, cases=3000, codecs=(Codec.LZ4,)) == 3000
