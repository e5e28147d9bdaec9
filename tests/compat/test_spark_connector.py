"""The same answers as Spark's own Kafka source, option by option.

A real broker holds topics with transactions, headers, nulls, codecs and records deleted at the front. Spark reads them
through `format("kafka")`; then the broker stops, and Spark reads its directory through `format("tidelog")` with the
same options. Rows are compared, the number of tasks where an option is about it, the offsets of every micro-batch, and
whether there is an error.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQueryException

from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.spark.session import new_session
from tidelog.records import Header, NewRecord

ROOT = Path(__file__).resolve().parents[2]
START_MS = 1_700_000_000_000
STEP_MS = 1_000
SMALL = {"internal_segment_bytes": 16_384, "index_interval_bytes": 500}
FAR_MS = START_MS + 10**9

Options = Mapping[str, str]


def _by_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


BATCHES: dict[str, Options] = {
    "one topic": {"subscribe": "orders"},
    "two topics": {"subscribe": "orders, other"},
    "a pattern": {"subscribePattern": "o.*"},
    "a pattern in the middle": {"subscribePattern": "der"},
    "some partitions": {"assign": '{"orders":[0,2],"other":[0]}'},
    "headers": {"subscribe": "orders", "includeHeaders": "true"},
    "offsets": {
        "subscribe": "orders",
        "startingOffsets": _by_partition("orders", 40, 5, -2),
        "endingOffsets": _by_partition("orders", 90, -1, 33),
    },
    "earliest to latest": {"subscribe": "orders", "startingOffsets": "earliest", "endingOffsets": "latest"},
    "nothing between": {
        "subscribe": "orders",
        "startingOffsets": _by_partition("orders", 40, 40, 40),
        "endingOffsets": _by_partition("orders", 40, 40, 40),
    },
    "from a time": {"subscribe": "orders", "startingTimestamp": str(START_MS + 50 * STEP_MS)},
    "between times": {
        "subscribe": "orders",
        "startingTimestamp": str(START_MS + 50 * STEP_MS - 1),
        "endingTimestamp": str(START_MS + 80 * STEP_MS),
    },
    "up to a time behind the end": {"subscribe": "orders", "endingTimestamp": str(FAR_MS)},
    "from a time behind the end": {"subscribe": "orders", "startingTimestamp": str(FAR_MS)},
    "from a time behind the end, latest": {
        "subscribe": "orders",
        "startingTimestamp": str(FAR_MS),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "times by partition": {
        "subscribe": "orders",
        "startingOffsetsByTimestamp": _by_partition("orders", *(START_MS + n * STEP_MS for n in (30, 50, 70))),
        "endingOffsetsByTimestamp": _by_partition("orders", *(START_MS + n * STEP_MS for n in (60, 51, 900))),
    },
    "a time counts more than offsets": {
        "subscribe": "orders",
        "startingTimestamp": str(START_MS + 50 * STEP_MS),
        "startingOffsets": "earliest",
    },
    "times of other partitions": {
        "subscribe": "orders",
        "startingOffsetsByTimestamp": _by_partition("orders", START_MS),
    },
    "offsets of other partitions": {"subscribe": "orders", "startingOffsets": _by_partition("orders", 1)},
    "the wrong way round": {
        "subscribe": "orders",
        "startingOffsets": _by_partition("orders", 50, 50, 50),
        "endingOffsets": _by_partition("orders", 40, 60, 60),
    },
    "a batch from the latest": {"subscribe": "orders", "startingOffsets": "latest"},
    "a batch from the latest of a partition": {
        "subscribe": "orders",
        "startingOffsets": _by_partition("orders", -1, 0, 0),
    },
    "a batch to the earliest": {"subscribe": "orders", "endingOffsets": "earliest"},
    "a batch to the earliest of a partition": {
        "subscribe": "orders",
        "endingOffsets": _by_partition("orders", -2, -1, -1),
    },
    "a batch from behind the latest": {"subscribe": "orders", "startingOffsets": _by_partition("orders", 999, 5, 5)},
    "a batch from behind the latest, never mind": {
        "subscribe": "orders",
        "startingOffsets": _by_partition("orders", 999, 5, 5),
        "failOnDataLoss": "false",
    },
    "a batch to before the earliest": {"subscribe": "cut", "endingOffsets": _by_partition("cut", 10)},
    "two ways to choose": {"subscribe": "orders", "assign": '{"orders":[0]}'},
    "gone offsets": {"subscribe": "cut", "startingOffsets": _by_partition("cut", 3)},
    "gone offsets, never mind": {
        "subscribe": "cut",
        "startingOffsets": _by_partition("cut", 3),
        "failOnDataLoss": "false",
    },
    "all that is left": {"subscribe": "cut"},
    "everything written": {"subscribe": "paid"},
    "what was committed": {"subscribe": "paid", "kafka.isolation.level": "read_committed"},
    "compacted": {"subscribe": "newest"},
    "no such topic": {"subscribe": "nobody"},
    "tasks of ten records": {  # by offsets: between earliest and latest Spark's source does not cut
        "subscribe": "orders",
        "maxRecordsPerPartition": "10",
        "startingOffsets": _by_partition("orders", 0, 0, 0),
        "endingOffsets": _by_partition("orders", 100, 130, 160),
    },
    "seven tasks": {"subscribe": "orders", "minPartitions": "7"},
    "as many tasks as partitions": {"subscribe": "orders", "minPartitions": "2"},
    "a wrong number": {"subscribe": "orders", "minPartitions": "0"},
    "broken JSON": {"subscribe": "orders", "startingOffsets": "{"},
    "options of a consumer": {"subscribe": "orders", "kafkaConsumer.pollTimeoutMs": "5000", "groupIdPrefix": "g",
                              "fetchOffset.numRetries": "2", "kafka.session.timeout.ms": "10000"},
}  # fmt: skip

STREAMS: dict[str, Options] = {
    "from the earliest": {"subscribe": "orders", "startingOffsets": "earliest"},
    "forty a time": {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"},
    "seven a time of two topics": {
        "subscribe": "orders,other",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "77",
    },
    "from offsets": {"subscribe": "orders", "startingOffsets": _by_partition("orders", 10, -2, -1)},
    "from a time": {"subscribe": "orders", "startingTimestamp": str(START_MS + 50 * STEP_MS)},
    "from the latest": {"subscribe": "orders"},
    "committed": {"subscribe": "paid", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed",
                  "maxOffsetsPerTrigger": "15"},
    "headers": {"subscribe": "orders", "startingOffsets": "earliest", "includeHeaders": "true"},
    "some partitions": {
        "assign": '{"orders":[0,2],"other":[0]}',
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
    },
    "a pattern": {"subscribePattern": "o.*er", "startingOffsets": "earliest"},
    "from times by partition": {
        "subscribe": "orders",
        "startingOffsetsByTimestamp": _by_partition("orders", *(START_MS + n * STEP_MS for n in (30, 50, 70))),
    },
    "from times by partition, one of them behind the end": {
        "subscribe": "orders",
        "startingOffsetsByTimestamp": _by_partition("orders", START_MS, START_MS, FAR_MS),
    },
    "from times by partition, one of them behind the end, latest": {
        "subscribe": "orders",
        "startingOffsetsByTimestamp": _by_partition("orders", START_MS, START_MS, FAR_MS),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "from a time behind the end": {"subscribe": "orders", "startingTimestamp": str(FAR_MS)},
    "from a time behind the end, latest": {
        "subscribe": "orders",
        "startingTimestamp": str(FAR_MS),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a time counts more than offsets": {
        "subscribe": "orders",
        "startingTimestamp": str(START_MS + 50 * STEP_MS),
        "startingOffsets": "earliest",
    },
    "gone offsets": {"subscribe": "cut", "startingOffsets": _by_partition("cut", 3)},
    "gone offsets, never mind": {
        "subscribe": "cut",
        "startingOffsets": _by_partition("cut", 3),
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "30",
    },
    "from behind the latest": {"subscribe": "orders", "startingOffsets": _by_partition("orders", 999, 5, 5)},
    "from behind the latest, never mind": {
        "subscribe": "orders",
        "startingOffsets": _by_partition("orders", 999, 5, 5),
        "failOnDataLoss": "false",
    },
    "seven tasks": {"subscribe": "orders", "startingOffsets": "earliest", "minPartitions": "7"},
    "tasks of ten records": {
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxRecordsPerPartition": "10",
        "maxOffsetsPerTrigger": "200",
    },
    "an end in a stream": {"subscribe": "orders", "endingOffsets": "latest"},
    "more at least than at most": {"subscribe": "orders", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
}  # fmt: skip

FAILING_STREAMS = {
    "from times by partition, one of them behind the end",
    "from a time behind the end",
    "gone offsets",
    "from behind the latest",
    "an end in a stream",
    "more at least than at most",
}
COUNTED = ("tasks of ten records", "seven tasks", "as many tasks as partitions", "one topic")


class Answer(NamedTuple):
    """What came of a query; `rows` is None where it failed."""

    rows: list[Any] | None
    tasks: int | None = None
    offsets: list[Any] | None = None


def connector_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session that has Spark's own source."""
    jars = ROOT / os.environ.get("TIDELOG_CACHE", ".cache") / "connector-4.2.0"
    assert (jars / ".complete").exists(), "the jars of Spark's Kafka source are not in the cache: run `make compat`"
    listed = ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    _end_jvm()
    return new_session(settings={**(settings or {}), "spark.jars": listed})


def _end_jvm() -> None:
    """End the JVM that sessions of this process have had so far: it takes jars only when it starts."""
    gateway = SparkContext._gateway
    if gateway is not None:
        assert SparkContext._active_spark_context is None, "a session is still there"
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = connector_session()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> "Asked":
    """Everything that Spark's own source answers, and the directory of the broker, which has stopped."""
    place = tmp_path_factory.mktemp("connector")
    broker = Broker.format(place / "root")
    with broker.running():
        _fill(broker)
        reader = {"kafka.bootstrap.servers": broker.address}
        batches = {name: batch(spark, "kafka", {**options, **reader}) for name, options in BATCHES.items()}
        streams = {
            name: stream(spark, "kafka", {**options, **reader}, place / f"kafka-{number}")
            for number, (name, options) in enumerate(STREAMS.items())
        }
        begun = {"subscribe": "tail", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
        first = stream(spark, "kafka", {**begun, **reader}, place / "continued")
        clients.produce(broker, "tail", 0, (_record(number) for number in range(50, 75)))
    return Asked(broker.root, batches, streams, begun, first, place / "continued")


class Asked(NamedTuple):
    root: Path
    batches: dict[str, Answer]
    streams: dict[str, Answer]
    begun: Options  # a stream that is to be continued
    first: Answer
    checkpoint: Path


def _record(number: int) -> NewRecord:
    headers = (Header("n", b"%d" % number), Header("empty", None)) if number % 5 == 0 else ()
    value = None if number % 11 == 0 else b"value-%d" % number * 9
    return NewRecord(None if number % 7 == 0 else b"key-%d" % (number % 9), value, START_MS + STEP_MS * number, headers)


def _fill(broker: Broker) -> None:
    for topic, partitions in (("orders", 3), ("other", 1), ("cut", 1), ("paid", 2), ("tail", 1)):
        clients.create_topic(broker, topic, partitions, **SMALL)
    clients.create_topic(broker, "newest", 1, cleanup_policy="compact", **SMALL)
    for partition, codec in enumerate(("none", "lz4", "zstd")):
        records = [_record(number) for number in range(100 + 30 * partition)]
        clients.produce(broker, "orders", partition, records, compression_type=codec, linger_ms=20)
    clients.produce(broker, "other", 0, (_record(number) for number in range(60)))
    clients.produce(broker, "tail", 0, (_record(number) for number in range(50)))
    clients.produce(broker, "cut", 0, (_record(number) for number in range(50)))
    clients.produce(broker, "newest", 0, (NewRecord(b"k%d" % (n % 3), b"v%d" % n, START_MS + n) for n in range(40)))
    clients.delete_records(broker, "cut", 0, before=20)
    for round_number in range(6):
        producer = clients.new_producer(broker, transactional_id=f"till-{round_number}")
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(2):
            clients.send(producer, "paid", partition, (_record(round_number * 10 + n) for n in range(5)))
        if round_number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def batch(spark: SparkSession, source: str, options: Options, path: Path | None = None) -> Answer:
    try:
        frame = spark.read.format(source).options(**options).load(*([] if path is None else [str(path)]))
        rows = rows_of(frame)
        return Answer(rows, frame.rdd.getNumPartitions())
    except (PySparkException, Py4JJavaError):
        return Answer(None)


def stream(spark: SparkSession, source: str, options: Options, checkpoint: Path, path: Path | None = None) -> Answer:
    """Run a stream over all there is; its rows, and the offsets behind each micro-batch."""
    rows: list[Any] = []
    tasks = 0

    def take(frame: DataFrame, number: int) -> None:
        nonlocal tasks
        tasks += frame.rdd.getNumPartitions()
        rows.extend(rows_of(frame))

    try:
        frame = spark.readStream.format(source).options(**options).load(*([] if path is None else [str(path)]))
        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except (PySparkException, Py4JJavaError, StreamingQueryException):
        return Answer(None)
    logged = sorted((int(file.name), file) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
    offsets = [json.loads(file.read_text(encoding="utf-8").splitlines()[-1]) for _, file in logged]
    is_about_tasks = "minPartitions" in options or "maxRecordsPerPartition" in options
    return Answer(sorted(rows), tasks if is_about_tasks else None, offsets)


def rows_of(frame: DataFrame) -> list[Any]:
    """Rows that can be compared, in the order of offsets."""
    found = frame.selectExpr(
        "topic",
        "partition",
        "offset",
        "hex(key)",
        "hex(value)",
        "unix_micros(timestamp)",
        "timestampType",
        *(["to_json(headers)"] if "headers" in frame.columns else []),
    ).collect()
    return sorted(tuple(repr(each) if each is None else each for each in row) for row in found)


def test_a_batch_has_the_rows_of_sparks_own_source(spark: SparkSession, asked: Asked) -> None:
    wrong = {}
    for name, options in BATCHES.items():
        theirs, ours = asked.batches[name], batch(spark, "tidelog", options, asked.root)
        if theirs.rows != ours.rows or (name in COUNTED and theirs.tasks != ours.tasks):
            wrong[name] = _summary(theirs), _summary(ours)
    assert not wrong
    assert sum(answer.rows is not None for answer in asked.batches.values()) > 20


def test_a_stream_has_the_micro_batches_of_sparks_own_source(spark: SparkSession, asked: Asked, tmp_path: Path) -> None:
    wrong = {}
    for number, (name, options) in enumerate(STREAMS.items()):
        theirs, ours = asked.streams[name], stream(spark, "tidelog", options, tmp_path / str(number), asked.root)
        if theirs != ours:
            wrong[name] = _summary(theirs), _summary(ours)
    assert not wrong
    assert {name for name, answer in asked.streams.items() if answer.rows is None} == FAILING_STREAMS


def test_a_stream_goes_on_where_a_checkpoint_of_sparks_own_source_ends(spark: SparkSession, asked: Asked) -> None:
    assert asked.first.rows is not None
    assert asked.first.offsets == [{"tail": {"0": 30}}, {"tail": {"0": 50}}]
    second = stream(spark, "tidelog", asked.begun, asked.checkpoint, asked.root)
    assert second.rows is not None
    assert [row[2] for row in second.rows] == list(range(50, 75))
    assert second.offsets == [*asked.first.offsets, {"tail": {"0": 75}}]


def _summary(answer: Answer) -> str:
    return f"{None if answer.rows is None else len(answer.rows)} rows, {answer.tasks} tasks, {answer.offsets}"
