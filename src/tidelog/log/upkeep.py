"""What a log does beside its work, when its host gives it time: flushing, syncing ahead, mending indexes, forgetting.

A log that was opened also learns the largest timestamps of its segments, which lookups by time go by. To read them all
at the start would make it slow, to leave it to the first lookup would make that slow, so a few are read at a time.

All of it are tasks of the log in the schedule of its host (tasks.py). Nothing here is needed for an answer to be right.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from tidelog.errors import CorruptIndexError
from tidelog.log.indexer import rebuild_indexes
from tidelog.log.segment import LogSegment
from tidelog.log.tasks import Call, OwnTasks, SlicedTask

if TYPE_CHECKING:
    from tidelog.log.unified_log import UnifiedLog

__all__ = ["Upkeep"]

SYNC_AHEAD_BYTES = 32 << 20
LEARNT_AT_ONCE = 16  # segments: a few milliseconds if nothing is in the page cache
_LEARNING_PAUSE_MS = 10


class Upkeep:
    """The upkeep of one log."""

    def __init__(self, log: UnifiedLog, expiration_check_interval_ms: int) -> None:
        self.tasks = OwnTasks(log.local.schedule, log.fail)
        self._log = log
        self._expiration_check_interval_ms = expiration_check_interval_ms
        self._syncing: LogSegment | None = None
        self._mending: set[LogSegment] = set()
        self._is_learning = False  # whether it is in the schedule
        self._is_flushing_epochs = False
        self._check_expiration_later()
        self._learn_later()

    def look_around(self) -> None:
        """Find out what there is to do, and put it into the schedule. What is done at once is index entries written."""
        self._log.active_segment.write_index_tails()
        self._sync_ahead()
        self._learn_later()
        self.flush_epochs()
        for segment in self._log.local.wrong_indexes():
            if segment not in self._mending:
                self._mending.add(segment)
                self.tasks.soon(SlicedTask("rebuild indexes", self._mend(segment), self._log.local.clock))

    def flush_before(self, offset: int, snapshot: str | None = None) -> Call:
        """Soon, have everything below an offset on the disk, and a snapshot of the producers; the task that does it.

        Whichever thread waits for the disk, the owner notes that it is done, if nothing was truncated meanwhile: then
        what was flushed may have been cut, and other data be in its place.
        """
        local, truncations = self._log.local, self._log.local.truncations

        def flush() -> None:
            if snapshot is not None and local.fs.stat(snapshot) is not None:
                file = local.fs.open_write(snapshot, create=False)
                file.sync()
                file.close()
            if offset > local.recovery_point:
                local.flush(offset)

        def note() -> None:
            if truncations == local.truncations:
                local.mark_flushed(offset)

        task = Call("flush", flush, then=note, waits_for_disk=True)
        self.tasks.soon(task)
        return task

    def flush_epochs(self) -> None:
        """Soon, write the leader epochs if they have changed."""
        if self._log.leader_epochs.is_dirty and not self._is_flushing_epochs:
            self._is_flushing_epochs = True
            self.tasks.soon(Call("flush epochs", self._flush_epochs))

    def _flush_epochs(self) -> None:
        self._is_flushing_epochs = False  # first: if no file can be opened now, the next look around asks again
        self._log.leader_epochs.flush()

    def _sync_ahead(self) -> None:
        """Send the active segment to the disk while it fills, so that little is left to wait for when it is rolled."""
        active = self._log.active_segment
        if active.unsynced_bytes >= SYNC_AHEAD_BYTES and self._syncing is not active:
            self._syncing = active
            self.tasks.soon(Call("sync ahead", self._sync, waits_for_disk=True))

    def _sync(self) -> None:
        segment = self._syncing
        try:
            if segment is not None:
                segment.sync_log()
        finally:
            self._syncing = None

    def _mend(self, segment: LogSegment) -> Generator[None, None, None]:
        """Rebuild the indexes of a segment, of which a reader has found that they do not fit the log."""
        log = self._log
        truncations = log.local.truncations

        def is_stale() -> bool:
            return truncations != log.local.truncations or log.local.segments.get(segment.base_offset) is not segment

        try:
            yield from rebuild_indexes(
                log.local.fs, segment, log.config, is_active=lambda: segment is log.active_segment, is_stale=is_stale
            )
        finally:
            self._mending.discard(segment)  # if it is still wrong, it has another turn

    def _learn_later(self) -> None:
        """In a moment, ask a few segments for their largest timestamps, if some are not known.

        The more there is in the schedule, the later: many logs that were opened together take turns.
        """
        local = self._log.local
        if not self._is_learning and local.segments.has_unknown_times:
            self._is_learning = True
            pause_ms = _LEARNING_PAUSE_MS * max(len(local.schedule), 1)
            self.tasks.after(pause_ms, Call("learn times", self._learn_times))

    def _learn_times(self) -> None:
        self._is_learning = False
        if self._log.failure is not None:
            return
        try:
            self._log.local.segments.learn_times(LEARNT_AT_ONCE)
        except CorruptIndexError:
            return  # the segment has noted it: its indexes are rebuilt, and it is asked again
        self._learn_later()

    def _check_expiration_later(self) -> None:
        self.tasks.after(self._expiration_check_interval_ms, Call("expire producers", self._check_expiration))

    def _check_expiration(self) -> None:
        if self._log.failure is None:
            self._log.remove_expired_producers()
            self._check_expiration_later()
