"""Topics and their configs, out of a metadata log that Kafka wrote."""

import json
import shutil
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import case
from tidelog.errors import CorruptionError
from tidelog.view.topic_configs import topic_configs

CASE = "kafka-4.3/9-metadata"


def configs_in(root: Path) -> dict[str, dict[str, str]]:
    return topic_configs(tidelog.open(root)["__cluster_metadata", 0])


def configs_by_the_operations() -> dict[str, dict[str, str]]:
    """What the admin client asked for, in order: the topics that are left, and their configs."""
    topics: dict[str, dict[str, str | None]] = {}
    for deed, what, _ in json.loads((case(CASE) / "operations.json").read_text(encoding="utf-8")):
        if deed == "create":
            topics[what["topic"]] = dict(what["configs"])
        elif deed == "alter" and what.get("type", "TOPIC") == "TOPIC":
            topics[what["topic"]].update(what["configs"])
        elif deed == "delete_topic":
            del topics[what["topic"]]
    return {
        topic: {name: value for name, value in configs.items() if value is not None}
        for topic, configs in topics.items()
    }


def test_the_topics_are_those_that_were_created_with_their_configs() -> None:
    found = configs_in(case(CASE) / "image")
    assert {topic: configs for topic, configs in found.items() if not topic.startswith("__")} == (
        configs_by_the_operations()
    )


def test_internal_topics_are_known_to_be_compacted() -> None:
    found = configs_in(case(CASE) / "image")
    assert [found[topic]["cleanup.policy"] for topic in ("__consumer_offsets", "__transaction_state")] == [
        "compact",
        "compact",
    ]


def test_without_the_snapshots_the_log_alone_says_the_same_or_is_too_short(tmp_path: Path) -> None:
    root = Path(shutil.copytree(case(CASE) / "image", tmp_path / "data"))
    log_start = tidelog.open(root)["__cluster_metadata", 0].segments[0].base_offset
    assert log_start == 0, "the whole log is there"
    before = configs_in(root)
    for snapshot in (root / "__cluster_metadata-0").glob("*.checkpoint"):
        snapshot.unlink()
    assert configs_in(root) == before


def test_a_damaged_snapshot_is_an_error_that_names_it(tmp_path: Path) -> None:
    root = Path(shutil.copytree(case(CASE) / "image", tmp_path / "data"))
    newest = max((root / "__cluster_metadata-0").glob("*.checkpoint"))
    newest.chmod(0o644)
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    with pytest.raises(CorruptionError, match=newest.name):
        configs_in(root)
