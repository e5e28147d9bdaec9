"""Offsets together with the place in the files where they lie."""

from typing import NamedTuple

from tidelog.errors import InvalidRequestError

__all__ = ["OffsetMetadata", "TimestampAndOffset"]

UNKNOWN = -1


class OffsetMetadata(NamedTuple):
    """An offset, and where the batch that holds it begins, if that is known."""

    offset: int
    segment_base: int = UNKNOWN
    position: int = UNKNOWN

    @property
    def is_offset_only(self) -> bool:
        return self.position < 0

    def is_on_older_segment(self, other: "OffsetMetadata") -> bool:
        """Whether this place lies in an earlier segment than `other`; never true of a place that is not known."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base < other.segment_base

    def is_on_same_segment(self, other: "OffsetMetadata") -> bool:
        """Whether both places are known and lie in one segment."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base == other.segment_base

    def bytes_from(self, other: "OffsetMetadata") -> int:
        """How many bytes lie between `other` and this place of the same segment."""
        if not self.is_on_same_segment(other):
            raise InvalidRequestError(f"{self} and {other} do not lie in one segment")
        return self.position - other.position


class TimestampAndOffset(NamedTuple):
    """The answer to a question by time; `leader_epoch` is None where it is not known."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None = None
