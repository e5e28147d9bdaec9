"""The producer snapshots in a partition directory: which there are, and which may go.

A snapshot belongs to the segment that begins at its offset: it is the state with which a replay of that segment
starts. One more may lie at the log end, written by a clean shutdown. Kafka: SnapshotFile, ProducerStateManager.
"""

from collections.abc import Collection

from tidelog.log.files import FileSystem, join
from tidelog.log.names import DELETED, SNAPSHOT_SUFFIX, file_name, offset_of

__all__ = ["SnapshotFiles"]


class SnapshotFiles:
    """The snapshots that are known. `directory` follows when the partition directory is renamed."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.directory = directory
        self._names: dict[int, str] = {}
        self.reload()

    @property
    def offsets(self) -> list[int]:
        """In ascending order."""
        return sorted(self._names)

    @property
    def latest(self) -> int | None:
        return max(self._names, default=None)

    @property
    def oldest(self) -> int | None:
        return min(self._names, default=None)

    def path(self, offset: int) -> str | None:
        """Where the snapshot at an offset lies; None if none is known."""
        name = self._names.get(offset)
        return None if name is None else join(self.directory, name)

    def reload(self) -> None:
        """Look into the directory again."""
        self._names = {offset_of(name): name for name in self._listed()}

    def _listed(self) -> list[str]:
        if self._fs.stat(self.directory) is None:
            return []
        return [
            name for name in self._fs.list(self.directory) if name.endswith(SNAPSHOT_SUFFIX) and self._is_file(name)
        ]

    def _is_file(self, name: str) -> bool:
        stat = self._fs.stat(join(self.directory, name))
        return stat is not None and not stat.is_directory

    def new_path(self, offset: int) -> str:
        """Where the snapshot at an offset is to be written."""
        return join(self.directory, file_name(offset, SNAPSHOT_SUFFIX))

    def add(self, offset: int) -> None:
        """Know the snapshot that was written at `new_path`."""
        self._names[offset] = file_name(offset, SNAPSHOT_SUFFIX)

    def remove(self, offset: int) -> None:
        """Forget a snapshot and delete its file; harmless if it is gone."""
        path = self.path(offset)
        if path is not None:
            del self._names[offset]
            self._fs.remove(path)

    def remove_outside(self, low: int, high: int) -> None:
        """Keep the snapshots above `low` and up to `high`."""
        for offset in self.offsets:
            if not low < offset <= high:
                self.remove(offset)

    def remove_before(self, offset: int) -> None:
        """Keep the snapshots from `offset` on."""
        for known in self.offsets:
            if 0 <= known < offset:
                self.remove(known)

    def remove_stray(self, segment_bases: Collection[int]) -> None:
        """Look into the directory again and delete what belongs to no segment.

        The highest of those stays if no segment begins above it: a clean shutdown wrote it.
        """
        self.reload()
        bases = set(segment_bases)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and strays[-1] >= max(bases, default=strays[-1]):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def mark_for_deletion(self, offset: int) -> str | None:
        """Forget a snapshot and give its file a second suffix; the new path, or None if there is no such file.

        Recovery works with a scratch copy of the state, which may have deleted the file already.
        """
        path = self.path(offset)
        if path is None:
            return None
        del self._names[offset]
        if self._fs.stat(path) is None:
            return None
        self._fs.rename(path, path + DELETED)
        return path + DELETED
