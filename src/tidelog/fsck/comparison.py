"""Two sequences of batches laid beside each other by their offsets, and counted.

    equal           a batch of both sides has the same offsets and the same header
    different       the same offsets, another header: other records, another leader epoch
    other bounds    it overlaps batches of the other side, none of which has the same first and last offset
    only here       the other side has no batch with any of its offsets

Both sides come as chunks and go as soon as they are counted. A chunk is cut at the lower of the two last offsets that
are known: up to there nothing new can come on either side. What a batch that was cut off overlaps may be gone by the
time it is counted, so each side remembers where the last batch of the other one ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from tidelog.fsck.batch_rows import BatchRows, checksums_of

__all__ = ["Divergence", "DivergenceKind", "SideCounts", "Tally", "compare_batches"]

_NOWHERE = 2**63 - 1
_Flags = np.ndarray[Any, np.dtype[np.bool_]]


class DivergenceKind(StrEnum):
    """In what two logs differ at an offset."""

    RECORDS = "records"  # batches of the same offsets with other checksums
    LEADER_EPOCH = "leader epoch"  # batches that are equal but for that
    HEADER = "header"  # the same checksum, another header: one of the two is damaged
    BOUNDS = "bounds"  # batches that begin or end at other offsets
    ONLY_LEFT = "only in A"
    ONLY_RIGHT = "only in B"


class Divergence(NamedTuple):
    """The lowest offset of a batch that has no equal on the other side."""

    offset: int
    kind: DivergenceKind


@dataclass
class SideCounts:
    """The batches of one side that have no counterpart."""

    only_here: int = 0
    other_bounds: int = 0


@dataclass
class Tally:
    """What was counted."""

    left: SideCounts
    right: SideCounts
    equal: int = 0
    different: int = 0  # pairs
    different_epoch: int = 0  # of these, the pairs that are equal but for the leader epoch
    first: Divergence | None = None

    @property
    def is_equal(self) -> bool:
        return self.first is None

    @property
    def has_other_bounds(self) -> bool:
        """Whether both sides may hold the same records in other batches."""
        return bool(self.left.other_bounds or self.right.other_bounds)


def compare_batches(left: Iterator[BatchRows], right: Iterator[BatchRows], *, epochs: bool = True) -> Tally:
    """Count what two logs have in common; without `epochs` those of the leaders may differ."""
    tally = Tally(SideCounts(), SideCounts())
    if not epochs:
        left, right = map(BatchRows.without_epochs, left), map(BatchRows.without_epochs, right)
    one, two = _Side(left), _Side(right)
    while one.fill() | two.fill():
        horizon = min(one.horizon, two.horizon)
        _count(tally, one.up_to(horizon), two.up_to(horizon))
    return tally


class _Piece(NamedTuple):
    """The batches of a side up to the horizon, all that are known, and where those before them ended."""

    batches: BatchRows
    known: BatchRows
    before: int


class _Side:
    def __init__(self, chunks: Iterator[BatchRows]) -> None:
        self._chunks = chunks
        self._known = BatchRows.none()
        self._is_ended = False
        self._before = -1

    def fill(self) -> bool:
        """Have batches, unless there are none any more; whether there are."""
        while not len(self._known) and not self._is_ended:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._is_ended = True
            else:
                self._known = chunk
        return bool(len(self._known))

    @property
    def horizon(self) -> int:
        """Up to which offset all batches are known. One more chunk would tell whether these are the last."""
        return int(self._known.last[-1]) if len(self._known) else _NOWHERE

    def up_to(self, horizon: int) -> _Piece:
        """Take the batches that end at the horizon or before."""
        count = int(np.searchsorted(self._known.last, horizon, side="right"))
        piece = _Piece(self._known.pick(slice(count)), self._known, self._before)
        if count:
            self._before = int(piece.batches.last[-1])
            self._known = self._known.pick(slice(count, None))
        return piece


def _count(tally: Tally, left: _Piece, right: _Piece) -> None:
    """Count what lies up to the horizon."""
    ones, twos = left.batches, right.batches
    if not _have_same_bounds(ones, twos):
        of_left, of_right = _pairs(ones, twos)
        _count_unpaired(tally, tally.left, ones.pick(~of_left), right, DivergenceKind.ONLY_LEFT)
        _count_unpaired(tally, tally.right, twos.pick(~of_right), left, DivergenceKind.ONLY_RIGHT)
        ones, twos = ones.pick(of_left), twos.pick(of_right)
    is_same = ones.equal_to(twos)
    tally.equal += int(is_same.sum())
    if not is_same.all():
        _count_different(tally, ones.pick(~is_same), twos.pick(~is_same))


def _have_same_bounds(left: BatchRows, right: BatchRows) -> bool:
    return np.array_equal(left.first, right.first) and np.array_equal(left.last, right.last)


def _pairs(left: BatchRows, right: BatchRows) -> tuple[_Flags, _Flags]:
    """Which batches of both sides have the same first and last offset as one of the other."""
    _, at_left, at_right = np.intersect1d(left.first, right.first, assume_unique=True, return_indices=True)
    ends_alike = left.last[at_left] == right.last[at_right]
    of_left, of_right = np.zeros(len(left), bool), np.zeros(len(right), bool)
    of_left[at_left[ends_alike]] = True
    of_right[at_right[ends_alike]] = True
    return of_left, of_right


def _count_different(tally: Tally, ones: BatchRows, twos: BatchRows) -> None:
    """Count pairs that are not equal."""
    is_epoch_only = ones.without_epochs().equal_to(twos.without_epochs())
    tally.different += len(ones)
    tally.different_epoch += int(is_epoch_only.sum())
    if is_epoch_only[0]:
        kind = DivergenceKind.LEADER_EPOCH
    elif checksums_of(ones)[0] != checksums_of(twos)[0]:
        kind = DivergenceKind.RECORDS
    else:
        kind = DivergenceKind.HEADER
    _note(tally, ones, kind)


def _count_unpaired(tally: Tally, counts: SideCounts, batches: BatchRows, other: _Piece, only: DivergenceKind) -> None:
    if not len(batches):
        return
    overlaps = batches.first <= other.before
    if len(other.known):
        after = np.searchsorted(other.known.last, batches.first)  # the first batch that does not end before this one
        is_there = after < len(other.known)
        begins = other.known.first[np.where(is_there, after, 0)]
        overlaps |= is_there & (begins <= batches.last)
    counts.other_bounds += int(overlaps.sum())
    counts.only_here += int((~overlaps).sum())
    _note(tally, batches, DivergenceKind.BOUNDS if overlaps[0] else only)


def _note(tally: Tally, batches: BatchRows, kind: DivergenceKind) -> None:
    """Note the first of some batches, if it is the first of all."""
    offset = int(batches.first[0])
    if tally.first is None or offset < tally.first.offset:
        tally.first = Divergence(offset, kind)
