"""Offsets together with the place in the files where they lie."""

import operator
from typing import NamedTuple, SupportsIndex

from tidelog.errors import InvalidRequestError, OffsetOutOfRangeError

__all__ = ["MAX_OFFSET", "OffsetMetadata", "TimestampAndOffset", "as_offset"]

UNKNOWN = -1
MAX_OFFSET = 2**63 - 1  # the largest log end: a record has an offset below it, so that the next offset fits 64 bits


def as_offset(value: SupportsIndex, what: str) -> int:
    """A whole number from 0 on, which is what an offset must be before anything is done with it.

    >>> as_offset(2.5, "an offset")
    Traceback (most recent call last):
      ...
    tidelog.errors.InvalidRequestError: 2.5 is no offset: an offset is a whole number from 0 on
    """
    try:
        offset = operator.index(value)
    except TypeError:
        raise InvalidRequestError(_refusal(value, what)) from None
    if not 0 <= offset <= MAX_OFFSET:
        raise OffsetOutOfRangeError(_refusal(value, what))
    return offset


def _refusal(value: object, what: str) -> str:
    return f"{value!r} is no offset: {what} is a whole number from 0 on"


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
