"""fsck beside brokers of Apache Kafka at work: no check of a sound root finds anything worse than info.

Two brokers hold the same topics and roll, retain, compact and delete records under load. Again and again the leader is
killed: what it had not passed on yet is truncated when it comes back as a follower. Each case is one check of the root
of a broker, whatever it does at that moment: it may be running, dead, starting or truncating.
`python -m tests.campaign --only live-kafka --seed 7 --cases 100` runs a hundred checks.
"""

import tempfile
import threading
from collections import Counter
from contextlib import suppress
from itertools import count as numbers_from
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.broker import comes_true, wait_for
from tests.compat.cluster import Cluster, Node
from tests.compat.kafka_tools import missing
from tests.fsck.live import FalseAlarm, alarms
from tidelog.errors import CorruptionError
from tidelog.fsck import check
from tidelog.records import read_batches

CHECKS_OF_A_CLUSTER = 250
TIMEOUT_S = 60
GROWTH_S = 5  # in which a leader under load appends something
SYNC_S = 60
CLUSTERS = 3  # that are tried until one does not get stuck
MISSED = 10_000  # bytes that a leader has and its follower has not
SETTINGS = {
    "log.retention.check.interval.ms": 200, "log.segment.delete.delay.ms": 500, "log.cleaner.backoff.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 500, "log.flush.start.offset.checkpoint.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 500, "log.initial.task.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 4 << 20, "auto.leader.rebalance.enable": "false",
    "replica.fetch.wait.max.ms": 100, "replica.lag.time.max.ms": 2_000,
}  # fmt: skip
SMALL = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1024"}
TOPICS = {
    "plain": {"retention.bytes": str(8 << 20), **SMALL},
    "keys": {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000", **SMALL,
    },
    "paid": SMALL,
}  # fmt: skip


class Stuck(Exception):
    """Brokers that do not find together again. That happens to Apache Kafka, and says nothing about fsck."""


class Turmoil:
    """Threads that write, and that kill and start brokers, until the block ends."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._write, self._write_paid, self._kill)]
        self._failure: Exception | None = None
        self.kills = 0
        self.truncated = 0  # logs that had something else at their end when their broker had come back

    @property
    def has_failed(self) -> bool:
        """Whether a broker did not come back; the end of the block says why."""
        return self._failure is not None

    def __enter__(self) -> "Turmoil":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _write(self) -> None:
        """Write and delete records. What a dead leader has taken along is not missed."""
        producer = Producer({**self._client(), "acks": 1, "linger.ms": 2, "message.timeout.ms": 10_000})
        admin = AdminClient(self._client())
        turn = 0
        while not self._is_over.is_set():
            turn += 1
            for number in range(150):
                with suppress(BufferError):
                    producer.produce("plain", bytes(500), partition=0)
                    producer.produce("keys", bytes(200), key=b"key %d" % (number % 50), partition=0)
            producer.flush(0.2)
            self._is_over.wait(0.2)  # so that a segment is still there when its broker has come back
            if turn % 20 == 0:
                admin.delete_records([TopicPartition("plain", 0, 120 * turn)])
        producer.flush(1)

    def _write_paid(self) -> None:
        """Write in transactions, every third of which is aborted."""
        turn = 0
        while not self._is_over.is_set():
            producer = Producer({**self._client(), "transactional.id": "payer", "transaction.timeout.ms": 20_000})
            with suppress(KafkaException):  # the coordinator was killed, or the transaction timed out: begin again
                producer.init_transactions(TIMEOUT_S)
                while not self._is_over.is_set():
                    turn += 1
                    producer.begin_transaction()
                    for _ in range(20):
                        producer.produce("paid", bytes(300), partition=turn % 2)
                    (producer.commit_transaction if turn % 3 else producer.abort_transaction)(TIMEOUT_S)

    def _kill(self) -> None:
        try:
            while not self._is_over.wait(2):
                self._kill_leader()
        except (AssertionError, OSError, KafkaException, Stuck) as error:
            self._failure = error
            self._is_over.set()

    def _kill_leader(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        (follower,) = [broker for broker in self._cluster.brokers if broker is not leader]
        with follower.paused():  # for less than it may lag, so it is still in sync, and leads next
            before = _written(leader.root / "plain-0")
            if not comes_true(lambda: _written(leader.root / "plain-0") > before + MISSED, GROWTH_S):
                return  # on a busy machine the other one has become the leader meanwhile
            leader.kill()
        self.kills += 1
        ends = {path: _last_batch(path) for path in _active_segments(leader.root)}
        wait_for(lambda: self._leader() not in (None, leader), "the other broker leads")
        leader.start()
        if not comes_true(self._are_in_sync, SYNC_S):
            raise Stuck(f"the brokers are not in sync within {SYNC_S} s")
        self.truncated += sum(not _holds(path, *end) for path, end in ends.items() if end is not None)

    def _leader(self) -> Node | None:
        """The broker that leads the topic `plain`."""
        with suppress(KafkaException):
            found = AdminClient(self._client()).list_topics("plain", timeout=5).topics["plain"].partitions
            leader = found[0].leader if 0 in found else -1
            return next((broker for broker in self._cluster.brokers if broker.node_id == leader), None)
        return None

    def _are_in_sync(self) -> bool:
        with suppress(KafkaException):
            topics = AdminClient(self._client()).list_topics(timeout=5).topics
            return all(len(part.isrs) == 2 for name in TOPICS for part in topics[name].partitions.values())
        return False

    def _client(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self._cluster.addresses, "log_level": 0}


def run(seed: int, cases: int) -> Counter[str]:
    """Check so many times, and until logs were truncated; a cluster of its own for every 250 checks.

    Moments differ from run to run.
    """
    reason = missing()
    if reason is not None:
        raise AssertionError(f"cases of kind live-kafka need Apache Kafka: {reason}")
    found: Counter[str] = Counter()
    for done in range(0, cases, CHECKS_OF_A_CLUSTER):
        found += _run_clusters(seed + done, min(CHECKS_OF_A_CLUSTER, cases - done))
    return found


def _run_clusters(seed: int, cases: int) -> Counter[str]:
    for _ in range(CLUSTERS - 1):
        with suppress(Stuck):
            return _run_cluster(seed, cases)
    return _run_cluster(seed, cases)


def _run_cluster(seed: int, cases: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), 2, SETTINGS)
        with cluster:
            _create_topics(cluster)
            with Turmoil(cluster) as turmoil:
                for number in numbers_from(seed):
                    if number >= seed + cases and (turmoil.truncated or turmoil.has_failed):
                        break
                    root = cluster.brokers[number % 2].root
                    _ensure_quiet(root, f"check {number}", is_deep=number % 4 < 2)
        for node in cluster.nodes:
            _ensure_quiet(node.root, "stopped", is_deep=True)
    counts = {"check": number - seed, "killed": turmoil.kills, "truncated": turmoil.truncated}
    return Counter({f"live-kafka-{name}": count for name, count in counts.items()})


def _create_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.addresses, "log_level": 0})
    new = [NewTopic(name, 2 if name == "paid" else 1, 2, config=configs) for name, configs in TOPICS.items()]
    for created in admin.create_topics(new).values():
        created.result(TIMEOUT_S)


def _ensure_quiet(root: Path, when: str, *, is_deep: bool) -> None:
    found = alarms(check(str(root), deep=is_deep))
    if found:
        raise FalseAlarm(f"live-kafka, {when}, {'deep' if is_deep else 'not deep'}: {found[:5]}")


def _written(directory: Path) -> int:
    """Where the active segment of a log begins, in offsets, and how many bytes it has: this grows with every append."""
    active = max(directory.glob("*.log"))
    return (int(active.stem) << 32) + active.stat().st_size


def _active_segments(root: Path) -> list[Path]:
    return [max(directory.glob("*.log")) for name in TOPICS for directory in root.glob(f"{name}-?")]


def _last_batch(path: Path) -> tuple[int, bytes] | None:
    """Position and bytes of the last batch of a segment."""
    data = path.read_bytes()
    last = None
    with suppress(CorruptionError):  # a torn end
        for batch in read_batches(data):
            last = bytes(batch.buffer)  # type: ignore[union-attr]
    return None if last is None else (data.rindex(last), last)


def _holds(path: Path, position: int, data: bytes) -> bool:
    """Whether a file, unless it was deleted meanwhile, still has a batch where it was."""
    return not path.exists() or path.read_bytes()[position : position + len(data)] == data
