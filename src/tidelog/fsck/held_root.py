"""A directory of partitions that nobody else has open, held while its indexes and snapshots are rebuilt.

    with HeldRoot("/var/lib/kafka/data") as root:
        for partition in root.partitions: ...

It need not be a root that a broker knows: a copy of some partitions will do, and so will a single partition directory.
Where there are a broker's files its lock is taken, so that no broker starts meanwhile; else the directory itself is
locked, which keeps out every other tidelog. Each partition directory is locked besides while it is worked on: whoever
opens a single log takes that lock alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from tidelog.errors import InvalidRequestError, LockedError
from tidelog.fsck.index_configs import known_configs
from tidelog.fsck.places import PartitionPlace, RootPlace, ensure_no_link, find_places
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.files import FileLock, FileSystem, join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLUSTER_METADATA_TOPIC, LOCK_FILE, TopicPartition
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.write_journal import ensure_no_unfinished_write

__all__ = ["HeldRoot"]

_MANY = 3


class HeldRoot:
    """The root at a path, or the one around the partition directory at a path. Entered once.

    `metadata` is the root that the metadata log of the cluster lies in, if that is another one.
    """

    def __init__(
        self, path: str, *, fs: FileSystem | None = None, clock: Clock | None = None, metadata: str | None = None
    ) -> None:
        self._metadata = metadata
        self.fs: FileSystem = LocalFileSystem() if fs is None else fs
        self.clock = SystemClock() if clock is None else clock
        self.place = _only_place(self.fs, path)
        self.path = self.place.path
        self._files = OfflineRoot(self.path, fs=self.fs, clock=self.clock)  # it is not taken, only asked
        self._lock: FileLock | None = None
        self._was_there = False  # the lock file
        self._configs: Mapping[str, Mapping[str, str]] | None = None  # by topic, once they were asked for

    def __enter__(self) -> "HeldRoot":
        ensure_no_unfinished_write(self.fs, self.path)
        path = self._lock_path
        self._was_there = self.fs.stat(path) is not None
        self._lock = self._locked(path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        try:
            if not self._was_there:
                self.fs.remove(self._lock_path)
        finally:
            self._lock.release()

    @property
    def _lock_path(self) -> str:
        return join(self.path, LOCK_FILE) if self.place.has_files else self.path

    def _locked(self, path: str) -> FileLock:
        try:
            return self.fs.lock(path)
        except LockedError as error:
            directory = path.removesuffix(f"/{LOCK_FILE}")
            raise LockedError(f"a broker or another tidelog has {directory} open: stop it first") from error

    @contextmanager
    def held(self, partition: TopicPartition) -> Iterator[None]:
        """Inside, nobody else opens the log of a partition."""
        directory = self.directory(partition)
        try:
            ensure_no_link(self.fs, directory)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{directory}: {error}") from None
        lock = self._locked(directory)
        try:
            yield
        finally:
            lock.release()

    # -- what is in it -------------------------------------------------------------------------------------------

    @property
    def has_partitions(self) -> bool:
        """Whether `partitions` has any. It may be asked before the root is held."""
        return bool(self._places)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, in order; without those on their way out or in, and without the metadata log."""
        places = self._places
        if not places:
            raise InvalidRequestError(
                f"{self.path} holds nothing to work on: directories that are deleted, stray or being moved in, and the "
                "metadata log, are left alone"
            )
        found: dict[TopicPartition, str] = {}
        for place in places:
            if place.topic_partition in found:
                raise InvalidRequestError(
                    f"{found[place.topic_partition]} and {place.path} are directories of one partition: take one away"
                )
            found[place.topic_partition] = place.path
        return sorted(found)

    @property
    def _places(self) -> list[PartitionPlace]:
        return [
            place
            for place in self.place.partitions
            if place.is_live and place.topic_partition.topic != CLUSTER_METADATA_TOPIC
        ]

    def place_of(self, partition: TopicPartition) -> PartitionPlace:
        """Where a partition lies."""
        return next(place for place in self._places if place.topic_partition == partition)

    def directory(self, partition: TopicPartition) -> str:
        """The directory of a partition."""
        return self.place_of(partition).path

    def checkpointed(self, name: str, partition: TopicPartition) -> int | None:
        """What a checkpoint of the root says of a partition."""
        return self._files.checkpointed(name, partition)

    def configs_of(self, topic: str) -> Mapping[str, str]:
        """The configs of indexes that the metadata log in the root has for a topic."""
        if self._configs is None:
            self._configs = known_configs(self.fs, self._metadata or self.path)
        return self._configs.get(topic, {})

    def owners_kept(self, directory: str) -> AbstractContextManager[None]:
        """Inside, files of a directory may be replaced or added: behind it they have the owners and modes of before."""
        return self._files.owners_kept(directory)


def _only_place(fs: FileSystem, path: str) -> RootPlace:
    places = find_places(fs, [path])
    if len(places) > 1:
        names = ", ".join(place.path for place in places[:_MANY]) + (", …" if len(places) > _MANY else "")
        raise InvalidRequestError(f"{path} holds {len(places)} log directories: name one of them ({names})")
    return places[0]
