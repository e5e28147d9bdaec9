"""`tidelog load`: files as a topic."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidelog
from tests.log.logs import NOW
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.log.write_journal import PartitionNote, WriteJournal, WriteKind, write_journal
from tidelog.records import Codec, Header, NewRecord


def load(path: Path, root: Path, *arguments: str) -> Result:
    topic = () if "--topic" in arguments else ("--topic", "orders")
    return CliRunner().invoke(cli, ["load", str(path), "--to", str(root), *topic, *arguments])


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
def test_what_export_writes_load_reads(tmp_path: Path, form: str) -> None:
    for number in range(2):
        odd = NewRecord(b"\xff", b"", NOW, (Header("h", b"\x00\xff"), Header("", None)))
        write_log(tmp_path / "a", [("put", Codec.GZIP, [*some(3), odd])], f"orders-{number}")
    runner = CliRunner()
    out = f"{tmp_path}/out/"
    done = runner.invoke(cli, ["export", f"{tmp_path}/a", "--topic", "orders", "--to", out, "--format", form])
    assert done.exit_code == 0, done.output
    done = load(tmp_path / "out", tmp_path / "b", "--compression", "zstd", "--json")
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"topic": "orders", "partition": number, "records": 4, "first_offset": 0, "next_offset": 4}
        for number in range(2)
    ]
    before, after = tidelog.open(str(tmp_path / "a")), tidelog.open(str(tmp_path / "b"))
    for number in range(2):
        assert [record._replace(sequence=-1) for record in after["orders", number].read()] == list(
            before["orders", number].read()
        )
    assert after["orders", 0].segments[0].codecs == ("zstd",)


def test_a_table_tells_what_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value\na,1\nb,2\n")
    done = load(
        path, tmp_path / "r", "--partitions", "1", "--set", "segment.bytes=1000", "--topic-id", "OimrddjSTw20XAh5VnF0_A"
    )
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["partition", "records", "offsets"],
        ["orders-0", "2", "0", "to", "1"],
    ]
    assert "OimrddjSTw20XAh5VnF0_A" in (tmp_path / "r/orders-0/partition.metadata").read_text()


@pytest.mark.parametrize(
    ("content", "arguments", "code", "reason"),
    [
        ("nme,value\na,1\n", (), 2, "column 'nme'"),
        ("key,value\na,1\n", ("--set", "segment.bytes"), 2, "NAME=VALUE"),
        ("key,value\na,1\n", ("--set", "segment.byts=5"), 2, "segment.byts"),
        ("key,value\na,1\n", ("--topic-id", "short"), 2, "22 characters"),
        ("key,value\na,1\n", ("--compression", "rar"), 2, "rar"),
        ("key,value\na,1\n", ("--format", "parquet"), 2, "cannot be read as parquet"),
        ("key,value\na,1\n", ("--topic", "__cluster_metadata"), 2, "metadata log"),
        ("key,value\na,1\n", ("--topic", "__consumer_offsets"), 2, "--internal"),
        ("key,timestamp\na,99999999999999\n", (), 2, "--set message.timestamp.after.max.ms"),
        (None, (), 2, "does not exist"),
    ],
)
def test_what_cannot_be_loaded_is_answered_in_one_line(
    tmp_path: Path, content: str | None, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_text(content)
    done = load(path, tmp_path / "r", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_hundreds_of_thousands_of_files_are_not_made_by_a_typing_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.tables.load._MOST_SEGMENTS", 20)
    path = tmp_path / "rows.csv"
    path.write_text("key,value\n" + f"k,{'x' * 900}\n" * 1_000)
    done = load(path, tmp_path / "r", "--set", "segment.bytes=1000")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "segment.bytes=1000 this makes more than 20 segments" in done.stderr
    assert "--many-segments" in done.stderr
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_what_comes_out_of_a_pipe_is_loaded_to_its_last_row(tmp_path: Path, kind: str) -> None:
    load(_rows(tmp_path / "rows.csv", 1000), tmp_path / "a")
    exported = CliRunner().invoke(
        cli, ["export", str(tmp_path / "a"), "--topic", "orders", "--to", str(tmp_path / f"x.{kind}")]
    )
    assert exported.exit_code == 0, exported.stderr
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes((tmp_path / f"x.{kind}").read_bytes()))
    writer.start()
    done = load(tmp_path / "pipe", tmp_path / "b", "--format", kind)
    writer.join()
    assert done.exit_code == 0, done.stderr
    assert len(_records(tmp_path / "b")) == 1000


def test_a_pipe_among_the_files_of_a_directory_is_refused(tmp_path: Path) -> None:
    _rows(tmp_path / "in" / "a.csv", 3)
    os.mkfifo(tmp_path / "in" / "b.csv")
    done = load(tmp_path / "in", tmp_path / "r")
    assert done.exit_code == 2
    assert "b.csv is no regular file" in done.stderr


def _rows(path: Path, count: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("key,value\n" + "".join(f"k{number},v{number}\n" for number in range(count)))
    return path


def _records(root: Path) -> list[object]:
    return [record for partition in tidelog.open(root)["orders"] for record in partition.read()]


def test_partitions_that_rows_do_not_go_to_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value,partition\na,1,0\nb,2,0\n")
    done = load(path, tmp_path / "r", "--partitions", "3")
    assert done.exit_code == 0
    assert "every row names its partition, so rows were not dealt out: 2 of 3 partitions got none" in done.stderr
    assert load(path, tmp_path / "s").stderr == ""
    path.write_text("key,value\na,1\n")
    assert load(path, tmp_path / "t", "--partitions", "3").stderr == ""
    path.write_text("key,value,partition\na,1,7\n")
    refused = load(path, tmp_path / "r", "--partitions", "3")
    assert refused.exit_code == 2
    assert "partition 7 of a row" in refused.stderr


def test_a_root_that_was_not_closed_in_good_order_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "r", [("put", Codec.NONE, some(1))])
    path = tmp_path / "rows.csv"
    path.write_text("key\na\n")
    done = load(path, tmp_path / "r")
    assert done.exit_code == 3
    assert "start the broker on it and stop it" in done.stderr


def test_one_column_of_a_topic_loses_no_row(tmp_path: Path) -> None:
    write_log(tmp_path / "a", [("put", Codec.NONE, [*some(4), NewRecord(b"k", None, NOW), *some(1)])], "orders-0")
    out = str(tmp_path / "rows.csv")
    done = CliRunner().invoke(cli, ["export", f"{tmp_path}/a", "--topic", "orders", "--columns", "value", "--to", out])
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "rows.csv", tmp_path / "b").exit_code == 0
    before, after = (tidelog.open(str(tmp_path / name))["orders", 0] for name in ("a", "b"))
    assert [record.value for record in after.read()] == [record.value for record in before.read()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_load_that_is_asked_to_end_takes_back_what_it_did(tmp_path: Path, number: signal.Signals) -> None:
    """The second file is a pipe: who has opened it has appended the first."""
    (tmp_path / "1.jsonl").write_text('{"value": "one"}\n')
    os.mkfifo(tmp_path / "2.jsonl")
    command = [
        sys.executable, "-m", "tidelog", "load", f"{tmp_path}/1.jsonl", f"{tmp_path}/2.jsonl",
        "--to", f"{tmp_path}/root", "--topic", "orders",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, open(tmp_path / "2.jsonl", "w"):
        assert (tmp_path / "root" / "orders-0").is_dir()
        process.send_signal(number)
        _, told = process.communicate(timeout=60)  # although it gets nothing to read
    assert (process.returncode, told) == (130, "tidelog: interrupted: nothing was loaded\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.jsonl", "2.jsonl"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("source", ["-", "pipe"])
def test_the_first_interrupt_ends_a_load_that_waits_for_its_input(tmp_path: Path, form: str, source: str) -> None:
    os.mkfifo(tmp_path / "pipe")  # that nobody opens
    command = [
        sys.executable, "-m", "tidelog", "load", source.replace("pipe", f"{tmp_path}/pipe"), "--format", form,
        "--to", f"{tmp_path}/root", "--topic", "orders",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(b"key,val")
            process.stdin.flush()
            until = time.monotonic() + 60
            while not (tmp_path / "root" / ".lock").exists() and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.3)  # so that it has begun to wait
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert process.stderr.read() == b"tidelog: interrupted: nothing was loaded\n"
        finally:
            process.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_load_that_was_interrupted_is_told_of_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"value": "one"}\n')
    assert load(tmp_path / "rows.jsonl", tmp_path / "r").exit_code == 0
    note = PartitionNote(is_new=False, has_topic_id=True, end=1, epoch=0, recovery_point=1, high_watermark=1)
    journal = WriteJournal(WriteKind.LOAD, b"{}", partitions={TopicPartition("orders", 0): note})
    write_journal(LocalFileSystem(), str(tmp_path / "r"), journal)
    (tmp_path / "r" / ".kafka_cleanshutdown").unlink()
    done = load(tmp_path / "rows.jsonl", tmp_path / "r")
    assert done.exit_code == 0
    assert done.stderr == f"tidelog: {tmp_path}/r: a load into orders was interrupted and is taken back\n"
    assert [record.value for record in tidelog.open(str(tmp_path / "r"))["orders", 0].read()] == [b"one", b"one"]


def test_a_batch_that_is_too_large_is_rejected_with_its_row_and_the_config_that_allows_it(tmp_path: Path) -> None:
    for name, large in (("a.jsonl", 99), ("b.jsonl", 3)):
        rows = ({"key": f"k{row}", "value": "x" * (2_000_000 if row == large else 10)} for row in range(1, 7))
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    for partitions in ("1", "3"):
        done = load(tmp_path / "a.jsonl", tmp_path / "r", str(tmp_path / "b.jsonl"), "--partitions", partitions)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"tidelog: {tmp_path / 'b.jsonl'}, row 3: orders-")
        assert "--set max.message.bytes=… allows more" in done.stderr
        assert not (tmp_path / "r").exists()
    done = load(
        tmp_path / "b.jsonl", tmp_path / "r", "--set", "max.message.bytes=9000000", "--set", "segment.bytes=9999"
    )
    assert "--set segment.bytes=… allows more" in done.stderr


def test_a_time_that_is_too_far_ahead_is_rejected_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,timestamp\na,1\nb,2\nc,99999999999999\nd,4\n")
    assert f"{path}, row 3: orders-0: " in load(path, tmp_path / "r").stderr


@pytest.mark.parametrize("limit", [12, 20, 28, 64])
def test_without_descriptors_all_rows_are_loaded_or_none(tmp_path: Path, limit: int) -> None:
    path, root = tmp_path / "rows.csv", tmp_path / "r"
    path.write_text("key,value\n" + "".join(f"k{row},{'x' * 50}\n" for row in range(2_000)))
    words = ["load", str(path), "--to", str(root), "--topic", "orders", "--partitions", "5"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    code = (
        "import resource, sys; from tidelog.cli.main import cli; import tidelog.tables.load, pyarrow.csv; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); cli(sys.argv[1:])"
    )
    words += ["--set", "segment.bytes=9999"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    loaded = 4_000 if done.returncode == 0 else 2_000
    assert len(_records(root)) == loaded, done.stderr
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert len(_records(root)) == loaded + 2_000


@pytest.mark.parametrize("limit", [30_000, 130_000])
def test_on_a_disk_that_refuses_to_grow_a_file_nothing_is_loaded(tmp_path: Path, limit: int) -> None:
    path, root = tmp_path / "rows.csv", tmp_path / "r"
    path.write_text("key,value\n" + "".join(f"k{row},{'x' * 50}\n" for row in range(2_000)))
    words = ["load", str(path), "--to", str(root), "--topic", "orders"]
    code = (
        "import resource, sys; from tidelog.cli.main import cli; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); cli(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert not root.exists()


# -- CSV for spreadsheets ----------------------------------------------------------------------------------------------

CELLS = [
    b"=1+1",
    b"+1",
    b"-1",
    b"@SUM(A1)",
    b"\t=1",
    b"\r=1",
    b"\n=1",
    b"'",
    b"'=1",
    b"",
    b"plain",
    "＝1".encode(),
    b"\xff=",
]


def test_cells_are_written_as_they_are_unless_they_are_to_be_safe_for_spreadsheets(tmp_path: Path) -> None:
    root = tmp_path / "a"
    write_log(root, [("put", Codec.NONE, [NewRecord(cell, None, NOW) for cell in CELLS])], "orders-0")
    for command in (
        ["export", str(root), "--to"],
        ["cat", str(root), "--out"],
        ["cat", str(root), "-o", "csv", "--no-verify", "--out"],
    ):
        plain, safe = tmp_path / "plain.csv", tmp_path / "safe.csv"
        for target, options in ((plain, []), (safe, ["--csv-safe"])):
            done = CliRunner().invoke(cli, [*command, str(target), "--topic", "orders", "--force", *options])
            assert done.exit_code == 0, done.stderr
        keys = [row["key"] for row in csv.DictReader(io.StringIO(safe.read_bytes().decode(), newline=""))]
        assert not [key for key in keys if key[:1] in set("=+-@\t\r\n＝")]
        assert keys[0] == "'=1+1"
        keys = [row["key"] for row in csv.DictReader(io.StringIO(plain.read_bytes().decode(), newline=""))]
        assert [key.encode() for key in keys[:-1]] == CELLS[:-1]
    for name, options in (("plain", []), ("safe", ["--csv-safe"])):
        assert load(tmp_path / f"{name}.csv", tmp_path / name, *options).exit_code == 0
        assert [record.key for record in _records(tmp_path / name)] == CELLS


def test_safe_csv_is_for_csv(tmp_path: Path) -> None:
    write_log(tmp_path / "a", [("put", Codec.NONE, some(1))], "orders-0")
    words = ["export", str(tmp_path / "a"), "--topic", "orders", "--to", str(tmp_path / "x.parquet"), "--csv-safe"]
    assert "--csv-safe is for CSV, and the format is parquet" in CliRunner().invoke(cli, words).stderr
