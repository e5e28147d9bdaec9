"""The metadata log of a node as Kafka 4.3 reads it when it starts.

    __cluster_metadata-0/
        <end offset, 20 digits>-<epoch, 10 digits>.checkpoint     snapshots: the metadata up to an offset
        <offset>.log                                              what came since, and before
        quorum-state                                              who led, in which epoch: JSON in one line
        partition.metadata                                        the id that this topic always has

1. The log is recovered from its very beginning: at the first batch that is broken it ends.
2. Of the snapshots the newest counts. A log that ends before it is given up for it; one that begins behind it is an
   error.
3. The snapshot is read, every batch by its checksum, up to the last that is whole. A footer is not asked for.
4. The records of the log from the end of the snapshot on are replayed over it.

Kafka: KafkaRaftLog, KRaftControlRecordStateMachine, FileQuorumStateStore, MetadataLoader.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.errors import CorruptionError, StorageError, TidelogError
from tidelog.fsck.cluster_image import METADATA_VERSION, ClusterImage, decode_metadata
from tidelog.fsck.kafka_loading import load_as_kafka
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.names import BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA_TOPIC, LOG_SUFFIX, PARTITION_METADATA, file_name
from tidelog.log.partition_metadata import read_topic_id, uuid_text
from tidelog.log.unified_log import UnifiedLog
from tidelog.protocol import message
from tidelog.records.batch import RecordBatch
from tidelog.records.batches import Batch, read_batches, read_memory_batches
from tidelog.records.control import ControlType

__all__ = [
    "METADATA_DIRECTORY",
    "QUORUM_STATE",
    "MetadataLog",
    "Snapshot",
    "Unstartable",
    "check_bootstrap",
    "check_snapshot",
    "read_metadata_log",
    "read_quorum_state",
    "snapshots_in",
]

METADATA_DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"
QUORUM_STATE = "quorum-state"
_TOPIC_ID = uuid.UUID(int=1)
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_VERSIONS = range(7, 31)  # of the metadata that Kafka 4.3 knows


class Unstartable(CorruptionError):
    """Kafka does not start on this. `path` is the file or directory it is about."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.reason = message


class Snapshot(NamedTuple):
    """A snapshot of the metadata."""

    end_offset: int
    epoch: int
    name: str


class MetadataLog(NamedTuple):
    """What a metadata log says. `voters` are those it names itself, with their directories; None: the config does."""

    image: ClusterImage
    voters: Mapping[int, uuid.UUID] | None
    log_start: int
    log_end: int


def snapshots_in(fs: ReadFileSystem, directory: str) -> list[Snapshot]:
    """The snapshots of a metadata log, the newest last."""
    found = [_SNAPSHOT.fullmatch(name) for name in fs.list(directory)]
    return sorted(Snapshot(int(match[1]), int(match[2]), match[0]) for match in found if match is not None)


def read_metadata_log(fs: RehearsalFileSystem, directory: str) -> MetadataLog:
    """Read and replay a metadata log. Raises Unstartable where Kafka gives up."""
    log = _load(fs, directory)
    try:
        snapshot = _newest_snapshot(fs, directory, log)
        quorum_version = read_quorum_state(fs, directory)
        replay = _Replay()
        start = log.log_start_offset
        if snapshot is not None:
            replay.take_snapshot(fs, join(directory, snapshot.name))
            start = snapshot.end_offset
            if (snapshot.epoch, snapshot.end_offset) > (log.leader_epochs.latest_epoch or 0, log.log_end_offset):
                log.truncate_fully_and_start_at(snapshot.end_offset)
        next_offset = start
        for batch, path in _batches(fs, log):
            if batch.is_control and start < batch.next_offset < next_offset:
                raise Unstartable(
                    path, f"a control batch goes back to offset {batch.base_offset}, {next_offset} is next"
                )
            replay.take_batch(batch, path, start)  # data batches that go back are replayed once more
            next_offset = max(next_offset, batch.next_offset)
        if log.log_end_offset < next_offset:
            raise Unstartable(
                directory, f"the log ends at {log.log_end_offset}, behind a batch up to {next_offset - 1}"
            )
        replay.finish(directory)
        if replay.voters is None and quorum_version == 1:
            raise Unstartable(directory, "neither a snapshot nor the log names the voters of the quorum")
        return MetadataLog(replay.image, replay.voters, log.log_start_offset, log.log_end_offset)
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


def _batches(fs: RehearsalFileSystem, log: UnifiedLog) -> Iterator[tuple[Batch, str]]:
    for segment in log.segments:
        path = join(log.directory, file_name(segment.base_offset, LOG_SUFFIX))
        for batch in read_batches(read_whole(fs, path)):
            yield batch, path


class _Replay:
    """Batches become an image."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.voters: dict[int, uuid.UUID] | None = None

    def take_snapshot(self, fs: ReadFileSystem, path: str) -> None:
        """Replay a snapshot, up to its last whole batch."""
        is_first = True
        try:
            for batch in read_memory_batches(read_whole(fs, path)):
                batch.ensure_valid()
                if is_first and (not batch.is_control or _first_type(batch) is not ControlType.SNAPSHOT_HEADER):
                    raise Unstartable(path, "it does not begin with the header of a snapshot")
                is_first = False
                self.take_batch(batch, path, 0)
        except (CorruptionError, StorageError) as error:
            raise error if isinstance(error, Unstartable) else Unstartable(path, str(error)) from error
        if is_first:
            raise Unstartable(path, "there is no whole batch in it")

    def take_batch(self, batch: Batch, path: str, start: int) -> None:
        """Replay the records of a batch from an offset on."""
        if not isinstance(batch, RecordBatch):
            raise Unstartable(path, f"a message set of version {batch.magic}")
        if batch.last_offset < start:
            return
        try:
            for record in batch.records():
                if record.offset < start:
                    continue
                if batch.is_control:
                    self._take_control(record.key, record.value)
                else:
                    self.image.take(record.value)
        except Unstartable:
            raise
        except TidelogError as error:
            raise Unstartable(path, f"the batch at offset {batch.base_offset} cannot be replayed: {error}") from error

    def _take_control(self, key: bytes | None, value: bytes | None) -> None:
        kind = ControlType.parse(key)
        if kind is ControlType.KRAFT_VOTERS:
            self.voters = {
                one.voter_id: one.voter_directory_id for one in message("VotersRecord").read(value or b"", 0).voters
            }

    def finish(self, directory: str) -> None:
        """Ensure that Kafka can work with what has come out."""
        level = self.image.features.get(METADATA_VERSION)
        if level is None and not self.image.is_new:
            raise Unstartable(directory, f"no record says which {METADATA_VERSION} this is")
        if level is not None and level not in _VERSIONS:
            known = f"{_VERSIONS[0]} to {_VERSIONS[-1]}"
            raise Unstartable(directory, f"{METADATA_VERSION} {level}; Kafka 4.3 knows {known}")


def _first_type(batch: Batch) -> ControlType | None:
    record = next(iter(batch), None)
    return None if record is None else ControlType.parse(record.key)


def check_snapshot(fs: ReadFileSystem, path: str) -> None:
    """Raise Unstartable if a snapshot cannot be replayed, or has lost its end."""
    replay = _Replay()
    replay.take_snapshot(fs, path)
    replay.finish(path)
    *_, last = read_memory_batches(read_whole(fs, path))
    if not last.is_control or ControlType.SNAPSHOT_FOOTER not in _types(last):
        raise Unstartable(path, "it is cut off: there is no footer")


def _types(batch: Batch) -> set[ControlType]:
    return {ControlType.parse(record.key) for record in batch}


# -- the small files ---------------------------------------------------------------------------------------------------


def read_quorum_state(fs: ReadFileSystem, directory: str) -> int | None:
    """The version of `quorum-state`: 1 where the metadata names the voters, 0 where the config does.

    None where there is no such file, which Kafka can do without.
    """
    path = join(directory, QUORUM_STATE)
    if fs.stat(path) is None:
        return None
    try:
        lines = re.split(r"\r\n|\r|\n", read_whole(fs, path).decode())
        state, _ = json.JSONDecoder().raw_decode(lines[0].lstrip())  # what follows the object is not looked at
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Unstartable(path, f"it is not JSON: {error}") from error
    except StorageError as error:
        raise Unstartable(path, str(error)) from error
    if not isinstance(state, dict) or "data_version" not in state:
        raise Unstartable(path, "it does not say its data_version")
    version = state.pop("data_version")
    version = int(version) if isinstance(version, int | float) and not isinstance(version, bool) else 0  # as Jackson
    if version not in (0, 1):
        raise Unstartable(path, f"data_version {version}; 0 and 1 are known")
    try:
        message("QuorumStateData").from_json(state, version)
    except TidelogError as error:
        raise Unstartable(path, str(error)) from error
    return version


def check_bootstrap(fs: ReadFileSystem, root: str) -> None:
    """Raise Unstartable if `bootstrap.checkpoint` of a root is there, and Kafka cannot use it."""
    path = join(root, BOOTSTRAP_CHECKPOINT)
    if fs.stat(path) is None:
        return
    image = ClusterImage()
    try:
        for batch in read_batches(read_whole(fs, path)):
            for record in () if batch.is_control else batch:
                kind, value = decode_metadata(record.value)
                if kind == "FeatureLevelRecord":
                    image.features[value.name] = value.feature_level
    except TidelogError as error:
        raise Unstartable(path, str(error)) from error
    level = image.features.get(METADATA_VERSION)
    if level is None:
        raise Unstartable(path, f"no record says which {METADATA_VERSION} this is")
    if level not in _VERSIONS:
        raise Unstartable(path, f"{METADATA_VERSION} {level}; Kafka 4.3 knows {_VERSIONS[0]} to {_VERSIONS[-1]}")
