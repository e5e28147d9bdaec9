"""What the checkpoints of a root say of its logs, and that a crash at any call finds nothing untrue in them."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import NOW, all_replicated, batch, fill, lead, records_in
from tests.log.manager.managers import (
    ORDERS,
    VIEWS,
    a_manager,
    crashed,
    is_marked_clean,
    offsets_in_file,
    partitions,
)
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.fsck import check
from tidelog.log import LogConfig, LogManager, TopicPartition, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tidelog.records import NewRecord
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

FS = LocalFileSystem()
RP, START, HW = RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT


def say(log: UnifiedLog, *values: str) -> None:
    """Append records, one batch each."""
    for value in values:
        lead(log, batch([NewRecord(b"key", value.encode(), NOW)]))
    all_replicated(log)


def said(log: UnifiedLog) -> list[str]:
    """The values of all records that can be read."""
    return [(record.value or b"").decode() for record in records_in(log) if record.offset >= log.log_start_offset]


# -- what is written ---------------------------------------------------------------------------------------------------


@behaviour("MGR-022", "MGR-024")
def test_the_recovery_points_of_all_logs_are_written(tmp_path: Path) -> None:
    manager = a_manager(tmp_path)
    names = [TopicPartition("test-a", 0), TopicPartition("test-a", 1), TopicPartition("test-b", 1)]
    for count, partition in enumerate(names, 3):
        log = manager.get_or_create(partition)
        lead(log, count)
        log.flush()
        lead(log, 1)
    manager.checkpoint_recovery_points()
    assert offsets_in_file(tmp_path, RP) == {"test-a-0": 3, "test-a-1": 4, "test-b-1": 5}
    assert offsets_in_file(tmp_path, RP) == {str(tp): log.recovery_point for tp, log in manager.logs.items()}
    assert (tmp_path / RP).read_text() == "0\n3\ntest-a 0 3\ntest-a 1 4\ntest-b 1 5\n"


@behaviour("MGR-023")
@pytest.mark.parametrize("write", ["{root}/", "{root}", "data", "./data/", "../{parent}/data"])
def test_however_a_root_is_written_its_checkpoints_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    monkeypatch.chdir(tmp_path)
    manager = a_manager(write.format(root=tmp_path / "data", parent=tmp_path.name))
    log = manager.get_or_create(ORDERS)
    lead(log, 4)
    log.flush()
    manager.checkpoint_recovery_points()
    assert offsets_in_file(tmp_path / "data", RP) == {"orders-0": 4}
    crashed(manager)
    with a_manager(tmp_path / "data") as manager:
        assert manager.logs[ORDERS].directory == f"{tmp_path}/data/orders-0"


@behaviour("MGR-033")
def test_a_log_start_is_listed_while_the_first_segment_begins_before_it(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        manager.get_or_create(VIEWS)
        fill(log, [11, 10, 10, 10, 9])
        log.update_high_watermark(49)
        log.delete_records(31)
        manager.checkpoint_log_starts()
        assert offsets_in_file(tmp_path, START) == {"orders-0": 31}
        assert len(log.segments) == 5
        assert manager.delete_old_segments() == 3
        assert log.log_start_offset == 31
        manager.checkpoint_log_starts()
        assert offsets_in_file(tmp_path, START) == {}


@behaviour("MGR-034")
def test_where_records_may_be_elsewhere_the_log_start_is_always_listed(tmp_path: Path) -> None:
    tiered = LogConfig(remote_storage_enable=True, segment_index_bytes=4096)
    with a_manager(tmp_path, tiered) as manager:
        log = manager.get_or_create(ORDERS)
        fill(log, [2, 2])
        manager.checkpoint_log_starts()
        assert offsets_in_file(tmp_path, START) == {"orders-0": 0}


@behaviour("CKP-016")
def test_the_high_watermarks_of_all_logs_are_written(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        for number, partition in enumerate([*partitions(3), VIEWS]):
            log = manager.get_or_create(partition)
            lead(log, 5)
            log.update_high_watermark(number)
        manager.checkpoint_high_watermarks()
        assert offsets_in_file(tmp_path, HW) == {"orders-0": 0, "orders-1": 1, "orders-2": 2, "views-0": 3}


def test_each_root_has_the_entries_of_its_own_logs_future_ones_too(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots) as manager:
        for partition in partitions(2):
            lead(manager.get_or_create(partition), 2)
        lead(manager.get_or_create(ORDERS, root=roots[1], future=True), 1)
        for write, name in (
            (manager.checkpoint_recovery_points, RP),
            (manager.checkpoint_high_watermarks, HW),
        ):
            write()
            assert sorted(offsets_in_file(roots[0], name)) == ["orders-0"]
            assert sorted(offsets_in_file(roots[1], name)) == ["orders-0", "orders-1"]


# -- truncating --------------------------------------------------------------------------------------------------------


def what_the_files_say(manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, int | None]]:
    """Recovery point and log start of orders-0 in the files, as they are whenever a log is about to be truncated."""
    seen: list[tuple[int | None, int | None]] = []

    def look() -> None:
        path = manager.roots[0].path
        files = [OffsetCheckpoint(manager.fs, f"{path}/{name}").read().get(ORDERS) for name in (RP, START)]
        seen.append((files[0], files[1]))

    def watched(method: Callable[..., object]) -> Callable[..., object]:
        def run(log: UnifiedLog, *args: object) -> object:
            look()
            return method(log, *args)

        return run

    for name in ("truncate_to", "truncate_fully_and_start_at"):
        monkeypatch.setattr(UnifiedLog, name, watched(getattr(UnifiedLog, name)))
    return seen


def with_checkpoints(tmp_path: Path, log_start: int = 4) -> LogManager:
    """A log of ten records, flushed, that starts at an offset; and another, both in the checkpoints."""
    manager = a_manager(tmp_path)
    for partition in (ORDERS, VIEWS):
        log = manager.get_or_create(partition)
        fill(log, [3, 4, 3])
        all_replicated(log)
        log.flush()
        log.delete_records(log_start)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    return manager


def test_the_recovery_point_is_lowered_before_a_log_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = with_checkpoints(tmp_path)
    seen = what_the_files_say(manager, monkeypatch)
    manager.truncate_to({ORDERS: 7})
    assert seen == [(7, 4)]
    assert offsets_in_file(tmp_path, RP) == {"orders-0": 7, "views-0": 10}
    assert offsets_in_file(tmp_path, START) == {"orders-0": 4, "views-0": 4}
    lead(manager.logs[ORDERS], 3)
    manager.truncate_to({ORDERS: 8})  # above the recovery point: nothing to lower
    assert seen == [(7, 4), (7, 4)]


def test_the_log_start_is_lowered_before_a_log_is_truncated_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = with_checkpoints(tmp_path)
    seen = what_the_files_say(manager, monkeypatch)
    manager.truncate_to({ORDERS: 2})
    assert seen == [(2, 2)]
    assert manager.logs[ORDERS].log_start_offset == 2
    assert offsets_in_file(tmp_path, START) == {"orders-0": 2, "views-0": 4}
    assert offsets_in_file(tmp_path, RP) == {"orders-0": 2, "views-0": 10}


@pytest.mark.parametrize(("offset", "log_start", "before"), [(3, None, (0, 3)), (20, None, (0, 4)), (20, 2, (0, 2))])
def test_both_are_lowered_before_a_log_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, log_start: int | None, before: tuple[int, int]
) -> None:
    manager = with_checkpoints(tmp_path)
    seen = what_the_files_say(manager, monkeypatch)
    manager.truncate_fully_and_start_at(ORDERS, offset, log_start)
    assert seen == [before]
    log = manager.logs[ORDERS]
    start = offset if log_start is None else log_start
    assert (log.log_start_offset, log.log_end_offset) == (start, offset)
    crashed(manager)
    log = a_manager(tmp_path).logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset) == (max(start, log.segments[0].base_offset), offset)


@pytest.mark.parametrize("is_full", [False, True])
def test_the_high_watermark_is_lowered_before_a_log_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    manager = with_checkpoints(tmp_path)
    manager.checkpoint_high_watermarks()
    root = manager.roots[0]
    pending = root.high_watermarks.later(root.high_watermark_offsets())
    seen: list[dict[str, int]] = []

    def look(log: UnifiedLog, *args: object) -> None:
        seen.append(offsets_in_file(tmp_path, HW))

    name = "truncate_fully_and_start_at" if is_full else "truncate_to"
    monkeypatch.setattr(UnifiedLog, name, look)
    if is_full:
        manager.truncate_fully_and_start_at(ORDERS, 7)
    else:
        manager.truncate_to({ORDERS: 7})
    pending()
    lowered = 0 if is_full else 7  # between the old segments and the new one there may be none
    assert [*seen, offsets_in_file(tmp_path, HW)] == [{"orders-0": lowered, "views-0": 10}] * 2


def test_a_kill_while_a_log_begins_anew_leaves_no_checkpoint_above_its_end() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager("/data", fs=disk)
    say(manager.get_or_create(ORDERS), "a", "b", "c")
    manager.truncate_fully_and_start_at(ORDERS, 6)
    say(manager.logs[ORDERS], "d", "e")
    manager.logs[ORDERS].flush()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    empty = 0
    for call in range(1, 200):
        cut = disk.copy()
        again = a_manager("/data", fs=cut)
        cut.cut_at(cut.calls + call)
        with suppress(PowerLost):
            again.truncate_fully_and_start_at(ORDERS, 20)
            break
        left = cut.copy()
        empty += not [name for name in left.list("/data/orders-0") if name.endswith(".log")]
        found = [one for one in check("/data", fs=left, jobs=1).findings if one.severity.is_at_least("warning")]
        assert not found, call
    assert empty, "there is a moment without any segment"


def test_several_logs_are_truncated_at_the_price_of_one() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager("/data", fs=disk)
    for partition in partitions(5):
        log = manager.get_or_create(partition)
        lead(log, 1)
        lead(log, 1)
        log.flush()
    manager.checkpoint_recovery_points()
    before = disk.calls
    manager.truncate_to({**dict.fromkeys(partitions(5), 1), VIEWS: 7})
    written = [line for line in disk.journal[before - disk.calls :] if f"rename /data/{RP}.tmp" in line]
    assert len(written) == 2
    assert set(offsets_in_file("/data", RP, disk).values()) == {1}


def test_a_log_is_not_truncated_if_its_checkpoint_cannot_be_lowered() -> None:
    disk = SimulatedFileSystem()
    manager = a_manager(["/a", "/b"], fs=disk)
    log = manager.get_or_create(ORDERS)
    say(log, "a", "b", "c")
    log.flush()
    manager.checkpoint_recovery_points()
    disk.fail(path=f"/a/{RP}*", error="Input/output error")
    with pytest.raises(StorageError, match="Input/output error"):
        manager.truncate_to({ORDERS: 1})
    assert [root.path for root in manager.live_roots] == ["/b"]
    disk.heal()
    assert said(a_manager("/a", fs=disk).logs[ORDERS]) == ["a", "b", "c"]


def test_an_offset_that_is_none_changes_nothing(tmp_path: Path) -> None:
    manager = with_checkpoints(tmp_path)
    before = [(tmp_path / name).read_bytes() for name in (RP, START)]
    with pytest.raises(InvalidRequestError):
        manager.truncate_to({VIEWS: 3, ORDERS: -1})
    with pytest.raises(InvalidRequestError):
        manager.truncate_fully_and_start_at(ORDERS, -1)
    assert [(tmp_path / name).read_bytes() for name in (RP, START)] == before
    assert [log.log_end_offset for log in manager.logs.values()] == [10, 10]


def test_a_pending_checkpoint_does_not_undo_the_lowering(tmp_path: Path) -> None:
    manager = with_checkpoints(tmp_path)
    root = manager.roots[0]
    pending = root.recovery_points.later(root.recovery_offsets())
    manager.truncate_to({ORDERS: 5})
    pending()
    assert offsets_in_file(tmp_path, RP)["orders-0"] == 5


def test_future_logs_are_truncated_where_they_are(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with a_manager(roots) as manager:
        for log in (manager.get_or_create(ORDERS), manager.get_or_create(ORDERS, root=roots[1], future=True)):
            lead(log, 1)
            lead(log, 1)
        manager.truncate_to({ORDERS: 1}, future=True)
        assert [log.log_end_offset for log in manager.all_logs()] == [2, 1]
        manager.truncate_fully_and_start_at(ORDERS, 7, future=True)
        assert [log.log_end_offset for log in manager.all_logs()] == [2, 7]
        manager.truncate_fully_and_start_at(VIEWS, 7)  # not here


# -- a log of an old name ----------------------------------------------------------------------------------------------


def test_a_new_log_does_not_inherit_the_checkpoints_of_an_old_one(tmp_path: Path) -> None:
    manager = with_checkpoints(tmp_path)
    manager.checkpoint_high_watermarks()
    crashed(manager)
    (tmp_path / "orders-0").rename(tmp_path.parent / f"{tmp_path.name}-taken-away")  # by hand
    manager = a_manager(tmp_path)
    assert offsets_in_file(tmp_path, START)["orders-0"] == 4
    say(manager.get_or_create(ORDERS), "new")
    for name in (RP, START, HW):
        assert list(offsets_in_file(tmp_path, name)) == ["views-0"]
    crashed(manager)
    assert said(a_manager(tmp_path).logs[ORDERS]) == ["new"]


# -- the power goes ----------------------------------------------------------------------------------------------------

Work = Callable[[LogManager, Callable[[int], None]], None]  # which promises that a log ends at an offset or behind it


def truncated_and_written_again(manager: LogManager, promise: Callable[[int], None]) -> None:
    log = manager.get_or_create(ORDERS)
    say(log, *(f"a{number}" for number in range(6)))
    log.roll()
    say(log, "a6", "a7", "a8")
    log.flush()
    promise(4)
    manager.checkpoint_recovery_points()
    manager.truncate_to({ORDERS: 4})
    say(log, "b4", "b5")
    log.roll()
    promise(6)
    say(log, "b6", "b7", "b8")
    manager.checkpoint_recovery_points()


def begun_anew(manager: LogManager, promise: Callable[[int], None]) -> None:
    log = manager.get_or_create(ORDERS)
    say(log, *(f"a{number}" for number in range(9)))
    log.delete_records(6)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    manager.truncate_fully_and_start_at(ORDERS, 4)
    say(log, "b4", "b5", "b6")
    log.flush()
    promise(7)
    say(log, "b7")


def deleted_and_made_again(manager: LogManager, promise: Callable[[int], None]) -> None:
    log = manager.get_or_create(ORDERS)
    say(log, *(f"a{number}" for number in range(9)))
    log.delete_records(6)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    manager.delete(ORDERS)
    log = manager.get_or_create(ORDERS)
    say(log, "b0", "b1", "b2")
    log.flush()
    promise(3)
    say(log, "b3")
    manager.checkpoint_recovery_points()


def moved(manager: LogManager, promise: Callable[[int], None]) -> None:
    log = manager.get_or_create(ORDERS, root="/a")
    say(log, *(f"a{number}" for number in range(5)))
    log.flush()
    promise(5)
    copy = manager.get_or_create(ORDERS, root="/b", future=True)
    say(copy, *(f"a{number}" for number in range(5)))
    copy.flush()
    manager.checkpoint_recovery_points()
    manager.replace_current_with_future(ORDERS)
    say(manager.logs[ORDERS], "a5")


def is_sound(values: list[str]) -> bool:
    """Whether a log says what was said, in order: first a, then b, each value at its offset, without a gap."""
    letters = [value[0] for value in values]
    numbers = [int(value[1:]) for value in values]
    return letters == sorted(letters) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def run_until(call: int | None, work: Work) -> tuple[SimulatedFileSystem, int]:
    """The disk after some work that the power may end, and what had been promised until then."""
    disk, promised = SimulatedFileSystem(), 0

    def promise(end: int) -> None:
        nonlocal promised
        promised = end

    disk.cut_at(call)
    with suppress(PowerLost):
        work(a_manager(["/a", "/b"], fs=disk), promise)
    return disk, promised


@pytest.mark.parametrize("work", [truncated_and_written_again, begun_anew, deleted_and_made_again, moved])
def test_a_crash_at_any_call_leaves_roots_that_start_and_logs_that_are_sound(work: Work) -> None:
    duplicates = 0
    for call in range(1, run_until(None, work)[0].calls + 1):
        disk, promised = run_until(call, work)
        for seed in range(3):
            left = disk.after_crash(random.Random(call * 10 + seed))
            if all(left.stat(f"{root}/orders-0") is not None for root in ("/a", "/b")):
                duplicates += 1  # between the two renames of a move: Kafka does not start then either
                continue
            manager = a_manager(["/a", "/b"], fs=left)
            assert all("were cut off by recovery" in notice for notice in manager.notices)
            for log in manager.all_logs():
                values = said(log)
                assert is_sound(values or ["a0"]), f"call {call}, seed {seed}: {values}"
                assert len(values) == log.log_end_offset - log.log_start_offset
            assert promised <= (manager.logs[ORDERS].log_end_offset if promised else 0), f"call {call}, seed {seed}"
            manager.close()
            assert is_marked_clean("/a", left)
    assert (duplicates > 0) == (work is moved)


# -- high watermarks that nobody knows ---------------------------------------------------------------------------------


def without_marks(root: Path, *names: TopicPartition) -> LogManager:
    """A manager of logs with five records each, of whose high watermarks nothing is noted."""
    with a_manager(root) as manager:
        for name in names:
            say(manager.get_or_create(name), *"abcde")
    (root / HW).unlink()
    return a_manager(root)


def test_a_high_watermark_that_nobody_has_set_is_not_noted(tmp_path: Path) -> None:
    manager = without_marks(tmp_path, ORDERS, VIEWS)
    manager.checkpoint_high_watermarks()
    assert offsets_in_file(tmp_path, HW) == {}
    manager.get_or_create(ORDERS).update_high_watermark(2)
    manager.close()
    assert offsets_in_file(tmp_path, HW) == {"orders-0": 2}


def test_a_log_that_is_made_has_a_high_watermark_of_its_own(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        lead(manager.get_or_create(ORDERS), 3)  # nobody has replicated them
    assert offsets_in_file(tmp_path, HW) == {"orders-0": 0}


def test_a_truncation_makes_no_high_watermark_known(tmp_path: Path) -> None:
    manager = without_marks(tmp_path, ORDERS, VIEWS)
    manager.truncate_to({ORDERS: 0})
    manager.truncate_fully_and_start_at(VIEWS, 7)
    for name in (ORDERS, VIEWS):
        lead(manager.get_or_create(name), 2)
    manager.close()
    assert offsets_in_file(tmp_path, HW) == {}


def test_a_move_makes_no_high_watermark_known(tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    without_marks(disks[0], ORDERS).close()
    manager = a_manager(disks)
    copy = manager.get_or_create(ORDERS, root=disks[1], future=True)
    log = manager.get_or_create(ORDERS)
    copy.append_as_follower(bytearray(log.read(0, 1 << 20).read()))
    copy.flush()
    manager.replace_current_with_future(ORDERS)
    manager.close()
    assert [offsets_in_file(disk, HW) for disk in disks] == [{}, {}]
