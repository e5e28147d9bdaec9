import struct

import cramjam
import pytest
import zstandard
from aiokafka.codec import zstd_decode, zstd_encode

from tests.behaviours import behaviour
from tidelog.errors import DecompressedSizeError, DecompressionError, InvalidRequestError
from tidelog.records import zstd_stream
from tidelog.records.compression import Codec, compress, decompress

CAP = 1 << 20
MAGIC = bytes.fromhex("28b52ffd")

HELLO = zstd_stream.compress(b"hello")
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"


def read(stream: bytes) -> bytes:
    return zstd_stream.decompress(stream, CAP)


def frame(descriptor: int, fields: bytes, blocks: bytes = b"\x29\x00\x00hello") -> bytes:
    """A frame by hand; the block that it holds unless told is the last, raw, 5 bytes."""
    return MAGIC + bytes([descriptor]) + fields + blocks


def window(log: int) -> bytes:
    return bytes([(log - 10) << 3])


@behaviour("REC-122")
@pytest.mark.parametrize("level", [-131072, -5, 1, 3, 9, 22])
def test_data_round_trips_at_the_lowest_default_and_highest_level(level: int) -> None:
    data = b"tide" * 256 + bytes(range(256))
    stream = compress(Codec.ZSTD, data, level=level)
    assert decompress(Codec.ZSTD, stream) == data
    assert zstd_decode(stream) == bytes(cramjam.zstd.decompress(stream)) == data


@behaviour("REC-122")
def test_levels_just_outside_are_refused() -> None:
    for level in (-131073, 23):
        with pytest.raises(InvalidRequestError, match=f"not {level}"):
            compress(Codec.ZSTD, b"", level=level)


def test_a_frame_states_neither_size_nor_checksum_and_a_window_of_2_mib() -> None:
    assert HELLO[:6] == MAGIC + b"\x00\x58"


def test_no_bytes_give_the_frame_that_kafka_gives() -> None:
    assert zstd_stream.compress(b"").hex() == "28b52ffd2000010000"
    assert read(bytes.fromhex("28b52ffd2000010000")) == b""


def test_frames_of_others_are_read() -> None:
    data = bytes(range(256)) * 300
    assert read(zstd_encode(data)) == read(zstandard.ZstdCompressor(write_checksum=True).compress(data)) == data
    by_kafka = "28b52ffd0058440000106161010045000b010000"
    assert read(bytes.fromhex(by_kafka)) == b"a" * 50


def test_frames_in_a_row_are_one_stream_and_skippable_ones_are_skipped() -> None:
    assert read(SKIPPABLE + HELLO + SKIPPABLE + HELLO) == b"hellohello"
    assert read(SKIPPABLE) == read(b"") == b""
    assert read(HELLO * 5_000) == b"hello" * 5_000


@pytest.mark.parametrize("stream", [HELLO, HELLO + HELLO, HELLO + SKIPPABLE], ids=["one", "second", "skippable"])
def test_a_frame_that_is_cut_off_anywhere_is_rejected(stream: bytes) -> None:
    first = len(HELLO)
    for size in range(1, len(stream)):
        if size != first:
            with pytest.raises(DecompressionError):
                read(stream[:size])


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (HELLO + b"x", "Unknown frame"),
        (b"\x27" + HELLO[1:], "Unknown frame"),
        (frame(0x08, window(20)), "Unsupported frame parameter"),
        (frame(0x01, window(20) + b"\x07"), "Dictionary mismatch"),
        (frame(0x00, window(28)), "too much memory"),
        (frame(0x20, b"\x06"), "corruption"),  # announces 6, gives 5
        (frame(0x20, b"\x04"), "corruption"),
        (frame(0x00, window(20), b"\x2f\x00\x00hello"), "corruption"),  # block type 3
        (frame(0x04, window(20)) + b"xxxx", "checksum"),
    ],
)
def test_a_broken_frame_is_rejected(stream: bytes, message: str) -> None:
    with pytest.raises(DecompressionError, match=message):
        read(stream)


def test_what_a_frame_may_hold_besides_is_accepted() -> None:
    assert read(frame(0x20, b"\x05")) == b"hello"  # a content size
    assert read(frame(0x10, window(20))) == b"hello"  # the unused bit
    assert read(frame(0x01, window(20) + b"\x00")) == b"hello"  # dictionary id 0: none
    assert read(frame(0x00, window(27))) == b"hello"


def test_the_cap_counts_all_frames_and_is_inclusive() -> None:
    assert zstd_stream.decompress(HELLO + HELLO, 10) == b"hellohello"
    for cap in (0, 4, 9):
        with pytest.raises(DecompressedSizeError):
            zstd_stream.decompress(HELLO + HELLO, cap)


def test_a_content_size_beyond_the_cap_is_refused_before_decoding() -> None:
    huge = frame(0xE0, struct.pack("<Q", 1 << 40), b"not a block")
    with pytest.raises(DecompressedSizeError, match=f"{1 << 40} more bytes"):
        read(huge)


def test_a_broken_frame_leaves_nothing_behind_for_the_next_call() -> None:
    for _ in range(3):
        with pytest.raises(DecompressionError):
            read(HELLO[:-1])
        assert read(HELLO) == b"hello"
