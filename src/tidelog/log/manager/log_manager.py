"""All logs of a broker, in one or several roots: found, made, kept up, moved, deleted and closed.

    with LogManager.open(["/disk1/kafka", "/disk2/kafka"]) as manager:
        log = manager.get_or_create(TopicPartition("orders", 0))
        ...
        manager.tick()  # now and then

A host calls `tick`, which does what is due: retention, checkpoints, flushes, deletions, compaction (background.py). One
thread owns the manager and its logs; what waits for the disk can be taken out of the schedule and run elsewhere.

The checkpoints of a root say of each log how much of it is on the disk and where it starts. They are written from time
to time, and always so that a crash at any moment finds nothing in them that is not true: before a log is truncated they
are lowered, before one of an old name is made its predecessor's entries go. So truncate through the manager, not on a
log itself.

What a disk refuses takes its root offline: its logs are let go, the others go on. Errors may come from any thread; they
are noted there and dealt with by the owner, in its next call.

Kafka: kafka.log.LogManager.
"""

import os
import random
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from tidelog.errors import InvalidRequestError, StorageError, TidelogError
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem
from tidelog.log.manager.background import Background, to_the_end
from tidelog.log.manager.checks import Paths, check_complete, checked_budget, checked_config, two_directories
from tidelog.log.manager.log_changes import LogChanges
from tidelog.log.manager.log_directories import DirectoryKind, LogDirectory
from tidelog.log.manager.log_factory import LogFactory
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.manager.log_table import LogTable
from tidelog.log.manager.manager_config import ManagerConfig
from tidelog.log.manager.placement import candidates
from tidelog.log.manager.root_loading import Host, LoadProgress, RootsLoading, is_of_disk
from tidelog.log.manager.topic_configs import TopicConfigs
from tidelog.log.names import TopicPartition, check_directory_name, check_partition, future_directory_name, new_uid
from tidelog.log.tasks import Schedule, SlicedTask
from tidelog.log.unified_log import UnifiedLog

__all__ = ["LogManager"]

_NOTICES_KEPT = 100

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _owned(
    method: Callable[Concatenate["LogManager", Parameters], Result],
) -> Callable[Concatenate["LogManager", Parameters], Result]:
    """`method` of a manager that is loaded, such that roots which have failed meanwhile, or by it, are let go."""

    @wraps(method)
    def run(manager: "LogManager", /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        manager._ensure_loaded()
        manager._settle()
        try:
            return method(manager, *args, **kwargs)
        finally:
            manager._settle()

    return run


class LogManager(LogTable):
    """The logs of a broker. `LogManager.open` loads them; the constructor takes the roots, and `load_task` the rest.

    `is_stray` says which logs are not this broker's; they are set aside when they are found, and so are logs without a
    topic id. Without it all are kept. `broker_epoch` goes into the marker of a clean stop, and may be set later.
    `on_offline` is told of each root that fails while it is in use, and of the partitions that were in it.
    """

    def __init__(
        self,
        roots: Paths,
        defaults: LogConfig | None = None,
        *,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        config: ManagerConfig | None = None,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        rng: random.Random | None = None,
        schedule: Schedule | None = None,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        broker_epoch: int = -1,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_offline: Callable[[LogRoot], None] | None = None,
    ) -> None:
        if fs is None:
            from tidelog.log.local_files import LocalFileSystem

            fs = LocalFileSystem()
        super().__init__(fs, roots)
        self.fs = fs
        self.clock: Clock = SystemClock() if clock is None else clock
        self.rng = random.Random() if rng is None else rng
        self.schedule = Schedule(self.clock) if schedule is None else schedule
        self.config = ManagerConfig() if config is None else checked_config(config)
        self.configs = TopicConfigs(defaults, topic_configs)
        self.broker_epoch = broker_epoch
        self.notices: deque[str] = deque(maxlen=_NOTICES_KEPT)  # what a person should know, the latest last
        self._is_stray = is_stray
        self._on_progress = on_progress
        self._on_offline = on_offline
        self._loading: SlicedTask[LogManager] | None = None
        self._failures: deque[LogRoot] = deque()  # noted, and not dealt with yet
        self._factory = LogFactory(
            self.fs, self.clock, self.rng, self.schedule, self.config, self.configs, self.disk_failed
        )
        self._background = Background(self)
        self._changes = LogChanges(self)
        for root in self.root_set.enter():
            self.notice(f"{root.path} is offline: {root.failure}")

    @classmethod
    def open(
        cls,
        roots: Paths,
        defaults: LogConfig | None = None,
        *,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        config: ManagerConfig | None = None,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        rng: random.Random | None = None,
        schedule: Schedule | None = None,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        broker_epoch: int = -1,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_offline: Callable[[LogRoot], None] | None = None,
    ) -> "LogManager":
        """Take the roots and load everything that lies in them. A start that fails leaves them as a stop would."""
        manager = cls(
            roots, defaults, topic_configs=topic_configs, config=config, clock=clock, fs=fs, rng=rng,
            schedule=schedule, is_stray=is_stray, broker_epoch=broker_epoch, on_progress=on_progress,
            on_offline=on_offline,
        )  # fmt: skip
        try:
            return manager.load_task().run()
        except BaseException:
            with suppress(StorageError):  # what ended the start is what matters
                manager.close()
            raise

    def __enter__(self) -> "LogManager":
        self._ensure_open()
        if self._loading is None:
            self.close()  # nobody else will
            raise InvalidRequestError("the logs are not loaded: use `with LogManager.open(...)`")
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LogManager({len(self._logs)} logs in {', '.join(root.path for root in self.root_set)})"

    # -- loading -------------------------------------------------------------------------------------------------

    def load_task(self) -> SlicedTask["LogManager"]:
        """Load everything, in slices. Until it is done there are no logs to be had."""
        if self._loading is not None:
            raise InvalidRequestError("the logs are loaded once")
        self._loading = SlicedTask("load logs", self._load(), self.clock)
        return self._loading

    def _load(self) -> Generator[None, None, "LogManager"]:
        host = Host(self._factory.loader, self._loaded, self.fail_root, self.notice, self.disk_failed)
        for _ in RootsLoading(self.root_set.live, host, self._on_progress).run():
            self._settle()
            yield
        self._settle()
        self._ensure_live()
        self._start()
        self._settle()
        self._ensure_live()
        return self

    def _loaded(self, root: LogRoot, directory: LogDirectory, log: UnifiedLog) -> None:
        """Take in a log that was loaded, or set it aside."""
        partition, is_future = directory.partition, directory.kind is DirectoryKind.FUTURE
        self._pass_on(log)
        try:
            if self._is_stray is not None and (log.topic_id is None or self._is_stray(log)):
                self._changes.set_aside(root, log)
                self.notice(f"{directory.path} is none of ours and is now {log.directory}")
                return
            other = self.find(partition, future=is_future)
            if other is not None:
                raise two_directories(other, log)
        except BaseException:
            log.release()
            raise
        high_watermark = root.high_watermarks.get(partition)
        if high_watermark is not None:
            log.update_high_watermark(max(high_watermark, 0))
        self._refresh(log)  # its config may have changed since its loading began
        self.remember(root, partition, log, is_future=is_future)

    def _pass_on(self, log: UnifiedLog) -> None:
        for notice in log.notices:
            self.notice(notice)

    def _start(self) -> None:
        """Begin what is done in the background."""
        self.is_loaded = True
        delay_ms = max(self.config.initial_task_delay_ms, self.config.file_delete_delay_ms)
        for root in self.root_set.live:
            for directory in root.deleted:
                self._changes.remove_later(root, directory.path, delay_ms)
        self._background.start()

    # -- logs ----------------------------------------------------------------------------------------------------

    @_owned
    def get_or_create(
        self,
        partition: TopicPartition,
        *,
        topic_id: uuid.UUID | None = None,
        root: LogRoot | str | os.PathLike[str] | None = None,
        directory_id: uuid.UUID | None = None,
        future: bool = False,
        is_new: bool = False,
    ) -> UnifiedLog:
        """The log of a partition; one is made if there is none.

        It goes where it is told to, or into the live root with the fewest logs. While a root is offline a log may be
        in there: then one is made only if the caller knows that the partition `is_new`.
        """
        log = self.get(partition, future=future)
        if log is None:
            log = self._create(partition, topic_id, root, directory_id, is_future=future, is_new=is_new)
        elif topic_id is not None:
            is_first = log.topic_id is None
            log.assign_topic_id(topic_id)
            if is_first:
                self._factory.write_topic_id(log)
        return log

    def _create(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        root: LogRoot | str | os.PathLike[str] | None,
        directory_id: uuid.UUID | None,
        *,
        is_future: bool,
        is_new: bool,
    ) -> UnifiedLog:
        self._ensure_live()
        if self.root_set.has_offline and not is_new:
            raise StorageError(f"{partition} is not made anew: its log may be in a root that is offline")
        name = future_directory_name(partition, new_uid(self.rng)) if is_future else str(partition)
        check_directory_name(name)
        chosen = candidates(
            partition,
            self.roots,
            root=root if root is None or isinstance(root, LogRoot) else self.root(root),
            directory_id=directory_id,
            current_root=self.root_of(partition),
            is_future=is_future,
        )
        for each in chosen:
            name = each.half_made.setdefault((partition, is_future), name)  # one that was begun is made to the end
            if self.on_root(each, partial(self._factory.make_directory, each, partition, name)):
                try:
                    log = self._factory.open_new(each, partition, name, topic_id)
                except StorageError as error:
                    self.disk_failed(each.path, error)
                    raise
                self._pass_on(log)
                self.remember(each, partition, log, is_future=is_future)
                del each.half_made[partition, is_future]
                return log
        tried = "; ".join(str(each.failure) for each in chosen)
        raise StorageError(f"no root takes the log of {partition}: {tried}")

    # -- changes -------------------------------------------------------------------------------------------------

    @_owned
    def delete(self, partition: TopicPartition, *, stray: bool = False, future: bool = False) -> bool:
        """Take a log away and remove its files later, or set it aside; whether there was one."""
        return self._changes.delete([partition], (future,), is_stray=stray) > 0

    @_owned
    def delete_all(self, partitions: Iterable[TopicPartition], *, stray: bool = False) -> int:
        """Take many logs away, future ones too; how many. Their roots are written to once.

        Raises StorageError, having taken the others away, if one of them may be in a root that is offline.
        """
        return self._changes.delete(partitions, (False, True), is_stray=stray)

    @property
    def directories_to_remove(self) -> tuple[str, ...]:
        """The directories of deleted logs that are still there."""
        return self._changes.waiting

    @_owned
    def replace_current_with_future(self, partition: TopicPartition) -> None:
        """Let the copy of a log in another root take its place; the old one is deleted.

        Raises InvalidRequestError while something of the log is not in the copy.
        """
        current, copy = self.get(partition), self.get(partition, future=True)
        if current is None:
            raise StorageError(f"{partition} has no log, or it is in a root that is offline")
        if copy is not None:
            check_complete(current, copy)
        self._changes.promote_future(partition)

    @_owned
    def promote_future(self, partition: TopicPartition) -> None:
        """The same, also if there is no log, or it has more: for a host who knows that the copy is to be the log."""
        self._changes.promote_future(partition)

    @_owned
    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, future: bool = False) -> None:
        """Cut logs, each at an offset; those that are not here are passed over."""
        self._changes.truncate_to(offsets, is_future=future)

    @_owned
    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, log_start: int | None = None, *, future: bool = False
    ) -> None:
        """Drop all that is in a log and begin anew at an offset, or at a log start below it."""
        self._changes.truncate_fully_and_start_at(partition, offset, log_start, is_future=future)

    # -- configs -------------------------------------------------------------------------------------------------

    def update_topic_config(self, topic: str, properties: Mapping[str, object]) -> None:
        """Replace all that was set for a topic; its logs obey at once. Raises InvalidConfigError, changing nothing."""
        self._ensure_open()
        logs = self.logs_of_topic(topic)
        if not logs and isinstance(topic, str):  # of those that lie here the names are what they are
            check_partition(TopicPartition(topic, 0))
        self.configs.set_topic(topic, properties)
        for log in logs:
            self._refresh(log)

    def update_defaults(self, defaults: LogConfig) -> None:
        """Replace the defaults of all topics; their logs obey at once. Raises InvalidConfigError, changing nothing."""
        self._ensure_open()
        self.configs.set_defaults(defaults)
        for log in self.all_logs():
            self._refresh(log)

    def _refresh(self, log: UnifiedLog) -> None:
        before, now = log.config, self.configs.of(log.topic_partition.topic)
        if now is before:
            return
        log.config = now
        is_current = self._logs.get(log.topic_partition) is log
        if before.is_compacted and not now.is_compacted and is_current and self.cleaner is not None:
            self.cleaner.abort(log.topic_partition)

    # -- what is done now and then -------------------------------------------------------------------------------

    def tick(self, budget_ms: float = float("inf")) -> None:
        """Do what is due, for about so many milliseconds. Raises StorageError when no root is left.

        Work makes work: what is put into the schedule meanwhile, the next slice of a compaction for instance, waits
        for the next call. A host with time left calls again while `schedule.next_due_in_ms` is 0.
        """
        budget_ms = checked_budget(budget_ms)
        self._ensure_open()
        self._settle()
        self._ensure_live()
        if self.is_loaded:
            self._background.look_around()
        self.schedule.run_due(budget_ms)
        self._settle()
        self._ensure_live()

    @_owned
    def delete_old_segments(self) -> int:
        """Delete what retention lets go, of all logs that are not compacted; how many segments."""
        return to_the_end(self._background.retention())

    @_owned
    def flush_dirty(self) -> int:
        """Flush the logs that were not flushed for flush.ms; how many."""
        return to_the_end(self._background.flush())

    @_owned
    def checkpoint_recovery_points(self) -> None:
        """Write how much of each log is on the disk."""
        for root in self.live_roots:
            self.on_root(root, root.write_recovery_points)

    @_owned
    def checkpoint_log_starts(self) -> None:
        """Write where logs start, unless their first segment says so."""
        for root in self.live_roots:
            self.on_root(root, root.write_starts)

    @_owned
    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark of each log."""
        for root in self.live_roots:
            self.on_root(root, root.write_high_watermarks)

    def notice(self, what: str) -> None:
        """Note what a person should know."""
        self.notices.append(what)

    # -- failure -------------------------------------------------------------------------------------------------

    def disk_failed(self, path: str, error: StorageError) -> None:
        """Note that the disk of a root refuses, in whichever thread that shows; the owner deals with it soon."""
        if is_of_disk(error):
            root = self.root(path)
            root.fail(error)
            self._failures.append(root)
        else:
            self.notice(str(error))

    def on_root(self, root: LogRoot, work: Callable[[], object]) -> bool:
        """Do something to a root that has not failed, or fails by it; whether it was done."""
        if root.failure is not None:
            return False
        try:
            work()
        except StorageError as error:
            if not is_of_disk(error):
                raise
            self.disk_failed(root.path, error)
            return False
        return True

    def fail_root(self, root: LogRoot | str | os.PathLike[str], error: StorageError) -> None:
        """Take a root offline: its logs are let go without a write, and others may have it."""
        root = root if isinstance(root, LogRoot) else self.root(root)
        root.fail(error)
        self._failures.append(root)
        self._settle()

    def _settle(self) -> None:
        """Let go of the roots that have failed."""
        while self._failures:
            root = self._failures.popleft()
            if not root.is_let_go:
                self._let_go(root)

    def _let_go(self, root: LogRoot) -> None:
        if self.cleaner is not None:
            self.cleaner.root_failed(root.path)
        self._changes.release(root)
        self.forget_root(root)
        root.let_go()
        self.notice(f"{root.path} is offline: {root.failure}")
        if self._on_offline is not None:
            self._on_offline(root)

    def _ensure_live(self) -> None:
        if not self.root_set.live:
            raise self.root_set.all_failed()

    # -- closing -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every log, write the checkpoints, mark the roots that were closed in good order, and let others in.

        Harmless if done twice, and after a start that failed. Raises StorageError if something could not be closed,
        having tried everything.
        """
        if self.is_closed:
            return
        self._settle()
        self.is_closed = True
        if self._loading is not None:
            self._loading.abandon()
        if self.cleaner is not None:
            self.cleaner.close()
        self._background.stop()
        errors: list[TidelogError] = []
        try:
            for root in self.live_roots:
                self._changes.release(root)
                errors += root.close(self.broker_epoch)
        finally:
            for root in self.root_set:
                root.unlock()
            self.forget_all()
        if errors:
            raise StorageError(f"not all was closed in good order: {'; '.join(map(str, errors))}") from errors[0]
