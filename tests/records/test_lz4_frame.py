import random
import struct

import lz4.block
import lz4.frame
import pytest
from aiokafka.codec import lz4_decode, lz4_encode

from tests.behaviours import behaviour
from tidelog.errors import DecompressedSizeError, DecompressionError, InvalidRequestError
from tidelog.records import lz4_frame
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.xxh32 import xxh32

CAP = 1 << 20
MAGIC = bytes.fromhex("04224d18")
END_MARK = bytes(4)

HELLO_BLOCK = b"\x50hello"


def frame(*blocks: bytes, flg: int = 0x60, bd: int = 0x40, content_size: bytes = b"", hc: int | None = None) -> bytes:
    """A frame up to its last block, without end mark."""
    descriptor = bytes([flg, bd]) + content_size
    checksum = xxh32(descriptor) >> 8 & 0xFF if hc is None else hc
    return MAGIC + descriptor + bytes([checksum]) + b"".join(blocks)


def packed(block: bytes) -> bytes:
    return struct.pack("<I", len(block)) + block


def stored(block: bytes) -> bytes:
    return struct.pack("<I", len(block) | 0x80000000) + block


def summed(block: bytes) -> bytes:
    return packed(block) + struct.pack("<I", xxh32(block))


HELLO = frame(packed(HELLO_BLOCK)) + END_MARK


def read(stream: bytes, magic: int = 2) -> bytes:
    return decompress(Codec.LZ4, stream, magic=magic, max_size=CAP)


def decode_by_the_rules(block: bytes, room: int) -> bytes | None:
    """The block rules of lz4_frame's docstring, word by word; None is a rejection."""
    out = bytearray()
    position = 0

    def add_to(size: int, leave: int) -> int | None:
        nonlocal position
        while len(block) - position > leave:
            byte, position = block[position], position + 1
            size += byte
            if byte != 255:
                return size
        return None

    if not block:
        return None
    while True:
        token, position = block[position], position + 1
        literals: int | None = token >> 4
        untested = token >> 4 < 15 and len(block) - position >= 17 and room - len(out) >= 32
        if literals == 15:
            literals = add_to(15, 15)
        if literals is None:
            return None
        in_left, out_left = len(block) - position - literals, room - len(out) - literals
        out += block[position : position + literals]
        position += literals
        if not untested and (in_left < 8 or out_left < 12):
            return bytes(out) if in_left == 0 and out_left >= 0 else None
        offset, position = int.from_bytes(block[position : position + 2], "little"), position + 2
        match: int | None = token & 15
        if match == 15:
            match = add_to(15, 4)
        if match is None or offset > len(out):
            return None
        match += 4
        if not (untested and token & 15 < 15 and offset >= 8) and room - len(out) - match < 5:
            return None
        for _ in range(match):
            out.append(out[-offset] if offset else 0)


def liblz4(block: bytes, room: int) -> bytes | None:
    try:
        return bytes(lz4.block.decompress(block, uncompressed_size=room))
    except lz4.block.LZ4BlockError:
        return None


@behaviour("REC-122")
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("level", [1, 5, 9, 12, 17])
def test_data_round_trips_at_the_lowest_default_and_highest_level(level: int, magic: int) -> None:
    data = b"tide" * 256 + bytes(range(256)) * 300
    stream = compress(Codec.LZ4, data, level=level, magic=magic)
    assert decompress(Codec.LZ4, stream, magic=magic) == data
    if magic:
        assert lz4.frame.decompress(stream) == lz4_decode(stream) == data


@behaviour("REC-122")
def test_levels_just_outside_are_refused() -> None:
    for level in (0, 18):
        with pytest.raises(InvalidRequestError, match=f"not {level}"):
            compress(Codec.LZ4, b"", level=level)


@behaviour("REC-124")
def test_magic_0_writes_the_broken_checksum_and_does_not_check_it() -> None:
    assert compress(Codec.LZ4, b"", magic=0)[6] == 0x1A
    assert compress(Codec.LZ4, b"", magic=1)[6] == compress(Codec.LZ4, b"", magic=2)[6] == 0x82
    wrong = frame(packed(HELLO_BLOCK), hc=0x1A) + END_MARK
    assert read(wrong, magic=0) == read(HELLO, magic=0) == b"hello"
    for magic in (1, 2):
        with pytest.raises(DecompressionError, match="descriptor checksum 0x1a, computed 0x82"):
            read(wrong, magic=magic)


@behaviour("REC-125")
def test_two_bytes_end_prematurely_and_another_magic_is_not_supported() -> None:
    with pytest.raises(DecompressionError, match="ended prematurely"):
        read(MAGIC[:2])
    with pytest.raises(DecompressionError, match="frame magic 05 22 4d 18 is not supported"):
        read(b"\x05" + HELLO[1:])


@behaviour("REC-126")
def test_a_wrong_descriptor_byte_is_a_checksum_error_unless_ignored() -> None:
    stream = frame(packed(HELLO_BLOCK), hc=0xFF) + END_MARK
    with pytest.raises(DecompressionError, match="descriptor checksum 0xff"):
        read(stream)
    assert read(stream, magic=0) == b"hello"


@behaviour("REC-127")
@pytest.mark.parametrize("bd", [0x40, 0x50, 0x60, 0x70])
def test_a_block_larger_than_the_frame_allows_is_rejected(bd: int) -> None:
    largest = 1 << 8 + 2 * (bd >> 4)
    for flag in (0, 0x80000000):
        with pytest.raises(DecompressionError, match=f"block size {largest + 1} exceeds the frame's {largest}"):
            read(frame(struct.pack("<I", largest + 1 | flag), bd=bd))
        with pytest.raises(DecompressionError, match="ended prematurely"):
            read(frame(struct.pack("<I", largest | flag), bd=bd))


@behaviour("REC-010")
def test_sizes_are_little_endian() -> None:
    with pytest.raises(DecompressionError, match=f"block size {0xF4F3F2F1 & 0x7FFFFFFF} exceeds"):
        read(frame(bytes.fromhex("f1f2f3f4")))


@behaviour("REC-128")
def test_a_written_frame_has_the_bits_of_kafkas() -> None:
    stream = compress(Codec.LZ4, b"hello")
    flg, bd = stream[4], stream[5]
    assert stream[:4] == MAGIC
    assert (flg >> 6, flg & 0b11) == (1, 0)
    assert (bd >> 4, bd & 0b1000_1111) == (4, 0)
    assert stream[-4:] == END_MARK
    # What Kafka 4.3 writes: no bytes; fifty of the same, for magic 0 and 2.
    assert compress(Codec.LZ4, b"").hex() == "04224d1860408200000000"
    of_fifty = "0b0000001f6101001950616161616100000000"
    assert compress(Codec.LZ4, b"a" * 50, magic=0).hex() == "04224d1860401a" + of_fifty
    assert compress(Codec.LZ4, b"a" * 50).hex() == "04224d18604082" + of_fifty


@behaviour("REC-129")
def test_a_frame_without_end_mark_ends_prematurely_after_its_data() -> None:
    with pytest.raises(DecompressionError, match=f"position {len(HELLO) - 4}: the stream ended prematurely"):
        read(HELLO[:-4])


@behaviour("REC-130")
@pytest.mark.parametrize("with_sums", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 98304])
def test_payloads_of_all_sizes_round_trip(size: int, constant: bool, with_sums: bool) -> None:
    data = bytes(size) if constant else random.Random(size).randbytes(size)
    assert read(compress(Codec.LZ4, data)) == data
    for block_size in (4, 5, 6, 7):
        by_liblz4 = lz4.frame.compress(
            data, block_size=block_size, block_linked=False, block_checksum=with_sums, content_checksum=with_sums
        )
        assert read(by_liblz4) == data
    assert read(lz4_encode(data)) == data


def test_a_block_that_does_not_shrink_is_stored() -> None:
    noise = random.Random(1).randbytes(70_000)
    stream = compress(Codec.LZ4, noise)
    assert stream == frame(stored(noise[:65536]), stored(noise[65536:])) + END_MARK


def test_what_follows_the_end_mark_is_ignored() -> None:
    assert read(HELLO + b"junk") == read(HELLO + HELLO) == b"hello"
    assert read(frame() + struct.pack("<I", 0x80000000) + b"junk") == b""  # "stored, 0 bytes" is an end mark too


def test_a_content_size_is_skipped_and_a_content_checksum_not_verified() -> None:
    sized = frame(packed(HELLO_BLOCK), flg=0x68, content_size=struct.pack("<Q", 1 << 60)) + END_MARK
    assert read(sized) == b"hello"
    checked = frame(packed(HELLO_BLOCK), flg=0x64) + END_MARK
    assert read(checked + b"none") == b"hello"
    for cut in (checked, checked + b"non"):
        with pytest.raises(DecompressionError, match="ended prematurely"):
            read(cut)


def test_block_checksums_are_verified() -> None:
    assert read(frame(summed(HELLO_BLOCK), flg=0x70) + END_MARK) == b"hello"
    wrong = bytearray(summed(HELLO_BLOCK))
    wrong[-1] ^= 1
    with pytest.raises(DecompressionError, match="block checksum"):
        read(frame(bytes(wrong), flg=0x70) + END_MARK)
    with pytest.raises(DecompressionError, match="ended prematurely"):
        read(frame(summed(HELLO_BLOCK)[:-1], flg=0x70))


@pytest.mark.parametrize(
    ("flg", "bd", "message"),
    [
        (0x20, 0x40, "version 0"),
        (0xA0, 0x40, "version 2"),
        (0x40, 0x40, "dependent blocks"),
        (0x61, 0x40, "FLG 0x61: reserved"),  # the bit of a dictionary id
        (0x62, 0x40, "FLG 0x62: reserved"),
        (0x60, 0x30, "block size code 3"),
        (0x60, 0x00, "block size code 0"),
        (0x60, 0x41, "BD 0x41: reserved"),
        (0x60, 0xC0, "BD 0xc0: reserved"),
    ],
)
def test_a_descriptor_that_kafka_does_not_speak_is_rejected(flg: int, bd: int, message: str) -> None:
    for magic in (0, 2):
        with pytest.raises(DecompressionError, match=message):
            read(frame(packed(HELLO_BLOCK), flg=flg, bd=bd) + END_MARK, magic=magic)


@pytest.mark.parametrize("magic", [0, 2])
def test_a_frame_that_is_cut_off_anywhere_is_rejected(magic: int) -> None:
    stream = frame(summed(HELLO_BLOCK), stored(b"x") + struct.pack("<I", xxh32(b"x")), flg=0x74) + END_MARK + bytes(4)
    assert read(stream, magic) == b"hellox"
    for size in range(len(stream)):
        with pytest.raises(DecompressionError):
            read(stream[:size], magic)


def test_other_frames_in_front_are_not_supported() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 0)
    with pytest.raises(DecompressionError, match="not supported"):
        read(skippable + HELLO)


@pytest.mark.parametrize(
    ("block", "plain"),
    [
        (b"\x00", b""),
        (HELLO_BLOCK, b"hello"),
        (b"\x11a\x01\x00\x50bbbbb", b"aaaaaabbbbb"),
        (b"\x10a\x00\x00\x50bbbbb", b"a\0\0\0\0bbbbb"),  # offset 0
        (b"\x1fa\x00\x00\x10\x50bbbbb", b"a" + bytes(35) + b"bbbbb"),
        (b"\xe0" + b"a" * 14 + b"\x0e\x00\x00", b"a" * 18),  # 17 in front: neither test is made
        (b"\xd0" + b"a" * 13 + b"\x0d\x00\x00", None),  # 16 in front
        (b"\x50hell", None),
        (b"\x50hello\x00", None),
        (b"\x11a\x01\x00", None),
        (b"\x11a\x01\x00\x00", None),
        (b"\x11a\x01\x00\x40bbbb", None),  # fewer than five last literals
        (b"\x10a\x02\x00\x50bbbbb", None),  # offset before the start
        (b"\xf0", None),
        (b"\xf0\xff\xff", None),
        (b"\x1fa\x01\x00\xff\xff", None),
        (b"\x1fa\x01\x00" + b"\xff" * 300 + b"\x00\x50bbbbb", None),  # 76 KB in a block of 64 KiB
    ],
)
def test_a_block_is_judged_by_the_rules(block: bytes, plain: bytes | None) -> None:
    assert decode_by_the_rules(block, 65536) == plain
    try:
        assert read(frame(packed(block)) + END_MARK) == plain
    except DecompressionError:
        assert plain is None


def test_liblz4_judges_damaged_blocks_by_the_rules() -> None:
    rng = random.Random(4)
    for _ in range(5_000):
        plain = b"".join(rng.randbytes(rng.randrange(1, 25)) * rng.randrange(1, 4) for _ in range(rng.randrange(1, 6)))
        block = bytearray(lz4.block.compress(plain, store_size=False))
        for _ in range(rng.randrange(3)):
            block[rng.randrange(len(block))] = rng.choice([0, 255, rng.randrange(256), rng.choice(block)])
        del block[rng.choice([len(block), rng.randrange(1, len(block) + 1)]) :]
        room = rng.choice([len(plain) + rng.randrange(-20, 40), 65536])
        if room > 0:
            assert liblz4(bytes(block), room) == decode_by_the_rules(bytes(block), room), (block.hex(" "), room)


def test_the_cap_counts_all_blocks_and_is_inclusive() -> None:
    stream = frame(packed(HELLO_BLOCK), stored(b"world")) + END_MARK
    assert lz4_frame.decompress(stream, 10) == b"helloworld"
    for cap in (0, 4, 9):
        with pytest.raises(DecompressedSizeError):
            lz4_frame.decompress(stream, cap)
