import random
import struct

import cramjam
import pytest
import snappy
from aiokafka.codec import snappy_decode, snappy_encode

from tests.behaviours import behaviour
from tidelog.errors import DecompressedSizeError, DecompressionError
from tidelog.records import snappy_stream
from tidelog.records.compression import Codec, compress, decompress

CAP = 1 << 20
MAGIC = b"\x82SNAPPY\x00"


def header(version: int = 1, compatible: int = 1) -> bytes:
    return MAGIC + struct.pack(">ii", version, compatible)


def chunk(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


HELLO_BLOCK = b"\x05\x10hello"
HELLO = header() + chunk(HELLO_BLOCK)


def read(stream: bytes) -> bytes:
    return snappy_stream.decompress(stream, CAP)


def decode_by_the_rules(block: bytes) -> bytes | None:
    """The block rules of snappy_stream's docstring, word by word; None is a rejection."""
    size = position = 0
    while True:
        if position == len(block) or position == 5:
            return None
        size |= (block[position] & 0x7F) << (7 * position)
        position += 1
        if block[position - 1] < 0x80:
            break
    out = bytearray()
    while position < len(block):
        tag, position = block[position], position + 1
        kind, high = tag & 3, tag >> 2
        extra = (high - 59 if high >= 60 else 0) if kind == 0 else (0, 1, 2, 4)[kind]
        if len(block) - position < extra:
            return None
        number, position = int.from_bytes(block[position : position + extra], "little"), position + extra
        if kind == 0:
            count = (number if extra else high) + 1
            if len(block) - position < count:
                return None
            out += block[position : position + count]
            position += count
        else:
            count, offset = (high & 7) + 4 if kind == 1 else high + 1, number | ((high >> 3) << 8 if kind == 1 else 0)
            if not 0 < offset <= len(out) or len(out) + count > size:
                return None
            for _ in range(count):
                out.append(out[-offset])
        if len(out) > size:
            return None
    return bytes(out) if len(out) == size else None


def verdict(block: bytes) -> bytes | None:
    try:
        return read(block)
    except DecompressionError:
        return None


@behaviour("REC-123")
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 1024, 32767, 32768, 32769, 98304])
def test_data_round_trips_in_every_format(size: int, magic: int) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    stream = compress(Codec.SNAPPY, data, magic=magic)
    assert decompress(Codec.SNAPPY, stream, magic=magic) == data
    if data:  # aiokafka takes the header alone for a broken stream
        assert snappy_decode(stream) == data


def test_no_bytes_give_the_header_alone_as_in_java() -> None:
    assert snappy_stream.compress(b"").hex() == "82534e41505059000000000100000001"
    assert read(header()) == b""


def test_the_input_is_cut_every_32_kib() -> None:
    stream = snappy_stream.compress(bytes(70_000))
    position, plain_sizes = 16, []
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        plain_sizes.append(len(snappy.uncompress(stream[position + 4 : position + 4 + size])))
        position += 4 + size
    assert plain_sizes == [32768, 32768, 70_000 - 65536]


def test_streams_of_others_are_read() -> None:
    data = bytes(range(256)) * 300
    assert read(snappy_encode(data)) == read(snappy.compress(data)) == data


def test_a_raw_block_without_framing_is_read() -> None:
    assert read(HELLO_BLOCK) == b"hello"
    assert read(b"\x00") == b""


def test_concatenated_streams_are_one() -> None:
    assert read(HELLO + HELLO) == b"hellohello"
    assert read(header() * 3 + chunk(HELLO_BLOCK) + header(version=7)) == b"hello"


def test_thousands_of_headers_in_a_row_are_no_deep_recursion() -> None:
    assert read(header() * 20_000 + chunk(HELLO_BLOCK)) == b"hello"


def test_the_versions_of_the_first_header_do_not_matter() -> None:
    for version in (-1, 0, 2):
        assert read(header(version, version) + chunk(HELLO_BLOCK)) == b"hello"


def test_one_to_three_bytes_behind_the_last_chunk_are_ignored() -> None:
    for size in (1, 2, 3):
        assert read(HELLO + b"abc"[:size]) == b"hello"


def test_a_chunk_of_no_plain_bytes_is_accepted() -> None:
    assert read(header() + chunk(b"\x00") + chunk(HELLO_BLOCK)) == b"hello"


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"", "does not end"),
        (header()[:15], "position 0"),  # too short for a header, so a raw block
        (HELLO[:-1], "a chunk of 7 bytes, 6 are left"),
        (HELLO + bytes(4), "a chunk of 0 bytes"),
        (HELLO + b"\xff\0\0\0", "a chunk of -16777216 bytes"),
        (HELLO + header(version=0), "version 0"),
        (HELLO + header()[:15], "inside a header"),
        (HELLO + MAGIC[:4] + b"XXXX" + bytes(8) + chunk(HELLO_BLOCK), "found 82 53 4e 41 58 58 58 58"),
    ],
)
def test_broken_framing_is_rejected(stream: bytes, message: str) -> None:
    with pytest.raises(DecompressionError, match=message):
        read(stream)


@pytest.mark.parametrize(
    ("block", "plain"),
    [
        (b"\x85\x00\x10hello", b"hello"),  # a size longer than needed
        (b"\x85\x80\x80\x80\x00\x10hello", b"hello"),
        (b"\x05\xf0\x04hello", b"hello"),  # literal sizes longer than needed
        (b"\x05\xfc\x04\0\0\0hello", b"hello"),
        (b"\x09\x10hello\x01\x05", b"hellohell"),
        (b"\x09\x10hello\x01\x01", b"helloooo" + b"o"),  # overlap repeats
        (b"\x06\x10hello\x02\x05\x00", b"helloh"),
        (b"\x06\x10hello\x03\x05\0\0\0", b"helloh"),
        (b"\x85\x80\x80\x80\x80\x00\x10hello", None),  # a size of six bytes
        (b"\x85\x80\x80\x80\x10\x10hello", None),  # a size above 32 bits
        (b"\x85", None),
        (b"\x05", None),
        (b"\x06\x10hello", None),  # less than announced
        (b"\x04\x10hello", None),  # more than announced
        (b"\x05\x10hell", None),
        (b"\x05\x10hello\x00", None),  # trailing: tag, literal, copy, half a copy
        (b"\x05\x10hello\x00a", None),
        (b"\x05\x10hello\x01\x01", None),
        (b"\x05\x10hello\x01", None),
        (b"\x00\x00", None),
        (b"\x09\x10hello\x01\x00", None),  # offset 0
        (b"\x09\x10hello\x01\x06", None),  # offset before the start
        (b"\x06\x10hello\x03\x05\0\0\x80", None),
        (b"\x07\x10hello\x01\x05", None),  # copy beyond the size
        (b"\x05\xfc\xff\xff\xff\xffhello", None),
    ],
)
def test_a_raw_block_is_judged_by_the_rules(block: bytes, plain: bytes | None) -> None:
    assert verdict(block) == decode_by_the_rules(block) == plain


def test_damaged_blocks_are_judged_by_the_rules() -> None:
    rng = random.Random(2)
    for _ in range(5_000):
        plain = bytes(rng.choices(b"ab", k=rng.randrange(1, 60))) * rng.randrange(1, 4)
        block = bytearray(cramjam.snappy.compress_raw(plain))
        for _ in range(rng.randrange(3)):
            block[rng.randrange(len(block))] = rng.randrange(256)
        del block[rng.choice([len(block), rng.randrange(len(block))]) :]
        assert verdict(bytes(block)) == decode_by_the_rules(bytes(block)), block.hex(" ")


def test_the_densest_block_is_not_taken_for_a_lie() -> None:
    copies = 10_000
    size = 1 + 64 * copies
    assert read(b"\x81\x88\x27" + b"\x00a" + b"\xfe\x01\x00" * copies) == b"a" * size


def test_a_size_that_no_such_block_can_give_is_refused_before_decoding() -> None:
    with pytest.raises(DecompressionError, match="cannot give the 1048575"):
        read(b"\xff\xff\x3f\x10hello")


def test_the_cap_counts_all_chunks_and_is_inclusive() -> None:
    assert snappy_stream.decompress(HELLO + HELLO, 10) == b"hellohello"
    for stream, cap in [(HELLO + HELLO, 9), (HELLO, 4), (HELLO_BLOCK, 0), (b"\xff\xff\xff\xff\x0f", CAP)]:
        with pytest.raises(DecompressedSizeError):
            snappy_stream.decompress(stream, cap)
