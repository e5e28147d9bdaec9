"""A write into the log directory of a broker goes by what the metadata log of the cluster says of a topic."""

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

import tidelog
from tests.golden.corpus import case
from tests.spark.commits import commit_order
from tests.tables.loads import forget_missing
from tidelog.errors import InvalidRequestError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import read_topic_id
from tidelog.spark.commit import Order
from tidelog.spark.dealing import Dealer
from tidelog.spark.option_values import OptionValues
from tidelog.spark.staged_pieces import attempt_name
from tidelog.spark.staging import Staging, stage_rows
from tidelog.spark.writer import prepare_write
from tidelog.view.topic_configs import topic_ids

FS = LocalFileSystem()
KEYS = [b"key-%d" % number for number in range(40)]
SCHEMA = StructType([StructField(name, BinaryType()) for name in ("key", "value")])
NUMBERED = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of Kafka's: by the metadata log orders has four partitions, and directories of two are here."""
    data = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "data"))
    forget_missing(data)
    return data


def write(root: Path, topic: str, rows: dict[str, Any], schema: StructType = SCHEMA, **more: str) -> None:
    """What the writer does on the driver and in one task, without Spark."""
    values = OptionValues({"path": str(root), "topic": topic, **more})
    prepared = prepare_write(values, schema, overwrite=False)
    options = prepared.options
    dealer = Dealer(topic, prepared.shapes, options.wanted, first=0)
    staging = Staging(FS, options, attempt_name(prepared.job, random.Random(1)))
    pieces = stage_rows([pa.RecordBatch.from_pydict(rows)], dealer, staging)
    commit_order(FS, Order(options, pieces, {topic: dealer.shape_of(topic).partitions}, prepared.job))


def names_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


def test_a_new_directory_of_a_known_topic_gets_its_id(root: Path) -> None:
    write(root, "dotted.name", {"key": KEYS, "value": KEYS})
    known = topic_ids(tidelog.open(root)["__cluster_metadata", 0])
    assert read_topic_id(FS, str(root / "dotted.name-0" / PARTITION_METADATA)) == known["dotted.name"]
    with pytest.raises(InvalidRequestError, match="leave topicId out"):
        write(root, "dotted.name", {"key": KEYS, "value": KEYS}, topicId="OimrddjSTw20XAh5VnF0_A")


def test_a_known_topic_without_directories_gets_the_partitions_of_the_cluster(root: Path) -> None:
    for number in range(2):
        shutil.rmtree(root / f"orders-{number}")
    forget_missing(root)
    write(root, "orders", {"key": KEYS, "value": KEYS})
    assert {name for name in names_in(root) if name.startswith("orders")} == {f"orders-{number}" for number in range(4)}
    assert sum(len(list(part.read())) for part in tidelog.open(root)["orders"]) == 40


def test_keys_are_not_dealt_out_to_the_directories_that_happen_to_be_here(root: Path) -> None:
    before = names_in(root)
    with pytest.raises(InvalidRequestError, match="only some are here: 0, 1; the cluster has 4 in all"):
        write(root, "orders", {"key": KEYS, "value": KEYS})
    write(root, "orders", {"value": [b"x"], "partition": pa.array([1], pa.int32())}, NUMBERED)  # where it says
    assert [record.value for record in tidelog.open(root)["orders", 1].read()][-1] == b"x"
    assert {name for name in names_in(root) if not name.startswith(".")} == before


def test_another_number_of_partitions_than_the_cluster_has_is_rejected(root: Path) -> None:
    for topic, number in (("orders", 4), ("dotted.name", 1)):
        with pytest.raises(InvalidRequestError, match=f"{topic} has {number} by the metadata log"):
            write(root, topic, {"key": KEYS, "value": KEYS}, partitions="9")


def test_a_new_partition_of_another_node_is_rejected(root: Path) -> None:
    path = root / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(InvalidRequestError, match="assigns to broker 1, and not to this node, 2"):
        write(root, "dotted.name", {"key": KEYS, "value": KEYS})
    assert "dotted.name-0" not in names_in(root)
