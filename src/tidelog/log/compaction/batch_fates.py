"""What compaction does with a batch as a whole, before it looks at the records in it.

Most batches are looked at and go if nothing in them stays. Batches of aborted transactions go, markers that nothing
needs any more go when their time has come. Two kinds of batches stay even if they are empty: the last one of a
producer that is known, because its sequence and epoch are needed to tell duplicates, and the one that ends the round,
because it knows where the log goes on.

Kafka: the RecordFilter in Cleaner.cleanInto.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.log.batch_info import CONTROL, TRANSACTIONAL, BatchInfo
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.compaction.cleaned_txns import CleanedTransactions
from tidelog.log.compaction.record_filter import Fate
from tidelog.log.producer_state import LastRecord
from tidelog.records.batch import RecordBatch

if TYPE_CHECKING:
    import numpy as np

    Flags = np.ndarray[Any, np.dtype[np.uint8]]

__all__ = ["BatchFates", "WindowFates", "aborted_in", "is_left_out"]


class WindowFates(NamedTuple):
    """The fates of the batches of a window, and which of them are markers of transactions without data."""

    fates: "Flags"
    marks: "Flags"


class BatchFates:
    """Decides batch by batch, in the order of the log."""

    def __init__(
        self, txns: CleanedTransactions, last_records: Mapping[int, LastRecord], round_end: int, now_ms: int
    ) -> None:
        self._txns = txns
        self._last_records = last_records
        self._round_end = round_end
        self._now_ms = now_ms
        self._unusual_ends: Any = None  # last offsets of batches that may have to stay, as an array, once it is needed

    def of(self, window: BatchWindow, batch: BatchInfo) -> tuple[Fate, bool]:
        """The fate of a batch, and whether it is a marker whose transaction has no data left."""
        is_unneeded, goes = self._look(window, batch)
        if self._is_last_of_producer(batch) or batch.next_offset == self._round_end:
            fate = Fate.EMPTY_RETAIN if goes else Fate.LOOK_RETAIN
        else:
            fate = Fate.DELETE if goes else Fate.LOOK
        return fate, is_unneeded and batch.is_control

    def of_window(self, window: BatchWindow) -> WindowFates:
        """The fates of all batches of a window that a kernel has scanned: only the unusual ones are asked one by one.

        A batch outside of transactions, not the last of its producer nor of the round, is looked at.
        """
        import numpy as np

        assert window.scan is not None
        rows: Any = window.scan.rows
        last_offsets = rows["base_offset"].astype("i8") + rows["last_offset_delta"]
        if self._unusual_ends is None:
            ends = [last.last_data_offset for last in self._last_records.values() if last.last_data_offset is not None]
            self._unusual_ends = np.array([*ends, self._round_end - 1], np.int64)
        unusual = _transactional(window) | np.isin(last_offsets, self._unusual_ends)
        fates = np.full(len(rows), Fate.LOOK, np.uint8)
        marks = np.zeros(len(rows), np.uint8)
        for index in np.flatnonzero(unusual).tolist():
            fates[index], marks[index] = self.of(window, window.batch(index))
        return WindowFates(fates, marks)

    def _look(self, window: BatchWindow, batch: BatchInfo) -> tuple[bool, bool]:
        """Whether a batch is needed by no transaction, and whether its records go for that reason."""
        if not batch.is_control:
            is_aborted = self._txns.saw_data(batch)
            return is_aborted, is_aborted
        control = RecordBatch(window.bytes_of(batch))
        is_unneeded = self._txns.saw_control(batch, control)
        horizon_ms = control.delete_horizon_ms
        return is_unneeded, is_unneeded and horizon_ms is not None and horizon_ms <= self._now_ms

    def _is_last_of_producer(self, batch: BatchInfo) -> bool:
        last = self._last_records.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.epoch


def _transactional(window: BatchWindow) -> Any:
    """Which batches of a scanned window belong to transactions or are control batches, as an array of truths."""
    assert window.scan is not None
    rows: Any = window.scan.rows
    return (rows["attributes"] & (TRANSACTIONAL | CONTROL)) != 0


def aborted_in(window: BatchWindow, txns: CleanedTransactions) -> Iterator[int]:
    """The numbers of the batches of a scanned window that the offset map leaves out: aborted data and control."""
    import numpy as np

    for index in np.flatnonzero(_transactional(window)).tolist():
        batch = window.batch(index)
        if is_left_out(window, batch, txns):
            yield index


def is_left_out(window: BatchWindow, batch: BatchInfo, txns: CleanedTransactions) -> bool:
    """Whether the offset map leaves a batch out: a control batch, or data of an aborted transaction."""
    if batch.is_control:
        txns.saw_control(batch, RecordBatch(window.bytes_of(batch)))
        return True
    return txns.saw_data(batch)
