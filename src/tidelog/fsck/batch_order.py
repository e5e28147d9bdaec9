"""Find out which batches of a partition are in the place that their offsets say.

The checksum of a batch does not cover its offset, so a sound batch may claim any. Its neighbours can contradict it:
offsets increase through a file, and stay between the base offset of its segment and that of the next. A batch that fits
nowhere else, but exactly between its neighbours with another offset, has a damaged offset. A run of batches that
belongs, as a whole, to another segment came here with its file. Batches of one file that only changed places are
recognised by their offsets, which together have no gap; a copy of another batch by its bytes.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tidelog.fsck.segment_facts import Batches, SegmentFacts, span_of
from tidelog.log.offsets import MAX_OFFSET
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.java import MAX_INT32

__all__ = [
    "Layout",
    "Mask",
    "Placed",
    "Run",
    "Shifted",
    "are_dense",
    "is_zeroed",
    "lay_out",
    "ordered_mask",
    "range_of",
]

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_NOWHERE = MAX_OFFSET  # no record has it


class Run(NamedTuple):
    """Consecutive batches of one file."""

    segment: int  # number of the segment in whose file they are
    start: int  # number of the first batch
    stop: int

    def of(self, segments: Sequence[SegmentFacts]) -> Batches:
        return segments[self.segment].batches[self.start : self.stop]


class Placed(NamedTuple):
    """A run, and the segment it belongs to."""

    run: Run
    segment: int


class Shifted(NamedTuple):
    """A batch whose offset is damaged, and the one it must have had."""

    segment: int
    batch: int
    offset: int


class Layout(NamedTuple):
    """Where everything belongs."""

    in_place: list[Mask]  # per segment: which batches of its file stay in it as they are
    moved: list[Placed]  # what belongs to another segment, or to another place in its own
    shifted: list[Shifted]  # what fills the hole it stands in, but for its offset
    out_of_order: list[tuple[int, int]]  # segment and batch: what fits nowhere
    misnamed: list[tuple[int, int]]  # segment, and the base offset that should be its name
    bases: tuple[int, ...] = ()  # of the segments, where their names are right

    @property
    def is_right(self) -> bool:
        return not self.moved and not self.shifted and not self.out_of_order and not self.misnamed


def lay_out(
    segments: Sequence[SegmentFacts],
    closed_at: int | None = None,
    is_copy: Callable[[SegmentFacts, int], bool] = lambda facts, batch: False,
    *,
    may_have_gaps: Callable[[], bool] = lambda: False,
    is_witnessed: Callable[[SegmentFacts, int, int], bool] = lambda facts, first, last: False,
    is_named_right: Callable[[SegmentFacts], bool] = lambda facts: False,
) -> Layout:
    """Find a place for every sound batch of a partition, whose log end was written down when it was closed.

    `is_copy` tells whether a batch of a segment is the copy of another one, which has the same offset; `is_witnessed`,
    whether another file knows the offsets that a batch of a segment claims, and `is_named_right`, whether one knows
    offsets of the segment by its name. Where offsets `may_have_gaps`, as in a
    compacted log, one that does not follow from the batch before it is believed, unless it may have been zeroed.
    """
    in_place: list[Mask] = []
    shifted: list[Shifted] = []
    strange: list[Run] = []
    moved: list[Placed] = []
    out_of_order: list[tuple[int, int]] = []
    bases, misnamed = _right_bases(segments, is_named_right)
    for number, facts in enumerate(segments):
        low, high = range_of(bases, number)
        batches = facts.batches
        outside = _outside(batches, low, high)
        fits = ~outside
        following = closed_at if number + 1 == len(segments) else high
        is_longer = closed_at is not None and number + 1 == len(segments) and facts.next_offset > closed_at
        is_cut_off = following is None and _is_cut_off(facts, low, is_witnessed) and not may_have_gaps()
        if not fits.all() or is_longer or is_cut_off or (batches["first"][1:] <= batches["last"][:-1]).any():
            if is_cut_off:
                following = _expected_first(batches, low) + span_of(batches[len(batches) - 1]) + 1
            if _are_all_there(batches, low, following):
                suspects = []
                displaced = set(np.flatnonzero(~ordered_mask(batches["first"], batches["last"])).tolist())
            else:
                suspects = [one for one in _shifted_in(facts, low, following) if not is_copy(facts, one[0])]
                displaced = _exchanged(batches, suspects)
                suspects = [one for one in suspects if one[0] not in displaced]
            moved += [Placed(Run(number, batch, batch + 1), number) for batch in sorted(displaced)]
            shifted += [Shifted(number, batch, offset) for batch, offset in suspects]
            is_shifted = [batch for batch, _ in suspects]
            fits[[*displaced, *is_shifted]] = False
            inside = np.flatnonzero(fits)
            is_ordered = _ordered(batches["first"][inside], batches["last"][inside])
            fits[inside[~is_ordered]] = False
            out_of_order += [(number, int(batch)) for batch in inside[~is_ordered]]
            outside[[*displaced, *is_shifted]] = False
            strange += [Run(number, start, stop) for start, stop in _runs(outside)]
        in_place.append(fits)
    for run in strange:
        is_beyond = closed_at is not None and int(run.of(segments)["last"].max()) >= closed_at
        is_unproven = is_zeroed(segments[run.segment], run.start, is_copy) and may_have_gaps()
        target = None if is_beyond or is_unproven else _place_for(run, segments, bases, in_place)
        if target is None:
            out_of_order += [(run.segment, batch) for batch in range(run.start, run.stop)]
        else:
            moved.append(Placed(run, target))
    layout = Layout(in_place, moved, shifted, sorted(out_of_order), misnamed, tuple(bases))
    return _without_collisions(layout, segments)


def is_zeroed(facts: SegmentFacts, batch: int, is_copy: Callable[[SegmentFacts, int], bool]) -> bool:
    """Whether the offset of a batch may have been lost, and be 0 for that: others are before it in its file.

    Power loss leaves that of a batch which begins at the end of a page. A copy of the batch that has offset 0 is none:
    it may come from another place.
    """
    is_first = not int(facts.batches["position"][batch])
    return int(facts.batches["first"][batch]) == 0 and not is_first and not is_copy(facts, batch)


def are_dense(segments: Sequence[SegmentFacts], explained: Sequence[tuple[int, int]] = ()) -> bool | None:
    """Whether offsets follow each other without gaps wherever two sound batches touch; None if none do.

    The gaps that are `explained`, by an earlier repair, do not count. Nor does the last batch of the log: if its offset
    is damaged, there is no batch after it that shows it. Of two segments, the last batch of the first touches the base
    offset of the second.
    """
    known = {one for pair in explained for one in (pair[0], pair[1] + 1)}
    bases = [facts.base_offset for facts in segments]
    is_seen = False
    for number, facts in enumerate(segments):
        low, high = range_of(bases, number)
        batches, is_last = facts.batches, number + 1 == len(segments)
        fits = ~_outside(batches, low, high)
        inside = np.flatnonzero(fits)
        fits[inside[~ordered_mask(batches["first"][inside], batches["last"][inside])]] = False
        ends = batches["position"] + batches["size"]
        touches = fits[1:] & fits[:-1] & (batches["position"][1:] == ends[:-1])
        if is_last:
            touches[-1:] = False
        before, after = (batches["last"][:-1] + 1)[touches].tolist(), batches["first"][1:][touches].tolist()
        if not is_last and len(batches) and fits[-1] and ends[-1] == facts.size:
            before, after = [*before, int(batches["last"][-1]) + 1], [*after, high]
        is_seen = is_seen or bool(before)
        for expected, first in zip(before, after, strict=True):
            if first != expected and not {expected, first} <= known:
                return False
    return True if is_seen else None


def _is_cut_off(facts: SegmentFacts, low: int, is_witnessed: Callable[[SegmentFacts, int, int], bool]) -> bool:
    """Whether the last batch of a log goes on with another offset after damage that is too short for a batch.

    Nothing is missing there, so its offset does not follow from what was written: it is damaged as well, unless another
    file knows it.
    """
    batches = facts.batches
    if not len(batches) or (len(batches) > 1 and batches["first"][-1] <= batches["last"][-2]):
        return False
    before = int(batches["position"][-2] + batches["size"][-2]) if len(batches) > 1 else 0
    gap = int(batches["position"][-1]) - before
    first, last = int(batches["first"][-1]), int(batches["last"][-1])
    is_odd = 0 < gap < BATCH_HEADER_SIZE and first != _expected_first(batches, low)
    return is_odd and not is_witnessed(facts, first, last)


def _expected_first(batches: Batches, low: int) -> int:
    """The first offset of the last batch, by the one before it."""
    return int(batches["last"][-2]) + 1 if len(batches) > 1 else low


def _right_bases(
    segments: Sequence[SegmentFacts], is_named_right: Callable[[SegmentFacts], bool]
) -> tuple[list[int], list[tuple[int, int]]]:
    """The base offsets that the segments should be named after, and which are not.

    A name is wrong if the file before reaches beyond it, or the file itself begins before it, and all would be well
    if it were the first offset in the file. If it only begins before it, and another file knows the name, the first
    offset is the damaged one.
    """
    bases = [facts.base_offset for facts in segments]
    misnamed = []
    for number, facts in enumerate(segments):
        if not len(facts.batches) or not ordered_mask(facts.batches["first"], facts.batches["last"]).all():
            continue
        first, last = int(facts.batches["first"][0]), int(facts.batches["last"][-1])
        reached = segments[number - 1].next_offset - 1 if number and len(segments[number - 1].batches) else -1
        following = bases[number + 1] if number + 1 < len(bases) else _NOWHERE
        is_wrong = first < bases[number] or reached >= bases[number]
        if is_wrong and reached < first <= last < following and (number == 0 or bases[number - 1] < first):
            if reached < bases[number] and is_named_right(facts):
                continue
            bases[number] = first
            misnamed.append((number, first))
    return bases, misnamed


def _shifted_in(facts: SegmentFacts, low: int, high: int | None) -> list[tuple[int, int]]:
    """Batches that would fill the hole they stand in exactly, had they another offset; and that offset.

    The neighbours must be sound and next to it: then the length of the hole is no accident.
    """
    batches = facts.batches
    first, last, position = batches["first"], batches["last"], batches["position"]
    before = np.concatenate(([low], last[:-1] + 1))
    following = np.concatenate((first[1:], [-1 if high is None else high]))
    fills = (before + (last - first) + 1 == following) & (first != before) & (before >= low)
    ends = position + batches["size"]
    # Fewer bytes than any batch takes may lie between: they held no offset.
    between = np.concatenate((position, [facts.size])) - np.concatenate(([0], ends))
    is_joined = (between[:-1] < BATCH_HEADER_SIZE) & (between[1:] < BATCH_HEADER_SIZE)
    # A file that begins with its only batch may be one of another log.
    is_ours = len(batches) > 1 or bool(len(batches) and position[0])
    suspects = np.flatnonzero(fills & is_joined & is_ours)
    return [(int(batch), int(before[batch])) for batch in suspects]


def _are_all_there(batches: Batches, low: int, following: int | None) -> bool:
    """Whether the offsets of a file leave no gap up to those of the next file, in whatever order its batches stand."""
    order = np.argsort(batches["first"])
    first, last = batches["first"][order], batches["last"][order]
    if not len(batches) or int(first[0]) < low:
        return False
    if int(first[0]) != low if following is None else int(last[-1]) + 1 != following:
        return False
    return bool((first[1:] == last[:-1] + 1).all())


def _exchanged(batches: Batches, suspects: Sequence[tuple[int, int]]) -> set[int]:
    """Of batches that fill the hole they stand in, those whose offsets are the holes of one another."""
    holes = {batch: (offset, span_of(batches[batch])) for batch, offset in suspects}
    claims = {batch: (int(batches["first"][batch]), span) for batch, (_, span) in holes.items()}
    while wrong := [
        batch for batch in holes if claims[batch] not in holes.values() or holes[batch] not in claims.values()
    ]:
        for batch in wrong:
            del holes[batch], claims[batch]
    return set(holes)


def range_of(bases: Sequence[int], number: int) -> tuple[int, int]:
    """The offsets that belong to a segment."""
    base = bases[number]
    following = bases[number + 1] if number + 1 < len(bases) else _NOWHERE
    return base, min(following, base + MAX_INT32 + 1)


def _outside(batches: Batches, low: int, high: int) -> Mask:
    """Which batches claim offsets that do not belong to a segment, or more than 64 bits can hold."""
    first, last = batches["first"], batches["last"]
    outside: Mask = (first < low) | (last >= high) | (last < first)
    return outside


def _runs(which: Mask) -> list[tuple[int, int]]:
    """Where a mask is set, as pairs of the first and the one after the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], which, [False])).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _place_for(run: Run, segments: Sequence[SegmentFacts], bases: Sequence[int], in_place: list[Mask]) -> int | None:
    """The one segment that a whole run belongs to; None if its offsets are not to be believed."""
    batches = run.of(segments)
    if not ordered_mask(batches["first"], batches["last"]).all():
        return None
    first, last = int(batches["first"][0]), int(batches["last"][-1])
    target = bisect_left(bases, first + 1) - 1
    if target < 0 or target == run.segment:
        return None
    low, high = range_of(bases, target)
    if not low <= first <= last < high:
        return None
    there = segments[target].batches[in_place[target]]
    if _overlaps(there, first, last):
        return None
    touches = {low} | set((there["last"] + 1).tolist())
    is_joined = first in touches or last + 1 in set(there["first"].tolist()) or last + 1 == high
    return target if is_joined else None


def _overlaps(batches: Batches, first: int, last: int) -> bool:
    return bool(((batches["first"] <= last) & (batches["last"] >= first)).any())


def _without_collisions(layout: Layout, segments: Sequence[SegmentFacts]) -> Layout:
    """Of runs that want the same place, the first gets it."""
    kept: list[Placed] = []
    refused: list[tuple[int, int]] = []
    for placed in layout.moved:
        batches = placed.run.of(segments)
        first, last = int(batches["first"][0]), int(batches["last"][-1])
        if any(_overlaps(other.run.of(segments), first, last) for other in kept):
            refused += [(placed.run.segment, batch) for batch in range(placed.run.start, placed.run.stop)]
        else:
            kept.append(placed)
    return layout._replace(moved=kept, out_of_order=sorted([*layout.out_of_order, *refused]))


def _ordered(first: Any, last: Any) -> Mask:
    """Which batches of a file to keep so that offsets increase. Of several with offset 0, the first one has it."""
    keep: Mask = first != 0
    keep[np.flatnonzero(~keep)[:1]] = True
    keep[keep] = ordered_mask(first[keep], last[keep])
    return keep


def ordered_mask(first: Any, last: Any) -> Mask:
    """Which batches to keep so that offsets increase: as many as possible.

    >>> ordered_mask(np.array([0, 5, 1034, 15, 20]), np.array([4, 9, 1038, 19, 24])).tolist()
    [True, True, False, True, True]
    """
    if (first[1:] > last[:-1]).all():
        return np.ones(len(first), np.bool_)
    return _longest(first.tolist(), last.tolist())


def _longest(first: list[int], last: list[int]) -> Mask:
    """The longest sequence of intervals of which each begins after the one before."""
    tails: list[int] = []  # of the chains of each length, the smallest end
    at: list[int] = []  # and whose it is
    before: list[int] = []
    for number, (begin, end) in enumerate(zip(first, last, strict=True)):
        length = bisect_left(tails, begin)
        before.append(at[length - 1] if length else -1)
        if length == len(tails):
            tails.append(end)
            at.append(number)
        elif end < tails[length]:
            tails[length] = end
            at[length] = number
    keep = np.zeros(len(first), np.bool_)
    number = at[-1]
    while number >= 0:
        keep[number] = True
        number = before[number]
    return keep
