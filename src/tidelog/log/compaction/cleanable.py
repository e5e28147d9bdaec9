"""What of a log can be cleaned: from where, up to where, and how much of it that is.

    log start       first dirty        uncleanable          active segment
    |--- clean -----|--- dirty, cleanable --|--- dirty, not yet ---|-------->

Below the first dirty offset, which the cleaner keeps in a checkpoint, no key occurs twice. What is not decided yet
(the last stable offset), what is being written (the active segment) and what is younger than min.compaction.lag.ms is
not touched. Segments are cleaned as a whole, so the end is that of a segment.

Kafka: LogToClean, LogCleanerManager.cleanableOffsets.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.log.names import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.unified_log import UnifiedLog

__all__ = ["CleanableLog", "cleanable_log"]


@dataclass(frozen=True, slots=True, eq=False)
class CleanableLog:
    """A log, and the offsets to clean. Bytes are those of whole segments, as they were when it was made.

    A segment that the first dirty offset falls into counts on both sides of it, as in Kafka.
    """

    log: "UnifiedLog"
    first_dirty: int
    uncleanable: int
    must_compact: bool = False  # whatever the ratio: max.compaction.lag.ms has passed
    resets_checkpoint: bool = False  # the checkpoint was not an offset of this log and must be written anew
    delay_ms: int = 0  # by how much max.compaction.lag.ms was exceeded

    first_uncleanable_offset: int = field(init=False)  # `uncleanable`, at the base of its segment
    clean_bytes: int = field(init=False)
    cleanable_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        segments = self.log.local.segments
        inactive = segments.inactive_from(self.uncleanable)
        end = (inactive[0] if inactive else segments.active).base_offset
        cleanable = segments.between(min(self.first_dirty, end), end)
        object.__setattr__(self, "first_uncleanable_offset", end)
        object.__setattr__(self, "clean_bytes", sum(segment.size for segment in segments.between(-1, self.first_dirty)))
        object.__setattr__(self, "cleanable_bytes", sum(segment.size for segment in cleanable))

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        """How much of it is dirty."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the topic wants it to be cleaned now."""
        return (self.must_compact and self.cleanable_bytes > 0) or (
            self.ratio > self.log.config.min_cleanable_dirty_ratio
        )


def cleanable_log(log: "UnifiedLog", checkpointed: int | None, now_ms: int) -> CleanableLog:
    """What of a log can be cleaned now, if its checkpoint says that it is clean below `checkpointed`."""
    first_dirty = log.log_start_offset if checkpointed is None else checkpointed
    resets_checkpoint = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if resets_checkpoint:  # deleted from, or cut: of what is left nothing is known
        first_dirty = log.log_start_offset
    delay_ms = _compaction_delay_ms(log, first_dirty, now_ms)
    return CleanableLog(
        log,
        first_dirty,
        max(first_dirty, _first_uncleanable(log, first_dirty, now_ms)),
        must_compact=delay_ms > 0,
        resets_checkpoint=resets_checkpoint,
        delay_ms=delay_ms,
    )


def _first_uncleanable(log: "UnifiedLog", first_dirty: int, now_ms: int) -> int:
    """The first offset that is undecided, or in the active segment, or in one that is too young."""
    segments, lag_ms = log.local.segments, log.config.min_compaction_lag_ms
    end = min(log.last_stable_offset, segments.active.base_offset)
    if lag_ms > 0:
        for segment in segments.inactive_from(first_dirty):
            if segment.largest_timestamp_ms > now_ms - lag_ms:
                return min(end, segment.base_offset)
    return end


def _compaction_delay_ms(log: "UnifiedLog", first_dirty: int, now_ms: int) -> int:
    """By how much the oldest dirty segment is older than max.compaction.lag.ms, by the time of its first batch."""
    limit_ms = now_ms - log.config.max_compaction_lag_ms
    if limit_ms <= 0:
        return 0  # nothing is that old, and nothing need be read to know it
    first_times = [segment.first_batch_timestamp_ms for segment in log.local.segments.inactive_from(first_dirty)]
    return max(limit_ms - min((time for time in first_times if time > 0), default=limit_ms), 0)
