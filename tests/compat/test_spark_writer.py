"""What Spark writes through us into the directory of a real broker: it starts again and serves every record, once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from tests.compat.broker import Broker
from tests.compat.broker_clients import consume, create_topic, produce
from tests.compat.kafka_tools import dump_log, parse_dump
from tests.interop.judges import Seen
from tests.spark.commits import ADDED, commit_here
from tests.spark.session import missing, new_session
from tests.spark.streaming_job import StreamingJob
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import COMMITTED_BATCHES, UNFINISHED_WRITE
from tidelog.log.partition_metadata import read_topic_id
from tidelog.records import NewRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = 1_700_000_000_000
PARTITIONS = 3
ROWS = 3000


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    session = new_session()
    yield session
    session.stop()


def new_broker(root: Path) -> Broker:
    """A broker that has created the topic, has taken a record, and has stopped."""
    broker = Broker.format(root)
    with broker.running():
        create_topic(broker, "orders", PARTITIONS)
        produce(broker, "orders", 0, [NewRecord(b"first", b"by a client", TIME)])
    return broker


def ids_in(root: Path) -> set[object]:
    paths = [root / f"orders-{number}" / "partition.metadata" for number in range(PARTITIONS)]
    return {read_topic_id(LocalFileSystem(), str(path)) for path in paths}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_broker_serves_every_record_that_spark_wrote(spark: "SparkSession", tmp_path: Path, codec: str) -> None:
    broker = new_broker(tmp_path / "root")
    ids = ids_in(broker.root)
    frame = spark.range(0, ROWS, 1, 4).selectExpr(
        "concat('key ', id) as key",
        "if(id % 10 = 0, null, repeat('v', cast(id % 500 as int))) as value",
        f"timestamp_millis({TIME} + id) as timestamp",
        "array(named_struct('key', 'h', 'value', X'ff')) as headers",
    )
    writer = frame.write.format("tidelog").option("topic", "orders").option("segment.bytes", "10k")
    writer.option("batch.bytes", "4k").option("compression", codec).mode("append").save(str(broker.root))
    assert ids_in(broker.root) == ids  # a broker that does not know the id sets the directory aside
    assert len(ids) == 1
    logs = tidelog.open(str(broker.root))
    expected = {number: list(logs["orders", number].read()) for number in range(PARTITIONS)}
    assert sum(map(len, expected.values())) == ROWS + 1
    check_by_kafkas_tool(broker.root)
    with broker.running():
        served = 0
        for number, records in expected.items():
            given = consume(broker, "orders", number)
            assert given.end == logs["orders", number].log_end_offset
            assert given.records == [
                Seen(r.offset, r.timestamp_ms, r.key, r.value, tuple((h.key, h.value) for h in r.headers), 0)
                for r in records
            ]
            served += len(given.records)
        assert served == ROWS + 1
        produce(broker, "orders", 1, [NewRecord(b"last", b"by a client", TIME)])
        assert consume(broker, "orders", 1).records[-1].key == b"last"
    assert not [name for name in os.listdir(broker.root) if name.endswith(("-stray", "-delete"))]


def check_by_kafkas_tool(root: Path) -> None:
    """Its dump tool finds every batch valid, and nothing wrong with an index."""
    logs = sorted(root.glob("orders-*/*.log"))
    assert len(logs) > PARTITIONS
    result = dump_log(logs, "--deep-iteration")
    assert result.exit == 0, result.stderr
    assert {batch.fields["isvalid"] for file in parse_dump(result.stdout) for batch in file.batches} == {"true"}
    assert "Found" not in result.stdout
    indexes = [path for suffix in ("index", "timeindex") for path in root.glob(f"orders-*/*.{suffix}")]
    checked = dump_log(sorted(indexes), "--index-sanity-check")
    assert checked.exit == 0, checked.stderr
    assert "mismatch" not in checked.stdout.lower()


def test_a_broker_removes_what_was_staged_and_keeps_its_records(tmp_path: Path) -> None:
    """An attempt that died has left its pieces, and a commit that was killed before its journal, too."""
    broker = new_broker(tmp_path / "root")
    kill_a_commit(broker.root, 8)
    staged = [name for name in os.listdir(broker.root) if name.endswith("-delete")]
    assert len(staged) == 5
    assert not (broker.root / UNFINISHED_WRITE).exists()
    hasty = {"log.segment.delete.delay.ms": 1, "log.initial.task.delay.ms": 1}
    with Broker(broker.root, hasty).running() as again:
        assert [r.value for r in consume(again, "orders", 0).records] == [b"by a client"]
        assert [consume(again, "orders", number).records for number in (1, 2)] == [[], []]
        deadline = time.monotonic() + 60
        while staged and time.monotonic() < deadline:
            staged = [name for name in os.listdir(broker.root) if name.endswith("-delete")]
            time.sleep(0.05)
    assert staged == []


def test_a_broker_serves_once_what_a_killed_commit_and_the_next_have_written(tmp_path: Path) -> None:
    broker = new_broker(tmp_path / "root")
    kill_a_commit(broker.root)
    assert (broker.root / UNFINISHED_WRITE).exists()
    commit_here(str(broker.root))
    with broker.running():
        found = {number: [r.value for r in consume(broker, "orders", number).records] for number in range(PARTITIONS)}
    assert found == {**ADDED, 0: [b"by a client", *ADDED[0]]}


def test_a_stream_whose_driver_and_workers_are_killed_writes_every_record_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """kill -9 of all its processes, while tasks stage, while a commit is under way, and behind one."""
    broker = new_broker(tmp_path / "root")
    rows = spark.range(0, 2000, 1, 2).selectExpr("cast(id % 50 as string) as key", "cast(id as string) as value")
    rows.write.format("tidelog").option("topic", "source").option("partitions", 2).mode("append").save(
        str(tmp_path / "source")
    )
    committed = broker.root / COMMITTED_BATCHES
    moments: list[Callable[[], bool]] = [
        lambda: any(name.endswith("-delete") for name in os.listdir(broker.root)),
        (broker.root / UNFINISHED_WRITE).exists,
        lambda: committed.exists() and max(json.loads(committed.read_text())["batches"].values()) >= 3,
    ]
    for moment in moments:
        job = StreamingJob(tmp_path / "source", broker.root, tmp_path / "checkpoint")
        try:
            assert job.kill_when(moment)
        finally:
            job.kill()
    StreamingJob(tmp_path / "source", broker.root, tmp_path / "checkpoint").finish()
    with broker.running():
        served = [r for number in range(PARTITIONS) for r in consume(broker, "orders", number).records]
    assert sorted(int(r.value or b"") for r in served if r.key != b"first") == list(range(2000))
    by_key: dict[bytes | None, list[int]] = {}
    for record in served:
        if record.key != b"first":
            by_key.setdefault(record.key, []).append(int(record.value or b""))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def kill_a_commit(root: Path, calls_left: int = 0) -> None:
    """Kill a commit with one of its calls to the disk; without a number, when it has begun to append."""
    command = [sys.executable, "-m", "tests.spark.commits", str(root), str(calls_left or 30)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
