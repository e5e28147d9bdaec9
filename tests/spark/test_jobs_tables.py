"""`export` and `load`: records out to what Spark writes, tables in from what it reads."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelog
from tests.spark.commits import ADDED, commit_order, options_for, order_of
from tests.spark.logs import START_MS, record, write
from tests.view.scans import some, write_log
from tidelog.columns import partition_for_keys
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.fsck import check
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import Codec, Header, NewRecord
from tidelog.spark.jobs.export import CORRUPT, ExportWishes, export
from tidelog.spark.jobs.formats import OPTIONS_OF_FORMATS, format_of
from tidelog.spark.jobs.load import LoadWishes, load
from tidelog.tables.export import export_table
from tidelog.tables.formats import format_of as plain_format_of

VALUES = [b'{"a":1,"b":"x"}', b'{"a":"no number"}', b"no json", b"\xff\xfe", None, b"", b'{"b":"y","c":9}', b"[1]"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A topic of two partitions: numbers, and values of every kind."""
    place = tmp_path / "logs"
    write(place, "t", 0, [NewRecord(b"k%d" % n, value, START_MS + n, ()) for n, value in enumerate(VALUES)])
    write(place, "t", 1, (record(number) for number in range(40)))
    return place


def exported(spark: SparkSession, root: Path, **wishes: Any) -> tuple[Any, list[Any]]:
    target = str(root.parent / "out")
    done = export(spark, [str(root)], target, ExportWishes(**wishes))
    rows = spark.read.format(wishes.get("form", "parquet")).load(target)
    return done, rows.where("partition = 0").orderBy("offset").collect()


# -- export --------------------------------------------------------------------------------------------------------


def test_records_are_exported_as_they_are(spark: SparkSession, root: Path) -> None:
    done, rows = exported(spark, root)
    assert (done.records, done.corrupt) == (48, 0)
    assert [None if row.value is None else bytes(row.value) for row in rows] == VALUES
    assert [row.offset for row in rows] == list(range(len(VALUES)))


def test_only_committed_records_are_exported_unless_asked_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    steps = [
        ("put", Codec.NONE, some(2)),
        ("txn", 1, some(3)),
        ("end", 1, False),
        ("txn", 2, some(1)),
        ("end", 2, True),
    ]
    write_log(tmp_path / "logs", steps, "t-0")
    done, rows = exported(spark, tmp_path / "logs")
    assert (done.records, [row.offset for row in rows]) == (3, [0, 1, 6])
    done, _ = exported(spark, tmp_path / "logs", reading={"isolationLevel": "read_uncommitted"}, mode="overwrite")
    assert done.records == 6


def test_values_as_text_leave_what_is_none_in_a_column_of_its_own(spark: SparkSession, root: Path) -> None:
    done, rows = exported(spark, root, value="string", key="string")
    assert done.corrupt == 1
    assert [row.key for row in rows] == [f"k{number}" for number in range(len(VALUES))]
    assert rows[0].value == '{"a":1,"b":"x"}'
    assert rows[3].value is None
    assert rows[3][CORRUPT] == "\ufffd\ufffd"
    assert [row[CORRUPT] for row in rows if row.offset != 3] == [None] * 7


def test_values_as_json_are_columns_and_what_does_not_fit_is_kept(spark: SparkSession, root: Path) -> None:
    done, rows = exported(spark, root, value="json", schema="a INT, b STRING", reading={"assign": '{"t":[0]}'})
    assert [row.value and tuple(row.value) for row in rows] == [
        (1, "x"), None, None, None, None, None, (None, "y"), None,
    ]  # fmt: skip
    assert [row[CORRUPT] for row in rows] == [
        None, '{"a":"no number"}', "no json", "\ufffd\ufffd", None, "", None, "[1]",
    ]  # fmt: skip
    assert (done.records, done.corrupt) == (8, 5)


def test_a_second_run_with_a_checkpoint_adds_what_is_new(spark: SparkSession, root: Path) -> None:
    wishes: dict[str, Any] = {"checkpoint": str(root.parent / "checkpoint"), "value": "string"}
    done, _ = exported(spark, root, **wishes)
    assert (done.records, done.corrupt) == (48, 1)
    done, _ = exported(spark, root, **wishes)
    assert done.records == 0
    write(root, "t", 1, (record(number) for number in range(40, 47)))
    write(root, "new", 0, (record(number) for number in range(3)))
    done, _ = exported(spark, root, **wishes)
    assert (done.records, done.corrupt) == (10, 0)
    rows = spark.read.parquet(str(root.parent / "out"))
    assert rows.count() == 58
    assert rows.select("topic", "partition", "offset").distinct().count() == 58


def test_other_formats_options_and_directories_pass_through(spark: SparkSession, root: Path) -> None:
    wishes: dict[str, Any] = {"form": "json", "value": "string", "options": {"compression": "gzip"}}
    exported(spark, root, **wishes, partition_by=["topic", "partition"])
    files = list((root.parent / "out").glob("topic=t/partition=1/*.json.gz"))
    assert files


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"value": "json"}, "need a schema"),
        ({"schema": "a INT"}, "--value json"),
        ({"form": "csv"}, "csv holds no bytes"),
        ({"checkpoint": "c", "mode": "overwrite"}, "has no meaning"),
        ({"form": "quark"}, "quark"),
        ({"value": "json", "schema": "a INT b"}, "Syntax error"),
        ({"reading": {"subscribe": "u"}}, "u"),
        ({"reading": {"startingOfsets": "earliest"}}, "startingOffsets"),
    ],
)
def test_what_cannot_be_is_one_sentence(spark: SparkSession, root: Path, wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        exported(spark, root, **wishes)
    assert "\n" not in str(caught.value)


def test_what_is_there_already_is_not_replaced(spark: SparkSession, root: Path) -> None:
    exported(spark, root)
    with pytest.raises(InvalidRequestError, match="already exists"):
        exported(spark, root)
    done, _ = exported(spark, root, mode="append")
    assert done.records == 48


@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"reading": {"columns": "offset, partition"}},
        {"reading": {"columns": "offset, partition, corruption"}},
        {"checkpoint": "checkpoint"},
    ],
)
def test_what_is_damaged_and_left_out_is_counted(spark: SparkSession, root: Path, wishes: dict[str, Any]) -> None:
    segment = min((root / "t-1").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[100] ^= 1  # in the first batch of five
    segment.write_bytes(data)
    if "checkpoint" in wishes:
        wishes = {"checkpoint": str(root.parent / wishes["checkpoint"])}
    wishes["reading"] = {"onCorruption": "skip", **wishes.get("reading", {})}
    done, _ = exported(spark, root, **wishes)
    assert (done.records, done.corrupt, done.damaged) == (43, 0, 1)
    columns = spark.read.parquet(done.target).columns
    assert "corruption" not in columns
    if "columns" in wishes["reading"]:
        assert columns == ["offset", "partition"]


# -- load ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        "array(named_struct('value', binary('v'), 'key', 'k'))",
        "array(named_struct('name', 'k', 'content', binary('v')))",
        "array(named_struct('key', 'k'))",
        "map('k', 'v')",
    ],
)
def test_headers_are_known_by_their_names(spark: SparkSession, tmp_path: Path, headers: str) -> None:
    source = str(tmp_path / "source")
    spark.sql(f"SELECT 'x' AS value, {headers} AS headers").write.parquet(source)
    with pytest.raises(InvalidRequestError, match="has no headers"):
        load(spark, source, str(tmp_path / "new"), "t", LoadWishes())


def records_of(root: Path, topic: str) -> dict[int, list[Any]]:
    return {
        part.partition: [(one.key, one.value, one.timestamp_ms, tuple(one.headers)) for one in part.read()]
        for part in tidelog.open(root)[topic]
    }


def test_what_was_exported_is_loaded_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "new"
    for partition in range(3):
        some = (record(number, headers=[Header("a", b"%d" % number)]) for number in range(50 * partition + 10))
        write(logs, "orders", partition, some)
    out = str(tmp_path / "out")
    export(spark, [str(logs)], out, ExportWishes(reading={"includeHeaders": "true", "minPartitions": "7"}))
    done = load(spark, out, str(target), "copy", LoadWishes(partitions=3, writing={"compression": "zstd"}))
    assert [(str(each.partition), each.first_offset, each.records) for each in done] == [
        ("copy-0", 0, 10), ("copy-1", 0, 60), ("copy-2", 0, 110),
    ]  # fmt: skip
    assert records_of(target, "copy") == records_of(logs, "orders")
    assert check(target).is_clean


def test_rows_without_a_partition_go_where_producers_put_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(200).selectExpr("id", "id * 2 AS twice", "timestamp_millis(id) AS at").write.json(str(tmp_path / "in"))
    wishes = LoadWishes(
        form="json",
        schema="id BIGINT, twice BIGINT, at TIMESTAMP",
        key="id",
        value="json",
        timestamp="at",
        partitions=4,
    )
    done = load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", wishes)
    assert sum(each.records for each in done) == 200
    found = records_of(tmp_path / "new", "rows")
    for partition, rows in found.items():
        assert set(partition_for_keys(pa.array([key for key, *_ in rows], pa.binary()), 4).to_pylist()) == {partition}
    key, value, time_ms, _ = found[0][0]
    assert value.startswith(b'{"id":%s,"twice":%d,"at":' % (key, 2 * int(key)))
    assert time_ms == int(key)


def test_rows_without_a_key_are_dealt_out(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(300).selectExpr("CAST(id AS STRING) AS value").write.parquet(str(tmp_path / "in"))
    done = load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", LoadWishes(partitions=3))
    assert [each.records for each in done] == [100, 100, 100]


def test_a_second_load_goes_on_behind_the_first(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).selectExpr("CAST(id AS STRING) AS value").coalesce(1).write.parquet(str(tmp_path / "in"))
    load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", LoadWishes())
    (again,) = load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", LoadWishes())
    assert (again.first_offset, again.next_offset) == (10, 20)
    values = [value for _, value, *_ in records_of(tmp_path / "new", "rows")[0]]
    assert values == [b"%d" % number for number in (*range(10), *range(10))]


class Failing(LocalFileSystem):
    """A disk on which two directories cannot be made."""

    def make_directory(self, path: str) -> None:
        if path.endswith(("/orders-1", "/orders-2")):
            raise StorageError(f"{path}: No space left on device")
        super().make_directory(path)


def test_a_write_that_was_interrupted_is_settled_before_partitions_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = str(tmp_path / "new")
    with pytest.raises(StorageError, match="the commit is decided"):
        commit_order(Failing(), order_of(Failing(), options_for(target)))
    assert [path.name for path in (tmp_path / "new").glob("orders-?")] == ["orders-0"]  # of three
    frame = spark.range(200).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame.write.parquet(str(tmp_path / "in"))
    done = load(spark, str(tmp_path / "in"), target, "orders", LoadWishes())
    assert [(each.partition.partition, each.first_offset) for each in done] == [
        (number, len(added)) for number, added in sorted(ADDED.items())
    ]
    assert sum(each.records for each in done) == 200
    for partition, rows in records_of(tmp_path / "new", "orders").items():
        keys = [key for key, *_ in rows[len(ADDED[partition]) :]]
        assert set(partition_for_keys(pa.array(keys, pa.binary()), 3).to_pylist()) == {partition}


@pytest.mark.parametrize("named", ["-1", "3"])
def test_a_partition_that_there_is_not_is_one_sentence(spark: SparkSession, tmp_path: Path, named: str) -> None:
    frame = spark.range(2).selectExpr("CAST(id AS STRING) AS value", f"IF(id = 0, {named}, NULL) AS partition")
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    with pytest.raises(InvalidRequestError, match=f"a row names partition {named} of rows, which has 3 of them"):
        load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", LoadWishes(partitions=3))
    assert not (tmp_path / "new").exists()  # it was made for nothing


def test_a_new_topic_gets_the_partitions_that_rows_name(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(6).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 3 AS INT) * 2 AS partition")
    frame.write.parquet(str(tmp_path / "in"))
    load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", LoadWishes())
    assert [each.partition for each in tidelog.open(tmp_path / "new")["rows"]] == [0, 1, 2, 3, 4]
    assert {number: len(rows) for number, rows in records_of(tmp_path / "new", "rows").items() if rows} == {
        0: 2, 2: 2, 4: 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    "time",
    ["1700000000123L", "'1700000000123'", "'2023-11-14T22:13:20.123Z'", "timestamp_millis(1700000000123)"],
    ids=["number", "number in text", "text", "timestamp"],
)
def test_a_time_is_the_same_however_it_is_written(spark: SparkSession, tmp_path: Path, time: str) -> None:
    spark.range(1).selectExpr("'v' AS value", f"{time} AS timestamp", f"{time} AS at").write.parquet(
        str(tmp_path / "in")
    )
    for name, wishes in (("plain", LoadWishes()), ("named", LoadWishes(timestamp="at"))):
        load(spark, str(tmp_path / "in"), str(tmp_path / name), "rows", wishes)
        [[(_, _, time_ms, _)]] = records_of(tmp_path / name, "rows").values()
        assert time_ms == 1_700_000_000_123


def test_what_is_no_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).selectExpr("'v' AS value", "1.5D AS timestamp").write.parquet(str(tmp_path / "in"))
    with pytest.raises(InvalidRequestError, match="a column of double is no time"):
        load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", LoadWishes())


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_the_plain_export_wrote_is_loaded_as_the_plain_load_does(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    headers = (Header("h", b"x"), Header("n", None))
    rows = [NewRecord(b"k%d" % n, b'say "%d", or\n not' % n, START_MS + n, headers) for n in range(5)]
    rows += [NewRecord(b"k", value, START_MS, headers) for value in (b"\xff\xfe\x00", b"base64:x", None)]
    for partition in range(2):
        write(tmp_path / "logs", "t", partition, rows)
    table = tmp_path / f"table.{form}"
    wanted = ["partition", "offset", "timestamp", "key", "value", "headers"]
    scan = tidelog.open(tmp_path / "logs").scan("t", columns=wanted)
    export_table(scan, scan.schema, str(table), plain_format_of(str(table)))
    assert format_of(str(table)) == ("json" if form == "jsonl" else "csv")
    options = OPTIONS_OF_FORMATS.get(format_of(str(table)), {})
    load(spark, str(table), str(tmp_path / "new"), "t", LoadWishes(form=format_of(str(table)), options=options))
    assert records_of(tmp_path / "new", "t") == records_of(tmp_path / "logs", "t")


def test_values_of_which_none_is_text_are_loaded_too(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"value": {"base64": "//4="}}\n', encoding="utf-8")
    load(spark, str(tmp_path / "in.json"), str(tmp_path / "new"), "t", LoadWishes(form="json"))
    [[(_, value, _, _)]] = records_of(tmp_path / "new", "t").values()
    assert value == b"\xff\xfe"


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (LoadWishes(), "no column 'value'; there are id"),
        (LoadWishes(key="idd", value="json"), "no column 'idd' for the key; there are id"),
        (LoadWishes(value="json", writing={"compression": "quark"}), "quark"),
    ],
)
def test_a_table_that_cannot_be_loaded_is_one_sentence(
    spark: SparkSession, tmp_path: Path, wishes: LoadWishes, words: str
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "in"))
    with pytest.raises(InvalidRequestError, match=words):
        load(spark, str(tmp_path / "in"), str(tmp_path / "new"), "rows", wishes)
    assert not (tmp_path / "new" / "rows-0").exists()
