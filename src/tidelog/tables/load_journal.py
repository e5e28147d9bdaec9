"""What makes a load one step: a note of how its logs were, and the way back to it.

    1. the journal is written before the marker of the clean stop goes: the marker, and which partitions will be used
    2. before the first record of a partition, where its log ends; of one that is not there yet, that it is new
    3. before the checkpoints of the root are written, where each log ends now
    4. it is removed, as the last act: from then on the load is done

It is a plain file in the root, which Kafka passes over. Whoever finds one, with the root locked, cuts the logs back to
it: a load that was killed, or lost its power, has not been. So does the load itself where something goes wrong.

A broker that was started on the root meanwhile has given the records to its clients and perhaps has taken more. It
leaves its traces, a new leader epoch or offsets in the checkpoints that no load has written; then nothing is cut.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError, StorageError
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint, read_epochs
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, join, read_whole, write_atomically
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOAD_JOURNAL,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TopicPartition,
    check_partition,
    file_name,
)
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.unified_log import UnifiedLog

__all__ = ["LoadJournal", "PartitionNote", "cut_back", "ensure_untouched"]

_VERSION = 0
_FILES_OF_A_ROOT = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
    CLEAN_SHUTDOWN,
)


class PartitionNote(NamedTuple):
    """How a partition was. `end` is None as long as nothing was appended; of a new partition it stays so."""

    is_new: bool
    has_topic_id: bool = False
    end: int | None = None
    epoch: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    end_now: int | None = None  # when all is appended


@dataclass
class LoadJournal:
    """The journal of a root. Nothing is on the disk until `write`."""

    fs: FileSystem
    root: str
    topic: str
    was_empty: bool  # there was nothing in the root, or no root
    marker: bytes | None  # of the clean stop; None where there was none
    partitions: dict[int, PartitionNote] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return join(self.root, LOAD_JOURNAL)

    def place(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def directory(self, number: int) -> str:
        return join(self.root, str(self.place(number)))

    def write(self) -> None:
        """Replace the file, synced."""
        content = {
            "version": _VERSION,
            "topic": self.topic,
            "was_empty": self.was_empty,
            "marker": None if self.marker is None else self.marker.decode("latin-1"),
            "partitions": {str(number): note._asdict() for number, note in sorted(self.partitions.items())},
        }
        write_atomically(self.fs, self.path, json.dumps(content).encode())

    def remove(self) -> None:
        """Let the load be done, or undone, for good."""
        self.fs.remove(f"{self.path}.tmp")
        self.fs.remove(self.path)
        self.fs.sync_directory(self.root)

    @classmethod
    def read(cls, fs: FileSystem, root: str) -> "LoadJournal | None":
        """The journal in a root; None if there is none."""
        path = join(root, LOAD_JOURNAL)
        if fs.stat(path) is None:
            return None
        try:
            content = json.loads(read_whole(fs, path))
            if content["version"] != _VERSION:
                raise ValueError("another version")
            marker = content["marker"]
            journal = cls(
                fs,
                root,
                content["topic"],
                bool(content["was_empty"]),
                None if marker is None else marker.encode("latin-1"),
                {int(number): _note_of(note) for number, note in content["partitions"].items()},
            )
            for number in journal.partitions:
                check_partition(journal.place(number))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"{path} is no journal of a load that this release can read ({error}): "
                "use the release that wrote it, or remove it if the topic is as it should be"
            ) from None
        return journal


def _note_of(content: dict[str, Any]) -> PartitionNote:
    note = PartitionNote(**content)
    if {type(each) for each in note[:2]} != {bool} or not {type(each) for each in note[2:]} <= {int, type(None)}:
        raise ValueError("a partition is noted in another form")
    return note


# -- the way back ------------------------------------------------------------------------------------------------------


def ensure_untouched(journal: LoadJournal) -> None:
    """Raise if somebody had the logs since the load was interrupted: what they wrote must not be cut off."""
    recovery_points, high_watermarks = _checkpoints(journal)
    for number, note in journal.partitions.items():
        place = journal.place(number)
        epochs = read_epochs(journal.fs, join(journal.directory(number), LEADER_EPOCH_CHECKPOINT))
        if (
            recovery_points.read().get(place) not in (None, note.recovery_point, note.end_now)
            or high_watermarks.read().get(place) not in (None, note.high_watermark, note.end_now)
            or max((entry.epoch for entry in epochs), default=0) > (note.epoch or 0)
        ):
            raise StorageError(
                f"a load into {journal.topic} was interrupted, and a broker has had {place} since: "
                f"some of its rows may lie there from offset {note.end or 0} on. "
                f"Remove {journal.path} and load what is missing"
            )


def cut_back(journal: LoadJournal, clock: Clock) -> None:
    """Let the root be as the journal says, whatever a load has done of it, and remove the journal.

    Whoever calls has the lock of the root and no log of it open.
    """
    fs, root = journal.fs, OfflineRoot(journal.root, fs=journal.fs)
    if fs.stat(journal.path) is None:
        journal.write()  # it was about to be removed
    with root.owners_kept(journal.root):
        _restore_checkpoints(journal)
        for number, note in journal.partitions.items():
            if note.is_new:
                fs.remove_directory(journal.directory(number))
            else:
                with root.owners_kept(journal.directory(number)):
                    _cut(journal, number, note, clock)
        for name in _FILES_OF_A_ROOT:
            fs.remove(join(journal.root, f"{name}.tmp"))
            if journal.was_empty:
                fs.remove(join(journal.root, name))
        fs.sync_directory(journal.root)
        marker = CleanShutdownFile(fs, journal.root)
        if journal.marker is None:
            marker.delete()
        else:
            write_atomically(fs, marker.path, journal.marker)
    journal.remove()


def _checkpoints(journal: LoadJournal) -> list[OffsetCheckpoint]:
    names = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
    return [OffsetCheckpoint(journal.fs, join(journal.root, name)) for name in names]


def _restore_checkpoints(journal: LoadJournal) -> None:
    """Before the logs are cut: no crash may leave an offset in the files that is above what is left."""
    recovery_points, high_watermarks = _checkpoints(journal)
    for checkpoint, name in ((recovery_points, "recovery_point"), (high_watermarks, "high_watermark")):
        before = {journal.place(number): getattr(note, name) for number, note in journal.partitions.items()}
        now = checkpoint.read()
        wanted = {place: offset for place, offset in (now | before).items() if offset is not None}
        if wanted != now:
            checkpoint.write(wanted)


def _cut(journal: LoadJournal, number: int, note: PartitionNote, clock: Clock) -> None:
    if not note.has_topic_id:
        journal.fs.remove(join(journal.directory(number), PARTITION_METADATA))
    with _recovered(journal, number, note, clock) as log:
        if note.end is not None:
            log.truncate_to(note.end)
        log.tick()  # the files of segments that were cut off go now: nobody reads them
        last = log.local.segments.active.base_offset
    # The time that went with the cut may have been the only entry: made anew, the index knows the largest that is left.
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        journal.fs.remove(join(journal.directory(number), file_name(last, suffix)))
    _recovered(journal, number, note, clock).close()


def _recovered(journal: LoadJournal, number: int, note: PartitionNote, clock: Clock) -> UnifiedLog:
    """The log of a partition, opened as after a crash."""
    starts = OffsetCheckpoint(journal.fs, join(journal.root, LOG_START_CHECKPOINT)).read()
    return UnifiedLog.open(
        journal.directory(number),
        replace(LogConfig(), file_delete_delay_ms=0),
        recovery_point=max(note.recovery_point or 0, 0),
        log_start_offset=max(starts.get(journal.place(number), 0), 0),
        high_watermark=note.high_watermark,
        clock=clock,
        fs=journal.fs,
        lock=False,
    )
