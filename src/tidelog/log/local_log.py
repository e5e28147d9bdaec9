"""The segments of one partition on the disk: appending to the last, rolling, reading, truncating, flushing, deleting.

This layer knows files and offsets. It does not know producers, epochs or watermarks: those are UnifiedLog's, which
calls it and decides how far a reader may see.

Kafka: kafka.log.LocalLog.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.errors import InvalidRequestError, LogClosedError, OffsetOutOfRangeError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.deletion import Deletion
from tidelog.log.files import FileSystem, WriteFile, join, no_turning_back, parent_of
from tidelog.log.log_reader import LogReader
from tidelog.log.lookup import Step
from tidelog.log.names import DELETED, SEGMENT_SUFFIXES, SWAP, file_name
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.region import Region
from tidelog.log.segment import LogSegment
from tidelog.log.segment_swap import rename_deleted
from tidelog.log.segments import LogSegments
from tidelog.log.tasks import Later, Schedule
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.varint import Buffer

__all__ = ["LocalLog"]

Found = TypeVar("Found")


class LocalLog:
    """The segments, the log end, and the offset up to which all is on the disk."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        clock: Clock,
        rng: random.Random,
        schedule: Schedule,
        segments: LogSegments[LogSegment],
        *,
        recovery_point: int,
        log_end_offset: int,
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.config = config
        self.clock = clock
        self.rng = rng
        self.schedule = schedule
        self.segments = segments
        self.recovery_point = recovery_point
        self.last_flushed_ms = clock.now_ms()
        self.is_closed = False
        self.truncations = 0  # how often data was cut: a flush that was begun before proves nothing after
        self.tasks: Later = schedule  # where deletions are put; a log puts its own in here
        self.fail: Callable[[BaseException], object] = lambda error: None  # told of a change that is half made
        active = segments.active
        self.log_end = OffsetMetadata(log_end_offset, active.base_offset, active.size)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, data: Buffer, batches: Sequence[BatchInfo], file: WriteFile | None = None) -> None:
        """Write to the active segment, to the file that its `prepare` gave, and move the log end."""
        active = self.segments.active
        active.write(active.prepare(batches[-1].last_offset) if file is None else file, data, batches)
        self.log_end = OffsetMetadata(batches[-1].last_offset + 1, active.base_offset, active.log.size)

    def set_log_end(self, offset: int) -> None:
        """Set the log end to `offset`, which lies at the end of the active segment."""
        active = self.segments.active
        self.log_end = OffsetMetadata(offset, active.base_offset, active.size)
        self.recovery_point = min(self.recovery_point, offset)

    def roll(self, first_offset: int | None = None) -> LogSegment:
        """Begin a new segment at the log end, or at `first_offset` where that is higher: the log then ends there."""
        self.ensure_open()
        base_offset = max(self.log_end.offset, first_offset or 0)
        active = self.segments.active
        if base_offset in self.segments:
            if active.base_offset != base_offset or active.size:
                raise InvalidRequestError(f"{self.directory}: a segment of base offset {base_offset} exists")
            # An empty active segment whose index is full: there is nothing to keep but its name.
            segment = self._replace(active, base_offset)
        elif base_offset < active.base_offset:
            raise InvalidRequestError(
                f"{self.directory}: a roll to {base_offset}, the active segment begins at {active.base_offset}"
            )
        else:
            for suffix in SEGMENT_SUFFIXES:
                self.fs.remove(join(self.directory, file_name(base_offset, suffix)))
            active.become_inactive()
            # Nothing may reach the disk behind a hole: recovery could not tell it from what compaction leaves.
            active.flush()
            self.fs.sync_directory(self.directory)
            segment = self._create(base_offset)
            self.segments.add(segment)
        # Also if what is to be appended next fails: whoever opens the log finds that it ends where this segment begins.
        self.set_log_end(base_offset)
        return segment

    def _create(self, base_offset: int) -> LogSegment:
        return LogSegment.create(
            self.fs, self.directory, base_offset, self.config, self.clock, self.rng, preallocate=self.config.preallocate
        )

    def _replace(self, old: LogSegment, base_offset: int) -> LogSegment:
        """Put a new empty segment in the place of `old`, whose files go after the delay.

        At no moment both are part of the log. Of the same base, one of the two always is, or an empty log could forget
        where it ends: the new one is on its way from `.swap`, which start-up would complete.
        """
        if base_offset == old.base_offset:
            segment = LogSegment.create(
                self.fs, self.directory, base_offset, self.config, self.clock, self.rng, suffix=SWAP
            )
            with no_turning_back(self.fail):
                self.fs.sync_directory(self.directory)  # before the old one goes
                old.change_suffix("", DELETED)
                segment.change_suffix(SWAP, "")
                self.fs.sync_directory(self.directory)  # start-up believes what is in a `.swap`: it must stay empty
                if self.config.preallocate:
                    segment.log.file.resize(self.config.segment_bytes)
                self.segments.add(segment)
        else:
            with no_turning_back(self.fail):
                old.change_suffix("", DELETED)
                self.fs.sync_directory(self.directory)
                segment = self._create(base_offset)
                self.segments.change(remove=(old.base_offset,), add=(segment,))
        self.delete_files([old])
        return segment

    # -- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit: OffsetMetadata,
        *,
        at_least_one: bool = False,
        with_aborted: bool = False,
        trace: list[Step] | None = None,
    ) -> Region:
        """The bytes from the batch that holds `offset` on, in one segment, up to the batch that holds `limit`."""

        def read() -> Region:
            return self._reader().read(
                offset, max_bytes, limit, at_least_one=at_least_one, with_aborted=with_aborted, trace=trace
            )

        try:
            return self.looking_again(read)
        except LogClosedError:
            if self.is_closed or offset >= self.segments.first.base_offset:
                raise
            raise OffsetOutOfRangeError(f"offset {offset} of {self.directory} was deleted meanwhile") from None
        except OffsetOutOfRangeError as error:
            raise OffsetOutOfRangeError(f"{self.directory}: {error}") from None

    def looking_again(self, look: Callable[[], Found]) -> Found:
        """What `look` gives, if need be at its second try: a segment may be swapped or deleted under its hands."""
        try:
            return look()
        except LogClosedError:
            if self.is_closed:
                raise
            return look()

    def locate(self, offset: int) -> OffsetMetadata:
        """Where the batch that holds `offset` begins; the log end for offsets behind the last batch."""
        return self.looking_again(lambda: self._reader().locate(offset))

    def collect_aborted(self, offset: int, upper: int) -> list[AbortedTxnEntry]:
        """The aborted transactions that overlap the offsets from `offset` to before `upper`."""
        return self.looking_again(lambda: list(self._reader().collect_aborted(offset, upper)))

    def _reader(self) -> LogReader[LogSegment]:
        """A reader of the segments as they are now: what it finds in one it can follow into the next.

        The log end is taken first, so that the segment it lies in is there.
        """
        log_end = self.log_end
        return LogReader(self.segments.frozen(), log_end)

    # -- truncating and deleting ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Cut everything from `offset` on; the segments that went as a whole."""
        kept = self.segments.floor(offset)
        assert kept is not None
        cut_from = kept.find_offset(offset)  # before anything goes: damage there must not leave half a truncation
        self.ensure_descriptors()
        self.truncations += 1
        gone = [segment for segment in self.segments if segment.base_offset > offset]
        with no_turning_back(self.fail):
            self.remove(gone[::-1])  # a beginning of the log stays, and nothing is cut before
            self.fs.sync_directory(self.directory)
            kept.cut(offset, cut_from)
            kept.flush()  # or what is appended next could have old batches behind it
            self.set_log_end(offset)
        return gone

    def truncate_fully(self, offset: int) -> list[LogSegment]:
        """Drop every segment and begin anew at `offset`; the segments that went."""
        self.ensure_open()
        self.ensure_descriptors()
        self.truncations += 1
        gone = list(self.segments)
        with no_turning_back(self.fail):
            self.remove(gone[:0:-1])
            self._replace(gone[0], offset)
            self.set_log_end(offset)
        return gone

    def ensure_descriptors(self) -> None:
        """Raise TooManyFilesError now, while nothing has moved, rather than when half of a change is made."""
        self.fs.open(self.segments.active.log.path).close()

    def remove(self, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
        """Take segments out of the log, in the order given: power loss leaves the last of them.

        Their files are renamed now and deleted after file.delete.delay.ms.
        """
        self.segments.change(remove=[segment.base_offset for segment in segments])
        self.delete_files(segments, at_once=at_once)

    def delete_files(self, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
        """Delete the files of segments that are no longer part of the log."""
        if not segments:
            return
        rename_deleted(self.fs, self.directory, [s for s in segments if not s.log.path.endswith(DELETED)])

        deletion = Deletion(self.fs, segments)
        if at_once:
            deletion.run()
        else:
            self.tasks.after(self.config.file_delete_delay_ms, deletion)

    def wrong_indexes(self) -> list[LogSegment]:
        """The segments of which a reader has found an index that does not fit the log."""
        return [segment for segment in self.segments if segment.wrong_index is not None]

    # -- flushing ------------------------------------------------------------------------------------------------

    def flush(self, offset: int, start: int = 0) -> None:
        """Return when every segment that holds offsets from the recovery point to before `offset` is on the disk.

        Of these, only the ones from `start` on.
        """
        recovery_point = max(self.recovery_point, start)  # the owner may move it meanwhile
        if offset < recovery_point:
            return
        segments = self.segments.between(recovery_point, offset)
        for segment in segments:
            segment.flush()
        if any(segment.base_offset >= recovery_point for segment in segments):
            self.fs.sync_directory(self.directory)

    def mark_flushed(self, offset: int) -> None:
        """Note that everything below `offset` is on the disk."""
        if offset > self.recovery_point:
            self.recovery_point = offset
            self.last_flushed_ms = self.clock.now_ms()

    # -- life ----------------------------------------------------------------------------------------------------

    def ensure_open(self) -> None:
        """Raise LogClosedError if the log was closed."""
        if self.is_closed:
            raise LogClosedError(f"{self.directory}: the log is closed")

    def close(self) -> None:
        """Trim and close every segment. Harmless if done twice."""
        if self.is_closed:
            return
        for segment in self.segments:
            segment.close()
        self.is_closed = True

    def release(self) -> None:
        """Give every descriptor back without writing, as after a disk error."""
        for segment in self.segments:
            segment.release()
        self.is_closed = True

    def rename(self, name: str) -> bool:
        """Rename the directory; whether that changed anything."""
        target = join(parent_of(self.directory), name)
        if target == self.directory:
            return False
        self.fs.rename(self.directory, target)
        self.directory = target
        for segment in self.segments:
            segment.moved_to(target)
        return True

    def delete(self) -> list[LogSegment]:
        """Delete every segment at once; the segments that went."""
        gone = list(self.segments)
        self.segments.clear()
        self.delete_files(gone, at_once=True)
        self.is_closed = True
        return gone

    def delete_directory(self) -> None:
        """Remove the directory of a log whose segments are gone."""
        if self.segments:
            raise InvalidRequestError(f"{self.directory} still has {len(self.segments)} segments")
        self.fs.remove_directory(self.directory)
