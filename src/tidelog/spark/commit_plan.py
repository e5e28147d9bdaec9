"""What a commit is to do, put down as a journal: which logs there are, where they end, and which pieces each gets.

Whatever would keep a journal from being done is found here, while nothing is decided: a journal that cannot be done
keeps everybody from writing to the root.
"""

import logging
import os
import random
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import InvalidRequestError, MessageTooLargeError, StorageError, TidelogError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint, read_epochs
from tidelog.log.clock import Clock
from tidelog.log.files import FileSystem, join, opened, read_whole
from tidelog.log.local_files import LocalFileSystem, ensure_plain_files
from tidelog.log.manager.log_directories import DirectoryKind, list_directories
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    check_directory_name,
)
from tidelog.log.overlay_files import OverlayFileSystem
from tidelog.log.partition_metadata import random_topic_id, read_topic_id
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import PartitionNote, Piece, WriteJournal, WriteKind, ensure_fits
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.write_options import WriteOptions
from tidelog.tables.assignment import Assignment, assignment_of
from tidelog.tables.stray_topics import stray_warning

__all__ = ["Order", "Planning"]

_log = logging.getLogger("tidelog.spark")

_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT)
_MAX_INT64 = (1 << 63) - 1
_LENGTH_END = 12  # of a batch: base offset, and how many bytes follow


class Order(NamedTuple):
    """What to commit: pieces in the order in which those of a partition follow each other, and how many partitions
    the topics are to have that get rows, or are to be there without any."""

    options: WriteOptions
    pieces: Sequence[Piece]
    counts: dict[str, int]
    job: str | None = None
    key: BatchKey | None = None


class Planning:
    """Makes the journal of an order: what there is, and what is to become of it."""

    def __init__(self, fs: FileSystem, clock: Clock, rng: random.Random, order: Order) -> None:
        self._fs = fs
        self._clock = clock
        self._rng = rng
        self._order = order
        self._root = order.options.root
        self._dirs = order.options.broker_dirs(fs)
        self._there = {
            each.partition
            for each in list_directories(fs, self._root)
            if each.kind is DirectoryKind.CURRENT and each.partition.topic in order.counts
        }
        self._numbers: dict[str, set[int]] = {}  # of the partitions that are there
        for place in self._there:
            self._numbers.setdefault(place.topic, set()).add(place.partition)
        self._assignments: dict[str, Assignment | None] = {}  # by topic, once asked for
        self._checkpoints = {name: OffsetCheckpoint(fs, join(self._root, name)).read() for name in _CHECKPOINTS}

    def journal(self) -> WriteJournal:
        """The journal, of which nothing is written yet."""
        self._ensure_as_dealt()
        self._ensure_batches_fit()
        marker = CleanShutdownFile(self._fs, self._root)
        options = self._order.options
        journal = WriteJournal(
            WriteKind.COMMIT,
            read_whole(self._fs, marker.path) if marker.exists() else None,
            configs=dict(options.configs),
            stream=self._order.key,
            topic_ids={topic: self._topic_id(topic) for topic in self._order.counts},
        )
        pieces: dict[TopicPartition, list[Piece]] = {}
        for piece in self._order.pieces:
            pieces.setdefault(piece.place, []).append(piece)
        counts = self._order.counts.items()
        wanted = {TopicPartition(topic, number) for topic, count in counts for number in range(count)}
        for place in sorted(wanted | set(pieces)):
            is_touched = options.overwrite if place in self._there else self._is_made(place.topic)
            if is_touched or place in pieces:
                topic_id = journal.topic_ids[place.topic]
                journal.partitions[place] = self._note(place, tuple(pieces.get(place, ())), topic_id)
        self._ensure_assigned(journal)
        for place in (place for place in journal.partitions if place not in self._there):
            self._dirs.ensure_creatable(place)
        if options.overwrite:
            journal.dropped = sorted(self._there - wanted)
            self._ensure_writable(join(self._root, str(place)) for place in sorted(self._there))
        ensure_fits(journal)
        self._warn_of_what_is_new(journal)
        return journal

    def _is_filled(self) -> bool:
        """Whether it was said how many partitions there are, of one topic, so that missing ones are made."""
        return self._order.options.partitions is not None and self._order.options.topic is not None

    def _is_made(self, topic: str) -> bool:
        """Whether partitions without rows are made: of a new topic, or where it was said how many there are."""
        return self._is_filled() or topic not in self._numbers

    # -- what is refused -----------------------------------------------------------------------------------------

    def _ensure_as_dealt(self) -> None:
        """Raise if a topic has another number of partitions by now than its rows were dealt out to."""
        if self._order.options.overwrite and self._is_filled():
            return  # whatever is there is replaced
        for topic, dealt in self._order.counts.items():
            numbers = self._numbers.get(topic)
            if not numbers:
                continue
            count = max(numbers) + 1
            is_completed = self._is_filled() and len(numbers) < count < dealt
            if count != dealt and not is_completed:
                raise InvalidRequestError(
                    f"{topic} has {count} partitions by now, its rows were dealt out to {dealt}: another write came "
                    "between; nothing is committed, write again"
                )

    def _ensure_assigned(self, journal: WriteJournal) -> None:
        """Raise if rows go to new partitions that the cluster has not, or assigns to other nodes.

        Those of other nodes that get no rows are not made.
        """
        for place, note in list(journal.partitions.items()):
            if place in self._there:
                continue
            assigned, dealt = self._assignment(place.topic), self._order.counts[place.topic]
            if assigned is None or journal.topic_ids[place.topic] != assigned.topic_id:
                continue
            if dealt != assigned.size:
                raise InvalidRequestError(
                    f"the rows of {place.topic} were dealt out to {dealt} partitions, by the metadata log of the "
                    f"cluster it has {assigned.size}: nothing is committed; the option partitions says how many"
                )
            if place.partition in assigned.ours(()):
                continue
            del journal.partitions[place]
            if note.pieces:
                raise InvalidRequestError(f"{place}, {assigned.why_not_ours(place.partition)}; nothing is committed")

    def _ensure_batches_fit(self) -> None:
        """Raise if a batch is larger than a segment: it could never be appended. No task stages such a one."""
        most = self._order.options.config.segment_bytes
        for piece in self._order.pieces:
            path = piece.path(self._root)
            if piece.size > most and self._fs.stat(path) is not None:  # what is gone is told of later
                largest = _largest_batch(self._fs, path, piece.size)
                if largest > most:
                    raise MessageTooLargeError(
                        f"{path} holds a batch of {largest} bytes, a segment {most}: the option segment.bytes allows "
                        "more; nothing is committed"
                    )

    def _ensure_can_be_made(self, place: TopicPartition, directory: str) -> None:
        check_directory_name(str(place))
        if self._fs.stat(directory) is not None:
            raise StorageError(f"{directory} is a file, where a partition is to be made: remove it")

    def _ensure_writable(self, paths: Iterable[str]) -> None:
        """Raise if this user may stage in the root, but not change what is there."""
        if isinstance(self._fs, LocalFileSystem):
            is_effective = os.access in os.supports_effective_ids
            for path in paths:
                if not os.access(path, os.W_OK, effective_ids=is_effective):
                    raise StorageError(f"{path}: this user may not write to it; nothing is committed")

    def _warn_of_what_is_new(self, journal: WriteJournal) -> None:
        """Say what a broker will do with partitions that its cluster does not know."""
        topics = {place.topic for place in journal.partitions if place not in self._there}
        if topics:
            ids = {topic: journal.topic_ids[topic] for topic in topics}
            is_id_given = self._order.options.topic_id is not None
            warning = stray_warning(self._fs, [self._root], ids, () if is_id_given else topics)
            if warning is not None:
                _log.warning("%s", warning)

    # -- what is there -------------------------------------------------------------------------------------------

    def _topic_id(self, topic: str) -> uuid.UUID | None:
        """By which id the topic is known. A new one gets one; an old one may be from before there were ids."""
        numbers = sorted(self._numbers.get(topic, ()))
        paths = [join(join(self._root, f"{topic}-{number}"), PARTITION_METADATA) for number in numbers]
        found = [known for known in (read_topic_id(self._fs, path) for path in paths) if known is not None]
        if len(set(found)) > 1:
            raise StorageError(f"partitions of {topic} in {self._root} have different topic ids: nothing is committed")
        known = next(iter(found), None)
        wanted = self._order.options.topic_id
        if known is not None and wanted is not None and known != wanted:
            raise InvalidRequestError(f"the topic {topic} has another id already; leave topicId out")
        if known is not None or numbers:
            return known or wanted
        assigned = self._assignment(topic)
        if assigned is not None and wanted not in (None, assigned.topic_id):
            raise InvalidRequestError(f"the cluster knows the topic {topic} by another id; leave topicId out")
        return wanted or (random_topic_id(self._rng) if assigned is None else assigned.topic_id)

    def _assignment(self, topic: str) -> Assignment | None:
        """Where the partitions of a topic belong, by the metadata log; None if it does not say so."""
        if topic not in self._assignments:
            try:
                self._assignments[topic] = assignment_of(self._fs, [self._root], topic)
            except TidelogError as error:
                _log.warning("what the cluster knows of %s cannot be read: %s", topic, error)
                self._assignments[topic] = None
        return self._assignments[topic]

    def _note(self, place: TopicPartition, pieces: tuple[Piece, ...], topic_id: uuid.UUID | None) -> PartitionNote:
        is_there = place in self._there
        is_fresh = self._order.options.overwrite or not is_there
        directory = join(self._root, str(place))
        if not is_there:
            self._ensure_can_be_made(place, directory)
        epochs = read_epochs(self._fs, join(directory, LEADER_EPOCH_CHECKPOINT)) if is_there else []
        end = 0 if is_fresh else self._end_of(place, directory, topic_id)
        end_then = end + sum(piece.records for piece in pieces)
        if end_then > _MAX_INT64:
            raise StorageError(f"{directory} ends at {end}: there are no offsets for more")
        return PartitionNote(
            is_fresh,
            is_replaced=is_fresh and is_there,
            end=end,
            epoch=max((0, *(entry.epoch for entry in epochs))),
            recovery_point=self._checkpoints[RECOVERY_POINT_CHECKPOINT].get(place),
            high_watermark=self._checkpoints[HIGH_WATERMARK_CHECKPOINT].get(place),
            end_then=end_then,
            pieces=pieces,
        )

    def _end_of(self, place: TopicPartition, directory: str, topic_id: uuid.UUID | None) -> int:
        """Where a log ends, found without touching it: it is opened as for the appending."""
        ensure_plain_files(self._fs, directory)
        log = UnifiedLog.open(
            directory,
            self._order.options.config,
            recovery_point=max(self._checkpoints[RECOVERY_POINT_CHECKPOINT].get(place, 0), 0),
            log_start_offset=max(self._checkpoints[LOG_START_CHECKPOINT].get(place, 0), 0),
            high_watermark=self._checkpoints[HIGH_WATERMARK_CHECKPOINT].get(place),
            clean_shutdown=True,
            topic_id=topic_id,
            clock=self._clock,
            fs=OverlayFileSystem(self._fs),
            lock=False,
        )
        end, segment = log.log_end_offset, f"{log.active_segment.base_offset:020d}."
        log.release()
        written = [name for name in self._fs.list(directory) if name.startswith(segment)]
        self._ensure_writable([directory, *(join(directory, name) for name in written)])
        return end


def _largest_batch(fs: FileSystem, path: str, size: int) -> int:
    """The size of the largest batch of a file, read from the heads of all."""
    largest = position = 0
    with opened(fs.open(path)) as file:
        while position < size:
            length = _LENGTH_END + int.from_bytes(file.read(position, _LENGTH_END)[8:], "big")
            largest = max(largest, length)
            position += length
    return largest
