"""Whether Kafka would start on directories, and with what: read off a metadata log that Kafka wrote.

What Kafka really does with such directories is compared in tests/compat/test_would_start.py.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import a_root, contents
from tests.golden.corpus import case
from tidelog.fsck import Verdict, check, repair, verdicts
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import UNFINISHED_WRITE
from tidelog.log.partition_metadata import read_topic_id
from tidelog.records import read_batches

CASE = "kafka-4.3/9-metadata"
METADATA = "__cluster_metadata-0"
IDENTITY = "meta.properties"
OTHER_ID = "AbCdEfGhIjKlMnOpQrStUw"


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
    assert "begun anew, empty" in str(found)


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
    assert "; 1 cut short by recovery, 11 begun anew" in str(found)
    assert not found.is_whole
    assert found.topics["orders"][0] == (5, 5)
    [first, _] = found.to_dict()["cut_short"]["orders-0"]
    assert (first["position"], first["bytes"], first["last_offset"]) == (125, 250, 11)


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


HARMLESS: dict[str, Damage] = {
    "an older snapshot": lambda root: keep(sorted((root / METADATA).glob("*.checkpoint"))[-2], 0.5),
    "no quorum-state": lambda root: (root / METADATA / "quorum-state").unlink(),
    "no bootstrap.checkpoint": lambda root: (root / "bootstrap.checkpoint").unlink(),
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
    result = repair(str(root))
    assert any("PAR-METADATA" in line for line in result.done)
    assert read_topic_id(LocalFileSystem(), str(path)) == before
    assert not verdict_on(root).strays


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
