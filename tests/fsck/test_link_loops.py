"""Trees in which links lead back: every directory is looked at once, and no walk goes on for ever."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.main import cli
from tidelog.fsck.places import find_places
from tidelog.log import LogManager, TopicPartition
from tidelog.log.local_files import LocalReadFiles
from tidelog.records import NewRecord


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    """A tree with two links to itself, which are 2^40 paths for whoever follows them all."""
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for name in "xyz":
        (tmp_path / "tree" / "a" / name).symlink_to(".")
    return tmp_path / "tree"


@pytest.mark.parametrize("command", [["fsck"], ["reindex", "--dry-run"], ["dump-log"]])
def test_a_tree_of_loops_holds_nothing(loops: Path, command: list[str]) -> None:
    done = run(*command, loops)
    assert (done.exit_code, "holds no" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [["fsck"], ["reindex", "--dry-run"], ["dump-log"]])
def test_a_log_in_a_tree_of_loops_is_found_once(loops: Path, command: list[str]) -> None:
    with LogManager.open(str(loops / "b")) as manager:
        manager.get_or_create(TopicPartition("orders", 0)).append(NewRecord(b"k", b"v"))
    (loops / "c").symlink_to("b")
    done = run(*command, loops)
    assert done.exit_code in (0, 1)
    assert [place.path for place in find_places(LocalReadFiles(), [str(loops)])] == [str(loops / "b")]
    if command == ["dump-log"]:
        assert done.stdout.count("00000000000000000000.log") == 1


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A tree that is deeper than recursion goes, taken away again: what cleans up after tests would fail on it."""
    here, depth = os.getcwd(), 1_200
    os.chdir(tmp_path)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    yield tmp_path
    os.chdir(tmp_path)
    for _ in range(depth):
        os.chdir("d")
    for _ in range(depth):
        os.chdir("..")
        os.rmdir("d")
    os.chdir(here)


def test_a_tree_that_is_a_thousand_directories_deep_is_walked_to_its_end(deep: Path) -> None:
    assert run("fsck", deep).exit_code == 2
    assert run("dump-log", deep).exit_code == 2
