"""A load is one step: whatever cuts it, in any of its calls, the next load puts the root in order and loads once."""

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.log.logs import NOW
from tests.tables.loads import ADDED, ROWS, Values, load_here
from tidelog.errors import StorageError
from tidelog.fsck import check
from tidelog.log import LogManager, ManualClock
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import join, read_whole
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_ASIDE,
    RECOVERY_POINT_CHECKPOINT,
    UNFINISHED_WRITE,
    TopicPartition,
)
from tidelog.log.watermarks import Isolation
from tidelog.tables.load import load_table
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

ROOT = "/data/kafka"
MARKER = b'{"version":0,"brokerEpoch":14}'


def load(disk: SimulatedFileSystem, rows: list[dict[str, Any]] = ROWS, topic: str = "orders", **options: Any) -> None:
    batches = [pa.RecordBatch.from_pydict(each) for each in rows]
    options = {"partitions": 3, "configs": {"segment.bytes": "1024"}, **options}
    load_table(batches, ROOT, topic, fs=disk, clock=ManualClock(NOW), rng=random.Random(7), **options)


def new_root() -> SimulatedFileSystem:
    return SimulatedFileSystem(ManualClock(NOW))


def root_in_use() -> SimulatedFileSystem:
    """Two partitions of the topic with records, an empty one that is gone, another topic, and a broker's marker."""
    disk = SimulatedFileSystem(ManualClock(NOW))
    load(disk, [{"value": [b"old"] * 3}], partitions=2)
    load(disk, [{"value": [b"other"]}], topic="other", partitions=1)
    marker = disk.open_write(join(ROOT, CLEAN_SHUTDOWN))
    marker.resize(0)
    marker.write_at(0, MARKER)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        checkpoint = OffsetCheckpoint(disk, join(ROOT, name))
        checkpoint.write(checkpoint.read() | {TopicPartition("orders", 2): 0})
    disk.sync_all()
    return disk


def values(disk: SimulatedFileSystem, topic: str = "orders") -> Values:
    """What a broker that starts on the disk finds, at any rate without touching it."""
    if disk.stat(ROOT) is None:
        return {}
    with LogManager.open(ROOT, fs=disk.copy(), clock=ManualClock(NOW)) as manager:
        found = {}
        for log in manager.logs_of_topic(topic):
            found[log.topic_partition.partition] = [record.value for record in log.records(isolation=Isolation.LOG_END)]
        return found


def added(before: Values) -> Values:
    return {number: [*before.get(number, []), *new] for number, new in ADDED.items()}


def tree(disk: SimulatedFileSystem, path: str = ROOT) -> dict[str, bytes]:
    """Every file below a path, and every directory."""
    about = disk.stat(path)
    if about is None:
        return {}
    if not about.is_directory:
        return {path: read_whole(disk, path)}
    parts = [tree(disk, join(path, name)) for name in disk.list(path)]
    return {path: b"a directory"} | {name: data for part in parts for name, data in part.items()}


def judge(disk: SimulatedFileSystem, before: Values) -> None:
    """Load again unless all is there, and see that everything is there once."""
    names = disk.list(ROOT) if disk.stat(ROOT) is not None else []
    if UNFINISHED_WRITE in names or values(disk) == before:
        load(disk)
    assert values(disk) == added(before)
    names = disk.list(ROOT)
    assert not [
        name for name in names if name == UNFINISHED_WRITE or name.endswith("-delete") != (name == JOURNAL_ASIDE)
    ]
    assert not [name for number in ADDED for name in disk.list(join(ROOT, f"orders-{number}")) if "deleted" in name]
    assert disk.stat(join(ROOT, CLEAN_SHUTDOWN)) is not None
    if before:
        assert read_whole(disk, join(ROOT, CLEAN_SHUTDOWN)) == MARKER
        assert values(disk, "other") == {0: [b"other"]}


def calls_of(work: Callable[[SimulatedFileSystem], None], disk: SimulatedFileSystem) -> int:
    first = disk.calls
    work(disk)
    return disk.calls - first


@pytest.mark.parametrize("make", [new_root, root_in_use])
def test_a_load_that_loses_its_power_anywhere_is_done_once_by_the_next(make: Callable[[], SimulatedFileSystem]) -> None:
    start = make()
    before = values(start)
    calls = calls_of(load, start.copy())
    assert calls > 60
    for call in range(1, calls + 1):
        disk = start.copy()
        disk._tree.is_ordered = call % 2 == 0
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            load(disk)
        killed = [disk.copy()] if call % 3 == 0 else []
        for image in (disk.after_crash(random.Random(call)), *killed):
            try:
                judge(image, before)
            except (AssertionError, StorageError) as broken:
                raise AssertionError(f"call {call} of {calls}: {broken}\n" + "\n".join(disk.journal[-8:])) from broken


def test_a_power_cut_while_a_load_is_taken_back_is_made_good_by_the_third() -> None:
    start = root_in_use()
    before = values(start)
    start.cut_at(start.calls + calls_of(load, start.copy()) - 4)  # all is appended, the marker is on its way back
    with pytest.raises(PowerLost):
        load(start)
    left = start.after_crash(random.Random(1))
    assert UNFINISHED_WRITE in left.list(ROOT)
    for call in range(1, calls_of(load, left.copy()) + 1, 3):
        disk = left.copy()
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            load(disk)
        judge(disk.after_crash(random.Random(call)), before)


@pytest.mark.parametrize("make", [new_root, root_in_use])
def test_a_disk_that_refuses_once_leaves_everything_as_it_was(make: Callable[[], SimulatedFileSystem]) -> None:
    start = make()
    before, wanted = values(start), tree(start)
    calls = calls_of(load, start.copy())
    for call in range(1, calls, 2):  # the last one removes the lock: the load is done then
        disk = start.copy()
        disk.fail({disk.calls + call}, os.strerror(errno.ENOSPC), partly=True)
        with pytest.raises(StorageError, match="the disk is full") as told:
            load(disk)
        disk.heal()
        assert "taken back" not in str(told.value)
        assert tree(disk) == wanted, f"call {call} of {calls}: {disk.journal[-5:]}"
        judge(disk, before)


@pytest.mark.parametrize("make", [new_root, root_in_use])
@pytest.mark.parametrize("operations", [("write", "make_directory", "resize"), ("*",)])
def test_a_disk_that_stays_full_is_told_of_as_it_is_left(
    make: Callable[[], SimulatedFileSystem], operations: tuple[str, ...]
) -> None:
    """Whoever is sent to `tidelog recover` finds something to recover there, and nobody else does."""
    start = make()
    before = values(start)
    sent = set()
    for call in range(1, calls_of(load, start.copy()), 2):
        disk = start.copy()
        first = disk.calls + call
        for operation in operations:
            disk.fail(range(first, first + 10_000), "the disk is full", operation=operation, partly=True)
        try:
            load(disk)
        except StorageError as error:
            told = str(error)
        else:
            continue  # only the lock was left
        disk.heal()
        is_open = disk.stat(ROOT) is not None and UNFINISHED_WRITE in disk.list(ROOT)
        assert ("tidelog recover" in told, "no broker starts" in told) == (is_open, is_open), (call, told)
        sent.add(is_open)
        if "it is open whether" not in told:
            judge(disk, before)
    assert sent == {True, False}


def test_the_time_index_knows_the_largest_time_when_a_load_of_later_records_was_taken_back() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    load(disk, [{"value": [b"old" * 100] * 3, "timestamp": [NOW - 9] * 3}], partitions=1, configs={})
    wanted = tree(disk)
    later = [{"value": [b"new" * 100] * 50, "timestamp": [NOW] * 50}] * 30
    calls = calls_of(lambda copy: load(copy, later, partitions=1, configs={}), disk.copy())
    for call in range(calls // 3, calls, 5):
        left = disk.copy()
        left.fail({left.calls + call}, os.strerror(errno.ENOSPC), partly=True)
        with pytest.raises(StorageError, match="the disk is full"):
            load(left, later, partitions=1, configs={})
        left.heal()
        assert check(ROOT, deep=True, fs=left).codes() == set()
        assert tree(left) == wanted


def test_a_lock_that_cannot_be_removed_is_told_and_the_load_is_done() -> None:
    disk = root_in_use()
    before, said = values(disk), list[str]()
    disk.fail(operation="remove", path="*.lock", error="Permission denied")
    load(disk, on_notice=said.append)
    assert said == [f"{ROOT}/.lock: Permission denied: it is left behind"]
    disk.heal()
    assert values(disk) == added(before)


def test_a_disk_that_stays_full_is_told_with_both_errors_and_the_next_load_mends_it() -> None:
    disk = root_in_use()
    before = values(disk)
    disk.fail(operation="write", path="*orders-1/*.log", error="File too large", partly=True, times=1)
    disk.fail(operation="resize", path="*orders-1/*.log", error="No space left on device")
    with pytest.raises(StorageError) as told:
        load(disk)
    assert "File too large" in str(told.value)
    assert "the disk is full" in str(told.value)
    assert "could not be taken back" in str(told.value)
    assert UNFINISHED_WRITE in disk.list(ROOT)
    disk.heal()
    said: list[str] = []
    load(disk, on_notice=said.append)
    half, taken_back = said
    assert "are no batch" in half  # which could be older than the load
    assert "interrupted here" in taken_back
    assert values(disk) == added(before)


@contextmanager
def without_journal(disk: SimulatedFileSystem) -> Iterator[None]:
    """Inside, the journal is out of the way: whoever does so can start a broker."""
    disk.rename(join(ROOT, UNFINISHED_WRITE), "/data/journal")
    yield
    disk.rename("/data/journal", join(ROOT, UNFINISHED_WRITE))


def interrupted() -> SimulatedFileSystem:
    disk = root_in_use()
    disk.cut_at(disk.calls + calls_of(load, disk.copy()) - 30)
    with pytest.raises(PowerLost):
        load(disk)
    return disk.after_crash(random.Random(5))


def test_what_a_broker_has_taken_since_is_not_cut_off() -> None:
    disk = interrupted()
    assert UNFINISHED_WRITE in disk.list(ROOT)
    with without_journal(disk):
        with LogManager.open(ROOT, fs=disk, clock=ManualClock(NOW)) as manager:
            log = manager.get(TopicPartition("orders", 0))
            assert log is not None
            log.assign_epoch_start_offset(5, log.log_end_offset)  # what a leader does first
        found = values(disk)
    with pytest.raises(StorageError, match=rf"orders-\d: a broker has written.*remove {ROOT}/{UNFINISHED_WRITE}"):
        load(disk)
    disk.remove_directory(join(ROOT, UNFINISHED_WRITE))
    assert values(disk) == found
    load(disk)


def test_a_broker_that_only_wrote_its_checkpoints_is_noticed_too() -> None:
    disk = interrupted()
    with without_journal(disk):
        LogManager.open(ROOT, fs=disk, clock=ManualClock(NOW)).close()
    with pytest.raises(StorageError, match="a broker has written"):
        load(disk)


def test_another_topic_can_be_the_next_one() -> None:
    disk = interrupted()
    load(disk, [{"value": [b"more"]}], topic="other", partitions=1)
    assert values(disk) == {0: [b"old", b"old"], 1: [b"old"]}
    assert values(disk, "other") == {0: [b"other", b"more"]}


# -- a real process ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_there", "part"), [(False, 0.3), (False, 0.8), (True, 0.5), (True, 0.85)])
def test_a_load_that_is_killed_is_done_once_by_the_next(tmp_path: Path, is_there: bool, part: float) -> None:
    roots = [tmp_path / "a" / "root", tmp_path / "b" / "root"]
    if is_there:
        for root in roots:
            load_here(str(root))
    calls = load_here(str(roots[0]))
    command = [sys.executable, "-m", "tests.tables.loads", str(roots[1]), str(int(calls * part))]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    load_here(str(roots[1]))
    one, two = (
        [(record.offset, record.value) for part in tidelog.open(str(root)) for record in part.read()] for root in roots
    )
    assert one == two
    assert len(one) == 9 * (1 + is_there)
    assert sorted(path.name for path in roots[1].iterdir()) == sorted(path.name for path in roots[0].iterdir())
