"""Two lists of batches laid beside each other: the counts must be those of the definition, however they are cut."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fsck.batch_lists import Part, chunks, expected
from tidelog.fsck.batch_rows import rows_in
from tidelog.fsck.comparison import Divergence, DivergenceKind, Tally, compare_batches
from tidelog.log.batch_windows import whole_window


def compared(left: list[Part], right: list[Part], size: int = 2, *, epochs: bool = True) -> Tally:
    return compare_batches(chunks(left, size), chunks(right, size), epochs=epochs)


LOG = [Part(0, 3, 11), Part(4, 4, 12), Part(5, 9, 13, 1), Part(10, 10, 14, 1), Part(11, 19, 15, 2)]


def inserted(log: list[Part]) -> list[Part]:
    return [*log, Part(20, 24, 16, 2)]


def removed(log: list[Part]) -> list[Part]:
    return [*log[:1], *log[2:]]


def altered(log: list[Part]) -> list[Part]:
    return [*log[:2], log[2]._replace(crc=99), *log[3:]]


def led_by_another(log: list[Part]) -> list[Part]:
    return [*log[:4], log[4]._replace(epoch=3)]


def shifted(log: list[Part]) -> list[Part]:
    return [*log[:4], log[4]._replace(first=12, last=20)]


def moved_behind(log: list[Part]) -> list[Part]:
    return [*log[:4], log[4]._replace(first=30, last=38)]


def split(log: list[Part]) -> list[Part]:
    return [*log[:2], Part(5, 6, 21, 1), Part(7, 9, 22, 1), *log[3:]]


def damaged(log: list[Part]) -> list[Part]:
    return [log[0]._replace(producer=5), *log[1:]]


@pytest.mark.parametrize(
    ("edit", "first", "counts"),
    [
        (inserted, (20, "only in B"), (5, 0, 0, 0, 1, 0, 0)),
        (removed, (4, "only in A"), (4, 0, 0, 1, 0, 0, 0)),
        (altered, (5, "records"), (4, 1, 0, 0, 0, 0, 0)),
        (led_by_another, (11, "leader epoch"), (4, 1, 1, 0, 0, 0, 0)),
        (shifted, (11, "bounds"), (4, 0, 0, 0, 0, 1, 1)),
        (moved_behind, (11, "only in A"), (4, 0, 0, 1, 1, 0, 0)),
        (split, (5, "bounds"), (4, 0, 0, 0, 0, 1, 2)),
        (damaged, (0, "header"), (4, 1, 0, 0, 0, 0, 0)),
    ],
)
def test_one_edit_is_told_as_what_it_is(
    edit: Callable[[list[Part]], list[Part]], first: tuple[int, str], counts: tuple[int, ...]
) -> None:
    tally = compared(LOG, edit(LOG))
    assert tally.first == Divergence(first[0], DivergenceKind(first[1]))
    left, right = tally.left, tally.right
    assert counts == (
        tally.equal, tally.different, tally.different_epoch, left.only_here, right.only_here,
        left.other_bounds, right.other_bounds,
    )  # fmt: skip


def test_equal_logs_have_no_difference_however_they_are_cut() -> None:
    for one in range(1, 6):
        for two in range(1, 6):
            tally = compare_batches(chunks(LOG, one), chunks(LOG, two))
            assert (tally.equal, tally.first) == (5, None)


def test_leader_epochs_may_be_left_out() -> None:
    assert compared(LOG, led_by_another(LOG), epochs=False).is_equal


def test_nothing_is_equal_to_nothing() -> None:
    assert compared([], []).is_equal
    assert compared(LOG, []).left.only_here == 5


@st.composite
def logs(draw: st.DrawFn) -> list[Part]:
    """Batches in the order of offsets, with gaps here and there."""
    parts: list[Part] = []
    for _ in range(draw(st.integers(0, 12))):
        first = (parts[-1].last + 1 if parts else 0) + draw(st.sampled_from([0, 0, 0, 1, 3]))
        last = first + draw(st.sampled_from([0, 1, 4]))
        parts.append(Part(first, last, draw(st.integers(0, 2)), draw(st.integers(0, 1))))
    return parts


EDITS = [*["keep"] * 6, "remove", "crc", "epoch", "producer", "shift", "shorten", "insert"]


@st.composite
def edited(draw: st.DrawFn, log: list[Part]) -> list[Part]:
    """The same log with batches taken out, changed, moved, cut or put in: any that still go up."""
    result: list[Part] = []
    for part in log:
        edit = draw(st.sampled_from(EDITS))
        edits = {
            "remove": [],
            "crc": [part._replace(crc=part.crc + 1)],
            "epoch": [part._replace(epoch=part.epoch + 1)],
            "producer": [part._replace(producer=5)],
            "shift": [part._replace(first=part.first + 1, last=part.last + 1)],
            "shorten": [part._replace(last=max(part.first, part.last - 1))],
            "insert": [Part(part.first, part.first, 9), part._replace(first=part.first + 1, last=part.last + 1)],
        }
        result += [new for new in edits.get(edit, [part]) if not result or new.first > result[-1].last]
    return result


@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_any_edits_are_counted_as_the_definition_says(data: st.DataObject, one: int, two: int, epochs: bool) -> None:
    left = data.draw(logs())
    right = data.draw(edited(left) if data.draw(st.booleans()) else logs())
    found = compare_batches(chunks(left, one), chunks(right, two), epochs=epochs)
    assert found == expected(left, right, epochs=epochs)
    mirrored = compare_batches(chunks(right, two), chunks(left, one), epochs=epochs)
    assert (mirrored.left, mirrored.right) == (found.right, found.left)


def test_kernels_find_the_rows_that_the_readable_path_finds() -> None:
    (slow,), (fast,) = chunks(LOG, 9), chunks(LOG, 9, fast=True)
    assert slow.equal_to(fast).all()
    assert (slow.first.tolist(), slow.last.tolist()) == (fast.first.tolist(), fast.last.tolist())


def test_what_a_scan_leaves_behind_a_header_is_no_part_of_the_row() -> None:
    data = b"".join(part.pack() for part in LOG)
    window = whole_window(memoryview(data), 0, "a list", fast=True)
    assert window.scan is not None
    window.scan.rows.view(np.uint8).reshape(-1, 64)[:, 61:] = 255
    assert not rows_in(window).rows[:, 61:].any()
