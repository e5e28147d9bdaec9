"""What a LogManager does by itself, and how often: retention, flushing by age, checkpoints, compaction.

    after log.initial.task.delay.ms, then
        retention              every log.retention.check.interval.ms
        flushing               every log.flush.scheduler.interval.ms: logs that were not flushed for flush.ms
        log start checkpoint   every log.flush.start.offset.checkpoint.interval.ms
        recovery checkpoint    every log.flush.offset.checkpoint.interval.ms
    high watermarks            every replica.high.watermark.checkpoint.interval.ms
    compaction                 when there is something to compact, see log_cleaner.py

Work on logs is sliced, one log at a time. The values of a checkpoint are taken by the owner, all at one moment; writing
them waits for the disk, so a host may do it in another thread (tasks.py).

Kafka: LogManager.startupWithConfigOverrides.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.errors import StorageError, TidelogError
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.manager.root_checkpoint import RootCheckpoint
from tidelog.log.names import TopicPartition
from tidelog.log.tasks import Call, SlicedTask
from tidelog.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from tidelog.log.manager.log_manager import LogManager

__all__ = ["Background", "to_the_end"]

Steps = Generator[None, None, None]
Counting = Generator[None, None, int]

_LOGS_ASKED = 16  # for their upkeep, at least, by one tick
_ROUND_MS = 1000


class Background:
    """The periodic work of one LogManager, on its schedule."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._to_ask: Iterator[UnifiedLog] = iter(())
        self._asked_ms = manager.clock.monotonic_ms()

    def start(self) -> None:
        """Put everything into the schedule."""
        config = self._manager.config
        first_ms = config.initial_task_delay_ms
        for name, delay_ms, interval_ms, work in (
            ("retention", first_ms, config.retention_check_interval_ms, self.retention),
            ("flush", first_ms, config.flush_scheduler_interval_ms, self.flush),
            ("log starts", first_ms, config.log_start_checkpoint_interval_ms, self._log_starts),
            ("recovery points", first_ms, config.recovery_point_checkpoint_interval_ms, self._recovery_points),
            ("high watermarks", *2 * (config.high_watermark_checkpoint_interval_ms,), self._high_watermarks),
        ):
            self._put(name, delay_ms, interval_ms, work)
        if config.cleaner.enable:
            self._start_cleaner()

    def _start_cleaner(self) -> None:
        from tidelog.log.compaction.log_cleaner import LogCleaner

        manager = self._manager
        for root in manager.live_roots:
            manager.on_root(root, root.cleaner_checkpoint.create)
        checkpoints = {root.path: root.cleaner_checkpoint for root in manager.live_roots}
        cleaner = LogCleaner(
            manager.logs, checkpoints, manager.config.cleaner, manager.clock, manager.schedule, manager.disk_failed,
            manager.notice,
        )  # fmt: skip
        manager.set_cleaner(cleaner)
        cleaner.start()

    def stop(self) -> None:
        """Take everything out of the schedule."""
        self._manager.schedule.drop(self)

    def _put(self, name: str, delay_ms: int, interval_ms: int, work: Callable[[], Steps | Counting]) -> None:
        task = SlicedTask(name, self._round(name, interval_ms, work), self._manager.clock)
        self._manager.schedule.after(max(delay_ms, 0), task, owner=self)

    def _round(self, name: str, interval_ms: int, work: Callable[[], Steps | Counting]) -> Steps:
        """Do the work once, and put it into the schedule again, however it ended. An interval of 0 is no interval."""
        is_over = False
        try:
            yield from work()
        except GeneratorExit:
            is_over = True
            raise
        finally:
            if not is_over and interval_ms > 0:
                self._put(name, interval_ms, interval_ms, work)

    # -- logs ----------------------------------------------------------------------------------------------------

    def look_around(self) -> None:
        """Let some logs find out what there is to do for them, the next ones at the next call.

        Nothing that they find is urgent, and with thousands of logs asking all is not cheap. So each is asked about
        once in a second, however often this is called; few logs are asked every time.
        """
        now_ms = self._manager.clock.monotonic_ms()
        most = max(_LOGS_ASKED, int(len(self._manager.logs) * min(now_ms - self._asked_ms, _ROUND_MS) / _ROUND_MS))
        self._asked_ms = now_ms
        asked = self._ask(most)
        if asked < most:
            self._to_ask = iter(self._manager.all_logs())
            if not asked:
                self._ask(most)

    def _ask(self, most: int) -> int:
        asked = 0
        for log in islice(self._to_ask, most):
            asked += 1
            if log.failure is None and not log.local.is_closed:
                log.look_around()
        return asked

    def retention(self) -> Counting:
        """Delete the old segments of all logs that are not compacted; how many. The others are the cleaner's."""
        manager, deleted = self._manager, 0
        cleaner = manager.cleaner
        # It must not work on logs whose policy is being changed; those that are moved are paused already.
        paused = [] if cleaner is None else [partition for partition, _ in cleaner.pause_retention_logs()]
        ours = {*paused, *manager.future_logs} if cleaner is not None else manager.logs.keys()
        logs = [(tp, log) for tp, log in manager.logs.items() if tp in ours and not log.config.is_compacted]
        try:
            for partition, log in logs:
                deleted += self._on_log(log, log.delete_old_segments)
                future = manager.find(partition, future=True)
                if future is not None:
                    deleted += self._on_log(future, future.delete_old_segments)
                yield
        finally:
            if cleaner is not None:
                cleaner.resume(paused)
        return deleted

    def flush(self) -> Counting:
        """Flush the logs that were not flushed for as long as their flush.ms says; how many."""
        flushed = 0
        for log in self._manager.all_logs():
            age_ms = self._manager.clock.now_ms() - log.local.last_flushed_ms
            if age_ms >= log.config.flush_ms:
                flushed += self._on_log(log, partial(_flush, log))
                yield
        return flushed

    def _on_log(self, log: UnifiedLog, work: Callable[[], int]) -> int:
        """Do something to a log that is still there. What goes wrong is the matter of this log, or of its root."""
        if log.failure is not None or log.local.is_closed:
            return 0
        try:
            return work()
        except TidelogError as error:
            self._manager.notice(f"{log.directory}: {error}")
            return 0

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def _log_starts(self) -> Steps:
        return self._checkpoint(lambda root: (root.log_starts, root.start_offsets()))

    def _recovery_points(self) -> Steps:
        return self._checkpoint(lambda root: (root.recovery_points, root.recovery_offsets()))

    def _high_watermarks(self) -> Steps:
        return self._checkpoint(lambda root: (root.high_watermarks, root.high_watermark_offsets()))

    def _checkpoint(self, of: Callable[[LogRoot], tuple[RootCheckpoint, Mapping[TopicPartition, int]]]) -> Steps:
        manager = self._manager
        for root in manager.live_roots:
            checkpoint, offsets = of(root)
            failed: Callable[[StorageError], None] = partial(manager.disk_failed, root.path)
            write = Call("write checkpoint", checkpoint.later(offsets), waits_for_disk=True, on_error=failed)
            manager.schedule.soon(write, owner=root)
            yield


def _flush(log: UnifiedLog) -> int:
    log.flush()
    return 1


def to_the_end(work: Counting) -> int:
    """Do work that is sliced in one go; what it counted."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return int(end.value)
