"""What a repair keeps, what it cuts out, where it puts it, and how it leaves the root."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.test_check import batch_starts
from tests.fsck.world import CONFIG, NOW
from tests.golden.corpus import case
from tidelog.errors import LockedError
from tidelog.fsck import RepairResult, check, plan_repair
from tidelog.fsck.mending import repair
from tidelog.fsck.quarantine import MANIFEST
from tidelog.log import ManualClock
from tidelog.log.files import join
from tidelog.log.locks import lock_path
from tidelog.records import read_batches


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def repaired(root: Path, quarantine: Path | None = None) -> RepairResult:
    return repair(
        str(root), config=CONFIG, clock=ManualClock(NOW), quarantine=None if quarantine is None else str(quarantine)
    )


def manifest(result: RepairResult) -> list[dict[str, object]]:
    (place,) = result.quarantine
    return [json.loads(line) for line in (Path(place) / MANIFEST).read_bytes().splitlines()]


def offsets_in(log: Path) -> list[int]:
    return [record.offset for batch in read_batches(log.read_bytes()) for record in batch]


def test_a_sound_root_is_left_as_it_is(root: Path) -> None:
    before = contents(root)
    result = repaired(root)
    assert (result.done, result.quarantine, result.is_clean) == ([], [], True)
    assert contents(root) == before


def test_one_corrupt_batch_goes_and_everything_around_it_stays(root: Path) -> None:
    log = segment(root, 1)
    starts, before = batch_starts(log), offsets_in(log)
    flip(log, starts[2] + 70)
    damaged = log.read_bytes()
    result = repaired(root)
    assert result.is_clean
    assert offsets_in(log) == [offset for offset in before if offset not in (18, 19)]
    (entry,) = [one for one in manifest(result) if one["code"] == "LOG-CRC" and one["file"] == str(log)]
    assert (entry["file"], entry["position"], entry["missing_offsets"]) == (str(log), starts[2], [18, 19])
    kept = (Path(result.quarantine[0]) / str(entry["piece"])).read_bytes()
    assert kept == damaged[starts[2] : starts[3]]
    assert hashlib.sha256(kept).hexdigest() == entry["sha256"]


def test_the_quarantine_lies_beside_the_root_or_where_one_says(root: Path, tmp_path: Path) -> None:
    flip(segment(root), 70)
    assert Path(repaired(root).quarantine[0]).parent == tmp_path / "kafka.tidelog"
    flip(segment(root, 2), 70)
    elsewhere = tmp_path / "elsewhere"
    assert Path(repaired(root, elsewhere).quarantine[0]).parent == elsewhere
    assert check(str(root), deep=True, quarantine=str(elsewhere)).is_clean
    assert check(str(root), deep=True).codes() == {"LOG-GAP"}  # the second repair is not known there


def test_a_second_run_knows_what_the_first_took_out(root: Path) -> None:
    flip(segment(root, 2), 70)
    repaired(root)
    report = check(str(root), deep=True)
    assert report.is_clean
    assert any("a repair has moved them" in finding.message for finding in report.findings)


def test_offset_epoch_and_version_are_written_right_where_they_are_known(root: Path) -> None:
    log = segment(root, 3)
    before = contents(root)
    starts = batch_starts(log)
    flip(log, starts[1] + 6, bit=3)
    flip(log, starts[3] + 15, bit=2)
    flip(log, starts[5] + 16, bit=0)
    result = repaired(root)
    assert result.is_clean
    assert contents(root) == before
    assert {one["code"] for one in manifest(result)} == {"LOG-OFFSET", "LOG-EPOCH", "LOG-MAGIC"}


def test_exchanged_segments_are_put_back(root: Path) -> None:
    before = {path.name: path.read_bytes() for path in (root / "orders-0").glob("*.log")}
    one, two = segment(root, 1), segment(root, 4)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert repaired(root).is_clean
    assert {path.name: path.read_bytes() for path in (root / "orders-0").glob("*.log")} == before


def test_foreign_files_and_directories_are_moved_out(root: Path) -> None:
    (root / "backup" / "deep").mkdir(parents=True)
    (root / "backup" / "deep" / "a.txt").write_text("a")
    (root / "orders-0" / "copy.log").write_text("b")
    result = repaired(root)
    assert result.is_clean
    place = Path(result.quarantine[0])
    assert (place / "backup" / "deep" / "a.txt").read_text() == "a"
    assert (place / "orders-0" / "copy.log").read_text() == "b"
    assert not (root / "backup").exists()


def test_a_topic_id_is_taken_from_another_partition_and_else_left_to_people(root: Path) -> None:
    path = root / "orders-0" / "partition.metadata"
    before = path.read_bytes()
    path.write_bytes(b"version: 0\ntopic_id: nonsense")
    (root / "keys-0" / "partition.metadata").write_bytes(b"?")
    result = repaired(root)
    assert path.read_bytes() == before
    assert [(one.code, one.topic_partition.topic) for one in result.left if one.topic_partition] == [
        ("PAR-METADATA", "keys")
    ]
    assert not result.is_clean


def test_the_log_start_is_restored_from_the_leader_epochs(root: Path) -> None:
    path = root / "log-start-offset-checkpoint"
    before = path.read_bytes()
    path.unlink()
    assert repaired(root).is_clean
    assert path.read_bytes() == before


def test_a_root_that_a_broker_has_open_is_refused(root: Path) -> None:
    flip(segment(root), 70)
    before = contents(root)
    lock = lock_path(join(str(root), ".lock"))
    try:
        with pytest.raises(LockedError, match="stop it first"):
            repaired(root)
    finally:
        lock.release()
    (root / ".lock").unlink()
    assert contents(root) == before


def test_a_plan_says_what_would_be_done_and_does_nothing(root: Path) -> None:
    flip(segment(root), 70)
    before = contents(root)
    lines = list(plan_repair(check(str(root), deep=True)).lines())
    assert "to the quarantine (LOG-CRC)" in lines[0]
    assert contents(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_new_files_have_the_owner_and_the_mode_of_the_old_ones(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        os.chown(path, 4711, 4712)
        path.chmod(0o750 if path.is_dir() else 0o640)
    flip(segment(root, 1), 70)
    (root / "orders-1" / "leader-epoch-checkpoint").unlink()
    assert repaired(root).is_clean
    stats = {path.name: path.stat() for path in root.rglob("*") if path.is_file()}
    assert {(found.st_uid, found.st_gid, found.st_mode & 0o777) for found in stats.values()} == {(4711, 4712, 0o640)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_the_broker_may_not_write_is_given_to_it(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        os.chown(path, 4711, 4712)
    os.chown(segment(root), 0, 0)
    segment(root).chmod(0o600)
    assert check(str(root)).codes() == {"FILE-OWNER"}
    assert repaired(root).is_clean
    assert segment(root).stat().st_uid == 4711


def test_the_lock_of_a_repair_does_not_make_a_copy_a_root_that_lacks_its_identity(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(case("kafka-4.3/4-transactions") / "image", tmp_path / "copy"))
    log = copy / "txn-main-0" / "00000000000000000051.log"
    log.chmod(0o644)
    data = bytearray(log.read_bytes())
    data[610] ^= 1
    log.write_bytes(data)
    planned = repair(str(copy), dry_run=True)
    done = repair(str(copy))
    assert planned.after.is_clean
    assert done.is_clean
    assert [finding.code for finding in planned.left] == [finding.code for finding in done.left] == []
