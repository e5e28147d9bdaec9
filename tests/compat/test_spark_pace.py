"""`minOffsetsPerTrigger` and `maxTriggerDelay` beside Spark's own source, on one broker that runs.

Both queries live while records come, one through the broker and one from its directory. They are to take the same
offsets in each micro-batch. Nothing is left to chance: more records come when both have been seen to know of those
that they must not take yet, or have taken what they must.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import tidelog
from tests.compat import broker_clients as clients
from tests.compat.broker import Broker, wait_for
from tests.compat.test_spark_connector import connector_session
from tidelog.records import NewRecord

DEADLINE_S = 90
START_MS = 1_700_000_000_000
NEVER = "1h"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {"noDataProgressEventInterval": "100ms", "numRecentProgressUpdates": "10000"}
    session = connector_session({f"spark.sql.streaming.{name}": value for name, value in settings.items()})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.format(tmp_path_factory.mktemp("pace") / "root").running() as broker:
        yield broker


class Pair:
    """Two queries over a topic of two partitions: Spark's own source, and ours."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path, options: dict[str, str]) -> None:
        clients.create_topic(broker, topic, 2)
        self._broker = broker
        self._topic = topic
        self._ends = [0, 0]
        self._folder = folder
        self._spark = spark
        self._options = {**options, "subscribe": topic, "startingOffsets": "earliest"}
        self.queries: dict[str, StreamingQuery] = {}

    def start(self) -> None:
        """Start both, once the broker's checkpoint knows all records: ours would first read to an older watermark."""
        wait_for(self._are_noted, "the broker notes its high watermarks")
        for form, more in (("kafka", {"kafka.bootstrap.servers": self._broker.address}),
                           ("tidelog", {"path": str(self._broker.root)})):  # fmt: skip
            frame = self._spark.readStream.format(form).options(**self._options, **more).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(self._folder / form))
            self.queries[form] = writer.start()

    def _are_noted(self) -> bool:
        logs = tidelog.open(str(self._broker.root))
        return [logs[self._topic, partition].high_watermark for partition in range(2)] == self._ends

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()

    def add(self, partition: int, count: int) -> None:
        """Produce some records to a partition, as one batch: nobody sees a part of them."""
        records = (NewRecord(b"k", b"%d" % number, START_MS + number) for number in range(count))
        clients.produce(self._broker, self._topic, partition, records, linger_ms=1000)
        self._ends[partition] += count

    def batches(self, form: str) -> list[list[int]]:
        """The offsets behind each micro-batch that is done."""
        done = self._folder / form / "commits"
        numbers = sorted(int(name.name) for name in done.iterdir() if name.name.isdecimal()) if done.exists() else []
        files = [(self._folder / form / "offsets" / str(number)).read_text("utf-8") for number in numbers]
        offsets = [json.loads(text.splitlines()[-1])[self._topic] for text in files]
        return [[each[str(partition)] for partition in range(2)] for each in offsets]

    def wait_for(self, *batches: list[int]) -> None:
        """Until both have done micro-batches up to these offsets, and no others."""
        self._wait(lambda form: len(self.batches(form)) >= len(batches))
        assert [self.batches("kafka"), self.batches("tidelog")] == [list(batches)] * 2

    def wait_until_known(self) -> None:
        """Until both have been seen to know of all records that are there."""
        ends = {self._topic: {str(partition): end for partition, end in enumerate(self._ends)}}
        self._wait(lambda form: _latest(self.queries[form]) == ends)

    def _wait(self, condition: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not all(condition(form) for form in self.queries):
            for form, query in self.queries.items():
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, f"{form}: {self.batches(form)}, {_latest(query)}"
            time.sleep(0.02)  # between two looks

    def pauses_s(self, count: int) -> list[float]:
        """The times from the beginning of a micro-batch to that of the next, when so many batches have been told of."""
        self._wait(lambda form: len(_begun(self.queries[form])) >= count)
        begun = [_begun(query) for query in self.queries.values()]
        return [(times[n + 1] - times[n]).total_seconds() for times in begun for n in range(count - 1)]


def _begun(query: StreamingQuery) -> list[datetime]:
    """When each micro-batch with rows has begun."""
    told = [json.loads(each.json) for each in query.recentProgress]
    return [datetime.fromisoformat(each["timestamp"]) for each in told if each["numInputRows"]]


def _latest(query: StreamingQuery) -> Any:
    """The ends that a source has told of last; Spark's has them as a text of JSON."""
    progress = query.lastProgress
    latest = None if progress is None else json.loads(progress.json)["sources"][0]["latestOffset"]
    return json.loads(latest) if isinstance(latest, str) else latest


@pytest.fixture
def pair(
    spark: SparkSession, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(**options: str) -> Pair:
        made.append(Pair(spark, broker, request.node.name.replace("_", "-"), tmp_path, options))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_too_few_offsets_are_left_until_there_are_enough(pair: Callable[..., Pair]) -> None:
    both = pair(minOffsetsPerTrigger="30", maxTriggerDelay=NEVER)
    both.add(0, 12)
    both.add(1, 8)
    both.start()
    both.wait_for([12, 8])  # the first batch waits for nothing
    both.add(0, 6)
    both.wait_until_known()
    both.add(1, 23)
    both.wait_until_known()
    both.wait_for([12, 8])  # 29 are not enough
    both.add(0, 1)
    both.wait_for([12, 8], [19, 31])


def test_a_batch_has_neither_too_few_nor_too_many_offsets(pair: Callable[..., Pair]) -> None:
    both = pair(minOffsetsPerTrigger="30", maxOffsetsPerTrigger="40", maxTriggerDelay=NEVER)
    both.add(0, 20)
    both.start()
    both.wait_for([20, 0])
    both.add(0, 9)
    both.wait_until_known()
    both.add(1, 71)
    taken = [20, 0], [24, 35], [28, 70]  # 80 are there: 39 are taken, 39 of the other 41, and 2 are too few
    both.wait_for(*taken)
    both.wait_until_known()
    both.add(1, 65)
    both.wait_for(*taken, [29, 109])
    both.wait_until_known()
    both.wait_for(*taken, [29, 109])


def test_offsets_are_not_waited_for_longer_than_the_delay(pair: Callable[..., Pair]) -> None:
    both = pair(minOffsetsPerTrigger="1000", maxTriggerDelay="3s")
    both.add(0, 12)
    both.start()
    both.wait_for([12, 0])
    both.add(1, 3)
    both.wait_for([12, 0], [12, 3])
    both.add(0, 1)
    both.wait_for([12, 0], [12, 3], [13, 3])
    # Sources look at their clocks some time behind the moment at which Spark says that a batch begins.
    assert min(both.pauses_s(3)) > 2
