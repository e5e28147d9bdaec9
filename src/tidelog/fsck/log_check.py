"""Findings about the `.log` files of a partition: damage, offsets, gaps and leader epochs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.fsck.batch_order import Layout
from tidelog.fsck.findings import CODES, Severity
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_facts import span_of
from tidelog.fsck.segment_scan import Batches, Damage, SegmentFacts
from tidelog.log.offsets import MAX_OFFSET
from tidelog.records.batch import MAGIC

__all__ = ["GapRules", "judged_damage", "note_damage", "note_gaps", "note_layout"]

_MANY = 10  # findings of one kind in one file, before the rest is counted


def judged_damage(
    facts: SegmentFacts, damage: Damage, *, is_last: bool, is_clean: bool, flushed: int | None = None
) -> tuple[str, Severity | None]:
    """Code and severity of bytes that are no batch. At the very end of the last segment a crash may have left them.

    So it may anywhere after what was `flushed`: a disk writes pages in any order.
    """
    code = damage.code
    is_unflushed = is_last and not is_clean and _is_after(facts, damage.position, flushed)
    if damage.right is not None:
        return code, Severity.WARNING if is_unflushed else None
    if is_last and damage.end == facts.size and not is_clean:
        if code == "LOG-ZEROS":
            return code, Severity.WARNING
        if code in ("LOG-TORN", "LOG-CRC", "LOG-LENGTH"):
            return "LOG-TAIL", None
    elif is_last and code == "LOG-TORN":
        return "LOG-TAIL", None
    return code, Severity.WARNING if is_unflushed else None


def _is_after(facts: SegmentFacts, position: int, flushed: int | None) -> bool:
    """Whether a position is after what was flushed, as far as that is known."""
    return flushed is not None and _offset_before(facts, position) >= flushed


def _offset_before(facts: SegmentFacts, position: int) -> int:
    """The offset after the sound batches before a position, one of which may have lost its own."""
    number = int(np.searchsorted(facts.batches["position"], position))
    return int(facts.batches.reached[number - 1]) + 1 if number else facts.base_offset


def note_damage(
    notes: Notes, facts: SegmentFacts, *, is_last: bool, is_clean: bool, flushed: int | None = None
) -> None:
    """Bytes that are no batch."""
    for number, damage in enumerate(facts.damage):
        code, severity = judged_damage(facts, damage, is_last=is_last, is_clean=is_clean, flushed=flushed)
        if number == _MANY:
            left = facts.damage[number:]
            size = sum(one.size for one in left)
            notes.add(code, facts.path, f"{len(left)} more such places, {size} bytes", position=damage.position,
                      size=left[-1].end - damage.position)  # fmt: skip
            break
        is_lost = damage.right is None
        notes.add(
            code, facts.path, damage.why, position=damage.position, size=damage.size,
            offsets=_offsets_around(facts, damage) if is_lost else None, severity=severity,
            remedy=None if is_lost else CODES["LOG-MAGIC"].remedy,
        )  # fmt: skip
    told: Counter[str] = Counter()
    for position, code, words in facts.remarks:
        told[code] += 1
        if told[code] <= _MANY:
            notes.add(code, facts.path, words, position=position)


def _offsets_around(facts: SegmentFacts, damage: Damage) -> tuple[int, int] | None:
    """Which offsets the damaged bytes held, as far as the sound batches around them tell."""
    positions = facts.batches["position"]
    number = int(np.searchsorted(positions, damage.position))
    first = _offset_before(facts, damage.position)
    if number == len(positions):
        return None
    last = int(facts.batches["first"][number]) - 1
    return (first, last) if last >= first else None


def note_layout(
    notes: Notes, segments: Sequence[SegmentFacts], layout: Layout, *, is_clean: bool, flushed: int | None = None
) -> None:
    """Batches that stand in the wrong place. A crash may have lost the first page of one that was not `flushed`."""

    def severity_of(segment: int, batch: int) -> Severity | None:
        facts = segments[segment]
        is_last = segment + 1 == len(segments)
        is_unflushed = is_last and not is_clean and _is_after(facts, int(facts.batches["position"][batch]), flushed)
        return Severity.WARNING if is_unflushed else None

    for placed in layout.moved:
        batches = placed.run.of(segments)
        is_own = placed.segment == placed.run.segment
        where = "another place in this file" if is_own else f"the segment {segments[placed.segment].base_offset}"
        first, last = int(batches["first"][0]), int(batches["last"][-1])
        notes.add(
            "LOG-RANGE", segments[placed.run.segment].path,
            f"{len(batches)} batches with the offsets {first} to {last} belong to {where}",
            position=int(batches["position"][0]), size=int(batches["size"].sum()), offsets=(first, last),
        )  # fmt: skip
    for segment, base in layout.misnamed:
        notes.add("SEG-NAME", segments[segment].path, f"it begins with offset {base}", offsets=(base, base))
    for segment, batch, offset in layout.shifted:
        facts = segments[segment]
        row = facts.batches[batch]
        notes.add(
            "LOG-OFFSET", facts.path, f"the offset {row['first']} is wrong: between its neighbours it must be {offset}",
            position=int(row["position"]), size=8, offsets=(offset, offset + span_of(row)),
            severity=severity_of(segment, batch),
        )  # fmt: skip
    by_segment: dict[int, list[int]] = {}
    for number, batch in layout.out_of_order:
        by_segment.setdefault(number, []).append(batch)
    for number, wrong in by_segment.items():
        facts = segments[number]
        for batch in wrong[:_MANY]:
            row = facts.batches[batch]
            first, last = int(row["first"]), int(row["first"]) + span_of(row)
            message = f"offsets {first} to {last} do not fit between those of the neighbours"
            if last >= MAX_OFFSET:
                message = f"offsets {first} to {last}: the largest that a record can have is {MAX_OFFSET - 1}"
            notes.add(
                "LOG-ORDER", facts.path, message, position=int(row["position"]), size=int(row["size"]),
                offsets=(first, last), severity=severity_of(number, batch),
            )  # fmt: skip
        if len(wrong) > _MANY:
            row = facts.batches[wrong[_MANY]]
            message = f"{len(wrong) - _MANY} more such batches"
            notes.add("LOG-ORDER", facts.path, message, position=int(row["position"]))


class GapRules:
    """What is known about offsets that are not there."""

    def __init__(
        self,
        *,
        log_start: int = 0,
        is_compacted: bool = False,
        may_be_compacted: bool = False,
        may_be_cleaning: Callable[[], bool] = lambda: False,
        explained: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.log_start = log_start
        self.is_compacted = is_compacted
        self.may_be_compacted = may_be_compacted  # nothing says that it was not; of the old formats nothing is left to
        self.may_be_cleaning = may_be_cleaning  # a round of compaction may be at work, or was when a crash came
        self._explained = sorted(explained)

    def is_explained(self, first: int, last: int) -> bool:
        """Whether an earlier repair has taken these offsets out."""
        for start, end in self._explained:
            if start <= first <= end:
                first = end + 1
        return first > last


class Gap(NamedTuple):
    """Offsets that no batch holds, reported for the file after them."""

    path: str
    first: int
    last: int
    is_legacy: bool  # an entry of the old formats is next to it


def note_gaps(
    notes: Notes, segments: Sequence[SegmentFacts], layout: Layout, rules: GapRules
) -> list[tuple[str, int, int]]:
    """Offsets that no batch holds; those that nothing explains, all of them. In a compacted log they are facts."""
    unexplained = []
    reported: Counter[tuple[str, Severity | None]] = Counter()
    for gap in _gaps(segments, layout, rules.log_start):
        severity, words = _judged(gap, rules)
        if severity is None:
            unexplained.append((gap.path, gap.first, gap.last))
        reported[gap.path, severity] += 1
        if reported[gap.path, severity] <= _MANY:
            message = f"no batch holds the offsets {gap.first} to {gap.last}{words}"
            notes.add("LOG-GAP", gap.path, message, offsets=(gap.first, gap.last), severity=severity)
    for (path, severity), count in reported.items():
        if count > _MANY:
            notes.add("LOG-GAP", path, f"{count - _MANY} more gaps", severity=severity)
    return unexplained


def _judged(gap: Gap, rules: GapRules) -> tuple[Severity | None, str]:
    if rules.is_explained(gap.first, gap.last):
        return Severity.INFO, ": a repair has moved them to the quarantine, or found them missing"
    if rules.is_compacted:
        return Severity.INFO, ", as compaction leaves it"
    if rules.may_be_cleaning():
        return Severity.INFO, ", as compaction leaves it before the cleaner has written its checkpoint"
    if gap.is_legacy and rules.may_be_compacted:
        return Severity.INFO, ", as compaction leaves it in the old formats"
    return None, ""


def _gaps(segments: Sequence[SegmentFacts], layout: Layout, log_start: int) -> Iterator[Gap]:
    """The gaps that no damage accounts for."""
    expected = max(log_start, segments[0].base_offset) if segments else 0
    was_legacy = False
    for number, facts in enumerate(segments):
        batches = facts.batches[layout.in_place[number]]
        # What is missing has been reported already, or may be in a file that cannot be read.
        is_known = facts.is_unread or bool(facts.damage) or not layout.is_right
        if len(batches) and not is_known and int(batches["first"][0]) == expected and _is_whole(batches):
            expected = int(batches["last"][-1]) + 1
        else:
            columns = (batches[name].tolist() for name in ("first", "last", "magic"))
            for first, last, magic in zip(*columns, strict=True):
                if first > expected and not is_known:
                    yield Gap(facts.path, expected, first - 1, was_legacy or magic < MAGIC)
                expected = max(expected, last + 1)
                was_legacy = magic < MAGIC
        if len(batches):
            was_legacy = bool(batches["magic"][-1] < MAGIC)
        if number + 1 == len(segments):
            return
        following = segments[number + 1]
        if is_known:
            expected = max(expected, following.base_offset)
        elif not len(following.batches) and not following.damage and following.base_offset > expected:
            yield Gap(facts.path, expected, following.base_offset - 1, was_legacy)
            expected = following.base_offset


def _is_whole(batches: Batches) -> bool:
    return bool((batches["first"][1:] == batches["last"][:-1] + 1).all())
