"""The transactions of a damaged partition, as far as its sound batches tell.

Damage can hide the marker that ends a transaction. Whether the transaction was committed cannot be known then: its
records before the damage are not given to a reader of committed data. After the damage a producer's next marker
decides what lies between the two, whatever the damage hides.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptionError
from tidelog.log.batch_info import TRANSACTIONAL, BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.files import ReadFile
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.batch import RecordBatch
from tidelog.records.control import ControlType, end_txn_marker_of
from tidelog.view.damage import next_sound, sound_at, stretches_around_damage
from tidelog.view.mended_file import MendedFile, header_proven
from tidelog.view.partition import PartitionView
from tidelog.view.stretches import Stretch

__all__ = ["SalvagedTransactions", "salvaged_transactions"]

_MOST_LISTED = 3


class SalvagedTransactions(NamedTuple):
    """What is known of the transactions of a damaged partition."""

    aborted: list[AbortedTxnEntry]  # and those of `unknown`, which are left out like them
    unknown: list[AbortedTxnEntry]  # that damage may have decided; they end where the sound batches continue
    last_stable_offset: int

    def notice(self, partition: PartitionView) -> str | None:
        """What is left out because nobody can tell whether it was committed, in a sentence."""
        if not self.unknown:
            return None
        places = [f"producer {one.producer_id} from offset {one.first_offset} on" for one in self.unknown]
        more = len(places) - _MOST_LISTED
        listed = ", ".join(places[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
        return (
            f"{partition.topic_partition}: damage may hide the end of transactions ({listed}): whether they were "
            "committed cannot be known, and their records before the damage are left out; --uncommitted includes them"
        )


def salvaged_transactions(partition: PartitionView) -> SalvagedTransactions:
    """Replay the transactions of a partition around damage."""
    aborted: list[AbortedTxnEntry] = []
    unknown: list[AbortedTxnEntry] = []
    open_since: dict[int, int] = {}  # by producer
    doubtful: dict[int, int] = {}  # those that were open where damage begins
    ended: dict[int, int] = {}  # after the last marker of a producer
    known: set[int] = set()  # producers with a marker since the last damage, which hides no beginning of theirs
    is_damaged = False

    def end_doubt(offset: int) -> None:
        unknown.extend(AbortedTxnEntry(producer, first, offset, offset) for producer, first in doubtful.items())
        doubtful.clear()

    for batch, file in _sound_batches(partition):
        if batch is None:
            for producer, first in open_since.items():
                doubtful.setdefault(producer, first)
            open_since.clear()
            known.clear()
            is_damaged = True
            continue
        end_doubt(batch.base_offset)
        if not batch.attributes & TRANSACTIONAL:
            continue
        if not batch.is_control:
            open_since.setdefault(batch.producer_id, batch.base_offset)
            continue
        marker = end_txn_marker_of(RecordBatch(read_batch(file, batch)))
        if marker is None:
            continue
        producer, began = batch.producer_id, open_since.pop(batch.producer_id, None)
        if marker.control_type is ControlType.ABORT:
            last_stable = min(open_since.values(), default=batch.next_offset)
            if began is not None:
                aborted.append(AbortedTxnEntry(producer, began, batch.base_offset, last_stable))
            elif is_damaged and producer not in known:
                first = ended.get(producer, partition.log_start_offset)  # damage hides where it began
                unknown.append(AbortedTxnEntry(producer, first, batch.base_offset, last_stable))
        ended[producer] = batch.next_offset
        known.add(producer)
    end_doubt(partition.log_end_offset)
    last_stable = min(open_since.values(), default=partition.log_end_offset)
    return SalvagedTransactions([*aborted, *unknown], unknown, last_stable)


def _sound_batches(partition: PartitionView) -> Iterator[tuple[BatchInfo | None, ReadFile]]:
    """The sound batches of a partition, each with its file, and None wherever damage lies between two of them.

    They are those that a scan gives: batches whose headers can be put right are among them.
    """
    start, end = partition.log_start_offset, partition.log_end_offset
    for stretch in stretches_around_damage(partition, start, end, to_segment_ends=True):
        following = partition.look.next_of(stretch.segment)
        yield from _sound_batches_of(stretch, end if following is None else following.base_offset)


def _sound_batches_of(stretch: Stretch, limit: int) -> Iterator[tuple[BatchInfo | None, ReadFile]]:
    """The same of a stretch, whose segment has the offsets below `limit`."""
    reader, position, next_offset = stretch.reader, stretch.start, stretch.first_offset
    file = MendedFile(reader.log.file)
    while position < stretch.end:
        try:
            for batch in reader.log.batches(position, stretch.end):
                if sound_at(reader, batch.position, stretch.end) is None:
                    break
                position = batch.position + batch.size
                if next_offset <= batch.last_offset < limit:
                    yield batch, file
                    next_offset = batch.next_offset
                elif next_offset > stretch.first_offset or batch.last_offset >= limit:
                    yield None, file  # one of the offsets is damaged, or the batch is a stray copy
        except CorruptionError:
            pass  # no batch can have this length: what follows is looked for below
        if position >= stretch.end:
            return
        found = next_sound(reader, position, stretch.end, next_offset, limit)
        stop, before = (stretch.end, limit) if found is None else (found.position, found.base_offset)
        proven = header_proven(reader, position, stop)
        if proven is not None and next_offset <= proven[1].last_offset < before:
            file.mend(position, proven[0])
            yield proven[1], file
            next_offset = proven[1].next_offset
        else:
            yield None, file
        position = stop
