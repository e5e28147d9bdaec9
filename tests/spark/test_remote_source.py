"""`format("tidelog")` over an object store: the rows are those of the same directory on the disk."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.logs import START_MS, record, write
from tests.spark.object_store import BUCKET, object_store, upload
from tests.spark.test_stream_source import Sink, logged
from tidelog.fsck import check
from tidelog.records import Header
from tidelog.spark.jobs.diff import diff
from tidelog.spark.jobs.verify import verify

DEADLINE_S = 60
CHANGES = ((0, 10, 25), (0, 25, 90), (1, 0, 5), (0, 90, 95), (1, 5, 9))  # partition, first and next offset
# All of them are to be seen in the time of two listings, which without the option are kept for thirty seconds each.

# botocore is not quite ready for this Python.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """The options of pyarrow for a store."""
    with object_store() as options:
        yield options


@pytest.fixture(scope="module")
def storage(s3: dict[str, Any]) -> dict[str, str]:
    """The same as options of Spark."""
    return {f"storage.{name}": str(value) for name, value in s3.items()}


@pytest.fixture(scope="module")
def root(s3: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root on the disk whose copy is in the store, as `fixed`."""
    place = tmp_path_factory.mktemp("logs")
    write(place, "orders", 0, (record(number) for number in range(200)), segment_bytes=2_000)
    write(place, "orders", 1, (record(number, headers=[Header("n", b"%d" % number)]) for number in range(50)))
    write(place, "notes", 0, (record(number) for number in range(9)))
    upload(s3, place, "fixed")
    return place


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All there is in them."""
    return sorted(
        tuple(row)
        for row in frame.selectExpr(
            "topic", "partition", "offset", "hex(key)", "hex(value)", "unix_micros(timestamp)", "timestampType",
            *(["to_json(headers)"] if "headers" in frame.columns else []),
        ).collect()
    )  # fmt: skip


OPTIONS: dict[str, dict[str, str]] = {
    "a topic": {"subscribe": "orders"},
    "headers": {"subscribePattern": "o.*", "includeHeaders": "true"},
    "many tasks": {"subscribe": "orders", "minPartitions": "9"},
    "a time": {"subscribe": "orders", "startingTimestamp": str(START_MS + 250 * 30)},
    "offsets": {"subscribe": "orders", "startingOffsets": '{"orders":{"0":77,"1":-2}}'},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_batch_has_the_rows_of_the_disk(
    spark: SparkSession, root: Path, storage: dict[str, str], options: dict[str, str], scheme: str
) -> None:
    near = spark.read.format("tidelog").options(**options).load(str(root))
    far = spark.read.format("tidelog").options(**options, **storage).load(f"{scheme}://{BUCKET}/fixed")
    assert far.rdd.getNumPartitions() == near.rdd.getNumPartitions()
    assert rows(far) == rows(near) != []


def test_partitions_patterns_and_lists_have_addresses_too(
    spark: SparkSession, root: Path, storage: dict[str, str]
) -> None:
    def count(*paths: str) -> int:
        reader = spark.read.format("tidelog").options(**storage)
        return reader.load([f"s3a://{BUCKET}/{path}" for path in paths]).count()

    assert count("fixed/orders-1") == 50
    assert count("fixed/orders-*") == 250
    assert count("fixed/orders-1", "fixed/notes-0") == 59


def test_a_view_in_sql_reads_a_store(spark: SparkSession, root: Path, storage: dict[str, str]) -> None:
    options = ", ".join(f"`{name}` '{value}'" for name, value in storage.items())
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW far USING tidelog "
        f"OPTIONS (path 's3a://{BUCKET}/fixed', subscribe 'orders', columns 'offset, value string', {options})"
    )
    [(found,)] = spark.sql("SELECT count(distinct value) FROM far").collect()
    assert found == 200


def test_what_is_not_there_is_said_with_the_machine_that_looked(
    spark: SparkSession, root: Path, storage: dict[str, str]
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("tidelog").options(**storage).load(f"s3a://{BUCKET}/nowhere").collect()
    assert f"s3://{BUCKET}/nowhere does not exist (looked for on {socket.gethostname()})" in str(caught.value)
    with pytest.raises(PySparkException, match="storage options are those of pyarrow.fs"):
        spark.read.format("tidelog").options(**storage, **{"storage.colour": "blue"}).load(
            f"s3://{BUCKET}/fixed"
        ).count()


def test_a_stream_that_ends_has_the_rows_of_the_disk_in_the_same_batches(
    spark: SparkSession, root: Path, storage: dict[str, str], tmp_path: Path
) -> None:
    found = {}
    for name, address, options in (("near", str(root), {}), ("far", f"s3a://{BUCKET}/fixed", storage)):
        sink = Sink()
        reader = spark.readStream.format("tidelog").options(subscribe="orders", startingOffsets="earliest", **options)
        frame = reader.option("maxOffsetsPerTrigger", "70").load(address).select("partition", "offset")
        writer = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", str(tmp_path / name))
        writer.trigger(availableNow=True).start().awaitTermination()
        found[name] = sink.batches, logged(tmp_path / name)
    assert found["far"] == found["near"]
    assert len(found["far"][0]) == 4


def test_a_running_stream_sees_what_comes_into_the_store(
    spark: SparkSession, s3: dict[str, Any], storage: dict[str, str], tmp_path: Path
) -> None:
    """Objects that have grown, segments and a partition that are new, each within the refresh interval."""
    logs, sink = tmp_path / "logs", Sink()
    ends = {0: 10}
    write(logs, "orders", 0, (record(number) for number in range(10)))
    upload(s3, logs, "growing")
    reader = spark.readStream.format("tidelog").options(subscribe="orders", startingOffsets="earliest", **storage)
    frame = reader.option("refreshInterval", "100ms").load(f"s3a://{BUCKET}/growing").select("partition", "offset")
    checkpoint = tmp_path / "checkpoint"
    query = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", str(checkpoint)).start()

    def wait(deadline: float) -> None:
        expected = [(partition, offset) for partition, end in ends.items() for offset in range(end)]
        while sink.rows != expected:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"{len(sink.rows)} rows of {len(expected)}"
            time.sleep(0.05)  # between two looks

    try:
        wait(time.monotonic() + DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        for partition, known, end in CHANGES:
            write(logs, "orders", partition, (record(number) for number in range(known, end)), segment_bytes=2_000)
            upload(s3, logs, "growing")
            ends[partition] = end
            wait(deadline)
    finally:
        query.stop()
    assert logged(checkpoint)[-1] == {"orders": {"0": 95, "1": 9}}


def test_jobs_check_and_compare_a_backup_where_it_is(
    spark: SparkSession, root: Path, s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver and workers find the store by their environment, as commands do."""
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{s3['endpoint_override']}",
        "AWS_ACCESS_KEY_ID": s3["access_key"],
        "AWS_SECRET_ACCESS_KEY": s3["secret_key"],
        "AWS_DEFAULT_REGION": s3["region"],
    }.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    address = f"s3://{BUCKET}/fixed"
    found, expected = verify(spark, address), check(str(root))
    assert found.is_clean
    assert (found.counts, found.bytes) == (expected.counts, expected.bytes)
    assert diff(spark, address, str(root)).is_equal
