"""A root with everything in it that Kafka writes: what damage is done to.

    orders-0   six segments, three leader epochs, idempotent and transactional producers, aborts across segments, codecs
    orders-1   three segments of every codec; the records before offset 5 were deleted
    keys-0     compacted: gaps, batches with holes, a batch kept empty
    old-0      segments of the formats 0 and 1, plain and compressed, then of version 2

The root was closed in good order.
"""

import uuid
from functools import cache

from tidelog.log import AppendOrigin, LogConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.files import join
from tidelog.log.manager.meta_properties import MetaProperties, write_meta_properties
from tidelog.log.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    file_name,
)
from tidelog.log.offline_compaction import CompactionSettings, compact_partition
from tidelog.log.offline_root import OfflineRoot
from tidelog.records import (
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    build_batch,
    build_end_txn_marker,
    compress,
)
from tidelog.records.legacy import write_message
from tidelog.testing.disk import SimulatedFileSystem

ROOT = "/data/kafka"
NOW = 1_700_000_000_000
SETTINGS = {"index.interval.bytes": "150", "segment.index.bytes": "1200"}
CONFIG = LogConfig.from_properties(SETTINGS)
COMPACTED = LogConfig.from_properties({**SETTINGS, "cleanup.policy": "compact"})
ORDERS, MORE_ORDERS, KEYS, OLD = (
    TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("keys", 0), TopicPartition("old", 0),
)  # fmt: skip
PARTITIONS = (ORDERS, MORE_ORDERS, KEYS, OLD)
TOPIC_IDS = {
    "orders": uuid.UUID(int=0x11 << 100 | 7),
    "keys": uuid.UUID(int=0x12 << 100),
    "old": uuid.UUID(int=0x13 << 100),
}
FIRST_ORDER = 5  # of orders-1; what lies before was deleted


def directory_of(partition: TopicPartition) -> str:
    return join(ROOT, str(partition))


class _Writer:
    """Appends to a log of the world."""

    def __init__(self, disk: SimulatedFileSystem, partition: TopicPartition, config: LogConfig = CONFIG) -> None:
        self.log = UnifiedLog.open(
            directory_of(partition), config, topic_id=TOPIC_IDS[partition.topic], clock=ManualClock(NOW), fs=disk,
            lock=False,
        )  # fmt: skip
        self.epoch = 0
        self.time = NOW
        self._sequences: dict[int, int] = {}

    def batch(
        self, count: int = 2, *, producer: int = -1, in_txn: bool = False, codec: Codec = Codec.NONE, keys: str = "",
        step: int = 7,
    ) -> None:  # fmt: skip
        records = []
        for number in range(count):
            self.time += step
            key = b"key-%s" % keys[number].encode() if keys else b"k%d" % number
            records.append(NewRecord(key, b"value %d " % (self.time - NOW) * 4, self.time))
        sequence = self._sequences.get(producer, 0) if producer >= 0 else -1
        self._sequences[producer] = sequence + count
        data = build_batch(
            records, codec=codec, producer_id=producer, producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence, is_transactional=in_txn,
        )  # fmt: skip
        self.log.append_as_leader(memoryview(data), self.epoch)
        self._replicated()

    def end(self, producer: int, kind: ControlType) -> None:
        self.time += 3
        data = build_end_txn_marker(
            EndTxnMarker(kind, 2), producer_id=producer, producer_epoch=0, timestamp_ms=self.time
        )
        self.log.append_as_leader(memoryview(data), self.epoch, AppendOrigin.COORDINATOR)
        self._replicated()

    def _replicated(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        self.log.roll()

    def close(self) -> tuple[int, int]:
        """Log start and log end."""
        self.log.tick()
        ends = self.log.log_start_offset, self.log.log_end_offset
        self.log.close()
        return ends


def _write_orders(disk: SimulatedFileSystem) -> tuple[int, int]:
    to = _Writer(disk, ORDERS)
    for segment in range(6):
        if segment:
            to.roll()
        to.epoch = segment // 2
        to.batch(3, codec=Codec.LZ4 if segment % 2 else Codec.NONE)
        to.batch(1, producer=1)
        to.batch(2, producer=2, in_txn=True)
        to.batch(2, producer=3 + segment % 2, in_txn=True, codec=Codec.ZSTD)
        to.batch(2, producer=1, codec=Codec.SNAPPY)
        to.end(2, ControlType.ABORT if segment % 2 else ControlType.COMMIT)
        if segment:
            to.end(3 + (segment + 1) % 2, ControlType.ABORT)  # begun a segment before
        to.batch(1, step=-20)
        to.batch(2)
    return to.close()


def _write_more_orders(disk: SimulatedFileSystem) -> tuple[int, int]:
    to = _Writer(disk, MORE_ORDERS)
    for segment in range(3):
        if segment:
            to.roll()
        for codec in Codec:
            to.batch(2, codec=codec, producer=7)
        to.batch(4)
    to.log.delete_records(FIRST_ORDER)
    return to.close()


def _write_keys(disk: SimulatedFileSystem) -> tuple[int, int]:
    to = _Writer(disk, KEYS, COMPACTED)
    for segment, keys in enumerate(("abcd", "abce", "afgh", "abij", "klmn")):
        if segment:
            to.roll()
        to.batch(2, keys=keys[:2], producer=5)
        to.batch(2, keys=keys[2:], codec=Codec.GZIP)
        to.batch(1, keys="z")
    return to.close()


def _old_entries(magic: int, first: int, codec: Codec) -> bytes:
    """Two entries of an old format, or one that holds both, compressed."""
    plain, packed = bytearray(), bytearray()
    for number in range(first, first + 2):
        relative = number - first if codec is not Codec.NONE and magic == 1 else number
        write_message(plain, magic, relative, NewRecord(b"old", b"value %d" % number, _old_time(magic, number)))
    if codec is Codec.NONE:
        return bytes(plain)
    value = compress(codec, bytes(plain), magic=magic)
    write_message(packed, magic, first + 1, NewRecord(None, value, _old_time(magic, first + 1)), codec=codec)
    return bytes(packed)


def _old_time(magic: int, offset: int) -> int:
    return -1 if magic == 0 else NOW + 10 * offset


def _write_old(disk: SimulatedFileSystem) -> tuple[int, int]:
    directory = directory_of(OLD)
    disk.make_directory(directory)
    offset = 0
    for magic in (0, 1):
        data = b""
        base = offset
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.NONE):
            data += _old_entries(magic, offset, codec)
            offset += 2
        file = disk.open_write(join(directory, file_name(base, LOG_SUFFIX)))
        file.write_at(0, data)
        file.sync()
    to = _Writer(disk, OLD)
    to.roll()
    to.batch(2)
    to.batch(3, codec=Codec.GZIP)
    return to.close()


@cache
def world() -> SimulatedFileSystem:
    """The root; copy it before you do it harm."""
    disk = SimulatedFileSystem(ManualClock(NOW))
    disk.make_directory(ROOT)
    ends = {
        ORDERS: _write_orders(disk),
        MORE_ORDERS: _write_more_orders(disk),
        KEYS: _write_keys(disk),
        OLD: _write_old(disk),
    }
    write_meta_properties(disk, ROOT, MetaProperties(1, "cluster", 1, uuid.UUID(int=0x77 << 100)), NOW)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        OffsetCheckpoint(disk, join(ROOT, name)).write({partition: end for partition, (_, end) in ends.items()})
    OffsetCheckpoint(disk, join(ROOT, LOG_START_CHECKPOINT)).write({MORE_ORDERS: FIRST_ORDER})
    OffsetCheckpoint(disk, join(ROOT, CLEANER_CHECKPOINT)).write({})
    CleanShutdownFile(disk, ROOT).write(3)
    with OfflineRoot(ROOT, fs=disk, clock=ManualClock(NOW)) as root:
        settings = CompactionSettings.parse({**SETTINGS, "segment.bytes": "700"})
        done = compact_partition(root, KEYS, settings)
        assert done.error is None, done.error
    disk.sync_all()
    return disk


@cache
def small_world() -> SimulatedFileSystem:
    """A root with one small log of three segments, for what is tried at every call."""
    disk = SimulatedFileSystem(ManualClock(NOW))
    disk.make_directory(ROOT)
    to = _Writer(disk, ORDERS)
    for segment in range(3):
        if segment:
            to.roll()
        to.epoch = segment // 2
        to.batch(2, producer=1)
        to.batch(2, producer=2, in_txn=True)
        to.end(2, ControlType.ABORT if segment % 2 else ControlType.COMMIT)
        to.batch(1, codec=Codec.GZIP)
    _, end = to.close()
    write_meta_properties(disk, ROOT, MetaProperties(1, "cluster", 1, uuid.UUID(int=0x77 << 100)), NOW)
    for name, offset in ((RECOVERY_POINT_CHECKPOINT, end), (HIGH_WATERMARK_CHECKPOINT, end), (LOG_START_CHECKPOINT, 0)):
        OffsetCheckpoint(disk, join(ROOT, name)).write({ORDERS: offset} if offset else {})
    CleanShutdownFile(disk, ROOT).write(3)
    disk.sync_all()
    return disk
