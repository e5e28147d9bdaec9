"""Batches, segments and logs in a few words, as the tests of segments, loading and recovery tell of them.

    partition = Partition(tmp_path, segment_bytes=1000)
    log = partition.open()
    log.append_as_follower(batch(0, b"hello"))
    partition.crash(log)
    log = partition.open()

Timestamps are ten times the offset unless given, as in the tables of the behaviour checklist.
"""

import random
from collections.abc import Iterable
from pathlib import Path

from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.batch_info import BatchInfo
from tidelog.log.checkpoints import LeaderEpochCheckpoint
from tidelog.log.files import FileSystem, join, read_whole
from tidelog.log.leader_epochs import LeaderEpochCache
from tidelog.log.loader import LogLoader
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.recovery import Cut, SegmentRecovery
from tidelog.log.region import Region
from tidelog.log.segment import LogSegment
from tidelog.log.tasks import Schedule
from tidelog.records import (
    BatchBuilder,
    ControlType,
    EndTxnMarker,
    NewRecord,
    build_end_txn_marker,
    read_batches,
)

FS = LocalFileSystem()
NOW = 1_700_000_000_000
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
SMALL = LogConfig(segment_index_bytes=2000, index_interval_bytes=10)


# -- batches ---------------------------------------------------------------------------------------------------------


def batch(
    offset: int,
    *values: bytes,
    timestamp_ms: int | None = None,
    epoch: int = 0,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch from `offset` on; its first record has ten times the offset as timestamp, and so on."""
    builder = BatchBuilder(
        base_offset=offset,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    for number, value in enumerate(values or (b"hello",), offset):
        builder.append(NewRecord(b"%06d" % number, value, number * 10 if timestamp_ms is None else timestamp_ms))
    return builder.build()


def marker(offset: int, kind: ControlType, producer_id: int, *, coordinator_epoch: int = 0) -> bytearray:
    """The end of a transaction."""
    return build_end_txn_marker(
        EndTxnMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=offset * 10,
        offset=offset,
        partition_leader_epoch=0,
    )


def offsets_in(data: bytes | Region | None) -> list[int]:
    """The offsets of all records of complete batches."""
    if data is None:
        return []
    if isinstance(data, Region):
        data = data.read()
    return [record.offset for found in read_batches(data) for record in found]


# -- segments --------------------------------------------------------------------------------------------------------


def a_segment(
    directory: Path,
    base_offset: int = 0,
    *batches: bytearray,
    config: LogConfig = SMALL,
    clock: ManualClock | None = None,
    preallocate: bool = False,
) -> LogSegment:
    """A new segment, with batches appended one by one."""
    segment = LogSegment.create(
        FS, str(directory), base_offset, config, clock or ManualClock(NOW), random.Random(1), preallocate=preallocate
    )
    for data in batches:
        write(segment, data)
    return segment


def open_segment(directory: Path, base_offset: int = 0, config: LogConfig = SMALL) -> LogSegment:
    """The segment that lies on the disk."""
    return LogSegment.open(FS, str(directory), base_offset, config, ManualClock(NOW), random.Random(1))


def write(segment: LogSegment, data: bytes | bytearray) -> None:
    """Append the batches of `data` in one call."""
    segment.append(data, infos(data))


def infos(data: bytes | bytearray) -> list[BatchInfo]:
    """The batches of a buffer as the engine sees them."""
    from tidelog.log.batch_info import batch_info

    found, position = [], 0
    while position < len(data):
        found.append(batch_info(data, position))
        position += found[-1].size
    return found


def all_offsets(segment: LogSegment) -> list[int]:
    """The offsets of all records of a segment."""
    return offsets_in(segment.log.file.read(0, segment.size))


class Recovered:
    """A segment after its recovery, with what was learnt on the way."""

    def __init__(
        self, segment: LogSegment, config: LogConfig = SMALL, producers: ProducerStateManager | None = None
    ) -> None:
        directory = segment.log.path.rpartition("/")[0]
        self.producers = producers or ProducerStateManager(FS, directory, ManualClock(NOW))
        self.epochs = LeaderEpochCache(LeaderEpochCheckpoint(FS, join(directory, LEADER_EPOCH_CHECKPOINT)))
        self.cuts: list[Cut] = []
        recovery = SegmentRecovery(segment, self.producers, self.epochs, config, before_cut=self.cuts.append)
        for _ in recovery.run():
            pass
        self.bytes_cut = recovery.bytes_cut


# -- logs ------------------------------------------------------------------------------------------------------------


class Partition:
    """The directory of a partition, opened and closed as often as a test likes.

    The clock stands still, a little behind the timestamps of the first hundred offsets.
    """

    def __init__(self, root: Path | str, *, fs: FileSystem = FS, **config: int | bool) -> None:
        self.directory = join(str(root), "orders-0")
        self.fs = fs
        self.clock = ManualClock(1_000)
        self.config = LogConfig(**config)  # type: ignore[arg-type]
        self.schedule = Schedule(self.clock)

    def loader(self) -> LogLoader:
        """A loader as `open` uses one, for a host that loads in slices."""
        return LogLoader(
            self.directory,
            self.config,
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=False,
            producer_id_expiration_ms=86_400_000,
            producer_id_expiration_check_interval_ms=600_000,
            verification=False,
            clock=self.clock,
            fs=self.fs,
            rng=random.Random(1),
            schedule=self.schedule,
            lock=True,
        )

    def open(self, *, recovery_point: int = 0, log_start_offset: int = 0, clean: bool = False) -> UnifiedLog:
        """Load the log, with everything recovered unless told otherwise."""
        return UnifiedLog.open(
            self.directory,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean,
            clock=self.clock,
            fs=self.fs,
            rng=random.Random(1),
            schedule=self.schedule,
        )

    def crash(self, log: UnifiedLog) -> None:
        """Lose the process: nothing is trimmed or written, what was due is forgotten."""
        log.release()
        self.schedule = Schedule(self.clock)

    def files(self, suffix: str = "") -> list[str]:
        """The names in the directory."""
        return [name for name in self.fs.list(self.directory) if name.endswith(suffix)]

    def read(self, name: str) -> bytes:
        return read_whole(self.fs, join(self.directory, name))

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, or make one."""
        file = self.fs.open_write(join(self.directory, name))
        file.resize(len(data))
        if data:
            file.write_at(0, data)
        file.close()

    def remove(self, suffix: str) -> None:
        """Remove the files whose names end in `suffix`."""
        for name in self.files(suffix):
            self.fs.remove(join(self.directory, name))

    @property
    def contents(self) -> dict[str, bytes]:
        """All files."""
        return {name: self.read(name) for name in self.files()}


def bases(log: UnifiedLog) -> list[int]:
    """The base offsets of the segments."""
    return [segment.base_offset for segment in log.segments]


def offsets_of(log: UnifiedLog) -> list[int]:
    """The offsets of all records from the log start on."""
    found: list[int] = []
    for segment in log.segments:
        found += all_offsets(segment)
    return [offset for offset in found if offset >= log.log_start_offset]


def follow(log: UnifiedLog, data: bytearray) -> None:
    """Append what a leader sent, and let readers see it."""
    log.append_as_follower(memoryview(data))
    log.update_high_watermark(log.log_end_offset)


def by(producer_id: int, offset: int, sequence: int = 0) -> bytearray:
    """A batch of one record, of an idempotent producer."""
    return batch(offset, producer_id=producer_id, sequence=sequence)


def filled(partition: Partition, *segments: Iterable[bytearray]) -> UnifiedLog:
    """A log with these segments, flushed and with snapshots as rolls make them."""
    log = partition.open()
    for number, batches in enumerate(segments):
        if number:
            log.roll()
        for data in batches:
            follow(log, data)
    log.tick()
    return log


def snapshots(partition: Partition) -> list[int]:
    """The offsets at which producers were written down."""
    return [int(name[:20]) for name in partition.files(SNAPSHOT_SUFFIX)]
