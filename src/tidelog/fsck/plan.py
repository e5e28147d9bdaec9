"""What a repair would do, decided from what a check found. Nothing is touched here.

    plan = plan_repair(check("kafka-logs"))
    for line in plan.lines(): ...

A repair works in rounds: leftovers of an interrupted compaction come first, since they decide which segments there are;
what lies in the log is next; the files of the root follow when it is known where the logs end. Each round ends with
another check.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tidelog.fsck.batch_order import Layout
from tidelog.fsck.checker import Checked
from tidelog.fsck.epoch_check import epochs_of_log, folded
from tidelog.fsck.findings import Finding, Report, Severity
from tidelog.fsck.index_configs import DEFAULT, Given, IndexConfig, IndexConfigs
from tidelog.fsck.left_alone import CODES_SET_ASIDE, is_movable
from tidelog.fsck.loose_batches import (
    Unproven,
    epochs_around,
    offset_of_header,
    offset_of_short_header,
)
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.root_plan import RootPlan, plan_root, set_aside_line
from tidelog.fsck.segment_facts import Damage, span_of
from tidelog.fsck.segment_scan import SegmentFacts
from tidelog.fsck.topic_ids import KnownId, is_damaged_id, known_topic_id
from tidelog.log.checkpoints import EpochEntry
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.log.partition_metadata import uuid_text
from tidelog.records.batch import MAGIC

__all__ = ["Cut", "Mend", "NewSegment", "PartitionPlan", "Rebuilt", "RepairPlan", "plan_checked", "plan_repair"]

_EPOCH_CODES = ("EPO-FORMAT", "EPO-MISSING", "EPO-ENTRY", "EPO-START")
_NOT_OURS = (
    "ROOT-META", "ROOT-DUPLICATE", "ROOT-ID", "ROOT-LOAD", "PAR-TOPIC-ID", "FILE-READ", "META-SNAPSHOT", "META-QUORUM",
    "META-BOOTSTRAP", "NODE-START", "NODE-OFFLINE", "NODE-STRAY", "NODE-MISSING",
)  # fmt: skip
_NOTICES = ("SEG-DOUBT", "TXN-MARKER")
_REBUILT_KINDS = ("IDX-", "TIX-", "TXN-")
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Cut(NamedTuple):
    """Bytes that go to the quarantine."""

    path: str
    position: int
    size: int
    code: str
    why: str
    missing: tuple[int, int] | None  # offsets that are not in the log any more
    instead: str = ""  # what takes their place


class Mend(NamedTuple):
    """Bytes that are written over, because the right ones are known."""

    path: str
    position: int
    data: bytes
    code: str
    why: str


class Piece(NamedTuple):
    """A range of a file, or `data` that is in none."""

    path: str
    start: int
    end: int
    data: bytes = b""


class Restored(NamedTuple):
    """A batch with a short header, and the whole of what the checksum does not cover."""

    damage: Damage
    offset: int
    prefix: bytes

    @property
    def left(self) -> int:
        """How many bytes of the prefix are in the file."""
        assert self.damage.right is not None
        return len(self.prefix) - self.damage.right.missing


class NewSegment(NamedTuple):
    """A segment as it will be; without pieces it is removed, unless it is the last one or keeps an index."""

    base_offset: int
    pieces: tuple[Piece, ...]
    is_same: bool = False  # only replaced because it lies between others that exchange batches
    keeps_txn_index: bool = False  # it lists aborted transactions whose markers are lost, and nothing else does


class Rebuilt(NamedTuple):
    """An index that is rebuilt from its segment."""

    path: str
    code: str
    why: str


@dataclass
class PartitionPlan:
    """What is done to one partition directory in one round."""

    check: PartitionCheck
    settle: bool = False  # leftovers, before anything else
    set_aside: list[Finding] = field(default_factory=list)
    empty: set[str] = field(default_factory=set)  # directories among them that hold no file
    cuts: list[Cut] = field(default_factory=list)
    mends: list[Mend] = field(default_factory=list)
    renames: list[tuple[str, str]] = field(default_factory=list)  # of segments that have the wrong name
    groups: list[list[NewSegment]] = field(default_factory=list)  # each replaced in one step
    rebuild: dict[str, Rebuilt] = field(default_factory=dict)  # by path; every other index stays as it is
    index_config: IndexConfig = DEFAULT
    reload: bool = False
    recover_from: int | None = None  # the first offset behind which everything is recovered
    epochs: list[EpochEntry] | None = None
    epochs_code: str = ""  # why they are rewritten
    topic_id: KnownId | None = None
    gaps: list[tuple[str, int, int]] = field(default_factory=list)  # file and offsets; taken as they are
    owners: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)  # written down with whatever is done: later nothing tells it

    @property
    def is_empty(self) -> bool:
        return not (
            self.settle or self.set_aside or self.cuts or self.mends or self.renames or self.groups or self.rebuild
            or self.reload or self.epochs is not None or self.topic_id is not None or self.gaps or self.owners
        )  # fmt: skip

    def code_of(self, base_offset: int) -> str:
        """Why a segment is rewritten: what was cut out of it first, or that batches go in or out."""
        path = self.check.files.path(base_offset, LOG_SUFFIX)
        return next((cut.code for cut in self.cuts if cut.path == path), "LOG-RANGE")

    @property
    def is_rewriting(self) -> bool:
        """Whether a small file is rewritten."""
        return self.epochs is not None or self.topic_id is not None

    def lines(self) -> Iterator[str]:
        """What is done, in words."""
        name = self.check.place.name
        if self.settle:
            yield f"{name}: settle what an interrupted compaction left, as Kafka does when it starts; then look again"
        for finding in self.set_aside:
            yield set_aside_line(finding, self.empty)
        told: tuple[int, int] | None = None
        for cut in self.cuts:
            gone = "" if cut.missing in (None, told) else f"; {_gone(*cut.missing)}"
            told = cut.missing
            bytes_cut = f"bytes {cut.position} to {cut.position + cut.size - 1}"
            yield f"{cut.path}: {bytes_cut} to the quarantine ({cut.code}){gone}{cut.instead}"
        for mend in self.mends:
            yield f"{mend.path}: {mend.why} ({mend.code})"
        for source, target in self.renames:
            yield f"{source}: renamed to {target.rpartition('/')[2]} (SEG-NAME)"
        for group in self.groups:
            for segment in group:
                path = self.check.files.path(segment.base_offset, LOG_SUFFIX)
                if segment.is_same:
                    why = "it lies between segments that exchange batches, and all are replaced in one step"
                    yield f"{path}: copied as it is: {why}"
                    continue
                deed = "rewritten from its sound batches" if segment.pieces else "emptied or removed"
                yield f"{path}: {deed} ({self.code_of(segment.base_offset)})"
        for path in sorted(self.rebuild):
            yield f"{path}: rebuilt from the log ({self.rebuild[path].code})"
        if any(path.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) for path in self.rebuild):
            yield f"{name}: indexes are rebuilt with {self.index_config}; the others are left as they are"
        if self.epochs is not None:
            deed = f"rewritten with {len(self.epochs)} epoch{'' if len(self.epochs) == 1 else 's'}"
            yield f"{self.check.place.path}/{LEADER_EPOCH_CHECKPOINT}: {deed} ({self.epochs_code})"
        if self.topic_id is not None:
            path = f"{self.check.place.path}/{PARTITION_METADATA}"
            topic_id, source, code = self.topic_id
            yield f"{path}: written with topic id {uuid_text(topic_id)} of {source} ({code})"
        if self.reload:
            yield f"{name}: producer snapshots are brought up to date"
        for _, first, last in self.gaps:
            yield f"{name}: it is noted in the manifest that the offsets {first} to {last} are missing (LOG-GAP)"
        for finding in self.owners:
            yield f"{finding.file}: owner and mode of its directory ({finding.code})"


@dataclass
class RepairPlan:
    """What one round of a repair would do, and what is left to people."""

    partitions: list[PartitionPlan] = field(default_factory=list)
    roots: list[RootPlan] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    notices: list[Finding] = field(default_factory=list)  # what a later check cannot tell any more

    @property
    def is_empty(self) -> bool:
        return all(one.is_empty for one in self.partitions) and all(one.is_empty for one in self.roots)

    def named_files(self) -> set[str]:
        """The files that a line begins with, and the new names of those that are renamed."""
        targets = {target for partition in self.partitions for _, target in partition.renames}
        return targets | {line.partition(": ")[0] for line in self.lines()}

    def lines(self) -> Iterator[str]:
        """What would be done, in words. Every file that changes is at the beginning of a line."""
        for partition in self.partitions:
            yield from partition.lines()
        for root in self.roots:
            yield from root.lines()


def plan_repair(report: Report, *, config: Given | None = None, fs: ReadFileSystem | None = None) -> RepairPlan:
    """What the first round of a repair would do about the findings of a check."""
    assert isinstance(report.evidence, Checked)
    return plan_checked(report.evidence, fs or LocalFileSystem(), config=config)


def plan_checked(
    checked: Checked, fs: ReadFileSystem, without: Collection[str] = (), config: Given | None = None
) -> RepairPlan:
    """The plan of one round. Partitions and roots `without` have refused to be mended."""
    plan = RepairPlan()
    configs = IndexConfigs(fs, checked.roots, config)
    is_unclear = {root.place.path for root in checked.roots if root.place.path in without}
    for one in checked.partitions:
        root_path = one.notes.root or ""
        plan.notices += [
            finding for finding in one.notes.findings if finding.code in _NOTICES and finding not in one.recalled
        ]
        if one.place.path in without:
            is_unclear.add(root_path)
            continue
        partition = _plan_partition(one, checked, fs, plan.left)
        if not partition.is_empty:
            partition.index_config = configs.of(one)
            plan.partitions.append(partition)
        if partition.groups or partition.settle or partition.mends or partition.renames:
            is_unclear.add(root_path)
    for root in checked.roots:
        plan.left += [finding for finding in root.notes.findings if finding.code in _NOT_OURS and _is_bad(finding)]
        if root.place.path not in is_unclear:  # else it is not known yet where the logs end
            here = [one for one in checked.partitions if one.notes.root == root.place.path]
            done = plan_root(root, here, plan.left)
            _leave_unmovable(done.set_aside, fs, plan.left)
            done.empty = _without_files(fs, done.set_aside)
            if not done.is_empty:
                plan.roots.append(done)
    return plan


def _is_bad(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO


def _plan_partition(one: PartitionCheck, checked: Checked, fs: ReadFileSystem, left: list[Finding]) -> PartitionPlan:
    plan = PartitionPlan(one)
    bad = [finding for finding in one.notes.findings if _is_bad(finding)]
    left += [finding for finding in bad if finding.code in _NOT_OURS and not is_damaged_id(finding)]
    if one.notes.has("FILE-READ"):
        return plan  # what a file holds that cannot be read is not known: everything stays
    plan.owners = [finding for finding in bad if finding.code == "FILE-OWNER"]
    plan.doubts = [finding for finding in bad if finding.code == "SEG-DOUBT"]
    if one.files.leftovers:
        plan.settle = True
        return plan
    plan.set_aside = [finding for finding in bad if finding.code in CODES_SET_ASIDE]
    _leave_unmovable(plan.set_aside, fs, left)
    plan.empty = _without_files(fs, plan.set_aside)
    plan.gaps = list(one.gaps)
    if lacking := [finding for finding in bad if finding.code == "PAR-METADATA" or is_damaged_id(finding)]:
        plan.topic_id = known_topic_id(fs, one, checked.partitions, checked.report.verdicts)
        left += lacking if plan.topic_id is None else []
    _plan_log(plan, one, bad, left)
    if one.is_quorum and not one.is_sound:
        plan.gaps = []
        return plan  # loading a log cuts it where it is damaged
    if plan.mends or plan.renames:  # and then look again: what else is wrong may be a consequence
        return PartitionPlan(one, mends=plan.mends, renames=plan.renames, owners=plan.owners, doubts=plan.doubts)
    _plan_indexes(plan, one, bad)
    codes = {finding.code for finding in bad}
    plan.reload = plan.reload or bool(plan.rebuild or codes & {"SNP-FORMAT", "SNP-STATE", "SNP-MISSING", "PAR-EMPTY"})
    if codes & set(_EPOCH_CODES):
        start = max(one.log_start or 0, one.segments[0].base_offset) if one.segments else 0
        plan.epochs = folded(epochs_of_log(one.segments, one.layout), _known_start(one, start))
        plan.epochs_code = next(finding.code for finding in bad if finding.code in _EPOCH_CODES)
    return plan


def _plan_indexes(plan: PartitionPlan, one: PartitionCheck, bad: Sequence[Finding]) -> None:
    """Indexes are rebuilt that something is wrong with, and those of segments that are rewritten; no others."""
    for finding in bad:
        if finding.code.startswith(_REBUILT_KINDS):
            plan.rebuild.setdefault(finding.file, Rebuilt(finding.file, finding.code, finding.message))
    for segment in (segment for group in plan.groups for segment in group if not segment.is_same):
        base = segment.base_offset
        for suffix in _INDEX_SUFFIXES:
            path = one.files.path(base, suffix)
            plan.rebuild.pop(path, None)
            is_left = segment.pieces or segment.keeps_txn_index or base == one.segments[-1].base_offset
            if suffix == TXN_INDEX_SUFFIX and segment.keeps_txn_index:
                continue
            if is_left and (suffix != TXN_INDEX_SUFFIX or one.files.has(base, suffix)):
                plan.rebuild[path] = Rebuilt(path, plan.code_of(base), "its segment is rewritten")


def _leave_unmovable(findings: list[Finding], fs: ReadFileSystem, left: list[Finding]) -> None:
    """Links, pipes and the like are not copied: what they lead to may be anything."""
    unmovable = [finding for finding in findings if not is_movable(fs, finding)]
    left += unmovable
    findings[:] = [finding for finding in findings if finding not in unmovable]


def _without_files(fs: ReadFileSystem, findings: Sequence[Finding]) -> set[str]:
    """The directories that findings are about and that hold no file, however deep."""

    def is_bare(path: str) -> bool:
        about = fs.stat(path)
        return about is None or (about.is_directory and all(is_bare(join(path, name)) for name in fs.list(path)))

    return {finding.file for finding in findings if fs.stat(finding.file) is not None and is_bare(finding.file)}


def _gone(first: int, last: int) -> str:
    return f"offset {first} is gone" if first == last else f"offsets {first} to {last} are gone"


def _known_start(one: PartitionCheck, start: int) -> int:
    """The log start; where no checkpoint can tell, what the leader epochs say."""
    return start if one.log_start is not None else max(start, one.start_by_epochs or 0)


# -- the log -----------------------------------------------------------------------------------------------------------


def _plan_log(plan: PartitionPlan, one: PartitionCheck, bad: Sequence[Finding], left: list[Finding]) -> None:
    if one.is_quorum:
        # A metadata log without some of its records is another cluster.
        left += [finding for finding in bad if finding.code.startswith("LOG-") and finding.code != "LOG-GAP"]
        return
    segments, layout = one.segments, one.layout
    for number, base in layout.misnamed:
        plan.renames.append((segments[number].path, one.files.path(base, LOG_SUFFIX)))
    for shifted in layout.shifted:
        row = segments[shifted.segment].batches[shifted.batch]
        path = segments[shifted.segment].path
        why = f"the offset {row['first']} at {row['position']} becomes {shifted.offset}"
        # The field holds the first offset of a batch; of an entry of the old formats it holds the last.
        offset = shifted.offset + (span_of(row) if row["magic"] < MAGIC else 0)
        plan.mends.append(Mend(path, int(row["position"]), offset.to_bytes(8, "big"), "LOG-OFFSET", why))
    for wrong in one.wrong_epochs:
        row = segments[wrong.segment].batches[wrong.batch]
        path = segments[wrong.segment].path
        why = f"the leader epoch {row['epoch']} at {row['position']} becomes {wrong.epoch}"
        data = wrong.epoch.to_bytes(4, "big", signed=True)
        plan.mends.append(Mend(path, int(row["position"]) + 12, data, "LOG-EPOCH", why))
    for number in range(len(segments)):
        plan.mends += _header_mends(number, one)
    if plan.mends or plan.renames:
        return
    restored = [list(_restored(number, one)) for number in range(len(segments))]
    contents = [_content(number, segments, layout, restored[number]) for number in range(len(segments))]
    is_changed = [content != _whole(facts) for content, facts in zip(contents, segments, strict=True)]
    if not any(is_changed):
        return
    plan.cuts = [cut for number in range(len(segments)) for cut in _cuts(number, one, restored[number])]
    changed = [number for number, changes in enumerate(is_changed) if changes]
    touched = [number for placed in layout.moved for number in (placed.run.segment, placed.segment)]
    together = list(range(min(touched), max(touched) + 1)) if touched else []
    groups = [*([together] if together else []), *([number] for number in changed if number not in together)]
    plan.groups = [
        [_new_segment(one, number, contents[number], is_changed=is_changed[number]) for number in group]
        for group in groups
    ]
    plan.reload = True
    plan.recover_from = segments[changed[0]].base_offset


def _new_segment(one: PartitionCheck, number: int, pieces: tuple[Piece, ...], *, is_changed: bool) -> NewSegment:
    base = one.segments[number].base_offset
    return NewSegment(base, pieces, not is_changed, is_changed and base in one.kept_txn_indexes)


def _header_mends(number: int, one: PartitionCheck) -> Iterator[Mend]:
    """What is written into the headers of batches whose records are sound."""
    facts = one.segments[number]
    for damage in facts.damage:
        if damage.right is None or damage.right.missing:
            continue
        offset = None
        if damage.right.span >= 0:
            try:
                offset = offset_of_header(
                    one.layout, one.segments, number, damage, one.closed_at, may_have_gaps=one.may_have_gaps,
                    is_witnessed=one.is_witnessed,
                )  # fmt: skip
            except Unproven:
                continue
        yield Mend(facts.path, damage.position + damage.right.at, damage.right.data, damage.code, damage.right.why)
        if offset is not None:
            why = f"the offset {damage.right.offset} at {damage.position} becomes {offset}"
            yield Mend(facts.path, damage.position, offset.to_bytes(8, "big"), "LOG-OFFSET", why)
            yield from _epoch_mends(number, one, damage, offset)


def _epoch_mends(number: int, one: PartitionCheck, damage: Damage, offset: int) -> Iterator[Mend]:
    """The leader epoch of a header whose offset and length are damaged: what is after them is in doubt, too.

    Epochs do not go back, so equal ones before and after it prove it. Between others the checkpoint decides.
    """
    assert damage.right is not None
    facts, at = one.segments[number], damage.right.at + 4  # after the length
    low, high = epochs_around(one.layout, facts, number, offset)
    noted = one.noted_epoch(offset)
    epoch = low if low == high else noted if noted is not None and low <= noted <= high else None
    stored = int.from_bytes(damage.right.data[4:8], "big", signed=True)
    if epoch is not None and epoch != stored:
        why = f"the leader epoch {stored} at {damage.position} becomes {epoch}"
        yield Mend(facts.path, damage.position + at, epoch.to_bytes(4, "big", signed=True), damage.code, why)


def _restored(number: int, one: PartitionCheck) -> Iterator[Restored]:
    """Batches with bytes missing in their headers whose offsets are known: the segment is rewritten with them."""
    facts = one.segments[number]
    for damage in facts.damage:
        right = damage.right
        if right is None or not right.missing:
            continue
        offset = offset_of_short_header(
            one.layout, one.segments, number, damage, one.closed_at, may_have_gaps=one.may_have_gaps
        )
        if offset is not None:
            low, high = epochs_around(one.layout, facts, number, offset)
            epoch = next((known for known in right.epochs if low <= known <= high), low)
            stored = epoch.to_bytes(4, "big", signed=True)
            yield Restored(damage, offset, offset.to_bytes(8, "big") + right.data[8:12] + stored + right.data[16:])


def _whole(facts: SegmentFacts) -> tuple[Piece, ...]:
    return (Piece(facts.path, 0, facts.size),) if facts.size else ()


def _content(
    number: int, segments: Sequence[SegmentFacts], layout: Layout, restored: Sequence[Restored]
) -> tuple[Piece, ...]:
    """The bytes that belong into a segment, in the order of their offsets."""
    facts = segments[number]
    own = facts.batches[layout.in_place[number]]
    found = [
        (int(row["first"]), Piece(facts.path, int(row["position"]), int(row["position"] + row["size"]))) for row in own
    ]
    for placed in layout.moved:
        if placed.segment == number:
            path = segments[placed.run.segment].path
            found += [
                (int(row["first"]), Piece(path, int(row["position"]), int(row["position"] + row["size"])))
                for row in placed.run.of(segments)
            ]
    for back in restored:
        start = back.damage.position + back.left
        found += [(back.offset, Piece("", 0, len(back.prefix), back.prefix))]  # sorts before the rest of the batch
        found += [(back.offset, Piece(facts.path, start, back.damage.end))]
    merged: list[Piece] = []
    for _, piece in sorted(found):
        if merged and merged[-1].path == piece.path and merged[-1].end == piece.start:
            merged[-1] = merged[-1]._replace(end=piece.end)
        else:
            merged.append(piece)
    return tuple(merged)


def _cuts(number: int, one: PartitionCheck, restored: Sequence[Restored]) -> Iterator[Cut]:
    """The bytes of a file that belong nowhere."""
    segments, layout = one.segments, one.layout
    facts = segments[number]
    completed = {back.damage.position: back for back in restored}
    pieces = [(damage.position, damage.size, one.code_of(facts, damage), damage.why) for damage in facts.damage]
    for segment, batch in layout.out_of_order:
        if segment == number:
            row = facts.batches[batch]
            to = int(row["first"]) + span_of(row)
            why = f"offsets {row['first']} to {to} do not fit between those of the neighbours"
            pieces.append((int(row["position"]), int(row["size"]), "LOG-ORDER", why))
    kept = facts.batches[layout.in_place[number]]
    following = segments[number + 1].base_offset if number + 1 < len(segments) else None
    for position, size, code, why in sorted(pieces):
        if position in completed:
            back = completed[position]
            instead = f"; a header of {len(back.prefix)} bytes, with the offset {back.offset}, takes their place"
            yield Cut(facts.path, position, back.left, code, why, None, instead)
            continue
        at = int(np.searchsorted(kept["position"], position))
        first = int(kept["last"][at - 1]) + 1 if at else facts.base_offset
        last = int(kept["first"][at]) - 1 if at < len(kept) else None if following is None else following - 1
        missing = (first, last) if last is not None and last >= first else None
        yield Cut(facts.path, position, size, code, why, missing)
