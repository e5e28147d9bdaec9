"""The small text files in which a log remembers offsets: offset checkpoints, leader epochs, the clean-shutdown marker.

Checkpoints share one form: a version (0), the number of entries, one entry per line.

    0
    2
    orders 0 5120             topic, partition, offset: the four `*-offset-checkpoint` files of a root
    orders 1 4711             (in `leader-epoch-checkpoint` of a partition: epoch, start offset)

Fields are separated by any white space. An empty file, one that ends after the version, and no file at all hold no
entries; anything else that is not of this form raises CheckpointError. A write goes to `<name>.tmp`, is synced and
renamed over the old file, so a crash leaves the old entries or the new, never a mixture.

`.kafka_cleanshutdown` says by its presence that a root was closed in good order. It is removed before the first log
of the root is loaded: whatever happens after that moment counts as a crash.

Kafka: CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, CleanShutdownFileHandler.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import CheckpointError
from tidelog.log.files import FileSystem, ReadFileSystem, join, parent_of, read_whole, write_atomically
from tidelog.log.names import CLEAN_SHUTDOWN, TopicPartition
from tidelog.log.text_files import read_lines, split_fields, to_number

__all__ = [
    "CleanShutdownFile",
    "EpochEntry",
    "LeaderEpochCheckpoint",
    "OffsetCheckpoint",
    "read_epochs",
    "read_offsets",
]

_VERSION = 0


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first batch that was, or will be, written in it."""

    epoch: int
    start_offset: int


def read_offsets(fs: ReadFileSystem, path: str) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint, by partition. Where a partition is listed twice, its last entry holds."""
    return {
        TopicPartition(topic, _number(partition, 32, path)): _number(offset, 64, path)
        for topic, partition, offset in _read(fs, path, fields=3)
    }


def read_epochs(fs: ReadFileSystem, path: str) -> list[EpochEntry]:
    """The entries of a leader epoch checkpoint, in the order of the file."""
    return [
        EpochEntry(_number(epoch, 32, path), _number(start_offset, 64, path))
        for epoch, start_offset in _read(fs, path, fields=2)
    ]


class _CheckpointFile:
    """A checkpoint at a path. Who renames the directory sets `path`."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._writing = threading.Lock()  # two writers would share one `.tmp`

    def create(self) -> None:
        """Create the file, empty, unless it is there: Kafka does so wherever it opens a checkpoint."""
        self._fs.open_write(self.path).close()

    def directory_exists(self) -> bool:
        """Whether there is a directory to write to."""
        return self._fs.stat(parent_of(self.path)) is not None

    def _write(self, entries: Iterable[str]) -> None:
        lines = list(entries)
        text = "".join(f"{line}\n" for line in (_VERSION, len(lines), *lines))
        with self._writing:
            write_atomically(self._fs, self.path, text.encode())


class OffsetCheckpoint(_CheckpointFile):
    """One offset per partition: of recovery points, log starts, high watermarks or the cleaner."""

    def read(self) -> dict[TopicPartition, int]:
        """All offsets in the file; none if there is no file."""
        return read_offsets(self._fs, self.path)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file. Entries are sorted, which Kafka's are not, so that equal offsets make equal files."""
        self._write(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


class LeaderEpochCheckpoint(_CheckpointFile):
    """The leader epochs of a partition and where each began."""

    def read(self) -> list[EpochEntry]:
        """All entries in the file; none if there is no file."""
        return read_epochs(self._fs, self.path)

    def write(self, entries: Iterable[EpochEntry]) -> None:
        """Replace the file."""
        self._write(f"{epoch} {start_offset}" for epoch, start_offset in entries)


class CleanShutdownFile:
    """The marker of an orderly stop in a root: `{"version":0,"brokerEpoch":14}`."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self.path = join(root, CLEAN_SHUTDOWN)
        self._fs = fs

    def exists(self) -> bool:
        """Whether the root was closed in good order. What is in the file does not matter."""
        return self._fs.stat(self.path) is not None

    def write(self, broker_epoch: int = -1) -> None:
        """Leave the marker, as the last act on a root."""
        file = self._fs.open_write(self.path)
        try:
            file.resize(0)
            file.write_at(0, json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode())
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(parent_of(self.path))

    def read(self) -> int | None:
        """The broker epoch in the marker; None without a marker, and for content that does not name one.

        Releases before 3.7 left the file empty, so content that cannot be read is not damage.
        """
        if not self.exists():
            return None
        try:
            content = json.loads(read_whole(self._fs, self.path))
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested beyond reason
            return None
        epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
        return epoch if type(epoch) is int and -(2**63) <= epoch < 2**63 else None

    def delete(self) -> None:
        """Remove the marker, for good: were it back after a power cut, a torn log would pass for a clean one."""
        if self._fs.remove(self.path):
            self._fs.sync_directory(parent_of(self.path))


def _read(fs: ReadFileSystem, path: str, *, fields: int) -> list[list[str]]:
    """The entries of a checkpoint, each cut into its fields."""
    if fs.stat(path) is None:
        return []
    lines = read_lines(fs, path)
    if not lines:
        return []
    version = _number(lines[0], 32, path)
    if version != _VERSION:
        raise CheckpointError(f"{path}: version {version} of a checkpoint; {_VERSION} is known")
    if len(lines) == 1:
        return []
    count = _number(lines[1], 32, path)
    entries = [_split(line, fields, path) for line in lines[2:]]
    if len(entries) != count:
        raise CheckpointError(f"{path}: {len(entries)} entries where {count} are announced")
    return entries


def _split(line: str, fields: int, path: str) -> list[str]:
    parts = split_fields(line)
    if len(parts) != fields:
        raise CheckpointError(f"{path}: {len(parts)} fields where an entry has {fields}: {line!r}")
    return parts


def _number(text: str, bits: int, path: str) -> int:
    value = to_number(text, bits)
    if value is None:
        raise CheckpointError(f"{path}: not a number of {bits} bits: {text!r}")
    return value
