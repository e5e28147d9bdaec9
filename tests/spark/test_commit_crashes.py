"""A commit is one step: whatever cuts it, in any of its calls, all of it is there in the end, or nothing of it."""

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import tidelog
from tests.log.logs import NOW
from tests.spark.commits import (
    ADDED,
    KEY,
    ROWS,
    Values,
    commit_here,
    commit_order,
    options_for,
    order_of,
    stage,
    values,
)
from tidelog.errors import StorageError, TidelogError
from tidelog.log import LogManager, ManualClock, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import join, read_whole
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_ASIDE,
    LOCK_FILE,
    RECOVERY_POINT_CHECKPOINT,
    UNFINISHED_WRITE,
    TopicPartition,
)
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.partition_metadata import random_topic_id
from tidelog.records import NewRecord, build_batch
from tidelog.spark.commit import Order, look, withdraw
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.recovery import settle_root
from tidelog.spark.staged_pieces import staged_directories
from tidelog.tables.load import load_table
from tidelog.testing.disk import PowerLost, SimulatedFileSystem
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.root import RootView

ROOT = "/data/kafka"
MARKER = b'{"version":0,"brokerEpoch":14}'
OPTIONS = options_for(ROOT)


def new_root() -> SimulatedFileSystem:
    return SimulatedFileSystem(ManualClock(NOW))


def root_in_use() -> SimulatedFileSystem:
    """Three partitions of the topic, two with records, another topic, and the marker of a broker."""
    disk = new_root()
    old = {"value": [b"old"] * 3, "partition": [0, 1, 0]}
    commit_order(disk, order_of(disk, OPTIONS, [old], BatchKey("before", 0)))
    other = options_for(ROOT, topic="other", partitions=1)
    order = order_of(disk, other, [{"value": [b"other"]}], BatchKey("before", 1))
    commit_order(disk, order._replace(counts={"other": 1}))
    marker = disk.open_write(join(ROOT, CLEAN_SHUTDOWN))
    marker.resize(0)
    marker.write_at(0, MARKER)
    disk.sync_all()
    return disk


def found(disk: SimulatedFileSystem, topic: str = "orders") -> Values:
    """What a broker that starts on the disk finds, at any rate without touching it."""
    return {} if disk.stat(ROOT) is None else values(disk.copy(), ROOT, topic)


def added(before: Values) -> Values:
    return {number: [*before.get(number, []), *new] for number, new in ADDED.items()}


def shown(disk: SimulatedFileSystem, topic: str = "orders") -> Values:
    """What a view shows of the disk as it is, of partitions with records."""
    root = RootView(ReadOnlyFiles(disk), ROOT)
    logs = [PartitionView(root, each) for each in root.logs if each.topic_partition.topic == topic]
    found = {log.partition: [record.value for record in log.read()] for log in logs}
    return {number: records for number, records in found.items() if records}


def judge(disk: SimulatedFileSystem, before: Values, after: Values) -> None:
    """See that all or nothing is there once a journal is rolled forward, and that another try writes it once.

    Readers see all or nothing before that, too.
    """
    if disk.stat(ROOT) is not None:
        assert shown(disk) in ({number: records for number, records in before.items() if records}, after)
    is_decided = settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
    now = found(disk)
    assert now in ([after] if is_decided else [before, after])
    commit_order(disk, order_of(disk, OPTIONS))  # staged again, as by a stream that starts again
    assert found(disk) == after
    names = disk.list(ROOT)
    assert not [name for name in names if UNFINISHED_WRITE in name or name.endswith("-delete") or name == ".lock"]
    assert not [name for number in ADDED for name in disk.list(join(ROOT, f"orders-{number}")) if "deleted" in name]
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        offsets = OffsetCheckpoint(disk, join(ROOT, name)).read()
        assert {number: offsets[TopicPartition("orders", number)] for number in after} == {
            number: len(records) for number, records in after.items()
        }
    assert disk.stat(join(ROOT, CLEAN_SHUTDOWN)) is not None
    if before:
        assert read_whole(disk, join(ROOT, CLEAN_SHUTDOWN)) == MARKER
        assert found(disk, "other") == {0: [b"other"]}


def calls_of(order: Order, disk: SimulatedFileSystem) -> int:
    first = disk.calls
    commit_order(disk, order)
    return disk.calls - first


@pytest.mark.parametrize("make", [new_root, root_in_use])
def test_a_commit_that_loses_its_power_anywhere_is_all_or_nothing(make: Callable[[], SimulatedFileSystem]) -> None:
    start = make()
    before = found(start)
    order = order_of(start, OPTIONS)
    calls = calls_of(order, start.copy())
    assert calls > 60
    for call in range(1, calls + 1):
        disk = start.copy()
        disk._tree.is_ordered = call % 2 == 0
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            commit_order(disk, order)
        killed = [disk.copy()] if call % 3 == 0 else []
        for image in (disk.after_crash(random.Random(call)), *killed):
            try:
                judge(image, before, added(before))
            except (AssertionError, TidelogError) as broken:
                raise AssertionError(f"call {call} of {calls}: {broken}\n" + "\n".join(disk.journal[-8:])) from broken


def test_a_new_root_stays_through_a_loss_of_power_once_the_commit_has_returned() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW), unordered_directories=True)
    commit_order(disk, order_of(disk, OPTIONS))
    for seed in range(20):
        assert found(disk.after_crash(random.Random(seed))) == ADDED


def test_a_topic_is_replaced_in_one_step_too() -> None:
    start = root_in_use()
    before = found(start)
    order = order_of(start, options_for(ROOT, overwrite=True))
    calls = calls_of(order, start.copy())
    for call in range(1, calls + 1, 2):
        disk = start.copy()
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            commit_order(disk, order)
        image = disk.after_crash(random.Random(call))
        assert shown(image) in (ADDED, {}, {number: records for number, records in before.items() if records})
        is_decided = settle_root(ROOT, fs=image, clock=ManualClock(NOW))
        assert found(image) in ([ADDED] if is_decided else [before, ADDED])
        assert found(image, "other") == {0: [b"other"]}
        commit_order(image, order_of(image, options_for(ROOT, overwrite=True)))
        assert found(image) == ADDED


def test_a_power_cut_while_a_commit_is_brought_to_its_end_is_made_good_by_the_third() -> None:
    start = root_in_use()
    before = found(start)
    order = order_of(start, OPTIONS)
    start.sync_all()
    for left in (4, 25, 60):
        disk = start.copy()
        disk.cut_at(disk.calls + calls_of(order, start.copy()) - left)
        with pytest.raises(PowerLost):
            commit_order(disk, order)
        interrupted = disk.after_crash(random.Random(left))
        assert UNFINISHED_WRITE in interrupted.list(ROOT) or left == 4
        rehearsal = interrupted.copy()
        first = rehearsal.calls
        settle_root(ROOT, fs=rehearsal, clock=ManualClock(NOW))
        for call in range(1, rehearsal.calls - first + 1, 3):
            again = interrupted.copy()
            again.cut_at(again.calls + call)
            with pytest.raises(PowerLost):
                settle_root(ROOT, fs=again, clock=ManualClock(NOW))
            judge(again.after_crash(random.Random(call)), before, added(before))


@pytest.mark.parametrize("make", [new_root, root_in_use])
def test_a_disk_that_refuses_once_says_whether_it_is_decided(make: Callable[[], SimulatedFileSystem]) -> None:
    start = make()
    before = found(start)
    order = order_of(start, OPTIONS)
    calls = calls_of(order, start.copy())
    seen = set()
    for call in range(1, calls + 1):
        disk = start.copy()
        disk.fail({disk.calls + call}, os.strerror(errno.ENOSPC), partly=True)
        told = ""
        try:
            commit_order(disk, order)
        except StorageError as error:
            told = str(error)
        disk.heal()
        is_decided = "is decided" in told
        withdraw(order.pieces, OPTIONS, None, fs=disk)  # what Spark asks for behind any error
        settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
        assert found(disk) == (before if told and not is_decided else added(before)), f"call {call}: {told}"
        seen.add((bool(told), is_decided))
        if call % 5 == 0:
            judge(disk, before, added(before))
    assert seen == {(True, False), (True, True), (False, False)}


def test_a_commit_that_is_interrupted_as_its_journal_appears_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = root_in_use()
    before, order = found(disk), order_of(disk, OPTIONS)
    sync, interrupts = disk.sync_directory, iter([KeyboardInterrupt])

    def sync_or_interrupt(path: str) -> None:
        if path == ROOT and disk.stat(join(ROOT, UNFINISHED_WRITE)) is not None:
            for interrupt in interrupts:
                raise interrupt
        sync(path)

    monkeypatch.setattr(disk, "sync_directory", sync_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit_order(disk, order)
    assert settle_root(ROOT, fs=disk, clock=ManualClock(NOW)) is None
    assert found(disk) == before


def test_a_journal_that_never_was_is_not_said_to_be_decided() -> None:
    disk = root_in_use()
    before, order = found(disk), order_of(disk, OPTIONS)
    disk.fail(operation="make_directory", path=f"*{JOURNAL_ASIDE}", error="No space left on device")
    disk.fail(operation="sync_directory", path=ROOT, error="Input/output error")
    with pytest.raises(StorageError, match="the disk is full$"):
        commit_order(disk, order)
    disk.heal()
    assert settle_root(ROOT, fs=disk, clock=ManualClock(NOW)) is None
    assert found(disk) == before


def test_a_journal_that_can_neither_be_kept_nor_removed_leaves_it_open_whether_the_rows_are_committed() -> None:
    disk = root_in_use()
    before, order = found(disk), order_of(disk, OPTIONS)
    disk.fail(operation="sync_directory", path=ROOT, error="Input/output error")
    with pytest.raises(
        StorageError, match=f"it is open whether these rows are committed: run `tidelog recover {ROOT}`"
    ):
        commit_order(disk, order)
    withdraw(order.pieces, OPTIONS, order.job, fs=disk)
    for image in (disk.copy(), *(disk.after_crash(random.Random(seed)) for seed in range(10))):
        image.heal()
        settle_root(ROOT, fs=image, clock=ManualClock(NOW))
        assert found(image) in (before, added(before))


def test_what_a_broker_has_taken_since_is_not_cut_off() -> None:
    disk = interrupted()
    with without_journal(disk):
        with LogManager.open(ROOT, fs=disk, clock=ManualClock(NOW)) as manager:
            log = manager.get(TopicPartition("orders", 0))
            assert log is not None
            log.assign_epoch_start_offset(5, log.log_end_offset)  # what a leader does first
        now = found(disk)
    with pytest.raises(StorageError, match=rf"orders-\d: a broker has written.*remove {ROOT}/{UNFINISHED_WRITE}"):
        settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
    with without_journal(disk):
        assert found(disk) == now


def test_a_topic_that_a_broker_has_made_meanwhile_is_not_replaced() -> None:
    start = new_root()
    order = order_of(start, OPTIONS)
    for call in itertools.count(1):
        disk = start.copy()
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            commit_order(disk, order)
        disk = disk.copy()
        if UNFINISHED_WRITE in disk.list(ROOT):
            break
    with (
        without_journal(disk),
        UnifiedLog.open(join(ROOT, "orders-0"), fs=disk, topic_id=random_topic_id(random.Random(3))) as log,
    ):
        log.append_as_leader(bytearray(build_batch([NewRecord(None, b"acknowledged", NOW)])), 0)
    with pytest.raises(StorageError, match="orders-0: a broker has written to it since"):
        settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
    with without_journal(disk):
        assert found(disk)[0] == [b"acknowledged"]


def test_what_opens_logs_without_a_broker_waits_for_the_end_of_a_commit() -> None:
    disk = interrupted()
    with pytest.raises(StorageError, match=r"/data/kafka: a write of Spark's was interrupted; run `tidelog recover"):
        OfflineRoot(ROOT, fs=disk).__enter__()
    with pytest.raises(TidelogError, match=r"a write was interrupted; run `tidelog recover /data/kafka` first"):
        LogManager.open(ROOT, fs=disk, clock=ManualClock(NOW))
    with pytest.raises(StorageError, match=r"/data/kafka: a write of Spark's was interrupted; run `tidelog recover"):
        load_table([pa.RecordBatch.from_pydict(ROWS[0])], ROOT, "orders", fs=disk, clock=ManualClock(NOW))
    settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
    with OfflineRoot(ROOT, fs=disk):
        pass


def test_a_root_that_knows_a_batch_without_rows_is_a_root() -> None:
    disk = new_root()
    empty = options_for(ROOT, topic=None)
    look(empty, fs=disk)  # before the tasks
    assert commit_order(disk, order_of(disk, empty, [], BatchKey("query", 0))._replace(counts={}))
    assert disk.list(ROOT) == ["tidelog-commit.batches"]
    commit_order(disk, order_of(disk, OPTIONS))
    assert found(disk) == ADDED


@contextmanager
def without_journal(disk: SimulatedFileSystem) -> Iterator[None]:
    """Inside, the journal is out of the way: whoever does so can start a broker."""
    disk.rename(join(ROOT, UNFINISHED_WRITE), "/data/journal")
    yield
    disk.rename("/data/journal", join(ROOT, UNFINISHED_WRITE))


def tree(disk: SimulatedFileSystem) -> dict[str, list[int]]:
    """The files below the root, by directory, with their sizes."""
    about = {name: disk.stat(join(ROOT, name)) for name in disk.list(ROOT)}
    return {
        name: [each.size for inner in disk.list(join(ROOT, name)) if (each := disk.stat(f"{ROOT}/{name}/{inner}"))]
        if known.is_directory
        else [known.size]
        for name, known in about.items()
        if known is not None and name != LOCK_FILE
    }


def interrupted() -> SimulatedFileSystem:
    """A commit that was cut when some of it was appended."""
    disk = root_in_use()
    order = order_of(disk, OPTIONS)
    disk.sync_all()
    disk.cut_at(disk.calls + calls_of(order, disk.copy()) - 40)
    with pytest.raises(PowerLost):
        commit_order(disk, order)
    left = disk.after_crash(random.Random(5))
    assert UNFINISHED_WRITE in left.list(ROOT)
    return left


def test_a_commit_of_something_else_rolls_forward_first() -> None:
    disk = interrupted()
    other = options_for(ROOT, topic="other", partitions=1)
    order = order_of(disk, other, [{"value": [b"more"]}], BatchKey("other", 0))
    commit_order(disk, order._replace(counts={"other": 1}))
    assert found(disk) == added({0: [b"old", b"old"], 1: [b"old"]})
    assert found(disk, "other") == {0: [b"other", b"more"]}


def test_pieces_that_are_gone_or_changed_stop_a_recovery_before_it_touches_anything() -> None:
    disk = interrupted()
    now = tree(disk)
    name, _ = next(staged_directories(disk, ROOT))
    disk.open_write(join(join(ROOT, name), "staged.batches")).write_at(70, b"\xff")
    with pytest.raises(TidelogError, match="has not the checksum"):
        settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
    assert tree(disk) == now
    disk.remove_directory(join(ROOT, name))
    now = tree(disk)
    with pytest.raises(StorageError, match=r"is gone.*some of its records may lie in orders-0 from offset 2 on"):
        settle_root(ROOT, fs=disk, clock=ManualClock(NOW))
    assert tree(disk) == now


def test_staging_that_loses_its_power_shows_nothing() -> None:
    start = root_in_use()
    before = found(start)
    for call in range(1, 30):
        disk = start.copy()
        disk.cut_at(disk.calls + call)
        try:
            stage(disk, OPTIONS, ROWS[0])
        except PowerLost:
            image = disk.after_crash(random.Random(call))
            assert found(image) == before
            judge(image, before, added(before))
        else:
            return
    raise AssertionError("staging takes fewer calls than that")


# -- a real process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_that_is_killed_is_done_once(tmp_path: Path, is_there: bool) -> None:
    roots = [tmp_path / "a" / "root", tmp_path / "b" / "root"]
    for root in roots:
        root.parent.mkdir()
    if is_there:
        first = order_of(LocalFileSystem(), options_for(str(roots[0])), key=BatchKey("first", 0))
        commit_order(LocalFileSystem(), first)
    calls = commit_here(str(roots[0]))
    for part in (0.3, 0.6, 0.85):
        root = tmp_path / f"killed-{part}" / "root"
        root.parent.mkdir()
        if is_there:
            commit_order(
                LocalFileSystem(), order_of(LocalFileSystem(), options_for(str(root)), key=BatchKey("first", 0))
            )
        command = [sys.executable, "-m", "tests.spark.commits", str(root), str(int(calls * part))]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        commit_here(str(root))
        one, two = (
            [(r.offset, r.value) for p in tidelog.open(str(each)) for r in p.read()] for each in (roots[0], root)
        )
        assert one == two
        assert len(one) == 9 * (1 + is_there)
        assert KEY.query in (root / "tidelog-commit.batches").read_text()
