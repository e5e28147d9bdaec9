"""What a read_committed consumer delivers of the batches it is sent.

A broker answers such a fetch with all batches up to the last stable offset, and the list of transactions among them
that were aborted: producer id and first offset. The client does the sieving: an aborted transaction is active from
its first offset until the producer's ABORT marker, and transactional batches of an active producer are dropped.
Control batches are never delivered, whatever the isolation level.

Kafka: the fetch collector of the Java consumer.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.records.batches import Batch
from tidelog.records.control import ControlType

__all__ = ["AbortedTxn", "committed_batches"]


class AbortedTxn(NamedTuple):
    """An aborted transaction, as fetch answers list it."""

    producer_id: int
    first_offset: int


def committed_batches(batches: Iterable[Batch], aborted: Iterable[AbortedTxn]) -> Iterator[Batch]:
    """The batches whose records a read_committed consumer delivers."""
    waiting = [(txn.first_offset, txn.producer_id) for txn in aborted]
    heapq.heapify(waiting)
    active: set[int] = set()
    for batch in batches:
        while waiting and waiting[0][0] <= batch.last_offset:
            active.add(heapq.heappop(waiting)[1])
        if batch.is_control:
            if _is_abort(batch):
                active.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in active):
            yield batch


def _is_abort(batch: Batch) -> bool:
    """Whether a control batch ends a transaction in vain. Its first key tells; the value is not looked at."""
    first = next(batch.records(), None)
    return first is not None and ControlType.parse(first.key) is ControlType.ABORT
