"""The names in a partition directory, sorted by what they are."""

from collections.abc import Iterator

from tidelog.errors import CorruptionError
from tidelog.log.files import FileStat, ReadFileSystem, join
from tidelog.log.names import (
    CHECKPOINT_DELETED,
    CLEANED,
    CLUSTER_METADATA_TOPIC,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP,
    TopicPartition,
    file_name,
    offset_of,
)

__all__ = ["PartitionFiles"]

_QUORUM_FILES = ("quorum-state",)
_QUORUM_SUFFIXES = (".checkpoint", ".checkpoint.part", CHECKPOINT_DELETED)


class PartitionFiles:
    """What lies in a partition directory."""

    def __init__(self, fs: ReadFileSystem, directory: str, partition: TopicPartition) -> None:
        self.directory = directory
        self.stats: dict[str, FileStat] = {}
        for name in fs.list(directory):
            stat = fs.stat(join(directory, name))
            if stat is not None:  # else it went while we looked
                self.stats[name] = stat
        self.bases: list[int] = []
        self.snapshots: list[int] = []
        self.leftovers: list[str] = []
        self.deleted: list[str] = []
        self.misnamed: list[str] = []
        self.foreign: list[str] = []
        self.orphans: list[str] = []
        for name, stat in self.stats.items():
            self._sort(name, stat, partition.topic == CLUSTER_METADATA_TOPIC)
        self.bases.sort()
        self.orphans = [name for name in self._indexes() if offset_of(name) not in set(self.bases)]

    def _sort(self, name: str, stat: FileStat, is_quorum: bool) -> None:
        if stat.is_directory:
            self.foreign.append(name)
        elif name.endswith((CLEANED, SWAP)):
            self.leftovers.append(name)
        elif name.endswith(DELETED):
            self.deleted.append(name)
        elif name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)):
            self._sort_numbered(name)
        elif name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) or name.endswith(".tmp"):
            pass
        elif not (is_quorum and (name in _QUORUM_FILES or name.endswith(_QUORUM_SUFFIXES))):
            self.foreign.append(name)

    def _sort_numbered(self, name: str) -> None:
        try:
            offset = offset_of(name)
        except CorruptionError:
            self.misnamed.append(name)
            return
        suffix = name[name.index(".") :]
        if suffix not in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX) or name != file_name(offset, suffix):
            self.misnamed.append(name)
        elif suffix == LOG_SUFFIX:
            self.bases.append(offset)
        elif suffix == SNAPSHOT_SUFFIX:
            self.snapshots.append(offset)

    def _indexes(self) -> Iterator[str]:
        for name in self.stats:
            if name.endswith(SEGMENT_SUFFIXES[1:]) and name not in self.misnamed:
                yield name

    def path(self, base_offset: int, suffix: str) -> str:
        return join(self.directory, file_name(base_offset, suffix))

    def has(self, base_offset: int, suffix: str) -> bool:
        return file_name(base_offset, suffix) in self.stats
