"""`tidelog explain`: the plan of a lookup, on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.golden.corpus import case
from tidelog.cli.main import cli


def explain(*arguments: str) -> Result:
    root = case("seed-walkthrough") / "client-0.10.2.2/step6-after-clean-stop"
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
