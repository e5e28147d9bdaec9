"""What was exported and loaded gives the same records, whatever bytes they hold; hostile files are refused in words."""

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

import tidelog
from tests.golden import corpus
from tests.log.logs import NOW
from tests.property.strategies import fields, headers
from tests.view.scans import some, write_log
from tidelog.errors import InvalidRequestError, StorageError, TidelogError
from tidelog.log import ManualClock
from tidelog.records import Codec, Header, NewRecord
from tidelog.tables.export import export_table
from tidelog.tables.load import load_table
from tidelog.tables.reading import read_table, table_files
from tidelog.tables.redaction import Redaction
from tidelog.tables.text import bytes_of_csv, bytes_of_json, csv_text, json_value, line_text

FORMATS = ["parquet", "csv", "jsonl", "arrow"]


def exported(root: Path, topic: str, format: Any, target: Path, **options: Any) -> Path:
    scan = tidelog.open(str(root)).scan(topic)
    path = target / f"{topic}.{format}"
    done = export_table(scan, scan.schema, str(path), format, **options)
    assert (done.rows, done.size) == (scan.count(), path.stat().st_size)
    return path


def contents(root: Path, topic: str, partition: int) -> list[tuple[Any, ...]]:
    part = tidelog.open(str(root))[topic, partition]
    return [(r.key, r.value, r.timestamp_ms, r.headers) for r in part.read()]


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_exported_and_loaded_gives_the_same_records(format: str, tmp_path: Path) -> None:
    """Topics of real Kafka: nulls, binary, headers, unicode, times in disorder, all codecs."""
    golden = corpus.case("kafka-4.3/2-records") / "image"
    topics = ["rec-binary", "rec-headers", "rec-nulls", "rec-unicode", "rec-sizes", "rec-big"]
    for topic in topics:
        path = exported(golden, topic, format, tmp_path)
        load_table(
            read_table(str(path)),
            str(tmp_path / "root"),
            topic,
            clock=ManualClock(2 * NOW),
            compression="lz4",
            configs={"max.message.bytes": "20000000"},
        )
        assert contents(tmp_path / "root", topic, 0) == contents(golden, topic, 0), topic


rows = st.lists(st.builds(NewRecord, fields, fields, st.integers(-1, 2**41), st.just(()) | headers), max_size=12)


@settings(max_examples=25, deadline=None)
@given(rows=rows)
@pytest.mark.parametrize("format", FORMATS)
def test_any_bytes_come_back_from_a_file(
    format: Any, rows: list[NewRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("any")
    write_log(home, [("put", Codec.NONE, [row]) for row in rows] or [("put", Codec.NONE, some(1))],
              message_timestamp_after_max_ms=2**62)  # fmt: skip
    path = exported(home, "topic", format, home)
    back = pa.Table.from_batches(read_table(str(path)))
    scan = tidelog.open(str(home)).scan("topic", columns=["key", "value", "headers"])
    assert back.select(["key", "value", "headers"]).to_pylist() == scan.to_table().to_pylist()


@given(st.none() | st.binary(max_size=20) | st.text(max_size=9).map(lambda text: b"base64:" + text.encode()))
def test_bytes_are_text_without_loss(data: bytes | None) -> None:
    assert bytes_of_csv(csv_text(data)) == data
    assert bytes_of_json(json.loads(json.dumps(json_value(data)))) == data
    line = line_text(data)
    assert line.isprintable() or not any(ord(mark) < 32 for mark in line)
    assert (line == "\\N") == (data is None)


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    write_log(tmp_path, [("put", Codec.NONE, some(3))])
    table = parquet.read_table(exported(tmp_path, "topic", "parquet", tmp_path, compression="snappy"))
    assert table.column("offset").to_pylist() == [0, 1, 2]
    assert csv.read_csv(exported(tmp_path, "topic", "csv", tmp_path)).column("timestamp").to_pylist() == [
        NOW,
        NOW + 1,
        NOW + 2,
    ]
    lines = exported(tmp_path, "topic", "jsonl", tmp_path).read_text().splitlines()
    assert json.loads(lines[0]) == {
        "key": "k", "value": "value 0", "topic": "topic", "partition": 0, "offset": 0, "timestamp": NOW,
        "timestampType": 0, "headers": None,
    }  # fmt: skip
    assert pa.ipc.open_file(exported(tmp_path, "topic", "arrow", tmp_path)).read_all().num_rows == 3


def test_a_file_that_is_there_is_kept_and_a_failed_one_leaves_no_trace(tmp_path: Path) -> None:
    schema = pa.schema({"key": pa.binary()})
    there = tmp_path / "a.csv"
    there.write_text("mine")
    with pytest.raises(InvalidRequestError, match="--force"):
        export_table([], schema, str(there), "csv")

    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"key": [b"x"]})
        raise StorageError("the disk says no")

    with pytest.raises(StorageError, match="says no"):
        export_table(failing(), schema, str(there), "csv", force=True)
    assert there.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    export_table([], schema, str(there), "csv", force=True)
    assert there.read_text() == '"key"\n'
    with pytest.raises(InvalidRequestError, match="is no directory"):
        export_table([], schema, str(tmp_path / "no" / "b.csv"), "csv")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.parquet", b"PAR1 no", "cannot be read as parquet"),
        ("a.arrow", b"ARROW1 no", "cannot be read as arrow"),
        ("a.arrow", b"\xff\xff\xff\xff\x10\x00\x00\x7f", "cannot be read as arrow"),
        ("a.csv", b"keys,value\n1,2\n", "column 'keys'"),
        ("a.csv", b"key,key\n1,2\n", "two columns"),
        ("a.csv", b"partition\n1\n", "none of a record's columns"),
        ("a.csv", b"key,timestamp\n1,yesterday\n", "'timestamp' holds milliseconds"),
        ("a.csv", b"key,partition\n1,x\n", "'partition' holds a number"),
        ("a.csv", b"key,value\n1\n", "cannot be read as csv"),
        ("a.csv", b"key\nbase64:%%%\n", "no base64"),
        ("a.csv", b"key,headers\n1,[1]\n", "headers"),
        ("a.csv", b"key,headers\n1," + b"[" * 100_000 + b"\n", "headers .* are not JSON"),
        ("a.csv", b"\xff\xfe\n", "heading"),
        ("a.jsonl", b'{"key": "a"}\n{"key": 1}\n', "line 2: '1': bytes are"),
        ("a.jsonl", b'{"key": "a"\n', "line 1: not JSON"),
        ("a.jsonl", b"[1]\n", "JSON object"),
        ("a.jsonl", b'{"key": "a", "timestamp": 1.5}\n', "'timestamp'"),
        ("a.jsonl", b'{"key": "a", "partition": 99999999999}\n', "'partition'"),
        ("a.jsonl", b'{"key": "a", "headers": [{"key": 1}]}\n', "'headers'"),
        ("a.jsonl", b"[" * 100_000, "not JSON"),
        ("a.jsonl", b'{"headers": ' + b'{"a": ' * 100_000, "line 1: not JSON"),
        ("a.jsonl", b'{"value": "\\ud800"}\n', "line 1: .*ud800' is no text"),
        ("a.jsonl", b'{"key": "a", "headers": [{"key": "\\ud800"}]}\n', "line 1: .*'headers'"),
        ("a.jsonl", b'{"key": "a", "timestamp": "\\ud800"}\n', "'timestamp'"),
        ("a.csv", b'key,headers\n1,"[{""key"": ""\\ud800""}]"\n', "'headers'"),
        ("a.txt", b"", "name does not show"),
    ],
)
def test_a_file_that_is_no_table_of_records_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TidelogError, match=reason) as error:
        list(read_table(str(path)))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("end", [5, 5_000, 300_000, 1 << 30, -1])
def test_offsets_of_an_arrow_file_that_leave_its_data_are_rejected(tmp_path: Path, end: int) -> None:
    """The length of a value was believed once, and the memory of the process became a record."""
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema({"value": pa.binary()})) as writer:
        writer.write_batch(pa.record_batch({"value": [b"abcd"]}))
    content, good = sink.getvalue(), struct.pack("<ii", 0, 4)
    place = content.rfind(good, 0, content.find(b"abcd"))
    path = tmp_path / "a.arrow"
    path.write_bytes(content[:place] + struct.pack("<ii", 0, end) + content[place + 8 :])
    with pytest.raises(InvalidRequestError, match="column 'value' is damaged") as error:
        list(read_table(str(path)))
    assert str(path) in str(error.value)


def test_what_people_write_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('key,timestamp,value\na,2026-11-01T08:00:00Z,\n,,""\n')
    [batch] = read_table(str(path))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_793_520_000_000, None]
    assert (batch.column("key").to_pylist(), batch.column("value").to_pylist()) == ([b"a", None], [None, b""])
    path = tmp_path / "a.jsonl"
    path.write_text('{"value": "x", "timestamp": "2026-11-01T08:00:00Z"}\n\n{"key": "k"}\n')
    [batch] = read_table(str(path))
    assert batch.column("value").to_pylist() == [b"x", None]
    assert table_files(str(tmp_path)) == [str(tmp_path / "a.csv"), str(path)]


def test_an_empty_line_is_a_row_where_there_is_one_column_and_none_where_there_are_two(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('value\n\na\n\n""\n\n')
    [batch] = read_table(str(path))
    assert batch.column("value").to_pylist() == [None, b"a", None, b"", None]
    path.write_text("key,value\n\na,b\n\n")
    [batch] = read_table(str(path))
    assert batch.num_rows == 1


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("column", ["key", "value", "headers", "timestamp"])
def test_every_column_comes_back_alone(tmp_path: Path, format: Any, column: str) -> None:
    some_rows = [
        NewRecord(None, None, NOW), NewRecord(b"", b"", -1), NewRecord(b"k", b"v\n\n", NOW, (Header("h", None),)),
        NewRecord(b"\xff", b"\xff", NOW), NewRecord(None, None, NOW + 1), NewRecord(b"a", b"", NOW),
        NewRecord(None, None, -1),
    ]  # fmt: skip
    write_log(tmp_path, [("put", Codec.NONE, some_rows)])
    scan = tidelog.open(str(tmp_path)).scan("topic", columns=[column])
    path = tmp_path / f"out.{format}"
    export_table(scan, scan.schema, str(path), format)
    back = pa.Table.from_batches(read_table(str(path))).column(column)
    if column == "timestamp":
        back = back.cast(pa.timestamp("ms", "UTC"))
    assert back.to_pylist() == scan.to_table().column(column).to_pylist()


def test_redacted_bytes_keep_their_length_and_tell_apart() -> None:
    batch = pa.RecordBatch.from_pydict({"key": [b"a", b"a", b"b", None], "value": [b"1", b"2", b"3", b"4"]})
    marked = Redaction(["key"], b"salt").apply(batch)
    one, two, other, none = marked.column("key").to_pylist()
    assert one == two != other
    assert one.startswith(b"<1 bytes, ")
    assert none is None
    assert marked.column("value") == batch.column("value")
    assert Redaction(["key"], b"pepper").mark(b"a") != one
    with pytest.raises(InvalidRequestError, match="'offset' cannot be redacted"):
        Redaction(["offset"], b"salt")
