"""Runs of streams: every codec equal to the readable path, memory that follows what is decoded, caps that hold."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
import zstandard

from tests.golden import corpus
from tests.kernels import fuzz_codecs
from tests.kernels.streams import KINDS, SIZES, bytes_at, open_streams, opened, refuses, sample, table_of
from tidelog.columns import decode
from tidelog.errors import DecompressedSizeError, DecompressionError, UnsupportedCompressionError
from tidelog.kernels.bodies import open_bodies
from tidelog.kernels.decompress import Decompressor
from tidelog.kernels.headers import scan_headers
from tidelog.records import read_batches
from tidelog.records.batch import BatchHeader
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import LegacyBatch

COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
MIB = 1024 * 1024


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_size_round_trips_in_one_run(codec: Codec, kind: str) -> None:
    plains = [sample(kind, size) for size in SIZES]
    assert opened(codec, *[compress(codec, plain) for plain in plains]) == plains


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.ZSTD, (-131072, 1, 12))])
def test_levels_make_no_difference_to_the_reader(codec: Codec, levels: tuple[int, ...]) -> None:
    plain = sample("mixed", 50_000)
    assert opened(codec, *[compress(codec, plain, level=level) for level in levels]) == [plain] * len(levels)


def test_no_streams_are_no_trouble() -> None:
    for codec in range(8):
        plains, answer = open_streams(codec)
        assert (plains, answer.broken) == ([], None)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_broken_from_the_first_stream_on(codec: int) -> None:
    assert open_streams(codec, b"any", b"thing")[1].broken == 0


def test_zstd_exists_in_version_2_only() -> None:
    stream = compress(Codec.ZSTD, b"tide")
    assert opened(Codec.ZSTD, stream) == [b"tide"]
    assert open_streams(Codec.ZSTD, stream, magic=1)[1].broken == 0


def test_members_and_frames_in_a_row_are_one_stream() -> None:
    one, two = sample("text", 900), sample("random", 90)
    for codec in (Codec.GZIP, Codec.ZSTD):
        assert opened(codec, compress(codec, one) + compress(codec, two), compress(codec, one) * 2) == [
            one + two,
            one * 2,
        ]


def test_what_gzip_allows_behind_a_member_is_allowed() -> None:
    stream = compress(Codec.GZIP, b"tide")
    assert opened(Codec.GZIP, *[stream + bytes(size) for size in (1, 18, 19, 100)]) == [b"tide"] * 4
    assert refuses(Codec.GZIP, stream + gzip.compress(b"", mtime=0)[:-1])


def test_a_gzip_trailer_must_be_right() -> None:
    stream = compress(Codec.GZIP, b"tide")
    for position in range(1, 9):
        assert refuses(
            Codec.GZIP, stream[:-position] + bytes([stream[-position] ^ 1]) + stream[len(stream) - position + 1 :]
        )


def test_zstd_frames_of_other_writers_are_read() -> None:
    plain = sample("text", 200_000)
    for checksum in (False, True):
        stream = zstandard.ZstdCompressor(write_checksum=checksum).compress(plain)
        assert opened(Codec.ZSTD, stream) == [plain]
        assert refuses(Codec.ZSTD, stream[:-1])
    assert opened(Codec.ZSTD, b"", struct.pack("<II", 0x184D2A50, 3) + b"abc") == [b"", b""]


def test_an_empty_zstd_frame_that_announces_too_much_is_refused() -> None:
    assert refuses(Codec.ZSTD, bytes.fromhex("28b52ffdd085 f9e4320e0e9e2000 010000"), max_size=MIB)


# -- caps and bombs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("kind", ["random", "constant"])
def test_the_cap_is_exact(codec: Codec, kind: str) -> None:
    for size in (0, 1, 1000, 65_536, 70_000, 300_000):
        stream = compress(codec, sample(kind, size))
        assert not refuses(codec, stream, max_size=size)
        assert size == 0 or refuses(codec, stream, max_size=size - 1)


def bomb(codec: Codec, size: int) -> bytes:
    """A stream that gives `size` zeros from as few bytes as the codec can."""
    return compress(codec, bytes(size))


def peak_of_opening(codec: Codec, *streams: bytes, max_size: int) -> tuple[int, int | None]:
    tracemalloc.start()
    try:
        broken = open_streams(codec, *streams, max_size=max_size)[1].broken
        return tracemalloc.get_traced_memory()[1], broken
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_costs_no_more_than_the_cap_and_a_block(codec: Codec) -> None:
    peak, broken = peak_of_opening(codec, bomb(codec, 64 * MIB), max_size=2 * MIB)
    assert broken == 0
    assert peak < 20 * MIB  # the library of gzip doubles its buffer, lz4 needs a block beyond the cap


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_among_others_is_opened_when_the_cap_allows_it(codec: Codec) -> None:
    plains = [b"before", bytes(24 * MIB), b"behind"]
    assert opened(codec, *[compress(codec, plain) for plain in plains]) == plains


def test_claims_cost_nothing() -> None:
    snappy = fuzz_codecs.varint(200 * MIB) + b"\x00a" * 50
    zstd = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 120 * MIB) + b"\x09\x00\x00a"
    for codec, stream in ((Codec.SNAPPY, snappy), (Codec.ZSTD, zstd)):
        peak, broken = peak_of_opening(codec, stream, max_size=256 * MIB)
        assert (broken, peak < 2 * MIB) == (0, True)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_run_larger_than_every_guess_is_opened_whole(codec: Codec) -> None:
    """Constant bytes shrink far more than the guess expects, so several buffers are needed."""
    plains = [bytes([number]) * (50_000 + number) for number in range(200)]
    streams = [compress(codec, plain) for plain in plains]
    plains_out, answer = open_streams(codec, *streams)
    assert plains_out == plains
    assert len(answer.owners) > 1 or codec not in fuzz_codecs.KERNEL_CODECS
    assert sum(len(owner) for owner in answer.owners) < 4 * sum(map(len, plains))  # type: ignore[arg-type,misc]


# -- batches -------------------------------------------------------------------------------------------------------


def test_batches_of_real_kafka_are_decompressed_as_the_readable_path_does() -> None:
    seen = dict.fromkeys(COMPRESSED, 0)
    for partition in corpus.undamaged_partitions("kafka-4.3/1-codecs"):
        log = partition.read()
        headers = scan_headers(log)
        bodies = open_bodies(log, headers)
        for (first, end, _), batch in zip(bodies.table.tolist(), read_batches(log), strict=True):
            if batch.codec in seen:
                seen[batch.codec] += 1
                assert bytes_at(first, end) == batch.records_bytes()
    assert all(count >= 5 for count in seen.values()), seen


def wrapped(batch: LegacyBatch) -> bytes:
    """The stream inside a wrapper: what follows offset, size, crc, magic, attributes, [time], key, and its own size."""
    position = 18 + 8 * batch.magic
    (key_size,) = struct.unpack_from(">i", batch.buffer, position)
    return bytes(batch.buffer[position + 8 + max(key_size, 0) :])


def test_wrappers_of_real_kafka_are_decompressed_as_the_readable_path_does() -> None:
    seen = dict.fromkeys([(magic, codec) for magic in (0, 1) for codec in COMPRESSED[:3]], 0)
    for partition in corpus.undamaged_partitions("legacy"):
        for batch in read_batches(partition.read()):
            if isinstance(batch, LegacyBatch) and batch.codec is not Codec.NONE:
                assert opened(batch.codec, wrapped(batch), magic=batch.magic) == [bytes(batch.records_bytes())]
                seen[batch.magic, batch.codec] += 1
    assert all(seen.values()), seen


def one_batch(codec_id: int, body: bytes) -> bytearray:
    """A sealed batch of one record whose body is what it is."""
    return BatchHeader(0, 0, -1, 2, 0, codec_id, 0, 0, 0, -1, -1, -1, 1).seal(body)


def bodies_of(log: bytes, max_size: int = MIB) -> list[bytes]:
    bodies = open_bodies(log, scan_headers(log), max_size=max_size)
    return [bytes_at(first, end) for first, end, _ in bodies.table.tolist()]


def test_codecs_may_be_mixed_and_stored_bodies_stay_where_they_are() -> None:
    plains = [sample("text", 1000 + number) for number in range(20)]
    codecs = [Codec(number % 5) for number in range(20)]
    log = b"".join(one_batch(codec, compress(codec, plain)) for codec, plain in zip(codecs, plains, strict=True))
    assert bodies_of(log) == plains


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bodies_end_before_the_first_that_is_broken(codec: Codec) -> None:
    good = one_batch(codec, compress(codec, b"tide"))
    for bad in (one_batch(codec, b"not a stream"), one_batch(codec, compress(codec, bytes(2000)))):
        log = bytes(good + bad + good)
        bodies = open_bodies(log, scan_headers(log), max_size=1999)
        assert bodies.broken == 1
        assert len(bodies.table) == 1


def test_of_several_broken_bodies_the_first_in_the_log_counts() -> None:
    log = bytes(one_batch(Codec.ZSTD, b"not a stream") + one_batch(Codec.GZIP, b"not a stream"))
    assert open_bodies(log, scan_headers(log)).broken == 0


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_readable_path_says_what_is_wrong(codec: Codec) -> None:
    empty = BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0).seal(b"")
    with pytest.raises(DecompressionError, match=f"position [1-9].*{codec.label}"):
        list(decode(bytes(empty + one_batch(codec, b"not a stream"))))
    with pytest.raises(DecompressedSizeError):
        list(decode(bytes(empty + one_batch(codec, compress(codec, bytes(2000)))), max_decompressed=1999))


def test_unknown_codecs_are_named() -> None:
    with pytest.raises(UnsupportedCompressionError, match="position 0: .*codec id 6"):
        list(decode(bytes(one_batch(6, b"any"))))


def test_a_table_with_gaps_is_taken_too() -> None:
    streams = [compress(Codec.LZ4, b"tide %d" % number) for number in range(6)]
    buffer, table = table_of(streams)
    answer = Decompressor(MIB).open(Codec.LZ4, buffer, table[::2])
    assert [bytes_at(first, end) for first, end, _ in answer.table.tolist()] == [b"tide 0", b"tide 2", b"tide 4"]
    assert answer.table.dtype == np.int64


@pytest.mark.parametrize(("seed", "codec"), [(3, Codec.GZIP), (4, Codec.ZSTD)])
def test_damaged_streams_are_judged_alike(seed: int, codec: Codec) -> None:
    assert fuzz_codecs.run(seed, cases=2000, codecs=(codec,)) == 2000
