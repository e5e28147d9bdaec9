"""A load into several log directories is one step: whatever cuts it, all of its rows are there afterwards, or none."""

import contextlib
import random

import pyarrow as pa
import pytest

from tests.log.logs import NOW
from tests.tables.loads import ADDED, ROWS, Values
from tidelog.errors import StorageError, TidelogError
from tidelog.log import LogManager, ManualClock
from tidelog.log.files import read_whole, write_atomically
from tidelog.log.names import RECOVERY_POINT_CHECKPOINT, UNFINISHED_WRITE
from tidelog.log.watermarks import Isolation
from tidelog.spark.recovery import recover
from tidelog.tables.load import load_table
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

ROOTS = ["/data/1", "/data/2"]
OLD: Values = {0: [b"old"], 1: [b"old"], 2: [b"old"]}
NEW: Values = {number: [b"old", *added] for number, added in ADDED.items()}


def load(disk: SimulatedFileSystem, rows: object = ROWS) -> None:
    batches = [pa.RecordBatch.from_pydict(each) for each in rows]  # type: ignore[attr-defined]
    options = {"partitions": 3, "configs": {"segment.bytes": "1024"}}
    load_table(batches, ROOTS, "orders", fs=disk, clock=ManualClock(NOW), rng=random.Random(7), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def start() -> SimulatedFileSystem:
    disk = SimulatedFileSystem(ManualClock(NOW))
    load(disk, [{"value": [b"old"] * 3, "partition": [0, 1, 2]}])
    disk.sync_all()
    assert [len([name for name in disk.list(root) if name.startswith("orders-")]) for root in ROOTS] == [2, 1]
    return disk


def values(disk: SimulatedFileSystem) -> Values:
    """What a broker that starts on all of the directories finds."""
    with LogManager.open(ROOTS, fs=disk.copy(), clock=ManualClock(NOW)) as manager:
        return {
            log.topic_partition.partition: [record.value for record in log.records(isolation=Isolation.LOG_END)]
            for log in sorted(manager.logs_of_topic("orders"), key=lambda log: log.topic_partition)
        }


def settled(disk: SimulatedFileSystem, order: int = 1) -> Values:
    recover(ROOTS[::order], fs=disk, clock=ManualClock(NOW))
    assert not [name for root in ROOTS for name in disk.list(root) if name == UNFINISHED_WRITE]
    return values(disk)


def calls_of_a_load(start: SimulatedFileSystem) -> int:
    disk = start.copy()
    first = disk.calls
    load(disk)
    return disk.calls - first


def test_a_load_that_loses_its_power_anywhere_is_done_in_all_directories_or_in_none(
    start: SimulatedFileSystem,
) -> None:
    calls, found = calls_of_a_load(start), []
    for call in range(1, calls + 1):
        disk = start.copy()
        disk._tree.is_ordered = call % 2 == 0
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            load(disk)
        for image in (disk.after_crash(random.Random(call)), disk.copy()):
            there = settled(image, -1 if call % 3 else 1)
            assert there in (OLD, NEW), f"call {call} of {calls}: {disk.journal[-6:]}"
            found.append(there == NEW)
    assert 0 < sum(found) < len(found)


def test_between_the_journals_one_directory_alone_is_not_taken_back(start: SimulatedFileSystem) -> None:
    """From the end backwards: the first cut that leaves a journal in both directories is before the decision."""
    calls = calls_of_a_load(start)
    states = set()
    for call in range(calls, calls - 25, -1):
        disk = start.copy()
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            load(disk)
        image = disk.copy()
        unfinished = tuple(UNFINISHED_WRITE in image.list(root) for root in ROOTS)
        states.add(unfinished)
        if unfinished == (True, True):
            with pytest.raises(StorageError, match="recover all of them at once"):
                recover(ROOTS[:1], fs=image, clock=ManualClock(NOW), logs=False)
            with pytest.raises(TidelogError, match="into several log directories was interrupted"):
                load(image)
        elif unfinished == (False, True):
            [done] = recover(ROOTS[1:], fs=image, clock=ManualClock(NOW), logs=False)
            assert str(done) == "/data/2: a load into orders was interrupted and is finished"
        assert settled(image) == (NEW if unfinished != (True, True) else OLD)
    assert states == {(True, True), (False, True), (False, False)}


def undecided(start: SimulatedFileSystem) -> SimulatedFileSystem:
    """A disk that lost its power just before the first journal went."""
    for call in range(calls_of_a_load(start), 0, -1):
        disk = start.copy()
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            load(disk)
        image = disk.copy()
        if all(UNFINISHED_WRITE in image.list(root) for root in ROOTS):
            return image
    raise AssertionError("there is no such call")


@pytest.mark.parametrize("instead", ["nothing", "an older copy"])
def test_a_first_directory_that_is_not_mounted_does_not_count_as_one_that_is_done(
    start: SimulatedFileSystem, instead: str
) -> None:
    disk = undecided(start)
    disk.rename(ROOTS[0], "/data/aside")
    disk.make_directory(ROOTS[0])
    if instead == "an older copy":
        for place in ("orders-0", "orders-2"):
            disk.make_directory(f"{ROOTS[0]}/{place}")
        old = read_whole(start, f"{ROOTS[0]}/{RECOVERY_POINT_CHECKPOINT}")
        write_atomically(disk, f"{ROOTS[0]}/{RECOVERY_POINT_CHECKPOINT}", old)
    for roots in (ROOTS[1:], ROOTS):
        with pytest.raises(StorageError, match="/data/1 does not hold orders-0 up to offset .* not mounted: mount it"):
            recover(roots, fs=disk, clock=ManualClock(NOW))
    assert UNFINISHED_WRITE in disk.list(ROOTS[1])
    disk.remove_directory(ROOTS[0])
    disk.rename("/data/aside", ROOTS[0])
    assert settled(disk) == OLD


def test_a_disk_that_refuses_once_leaves_all_rows_or_none(start: SimulatedFileSystem) -> None:
    calls = calls_of_a_load(start)
    for call in range(2, calls, 3):
        disk = start.copy()
        disk.fail({disk.calls + call}, "No space left on device", partly=True)
        with contextlib.suppress(TidelogError):
            load(disk)
        disk.heal()
        assert settled(disk) in (OLD, NEW), f"call {call} of {calls}"


def test_a_refusal_while_the_load_is_decided_and_a_loss_of_power_later_leave_all_rows_or_none(
    start: SimulatedFileSystem,
) -> None:
    """From before the first journal goes to the last call, each is refused, and the power goes at some later one."""
    calls, found = calls_of_a_load(start), []
    for refused in range(calls - 11, calls):
        later, is_cut = refused % 5 - 4, True
        while is_cut:
            later += 5
            disk = start.copy()
            disk._tree.is_ordered = later % 2 == 0
            disk.fail({disk.calls + refused}, "Input/output error")
            disk.cut_at(disk.calls + refused + later)
            is_cut = False
            try:
                load(disk)
            except PowerLost:
                is_cut = True
            except TidelogError:
                pass
            disk.heal()
            image = disk.after_crash(random.Random(later)) if is_cut else disk.copy()
            there = settled(image, -1 if later % 3 else 1)
            assert there in (OLD, NEW), f"call {refused} of {calls} is refused, and {later} later: {disk.journal[-9:]}"
            found.append(there == NEW)
    assert 0 < sum(found) < len(found)


def test_a_load_that_can_neither_be_decided_nor_taken_back_says_so_and_recover_settles_it(
    start: SimulatedFileSystem,
) -> None:
    """From some call on, the first directory can only be read."""
    calls, said = calls_of_a_load(start), []
    for call in range(calls - 11, calls + 1):
        disk = start.copy()
        disk.fail(range(disk.calls + call, disk.calls + 1000), "Read-only file system", path=f"{ROOTS[0]}*")
        try:
            load(disk)
        except TidelogError as error:
            said.append("whether the rows are loaded is open" in str(error))
        disk.heal()
        assert settled(disk, -1 if call % 2 else 1) in (OLD, NEW), f"call {call} of {calls}"
    assert any(said)


@pytest.mark.parametrize("refused", range(1, 6))
def test_a_load_that_cannot_begin_lets_go_of_all_directories(
    start: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """One of the looks at the second directory before the first row is refused."""
    disk, looks = start.copy(), iter(range(1, 1000))
    names_in = disk.list

    def list_or_refuse(path: str) -> list[str]:
        if path == ROOTS[1] and next(looks) == refused:
            raise StorageError(f"{path}: Input/output error")
        return list(names_in(path))

    monkeypatch.setattr(disk, "list", list_or_refuse)
    with pytest.raises(StorageError, match="Input/output error"):
        load(disk)
    monkeypatch.undo()
    load(disk)
    assert settled(disk) == NEW


def test_a_directory_that_cannot_be_taken_back_keeps_the_others_undecided(start: SimulatedFileSystem) -> None:
    calls = calls_of_a_load(start)
    for call in range(calls // 2, calls, 5):
        disk = start.copy()
        disk.fail({disk.calls + call}, "No space left on device", partly=True)
        disk.fail(operation="resize", path="/data/2/*", error="Input/output error")
        with contextlib.suppress(TidelogError):
            load(disk)
        disk.heal()
        assert settled(disk) in (OLD, NEW), f"call {call} of {calls}"
