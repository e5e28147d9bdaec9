"""Whether Kafka would start on directories, and with what: read off a metadata log that Kafka wrote.

What Kafka really does with such directories is compared in tests/compat/test_would_start.py.
"""

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import a_root, contents
from tests.golden.corpus import case
from tests.log.logs import unreadable_marker
from tidelog.fsck import Verdict, check, repair, verdicts
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import UNFINISHED_WRITE, TopicPartition
from tidelog.log.partition_metadata import read_topic_id, uuid_text
from tidelog.protocol import message
from tidelog.records import NewRecord, build_batch, read_batches
from tidelog.records.checksum import crc32c_of

CASE = "kafka-4.3/9-metadata"
METADATA = "__cluster_metadata-0"
IDENTITY = "meta.properties"
FIRST_CONTROL_TYPE = 69  # after the header of a batch and what precedes the key of a record, its second byte
OTHER_ID = "AbCdEfGhIjKlMnOpQrStUw"
THIRD_ID = "1tqYDSwdSPSJC3_YrWReVw"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a metadata log. Of the topics that it knows, some partitions have directories."""
    return Path(shutil.copytree(case(CASE) / "image", tmp_path / "root"))


def verdict_on(*roots: Path) -> Verdict:
    (found,) = verdicts([str(root) for root in roots])
    return found


def codes(*roots: Path) -> set[str]:
    return check([str(root) for root in roots]).codes()


def newest(root: Path, suffix: str) -> Path:
    path = sorted((root / METADATA).glob(f"*{suffix}"))[-1]
    path.chmod(0o644)
    return path


def keep(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def repeat_batch(path: Path, number: int) -> None:
    """Write a batch a second time, right after itself."""
    data = path.read_bytes()
    sizes = [batch.size_in_bytes for batch in read_batches(data)]
    start, end = sum(sizes[:number]), sum(sizes[: number + 1])
    path.write_bytes(data[:end] + data[start:])


def set_byte(path: Path, position: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] = value
    path.write_bytes(data)


def test_kafka_starts_with_the_topics_of_the_metadata(root: Path) -> None:
    created, deleted = set(), set()
    for deed, what, _ in json.loads((case(CASE) / "operations.json").read_text(encoding="utf-8")):
        if deed == "create":
            created.add(what["topic"])
        elif deed == "delete_topic":
            deleted.add(what["topic"])
    found = verdict_on(root)
    assert found.starts
    assert {topic for topic in found.topics if not topic.startswith("__")} == created - deleted
    assert not found.strays


def test_where_logs_begin_and_end_is_told_and_what_has_no_directory_begins_anew(root: Path) -> None:
    found = verdict_on(root)
    assert found.topics["orders"][0] is not None
    assert {str(partition) for partition in found.missing} & {"orders-0", "orders-1", "views-0"} == set()
    assert not found.is_whole
    assert "created empty" in str(found)


def test_a_directory_without_a_metadata_log_is_not_judged(root: Path) -> None:
    shutil.rmtree(root / METADATA)
    found = verdict_on(root)
    assert (found.starts, str(found)) == (None, "Would Kafka 4.3 start? unknown: no metadata log here")


def unformatted(root: Path) -> None:
    (root / IDENTITY).unlink()
    (root / "bootstrap.checkpoint").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: (root / "foo").mkdir(), "foo does not belong into a log directory"),
        (lambda root: (root / UNFINISHED_WRITE).mkdir(), "a write was interrupted; run `tidelog recover"),
        (lambda root: (root / IDENTITY).write_text("version=9\n"), "version 9"),
        (unformatted, "it is missing"),
        (lambda root: shutil.copytree(root / "orders-0", root / "orders-00"), "is the same partition"),
    ],
)
def test_what_ends_every_start_is_a_no_without_a_metadata_log_too(
    root: Path, damage: Callable[[Path], object], words: str
) -> None:
    shutil.rmtree(root / METADATA)
    damage(root)
    found = verdict_on(root)
    assert found.starts is False
    assert words in (found.reason or "")
    assert str(found).startswith("Would Kafka 4.3 start? no: ")
    assert check(str(root)).codes(), "the reason is among the findings"


def test_partitions_that_a_start_would_cut_short_are_counted_and_listed(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    points = root / "recovery-point-offset-checkpoint"
    points.write_text("0\n0\n")
    log = next((root / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    last = sorted((root / "views-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes() + data[:30])  # a torn end loses nothing
    assert not verdict_on(root).cut_short
    data[200] ^= 1
    log.write_bytes(data)
    found = verdict_on(root)
    assert "; 1 cut short by recovery, 11 created empty" in str(found)
    assert not found.is_whole
    assert found.topics["orders"][0] == (5, 5)
    [first, _] = found.to_dict()["cut_short"]["orders-0"]
    assert (first["position"], first["bytes"], first["last_offset"]) == (125, 250, 11)


def test_a_start_indexes_logs_as_often_as_the_configs_of_the_topic_say(root: Path) -> None:
    """An index that is to have an entry for each batch cannot hold offsets that go back: Kafka empties the segment."""
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    log = next((root / "orders-0").glob("*.log"))
    data = log.read_bytes()
    sizes = [batch.size_in_bytes for batch in read_batches(data)]
    second, third, fourth = sizes[0], sum(sizes[:2]), sum(sizes[:3])
    log.write_bytes(data[:second] + data[third:fourth] + data[second:third] + data[fourth:])
    kept = verdict_on(root).topics["orders"][0]
    assert kept is not None
    assert kept.end > 0
    add_config(root, "orders", "index.interval.bytes", "0")
    emptied = verdict_on(root).topics["orders"][0]
    assert emptied is not None
    assert emptied.first == emptied.end < kept.end


def lead_nowhere(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.symlink_to("nowhere")


def in_quorum_state(root: Path, name: str, value: object) -> None:
    path = root / METADATA / "quorum-state"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))


def add_config(root: Path, topic: str, name: str, value: str) -> None:
    add_record(root, "ConfigRecord", resource_type=2, resource_name=topic, name=name, value=value)


def add_record(root: Path, kind: str, **fields: object) -> None:
    """Add a record to the metadata log."""
    schema = message(kind)
    add_bytes(root, bytes([1, schema.api_key, 0]) + schema.write(schema.new(**fields), 0))


def add_bytes(root: Path, value: bytes, key: bytes | None = None) -> None:
    log = newest(root, ".log")
    last = list(read_batches(log.read_bytes()))[-1]
    data = build_batch([NewRecord(key, value, 0)], base_offset=last.next_offset, partition_leader_epoch=1)
    log.write_bytes(log.read_bytes() + data)


def add_partition(root: Path, **fields: object) -> None:
    """A partition of orders that no controller would write."""
    (topic_id,) = [found for name, found in verdict_on(root).topic_ids.items() if name == "orders"]
    whole = {"partition_id": 9, "replicas": [1], "isr": [1], "leader": 1, **fields}
    add_record(root, "PartitionRecord", topic_id=topic_id, **whole)


def add_aborted(root: Path) -> None:
    """A metadata transaction that is aborted, with a record that cannot be replayed."""
    add_record(root, "BeginTransactionRecord")
    add_record(root, "RemoveTopicRecord", topic_id=uuid.UUID(int=79))
    add_record(root, "AbortTransactionRecord")


def as_directory(path: Path, *, is_full: bool = False) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    if is_full:
        (path / "notes.txt").write_text("x")


def write_bootstrap(root: Path, level: int) -> None:
    schema = message("FeatureLevelRecord")
    record = schema.write(schema.new(name="metadata.version", feature_level=level), 0)
    data = build_batch([NewRecord(None, bytes([1, schema.api_key, 0]) + record, 0)])
    (root / "bootstrap.checkpoint").write_bytes(data)


def test_directories_that_a_broker_has_open_are_not_judged(root: Path) -> None:
    lock = LocalFileSystem().lock(str(root / ".lock"))
    try:
        found = verdict_on(root)
    finally:
        lock.release()
    assert (found.starts, found.reason) == (None, "a broker has it open")


def test_nothing_is_written_where_a_start_is_rehearsed(root: Path) -> None:
    before = contents(root)
    (root / "orders-0" / "notes.log.deleted").write_text("x")
    verdict_on(root)
    (root / "orders-0" / "notes.log.deleted").unlink()
    assert contents(root) == before


Damage = Callable[[Path], object]
REFUSED: dict[str, tuple[Damage, str]] = {
    "half of the newest snapshot": (lambda root: keep(newest(root, ".checkpoint"), 0.5), "META-SNAPSHOT"),
    "nothing of the newest snapshot": (lambda root: keep(newest(root, ".checkpoint"), 0), "META-SNAPSHOT"),
    "zeros for the newest snapshot": (
        lambda root: newest(root, ".checkpoint").write_bytes(bytes(500)), "META-SNAPSHOT",
    ),
    "no JSON in quorum-state": (lambda root: (root / METADATA / "quorum-state").write_text("xx"), "META-QUORUM"),
    "a quorum-state of the future": (
        lambda root: (root / METADATA / "quorum-state").write_text('{"data_version":7}'), "META-QUORUM",
    ),
    "a snapshot that names the voters twice": (
        lambda root: repeat_batch(newest(root, ".checkpoint"), 0), "META-SNAPSHOT",
    ),
    "a snapshot that creates topics twice": (
        lambda root: repeat_batch(newest(root, ".checkpoint"), 1), "META-SNAPSHOT",
    ),
    "a bootstrap.checkpoint with an unknown control record": (
        lambda root: set_byte(root / "bootstrap.checkpoint", FIRST_CONTROL_TYPE, 19), "META-BOOTSTRAP",
    ),
    "a file whose name only ends like that of a snapshot": (
        lambda root: (root / METADATA / "notes.checkpoint").write_text("x"), "META-SNAPSHOT",
    ),
    "a snapshot with an offset that does not exist": (
        lambda root: newest(root, ".checkpoint").rename(root / METADATA / f"{'9' * 20}-0000000001.checkpoint"),
        "META-SNAPSHOT",
    ),
    "the last leader epoch in quorum-state": (
        lambda root: in_quorum_state(root, "leaderEpoch", 2**31 - 1), "META-QUORUM",
    ),
    "a leader epoch that is too large": (lambda root: in_quorum_state(root, "leaderEpoch", 2**40), "META-QUORUM"),
    "an infinite version of quorum-state": (
        lambda root: (root / METADATA / "quorum-state").write_text('{"data_version":1e400}'), "META-QUORUM",
    ),
    "no number in quorum-state": (lambda root: in_quorum_state(root, "appliedOffset", float("nan")), "META-QUORUM"),
    "a link that leads nowhere in place of a partition": (lambda root: lead_nowhere(root / "orders-0"), "NODE-START"),
    "a config that Kafka rejects": (lambda root: add_config(root, "orders", "retention.ms", "long"), "NODE-START"),
    "segments that Kafka 4 rejects": (lambda root: add_config(root, "orders", "segment.bytes", "9999"), "NODE-START"),
    "a feature of a later Kafka": (
        lambda root: add_record(root, "FeatureLevelRecord", name="group.version", feature_level=9), "NODE-START",
    ),
    "a metadata.version that cannot represent what is there": (
        lambda root: add_record(root, "FeatureLevelRecord", name="metadata.version", feature_level=7), "NODE-START",
    ),
    "a metadata transaction that is wrong and aborted": (add_aborted, "NODE-START"),
    "a record with a key": (lambda root: add_bytes(root, bytes([1, 20, 0, 0]), b"key"), "NODE-START"),
    "no number as the least replicas in sync": (
        lambda root: add_record(
            root, "ConfigRecord", resource_type=4, resource_name="", name="min.insync.replicas", value="x"
        ), "NODE-START",
    ),
    "configs of a broker without a number": (
        lambda root: add_record(root, "ConfigRecord", resource_type=4, resource_name="x", name="a", value="b"),
        "NODE-START",
    ),
    "a delegation token of nobody": (
        lambda root: add_record(root, "DelegationTokenRecord", owner="a", requester="a", token_id="t"), "NODE-START",
    ),
    "a partition on a broker twice": (lambda root: add_partition(root, replicas=[1, 1]), "NODE-START"),
    "a partition with a negative number": (lambda root: add_partition(root, partition_id=-5), "NODE-START"),
    "a recovery state that is unknown": (lambda root: add_partition(root, leader_recovery_state=9), "NODE-START"),
    "no topic whose eligible replicas are cleared": (
        lambda root: add_record(root, "ClearElrRecord", topic_name="nowhere"), "NODE-START",
    ),
    "a change of the broker that is unknown": (
        lambda root: add_record(root, "BrokerRegistrationChangeRecord", broker_id=1, broker_epoch=-9), "NODE-START",
    ),
    "a leader that no node can be": (lambda root: in_quorum_state(root, "leaderId", -2), "NODE-START"),
    "epochs of the metadata that are a link to nowhere": (
        lambda root: (
            (root / METADATA / "leader-epoch-checkpoint").unlink(),
            (root / METADATA / "leader-epoch-checkpoint").symlink_to("nowhere"),
        ), "NODE-START",
    ),
    "a mark of a clean stop that cannot be removed": (
        lambda root: as_directory(root / ".kafka_cleanshutdown", is_full=True), "NODE-START",
    ),
    "entries that do not fit segment.index.bytes": (
        lambda root: (
            add_config(root, "orders", "segment.index.bytes", "4"),
            add_config(root, "orders", "index.interval.bytes", "0"),
            (root / ".kafka_cleanshutdown").unlink(missing_ok=True),
            (root / "recovery-point-offset-checkpoint").write_text("0\n0\n"),
        ), "NODE-START",
    ),
    "half of bootstrap.checkpoint": (lambda root: keep(root / "bootstrap.checkpoint", 0.3), "META-BOOTSTRAP"),
    "the id of another topic": (
        lambda root: (root / METADATA / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}"),
        "NODE-START",
    ),
    "another node": (
        lambda root: (root / IDENTITY).write_text((root / IDENTITY).read_text().replace("node.id=1", "node.id=7")),
        "NODE-START",
    ),
    "a directory that is no partition": (lambda root: (root / "backup").mkdir(), "NODE-START"),
    "a broken checkpoint beside the metadata": (
        lambda root: (root / "recovery-point-offset-checkpoint").write_text("xx"), "NODE-START",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", REFUSED.values(), ids=REFUSED)
def test_what_keeps_kafka_from_starting_is_an_error(root: Path, damage: tuple[Damage, str]) -> None:
    hurt, code = damage
    hurt(root)
    found = verdict_on(root)
    assert (found.starts, found.topics) == (False, {})
    assert found.reason
    assert {code, "NODE-START"} <= codes(root)


@pytest.mark.parametrize("is_recovered", [True, False])
def test_a_marker_that_must_be_read_and_cannot_keeps_kafka_from_starting_until_the_repair(
    root: Path, is_recovered: bool
) -> None:
    log = max((root / "orders-0").glob("*.log"))
    log.chmod(0o644)
    batches = list(read_batches(log.read_bytes()))
    end = batches[-1].last_offset + 1
    log.write_bytes(log.read_bytes() + unreadable_marker(end))
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    if not is_recovered:
        (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    assert verdict_on(root).starts is False
    assert {"LOG-RECORDS", "NODE-START"} <= codes(root)
    repair(str(root))
    found = verdict_on(root).topics["orders"][0]
    assert found is not None
    assert found.end == end


HARMLESS: dict[str, Damage] = {
    "an older snapshot": lambda root: keep(sorted((root / METADATA).glob("*.checkpoint"))[-2], 0.5),
    "no quorum-state": lambda root: (root / METADATA / "quorum-state").unlink(),
    "no bootstrap.checkpoint": lambda root: (root / "bootstrap.checkpoint").unlink(),
    "a directory as the mark of a clean stop": lambda root: as_directory(root / ".kafka_cleanshutdown"),
    "a level of a later Kafka in bootstrap.checkpoint": lambda root: write_bootstrap(root, 31),
    "a record of a later version": lambda root: add_bytes(root, bytes([1, 20, 9, 0])),
    "a segment before offset 0": lambda root: (root / "orders-0" / "-5.log").write_text("x"),
    "a snapshot with a sign": lambda root: (root / "orders-0" / "+5.snapshot").write_text("x"),
    "an index of another script": lambda root: (root / "orders-0" / "0000000000000000000\u0661.index").write_text("x"),
    "a directory with the name of a segment": lambda root: (root / "orders-0" / "x.log").mkdir(),
    "a link to nowhere with the name of a segment": lambda root: (root / "orders-0" / f"{700:020}.log").symlink_to(
        "nowhere"
    ),
    "no indexes": lambda root: [path.unlink() for path in (root / METADATA).glob("*index")],
}


@pytest.mark.parametrize("damage", HARMLESS.values(), ids=HARMLESS)
def test_what_kafka_can_do_without_does_not_keep_it_from_starting(root: Path, damage: Damage) -> None:
    before = verdict_on(root).topics
    for path in (root / METADATA).glob("*.checkpoint"):
        path.chmod(0o644)
    damage(root)
    found = verdict_on(root)
    assert (found.starts, found.topics) == (True, before)


def test_partitions_that_only_eligible_replicas_could_lead_are_offline_once_those_are_cleared(root: Path) -> None:
    add_record(root, "ClearElrRecord", topic_name="orders")
    found = verdict_on(root)
    assert set(found.topics["orders"].values()) == {None}
    assert {one.topic for one in found.offline} == {"orders"}


def test_a_new_cluster_is_not_created_at_a_level_that_kafka_does_not_know(root: Path) -> None:
    shutil.rmtree(root / METADATA)
    (root / METADATA).mkdir()
    assert verdict_on(root).starts
    write_bootstrap(root, 31)
    found = verdict_on(root)
    assert (found.starts, found.reason_path) == (False, str(root / "bootstrap.checkpoint"))


def test_a_metadata_segment_without_room_for_its_producer_snapshot_is_emptied(root: Path) -> None:
    """Kafka then goes back to its newest snapshot."""
    last = max((root / METADATA).glob("*.log"))
    end = list(read_batches(last.read_bytes()))[-1].next_offset
    as_directory(root / METADATA / f"{end:020}.snapshot")
    assert verdict_on(root).starts


def test_a_log_directory_that_is_a_link_to_itself_is_offline(root: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    found = would_start(LocalFileSystem(), [str(root), str(tmp_path / "loop")])
    assert (found.starts, list(found.offline_roots)) == (True, [str(tmp_path / "loop")])


def test_a_partition_whose_replicas_in_sync_are_elsewhere_may_be_served_or_not(root: Path) -> None:
    add_partition(root, isr=[2], leader=2)
    assert TopicPartition("orders", 9) in verdict_on(root).uncertain


def test_a_node_has_a_number_in_any_script(root: Path) -> None:
    path = root / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=\\u0661"))
    assert verdict_on(root).starts


def test_a_broker_that_was_killed_serves_what_another_broker_leads(root: Path) -> None:
    """It was in sync, and is not any more; the other one leads, so nothing is in doubt."""
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    add_partition(root, replicas=[1, 2], isr=[1, 2], leader=2)
    assert TopicPartition("orders", 9) in verdict_on(root).uncertain
    add_record(root, "RegisterBrokerRecord", broker_id=2, incarnation_id=uuid.UUID(int=2), broker_epoch=999)
    assert not verdict_on(root).uncertain


def test_topics_that_the_metadata_has_lost_are_set_aside(root: Path) -> None:
    for pattern in ("*.checkpoint", "*.log"):
        for path in (root / METADATA).glob(pattern):
            path.unlink()
    (root / METADATA / "quorum-state").unlink()
    found = verdict_on(root)
    assert (found.starts, found.topics) == (True, {})
    assert {Path(path).name for path in found.strays} == {"a-1-2-1", "orders-0", "orders-1", "views-0"}
    assert "4 set aside as strays" in str(found)
    assert "NODE-STRAY" in codes(root)


def test_a_snapshot_that_begins_with_an_unknown_codec_is_a_no_that_names_it(root: Path) -> None:
    """Its checksum is right: only the one who decompresses the batch sees it."""
    path = newest(root, ".checkpoint")
    data = bytearray(path.read_bytes())
    end = 12 + int.from_bytes(data[8:12], "big")
    data[22] |= 7
    data[17:21] = crc32c_of(bytes(data[21:end])).to_bytes(4, "big")
    path.write_bytes(data)
    found = verdict_on(root)
    assert (found.starts, found.reason_path) == (False, str(path))
    assert "codec id 7 is unknown" in str(found)
    assert "META-SNAPSHOT" in codes(root)


def test_a_snapshot_that_is_cut_between_batches_is_found_where_kafka_starts_without_topics(root: Path) -> None:
    path = newest(root, ".checkpoint")
    header, *_ = read_batches(path.read_bytes())
    path.write_bytes(bytes(header.buffer))
    for log in (root / METADATA).glob("*.log"):
        log.unlink()
    assert str(verdict_on(root)).endswith("yes, with 0 topics, 0 partitions; 4 set aside as strays")
    report = check(str(root))
    (found,) = [one for one in report.findings if one.code == "META-SNAPSHOT"]
    assert (found.file, found.severity.value) == (str(path), "error")


def test_a_topic_id_is_written_anew_from_the_metadata_log(root: Path) -> None:
    path = root / "views-0" / "partition.metadata"
    before = read_topic_id(LocalFileSystem(), str(path))
    path.unlink()
    assert "PAR-METADATA" in codes(root)
    assert str(root / "views-0") in verdict_on(root).strays
    assert before is not None
    shutil.copytree(root / "views-0", root / "views-1")
    (root / "views-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    result = repair(str(root))
    words = f"{path}: written with topic id {uuid_text(before)} of the metadata log (PAR-METADATA)"
    assert [line for line in result.done if "views-0/partition.metadata" in line] == [words]
    assert read_topic_id(LocalFileSystem(), str(path)) == before
    assert str(root / "views-0") not in verdict_on(root).strays


# -- several roots -----------------------------------------------------------------------------------------------------


def two_roots(tmp_path: Path) -> list[Path]:
    roots = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        roots.append(a_root(tmp_path / name))
    return roots


def test_log_dirs_that_are_named_together_share_no_partition_and_no_id(tmp_path: Path) -> None:
    roots = two_roots(tmp_path)
    report = check([str(root) for root in roots])
    told = {(one.code, Path(one.file).name) for one in report.findings if one.code in ("ROOT-DUPLICATE", "ROOT-ID")}
    assert ("ROOT-DUPLICATE", "orders-0") in told
    assert all(one.file.startswith(str(roots[1])) for one in report.findings if one.code == "ROOT-DUPLICATE")


def test_equal_ids_of_log_dirs_are_an_error(tmp_path: Path, root: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in (IDENTITY, "recovery-point-offset-checkpoint"):
        shutil.copy(root / name, other / name)
    assert "ROOT-ID" in codes(root, other)
    found = verdict_on(root, other)
    assert found.starts is False
    assert "directory.id" in (found.reason or "")


def test_copies_in_a_tree_of_backups_are_no_duplicates(tmp_path: Path) -> None:
    two_roots(tmp_path)
    assert not {"ROOT-DUPLICATE", "ROOT-ID"} & codes(tmp_path)


def test_a_partition_that_lies_in_two_log_dirs_keeps_kafka_from_starting(tmp_path: Path, root: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(root / "orders-0", other / "orders-0")
    identity = (root / IDENTITY).read_text()
    lines = [line for line in identity.splitlines() if not line.startswith("directory.id")]
    (other / IDENTITY).write_text("\n".join([*lines, f"directory.id={OTHER_ID}", ""]))
    found = verdict_on(root, other)
    assert (found.starts, found.reason_path) == (False, str(other / "orders-0"))
    assert {"ROOT-DUPLICATE", "NODE-START"} <= codes(root, other)


@pytest.mark.parametrize("nodes", [(None, None), (1, None), (1, 2)])
def test_a_partition_in_two_named_directories_is_reported_whoever_they_belong_to(
    tmp_path: Path, root: Path, nodes: tuple[int | None, int | None]
) -> None:
    """Without a metadata log, and whether the directories are formatted or not."""
    others = [tmp_path / "d1", tmp_path / "d2"]
    for other, node, directory_id in zip(others, nodes, (OTHER_ID, THIRD_ID), strict=True):
        shutil.copytree(root / "orders-0", other / "orders-0")
        shutil.copy(root / "recovery-point-offset-checkpoint", other)
        if node is not None:
            identity = f"version=1\nnode.id={node}\ncluster.id=c\ndirectory.id={directory_id}\n"
            (other / IDENTITY).write_text(identity)
    found = verdict_on(*others)
    assert (found.starts, found.reason_path) == (False, str(others[1] / "orders-0"))
    assert "ROOT-DUPLICATE" in codes(*others)


def test_named_directories_of_different_nodes_keep_kafka_from_starting(tmp_path: Path, root: Path) -> None:
    others = [tmp_path / "d1", tmp_path / "d2"]
    for number, other in enumerate(others):
        shutil.copytree(root / f"orders-{number}", other / f"orders-{number}")
        (other / IDENTITY).write_text(f"version=1\nnode.id={number}\ncluster.id=c\n")
    assert verdict_on(*others).reason == "it is of node 1, another directory of node 0"
    assert "NODE-START" in codes(*others)


def test_directories_that_a_config_names_are_of_one_node_even_with_two_metadata_logs(
    tmp_path: Path, root: Path
) -> None:
    roots = [root, shutil.copytree(root, tmp_path / "other")]
    identity = roots[1] / IDENTITY
    identity.chmod(0o644)
    identity.write_text(identity.read_text().replace("node.id=1", "node.id=2"))
    names = [str(root) for root in roots]
    assert len(verdicts(names)) == 2
    [found] = verdicts(names, are_log_dirs=True)
    assert found.starts is False
    assert {"ROOT-DUPLICATE", "NODE-START"} <= check(names, are_log_dirs=True).codes()


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
FORMS = {"no version": "x\n", "another version": "1\n0\n", "a count that is wrong": "0\n3\norders 0 1\n",
         "a field too few": "0\n1\norders 0\n", "no text": "\udcff"}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_that_is_not_of_its_form_is_an_error_and_takes_the_directory_offline(
    root: Path, name: str, form: str
) -> None:
    (root / name).write_bytes(FORMS[form].encode(errors="surrogateescape"))
    report = check([str(root)])
    [finding] = [one for one in report.findings if one.code == "CHK-FORMAT"]
    [verdict] = report.verdicts
    assert finding.severity.value == "error"
    assert finding.message.endswith("Kafka takes the log directory offline")
    assert str(root) in verdict.offline_roots or verdict.starts is False  # the last directory ends the start


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_wrong_number_in_a_checkpoint_is_as_grave_as_what_kafka_makes_of_it(root: Path, name: str) -> None:
    (root / name).write_text("0\n1\norders 0 x\n")
    report = check([str(root)])
    [finding] = [one for one in report.findings if one.code == "CHK-FORMAT"]
    [verdict] = report.verdicts
    is_served = verdict.starts and verdict.topics["orders"][0] is not None
    assert is_served == (finding.severity.value == "warning") == (name != "replication-offset-checkpoint")
