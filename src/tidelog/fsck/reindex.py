"""Rebuild the files of a log other than its segments: offset, time and transaction indexes, and producer snapshots.

    for done in reindex("/var/lib/kafka/data", ["orders"]):
        print(done.partition, done.error or [file.name for file in done.changes])

A log is loaded as a broker loads it that finds none of these files, over a file system in which nothing reaches the
disk. What that leaves is what Kafka would leave, and it is compared with what lies there. Files that differ are written
beside the old ones and renamed, so that a crash leaves each of them old or new. The `.log` files are read and never
changed: a log that recovery would have to cut is refused.

On request only what is missing or broken is rebuilt: a file with other bytes that a check (partition_check.py) finds
nothing wrong with is left alone. Where nobody says index.interval.bytes, it is what the sound indexes of the log show.

What is made is kept in memory until it is written: about 5 MiB for each GiB of log.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tidelog.errors import CorruptIndexError, CorruptionError, InvalidConfigError, InvalidRequestError, TidelogError
from tidelog.fsck.findings import Severity
from tidelog.fsck.held_root import HeldRoot
from tidelog.fsck.index_configs import Given, IndexConfig, index_config, is_interval_known
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.root_files import RootFiles
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.config_values import Kind, Setting, at_least
from tidelog.log.files import Creation, FileSystem, ReadFile, WriteFile, create_anew, join, read_whole
from tidelog.log.loader import LogLoader
from tidelog.log.names import (
    DELETED,
    INDEX_SUFFIX,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TopicPartition,
)
from tidelog.log.overlay_files import OverlayFileSystem
from tidelog.log.producer_snapshot import parse_snapshot
from tidelog.log.tasks import Schedule
from tidelog.records.varint import Buffer

__all__ = [
    "KINDS",
    "FileState",
    "RebuiltFile",
    "ReindexSettings",
    "Reindexed",
    "partitions_in",
    "reindex",
    "reindex_partition",
]

OnProgress = Callable[[int, int], None]  # bytes of log read so far, and in all

KINDS = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_BESIDE = f".rebuilt{DELETED}"  # a start-up of any broker cleans such names away
_PRODUCER_EXPIRATION = "producer.id.expiration.ms"
_BETWEEN_LOOKS_MS = 100
_CODES_OF_FILES = ("IDX-", "TIX-", "TXN-", "SNP-", "SEG-NO-LOG")


class FileState(StrEnum):
    """How a file that lies there compares with the one that was made."""

    EQUAL = "equal"
    MISSING = "missing"
    STALE = "stale"  # there, with other bytes
    EXTRA = "extra"  # there, and Kafka would have none
    SOUND = "sound"  # stale or extra, with nothing wrong in it, and left alone as one has asked for


class RebuiltFile(NamedTuple):
    """One file beside the segments."""

    name: str
    state: FileState
    size_before: int
    size_after: int


@dataclass(frozen=True)
class Reindexed:
    """What was found in a partition, and replaced unless it was a trial."""

    partition: TopicPartition
    files: tuple[RebuiltFile, ...] = ()
    log_bytes: int = 0
    forgotten_producers: tuple[int, ...] = ()  # known to the newest old snapshot, and to no batch that is left
    config: IndexConfig | None = None  # what indexes are made with
    error: str | None = None  # why nothing was done

    @property
    def changes(self) -> tuple[RebuiltFile, ...]:
        """The files that are not as Kafka would have made them, without those that are left alone."""
        return tuple(file for file in self.files if file.state not in (FileState.EQUAL, FileState.SOUND))


class ReindexSettings(NamedTuple):
    """What a directory may not tell: the configs of its topics, all of them or some, and one of the broker."""

    topic: Given = MappingProxyType({})
    producer_id_expiration_ms: int = 86_400_000  # who was silent for so long is not in a snapshot

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "ReindexSettings":
        """Read configs by Kafka's names; those not given are looked for, and else have Kafka's defaults."""
        topic = dict(properties)
        expiration = topic.pop(_PRODUCER_EXPIRATION, "86400000")
        try:
            LogConfig.from_properties(topic)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{error}; index.interval.bytes and segment.index.bytes matter here") from error
        return cls(topic, Setting(Kind.INT, at_least(1), ()).parse(_PRODUCER_EXPIRATION, expiration))


def reindex(
    path: str,
    topics: Sequence[str] | None = None,
    *,
    settings: ReindexSettings | None = None,
    kinds: Collection[str] = KINDS,
    missing: bool = False,
    write: bool = True,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> list[Reindexed]:
    """Rebuild the files of all partitions of a directory, or of some topics; without `write` only compare.

    With `missing` only files that are missing or broken are rebuilt.
    """
    with HeldRoot(path, fs=fs, clock=clock) as root:
        return [
            reindex_partition(root, partition, settings or ReindexSettings(), kinds=kinds, missing=missing, write=write)
            for partition in partitions_in(root, topics)
        ]


def partitions_in(root: HeldRoot, topics: Sequence[str] | None) -> list[TopicPartition]:
    """The partitions of some topics, each of which must be there; without topics, all."""
    partitions = root.partitions
    known = sorted({partition.topic for partition in partitions})
    for topic in topics or ():
        if topic not in known:
            nearest = get_close_matches(topic, known, n=1)
            hint = f"; the nearest is {nearest[0]}" if nearest else ""
            raise InvalidRequestError(f"{root.path} has no partition of topic {topic}{hint}")
    return [partition for topic in topics or known for partition in partitions if partition.topic == topic]


def reindex_partition(
    root: HeldRoot,
    partition: TopicPartition,
    settings: ReindexSettings,
    *,
    kinds: Collection[str] = KINDS,
    missing: bool = False,
    write: bool = True,
    on_progress: OnProgress = lambda done, total: None,
) -> Reindexed:
    """Rebuild the files of one partition of a root that is held; without `write` only compare.

    What is wrong with the partition is told in the result: others can be rebuilt all the same. If `on_progress`
    raises, nothing was changed.
    """
    try:
        with root.held(partition):
            work = _Rebuild(root, partition, settings, tuple(kinds))
            if missing or work.is_spacing_wanted:
                work.check(missing=missing)
            work.load(on_progress)
            done = work.compare()
            if write and done.changes:
                work.write(done.changes)
    except TidelogError as error:
        return Reindexed(partition, error=" ".join(str(error).split()))
    return done


class _Rebuild:
    """The files of one partition, made in memory. Used once."""

    def __init__(
        self,
        root: HeldRoot,
        partition: TopicPartition,
        settings: ReindexSettings,
        kinds: tuple[str, ...],
    ) -> None:
        self._root = root
        self._partition = partition
        self._settings = settings
        self._kinds = kinds
        self._disk = root.fs
        self._directory = root.directory(partition)
        self._names = self._disk.list(self._directory)
        self._made = _LogsOnly(self._disk)
        self._log_bytes = 0
        self._broken: set[str] | None = None  # names of files; None: all that differ are rebuilt
        self._config = index_config(settings.topic, root.configs_of(partition.topic))

    @property
    def is_spacing_wanted(self) -> bool:
        """Whether the interval between entries is asked for, and the indexes that lie there may tell it."""
        return (
            any(kind in self._kinds for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
            and not is_interval_known(self._settings.topic, self._root.configs_of(self._partition.topic))
            and any(name.endswith(INDEX_SUFFIX) for name in self._names)
        )

    def check(self, *, missing: bool) -> None:
        """Find out what the sound indexes tell of the configs, and, for what is `missing` alone, which are broken."""
        root = RootFiles(self._disk, self._root.place, is_ours=True)
        is_deep = missing and self._has_snapshots
        check = PartitionCheck(self._disk, self._root.place_of(self._partition), root, deep=is_deep)
        check.finish([facts for base in check.files.bases if (facts := check.scan(base)) is not None])
        if missing:
            self._broken = {
                finding.file.rpartition("/")[2]
                for finding in check.notes.findings
                if finding.code.startswith(_CODES_OF_FILES) and finding.severity is not Severity.INFO
            }
        known = self._root.configs_of(self._partition.topic)
        self._config = index_config(self._settings.topic, known, check.spacing)

    @property
    def _has_snapshots(self) -> bool:
        return SNAPSHOT_SUFFIX in self._kinds

    def load(self, on_progress: OnProgress) -> None:
        """Open the log without its files, and close it."""
        self._ensure_segments()
        for name in self._of_kinds(self._names, KINDS):
            self._made.remove(join(self._directory, name))
        loader = LogLoader(
            self._directory,
            self._config.config,
            recovery_point=0,
            log_start_offset=self._root.checkpointed(LOG_START_CHECKPOINT, self._partition) or 0,
            clean_shutdown=True,
            producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
            verification=False,
            clock=self._root.clock,
            fs=self._made,
            rng=random.Random(0),
            schedule=Schedule(self._root.clock),
            lock=False,  # that of the root is held
        )
        task = loader.task()
        while not task.step(_BETWEEN_LOOKS_MS):
            on_progress(loader.segments.size, self._log_bytes)
        task.run().close()

    def _ensure_segments(self) -> None:
        if any(name.endswith(SWAP) for name in self._names):
            raise CorruptionError(
                f"{self._directory}: a compaction was not completed: start the broker on it and stop it, then try again"
            )
        logs = [name for name in self._names if name.endswith(LOG_SUFFIX)]
        if not logs:
            raise CorruptionError(f"{self._directory} holds no {LOG_SUFFIX} file to rebuild anything from")
        found = [self._disk.stat(join(self._directory, name)) for name in logs]
        self._log_bytes = sum(stat.size for stat in found if stat is not None)

    def _of_kinds(self, names: Sequence[str], kinds: tuple[str, ...]) -> list[str]:
        return [name for name in names if name.endswith(kinds)]

    def compare(self) -> Reindexed:
        """What was made beside what lies there."""
        old = set(self._of_kinds(self._names, self._kinds))
        new = set(self._of_kinds(self._made.list(self._directory), self._kinds))
        files = (self._compared(name, name in old, name in new) for name in sorted(old | new))
        done = Reindexed(self._partition, tuple(files), self._log_bytes, config=self._config)
        is_forgetting = any(file.name.endswith(SNAPSHOT_SUFFIX) for file in done.changes)
        return replace(done, forgotten_producers=self._forgotten_producers()) if is_forgetting else done

    def _compared(self, name: str, is_there: bool, is_made: bool) -> RebuiltFile:
        path = join(self._directory, name)
        before = read_whole(self._disk, path) if is_there else b""
        after = read_whole(self._made, path) if is_made else b""
        if is_there and before == after and (is_made or name.endswith(TXN_INDEX_SUFFIX)):
            state = FileState.EQUAL  # a transaction index that is empty and one that is not there say the same
        elif is_there and is_made:
            state = FileState.STALE
        else:
            state = FileState.MISSING if is_made else FileState.EXTRA
        if state in (FileState.STALE, FileState.EXTRA) and self._broken is not None and name not in self._broken:
            state = FileState.SOUND
        return RebuiltFile(name, state, len(before), len(after))

    def _forgotten_producers(self) -> tuple[int, ...]:
        """The producers whose batches are gone: with the old snapshots, the last that is known of them goes."""
        known = self._producers_of(self._disk, self._names)
        left = self._producers_of(self._made, self._made.list(self._directory))
        now_ms, limit_ms = self._root.clock.now_ms(), self._settings.producer_id_expiration_ms
        return tuple(sorted(key for key, time_ms in known.items() if key not in left and now_ms - time_ms < limit_ms))

    def _producers_of(self, fs: FileSystem, names: Sequence[str]) -> dict[int, int]:
        """The producers in the newest snapshot that can be read, and when each wrote last."""
        for name in reversed(self._of_kinds(names, (SNAPSHOT_SUFFIX,))):
            try:
                entries = parse_snapshot(read_whole(fs, join(self._directory, name)))
            except CorruptIndexError:
                continue
            return {entry.producer_id: entry.last_timestamp_ms for entry in entries}
        return {}

    def write(self, changes: Sequence[RebuiltFile]) -> None:
        """Put what was made in the place of what lies there, with the owners and modes of before."""
        made = [join(self._directory, file.name) for file in changes if file.state is not FileState.EXTRA]
        try:
            with self._root.owners_kept(self._directory):
                for path in made:
                    self._write_beside(path)
            with self._root.owners_kept(self._directory):
                for path in made:
                    self._disk.rename(path + _BESIDE, path)
        finally:
            for path in made:
                self._disk.remove(path + _BESIDE)  # what was renamed is not there any more
        for file in changes:
            if file.state is FileState.EXTRA:
                self._disk.remove(join(self._directory, file.name))
        self._disk.sync_directory(self._directory)

    def _write_beside(self, path: str) -> None:
        file = create_anew(self._disk, path + _BESIDE)
        try:
            file.write_at(0, read_whole(self._made, path))
            file.sync()
        finally:
            file.close()


class _LogsOnly(OverlayFileSystem):
    """Files that are written to in memory only, and `.log` files that cannot be changed even there."""

    def __init__(self, disk: FileSystem) -> None:
        super().__init__(disk)
        self._disk = disk

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        if not path.endswith(LOG_SUFFIX):
            return super().open_write(path, create=create)
        if self._disk.stat(path) is None:
            raise _wants_other_segments(path)
        return _FixedLog(self._disk.open(path))

    def rename(self, source: str, target: str) -> None:
        if source.endswith(LOG_SUFFIX):
            raise _wants_other_segments(source)
        super().rename(source, target)


def _wants_other_segments(path: str) -> CorruptionError:
    return CorruptionError(
        f"{path}: a start of the broker would split or remove segments here, and nothing is rebuilt before that: "
        "run tidelog fsck --repair"
    )


class _FixedLog:
    """An open `.log` file that nothing can be written to."""

    descriptor = None

    def __init__(self, file: ReadFile) -> None:
        self.path = file.path
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        return self._file.read_into(position, target)

    def write_at(self, position: int, data: Buffer) -> None:
        raise AssertionError(f"{self.path}: loading writes no batches")

    def resize(self, size: int) -> None:
        raise CorruptionError(
            f"{self.path}: the sound batches end at position {size}, the file at {self.size}: run "
            "tidelog fsck --repair, which mends it, and then try again"
        )

    def sync(self) -> None:
        """Nothing was written."""

    def close(self) -> None:
        self._file.close()
