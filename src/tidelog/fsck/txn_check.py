"""Findings about transaction indexes, compared with the markers in the log."""

import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_scan import ProducerStep, SegmentFacts
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.control import ControlType

__all__ = ["ExpectedTxn", "TxnReplay", "check_txn_index", "entries_in", "note_lost_markers"]

_ENTRY = struct.Struct(">hqqqq")


class ExpectedTxn(NamedTuple):
    """An ABORT marker of the log, and the entry it should have; None where no data of the transaction is left."""

    producer_id: int
    marker: int
    entry: AbortedTxnEntry | None
    last_data: int = -1  # the last offset of the data of the transaction
    begins_from: int | None = None  # an earlier transaction may have ended in lost offsets; this one began after that
    is_stable_known: bool = True  # whether no other transaction that was open may have ended in lost offsets


class TxnReplay:
    """Follows the transactions of a log, segment by segment."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # first offset by producer
        self._last: dict[int, int] = {}  # last offset of its data so far
        self._doubtful: dict[int, int] = {}  # producers whose transactions may have ended from an offset on
        self._knows_more = False  # than an index that is rebuilt from the log: ends that only another index lists

    @property
    def open(self) -> Sequence[tuple[int, int]]:
        """Producers whose transactions have no end, and where those began."""
        return sorted(self._open.items())

    def aborted_in(self, steps: Sequence[ProducerStep]) -> Iterator[ExpectedTxn]:
        """The ABORT markers of the next segment."""
        for batch, marker in steps:
            if marker is None:
                if batch.is_transactional and not batch.is_control:
                    self._open.setdefault(batch.producer_id, batch.base_offset)
                    self._last[batch.producer_id] = batch.last_offset
                continue
            first, last = self._open.pop(batch.producer_id, None), self._last.pop(batch.producer_id, -1)
            begins_from = self._doubtful.pop(batch.producer_id, None)
            if marker.control_type == ControlType.ABORT:
                entry = None
                if first is not None:
                    stable = min(self._open.values(), default=batch.last_offset + 1)
                    entry = AbortedTxnEntry(batch.producer_id, first, batch.last_offset, stable)
                is_known = not self._doubtful and not self._knows_more
                yield ExpectedTxn(batch.producer_id, batch.last_offset, entry, last, begins_from, is_known)

    def lose(self, entries: Sequence[AbortedTxnEntry], lost_from: int) -> None:
        """Take in the lost end of a segment: transactions that its index lists ended in it, others may have."""
        self._knows_more = self._knows_more or bool(entries)
        for entry in entries:
            self._open.pop(entry.producer_id, None)
            self._last.pop(entry.producer_id, None)
            self._doubtful.pop(entry.producer_id, None)
        for producer_id in self._open:
            self._doubtful.setdefault(producer_id, lost_from)


def entries_in(data: bytes | None, first: int, last: int) -> list[AbortedTxnEntry]:
    """The entries of a transaction index whose markers lie from `first` to `last`."""
    whole = (data or b"")[: len(data or b"") // _ENTRY.size * _ENTRY.size]
    entries = (AbortedTxnEntry(*fields[1:]) for fields in _ENTRY.iter_unpack(whole))
    return [entry for entry in entries if first <= entry.last_offset <= last]


def check_txn_index(
    notes: Notes,
    path: str,
    data: bytes | None,
    expected: Sequence[ExpectedTxn],
    *,
    first_offset: int,
    is_compacted: bool,
    lost: tuple[int, int] | None = None,
) -> None:
    """Compare a `.txnindex`, or that there is none, with the markers of its segment.

    Of a transaction that began before the log does, `first_offset`, and in a compacted log, the beginning is gone: then
    the entry is believed. If all of its data lies before the log start it may have no entry: Kafka rebuilds producers
    from the log start on, and nobody reads that data.

    `lost` are the offsets between the last batch of the segment and the next segment. An entry whose marker lay there
    is believed: nothing else knows that the transaction was aborted.
    """
    found: dict[int, AbortedTxnEntry] = {}
    size = _ENTRY.size
    if data is not None:
        if len(data) % size:
            notes.add("TXN-SIZE", path, f"{len(data)} bytes, an entry takes {size}", position=len(data) // size * size)
        last = -1
        for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(data[: len(data) // size * size])):
            entry = AbortedTxnEntry(*fields)
            if version:
                notes.add(
                    "TXN-VERSION", path, f"entry {number} has version {version}", position=number * size, size=size
                )
                return
            if entry.last_offset <= last or not entry.first_offset <= entry.last_offset:
                message = f"entry {number} says {entry.first_offset} to {entry.last_offset} behind {last}"
                notes.add("TXN-ENTRY", path, message, position=number * size, size=size)
                return
            found[entry.last_offset] = entry
            last = entry.last_offset
    markers = {one.marker: one for one in expected}
    for number, entry in enumerate(found.values()):
        if lost is not None and lost[0] <= entry.last_offset <= lost[1] and entry.first_offset >= 0:
            continue
        fault = _fault(entry, markers.get(entry.last_offset), first_offset, is_compacted)
        if fault:
            notes.add(
                "TXN-ENTRY", path, f"entry {number}: {fault}", position=number * size, size=size,
                offsets=(entry.first_offset, entry.last_offset),
            )  # fmt: skip
            return
    for one in expected:
        if one.entry is not None and one.marker not in found and one.last_data >= first_offset:
            message = f"the transaction of producer {one.producer_id} that ends at {one.marker} was aborted"
            notes.add("TXN-MISSING", path, message, offsets=(one.entry.first_offset, one.marker))
            return


def _fault(entry: AbortedTxnEntry, marker: ExpectedTxn | None, first_offset: int, is_compacted: bool) -> str | None:
    """What is wrong with an entry."""
    if marker is None or marker.producer_id != entry.producer_id:
        return f"no transaction of producer {entry.producer_id} is aborted at offset {entry.last_offset}"
    began_before = entry.first_offset < first_offset
    if marker.entry is None:
        return None if is_compacted or began_before else f"producer {entry.producer_id} has no transaction there"
    if marker.begins_from is not None and marker.begins_from <= entry.first_offset <= marker.last_data:
        return None
    if marker.entry.first_offset < first_offset:
        return None  # a broker that has loaded the log since its beginning was deleted knows a later one
    if is_compacted or began_before:
        return None if entry.first_offset <= marker.entry.first_offset else f"it begins at {marker.entry.first_offset}"
    # What was stable depends on transactions that began before the log does, and on whether the broker still knew them.
    is_older = min(entry.last_stable_offset, marker.entry.last_stable_offset) < first_offset
    if entry != marker.entry and not ((is_older or not marker.is_stable_known) and entry[:3] == marker.entry[:3]):
        return f"it says {tuple(entry)}, the log says {tuple(marker.entry)}"
    return None


def note_lost_markers(
    notes: Notes,
    segments: Sequence[SegmentFacts],
    indexes: Mapping[int, tuple[str, bytes | None]],
    missing: Sequence[tuple[int, int]],
    kept: Container[int] = (),
) -> None:
    """Tell which transactions have lost, or may have lost, their end with the offsets that are `missing`.

    An index that names a marker among them tells so for certain. One that is `kept`, by the base offset of its segment,
    still tells readers what was aborted. A transaction that is open at the end of the log, and that began before them,
    may have ended there.
    """
    if not missing:
        return
    for path, data in (index for base, index in indexes.items() if base not in kept):
        for entry in entries_in(data, 0, MAX_OFFSET):
            if any(first <= entry.last_offset <= last for first, last in missing):
                message = (
                    f"the marker at {entry.last_offset} that aborts the transaction of {entry.producer_id} is lost"
                )
                notes.add("TXN-MARKER", path, message, offsets=(entry.first_offset, entry.last_offset))
    replay = TxnReplay()
    for facts in segments:
        for _ in replay.aborted_in(facts.steps):
            pass
    for producer_id, begun in replay.open:
        lost = [one for one in missing if one[0] > begun]
        if lost:
            message = (
                f"the transaction of producer {producer_id} is open: its end may be among {lost[0][0]} to {lost[-1][1]}"
            )
            notes.add("TXN-MARKER", segments[-1].path, message, offsets=(begun, begun))
