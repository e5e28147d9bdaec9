"""Directories of a real broker that has done a bit of everything: what damage is done to, for Kafka to judge.

    judged_roots()          {"static-clean": (first, second, third), ...}: four states, each of three log.dirs

They are made once, by a broker of Apache Kafka, and kept beside its jars, so that the case of a number is the same case
again. `static` and `dynamic` are the two ways to name a quorum; `clean` is how a broker left them that was stopped, and
`killed` how one did that was not. The metadata log is in the first, has snapshots, and begins behind offset 0.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.kafka_tools import jars
from tidelog.records import NewRecord

FOLDERS = ("first", "second", "third")
STATES = ("static-clean", "static-killed", "dynamic-clean", "dynamic-killed")
SETTINGS = {
    # Many small files of metadata.
    "internal.metadata.log.segment.bytes": 9_000,
    "metadata.log.max.record.bytes.between.snapshots": 6_000,
    "metadata.max.retention.bytes": 24_000,
    "internal.metadata.delete.delay.millis": 100,
    "metadata.max.idle.interval.ms": 100,
    "broker.session.timeout.ms": 60_000,  # a busy machine does not fence the broker
    "log.cleaner.backoff.ms": 500,
    "transaction.max.timeout.ms": 86_400_000,
    "log.index.size.max.bytes": 8_192,  # a broker that is killed leaves them at their full size
}
BLOCK = 64 << 10
SMALL = {"internal_segment_bytes": 6_000, "index_interval_bytes": 300}

Roots = tuple[Path, ...]


def judged_roots() -> dict[str, Roots]:
    """The directories of each state, which nobody changes."""
    kept = jars().parent / f"judged-roots-{jars().name}"
    with Path(f"{kept}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes them, and those beside it wait
        if not kept.exists():
            _make_all(kept)
    return {state: tuple(kept / state / name for name in FOLDERS) for state in STATES}


def _make_all(kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        made = Path(folder) / "made"
        for quorum in ("static", "dynamic"):
            _make(Path(folder) / quorum, made, is_dynamic=quorum == "dynamic")
        made.rename(kept)


def _make(work: Path, made: Path, *, is_dynamic: bool) -> None:
    roots = [work / name for name in FOLDERS]
    for root in roots:
        root.mkdir(parents=True)
    broker = Broker.format(roots[0], SETTINGS, more_roots=roots[1:], is_dynamic=is_dynamic)
    with broker.running():
        _create(broker)
        with _writers(broker):
            pass
    copy_tree(work, made / f"{work.name}-clean")
    broker.start()
    try:
        with _writers(broker):
            broker.kill()
    finally:
        broker.kill()
    copy_tree(work, made / f"{work.name}-killed")


def copy_tree(source: Path, target: Path) -> None:
    """Copy directories; what is zero in a file takes no room."""
    for path in (source, *sorted(source.rglob("*"))):
        to = target / path.relative_to(source)
        if path.is_dir():
            to.mkdir(parents=True)
        elif path.parent != source:  # beside the roots lie settings and output of the broker
            _copy_file(path, to)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as data, target.open("wb") as copy:
        while block := data.read(BLOCK):
            copy.seek(len(block), os.SEEK_CUR) if not any(block) else copy.write(block)
        copy.truncate(source.stat().st_size)
    shutil.copystat(source, target)


def _create(broker: Broker) -> None:
    clients.create_topic(broker, "orders", 4, **SMALL)
    clients.create_topic(broker, "accounts", 3, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **SMALL)
    clients.create_topic(broker, "payments", 3, **SMALL)
    clients.create_topic(broker, "trimmed", 2, **SMALL)
    clients.create_topic(broker, "empty", 2)
    clients.create_topic(broker, "gone", 2)
    clients.produce(broker, "gone", 0, _records(10))
    clients.delete_topic(broker, "gone")
    for number in range(12):  # records for the metadata log
        clients.set_topic_configs(broker, "orders", retention_bytes=1_000_000_000 + number)


@contextmanager
def _writers(broker: Broker) -> Iterator[None]:
    """Write something of every kind. Inside the block a transaction is open."""
    for partition in range(3):
        for _ in range(30):
            clients.produce(broker, "orders", partition, _records(10))
    for partition in range(2):
        for _ in range(12):
            clients.produce(broker, "accounts", partition, _records(30), enable_idempotence=True)
    clients.produce(broker, "trimmed", 0, _records(200), batch_num_messages=10)
    clients.delete_records(broker, "trimmed", 0, before=77)
    _commit_offsets(broker)
    producer = clients.new_producer(broker, transactional_id="payer", transaction_timeout_ms=3_600_000)
    producer.init_transactions(clients.TIMEOUT_S)
    for number in range(8):
        producer.begin_transaction()
        for partition in range(2):
            clients.send(producer, "payments", partition, _records(15))
        (producer.commit_transaction if number % 3 else producer.abort_transaction)(clients.TIMEOUT_S)
    producer.begin_transaction()
    clients.send(producer, "payments", 0, _records(5))
    yield


def _commit_offsets(broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "billing", "log_level": 0})
    try:
        for offset in (10, 20, 30):
            consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def _records(count: int) -> list[NewRecord]:
    return [
        NewRecord(key=b"key %d" % (number % 20), value=b"value %d of what is kept " % number * 3)
        for number in range(count)
    ]
