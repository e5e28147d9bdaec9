"""Several copies of a partition, as the roots of several brokers hold them."""

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.log.compaction.compacting import a_compacted_log, compact, put, settle
from tests.log.logs import NOW, a_log, all_replicated, batch, follow, lead
from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.log import TopicPartition
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.testing.disk import SimulatedFileSystem
from tidelog.view import LogDirView, PartitionView
from tidelog.view.copies import ensure_agreement
from tidelog.view.counted_files import CountedFiles
from tidelog.view.files import ReadOnlyFiles


def a_copy(root: Path, count: int, *, epoch: int = 0, timestamp_ms: int = NOW, segment_bytes: int = 400) -> None:
    """A partition of that many records; those from 8 on were written by the leader of `epoch`."""
    with a_log(root, segment_bytes=segment_bytes) as log:
        for offset in range(count):
            at = epoch if offset >= 8 else 0
            follow(log, batch(1, base_offset=offset, partition_leader_epoch=at, timestamp_ms=timestamp_ms + offset))
        all_replicated(log)


def checkpoint(root: Path, high_watermark: int) -> None:
    path = str(root / "replication-offset-checkpoint")
    OffsetCheckpoint(LocalFileSystem(), path).write({TopicPartition("topic", 0): high_watermark})


def chosen(logs: LogDirView) -> str:
    return Path(logs.copies("topic", 0)[0].root).name


def test_three_roots_of_unequal_length_give_each_record_once(tmp_path: Path) -> None:
    for broker, count in enumerate((9, 14, 11)):
        a_copy(tmp_path / f"broker-{broker}", count)
    logs = tidelog.open([tmp_path / f"broker-{broker}" for broker in range(3)])
    assert len(logs) == 1
    assert [record.offset for view in logs for record in view.read()] == list(range(14))
    assert [(Path(copy.root).name, copy.latest_epoch, copy.log_end_offset, copy.is_chosen) for copy in
            logs.copies("topic", 0)] == [
        ("broker-1", 0, 14, True), ("broker-2", 0, 11, False), ("broker-0", 0, 9, False),
    ]  # fmt: skip
    assert logs["topic", 0].root == str(tmp_path / "broker-1")


@pytest.mark.parametrize("names", [("whole", "short"), ("short", "whole")])
def test_of_copies_that_end_alike_the_one_that_begins_first_is_read(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        a_copy(tmp_path / name, 14)
    for path in (tmp_path / "short" / "topic-0").glob("00000000000000000000.*"):
        path.unlink()  # as retention does, sooner at one broker than at another
    logs = tidelog.open([tmp_path / name for name in names])
    assert [record.offset for record in logs["topic", 0].read()] == list(range(14))


def test_the_highest_leader_epoch_goes_before_the_longest_log(tmp_path: Path) -> None:
    a_copy(tmp_path / "old", 20, epoch=1)
    a_copy(tmp_path / "new", 12, epoch=3)
    checkpoint(tmp_path / "old", 8)
    logs = tidelog.open([tmp_path / "old", tmp_path / "new"])
    assert chosen(logs) == "new"
    assert [record.offset for record in logs["topic", 0].read()] == list(range(12))


def test_without_an_epoch_checkpoint_the_last_batch_tells(tmp_path: Path) -> None:
    a_copy(tmp_path / "old", 20, epoch=1)
    a_copy(tmp_path / "new", 12, epoch=3)
    checkpoint(tmp_path / "old", 8)
    for root in ("old", "new"):
        (tmp_path / root / "topic-0" / "leader-epoch-checkpoint").unlink()
    logs = tidelog.open([tmp_path / "old", tmp_path / "new"])
    assert [copy.latest_epoch for copy in logs.copies("topic", 0)] == [3, 1]


def test_copies_that_contradict_each_other_are_not_read(tmp_path: Path) -> None:
    a_copy(tmp_path / "one", 14)
    a_copy(tmp_path / "two", 12, timestamp_ms=NOW + 1)
    logs = tidelog.open([tmp_path / "one", tmp_path / "two"])
    for _ in range(2):
        with pytest.raises(
            CorruptionError, match="two copies of topic-0 contradict each other.*`tidelog diff "
        ) as raised:
            next(logs["topic", 0].read())
        assert "\n" not in str(raised.value)
    with pytest.raises(CorruptionError):
        logs["topic", 0].offset_for_time(NOW)
    with pytest.raises(CorruptionError):
        next(logs["topic", 0].stretches())


def test_what_differs_above_the_high_watermark_is_no_contradiction(tmp_path: Path) -> None:
    a_copy(tmp_path / "one", 14, epoch=2)
    a_copy(tmp_path / "two", 12, epoch=1)
    roots = [tmp_path / "one", tmp_path / "two"]
    with pytest.raises(CorruptionError, match="offset 8 is of leader epoch 2 in .*one/topic-0 and of 1 in .*two"):
        list(tidelog.open(roots)["topic", 0].read())
    checkpoint(tmp_path / "two", 8)
    assert len(list(tidelog.open(roots)["topic", 0].read())) == 14


def test_the_last_common_batch_is_compared(tmp_path: Path) -> None:
    for root in ("one", "two"):
        with a_log(tmp_path / root) as log:
            for offset in range(10):
                lead(log, batch(1, timestamp_ms=NOW + (offset == 9 and root == "two")))
    with pytest.raises(CorruptionError, match="offset 9 lies in different batches"):
        list(tidelog.open([tmp_path / "one", tmp_path / "two"])["topic", 0].read())


def test_a_replica_that_is_named_is_read_whatever_the_others_say(tmp_path: Path) -> None:
    a_copy(tmp_path / "one", 14)
    a_copy(tmp_path / "two", 12, timestamp_ms=NOW + 1)
    a_copy(tmp_path / "two", 0)
    with a_log(tmp_path / "one", name="other-0") as log:
        lead(log, 1)
    roots = [tmp_path / "one", tmp_path / "two"]
    logs = tidelog.open(roots, replica=tmp_path / "two")
    assert logs.partitions == (("topic", 0),)
    assert [record.timestamp_ms for record in logs["topic", 0].read(0, 2)] == [NOW + 1, NOW + 2]
    assert [copy.is_chosen for copy in logs.copies("topic", 0)] == [True, False]
    assert chosen(logs) == "two"
    with pytest.raises(InvalidRequestError, match="replica '/nowhere' is none of the roots: .*one, .*two"):
        tidelog.open(roots, replica="/nowhere")


def test_copies_that_were_compacted_to_different_points_agree(tmp_path: Path) -> None:
    for root in ("one", "two"):
        log = a_compacted_log(tmp_path / root, segment_bytes=300)
        for number in range(30):
            put(log, number % 3, 100 + number)
        all_replicated(log)
        if root == "two":
            compact(log)
            settle(log)
        log.close()
    logs = tidelog.open([tmp_path / "one", tmp_path / "two"])
    assert len(list(logs["topic", 0].read())) == 60
    forced = tidelog.open([tmp_path / "one", tmp_path / "two"], replica=tmp_path / "two")
    assert len(list(forced["topic", 0].read())) < 40


def test_a_directory_that_is_being_moved_in_is_no_copy(tmp_path: Path) -> None:
    a_copy(tmp_path / "one", 5)
    a_copy(tmp_path / "two", 9)
    shutil.move(tmp_path / "two" / "topic-0", tmp_path / "two" / ("topic-0." + "ab" * 16 + "-future"))
    logs = tidelog.open([tmp_path / "one", tmp_path / "two"])
    assert len(logs.copies("topic", 0)) == 1
    assert [root.marked[0].mark for root in logs.roots if root.marked] == ["future"]


def test_a_check_of_many_segments_looks_at_few_of_them() -> None:
    disk = SimulatedFileSystem()
    for root in ("/one", "/two"):
        log = a_log(root, fs=disk, segment_bytes=100)
        for _ in range(110):
            lead(log, 1)
    files = CountedFiles(ReadOnlyFiles(disk))
    one, two = (PartitionView.at(files, f"{root}/topic-0") for root in ("/one", "/two"))
    assert len(one.segments) == 110
    files.reads.clear()
    ensure_agreement(one, [two])
    assert len([path for path in files.reads if path.endswith(".log")]) < 2 * 34


def make_unreadable(root: Path) -> None:
    """A directory stands where the last log should be."""
    log = max((root / "topic-0").glob("*.log"))
    log.unlink()
    log.mkdir()


def test_a_copy_that_cannot_be_read_comes_last_and_is_told(tmp_path: Path) -> None:
    a_copy(tmp_path / "bad", 30)
    a_copy(tmp_path / "good", 12)
    make_unreadable(tmp_path / "bad")
    logs = tidelog.open([tmp_path / "bad", tmp_path / "good"])
    assert [record.offset for record in logs["topic", 0].read()] == list(range(12))
    good, bad = logs.copies("topic", 0)
    assert (Path(good.root).name, good.problem, good.log_end_offset) == ("good", None, 12)
    assert (Path(bad.root).name, bad.log_end_offset) == ("bad", None)
    assert bad.problem is not None
    assert any("cannot be read" in notice and "bad" in notice for notice in logs.notices)


def test_a_replica_is_read_whatever_is_wrong_with_the_others(tmp_path: Path) -> None:
    a_copy(tmp_path / "bad", 30)
    a_copy(tmp_path / "good", 12)
    make_unreadable(tmp_path / "bad")
    logs = tidelog.open([tmp_path / "bad", tmp_path / "good"], replica=tmp_path / "good")
    assert [record.offset for record in logs["topic", 0].read()] == list(range(12))
