"""A write into the directory of a broker says which topics the broker would set aside when it starts."""

import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidelog
from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.partition_metadata import random_topic_id
from tidelog.tables.stray_topics import stray_warning
from tidelog.view.topic_configs import topic_ids

FS = LocalFileSystem()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of Kafka's, with the metadata log of its cluster."""
    return Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "data"))


def test_a_topic_that_the_metadata_does_not_know_is_told_with_the_commands(root: Path) -> None:
    known = topic_ids(tidelog.open(root)["__cluster_metadata", 0])
    topic, topic_id = next(iter(known.items()))
    other = random_topic_id(random.Random(3))
    assert stray_warning(FS, [str(root)], {topic: topic_id}, [topic]) is None
    told = stray_warning(FS, [str(root)], {"nobody": other, topic: topic_id}, [])
    assert told is not None
    assert told.startswith(f"{root}: the cluster of this broker does not know nobody; when the broker starts")
    assert told.endswith("--create --topic nobody --partitions N, stop the broker, write, start the broker")
    told = stray_warning(FS, [str(root)], {topic: other}, [])
    assert told is not None
    assert f"knows under another id {topic};" in told
    assert "--create" not in told  # it is there
    assert f"move the directories of {topic} that have the other id out of the log directories" in told


def test_without_the_metadata_a_new_topic_of_a_broker_may_be_unknown(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / "__cluster_metadata-0")
    told = stray_warning(FS, [str(root)], {"new": None, "old": None}, ["new"])
    assert told is not None
    assert "may not know new;" in told
    assert stray_warning(FS, [str(root)], {"old": None}, []) is None
    assert stray_warning(FS, [str(tmp_path)], {"new": None}, ["new"]) is None  # no broker's


def test_a_load_says_so_and_loads(root: Path, tmp_path: Path) -> None:
    (root / ".kafka_cleanshutdown").write_text(json.dumps({"version": 0, "brokerEpoch": 14}))
    (tmp_path / "rows.jsonl").write_text('{"value": "one"}\n')
    arguments = ["load", str(tmp_path / "rows.jsonl"), "--to", str(root), "--topic", "nobody"]
    for _ in range(2):  # also when it is there already
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.stderr
        assert done.stderr.count("the cluster of this broker does not know nobody") == 1
