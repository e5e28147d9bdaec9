"""Findings about leader epochs: those in the batches, and those in `leader-epoch-checkpoint`.

The epoch of a batch is not under its checksum. What can be held against it are the other batches, since epochs never go
down, and the checkpoint. Batches that agree with each other are the truth: a checkpoint is written after the log start
has moved, or after a truncation, so a crash or a copy of a live directory may hold an older one. A batch is damaged if
it contradicts the others; or if it stands alone, and a checkpoint that a clean stop has written says otherwise.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import CheckpointError, StorageError
from tidelog.fsck.batch_order import Layout, ordered_mask
from tidelog.fsck.findings import Severity
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_scan import SegmentFacts
from tidelog.log.checkpoints import EpochEntry, read_epochs
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import LEADER_EPOCH_CHECKPOINT
from tidelog.records.java import MAX_INT32

__all__ = ["WrongEpoch", "check_epochs", "epochs_of_log", "folded"]

_MOST_BATCHES = 3  # so many, and no more, are taken for damaged batches rather than for a damaged checkpoint


class WrongEpoch(NamedTuple):
    """A batch whose epoch is damaged, and the one it must have had."""

    segment: int
    batch: int
    epoch: int


def epochs_of_log(segments: Sequence[SegmentFacts], layout: Layout) -> list[EpochEntry]:
    """The epochs as a recovery of the whole log would write them down.

    Epochs never go down. Where they do, some are damaged: as many batches as possible are believed.
    """
    if not segments:
        return []
    epochs, first = _columns(segments, layout)
    believed = ordered_mask(epochs + 1, epochs)
    epochs, first = epochs[believed], first[believed]
    news = np.flatnonzero(np.diff(np.maximum(epochs, -1), prepend=-1) > 0).tolist()
    return [EpochEntry(int(epochs[at]), int(first[at])) for at in news]


def _columns(segments: Sequence[SegmentFacts], layout: Layout) -> tuple[Any, Any]:
    """Epoch and first offset of the batches that are in their place."""
    parts = [facts.batches[which] for facts, which in zip(segments, layout.in_place, strict=True)]
    epochs, first = (np.concatenate([part[name] for part in parts]) for name in ("epoch", "first"))
    return epochs, first


def folded(entries: Sequence[EpochEntry], log_start: int) -> list[EpochEntry]:
    """The entries of a log that begins at `log_start`: the one it lies in begins there."""
    before = [entry for entry in entries if entry.start_offset <= log_start]
    behind = [entry for entry in entries if entry.start_offset > log_start]
    return [*(EpochEntry(entry.epoch, log_start) for entry in before[-1:]), *behind]


def check_epochs(
    notes: Notes,
    fs: ReadFileSystem,
    directory: str,
    segments: Sequence[SegmentFacts],
    layout: Layout,
    *,
    log_start: int | None,
    is_clean: bool,
) -> list[WrongEpoch]:
    """Compare checkpoint and log. `log_start` None: nobody knows, and the checkpoint is believed.

    Where offsets are missing nothing contradicts an entry: an epoch may have begun among them.
    Whoever moves the log start moves the first epoch with it; after a clean stop both are on the disk. After a kill
    either may be older: entries before the log start speak of records that were deleted, and an entry after it is what
    a lost log start leaves. If the kill came while retention deleted the first segments, the next start does not move
    the epoch: it goes by the checkpoint of log starts, which does not name a log that begins with its first segment.
    So even after a clean stop the epoch may begin before the first segment. Segments that somebody removed leave the
    same. Kafka: LogLoader.load.
    """
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    in_log = epochs_of_log(segments, layout)
    is_deleted = bool(segments) and log_start is not None and segments[-1].next_offset <= log_start
    entries = _entries_of(notes, fs, path, [] if is_deleted else in_log)
    if not segments or not entries:
        return []
    if any(entry.epoch < 0 or entry.start_offset < 0 for entry in entries) or not _increases(entries):
        notes.add("EPO-ENTRY", path, "epochs and offsets do not increase")
        return []
    first, end = segments[0].base_offset, segments[-1].next_offset
    begins = max(first, log_start or 0) if is_clean else first
    if entries[0].start_offset < begins:
        words = ": retention has deleted the records before it, or segments are missing" if begins == first else ""
        notes.add(
            "EPO-START", path,
            f"epoch {entries[0].epoch} begins at {entries[0].start_offset}, the log at {begins}{words}",
            offsets=(entries[0].start_offset, begins - 1), severity=Severity.INFO if begins == first else None,
        )  # fmt: skip
    elif log_start is not None and in_log and entries[0].start_offset > max(in_log[0].start_offset, log_start):
        notes.add(
            "EPO-START", path, f"epoch {entries[0].epoch} begins at {entries[0].start_offset}, the log at {begins}",
            offsets=(begins, entries[0].start_offset - 1), severity=Severity.INFO,
        )  # fmt: skip
    wrong = _contradicted(entries, segments, layout)
    if wrong and _is_damage_of_batches(wrong, segments, layout, is_clean=is_clean):
        _note_batches(notes, wrong, segments)
        return wrong
    is_whole = layout.is_right and not any(facts.damage or facts.is_unread for facts in segments)
    if wrong:
        notes.add("EPO-ENTRY", path, _contradiction(wrong[0], segments))
    elif entries[-1].start_offset > end and is_whole:
        notes.add(
            "EPO-ENTRY", path, f"epoch {entries[-1].epoch} begins at {entries[-1].start_offset}, the log ends at {end}",
            severity=Severity.WARNING if is_clean else Severity.INFO,
        )  # fmt: skip
    return []


def _entries_of(notes: Notes, fs: ReadFileSystem, path: str, in_log: Sequence[EpochEntry]) -> list[EpochEntry]:
    """What the checkpoint says; nothing where it cannot be read, or is missing, which is noted."""
    if fs.stat(path) is None:
        if in_log:
            notes.add("EPO-MISSING", path, f"batches of {len(in_log)} leader epochs, and no checkpoint")
        return []
    try:
        entries = read_epochs(fs, path)
    except CheckpointError as error:
        notes.add("EPO-FORMAT", path, str(error).removeprefix(f"{path}: "))
        return []
    except StorageError as error:
        notes.add_unreadable(path, error)
        return []
    if not entries and in_log:
        # Kafka leaves it so where it has lost a log start that was at the end of the log.
        message = f"batches of {len(in_log)} leader epochs, and no entry"
        notes.add("EPO-MISSING", path, message, severity=Severity.INFO)
    return entries


def _note_batches(notes: Notes, wrong: Sequence[WrongEpoch], segments: Sequence[SegmentFacts]) -> None:
    for one in wrong:
        row = segments[one.segment].batches[one.batch]
        notes.add(
            "LOG-EPOCH", segments[one.segment].path, f"leader epoch {row['epoch']}, the checkpoint says {one.epoch}",
            position=int(row["position"]), size=16, offsets=(int(row["first"]), int(row["last"])),
        )  # fmt: skip


def _contradiction(one: WrongEpoch, segments: Sequence[SegmentFacts]) -> str:
    row = segments[one.segment].batches[one.batch]
    if one.epoch == row["epoch"]:
        return f"epoch {one.epoch} begins inside the batch of the offsets {row['first']} to {row['last']}"
    return f"it says epoch {one.epoch} of offset {row['first']}, the log says {row['epoch']}"


def _contradicted(entries: Sequence[EpochEntry], segments: Sequence[SegmentFacts], layout: Layout) -> list[WrongEpoch]:
    """The batches whose epoch is not that of the entry they fall under."""
    start = entries[0].start_offset
    starts = np.array([entry.start_offset for entry in entries], np.int64)
    epochs = np.array([-1, *(entry.epoch for entry in entries)], np.int64)
    wrong = []
    for number, facts in enumerate(segments):
        batches: Any = facts.batches
        if not len(batches) or _are_all_of(entries, batches):
            continue
        at_first = epochs[np.searchsorted(starts, np.maximum(batches["first"], start), "right")]
        at_last = epochs[np.searchsorted(starts, batches["last"], "right")]
        is_wrong = ((batches["epoch"] != at_first) | (batches["epoch"] != at_last)) & layout.in_place[number]
        # A batch without an epoch is one of the old formats, or of a time before the first entry.
        is_wrong &= (batches["last"] >= start) & ~(
            (batches["epoch"] == -1) & ((batches["magic"] < 2) | (at_last == -1))
        )
        # Deleted records have no entry any more, but no later epoch either than the first that is left.
        is_above = (batches["last"] < start) & (batches["epoch"] > entries[0].epoch) & layout.in_place[number]
        for batch in np.flatnonzero(is_above).tolist():
            at_last[batch] = min(_epoch_before(segments, number, batch), entries[0].epoch)
        found = np.flatnonzero(is_wrong | is_above)
        wrong += [WrongEpoch(number, int(batch), int(at_last[batch])) for batch in found]
    return wrong


def _epoch_before(segments: Sequence[SegmentFacts], number: int, batch: int) -> int:
    """The leader epoch of the batch before one; a large one if there is none."""
    if batch:
        return int(segments[number].batches["epoch"][batch - 1])
    before = next((facts for facts in reversed(segments[:number]) if len(facts.batches)), None)
    return MAX_INT32 if before is None else int(before.batches["epoch"][-1])


def _are_all_of(entries: Sequence[EpochEntry], batches: Any) -> bool:
    """Whether there is one entry and nothing else, as in most logs: then no batch needs to be looked up."""
    (epoch, start), *others = entries
    is_one = not others and batches["epoch"].min() == batches["epoch"].max() == epoch
    return bool(is_one and batches["first"].min() >= start and (batches["last"] >= batches["first"]).all())


def _is_damage_of_batches(
    wrong: Sequence[WrongEpoch], segments: Sequence[SegmentFacts], layout: Layout, *, is_clean: bool
) -> bool:
    """Whether the checkpoint is to be believed rather than these batches.

    It is where the other batches contradict them. Of a batch that does not break their order the checkpoint of a clean
    stop is believed if it stands alone: neither the batch before it nor the one after it is of its epoch.
    """
    epochs, _ = _columns(segments, layout)
    believed = ordered_mask(epochs + 1, epochs)
    numbers = _numbers(layout)
    at = [numbers[one.segment, one.batch] for one in wrong]
    if not any(believed[number] for number in at):
        return all(one.epoch >= 0 for one in wrong)
    is_other = [one.epoch not in (segments[one.segment].batches[one.batch]["epoch"], -1) for one in wrong]
    is_few = len(wrong) <= _MOST_BATCHES and 2 * len(wrong) < len(epochs)
    return is_clean and is_few and all(is_other) and all(_is_alone(epochs, number) for number in at)


def _numbers(layout: Layout) -> dict[tuple[int, int], int]:
    """The place among all batches that are in their place, by segment and number in it."""
    places = ((segment, int(batch)) for segment, which in enumerate(layout.in_place) for batch in np.flatnonzero(which))
    return {place: number for number, place in enumerate(places)}


def _is_alone(epochs: Any, at: int) -> bool:
    return all(epochs[other] != epochs[at] for other in (at - 1, at + 1) if 0 <= other < len(epochs))


def _increases(entries: Sequence[EpochEntry]) -> bool:
    pairs = zip(entries, entries[1:], strict=False)
    return all(one.epoch < other.epoch and one.start_offset < other.start_offset for one, other in pairs)
