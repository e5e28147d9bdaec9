"""The files of a root: identity, checkpoints, what else lies there."""

import fcntl
import os
import struct
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import CheckpointError, StorageError
from tidelog.fsck.directory_use import CHECKPOINTS, has_metadata_only, is_of_broker, is_partition_name
from tidelog.fsck.findings import Severity
from tidelog.fsck.kafka_checkpoints import UnreadableNumberError, offsets_by_kafka
from tidelog.fsck.notes import Notes
from tidelog.fsck.places import RootPlace
from tidelog.fsck.topic_policies import TopicPolicies
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.local_files import LocalReadFiles
from tidelog.log.manager.meta_properties import MetaProperties, read_meta_properties
from tidelog.log.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_DIRECTORY,
    COMMITTED_BATCHES,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    OLD_JOURNALS,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_INDEX_CACHE,
    UNFINISHED_WRITE,
    TopicPartition,
)
from tidelog.log.write_journal import WriteKind, journal_path, read_journal

__all__ = ["LOST_AND_FOUND", "LogEnds", "RootFiles", "is_in_use"]

_ALWAYS_THERE = CHECKPOINTS[:3]
_KNOWN_FILES = {*CHECKPOINTS, META_PROPERTIES, LOCK_FILE, CLEAN_SHUTDOWN, BOOTSTRAP_CHECKPOINT, COMMITTED_BATCHES}
_OF_A_FORMATTED_ROOT = (BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA_DIRECTORY)
_SETTLED = {WriteKind.LOAD: "it rolls the load back", WriteKind.COMMIT: "it finishes the write"}
_JOURNAL_FIRST = "neither a repair nor `tidelog recover` starts before the journal can be read: see the message"
_REACHED = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
# A number that is none ends only what was reading the checkpoint.
_OF_A_WRONG_NUMBER = {
    RECOVERY_POINT_CHECKPOINT: (Severity.WARNING, "Kafka warns and recovers from the beginning of each log"),
    LOG_START_CHECKPOINT: (Severity.WARNING, "Kafka warns, and each log starts with its first segment"),
    HIGH_WATERMARK_CHECKPOINT: (Severity.ERROR, "Kafka serves no partition of the log directory"),
    CLEANER_CHECKPOINT: (Severity.WARNING, "Kafka's cleaner ends, and no log is compacted"),
}
_RESTORE = (
    "restore the segments from a replica or a backup; tidelog fsck --repair takes the log as it is, rewrites the "
    "checkpoint, and notes in its manifest what is gone"
)
LOST_AND_FOUND = "lost+found"
_WHOLE_FILE = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux

Offsets = Mapping[TopicPartition, int]


class LogEnds(NamedTuple):
    """Where a log begins and ends."""

    first: int
    end: int


class RootFiles:
    """What the files of a root say, and what is wrong with them."""

    def __init__(
        self, fs: ReadFileSystem, place: RootPlace, *, is_marker_held: bool = False, is_ours: bool = False
    ) -> None:
        self.place = place
        self.notes = Notes(place.path)
        self.meta: MetaProperties | None = None
        self.is_clean = is_marker_held or fs.stat(join(place.path, CLEAN_SHUTDOWN)) is not None
        self.is_in_use = not is_ours and isinstance(fs, LocalReadFiles) and is_in_use(place.path)
        self.checkpoints: dict[str, Offsets | None] = {}  # None: missing or not readable
        self.losses: dict[TopicPartition, tuple[int, int]] = {}  # offsets behind the end of a log that was longer
        self.policies = TopicPolicies(fs, place.path)
        self._fs = fs
        self._is_of_broker = place.has_files and is_of_broker(fs, place.path)
        self._has_metadata_only = place.has_files and has_metadata_only(fs, place.path)
        for name in CHECKPOINTS:
            self.checkpoints[name] = self._read(name)
        self._note_journals()
        if place.has_files and place.is_wanted:
            self._check_identity()
            self._check_names()

    def _read(self, name: str) -> Offsets | None:
        path = join(self.place.path, name)
        if self._fs.stat(path) is None:
            if name in _ALWAYS_THERE and self._is_of_broker:
                self.notes.add("CHK-MISSING", path, "a broker always has one, even if it is empty")
            return None
        try:
            return offsets_by_kafka(self._fs, path)
        except UnreadableNumberError as error:
            severity, result = _OF_A_WRONG_NUMBER[name]
            self.notes.add("CHK-FORMAT", path, f"{_without(path, error)}; {result}", severity=severity)
        except CheckpointError as error:  # it is not of its form, whichever of them it is
            self.notes.add("CHK-FORMAT", path, f"{_without(path, error)}; Kafka takes the log directory offline")
        except StorageError as error:
            self.notes.add_unreadable(path, error)
        return None

    def offset_of(self, name: str, partition: TopicPartition) -> int | None:
        """What a checkpoint says of a partition."""
        offsets = self.checkpoints[name]
        return None if offsets is None else offsets.get(partition)

    def is_known(self, name: str) -> bool:
        """Whether a checkpoint is there and can be read."""
        return self.checkpoints[name] is not None

    def salvaged(self, name: str) -> dict[TopicPartition, int]:
        """The entries of a checkpoint; of one that is damaged those lines that can be read."""
        offsets = self.checkpoints[name]
        if offsets is not None:
            return dict(offsets)
        path = join(self.place.path, name)
        if self._fs.stat(path) is None:
            return {}
        found = {}
        for line in read_whole(self._fs, path).decode("utf-8", "replace").splitlines():
            fields = line.split()
            if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal():
                found[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
        return found

    def _check_identity(self) -> None:
        path = join(self.place.path, META_PROPERTIES)
        try:
            self.meta = read_meta_properties(self._fs, self.place.path)
        except CheckpointError as error:
            self.notes.add("ROOT-META", path, str(error).removeprefix(f"{path}: "))
            return
        except StorageError as error:
            self.notes.add_unreadable(path, error)
            return
        if self.meta is None:
            self._note_missing_identity(path)
        if not self.is_clean and not self._has_metadata_only:  # a controller leaves no mark
            message = "a broker has it open" if self.is_in_use else "there is no mark of a clean stop"
            self.notes.add("ROOT-UNCLEAN", self.place.path, message)

    def _note_missing_identity(self, path: str) -> None:
        """Nobody needs it to read logs. Beside what formatting leaves it was there, and Kafka does not start."""
        for name in _OF_A_FORMATTED_ROOT:
            if self._fs.stat(join(self.place.path, name)) is not None:
                message = f"it is missing, though {name} says that the root was formatted: Kafka does not start"
                self.notes.add("ROOT-META", path, message)
                return
        remedy = "none, to read the logs; kafka-storage.sh format writes it before a broker is to use the directory"
        message = "the directory is not formatted for a broker (kafka-storage.sh format does it); logs are read without"
        self.notes.add("ROOT-META", path, message, severity=Severity.INFO, remedy=remedy)

    def _note_journals(self) -> None:
        """What was begun in the root, and is not done: a new one has none of a broker's files yet."""
        path = journal_path(self._fs, self.place.path)
        if path is None:
            return
        try:
            journal = read_journal(self._fs, self.place.path)
        except CheckpointError as error:
            self.notes.add("ROOT-LOAD", path, str(error).removeprefix(f"{path}: "), remedy=_JOURNAL_FIRST)
            return
        except StorageError as error:
            self.notes.add_unreadable(path, error)
            return
        if journal is not None and self.is_in_use:
            message = f"{journal.kind.words} into this root is under way"
            self.notes.add("ROOT-LOAD", path, message, severity=Severity.INFO)
        elif journal is not None:
            message = f"{journal.kind.words} into this root was interrupted: Kafka does not start before it is settled"
            roots: tuple[str, ...]
            roots, deed = (self.place.path,), _SETTLED[journal.kind]
            if journal.group is not None:
                roots, deed = journal.group.roots, "it settles the load in all of them"
            remedy = f"run `tidelog recover {' '.join(roots)}` first: {deed}"
            self.notes.add("ROOT-LOAD", path, message, remedy=remedy)

    def _check_names(self) -> None:
        seen: dict[TopicPartition, str] = {}
        for place in self.place.partitions:
            if place.is_live and place.topic_partition in seen:
                message = f"{seen[place.topic_partition]} is the same partition"
                self.notes.add("ROOT-DUPLICATE", place.path, message, partition=place.topic_partition)
            elif place.is_live:
                seen[place.topic_partition] = place.name
        for name in self._fs.list(self.place.path):
            path = join(self.place.path, name)
            stat = self._fs.stat(path)
            if stat is not None and stat.is_directory:
                if name not in (REMOTE_INDEX_CACHE, UNFINISHED_WRITE) and not is_partition_name(name):
                    self._note_foreign(path, name)
            elif name not in (*_KNOWN_FILES, *OLD_JOURNALS) and not name.endswith(".tmp"):
                self.notes.add("ROOT-FILE", path, "not a file of a broker")

    def _note_foreign(self, path: str, name: str) -> None:
        if self._has_metadata_only:
            message = "its name is not topic-partition; Kafka ignores it, since it loads only the metadata log here"
            self.notes.add("ROOT-FOREIGN", path, message, severity=Severity.INFO, remedy="none: Kafka ignores it")
            return
        remedy = "give the broker a directory inside this mount" if name == LOST_AND_FOUND else None
        self.notes.add("ROOT-FOREIGN", path, "its name is not topic-partition", remedy=remedy)

    def check_offsets(self, ends: Mapping[TopicPartition, LogEnds]) -> None:
        """Compare the checkpoints with the logs; those of a single partition where only that one was asked for."""
        here = {place.topic_partition for place in self.place.partitions}
        for name, offsets in self.checkpoints.items():
            path = join(self.place.path, name)
            for partition, offset in (offsets or {}).items():
                if partition in ends:
                    self._check_offset(name, path, partition, offset, ends[partition])
                elif partition not in here and self.place.is_wanted:
                    message = f"{partition} with the offset {offset} is not in this root"
                    severity = None if self.is_clean else Severity.INFO  # checkpoints follow a deletion after a while
                    self.notes.add("CHK-UNKNOWN", path, message, partition=partition, severity=severity)

    def _check_offset(self, name: str, path: str, partition: TopicPartition, offset: int, log: LogEnds) -> None:
        severity, message, remedy = None, None, None
        if offset > log.end:
            message = f"{partition} has {offset}, its log ends at {log.end}"
            lost = self._lost(name, partition, offset, log)
            if lost is not None:
                message, remedy = f"{message}: {lost}", _RESTORE
            if self.is_in_use:
                severity = Severity.INFO  # it is older, or newer, than what was read of the log
            elif name in (HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT) or not self.is_clean:
                severity = Severity.WARNING  # Kafka starts with the log as it is; it may be older in a copy
            if name == LOG_START_CHECKPOINT:
                message = f"{message}: Kafka removes its segments, and begins it at {offset}"
        elif offset < 0:
            message = f"{partition} has {offset}"
        elif self.is_clean and name == RECOVERY_POINT_CHECKPOINT and offset < log.end:
            severity, message = Severity.WARNING, f"{partition} was closed at {offset}, its log goes on to {log.end}"
        elif self.is_clean and name == LOG_START_CHECKPOINT and offset < log.first:
            severity = Severity.WARNING
            gone = f"offset {offset} is" if log.first == offset + 1 else f"offsets {offset} to {log.first - 1} are"
            message = f"{partition} began at {offset}, now at {log.first}: {gone} gone with the segments before it"
        if message is not None:
            self.notes.add(
                "CHK-RANGE", path, message, partition=partition, severity=severity, offsets=(log.first, log.end),
                remedy=remedy,
            )  # fmt: skip

    def _lost(self, name: str, partition: TopicPartition, offset: int, log: LogEnds) -> str | None:
        """How much of a log is gone that has reached an offset; None if it is rather the checkpoint that is wrong.

        A log reaches its recovery point and its high watermark. If one of them is its very end, the other is damaged,
        unless a broker went down without having written what lies behind the recovery point.
        """
        if name not in _REACHED or self.is_in_use:
            return None
        others = [self.offset_of(other, partition) for other in _REACHED if other != name]
        if log.end in others and (name == RECOVERY_POINT_CHECKPOINT or self.is_clean):
            return None
        reached = max(offset, self.losses.get(partition, (0, 0))[1] + 1)
        self.losses[partition] = log.end, reached - 1
        count = offset - log.end
        is_sure = any(other is not None and other > log.end for other in others)
        doubt = "" if is_sure else ", or the checkpoint is wrong"
        if not self.is_clean:
            doubt = f"{doubt}, unless this is a copy made while a broker was writing"
        return f"{count} offset{' is' if count == 1 else 's are'} gone{doubt}"


def is_in_use(root: str) -> bool:
    """Whether another process has the root's lock. Nothing is locked to find out, so this is a hint and no more."""
    query = getattr(fcntl, "F_OFD_GETLK", None)
    if query is None:
        return False
    try:
        descriptor = os.open(join(root, LOCK_FILE), os.O_RDONLY | os.O_NONBLOCK)  # it may be a pipe
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, query, _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_WHOLE_FILE.unpack(answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _without(path: str, error: Exception) -> str:
    """What an error says of a file, without its path."""
    return str(error).removeprefix(f"{path}: ")
