"""Segments that are sound in themselves, and that nothing else agrees with.

Nothing in a `.log` says which partition it belongs to. What was written beside it does, in its way: the indexes were
made from it, the snapshots follow from it, the epoch checkpoint and the recovery point know where it was. If one of
these contradicts the log, that file is damaged. If several do, it may be the log that is another than theirs:
a file of another partition, or an older copy. A repair rebuilds them all and the witnesses are gone; so it is told.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.fsck.batch_order import Layout
from tidelog.fsck.findings import Severity
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_scan import SegmentFacts
from tidelog.log.names import INDEX_SUFFIX, TXN_INDEX_SUFFIX

__all__ = ["LIKENESS", "note_doubts", "note_twins"]

_TIMES = "the time index"
_EPOCHS = "the leader epoch checkpoint"
_WITNESSES = {
    "IDX-ENTRY": "the offset index",
    "TIX-ENTRY": _TIMES,
    "TIX-STALE": _TIMES,
    "TXN-ENTRY": "the transaction index",
    "TXN-MISSING": "the transaction index",
    "SNP-STATE": "the producer snapshot behind it",
    "LOG-EPOCH": _EPOCHS,
    "EPO-ENTRY": _EPOCHS,
}
_ENOUGH = 2
LIKENESS = ("size", "first", "last", "time", "producer")  # what two segments have in common if one is a copy


def note_doubts(notes: Notes, segments: Sequence[SegmentFacts], layout: Layout) -> None:
    """Tell of segments that at least two kinds of files contradict."""
    said = _witnesses(notes, segments)
    strays = Counter(number for number, _ in layout.out_of_order)
    mostly_strays = {number for number, count in strays.items() if count >= layout.in_place[number].sum()}
    for number in sorted(said.keys() | mostly_strays):
        witnesses = said.get(number, set())
        facts = segments[number]
        in_place = layout.in_place[number]
        # Of a batch with a damaged offset the offset index tells nothing new; that others have other times does.
        is_doubtful = len(witnesses) >= _ENOUGH if in_place.all() else strays[number] and _TIMES in witnesses
        if (is_doubtful or number in mostly_strays) and in_place.any() and not facts.damage:
            notes.add("SEG-DOUBT", facts.path, _doubt(sorted(witnesses), has_strays=number in mostly_strays))


def _doubt(witnesses: Sequence[str], *, has_strays: bool) -> str:
    """What was seen, and what it may mean."""
    seen = []
    if witnesses:
        names = " and ".join(filter(None, (", ".join(witnesses[:-1]), witnesses[-1])))
        seen.append(f"{names} {'describes' if len(witnesses) == 1 else 'describe'} other batches")
    if has_strays:
        seen.append("the offsets of half of them or more do not fit those of the others")
    return f"its batches are whole, but {', and '.join(seen)}: it may belong to another partition, or be an older copy"


class _Place(NamedTuple):
    """A segment, and all that is known of its partition."""

    notes: Notes
    segments: Sequence[SegmentFacts]
    layout: Layout
    number: int

    @property
    def path(self) -> str:
        return self.segments[self.number].path

    @property
    def is_contradicted(self) -> bool:
        is_stray = any(number == self.number for number, _ in self.layout.out_of_order)
        return is_stray or self.number in _witnesses(self.notes, self.segments)

    @property
    def is_beside_a_gap(self) -> bool:
        paths = {facts.path for facts in self.segments[self.number : self.number + 2]}
        return any(finding.code == "LOG-GAP" and finding.file in paths for finding in self.notes.findings)


def note_twins(partitions: Iterable[tuple[Notes, Sequence[SegmentFacts], Layout]]) -> None:
    """Tell of segments that lie in two partitions, batch for batch, of the one that something contradicts.

    That alone is no fault. Whoever makes a topic of the copy of another has such twins, and nothing contradicts them.
    """
    for twins in _alike(partitions):
        for one in twins:
            others = [other.path for other in twins if other.notes.topic_partition != one.notes.topic_partition]
            is_told = any(finding.code == "SEG-DOUBT" and finding.file == one.path for finding in one.notes.findings)
            if not others or is_told:
                continue
            if one.is_contradicted:
                message = (
                    f"the same batches lie in {others[0]}, and the files here describe others: it may belong there"
                )
                one.notes.add("SEG-DOUBT", one.path, message)
            elif one.is_beside_a_gap:
                message = (
                    f"the same batches lie in {others[0]}, and here offsets are missing beside them: it may belong "
                    "there, unless one topic was made from a copy of the other and compacted"
                )
                one.notes.add("SEG-DOUBT", one.path, message, severity=Severity.INFO)


def _alike(partitions: Iterable[tuple[Notes, Sequence[SegmentFacts], Layout]]) -> Iterator[list[_Place]]:
    """Segments with the same batches; only those that begin and end alike are compared batch for batch."""
    similar: dict[tuple[int, ...], list[_Place]] = {}
    for notes, segments, layout in partitions:
        for number, facts in enumerate(segments):
            batches = facts.batches
            if len(batches):
                shape = len(batches), int(batches["first"][0]), int(batches["last"][-1])
                similar.setdefault(shape, []).append(_Place(notes, segments, layout, number))
    for places in similar.values():
        if len({place.notes.topic_partition for place in places}) > 1:
            alike: dict[bytes, list[_Place]] = {}
            for place in places:
                batches = place.segments[place.number].batches
                columns = b"".join(np.ascontiguousarray(batches[name]).tobytes() for name in LIKENESS)
                alike.setdefault(hashlib.sha256(columns).digest(), []).append(place)
            yield from alike.values()


def _witnesses(notes: Notes, segments: Sequence[SegmentFacts]) -> dict[int, set[str]]:
    """Which kinds of files contradict a segment, by its number."""
    said: dict[int, set[str]] = {}
    if not segments:
        return said
    bases = np.array([facts.base_offset for facts in segments], np.int64)
    # A segment that has lost its offset index may have lost the transaction index in the same way: that it is missing
    # then contradicts nothing.
    without_index = {one.file.removesuffix(INDEX_SUFFIX) for one in notes.findings if one.code == "IDX-MISSING"}
    for finding in notes.findings:
        if finding.code not in _WITNESSES or finding.severity is Severity.INFO:
            continue
        if finding.code == "TXN-MISSING" and finding.file.removesuffix(TXN_INDEX_SUFFIX) in without_index:
            continue
        name = finding.file.rpartition("/")[2]
        at = int(name[:20]) if name[:20].isdecimal() else finding.offsets[0] if finding.offsets else None
        if at is None:
            continue
        if finding.code == "SNP-STATE":
            at -= 1  # it tells of what lies before it
        number = max(int(np.searchsorted(bases, at, "right")) - 1, 0)
        said.setdefault(number, set()).add(_WITNESSES[finding.code])
    return said
