"""Logs with gaps that nothing says are compacted: an offset is neither assigned nor believed that nothing proves.

A partition directory that was copied alone has no checkpoints and no metadata log beside it.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import flip
from tests.fsck.test_repair import offsets_in, repaired
from tests.fsck.test_segment_scan import scanned
from tidelog.fsck.batch_order import are_dense
from tidelog.fsck.segment_facts import SegmentFacts
from tidelog.log.names import LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from tidelog.records import NewRecord, build_batch

GAPPY = [0, 5, 9, 14, 20]
HUGE = 1 << 40


def batch(offset: int) -> bytes:
    return bytes(build_batch([NewRecord(b"k", b"v%d" % offset, 9 + offset)], base_offset=offset))


def copied(tmp_path: Path, *segments: tuple[int, Sequence[bytes]]) -> Path:
    """A partition directory without anything beside it; its first segment."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for base, batches in segments:
        (directory / file_name(base, LOG_SUFFIX)).write_bytes(b"".join(batches))
    return directory / file_name(segments[0][0], LOG_SUFFIX)


@pytest.mark.parametrize("count", [1, 7, 60, 100])
@pytest.mark.parametrize("number", range(len(GAPPY)))
@pytest.mark.parametrize("is_followed", [False, True])
def test_bytes_before_a_batch_do_not_change_its_offset(
    tmp_path: Path, number: int, count: int, is_followed: bool
) -> None:
    batches = [batch(offset) for offset in GAPPY]
    batches.insert(number, b"x" * count)
    log = copied(tmp_path, (0, batches), *([(30, [batch(30)])] if is_followed else []))
    repaired(log.parent)
    assert offsets_in(log) == GAPPY


@pytest.mark.parametrize("number", range(len(GAPPY)))
def test_a_damaged_length_does_not_change_the_offset(tmp_path: Path, number: int) -> None:
    batches = [batch(offset) for offset in GAPPY]
    log = copied(tmp_path, (0, batches))
    before = log.read_bytes()
    flip(log, len(b"".join(batches[:number])) + 8)
    repaired(log.parent)
    assert log.read_bytes() == before


@pytest.mark.parametrize("number", range(len(GAPPY)))
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_damaged_offset_that_nothing_tells_goes_to_the_quarantine(
    tmp_path: Path, number: int, is_followed: bool
) -> None:
    batches = [batch(offset) for offset in GAPPY]
    batches[number] = HUGE.to_bytes(8, "big") + batches[number][8:]
    log = copied(tmp_path, (0, batches), *([(30, [batch(30)])] if is_followed else []))
    result = repaired(log.parent)
    assert offsets_in(log) == [offset for offset in GAPPY if offset != GAPPY[number]]
    assert result.pieces


@pytest.mark.parametrize("number", range(len(GAPPY)))
def test_the_offset_0_of_a_zeroed_header_is_not_believed(tmp_path: Path, number: int) -> None:
    offsets = [offset + 3 for offset in GAPPY]  # the base offset is 0: so the first batch may have any up to 7
    batches = [batch(offset) for offset in offsets]
    batches[number] = bytes(17) + batches[number][17:]
    log = copied(tmp_path, (0, batches))
    repaired(log.parent)
    assert offsets_in(log) == [offset for offset in offsets if offset != offsets[number]]


@pytest.mark.parametrize("is_zeroed", [False, True])
def test_a_damaged_offset_is_put_right_where_no_other_fits(tmp_path: Path, is_zeroed: bool) -> None:
    offsets = [0, 5, 9, 10, 11, 20]
    batches = [batch(offset) for offset in offsets]
    batches[3] = bytes(17) + batches[3][17:] if is_zeroed else HUGE.to_bytes(8, "big") + batches[3][8:]
    log = copied(tmp_path, (0, batches))
    repaired(log.parent)
    assert offsets_in(log) == offsets


def test_in_a_dense_log_an_offset_after_foreign_bytes_is_put_right(tmp_path: Path) -> None:
    log = copied(tmp_path, (0, [*(batch(offset) for offset in range(4)), b"x", batch(1000)]))
    repaired(log.parent)
    assert offsets_in(log) == [0, 1, 2, 3, 4]


def test_an_offset_that_an_index_names_is_believed_in_a_dense_log(tmp_path: Path) -> None:
    log = copied(tmp_path, (0, [*(batch(offset) for offset in range(4)), b"x", batch(1000)]))
    entry = (1009).to_bytes(8, "big") + (1000).to_bytes(4, "big")
    log.with_name(file_name(0, TIME_INDEX_SUFFIX)).write_bytes(entry)
    repaired(log.parent)
    assert offsets_in(log) == [0, 1, 2, 3, 1000]


def test_a_single_batch_does_not_prove_that_there_are_no_gaps(tmp_path: Path) -> None:
    log = copied(tmp_path, (0, [batch(0), b"x", batch(20)]))
    repaired(log.parent)
    assert offsets_in(log) == [0, 20]


@pytest.mark.parametrize(
    ("offsets", "explained", "wanted"),
    [
        ([], (), None),
        ([0], (), None),
        ([0, 20], (), None),  # the last one may be damaged
        ([0, 1, 20], (), True),
        ([0, 1, 5, 6], (), False),
        ([0, 1, 5, 6], ((2, 4),), True),
        ([0, 1, 1034, 3, 4], (), True),  # one is damaged, and the others have no gap
    ],
)
def test_gaps_show_where_sound_batches_touch(
    offsets: list[int], explained: tuple[tuple[int, int], ...], wanted: bool | None
) -> None:
    facts = scanned(b"".join(batch(offset) for offset in offsets))
    assert are_dense([facts], explained) is wanted


def test_gaps_between_many_segments_are_found_in_one_pass() -> None:
    asked = 0

    class Counted(SegmentFacts):
        def __getattribute__(self, name: str) -> object:
            nonlocal asked
            asked += name == "base_offset"
            return super().__getattribute__(name)

    segments = []
    for offset in range(100):
        facts = Counted(file_name(offset, LOG_SUFFIX), offset, len(batch(offset)))
        facts.batches = scanned(batch(offset)).batches
        segments.append(facts)
    assert are_dense(segments) is True
    assert asked <= 2 * len(segments)
