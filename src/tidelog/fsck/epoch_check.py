"""Findings about leader epochs: those in the batches, and those in `leader-epoch-checkpoint`.

The epoch of a batch is not under its checksum; the checkpoint is all there is to hold it to.
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
    parts = [facts.batches[which] for facts, which in zip(segments, layout.in_place, strict=True)]
    epochs, first = (np.concatenate([part[name] for part in parts]) for name in ("epoch", "first"))
    believed = ordered_mask(epochs + 1, epochs)
    epochs, first = epochs[believed], first[believed]
    news = np.flatnonzero(np.diff(np.maximum(epochs, -1), prepend=-1) > 0).tolist()
    return [EpochEntry(int(epochs[at]), int(first[at])) for at in news]


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
    Whoever moves the log start moves the first epoch with it. After a clean stop both are on the disk.
    """
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    in_log = epochs_of_log(segments, layout)
    entries = _entries_of(notes, fs, path, in_log)
    if not segments or not entries:
        return []
    if any(entry.epoch < 0 or entry.start_offset < 0 for entry in entries) or not _increases(entries):
        notes.add("EPO-ENTRY", path, "epochs and offsets do not increase")
        return []
    first, end = segments[0].base_offset, segments[-1].next_offset
    start = max(first, entries[0].start_offset if log_start is None else log_start)
    begins = max(first, log_start or 0) if is_clean else first
    if entries[0].start_offset < begins:
        notes.add(
            "EPO-START", path, f"epoch {entries[0].epoch} begins at {entries[0].start_offset}, the log at {begins}",
            offsets=(entries[0].start_offset, begins - 1),
        )  # fmt: skip
    known, expected = (
        [entry for entry in folded(them, start) if entry.start_offset < end] for them in (entries, in_log)
    )
    wrong = _contradicted(entries, segments, layout, start)
    is_few = len(wrong) <= _MOST_BATCHES and _is_damage_of_batches(wrong, segments)
    if wrong and (is_few or known == expected):  # a checkpoint that says what the log does cannot be more right
        _note_batches(notes, wrong, segments)
        return wrong
    is_whole = layout.is_right and not any(facts.damage or facts.is_unread for facts in segments)
    if wrong:
        notes.add("EPO-ENTRY", path, _contradiction(wrong[0], segments))
    elif entries[-1].start_offset > end and is_whole:
        notes.add(
            "EPO-ENTRY", path, f"epoch {entries[-1].epoch} begins at {entries[-1].start_offset}, the log ends at {end}",
            severity=Severity.WARNING,
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
        notes.add("EPO-MISSING", path, f"batches of {len(in_log)} leader epochs, and no entry")
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


def _contradicted(
    entries: Sequence[EpochEntry], segments: Sequence[SegmentFacts], layout: Layout, log_start: int
) -> list[WrongEpoch]:
    """The batches whose epoch is not that of the entry they fall under."""
    starts = np.array([entry.start_offset for entry in entries], np.int64)
    epochs = np.array([-1, *(entry.epoch for entry in entries)], np.int64)
    wrong = []
    for number, facts in enumerate(segments):
        batches: Any = facts.batches
        if not len(batches) or _are_all_of(entries, batches):
            continue
        at_first = epochs[np.searchsorted(starts, np.maximum(batches["first"], log_start), "right")]
        at_last = epochs[np.searchsorted(starts, batches["last"], "right")]
        is_wrong = ((batches["epoch"] != at_first) | (batches["epoch"] != at_last)) & layout.in_place[number]
        # A batch without an epoch is one of the old formats, or of a time before the first entry.
        is_wrong &= (batches["last"] >= log_start) & ~(
            (batches["epoch"] == -1) & ((batches["magic"] < 2) | (at_last == -1))
        )
        # Deleted records have no entry any more, but no later epoch either than the first that is left.
        is_above = (batches["last"] < log_start) & (batches["epoch"] > entries[0].epoch) & layout.in_place[number]
        at_last[is_above] = entries[0].epoch
        found = np.flatnonzero(is_wrong | is_above)
        wrong += [WrongEpoch(number, int(batch), int(at_last[batch])) for batch in found]
    return wrong


def _are_all_of(entries: Sequence[EpochEntry], batches: Any) -> bool:
    """Whether there is one entry and nothing else, as in most logs: then no batch needs to be looked up."""
    (epoch, start), *others = entries
    is_one = not others and batches["epoch"].min() == batches["epoch"].max() == epoch
    return bool(is_one and batches["first"].min() >= start and (batches["last"] >= batches["first"]).all())


def _is_damage_of_batches(wrong: Sequence[WrongEpoch], segments: Sequence[SegmentFacts]) -> bool:
    """Whether the checkpoint is to be believed rather than these batches: most of the log agrees with it."""
    total = sum(len(facts.batches) for facts in segments)
    is_other = [one.epoch not in (segments[one.segment].batches[one.batch]["epoch"], -1) for one in wrong]
    return all(is_other) and 2 * len(wrong) < total


def _increases(entries: Sequence[EpochEntry]) -> bool:
    pairs = zip(entries, entries[1:], strict=False)
    return all(one.epoch < other.epoch and one.start_offset < other.start_offset for one, other in pairs)
