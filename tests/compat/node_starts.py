"""The verdict on nodes that are only a broker, or only a controller, beside what Apache Kafka does with them.

A case is a cluster of one controller and one broker. The root of one of them is damaged by a seeded choice
(start_damages.py) and judged by us; then both are started. Both must say the same: whether the node starts and, of a
broker, with which topics and where each partition begins and ends. Of a broker that follows, much is unknown: then
nothing is compared. `python -m tests.campaign --only node-starts --seed 7 --cases 1` repeats case 7.
"""

import random
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.compat import broker_clients as clients
from tests.compat.cluster import Cluster, Node
from tests.compat.judged_roots import copy_tree
from tests.compat.kafka_tools import missing, run_java
from tests.compat.start_campaign import agree, told, told_verdict
from tests.compat.start_damages import damage, damage_metadata
from tests.compat.start_judge import Judged
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import NewRecord

TIMEOUT_S = 30
ANSWER_S = 5  # for a partition that somebody leads
LOOKS = 3  # for a leader of the quorum
SETTINGS = {
    "internal.metadata.log.segment.bytes": 9_000,
    "metadata.log.max.record.bytes.between.snapshots": 6_000,
    "metadata.max.retention.bytes": 24_000,
    "metadata.max.idle.interval.ms": 100,
    "initial.broker.registration.timeout.ms": 15_000,
    "log.index.size.max.bytes": 8_192,
    "log.initial.task.delay.ms": 600_000,
}
SMALL = {"internal_segment_bytes": 6_000, "index_interval_bytes": 300}


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cases with the numbers from `seed` on. All are looked at before the disagreements are told."""
    reason = missing()
    if reason is not None:
        raise AssertionError(f"cases of kind node-starts are judged by Apache Kafka: {reason}")
    outcomes: Counter[str] = Counter()
    disagreements = []
    with tempfile.TemporaryDirectory() as folder:
        judge = NodeJudge(Path(folder))
        for number in range(seed, seed + cases):
            outcome, words = judge.judge(number)
            outcomes[f"node-starts-{outcome}"] += 1
            if outcome == "disagreement":
                disagreements.append(words)
    if disagreements:
        raise AssertionError("\n".join([*disagreements, f"{len(disagreements)} of {cases} cases: {dict(outcomes)}"]))
    return outcomes


class NodeJudge:
    """A cluster whose nodes are damaged, started, and put back as they were."""

    def __init__(self, folder: Path) -> None:
        self._kept = folder / "kept"
        self._cluster = Cluster(folder / "cluster", 1, SETTINGS)
        with self._cluster:
            (broker,) = self._cluster.brokers
            clients.create_topic(broker, "orders", 3, **SMALL)
            clients.create_topic(broker, "payments", 2, **SMALL)
            for _ in range(10):
                for partition in range(2):
                    clients.produce(broker, "orders", partition, _records(10))
                    clients.produce(broker, "payments", partition, _records(10), enable_idempotence=True)
        copy_tree(folder / "cluster", self._kept)

    def judge(self, number: int) -> tuple[str, str]:
        """In a word how a case went, and in a sentence what both said."""
        rng = random.Random(number)
        self._restore()
        node = self._cluster.nodes[number % 2]
        words = (damage_metadata if node.is_controller else damage)([node.root], rng)
        ours = would_start(LocalFileSystem(), [str(node.root)])
        kafka = self._start(node)
        role = "controller" if node.is_controller else "broker"
        words = f"case {number}, the {role}: {words}\n  Kafka: {told(kafka)}\n  ours:  {told_verdict(ours)}"
        if ours.starts is None:
            return "unknown", words
        if not agree(ours, kafka):
            return "disagreement", words
        return f"{role}-{'started' if ours.starts else 'refused'}", words

    def _restore(self) -> None:
        for node in self._cluster.nodes:
            shutil.rmtree(node.root)
            shutil.copytree(self._kept / node.root.name, node.root)

    def _start(self, node: Node) -> Judged:
        """What becomes of a node; if it is a broker, beside a controller that is well."""
        controller = self._cluster.controller
        try:
            if not node.is_controller:
                controller.start()
            try:
                node.start()
            except AssertionError as error:
                return Judged(str(error)[-300:] or "it ended", {})
            if node.is_controller:
                return Judged(None if _leads(controller) else "nobody leads the quorum", {})
            return Judged(None, _served(node))
        finally:
            for one in self._cluster.nodes:
                one.kill()


def _leads(controller: Node) -> bool:
    """Whether a controller has become the leader of its quorum."""
    tool = "org.apache.kafka.tools.MetadataQuorumCommand"
    for _ in range(LOOKS):
        if run_java(tool, "--bootstrap-controller", controller.address, "describe", "--status").exit == 0:
            return True
    return False


def _served(broker: Node) -> dict[str, dict[int, tuple[int, int] | None]]:
    """Where the partitions of a broker begin and end, once every one that can has a leader."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    places = [TopicPartition(topic, number) for topic, about in topics.items() for number in about.partitions]
    served: dict[str, dict[int, tuple[int, int] | None]] = {}
    for place in places:
        bounds: tuple[int, int] | None = None
        with suppress(KafkaException):
            first, end = (_offset(admin, place, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
            bounds = (first, end)
        served.setdefault(place.topic, {})[place.partition] = bounds
    return served


def _offset(admin: AdminClient, place: TopicPartition, spec: OffsetSpec) -> int:
    asked = admin.list_offsets({place: spec}, request_timeout=ANSWER_S)
    return asked[place].result(TIMEOUT_S).offset


def _records(count: int) -> list[NewRecord]:
    return [NewRecord(b"key %d" % number, b"value %d that is kept " % number * 3) for number in range(count)]
