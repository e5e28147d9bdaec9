"""Compressed batches that stand for gigabytes: what is read of them is bounded, and nothing sane changes."""

import gzip
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.dump import broken_streams
from tidelog.dump.releases import NEWEST, release
from tidelog.records import NewRecord, build_batch
from tidelog.records.checksum import crc32c_of
from tidelog.records.compression import Codec, compress

LIMIT = 1 << 20
ZSTD = 4


def zstd_of_zeros(size: int) -> bytes:
    """A frame in which three bytes stand for 128 KiB."""
    blocks = size >> 17
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00\x38")
    for number in range(blocks):
        frame += ((1 << 17) << 3 | 2 | (number == blocks - 1)).to_bytes(3, "little") + b"\0"
    return bytes(frame)


def batch_with(body: bytes, codec_id: int) -> bytes:
    """A sound header over any body."""
    batch = bytearray(build_batch([NewRecord(None, b"v", 1)])[:61]) + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = codec_id.to_bytes(2, "big")
    batch[17:21] = crc32c_of(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_a_batch_of_kilobytes_that_stands_for_gigabytes_takes_little_memory(tmp_path: Path) -> None:
    """The first record is broken, which Kafka's tool tells too: it never reads further."""
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(batch_with(zstd_of_zeros(2 << 30), ZSTD))
    assert log.stat().st_size < 100_000
    code = (
        "import resource, sys; from tidelog.dump import run\n"
        f"words = ['--print-data-log', '--files', {str(log)!r}]\n"
        "code = run(words, release='4.3', stdout=sys.stdout, stderr=sys.stderr)\n"
        "print('', code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, sep=chr(10))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )  # fmt: skip
    assert "InvalidRecordException: Found invalid record structure" in done.stderr
    exit_code, megabytes = map(int, done.stdout.splitlines()[-2:])
    assert exit_code == 1
    assert megabytes < 700


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_no_stream_gives_more_than_the_heap_of_the_tool_holds(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_streams, "MAX_DECOMPRESSED_BYTES", LIMIT)
    plain = bytes(range(256)) * (3 * LIMIT // 256)
    stream = broken_streams.broken_stream(codec, memoryview(compress(codec, plain)), 2, release(NEWEST), 61)
    assert stream.read(1000) == plain[:1000]
    with pytest.raises(Exception, match="OutOfMemoryError: Java heap space"):
        stream.read_all()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_stream_up_to_the_limit_is_read_to_its_end(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_streams, "MAX_DECOMPRESSED_BYTES", LIMIT)
    plain = bytes(range(256)) * (LIMIT // 256)
    stream = broken_streams.broken_stream(codec, memoryview(compress(codec, plain)), 2, release(NEWEST), 61)
    assert stream.read_all() == plain


def test_members_of_gzip_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_streams, "MAX_DECOMPRESSED_BYTES", LIMIT)
    data = gzip.compress(b"\0" * LIMIT) * 3
    stream = broken_streams.broken_stream(Codec.GZIP, memoryview(data), 2, release(NEWEST), 61)
    with pytest.raises(Exception, match="Java heap space"):
        stream.read_all()
