"""Count the rows that a reader of committed data would not be given.

A record of an aborted or open transaction looks like any other in the log. A user who takes all records should learn
how many of those there are. Transactions are looked up at the first transactional record: most topics have none.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import CorruptionError
from tidelog.view.partition import PartitionView
from tidelog.view.segment import ADVICE
from tidelog.view.transactions import UnknownOutcomeError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["UncommittedRows"]


class UncommittedRows:
    """Rows of transactions that were aborted, or are open, counted as they pass."""

    COLUMNS = ("partition", "offset", "isTransactional", "producerId")  # that `take` needs

    def __init__(self, partitions: Iterable[PartitionView], *, tolerant: bool = False) -> None:
        """`partitions` are those of one topic.

        With `tolerant`, records of a partition whose transactions cannot be known because of damage are not counted;
        `unknown` then says why, by partition. Otherwise the damage is raised, except that of a lost segment: the rows
        that are left can be read, only their transactions are unknown.
        """
        self.aborted = 0
        self.open = 0
        self.unknown: dict[int, str] = {}
        self._tolerant = tolerant
        self._partitions = {partition.partition: partition for partition in partitions}
        self._fates: dict[int, _Fates | None] = {}

    def take_one(self, partition: int, producer_id: int, offset: int) -> None:
        """Count a record of a transaction."""
        fates = self._fates_in(partition)
        if fates is None:
            return
        if offset >= fates.last_stable_offset:
            self.open += 1
        else:
            self.aborted += fates.is_aborted(producer_id, offset)

    def take(self, batch: "pa.RecordBatch") -> None:
        """Count the rows of a RecordBatch."""
        import numpy as np

        is_transactional = batch.column("isTransactional")
        if not is_transactional.true_count:
            return
        rows = batch.select(["partition", "offset", "producerId"]).filter(is_transactional)
        numbers, offsets, producers = (column.to_numpy() for column in rows.columns)
        for number in np.unique(numbers).tolist():
            fates, chosen = self._fates_in(number), numbers == number
            if fates is None:
                continue
            is_open = chosen & (offsets >= fates.last_stable_offset)
            self.open += int(is_open.sum())
            decided = chosen & ~is_open
            for producer in np.unique(producers[decided]).tolist():
                self.aborted += fates.count_aborted(producer, offsets[decided & (producers == producer)])

    def _fates_in(self, partition: int) -> "_Fates | None":
        """The transactions of a partition; None where they cannot be known."""
        if partition not in self._fates:
            try:
                self._fates[partition] = _Fates(self._partitions[partition])
            except CorruptionError as error:
                if not self._tolerant and not isinstance(error, UnknownOutcomeError):
                    raise
                self._fates[partition] = None
                self.unknown[partition] = str(error).removesuffix(ADVICE)
        return self._fates[partition]


class _Fates:
    """What became of the transactions of a partition."""

    def __init__(self, partition: PartitionView) -> None:
        self.last_stable_offset = partition.limit_of(committed=True)
        self._firsts: dict[int, list[int]] = {}  # by producer, whose transactions follow one another
        self._lasts: dict[int, list[int]] = {}
        for txn in partition.aborted_transactions():
            self._firsts.setdefault(txn.producer_id, []).append(txn.first_offset)
            self._lasts.setdefault(txn.producer_id, []).append(txn.last_offset)

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether the transaction that a record belongs to was aborted."""
        place = bisect_right(self._firsts.get(producer_id, []), offset) - 1
        return place >= 0 and offset <= self._lasts[producer_id][place]

    def count_aborted(self, producer_id: int, offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
        """The same for many."""
        import numpy as np

        if producer_id not in self._firsts:
            return 0
        firsts, lasts = np.array(self._firsts[producer_id]), np.array(self._lasts[producer_id])
        places = np.searchsorted(firsts, offsets, "right") - 1
        return int(((places >= 0) & (offsets <= lasts[places])).sum())
