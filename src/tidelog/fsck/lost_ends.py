"""Transactions that ended in offsets which a closed segment lost at its end, up to the base offset of the next one.

The transaction index of the segment still lists those that were aborted there, and readers believe it: Kafka trusts
the index of a closed segment, and view/transactions.py does as well. So a repair keeps such an index as it is. Where no
index lists a marker in the lost offsets, the producer snapshot of the next segment may say that a transaction had
ended; whether it was committed is then unknown.
"""

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise

from tidelog.fsck.batch_order import Layout
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_facts import SegmentFacts
from tidelog.fsck.txn_check import TxnReplay, check_txn_index, entries_in
from tidelog.log.producer_entry import ProducerEntry

__all__ = ["Indexes", "check_txn_indexes", "lost_ends", "note_undecided"]

Indexes = Mapping[int, tuple[str, bytes | None]]  # path and content by base offset
Ranges = Mapping[int, tuple[int, int]]  # first and last offset, by base offset


def lost_ends(segments: Sequence[SegmentFacts], layout: Layout) -> dict[int, tuple[int, int]]:
    """The offsets after the last batch of each closed segment and before the next one, by base offset.

    Compaction leaves such offsets, too. Where batches move between segments, a repair looks again afterwards.
    """
    if layout.moved or layout.shifted or layout.misnamed:
        return {}
    found = {}
    for number, (facts, following) in enumerate(pairwise(segments)):
        batches = facts.batches[layout.in_place[number]]
        first = int(batches["last"].max()) + 1 if len(batches) else facts.base_offset
        if first < following.base_offset and not facts.is_unread:
            found[facts.base_offset] = first, following.base_offset - 1
    return found


def check_txn_indexes(
    notes: Notes,
    segments: Sequence[SegmentFacts],
    indexes: Indexes,
    ends: Ranges,
    *,
    unchecked: Container[int],
    first_offset: int,
    is_compacted: bool,
) -> set[int]:
    """Compare transaction indexes with the log. Return which sound ones list markers in the lost end of the segment.

    Indexes are not compared if they are `unchecked`: they exist, but could not be read.
    """
    replay = TxnReplay()
    kept = set()
    for facts in segments:
        base = facts.base_offset
        path, data = indexes[base]
        aborted = list(replay.aborted_in(facts.steps))
        known = len(notes.findings)
        if base not in unchecked:
            check_txn_index(
                notes, path, data, aborted, first_offset=first_offset, is_compacted=is_compacted, lost=ends.get(base)
            )
        if base in ends:
            entries = entries_in(data, *ends[base]) if len(notes.findings) == known else []
            replay.lose(entries, ends[base][0])
            if entries:
                kept.add(base)
    return kept


def note_undecided(
    notes: Notes,
    segments: Sequence[SegmentFacts],
    ends: Ranges,
    kept: Container[int],
    missing: Sequence[tuple[int, int]],
    snapshots: Mapping[int, Sequence[ProducerEntry]],
) -> None:
    """Report transactions that were open before a lost end, and of which nothing says how they ended.

    One that is open at the end of the log is reported by `note_lost_markers`.
    """
    replay = TxnReplay()
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for facts, following in pairwise(segments):
        for _ in replay.aborted_in(facts.steps):
            pass
        first, last = ends.get(facts.base_offset, (0, -1))
        is_missing = any(low <= last and first <= high for low, high in missing)
        if not is_missing or facts.base_offset in kept:
            continue
        after = snapshots.get(following.base_offset)
        still_open = {} if after is None else {one.producer_id: one.txn_first_offset for one in after}
        for producer_id, begun in replay.open:
            if still_open.get(producer_id) != begun:
                ended = "may have ended" if after is None else "ended"
                words = f"{ended} in the missing offsets {first} to {last}; whether it was committed is unknown"
                found.setdefault((producer_id, begun), (facts.path, words))
    if segments:
        for _ in replay.aborted_in(segments[-1].steps):
            pass
    for (producer_id, begun), (path, words) in found.items():
        if (producer_id, begun) not in replay.open:
            message = f"the transaction of producer {producer_id} from offset {begun} on {words}"
            notes.add("TXN-MARKER", path, message, offsets=(begun, begun))
