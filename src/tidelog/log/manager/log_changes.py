"""Changes of logs that their root must know of before, or right after: deleting, setting aside, moving, truncating.

    delete      orders-0 -> orders-0.<uid>-delete, at once; its files go after the delay, and a new orders-0 may be
                made meanwhile
    set aside   orders-0 -> orders-0.<uid>-stray; nobody touches it any more
    move        the copy in another root is flushed and takes the name, then the old one is deleted
    truncate    the checkpoints are lowered first: a crash behind the truncation must not find in them that what is
                written next is on the disk already, or that the log starts behind its end

A rename is on the disk when the call returns. Before it whatever is refused leaves all as it was; from it on there is
no way back, and what is refused, even for want of a descriptor, takes the root offline.

Kafka: LogManager.asyncDelete, replaceCurrentWithFutureLog, truncateTo and truncateFullyAndStartAt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tidelog.errors import InvalidRequestError, StorageError, TooManyFilesError
from tidelog.log.files import no_turning_back
from tidelog.log.manager.checks import checked_several
from tidelog.log.manager.directory_removal import DeletedLog
from tidelog.log.manager.log_root import Bound, LogRoot
from tidelog.log.names import TopicPartition, delete_directory_name, new_uid, stray_directory_name
from tidelog.log.offsets import as_offset
from tidelog.log.tasks import SlicedTask
from tidelog.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from tidelog.log.manager.log_manager import LogManager

__all__ = ["LogChanges"]

_REMOVED_AGAIN_MS = 10_000


class LogChanges:
    """The changes of the logs of one manager."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._waiting: dict[str, tuple[LogRoot, DeletedLog]] = {}  # for their removal, by directory
        self._turns: dict[LogRoot, deque[DeletedLog]] = {}  # of those whose time has come; the first is being removed

    # -- deleting ------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> tuple[str, ...]:
        """The directories that wait to be removed."""
        return tuple(self._waiting)

    def delete(self, partitions: Iterable[TopicPartition], kinds: tuple[bool, ...], *, is_stray: bool) -> int:
        """Take logs away, future ones or not or both; how many. Their roots are written to once.

        Where a root is offline and the first of the kinds is not here, it may be in there: StorageError, at the end.
        """
        manager, roots, missing = self._manager, [], []
        partitions = checked_several(partitions)
        for partition in partitions:
            manager.check(partition)
        try:
            for partition in partitions:
                if manager.root_set.has_offline and manager.find(partition, future=kinds[0]) is None:
                    missing.append(str(partition))
                for is_future in kinds:
                    log = manager.find(partition, future=is_future)
                    if log is not None:
                        roots.append(manager.root_set.of(log))
                        self._delete(roots[-1], log, is_stray=is_stray, is_future=is_future)
        finally:
            self._tell(roots)
        if missing:
            raise StorageError(f"not deleted, as the log may be in a root that is offline: {', '.join(missing)}")
        return len(roots)

    def _delete(self, root: LogRoot, log: UnifiedLog, *, is_stray: bool, is_future: bool) -> None:
        manager, partition = self._manager, log.topic_partition
        if manager.cleaner is not None and not is_future:
            manager.cleaner.abort(partition)
        self._rename(log, stray_directory_name if is_stray else delete_directory_name)
        manager.forget(root, partition, is_future=is_future)  # whatever comes: nobody may write to it any more
        if is_stray:
            self._leave_aside(root, log)
        else:
            self._leave_for_removal(root, log)

    def set_aside(self, root: LogRoot, log: UnifiedLog) -> None:
        """Give a log that nobody knows yet the name of one that nobody wants, and close it."""
        self._rename(log, stray_directory_name)
        self._leave_aside(root, log)

    def _rename(self, log: UnifiedLog, name_of: Callable[[TopicPartition, str], str]) -> None:
        log.rename(name_of(log.topic_partition, new_uid(self._manager.rng)))

    def _leave_aside(self, root: LogRoot, log: UnifiedLog) -> None:
        with self._half_done(root, log):
            self._manager.fs.sync_directory(root.path)
            root.stray.append(log.directory)
            log.close()

    def _leave_for_removal(self, root: LogRoot, log: UnifiedLog) -> None:
        log.retired = f"{log.topic_partition} was deleted or moved: ask the manager for it again"
        with self._half_done(root, log):
            self._manager.fs.sync_directory(root.path)
        self.remove_later(root, log.directory, self._manager.config.file_delete_delay_ms, log)

    @contextmanager
    def _half_done(self, root: LogRoot, log: UnifiedLog) -> Iterator[None]:
        """The second half of a change. Whatever is refused in it takes the root offline; the log, which nobody else may
        know any more, is given back.
        """
        try:
            with no_turning_back():
                yield
        except StorageError as error:
            log.release()
            self._manager.disk_failed(root.path, error)
            raise

    def _tell(self, roots: Iterable[LogRoot]) -> None:
        """Take logs that are gone out of the checkpoints of their roots."""
        roots = list(dict.fromkeys(roots))
        cleaner = self._manager.cleaner
        if cleaner is not None and roots:
            cleaner.forget_deleted()
            for root in roots:
                self._try(root, partial(cleaner.update_checkpoint, root.path))
        self._write(roots)

    def _write(self, roots: Iterable[LogRoot]) -> None:
        """Write how the logs of some roots are after a change, each file whether or not there was one for another."""
        for root in roots:
            self._try(root, root.write_starts)
            self._try(root, root.write_recovery_points)

    def _try(self, root: LogRoot, write: Callable[[], object]) -> None:
        """Write a checkpoint after a change. What it says meanwhile is true enough, so that no more files can be opened
        just now undoes nothing: the next write is soon.
        """
        try:
            self._manager.on_root(root, write)
        except TooManyFilesError as error:
            self._manager.notice(f"a checkpoint of {root.path} was not written: {error}")

    def remove_later(self, root: LogRoot, directory: str, delay_ms: int, log: UnifiedLog | None = None) -> None:
        """Remove a directory after the delay, in slices. Until then whoever has the log can read it."""
        deleted = DeletedLog(self._manager.fs, directory, log)
        self._waiting[directory] = (root, deleted)
        self._put_removal(root, deleted, delay_ms)

    def _put_removal(self, root: LogRoot, deleted: DeletedLog, delay_ms: int) -> None:
        manager = self._manager
        failed: Callable[[StorageError], None] = partial(manager.disk_failed, root.path)
        task = SlicedTask("delete log", self._remove(root, deleted), manager.clock, on_error=failed)
        manager.schedule.after(delay_ms, task, owner=root)

    def _remove(self, root: LogRoot, deleted: DeletedLog) -> Generator[None, None, None]:
        """Remove a directory and those that come meanwhile: one at a time, since each has descriptors open."""
        deleted.release()
        if root in self._turns:
            self._turns[root].append(deleted)  # whoever is at it comes to this one
            return
        turns = self._turns[root] = deque([deleted])
        try:
            while turns:
                yield from self._remove_one(root, turns[0])
                turns.popleft()
        finally:
            del self._turns[root]

    def _remove_one(self, root: LogRoot, deleted: DeletedLog) -> Generator[None, None, None]:
        try:
            yield from deleted.remove()
        except TooManyFilesError as error:  # its name says what it is: what is left goes another time
            self._manager.notice(str(error))
            self._put_removal(root, deleted, _REMOVED_AGAIN_MS)
        else:
            del self._waiting[deleted.directory]

    def release(self, root: LogRoot) -> None:
        """Give back what waits for its removal; the next start finds it by its name."""
        self._manager.schedule.drop(root)
        for directory, (its_root, deleted) in list(self._waiting.items()):
            if its_root is root:
                deleted.release()
                del self._waiting[directory]

    # -- moving --------------------------------------------------------------------------------------------------

    def promote_future(self, partition: TopicPartition) -> None:
        """Let the copy of a log in another root take its place, or be the log if there is none."""
        manager = self._manager
        manager.check(partition)
        current, future = manager.find(partition), manager.find(partition, future=True)
        if future is None:
            raise StorageError(f"{partition} has no future log, or it is in a root that is offline")
        new_root = manager.root_set.of(future)
        if current is not None:
            current.flush_partition_metadata()  # the last that may be put off
            self._carry_over(current, future, new_root)
            future.settle()  # the only copy from now on
        self._prepare(new_root, partial(new_root.forget_cleaning, partition))
        future.rename(str(partition))
        with self._half_done(new_root, future):
            manager.fs.sync_directory(new_root.path)
        if current is not None:
            manager.forget(manager.root_set.of(current), partition)
        manager.remember(new_root, partition, future)
        manager.forget(new_root, partition, is_future=True)
        if current is not None:
            self._retire(current, new_root)
        self._write([new_root])

    def _carry_over(self, current: UnifiedLog, future: UnifiedLog, new_root: LogRoot) -> None:
        """Give a copy the high watermark and the log start of its log: what was deleted must not come back."""
        future.update_high_watermark(current.high_watermark)
        future.watermarks.is_known = current.watermarks.is_known
        if future.delete_records(min(current.log_start_offset, future.high_watermark)):
            self._prepare(new_root, new_root.write_starts)

    def _retire(self, log: UnifiedLog, new_root: LogRoot) -> None:
        """Delete a log whose copy in another root has taken its place."""
        manager, partition = self._manager, log.topic_partition
        root = manager.root_set.of(log)
        if manager.cleaner is not None:
            self._try(root, partial(manager.cleaner.move_checkpoint, partition, root.path, new_root.path))
        with self._half_done(root, log):
            self._rename(log, delete_directory_name)
        self._leave_for_removal(root, log)
        self._write([root])

    # -- truncating ----------------------------------------------------------------------------------------------

    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, is_future: bool) -> None:
        """Cut logs at offsets. Those that are not here are passed over."""
        if not isinstance(offsets, Mapping):
            raise InvalidRequestError(f"logs are truncated by a mapping of partitions to offsets, not by {offsets!r}")
        for partition in offsets:
            self._manager.check(partition)
        offsets = {tp: as_offset(offset, "where a log is truncated") for tp, offset in offsets.items()}
        found = {tp: log for tp in offsets if (log := self._manager.find(tp, future=is_future)) is not None}
        shorter = {tp: log for tp, log in found.items() if offsets[tp] < log.log_end_offset}
        roots = self._lower({tp: (log, Bound(*3 * (offsets[tp],))) for tp, log in shorter.items()})
        try:
            for partition, log in found.items():
                offset = offsets[partition]
                # Where only the active segment is cut, cleaning is not in the way.
                if is_future or offset >= log.active_segment.base_offset:
                    log.truncate_to(offset)
                else:
                    last = log.local.segments.floor(offset)
                    clean = offset if last is None else last.base_offset
                    self._without_cleaning(log, clean, partial(log.truncate_to, offset))
        finally:
            self._write(roots)

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, log_start: int | None, *, is_future: bool
    ) -> None:
        """Drop all that is in a log and begin anew. One that is not here is passed over."""
        offset = as_offset(offset, "where a log begins")
        log_start = offset if log_start is None else as_offset(log_start, "a log start")
        self._manager.check(partition)
        log = self._manager.find(partition, future=is_future)
        if log is None:
            return
        # The old segments go one by one, the last one first: a crash may leave any number of them, and none at all
        # unless the new one takes the place of the first. Without any, a log begins at its checkpointed log start.
        first = log.local.segments.first.base_offset
        left, end = min(offset, first), offset
        if offset != first:
            checkpointed = self._manager.root_set.of(log).log_starts.get(partition) or 0
            left = end = min(left, checkpointed)
        roots = self._lower({partition: (log, Bound(left, end, log_start))})
        try:
            begin_anew = partial(log.truncate_fully_and_start_at, offset, log_start)
            if is_future:
                begin_anew()
            else:
                self._without_cleaning(log, offset, begin_anew)
        finally:
            self._write(roots)

    def _lower(self, bounds: Mapping[TopicPartition, tuple[UnifiedLog, Bound]]) -> list[LogRoot]:
        """Lower the checkpoints of the roots that these logs lie in, to what will be true; the roots."""
        by_root: dict[LogRoot, dict[TopicPartition, Bound]] = {}
        for partition, (log, bound) in bounds.items():
            by_root.setdefault(self._manager.root_set.of(log), {})[partition] = bound
        for root, its_bounds in by_root.items():
            self._prepare(root, partial(root.lower, its_bounds))
        return list(by_root)

    def _prepare(self, root: LogRoot, write: Callable[[], object]) -> None:
        """Write what must be in a file before a change. If it cannot be, there is no change."""
        try:
            write()
        except StorageError as error:
            self._manager.disk_failed(root.path, error)
            raise

    def _without_cleaning(self, log: UnifiedLog, clean: int, cut: Callable[[], object]) -> None:
        """Cut a log that nobody cleans meanwhile, and that is not clean above `clean` afterwards."""
        manager, partition = self._manager, log.topic_partition
        root = manager.root_set.of(log)
        manager.pause_cleaning(partition)
        try:
            self._prepare(root, partial(root.lower_cleaning, partition, clean))
            cut()
        finally:
            manager.resume_cleaning(partition)
