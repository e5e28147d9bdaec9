"""`tidelog export`: a topic as files."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

import tidelog
from tests.golden import corpus
from tests.log.logs import NOW
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.records import Codec
from tidelog.tables.reading import read_table


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(3):
        steps = [("put", Codec.NONE, some(4, time=NOW + 1000 * number))] * (number + 1)
        write_log(tmp_path / "data", steps, f"orders-{number}")
    return tmp_path / "data"


def export(root: Path, target: Path | str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["export", str(root), "--topic", "orders", "--to", str(target), *arguments])


def exported(root: Path, target: Path | str, *arguments: str) -> list[dict[str, Any]]:
    done = export(root, target, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_file_holds_the_whole_topic(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "orders.parquet"
    done = exported(root, target)
    assert done == [{"path": str(target), "records": 24, "bytes": target.stat().st_size}]
    table = parquet.read_table(target)
    assert table.column("partition").to_pylist() == [0] * 4 + [1] * 8 + [2] * 12


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_pipe_gets_the_whole_topic(root: Path, tmp_path: Path, form: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    [done] = exported(root, pipe, "--format", form)
    reader.join(10)
    assert (done["records"], done["bytes"]) == (24, len(read[0]))


def test_the_first_interrupt_ends_an_export_into_a_pipe_that_nobody_reads(root: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    target = ["--to", f"{tmp_path}/pipe", "--format", "csv"]
    command = [sys.executable, "-m", "tidelog", "export", str(root), "--topic", "orders", *target]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    try:
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            time.sleep(2.5)  # until it waits; if it does not yet, it must end all the same
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(10) == 130
            finally:
                process.kill()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_directory_holds_a_file_for_each_partition(root: Path, tmp_path: Path) -> None:
    done = exported(root, f"{tmp_path}/out/", "--format", "jsonl", "--columns", "offset,segment")
    assert [(Path(file["path"]).name, file["records"]) for file in done] == [
        ("orders-0.jsonl", 4),
        ("orders-1.jsonl", 8),
        ("orders-2.jsonl", 12),
    ]
    assert (tmp_path / "out/orders-0.jsonl").read_text().splitlines()[-1] == '{"offset":3,"segment":0}'


def test_bounds_choose_what_is_exported(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "some.csv"
    [done] = exported(root, target, "--from", "2", "--until", f"{NOW + 1000}ms", "--partition", "0")
    assert done["records"] == 2
    [done] = exported(root, target, "--key", "nobody", "--force")
    assert done["records"] == 0


def test_bounds_that_leave_nothing_are_told_of(root: Path, tmp_path: Path) -> None:
    done = export(root, tmp_path / "none.csv", "--partition", "1", "--from", "1700000000500")
    assert done.exit_code == 0
    nothing, hint = done.stderr.splitlines()
    assert nothing == "tidelog: no records: the offsets are 0 to 7"
    assert "a time is written 1700000000500ms" in hint


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_what_is_exported_can_be_redacted(root: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"o.{form}"
    exported(root, target, "--redact", "value,key", "--salt", "s", "--columns", "offset,value")
    table = pa.Table.from_batches(read_table(str(target)))
    marks = table.column("value").to_pylist()
    assert all(mark.startswith(b"<7 bytes, ") for mark in marks)
    assert (len(marks), len(set(marks))) == (24, 4)


def test_what_is_exported_can_be_decoded(tmp_path: Path) -> None:
    [home] = {path.parent.parent for path in corpus.case("kafka-4.3/8-consumer-offsets").rglob("__consumer_off*/*.log")}

    def decoded(name: str, *arguments: str) -> Path:
        words = ["export", str(home), "--topic", "__consumer_offsets", "--to", f"{tmp_path}/{name}", "--decode"]
        done = CliRunner().invoke(cli, [*words, *arguments])
        assert done.exit_code == 0, done.output
        return tmp_path / name

    rows = [json.loads(line) for line in decoded("o.jsonl").read_text().splitlines()]
    assert {"OffsetCommit", "GroupMetadata"} <= {row["key"]["type"] for row in rows}
    table = parquet.read_table(decoded("o.parquet", "--columns", "value,partition"))
    assert table.schema.names == ["value", "partition"]
    assert [None if text is None else json.loads(text) for text in table.column("value").to_pylist()] == [
        row["value"] for row in rows
    ]


def test_damage_names_the_ways_on_and_leaves_no_file(root: Path, tmp_path: Path) -> None:
    log = root / "orders-1" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    done = export(root, tmp_path / "o.csv")
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1)
    assert f"--salvage leaves it out, `tidelog fsck {log.parent}` tells" in done.stderr
    assert not (tmp_path / "o.csv").exists()


def test_people_see_a_table(root: Path, tmp_path: Path) -> None:
    done = export(root, tmp_path / "o.arrow", "--compression", "zstd")
    assert done.exit_code == 0
    heading, line = done.stdout.splitlines()
    assert heading.split() == ["file", "records", "bytes"]
    assert line.split()[1] == "24"


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("there.csv", (), "--force"),
        ("o.txt", (), "name one of"),
        ("out/", (), "--format"),
        ("o.csv", ("--compression", "zstd"), "not compressed"),
        ("o.csv", ("--columns", "ofset"), "no column 'ofset'"),
        ("o.csv", ("--partition", "7"), "7"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    root: Path, tmp_path: Path, name: str, arguments: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = export(root, f"{tmp_path}/{name}", *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "there.csv").read_text() == "mine"


@pytest.mark.parametrize("command", [("export", "--to"), ("cat", "--out")])
def test_a_file_of_the_log_that_is_read_is_not_replaced(root: Path, tmp_path: Path, command: tuple[str, str]) -> None:
    log = root / "orders-1" / f"{0:020}.log"
    (tmp_path / "way.csv").symlink_to(log)
    before = log.read_bytes()
    name, option = command
    for target in (log, tmp_path / "way.csv"):
        form = ("--format", "csv") if name == "export" else ("-o", "csv")
        words = [name, str(root), "--topic", "orders", option, str(target), "--force", *form]
        done = CliRunner().invoke(cli, words)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "which is read: name a file elsewhere" in done.stderr
    assert log.read_bytes() == before


def test_a_torn_end_is_reported_and_what_is_before_it_is_exported(root: Path, tmp_path: Path) -> None:
    log = root / "orders-2" / f"{0:020}.log"
    os.truncate(log, log.stat().st_size - 3)
    for option in ((), ("--salvage", "--force")):
        done = export(root, tmp_path / "orders.parquet", *option)
        assert done.exit_code == 1
        assert f"{log}, position " in done.stderr
        assert "bytes are left out, which held offset 8 and what follows it" in done.stderr
        assert parquet.read_table(tmp_path / "orders.parquet").num_rows == 20


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    steps = [
        ("put", Codec.NONE, some(2)), ("txn", 1, some(3)), ("end", 1, False), ("txn", 2, some(1)), ("end", 2, True),
        ("txn", 3, some(4)), ("put", Codec.NONE, some(1)),
    ]  # fmt: skip
    write_log(tmp_path / "data", steps, "orders-0")
    return tmp_path / "data"


def test_only_committed_records_are_exported_and_the_others_reported(transactions: Path, tmp_path: Path) -> None:
    done = export(transactions, tmp_path / "a.csv")
    assert done.exit_code == 0
    told = "orders-0: left out: 1 aborted transaction and offsets 8 to 12, where a transaction is open"
    assert done.stderr == f"tidelog: {told}; --uncommitted includes them\n"
    assert [batch.num_rows for batch in read_table(str(tmp_path / "a.csv"))] == [3]
    assert export(transactions, tmp_path / "b.csv", "--committed").stderr == ""
    assert export(transactions, tmp_path / "b.csv", "--force", "--until", "2").stderr == ""


@pytest.mark.parametrize("option", ["--uncommitted", "--salvage"])
def test_uncommitted_records_are_exported_where_they_are_asked_for(
    transactions: Path, tmp_path: Path, option: str
) -> None:
    done = export(transactions, tmp_path / "a.csv", option, "--columns", "key,value")
    assert done.exit_code == 0
    assert "included: 3 records of transactions that were aborted and 4 records of" in done.stderr
    [rows] = read_table(str(tmp_path / "a.csv"))
    assert (rows.num_rows, rows.schema.names) == (11, ["key", "value"])


def test_what_was_exported_and_loaded_again_holds_no_aborted_record(transactions: Path, tmp_path: Path) -> None:
    export(transactions, tmp_path / "a.parquet")
    load = ["load", str(tmp_path / "a.parquet"), "--to", str(tmp_path / "new"), "--topic", "orders"]
    assert CliRunner().invoke(cli, load).exit_code == 0
    committed = tidelog.open(str(transactions))["orders", 0].read(committed=True)
    assert [record.value for record in tidelog.open(str(tmp_path / "new"))["orders", 0].read()] == [
        record.value for record in committed
    ]


@pytest.mark.parametrize("batches", [1, 5])
def test_without_checksums_a_damaged_last_batch_is_exported_too(tmp_path: Path, batches: int) -> None:
    write_log(tmp_path / "data", [("put", Codec.NONE, some(2))] * batches, "orders-0")
    damage_last_byte(tmp_path / "data")
    (tmp_path / "data" / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {2 * batches}\n")
    for way in ((), ("--committed",), ("--uncommitted",), ("--salvage",)):
        [done] = exported(tmp_path / "data", tmp_path / "out.jsonl", "--no-verify", "--force", *way)
        assert done["records"] == 2 * batches
    done = CliRunner().invoke(cli, ["cat", str(tmp_path / "data"), "--topic", "orders", "--no-verify"])
    assert (done.exit_code, done.stderr, len(done.stdout.splitlines())) == (0, "", 2 * batches)


@pytest.mark.parametrize(
    ("steps", "count"), [([("txn", 1, some(2))], 2), ([("txn", 1, some(2)), ("put", 0, some(2))], 2)]
)
def test_a_damaged_last_batch_that_may_not_be_committed_is_not_exported(
    tmp_path: Path, steps: list[Any], count: int
) -> None:
    """It is part of a transaction, or a transaction is open before it."""
    write_log(tmp_path / "data", [("put", Codec.NONE, some(2)), *steps], "orders-0")
    damage_last_byte(tmp_path / "data")
    done = export(tmp_path / "data", tmp_path / "out.jsonl", "--no-verify")
    assert (done.exit_code, len((tmp_path / "out.jsonl").read_text().splitlines())) == (1, count)
    assert "bytes are left out" in done.stderr


def damage_last_byte(root: Path) -> None:
    log = root / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("xx\n", "not a number"),
        ("9\n1\norders 0 6\n", "version 9"),
        ("0\n1\norders 0 -5\n", "orders-0 has offset -5, which cannot be"),
    ],
)
def test_a_damaged_log_start_checkpoint_is_told_where_deleted_records_may_come_back(
    tmp_path: Path, content: str, why: str
) -> None:
    home, checkpoint = tmp_path / "data", tmp_path / "data" / "log-start-offset-checkpoint"
    for number in range(2):
        write_log(home, [("put", Codec.NONE, some(2))] * 5, f"orders-{number}")
    (home / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    (home / "replication-offset-checkpoint").write_text("0\n2\norders 0 10\norders 1 10\n")
    checkpoint.write_text("0\n1\norders 0 6\n")
    reading = ["cat", str(home), "--topic", "orders"]
    done = CliRunner().invoke(cli, reading)
    assert (done.exit_code, done.stderr, len(done.stdout.splitlines())) == (0, "", 14)
    checkpoint.write_text(content)
    for command in (reading, ["export", *reading[1:], "--to", str(tmp_path / "out.jsonl")]):
        done = CliRunner().invoke(cli, command)
        [line] = done.stderr.splitlines()
        assert line.startswith(f"tidelog: {checkpoint}")
        assert why in line
        assert line.endswith("the log starts with its first segment: records that were deleted may be among these")
    assert any(why in notice for notice in tidelog.open(home)["orders", 0].notices)


@pytest.mark.parametrize("written", [(), ("log-start-offset-checkpoint",)])
def test_a_new_broker_that_has_noted_no_log_start_yet_is_nothing_to_tell(root: Path, written: tuple[str, ...]) -> None:
    for name in written:
        (root / name).touch()
    (root / "recovery-point-offset-checkpoint").touch()
    done = CliRunner().invoke(cli, ["cat", str(root), "--topic", "orders"])
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.jsonl.ZST", "rows.gz"])
@pytest.mark.parametrize("form", [(), ("csv",)])
def test_a_name_that_says_compressed_is_rejected(root: Path, tmp_path: Path, name: str, form: tuple[str, ...]) -> None:
    target = str(tmp_path / name)
    commands = [
        ["export", str(root), "--topic", "orders", "--to", target, *(("--format", *form) if form else ())],
        ["cat", str(root), "--topic", "orders", "--out", target, *(("-o", *form) if form else ())],
    ]
    for command in commands:
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 2
        assert f"{name}: files are neither compressed nor decompressed; pipe them through " in done.stderr
        assert not Path(target).exists()
    Path(target).write_bytes(gzip.compress(b"key,value\na,b\n"))
    options = ("--to", f"{tmp_path}/new", "--topic", "t", *(("--format", *form) if form else ()))
    done = CliRunner().invoke(cli, ["load", target, *options])
    assert done.exit_code == 2
    assert f"{name}: files are neither compressed nor decompressed; pipe them through " in done.stderr
