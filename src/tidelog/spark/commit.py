"""The commit of what the tasks of a job have staged: all of it, or nothing.

    with the root locked:  an interrupted commit or load is settled
                           every staged file is compared with what its task has said of it
                           the journal is written            <- here it is decided
                           the journal is done               (commit_apply)
                           what was staged is removed, and what dead attempts have left long ago

`tidelog.spark.recovery` does the first of these alone. Nothing here needs Spark.
"""

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidelog.errors import StorageError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.files import FileSystem
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_directories import DirectoryKind
from tidelog.log.names import TopicPartition
from tidelog.log.write_journal import journal_path, read_journal, remove_journal, write_journal
from tidelog.spark.commit_apply import apply_journal, check_pieces
from tidelog.spark.commit_plan import Order, Planning
from tidelog.spark.commit_room import ensure_room
from tidelog.spark.committed_batches import CommittedBatches
from tidelog.spark.recovery import locked, logs_in, remove_staged, settle
from tidelog.spark.staged_pieces import Piece, job_of, staged_directories
from tidelog.spark.write_options import WriteOptions
from tidelog.tables.load_root import ensure_loadable, make_root

__all__ = ["Order", "commit", "look", "withdraw"]

_log = logging.getLogger("tidelog.spark")


class _Hands:
    """What a commit is done with."""

    def __init__(self, fs: FileSystem | None, clock: Clock | None, rng: random.Random | None, threads: int | None):
        self.fs = LocalFileSystem() if fs is None else fs
        self.clock = SystemClock() if clock is None else clock
        self.rng = random.Random() if rng is None else rng
        self.threads = threads


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
    with locked(hands.fs, root, order.options.lock_timeout_ms):
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
    with locked(hands.fs, options.root, options.lock_timeout_ms):
        _settle(hands, options.root)
        found = logs_in(hands.fs, options.root)
        return [each.partition for each in found if each.kind is DirectoryKind.CURRENT]


def withdraw(pieces: Sequence[Piece], options: WriteOptions, job: str | None, *, fs: FileSystem | None = None) -> None:
    """Remove what was staged for a commit that will not be; what a journal has decided on stays.

    `job` is given where nobody else can have staged under its name. If somebody has the root open, perhaps the broker
    for which there was no commit, or the disk refuses, all of it is left to be swept.
    """
    hands = _Hands(fs, None, None, None)
    if hands.fs.stat(options.root) is None:
        return
    try:
        with locked(hands.fs, options.root, 0):
            journal = read_journal(hands.fs, options.root)
            hands.fs.sync_directory(options.root)  # one that is gone stays so: it would want its pieces
            kept = set() if journal is None else {piece.directory for piece in journal.pieces}
            staged = {piece.directory for piece in pieces}
            staged |= {name for name, _ in staged_directories(hands.fs, options.root) if job_of(name) == job}
            remove_staged(hands.fs, options.root, staged - kept)
    except StorageError as error:
        _log.warning("%s: what was staged is left to be swept", error)


def _settle(hands: _Hands, root: str) -> None:
    """Finish or take back what was interrupted; reject a root that was not closed in good order."""
    settle(hands.fs, root, hands.clock, hands.rng, hands.threads)
    if logs_in(hands.fs, root) and not CleanShutdownFile(hands.fs, root).exists():
        raise StorageError(
            f"{root} was not closed in good order, or a broker has it open: run `tidelog recover {root}`, or start the "
            "broker on it and stop it, then try again"
        )


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
    remove_staged(fs, root, gone)


# -- the journal -------------------------------------------------------------------------------------------------------


def _commit(hands: _Hands, order: Order) -> None:
    fs, root = hands.fs, order.options.root
    journal = Planning(fs, hands.clock, hands.rng, order).journal()
    if not journal.partitions and not journal.dropped:
        if order.key is not None:
            CommittedBatches(fs, root).note(order.key)
        return
    try:
        check_pieces(fs, root, journal, hands.threads)
    except StorageError as error:
        raise StorageError(f"{error}; nothing is committed") from error
    ensure_room(fs, root, journal)
    try:
        write_journal(fs, root, journal)
    except BaseException:
        _take_journal_back(fs, root)
        raise
    with _decided(root):
        apply_journal(
            fs, root, journal, clock=hands.clock, rng=hands.rng, is_redo=False, threads=hands.threads
        )  # fmt: skip


def _take_journal_back(fs: FileSystem, root: str) -> None:
    """Remove a journal that is there and may not last; without one nothing was decided."""
    try:
        if journal_path(fs, root) is not None:
            remove_journal(fs, root)
    except (TidelogError, KeyboardInterrupt) as error:
        raise StorageError(
            f"{str(error) or 'interrupted'}; it is open whether these rows are committed: run `tidelog recover "
            f"{root}`, which finishes the commit if need be, and look whether they are there before writing them again"
        ) from error


@contextmanager
def _decided(root: str) -> Iterator[None]:
    """Say so if something goes wrong once the journal is there."""
    try:
        yield
    except (TidelogError, KeyboardInterrupt) as error:
        raise StorageError(
            f"{str(error) or 'interrupted'}; the commit is decided, and the next write to {root}, or `tidelog recover "
            f"{root}`, finishes it: do not write these rows again"
        ) from error
