"""Transactions of a partition, between their first batch and the moment when consumers may pass them.

A transaction is *ongoing* from its first batch to its marker. Behind the marker it is *completed*, but a reader of
committed data is held before it until the marker is replicated. Both kinds are kept by their first offset, and what
is asked for is always the lowest.

Kafka: TxnMetadata, CompletedTxn.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.log.offsets import OffsetMetadata

__all__ = ["CompletedTxn", "ProducerTxn", "TxnsByOffset"]


class CompletedTxn(NamedTuple):
    """A transaction with data that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    is_aborted: bool


class ProducerTxn(NamedTuple):
    """A transaction of one producer in one partition."""

    producer_id: int
    start: OffsetMetadata
    last_offset: int | None = None  # of its marker, once there is one

    @property
    def first_offset(self) -> int:
        return self.start.offset


class TxnsByOffset:
    """Transactions by first offset. `first` is the lowest, at hand at any time."""

    __slots__ = ("_txns", "first")

    def __init__(self) -> None:
        self._txns: dict[int, ProducerTxn] = {}
        self.first: ProducerTxn | None = None

    def __len__(self) -> int:
        return len(self._txns)

    def __iter__(self) -> Iterator[ProducerTxn]:
        """In the order of their first offsets."""
        return (self._txns[offset] for offset in sorted(self._txns))

    def add(self, txn: ProducerTxn) -> None:
        """Put a transaction in, in place of another one that began at the same offset."""
        self._txns[txn.first_offset] = txn
        if self.first is None or txn.first_offset <= self.first.first_offset:
            self.first = txn

    def pop(self, first_offset: int) -> ProducerTxn | None:
        """Take the transaction out that began at an offset; None if there is none."""
        txn = self._txns.pop(first_offset, None)
        if txn is self.first:
            self._find_first()
        return txn

    def first_of_others(self, producer_id: int) -> ProducerTxn | None:
        """The lowest transaction that is not of this producer."""
        if self.first is None or self.first.producer_id != producer_id:
            return self.first
        return next((txn for txn in self if txn.producer_id != producer_id), None)

    def remove_ended_before(self, offset: int) -> None:
        """Drop the transactions whose markers lie below an offset."""
        if not self._txns:
            return
        self._txns = {
            start: txn for start, txn in self._txns.items() if txn.last_offset is None or txn.last_offset >= offset
        }
        self._find_first()

    def clear(self) -> None:
        """Drop all."""
        self._txns.clear()
        self.first = None

    def _find_first(self) -> None:
        self.first = self._txns[min(self._txns)] if self._txns else None
