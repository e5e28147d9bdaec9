"""`spark.read.format("tidelog")` on a real Spark: what it reads, and what it says where it cannot."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tidelog
from tests.golden.corpus import case
from tests.spark.logs import START_MS, record, write
from tidelog.log.batch_scan import scan_batches
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import Header
from tidelog.spark.row_schema import schema_of_columns
from tidelog.spark.source import batch_reader

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, one of two partitions in several segments."""
    place = tmp_path_factory.mktemp("logs")
    write(place, "orders", 0, (record(number) for number in range(200)), segment_bytes=2_000)
    write(place, "orders", 1, (record(number) for number in range(50)))
    write(place, "notes", 0, [record(0, headers=[Header("a", b"1"), Header("b", None)]), record(1)])
    return place


def load(spark: SparkSession, *paths: Path | str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("tidelog").options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load([str(path) for path in paths] if len(paths) != 1 else str(paths[0]))


def rows(frame: DataFrame, *columns: str) -> Rows:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def failure(frame_of: Any) -> str:
    """The words of an error that Spark gives."""
    with pytest.raises(PySparkException) as caught:
        frame_of().collect()
    return str(caught.value)


def test_spark_finds_the_source_by_itself_with_the_columns_of_its_own(spark: SparkSession, root: Path) -> None:
    frame = load(spark, root, subscribe="orders")
    assert frame.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"),
    ]  # fmt: skip
    assert rows(frame, "partition", "offset") == [(0, n) for n in range(200)] + [(1, n) for n in range(50)]
    [first] = frame.where("partition = 1 and offset = 12").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"key-5", b"value-12", "orders")
    assert int(first.timestamp.timestamp() * 1000) == START_MS + 250 * 12


def test_headers_are_there_when_asked_for(spark: SparkSession, root: Path) -> None:
    frame = load(spark, root, subscribe="notes", includeHeaders="true")
    [with_headers, without] = [row.headers for row in frame.orderBy("offset").collect()]
    assert [(each.key, each.value) for each in with_headers] == [("a", bytearray(b"1")), ("b", None)]
    assert without is None


def test_a_path_is_a_root_a_partition_a_pattern_or_several(spark: SparkSession, root: Path) -> None:
    assert load(spark, root / "orders-1").count() == 50
    assert load(spark, f"{root}/orders-*").count() == 250
    assert load(spark, root / "orders-1", root / "notes-0").count() == 52
    assert load(spark, f"{root}/orders-1,{root}/notes-0").count() == 52


def test_a_schema_reads_some_columns_in_any_order_and_case(spark: SparkSession, root: Path) -> None:
    frame = load(spark, root, schema="OFFSET bigint, Key string", subscribe="orders", startingOffsets="earliest")
    assert frame.columns == ["OFFSET", "Key"]
    assert ("key-3", 10) in {(row.Key, row.OFFSET) for row in frame.collect()}


def test_a_view_in_sql_reads_what_its_options_say(spark: SparkSession, root: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING tidelog OPTIONS (path '{root}', subscribe 'orders', "
        "columns 'offset, value string')"
    )
    assert spark.sql("SELECT value FROM orders WHERE offset = 44 ORDER BY value").collect()[0].value == "value-44"


def test_extra_columns_are_those_of_a_scan(spark: SparkSession) -> None:
    root = case("kafka-4.3/4-transactions") / "image"
    names = [
        "leaderEpoch",
        "producerId",
        "producerEpoch",
        "sequence",
        "isTransactional",
        "segment",
        "position",
        "codec",
    ]
    types = ["int", "bigint", "smallint", "int", "boolean", "bigint", "bigint", "string"]
    fields = zip(["topic", "partition", "offset", *names], ["string", "int", "bigint", *types], strict=True)
    schema = ", ".join(f"{name} {kind}" for name, kind in fields)
    logs = tidelog.open(root)
    topics = [topic for topic in logs.topics if not topic.startswith("__")]
    scanned = logs.scan(topics, columns=["topic", "partition", "offset", *names]).to_table().to_pylist()
    assert rows(load(spark, root, schema=schema), "*") == sorted(tuple(row.values()) for row in scanned)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_isolation_is_that_of_a_scan(spark: SparkSession, level: str) -> None:
    root = case("kafka-4.3/4-transactions") / "image"
    logs = tidelog.open(root)
    topics = [topic for topic in logs.topics if not topic.startswith("__")]
    scanned = logs.scan(topics, columns=["topic", "partition", "offset"], committed=level == "read_committed")
    expected = sorted(tuple(row.values()) for row in scanned.to_table().to_pylist())
    assert rows(load(spark, root, isolationLevel=level), "topic", "partition", "offset") == expected
    assert expected


def test_small_tasks_have_each_offset_once(spark: SparkSession, root: Path) -> None:
    for options, least in (({"bytesPerPartition": "1000"}, 9), ({"minPartitions": "9"}, 8),
                           ({"maxRecordsPerPartition": "30"}, 9)):  # fmt: skip
        frame = load(spark, root, subscribe="orders", **options)
        assert frame.rdd.getNumPartitions() >= least
        assert rows(frame, "partition", "offset") == [(0, n) for n in range(200)] + [(1, n) for n in range(50)]


def test_copies_of_a_partition_do_not_double_rows(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    copies = []
    for number, kept in enumerate((200, 120, 60)):
        write(tmp_path / str(number), "orders", 0, (record(each) for each in range(kept)), segment_bytes=2_000)
        copies.append(tmp_path / str(number))
    assert rows(load(spark, *copies, subscribe="orders"), "offset") == [(number,) for number in range(200)]
    assert load(spark, *copies, subscribe="orders", replica=str(copies[1])).count() == 120


def test_a_group_says_where_to_begin(spark: SparkSession, tmp_path: Path) -> None:
    """With what Kafka's own coordinator wrote and answered; a commit in a transaction that was aborted is not one."""
    golden = case("kafka-4.3/8-consumer-offsets")
    for directory in (golden / "image").glob("__consumer_offsets-*"):
        shutil.copytree(directory, tmp_path / directory.name)
    for partition in range(4):
        write(tmp_path, "orders", partition, (record(number) for number in range(20)))
    answers = json.loads((golden / "group-offsets.json").read_text(encoding="utf-8"))
    for group in ("classic-java", "next-gen"):
        frame = load(spark, tmp_path, subscribe="orders", startingOffsets=f"group:{group}")
        first = frame.groupBy("partition").min("offset").collect()
        known = {place: answer["offset"] for place, answer in answers[group].items()}
        assert {f"orders-{row[0]}": row[1] for row in first} == {f"orders-{n}": 0 for n in range(4)} | known
    assert "group 'nobody' has committed no offset" in failure(
        lambda: load(spark, tmp_path, subscribe="orders", startingOffsets="group:nobody")
    )


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(root: Path, tmp_path: Path) -> Path:
    """A flipped bit in the middle of a closed segment."""
    shutil.copytree(root, tmp_path / "logs")
    log = sorted((tmp_path / "logs" / "orders-0").glob("*.log"))[2]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    return tmp_path / "logs"


def test_damage_fails_the_task_with_the_place_and_what_to_run(spark: SparkSession, damaged: Path) -> None:
    words = failure(lambda: load(spark, damaged, subscribe="orders"))
    assert ".log, position " in words or "position" in words
    assert f"tidelog fsck --deep {damaged}/orders-0" in words
    assert "onCorruption=skip" in words


def test_damage_can_be_left_out_and_told_of_in_a_column(spark: SparkSession, damaged: Path) -> None:
    frame = load(spark, damaged, schema="topic string, partition int, offset bigint, corruption string",
                 subscribe="orders", onCorruption="skip")  # fmt: skip
    found = frame.collect()
    told = [row for row in found if row.corruption is not None]
    left = {row.offset for row in found if row.partition == 0 and row.corruption is None}
    assert len(told) == 1
    assert (told[0].topic, told[0].partition, told[0].offset) == ("orders", 0, None)
    assert str(damaged) in told[0].corruption
    assert len(left) == 195
    assert sorted(set(range(200)) - left) == list(range(min(set(range(200)) - left), min(set(range(200)) - left) + 5))


def test_a_frame_whose_segments_were_deleted_since_it_was_planned_fails_or_has_the_rest(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "logs")
    options = {"subscribe": "orders", "bytesPerPartition": "1000"}
    strict, lenient = (load(spark, tmp_path / "logs", failOnDataLoss=each, **options) for each in ("true", "false"))
    assert strict.count() == lenient.count() == 250
    logs = sorted((tmp_path / "logs" / "orders-0").glob("*.log"))
    start = int(logs[2].stem)
    for path in (tmp_path / "logs" / "orders-0").glob("*"):
        if path.stem.isdecimal() and int(path.stem) < start:
            path.unlink()
    words = failure(lambda: strict.select("offset"))
    assert "of orders-0 are gone since they were planned; failOnDataLoss=false reads what is left" in words
    assert rows(lenient.where("partition = 0"), "offset") == [(number,) for number in range(start, 200)]


# -- the reader alone --------------------------------------------------------------------------------------------------


def read_alone(root: Path, columns: str = "offset", **options: str) -> list[dict[str, Any]]:
    """Rows in the order of tasks, each of them sent to a worker and back."""
    reader = batch_reader({"path": str(root), "subscribe": "orders", **options}, schema_of_columns(columns))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def test_a_torn_end_is_warned_of(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(root, tmp_path / "logs")
    path = max((tmp_path / "logs" / "orders-0").glob("*.log"))
    os.truncate(path, path.stat().st_size - 3)
    assert read_alone(root)
    assert not caplog.text
    last = len(read_alone(tmp_path / "logs"))
    assert last < len(read_alone(root))
    assert f"{path}, position " in caplog.text
    assert "bytes are left out, which held offset 195 and what follows it" in caplog.text
    caplog.clear()
    read_alone(tmp_path / "logs", endingOffsets='{"orders": {"0": 100, "1": -1}}')
    assert not caplog.text


@pytest.mark.parametrize(("byte", "behind"), [(8, 85), (100, 90)])  # its length, which the next one proves; a record
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": "80"},
        {"maxRecordsPerPartition": "2"},
        {"bytesPerPartition": "400"},
        {"bytesPerPartition": "400", "minPartitions": "200"},
    ],
)
def test_a_damaged_batch_is_one_row_however_the_tasks_are_cut(
    root: Path, tmp_path: Path, byte: int, behind: int, options: dict[str, str]
) -> None:
    shutil.copytree(root, tmp_path / "logs")
    directory = tmp_path / "logs" / "orders-0"
    log, position = next(
        (log, each.position)
        for log in sorted(directory.glob("*.log"))
        for each in scan_batches(LocalFileSystem().open(str(log)), 0, log.stat().st_size)
        if each.base_offset == 85
    )
    content = bytearray(log.read_bytes())
    content[position + byte] ^= 1
    log.write_bytes(content)
    found = read_alone(tmp_path / "logs", "partition, offset, corruption", onCorruption="skip", **options)
    [told] = [row["corruption"] for row in found if row["corruption"] is not None]
    left = sorted(row["offset"] for row in found if row["partition"] == 0 and row["corruption"] is None)
    assert f"{log}, position {position}: " in told
    wanted = f"and offsets 85 to {behind - 1} with them" if behind > 85 else "its checksum holds, and it is read"
    assert wanted in told
    assert left == [number for number in range(200) if not 85 <= number < behind]
    inside = {"startingOffsets": '{"orders":{"0":87,"1":0}}', "onCorruption": "skip", **options}
    told_inside = [row for row in read_alone(tmp_path / "logs", "offset, corruption", **inside) if row["corruption"]]
    assert len(told_inside) == 1  # nobody has read what lies before


# -- what is refused, on the driver ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"subscribes": "orders"}, None, "unknown option 'subscribes'; do you mean 'subscribe'?"),
        ({}, "ofset bigint", "no column 'ofset'; there are key binary, value binary, topic string"),
        ({}, "offset int", "column 'offset' is bigint, not int"),
        ({"columns": "offset, key bigint"}, None, "column 'key' is binary or string, not bigint"),
        ({"startingOffsets": "latest"}, None, "startingOffsets can be latest in a stream only"),
        ({"onCorruption": "ignore"}, None, "onCorruption is fail or skip, not 'ignore'"),
    ],
)
def test_what_cannot_be_is_refused(
    spark: SparkSession, root: Path, options: dict[str, str], schema: str | None, words: str
) -> None:
    assert words in failure(lambda: load(spark, root, schema=schema, **options))


def test_no_path_is_refused_with_what_works(spark: SparkSession) -> None:
    assert "CREATE TEMPORARY VIEW" in failure(lambda: spark.read.format("tidelog").load())


def test_bytes_that_are_no_text_are_refused_or_replaced(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "texts", 0, [record(0), record(1, value=b"\xff\x00"), record(2)])
    schema = "offset bigint, value string"
    told = failure(lambda: load(spark, tmp_path, schema=schema))
    assert "texts-0: the value at offset 1 is not UTF-8" in told
    assert "fsck" not in told  # nothing is damaged
    assert "texts-0: the value at offset 1 is" in failure(lambda: load(spark, tmp_path, schema="value string"))
    nulled = rows(load(spark, tmp_path, schema=schema, invalidUtf8="null"), "offset", "value")
    assert nulled == [(0, "value-0"), (1, None), (2, "value-2")]
    replaced = rows(load(spark, tmp_path, schema=schema, invalidUtf8="replace"), "offset", "value")
    assert replaced == [(0, "value-0"), (1, "\ufffd\x00"), (2, "value-2")]


def test_a_frame_is_a_snapshot_of_its_load(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "grows", 0, [record(number) for number in range(10)])
    frame = load(spark, tmp_path)
    assert frame.count() == 10
    write(tmp_path, "grows", 0, [record(number) for number in range(10, 15)])
    assert frame.count() == 10
    assert load(spark, tmp_path).count() == 15
