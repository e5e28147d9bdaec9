"""A broker that is no controller, with a copy of the metadata log that is shorter than that of its controllers.

Kafka fetches the rest before it loads a log, and serves every partition that the controllers assign to it.
"""

import json
import shutil
import uuid
from pathlib import Path

import pytest

from tests.golden.corpus import case
from tidelog.fsck import Verdict, check, verdicts
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition, parse_directory_name
from tidelog.log.partition_metadata import read_topic_id
from tidelog.protocol import message
from tidelog.records.builder import BatchBuilder
from tidelog.records.record import NewRecord

NODE, CONTROLLER = 1, 100
METADATA = "__cluster_metadata-0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The log directory of a broker with four partitions, and an empty copy of the metadata."""
    root = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "root"))
    for path in (root / METADATA).iterdir():
        path.unlink()
    state = {
        "clusterId": "", "leaderId": CONTROLLER, "leaderEpoch": 1, "votedId": -1, "appliedOffset": 0,
        "currentVoters": [{"voterId": CONTROLLER}], "data_version": 0,
    }  # fmt: skip
    (root / METADATA / "quorum-state").write_text(json.dumps(state))
    return root


def record(kind: str, version: int = 0, **fields: object) -> bytes:
    schema = message(kind)
    assert schema.api_key is not None
    return bytes([1, schema.api_key, version]) + schema.write(schema.new(**fields), version)


def metadata_of(root: Path) -> list[bytes]:
    """What the controllers know: themselves, the broker, and its topics."""
    found: dict[tuple[str, uuid.UUID], list[TopicPartition]] = {}
    for path in root.glob("*-[0-9]"):
        topic_id = read_topic_id(LocalFileSystem(), str(path / "partition.metadata"))
        if path.name != METADATA and topic_id is not None:
            partition = parse_directory_name(path.name)
            found.setdefault((partition.topic, topic_id), []).append(partition)
    topics = [
        [
            record("TopicRecord", name=topic, topic_id=topic_id),
            *(
                record("PartitionRecord", topic_id=topic_id, partition_id=one.partition, replicas=[NODE], isr=[NODE])
                for one in partitions
            ),
        ]
        for (topic, topic_id), partitions in found.items()
    ]
    return [
        record("FeatureLevelRecord", name="metadata.version", feature_level=30),
        record("RegisterControllerRecord", controller_id=CONTROLLER),
        record("RegisterBrokerRecord", 3, broker_id=NODE, broker_epoch=7, log_dirs=[uuid.UUID(int=1 << 100)]),
        *(one for records in topics for one in records),
    ]


def write_copy(root: Path, records: list[bytes]) -> None:
    builder = BatchBuilder(base_offset=0, partition_leader_epoch=1)
    for value in records:
        builder.append(NewRecord(None, value, 0))
    (root / METADATA / f"{0:020}.log").write_bytes(bytes(builder.build()))


def verdict_on(root: Path) -> Verdict:
    (found,) = verdicts(str(root))
    return found


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "ends at offset 0 and has no records"),
        (2, "ends at offset 2 and does not have node 1, only 100"),
        (3, "ends at offset 3 and does not assign 4 of the partitions here"),
    ],
)
def test_it_is_unknown_what_a_broker_serves_whose_copy_of_the_metadata_is_short(
    root: Path, count: int, words: str
) -> None:
    if count:
        write_copy(root, metadata_of(root)[:count])
    found = verdict_on(root)
    assert found.starts is None
    assert words in str(found)
    assert "depends on what the controllers have" in str(found)
    assert not {"NODE-STRAY", "NODE-START", "NODE-MISSING"} & check(str(root)).codes()


def test_the_verdict_on_a_broker_says_that_it_is_by_its_copy(root: Path) -> None:
    records = metadata_of(root)
    write_copy(root, records)
    found = verdict_on(root)
    assert found.is_whole, found
    assert str(found).endswith(
        f"yes, with 3 topics, 4 partitions; by its copy of the metadata, which ends at offset {len(records)}"
    )
    assert found.to_dict()["metadata_copy_end"] == len(records)


def test_a_log_without_a_topic_id_is_a_stray_whatever_the_controllers_have(root: Path) -> None:
    write_copy(root, metadata_of(root))
    (root / "orders-0" / "partition.metadata").unlink()
    found = verdict_on(root)
    assert (found.starts, list(found.strays)) == (True, [str(root / "orders-0")])


def test_a_controller_is_judged_by_its_own_metadata(root: Path) -> None:
    state = root / METADATA / "quorum-state"
    state.write_text(state.read_text().replace(str(CONTROLLER), str(NODE)))
    found = verdict_on(root)
    assert (found.starts, len(found.strays), found.metadata_end) == (True, 4, None)


def test_it_is_unknown_whether_a_broker_starts_whose_copy_cannot_be_replayed(root: Path) -> None:
    """It cuts off what the controllers do not have before it replays anything."""
    write_copy(root, [*metadata_of(root), record("RemoveTopicRecord", topic_id=uuid.UUID(int=79))])
    found = verdict_on(root)
    assert found.starts is None
    assert "cannot be replayed" in str(found)


def test_a_controller_alone_starts_with_a_config_that_no_broker_can_use(root: Path) -> None:
    records = [one for one in metadata_of(root) if b"orders" not in one]
    bad = record("ConfigRecord", resource_type=2, resource_name="orders", name="retention.ms", value="long")
    state = root / METADATA / "quorum-state"
    state.write_text(state.read_text().replace(str(CONTROLLER), str(NODE)))
    records[1] = record("RegisterControllerRecord", controller_id=NODE)
    records[2] = record("RegisterBrokerRecord", 3, broker_id=2, broker_epoch=7, log_dirs=[uuid.UUID(int=1 << 100)])
    topic = record("TopicRecord", name="orders", topic_id=uuid.UUID(int=78))
    write_copy(root, [*records[:3], topic, bad])
    assert verdict_on(root).starts
    write_copy(root, [*records[:3], record("RegisterBrokerRecord", 3, broker_id=NODE, broker_epoch=8), topic, bad])
    assert verdict_on(root).starts is False
