"""The lines that a kernel writes are those of the readable path, to the byte, whatever the log holds."""

import io
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import corpus
from tests.property.hostile import Cases
from tests.property.strategies import data_batches, mixed_logs, record_batches
from tidelog.dump import fast_lines
from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_text import JavaFile
from tidelog.dump.log_file import LogFile
from tidelog.dump.log_text import LogOptions, LogState, dump_log
from tidelog.dump.output import Output
from tidelog.dump.plain_text import PlainText
from tidelog.dump.releases import release
from tidelog.dump.reports import Reports
from tidelog.records import BatchBuilder, Codec, Header, NewRecord, build_batch, build_message_set

NAME = "00000000000000000000.log"
# One of each that words its lines in its own way.
RELEASES = ("0.11.0.0", "1.0", "1.1", "2.0.0", "2.0.1", "2.1", "2.2", "2.3", "2.4", "2.8", "3.0", "3.2", "4.2", "4.3")
MODES = {
    "plain": LogOptions(),
    "deep": LogOptions(deep=True),
    "data": LogOptions(deep=True, data=True),
    "data only": LogOptions(deep=True, data=True, metadata=False),
    "neither": LogOptions(deep=True, metadata=False),
    "some bytes": LogOptions(deep=True, data=True, limit=3_000),
}
SEED = 20_240


class Dumped(NamedTuple):
    """All that a dump leaves behind."""

    text: bytes
    gaps: list[tuple[str, list[tuple[int, int]]]]
    error: str | None


def dumped(path: Path, version: str, options: LogOptions, *, fast: bool) -> Dumped:
    stream, tool = io.BytesIO(), release(version)
    out, reports, error = Output(stream), Reports(tool), None
    try:
        dump_log(JavaFile.at(str(path), "/"), options, PlainText(), tool, reports, out, fast=fast)
    except JavaError as raised:
        error = "\n".join(raised.lines())
    out.flush()
    return Dumped(stream.getvalue(), list(reports.gaps), error)


def assert_equal(path: Path, version: str, options: LogOptions) -> Dumped:
    by_kernel = dumped(path, version, options, fast=True)
    assert by_kernel == dumped(path, version, options, fast=False)
    return by_kernel


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that every test writes anew."""
    return tmp_path_factory.mktemp("segment") / NAME


@contextmanager
def writer(path: Path, version: str, options: LogOptions) -> Iterator[tuple[fast_lines.FastLines, io.BytesIO]]:
    """The kernel's writer alone, and what it writes."""
    stream, tool, file = io.BytesIO(), release(version), JavaFile.at(str(path), "/")
    with LogFile(file, tool) as log:
        state = LogState(file, tool, Reports(tool))
        lines = fast_lines.writer_for(
            log.source, log.size, tool, options, PlainText(), state, Output(stream), fast=True
        )
        assert lines is not None
        yield lines, stream


# -- golden files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", RELEASES)
def test_golden_files_in_the_words_of_a_release(version: str) -> None:
    paths = [path for path in corpus.log_files() if path.stat().st_size < 100_000]
    for path in paths[RELEASES.index(version) :: len(RELEASES)]:
        for options in MODES.values():
            assert_equal(path, version, options)


def test_batches_of_real_producers_raise_no_doubt() -> None:
    """Otherwise the tests here would compare the readable path with itself."""
    for partition in corpus.partitions("kafka-4.3/1-codecs"):
        for path in partition.logs:
            with writer(path, "4.3", MODES["data"]) as (lines, stream):
                assert lines.write_from(0) == path.stat().st_size
            assert stream.getvalue().count(b"\n| offset: ") > 0


# -- any log -----------------------------------------------------------------------------------------------------------

versions = st.sampled_from(RELEASES)
modes = st.sampled_from(sorted(MODES)).map(MODES.__getitem__)


@given(mixed_logs, versions, modes)
def test_any_log(segment: Path, log: bytes, version: str, options: LogOptions) -> None:
    segment.write_bytes(log)
    assert_equal(segment, version, options)


@given(mixed_logs, st.integers(0, 2**32), versions, modes)
def test_any_log_that_lost_bits_or_its_end(
    segment: Path, log: bytes, seed: int, version: str, options: LogOptions
) -> None:
    rng, damaged = random.Random(seed), bytearray(log)
    for _ in range(rng.randrange(3) if damaged else 0):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    segment.write_bytes(damaged[: len(damaged) - rng.choice((0, 0, 1, 20))])
    assert_equal(segment, version, options)


@pytest.mark.parametrize("turn", range(6))
def test_damage_with_a_checksum_that_is_right(segment: Path, turn: int) -> None:
    cases, rng = Cases(SEED), random.Random(turn)
    for case in range(turn * 150, turn * 150 + 150):
        sound = build_batch([NewRecord(b"k", b"v", 5)], base_offset=7)
        segment.write_bytes(bytes(sound) + cases[case] + bytes(sound))
        assert_equal(segment, rng.choice(RELEASES), rng.choice(list(MODES.values())))


_texts = st.one_of(st.none(), st.binary(max_size=70), st.text(max_size=30).map(str.encode))
_broken_names = st.lists(st.binary(max_size=9), max_size=4)


@given(st.lists(st.tuples(_texts, _texts, _broken_names), min_size=1, max_size=6), versions, modes)
def test_keys_values_and_header_names_of_any_bytes(
    segment: Path, records: list[tuple[bytes | None, bytes | None, list[bytes]]], version: str, options: LogOptions
) -> None:
    """A builder takes names of sound UTF-8 only: others are put in their place, of the same length."""
    builder = BatchBuilder(base_offset=3)
    for key, value, names in records:
        headers = tuple(Header("n" * len(name), b"h" if name else None) for name in names)
        builder.append(NewRecord(key, value, 1_700_000_000_000, headers))
    log = bytearray(builder.build())
    at = 61
    for _, _, names in records:
        for name in names:
            placed = bytes([2 * len(name)]) + b"n" * len(name) + (b"\x02h" if name else b"\x01")
            at = log.index(placed, at) + 1
            log[at : at + len(name)] = name
    segment.write_bytes(_sealed(log))
    assert_equal(segment, version, options)


@pytest.mark.parametrize("version", ["2.2", "4.3"])
@pytest.mark.parametrize("base_sequence", [-1, 0, 5, 2**31 - 1])
def test_a_record_before_its_batch(segment: Path, version: str, base_sequence: int) -> None:
    who = {} if base_sequence < 0 else {"producer_id": 9, "producer_epoch": 1, "base_sequence": base_sequence}
    log = bytearray(build_batch([NewRecord(b"k", b"v", 5)], base_offset=100, **who))
    assert log[64] == 0
    log[64] = 5  # the offset delta: -3
    segment.write_bytes(_sealed(log))
    assert b"| offset: 97 " in assert_equal(segment, version, MODES["data"]).text


def _sealed(log: bytearray) -> bytes:
    from tidelog.records.checksum import crc32c_of

    log[17:21] = crc32c_of(bytes(log[21:])).to_bytes(4, "big")
    return bytes(log)


# -- edges of windows, of texts, of tables -----------------------------------------------------------------------------


def _large_log() -> bytes:
    """Half a megabyte: sizes that fit no window, all codecs, and now and then something for the readable path."""
    rng, parts, offset = random.Random(1), [], 0
    while sum(map(len, parts)) < 500_000:
        count = rng.choice((1, 5, 40, 400))
        records = [NewRecord(b"key-%d" % n, rng.randbytes(rng.randrange(90)), n) for n in range(count)]
        if rng.random() < 0.05:
            parts.append(bytes(build_message_set(1, records[:3], base_offset=offset)))
        else:
            parts.append(bytes(build_batch(records, base_offset=offset, codec=rng.choice(list(Codec)))))
        offset += count + (rng.random() < 0.1)
    return b"".join(parts)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / NAME
    path.write_bytes(_large_log())
    return path


@pytest.mark.parametrize("mode", ["plain", "data"])
@pytest.mark.parametrize(
    ("window", "head", "text", "opened"),
    [
        (100, 10, 100, 100),
        (1_000, 40_000, 1_000, 10_000),
        (20_000, 500, 3_000, 1_000),
        (70_000, 70_000, 200_000, 1 << 20),
    ],
)
def test_windows_and_texts_of_any_size_give_the_same_lines(
    large: Path, monkeypatch: pytest.MonkeyPatch, mode: str, window: int, head: int, text: int, opened: int
) -> None:
    sizes = {"_WINDOW_BYTES": window, "_HEAD_BYTES": head, "_TEXT_BYTES": text, "_OPENED_BYTES": opened, "_GAPS": 3}
    for name, size in sizes.items():
        monkeypatch.setattr(fast_lines, name, size)
    result = assert_equal(large, "4.3", MODES[mode])
    assert len(result.gaps) == (mode == "data")


@pytest.mark.parametrize("mode", ["plain", "data"])
def test_the_edge_of_a_window_raises_no_doubt(segment: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(fast_lines, "_WINDOW_BYTES", 1_000)
    monkeypatch.setattr(fast_lines, "_HEAD_BYTES", 500)
    batches = [build_batch([NewRecord(b"k", bytes(n), n)], base_offset=n, codec=Codec(n % 5)) for n in range(700)]
    segment.write_bytes(b"".join(map(bytes, batches)))
    with writer(segment, "4.3", MODES[mode]) as (lines, stream):
        assert lines.write_from(0) == segment.stat().st_size
    assert stream.getvalue().count(b"baseOffset: ") == 700


def test_a_log_that_is_cut_anywhere(large: Path, segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_lines, "_WINDOW_BYTES", 10_000)
    monkeypatch.setattr(fast_lines, "_HEAD_BYTES", 10_000)
    log = large.read_bytes()
    for size in (10_000, 10_005, 9_983, 20_061, 50_000, *range(80)):
        segment.write_bytes(log[:size])
        assert_equal(segment, "4.3", MODES["plain"])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_larger_than_window_and_text(segment: Path, codec: Codec) -> None:
    small = build_batch([NewRecord(b"k", b"v", 5)], base_offset=0)
    huge = build_batch([NewRecord(b"\xff" * 100, b"\xfe\x20" * (3 << 20), 5)], base_offset=1, codec=codec)
    segment.write_bytes(bytes(small) + bytes(huge) + bytes(small))
    result = assert_equal(segment, "4.3", MODES["data"])
    assert result.text.count(b"\xef\xbf\xbd") == 100 + (3 << 20)


def test_more_gaps_than_the_table_holds(segment: Path) -> None:
    builder = BatchBuilder(base_offset=10)
    for number in range(20_000):
        builder.append(NewRecord(None, None, 1), 10 + 2 * number)
    segment.write_bytes(bytes(builder.build()) * 2)
    result = assert_equal(segment, "4.3", MODES["deep"])
    [(_, gaps)] = result.gaps
    assert len(gaps) == 40_000  # the first offset is compared with -1 too


def test_a_file_that_is_cut_while_it_is_read_ends_where_it_ends(segment: Path) -> None:
    small = bytes(build_batch([NewRecord(b"k", b"v", 5)]))
    segment.write_bytes(small + bytes(build_batch([NewRecord(b"k", bytes(9 << 20), 5)])))
    with writer(segment, "4.3", MODES["plain"]) as (lines, _):
        segment.write_bytes(segment.read_bytes()[: 5 << 20])
        assert lines.write_from(0) == len(small)


@given(st.lists(data_batches(), min_size=1, max_size=4), st.lists(record_batches, max_size=3))
def test_the_writer_begins_at_any_batch(segment: Path, before: list[bytes], after: list[bytes]) -> None:
    segment.write_bytes(b"".join(before + after))
    whole = dumped(segment, "4.3", MODES["plain"], fast=False).text
    start = sum(map(len, before))
    with writer(segment, "4.3", MODES["plain"]) as (lines, stream):
        assert lines.write_from(start) == start + sum(map(len, after))
        assert lines.write_from(0) == segment.stat().st_size  # and goes back
    text = stream.getvalue()
    title, _, batch_lines = whole.partition(b"\n")
    assert title.startswith(b"Log starting offset")
    assert text.endswith(batch_lines)
    assert text.count(b"\n") == len(before) + 2 * len(after)


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_others_words_are_not_written(segment: Path) -> None:
    class Shouting:
        def decode(self, record: object) -> tuple[str | None, str | None]:
            return "KEY", None

    segment.write_bytes(bytes(build_batch([NewRecord(b"k", b"v", 5)])))
    tool, file = release("4.3"), JavaFile.at(str(segment), "/")
    with LogFile(file, tool) as log:
        state, out = LogState(file, tool, Reports(tool)), Output(io.BytesIO())
        rest = log.source, log.size
        assert fast_lines.writer_for(*rest, tool, MODES["data"], Shouting(), state, out, fast=True) is None
        assert fast_lines.writer_for(*rest, tool, MODES["deep"], Shouting(), state, out, fast=True) is not None
        old = release("0.10.2")
        assert fast_lines.writer_for(*rest, old, MODES["plain"], PlainText(), state, out, fast=True) is None


def test_a_small_file_loads_no_compiler(segment: Path) -> None:
    segment.write_bytes(bytes(build_batch([NewRecord(b"k", b"v", 5)])))
    code = f"""
import io, sys
from tidelog.dump.java_text import JavaFile
from tidelog.dump.log_text import LogOptions, dump_log
from tidelog.dump.output import Output
from tidelog.dump.plain_text import PlainText
from tidelog.dump.releases import release
from tidelog.dump.reports import Reports
out, tool = Output(sys.stdout), release("4.3")
dump_log(JavaFile.at({str(segment)!r}, "/"), LogOptions(), PlainText(), tool, Reports(tool), out)
out.flush()
assert not {{"numpy", "numba", "llvmlite", "pyarrow"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 2
