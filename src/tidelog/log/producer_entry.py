"""What a log remembers of one producer: its epoch, its newest batches, its open transaction.

An idempotent producer numbers its records per partition: 0, 1, 2 … 2147483647, 0 …; the batch carries the number of
its first record. The five newest batches are remembered, because a client has at most five requests under way: one
that is sent again after a lost answer is recognised among them. The epoch counts incarnations of one producer id;
whoever comes with an older one has been fenced. A new epoch starts again at sequence 0 and forgets the batches.

Kafka: ProducerStateEntry, BatchMetadata.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.log.batch_info import BatchInfo
from tidelog.records.java import decrement_sequence

__all__ = ["MAX_CACHED_BATCHES", "NO_EPOCH", "NO_SEQUENCE", "BatchMetadata", "ProducerEntry"]

MAX_CACHED_BATCHES = 5
NO_EPOCH = -1
NO_SEQUENCE = -1


class BatchMetadata(NamedTuple):
    """A batch as it was appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset minus first, which compaction keeps
    timestamp_ms: int  # the highest in the batch

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer. Without batches its sequences and offsets are -1."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        txn_first_offset: int | None = None,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch  # of the coordinator that wrote the last marker
        self.last_timestamp_ms = last_timestamp_ms
        self.txn_first_offset = txn_first_offset
        self.batches: list[BatchMetadata] = [*batches]  # at most five, the oldest first

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self.__slots__))
        return f"ProducerEntry({fields})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def first_sequence(self) -> int:
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def first_offset(self) -> int:
        """Of the oldest batch that is remembered."""
        return self.batches[0].first_offset if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Of the newest data; markers do not count."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, batch: BatchInfo) -> BatchMetadata | None:
        """The remembered batch of the same epoch and exactly the same sequences."""
        if self.epoch == batch.producer_epoch:
            last_sequence = batch.last_sequence
            for known in self.batches:
                if known.last_sequence == last_sequence and known.first_sequence == batch.base_sequence:
                    return known
        return None

    def set_epoch(self, epoch: int) -> None:
        """Take over the epoch of a batch or marker. Batches of another one are forgotten."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches.clear()

    def take_over(self, newer: "ProducerEntry") -> None:
        """Become `newer`, whose batches come behind the ones known here if its epoch is the same."""
        if self.epoch != newer.epoch:
            self.set_epoch(newer.epoch)
        batches = self.batches
        batches += newer.batches
        if len(batches) > MAX_CACHED_BATCHES:
            del batches[:-MAX_CACHED_BATCHES]
        self.coordinator_epoch = newer.coordinator_epoch
        self.txn_first_offset = newer.txn_first_offset
        self.last_timestamp_ms = newer.last_timestamp_ms
