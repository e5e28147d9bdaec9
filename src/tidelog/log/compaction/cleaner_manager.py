"""Which logs want to be cleaned, which of them most, and which are to be left alone.

Every look goes over all logs anew: logs come and go, and their configs change. What is found has a state until whoever
took it lets go (cleaner_states.py), so that nobody else touches it meanwhile.

A partition whose cleaning ended with an error is not touched again until it is deleted or the broker restarts; the
others are cleaned. What the disk refuses fails the root.

Kafka: LogCleanerManager.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from tidelog.errors import CorruptionError, LogClosedError, StorageError, TooManyFilesError
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.clock import Clock
from tidelog.log.compaction.cleanable import CleanableLog, cleanable_log
from tidelog.log.compaction.cleaner_checkpoints import CleanerCheckpoints
from tidelog.log.compaction.cleaner_states import CleaningStates, State
from tidelog.log.files import parent_of
from tidelog.log.names import TopicPartition
from tidelog.log.unified_log import UnifiedLog

__all__ = ["CleanerManager", "root_of"]


class CleanerManager:
    """What the cleaner knows of the partitions: their states, their checkpoints, and what is wrong with them."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, UnifiedLog],
        checkpoints: Mapping[str, OffsetCheckpoint],
        clock: Clock,
        on_root_failure: Callable[[str, StorageError], None],
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.max_dirty_ratio = 0.0  # of the dirtiest log, when it was last looked for
        self.max_compaction_delay_ms = 0  # by how much max.compaction.lag.ms was exceeded then
        self._logs = logs
        self._clock = clock
        self._on_root_failure = on_root_failure
        self._notice = notice
        self._checkpoints = CleanerCheckpoints(checkpoints, logs, self._disk_refused)
        self._states = CleaningStates()
        self._uncleanable: dict[str, dict[TopicPartition, Exception | None]] = {}
        self._looked_ms = clock.monotonic_ms()

    # -- who is next ---------------------------------------------------------------------------------------------

    def grab_filthiest(self) -> CleanableLog | None:
        """The log with the highest share of dirty bytes among those due, in progress from now on. None: no log is.

        Checkpoints that are no offsets of their logs are rewritten on the way, of all logs. Who calls this says
        `done_cleaning` when done.
        """
        self._looked_ms = self._clock.monotonic_ms()
        dirty = [found for found in [*self._dirty_logs()] if not self._checkpoints.has_failed(root_of(found.log))]
        self.max_dirty_ratio = max((found.ratio for found in dirty), default=0.0)
        self.max_compaction_delay_ms = max((found.delay_ms for found in dirty), default=0)
        filthiest = max((found for found in dirty if found.is_due), key=lambda found: found.ratio, default=None)
        if filthiest is not None:
            self._states.begin(filthiest.topic_partition)
        return filthiest

    def _dirty_logs(self) -> Iterator[CleanableLog]:
        now_ms = self._clock.now_ms()
        checkpointed: dict[str, dict[TopicPartition, int]] = {}
        for partition, log in self._idle_compacted():
            root = root_of(log)
            try:
                if root not in checkpointed:
                    checkpointed[root] = self._checkpoints.read(root)
                found = cleanable_log(log, checkpointed[root].get(partition), now_ms)
                if found.resets_checkpoint:
                    self.update_checkpoint(root, add=(partition, found.first_dirty))
            except StorageError as error:
                self._disk_refused(root, error)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with this log, the others are looked at
                self.mark_uncleanable(root, partition, error)
            else:
                yield found

    def _idle_compacted(self) -> Iterator[tuple[TopicPartition, UnifiedLog]]:
        """The compacted logs that nobody is busy with, and nothing is wrong with."""
        for partition, log in list(self._logs.items()):
            root = root_of(log)
            if (
                log.config.is_compacted
                and partition not in self._states
                and partition not in self._uncleanable.get(root, ())
                and log.failure is None
                and not self._checkpoints.has_failed(root)
            ):
                yield partition, log

    def deletable(self) -> list[tuple[TopicPartition, UnifiedLog]]:
        """The compacted logs that nobody is busy with, in progress until `done_deleting`.

        Those without `delete` are among them: segments below their log start go, too.
        """
        found = list(self._idle_compacted())
        for partition, _ in found:
            self._states.begin(partition)
        return found

    def done_deleting(self, partitions: Iterable[TopicPartition]) -> None:
        """Let go of what `deletable` gave."""
        for partition in partitions:
            self._states.done(partition)

    def done_cleaning(self, partition: TopicPartition, root: str, end_offset: int) -> None:
        """Let go of what `grab_filthiest` gave, and note that it is clean below `end_offset`, unless it was aborted."""
        if self._states.done(partition):
            self.update_checkpoint(root, add=(partition, end_offset))

    # -- keeping out of the way ----------------------------------------------------------------------------------

    def state_of(self, partition: TopicPartition) -> State | None:
        """What is being done to a partition."""
        return self._states.get(partition)

    def abort(self, partition: TopicPartition) -> None:
        """Give up the cleaning of a partition, if it is under way; it may begin again."""
        self.abort_and_pause(partition)
        self.resume([partition])

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Give up the cleaning of a partition, if it is under way, and do not begin it before it is resumed."""
        self._states.pause(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each."""
        for partition in partitions:
            self._states.resume(partition)

    def pause_retention_logs(self) -> list[tuple[TopicPartition, UnifiedLog]]:
        """The logs without compaction that nobody is busy with, paused until resumed: for a pass of retention.

        The policy of a topic may change while the pass is under way.
        """
        found = [
            (partition, log)
            for partition, log in self._logs.items()
            if not log.config.is_compacted and partition not in self._states
        ]
        for partition, _ in found:
            self._states.pause(partition)
        return found

    # -- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def first_dirty_offsets(self) -> dict[TopicPartition, int]:
        """Up to where each partition is clean, by the checkpoints of all roots."""
        return self._checkpoints.read_all()

    def update_checkpoint(
        self, root: str, *, add: tuple[TopicPartition, int] | None = None, remove: TopicPartition | None = None
    ) -> None:
        """Rewrite the checkpoint of a root with one entry set, or without that of a partition that is deleted."""
        self._checkpoints.update(root, add=add, remove=remove)
        if remove is not None:
            self._uncleanable.get(root, {}).pop(remove, None)

    def move_checkpoint(self, partition: TopicPartition, from_root: str, to_root: str) -> None:
        """Take what is known of a partition from one root to another."""
        self._checkpoints.move(partition, from_root, to_root)
        uncleanable = self._uncleanable.get(from_root, {})
        if partition in uncleanable:
            self.mark_uncleanable(to_root, partition, uncleanable.pop(partition))

    def truncate_checkpoint(self, root: str, partition: TopicPartition, offset: int) -> None:
        """Lower the checkpoint of a partition that was truncated to `offset`, if it is above."""
        self._checkpoints.lower(root, partition, offset)

    def root_failed(self, root: str) -> None:
        """Touch nothing in a root again."""
        self._checkpoints.forget(root)

    def _disk_refused(self, root: str, error: StorageError) -> None:
        """Fail a root, once, unless it is not the disk's fault."""
        if isinstance(error, LogClosedError | TooManyFilesError) or self._checkpoints.has_failed(root):
            return
        self.root_failed(root)
        self._on_root_failure(root, error)

    # -- what is left alone --------------------------------------------------------------------------------------

    def mark_uncleanable(self, root: str, partition: TopicPartition, error: Exception | None = None) -> None:
        """Leave a partition alone until it is deleted, or this process ends."""
        self._uncleanable.setdefault(root, {})[partition] = error
        if error is not None and self._notice is not None:
            self._notice(f"{root}/{partition} is not cleaned any more: {str(error) or type(error).__name__}")

    def uncleanable(self, root: str) -> frozenset[TopicPartition]:
        """The partitions of a root that are left alone."""
        return frozenset(self._uncleanable.get(root, ()))

    def why_uncleanable(self, root: str, partition: TopicPartition) -> Exception | None:
        """What went wrong with a partition that is left alone, if it was the cleaner who found it."""
        return self._uncleanable.get(root, {}).get(partition)

    def uncleanable_bytes(self, root: str) -> int:
        """How many bytes could be cleaned, were their partitions not left alone. Of what cannot be read, none."""
        checkpointed = self._checkpoints.read(root)
        total = 0
        for partition in self.uncleanable(root):
            log = self._logs.get(partition)
            if log is None or log.failure is not None:
                continue
            try:
                total += cleanable_log(log, checkpointed.get(partition), self._clock.now_ms()).cleanable_bytes
            except CorruptionError:
                continue
            except StorageError as error:
                self._disk_refused(root, error)
        return total

    def forget_deleted(self) -> None:
        """Forget what was wrong with partitions that are no more."""
        for root, partitions in self._uncleanable.items():
            self._uncleanable[root] = {
                partition: error for partition, error in partitions.items() if partition in self._logs
            }

    # -- what there is to see ------------------------------------------------------------------------------------

    @property
    def max_dirty_percent(self) -> int:
        """The share of dirty bytes in the dirtiest log, when it was last looked for."""
        return int(100 * self.max_dirty_ratio)

    @property
    def seconds_since_last_run(self) -> float:
        """How long ago a log to clean was last looked for."""
        return (self._clock.monotonic_ms() - self._looked_ms) / 1000


def root_of(log: UnifiedLog) -> str:
    """The root that the directory of a log lies in."""
    return parent_of(log.directory)
