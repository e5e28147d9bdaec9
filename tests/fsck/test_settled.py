"""A repair settles a directory: no finding after it offers another one, and another one changes no byte."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fsck.roots_on_disk import a_root
from tests.fsck.world import ORDERS, ROOT, directory_of, world
from tests.golden.corpus import case
from tidelog.cli.main import cli
from tidelog.fsck import Finding, Severity, check, repair
from tidelog.log import ManualClock
from tidelog.log.files import join

NOW = 1_790_000_000_000
RECOVERY = "kafka-4.3/6-recovery"
GOLDEN = [
    (RECOVERY, "unclean/before"), (RECOVERY, "unclean/after"), (RECOVERY, "clean/before"), (RECOVERY, "clean/after"),
    ("kafka-4.3/4-transactions", "image"), ("kafka-4.3/5-compaction", "1-before"),
    ("kafka-4.3/5-compaction", "3-after"), ("kafka-4.3/9-metadata", "image"), ("legacy", "by-0.10.2.2"),
    ("legacy", "by-1.0.0"),
]  # fmt: skip


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def offers(root: Path) -> list[Finding]:
    return [
        one
        for one in check(str(root), deep=True).findings
        if one.severity is not Severity.INFO and "--repair" in one.remedy
    ]


def ensure_settled(root: Path) -> None:
    """Repair a directory twice; the quarantine lies beside it, and is looked at, too."""
    assert repair(str(root), clock=ManualClock(NOW)).failures == []
    before = contents(root.parent)
    assert offers(root) == []
    assert repair(str(root), clock=ManualClock(NOW + 60_000)).done == []
    assert contents(root.parent) == before


@pytest.mark.parametrize(("name", "where"), GOLDEN)
def test_a_second_repair_of_what_kafka_has_left_has_nothing_to_do(tmp_path: Path, name: str, where: str) -> None:
    ensure_settled(Path(shutil.copytree(case(name) / where, tmp_path / "kafka")))


def test_an_aborted_transaction_before_the_log_start_needs_no_entry_in_an_index(tmp_path: Path) -> None:
    """Kafka rebuilds producers from the log start on, so its own index does not name it, nor does ours."""
    golden, root = case(RECOVERY) / "unclean", tmp_path / "kafka"
    partition, index = "u-start-mid-0", f"{30:020}.txnindex"
    shutil.copytree(golden / "before" / partition, root / partition)
    (root / "log-start-offset-checkpoint").write_text("0\n1\nu-start-mid 0 21\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text("0\n0\n")
    assert CliRunner().invoke(cli, ["recover", str(root)]).exit_code == 0
    assert (root / partition / index).read_bytes() == (golden / "after" / partition / index).read_bytes()
    before = contents(root)
    assert check(str(root), deep=True).codes() == set()
    assert repair(str(root), clock=ManualClock(NOW)).done == []
    assert contents(root) == before


def test_what_a_repair_cannot_do_is_not_offered(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "keys-0" / "partition.metadata").unlink()
    (root / "orders-0" / "notes.txt").symlink_to(root / "meta.properties")
    (root / "not-a-partition.d").mkdir()
    (root / "not-a-partition.d" / "link").symlink_to(root / "meta.properties")
    found = {one.code: one.remedy for one in check(str(root)).findings if one.severity is not Severity.INFO}
    assert found.keys() == {"PAR-METADATA", "PAR-FOREIGN", "ROOT-FOREIGN"}
    assert all(remedy.startswith("left as it is") for remedy in found.values())
    ensure_settled(root)


def test_beside_a_file_that_cannot_be_read_no_repair_is_offered() -> None:
    disk = world().copy()
    directory = directory_of(ORDERS)
    disk.open_write(join(directory, f"{44:020}.log")).write_at(70, b"damage")
    disk.fail(operation="read", path=join(directory, f"{29:020}.log"), error="Input/output error")
    bad = [one for one in check(ROOT, deep=True, fs=disk, jobs=1).findings if one.severity is not Severity.INFO]
    assert {one.code for one in bad} > {"FILE-READ"}
    assert [one.remedy for one in bad if "--repair" in one.remedy] == []
