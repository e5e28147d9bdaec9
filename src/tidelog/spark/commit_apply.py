"""A journal done: every piece stamped with its offsets, copied behind its log, and all that a broker wants beside it.

Each partition is done by one thread, several partitions at a time. What is done twice comes out the same: a log is
opened, cut back to the end that the journal knows, and gets the same pieces in the same order.
"""

import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from tidelog.columns.chunks import Chunk
from tidelog.errors import CorruptionError, StorageError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.cut_back import cut_back
from tidelog.log.files import FileSystem, join, write_atomically
from tidelog.log.full_append import append_batches
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.origin import AppendOrigin
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.verification import NO_GUARD
from tidelog.log.write_journal import PartitionNote, Piece, WriteJournal, remove_journal
from tidelog.spark.committed_batches import BatchKey, CommittedBatches
from tidelog.spark.staged_pieces import check_piece, read_piece
from tidelog.tables.load_root import own_as_root

__all__ = ["apply_journal", "check_pieces"]

_log = logging.getLogger("tidelog.spark")

_APPEND_BYTES = 1 << 20  # in one write, as a follower fetches
_MOST_THREADS = 8
_STAMPED = np.arange(8)  # the bytes of a base offset
_EPOCH = np.arange(12, 16)  # and of a leader epoch

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


def _threads_for(count: int, threads: int | None) -> int:
    """How many threads do a number of things."""
    return max(1, min(count, threads or min(_MOST_THREADS, os.cpu_count() or 1)))


def check_pieces(fs: FileSystem, root: str, journal: WriteJournal, threads: int | None = None) -> None:
    """Raise if a piece is not what its task has staged."""
    pieces = journal.pieces

    def check(piece: Piece) -> None:
        check_piece(fs, root, piece)

    with ThreadPoolExecutor(_threads_for(len(pieces), threads)) as pool:
        for _ in pool.map(check, pieces):
            pass


def apply_journal(
    fs: FileSystem,
    root: str,
    journal: WriteJournal,
    *,
    clock: Clock,
    rng: random.Random,
    is_redo: bool,
    threads: int | None = None,
    on_notice: Callable[[str], None] = _log.warning,
) -> None:
    """Do what a journal says, and remove it. Whoever calls has the lock of the root, and no log of it open.

    `on_notice` is told what was cut off a log besides what an interrupted commit has appended.
    """
    with OfflineRoot(root, fs=fs).owners_kept(root):
        CleanShutdownFile(fs, root).delete()  # whatever interrupts the work makes the next broker look closely
        _take_checkpoints_back(fs, root, journal)
        for place in journal.dropped:
            fs.remove_directory(join(root, str(place)))
        work = _Appending(fs, root, journal, clock, rng, is_redo, on_notice)
        with ThreadPoolExecutor(_threads_for(len(journal.partitions), threads)) as pool:
            for _ in pool.map(work.append, journal.partitions):
                pass
        _write_checkpoints(fs, root, journal)
        if journal.stream is not None:
            CommittedBatches(fs, root).note(BatchKey(*journal.stream))
        if journal.marker is None:
            CleanShutdownFile(fs, root).write()
        else:
            write_atomically(fs, CleanShutdownFile(fs, root).path, journal.marker)
    remove_journal(fs, root)


def _take_checkpoints_back(fs: FileSystem, root: str, journal: WriteJournal) -> None:
    """Let no checkpoint say more of a log than it holds while it is worked on, nor anything of one that is gone."""
    forgotten = {place for place, note in journal.partitions.items() if note.is_new} | set(journal.dropped)
    known = {place: note for place, note in journal.partitions.items() if not note.is_new}
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT):
        checkpoint = OffsetCheckpoint(fs, join(root, name))
        now = checkpoint.read()
        wanted = {place: offset for place, offset in now.items() if place not in forgotten}
        if name == RECOVERY_POINT_CHECKPOINT:
            _restore(wanted, ((place, note.recovery_point) for place, note in known.items()))
        elif name == HIGH_WATERMARK_CHECKPOINT:
            _restore(wanted, ((place, note.high_watermark) for place, note in known.items()))
        if wanted != now:
            checkpoint.write(wanted)


def _restore(offsets: dict[TopicPartition, int], before: Iterable[tuple[TopicPartition, int | None]]) -> None:
    for place, offset in before:
        if offset is None:
            offsets.pop(place, None)
        else:
            offsets[place] = offset


def _write_checkpoints(fs: FileSystem, root: str, journal: WriteJournal) -> None:
    ends = {place: note.end_then for place, note in journal.partitions.items() if note.end_then is not None}
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        checkpoint = OffsetCheckpoint(fs, join(root, name))
        checkpoint.write(checkpoint.read() | ends)
    for name in (LOG_START_CHECKPOINT, CLEANER_CHECKPOINT):
        OffsetCheckpoint(fs, join(root, name)).create()


class _Appending:
    """Appends the pieces of a journal, partition by partition."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        journal: WriteJournal,
        clock: Clock,
        rng: random.Random,
        is_redo: bool,
        on_notice: Callable[[str], None],
    ) -> None:
        self._fs = fs
        self._root = root
        self._journal = journal
        self._clock = clock
        self._rng = rng
        self._is_redo = is_redo
        self._on_notice = on_notice
        # Segments that are cut off belong to nobody: their files go at once.
        self._config = replace(LogConfig.from_properties(journal.configs), file_delete_delay_ms=0)
        self._starts = OffsetCheckpoint(fs, join(root, LOG_START_CHECKPOINT)).read()

    def append(self, place: TopicPartition) -> None:
        """Bring one log to where the journal wants it."""
        note = self._journal.partitions[place]
        directory = join(self._root, str(place))
        end, epoch = note.end or 0, note.epoch or 0
        if note.is_new:
            self._begin(directory)
        with OfflineRoot(self._root, fs=self._fs).owners_kept(directory), self._open(directory, place, note) as log:
            for notice in log.losses:
                self._on_notice(notice)
            if log.log_end_offset < end:
                raise StorageError(f"{directory} ends at {log.log_end_offset}, it ended at {end} when the commit began")
            log.truncate_to(end)
            for piece in note.pieces:
                self._append(log, piece, epoch)
            if log.log_end_offset != note.end_then:
                raise CorruptionError(f"{directory} ends at {log.log_end_offset}, it was to end at {note.end_then}")
            log.update_high_watermark(log.log_end_offset)
            log.flush_partition_metadata()
            log.tick()

    def _begin(self, directory: str) -> None:
        """Have an empty directory, whatever lies there: what is replaced, or what was begun."""
        self._fs.remove_directory(directory)
        self._fs.make_directory(directory)
        self._fs.sync_directory(self._root)
        if isinstance(self._fs, LocalFileSystem) and os.geteuid() == 0:
            own_as_root(self._root, directory)

    def _open(self, directory: str, place: TopicPartition, note: PartitionNote) -> UnifiedLog:
        """Open a log as after a clean stop, which there was before the commit: what that has appended is cut off."""
        if self._is_redo and not note.is_new:
            notice = self._cut_back(directory, note.end or 0)
            if notice is not None:
                self._on_notice(notice)
        return UnifiedLog.open(
            directory,
            self._config,
            recovery_point=max(note.recovery_point or 0, 0),
            log_start_offset=max(self._starts.get(place, 0), 0),
            high_watermark=note.high_watermark,
            clean_shutdown=True,
            topic_id=self._journal.topic_ids[place.topic],
            clock=self._clock,
            fs=self._fs,
            rng=self._rng,
            lock=False,  # that of the root is held
        )

    def _cut_back(self, directory: str, end: int) -> str | None:
        try:
            return cut_back(self._fs, directory, end, clock=self._clock, rng=self._rng)
        except CorruptionError as error:
            raise StorageError(f"{error} when the commit began; restore the partition from a backup") from error

    def _append(self, log: UnifiedLog, piece: Piece, epoch: int) -> None:
        first_offset = log.log_end_offset
        for chunk in read_piece(self._fs, self._root, piece):
            _stamp(chunk, first_offset, epoch)
            for data, batches in _shares(log, chunk, first_offset, epoch):
                append_batches(log, data, batches, AppendOrigin.REPLICATION, epoch, NO_GUARD, 0)


def _stamp(chunk: Chunk, first_offset: int, epoch: int) -> None:
    """Write offsets and epoch into the batches: both stand outside their checksums."""
    data = np.frombuffer(chunk.data, np.uint8)
    starts = chunk.scan.positions[:, None]
    offsets = chunk.scan.rows["base_offset"].astype(np.int64) + first_offset
    data[starts + _STAMPED] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    data[starts + _EPOCH] = np.frombuffer(epoch.to_bytes(4, "big"), np.uint8)


def _shares(
    log: UnifiedLog, chunk: Chunk, first_offset: int, epoch: int
) -> Iterator[tuple[memoryview, list[BatchInfo]]]:
    """The batches of a chunk in shares that fill segments to the last batch that fits."""
    scan = chunk.scan
    positions, sizes = scan.positions, scan.sizes
    ends = positions + sizes
    batches = _batches(chunk, first_offset, epoch)
    first = 0
    while first < len(batches):
        start = int(positions[first])
        room = log.config.segment_bytes - log.active_segment.size
        if room < sizes[first]:
            room = log.config.segment_bytes  # it begins a segment
        last = max(int(np.searchsorted(ends, start + min(room, _APPEND_BYTES), "right")), first + 1)
        share = [batch._replace(position=batch.position - start) for batch in batches[first:last]]
        yield chunk.data[start : int(ends[last - 1])], share
        first = last


def _batches(chunk: Chunk, first_offset: int, epoch: int) -> list[BatchInfo]:
    """What the engine knows of batches, out of their headers."""
    rows = chunk.scan.rows
    bases = rows["base_offset"].astype(np.int64) + first_offset
    return [
        BatchInfo(position, size, base, base + delta, max_time, epoch, 2, attributes, -1, -1, -1, count)
        for position, size, base, delta, max_time, attributes, count in zip(
            chunk.scan.positions.tolist(),
            chunk.scan.sizes.tolist(),
            bases.tolist(),
            rows["last_offset_delta"].tolist(),
            rows["max_timestamp_ms"].tolist(),
            rows["attributes"].tolist(),
            rows["records_count"].tolist(),
            strict=True,
        )
    ]
