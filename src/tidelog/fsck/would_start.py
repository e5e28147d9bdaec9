"""Would Kafka 4.3 start on these directories, and with which topics and offsets?

    verdict = would_start(fs, ["/disk1/kafka", "/disk2/kafka"])
    verdict.starts              True, False, or None if it is unknown
    verdict.topics["orders"][0] where the log would begin and end

The start of a broker is rehearsed in memory, in Kafka's order: compare identities, replay the metadata, load the logs,
and recover those that were not shut down cleanly. Nothing is written. A broker that only follows the metadata of a
quorum is judged by its copy of the metadata log.

Kafka: KafkaRaftServer, KafkaRaftLog, LogManager.loadLogs, ReplicaManager.
"""

import errno
import uuid
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tidelog.errors import CheckpointError, InvalidConfigError, InvalidTopicError, StorageError, TidelogError
from tidelog.fsck.cluster_image import ClusterImage
from tidelog.fsck.directory_use import has_metadata_only
from tidelog.fsck.feature_levels import ELIGIBLE_REPLICAS
from tidelog.fsck.identities import Identities, is_directory, read_identities
from tidelog.fsck.index_configs import index_config
from tidelog.fsck.kafka_checkpoints import (
    UnreadableNumberError,
    check_epochs_file,
    offsets_by_kafka,
    topic_id_by_kafka,
)
from tidelog.fsck.kafka_loading import load_as_kafka
from tidelog.fsck.metadata_log import MetadataLog, Undecided, Unstartable, read_bootstrap, read_metadata_log
from tidelog.fsck.partition_state import NO_LEADER, Replicas
from tidelog.fsck.recovery_cuts import RecoveryCut, judged_cut
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.fsck.verdict import Offsets, Verdict
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.config import LogConfig
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.manager.log_directories import DirectoryKind, LogDirectory, list_directories
from tidelog.log.manager.meta_properties import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.log.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_DIRECTORY,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.log.partition_metadata import uuid_text
from tidelog.log.text_files import to_number

__all__ = ["would_start"]

_MIN_IN_SYNC = "min.insync.replicas"
_INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
_SEGMENT_BYTES, _LEAST_SEGMENT_BYTES = "segment.bytes", 1 << 20  # which Kafka asks for since 4.0

_OF_A_FORMATTED_ROOT = (META_PROPERTIES, BOOTSTRAP_CHECKPOINT)
_ANYWHERE = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


def would_start(fs: ReadFileSystem, roots: Sequence[str], *, held_markers: Collection[str] = ()) -> Verdict:
    """Judge the directories of one node: all entries of its `log.dirs`, and its `metadata.log.dir`.

    The roots in `held_markers` were shut down cleanly, though a running repair has removed their marker.
    """
    verdict = Verdict(list(roots))
    try:
        _ensure_there(fs, roots)
        with_metadata = [root for root in roots if fs.stat(join(root, CLUSTER_METADATA_DIRECTORY)) is not None]
        if not with_metadata:
            _ensure_no_obstacle(RehearsalFileSystem(fs), roots)
            verdict.reason = "no metadata log here"
            return verdict
        _Start(RehearsalFileSystem(fs), verdict, with_metadata[0], held_markers).run()
    except Unstartable as error:
        return _given_up(verdict, error.path, error.reason)
    except (Undecided, StorageError) as error:
        verdict.reason = str(error)
        return verdict
    verdict.starts = True
    return verdict


def _ensure_there(fs: ReadFileSystem, roots: Sequence[str]) -> None:
    """Raise Unstartable if a directory is missing or empty: Kafka looks for `meta.properties` in each of them."""
    for root in roots:
        about = fs.stat(root)
        if about is None and not _is_loop(fs, root):
            raise Unstartable(root, "there is no such directory: mount its disk")
        if about is not None and about.is_directory and not fs.list(root):
            raise Unstartable(
                root, "the directory is empty: mount its disk, or run kafka-storage.sh format on a new one"
            )


def _is_loop(fs: ReadFileSystem, root: str) -> bool:
    """Whether a path is a link to itself. Kafka takes the directory offline, as any that cannot be read."""
    try:
        fs.list(root)
    except StorageError as error:
        return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ELOOP
    return False


def _ensure_no_obstacle(fs: RehearsalFileSystem, roots: Sequence[str]) -> None:
    """Raise Unstartable if Kafka cannot start on these directories, wherever the metadata log is."""
    seen: dict[TopicPartition, str] = {}
    for root in roots:
        if not is_directory(fs, root):
            continue
        try:
            _remove_marker(fs, root)
            directories = list_directories(fs, root)
        except InvalidTopicError as error:
            raise Unstartable(root, str(error).removeprefix(f"{root}/")) from error
        for directory in directories:
            is_current = directory.kind is DirectoryKind.CURRENT
            other = seen.setdefault(directory.partition, directory.path) if is_current else directory.path
            if other != directory.path:
                raise Unstartable(directory.path, f"{other} is the same partition")
    is_formatted = any(fs.stat(join(root, name)) is not None for root in roots for name in _OF_A_FORMATTED_ROOT)
    if is_formatted:
        found = read_identities(fs, roots, None)
        if found.offline and not found.directory_ids:
            root, why = next(iter(found.offline.items()))
            raise Unstartable(root, f"{why}, and no other directory is left")


def _remove_marker(fs: RehearsalFileSystem, root: str) -> None:
    """Remove the mark of a clean stop, as Kafka does before it looks at logs. A directory must be empty for that."""
    path = join(root, CLEAN_SHUTDOWN)
    if is_directory(fs, path):
        if fs.list(path):
            raise StorageError(f"{path} is a directory with files, and cannot be removed")
        fs.remove_directory(path)


def _given_up(verdict: Verdict, path: str, reason: str) -> Verdict:
    """The verdict on a node that does not start, without what it would have served."""
    ids = verdict.topic_ids
    kept = Verdict(verdict.roots, False, reason, path, verdict.node_id, verdict.cluster_id, topic_ids=ids)
    kept.offline_roots = verdict.offline_roots
    return kept


class _Loaded(NamedTuple):
    """A log that was loaded."""

    directory: LogDirectory
    root: str
    topic_id: uuid.UUID | None
    offsets: Offsets
    has_open_transaction: bool
    cuts: list[RecoveryCut]  # but for a torn end


class _Start:
    """A start, step by step."""

    def __init__(
        self, fs: RehearsalFileSystem, verdict: Verdict, metadata_root: str, held_markers: Collection[str]
    ) -> None:
        self._held_markers = held_markers
        self._fs = fs
        self._verdict = verdict
        self._metadata_root = metadata_root
        self._log_dirs = [root for root in verdict.roots if not has_metadata_only(fs, root)]
        self._image = ClusterImage()
        self._node = -1
        self._ids = Identities()
        self._logs: dict[TopicPartition, _Loaded] = {}
        self._future: dict[TopicPartition, _Loaded] = {}
        self._unserved_roots: dict[str, str] = {}  # online, but no partition can be taken over there, and why
        self._stop_epochs: dict[str, int | None] = {}
        self._unassigned = 0  # strays that are of a topic
        self._stops: list[TopicPartition] = []  # at which Kafka stops to take over partitions

    def run(self) -> None:
        """Rehearse the start. Raises Unstartable where Kafka gives up."""
        self._identify()
        bootstrap = read_bootstrap(self._fs, self._metadata_root)
        metadata = read_metadata_log(self._fs, join(self._metadata_root, CLUSTER_METADATA_DIRECTORY))
        if metadata.image.is_new:
            bootstrap.ensure_usable()
        self._image = metadata.image
        self._verdict.topic_ids = metadata.image.topic_ids
        if metadata.is_followed_by(self._node):
            self._verdict.metadata_end = metadata.log_end
        if metadata.fault is not None:
            if self._verdict.metadata_end is None:
                raise metadata.fault
            raise Undecided(self._about_copy(f"cannot be replayed: {metadata.fault.reason}"))
        self._ensure_member(metadata)
        if self._node in self._image.controllers and self._image.brokers and self._node not in self._image.brokers:
            return  # a controller alone has no other logs
        _check_configs(self._metadata_root, self._image)
        self._ensure_registrable()
        self._ensure_complete()
        self._stop_epochs = {root: self._stop_epoch(root) for root in self._log_dirs}
        for root in self._ids.directory_ids:
            if root in self._log_dirs:
                self._load_root(root)
        self._ensure_online()
        self._promote_future_logs()
        self._assign()
        self._ensure_online()
        self._ensure_known()

    # -- who this is ---------------------------------------------------------------------------------------------

    def _identify(self) -> None:
        self._ids = read_identities(self._fs, self._verdict.roots, self._metadata_root)
        self._verdict.offline_roots.update(self._ids.offline)
        self._verdict.cluster_id, self._verdict.node_id = self._ids.cluster_id, self._ids.node_id
        assert self._ids.node_id is not None
        self._node = self._ids.node_id

    def _ensure_member(self, metadata: MetadataLog) -> None:
        """Raise Unstartable unless the metadata knows this node, and, if it is a voter, its directory id."""
        members = {*self._image.brokers, *self._image.controllers, *(metadata.voters or ())}
        if members and self._node not in members:
            known = ", ".join(map(str, sorted(members)))
            if self._is_short_copy_possible():
                raise Undecided(self._about_copy(f"does not have node {self._node}, only {known}"))
            raise Unstartable(
                self._metadata_root, f"node {self._node} is none of the metadata log's, which has {known}"
            )
        voter = (metadata.voters or {}).get(self._node)
        own = self._ids.directory_ids[self._metadata_root]
        if voter is not None and voter != own:
            message = f"the quorum knows node {self._node} by directory {uuid_text(voter)}, this is another one"
            raise Unstartable(self._metadata_root, f"{message}: it cannot lead it")
        if metadata.voters == {}:
            raise Unstartable(self._metadata_root, "the quorum has no voters: nobody can lead it")
        if metadata.voters and metadata.kraft_version == 0:
            raise Undecided(
                "a record says that kraft.version is 0 again; Kafka starts only if controller.quorum.voters of its "
                "config names the voters"
            )
        if metadata.voters is None and metadata.kraft_version and not metadata.is_followed_by(self._node):
            raise Unstartable(self._metadata_root, "kraft.version is 1, and no record names the voters of the quorum")

    def _ensure_registrable(self) -> None:
        """Raise Unstartable if a controller cannot register this node as a broker: it looks for partitions to lead."""
        broker = self._image.brokers.get(self._node)
        path = join(self._metadata_root, CLUSTER_METADATA_DIRECTORY)
        if broker is not None and len(set(broker.directories)) < len(broker.directories):
            raise Unstartable(path, f"node {self._node} is registered with a directory twice")
        for name in ("", str(self._node)):
            least = self._image.broker_configs.get(name, {}).get(_MIN_IN_SYNC, "1")
            if to_number(least, 32) is None:
                raise Unstartable(path, f"{_MIN_IN_SYNC} of brokers is {least!r}: no broker can register")
        for topic in self._image.topics.values():
            for number, replicas in topic.partitions.items():
                is_looked_at = self._node in replicas.in_sync or replicas.leader == NO_LEADER
                if is_looked_at and (number < 0 or len(set(replicas.brokers)) < len(replicas.brokers)):
                    what = "has a broker twice" if number >= 0 else "has a negative number"
                    raise Unstartable(path, f"partition {topic.name}-{number} {what}: no broker can register")

    def _ensure_known(self) -> None:
        """Raise if a broker that follows the quorum has logs that its copy of the metadata does not know.

        Before it loads them it fetches what the copy lacks, so they are no strays.
        """
        if self._verdict.metadata_end is None or not (self._unassigned or self._image.is_new):
            return
        what = f"does not assign {self._unassigned} of the partitions here"
        for told in (self._verdict.strays, self._verdict.topics, self._verdict.missing, self._verdict.uncertain):
            told.clear()
        raise Undecided(self._about_copy("has no records" if self._image.is_new else what))

    def _is_short_copy_possible(self) -> bool:
        """Whether the copy of a node that follows the quorum may end before the node was registered.

        Where all controllers are brokers, too, it is rather the copy of another node.
        """
        controllers = self._image.controllers
        return self._verdict.metadata_end is not None and not controllers <= self._image.brokers.keys()

    def _about_copy(self, what: str) -> str:
        end = self._verdict.metadata_end
        return f"the copy of the metadata ends at offset {end} and {what}; a start depends on what the controllers have"

    def _ensure_complete(self) -> None:
        """Raise unless all directories are here that the node had when it last started."""
        broker, here = self._image.brokers.get(self._node), len(self._log_dirs)
        known = 0 if broker is None else len(broker.directories)
        if known > here:
            directories = f"{known} director{'y' if known == 1 else 'ies'}"
            raise Undecided(f"node {self._node} has {directories}, {here} named here: name all of its log.dirs")

    # -- loading -------------------------------------------------------------------------------------------------

    def _load_root(self, root: str) -> None:
        is_clean = root in self._held_markers or self._fs.stat(join(root, CLEAN_SHUTDOWN)) is not None
        try:
            _remove_marker(self._fs, root)
            directories = list_directories(self._fs, root)
        except InvalidTopicError as error:
            raise Unstartable(root, str(error)) from error
        except StorageError as error:
            self._take_offline(root, str(error))
            return
        recovery_points = self._checkpoint(root, RECOVERY_POINT_CHECKPOINT)
        log_starts = self._checkpoint(root, LOG_START_CHECKPOINT)
        was_offline = root in self._verdict.offline_roots
        loaded = []
        for directory in directories:
            try:
                loaded.append(self._load(root, directory, recovery_points, log_starts, is_clean=is_clean))
            except (StorageError, CheckpointError) as error:
                self._take_offline(root, str(error))
            except Unstartable:
                raise
            except TidelogError as error:
                raise Unstartable(directory.path, f"the log cannot be loaded: {error}") from error
        if root in self._verdict.offline_roots:
            self._load_offline(root, loaded, was_offline=was_offline)
        for one in loaded:
            self._take(one)
        self._checkpoint(root, CLEANER_CHECKPOINT)  # which the cleaner reads, once everything is loaded

    def _load_offline(self, root: str, loaded: Sequence[_Loaded], *, was_offline: bool) -> None:
        """In an offline directory a log that needs the disk again ends the start: for a rename, or an open transaction.

        If a log took the directory offline, the logs that were loaded before it are not affected, and Kafka's order is
        not known here.
        """
        for one in loaded:
            is_open = one.directory.kind in (DirectoryKind.CURRENT, DirectoryKind.FUTURE)
            if is_open and (one.has_open_transaction or self._why_stray(one) is not None):
                why = self._verdict.offline_roots[root]
                if was_offline:
                    raise Unstartable(one.directory.path, f"the log cannot be loaded, since its directory fails: {why}")
                raise Undecided(f"it depends on the order in which Kafka loads the logs of {root}: {why}")

    def _checkpoint(self, root: str, name: str) -> dict[TopicPartition, int]:
        """A checkpoint of a root. A malformed one takes the root offline; wrong numbers in it do not."""
        try:
            return offsets_by_kafka(self._fs, join(root, name))
        except UnreadableNumberError:
            return {}
        except (CheckpointError, StorageError) as error:
            self._take_offline(root, str(error))
            return {}

    def _load(
        self,
        root: str,
        directory: LogDirectory,
        recovery_points: dict[TopicPartition, int],
        log_starts: dict[TopicPartition, int],
        *,
        is_clean: bool,
    ) -> _Loaded:
        partition = directory.partition
        try:
            topic_id, problem = topic_id_by_kafka(self._fs, directory.path), None
        except (CheckpointError, Unstartable) as error:
            topic_id, problem = None, error
        self._fs.remove(join(directory.path, PARTITION_METADATA))  # Kafka reads it last, and reports other errors first
        check_epochs_file(self._fs, join(directory.path, LEADER_EPOCH_CHECKPOINT))
        log = load_as_kafka(
            self._fs, directory.path, recovery_point=recovery_points.get(partition, 0),
            log_start=log_starts.get(partition, 0), is_clean=is_clean,
            config=index_config({}, self._image.configs.get(partition.topic, {})).config,
        )  # fmt: skip
        offsets = Offsets(log.log_start_offset, log.log_end_offset)
        has_open_transaction = log.first_unstable_offset is not None
        log.release()
        below = self._fs.below
        cuts = [judged_cut(below, directory.path, log.log_end_offset, cut) for cut in log.cuts]
        if problem is not None:
            raise problem
        return _Loaded(
            directory, root, topic_id, offsets, has_open_transaction, [cut for cut in cuts if not cut.is_torn_end]
        )

    def _take(self, loaded: _Loaded) -> None:
        """Add a log to those that can be served, or set it aside as a stray."""
        directory = loaded.directory
        if directory.kind is DirectoryKind.DELETED:
            self._verdict.deleted.append(directory.path)
            return
        if directory.kind is DirectoryKind.STRAY:
            return  # set aside long ago
        why = self._why_stray(loaded)
        if why is not None:
            self._verdict.strays[directory.path] = why
            self._unassigned += loaded.topic_id is not None
            return
        table = self._future if directory.kind is DirectoryKind.FUTURE else self._logs
        other = table.setdefault(directory.partition, loaded)
        if other is not loaded:
            raise Unstartable(directory.path, f"{other.directory.path} is the same partition")

    def _why_stray(self, loaded: _Loaded) -> str | None:
        """Why a log does not belong to this node; None if it does."""
        if loaded.topic_id is None:
            return f"{PARTITION_METADATA} is missing"
        topic = self._image.topics.get(loaded.topic_id)
        if topic is None:
            return f"the metadata has no topic with the id {uuid_text(loaded.topic_id)}"
        replicas = topic.partitions.get(loaded.directory.partition.partition)
        if replicas is None:
            return f"the metadata has no such partition of {topic.name}"
        return None if self._node in replicas.brokers else f"the metadata does not assign it to node {self._node}"

    # -- serving -------------------------------------------------------------------------------------------------

    def _promote_future_logs(self) -> None:
        """A copy in the directory that the metadata names takes the place of the log it was copied from."""
        for partition, loaded in self._future.items():
            assert loaded.topic_id is not None
            replicas = self._image.topics[loaded.topic_id].partitions[partition.partition]
            if self._ids.directory_ids[loaded.root] != replicas.directory_of(self._node):
                continue
            current = self._logs.get(partition)
            if current is not None and current.root == loaded.root:
                raise Unstartable(loaded.directory.path, f"{current.directory.path} is in its way")
            if current is not None:
                self._verdict.deleted.append(current.directory.path)
            self._logs[partition] = loaded

    def _partitions(self) -> Iterator[tuple[TopicPartition, uuid.UUID, Replicas]]:
        for topic_id, topic in self._image.topics.items():
            for number, replicas in topic.partitions.items():
                if self._node in replicas.brokers:
                    yield TopicPartition(topic.name, number), topic_id, replicas

    def _assign(self) -> None:
        """Find the log of every partition that the metadata assigns to this node."""
        self._read_high_watermarks()
        self._find_obstacles()
        online = {
            directory_id: root
            for root, directory_id in self._ids.directory_ids.items()
            if root in self._log_dirs and root not in self._verdict.offline_roots
        }
        for partition, topic_id, replicas in sorted(self._partitions()):
            found = self._offsets(partition, topic_id, replicas, online)
            self._verdict.topics.setdefault(partition.topic, {})[partition.partition] = found
        self._doubt_the_others()

    def _read_high_watermarks(self) -> None:
        """Read the high watermarks, as Kafka does with the first log of a root that it serves."""
        for root in sorted({loaded.root for loaded in self._logs.values()}):
            try:
                offsets_by_kafka(self._fs, join(root, HIGH_WATERMARK_CHECKPOINT))
            except UnreadableNumberError as error:
                self._unserved_roots[root] = str(error)
            except (CheckpointError, StorageError) as error:
                self._take_offline(root, str(error))

    def _offsets(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID,
        replicas: Replicas,
        online: dict[uuid.UUID | None, str],
    ) -> Offsets | None:
        assigned = replicas.directory_of(self._node)
        loaded = self._logs.get(partition)
        if loaded is not None and loaded.root in self._verdict.offline_roots:
            loaded = None
        if assigned is not None and assigned not in _ANYWHERE and assigned not in online:
            if loaded is None and self._verdict.offline_roots:
                self._verdict.offline[partition] = f"its directory {uuid_text(assigned)} is not online"
                return None
            self._verdict.uncertain[partition] = f"no directory has the id {uuid_text(assigned)}, where it should be"
        if replicas.is_in_doubt(self._node, is_clean=self._keeps_in_sync or self._has_other_brokers):
            self._verdict.uncertain[partition] = "its replicas, those in sync and its leader do not fit together"
        elif not self._is_led(partition.topic, replicas):
            self._verdict.offline[partition] = "the metadata lets no broker lead it"
        if loaded is None:
            self._verdict.missing.append(partition)
            return None if partition in self._verdict.offline else Offsets(0, 0)
        if loaded.topic_id != topic_id or loaded.root in self._unserved_roots:
            other = f"{loaded.directory.path} is of another topic"
            self._verdict.offline[partition] = self._unserved_roots.get(loaded.root, other)
            self._stops.append(partition)
            return None
        if loaded.cuts:
            self._verdict.cut_short[partition] = loaded.cuts
        return None if partition in self._verdict.offline else loaded.offsets

    def _is_led(self, topic: str, replicas: Replicas) -> bool:
        """Whether somebody leads a partition. Where other brokers are registered, one of them may."""
        return self._has_other_brokers or replicas.is_led_by(
            self._node, is_clean=self._keeps_in_sync,
            is_unclean_allowed=self._image.is_unclean_election_allowed(topic, self._node),
        )  # fmt: skip

    def _stop_epoch(self, root: str) -> int | None:
        """The epoch in which the broker was stopped in good order; None if the directory does not say so."""
        try:
            return CleanShutdownFile(self._fs, root).read()
        except StorageError:
            return None  # Kafka takes what it cannot read for no mark

    @cached_property
    def _has_other_brokers(self) -> bool:
        return bool(self._image.brokers.keys() - {self._node})

    @cached_property
    def _keeps_in_sync(self) -> bool:
        """Whether replicas on this broker that were in sync still are."""
        return self._is_stop_in_order or not self._image.features.get(ELIGIBLE_REPLICAS)

    @cached_property
    def _is_stop_in_order(self) -> bool:
        """Whether all directories say that the broker was stopped in good order, in the epoch that it has."""
        broker = self._image.brokers.get(self._node)
        epochs = {
            epoch
            for root, epoch in self._stop_epochs.items()
            if root not in self._held_markers and root not in self._verdict.offline_roots
        }
        return broker is not None and epochs <= {broker.epoch}

    def _doubt_the_others(self) -> None:
        """Mark the others as uncertain if Kafka stops at a partition: its order is not known here."""
        for partition, _, _ in self._partitions() if self._stops else ():
            if partition not in self._verdict.offline:
                self._verdict.uncertain.setdefault(partition, f"Kafka may stop at {self._stops[0]} before it gets here")

    def _find_obstacles(self) -> None:
        """Take a directory offline where a log must be created and a file has its name."""
        roots = {directory_id: root for root, directory_id in self._ids.directory_ids.items()}
        names = {root: frozenset(self._fs.list(root)) for root in roots.values()}
        for partition, _, replicas in self._partitions():
            root = roots.get(replicas.directory_of(self._node))
            if partition in self._logs or root is None:
                continue
            found = self._fs.stat(join(root, str(partition)))
            leads_nowhere = found is None and str(partition) in names[root]
            if leads_nowhere or (found is not None and not found.is_directory):
                self._take_offline(root, f"{join(root, str(partition))} is not a directory")

    # -- directories that fail -----------------------------------------------------------------------------------

    def _take_offline(self, root: str, why: str) -> None:
        self._verdict.offline_roots.setdefault(root, why)

    def _ensure_online(self) -> None:
        failed = self._verdict.offline_roots
        if self._metadata_root in failed:
            raise Unstartable(self._metadata_root, f"{failed[self._metadata_root]}, and the metadata log is there")


def _check_configs(root: str, image: ClusterImage) -> None:
    """Raise Unstartable for a value of a topic config that Kafka rejects. It ignores names that it does not know."""
    known = LogConfig().to_properties()
    for topic in image.topic_ids:
        for name, value in image.configs.get(topic, {}).items():
            try:
                if name == _INTERNAL_SEGMENT_BYTES and to_number(value.strip(), 32) is None:
                    raise InvalidConfigError(f"{name} is {value!r}, which is not a number")
                if name in known:
                    LogConfig.from_properties({name: value})
                if name == _SEGMENT_BYTES and int(value) < _LEAST_SEGMENT_BYTES:
                    raise InvalidConfigError(f"{name} is {value}, at least {_LEAST_SEGMENT_BYTES} is wanted")
            except InvalidConfigError as error:
                raise Unstartable(
                    join(root, CLUSTER_METADATA_DIRECTORY), f"the config of topic {topic}: {error}"
                ) from error
