"""A root while rows are loaded into a topic of it: locked, its logs opened one by one, left as a broker leaves one.

    with LoadRoot(path, topic, config) as root:
        logs = root.logs([0, 3])     # opened, or made; noted in the journal before anything is appended
        ...
        root.finish()                # without it everything is cut back

Only logs of the topic are opened, and of these only the ones that get rows. A root that is new is made; it is gone
again where the load fails. A root that was not closed in good order is refused, unless a load has left it so: what that
one has done is taken back first. `tables/load_undo.py` tells how a load is one step.
"""

import os
import random
import stat
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from types import TracebackType

from tidelog.errors import InvalidRequestError, InvalidTopicError, LockedError, StorageError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint, read_epochs
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileLock, FileSystem, ensure_named, join, parent_of, read_whole, write_atomically
from tidelog.log.local_files import LocalFileSystem, ensure_plain_files, own_as, storage_error
from tidelog.log.manager.log_directories import DirectoryKind, list_directories
from tidelog.log.manager.log_root import normal_path
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    COMMITTED_BATCHES,
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_ASIDE,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    OLD_JOURNALS,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    UNFINISHED_WRITE,
    TopicPartition,
    parse_directory_name,
)
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.partition_metadata import read_topic_id
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import (
    LoadGroup,
    PartitionNote,
    WriteJournal,
    WriteKind,
    ensure_untouched,
    journal_path,
    read_journal,
    remove_journal,
    write_journal,
)
from tidelog.tables.load_undo import take_back

__all__ = ["LoadRoot", "ensure_loadable", "make_root", "own_as_root"]

_LEFT_BY_A_CRASH = {LOCK_FILE, UNFINISHED_WRITE, JOURNAL_ASIDE, *OLD_JOURNALS, f"{COMMITTED_BATCHES}.tmp"}
_SIGNS_OF_A_ROOT = {META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, COMMITTED_BATCHES}
_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)


class LoadRoot:
    """One directory of `log.dirs`, taken for a load. `on_notice` is told what a person should know."""

    def __init__(
        self,
        path: str,
        topic: str,
        config: LogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        rng: random.Random,
        on_notice: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.path = normal_path(ensure_named(path)) if isinstance(fs, LocalFileSystem) else path.rstrip("/")
        self.clock = clock
        self.there: frozenset[int] = frozenset()  # the partitions whose directories were there before
        self._topic = topic
        self._config = config
        self._fs = fs
        self._rng = rng
        self._on_notice = on_notice
        self._topic_id: uuid.UUID | None = None
        self._made: list[str] = []  # directories that are new: the root, and those above it
        self._lock: FileLock | None = None
        self._journal: WriteJournal | None = None
        self._logs: dict[int, UnifiedLog] = {}
        self._owners = ExitStack()  # of the files in the directories of the logs
        self._has_begun = False  # the journal is written, so anything may be changed
        self._is_marker_taken = False
        self._is_finished = False

    def __enter__(self) -> "LoadRoot":
        ensure_loadable(self._fs, self.path)
        try:
            self._make()
            self._take_lock()
            self._settle()
            self._begin()
        except BaseException:
            self._leave()
            raise
        return self

    def _make(self) -> None:
        """Make the root if there is none."""
        make_root(self._fs, self.path, self._made)

    def _take_lock(self) -> None:
        try:
            self._lock = self._fs.lock(join(self.path, LOCK_FILE))
        except LockedError as error:
            raise LockedError(f"a broker or another tidelog has {self.path} open: stop it first") from error

    def _settle(self) -> None:
        """Take back what a load that was interrupted has left."""
        journal = read_journal(self._fs, self.path)
        if journal is None:
            return
        if journal.kind is WriteKind.COMMIT:
            raise StorageError(
                f"{self.path}: {journal.kind.words} was interrupted; run `tidelog recover {self.path}` first"
            )
        ensure_untouched(self._fs, self.path, journal)
        if journal.group is not None:
            raise StorageError(
                f"{self.path}: a load into several log directories was interrupted; "
                f"run `tidelog recover {' '.join(journal.group.roots)}` first"
            )
        take_back(self._fs, self.path, journal, self.clock, self._on_notice)
        topics = ", ".join(sorted({place.topic for place in journal.partitions}))
        self._on_notice(f"a load into {topics} was interrupted here: what it had appended is taken back")

    def _begin(self) -> None:
        marker = CleanShutdownFile(self._fs, self.path)
        found = list_directories(self._fs, self.path)
        directories = [each for each in found if each.kind is not DirectoryKind.DELETED]  # leftovers, and nobody's
        if directories and not marker.exists():
            raise StorageError(
                f"{self.path} was not closed in good order, or a broker has it open: run `tidelog recover "
                f"{self.path}`, or start the broker on it and stop it, then try again"
            )
        self.there = frozenset(
            each.partition.partition
            for each in directories
            if each.partition.topic == self._topic and each.kind is DirectoryKind.CURRENT
        )
        self._journal = WriteJournal(
            WriteKind.LOAD,
            was_empty=not set(self._fs.list(self.path)) - _LEFT_BY_A_CRASH,
            marker=read_whole(self._fs, marker.path) if marker.exists() else None,
        )

    @property
    def log_count(self) -> int:
        """How many logs lie here, by which a broker chooses the directory of a new one."""
        kinds = (DirectoryKind.CURRENT, DirectoryKind.FUTURE)
        return sum(each.kind in kinds for each in list_directories(self._fs, self.path))

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of all topics that lie here."""
        found = list_directories(self._fs, self.path)
        return [each.partition for each in found if each.kind is DirectoryKind.CURRENT]

    @property
    def topic_ids(self) -> set[uuid.UUID]:
        """By which ids the topic is known here: one, unless something is wrong; none in a root from before there were
        ids, or without the topic."""
        return {found for found in map(self._stored_id, sorted(self.there)) if found is not None}

    def use_topic_id(self, topic_id: uuid.UUID | None) -> None:
        """Say by which id the topic is known."""
        self._topic_id = topic_id

    def _stored_id(self, number: int) -> uuid.UUID | None:
        return read_topic_id(self._fs, join(self._directory(number), PARTITION_METADATA))

    # -- logs ----------------------------------------------------------------------------------------------------

    def logs(self, numbers: Iterable[int]) -> dict[int, UnifiedLog]:
        """The logs of partitions. Those that are opened now are in the journal when this returns."""
        wanted = sorted(set(numbers))
        fresh = [number for number in wanted if number not in self._logs]
        if fresh:
            self._open(fresh)
        return {number: self._logs[number] for number in wanted}

    def _open(self, numbers: list[int]) -> None:
        journal = self._known_journal()
        for number in self.there.intersection(numbers):
            ensure_plain_files(self._fs, self._directory(number))
        for number in numbers:
            journal.partitions[self._place(number)] = self._note(number)
        write_journal(self._fs, self.path, journal)
        self._has_begun = True
        self._take_marker()
        for number in numbers:
            if number not in self.there:
                self._make_partition(number)
            self._logs[number] = self._open_log(number)
            for notice in self._logs[number].losses:
                self._on_notice(notice)
            if number in self.there:
                known = journal.partitions[self._place(number)]
                journal.partitions[self._place(number)] = known._replace(end=self._logs[number].log_end_offset)
        if self.there.intersection(numbers):
            write_journal(self._fs, self.path, journal)

    def _note(self, number: int) -> PartitionNote:
        place = self._place(number)
        epochs = read_epochs(self._fs, join(self._directory(number), LEADER_EPOCH_CHECKPOINT))
        return PartitionNote(
            is_new=number not in self.there,
            has_topic_id=self._stored_id(number) is not None,
            epoch=max((entry.epoch for entry in epochs), default=None),
            recovery_point=self._checkpoint(RECOVERY_POINT_CHECKPOINT).read().get(place),
            high_watermark=self._checkpoint(HIGH_WATERMARK_CHECKPOINT).read().get(place),
        )

    def _take_marker(self) -> None:
        """From here on, whatever interrupts the work makes the next broker look closely."""
        if not self._is_marker_taken:
            CleanShutdownFile(self._fs, self.path).delete()
            self._is_marker_taken = True

    def _make_partition(self, number: int) -> None:
        """Make the directory of a new log. What the checkpoints say of one of its name that is gone, goes before."""
        place, directory = self._place(number), self._directory(number)
        for name in _CHECKPOINTS:
            checkpoint = self._checkpoint(name)
            offsets = checkpoint.read()
            if offsets.pop(place, None) is not None:
                checkpoint.write(offsets)
        self._fs.make_directory(directory)
        self._fs.sync_directory(self.path)
        if isinstance(self._fs, LocalFileSystem) and os.geteuid() == 0:
            own_as_root(self.path, directory)

    def _open_log(self, number: int) -> UnifiedLog:
        place, directory = self._place(number), self._directory(number)
        self._owners.enter_context(OfflineRoot(self.path, fs=self._fs).owners_kept(directory))
        return UnifiedLog.open(
            directory,
            self._config,
            recovery_point=max(self._checkpoint(RECOVERY_POINT_CHECKPOINT).read().get(place, 0), 0),
            log_start_offset=max(self._checkpoint(LOG_START_CHECKPOINT).read().get(place, 0), 0),
            high_watermark=self._checkpoint(HIGH_WATERMARK_CHECKPOINT).read().get(place),
            clean_shutdown=True,
            topic_id=self._topic_id,
            clock=self.clock,
            fs=self._fs,
            rng=self._rng,
            lock=False,  # that of the root is held
        )

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self._fs, join(self.path, name))

    def _place(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)

    def _directory(self, number: int) -> str:
        return join(self.path, str(self._place(number)))

    def _known_journal(self) -> WriteJournal:
        assert self._journal is not None
        return self._journal

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Bring everything to the disk, and let it be done with the removal of the journal."""
        self.prepare()
        self.conclude()

    @property
    def has_journal(self) -> bool:
        """Whether anything was changed here."""
        return bool(self._known_journal().partitions)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the logs end that were opened."""
        return {self._place(number): log.log_end_offset for number, log in self._logs.items()}

    def prepare(self, group: LoadGroup | None = None) -> None:
        """Bring everything to the disk. Until `conclude` the load can still be taken back.

        `group` is the whole load, if it goes into several directories.
        """
        journal = self._known_journal()
        journal.group = group
        if not journal.partitions:
            return  # there was no row, and every partition was there
        ends = self.ends
        for place, end in ends.items():
            journal.partitions[place] = journal.partitions[place]._replace(end_then=end)
        for log in self._logs.values():
            log.close()
        self._owners.close()
        write_journal(self._fs, self.path, journal)
        with OfflineRoot(self.path, fs=self._fs).owners_kept(self.path):
            self._write_checkpoints(ends)
            self._put_marker_back(journal.marker)

    def conclude(self) -> None:
        """Let the load be done: readers see it from here on."""
        if self.has_journal:
            remove_journal(self._fs, self.path)
        self._is_finished = True

    def leave_undecided(self) -> None:
        """Keep the journal as it is when this is left: another directory of the load has the say."""
        self._is_finished = True

    def put_journal_back(self) -> None:
        """Have the journal on the disk again after a `conclude` that failed, wherever it had come to."""
        write_journal(self._fs, self.path, self._known_journal())
        self._fs.sync_directory(self.path)

    def resume(self) -> None:
        """Take everything back when this is left, after all."""
        self._is_finished = False

    def _write_checkpoints(self, ends: dict[TopicPartition, int]) -> None:
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            checkpoint = self._checkpoint(name)
            checkpoint.write(checkpoint.read() | ends)
        for name in (LOG_START_CHECKPOINT, CLEANER_CHECKPOINT):
            self._checkpoint(name).create()

    def _put_marker_back(self, content: bytes | None) -> None:
        marker = CleanShutdownFile(self._fs, self.path)
        if content is None:
            marker.write()
        else:
            write_atomically(self._fs, marker.path, content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._is_finished:
                self._undo()
        except (TidelogError, KeyboardInterrupt) as second:
            raise StorageError(f"{_words(error)}; and {self._left_over(_words(second))}") from error
        finally:
            self._leave()

    def _undo(self) -> None:
        for log in self._logs.values():
            log.release()
        self._owners.close()
        journal = self._known_journal()
        if self._has_begun or journal_path(self._fs, self.path) is not None:
            take_back(self._fs, self.path, journal, self.clock, self._on_notice)
        elif journal.partitions:  # it could not be written, and nothing else was
            with suppress(TidelogError):
                self._fs.remove_directory(join(self.path, JOURNAL_ASIDE))

    def _left_over(self, why: str) -> str:
        """What is to be done about a load that could not be taken back."""
        if journal_path(self._fs, self.path) is None:  # it was removed, and could not be written again
            return f"it is open whether the rows are loaded ({why}): look before you load them again"
        return (
            f"what was loaded could not be taken back ({why}): run `tidelog recover {self.path}`; no broker starts "
            "there before"
        )

    def _leave(self) -> None:
        """Let others in without a trace, as a broker that stops; a root that was made in vain goes."""
        try:
            if self._lock is not None:
                self._fs.remove(join(self.path, LOCK_FILE))
            if not self._is_finished:
                self._remove_made()
        except StorageError as error:
            self._on_notice(f"{error}: it is left behind")  # what became of the load is another matter
        finally:
            if self._lock is not None:
                self._lock.release()

    def _remove_made(self) -> None:
        for path in self._made:
            if self._fs.stat(path) is not None:
                if self._fs.list(path):
                    return  # a journal that is still needed
                self._fs.remove_directory(path)
                self._fs.sync_directory(parent_of(path))


def _words(error: BaseException | None) -> str:
    return "interrupted" if error is None or isinstance(error, KeyboardInterrupt) else str(error)


def make_root(fs: FileSystem, path: str, made: list[str]) -> None:
    """Make a root if there is none, so that a loss of power leaves it there. What is new is added to `made`."""
    above = path
    while fs.stat(above) is None:
        made.append(above)
        above = parent_of(above)
    if made:
        fs.make_directory(path)
        for new in made:
            fs.sync_directory(parent_of(new))


def ensure_loadable(fs: FileSystem, root: str) -> None:
    """Raise if a directory is neither new nor empty nor a root."""
    about = fs.stat(root)
    if about is None:
        return
    if not about.is_directory:
        raise InvalidRequestError(f"{root} is a file: name a log directory, or one that is to be made")
    names = set(fs.list(root)) - _LEFT_BY_A_CRASH
    if any(name.endswith(".log") for name in names):
        raise InvalidRequestError(f"{root} is the directory of a partition: name the log directory that it lies in")
    is_root = bool(_SIGNS_OF_A_ROOT & names) or journal_path(fs, root) is not None
    if names and not is_root and not any(_is_partition(name) for name in names):
        raise InvalidRequestError(f"{root} holds other things than logs: name a log directory, or a new one")


def _is_partition(name: str) -> bool:
    try:
        return parse_directory_name(name).topic != CLUSTER_METADATA_TOPIC
    except InvalidTopicError:
        return False


def own_as_root(model: str, path: str) -> None:
    """Give a directory the owner and the mode of another: a broker must be able to write what root has made."""
    try:
        wanted = os.stat(model)
    except OSError as error:
        raise storage_error(model, error) from error
    own_as(path, wanted, stat.S_IMODE(wanted.st_mode))
