"""The ends of logs, watched: what is appended, cut, rolled and deleted under the watch, and what it keeps open."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.spark.commits import commit_order, options_for, order_of
from tests.spark.logs import record, write
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import FileSystem
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, TopicPartition
from tidelog.log.write_journal import WriteJournal
from tidelog.spark import commit_apply
from tidelog.spark.bounds import Reach
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.places import Places
from tidelog.spark.segment_ends import Path as OpenPath
from tidelog.spark.segment_ends import SegmentEnds
from tidelog.spark.topics import TopicChoice
from tidelog.spark.watch import Watch
from tidelog.view.partition import EndBound

ORDERS = [TopicPartition("orders", number) for number in range(4)]
LOOKS_A_DIRECTORY = 5


@pytest.fixture(params=["kept open", "by path"])
def watch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watch]:
    """A watch over a root with two partitions, which looks again whenever it is asked."""
    for partition, count in ((0, 10), (1, 20)):
        write(tmp_path, "orders", partition, map(record, range(count)), segment_bytes=10**6)
    made = watch_of(tmp_path, most_open=None if request.param == "kept open" else 0)
    assert made.ends() == {ORDERS[0]: 10, ORDERS[1]: 20}
    yield made
    made.close()


def watch_of(*roots: Path, most_open: int | None = None, end_bound: EndBound = "logEnd") -> Watch:
    places, reach = Places(tuple(map(str, roots))), Reach(end_bound=end_bound)
    return Watch(places, TopicChoice(), reach, refresh_ms=0, most_open=most_open)


def files_of(root: Path) -> list[str]:
    """What this process has open of a root."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the listing itself
        if target.startswith(str(root)):
            found.append(target)
    return found


def active_segment(root: Path, partition: int) -> Path:
    return max((root / f"orders-{partition}").glob("*.log"))


def after_directories(watch: Watch) -> dict[TopicPartition, int]:
    """What is seen once directories were looked at, too."""
    return [watch.ends() for _ in range(LOOKS_A_DIRECTORY)][-1]


def test_what_is_appended_is_seen_by_the_next_look(watch: Watch, tmp_path: Path) -> None:
    write(tmp_path, "orders", 1, map(record, range(20, 25)), segment_bytes=10**6)
    assert watch.ends() == {ORDERS[0]: 10, ORDERS[1]: 25}


def test_nothing_is_opened_while_nothing_changes(watch: Watch) -> None:
    ends, logs = watch.ends(), watch.logs
    assert after_directories(watch) is ends
    assert watch.logs is logs


def test_what_is_cut_off_is_seen_by_the_next_look(watch: Watch, tmp_path: Path) -> None:
    segment = active_segment(tmp_path, 1)
    os.truncate(segment, segment.stat().st_size // 2)
    assert watch.ends() == {ORDERS[0]: 10, ORDERS[1]: 10}


def test_a_segment_that_was_cut_and_is_as_long_as_before_is_seen_with_directories(watch: Watch, tmp_path: Path) -> None:
    segment = active_segment(tmp_path, 1)
    size, first_half = segment.stat().st_size, segment.read_bytes()[: segment.stat().st_size // 2]
    with segment.open("r+b") as file:
        file.truncate(len(first_half))
        file.seek(0, os.SEEK_END)
        file.write(bytes(size - len(first_half)))  # no batch
    os.utime(segment, ns=(0, segment.stat().st_mtime_ns + 10**9))
    assert after_directories(watch) == {ORDERS[0]: 10, ORDERS[1]: 10}


def test_a_segment_that_is_rolled_is_followed_by_its_successor(watch: Watch, tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, map(record, range(10, 90)), segment_bytes=1_000)
    assert after_directories(watch)[ORDERS[0]] == 90
    assert len(list((tmp_path / "orders-0").glob("*.log"))) > 1
    write(tmp_path, "orders", 0, [record(90)], segment_bytes=10**6)
    assert watch.ends()[ORDERS[0]] == 91  # by one look, at the segment that is active now
    kept = [path for path in files_of(tmp_path / "orders-0") if path.endswith(".log")]
    assert kept in ([], [str(active_segment(tmp_path, 0))])


def test_a_partition_that_is_deleted_is_gone(watch: Watch, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "orders-1")
    assert after_directories(watch) == {ORDERS[0]: 10}
    assert files_of(tmp_path / "orders-1") == []


def test_a_partition_that_is_set_aside_is_gone_and_one_that_comes_is_there(watch: Watch, tmp_path: Path) -> None:
    os.rename(tmp_path / "orders-1", tmp_path / f"orders-1.{'0' * 32}-delete")
    write(tmp_path, "orders", 3, map(record, range(3)))
    assert after_directories(watch) == {ORDERS[0]: 10, ORDERS[3]: 3}
    assert files_of(tmp_path / f"orders-1.{'0' * 32}-delete") == []


def test_all_of_a_partition_is_deleted_but_its_directory(watch: Watch, tmp_path: Path) -> None:
    for path in (tmp_path / "orders-1").iterdir():
        path.unlink()
    assert after_directories(watch) == {ORDERS[0]: 10, ORDERS[1]: 0}
    assert [path for path in files_of(tmp_path / "orders-1") if "deleted" in path] == []


def test_a_watch_that_is_closed_has_nothing_open(watch: Watch, tmp_path: Path) -> None:
    assert files_of(tmp_path)
    watch.close()
    assert files_of(tmp_path) == []
    assert watch.ends() == {ORDERS[0]: 10, ORDERS[1]: 20}  # it can be asked again
    watch.close()
    assert files_of(tmp_path) == []


def test_a_watch_that_is_forgotten_has_nothing_open(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    watch = watch_of(tmp_path)
    watch.ends()
    assert len(files_of(tmp_path)) == 2  # the root and the segment
    del watch
    gc.collect()
    assert files_of(tmp_path) == []


def test_copies_of_a_partition_are_all_watched(tmp_path: Path) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    for root in roots:
        write(root, "orders", 0, map(record, range(10)))
    watch = watch_of(*roots)
    assert watch.ends() == {ORDERS[0]: 10}
    for root, count in zip(roots, (13, 17), strict=True):
        write(root, "orders", 0, map(record, range(10, count)))
        assert watch.ends() == {ORDERS[0]: count}
    watch.close()


def test_segments_beyond_the_limit_are_found_by_their_paths(tmp_path: Path) -> None:
    for partition in range(4):
        write(tmp_path, "orders", partition, [record(0)])
    watch = watch_of(tmp_path, most_open=2)
    watch.ends()
    assert len([path for path in files_of(tmp_path) if path.endswith(".log")]) == 2
    for partition in range(4):
        write(tmp_path, "orders", partition, [record(1)])
        assert watch.ends()[ORDERS[partition]] == 2
    watch.close()


def test_a_process_that_may_open_little_watches_all_the_same(tmp_path: Path) -> None:
    """With 40 descriptors, and others that take most of the rest while the watch is there."""
    for partition in range(60):
        write(tmp_path, "orders", partition, [record(0)])
    script = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "from pathlib import Path\n"
        "from tests.spark.logs import record, write\n"
        "from tests.spark.test_watch import files_of, watch_of\n"
        f"root = Path({str(tmp_path)!r})\n"
        "watch = watch_of(root)\n"
        "assert len(watch.ends()) == 60\n"
        "kept = len(files_of(root))\n"
        "assert 1 < kept < 20, kept\n"
        "write(root, 'orders', 59, [record(1)])\n"
        "print(sum(watch.ends().values()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("61\n", 0), done.stderr


def test_a_segment_that_cannot_be_opened_is_found_by_its_path(tmp_path: Path) -> None:
    root = os.open(tmp_path, os.O_RDONLY)
    ends = SegmentEnds()
    try:
        ends.follow(ORDERS[0], [OpenPath(root, "0.log")])  # there is none yet
        assert ends.changed(thoroughly=False) == set()
        (tmp_path / "0.log").write_bytes(b"x")
        assert ends.changed(thoroughly=False) == {ORDERS[0]}
    finally:
        ends.close()
        os.close(root)


def test_of_high_watermarks_those_that_move_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in (0, 1):
        write(tmp_path, "orders", partition, map(record, range(20)), segment_bytes=10**6)
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / HIGH_WATERMARK_CHECKPOINT))
    checkpoint.write({ORDERS[0]: 5, ORDERS[1]: 15})
    watch = watch_of(tmp_path, end_bound="highWatermark")
    assert watch.ends() == {ORDERS[0]: 5, ORDERS[1]: 15}
    opened = []
    follow = SegmentEnds.follow

    def noting(self: SegmentEnds, partition: TopicPartition, segments: Sequence[OpenPath]) -> None:
        opened.append(partition)
        follow(self, partition, segments)

    monkeypatch.setattr(SegmentEnds, "follow", noting)
    ends = watch.ends()
    checkpoint.write({ORDERS[0]: 5, ORDERS[1]: 15})  # a broker does so, whether anything has moved or not
    assert after_directories(watch) == ends
    assert opened == []
    checkpoint.write({ORDERS[0]: 8, ORDERS[1]: 15})
    assert after_directories(watch) == {ORDERS[0]: 8, ORDERS[1]: 15}
    assert opened == [ORDERS[0]]
    watch.close()


@pytest.mark.parametrize("end_bound", ["logEnd", "highWatermark"])
def test_rows_that_are_hidden_by_a_journal_are_seen_when_it_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end_bound: EndBound
) -> None:
    fs, options = LocalFileSystem(), options_for(str(tmp_path))
    commit_order(fs, order_of(fs, options))
    watch = watch_of(tmp_path, end_bound=end_bound)
    before = watch.ends()
    write_checkpoints = commit_apply._write_checkpoints

    def looked_at(fs: FileSystem, root: str, journal: WriteJournal) -> None:
        assert watch.ends(now=True) == before  # all is appended, and from here on no file of a partition changes
        write_checkpoints(fs, root, journal)

    monkeypatch.setattr(commit_apply, "_write_checkpoints", looked_at)
    commit_order(fs, order_of(fs, options, key=BatchKey("0d7c", 5)))
    assert after_directories(watch) == {partition: 2 * end for partition, end in before.items()}
    watch.close()
