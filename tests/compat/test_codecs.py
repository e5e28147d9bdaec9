"""Compressed streams, sound and damaged: Kafka's own decompressors and ours accept and reject the same ones.

Where they differ, they differ on purpose. `EXCEPTIONS` names the four cases; each has a test that shows it, and a
disagreement that none of them explains is a failure.
"""

import gzip
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import cramjam
import lz4.frame
import pytest
import zstandard

from tests.compat.kafka_tools import Stream, judge_streams
from tidelog.errors import DecompressionError
from tidelog.records.compression import LEVELS, Codec, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
every_codec = pytest.mark.parametrize("codec", COMPRESSING, ids=[codec.label for codec in COMPRESSING])
READ_BUFFER = 8192  # of Java's gzip reader
CASES = 1_500  # damaged streams of each codec


def formats(codec: Codec) -> list[int]:
    return [2] if codec is Codec.ZSTD else [0, 1, 2]


def by_us(stream: Stream) -> bytes | str:
    """The plain bytes, or what we say against the stream."""
    try:
        return decompress(Codec.from_name(stream.codec), stream.data, magic=stream.magic)
    except DecompressionError as error:
        return str(error)


# -- what both sides write -----------------------------------------------------------------------------------------


def payload(rng: random.Random) -> bytes:
    size = rng.choice([0, 1, 5, 1000, 5000, 33000, 66000, 100000]) if rng.random() < 0.3 else rng.randrange(300)
    match rng.randrange(5):
        case 0:
            return rng.randbytes(size)
        case 1:
            return bytes([rng.randrange(256)]) * size
        case 2:
            return bytes(rng.choices(b"ab", k=size))
        case 3:
            return (b"the tide comes in " * (size // 18 + 1))[:size]
        case _:
            pieces = (rng.randbytes(rng.randrange(1, 20)) * rng.randrange(1, 4) for _ in range(size // 30 + 1))
            return b"".join(pieces)[:size]


@every_codec
def test_sound_streams_are_read_both_ways(codec: Codec) -> None:
    rng = random.Random(codec)
    plain = [payload(rng) for _ in range(25)] + [bytes(200_000), rng.randbytes(200_000)]
    levels = [None, LEVELS[codec].lowest, min(LEVELS[codec].highest, 17)] if codec in LEVELS else [None]
    cases = [(magic, data) for magic in formats(codec) for data in plain]
    ours = [(Stream(codec.label, m, compress(codec, d, level=level, magic=m)), d) for level in levels for m, d in cases]
    assert judge_streams("decompress", [stream for stream, _ in ours]) == [data for _, data in ours]
    theirs = judge_streams("compress", [Stream(codec.label, magic, data) for magic, data in cases])
    for (magic, data), stream in zip(cases, theirs, strict=True):
        assert by_us(Stream(codec.label, magic, stream)) == data


# -- damaged streams -----------------------------------------------------------------------------------------------


def sound_stream(rng: random.Random, codec: Codec, magic: int) -> bytes:
    """A stream as we or another library write it, with the options that others use."""
    plain = payload(rng)
    if rng.random() < 0.5:
        return compress(codec, plain, magic=magic)
    match codec:
        case Codec.GZIP:
            return gzip.compress(plain)
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(plain))
        case Codec.LZ4:
            return lz4.frame.compress(
                plain,
                block_linked=False,
                block_size=rng.choice([4, 5, 6, 7]),
                block_checksum=rng.random() < 0.5,
                content_checksum=rng.random() < 0.5,
                store_size=rng.random() < 0.5,
            )
        case _:
            level = rng.choice([1, 3, -5])
            return zstandard.ZstdCompressor(level=level, write_checksum=rng.random() < 0.5).compress(plain)


def damage(rng: random.Random, stream: bytes) -> bytes:
    damaged = bytearray(stream)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
        if not damaged:
            break
        place = rng.randrange(len(damaged)) if rng.random() < 0.5 else rng.randrange(min(40, len(damaged)))
        match rng.randrange(7):
            case 0:
                damaged[place] ^= 1 << rng.randrange(8)
            case 1:
                damaged[place] = rng.choice([0, 255, rng.randrange(256)])
            case 2:
                del damaged[place:]
            case 3:
                del damaged[place : place + rng.randrange(1, 5)]
            case 4:
                damaged[place:place] = rng.randbytes(rng.randrange(1, 5))
            case 5:
                damaged += rng.randbytes(rng.randrange(1, 30))
            case _:
                damaged[place] = damaged[rng.randrange(len(damaged))]
    return bytes(damaged)


def damaged_streams(codec: Codec, count: int, seed: int) -> list[Stream]:
    rng = random.Random(seed)
    streams = []
    for _ in range(count):
        magic = rng.choice(formats(codec))
        stream = sound_stream(rng, codec, magic)
        if rng.random() < 0.2:
            stream += sound_stream(rng, codec, magic)
        streams.append(Stream(codec.label, magic, damage(rng, stream)))
    return streams


class Difference(NamedTuple):
    """A case in which we differ from Kafka on purpose: who accepts, and how it is told from a mistake."""

    codec: Codec
    kafka_accepts: bool
    explains: Callable[[Stream, str], bool]  # the stream, and what the side that rejects it says


EXCEPTIONS = {
    # snappy-java skips 16 bytes when the second half of the magic of a further header is wrong
    "a further snappy header with a wrong second half": Difference(
        Codec.SNAPPY, True, lambda stream, says: "found 82 53 4e 41" in says
    ),
    # a second frame that is cut off within Kafka's read buffer counts as the end
    "a second zstd frame cut off": Difference(
        Codec.ZSTD, True, lambda stream, says: "inside this frame" in says and "position 0:" not in says
    ),
    # zstd-jni is built with the decoders of formats 0.4 to 0.7
    "zstd before version 0.8": Difference(
        Codec.ZSTD,
        True,
        lambda stream, says: stream.data[:4] in {bytes([n]) + b"\xb5\x2f\xfd" for n in range(0x22, 0x28)},
    ),
    # Java ignores up to 18 bytes behind a member only if they lie in its read buffer together with the member's end
    "bytes behind a gzip member across the read buffer": Difference(
        Codec.GZIP, False, lambda stream, says: len(stream.data) > READ_BUFFER and says.startswith("EOFException")
    ),
}


def explanation(stream: Stream, kafkas: bytes | str, ours: bytes | str) -> str | None:
    if isinstance(kafkas, bytes) == isinstance(ours, bytes):
        return None  # different bytes, or no difference: never explained
    says = ours if isinstance(ours, str) else kafkas
    for name, exception in EXCEPTIONS.items():
        fits = stream.codec == exception.codec.label and exception.kafka_accepts == isinstance(kafkas, bytes)
        if fits and exception.explains(stream, str(says)):
            return name
    return None


@every_codec
def test_damaged_streams_are_accepted_and_rejected_alike(codec: Codec) -> None:
    streams = damaged_streams(codec, CASES, seed=1)
    verdicts: Counter[str] = Counter()
    for stream, kafkas in zip(streams, judge_streams("decompress", streams), strict=True):
        ours = by_us(stream)
        agree = ours == kafkas if isinstance(kafkas, bytes) else isinstance(ours, str)
        why = "agreed" if agree else explanation(stream, kafkas, ours)
        assert why, f"magic {stream.magic}, {stream.data[:200].hex()}: Kafka {kafkas[:80]!r}, we {ours[:80]!r}"
        verdicts[why] += 1
        verdicts["accepted"] += isinstance(kafkas, bytes)
    assert verdicts["agreed"] > 0.98 * CASES
    assert 0.1 * CASES < verdicts["accepted"] < 0.9 * CASES  # the damage reaches both verdicts


# -- the exceptions, shown -----------------------------------------------------------------------------------------

PLAIN = b"the tide comes in" * 3


def gzip_of_size(size: int) -> bytes:
    """A gzip stream of exactly that many bytes."""
    noise = random.Random(3).randbytes(size)
    for length in range(size - 60, size):
        stream = compress(Codec.GZIP, noise[:length], level=1)
        if len(stream) == size:
            return stream
    raise AssertionError(f"no stream of {size} bytes")


SHOWN = {
    "a further snappy header with a wrong second half": Stream(
        "snappy", 2, compress(Codec.SNAPPY, PLAIN) + b"\x82SNAXXXX" + bytes(8)
    ),
    "a second zstd frame cut off": Stream("zstd", 2, compress(Codec.ZSTD, PLAIN) + compress(Codec.ZSTD, PLAIN)[:-3]),
    # Format 0.7: one raw block of "hello", then the end of the frame.
    "zstd before version 0.8": Stream(
        "zstd", 2, bytes.fromhex("27b52ffd 0008 400005") + b"hello" + bytes.fromhex("c00000")
    ),
    "bytes behind a gzip member across the read buffer": Stream(
        "gzip", 2, gzip_of_size(READ_BUFFER + 8) + compress(Codec.GZIP, PLAIN)[:10]
    ),
}


def test_each_exception_is_real() -> None:
    assert SHOWN.keys() == EXCEPTIONS.keys()
    kafkas = judge_streams("decompress", SHOWN.values())
    shown = {
        name: explanation(stream, verdict, by_us(stream))
        for (name, stream), verdict in zip(SHOWN.items(), kafkas, strict=True)
    }
    assert shown == {name: name for name in EXCEPTIONS}, kafkas
