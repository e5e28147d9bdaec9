"""What `df.write.format("tidelog")` writes: real segments, that everybody reads back as they were given."""

import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelog
from tidelog.columns import partition_for_keys
from tidelog.fsck import Severity, check
from tidelog.log import UnifiedLog
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.partition_metadata import parse_uuid
from tidelog.records import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=datetime.UTC)
TIME_MS = 1_700_000_000_123
HEADERS = "array<struct<key:string,value:binary>>"
SCHEMA = f"key binary, value binary, partition int, headers {HEADERS}, timestamp timestamp"


def save(frame: "DataFrame", root: Path, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("tidelog").mode(mode)
    for name, value in {"topic": "orders", **options}.items():
        if value is not None:
            writer = writer.option(name.replace("__", "."), value)
    writer.save(str(root))


def numbered(spark: "SparkSession", rows: int, tasks: int = 2) -> "DataFrame":
    return spark.range(0, rows, 1, tasks).selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value")


def records(root: Path, topic: str = "orders") -> dict[int, list[Record]]:
    return {part.partition: list(part.read()) for part in tidelog.open(str(root))[topic]}


def values(root: Path, topic: str = "orders") -> dict[int, list[bytes | None]]:
    return {number: [record.value for record in found] for number, found in records(root, topic).items()}


def ensure_sound(root: Path) -> None:
    """fsck finds nothing wrong, and nothing is left of what was staged."""
    for deep in (False, True):
        findings = check(str(root), deep=deep).findings
        assert [finding for finding in findings if finding.severity is not Severity.INFO] == []
    assert not [name for name in os.listdir(root) if name.endswith("-delete") or "journal" in name or name == ".lock"]


# -- what is written ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_come_back_as_they_were(spark: "SparkSession", tmp_path: Path, codec: str) -> None:
    header = [("name", b"\xff"), ("name", None), ("", b"")]
    rows: list[tuple[Any, ...]] = [
        (b"k1", b"v1", 0, header, TIME),
        (None, b"\x00" * 300, 1, None, TIME),
        (b"", None, 0, [], TIME),
        (b"k2", b"", 0, None, TIME + datetime.timedelta(days=-3)),
    ]
    save(spark.createDataFrame(rows, SCHEMA).coalesce(1), tmp_path, partitions=3, compression=codec)
    found = records(tmp_path)
    assert [[(r.offset, r.key, r.value) for r in found[number]] for number in range(3)] == [
        [(0, b"k1", b"v1"), (1, b"", None), (2, b"k2", b"")],
        [(0, None, b"\x00" * 300)],
        [],
    ]
    assert [(h.key, h.value) for h in found[0][0].headers] == header
    assert [r.timestamp_ms for r in found[0]] == [TIME_MS, TIME_MS, TIME_MS - 3 * 86_400_000]
    assert {b.codec.name.lower() for part in tidelog.open(str(tmp_path)) for b in part.batches()} == {codec}
    ensure_sound(tmp_path)


def test_keys_choose_as_kafkas_producers_do_and_rows_keep_their_order(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 5000, tasks=4), tmp_path, partitions=5)
    keys = [b"%d" % (number % 7) for number in range(5000)]
    wanted: dict[int, list[bytes]] = {number: [] for number in range(5)}
    for number, place in enumerate(partition_for_keys(pa.array(keys), 5).to_pylist()):
        wanted[place].append(b"%d" % number)
    assert values(tmp_path) == wanted
    ensure_sound(tmp_path)


def test_a_second_write_goes_behind_the_first_and_the_topic_keeps_its_id(spark: "SparkSession", tmp_path: Path) -> None:
    topic_id = "OimrddjSTw20XAh5VnF0_A"
    save(numbered(spark, 10, 1), tmp_path, partitions=2, topicId=topic_id)
    save(numbered(spark, 20, 2), tmp_path)
    assert sorted(int(v or b"") for each in values(tmp_path).values() for v in each) == sorted([*range(10), *range(20)])
    assert {part.topic_id for part in tidelog.open(str(tmp_path))} == {parse_uuid(topic_id)}
    assert [[r.offset for r in found] for found in records(tmp_path).values()] == [
        list(range(len(found))) for found in records(tmp_path).values()
    ]
    assert [part.high_watermark for part in tidelog.open(str(tmp_path))] == [
        part.log_end_offset for part in tidelog.open(str(tmp_path))
    ]
    with pytest.raises(Exception, match="has another id already"):
        save(numbered(spark, 1), tmp_path, topicId="AAAAAAAAAAAAAAAAAAAAAQ")
    ensure_sound(tmp_path)


def test_segments_roll_at_their_size(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 3000, 3), tmp_path, segment__bytes="10k", batch__bytes="1k", index__interval__bytes="1k")
    (part,) = tidelog.open(str(tmp_path))
    sizes = [segment.size for segment in part.segments]
    assert len(sizes) == 4
    assert all(9 << 10 <= size <= 10 << 10 for size in sizes[:-1])
    assert all(os.path.getsize(path) for path in tmp_path.glob("orders-0/*.index"))
    ensure_sound(tmp_path)


def test_rows_without_a_key_go_to_all_partitions_and_get_the_time_of_writing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    before = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    save(spark.range(0, 900, 1, 3).selectExpr("cast(id as string) as value"), tmp_path, partitions=4)
    found = records(tmp_path)
    assert sorted(int(r.value or b"") for each in found.values() for r in each) == list(range(900))
    assert all(len(each) >= 200 for each in found.values())
    for each in found.values():
        numbers = [int(r.value or b"") for r in each]
        assert numbers == sorted(numbers)  # tasks of a range are in its order
        assert all(before - 1 <= r.timestamp_ms <= before + 600_000 for r in each)


def test_a_column_names_the_topic_and_the_option_wins(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.range(0, 300, 1, 2).selectExpr("concat('t', id % 3) as topic", "cast(id as string) as value")
    save(frame, tmp_path, topic=None, partitions=2)
    for number in range(3):
        found = values(tmp_path, f"t{number}")
        assert sorted(found) == [0, 1]
        assert sorted(int(value or b"") for each in found.values() for value in each) == list(range(number, 300, 3))
    save(frame, tmp_path, topic="one")
    assert len(values(tmp_path, "one")[0]) == 300
    ensure_sound(tmp_path)


def test_what_was_read_can_be_written(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 100), tmp_path / "a", partitions=3)
    read = spark.read.format("tidelog").option("includeHeaders", True).load(str(tmp_path / "a"))
    save(read, tmp_path / "b", topic=None, partitions=3)
    assert [(r.key, r.value, r.timestamp_ms) for each in records(tmp_path / "a").values() for r in each] == [
        (r.key, r.value, r.timestamp_ms) for each in records(tmp_path / "b").values() for r in each
    ]


def test_no_rows_make_an_empty_topic(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 0), tmp_path, partitions=3)
    assert values(tmp_path) == {0: [], 1: [], 2: []}
    save(numbered(spark, 0), tmp_path)
    ensure_sound(tmp_path)


def test_overwrite_replaces_the_topic_if_it_is_said_twice(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 100), tmp_path, partitions=3)
    save(numbered(spark, 10), tmp_path, topic="other")
    before = {part.topic: part.topic_id for part in tidelog.open(str(tmp_path))}
    with pytest.raises(Exception, match="overwriteTopic=true"):
        save(numbered(spark, 5), tmp_path, mode="overwrite")
    assert sum(map(len, values(tmp_path).values())) == 100
    save(numbered(spark, 5), tmp_path, mode="overwrite", overwriteTopic=True)
    found = records(tmp_path)
    assert sorted(found) == [0, 1, 2]
    assert sorted(int(r.value or b"") for each in found.values() for r in each) == list(range(5))
    save(numbered(spark, 4), tmp_path, mode="overwrite", overwriteTopic=True, partitions=1)
    assert values(tmp_path) == {0: [b"0", b"1", b"2", b"3"]}
    assert {part.topic: part.topic_id for part in tidelog.open(str(tmp_path))} == before
    assert len(values(tmp_path, "other")[0]) == 10
    ensure_sound(tmp_path)


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_spark_refuses_the_other_modes(spark: "SparkSession", tmp_path: Path, mode: str) -> None:
    with pytest.raises(Exception, match="Please use either the .Append. or .Overwrite. mode"):
        save(numbered(spark, 5), tmp_path, mode=mode)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["id as value"], {}, "column 'value' is binary or string, not bigint"),
        (["'v' as value", "id as partition"], {}, "column 'partition' is int, not bigint"),
        (["'v' as value", "array('a') as headers"], {}, "column 'headers' is array<struct<key:string,value:binary>>"),
        (["'v' as value", "id", "1 as amount"], {}, "cannot be stored: id, amount; a record has key binary or string"),
        (["'k' as key"], {}, "required column 'value' is missing"),
        (["'v' as value"], {"topic": None}, "no topic: set the option topic, or have a column 'topic'"),
        (["'v' as value", "'w' as VALUE"], {}, "(?i)two columns 'value'|COLUMN_ALREADY_EXISTS|ambiguous"),
        (["'v' as value"], {"topic": "a/b"}, "topic names are made of"),
        (["'v' as value"], {"topic": "__consumer_offsets"}, "a topic of Kafka's own"),
        (["'v' as value"], {"compression": "brotli"}, "brotli"),
        (["'v' as value"], {"partitions": "4294967296"}, "a topic gets 1000000 at most"),
        (["'v' as value"], {"topicId": "A" * 22}, "topicId is zero"),
        (["'v' as value"], {"segment__bytes": "many"}, "segment.bytes is a size"),
        (["'v' as value"], {"segmentbytes": "1m"}, "do you mean 'segment.bytes'"),
        (["'v' as value"], {"subscribe": "a"}, "'subscribe' has no meaning for a write"),
        (
            ["'v' as value", "'a' as topic"],
            {"topic": None, "topicId": "OimrddjSTw20XAh5VnF0_A"},
            "name it by the option",
        ),
    ],
)
def test_what_cannot_be_written_fails_on_the_driver(
    spark: "SparkSession", tmp_path: Path, columns: list[str], options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        save(spark.range(3).selectExpr(*columns), tmp_path / "root", **options)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["'v' as value", "2 as partition"], {"partitions": 2}, "names partition 2 of orders, which has 2 of them"),
        (["'v' as value", "-1 as partition"], {}, "names partition -1 of orders"),
        (["'v' as value", "cast(null as string) as topic"], {"topic": None}, "a row whose topic is null"),
        (["repeat('v', 70000) as value"], {"max__message__bytes": "64k"}, "the option max.message.bytes allows more"),
        (["repeat('v', 70000) as value"], {"segment__bytes": "64k"}, "the option segment.bytes allows more"),
        (["'v' as value", "'__consumer_offsets' as topic"], {"topic": None}, "a topic of Kafka's own"),
        (["'v' as value", "timestamp'1960-01-01' as timestamp"], {}, "a record has a time >= 0"),
    ],
)
def test_rows_that_cannot_be_written_leave_nothing(
    spark: "SparkSession", tmp_path: Path, columns: list[str], options: dict[str, Any], words: str
) -> None:
    save(numbered(spark, 3), tmp_path, topic="there")
    with UnifiedLog.open(tmp_path / "__consumer_offsets-0"):
        pass  # as by a broker
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(Exception, match=words):
        save(spark.range(3).selectExpr(*columns).coalesce(1), tmp_path, **options)
    assert sorted(os.listdir(tmp_path)) == before


def test_partitions_are_for_new_topics(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 3), tmp_path, partitions=2)
    save(numbered(spark, 3), tmp_path, partitions=2)
    with pytest.raises(Exception, match="orders has 2 partitions already: partitions=3 is for a new topic"):
        save(numbered(spark, 3), tmp_path, partitions=3)


@pytest.mark.parametrize("path", ["s3://bucket/logs", "hdfs://host/logs", "s3a://bucket/logs"])
def test_an_address_is_refused(spark: "SparkSession", path: str) -> None:
    with pytest.raises(Exception, match="a write needs one that driver and executors share"):
        numbered(spark, 3).write.format("tidelog").option("topic", "orders").mode("append").save(path)


def test_a_root_that_is_held_or_was_not_closed_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 3), tmp_path)
    lock = LocalFileSystem().lock(str(tmp_path / ".lock"))
    with pytest.raises(Exception, match="a broker or another tidelog has .* open"):
        save(numbered(spark, 3), tmp_path, lockTimeout="10ms")
    lock.release()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with pytest.raises(Exception, match="was not closed in good order"):
        save(numbered(spark, 3), tmp_path)
    assert sum(map(len, values(tmp_path).values())) == 3


# -- attempts ----------------------------------------------------------------------------------------------------------


def failing_first(tasks: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows whose tasks fail at their first attempt, when all is given."""

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and context.partitionId() < tasks:
            raise RuntimeError("the first attempt fails")

    return give


def test_a_task_that_is_tried_again_writes_once(spark: "SparkSession", tmp_path: Path) -> None:
    frame = numbered(spark, 1000, 3).mapInArrow(failing_first(2), "key string, value string")
    save(frame, tmp_path, partitions=2)
    assert sorted(int(v or b"") for each in values(tmp_path).values() for v in each) == list(range(1000))
    ensure_sound(tmp_path)


def test_a_job_that_fails_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 2:
            raise RuntimeError("every attempt fails")

    save(numbered(spark, 10), tmp_path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(Exception, match="every attempt fails"):
        save(numbered(spark, 1000, 3).mapInArrow(fail, "key string, value string"), tmp_path)
    assert sorted(os.listdir(tmp_path)) == before
    assert sum(map(len, values(tmp_path).values())) == 10
    ensure_sound(tmp_path)
