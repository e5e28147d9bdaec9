"""Which leader wrote which offsets: a short list in memory, and its checkpoint.

Each time a partition gets a leader the controller counts its epoch up. A log keeps, per epoch, the offset at which it
began; an epoch ends where the next begins, and the latest ends where the log does. Epochs and offsets both increase
strictly from entry to entry:

    epoch     0       2          5
    offsets   0 1 2 3 4 5 6 7 8  9 10 11 ...        entries (0, 0), (2, 4), (5, 9)

With it a follower finds out where its log and the leader's part: it asks where the leader's copy of its own latest
epoch ends. Numbers alone could not tell, since two leaders may have given the same offsets to different batches.

A new epoch is in the file before it is in memory, so the file never lacks an entry. If the write fails, memory stays as
it was, the file may be either, and the next append writes it again first. Truncation only takes entries away: it
changes memory, and the file later, by `flush`. Entries that a crash brings back are taken away again when the log is
loaded and truncates to its ends.

Readers see one tuple, replaced as a whole; writers exclude each other.

Kafka: LeaderEpochFileCache.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from tidelog.errors import CheckpointError, InvalidRequestError, StorageError
from tidelog.log.checkpoints import EpochEntry, LeaderEpochCheckpoint
from tidelog.log.offsets import MAX_OFFSET
from tidelog.records.java import MAX_INT32

__all__ = ["UNDEFINED", "EpochEnd", "EpochEntry", "LeaderEpochCache"]

_Entries = tuple[EpochEntry, ...]
_EPOCH = attrgetter("epoch")
_START = attrgetter("start_offset")
_UNSETTLED = -2  # no batch has this epoch


class EpochEnd(NamedTuple):
    """An epoch, and the offset behind its last batch."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEnd(-1, -1)


class LeaderEpochCache:
    """The leader epochs of one log, kept in its `leader-epoch-checkpoint`."""

    def __init__(self, checkpoint: LeaderEpochCheckpoint) -> None:
        self.checkpoint = checkpoint
        self._entries = _in_order(checkpoint.read(), checkpoint.path)
        self._latest = self._entries[-1] if self._entries else None  # every append asks for it
        self._is_dirty = False
        self._is_unsure = False  # a write failed: the file may hold what was there before, or what was written
        self._changing = threading.Lock()
        # The latest epoch, -2 while the file is unsure: an append of this epoch has nothing to note.
        self.settled_epoch = self.latest_epoch

    @property
    def entries(self) -> _Entries:
        """All entries, oldest first."""
        return self._entries

    @property
    def is_dirty(self) -> bool:
        """Whether the file holds something else."""
        return self._is_dirty

    @property
    def latest(self) -> EpochEntry | None:
        """The entry of the leader that writes now, or wrote last."""
        return self._latest

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of `latest`."""
        latest = self._latest
        return None if latest is None else latest.epoch

    @property
    def previous_epoch(self) -> int | None:
        """The epoch before the latest."""
        entries = self._entries
        return entries[-2].epoch if len(entries) > 1 else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The entry of the oldest offsets in the log."""
        entries = self._entries
        return entries[0] if entries else None

    # -- questions -----------------------------------------------------------------------------------------------

    def end_offset_for(self, epoch: int, log_end: int) -> EpochEnd:
        """The largest epoch up to the one asked for, and where it ends; UNDEFINED above the latest and for -1.

        Below the earliest epoch the answer is the epoch asked for and the start of the earliest: whatever it wrote is
        gone, and a follower goes on at the first offset there is.
        """
        entries = self._entries
        above = bisect_right(entries, epoch, key=_EPOCH)  # the first entry of a higher epoch
        if epoch == UNDEFINED.epoch or not entries:
            return UNDEFINED
        if above == len(entries):
            return EpochEnd(epoch, log_end) if entries[-1].epoch == epoch else UNDEFINED
        return EpochEnd(entries[above - 1].epoch if above else epoch, entries[above].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which an offset was written; None below the earliest entry."""
        entries = self._entries
        above = bisect_right(entries, offset, key=_START)
        return entries[above - 1].epoch if above else None

    def next_epoch(self, epoch: int) -> int | None:
        """The lowest epoch above the one given."""
        entries = self._entries
        above = bisect_right(entries, epoch, key=_EPOCH)
        return entries[above].epoch if above < len(entries) else None

    # -- changes -------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin an epoch at an offset and write the file; whether that was news.

        Entries that contradict the new one, of the same or a higher epoch or from the same or a higher offset on, go.
        """
        self.settle()
        latest = self._latest
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return False
        if not (0 <= epoch <= MAX_INT32 and 0 <= start_offset <= MAX_OFFSET):
            raise InvalidRequestError(
                f"leader epoch {epoch} from offset {start_offset}: the largest are {MAX_INT32} and {MAX_OFFSET}"
            )
        with self._changing:
            entries = list(self._entries)
            if not _assign(entries, EpochEntry(epoch, start_offset)):
                return False  # somebody else was faster
            self._write(tuple(entries))
        return True

    def truncate_from_end(self, offset: int) -> None:
        """Forget the epochs that begin at an offset or behind it. A negative offset means none and changes nothing."""
        with self._changing:
            if offset >= 0:
                self._replace(self._entries[: bisect_left(self._entries, offset, key=_START)])

    def truncate_from_start(self, offset: int) -> None:
        """Forget the epochs that end at or before an offset; the one that it lies in now begins there."""
        with self._changing:
            above = bisect_right(self._entries, offset, key=_START)
            if above:
                first = EpochEntry(self._entries[above - 1].epoch, offset)
                self._replace((first, *self._entries[above:]))

    def clear(self) -> None:
        """Forget all epochs."""
        with self._changing:
            self._replace(())

    def clear_and_flush(self) -> None:
        """Forget all epochs, in the file too, before this returns."""
        with self._changing:
            self._write(())

    def settle(self) -> None:
        """Write the file if the last write failed: an append must find in it what is in memory."""
        if self._is_unsure:
            with self._changing:
                self._write(self._entries)

    def flush(self) -> None:
        """Write the file if it holds something else.

        This may run long after the truncation. If the directory was renamed or removed in the meantime, as happens to
        the directory of a deleted topic, there is nothing to keep up to date, and the cache stays dirty.
        """
        with self._changing:
            if not self._is_dirty:
                return
            try:
                self._write(self._entries)
            except StorageError:
                if self.checkpoint.directory_exists():
                    raise

    def _replace(self, entries: _Entries) -> None:
        if entries != self._entries:
            self._entries = entries
            self._latest = entries[-1] if entries else None
            self._is_dirty = True
            if not self._is_unsure:
                self.settled_epoch = self.latest_epoch

    def _write(self, entries: _Entries) -> None:
        """Write the file, then change memory. If the file cannot be written, memory stays as it is."""
        self._is_dirty = self._is_unsure = True
        self.settled_epoch = _UNSETTLED
        self.checkpoint.write(entries)
        self._is_unsure = False
        self._replace(entries)
        self.settled_epoch = self.latest_epoch
        self._is_dirty = False


def _assign(entries: list[EpochEntry], new: EpochEntry) -> bool:
    """Put a new entry at the end and take away those that contradict it; False if it is no news."""
    if entries and entries[-1].epoch == new.epoch and entries[-1].start_offset <= new.start_offset:
        return False
    while entries and (entries[-1].epoch >= new.epoch or entries[-1].start_offset >= new.start_offset):
        entries.pop()
    entries.append(new)
    return True


def _in_order(found: Iterable[EpochEntry], path: str) -> _Entries:
    """What a file says, made consistent the way Kafka does: as if its entries were assigned one after the other."""
    entries: list[EpochEntry] = []
    for entry in found:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise CheckpointError(f"{path}: leader epoch {entry.epoch} from offset {entry.start_offset}")
        _assign(entries, entry)
    return tuple(entries)
