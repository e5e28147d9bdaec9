"""Findings about offset and time indexes, compared with the batches of their segment.

Which offset an entry of an offset index carries has changed: releases up to 1.1 wrote the first offset of an append,
those from 2.0 on its last, and until 3.9.0 an append could hold several batches. The time index carried the offset of
the record that has the timestamp until 3.6, and since then the last offset of its batch. All of these are right.

The indexes of the last segment are longer than their entries and end with zeros; a crash leaves them so. Entries that a
truncation cut are still in the file, after those that count, until others overwrite them.
After a clean stop, or in any other segment, Kafka takes whatever is there for entries.
"""

from typing import Any

import numpy as np

from tidelog.fsck.findings import Severity
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_facts import Batches, SegmentFacts
from tidelog.kernels.index_check import Steps, steps_of_index
from tidelog.records.batch import MAGIC

__all__ = ["check_offset_index", "check_time_index", "steps_between"]

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])
_MUCH_UNINDEXED = 64 * 1024  # bytes without an entry, and so many times the usual distance: the index is stale
_TIMES_USUAL = 8
_UNKNOWN_USUAL = 1 << 20

Rows = np.ndarray[Any, np.dtype[Any]]


def check_offset_index(
    notes: Notes, path: str, data: bytes, facts: SegmentFacts, *, is_open: bool, quick: bool = True
) -> Steps | None:
    """Compare an `.index` with its segment. `is_open`: zeros at its end are room for more.

    Gives the steps between its entries; None if there are none that are to be believed. `quick` is how it is always
    done; without it the result is the same.
    """
    entries = _written(notes, "IDX", path, data, _OFFSET_ENTRY, is_open)
    batches = facts.batches
    if entries is None:
        return None
    if quick and len(entries):
        steps = steps_of_index(entries, facts.base_offset, batches["position"], batches["last"])
        if steps is not None:
            if not is_open:
                _note_stale(notes, path, len(entries), int(entries["position"][-1]), steps.longest, facts)
            return steps
    offsets = entries["offset"].astype(np.int64) + facts.base_offset
    positions = entries["position"].astype(np.int64)
    if is_open:  # the log may have grown since it was read
        count = min(_increasing(offsets), _increasing(positions))
        _note_cut_off(notes, "IDX-ORDER", path, count, len(offsets), _OFFSET_ENTRY.itemsize)
        offsets, positions = offsets[:count], positions[:count]
        is_read = positions < facts.size
        offsets, positions = offsets[is_read], positions[is_read]
    if not _increases(notes, "IDX-ORDER", path, offsets, _OFFSET_ENTRY.itemsize):
        return None
    if not _increases(notes, "IDX-ORDER", path, positions, _OFFSET_ENTRY.itemsize):
        return None
    number = np.searchsorted(batches["position"], positions)
    inside = np.minimum(number, max(len(batches) - 1, 0))
    if len(batches):
        is_start = (number < len(batches)) & (batches["position"][inside] == positions)
        is_right = is_start & _is_offset_of(batches, inside, offsets)
    else:
        is_right = np.zeros(len(offsets), np.bool_)
    is_right |= _in_damage(facts, positions)
    if is_open and not is_right.all():
        count = int(is_right.argmin())
        _note_cut_off(notes, "IDX-ENTRY", path, count, len(offsets), _OFFSET_ENTRY.itemsize)
        positions, is_right = positions[:count], is_right[:count]
    for wrong in np.flatnonzero(~is_right)[:1].tolist():
        count = int((~is_right).sum())
        more = f", and {count - 1} more entries are wrong" if count > 1 else ""
        notes.add(
            "IDX-ENTRY", path,
            f"entry {wrong} says that offset {offsets[wrong]} is at {positions[wrong]}, the log does not{more}",
            position=wrong * _OFFSET_ENTRY.itemsize, size=_OFFSET_ENTRY.itemsize,
            offsets=(int(offsets[wrong]), int(offsets[wrong])),
        )  # fmt: skip
    if not is_right.all():
        return None
    steps = steps_between(positions, batches["position"])
    if not is_open:
        usual = steps.longest if steps else _UNKNOWN_USUAL // _TIMES_USUAL
        _note_stale(notes, path, len(positions), int(positions[-1]) if steps else 0, usual, facts)
    return steps


def steps_between(positions: Rows, starts: Rows) -> Steps | None:
    """The steps between entries that name positions, in a segment whose batches start at `starts`."""
    if not len(positions) or not len(starts):
        return None
    before = np.concatenate(([0], positions[:-1]))
    steps = positions - before
    nearest = starts[np.maximum(np.searchsorted(starts, positions) - 1, 0)]  # the batches before those with entries
    not_enough = max(int((nearest - before).max()), int(starts[-1] - positions[-1]), 0)
    return Steps(int(steps[steps > 0].min(initial=steps.max())), not_enough, int(steps.max()))


def _is_offset_of(batches: Batches, number: Rows, offsets: Rows) -> Any:
    """Whether an offset is the first of the batch an entry points to, or the last of it or of one appended with it."""
    last = batches["last"][number]
    if np.array_equal(offsets, last):
        return True
    first = batches["first"][number]
    ends = np.minimum(np.searchsorted(batches["last"], offsets), len(batches) - 1)
    is_an_end = (batches["last"][ends] == offsets) & (offsets >= last)
    is_legacy = batches["magic"][number] < MAGIC
    before = np.where(number > 0, batches["last"][number - 1], first - 1)
    return (offsets == first) | (offsets == last) | is_an_end | (is_legacy & (offsets > before) & (offsets <= last))


def _note_stale(notes: Notes, path: str, entries: int, last: int, usual: int, facts: SegmentFacts) -> None:
    """Say so if much follows the last of so many entries."""
    unindexed = facts.sound_end - last
    starts = int((facts.batches["position"] > last).sum())
    if unindexed > max(_MUCH_UNINDEXED, _TIMES_USUAL * usual) and starts > 1:
        notes.add("IDX-STALE", path, f"the last {unindexed} bytes of the segment have no entry", position=entries * 8)


def check_time_index(notes: Notes, path: str, data: bytes, facts: SegmentFacts, *, is_open: bool) -> None:
    """Compare a `.timeindex` with its segment."""
    entries = _written(notes, "TIX", path, data, _TIME_ENTRY, is_open)
    batches = facts.batches
    if entries is None:
        return
    offsets = entries["offset"].astype(np.int64) + facts.base_offset
    times = entries["time"].astype(np.int64)
    size = _TIME_ENTRY.itemsize
    if is_open:
        count = min(_increasing(times), _increasing(offsets, or_stays=True))
        _note_cut_off(notes, "TIX-ORDER", path, count, len(offsets), size)
        offsets, times = offsets[:count], times[:count]
    if not _increases(notes, "TIX-ORDER", path, times, size):
        return
    if not _increases(notes, "TIX-ORDER", path, offsets, size, or_stays=True):
        return
    if is_open:
        is_read = offsets < max(facts.next_offset, facts.base_offset + 1)
        offsets, times = offsets[is_read], times[is_read]
    if len(batches):
        holder = np.searchsorted(batches["last"], offsets)
        inside = np.minimum(holder, len(batches) - 1)
        largest = np.maximum.accumulate(batches["time"])
        is_right = (holder < len(batches)) & (batches["time"][inside] == times) & (largest[inside] == times)
        is_right &= offsets >= batches["first"][inside]
        # A broker that was told to store the oldest format kept the times it had been sent in the index alone.
        is_right |= (holder < len(batches)) & (batches["magic"][inside] == 0)
    else:
        is_right = np.zeros(len(offsets), np.bool_)
    if facts.damage:
        return  # what the damaged batches held is not known
    if is_open and not is_right.all():
        count = int(is_right.argmin())
        _note_cut_off(notes, "TIX-ENTRY", path, count, len(offsets), size)
        times, offsets, is_right = times[:count], offsets[:count], is_right[:count]
    for wrong in np.flatnonzero(~is_right)[:1].tolist():
        count = int((~is_right).sum())
        more = f", and {count - 1} more entries are wrong" if count > 1 else ""
        notes.add(
            "TIX-ENTRY", path,
            f"entry {wrong} says that {times[wrong]} is reached at offset {offsets[wrong]}, the log does not{more}",
            position=wrong * size, size=size, offsets=(int(offsets[wrong]), int(offsets[wrong])),
        )  # fmt: skip
    known = int(times[-1]) if len(times) else -1
    if is_right.all() and not is_open and known < facts.max_timestamp_ms:
        notes.add(
            "TIX-STALE", path,
            f"it ends with the timestamp {known}, the segment has {facts.max_timestamp_ms}", position=len(times) * size,
        )  # fmt: skip


def _written(notes: Notes, kind: str, path: str, data: bytes, entry: Any, is_open: bool) -> Rows | None:
    """The entries of an index, without the zeros after them; None if those are a finding of their own."""
    size = entry.itemsize
    if len(data) % size:
        notes.add(f"{kind}-SIZE", path, f"{len(data)} bytes, an entry takes {size}", position=len(data) // size * size)
    rows = np.frombuffer(data[: len(data) // size * size], entry)
    count = -(-len(data[: rows.nbytes].rstrip(b"\0")) // size)  # an entry that ends with zeros is not one of zeros
    if count < len(rows) and not (len(rows) == 1 and count == 0):
        if not is_open:
            notes.add(
                f"{kind}-ZEROS", path, f"{len(rows) - count} entries of zeros at its end",
                position=count * size, size=(len(rows) - count) * size,
            )  # fmt: skip
            return None
        return rows[:count]
    return rows


def _increases(notes: Notes, code: str, path: str, values: Rows, size: int, *, or_stays: bool = False) -> bool:
    steps = np.diff(values)
    wrong = np.flatnonzero((steps < 0) if or_stays else (steps <= 0))
    if len(wrong):
        at = int(wrong[0]) + 1
        notes.add(code, path, f"entry {at} has {values[at]} after {values[at - 1]}", position=at * size, size=size)
    return not len(wrong)


def _increasing(values: Rows, *, or_stays: bool = False) -> int:
    """How many values increase from the first on."""
    steps = np.diff(values)
    wrong = (steps < 0) if or_stays else (steps <= 0)
    return int(wrong.argmax()) + 1 if wrong.any() else len(values)


def _note_cut_off(notes: Notes, code: str, path: str, count: int, of: int, size: int) -> None:
    """Say that entries of an index that is open do not belong to the log any more, if there are such."""
    if count < of:
        message = (
            f"the entries from {count} on are not of this log: a truncation leaves such, and Kafka passes over them"
        )
        notes.add(code, path, message, position=count * size, severity=Severity.INFO, remedy="none")


def _in_damage(facts: SegmentFacts, positions: Rows) -> Any:
    """Which positions lie in bytes that are no batch: nothing can be said of their entries."""
    result = np.zeros(len(positions), np.bool_)
    for damage in facts.damage:
        result |= (positions >= damage.position) & (positions < damage.end)
    return result
