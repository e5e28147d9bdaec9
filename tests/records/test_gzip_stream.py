import gzip
import struct
import zlib

import pytest
from aiokafka.codec import gzip_decode, gzip_encode

from tests.behaviours import behaviour
from tidelog.errors import DecompressedSizeError, DecompressionError, InvalidRequestError
from tidelog.records import gzip_stream
from tidelog.records.compression import Codec, compress, decompress

CAP = 1 << 20

HELLO = gzip_stream.compress(b"hello")
WORLD = gzip_stream.compress(b"world")


def read(stream: bytes) -> bytes:
    return gzip_stream.decompress(stream, CAP)


def with_header(flags: int, optional: bytes = b"") -> bytes:
    """HELLO with other flags and the fields they announce."""
    return HELLO[:3] + bytes([flags]) + HELLO[4:10] + optional + HELLO[10:]


@behaviour("REC-120")
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("level", [1, -1, 9])
def test_repetitive_data_round_trips_at_the_lowest_default_and_highest_level(level: int, magic: int) -> None:
    data = b"tide" * 256
    stream = compress(Codec.GZIP, data, level=level, magic=magic)
    assert len(stream) < len(data)
    assert decompress(Codec.GZIP, stream, magic=magic) == data
    assert gzip.decompress(stream) == gzip_decode(stream) == data


@behaviour("REC-121")
def test_levels_0_and_10_are_refused() -> None:
    for level in (-2, 0, 10):
        with pytest.raises(InvalidRequestError, match=f"not {level}"):
            compress(Codec.GZIP, b"", level=level)
    for level in (-1, *range(1, 10)):
        compress(Codec.GZIP, b"", level=level)


def test_the_header_is_the_one_java_writes() -> None:
    assert HELLO[:10].hex() == "1f8b08000000000000ff"
    # The whole stream, as Kafka 4.3 on Java 17 writes it for no bytes.
    assert gzip_stream.compress(b"").hex() == "1f8b08000000000000ff03000000000000000000"


def test_streams_of_others_are_read() -> None:
    data = bytes(range(256)) * 300
    assert read(gzip.compress(data)) == read(gzip_encode(data)) == data
    by_kafka = "1f8b08000000000000ff4b4c241500007dbad74732000000"
    assert read(bytes.fromhex(by_kafka)) == b"a" * 50


def test_members_in_a_row_are_one_stream() -> None:
    assert read(HELLO + gzip_stream.compress(b"") + WORLD) == b"helloworld"


def test_thousands_of_tiny_members_are_read_in_linear_time() -> None:
    assert read(WORLD * 20_000) == b"world" * 20_000


@pytest.mark.parametrize(
    "tail",
    [
        b"garbage" * 10,
        b"\0" * 100,
        HELLO[:10],  # a header alone
        HELLO[:18],
        b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + b"x" * 50,  # a header whose extra field is cut off
        b"\x1f\x8b\x08\x02" + bytes(6) + b"\xff\xff" + b"x" * 50,  # a header with a wrong checksum
    ],
)
def test_a_tail_that_is_no_member_is_ignored(tail: bytes) -> None:
    assert read(HELLO + tail) == b"hello"


def test_a_tail_that_begins_as_a_member_must_be_one() -> None:
    with pytest.raises(DecompressionError, match="prematurely"):
        read(HELLO + gzip_stream.compress(b"hello world")[:19])
    with pytest.raises(DecompressionError, match="invalid block type"):
        read(HELLO + HELLO[:10] + b"\xff" * 30)


def test_optional_header_fields_are_skipped() -> None:
    flags_and_fields = [
        (0x08, b"name\0"),
        (0x10, b"comment\0"),
        (0x04, b"\x03\x00abc"),
        (0x1C, b"\x03\x00abcname\0comment\0"),
        (0x01, b""),  # "probably text"
        (0xE0, b""),  # reserved, and ignored as in Java
    ]
    for flags, fields in flags_and_fields:
        assert read(with_header(flags, fields)) == b"hello"


def test_a_header_checksum_is_verified() -> None:
    header = HELLO[:3] + b"\x02" + HELLO[4:10]
    right = struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    assert read(with_header(0x02, right)) == b"hello"
    with pytest.raises(DecompressionError, match="header checksum"):
        read(with_header(0x02, b"xx"))


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"", "prematurely"),
        (HELLO[:9], "9 bytes of header"),
        (b"\x1f\x8c" + HELLO[2:], "found 1f 8c 08"),
        (HELLO[:2] + b"\x07" + HELLO[3:], "found 1f 8b 07"),
        (with_header(0x08)[:14], "inside a header text"),
        (with_header(0x04)[:11], "inside a header"),
        (with_header(0x02)[:11], "inside a header"),
        (HELLO[:-8] + b"xxxx" + HELLO[-4:], "stored crc 0x78787878"),
        (HELLO[:-4] + b"xxxx", "and size 2021161080, computed 0x3610a686 and 5"),
        (HELLO[:12], "inside deflate data"),
        (HELLO[:-1], "7 of 8 bytes"),
    ],
)
def test_a_broken_first_member_is_rejected(stream: bytes, message: str) -> None:
    with pytest.raises(DecompressionError, match=message):
        read(stream)


def test_the_cap_counts_all_members_and_is_inclusive() -> None:
    assert gzip_stream.decompress(HELLO + WORLD, 10) == b"helloworld"
    for cap in (0, 4, 9):
        with pytest.raises(DecompressedSizeError):
            gzip_stream.decompress(HELLO + WORLD, cap)
