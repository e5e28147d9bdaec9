"""Findings about the `.log` files of a partition: damage, offsets, gaps and leader epochs."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tidelog.fsck.batch_order import Layout
from tidelog.fsck.findings import Severity
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_scan import Batches, Damage, SegmentFacts

__all__ = ["GapRules", "note_damage", "note_gaps", "note_layout"]

_MANY = 10  # findings of one kind in one file, before the rest is counted


def note_damage(notes: Notes, facts: SegmentFacts, *, is_last: bool, is_clean: bool) -> None:
    """Bytes that are no batch. At the very end of the last segment a crash may have left them."""
    for number, damage in enumerate(facts.damage):
        code, severity = damage.code, None
        if is_last and damage.end == facts.size and not is_clean:
            if code == "LOG-ZEROS":
                severity = Severity.WARNING
            elif code in ("LOG-TORN", "LOG-CRC", "LOG-LENGTH"):
                code = "LOG-TAIL"
        elif is_last and code == "LOG-TORN":
            code = "LOG-TAIL"
        if number == _MANY:
            left = facts.damage[number:]
            size = sum(one.size for one in left)
            notes.add(code, facts.path, f"{len(left)} more such places, {size} bytes", position=damage.position,
                      size=left[-1].end - damage.position)  # fmt: skip
            break
        notes.add(
            code, facts.path, damage.why, position=damage.position, size=damage.size,
            offsets=_offsets_around(facts, damage), severity=severity,
        )  # fmt: skip
    for position, words in facts.odd_times[:_MANY]:
        notes.add("LOG-TIMES", facts.path, words, position=position)


def _offsets_around(facts: SegmentFacts, damage: Damage) -> tuple[int, int] | None:
    """Which offsets the damaged bytes held, as far as the sound batches around them tell."""
    positions = facts.batches["position"]
    number = int(np.searchsorted(positions, damage.position))
    first = int(facts.batches["last"][number - 1]) + 1 if number else facts.base_offset
    if number == len(positions):
        return None
    last = int(facts.batches["first"][number]) - 1
    return (first, last) if last >= first else None


def note_layout(notes: Notes, segments: Sequence[SegmentFacts], layout: Layout) -> None:
    """Batches that stand in the wrong place."""
    for placed in layout.moved:
        batches = placed.run.of(segments)
        target = segments[placed.segment]
        first, last = int(batches["first"][0]), int(batches["last"][-1])
        notes.add(
            "LOG-RANGE", segments[placed.run.segment].path,
            f"{len(batches)} batches with the offsets {first} to {last} belong to the segment {target.base_offset}",
            position=int(batches["position"][0]), size=int(batches["size"].sum()), offsets=(first, last),
        )  # fmt: skip
    for segment, base in layout.misnamed:
        notes.add("SEG-NAME", segments[segment].path, f"it begins with offset {base}", offsets=(base, base))
    for segment, batch, offset in layout.shifted:
        facts = segments[segment]
        row = facts.batches[batch]
        notes.add(
            "LOG-OFFSET", facts.path, f"the offset {row['first']} is wrong: between its neighbours it must be {offset}",
            position=int(row["position"]), size=8, offsets=(offset, offset + int(row["last"] - row["first"])),
        )  # fmt: skip
    by_segment: dict[int, list[int]] = {}
    for number, batch in layout.out_of_order:
        by_segment.setdefault(number, []).append(batch)
    for number, wrong in by_segment.items():
        facts = segments[number]
        for batch in wrong[:_MANY]:
            row = facts.batches[batch]
            message = f"offsets {row['first']} to {row['last']} do not fit between those of the neighbours"
            notes.add(
                "LOG-ORDER", facts.path, message, position=int(row["position"]), size=int(row["size"]),
                offsets=(int(row["first"]), int(row["last"])),
            )  # fmt: skip
        if len(wrong) > _MANY:
            row = facts.batches[wrong[_MANY]]
            message = f"{len(wrong) - _MANY} more such batches"
            notes.add("LOG-ORDER", facts.path, message, position=int(row["position"]))


class GapRules:
    """What is known about offsets that are not there."""

    def __init__(
        self, *, log_start: int = 0, is_compacted: bool = False, explained: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.log_start = log_start
        self.is_compacted = is_compacted
        self._explained = sorted(explained)

    def is_explained(self, first: int, last: int) -> bool:
        """Whether an earlier repair has taken these offsets out."""
        for start, end in self._explained:
            if start <= first <= end:
                first = end + 1
        return first > last


def note_gaps(notes: Notes, segments: Sequence[SegmentFacts], layout: Layout, rules: GapRules) -> None:
    """Offsets that no batch holds. In a compacted log that is no finding but a fact."""
    expected = max(rules.log_start, segments[0].base_offset) if segments else 0
    for number, facts in enumerate(segments):
        found = 0
        broken = {damage.position for damage in facts.damage}
        batches = facts.batches[layout.in_place[number]]
        if len(batches) and not broken and int(batches["first"][0]) == expected and _is_whole(batches):
            expected = int(batches["last"][-1]) + 1
            continue
        is_known = bool(broken) or not layout.is_right  # what is missing has been told already
        for first, last in zip(batches["first"].tolist(), batches["last"].tolist(), strict=True):
            if first > expected and not is_known:
                found += 1
                if found <= _MANY:
                    _note_gap(notes, facts.path, expected, first - 1, rules)
            expected = max(expected, last + 1)
        if found > _MANY:
            notes.add("LOG-GAP", facts.path, f"{found - _MANY} more gaps",
                      severity=Severity.INFO if rules.is_compacted else None)  # fmt: skip
        if is_known and number + 1 < len(segments):
            expected = max(expected, segments[number + 1].base_offset)
    for before, behind in pairwise(segments):
        is_told = bool(before.damage or behind.damage) or not layout.is_right
        if not len(behind.batches) and behind.base_offset > max(before.next_offset, rules.log_start) and not is_told:
            _note_gap(notes, before.path, before.next_offset, behind.base_offset - 1, rules)


def _is_whole(batches: Batches) -> bool:
    return bool((batches["first"][1:] == batches["last"][:-1] + 1).all())


def _note_gap(notes: Notes, path: str, first: int, last: int, rules: GapRules) -> None:
    if last < rules.log_start:
        return
    severity = None
    message = f"no batch holds the offsets {first} to {last}"
    if rules.is_explained(first, last):
        severity, message = Severity.INFO, f"{message}: a repair has moved them to the quarantine"
    elif rules.is_compacted:
        severity, message = Severity.INFO, f"{message}, as compaction leaves it"
    notes.add("LOG-GAP", path, message, offsets=(first, last), severity=severity)
