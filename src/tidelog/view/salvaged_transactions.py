"""The transactions of a damaged partition, as far as its sound batches tell.

Damage can hide the marker that ends a transaction. Whether the transaction was committed cannot be known then: its
records before the damage are not given to a reader of committed data. After the damage a producer's next marker
decides what lies between the two, whatever the damage hides.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.log.batch_info import TRANSACTIONAL, BatchInfo, batch_info
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.batch import RecordBatch
from tidelog.records.control import ControlType, end_txn_marker_of
from tidelog.view.partition import PartitionView
from tidelog.view.piece_walk import PieceWalk
from tidelog.view.pieces import Piece

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


def salvaged_transactions(partition: PartitionView, pieces: Iterable[Piece]) -> SalvagedTransactions:
    """Replay the transactions of a partition around damage. The pieces are all of it, in order."""
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

    for found in _sound_batches(partition, pieces):
        if found is None:
            for producer, first in open_since.items():
                doubtful.setdefault(producer, first)
            open_since.clear()
            known.clear()
            is_damaged = True
            continue
        batch, data = found
        end_doubt(batch.base_offset)
        if not batch.attributes & TRANSACTIONAL:
            continue
        if not batch.is_control:
            open_since.setdefault(batch.producer_id, batch.base_offset)
            continue
        marker = end_txn_marker_of(RecordBatch(data))
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


def _sound_batches(partition: PartitionView, pieces: Iterable[Piece]) -> Iterator[tuple[BatchInfo, memoryview] | None]:
    """The sound batches of some pieces with their bytes, and None wherever batches are missing between two of them.

    Batches are missing where the walk leaves some out, and where a segment lost all of them. The sound ones are those
    that a scan gives, by the same walk. Of those without a transaction the first of a window will do.
    """
    lost = deque(partition.lost_segments)
    for piece in pieces:
        while lost and lost[0].first_offset < piece.segment:
            lost.popleft()
            yield None
        walk, known = PieceWalk(partition.files, piece, notices=[]), 0
        for window in walk:
            if walk.left_out > known:
                yield None
            known, chunk = walk.left_out, window.chunk
            is_told = (chunk.scan.rows["attributes"] & TRANSACTIONAL) != 0
            is_told[0] = True
            for index in is_told.nonzero()[0].tolist():
                at = int(chunk.scan.positions[index])
                batch = batch_info(chunk.data, at, chunk.position + at)
                yield batch, chunk.data[at : at + batch.size]
        if walk.left_out > known:
            yield None
    if lost:
        yield None
