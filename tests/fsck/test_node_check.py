"""Which directories in a tree are judged as the log.dirs of one node, and why others are not."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.spark.logs import record, write
from tidelog.cli.main import cli
from tidelog.fsck import Verdict, check, verdicts

ONE_ID, OTHER_ID = "OimrddjSTw20XAh5VnF0_A", "1tqYDSwdSPSJC3_YrWReVw"
NO_METADATA = "no metadata log here"
COPIES = "several copies of one directory: name the log.dirs of one node"
NOT_SAID = "nothing here says which directories are log.dirs of one node: name those of one node"


def a_log_dir(path: Path, topic: str, identity: str | None = None) -> Path:
    """A log directory that was stopped in good order; without an identity it was never formatted."""
    write(path, topic, 0, [record(0)])
    (path / ".kafka_cleanshutdown").write_text("")
    if identity is not None:
        (path / "meta.properties").write_text(f"version=1\ncluster.id=c\n{identity}\n")
    return path


def reasons(found: list[Verdict]) -> list[tuple[list[str], bool | None, str | None]]:
    return [([Path(root).name for root in verdict.roots], verdict.starts, verdict.reason) for verdict in found]


@pytest.mark.parametrize("identity", [None, "node.id=1", f"node.id=1\ndirectory.id={ONE_ID}"])
def test_the_only_log_directory_of_a_tree_is_judged_as_if_it_were_named(tmp_path: Path, identity: str | None) -> None:
    root = a_log_dir(tmp_path / "one" / "broker", "orders", identity)
    assert reasons(verdicts(str(tmp_path / "one"))) == [(["broker"], None, NO_METADATA)]
    assert verdicts(str(tmp_path / "one")) == verdicts(str(root))
    assert check(str(tmp_path / "one")).findings == check(str(root)).findings


def test_a_reason_that_ends_every_start_is_found_in_a_tree_too(tmp_path: Path) -> None:
    root = a_log_dir(tmp_path / "one" / "broker", "orders")
    (root / "foo").mkdir()
    (found,) = verdicts(str(tmp_path / "one"))
    assert found.starts is False
    assert found == verdicts(str(root))[0]


def test_unformatted_directories_in_a_tree_may_be_of_one_node_or_of_several(tmp_path: Path) -> None:
    for name, topic in (("a", "orders"), ("b", "views")):
        a_log_dir(tmp_path / name, topic)
    assert reasons(verdicts(str(tmp_path))) == [(["a"], None, NOT_SAID), (["b"], None, NOT_SAID)]
    assert reasons(verdicts([str(tmp_path / "a"), str(tmp_path / "b")])) == [(["a", "b"], None, NO_METADATA)]
    done = CliRunner().invoke(cli, ["fsck", str(tmp_path)])
    assert done.stdout.startswith(f"{tmp_path}/a: Would Kafka 4.3 start? unknown: {NOT_SAID}\n")
    told = json.loads(CliRunner().invoke(cli, ["fsck", "--would-start", str(tmp_path)]).stdout)
    assert [(one["would_start"], one["reason"]) for one in told] == [(None, NOT_SAID)] * 2


@pytest.mark.parametrize(
    ("identities", "reason"),
    [
        (("node.id=1", "node.id=1"), NOT_SAID),
        (("node.id=1", f"node.id=1\ndirectory.id={ONE_ID}"), NOT_SAID),
        ((f"node.id=1\ndirectory.id={ONE_ID}", None), NOT_SAID),
        ((f"node.id=1\ndirectory.id={ONE_ID}", f"node.id=1\ndirectory.id={ONE_ID}"), COPIES),
        ((f"node.id=1\ndirectory.id={ONE_ID}", f"node.id=1\ndirectory.id={OTHER_ID}"), NO_METADATA),
    ],
)
def test_directories_of_one_node_in_a_tree_are_told_apart_by_their_ids(
    tmp_path: Path, identities: tuple[str | None, str | None], reason: str
) -> None:
    for name, topic, identity in zip("ab", ("orders", "views"), identities, strict=True):
        a_log_dir(tmp_path / name, topic, identity)
    assert reasons(verdicts(str(tmp_path))) == [(["a", "b"], None, reason)]


def test_the_only_directory_of_each_node_in_a_tree_is_judged_without_an_id(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        a_log_dir(tmp_path / name, "orders", f"node.id={number}")
    assert reasons(verdicts(str(tmp_path))) == [(["a"], None, NO_METADATA), (["b"], None, NO_METADATA)]
