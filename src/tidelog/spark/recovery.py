"""Recovery of log directories while no broker runs: unfinished writes, and logs after an unclean stop.

    recover(["/var/lib/kafka/1", "/var/lib/kafka/2"])

A journal in a directory (`tidelog.log.write_journal`) says which write is unfinished. A commit of Spark's is finished:
it was decided. A load is taken back: it was not. Either way it can be repeated from its beginning, so a recovery that
is interrupted is no special case. Then, where the marker of a clean stop is missing, the logs are recovered as a broker
recovers them when it starts. That ends a log at its first damaged batch. Where sound batches come after it, which
`fsck --repair` would keep, a directory is left as it is, unless the caller wants Kafka's way.

Nothing here needs Spark.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tidelog.errors import InvalidRequestError, LockedError, StorageError, TidelogError
from tidelog.fsck.recovery_cuts import RecoveryCut, rehearsed_recovery
from tidelog.fsck.recovery_losses import RecoveryLoss, recovery_losses
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.files import FileLock, FileSystem, ensure_named, join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_directories import DirectoryKind, LogDirectory, list_directories
from tidelog.log.manager.log_manager import LogManager
from tidelog.log.names import JOURNAL_ASIDE, LOCK_FILE, UNFINISHED_WRITE, TopicPartition
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.write_journal import (
    WriteJournal,
    WriteKind,
    ensure_untouched,
    journal_path,
    read_journal,
)
from tidelog.spark.commit_apply import apply_journal, check_pieces
from tidelog.tables.load_root import ensure_loadable
from tidelog.tables.load_undo import is_decided, settle_load

__all__ = ["Recovery", "locked", "logs_in", "recover", "remove_staged", "settle", "settle_root"]

_log = logging.getLogger("tidelog.spark")

_POLL_S = 0.05


class Recovery(NamedTuple):
    """What was done in a log directory."""

    root: str
    write: WriteJournal | None  # that was unfinished
    were_logs_recovered: bool
    was_decided: bool = False  # it is a load that was done in another directory already
    cuts: tuple[RecoveryCut, ...] = ()  # what was cut out of logs, or would be
    notices: tuple[str, ...] = ()  # what was cut off while the write was settled, besides its own records
    losses: tuple[RecoveryLoss, ...] = ()  # what the checkpoints knew of and is not there

    @property
    def is_rejected(self) -> bool:
        """Whether the logs were left as they are: recovery would cut sound batches off."""
        return not self.were_logs_recovered and bool(self.cuts)

    @property
    def is_harmless(self) -> bool:
        """Whether no log lost more than an incomplete batch at its end, and no flushed record is missing."""
        is_whole = not self.notices and not any(loss.is_certain for loss in self.losses)
        return is_whole and not self.is_rejected and all(cut.is_torn_end for cut in self.cuts)

    @property
    def is_taken_back(self) -> bool:
        """Whether an unfinished write was taken back, and not finished."""
        return self.write is not None and self.write.kind is WriteKind.LOAD and not self.was_decided

    def __str__(self) -> str:
        """What was done, in a sentence."""
        done = []
        if self.write is not None:
            deed = "taken back" if self.is_taken_back else "finished"
            topics = ", ".join(sorted({place.topic for place in (*self.write.partitions, *self.write.dropped)}))
            done.append(f"{self.write.kind.words} into {topics} was interrupted and is {deed}")
        if self.were_logs_recovered:
            done.append("there was no clean stop and the logs are recovered")
        if self.is_rejected:
            lost = [cut for cut in self.cuts if cut.loses_sound_batches]
            which = f"{lost[0].directory} ({lost[0].offsets})"
            more = f" and of {len(lost) - 1} more" if len(lost) > 1 else ""
            done.append(
                f"the logs are not recovered, since sound batches after damage would be cut out of {which}{more}: "
                f"`tidelog fsck --repair {self.root}` keeps them, `tidelog recover --like-kafka` cuts them off"
            )
        return f"{self.root}: {'; '.join(done) or 'nothing to recover'}"

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "root": self.root,
            "taken_back": self.is_taken_back,
            "finished": self.write is not None and not self.is_taken_back,
            "recovered": self.were_logs_recovered,
            "rejected": self.is_rejected,
            "cuts": [cut.to_dict() for cut in self.cuts],
            "losses": [loss.to_dict() for loss in self.losses],
            "notices": list(self.notices),
        }


def recover(
    paths: Sequence[str],
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    logs: bool = True,
    like_kafka: bool = False,
) -> list[Recovery]:
    """Finish or take back what was interrupted in log directories; then recover their logs, unless `logs` is false.

    The logs of a directory are left as they are where sound batches after damage would be cut off, unless `like_kafka`.
    Raises LockedError where a broker has one open, and CheckpointError, with nothing touched, for a journal that is
    not valid.
    """
    fs = LocalFileSystem() if fs is None else fs
    clock = SystemClock() if clock is None else clock
    roots = list(dict.fromkeys(ensure_named(path).rstrip("/") or "/" for path in paths))
    for root in roots:
        about = fs.stat(root)
        if about is None or not about.is_directory:
            raise InvalidRequestError(f"{root} is no directory: name the log directories of a broker")
        ensure_loadable(fs, root)
    # All are known to be valid before the first is followed. Of a load into several, the first has the say to the end.
    journals = {root: read_journal(fs, root) for root in roots}
    order = sorted(roots, key=lambda root: _is_first_of_group(journals[root]))
    decided = {root for root, journal in journals.items() if journal is not None and is_decided(fs, journal)}
    notices: dict[str, list[str]] = {root: [] for root in roots}
    writes = {root: _settled(fs, root, clock, notices[root].append) for root in order}
    unmarked = [root for root in roots if logs and not CleanShutdownFile(fs, root).exists()]
    unclean = [root for root in unmarked if logs_in(fs, root)]
    cuts, ends = _rehearsed(fs, unclean, clock)
    if not like_kafka:
        rejected = {root for root in unclean if any(cut.loses_sound_batches for cut in cuts[root])}
        unmarked, unclean = ([root for root in some if root not in rejected] for some in (unmarked, unclean))
    losses = _losses(fs, roots, unmarked, ends)  # before the checkpoints are rewritten
    if unclean:
        with ExitStack() as owners:  # a broker must be able to open what root has written
            for root in unclean:
                for directory in (root, *(each.path for each in logs_in(fs, root))):
                    owners.enter_context(OfflineRoot(root, fs=fs).owners_kept(directory))
            manager = LogManager.open(unclean, fs=fs, clock=clock)
            offline = [f"{root.path} is not recovered: {root.failure}" for root in manager.roots if root.failure]
            manager.close()
        if offline:
            raise StorageError("; ".join(offline))
    return [
        Recovery(
            root,
            writes[root],
            root in unclean,
            root in decided,
            tuple(cuts.get(root, ())),
            tuple(notices[root]),
            tuple(losses.get(root, ())),
        )
        for root in roots
    ]


Ends = dict[TopicPartition, int]


def _rehearsed(
    fs: FileSystem, roots: Sequence[str], clock: Clock
) -> tuple[dict[str, list[RecoveryCut]], dict[str, Ends]]:
    """What recovery would cut, and where logs would end, by root.

    The locks are held meanwhile: of a log that grows nothing could be said.
    """
    with ExitStack() as locks:
        for root in roots:
            locks.enter_context(locked(fs, root, 0))
        found = {root: rehearsed_recovery(fs, root, clock) for root in roots}
    return {root: cuts for root, (cuts, _) in found.items()}, {root: ends for root, (_, ends) in found.items()}


def _losses(
    fs: FileSystem, roots: Sequence[str], unmarked: Sequence[str], ends: dict[str, Ends]
) -> dict[str, list[RecoveryLoss]]:
    """The partitions that do not reach what the checkpoints say, by root. Those without a log count, too."""
    there = {root: {each.partition for each in logs_in(fs, root)} for root in roots}
    elsewhere = {root: set().union(*(there[other] for other in roots if other != root)) for root in unmarked}
    return {root: recovery_losses(fs, root, ends.get(root, {}), elsewhere[root]) for root in unmarked}


def _is_first_of_group(journal: WriteJournal | None) -> bool:
    return journal is not None and journal.group is not None and journal.group.number == 0


def _settled(fs: FileSystem, root: str, clock: Clock, on_notice: Callable[[str], None]) -> WriteJournal | None:
    """Settle a root if there is anything to settle; what was unfinished."""
    if journal_path(fs, root) is None and fs.stat(join(root, JOURNAL_ASIDE)) is None:
        return None
    with locked(fs, root, 0):
        journal = read_journal(fs, root)
        settle(fs, root, clock, random.Random(), on_notice=on_notice)
    return journal


def settle_root(root: str, *, fs: FileSystem | None = None, clock: Clock | None = None) -> WriteKind | None:
    """Settle the unfinished write in a root, if there is one; which kind it was."""
    [done] = recover([root], fs=fs, clock=clock, logs=False)
    return None if done.write is None else done.write.kind


def settle(
    fs: FileSystem,
    root: str,
    clock: Clock,
    rng: random.Random,
    threads: int | None = None,
    on_notice: Callable[[str], None] = _log.warning,
) -> WriteKind | None:
    """Finish a commit that was interrupted, or take a load back. The caller has the lock of the root.

    `on_notice` is told what is cut off besides the records of the write.
    """
    journal = read_journal(fs, root)
    if journal is None:
        fs.remove_directory(join(root, JOURNAL_ASIDE))
        return None
    ensure_untouched(fs, root, journal)
    if journal.kind is WriteKind.LOAD:
        settle_load(fs, root, journal, clock, on_notice)
        return journal.kind
    try:
        check_pieces(fs, root, journal, threads)
    except TidelogError as error:
        places = ", ".join(f"{place} from offset {note.end} on" for place, note in journal.partitions.items())
        raise StorageError(
            f"{error}. {journal.kind.words[:1].upper()}{journal.kind.words[1:]} into {root} was interrupted and cannot "
            f"be finished; some of its records may lie in {places}. Compare the topics with the input, write what is "
            f"missing again, and remove {join(root, UNFINISHED_WRITE)}"
        ) from error
    apply_journal(fs, root, journal, clock=clock, rng=rng, is_redo=True, threads=threads, on_notice=on_notice)
    remove_staged(fs, root, {piece.directory for piece in journal.pieces})
    return journal.kind


# -- roots -------------------------------------------------------------------------------------------------------------


def logs_in(fs: FileSystem, root: str) -> list[LogDirectory]:
    """The directories of a root that are logs, but for those that wait to be removed."""
    return [each for each in list_directories(fs, root) if each.kind is not DirectoryKind.DELETED]


def remove_staged(fs: FileSystem, root: str, names: set[str]) -> None:
    """Remove staged directories. What cannot be removed is logged: what became of the commit is another matter."""
    for name in sorted(names):
        try:
            fs.remove_directory(join(root, name))
        except StorageError as error:
            _log.warning("%s: it is left behind", error)


@contextmanager
def locked(fs: FileSystem, root: str, timeout_ms: int) -> Iterator[None]:
    """The lock of a root, waited for a while: another commit may have it for a moment."""
    ensure_loadable(fs, root)
    lock = _lock(fs, root, timeout_ms)
    try:
        yield
    finally:
        try:
            fs.remove(join(root, LOCK_FILE))  # as a broker that stops
        except StorageError as error:
            _log.warning("%s: it is left behind", error)
        finally:
            lock.release()


def _lock(fs: FileSystem, root: str, timeout_ms: int) -> FileLock:
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            return fs.lock(join(root, LOCK_FILE))
        except LockedError as error:
            if time.monotonic() >= deadline:
                how = "; lockTimeout says how long to wait" if timeout_ms else ""
                raise LockedError(f"a broker or another tidelog has {root} open: stop it first{how}") from error
        time.sleep(_POLL_S)
