"""Compacting topics of a root while no broker runs: what would be won, and the work.

Rounds follow one another until everything is clean that may be: up to the last stable offset below the checkpointed
high watermark, never the active segment, never what is younger than min.compaction.lag.ms. The dirty ratio, by which a
broker decides whether a round is worth it, is not asked: somebody wants it now.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.errors import InvalidConfigError
from tidelog.log.compaction.cleanable import CleanableLog, cleanable_log
from tidelog.log.compaction.cleaner import CleanedRound, Cleaner, CleanerStats
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.record_filter import FilterCounts
from tidelog.log.config import LogConfig
from tidelog.log.config_values import Kind, Setting, at_least
from tidelog.log.names import CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, TopicPartition
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.unified_log import UnifiedLog

__all__ = ["Compacted", "CompactionSettings", "compact_partition"]

OnProgress = Callable[[int, int], None]  # bytes read so far, and in all

_PRODUCER_EXPIRATION = "producer.id.expiration.ms"


class CompactionSettings(NamedTuple):
    """What a directory does not tell: the configs of its topics, and those of the broker that matter here."""

    topic: LogConfig
    cleaner: CleanerConfig
    producer_id_expiration_ms: int  # the last batch of a producer stays until it was silent for so long

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "CompactionSettings":
        """Read configs by Kafka's names; those not given have Kafka's defaults."""
        own = {*CleanerConfig.names(), _PRODUCER_EXPIRATION}
        topic = {name: value for name, value in properties.items() if name not in own}
        config = LogConfig.from_properties({"cleanup.policy": "compact", **topic})
        if not config.is_compacted:
            raise InvalidConfigError(f"cleanup.policy={topic['cleanup.policy']} is not one that compacts")
        expiration = Setting(Kind.INT, at_least(1), ()).parse(
            _PRODUCER_EXPIRATION, properties.get(_PRODUCER_EXPIRATION, "86400000")
        )
        return cls(replace(config, file_delete_delay_ms=0), CleanerConfig.from_properties(properties), expiration)


@dataclass
class Compacted:
    """What compaction did to a partition, or would do."""

    partition: TopicPartition
    bytes_before: int
    bytes_after: int
    first_dirty: int  # where it began
    end_offset: int  # up to where it is clean now
    rounds: int = 0
    keys: int = 0  # in the maps of all rounds
    records: FilterCounts = field(default_factory=FilterCounts)
    is_partial: bool = False  # a dry run whose map was too small for all keys: more would be won
    why_nothing: str | None = None


def compact_partition(
    root: OfflineRoot,
    partition: TopicPartition,
    settings: CompactionSettings,
    on_progress: OnProgress = lambda done, total: None,
) -> Compacted:
    """Compact one partition, in as many rounds as its keys need; in a dry run, only count."""
    expiration_ms = settings.producer_id_expiration_ms
    with root.open_log(partition, settings.topic, producer_id_expiration_ms=expiration_ms) as log:
        done = _compact(root, log, Cleaner(settings.cleaner, root.clock), on_progress)
        log.tick()  # what was replaced is deleted now: nobody reads it
    return done


def _compact(root: OfflineRoot, log: UnifiedLog, cleaner: Cleaner, on_progress: OnProgress) -> Compacted:
    partition = log.topic_partition
    now_ms = root.clock.now_ms()
    dirty = cleanable_log(log, root.checkpointed(CLEANER_CHECKPOINT, partition), now_ms)
    done = Compacted(partition, log.size, log.size, dirty.first_dirty, dirty.first_dirty)
    if not dirty.cleanable_bytes:
        done.why_nothing = _why_nothing(root, dirty)
    while dirty.cleanable_bytes and dirty.first_dirty < dirty.first_uncleanable_offset:
        end_offset, stats = _run_round(root, cleaner, dirty, now_ms, on_progress)
        done.rounds += 1
        done.keys += stats.keys
        done.records.add(stats.records)
        done.end_offset = end_offset
        done.bytes_after -= stats.bytes_read - stats.bytes_written
        if root.is_dry_run:
            done.is_partial = end_offset < dirty.first_uncleanable_offset
            break
        root.note_cleaned(partition, end_offset)
        dirty = cleanable_log(log, end_offset, now_ms)
    return done


def _run_round(
    root: OfflineRoot, cleaner: Cleaner, dirty: CleanableLog, now_ms: int, on_progress: OnProgress
) -> CleanedRound:
    stats = CleanerStats()
    work = (cleaner.preview if root.is_dry_run else cleaner.clean)(dirty, now_ms, stats)
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: CleanedRound = end.value
            return result
        on_progress(stats.map_bytes + stats.bytes_read, stats.bytes_to_read)


def _why_nothing(root: OfflineRoot, dirty: CleanableLog) -> str:
    log = dirty.log
    if dirty.first_dirty >= log.active_segment.base_offset:
        return "everything before the active segment is clean"
    if root.checkpointed(HIGH_WATERMARK_CHECKPOINT, log.topic_partition) is None:
        return f"{HIGH_WATERMARK_CHECKPOINT} does not name it, so nothing is known to be replicated"
    return (
        f"from offset {dirty.first_dirty} on nothing may be cleaned yet (last stable offset {log.last_stable_offset})"
    )
