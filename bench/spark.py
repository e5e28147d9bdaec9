"""Spark over a log: through `format("tidelog")`, and through Spark's own Kafka source from a real broker.

What is compared is CPU time, of everything that takes part: the JVM of Spark, its Python workers, and for Kafka's
source the broker that serves it. Both read the same files, which lie in the page cache. They take turns, and before it
both are warmed up: a JVM compiles for many seconds, which is paid once in a session and not for each million rows.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench import shapes, spark_writer
from bench.measure import MEGA, Report
from bench.process_tree import cpu_of_tree
from tests.compat import broker_clients, kafka_tools
from tests.compat.broker import Broker
from tidelog.columns import ColumnEncoder
from tidelog.log import LogConfig, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, TopicPartition
from tidelog.spark.batch_reader import BatchReader
from tidelog.spark.row_schema import default_schema
from tidelog.spark.source import batch_reader
from tidelog.view.counted_files import CountedFiles
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.pieces import read_piece

TOPIC = "orders"
PARTITIONS = 2
ROWS = 9_000_000  # about a gigabyte
TURNS = 5
_WARM_UP = 2
_START_MS = 1_700_000_000_000
CONNECTOR = Path(".cache") / "connector-4.2.0"


def run(report: Report) -> None:
    """Spark rows."""
    why = kafka_tools.missing()
    if why is None and not (CONNECTOR / ".complete").exists():
        why = "the jars of Spark's Kafka source are not in the cache: run `make compat`"
    if why is not None:
        print(f"not measured: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-spark-") as folder:
        broker = _filled_broker(Path(folder))
        with broker.running(), _session() as spark:
            measure = _Measure(spark, broker, report)
            _queries(measure)
            _columns(measure)
            _transport(measure)
        with _session() as spark:
            spark_writer.run(report, spark, Path(folder) / "written")
        _time_range(report, broker.root)
        _idle_stream(report, Path(folder) / "many")


def _filled_broker(place: Path) -> Broker:
    """A broker that serves rows of shape a; we have written its log, it has made the topic."""
    broker = Broker.format(place / "root")
    with broker.running():
        broker_clients.create_topic(broker, TOPIC, PARTITIONS)
    _write(broker.root)
    return broker


def _write(root: Path) -> None:
    for partition in range(PARTITIONS):
        encoder = ColumnEncoder(batch_size=16 << 10, base_offset=0, partition_leader_epoch=0)
        with UnifiedLog.open(root / f"{TOPIC}-{partition}", LogConfig(segment_bytes=256 << 20)) as log:
            for part in encoder.encode(_rows()):
                log.append_as_follower(part.data)


def _rows() -> pa.Table:
    """The rows of a partition: shape a, and times that go on, as in a topic that is written to all day."""
    table = shapes.table("a", ROWS // PARTITIONS)
    times = _START_MS + np.arange(table.num_rows, dtype=np.int64)
    return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", pa.array(times))


@contextmanager
def _session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(str(jar.absolute()) for jar in sorted(CONNECTOR.glob("*.jar")))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


class _Measure:
    def __init__(self, spark: SparkSession, broker: Broker, report: Report) -> None:
        self.spark = spark
        self.report = report
        self._broker = broker
        assert broker._process is not None
        self._broker_process = broker._process.pid
        self.root = str(broker.root)

    def ours(self, schema: str | None = None) -> DataFrame:
        reader = self.spark.read.format("tidelog").option("subscribe", TOPIC)
        return (reader if schema is None else reader.schema(schema)).load(self.root)

    def theirs(self) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._broker.address, "subscribe": TOPIC}
        return self.spark.read.format("kafka").options(**options).load()

    def cpu(self, work: Callable[[], object], *, with_broker: bool = False) -> float:
        started = self._used(with_broker=with_broker)
        work()
        return self._used(with_broker=with_broker) - started

    def _used(self, *, with_broker: bool) -> float:
        """The broker is a child of this process: it is in the tree already, and taken off where it has no part."""
        everything = cpu_of_tree(os.getpid())
        return everything if with_broker else everything - cpu_of_tree(self._broker_process)

    def against_theirs(
        self, name: str, ours: Callable[[], object], theirs: Callable[[], object], at_least: float
    ) -> None:
        """In turns; the ratio is the median over the turns."""
        for _ in range(_WARM_UP):
            ours()
            theirs()
        taken, ratios = [], []
        for _ in range(TURNS):
            mine = self.cpu(ours)
            other = self.cpu(theirs, with_broker=True)
            taken.append(mine)
            ratios.append(other / mine)
        speed, ratio = ROWS / statistics.median(taken) / MEGA, statistics.median(ratios)
        self.report.add(
            f"Spark: {name}", speed, "Mrow/s", against="Spark's Kafka source", ratio=ratio, at_least=at_least
        )


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _queries(measure: _Measure) -> None:
    for name, query, goal in (
        ("all columns", _noop, 2.5),
        ("count", lambda frame: frame.count(), 3.0),
        ("groupBy(key).count", lambda frame: frame.groupBy("key").count().count(), 2.0),
    ):
        measure.against_theirs(
            name, lambda query=query: query(measure.ours()), lambda query=query: query(measure.theirs()), goal
        )


def _columns(measure: _Measure) -> None:
    for name, kind, goal in (("offset", "bigint", 8.0), ("key", "binary", 6.0), ("value", "binary", 3.5)):
        measure.against_theirs(
            f"{name} alone",
            lambda name=name, kind=kind: _noop(measure.ours(f"{name} {kind}")),
            lambda name=name: _noop(measure.theirs().select(name)),
            goal,
        )


# -- the limit of the way from Python to Spark -------------------------------------------------------------------------


class RepeatedSource(DataSource):
    """Gives one batch again and again: nothing is read or decoded."""

    @classmethod
    def name(cls) -> str:
        return "tidelog-repeated"

    def schema(self) -> Any:
        return default_schema()

    def reader(self, schema: Any) -> DataSourceReader:
        return _Repeated(self.options["path"], int(self.options["rows"]), int(self.options["tasks"]))


class _Repeated(DataSourceReader):
    def __init__(self, path: str, rows: int, tasks: int) -> None:
        self._path = path
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._path) as file:
            [batch] = pa.ipc.open_file(file).read_all().to_batches()
        left = self._rows // self._tasks
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def _transport(measure: _Measure) -> None:
    with tempfile.NamedTemporaryFile() as file:
        reader = batch_reader({"path": measure.root, "subscribe": TOPIC}, default_schema())
        assert isinstance(reader, BatchReader)
        tasks = reader.partitions()
        batch = next(iter(reader.read(tasks[0])))
        with pa.ipc.new_file(file.name, batch.schema) as writer:
            writer.write_batch(batch)
        measure.spark.dataSource.register(RepeatedSource)

        def repeated() -> None:
            options = {"rows": str(ROWS), "tasks": str(len(tasks))}  # as many as ours are: each has its price
            _noop(measure.spark.read.format("tidelog-repeated").options(**options).load(file.name))

        for _ in range(_WARM_UP):
            repeated()
        taken, ratios = [], []
        for _ in range(TURNS):
            mine = measure.cpu(lambda: _noop(measure.ours()))
            taken.append(mine)
            ratios.append(measure.cpu(repeated) / mine)
        measure.report.add("Spark: all columns", ROWS / statistics.median(taken) / MEGA, "Mrow/s",
                           against="one batch repeated", ratio=statistics.median(ratios), at_least=0.85)  # fmt: skip


# -- what is read of the files -----------------------------------------------------------------------------------------


def _time_range(report: Report, root: Path) -> None:
    """Bytes of `.log` files that a hundredth of the time takes, with planning, in one process."""
    first, last = _START_MS, _START_MS + ROWS // PARTITIONS
    start = first + (last - first) // 2
    options = {
        "path": str(root), "subscribe": TOPIC, "startingTimestamp": str(start),
        "endingTimestamp": str(start + (last - first) // 100),
    }  # fmt: skip
    counted = CountedFiles(ReadOnlyFiles())
    reader = batch_reader(options, default_schema())
    assert isinstance(reader, BatchReader)
    rows = 0
    with _files_counted(counted):
        for task in reader.partitions():
            for piece in task.value:
                rows += sum(batch.num_rows for batch in read_piece(piece, ["offset"], files=counted))
    size = sum(path.stat().st_size for path in root.glob(f"{TOPIC}-*/*.log"))
    read = sum(reads.bytes for path, reads in counted.reads.items() if path.endswith(".log"))
    report.add(
        "Spark: bytes read for 1 % of the time", read / MEGA, "MB", at_most=(0.012 * size + PARTITIONS * 2**20) / MEGA
    )
    report.add("Spark: rows in it", rows / ROWS * 100, "%")


@contextmanager
def _files_counted(counted: CountedFiles) -> Iterator[None]:
    """Let views on this machine read through files that count."""
    from tidelog.view import opening

    original = opening.ReadOnlyFiles
    opening.ReadOnlyFiles = lambda: counted  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        opening.ReadOnlyFiles = original  # type: ignore[misc]


# -- a stream with nothing to do ---------------------------------------------------------------------------------------

_WATCHED = 2_000
_SECONDS = 15
_CHECKPOINT_S = 5  # a broker notes its high watermarks so often, whether they have moved or not


def _idle_stream(report: Report, root: Path) -> None:
    """The CPU of the process that Spark asks for offsets, as often as it does (every 10 ms), beside an idle broker."""
    for number in range(_WATCHED):
        directory = root / f"idle-{number}"
        directory.mkdir(parents=True)
        (directory / "00000000000000000000.log").write_bytes(shapes.log("a", rows=200)[:16_000])
    script = (
        "import json, sys, time\n"
        "from pyspark.sql.streaming.datasource import ReadAllAvailable\n"
        "from tidelog.spark.row_schema import default_schema\n"
        "from tidelog.spark.source import stream_reader\n"
        f"reader = stream_reader({{'path': {str(root)!r}, 'startingOffsets': 'latest'}}, default_schema())\n"
        "offset = reader.initialOffset()\n"
        "started, cpu = time.monotonic(), time.process_time()\n"
        f"while time.monotonic() - started < {_SECONDS}:\n"
        "    json.dumps(reader.latestOffset(offset, ReadAllAvailable()))\n"
        "    time.sleep(0.01)\n"
        "print((time.process_time() - cpu) / (time.monotonic() - started))\n"
    )
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(root / HIGH_WATERMARK_CHECKPOINT))
    marks = {TopicPartition("idle", number): 100 for number in range(_WATCHED)}
    checkpoint.write(marks)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        while True:
            try:
                share, _ = process.communicate(timeout=_CHECKPOINT_S)
                break
            except subprocess.TimeoutExpired:
                checkpoint.write(marks)
    report.add("Spark: a stream idle over 2,000 partitions", float(share) * 100, "% of a core", at_most=5)
