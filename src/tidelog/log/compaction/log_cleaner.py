"""When logs are cleaned: the housekeeper of all compacted logs of a broker.

    look for the log with the most to clean --> one round over it (cleaner.py) --> write its checkpoint
        ^  ^                                                                              |
        |  `--------------------------------------------------------- delete old segments <
        `---- sleep log.cleaner.backoff.ms <--- delete old segments <--- nothing to clean

One round runs at a time, in slices, in the thread that owns the logs: a log has one owner, so more threads
(`log.cleaner.threads`) would only wait for each other. Whoever is about to truncate, delete or move a log aborts its
round first (`abort`, `abort_and_pause`); the round is gone when the call returns.

Kafka: kafka.log.LogCleaner.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import CleaningAbortedError, StorageError, TooManyFilesError
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.clock import Clock
from tidelog.log.compaction.cleanable import CleanableLog
from tidelog.log.compaction.cleaner import CleanedRound, Cleaner, CleanerStats
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.cleaner_manager import CleanerManager, root_of
from tidelog.log.compaction.cleaner_states import ABORTED
from tidelog.log.compaction.throttle import Throttle
from tidelog.log.names import TopicPartition
from tidelog.log.tasks import Schedule
from tidelog.log.unified_log import UnifiedLog

__all__ = ["LogCleaner", "RoundReport"]

_SLICE_MS = 20  # what a turn takes at most: other tasks of the schedule are due, too


class RoundReport(NamedTuple):
    """What the last round over a partition did."""

    first_dirty: int
    end_offset: int
    stats: CleanerStats
    ended_ms: int  # by the wall clock
    took_ms: float  # with all waits


@dataclass(eq=False)
class _Running:
    """A round that is under way."""

    cleanable: CleanableLog
    work: Generator[float | None, None, CleanedRound]
    stats: CleanerStats
    began_ms: float
    is_at_work: bool = False  # its generator is executing just now, and cannot be closed
    is_over: bool = False  # its generator has come to an end, good or bad


class LogCleaner(CleanerManager):
    """Cleans the compacted logs among `logs`, a live view, and deletes their old segments.

    `checkpoints` are those of the roots, by their paths. What fails a root is told to `on_root_failure`, once, and
    what makes the cleaner leave a log alone to `notice`.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, UnifiedLog],
        checkpoints: Mapping[str, OffsetCheckpoint],
        config: CleanerConfig,
        clock: Clock,
        schedule: Schedule,
        on_root_failure: Callable[[str, StorageError], None],
        notice: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(logs, checkpoints, clock, on_root_failure, notice)
        self.config = config
        self.throttle = Throttle(config.io_max_bytes_per_second, clock)
        self.last_rounds: dict[TopicPartition, RoundReport] = {}
        self._cleaner = Cleaner(config, clock, throttle=self.throttle)
        self._schedule = schedule
        self._is_started = False
        self._round: _Running | None = None
        self._deleted_ms = float("-inf")  # when old segments were last deleted
        self._held: dict[TopicPartition, str] = {}  # what is in progress because of us, and its root

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for logs to clean from the next heartbeat of the schedule on. With no threads nothing is cleaned."""
        if not self._is_started and self.config.enable and self.config.threads:
            self._is_started = True
            self._next_turn_after(0)

    def close(self) -> None:
        """Give up what is under way, and look for nothing more. Harmless if done twice."""
        self._is_started = False
        self._schedule.drop(self)
        for partition in list(self._held):
            self._let_go(partition)

    def reconfigure(self, config: CleanerConfig) -> None:
        """Change the config of a running cleaner: the rate at once, memory with the next round.

        Whatever waits goes on now. InvalidConfigError if Kafka would not change the number of threads so much.
        """
        config.check_change(self.config)
        self.config = config
        self.throttle.rate_per_s = config.io_max_bytes_per_second
        self._cleaner = Cleaner(config, self._clock, throttle=self.throttle)
        if self._is_started:
            self._schedule.drop(self)
            self._next_turn_after(0)

    @property
    def running(self) -> tuple[CleanableLog, CleanerStats] | None:
        """The log that is being cleaned, and how far it is."""
        return None if self._round is None else (self._round.cleanable, self._round.stats)

    # -- turns ---------------------------------------------------------------------------------------------------

    def _next_turn_after(self, delay_ms: float) -> None:
        self._schedule.after(delay_ms, _Turn(self._turn_and_again), owner=self)

    def _turn_and_again(self, budget_ms: float) -> None:
        """One turn, and another one later, whatever comes of this."""
        delay_ms = self._backoff_ms
        try:
            delay_ms = self._turn(self._clock.monotonic_ms() + min(budget_ms, _SLICE_MS))
        finally:
            if self._is_started:
                self._next_turn_after(delay_ms)

    def _turn(self, deadline: float) -> float:
        """Clean until the deadline; how many milliseconds until the next turn."""
        while self._is_started:
            if self._round is None and not self._begin_next():
                self._delete_old_segments()
                return self._backoff_ms
            wait_ms = self._go_on(deadline)
            if wait_ms or self._round is not None:
                return wait_ms
            if self._clock.monotonic_ms() - self._deleted_ms >= self._backoff_ms:
                self._delete_old_segments()  # not after every round: it looks at all logs
            if self._clock.monotonic_ms() >= deadline:
                break
        return 0

    @property
    def _backoff_ms(self) -> float:
        return max(self.config.backoff_ms, 1)  # with 0 a heartbeat would never end

    def _begin_next(self) -> bool:
        """Begin a round over the log that needs it most; whether there is one."""
        cleanable = self.grab_filthiest()
        if cleanable is None:
            return False
        stats = CleanerStats()
        work = self._cleaner.clean(cleanable, stats=stats)
        self._round = _Running(cleanable, work, stats, self._clock.monotonic_ms())
        self._held[cleanable.topic_partition] = root_of(cleanable.log)
        return True

    def _go_on(self, deadline: float) -> float:
        """Go on with the round until the deadline; how long to wait then.

        If there is no `_round` any more, it is over, and it came to nothing if there is a wait.
        """
        round_ = self._round
        assert round_ is not None
        partition, root = round_.cleanable.topic_partition, root_of(round_.cleanable.log)
        try:
            while True:
                wait_ms = self._step(round_)
                if round_ is not self._round:  # aborted by what it did
                    self._close_work(round_, root)
                    break
                if wait_ms or self._clock.monotonic_ms() >= deadline:
                    return wait_ms or 0
        except StopIteration as end:
            return self._finish(round_, root, end.value)
        except CleaningAbortedError:
            pass  # the log has changed: it is looked at anew
        except StorageError as error:
            self._disk_refused(root, error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this log, the others are to be cleaned
            self.mark_uncleanable(root, partition, error)
        finally:
            if round_.is_over and partition in self._held:
                self._let_go(partition)
        return self._backoff_ms

    def _step(self, round_: _Running) -> float | None:
        round_.is_at_work = True
        try:
            return next(round_.work)
        except BaseException:
            round_.is_over = True
            raise
        finally:
            round_.is_at_work = False

    def _finish(self, round_: _Running, root: str, result: CleanedRound) -> float:
        """Note how far the log is clean; how long to wait before the next round."""
        partition = round_.cleanable.topic_partition
        if self._round is not round_:
            return self._backoff_ms  # aborted by its last step
        self._round = None
        del self._held[partition]
        self.last_rounds[partition] = RoundReport(
            round_.cleanable.first_dirty,
            result.end_offset,
            result.stats,
            self._clock.now_ms(),
            self._clock.monotonic_ms() - round_.began_ms,
        )
        try:
            self.done_cleaning(partition, root, result.end_offset)
        except TooManyFilesError:
            return self._backoff_ms  # the checkpoint stays behind, and the log is cleaned once more
        return 0 if result.end_offset > round_.cleanable.first_dirty else self._backoff_ms

    def _delete_old_segments(self) -> None:
        """Delete what the log start and retention let go of compacted logs, which nobody else looks after."""
        self._deleted_ms = self._clock.monotonic_ms()
        self.forget_deleted()
        for partition, log in self._idle_compacted():
            self._states.begin(partition)
            root = self._held[partition] = root_of(log)
            try:
                log.delete_old_segments()
            except StorageError as error:
                self._disk_refused(root, error)
            except Exception as error:  # noqa: BLE001 - as with a round
                self.mark_uncleanable(root, partition, error)
            finally:
                if partition in self._held:
                    self._let_go(partition)

    def forget_deleted(self) -> None:
        super().forget_deleted()
        self.last_rounds = {
            partition: report for partition, report in self.last_rounds.items() if partition in self._logs
        }

    # -- letting go ----------------------------------------------------------------------------------------------

    def abort_and_pause(self, partition: TopicPartition) -> None:
        super().abort_and_pause(partition)
        if self.state_of(partition) is ABORTED and partition in self._held:
            self._let_go(partition)

    def root_failed(self, root: str) -> None:
        super().root_failed(root)
        for partition, its_root in list(self._held.items()):
            if its_root == root:
                self._let_go(partition)

    def _let_go(self, partition: TopicPartition) -> None:
        """Stop what we do with a partition, at once, or where that is what calls, as soon as it returns."""
        root = self._held.pop(partition)
        round_ = self._round
        if round_ is not None and round_.cleanable.topic_partition == partition:
            self._round = None
            if not round_.is_at_work:
                self._close_work(round_, root)
        self._states.done(partition)

    def _close_work(self, round_: _Running, root: str) -> None:
        try:
            round_.work.close()
        except StorageError as error:
            self._disk_refused(root, error)


class _Turn:
    """A turn of the cleaner as a task. It is done when it was run: the next turn is another task."""

    name = "clean logs"
    waits_for_disk = False

    def __init__(self, turn: Callable[[float], None]) -> None:
        self.on_error: Callable[[StorageError], object] | None = None
        self._turn = turn

    def step(self, budget_ms: float) -> bool:
        self._turn(budget_ms)
        return True

    def finish(self) -> None:
        """Nothing is left to do."""

    def abandon(self) -> None:
        """Nothing is under way between turns that `close` does not end."""
