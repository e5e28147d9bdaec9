"""`tidelog load`: files as a topic."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidelog
from tests.log.logs import NOW
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.records import Codec, Header, NewRecord


def load(path: Path, root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["load", str(path), "--to", str(root), "--topic", "orders", *arguments])


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
        (None, (), 3, "no such file"),
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
    assert not (tmp_path / "r/orders-0").exists()


def test_a_root_that_was_not_closed_in_good_order_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "r", [("put", Codec.NONE, some(1))])
    path = tmp_path / "rows.csv"
    path.write_text("key\na\n")
    done = load(path, tmp_path / "r")
    assert done.exit_code == 3
    assert "start the broker on it and stop it" in done.stderr
