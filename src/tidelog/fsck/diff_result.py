"""What a comparison of two log directories found, in words and as JSON. The sides are called A and B."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.fsck.comparison import Divergence, DivergenceKind, Tally
from tidelog.log.checkpoints import EpochEntry

if TYPE_CHECKING:
    from tidelog.fsck.record_comparison import RecordTally

__all__ = ["BatchPlace", "Comparison", "EpochVerdict", "Extent", "Outcome", "PartitionComparison"]


class Outcome(StrEnum):
    """How two copies of a partition stand to each other."""

    EQUAL = "equal"
    B_BEHIND = "B is behind"  # equal as far as both go
    A_BEHIND = "A is behind"
    SAME_RECORDS = "same records"  # in other batches, where records were asked for
    DIFFERENT = "different"
    APART = "apart"  # no offset is in both
    ONLY_A = "only in A"
    ONLY_B = "only in B"
    UNREADABLE = "unreadable"


class Extent(NamedTuple):
    """One copy: where it lies and which offsets it holds."""

    path: str
    start_offset: int
    end_offset: int  # behind the last record

    def __str__(self) -> str:
        return f"{self.start_offset}..{self.end_offset}"


class BatchPlace(NamedTuple):
    """A batch, where it lies, and its header by the names of docs/formats/record-batch.md."""

    file: str
    position: int
    first_offset: int
    last_offset: int
    leader_epoch: int  # -1 in the old formats
    header: dict[str, int]


class EpochVerdict(NamedTuple):
    """By which leaders the two sides have an offset that they disagree on."""

    a_epoch: int | None  # None: not known
    b_epoch: int | None
    a_history: tuple[EpochEntry, ...]  # the epoch that holds the offset, and those behind
    b_history: tuple[EpochEntry, ...]

    @property
    def truncated(self) -> str | None:
        """The side that a replica would cut there, since the larger epoch is right; None if epochs do not decide."""
        if self.a_epoch is None or self.b_epoch is None or self.a_epoch == self.b_epoch:
            return None
        return "A" if self.a_epoch < self.b_epoch else "B"

    def __str__(self) -> str:
        """The verdict in words."""
        if self.truncated is not None:
            right = "B" if self.truncated == "A" else "A"
            return f"{right} has it from the larger leader epoch: a replica with {self.truncated}'s log cuts it there"
        if self.a_epoch is None or self.b_epoch is None:
            return "leader epochs do not tell which side is right"
        return (
            f"both have it from leader epoch {self.a_epoch}, so this is no matter of truncation: a side is damaged, or "
            "was compacted or rewritten in other batches"
        )


@dataclass(frozen=True)
class PartitionComparison:
    """Two copies of a partition."""

    name: str
    a: Extent | None
    b: Extent | None
    tally: Tally | None = None  # of the batches that hold offsets of both
    a_place: BatchPlace | None = None  # the batch at the first difference, or the one that follows it
    b_place: BatchPlace | None = None
    epochs: EpochVerdict | None = None  # at the first difference
    records: "RecordTally | None" = None  # where they were asked for
    error: str | None = None

    @property
    def first(self) -> Divergence | None:
        """The first difference."""
        return None if self.tally is None else self.tally.first

    @property
    def common(self) -> tuple[int, int] | None:
        """The offsets that both have, from the first to before the second."""
        if self.a is None or self.b is None:
            return None
        start, end = max(self.a.start_offset, self.b.start_offset), min(self.a.end_offset, self.b.end_offset)
        return start, max(start, end)

    @property
    def outcome(self) -> Outcome:
        if self.error is not None:
            return Outcome.UNREADABLE
        if self.a is None or self.b is None:
            return Outcome.ONLY_B if self.a is None else Outcome.ONLY_A
        if _are_apart(self.a, self.b):
            return Outcome.APART
        if self.first is not None:
            return Outcome.SAME_RECORDS if self.records is not None and self.records.is_equal else Outcome.DIFFERENT
        if self.a.end_offset == self.b.end_offset:
            return Outcome.EQUAL
        return Outcome.B_BEHIND if self.b.end_offset < self.a.end_offset else Outcome.A_BEHIND

    def is_equal(self, *, strict: bool = False) -> bool:
        """Whether nothing contradicts the other side; with `strict`, whether both begin and end at the same offsets."""
        if self.outcome not in _NO_CONTRADICTION:
            return False
        assert self.a is not None
        assert self.b is not None
        return not strict or self.a[1:] == self.b[1:]

    @property
    def sentence(self) -> str:
        """The result in one line."""
        if self.error is not None:
            return self.error
        if self.a is None or self.b is None:
            return str(self.outcome)
        if self.outcome is Outcome.APART:
            return "no offset is in both"
        if self.first is not None:
            return self._difference(self.first) + self._distance(", and ")
        if self.outcome is Outcome.EQUAL:
            return "equal" + self._later_start()
        return f"{self._distance()}, equal up to there{self._later_start()}"

    def _distance(self, before: str = "") -> str:
        """Who is behind and by how much; nothing if both end at the same offset."""
        assert self.a is not None
        assert self.b is not None
        behind = self.a.end_offset - self.b.end_offset
        return f"{before}{'B' if behind > 0 else 'A'} is behind by {abs(behind)}" if behind else ""

    def _later_start(self) -> str:
        assert self.a is not None
        assert self.b is not None
        if self.a.start_offset == self.b.start_offset:
            return ""
        return f" (from {max(self.a.start_offset, self.b.start_offset)} on, where the later one begins)"

    def _difference(self, first: Divergence) -> str:
        if self.records is None:
            return f"different from offset {first.offset} on: {_KINDS[first.kind]}"
        if self.records.is_equal:
            return f"different batches from offset {first.offset} on, the same records"
        return str(self.records)

    def to_dict(self) -> dict[str, Any]:
        """For programs: every number, and the sentence."""
        tally, records, epochs = self.tally, self.records, self.epochs
        return {
            "partition": self.name,
            "outcome": str(self.outcome),
            "sentence": self.sentence,
            "a": None if self.a is None else self.a._asdict(),
            "b": None if self.b is None else self.b._asdict(),
            "common": None if self.common is None else dict(zip(("start", "end"), self.common, strict=True)),
            "batches": None if tally is None else _batches(tally),
            "first_difference": None if self.first is None else self._first_as_dict(self.first),
            "leader_epochs": None if epochs is None else _epochs(epochs),
            "records": None if records is None else _records(records),
            "error": self.error,
        }

    def _first_as_dict(self, first: Divergence) -> dict[str, Any]:
        places = {"a": self.a_place, "b": self.b_place}
        found = {side: None if place is None else place._asdict() for side, place in places.items()}
        return {"offset": first.offset, "kind": str(first.kind), **found}


_NO_CONTRADICTION = (Outcome.EQUAL, Outcome.A_BEHIND, Outcome.B_BEHIND, Outcome.SAME_RECORDS)
_KINDS = {
    DivergenceKind.RECORDS: "batches of the same offsets have other contents",
    DivergenceKind.LEADER_EPOCH: "batches are equal but for the leader epoch",
    DivergenceKind.HEADER: "the same checksum and another header, so one of the two is damaged: run tidelog fsck",
    DivergenceKind.BOUNDS: "different batches, of which --records tells whether the records are the same",
    DivergenceKind.ONLY_LEFT: "B lacks batches",
    DivergenceKind.ONLY_RIGHT: "A lacks batches",
}


def _are_apart(a: Extent, b: Extent) -> bool:
    """Whether no offset is in both, though both have some; an empty log that ends within the other is only behind."""
    start, end = max(a.start_offset, b.start_offset), min(a.end_offset, b.end_offset)
    has_empty = a.start_offset == a.end_offset or b.start_offset == b.end_offset
    return end < start or (end == start and not has_empty)


def _batches(tally: Tally) -> dict[str, int]:
    return {
        "equal": tally.equal,
        "different": tally.different,
        "different_leader_epoch_only": tally.different_epoch,
        "only_in_a": tally.left.only_here,
        "only_in_b": tally.right.only_here,
        "other_bounds_in_a": tally.left.other_bounds,
        "other_bounds_in_b": tally.right.other_bounds,
    }


def _records(tally: "RecordTally") -> dict[str, int | None]:
    return {
        "equal": tally.equal,
        "different": tally.different,
        "only_in_a": tally.only_left,
        "only_in_b": tally.only_right,
        "first_difference": tally.first_offset,
    }


def _epochs(verdict: EpochVerdict) -> dict[str, Any]:
    return {
        "a": verdict.a_epoch,
        "b": verdict.b_epoch,
        "a_history": [entry._asdict() for entry in verdict.a_history],
        "b_history": [entry._asdict() for entry in verdict.b_history],
        "truncated": verdict.truncated,
    }


@dataclass(frozen=True)
class Comparison:
    """Two sides, partition by partition."""

    partitions: tuple[PartitionComparison, ...]
    is_strict: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether every partition is on both sides and nothing contradicts."""
        return all(found.is_equal(strict=self.is_strict) for found in self.partitions)

    @property
    def is_readable(self) -> bool:
        """Whether every partition could be read to the end."""
        return all(found.error is None for found in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "is_equal": self.is_equal,
            "is_strict": self.is_strict,
            "partitions": [found.to_dict() for found in self.partitions],
        }
