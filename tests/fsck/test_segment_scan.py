"""Reading a segment over damage: what is sound is found again, whatever lies before it."""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import corpus
from tidelog.errors import StorageError
from tidelog.fsck.batch_order import ordered_mask
from tidelog.fsck.segment_facts import Batches, SegmentFacts
from tidelog.fsck.segment_scan import scan_segment
from tidelog.kernels.record_walk import COLUMNS
from tidelog.log.files import ReadFile, opened
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import Codec, Header, NewRecord, build_batch, read_batches
from tidelog.records.checksum import crc32c_of
from tidelog.records.control import ControlType, EndTxnMarker, build_end_txn_marker
from tidelog.records.legacy import write_message
from tidelog.testing.disk import SimulatedFileSystem


def file_of(data: bytes) -> ReadFile:
    disk = SimulatedFileSystem()
    disk.make_directory("/d")
    file = disk.open_write("/d/log")
    file.write_at(0, data)
    return disk.open("/d/log")


def scanned(data: bytes, *, window: int = 4096, deep: bool = True) -> SegmentFacts:
    return scan_segment(file_of(data), 0, deep=deep, window=window)


def a_log(batches: int = 30, size: int = 200) -> tuple[bytes, list[int]]:
    """Batches of all codecs, and where they begin."""
    rng = random.Random(3)
    data, starts = b"", []
    for number in range(batches):
        records = [NewRecord(b"key", rng.randbytes(rng.randrange(size)), 1000 + number) for _ in range(3)]
        starts.append(len(data))
        data += build_batch(records, base_offset=3 * number, codec=list(Codec)[number % 5])
    return data, starts


@pytest.mark.parametrize("window", [64, 1000, 1 << 20])
@pytest.mark.parametrize("deep", [False, True])
def test_windows_of_any_size_give_the_same_batches(window: int, deep: bool) -> None:
    data, starts = a_log()
    facts = scanned(data, window=window, deep=deep)
    assert facts.batches["position"].tolist() == starts
    assert facts.batches["first"].tolist() == list(range(0, 90, 3))
    assert (facts.damage, facts.records, facts.next_offset) == ([], 90, 90)


def test_wherever_bytes_are_lost_all_other_batches_are_found() -> None:
    data, starts = a_log()
    rng = random.Random(5)
    for _ in range(60):
        start = rng.randrange(len(data))
        end = min(start + rng.choice((1, 5, 30, 400)), len(data))
        damaged = bytearray(data)
        damaged[start:end] = bytes(byte ^ 0x55 for byte in damaged[start:end])
        ends = [*starts[1:], len(data)]
        untouched = [one for one, its_end in zip(starts, ends, strict=True) if its_end <= start or one >= end]
        facts = scanned(bytes(damaged))
        found = set(facts.batches["position"].tolist())
        assert set(untouched) <= found
        for one in found - set(untouched):  # damage to the leader epoch or the offset alone
            at = start - one
            assert -16 < at < 16
        covered = sum(damage.size for damage in facts.damage) + int(facts.batches["size"].sum())
        assert covered == len(data)


def test_a_batch_inside_the_value_of_a_record_is_not_taken_for_one_of_the_log() -> None:
    inner = bytes(build_batch([NewRecord(b"k", b"inner", 1)], base_offset=7))
    outer = [bytes(build_batch([NewRecord(b"k", inner, 5)], base_offset=number)) for number in range(3)]
    damaged = bytearray(b"".join(outer))
    damaged[len(outer[0]) + 64] ^= 1
    facts = scanned(bytes(damaged))
    assert facts.batches["position"].tolist() == [0, 2 * len(outer[0])]
    assert [(damage.position, damage.size) for damage in facts.damage] == [(len(outer[0]), len(outer[1]))]


@pytest.mark.parametrize(
    "log", corpus.log_files("legacy"), ids=lambda log: f"{log.parent.parent.name}/{log.parent.name}"
)
def test_old_formats_are_read_as_the_readable_path_reads_them(log: object) -> None:
    data = log.read_bytes()  # type: ignore[attr-defined]
    facts = scanned(data)
    batches = list(read_batches(data))
    assert facts.damage == []
    assert facts.batches["first"].tolist() == [batch.base_offset for batch in batches]
    assert facts.batches["last"].tolist() == [batch.last_offset for batch in batches]


# -- the quick way against the long one ------------------------------------------------------------------------------


def everything(facts: SegmentFacts) -> dict[str, object]:
    told = {name: value for name, value in vars(facts).items() if name != "batches"}
    return told | {name: facts.batches[name].tolist() for name in COLUMNS}


@contextmanager
def local_file(data: bytes) -> Iterator[ReadFile]:
    """A file with a descriptor, which the kernel reads itself."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with opened(LocalFileSystem().open(file.name)) as reader:
            assert reader.descriptor is not None
            yield reader


def assert_both_ways_agree(data: bytes, *, deep: bool, window: int = 4096) -> SegmentFacts:
    long = everything(scan_segment(file_of(data), 0, deep=deep, window=window, quick=False))
    with local_file(data) as on_disk:
        for file in (file_of(data), on_disk):
            told: list[int] = []
            quick = scan_segment(file, 0, deep=deep, window=window, on_bytes=told.append)
            assert everything(quick) == long | {"path": file.path}
            assert sum(told) == len(data)
    return quick


@st.composite
def some_bytes_of_a_log(draw: st.DrawFn, offset: int) -> tuple[bytes, int]:
    """A batch of any kind, and the offset behind it; most are plain, as they are in a log."""
    kind = draw(st.sampled_from(("plain",) * 6 + ("compressed", "idempotent", "transactional", "marker", "legacy")))
    epoch = draw(st.integers(0, 2))
    if kind == "marker":
        marker = EndTxnMarker(draw(st.sampled_from((ControlType.ABORT, ControlType.COMMIT))), coordinator_epoch=1)
        return bytes(
            build_end_txn_marker(marker, producer_id=7, producer_epoch=epoch, timestamp_ms=5, offset=offset)
        ), offset + 1
    size, count = draw(st.sampled_from((0, 5, 70, 900, 5000))), draw(st.sampled_from((1, 2, 3, 80)))
    records = [
        NewRecord(draw(st.sampled_from((None, b"", b"key"))), bytes(size // count), 1000 + step * number)
        for step in [draw(st.sampled_from((-3, 0, 1, 200)))]
        for number in range(count)
    ]
    if kind == "legacy":
        out = bytearray()
        write_message(out, draw(st.integers(0, 1)), offset, records[0])
        return bytes(out), offset + 1
    if draw(st.booleans()):
        records[-1] = records[-1]._replace(headers=[Header("name", b"value"), Header("", None)])
    options: dict[str, object] = {"base_offset": offset, "partition_leader_epoch": epoch}
    if kind == "compressed":
        options["codec"] = draw(st.sampled_from(list(Codec)[1:]))
    elif kind != "plain":
        is_transactional = kind == "transactional"
        options |= {"producer_id": 7, "producer_epoch": epoch, "base_sequence": 0, "is_transactional": is_transactional}
    return bytes(build_batch(records, **options)), offset + count


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Segments with damage: to bytes under the checksum, or so that it holds again; and to their ends."""
    batches, offset = [], 0
    for _ in range(draw(st.integers(0, 12))):
        batch, offset = draw(some_bytes_of_a_log(offset))
        batches.append(bytearray(batch))
    for number in draw(st.lists(st.integers(0, max(len(batches) - 1, 0)), max_size=3)) if batches else ():
        batch = batches[number]
        where = draw(st.one_of(st.integers(0, 90), st.integers(0, len(batch) - 1)))
        if where < len(batch):
            batch[where] = draw(st.integers(0, 255))
            if draw(st.booleans()) and len(batch) >= 61:
                batch[17:21] = crc32c_of(memoryview(batch)[21:]).to_bytes(4, "big")
    data = b"".join(batches)
    tail = draw(st.sampled_from((b"", b"", bytes(100), bytes(9000), b"torn")))
    return data[: len(data) - draw(st.sampled_from((0, 0, 1, 30, 5000)))] + tail if data else tail


@settings(max_examples=120, deadline=None)
@given(segments(), st.booleans())
def test_what_is_skimmed_is_what_the_long_way_finds(data: bytes, deep: bool) -> None:
    assert_both_ways_agree(data, deep=deep)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("sizes", [(100, 5 << 20, 100), (3000, 9000, 20_000, 60_000, 100), (4096 - 78, 4096, 100)])
def test_batches_larger_than_a_window_are_skimmed_or_read(sizes: tuple[int, ...], deep: bool) -> None:
    batches = [bytes(build_batch([NewRecord(None, bytes(size), 1)], base_offset=at)) for at, size in enumerate(sizes)]
    facts = assert_both_ways_agree(b"".join(batches), deep=deep)
    assert facts.batches["size"].tolist() == [len(batch) for batch in batches]


@pytest.mark.parametrize("deep", [False, True])
def test_more_batches_than_there_was_room_for_are_kept(deep: bool) -> None:
    one = bytes(build_batch([NewRecord(None, None, 1)]))
    facts = assert_both_ways_agree(one * 5000, deep=deep)
    assert facts.batches["position"].tolist() == list(range(0, 5000 * len(one), len(one)))


def test_a_largest_time_that_no_record_has_is_told_by_both_ways() -> None:
    batches = [build_batch([NewRecord(b"k", b"v", 50 + at)], base_offset=at) for at in range(5)]
    batches[3][42] = 9  # the last byte of the largest timestamp
    batches[3][17:21] = crc32c_of(memoryview(batches[3])[21:]).to_bytes(4, "big")
    facts = assert_both_ways_agree(b"".join(batches), deep=True)
    assert facts.remarks == [(3 * len(batches[0]), "LOG-TIMES", "the largest timestamp is 53, the header says 9")]
    assert facts.next_offset == 5


@pytest.mark.parametrize("magic", [1, 2])
def test_a_batch_that_claims_to_be_larger_than_is_read_at_once_is_kept(magic: int) -> None:
    """A block of snappy begins with its size, here 1 GiB: nothing is decompressed, and nothing else is read."""
    block = b"\x80\x80\x80\x80\x04" + bytes(40)
    if magic == 2:
        large = bytearray(build_batch([NewRecord(b"k", b"v", 9)], base_offset=1, codec=Codec.SNAPPY))[:61] + block
        large[8:12] = (len(large) - 12).to_bytes(4, "big")
        large[17:21] = crc32c_of(large[21:]).to_bytes(4, "big")
    else:
        large = bytearray()
        write_message(large, 1, 1, NewRecord(None, block, 9), codec=Codec.SNAPPY)
    small = [bytes(build_batch([NewRecord(b"k", b"v", 9)], base_offset=offset)) for offset in (0, 2)]
    facts = assert_both_ways_agree(b"".join([small[0], large, small[1]]), deep=True)
    assert facts.batches["first"].tolist() == [0, 1, 2]
    assert [(position, code) for position, code, _ in facts.remarks] == [(len(small[0]), "LOG-LARGE")]


@pytest.mark.parametrize("left", [0, 10, 4096, 5000])
def test_a_file_that_is_cut_while_it_is_read_ends_where_it_is_cut(left: int) -> None:
    data, _ = a_log(batches=60)
    disk = SimulatedFileSystem()
    disk.make_directory("/d")
    file = disk.open_write("/d/log")
    file.write_at(0, data)

    def cut(count: int) -> None:
        file.resize(left)

    facts = scan_segment(file, 0, window=4096, on_bytes=cut)
    assert sum(damage.size for damage in facts.damage) + int(facts.batches["size"].sum()) == len(data)


@pytest.mark.parametrize("left", [0, 10, 4096, 5 << 20])
def test_a_file_on_a_disk_that_is_cut_while_it_is_read_ends_where_it_is_cut(left: int) -> None:
    data = bytes(build_batch([NewRecord(None, bytes(2000), 1)])) * 5000
    with local_file(data) as file:
        facts = scan_segment(file, 0, on_bytes=lambda count: os.truncate(file.path, left))
    # The kernel has read the first 4 MiB before it tells anybody.
    assert int(facts.batches["size"].sum()) >= min(left, 4 << 20)
    assert sum(damage.size for damage in facts.damage) + int(facts.batches["size"].sum()) == len(data)


def test_a_file_that_cannot_be_read_says_why() -> None:
    with local_file(bytes(100)) as file:
        assert file.descriptor is not None
        with Path(file.path).open("wb") as other:  # may be written only
            os.dup2(other.fileno(), file.descriptor)
            other.write(bytes(100))
            other.flush()
            with pytest.raises(StorageError, match="Bad file descriptor"):
                scan_segment(file, 0)


def test_some_of_the_batches_are_picked_by_number_slice_or_mask() -> None:
    batches = Batches(np.arange(30).reshape(len(COLUMNS), 3))
    assert (len(batches), batches["position"].tolist(), int(batches[1]["size"])) == (3, [0, 1, 2], 4)
    some = batches[np.array([True, False, True])]
    assert (len(some), some["first"].tolist()) == (2, [6, 8])
    assert some[1:]["first"].tolist() == [8]
    assert [int(row["last"]) for row in batches[1:]] == [10, 11]


def test_as_many_batches_as_possible_are_kept_in_order() -> None:
    rng = random.Random(8)
    for _ in range(200):
        first = np.array([rng.randrange(12) for _ in range(rng.randrange(1, 8))])
        last = first + np.array([rng.randrange(3) for _ in first])
        kept = ordered_mask(first, last)
        assert (first[kept][1:] > last[kept][:-1]).all()
        assert kept.sum() == _longest_by_trying(first.tolist(), last.tolist())


def _longest_by_trying(first: list[int], last: list[int]) -> int:
    best = [1] * len(first)
    for at in range(len(first)):
        best[at] += max((best[before] for before in range(at) if last[before] < first[at]), default=0)
    return max(best)
