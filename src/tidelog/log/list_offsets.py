"""Offsets by time, as ListOffsets answers.

    -1  latest            the limit of the reader's isolation
    -2  earliest          the log start
    -3  largest time      the first record that has the largest timestamp
    -4  earliest local    without tiering the same as -2
    -5  latest tiered     without tiering nothing: offset -1
    -6  earliest pending upload   likewise

Any other time T: the first segment whose largest timestamp reaches T holds the answer or nobody does. In it the first
record at or after T, in the order of offsets, not below the log start. Timestamps need not be in order: the answer is
the lowest offset of a candidate, not the candidate with the smallest time. What lies at or after the reader's limit
is no answer.

Kafka: UnifiedLog.fetchOffsetByTimestamp, Partition.fetchOffsetForTimestamp.
"""

from collections.abc import Iterable
from typing import Protocol

from tidelog.errors import InvalidRequestError, UnsupportedError
from tidelog.log.checkpoints import EpochEntry
from tidelog.log.lookup import Step
from tidelog.log.offsets import TimestampAndOffset
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.watermarks import Isolation

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "ensure_time",
    "offset_for_time",
]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_NO_TIMESTAMP = -1


class TimedLog(Protocol):
    """What must be known of a log to answer by time; one that is only looked at knows it, too."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int | None: ...

    @property
    def earliest_epoch(self) -> EpochEntry | None: ...

    @property
    def segments(self) -> Iterable[SegmentReader]: ...

    def limit_offset(self, isolation: Isolation) -> int: ...

    def first_segment_reaching(self, timestamp_ms: int) -> SegmentReader | None: ...


def ensure_time(value: object) -> None:
    """Raise InvalidRequestError for anything but a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{value!r} is no time: it is a number of milliseconds since 1970, or -1 to -6")


def offset_for_time(
    log: TimedLog, timestamp_ms: int, isolation: Isolation, trace: list[Step] | None = None
) -> TimestampAndOffset | None:
    """The answer to ListOffsets for one partition; None where there is no such record."""
    ensure_time(timestamp_ms)
    if timestamp_ms == LATEST:
        return TimestampAndOffset(_NO_TIMESTAMP, log.limit_offset(isolation), log.latest_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        earliest = log.earliest_epoch
        epoch = earliest.epoch if earliest is not None and earliest.start_offset <= log.log_start_offset else None
        return TimestampAndOffset(_NO_TIMESTAMP, log.log_start_offset, epoch)
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampAndOffset(_NO_TIMESTAMP, -1, -1)
    if timestamp_ms == MAX_TIMESTAMP:
        found = _largest(log)
    elif timestamp_ms < 0:
        raise UnsupportedError(f"the time {timestamp_ms} has no meaning; -1 to -6 have one")
    else:
        found = _first_at_or_behind(log, timestamp_ms, trace)
    return found if found is not None and found.offset < log.limit_offset(isolation) else None


def _largest(log: TimedLog) -> TimestampAndOffset | None:
    return max(log.segments, key=lambda segment: segment.max_timestamp.timestamp_ms).find_max_timestamp()


def _first_at_or_behind(log: TimedLog, timestamp_ms: int, trace: list[Step] | None) -> TimestampAndOffset | None:
    segment = log.first_segment_reaching(timestamp_ms)
    return None if segment is None else segment.find_time(timestamp_ms, log.log_start_offset, trace)
