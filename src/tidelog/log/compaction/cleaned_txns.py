"""What becomes of transactions while a log is compacted: whose records go, and when a marker may follow them.

Records of an aborted transaction go at once, whatever their keys. A marker stays as long as a batch of its transaction
was seen on the way to it; once none is left it may go, after it has waited for the delete horizon as a tombstone does.
An ABORT marker that stays takes its entry of the transaction index along into the new segment.

Kafka: CleanedTransactionMetadata.
"""

import heapq
from collections.abc import Callable, Iterable

from tidelog.log.batch_info import BatchInfo
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.batch import RecordBatch
from tidelog.records.control import ControlType

__all__ = ["CleanedTransactions"]


class _Ongoing:
    """An aborted transaction that is being walked over."""

    __slots__ = ("entry", "has_data")

    def __init__(self, entry: AbortedTxnEntry) -> None:
        self.entry = entry
        self.has_data = False


class CleanedTransactions:
    """The transactions under way in a walk over the batches, in the order of their offsets.

    `keep` is given the entries of the transaction index that stay.
    """

    def __init__(self, keep: Callable[[AbortedTxnEntry], None] | None = None) -> None:
        self.keep = keep
        self._to_come: list[tuple[int, int, AbortedTxnEntry]] = []  # a heap by first offset; a number breaks ties
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self._number = 0

    def add_aborted(self, entries: Iterable[AbortedTxnEntry]) -> None:
        """Make aborted transactions known. One that reaches over several segments may be named with each."""
        for entry in entries:
            heapq.heappush(self._to_come, (entry.first_offset, self._number, entry))
            self._number += 1

    def saw_data(self, batch: BatchInfo) -> bool:
        """Note a batch of data; whether it belongs to an aborted transaction."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        ongoing = self._aborted.get(batch.producer_id)
        if ongoing is None:
            self._committed.add(batch.producer_id)
            return False
        ongoing.has_data = True
        return True

    def saw_control(self, batch: BatchInfo, control: RecordBatch) -> bool:
        """Note a control batch; whether nothing needs it any more."""
        self._reach(batch.last_offset)
        record = next(control.records(), None)
        if record is None:
            return True  # its marker has gone before
        kind = ControlType.parse(record.key)
        if kind is ControlType.ABORT:
            ongoing = self._aborted.pop(batch.producer_id, None)
            if ongoing is None or not ongoing.has_data:
                return True
            if self.keep is not None:
                self.keep(ongoing.entry)
            return False
        if kind is ControlType.COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not had_data
        return False

    def _reach(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            entry = heapq.heappop(self._to_come)[2]
            self._aborted.setdefault(entry.producer_id, _Ongoing(entry))
