"""Logs as lists of batches, in a few words, and what a comparison of two such lists must find.

one = [Part(0, 3), Part(4, 4, crc=7)]
other = [*one[:1], Part(4, 6)]
expected(one, other)                  by the definition, every batch against every other
chunks(one, 2)                        as rows of headers, two at a time
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.fsck.batch_rows import BatchRows, rows_in
from tidelog.fsck.comparison import Divergence, DivergenceKind, SideCounts, Tally
from tidelog.log.batch_windows import whole_window

_HEADER = struct.Struct(">qiibIhiqqqhii")


class Part(NamedTuple):
    """The header of a batch without records: nobody looks at them."""

    first: int
    last: int
    crc: int = 0
    epoch: int = 0
    producer: int = -1

    def pack(self) -> bytes:
        fields = self.first, _HEADER.size - 12, self.epoch, 2, self.crc, 0, self.last - self.first
        return _HEADER.pack(*fields, 0, 0, self.producer, -1, -1, 0)

    def overlaps(self, other: "Part") -> bool:
        return self.first <= other.last and other.first <= self.last

    def has_bounds_of(self, other: "Part") -> bool:
        return self[:2] == other[:2]


def chunks(parts: Sequence[Part], size: int, *, fast: bool = False) -> Iterator[BatchRows]:
    """The headers, so many at a time."""
    for at in range(0, len(parts), size):
        data = b"".join(part.pack() for part in parts[at : at + size])
        yield rows_in(whole_window(memoryview(data), 0, "a list", fast=fast))


def expected(left: Sequence[Part], right: Sequence[Part], *, epochs: bool = True) -> Tally:
    """What the definition in tidelog.fsck.comparison says, by looking at every pair."""
    tally = Tally(SideCounts(), SideCounts())
    found: list[Divergence] = []
    for one in left:
        for two in right:
            if one.has_bounds_of(two):
                _compare_pair(tally, found, one, two, epochs)
    _compare_unpaired(tally.left, found, left, right, DivergenceKind.ONLY_LEFT)
    _compare_unpaired(tally.right, found, right, left, DivergenceKind.ONLY_RIGHT)
    tally.first = min(found, key=lambda divergence: divergence.offset, default=None)
    return tally


def _compare_pair(tally: Tally, found: list[Divergence], one: Part, two: Part, epochs: bool) -> None:
    is_epoch_only = one != two and one._replace(epoch=0) == two._replace(epoch=0)
    if one == two or (is_epoch_only and not epochs):
        tally.equal += 1
        return
    tally.different += 1
    tally.different_epoch += is_epoch_only
    kind = DivergenceKind.RECORDS if one.crc != two.crc else DivergenceKind.HEADER
    found.append(Divergence(one.first, DivergenceKind.LEADER_EPOCH if is_epoch_only else kind))


def _compare_unpaired(
    counts: SideCounts, found: list[Divergence], ours: Sequence[Part], theirs: Sequence[Part], only: DivergenceKind
) -> None:
    for part in ours:
        if any(part.has_bounds_of(other) for other in theirs):
            continue
        has_other_bounds = any(part.overlaps(other) for other in theirs)
        counts.other_bounds += has_other_bounds
        counts.only_here += not has_other_bounds
        found.append(Divergence(part.first, DivergenceKind.BOUNDS if has_other_bounds else only))
