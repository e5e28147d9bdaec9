"""The metadata log of a node as Kafka 4.3 reads it when it starts.

    __cluster_metadata-0/
        <end offset, 20 digits>-<epoch, 10 digits>.checkpoint     snapshots: the metadata up to an offset
        <offset>.log                                              the records before and after the snapshots
        quorum-state                                              leader and epoch: JSON in one line
        partition.metadata                                        the id, which is the same in every cluster

1. The log is recovered from offset 0 and ends at the first damaged batch.
2. The newest snapshot counts. If the log ends before it, the log is discarded; if the log begins after it, Kafka fails.
3. The snapshot is read up to its last whole batch, and the checksum of each batch is verified. A footer is optional.
4. The log is replayed from the end of the snapshot on, in whole batches: read_order.py says which.

Kafka: KafkaRaftLog, KRaftControlRecordStateMachine, FileQuorumStateStore, MetadataLoader.
"""

import json
import math
import re
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.errors import CorruptionError, StorageError, TidelogError
from tidelog.fsck.cluster_image import ClusterImage, decode_metadata
from tidelog.fsck.feature_levels import METADATA_VERSION
from tidelog.fsck.kafka_loading import load_as_kafka
from tidelog.fsck.read_order import UnreachableEndError, batches_as_read, batches_read_again
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.names import BOOTSTRAP_CHECKPOINT, PARTITION_METADATA
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.partition_metadata import ZERO_UUID, read_topic_id, uuid_text
from tidelog.log.unified_log import UnifiedLog
from tidelog.protocol import message
from tidelog.records.batch import RecordBatch
from tidelog.records.batches import Batch, read_batches, read_memory_batches
from tidelog.records.control import ControlType
from tidelog.records.java import MAX_INT32

__all__ = [
    "QUORUM_STATE",
    "Bootstrap",
    "MetadataLog",
    "QuorumState",
    "Snapshot",
    "Undecided",
    "Unstartable",
    "check_snapshot",
    "read_bootstrap",
    "read_metadata_log",
    "read_quorum_state",
    "snapshots_in",
]

QUORUM_STATE = "quorum-state"
_NO_LEADER = -1
_TOPIC_ID = uuid.UUID(int=1)
_SNAPSHOT_SUFFIXES = (".checkpoint", ".checkpoint.part", ".checkpoint.deleted")
_SNAPSHOT = re.compile(r"([+-]?[0-9]+)\.([+-]?[0-9]+)")
_CONTROL_RECORDS = {
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}
_BOOTSTRAP_TYPES = (ControlType.LEADER_CHANGE, ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER)
_QUORUM_VERSIONS = (0, 1)
_BEGIN_TRANSACTION = bytes([1, 23, 0, 0])  # a controller puts it before those of a new cluster


class Unstartable(CorruptionError):
    """Kafka does not start. `path` is the file or directory that is the reason."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.reason = message


class Unreplayable(Unstartable):
    """The records of a metadata log cannot be replayed.

    Of a node that only follows the quorum this means little: it cuts off what the controllers do not have first.
    """


class Undecided(Exception):
    """Whether Kafka starts is unknown: it depends on what is not in the directories, or on timing."""


class Snapshot(NamedTuple):
    """A snapshot of the metadata."""

    end_offset: int
    epoch: int
    name: str


class QuorumState(NamedTuple):
    """What `quorum-state` says. Version 1 is where the metadata names the voters, 0 where the config does."""

    version: int
    voters: frozenset[int]  # those of the config; none in version 1
    leader: int
    leader_epoch: int


class MetadataLog(NamedTuple):
    """What a metadata log says. `voters` are those it names, with their directories; None if the config names them."""

    image: ClusterImage
    voters: Mapping[int, uuid.UUID] | None
    configured_voters: frozenset[int]  # as quorum-state repeats them; empty if they are unknown
    log_start: int
    log_end: int
    kraft_version: int | None = None  # as the last record of it says
    fault: Unreplayable | None = None  # in the records after the snapshot

    def is_followed_by(self, node: int) -> bool:
        """Whether a node only follows the quorum: a broker that is no controller."""
        if self.voters is not None:
            return node not in self.voters
        controllers = self.configured_voters or self.image.controllers
        return bool(controllers) and node not in {*controllers, *self.image.controllers}


def snapshots_in(fs: ReadFileSystem, directory: str) -> list[Snapshot]:
    """The snapshots of a metadata log, the newest last: that with the latest epoch, and then with the largest offset.

    Raises Unstartable for a name that ends like that of a snapshot, and does not begin like one: Kafka gives up there.
    """
    found = set()
    for name in fs.list(directory):
        if name.endswith(_SNAPSHOT_SUFFIXES):
            offset, epoch = _snapshot_id(directory, name)
            is_there = fs.stat(join(directory, name)) is not None  # and no link that leads nowhere
            if is_there and name.endswith(_SNAPSHOT_SUFFIXES[0]):  # Kafka removes the others
                found.add((epoch, offset))
    return [Snapshot(offset, epoch, f"{offset:020}-{epoch:010}.checkpoint") for epoch, offset in sorted(found)]


def _snapshot_id(directory: str, name: str) -> tuple[int, int]:
    """The offset and the epoch that a name begins with: 20 characters, any one, and 10 more."""
    match = _SNAPSHOT.fullmatch(f"{name[:20]}.{name[21:31]}") if len(name) >= 31 else None
    if match is None or abs(int(match[1])) > MAX_OFFSET or abs(int(match[2])) > MAX_INT32:
        raise Unstartable(join(directory, name), "the name is not that of a snapshot: offset-epoch.checkpoint")
    return int(match[1]), int(match[2])


def read_metadata_log(fs: RehearsalFileSystem, directory: str) -> MetadataLog:
    """Read and replay a metadata log. Raises Unstartable where Kafka gives up, even if it only follows the quorum."""
    log = _load(fs, directory)
    try:
        snapshot = _newest_snapshot(fs, directory, log)
        quorum = read_quorum_state(fs, directory)
        epoch = log.leader_epochs.latest_epoch or 0  # the leader of an earlier one is not looked at
        if quorum is not None and quorum.leader < _NO_LEADER and quorum.leader_epoch >= epoch:
            raise Unstartable(join(directory, QUORUM_STATE), f"node {quorum.leader} cannot be a leader")
        replay = _Replay()
        start = log.log_start_offset
        if snapshot is not None:
            replay.take_snapshot(fs, join(directory, snapshot.name), snapshot.end_offset)
            start = snapshot.end_offset
            if (snapshot.epoch, snapshot.end_offset) > (log.leader_epochs.latest_epoch or 0, log.log_end_offset):
                log.truncate_fully_and_start_at(snapshot.end_offset)
        fault = _replay_log(fs, log, start, replay)
        try:
            replay.finish(directory, is_whole=True)
        except Unreplayable as error:
            fault = fault or error
        if replay.voters is None and quorum is not None and quorum.version == 1:
            raise Undecided(
                f"neither a snapshot nor the log of {directory} names the voters of the quorum; Kafka starts only if "
                "controller.quorum.voters of its config does"
            )
        if log.leader_epochs.latest_epoch == MAX_INT32:
            raise Unstartable(directory, f"after leader epoch {MAX_INT32} none can be elected")
        if fault is None:
            _ensure_writable(directory, log.log_end_offset, max(start, replay.reached))
        configured = frozenset[int]() if quorum is None else quorum.voters
        return MetadataLog(
            replay.image, replay.voters, configured, log.log_start_offset, log.log_end_offset, replay.kraft_version,
            fault,
        )  # fmt: skip
    finally:
        log.release()


def _load(fs: RehearsalFileSystem, directory: str) -> UnifiedLog:
    path = join(directory, PARTITION_METADATA)
    try:
        topic_id = read_topic_id(fs, path)
        if topic_id not in (None, _TOPIC_ID):
            assert topic_id is not None
            raise Unstartable(path, f"topic id {uuid_text(topic_id)}, that of the metadata is {uuid_text(_TOPIC_ID)}")
        return load_as_kafka(fs, directory, recovery_point=0, log_start=0, is_clean=False)
    except Unstartable:
        raise
    except TidelogError as error:
        raise Unstartable(directory, f"the metadata log cannot be loaded: {error}") from error


def _newest_snapshot(fs: RehearsalFileSystem, directory: str, log: UnifiedLog) -> Snapshot | None:
    found = [one for one in snapshots_in(fs, directory) if one.end_offset >= log.log_start_offset]
    if found:
        return found[-1]
    if log.log_start_offset > 0:
        raise Unstartable(directory, f"the log begins at {log.log_start_offset}, and no snapshot reaches that far")
    return None


def _replay_log(fs: RehearsalFileSystem, log: UnifiedLog, start: int, replay: "_Replay") -> Unreplayable | None:
    """Replay a log from an offset on. Of data batches only the first error counts; it is returned."""
    fault = None
    try:
        for batch, path in batches_as_read(fs, log, start):
            try:
                if fault is None or batch.is_control:
                    replay.take_batch(batch, path)
            except Unreplayable as error:
                fault = error
    except UnreachableEndError as error:
        raise Unstartable(log.directory, str(error)) from error
    return fault or _fault_of_leader(fs, log, start, replay)


def _ensure_writable(directory: str, end: int, reached: int) -> None:
    """Raise Undecided if a new leader writes at offsets that it has replayed.

    It resigns then and is elected again, each time with a batch more, until the log is long enough or a time is up.
    """
    if reached > end + 1:  # the batch of the election itself may have the first offset, and a batch after it the second
        raise Undecided(
            f"{directory}: the log ends at {end}, and {reached} was read before; a start depends on how fast the "
            "controller is elected again"
        )


def _fault_of_leader(fs: RehearsalFileSystem, log: UnifiedLog, start: int, replay: "_Replay") -> Unreplayable | None:
    """What a new leader cannot replay of what it reads again: control records, and all if it has read nothing yet."""
    try:
        for batch, path in batches_read_again(fs, log):
            if batch.is_control or start == log.log_end_offset:
                replay.take_batch(batch, path)
    except Unstartable as error:
        return Unreplayable(error.path, error.reason)
    return None


class _Replay:
    """Builds an image from batches."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.voters: dict[int, uuid.UUID] | None = None
        self.kraft_version: int | None = None
        self.reached = -1  # the largest offset that was replayed, but for those of control records
        self._quorum_changes: dict[ControlType, int] = {}  # the offset of the last record of voters, and of versions

    def take_snapshot(self, fs: ReadFileSystem, path: str, end_offset: int) -> None:
        """Replay a snapshot, up to its last whole batch."""
        is_first = True
        try:
            for batch in read_memory_batches(read_whole(fs, path)):
                batch.ensure_valid()
                if is_first and (not batch.is_control or _first_type(batch) is not ControlType.SNAPSHOT_HEADER):
                    raise Unstartable(path, "it does not begin with the header of a snapshot")
                is_first = False
                self.take_batch(batch, path, as_of=end_offset - 1)
        except TidelogError as error:
            raise error if isinstance(error, Unstartable) else Unstartable(path, str(error)) from error
        if is_first:
            raise Unstartable(path, "there is no whole batch in it")

    def take_batch(self, batch: Batch, path: str, *, as_of: int | None = None) -> None:
        """Replay all records of a batch. Those of a snapshot all count as of its last offset."""
        if not isinstance(batch, RecordBatch):
            raise Unstartable(path, f"a message set of version {batch.magic}")
        try:
            for record in batch.records():
                if batch.is_control:
                    self._take_control(record.key, record.value, record.offset if as_of is None else as_of)
                    continue
                if record.key is not None or record.headers:
                    raise CorruptionError(f"the record at offset {record.offset} has a key or headers")
                self.image.take(record.value)
                self.reached = max(self.reached, record.offset if as_of is None else as_of)
        except Unstartable:
            raise
        except TidelogError as error:
            what = f"the batch at offset {batch.base_offset} cannot be replayed: {error}"
            raise (Unstartable if batch.is_control else Unreplayable)(path, what) from error

    def _take_control(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        kind = ControlType.parse(key)
        if kind not in _CONTROL_RECORDS or not value:
            raise CorruptionError(f"a control record of type {kind.name} with a value of {len(value or b'')} bytes")
        record = message(_CONTROL_RECORDS[kind]).read(value, 0)
        if kind not in (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS):
            return
        last = self._quorum_changes.get(kind)
        if last is not None and offset <= last:
            raise CorruptionError(f"a second {kind.name} record at offset {offset}, the last one was at {last}")
        self._quorum_changes[kind] = offset
        if kind is ControlType.KRAFT_VOTERS:
            self.voters = {one.voter_id: one.voter_directory_id for one in record.voters}
        elif record.kraft_version not in _QUORUM_VERSIONS:
            raise CorruptionError(f"kraft.version {record.kraft_version}; Kafka 4.3 knows 0 and 1")
        else:
            self.kraft_version = record.kraft_version

    def finish(self, directory: str, *, is_whole: bool = False) -> None:
        """Raise Unstartable if Kafka cannot use the replayed metadata; the whole of it must fit its version."""
        self.image.abort_transaction()
        level = self.image.features.get(METADATA_VERSION)
        try:
            if is_whole:
                self.image.ensure_representable()
        except CorruptionError as error:
            raise Unreplayable(directory, str(error)) from error
        if level is None and not self.image.is_new:
            raise Unreplayable(directory, f"no record says which {METADATA_VERSION} this is")


def _first_type(batch: Batch) -> ControlType | None:
    record = next(iter(batch), None)
    return None if record is None else ControlType.parse(record.key)


def check_snapshot(fs: ReadFileSystem, path: str, end_offset: int) -> None:
    """Raise Unstartable if a snapshot cannot be replayed, or has lost its end."""
    replay = _Replay()
    replay.take_snapshot(fs, path, end_offset)
    replay.finish(path)
    *_, last = read_memory_batches(read_whole(fs, path))
    if not last.is_control or ControlType.SNAPSHOT_FOOTER not in _types(last):
        raise Unstartable(path, "it is cut off: there is no footer")


def _types(batch: Batch) -> set[ControlType]:
    return {ControlType.parse(record.key) for record in batch}


# -- the small files ---------------------------------------------------------------------------------------------------


def read_quorum_state(fs: ReadFileSystem, directory: str) -> QuorumState | None:
    """Read `quorum-state`. None where there is no such file, which Kafka can do without."""
    path = join(directory, QUORUM_STATE)
    if fs.stat(path) is None:
        return None
    try:
        lines = re.split(r"\r\n|\r|\n", read_whole(fs, path).decode())
        decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        state, _ = decoder.raw_decode(lines[0].lstrip(" \t"))  # Kafka ignores what follows the object
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Unstartable(path, f"it is not JSON: {error}") from error
    except StorageError as error:
        raise Unstartable(path, str(error)) from error
    if not isinstance(state, dict) or "data_version" not in state:
        raise Unstartable(path, "it does not say its data_version")
    version = state.pop("data_version")
    is_number = isinstance(version, int | float) and not isinstance(version, bool) and math.isfinite(version)
    version = int(version) if is_number else 0  # as Jackson
    version = (version + 0x8000) % 0x10000 - 0x8000  # its last 16 bits, as Jackson does
    if version not in (0, 1):
        raise Unstartable(path, f"data_version {version}; 0 and 1 are known")
    try:
        quorum = message("QuorumStateData")
        read: Any = quorum.from_json(state, version)
        if version == 0:
            read.voted_directory_id = ZERO_UUID  # Kafka reads it, and does without it
        quorum.write(read, version)  # numbers are compared with their types
    except TidelogError as error:
        raise Unstartable(path, str(error)) from error
    if read.leader_epoch == MAX_INT32:
        raise Unstartable(path, f"after leader epoch {MAX_INT32} none can be elected")
    voters = frozenset(one.voter_id for one in (read.current_voters or ()) if version == 0)
    return QuorumState(version, voters, read.leader_id, read.leader_epoch)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class Bootstrap(NamedTuple):
    """The records of `bootstrap.checkpoint`, which become the first of the metadata of a new cluster."""

    path: str
    records: list[bytes | None]

    def ensure_usable(self) -> None:
        """Raise Unstartable if no cluster can be created from them."""
        image = ClusterImage()
        try:
            for data in (_BEGIN_TRANSACTION, *self.records):
                image.take(data)
        except TidelogError as error:
            raise Unstartable(self.path, str(error)) from error


def read_bootstrap(fs: ReadFileSystem, root: str) -> Bootstrap:
    """Read `bootstrap.checkpoint` of a root, if it is there. Raises Unstartable if it cannot be read."""
    path = join(root, BOOTSTRAP_CHECKPOINT)
    found = Bootstrap(path, [])
    if fs.stat(path) is None:
        return found
    has_level = False
    try:
        for batch in read_batches(read_whole(fs, path)):
            for record in batch:
                if batch.is_control:
                    _check_bootstrap_control(record.key, record.value)
                    continue
                kind, value = decode_metadata(record.value)
                has_level |= kind == "FeatureLevelRecord" and value.name == METADATA_VERSION
                found.records.append(record.value)
    except TidelogError as error:
        raise Unstartable(path, str(error)) from error
    if not has_level:
        raise Unstartable(path, f"no record says which {METADATA_VERSION} this is")
    return found


def _check_bootstrap_control(key: bytes | None, value: bytes | None) -> None:
    """Raise an error for a control record that Kafka does not expect in `bootstrap.checkpoint`."""
    kind = ControlType.parse(key)
    if kind not in _BOOTSTRAP_TYPES:
        raise CorruptionError(f"a control record of type {kind.name}")
    message(_CONTROL_RECORDS[kind]).read(value or b"", 0)
