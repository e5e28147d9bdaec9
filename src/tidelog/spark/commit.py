"""The commit of what the tasks of a job have staged: all of it, or nothing.

    with the root locked:  an interrupted commit or load is settled
                           every staged file is compared with what its task has said of it
                           the journal is written            <- here it is decided
                           the journal is done               (commit_apply)
                           what was staged is removed, and what dead attempts have left long ago

`roll_forward` does the first of these alone. Nothing here needs Spark.
"""

import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidelog.errors import LockedError, StorageError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.files import FileLock, FileSystem, join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_directories import DirectoryKind
from tidelog.log.names import COMMIT_JOURNAL, LOCK_FILE, TopicPartition
from tidelog.spark.commit_apply import apply_journal, check_pieces
from tidelog.spark.commit_journal import CommitJournal, ensure_untouched
from tidelog.spark.commit_plan import Order, Planning, logs_in
from tidelog.spark.commit_room import ensure_room
from tidelog.spark.committed_batches import CommittedBatches
from tidelog.spark.staged_pieces import Piece, job_of, staged_directories
from tidelog.spark.write_options import WriteOptions
from tidelog.tables.load_journal import LoadJournal, cut_back
from tidelog.tables.load_journal import ensure_untouched as ensure_load_untouched
from tidelog.tables.load_root import ensure_loadable, make_root

__all__ = ["Order", "commit", "look", "roll_forward", "withdraw"]

_log = logging.getLogger("tidelog.spark")

_POLL_S = 0.05


class _Hands:
    """What a commit is done with."""

    def __init__(self, fs: FileSystem | None, clock: Clock | None, rng: random.Random | None, threads: int | None):
        self.fs = LocalFileSystem() if fs is None else fs
        self.clock = SystemClock() if clock is None else clock
        self.rng = random.Random() if rng is None else rng
        self.threads = threads

    def apply(self, journal: CommitJournal, *, is_redo: bool) -> None:
        apply_journal(journal, clock=self.clock, rng=self.rng, is_redo=is_redo, threads=self.threads)


def commit(
    order: Order,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    threads: int | None = None,
) -> bool:
    """Commit an order; False if it is a batch of a stream that was committed before."""
    hands = _Hands(fs, clock, rng, threads)
    root = order.options.root
    with _locked(hands, root, order.options.lock_timeout_ms):
        _settle(hands, root)
        is_new = order.key is None or not CommittedBatches(hands.fs, root).holds(order.key)
        if is_new:
            _commit(hands, order)
        _sweep(hands, order)
    return is_new


def look(options: WriteOptions, *, fs: FileSystem | None = None, clock: Clock | None = None) -> list[TopicPartition]:
    """The partitions that are there for a write to come. The root is made if there is none, and put in order."""
    hands = _Hands(fs, clock, None, None)
    ensure_loadable(hands.fs, options.root)
    make_root(hands.fs, options.root, [])
    with _locked(hands, options.root, options.lock_timeout_ms):
        _settle(hands, options.root)
        found = logs_in(hands.fs, options.root)
        return [each.partition for each in found if each.kind is DirectoryKind.CURRENT]


def roll_forward(
    root: str, *, fs: FileSystem | None = None, clock: Clock | None = None, lock_timeout_ms: int = 0
) -> bool:
    """Bring a commit that was interrupted to its end; whether there was one."""
    hands = _Hands(fs, clock, None, None)
    if hands.fs.stat(join(root, COMMIT_JOURNAL)) is None:
        return False
    with _locked(hands, root, lock_timeout_ms):
        return _redo(hands, root)


def withdraw(pieces: Sequence[Piece], options: WriteOptions, job: str | None, *, fs: FileSystem | None = None) -> None:
    """Remove what was staged for a commit that will not be; what a journal has decided on stays.

    `job` is given where nobody else can have staged under its name. If somebody has the root open, perhaps the broker
    for which there was no commit, all of it is left to be swept.
    """
    hands = _Hands(fs, None, None, None)
    if hands.fs.stat(options.root) is None:
        return
    try:
        with _locked(hands, options.root, 0):
            journal = CommitJournal.read(hands.fs, options.root)
            kept = set() if journal is None else journal.directories
            staged = {piece.directory for piece in pieces}
            staged |= {name for name, _ in staged_directories(hands.fs, options.root) if job_of(name) == job}
            _remove(hands.fs, options.root, staged - kept)
    except LockedError as error:
        _log.warning("%s: what was staged is left to be swept", error)


# -- the root ----------------------------------------------------------------------------------------------------------


@contextmanager
def _locked(hands: _Hands, root: str, timeout_ms: int) -> Iterator[None]:
    """The lock of a root, waited for a while: another commit may have it for a moment."""
    ensure_loadable(hands.fs, root)
    lock = _lock(hands.fs, root, timeout_ms)
    try:
        yield
    finally:
        try:
            hands.fs.remove(join(root, LOCK_FILE))  # as a broker that stops
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
                raise LockedError(
                    f"a broker or another tidelog has {root} open: stop it first; lockTimeout says how long to wait"
                ) from error
        time.sleep(_POLL_S)


def _settle(hands: _Hands, root: str) -> None:
    """Bring what was interrupted to its end, or back to its beginning; refuse a root that is not in order."""
    _redo(hands, root)
    load = LoadJournal.read(hands.fs, root)
    if load is not None:
        ensure_load_untouched(load)
        cut_back(load, hands.clock)
    if logs_in(hands.fs, root) and not CleanShutdownFile(hands.fs, root).exists():
        raise StorageError(
            f"{root} was not closed in good order, or a broker has it open: "
            "start the broker on it and stop it, then try again"
        )


def _redo(hands: _Hands, root: str) -> bool:
    journal = CommitJournal.read(hands.fs, root)
    if journal is None:
        return False
    ensure_untouched(journal)
    try:
        check_pieces(journal, hands.threads)
    except TidelogError as error:
        raise StorageError(f"{error}. {journal.what_to_do()}") from error
    hands.apply(journal, is_redo=True)
    _remove(hands.fs, root, journal.directories)
    return True


def _remove(fs: FileSystem, root: str, names: set[str]) -> None:
    """Remove what was staged. What cannot be removed is told: what became of the commit is another matter."""
    for name in sorted(names):
        try:
            fs.remove_directory(join(root, name))
        except StorageError as error:
            _log.warning("%s: it is left behind", error)


def _sweep(hands: _Hands, order: Order) -> None:
    """Remove what the job has staged, whichever attempt did, and what others have not touched for long."""
    fs, root = hands.fs, order.options.root
    latest_ms = hands.clock.now_ms() - order.options.staging_retention_ms
    gone = {piece.directory for piece in order.pieces}
    try:
        for name, modified_ms in staged_directories(fs, root):
            if job_of(name) == order.job or modified_ms < latest_ms:
                gone.add(name)
    except StorageError as error:
        _log.warning("%s: what dead attempts have left is not swept", error)
    _remove(fs, root, gone)


# -- the journal -------------------------------------------------------------------------------------------------------


def _commit(hands: _Hands, order: Order) -> None:
    journal = Planning(hands.fs, hands.clock, hands.rng, order).journal()
    if not journal.partitions and not journal.dropped:
        if order.key is not None:
            CommittedBatches(hands.fs, order.options.root).note(order.key)
        return
    try:
        check_pieces(journal, hands.threads)
    except StorageError as error:
        raise StorageError(f"{error}; nothing is committed") from error
    ensure_room(hands.fs, journal)
    try:
        journal.write()
    except StorageError as error:
        with _decided(journal):
            journal.remove()  # it may be there
        raise error
    with _decided(journal):
        hands.apply(journal, is_redo=False)


@contextmanager
def _decided(journal: CommitJournal) -> Iterator[None]:
    """Say so if something goes wrong once the journal is there, or may be."""
    try:
        yield
    except (TidelogError, KeyboardInterrupt) as error:
        raise StorageError(
            f"{str(error) or 'interrupted'}; the commit is decided, and the next write to {journal.root} "
            "brings it to its end: do not write these rows again"
        ) from error
