"""Rows are loaded into the partitions that the metadata log of the cluster gives a topic, and assigns to this node."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tidelog
from tests.golden.corpus import case
from tests.tables.loads import forget_missing
from tidelog.cli.main import cli
from tidelog.columns import partition_for_keys
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import read_topic_id, uuid_text
from tidelog.tables.assignment import assignment_of
from tidelog.view.topic_configs import topic_ids

KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of Kafka's: by the metadata log orders has four partitions, and directories of two are here."""
    data = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "data"))
    forget_missing(data)
    return data


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def load(root: Path, *words: str, topic: str = "orders", rows: list[dict[str, object]] | None = None) -> Result:
    path = root.parent / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or [{"key": key, "value": ""} for key in KEYS]))
    return CliRunner().invoke(cli, ["load", str(path), "--to", str(root), "--topic", topic, *words])


def topic_id(root: Path, name: str) -> str:
    found = read_topic_id(LocalFileSystem(), str(root / name / PARTITION_METADATA))
    assert found is not None
    return uuid_text(found)


def say_node(root: Path, node: int) -> None:
    """Let the directory be that of another node of the cluster."""
    path = root / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", f"node.id={node}"))


@pytest.mark.parametrize("words", [(), ("--partitions", "4")])
def test_keys_are_hashed_over_the_partitions_of_the_metadata_log(root: Path, words: tuple[str, ...]) -> None:
    done = load(root, *words)
    assert (done.exit_code, done.stderr) == (0, "")
    logs = tidelog.open(root)
    for key, number in zip(KEYS, partition_for_keys(pa.array(KEYS, pa.binary()), 4).to_pylist(), strict=True):
        assert key.encode() in [record.key for record in logs["orders", number].read()], key
    assert {topic_id(root, f"orders-{number}") for number in range(4)} == {topic_id(root, "orders-0")}


def test_another_number_of_partitions_than_the_cluster_has_is_rejected(root: Path) -> None:
    before = contents(root)
    for number in ("9", "2"):
        done = load(root, "--partitions", number)
        assert done.exit_code == 2
        assert done.stderr.startswith(f"tidelog: --partitions {number}: orders has 4 partitions by the metadata log")
        assert done.stderr.count("\n") == 1
    assert contents(root) == before


def test_a_new_directory_of_a_known_topic_gets_its_id(root: Path) -> None:
    done = load(root, topic="dotted.name")
    assert (done.exit_code, done.stderr) == (0, "")
    known = topic_ids(tidelog.open(root)["__cluster_metadata", 0])
    assert topic_id(root, "dotted.name-0") == uuid_text(known["dotted.name"])


def test_an_id_that_the_cluster_does_not_know_the_topic_by_is_rejected(root: Path) -> None:
    before = contents(root)
    done = load(root, "--topic-id", "OimrddjSTw20XAh5VnF0_A", topic="dotted.name")
    assert done.exit_code == 2
    assert "the cluster knows dotted.name by the id 1tqYDSwdSPSJC3_YrWReVw; leave --topic-id out" in done.stderr
    assert contents(root) == before


def test_a_row_for_a_partition_of_another_node_is_rejected_and_nothing_is_loaded(root: Path) -> None:
    say_node(root, 2)
    before = contents(root)
    done = load(root, rows=[{"value": "x", "partition": 1}])
    assert done.exit_code == 2
    assert done.stderr == (
        f"tidelog: {root.parent}/rows.jsonl, row 1 goes to orders-1, which the metadata log assigns to broker 1, and "
        "not to this node, 2: write it there\n"
    )
    assert contents(root) == before


def test_where_no_file_says_which_node_this_is_only_partitions_that_are_here_are_loaded(root: Path) -> None:
    (root / "meta.properties").unlink()
    before = contents(root)
    done = load(root)
    assert done.exit_code == 2
    assert "which has no directory here and is assigned to broker 1 by the metadata log" in done.stderr
    assert contents(root) == before
    done = load(root, rows=[{"value": "x"}] * 4)  # without keys they may go to any
    assert done.exit_code == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [["orders-0", "2"], ["orders-1", "2"]]


def test_a_row_that_names_a_partition_the_cluster_does_not_have_is_rejected(root: Path) -> None:
    done = load(root, rows=[{"value": "x", "partition": 4}])
    assert done.exit_code == 2
    assert "partition 4 of a row: orders has partitions 0 to 3; kafka-topics.sh --alter adds partitions" in done.stderr


def test_a_metadata_log_that_cannot_be_read_is_reported(root: Path) -> None:
    for path in (root / "__cluster_metadata-0").glob("*.checkpoint"):
        path.unlink()
    log = next(iter(sorted((root / "__cluster_metadata-0").glob("*.log"))))
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    done = load(root)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("the partitions of orders are counted by their directories") == 1


def test_a_topic_that_the_metadata_log_does_not_know_has_no_assignment(root: Path) -> None:
    assert assignment_of(LocalFileSystem(), [str(root)], "nobody") is None
    known = assignment_of(LocalFileSystem(), [str(root)], "orders")
    assert known is not None
    assert (known.size, known.node, known.ours(())) == (4, 1, [0, 1, 2, 3])
