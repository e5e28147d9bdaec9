"""`tidelog spark compact`: the engine of `tidelog compact`, a partition a task.

The driver holds the lock of the root, takes away the mark of the clean stop and puts it back when every log was closed
in good order, as `tidelog compact` does. Tasks do the work on the files, which driver and workers see under the same
names. What a task has cleaned the driver writes down: one hand writes the checkpoint.

A task that Spark tries again, because its worker died, goes on where the other one was stopped: a compaction that was
interrupted is settled when the log is opened. Two attempts at once wait for each other at a lock on the directory.
"""

import fcntl
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import StorageError
from tidelog.log.files import join
from tidelog.log.local_files import storage_error
from tidelog.log.names import TopicPartition
from tidelog.log.offline_compaction import Compacted, CompactionSettings, compact_partition
from tidelog.log.offline_root import OfflineRoot
from tidelog.spark.jobs.tasks import OnTasks, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CompactedRoot", "compact"]


class CompactedRoot(NamedTuple):
    """What was done, and whether the root can be taken for one that was closed in good order."""

    partitions: list[Compacted]
    unclean_because: str | None


class _Work(NamedTuple):
    """One partition."""

    root: str
    partition: TopicPartition
    settings: CompactionSettings


class _Done(NamedTuple):
    """What came of it."""

    result: Compacted
    cleaned_to: int | None  # for the checkpoint
    is_settled: bool  # the log was closed in good order, or never opened


def compact(
    spark: "SparkSession",
    directory: str,
    partitions: Mapping[TopicPartition, CompactionSettings],
    *,
    dry_run: bool = False,
    on_tasks: OnTasks | None = None,
) -> CompactedRoot:
    """Compact partitions of a root that no broker has open; in a dry run, count what that would save."""
    path = os.path.abspath(directory)
    root = _LentRoot(path, dry_run=dry_run)
    with root:
        for partition in partitions:
            if partition not in root.partitions(partition.topic):
                raise StorageError(f"{path} has no partition {partition}")
        root.lend(list(partitions))
        work = [_Work(path, partition, settings) for partition, settings in partitions.items()]
        try:
            for done in run_tasks(spark, "compact", partial(_compact, dry_run), work, on_tasks):
                root.take_back(done)
        except BaseException:
            for one in work:  # a task that was called off may not have noticed yet: the root is not given up before
                with _alone_in(join(path, str(one.partition))):
                    pass
            raise
    return CompactedRoot(root.results, root.unclean_because)


class _LentRoot(OfflineRoot):
    """The root on the driver, whose partitions others work on."""

    def __init__(self, path: str, *, dry_run: bool) -> None:
        super().__init__(path, dry_run=dry_run)
        self.results: list[Compacted] = []

    def lend(self, partitions: Sequence[TopicPartition]) -> None:
        """From here on these partitions are in the hands of tasks: if nothing is heard of one, it is not settled."""
        self._take_marker()
        self._unsettled.extend(partitions)

    def take_back(self, done: _Done) -> None:
        """A task has ended."""
        partition = done.result.partition
        if done.is_settled:
            self._unsettled.remove(partition)
        if done.cleaned_to is not None and not self.is_dry_run:
            self.note_cleaned(partition, done.cleaned_to)
        self.results.append(done.result)


class _BorrowedRoot(OfflineRoot):
    """The root in a worker: the driver has its lock, its marker and its checkpoints."""

    def __init__(self, path: str, *, dry_run: bool) -> None:
        super().__init__(path, dry_run=dry_run)
        self.cleaned_to: int | None = None

    @property
    def is_settled(self) -> bool:
        """Whether every log that was opened was closed in good order."""
        return not self._unsettled

    def note_cleaned(self, partition: TopicPartition, first_dirty: int) -> None:
        """Remember it for the driver."""
        self.cleaned_to = first_dirty

    def _take_marker(self) -> None:
        """It is gone already."""


def _compact(dry_run: bool, work: _Work) -> _Done:
    directory = join(work.root, str(work.partition))
    if not os.path.isdir(directory):
        raise StorageError(
            f"{directory} is not to be seen on {socket.gethostname()}: driver and workers need the same directories"
        )
    root = _BorrowedRoot(work.root, dry_run=dry_run)
    with _alone_in(directory):
        done = compact_partition(root, work.partition, work.settings)
    return _Done(done, root.cleaned_to, root.is_settled)


@contextmanager
def _alone_in(directory: str) -> Iterator[None]:
    """Inside, no other attempt at the same partition runs. Nothing is written for it, and it ends with the process."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise storage_error(directory, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
