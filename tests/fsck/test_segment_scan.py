"""Reading a segment over damage: what is sound is found again, whatever lies before it."""

import random

import numpy as np
import pytest

from tests.golden import corpus
from tidelog.fsck.batch_order import ordered_mask
from tidelog.fsck.segment_scan import SegmentFacts, scan_segment
from tidelog.log.files import ReadFile
from tidelog.records import Codec, NewRecord, build_batch, read_batches
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
