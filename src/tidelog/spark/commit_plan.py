"""What a commit is to do, put down as a journal: which logs there are, where they end, and which pieces each gets."""

import random
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import InvalidRequestError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint, read_epochs
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, join, read_whole
from tidelog.log.manager.log_directories import DirectoryKind, LogDirectory, list_directories
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.log.overlay_files import OverlayFileSystem
from tidelog.log.partition_metadata import random_topic_id, read_topic_id
from tidelog.log.unified_log import UnifiedLog
from tidelog.spark.commit_journal import CommitJournal, PartitionPlan
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.staged_pieces import Piece
from tidelog.spark.write_options import WriteOptions

__all__ = ["Order", "Planning", "logs_in"]


class Order(NamedTuple):
    """What to commit: pieces in the order in which those of a partition follow each other, and how many partitions
    the topics are to have that get rows, or are to be there without any."""

    options: WriteOptions
    pieces: Sequence[Piece]
    counts: dict[str, int]
    job: str | None = None
    key: BatchKey | None = None


def logs_in(fs: FileSystem, root: str) -> list[LogDirectory]:
    """The directories of a root that are logs, but for those that wait to be removed."""
    return [each for each in list_directories(fs, root) if each.kind is not DirectoryKind.DELETED]


class Planning:
    """Makes the journal of an order: what there is, and what is to become of it."""

    def __init__(self, fs: FileSystem, clock: Clock, rng: random.Random, order: Order) -> None:
        self._fs = fs
        self._clock = clock
        self._rng = rng
        self._order = order
        self._root = order.options.root
        self._there = {
            each.partition
            for each in logs_in(fs, self._root)
            if each.kind is DirectoryKind.CURRENT and each.partition.topic in order.counts
        }
        self._checkpoints = {
            name: OffsetCheckpoint(fs, join(self._root, name)).read()
            for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT)
        }

    def journal(self) -> CommitJournal:
        """The journal, of which nothing is written yet."""
        marker = CleanShutdownFile(self._fs, self._root)
        options = self._order.options
        journal = CommitJournal(
            self._fs,
            self._root,
            read_whole(self._fs, marker.path) if marker.exists() else None,
            dict(options.configs),
            self._order.key,
            {topic: self._topic_id(topic) for topic in self._order.counts},
        )
        pieces: dict[TopicPartition, list[Piece]] = {}
        for piece in self._order.pieces:
            pieces.setdefault(piece.place, []).append(piece)
        counts = self._order.counts.items()
        wanted = {TopicPartition(topic, number) for topic, count in counts for number in range(count)}
        for place in sorted(wanted | set(pieces)):
            if place in pieces or options.overwrite or (place not in self._there and self._is_made(place.topic)):
                journal.partitions.append(self._plan(place, tuple(pieces.get(place, ()))))
        if options.overwrite:
            journal.dropped = sorted(self._there - wanted)
        return journal

    def _is_made(self, topic: str) -> bool:
        """Whether partitions without rows are made: of a new topic, or where it was said how many there are."""
        return self._order.options.partitions is not None or not any(place.topic == topic for place in self._there)

    def _topic_id(self, topic: str) -> uuid.UUID | None:
        """By which id the topic is known. A new one gets one; an old one may be from before there were ids."""
        numbers = sorted(place for place in self._there if place.topic == topic)
        paths = [join(join(self._root, str(place)), PARTITION_METADATA) for place in numbers]
        known = next(filter(None, (read_topic_id(self._fs, path) for path in paths)), None)
        wanted = self._order.options.topic_id
        if known is not None and wanted is not None and known != wanted:
            raise InvalidRequestError(f"the topic {topic} has another id already; leave topicId out")
        return known or wanted or (None if numbers else random_topic_id(self._rng))

    def _plan(self, place: TopicPartition, pieces: tuple[Piece, ...]) -> PartitionPlan:
        is_there = place in self._there
        is_fresh = self._order.options.overwrite or not is_there
        directory = join(self._root, str(place))
        epochs = read_epochs(self._fs, join(directory, LEADER_EPOCH_CHECKPOINT)) if is_there else []
        return PartitionPlan(
            place.topic,
            place.partition,
            is_fresh,
            0 if is_fresh else self._end_of(place, directory),
            max((entry.epoch for entry in epochs), default=0),
            self._checkpoints[RECOVERY_POINT_CHECKPOINT].get(place),
            self._checkpoints[HIGH_WATERMARK_CHECKPOINT].get(place),
            pieces,
        )

    def _end_of(self, place: TopicPartition, directory: str) -> int:
        """Where a log ends, found without touching it."""
        log = UnifiedLog.open(
            directory,
            LogConfig(),
            recovery_point=max(self._checkpoints[RECOVERY_POINT_CHECKPOINT].get(place, 0), 0),
            log_start_offset=max(self._checkpoints[LOG_START_CHECKPOINT].get(place, 0), 0),
            clean_shutdown=True,
            clock=self._clock,
            fs=OverlayFileSystem(self._fs),
            lock=False,
        )
        end = log.log_end_offset
        log.release()
        return end
