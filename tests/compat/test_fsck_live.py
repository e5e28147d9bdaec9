"""fsck beside a real broker at work: rolls, retention, compaction, deleted records; no check finds anything."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.live_kafka import run
from tests.fsck.live import alarms
from tidelog.fsck import check

CHECKS = 20
SETTINGS = {
    "log.retention.check.interval.ms": 200, "log.segment.delete.delay.ms": 500, "log.cleaner.backoff.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 500, "log.flush.start.offset.checkpoint.interval.ms": 500,
    "log.initial.task.delay.ms": 0,
}  # fmt: skip
SMALL = {"segment_bytes": 1 << 20, "index_interval_bytes": 1024}


class Load:
    """Produces, and deletes records, until it is told to stop."""

    def __init__(self, broker: Broker) -> None:
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5, "acks": 1, "log_level": 0})
        self._admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.produced = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for number in range(2000):
                self._producer.produce("plain", bytes(500))
                self._producer.produce("keys", bytes(200), key=b"key %d" % (number % 50))
                self.produced += 2
            self._producer.flush(30)
            if self.produced % 40_000 == 0:
                start = TopicPartition("plain", 0, self.produced // 3)
                self._admin.delete_records([start])


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker.format(tmp_path / "root", SETTINGS)


def test_no_check_beside_a_broker_at_work_finds_anything(broker: Broker) -> None:
    with broker.running():
        clients.create_topic(broker, "plain", 1, retention_bytes=4 << 20, **SMALL)
        clients.create_topic(
            broker, "keys", 1, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=1000,
            **SMALL,
        )  # fmt: skip
        with Load(broker) as load:
            found = [alarms(check(str(broker.root), deep=bool(number % 2))) for number in range(CHECKS)]
        assert load.produced > 10_000
    assert [words for words in found if words] == []
    assert alarms(check(str(broker.root), deep=True)) == []


def test_no_check_finds_anything_while_brokers_are_killed_and_truncate_their_logs() -> None:
    assert run(seed=1, cases=60)["live-kafka-truncated"]
