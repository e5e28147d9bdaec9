"""Which segments may go: those below the log start, those beyond retention.bytes, those older than retention.ms.

Segments are asked oldest first and the first that must stay ends the walk, so a log never has holes. Nothing above the
high watermark goes, and an empty active segment stays: there would be nothing to win.

Segments beyond retention.bytes go because of newer bytes, so these are flushed first: power loss must not leave less
than retention.bytes. A host that waits for the disk in other threads is given that flush as a task; what is not on the
disk yet does not count before the next time it asks.

Kafka: UnifiedLog.deleteOldSegments.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidelog.log.segment import LogSegment

if TYPE_CHECKING:
    from tidelog.log.unified_log import UnifiedLog

__all__ = ["deletable_segments"]

Rule = Callable[[LogSegment, LogSegment | None], bool]


def deletable_segments(log: "UnifiedLog") -> Iterator[list[LogSegment]]:
    """Up to three lists, by the three rules. Delete each list before asking for the next."""
    yield _pick(log, lambda _, following: following is not None and following.base_offset <= log.log_start_offset)
    if log.config.deletes:
        if log.config.retention_bytes >= 0 and log.size >= log.config.retention_bytes:
            yield _beyond_retention_bytes(log)
        if log.config.retention_ms >= 0:
            oldest_ms = log.local.clock.now_ms() - log.config.retention_ms
            yield _pick(log, lambda segment, _: segment.largest_timestamp_ms < oldest_ms)


def _beyond_retention_bytes(log: "UnifiedLog") -> list[LogSegment]:
    """The segments that go because of newer bytes, which are on the disk."""
    beyond = _pick(log, _beyond_size(log.size - log.config.retention_bytes))
    if not beyond or log.recovery_point >= log.log_end_offset:
        return beyond
    if log.local.schedule.hands_out_disk_tasks:
        log.flush_soon(log.log_end_offset)
        return _pick(log, _beyond_size(_flushed_size(log) - log.config.retention_bytes))
    following = log.local.segments.higher(beyond[-1].base_offset)
    if following is not None:
        log.local.flush(log.log_end_offset, start=following.base_offset)  # and not what is about to go
    return beyond


def _flushed_size(log: "UnifiedLog") -> int:
    """How many bytes of the log are below the recovery point."""
    place = log.local.locate(log.recovery_point)
    return place.position + sum(segment.size for segment in log.segments if segment.base_offset < place.segment_base)


def _beyond_size(excess: int) -> Rule:
    """Segments go while what is left stays at or above the limit."""

    def is_beyond(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return is_beyond


def _pick(log: "UnifiedLog", rule: Rule) -> list[LogSegment]:
    picked = []
    segments = log.segments
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        end = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < end or (following is None and not segment.size) or not rule(segment, following):
            break
        picked.append(segment)
    return picked
