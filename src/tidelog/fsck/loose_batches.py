"""Find the right place of sound batches whose offsets are out of order.

Pages of a file that were exchanged, or written to another place, carry whole batches away. The checksums of these
batches match and their offsets are right, but do not fit between those of their neighbours. Such a batch is moved to
where its offsets are missing, if nothing contradicts them: no other batch holds one of them, and they are not greater
than what the log is known to have reached.

A batch whose offset itself is damaged, so that the log cannot have reached it, stays where it is. Its offset follows
from the batch before it or after it, if no byte lies between the two and offsets have no gaps, as they may have in a
compacted log: there, an offset is only assigned if no other one fits between those of the neighbours. An offset that
could be right is never taken for damaged, since the batch may be a copy or come from another place. There are two
exceptions. If other fields of the header are damaged too, the header was overwritten, and the offset with it. And zeros
that end inside a header leave an offset of 0, which another batch has.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.fsck.batch_order import Layout, Mask, Placed, Run, Shifted, is_zeroed, range_of
from tidelog.fsck.segment_facts import Batches, Damage, SegmentFacts, span_of
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.java import MAX_INT32

__all__ = [
    "Unproven",
    "epochs_around",
    "offset_of_header",
    "offset_of_short_header",
    "place_loose",
    "unbury",
]

_MOST_OFFSETS = 1 << 16  # between two batches that are tried for one whose offset is not whole


class _Taken:
    """The offsets of the batches whose place is known."""

    def __init__(self, segments: Sequence[SegmentFacts], layout: Layout) -> None:
        self._intervals: list[tuple[int, int]] = []
        for facts, which in zip(segments, layout.in_place, strict=True):
            batches = facts.batches[which]
            self._intervals += zip(batches["first"].tolist(), batches["last"].tolist(), strict=True)
        for placed in layout.moved:
            batches = placed.run.of(segments)
            self._intervals += zip(batches["first"].tolist(), batches["last"].tolist(), strict=True)
        for segment, batch, offset in layout.shifted:
            self._intervals.append((offset, offset + span_of(segments[segment].batches[batch])))
        self._intervals.sort()

    @property
    def end(self) -> int:
        """The offset after the last one that is held."""
        return self._intervals[-1][1] + 1 if self._intervals else 0

    def take(self, first: int, last: int) -> None:
        insort(self._intervals, (first, last))

    def hole(self, first: int, last: int) -> tuple[int | None, int | None] | None:
        """The offsets that are held before and after some that are not; None if one of these is held."""
        at = bisect_left(self._intervals, (first, first))
        before = self._intervals[at - 1][1] if at else None
        after = self._intervals[at][0] if at < len(self._intervals) else None
        if (before is not None and before >= first) or (after is not None and after <= last):
            return None
        return before, after


class _Loose(NamedTuple):
    """A batch whose offsets are out of order."""

    segment: int
    batch: int
    first: int
    last: int
    target: int = -1  # the segment it belongs to


def place_loose(
    layout: Layout,
    segments: Sequence[SegmentFacts],
    bases: Sequence[int],
    reached: int | None,
    is_copy: Callable[[SegmentFacts, int], bool] = lambda facts, batch: False,
    *,
    may_have_gaps: Callable[[], bool],
    closed_at: int | None = None,
) -> Layout:
    """Find a place for what is out of order. The log is known to have `reached` an offset, by its checkpoints.

    No batch goes beyond the end that it was `closed_at`: one that claims to be there is of another log.

    `is_copy` tells whether a batch of a segment is the copy of another one with the same offset.
    """
    if not layout.out_of_order:
        return layout
    taken = _Taken(segments, layout)
    loose = [_loose(segments, place) for place in layout.out_of_order]
    beside = {number: _beside_damage(segments[number]) for number in {one.segment for one in loose}}
    placeable = [
        one
        for one in loose
        if (closed_at is None or one.last < closed_at)
        # Where there are gaps, one at offset 0 proves nothing.
        and not (is_zeroed(segments[one.segment], one.batch, is_copy) and may_have_gaps())
    ]
    moved, left = _moved(placeable, bases, taken, reached, beside)
    left = sorted({*left, *(one for one in loose if one not in placeable)}, key=lambda one: one.first)
    layout = layout._replace(moved=[*layout.moved, *_joined(moved)])
    shifted = []
    if left and not may_have_gaps():
        end = max(taken.end, reached or 0)
        for one in left:
            if bases[0] <= one.first <= one.last < end and not is_zeroed(segments[one.segment], one.batch, is_copy):
                continue
            offset = _offset_by_neighbours(one, segments, layout, taken)
            if offset is not None:
                shifted.append(Shifted(one.segment, one.batch, offset))
                taken.take(offset, offset + span_of(segments[one.segment].batches[one.batch]))
    settled = {(one.segment, one.batch) for one in shifted}
    return layout._replace(
        shifted=[*layout.shifted, *shifted],
        out_of_order=sorted((one.segment, one.batch) for one in left if (one.segment, one.batch) not in settled),
    )


def _loose(segments: Sequence[SegmentFacts], place: tuple[int, int]) -> _Loose:
    row = segments[place[0]].batches[place[1]]
    return _Loose(*place, int(row["first"]), int(row["first"]) + span_of(row))


def _moved(
    loose: Sequence[_Loose], bases: Sequence[int], taken: _Taken, reached: int | None, beside: Mapping[int, Mask]
) -> tuple[list[_Loose], list[_Loose]]:
    """The batches that go to where their offsets are missing, and the rest. One that is placed may place others."""
    moved: list[_Loose] = []
    left = sorted(loose, key=lambda one: one.first)
    while True:
        rest = []
        for one in left:
            if _fits(one, bases, taken, reached, is_beside_damage=bool(beside[one.segment][one.batch])):
                taken.take(one.first, one.last)
                moved.append(one._replace(target=bisect_right(bases, one.first) - 1))
            else:
                rest.append(one)
        if len(rest) == len(left):
            return moved, left
        left = rest


def _fits(one: _Loose, bases: Sequence[int], taken: _Taken, reached: int | None, *, is_beside_damage: bool) -> bool:
    """Whether the offsets of a batch are missing elsewhere, and can be trusted."""
    target = bisect_right(bases, one.first) - 1
    hole = taken.hole(one.first, one.last)
    if hole is None or target < 0 or one.last >= range_of(bases, target)[1]:
        return False
    before, after = hole
    touches = one.first == (bases[0] if before is None else before + 1) or one.last + 1 == after
    is_bounded = after is not None or (reached is not None and one.last < reached)
    return (touches and (is_bounded or before is not None)) or (is_bounded and is_beside_damage)


def _beside_damage(facts: SegmentFacts) -> Mask:
    """Which batches are in a contiguous run next to damaged bytes: they were moved with a page."""
    positions, ends = facts.batches["position"], facts.batches["position"] + facts.batches["size"]
    is_new = np.concatenate(([True], positions[1:] != ends[:-1]))
    runs = np.cumsum(is_new) - 1
    is_last = np.concatenate((is_new[1:], [True]))
    after_damage = np.isin(positions[is_new], [damage.end for damage in facts.damage])
    before_damage = np.isin(ends[is_last], [damage.position for damage in facts.damage])
    mask: Mask = (after_damage | before_damage)[runs]
    return mask


def _joined(moved: Sequence[_Loose]) -> list[Placed]:
    """Join consecutive batches that go to the same place into runs."""
    runs: list[Placed] = []
    last = -1
    for one in sorted(moved):
        before = runs[-1] if runs else None
        if (
            before is not None
            and (before.run.segment, before.run.stop, before.segment) == (one.segment, one.batch, one.target)
            and last < one.first
        ):
            runs[-1] = before._replace(run=before.run._replace(stop=one.batch + 1))
        else:
            runs.append(Placed(Run(one.segment, one.batch, one.batch + 1), one.target))
        last = one.last
    return runs


def _offset_by_neighbours(one: _Loose, segments: Sequence[SegmentFacts], layout: Layout, taken: _Taken) -> int | None:
    """The offset of a batch by its neighbours; None if their offsets are unknown, or contradict each other."""
    facts = segments[one.segment]
    span = one.last - one.first
    found = {
        offset
        for offset in _claims(layout, segments, one.segment, one.batch, span)
        if offset >= facts.base_offset and taken.hole(offset, offset + span) is not None
    }
    return found.pop() if len(found) == 1 else None


def _claims(layout: Layout, segments: Sequence[SegmentFacts], number: int, batch: int, span: int) -> Iterator[int]:
    """The offsets that adjacent batches imply, and for the last one of a file the base offset of the next segment.

    Before the last one there may be damage too short for a batch, unless batches of the file were displaced.
    """
    batches: Batches = segments[number].batches
    is_known = _known_places(layout, number)
    start, end = int(batches["position"][batch]), int(batches["position"][batch] + batches["size"][batch])
    is_last = batch + 1 == len(batches)
    if batch and is_known[batch - 1]:
        between = start - int(batches["position"][batch - 1] + batches["size"][batch - 1])
        if between < (BATCH_HEADER_SIZE if is_last and not _is_displaced(layout, number) else 1):
            yield int(batches["last"][batch - 1]) + 1
    if not is_last and is_known[batch + 1] and batches["position"][batch + 1] == end:
        yield int(batches["first"][batch + 1]) - span - 1
    if is_known[:batch].any() and end == segments[number].size and number + 1 < len(segments):
        yield layout.bases[number + 1] - span - 1


def _is_displaced(layout: Layout, number: int) -> bool:
    """Whether batches of a file have left their place, or come into it."""
    return any(number in (placed.run.segment, placed.segment) for placed in layout.moved)


class Unproven(Exception):
    """Nothing proves the offset of a batch, and the one that stands in its header cannot be believed."""


def offset_of_header(
    layout: Layout,
    segments: Sequence[SegmentFacts],
    number: int,
    damage: Damage,
    closed_at: int | None = None,
    *,
    may_have_gaps: bool,
    is_witnessed: Callable[[SegmentFacts, int, int], bool] = lambda facts, first, last: False,
) -> int | None:
    """The offset of a batch with a damaged header, by its neighbours; None if the one that is there may be right.

    Adjacent batches imply it, and must agree; of the last batch so does the base offset of the next segment, or the
    log end that was noted when the log was closed. Before the last one of a file there may be damage too short for a
    batch, unless batches of the file were displaced: then the one before it need not be its neighbour.

    Where offsets `may_have_gaps`, one neighbour implies nothing: those on both sides must leave room for one offset
    only. Raises Unproven if they leave room for more, and the header was zeroed.
    """
    assert damage.right is not None
    facts, span, stored = segments[number], damage.right.span, damage.right.offset
    taken = _Taken(segments, layout)
    is_known = stored + span < taken.end or is_witnessed(facts, stored, stored + span)
    is_possible = layout.bases[0] <= stored and is_known
    if is_possible and not damage.right.is_overwritten and taken.hole(stored, stored + span) is not None:
        return None
    by_before, by_after = _implied_by_neighbours(layout, segments, number, damage, closed_at)
    claims = {*by_before, *by_after}
    offset = claims.pop() if len(claims) == 1 and (not may_have_gaps or (by_before and by_after)) else None
    if offset is None and may_have_gaps and damage.right.is_zeroed:
        raise Unproven
    is_free = offset is not None and offset >= facts.base_offset and taken.hole(offset, offset + span) is not None
    return offset if is_free and offset != stored else None


def _implied_by_neighbours(
    layout: Layout, segments: Sequence[SegmentFacts], number: int, damage: Damage, closed_at: int | None
) -> tuple[set[int], set[int]]:
    """The offsets of a batch with a damaged header that what is before it implies, and what is after it."""
    assert damage.right is not None
    facts, span = segments[number], damage.right.span
    batches = facts.batches[_known_places(layout, number)]
    ends = batches["position"] + batches["size"]
    at = int(batches["position"].searchsorted(damage.position))
    between = damage.position - (int(ends[at - 1]) if at else 0)
    is_at_end = damage.end == facts.size
    by_before, by_after = set(), set()
    if at and between < (BATCH_HEADER_SIZE if is_at_end and not _is_displaced(layout, number) else 1):
        by_before.add(int(batches["last"][at - 1]) + 1)
    elif not at and not between:
        by_before.add(facts.base_offset)
    if at < len(batches) and int(batches["position"][at]) == damage.end:
        by_after.add(int(batches["first"][at]) - span - 1)
    following = layout.bases[number + 1] if number + 1 < len(segments) else closed_at
    if at and is_at_end and following is not None:
        by_after.add(following - span - 1)
    return by_before, by_after


def offset_of_short_header(
    layout: Layout,
    segments: Sequence[SegmentFacts],
    number: int,
    damage: Damage,
    closed_at: int | None,
    *,
    may_have_gaps: bool,
) -> int | None:
    """The offset of a batch with bytes missing in its header; None if nothing proves one.

    The neighbours imply it. Where they do not, it is the only offset between theirs that has the bytes which are left.
    """
    right = damage.right
    assert right is not None
    if not _is_enclosed(layout, segments[number], number, damage):
        return None
    if not may_have_gaps:
        offset = offset_of_header(layout, segments, number, damage, closed_at, may_have_gaps=False)
        if offset is not None:
            return offset if _is_left_of(right.known, offset) else None
    before, after = _hole_at(segments[number], damage.position)
    if before is None or after is None:
        return None
    between = range(before + 1, after - right.span)
    if len(right.known) == 8:
        found = [one for one in (int.from_bytes(right.known, "big"),) if one in between]
    else:
        found = [one for one in between if _is_left_of(right.known, one)] if len(between) <= _MOST_OFFSETS else []
    is_free = len(found) == 1 and _Taken(segments, layout).hole(found[0], found[0] + right.span) is not None
    return found[0] if is_free else None


def _is_enclosed(layout: Layout, facts: SegmentFacts, number: int, damage: Damage) -> bool:
    """Whether batches that are in their place touch a short one on both sides; the file may begin or end there instead.

    A page that was written to another place may begin inside a header, and then what touches is not in its place, or
    nothing does. If nothing is left of the offset, both batches must be there.
    """
    assert damage.right is not None
    positions, ends = facts.batches["position"], facts.batches["position"] + facts.batches["size"]
    touching = np.flatnonzero((ends == damage.position) | (positions == damage.end))
    edges = (damage.position == 0) + (damage.end == facts.size)
    is_known = bool(damage.right.known) or len(touching) == 2
    return (
        is_known and len(touching) > 0 and len(touching) + edges == 2 and bool(layout.in_place[number][touching].all())
    )


def _is_left_of(known: bytes, offset: int) -> bool:
    """Whether some bytes are what is left of an offset when others are taken out."""
    rest = iter(offset.to_bytes(8, "big"))
    return all(byte in rest for byte in known)


def epochs_around(layout: Layout, facts: SegmentFacts, number: int, offset: int) -> tuple[int, int]:
    """The leader epochs of the batches before and after an offset, wherever they stand, the smaller one first.

    At the end of a file there is only the one before.
    """
    batches = facts.batches[_known_places(layout, number)]
    order = np.argsort(batches["first"], kind="stable")
    at = int(batches["first"][order].searchsorted(offset))
    around = batches["epoch"][order][max(at - 1, 0) : at + 1].tolist()
    return min(around, default=-1), max(around, default=MAX_INT32)


def _known_places(layout: Layout, number: int) -> Mask:
    """Which batches of a file have offsets that are trusted, wherever they belong."""
    is_known = layout.in_place[number].copy()
    for placed in layout.moved:
        if placed.run.segment == number:
            is_known[placed.run.start : placed.run.stop] = True
    return is_known


def unbury(layout: Layout, segments: Sequence[SegmentFacts], bases: Sequence[int], reached: int | None) -> bool:
    """Take batches out of damaged bytes if their offsets are missing in another place; whether there were any.

    Bytes inside a damaged batch may be the value of one of its records, so a batch there counts only if it belongs
    elsewhere.
    """
    taken = _Taken(segments, layout)
    is_found = False
    for facts in segments:
        for row in list(facts.buried):
            position, first, last = row[0], row[2], row[3]
            target = bisect_right(bases, first) - 1
            hole = taken.hole(first, last) if last >= first and target >= 0 else None
            if hole is None or last >= range_of(bases, target)[1] or hole == _hole_at(facts, position):
                continue
            if hole[1] is not None or (reached is not None and last < reached):
                facts.unbury(row)
                taken.take(first, last)
                is_found = True
    return is_found


def _hole_at(facts: SegmentFacts, position: int) -> tuple[int | None, int | None]:
    """The offsets around a position of a file."""
    number = int(facts.batches["position"].searchsorted(position))
    before = int(facts.batches["last"][number - 1]) if number else None
    after = int(facts.batches["first"][number]) if number < len(facts.batches) else None
    return before, after
