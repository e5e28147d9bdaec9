"""A write of Spark's that was killed behind its decision: told by `fsck`, left alone by repairs, ended by `load`."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidelog
from tests.spark.commits import ROWS, commit_here
from tidelog.cli.main import cli
from tidelog.errors import StorageError
from tidelog.fsck import check, repair
from tidelog.fsck.reindex import reindex
from tidelog.log.names import UNFINISHED_WRITE


def _killed(place: Path) -> Path:
    """A root with the journal of a commit in it, whose process is gone."""
    (place / "whole").mkdir()
    calls = commit_here(str(place / "whole" / "root"))
    for call in range(calls // 3, calls, 2):
        root = place / f"killed-{call}" / "root"
        root.parent.mkdir()
        subprocess.run([sys.executable, "-m", "tests.spark.commits", str(root), str(call)], check=False)
        if (root / UNFINISHED_WRITE).exists():
            return root
    raise AssertionError("no call falls behind the journal")


def test_an_interrupted_write_of_sparks_is_brought_to_its_end_by_a_load(tmp_path: Path) -> None:
    root = _killed(tmp_path)
    assert "ROOT-LOAD" in {finding.code for finding in check(str(root)).findings}
    for act in (repair, reindex):
        with pytest.raises(StorageError, match="a write of Spark's was interrupted"):
            act(str(root))
    (tmp_path / "more.csv").write_text("key,value\nk,v\n")
    arguments = ["load", str(tmp_path / "more.csv"), "--to", str(root), "--topic", "orders"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.stderr
    assert "was interrupted and is finished" in done.stderr
    assert not (root / UNFINISHED_WRITE).exists()
    records = [record for partition in tidelog.open(root)["orders"] for record in partition.read()]
    assert len(records) == sum(len(next(iter(rows.values()))) for rows in ROWS) + 1


def test_and_by_a_compaction_and_until_then_nobody_sees_half_of_it(tmp_path: Path) -> None:
    root = _killed(tmp_path)
    logs = tidelog.open(root)
    assert [record for partition in logs for record in partition.read()] == []
    assert [notice for notice in logs.notices if "a write of Spark's into orders is under way or was" in notice]
    dry = CliRunner().invoke(cli, ["compact", str(root), "--topic", "orders", "--dry-run"])
    assert (dry.exit_code, dry.stderr.count("\n")) == (3, 1), dry.stderr
    assert "was interrupted" in dry.stderr
    done = CliRunner().invoke(cli, ["compact", str(root), "--topic", "orders", "--no-preview"])
    assert done.exit_code == 0, done.stderr
    assert "was interrupted and is finished" in done.stderr
    assert not (root / UNFINISHED_WRITE).exists()
