"""Proof that a transaction coordinator knows of a transaction, before its first batch is written.

A transactional batch that arrives late, when its transaction has already ended, would open one that nobody ever ends:
readers of committed data would wait for ever. So the server, before it appends the first batch of a transaction,
takes a guard, asks the coordinator whether this transaction includes this partition, and appends with that guard. A
guard is spent by the first transactional batch and by a marker. One that was taken before a marker is therefore worth
nothing behind it, even if the same producer has begun its next transaction. (Since version 2 of transactions each has
an epoch of its own, which tells them apart: a guard taken for the epoch that a marker opens survives the marker.)

While a guard is out, the lowest sequence that asked for it is kept: a batch behind it must not be written first.

Kafka: VerificationGuard, VerificationStateEntry.
"""

from typing import Final

__all__ = ["NO_GUARD", "VerificationEntry", "VerificationGuard"]


class VerificationGuard:
    """A token that is equal to itself alone."""

    __slots__ = ()

    def verifies(self, other: "VerificationGuard") -> bool:
        """Whether `other`, which came with a batch, is this guard. NO_GUARD verifies nothing, itself included."""
        return other is self and other is not NO_GUARD


NO_GUARD: Final = VerificationGuard()
"""Stands for the absence of a guard."""


class VerificationEntry:
    """A verification that has begun for a producer and has not been used."""

    __slots__ = ("created_ms", "epoch", "guard", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, created_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.guard = VerificationGuard()
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump  # the client speaks transactions of version 2

    def lower_to(self, sequence: int, epoch: int) -> None:
        """Note another batch that asks: a lower sequence of this epoch, or any sequence of a higher one, takes over."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
