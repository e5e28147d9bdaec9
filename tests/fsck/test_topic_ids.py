"""Topic ids: which of two is the wrong one, and when a repair may write it anew."""

import shutil
import uuid
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import a_root
from tests.golden.corpus import case
from tidelog.fsck import Finding, Severity, check, repair
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.partition_metadata import read_topic_id, uuid_text

CODE = "PAR-TOPIC-ID"
NAME = "partition.metadata"
OTHER = uuid.UUID("3a29ab75-d8d2-4f0d-b45c-0879567174fc")
THIRD = uuid.UUID("d6da9a0d-2c1d-48f4-890b-7fd8ad645e57")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a metadata log that knows `orders`, of two partitions here, and `views`, of one."""
    root = Path(shutil.copytree(case("kafka-4.3/9-metadata") / "image", tmp_path / "root"))
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def id_of(directory: Path) -> uuid.UUID:
    found = read_topic_id(LocalFileSystem(), str(directory / NAME))
    assert found is not None
    return found


def set_id(directory: Path, topic_id: uuid.UUID) -> None:
    (directory / NAME).write_text(f"version: 0\ntopic_id: {uuid_text(topic_id)}")


def noted(*roots: Path) -> list[Finding]:
    return [one for one in check([str(root) for root in roots]).findings if one.code == CODE]


def close_to(topic_id: uuid.UUID) -> uuid.UUID:
    return uuid.UUID(int=topic_id.int ^ 1 << 100)


@pytest.mark.parametrize("name", ["orders-0", "orders-1"])
def test_the_metadata_log_tells_which_of_two_ids_is_wrong(root: Path, name: str) -> None:
    right = id_of(root / name)
    set_id(root / name, OTHER)
    (found,) = noted(root)
    assert (found.file, found.severity) == (str(root / name / NAME), Severity.ERROR)
    assert found.message == f"topic id {uuid_text(OTHER)}, the metadata log has {uuid_text(right)}"


def test_partitions_that_agree_on_a_wrong_id_are_found_by_the_metadata_log(root: Path) -> None:
    """They are rather those of a topic that was deleted: Kafka sets them aside, so it is a warning."""
    for name in ("orders-0", "orders-1", "views-0"):
        set_id(root / name, OTHER)
    found = noted(root)
    assert {Path(one.file).parent.name for one in found} == {"orders-0", "orders-1", "views-0"}
    assert {one.severity for one in found} == {Severity.WARNING}


def test_what_may_be_of_a_deleted_topic_stays_and_people_are_told_what_to_do(root: Path) -> None:
    right = id_of(root / "orders-0")
    set_id(root / "orders-0", OTHER)
    result = repair(str(root))
    assert id_of(root / "orders-0") == OTHER
    (left,) = [one for one in result.left if one.code == CODE]
    assert left.remedy.startswith("compare the records with a replica")
    (root / "orders-0" / NAME).unlink()  # as the remedy says
    repair(str(root))
    assert id_of(root / "orders-0") == right
    assert not noted(root)


def test_an_id_with_a_changed_bit_is_written_anew(root: Path) -> None:
    path = root / "views-0"
    right = id_of(path)
    set_id(path, close_to(right))
    (found,) = noted(root)
    assert (found.severity, "--repair" in found.remedy) == (Severity.ERROR, True)
    result = repair(str(root))
    words = f"{path / NAME}: written with topic id {uuid_text(right)} of the metadata log (PAR-TOPIC-ID)"
    assert [line for line in result.done if NAME in line] == [words]
    assert CODE not in {one.code for one in result.left}
    assert id_of(path) == right
    assert str(path) not in would_start(LocalFileSystem(), [str(root)]).strays


@pytest.mark.parametrize("is_same", [True, False])
def test_a_file_with_a_damaged_id_is_written_anew_if_it_is_not_of_another_topic(root: Path, is_same: bool) -> None:
    path = root / "views-0"
    right = id_of(path)
    text = uuid_text(right if is_same else OTHER)
    (path / NAME).write_text(f"version: 0\ntopic_id: {text[:5]}!{text[6:]}")
    result = repair(str(root))
    assert ("PAR-METADATA" in {one.code for one in result.left}) is not is_same
    assert ("!" in (path / NAME).read_text()) is not is_same
    assert "PAR-METADATA" not in check(str(root)).codes() or not is_same


def test_without_a_metadata_log_one_against_one_names_both(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    directories = sorted(path for path in root.glob("orders-*"))
    for number, path in enumerate(directories):
        set_id(path, (OTHER, THIRD)[number % 2])
    assert len(directories) == 2
    (found,) = noted(root)
    assert found.file == str(root)
    assert found.message == (
        f"{directories[0].name} has topic id {uuid_text(OTHER)}; {directories[1].name} has topic id "
        f"{uuid_text(THIRD)}: nothing here tells which is right"
    )
    assert CODE in {one.code for one in repair(str(root)).left}


def test_without_a_metadata_log_the_one_that_differs_from_most_is_found(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    shutil.copytree(root / "orders-1", root / "orders-2")
    for name in ("orders-0", "orders-1", "orders-2"):
        set_id(root / name, OTHER if name == "orders-1" else THIRD)
    (found,) = noted(root)
    assert found.file == str(root / "orders-1" / NAME)


def test_a_topic_of_the_same_name_in_another_cluster_lends_no_id(root: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    shutil.rmtree(other / "__cluster_metadata-0")
    (other / "views-0" / NAME).unlink()
    identity = other / "meta.properties"
    lines = [line for line in identity.read_text().splitlines() if not line.startswith(("cluster.id", "directory.id"))]
    identity.write_text("\n".join([*lines, "cluster.id=AbCdEfGhIjKlMnOpQrStUw", ""]))
    result = repair([str(tmp_path)])
    assert not (other / "views-0" / NAME).exists()
    assert str(other / "views-0" / NAME) in {one.file for one in result.left}
