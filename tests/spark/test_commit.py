"""What a commit does beside appending: it checks what was staged, and clears away what others have left."""

import os
import random
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log.logs import NOW
from tests.spark.commits import ADDED, KEY, ROWS, commit_order, options_for, order_of, stage, values
from tests.tables.loads import load_here
from tidelog.errors import CorruptionError, InvalidRequestError, StorageError
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.files import join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN, COMMITTED_BATCHES, LOCK_FILE, UNFINISHED_WRITE, TopicPartition
from tidelog.records import NewRecord
from tidelog.spark.commit import look, withdraw
from tidelog.spark.commit_plan import Planning
from tidelog.spark.commit_room import room_for
from tidelog.spark.committed_batches import BatchKey, CommittedBatches
from tidelog.spark.staged_pieces import STAGED_FILE, staged_directories
from tidelog.spark.staging import Staging
from tidelog.testing.disk import SimulatedFileSystem

ROOT = "/data/kafka"
OPTIONS = options_for(ROOT)
DAY_MS = 86_400_000


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem(ManualClock(NOW))


def test_what_is_staged_is_not_seen(disk: SimulatedFileSystem) -> None:
    order = order_of(disk, OPTIONS)
    assert len(order.pieces) == 5  # two tasks, with rows for two and for three partitions
    assert values(disk.copy(), ROOT) == {}
    commit_order(disk, order)
    assert values(disk, ROOT) == ADDED


def test_pieces_tell_what_is_in_them(disk: SimulatedFileSystem) -> None:
    order = order_of(disk, OPTIONS, [{"value": [b"a", b"bc"], "timestamp": pa.array([7, 5], pa.timestamp("ms"))}])
    assert sorted((p.partition, p.records, p.host) for p in order.pieces) == [
        (0, 1, socket.gethostname()),
        (1, 1, socket.gethostname()),
    ]
    assert [p.size for p in order.pieces] == [disk.stat(p.path(ROOT)).size for p in order.pieces]  # type: ignore[union-attr]


@pytest.mark.parametrize("harm", ["cut", "longer", "changed", "gone", "elsewhere"])
def test_a_piece_that_is_not_what_its_task_staged_stops_the_commit(disk: SimulatedFileSystem, harm: str) -> None:
    order = order_of(disk, OPTIONS)
    piece = order.pieces[2]
    file = disk.open_write(piece.path(ROOT))
    words = "bytes, its task has staged"
    if harm == "cut":
        file.resize(piece.size - 1)
    elif harm == "longer":
        file.write_at(piece.size, b"x")
    elif harm == "changed":
        file.write_at(3, b"x")  # outside the checksum of a batch
        words = "has not the checksum"
    elif harm == "gone":
        disk.remove_directory(join(ROOT, piece.directory))
        words = "is gone; nothing is committed"
    else:
        disk.remove_directory(join(ROOT, piece.directory))
        order = order._replace(pieces=[each._replace(host="worker-7") for each in order.pieces])
        words = f"staged on worker-7, is not there on {socket.gethostname()}: .* share"
    with pytest.raises((CorruptionError, StorageError), match=words):
        commit_order(disk, order)
    assert values(disk.copy(), ROOT) == {}


def test_a_worker_that_does_not_see_the_root_says_so() -> None:
    with pytest.raises(InvalidRequestError, match=f"is not there on {socket.gethostname()}: .* share"):
        Staging(SimulatedFileSystem(), OPTIONS, "0" * 32)


def test_of_two_attempts_the_one_that_is_told_of_counts(disk: SimulatedFileSystem) -> None:
    order = order_of(disk, OPTIONS)
    stage(disk, OPTIONS, ROWS[0], task=0)  # a speculative attempt, whose message never came
    assert len(list(staged_directories(disk, ROOT))) == 7
    commit_order(disk, order)
    assert values(disk.copy(), ROOT) == ADDED
    assert list(staged_directories(disk, ROOT)) == []  # it is of the same job, which is done


def test_a_batch_that_was_committed_is_not_committed_again(disk: SimulatedFileSystem) -> None:
    assert commit_order(disk, order_of(disk, OPTIONS))
    for key in (KEY, KEY._replace(batch=KEY.batch - 1)):
        assert not commit_order(disk, order_of(disk, OPTIONS, key=key))
    assert values(disk.copy(), ROOT) == ADDED
    assert list(staged_directories(disk, ROOT)) == []
    assert commit_order(disk, order_of(disk, OPTIONS, key=KEY._replace(query="another")))
    assert commit_order(disk, order_of(disk, OPTIONS, key=KEY._replace(batch=KEY.batch + 1)))
    assert values(disk, ROOT) == {number: 3 * added for number, added in ADDED.items()}


def test_a_list_of_batches_that_cannot_be_read_stops_the_commit(disk: SimulatedFileSystem) -> None:
    order = order_of(disk, OPTIONS)
    disk.open_write(join(ROOT, COMMITTED_BATCHES)).write_at(0, b"{}")
    with pytest.raises(CorruptionError, match="no list of committed batches"):
        commit_order(disk, order)


def test_what_dead_attempts_left_is_swept_when_it_is_old(disk: SimulatedFileSystem) -> None:
    order_of(disk, OPTIONS, key=BatchKey("dead", 0))
    old, young = sorted(name for name, _ in staged_directories(disk, ROOT))[:2]
    for name, _ in staged_directories(disk, ROOT):
        age_ms = DAY_MS - 1000 if name == young else DAY_MS + 1000
        for path in (join(join(ROOT, name), STAGED_FILE), join(ROOT, name)):
            disk.set_modified(path, NOW - age_ms)
    disk.set_modified(join(ROOT, old), NOW)  # made anew in it a moment ago
    foreign = join(ROOT, f"gone-0.{'7c' * 16}-delete")
    disk.make_directory(foreign)
    disk.open_write(join(foreign, "00000000000000000000.log")).close()
    disk.set_modified(foreign, NOW - 9 * DAY_MS)
    commit_order(disk, order_of(disk, OPTIONS))
    assert sorted(name for name, _ in staged_directories(disk, ROOT)) == sorted([old, young])
    assert disk.stat(foreign) is not None  # a log that a broker has begun to delete is not ours


def test_a_commit_is_done_even_if_nothing_can_be_swept(
    disk: SimulatedFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    order = order_of(disk, OPTIONS)
    disk.fail(operation="list", path="*-delete", error="Permission denied")
    assert commit_order(disk, order)
    disk.heal()
    assert "Permission denied: what dead attempts have left is not swept" in caplog.text
    assert values(disk.copy(), ROOT) == ADDED


def test_withdrawing_leaves_what_others_have_staged(disk: SimulatedFileSystem) -> None:
    mine = order_of(disk, OPTIONS)
    others = order_of(disk, OPTIONS, key=BatchKey("other", 0))
    withdraw(mine.pieces[:2], OPTIONS, None, fs=disk)
    assert {name for name, _ in staged_directories(disk, ROOT)} == {
        piece.directory for piece in [*mine.pieces[2:], *others.pieces]
    }
    withdraw([], OPTIONS, mine.job, fs=disk)
    assert {name for name, _ in staged_directories(disk, ROOT)} == {piece.directory for piece in others.pieces}
    withdraw([], options_for("/data/nowhere"), "0" * 16, fs=disk)


def test_the_marker_of_the_root_comes_back_as_it_was(disk: SimulatedFileSystem) -> None:
    commit_order(disk, order_of(disk, OPTIONS))
    marker = disk.open_write(join(ROOT, CLEAN_SHUTDOWN))
    marker.resize(0)
    marker.write_at(0, b'{"version":0,"brokerEpoch":14}')
    commit_order(disk, order_of(disk, OPTIONS, key=BatchKey("more", 0)))
    assert disk.open(join(ROOT, CLEAN_SHUTDOWN)).read(0, 100) == b'{"version":0,"brokerEpoch":14}'


def test_records_are_appended_in_the_name_of_the_last_leader(tmp_path: Path) -> None:
    root = str(tmp_path)
    with UnifiedLog.open(tmp_path / "orders-0", LogConfig()) as log:
        log.append(NewRecord(None, b"first"), leader_epoch=3)
    (tmp_path / CLEAN_SHUTDOWN).touch()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    options = options_for(root, partitions=None)
    commit_order(LocalFileSystem(), order_of(LocalFileSystem(), options, [{"value": [b"second"]}]))
    with UnifiedLog.open(tmp_path / "orders-0") as log:
        assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(3, 0)]
        assert [record.value for record in log.records()] == [b"first", b"second"]
        assert log.topic_id is None  # it is from before there were ids


_BLOCKS_LEFT, _FILES_LEFT = 4, 7  # in what statvfs tells


@pytest.mark.parametrize(
    ("place", "complaint"),
    [(_BLOCKS_LEFT, r"has no room for the \d+ bytes"), (_FILES_LEFT, r"has no room for the \d+ files")],
)
def test_a_disk_without_room_is_told_while_nothing_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, complaint: str
) -> None:
    fs, options = LocalFileSystem(), options_for(str(tmp_path))
    order = order_of(fs, options)
    about = list(os.statvfs(tmp_path))
    about[place] = 0
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(about))
    with pytest.raises(StorageError, match=complaint):
        commit_order(fs, order)
    assert CommittedBatches(fs, str(tmp_path)).read() == {}
    assert not (tmp_path / UNFINISHED_WRITE).exists()


@pytest.mark.parametrize("configs", [{}, {"segment.bytes": "400"}, {"index.interval.bytes": "1"}], ids=str)
def test_what_a_commit_takes_of_a_disk_is_known_before(tmp_path: Path, configs: dict[str, str]) -> None:
    fs, options = LocalFileSystem(), options_for(str(tmp_path), configs=tuple(configs.items()), batch_bytes=200)
    order = order_of(fs, options, [{"value": [b"%d" % number * 20 for number in range(600)]}])
    told = room_for(Planning(fs, ManualClock(NOW), random.Random(0), order).journal())
    commit_order(fs, order)
    there = list(tmp_path.rglob("*"))
    sizes = sum(path.stat().st_size for path in there if path.suffix in (".log", ".index", ".timeindex"))
    assert sizes <= told.size < 2 * sizes
    assert len(there) <= told.files < 3 * len(there)


def test_a_commit_waits_for_another_that_has_the_root_for_a_moment(tmp_path: Path) -> None:
    fs, options = LocalFileSystem(), options_for(str(tmp_path), lock_timeout_ms=60_000)
    order = order_of(fs, options)
    lock = fs.lock(str(tmp_path / LOCK_FILE))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(commit_order, fs, order)
        with pytest.raises(TimeoutError):
            done.result(0.2)
        lock.release()
        assert done.result(60)
    assert values(fs, str(tmp_path)) == ADDED


def test_withdrawing_beside_a_broker_leaves_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fs, options = LocalFileSystem(), options_for(str(tmp_path))
    order = order_of(fs, options)
    lock = fs.lock(str(tmp_path / LOCK_FILE))
    withdraw(order.pieces, options, order.job, fs=fs)
    lock.release()
    assert "left to be swept" in caplog.text
    assert len(list(staged_directories(fs, str(tmp_path)))) == len(order.pieces)


def test_a_load_that_was_interrupted_is_taken_back_first(tmp_path: Path) -> None:
    root = str(tmp_path)
    load_here(root)
    command = [sys.executable, "-m", "tests.tables.loads", root, "20"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    fs = LocalFileSystem()
    commit_order(fs, order_of(fs, options_for(root)))
    assert values(fs, root) == {number: 2 * added for number, added in ADDED.items()}


def test_what_was_set_aside_is_no_partition(disk: SimulatedFileSystem) -> None:
    commit_order(disk, order_of(disk, OPTIONS))
    disk.make_directory(join(ROOT, f"orders-5.{'a' * 32}-stray"))
    assert look(OPTIONS, fs=disk) == [TopicPartition("orders", number) for number in range(3)]
