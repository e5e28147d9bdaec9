"""What a repair keeps, what it cuts out, where it puts it, and how it leaves the root."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fsck import roots
from tests.fsck.campaign import untold
from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.test_check import batch_starts
from tests.fsck.world import CONFIG, NOW
from tests.golden.corpus import case
from tidelog.errors import LockedError
from tidelog.fsck import RepairResult, check, plan_repair
from tidelog.fsck.mending import repair
from tidelog.fsck.quarantine import MANIFEST
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.checkpoints import EpochEntry, LeaderEpochCheckpoint
from tidelog.log.files import join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.locks import lock_path
from tidelog.log.names import LEADER_EPOCH_CHECKPOINT, TopicPartition
from tidelog.records import NewRecord, build_batch, read_batches


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


def test_no_byte_changes_without_a_line_that_names_the_file(root: Path) -> None:
    flip(segment(root, 1), batch_starts(segment(root, 1))[2] + 70)
    flip(segment(root, 2, ".index"), 3)
    segment(root, 3, ".snapshot").unlink()
    (root / "orders-1" / "notes.txt").write_text("mine")
    (root / "recovery-point-offset-checkpoint").write_text("nonsense")
    before = {str(root / name): data for name, data in contents(root).items()}
    result = repaired(root)
    after = {str(root / name): data for name, data in contents(root).items()}
    assert len({path for path in {*before, *after} if before.get(path) != after.get(path)}) > 6
    assert untold(before, after, result) == []


def a_log_whose_epochs_are_older_than_its_start(tmp_path: Path, *, is_damaged: bool = False) -> Path:
    """What a kill leaves when the log start was written, and the leader epochs were not yet."""
    log = a_partition_of(tmp_path / "r", (1, 1, 1, 1, 2, 2, 2, 2, 2, 2), log_start=7)
    if is_damaged:
        data = bytearray(log.read_bytes())
        data[batch_starts(log)[5] + 15] = 9
        log.write_bytes(data)
    return log


def a_partition_of(root: Path, epochs: Sequence[int], *, log_start: int = 0) -> Path:
    batches = [
        build_batch([NewRecord(b"k", b"v", NOW)], base_offset=number, partition_leader_epoch=epoch)
        for number, epoch in enumerate(epochs)
    ]
    roots.a_root(root, {"t-0": batches}, {TopicPartition("t", 0): log_start} if log_start else None)
    return root / "t-0" / f"{0:020}.log"


def epochs_in(log: Path) -> list[int]:
    return [batch.header.partition_leader_epoch for batch in read_batches(log.read_bytes())]


def test_leader_epochs_older_than_the_log_start_are_no_damage(tmp_path: Path) -> None:
    log = a_log_whose_epochs_are_older_than_its_start(tmp_path)
    before = log.read_bytes()
    assert check(str(log.parents[1])).codes() & {"LOG-EPOCH", "EPO-ENTRY", "EPO-START"} == set()
    repaired(log.parents[1])
    assert log.read_bytes() == before


def test_a_batch_below_the_log_start_that_contradicts_the_others_gets_their_epoch(tmp_path: Path) -> None:
    log = a_log_whose_epochs_are_older_than_its_start(tmp_path, is_damaged=True)
    assert "LOG-EPOCH" in check(str(log.parents[1])).codes()
    repaired(log.parents[1])
    assert epochs_in(log) == [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]


def test_a_batch_before_the_first_known_epoch_gets_the_epoch_of_the_one_before_it(tmp_path: Path) -> None:
    log = a_partition_of(tmp_path / "r", (0, 0, 0, 0, 7))
    (tmp_path / "r" / ".kafka_cleanshutdown").write_text("0")
    (log.parent / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n2 5\n")
    repaired(tmp_path / "r")
    assert epochs_in(log) == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("is_clean", [True, False])
def test_batches_that_agree_with_each_other_are_believed_before_the_checkpoint(tmp_path: Path, is_clean: bool) -> None:
    log = a_partition_of(tmp_path / "r", (0, 0, 0, 0, 0, 1, 1))
    if is_clean:
        (tmp_path / "r" / ".kafka_cleanshutdown").write_text("0")
    checkpoint = log.parent / LEADER_EPOCH_CHECKPOINT
    checkpoint.write_text("0\n1\n0 0\n")
    before = log.read_bytes()
    assert "EPO-ENTRY" in check(str(tmp_path / "r")).codes()
    repaired(tmp_path / "r")
    assert log.read_bytes() == before
    assert checkpoint.read_text() == "0\n2\n0 0\n1 5\n"


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


def test_segments_between_exchanged_ones_are_told_as_what_they_are_and_keep_their_indexes(root: Path) -> None:
    one, two = segment(root, 1), segment(root, 4)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    between = {path: path.read_bytes() for number in (29, 44) for path in (root / "orders-0").glob(f"{number:020}.*")}
    inodes = {path: path.stat().st_ino for path in between if "index" in path.suffix}
    result = repaired(root)
    told = [line for line in result.done if f"{29:020}.log: " in line or f"{44:020}.log: " in line]
    assert len(told) == 2
    assert all("copied as it is" in line and "LOG-RANGE" not in line for line in told)
    assert {path: path.read_bytes() for path in between} == between
    assert {path: path.stat().st_ino for path in inodes} == inodes
    assert not [one for one in manifest(result) if f"{29:020}" in str(one["file"]) and "index" in str(one["file"])]


def test_damage_elsewhere_is_not_drawn_into_an_exchange(root: Path) -> None:
    one, two = segment(root, 0), segment(root, 1)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    flip(segment(root, 4), 70)
    result = repaired(root)
    assert result.is_clean
    told = [line for line in result.done if ".log: rewritten" in line]
    assert [(int(line.partition(".log: ")[0][-20:]), line.rpartition(" ")[2]) for line in told] == [
        (0, "(LOG-RANGE)"),
        (14, "(LOG-RANGE)"),
        (59, "(LOG-CRC)"),
    ]


# -- what later checks recall ------------------------------------------------------------------------------------------


def infos(root: Path, code: str, *, deep: bool = False) -> list[str]:
    report = check(str(root), deep=deep)
    assert report.is_clean, report.findings
    return [f"{one.file.removeprefix(f'{root}/')}: {one.message}" for one in report.findings if one.code == code]


def exchanged(tmp_path: Path) -> Path:
    """What Kafka wrote, with the logs of two partitions exchanged."""
    root = Path(shutil.copytree(case("kafka-4.3/1-codecs") / "image", tmp_path / "image"))
    one, two = (root / name / f"{0:020}.log" for name in ("j-gzip-0", "j-lz4-0"))
    first, second = one.read_bytes(), two.read_bytes()
    for path, data in ((one, second), (two, first)):
        path.unlink()
        path.write_bytes(data)
    return root


def test_a_segment_in_doubt_is_left_to_people_and_recalled_by_later_checks(tmp_path: Path) -> None:
    root = exchanged(tmp_path)
    result = repaired(root)
    assert {(one.code, one.topic_partition and one.topic_partition.topic) for one in result.left} == {
        ("SEG-DOUBT", "j-gzip"),
        ("SEG-DOUBT", "j-lz4"),
    }
    assert (result.is_clean, result.is_settled) == (True, False)
    notices = [one for one in manifest(result) if one["code"] == "SEG-DOUBT"]
    assert [(one["partition_directory"], one["piece"], one["notice"]) for one in notices] == [
        ("j-gzip-0", None, True),
        ("j-lz4-0", None, True),
    ]
    for deep in (False, True):
        recalled = infos(root, "SEG-DOUBT", deep=deep)
        assert [line.partition(":")[0] for line in recalled] == [
            f"{name}/{0:020}.log" for name in ("j-gzip-0", "j-lz4-0")
        ]
        assert all(": was in doubt when it was repaired on 2023-11-14T22:13:20Z: " in line for line in recalled)
    again = repaired(root)
    assert (again.done, again.left, again.is_settled) == ([], [], True)


def test_a_doubt_that_is_found_once_more_is_told_once(tmp_path: Path) -> None:
    root = exchanged(tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    repaired(root)
    for path, data in before.items():
        path.unlink(missing_ok=True)
        path.write_bytes(data)
    doubts = [one for one in check(str(root), deep=True).findings if one.code == "SEG-DOUBT"]
    assert [one.severity.value for one in doubts] == ["error", "error"]


def test_a_log_that_is_lost_is_counted_noted_and_recalled(tmp_path: Path) -> None:
    root = Path(shutil.copytree(case("kafka-4.3/1-codecs") / "image", tmp_path / "image"))
    for name in ("r-none-0", "r-gzip-0"):
        (root / name / f"{0:020}.log").unlink()
    (root / "r-gzip-0" / f"{0:020}.log").touch()
    told = {one.message for one in check(str(root)).findings if one.code == "CHK-RANGE"}
    assert told == {f"{name} has 142, its log ends at 0: 142 offsets are gone" for name in ("r-none-0", "r-gzip-0")}
    result = repaired(root)
    assert result.is_clean
    lost = [one for one in manifest(result) if one.get("missing_offsets")]
    assert [(one["partition_directory"], one["code"], one["missing_offsets"]) for one in lost] == [
        ("r-gzip-0", "CHK-RANGE", [0, 141]),
        ("r-none-0", "CHK-RANGE", [0, 141]),
    ]
    assert len([line for line in result.done if "the offsets 0 to 141 are gone" in line]) == 2
    words = "142 offsets (0 to 141) were gone when it was repaired on 2023-11-14T22:13:20Z"
    assert [words in line for line in infos(root, "CHK-RANGE")] == [True, True]
    assert repaired(root).done == []


def test_a_lost_end_is_counted_and_given_to_other_records_in_time(root: Path) -> None:
    log = segment(root, -1)
    end = offsets_in(log)[-1] + 1
    log.write_bytes(log.read_bytes()[: batch_starts(log)[-1]])
    lost = end - (offsets_in(log)[-1] + 1)
    told = [one.message for one in check(str(root)).findings if one.code == "CHK-RANGE"]
    assert told
    assert all(line.endswith(f"{lost} offsets are gone") for line in told)
    assert repaired(root).is_clean
    assert len(infos(root, "CHK-RANGE", deep=True)) == 1
    with UnifiedLog.open(root / "orders-0", CONFIG, clock=ManualClock(NOW)) as again:
        again.append([NewRecord(b"k", b"v", NOW) for _ in range(5)])
    one = check(str(root / "orders-0"), deep=True)
    assert "LOG-GAP" not in {finding.code for finding in one.findings}
    markers = [finding.message for finding in one.findings if finding.code == "TXN-MARKER"]
    assert not markers


def test_a_log_without_segments_goes_on_at_its_start(root: Path) -> None:
    for path in (root / "orders-1").iterdir():
        if path.name[0] == "0":
            path.unlink()
    assert repaired(root).is_clean
    assert [path.name for path in (root / "orders-1").glob("*.log")] == [f"{5:020}.log"]


def test_a_checkpoint_that_is_wrong_loses_nothing(root: Path) -> None:
    path = root / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("orders 0 ", "orders 0 9"))
    (finding,) = [one for one in check(str(root)).findings if one.code == "CHK-RANGE"]
    assert "gone" not in finding.message
    result = repaired(root)
    assert result.is_clean
    assert infos(root, "CHK-RANGE") == []


def test_a_partition_without_its_topic_id_beside_others_that_have_theirs_is_a_warning(root: Path) -> None:
    (root / "meta.properties").unlink()
    before = (root / "orders-1" / "partition.metadata").read_bytes()
    for name in ("orders-1", "keys-0"):
        (root / name / "partition.metadata").unlink()
    found = [(one.file, one.severity.value) for one in check(str(root)).findings if one.code == "PAR-METADATA"]
    assert found == [(str(root / name / "partition.metadata"), "warning") for name in ("keys-0", "orders-1")]
    result = repaired(root)
    assert (root / "orders-1" / "partition.metadata").read_bytes() == before
    assert [one.topic_partition and one.topic_partition.topic for one in result.left] == ["keys"]
    for path in root.glob("*/partition.metadata"):
        path.unlink()
    assert "PAR-METADATA" not in check(str(root)).codes()  # none has one: they are of a time before topic ids


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
    (line,) = [line for line in result.done if line.startswith(f"{path}: written")]
    assert line.endswith(f"{before.decode().split()[-1]} of the topic's other partitions (PAR-METADATA)")
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


def test_an_epoch_whose_first_batches_are_gone_keeps_its_start(root: Path) -> None:
    """Nothing contradicts it; a compaction that was cut short leaves the same."""
    checkpoint = root / "orders-0" / LEADER_EPOCH_CHECKPOINT
    before = checkpoint.read_text()
    for number in (0, 2):
        flip(segment(root, number), 70)
    assert check(str(root)).codes() & {"EPO-ENTRY", "EPO-START"} == set()
    result = repaired(root)
    assert result.is_clean
    assert checkpoint.read_text() == before
    assert check(str(root), deep=True).is_clean


@pytest.mark.parametrize("inside", [30, 31])
def test_an_epoch_that_begins_inside_a_batch_is_damage_of_the_checkpoint(root: Path, inside: int) -> None:
    checkpoint = root / "orders-0" / LEADER_EPOCH_CHECKPOINT
    before = checkpoint.read_text()
    checkpoint.write_text(before.replace("\n1 29\n", f"\n1 {inside}\n"))
    assert check(str(root)).codes() == {"EPO-ENTRY"}
    assert repaired(root).is_clean
    assert checkpoint.read_text() == before


@pytest.mark.parametrize("content", [None, "nonsense", "0\n1\n7 0\n"])
def test_a_damaged_leader_epoch_is_mended_though_the_checkpoint_is_damaged_too(root: Path, content: str | None) -> None:
    """The other batches tell both: leader epochs never go down."""
    checkpoint = root / "orders-0" / LEADER_EPOCH_CHECKPOINT
    log = segment(root, 1)
    before, known = log.read_bytes(), LeaderEpochCheckpoint(LocalFileSystem(), str(checkpoint)).read()
    start = batch_starts(log)[2]
    log.write_bytes(before[: start + 13] + b"\x40" + before[start + 14 :])
    checkpoint.unlink() if content is None else checkpoint.write_text(content)
    result = repaired(root)
    assert result.is_clean
    assert log.read_bytes() == before
    assert LeaderEpochCheckpoint(LocalFileSystem(), str(checkpoint)).read() == known
    assert known == [EpochEntry(0, 0), EpochEntry(1, 29), EpochEntry(2, 59)]
