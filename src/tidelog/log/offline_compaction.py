"""Compacting topics of a root while no broker runs: what would be saved, and the work.

Rounds follow one another until everything is clean that may be: up to the last stable offset below the checkpointed
high watermark, never the active segment, never what is younger than min.compaction.lag.ms. The dirty ratio, by which a
broker decides whether a round is worth it, is not asked: somebody wants it now.

Nothing is removed on the strength of bytes that are not on the disk (cleaner.py). The marker of a clean stop says that
a broker has flushed its files; nobody has flushed those of a directory that was copied or restored. So they are flushed
here, whatever the checkpoints say.

A tombstone goes in the second round that sees it, delete.retention.ms after the first. Where that is 0, the second
round follows at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.errors import InvalidConfigError, TidelogError
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
_MOST_EXTRA_ROUNDS = 2


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
        try:
            config = LogConfig.from_properties({"cleanup.policy": "compact", **topic})
        except InvalidConfigError as error:
            raise InvalidConfigError(
                str(error).replace("is no topic config", "is no topic or cleaner config")
            ) from error
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
    bytes_before: int = 0
    bytes_after: int = 0
    first_dirty: int = 0  # where it began
    end_offset: int = 0  # up to where it is clean now
    rounds: int = 0
    keys: int = 0  # in the maps of all rounds
    records: FilterCounts = field(default_factory=FilterCounts)
    is_partial: bool = False  # a dry run whose map was too small for all keys: more would be saved
    why_nothing: str | None = None
    error: str | None = None  # why it could not be done, or not to the end; the log is sound all the same


def compact_partition(
    root: OfflineRoot,
    partition: TopicPartition,
    settings: CompactionSettings,
    on_progress: OnProgress = lambda done, total: None,
) -> Compacted:
    """Compact one partition, in as many rounds as its keys need; in a dry run, only count.

    What is wrong with the partition is told in the result: others can be compacted all the same. If `on_progress`
    raises, the round is given up and the log closed in good order.
    """
    expiration_ms = settings.producer_id_expiration_ms
    done = Compacted(partition)
    try:
        with root.open_log(partition, settings.topic, producer_id_expiration_ms=expiration_ms) as log:
            try:
                _compact(root, log, Cleaner(settings.cleaner, root.clock), done, on_progress)
            finally:
                if log.failure is None:
                    log.tick()  # what was replaced is deleted now: nobody reads it
    except TidelogError as error:
        done.error = " ".join(str(error).split())
    return done


def _compact(root: OfflineRoot, log: UnifiedLog, cleaner: Cleaner, done: Compacted, on_progress: OnProgress) -> None:
    partition = log.topic_partition
    now_ms = root.clock.now_ms()
    dirty = cleanable_log(log, root.checkpointed(CLEANER_CHECKPOINT, partition), now_ms)
    done.bytes_before = done.bytes_after = log.size
    done.first_dirty = done.end_offset = dirty.first_dirty
    if not dirty.cleanable_bytes:
        done.why_nothing = _why_nothing(root, dirty)
    elif not root.is_dry_run:
        _flush_everything(log)
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
    if done.rounds and not root.is_dry_run and log.config.delete_retention_ms == 0:
        _drop_stamped(root, log, cleaner, done, on_progress)


def _flush_everything(log: UnifiedLog) -> None:
    """Have all batches and transaction indexes on the disk, and the names of their files. No index is created."""
    for segment in log.segments:
        segment.sync_log()
        segment.txn_index.flush()
    log.local.fs.sync_directory(log.directory)


def _drop_stamped(
    root: OfflineRoot, log: UnifiedLog, cleaner: Cleaner, done: Compacted, on_progress: OnProgress
) -> None:
    """Go over what is clean again: the tombstones that were stamped just now have waited long enough."""
    for _ in range(_MOST_EXTRA_ROUNDS):
        again = CleanableLog(log, max(done.end_offset - 1, log.log_start_offset), done.end_offset)
        _, stats = _run_round(root, cleaner, again, root.clock.now_ms(), on_progress)
        done.rounds += 1
        done.records.records_kept -= stats.records.records_read - stats.records.records_kept
        done.records.markers_kept -= stats.records.markers_read - stats.records.markers_kept
        done.records.tombstones_dropped += stats.records.tombstones_dropped
        done.records.tombstones_kept = stats.records.tombstones_kept
        done.bytes_after -= stats.bytes_read - stats.bytes_written
        if stats.bytes_read == stats.bytes_written:
            return


def _run_round(
    root: OfflineRoot, cleaner: Cleaner, dirty: CleanableLog, now_ms: int, on_progress: OnProgress
) -> CleanedRound:
    stats = CleanerStats()
    work = (cleaner.preview if root.is_dry_run else cleaner.clean)(dirty, now_ms, stats)
    on_progress(0, dirty.cleanable_bytes + dirty.total_bytes)
    try:
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: CleanedRound = end.value
                return result
            on_progress(stats.map_bytes + stats.bytes_read, stats.bytes_to_read)
    finally:
        work.close()  # if it is given up, half-written files go


def _why_nothing(root: OfflineRoot, dirty: CleanableLog) -> str:
    log = dirty.log
    if log.log_start_offset == log.log_end_offset:
        return "it is empty"
    if log.active_segment.base_offset <= log.log_start_offset:
        return "all of it is in the active segment, which is never compacted"
    if dirty.first_dirty >= log.active_segment.base_offset:
        return "everything before the active segment is clean"
    if root.checkpointed(HIGH_WATERMARK_CHECKPOINT, log.topic_partition) is None:
        return f"{HIGH_WATERMARK_CHECKPOINT} does not name it, so nothing is known to be replicated"
    if dirty.uncleanable < min(log.last_stable_offset, log.active_segment.base_offset):
        return f"what is not clean is younger than min.compaction.lag.ms={log.config.min_compaction_lag_ms}"
    return (
        f"from offset {dirty.first_dirty} on nothing may be cleaned yet (last stable offset {log.last_stable_offset})"
    )
