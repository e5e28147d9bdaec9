"""No write creates a partition anew that a checkpoint knows to have had records."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.golden.corpus import case
from tests.spark.hostile_journals import snapshot
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.tables.broker_dirs import BrokerDirs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The log directory of a broker that lacks orders-2, which ends at 14 by its checkpoints."""
    copy = tmp_path / "w"
    shutil.copytree(case("kafka-4.3/9-metadata") / "image", copy)
    return copy


def load(root: Path, rows: str) -> tuple[int, str]:
    table = root.parent / "rows.jsonl"
    table.write_text(rows)
    done = CliRunner().invoke(cli, ["load", str(table), "--to", str(root), "--topic", "orders"])
    return done.exit_code, done.stderr


def test_a_load_does_not_create_a_partition_that_had_records(root: Path) -> None:
    before = snapshot(root)
    code, told = load(root, '{"partition":0,"value":"x"}\n{"partition":2,"value":"x"}\n')
    assert code != 0
    assert f"orders-2 has no directory in {root}, and the checkpoints there say that it reached offset 14" in told
    assert f"restore {root}/orders-2 or name the log directory" in told
    assert snapshot(root) == before


def test_either_checkpoint_says_so(root: Path) -> None:
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert "it reached offset 14" in load(root, '{"partition":2,"value":"x"}\n')[1]


def test_what_the_message_advises_lets_a_load_create_it(root: Path) -> None:
    CliRunner().invoke(cli, ["fsck", "--repair", str(root)])
    assert load(root, '{"partition":2,"value":"x"}\n')[0] == 0


def test_a_partition_without_records_is_created(root: Path) -> None:
    dirs = BrokerDirs(LocalFileSystem(), [str(root)])
    dirs.ensure_creatable(TopicPartition("a-1-2", 0))  # with offset 0
    dirs.ensure_creatable(TopicPartition("new", 0))
    with pytest.raises(InvalidRequestError, match="views-1 has no directory"):
        dirs.ensure_creatable(TopicPartition("views", 1))
