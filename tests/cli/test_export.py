"""`tidelog export`: a topic as files."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from tests.log.logs import NOW
from tests.view.scans import some, write_log
from tidelog.cli.main import cli
from tidelog.records import Codec


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
