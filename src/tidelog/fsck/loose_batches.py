"""Sound batches that stand in no order with the others: where each belongs.

Pages of a file that were exchanged, or written to another place, carry whole batches away. Their checksums hold and
their offsets are right; only they do not fit between those of their neighbours. Such a batch goes to where its offsets
are missing, if nothing contradicts them: no other batch holds one of them, and they do not lie behind everything that
the log is known to have reached.

A batch whose offset itself is damaged, so that the log cannot have reached it, belongs where it stands. The batch
before it or the one after it tells its offset, if no byte lies between the two and the log is not compacted: then
offsets leave no gap. An offset that could be right is never taken for damaged: the batch may be a copy, or have come
from elsewhere. Only if other fields of the header are damaged with it, the header was written over, and the offset too.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.fsck.batch_order import Layout, Mask, Placed, Run, Shifted, range_of
from tidelog.fsck.segment_facts import Batches, Damage, SegmentFacts, span_of
from tidelog.records.batch import BATCH_HEADER_SIZE

__all__ = ["offset_of_header", "place_loose", "unbury"]


class _Taken:
    """The offsets that batches hold whose place is known."""

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
    """A batch that stands in no order."""

    segment: int
    batch: int
    first: int
    last: int
    target: int = -1  # the segment it belongs to


def place_loose(
    layout: Layout, segments: Sequence[SegmentFacts], bases: Sequence[int], reached: int | None, *, is_compacted: bool
) -> Layout:
    """Find a place for what is out of order. The log is known to have `reached` an offset, by its checkpoints."""
    if not layout.out_of_order:
        return layout
    taken = _Taken(segments, layout)
    loose = [_loose(segments, place) for place in layout.out_of_order]
    beside = {number: _beside_damage(segments[number]) for number in {one.segment for one in loose}}
    moved, left = _moved(loose, bases, taken, reached, beside)
    layout = layout._replace(moved=[*layout.moved, *_joined(moved)])
    shifted = []
    if not is_compacted:
        end = max(taken.end, reached or 0)
        for one in left:
            if bases[0] <= one.first <= one.last < end:
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
    """What goes to where its offsets are missing, and the rest. What was placed bears witness for its neighbours."""
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
    """Whether the offsets of a batch are missing, and are to be believed."""
    target = bisect_right(bases, one.first) - 1
    hole = taken.hole(one.first, one.last)
    if hole is None or target < 0 or one.last >= range_of(bases, target)[1]:
        return False
    before, after = hole
    touches = one.first == (bases[0] if before is None else before + 1) or one.last + 1 == after
    is_bounded = after is not None or (reached is not None and one.last < reached)
    return (touches and (is_bounded or before is not None)) or (is_bounded and is_beside_damage)


def _beside_damage(facts: SegmentFacts) -> Mask:
    """Which batches stand in a run of joined ones that bytes touch that are no batch: they came with a page."""
    positions, ends = facts.batches["position"], facts.batches["position"] + facts.batches["size"]
    is_new = np.concatenate(([True], positions[1:] != ends[:-1]))
    runs = np.cumsum(is_new) - 1
    is_last = np.concatenate((is_new[1:], [True]))
    behind = np.isin(positions[is_new], [damage.end for damage in facts.damage])
    before = np.isin(ends[is_last], [damage.position for damage in facts.damage])
    mask: Mask = (behind | before)[runs]
    return mask


def _joined(moved: Sequence[_Loose]) -> list[Placed]:
    """Batches that stand one behind the other, and go to one place, as runs."""
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
    """The offset of a batch that stands next to one whose offset is known; None if its neighbours tell none, or two."""
    facts = segments[one.segment]
    span = one.last - one.first
    is_known = _known_places(layout, one.segment)
    found = {
        offset
        for offset in _claims(facts, is_known, one.batch, span)
        if offset >= facts.base_offset and taken.hole(offset, offset + span) is not None
    }
    return found.pop() if len(found) == 1 else None


def _claims(facts: SegmentFacts, is_known: Mask, batch: int, span: int) -> Iterator[int]:
    """What the neighbours say that touch a batch; damage with no room for a batch may lie before the last of a file."""
    batches: Batches = facts.batches
    start, end = int(batches["position"][batch]), int(batches["position"][batch] + batches["size"][batch])
    is_last = batch + 1 == len(batches)
    if batch and is_known[batch - 1]:
        between = start - int(batches["position"][batch - 1] + batches["size"][batch - 1])
        if between < (BATCH_HEADER_SIZE if is_last else 1):
            yield int(batches["last"][batch - 1]) + 1
    if not is_last and is_known[batch + 1] and batches["position"][batch + 1] == end:
        yield int(batches["first"][batch + 1]) - span - 1


def offset_of_header(layout: Layout, segments: Sequence[SegmentFacts], number: int, damage: Damage) -> int | None:
    """The offset that the neighbours of a batch with a damaged header tell; None if it may be the one that is there.

    A neighbour that touches it tells; both must agree. Damage with no room for a batch may lie before the last of a
    file.
    """
    assert damage.right is not None
    facts, span, stored = segments[number], damage.right.span, damage.right.offset
    taken = _Taken(segments, layout)
    if layout.bases[0] <= stored and stored + span < taken.end and taken.hole(stored, stored + span) is not None:
        return None
    batches = facts.batches[_known_places(layout, number)]
    ends = batches["position"] + batches["size"]
    at = int(batches["position"].searchsorted(damage.position))
    between = damage.position - (int(ends[at - 1]) if at else 0)
    claims = set()
    if at and between < (BATCH_HEADER_SIZE if damage.end == facts.size else 1):
        claims.add(int(batches["last"][at - 1]) + 1)
    elif not at and not between:
        claims.add(facts.base_offset)
    if at < len(batches) and int(batches["position"][at]) == damage.end:
        claims.add(int(batches["first"][at]) - span - 1)
    if len(claims) != 1:
        return None
    offset = claims.pop()
    is_free = offset >= facts.base_offset and taken.hole(offset, offset + span) is not None
    return offset if is_free and offset != stored else None


def _known_places(layout: Layout, number: int) -> Mask:
    """Which batches of a file have offsets that are believed, wherever they belong."""
    is_known = layout.in_place[number].copy()
    for placed in layout.moved:
        if placed.run.segment == number:
            is_known[placed.run.start : placed.run.stop] = True
    return is_known


def unbury(layout: Layout, segments: Sequence[SegmentFacts], bases: Sequence[int], reached: int | None) -> bool:
    """Take batches out of damage whose offsets are missing elsewhere than where they stand; whether there were any.

    What stands inside of a damaged batch may be what one of its records holds: it is believed only if it came from
    another place.
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
