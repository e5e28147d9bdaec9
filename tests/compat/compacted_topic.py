"""A compacted topic of a real broker: filling it, cleaning it by either cleaner, and what a cleaner must leave of it.

    write_values(broker, GZIP, seed=1)             by a producer without transactions
    write_transactions(broker, rounds=16)
    consumed, committed = consume_all(broker)
    ends = it_cleans(broker)                       or, when it is stopped: we_clean(manager, root, clock, PARTITIONS)
    left_of(records, committed_records, end)       what must be left of the records

Each partition is written in its own way, see below. Keys are few, so most records are superseded; some are tombstones.
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.broker_clients import Consumed
from tests.compat.kafka_tools import DumpedFile, dump_log, parse_dump
from tests.compat.written_log import batches_of
from tests.interop.judges import Seen
from tidelog.errors import StorageError
from tidelog.log import LogConfig, ManualClock, UnifiedLog, batch_windows
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.compaction import cleaner
from tidelog.log.compaction.cleanable import cleanable_log
from tidelog.log.compaction.cleaner import Cleaner
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.files import Creation
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.log_manager import LogManager
from tidelog.log.names import CLEANER_CHECKPOINT, DELETED, SWAP, TopicPartition
from tidelog.log.producer_snapshot import parse_snapshot
from tidelog.records import Header, NewRecord, RecordBatch, read_batches

TOPIC = "states"
# What is written to each partition. In the last one a transaction is open when the broker stops.
PLAIN, GZIP, SNAPPY, LZ4, ZSTD, TRANSACTIONS, MIXED = PARTITIONS = range(7)
CODECS = {PLAIN: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd", TRANSACTIONS: "none", MIXED: "lz4"}
WITHOUT_TRANSACTIONS = PARTITIONS[:TRANSACTIONS]
STEADY, WAVERING, LATE = "steady", "wavering", "late"  # those who write transactions

SEGMENT_BYTES = 8192
CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": SEGMENT_BYTES, "index.interval.bytes": 100}
WAITING, EAGER = {"min.cleanable.dirty.ratio": 1.0}, {"min.cleanable.dirty.ratio": 0.01}  # it must be exceeded
CLEANING = {"log.cleaner.backoff.ms": 100}
KEYS = [b"key-%02d" % number for number in range(40)]
HOUR_MS = 3_600_000
TIMEOUT_S = 60
LINGER_MS = 100  # so that all that is sent at once is one batch, and that goes when somebody waits for it
FINAL = ""  # what a name of a segment's file ends in that has been swapped
NEVER = 1000


# -- writing and reading ---------------------------------------------------------------------------------------------


def with_underscores(configs: dict[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in configs.items()}


def consume_all(broker: Broker) -> tuple[list[Consumed], list[Consumed]]:
    """What a consumer of everything and one of committed data are given of every partition."""
    consumed = [clients.consume(broker, TOPIC, partition) for partition in PARTITIONS]
    committed = [clients.consume(broker, TOPIC, partition, committed=True) for partition in PARTITIONS]
    return consumed, committed


class Values:
    """Records with few keys, every fifth without a value. Times go forward, and on from one seed to the next.

    The keys of the first four come up only once; the second and the fourth have no value.
    """

    def __init__(self, seed: int, keys: Sequence[bytes] = KEYS) -> None:
        self._rng = random.Random(seed)
        self._keys = keys
        self._now_ms = now_ms() - HOUR_MS + seed * 1000
        self._first = [(b"once-%d-%d" % (seed, number), None if number % 2 else b"v") for number in range(4)]

    def take(self, count: int) -> list[NewRecord]:
        return [self._next() for _ in range(count)]

    def _next(self) -> NewRecord:
        rng = self._rng
        self._now_ms += rng.randrange(5)
        key, value = self._first.pop(0) if self._first else (rng.choice(self._keys), self._value())
        return NewRecord(key, value, self._now_ms, (Header("h", b"1"),) * rng.choice([0, 0, 1]))

    def _value(self) -> bytes | None:
        rng = self._rng
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(60)) + b"tide " * rng.randrange(20)


def write_values(broker: Broker, partition: int, *, seed: int, is_idempotent: bool = True) -> None:
    """What one producer sends, in 15 batches."""
    producer = clients.new_producer(
        broker, enable_idempotence=is_idempotent, compression_type=CODECS[partition], linger_ms=LINGER_MS
    )
    values = Values(seed)
    for _ in range(15):
        clients.send(producer, TOPIC, partition, values.take(14))


def write_transactions(broker: Broker, rounds: int, late_from: int | None = None) -> None:
    """Transactions of two producers that overlap; those of one are mostly aborted. A third may leave one open."""
    values = Values(99)
    steady, wavering, late = (new_transactional(broker, name) for name in (STEADY, WAVERING, LATE))
    plain = clients.new_producer(broker, enable_idempotence=True, compression_type=CODECS[MIXED], linger_ms=LINGER_MS)
    for number in range(rounds):
        steady.begin_transaction()
        wavering.begin_transaction()
        for partition in (TRANSACTIONS, MIXED):
            for producer in (steady, wavering, steady, wavering):
                clients.send(producer, TOPIC, partition, values.take(5))
        clients.send(plain, TOPIC, MIXED, values.take(10))
        if number == late_from:
            late.begin_transaction()
            clients.send(late, TOPIC, MIXED, values.take(2))
        end = wavering.commit_transaction if number % 3 == 0 else wavering.abort_transaction
        end(clients.TIMEOUT_S)
        steady.commit_transaction(clients.TIMEOUT_S)


def new_transactional(broker: Broker, name: str) -> Producer:
    """Whatever one of this name has left open is aborted."""
    producer = clients.new_producer(broker, transactional_id=name, linger_ms=LINGER_MS, transaction_timeout_ms=600_000)
    producer.init_transactions(clients.TIMEOUT_S)
    return producer


# -- what a cleaner must leave ---------------------------------------------------------------------------------------


def left_of(records: list[Seen], committed: list[Seen], end: int) -> list[Seen]:
    """What is left below `end`: of every key the last record that no transaction took back. From `end` on, all."""
    decided = {record.offset for record in committed}
    last = {record.key: record.offset for record in records if record.offset < end and record.offset in decided}
    kept = set(last.values())
    return [record for record in records if record.offset >= end or record.offset in kept]


def left_of_committed(committed: list[Seen], end: int) -> list[Seen]:
    return left_of(committed, committed, end)


def ends_in(root: Path) -> list[int]:
    """Up to where each partition is clean, by the checkpoint of a root; 0 where it does not say."""
    checkpointed = OffsetCheckpoint(LocalFileSystem(), str(root / CLEANER_CHECKPOINT)).read()
    return [checkpointed.get(TopicPartition(TOPIC, partition), 0) for partition in PARTITIONS]


def directory_of(root: Path, partition: int) -> Path:
    return root / f"{TOPIC}-{partition}"


def active_base_of(root: Path, partition: int) -> int:
    return int(max(directory_of(root, partition).glob("*.log")).stem)


# -- how they are cleaned --------------------------------------------------------------------------------------------


def we_open(root: Path, clock: ManualClock) -> LogManager:
    return LogManager.open(
        [root],
        LogConfig(retention_ms=-1),
        topic_configs={TOPIC: {name: str(value) for name, value in (CONFIGS | EAGER).items()}},
        clock=clock,
        rng=random.Random(1),
    )


def we_clean(manager: LogManager, root: Path, clock: ManualClock, partitions: Iterable[int]) -> None:
    """Let the cleaner run until partitions are clean up to where they were not before, and old files are gone."""
    before, wanted = ends_in(root), list(partitions)
    for _ in range(200):
        clock.advance(seconds=15)
        manager.tick()
        now = ends_in(root)
        if all(now[partition] > before[partition] for partition in wanted):
            break
    else:
        raise AssertionError(f"not cleaned: {before} before, {now} now")
    clock.advance(minutes=2)
    manager.tick()


def it_cleans(broker: Broker) -> list[int]:
    """Let the broker clean every partition; up to where they are clean."""
    before = ends_in(broker.root)
    clients.set_topic_configs(broker, TOPIC, **with_underscores(EAGER))
    deadline = time.monotonic() + TIMEOUT_S
    while not all(now > past for now, past in zip(ends_in(broker.root), before, strict=True)):
        assert time.monotonic() < deadline, f"not cleaned: {before} before, {ends_in(broker.root)} now"
        time.sleep(0.05)  # between two looks
    return ends_in(broker.root)


@contextmanager
def kernels() -> Iterator[None]:
    """Clean these small logs as large ones are; in the other stories they are cleaned by the readable path."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (cleaner, batch_windows):
            patch.setattr(module, "_KERNEL_FROM", 0)
        yield


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- crashing --------------------------------------------------------------------------------------------------------


class PowerCut(LocalFileSystem):
    """A disk whose power fails before the rename of this number, from 0, to a name that ends in `suffix`."""

    def __init__(self, suffix: str, number: int) -> None:
        self.stays_on = number == NEVER
        self._suffix = suffix
        self._left = number
        self._is_off = False

    def rename(self, source: str, target: str) -> None:
        suffix = next((known for known in (SWAP, DELETED) if target.endswith(known)), FINAL)
        if suffix == self._suffix:
            self._is_off |= self._left == 0
            self._left -= 1
        self._ensure_on()
        super().rename(source, target)

    def remove(self, path: str) -> bool:
        self._ensure_on()
        return super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._ensure_on()
        super().sync_directory(path)

    def open_write(self, path: str, *, create: Creation = True) -> Any:
        self._ensure_on()
        return super().open_write(path, create=create)

    def _ensure_on(self) -> None:
        if self._is_off:
            raise StorageError("no power")


def our_config(**changes: object) -> LogConfig:
    return LogConfig.from_properties({**CONFIGS, **changes})


def we_crash(directory: Path, disk: PowerCut) -> int:
    """Clean a log, all of it into one segment, until the power fails; up to where it was to be clean."""
    clock = ManualClock(now_ms())
    config = our_config(**{"internal.segment.bytes": 1 << 20})
    log = UnifiedLog.open(directory, config, clock=clock, fs=disk, clean_shutdown=True)
    log.update_high_watermark(log.log_end_offset)
    cleanable = cleanable_log(log, None, clock.now_ms())
    with nullcontext() if disk.stays_on else pytest.raises(StorageError, match="no power"):
        for _ in Cleaner(CleanerConfig(), clock).clean(cleanable):
            pass
    log.release()
    return cleanable.first_uncleanable_offset


# -- what is in the files --------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """What both cleaners must make of a batch."""

    base_offset: int
    last_offset: int
    offsets: tuple[int, ...]
    producer: tuple[int, int, int]
    attributes: int
    max_timestamp_ms: int
    leader_epoch: int


def kept_of(directory: Path, end: int) -> list[Kept]:
    return [
        Kept(
            batch.base_offset,
            batch.last_offset,
            tuple(record.offset for record in batch.records()),
            (batch.producer_id, batch.producer_epoch, batch.base_sequence),
            batch.attributes.pack(),
            batch.max_timestamp_ms,
            batch.partition_leader_epoch,
        )
        for batch in batches_of(directory)
        if isinstance(batch, RecordBatch) and batch.base_offset < end
    ]


def empty_batches_of(path: Path) -> list[RecordBatch]:
    batches = read_batches(path.read_bytes())
    return [batch for batch in batches if isinstance(batch, RecordBatch) and batch.count == 0]


def producers_of(root: Path, partition: int) -> dict[int, tuple[int, ...]]:
    """The producers in the last snapshot of a partition."""
    entries = parse_snapshot(max(directory_of(root, partition).glob("*.snapshot")).read_bytes())
    return {
        entry.producer_id: (entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset or -1)
        for entry in entries
    }


def paths_in(roots: list[Path], *suffixes: str) -> list[Path]:
    directories = [directory_of(root, partition) for root in roots for partition in PARTITIONS]
    return [path for directory in directories for path in sorted(directory.iterdir()) if path.suffix in suffixes]


def dumped(paths: list[Path], *options: str) -> tuple[list[DumpedFile], list[str]]:
    """What the tool says of files, and what it complains of."""
    result = dump_log(paths, *options)
    assert result.exit == 0, result.stderr
    files = parse_dump(result.stdout)
    assert [file.name for file in files] == [str(path) for path in paths]
    return files, result.stderr.splitlines()
