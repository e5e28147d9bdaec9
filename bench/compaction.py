"""Compaction of a gibibyte with a million keys: by our cleaner and by Apache Kafka's, on the same directory."""

import gc
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.measure import Report
from tests.compat import broker_clients as clients
from tests.compat import kafka_tools
from tests.compat.broker import Broker
from tidelog.columns import ColumnEncoder, decode_file
from tidelog.log import LogConfig, SystemClock, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.compaction.cleanable import cleanable_log
from tidelog.log.compaction.cleaner import Cleaner
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.log.tasks import SlicedTask

DIRTY_SEGMENTS, SEGMENT_BYTES = 8, 128 << 20
KEYS = 1_000_000
ROWS_A_TURN = 250_000
TURNS = 3
MIB = 1 << 20
HOUR_MS = 3_600_000
CHECKPOINT = "cleaner-offset-checkpoint"

# A broker gets the same log twice: as it starts, and warmed up.
TOPICS = {"compacted": "as a broker starts", "again": "JVM warmed up"}
TOPIC_CONFIGS = {"segment_bytes": SEGMENT_BYTES, "min_cleanable_dirty_ratio": 0.01}
SETTINGS = {"log.cleaner.enable": "true", "log.cleaner.threads": 1, "log.cleaner.backoff.ms": 50}
# What kafka-server-start gives a broker.
JVM_OPTIONS = ("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
               "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")  # fmt: skip
QUIET_S = 0.12  # CPU of a broker in a second in which nobody wants anything of it
TIMEOUT_S = 120


class Taken(NamedTuple):
    """What a round of cleaning took."""

    cpu_s: float
    wall_s: float


def run(report: Report) -> None:
    """Compaction rows."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        home = Path(name)
        source = home / "source-0"
        size = write(source, DIRTY_SEGMENTS, SEGMENT_BYTES, KEYS)
        taken, cleaned = _ours(home, source)
        report.add("compaction of 1 GiB, 1 M keys", size / MIB / taken.cpu_s, "MiB/s")
        report.add("compaction of 1 GiB, CPU time", taken.cpu_s, "s CPU")
        report.add("compaction of 1 GiB, wall", taken.wall_s, "s")
        if (why := kafka_tools.missing()) is not None:
            print(f"not measured against Kafka's cleaner: {why}")
            return
        theirs = _kafkas(home, source, cleaned)
        for topic, words in TOPICS.items():
            report.add(f"Apache Kafka 4.3's cleaner, {words}", theirs[topic].cpu_s, "s CPU")
            report.add(f"Apache Kafka 4.3's cleaner, {words}, wall", theirs[topic].wall_s, "s")
        starting, warm = (theirs[topic].cpu_s / taken.cpu_s for topic in TOPICS)
        report.add("compaction against Apache Kafka 4.3", size / MIB / taken.cpu_s, "MiB/s",
                   against="Kafka's", ratio=starting, at_least=4)  # fmt: skip
        report.add("compaction against Kafka's, JVM warmed up", size / MIB / taken.cpu_s, "MiB/s",
                   against="Kafka's", ratio=warm)  # fmt: skip


# -- the log -----------------------------------------------------------------------------------------------------------


def write(directory: Path, segments: int, segment_bytes: int, keys: int, leader_epoch: int = 0) -> int:
    """Fill `segments` segments and begin one more; how many bytes can be cleaned."""
    batches = _batches(keys)
    with UnifiedLog.open(directory, LogConfig(segment_bytes=segment_bytes), clean_shutdown=True) as log:
        while len(log.segments) <= segments:
            log.append_as_leader(next(batches), leader_epoch)
        return log.size - log.active_segment.size


def _batches(keys: int) -> Iterator[memoryview]:
    """What one producer sends: keys of 10 bytes in no order, values of 60 to 140, in batches of 16 KiB."""
    chance = np.random.default_rng(7)
    encoder = ColumnEncoder(base_offset=None, producer_id=1, producer_epoch=0, base_sequence=0)
    now_ms = time.time_ns() // 1_000_000 - HOUR_MS
    while True:
        for part in encoder.encode(_rows(chance, keys, now_ms)):
            yield from part.batches()
        now_ms += 1000


def _rows(chance: np.random.Generator, keys: int, now_ms: int) -> pa.RecordBatch:
    numbers = chance.integers(0, keys, ROWS_A_TURN)
    digits = numbers[:, None] // 10 ** np.arange(9, -1, -1) % 10
    key_ends = np.arange(ROWS_A_TURN + 1) * 10
    value_ends = np.concatenate([[0], np.cumsum(chance.integers(60, 141, ROWS_A_TURN))])
    values = np.frombuffer(chance.bytes(int(value_ends[-1])), np.uint8)
    times = now_ms + np.arange(ROWS_A_TURN) // 250
    return pa.record_batch(
        {
            "key": _binary(key_ends, (digits + ord("0")).astype(np.uint8)),
            "value": _binary(value_ends, values),
            "timestamp": pa.array(times, pa.int64()),
        }
    )


def _binary(ends: np.ndarray, data: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def survivors(directory: Path) -> pa.Table:
    """Offset, key and value of every record that is left."""
    columns = ["offset", "key", "value"]
    parts = [part for path in sorted(directory.glob("*.log")) for part in decode_file(path, columns)]
    return pa.Table.from_batches(parts)


# -- ours --------------------------------------------------------------------------------------------------------------


def _ours(home: Path, source: Path) -> tuple[Taken, pa.Table]:
    """What a round takes, the median of some, and what it leaves. Kernels are loaded before."""
    small = home / "small-0"
    write(small, 1, 8 * MIB, 1000)
    _clean(small)
    rounds = []
    for _ in range(TURNS):
        copy = home / "ours-0"
        shutil.copytree(source, copy)
        os.sync()  # nobody shall wait for what was written before
        rounds.append(_clean(copy))
        cleaned = survivors(copy)
        shutil.rmtree(copy)
    return Taken(*map(statistics.median, zip(*rounds, strict=True))), cleaned


def _clean(directory: Path) -> Taken:
    """One round over a log, and its checkpoint."""
    clock = SystemClock()
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(directory.parent / CHECKPOINT))
    config = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=("compact",))
    with UnifiedLog.open(directory, config, clock=clock, clean_shutdown=True) as log:
        log.update_high_watermark(log.log_end_offset)
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        work = Cleaner(CleanerConfig(), clock).clean(cleanable_log(log, None, clock.now_ms()))
        cleaned = SlicedTask("clean", work, clock).run()
        checkpoint.write({log.topic_partition: cleaned.end_offset})
        taken = Taken(time.process_time() - cpu, time.perf_counter() - wall)
        assert cleaned.end_offset == log.active_segment.base_offset  # one round did it all
    return taken


# -- Kafka's -----------------------------------------------------------------------------------------------------------


def _kafkas(home: Path, source: Path, expected: pa.Table) -> dict[str, Taken]:
    """What the cleaner of a broker takes for the same log, by topic. It must leave the records that ours leaves."""
    root = home / "root"
    with Broker.format(root).running() as broker:
        for topic in TOPICS:
            clients.create_topic(broker, topic, 1, **TOPIC_CONFIGS)
    for topic in TOPICS:
        for path in source.iterdir():
            shutil.copy(path, root / f"{topic}-0" / path.name)
    os.sync()
    taken = {}
    with Broker(root, SETTINGS, JVM_OPTIONS).running() as broker:
        for _ in range(20):
            if _cpu_of(broker, 1) <= QUIET_S:  # until then it still starts
                break
        for topic in TOPICS:
            taken[topic] = _kafka_cleans(broker, topic)
    for topic in TOPICS:
        assert survivors(root / f"{topic}-0").equals(expected), "Kafka's cleaner leaves other records than ours"
    return taken


def _kafka_cleans(broker: Broker, topic: str) -> Taken:
    """Let a topic be compacted, and wait for its checkpoint; its CPU time is that beyond an idle broker's."""
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(broker.root / CHECKPOINT))
    cpu, wall = broker.cpu_seconds(), time.perf_counter()
    clients.set_topic_configs(broker, topic, cleanup_policy="compact")
    while TopicPartition(topic, 0) not in checkpoint.read():
        assert time.perf_counter() < wall + TIMEOUT_S, "the broker does not clean"
        time.sleep(0.005)  # between two looks
    wall_s = time.perf_counter() - wall
    cpu_s = broker.cpu_seconds() - cpu
    return Taken(cpu_s - _cpu_of(broker, wall_s), wall_s)


def _cpu_of(broker: Broker, seconds: float) -> float:
    """What the broker uses in so many seconds."""
    before = broker.cpu_seconds()
    time.sleep(seconds)
    return broker.cpu_seconds() - before
