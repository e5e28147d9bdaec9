"""One directory of `log.dirs`, or what was copied of one: partition directories, and the checkpoints beside them.

No `meta.properties` is needed, and no checkpoint: one that is missing or damaged is a notice, and the bounds are then
those of the log itself.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from tidelog.errors import CheckpointError, InvalidTopicError, StorageError
from tidelog.log.checkpoints import read_offsets
from tidelog.log.files import join, parent_of
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    STAGED_FILE,
    TopicPartition,
    is_delete_directory,
    is_future_directory,
    is_stray_directory,
    parse_directory_name,
)
from tidelog.log.write_journal import WriteJournal, read_journal
from tidelog.view.files import ViewFiles

__all__ = ["FILES_OF_A_ROOT", "PartitionDirectory", "RootView"]

FILES_OF_A_ROOT = frozenset(
    {
        META_PROPERTIES,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        CLEANER_CHECKPOINT,
    }
)


_OURS = {STAGED_FILE, JOURNAL_FILE, f"{JOURNAL_FILE}.tmp"}


class PartitionDirectory(NamedTuple):
    """A directory that holds, or held, a partition."""

    name: str
    topic_partition: TopicPartition
    mark: str | None  # `delete`, `stray` or `future`: not part of the log of its partition

    @classmethod
    def parse(cls, name: str) -> "PartitionDirectory":
        """Read a name; raises InvalidTopicError if it is not that of a partition directory."""
        mark = None
        if is_delete_directory(name):
            mark = "delete"
        elif is_stray_directory(name):
            mark = "stray"
        elif is_future_directory(name):
            mark = "future"
        return cls(name, parse_directory_name(name), mark)


class RootView:
    """A root. With `only`, no more than these of its directories."""

    def __init__(self, files: ViewFiles, path: str, only: frozenset[str] | None = None) -> None:
        self.path = path
        self.files = files
        self._only = only
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}  # by name, once they were asked for
        self._damage: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"RootView({self.path!r})"

    @classmethod
    def around(cls, files: ViewFiles, directory: str) -> "RootView":
        """The root that a partition directory lies in, with nothing else of it."""
        return cls(files, parent_of(directory), frozenset({directory.rstrip("/").rpartition("/")[2]}))

    def refresh(self) -> "RootView":
        """The same root, looked at anew."""
        return RootView(self.files.fresh(), self.path, self._only)

    @cached_property
    def directories(self) -> tuple[PartitionDirectory, ...]:
        """The partition directories, in the order of their partitions; also those with a mark."""
        return tuple(each for each in self.named if not self._is_staged(each) and not self._is_half_made(each))

    def _is_half_made(self, directory: PartitionDirectory) -> bool:
        """Whether an unfinished write has made the directory: before it there was no such partition.

        With a journal that cannot be read that is not known, and whoever reads the partition is told.
        """
        try:
            is_undone = self.undone(directory) is not None
            journal = self.unfinished_write
        except CheckpointError:
            return False
        return is_undone and journal is not None and journal.partitions[directory.topic_partition].is_made

    def _is_staged(self, directory: PartitionDirectory) -> bool:
        """Whether there is no partition in it, but what a task of Spark's has staged, or a journal on its way."""
        if directory.mark != "delete":
            return False
        try:
            return set(self.files.list(join(self.path, directory.name))) <= _OURS
        except StorageError:  # whoever looks into it is told
            return False

    @cached_property
    def named(self) -> tuple[PartitionDirectory, ...]:
        """The directories that have the name of one of a partition, in the same order."""
        found = []
        for name in self.files.list(self.path) if self._only is None else sorted(self._only):
            try:
                directory = PartitionDirectory.parse(name)
            except InvalidTopicError:
                continue
            stat = self.files.stat(join(self.path, name))
            if stat is not None and stat.is_directory:
                found.append(directory)
        return tuple(sorted(found, key=lambda directory: (directory.topic_partition, directory.name)))

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that have a log here, without those that are on their way out or in."""
        return tuple(directory.topic_partition for directory in self.logs)

    @property
    def logs(self) -> tuple[PartitionDirectory, ...]:
        """Their directories."""
        return tuple(each for each in self.named if self._is_readable(each) and not self._is_half_made(each))

    @property
    def marked(self) -> tuple[PartitionDirectory, ...]:
        """The directories that are deleted, stray or being moved in: readable by their own path."""
        return tuple(directory for directory in self.directories if directory.mark is not None)

    def _is_readable(self, directory: PartitionDirectory) -> bool:
        return directory.mark is None or self._only is not None  # what was named by its path is meant

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def checkpointed(self, name: str, directory: PartitionDirectory) -> int | None:
        """The offset of a partition in one of the checkpoints; None without an entry, and for a marked directory."""
        if directory.mark is not None:
            return None
        if name not in self._checkpoints:
            self._checkpoints[name] = self._read(name, lambda files, root: read_offsets(files, join(root, name)))
        return self._checkpoints[name].get(directory.topic_partition)

    @cached_property
    def unfinished_write(self) -> WriteJournal | None:
        """The journal of a write into this root that is under way or was interrupted.

        Raises CheckpointError for a journal that cannot be read: which records it hides is not known then.
        """
        return read_journal(self.files, self.path)

    def undone(self, directory: PartitionDirectory) -> tuple[int, str] | None:
        """From which offset on a partition holds what an unfinished write has appended, and which write that is.

        Up to there readers see the log. A broker that has had the log since has taken what is there for its own, and
        its high watermark is above that offset: then everything is shown. The write itself notes the high watermark
        that will hold once it is finished: that one is no broker's.
        """
        journal = self.unfinished_write
        note = None if journal is None or directory.mark else journal.partitions.get(directory.topic_partition)
        end = None if note is None else note.shown_end
        if journal is None or note is None or end is None:
            return None
        watermark = self.checkpointed(HIGH_WATERMARK_CHECKPOINT, directory)
        is_ours = watermark is None or watermark <= end or watermark == note.end_then
        return (end, journal.kind.words) if is_ours else None

    @property
    def unfinished_notice(self) -> str | None:
        """What to tell a reader of an unfinished write in this root."""
        journal = self.unfinished_write
        if journal is None:
            return None
        topics = ", ".join(sorted({place.topic for place in journal.partitions})) or "no topic"
        return (
            f"{self.path}: {journal.kind.words} into {topics} is under way or was interrupted; its records are not "
            f"shown. If nothing is writing, run `tidelog recover {self.path}`"
        )

    def damage(self, name: str, directory: PartitionDirectory) -> str | None:
        """What is wrong with a checkpoint, or with its entry of a partition; None for a marked directory."""
        known = self.checkpointed(name, directory)
        if known is not None and known < 0:
            return f"{join(self.path, name)}: {directory.topic_partition} has offset {known}, which cannot be"
        return None if directory.mark is not None else self._damage.get(name)

    def _read(
        self, name: str, read: Callable[[ViewFiles, str], dict[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        try:
            return read(self.files, self.path)
        except (CheckpointError, StorageError) as error:
            self._damage[name] = str(error)
            return {}
