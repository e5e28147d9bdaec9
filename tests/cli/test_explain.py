"""`tidelog explain`: the plan of a lookup, on the command line."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tidelog.cli.main import cli

ROOT = case("seed-walkthrough") / "client-0.10.2.2/step6-after-clean-stop"


def explain(*arguments: str, root: Path = ROOT) -> Result:
    return CliRunner().invoke(cli, ["explain", str(root), "--topic", "log-format", "--partition", "1", *arguments])


def test_offset_90_of_the_walk_through_goes_the_way_the_documents_draw() -> None:
    told = explain("--offset", "90").stdout
    assert "00000000000000000000.log" in told
    assert "offset 80 at position 4384" in told
    assert "offsets 80 to 92" in told


def test_offset_15_finds_no_index_entry_and_walks_from_the_start() -> None:
    told = json.loads(explain("--offset", "15", "--json").stdout)
    (walk,) = (step for step in told["steps"] if step["step"] == "walk")
    assert (walk["position"], walk["bytes"], len(walk["batches"])) == (0, 1375, 7)
    assert told["answer"]["offset"] == 15


def test_an_index_that_is_missing_is_not_called_empty(tmp_path: Path) -> None:
    root = Path(shutil.copytree(ROOT, tmp_path / "data"))
    files = root / "log-format-1"

    def indexes(*arguments: str) -> list[str]:
        steps = [line.split(maxsplit=1) for line in explain(*arguments, root=root).stdout.splitlines()]
        return [step[1] for step in steps if step[0] == "index" or step[1].startswith("index ")]

    assert indexes("--offset", "100") == ["00000000000000000093.index is empty: from position 0"]
    (files / "00000000000000000093.index").unlink()
    assert indexes("--offset", "100") == ["00000000000000000093.index is missing: from position 0"]
    told = json.loads(explain("--offset", "100", "--json", root=root).stdout)["steps"]
    assert [step["is_missing"] for step in told if step["step"] == "index"] == [True]
    (files / "00000000000000000000.index").write_bytes(b"12345")
    assert "the 5 bytes of 00000000000000000000.index are no entries" in indexes("--offset", "90")
    (files / "00000000000000000184.timeindex").unlink()
    first, _ = indexes("--time", "1794771450075")
    assert first == "index  00000000000000000184.timeindex is missing"


def test_times_are_dates_and_no_line_is_longer_than_a_narrow_terminal() -> None:
    for arguments in (("--offset", "90"), ("--time", "1794771450047"), ("--time", "-1"), ("--time", "-3")):
        lines = explain(*arguments).stdout.splitlines()
        assert [line for line in lines if len(line) > 80] == []
    assert "time 2026-11-15T19:37:30.047Z" in explain("--time", "1794771450047").stdout
    assert "1794771450047" not in explain("--offset", "90").stdout


@pytest.mark.parametrize("time", ["1794771450047", "1794771450047ms", "2026-11-15T19:37:30.047Z"])
def test_a_time_is_a_number_or_a_date(time: str) -> None:
    assert explain("--time", time).stdout.splitlines()[-1].split()[:3] == ["answer", "offset", "78,"]


@pytest.mark.parametrize(
    "arguments", [(), ("--offset", "1", "--time", "2"), ("--time", "yesterday"), ("--offset", "x")]
)
def test_a_question_that_is_none_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = explain(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""


def test_a_partition_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = explain("--offset", "1", "--partition", "7")
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
