"""What the cleaner believes of a log that is deleted, made again, truncated or moved."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.logs import NOW, SMALL_INDEXES, all_replicated, batch, fill, lead, offsets_in, records_in
from tests.log.manager.managers import NO_CLEANER, ORDERS, VIEWS, a_manager, after, crashed, offsets_in_file
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.log import LogManager
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.cleaner_states import Paused, State
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tidelog.log.unified_log import UnifiedLog
from tidelog.records import NewRecord

CLEANER = CleanerConfig(dedupe_buffer_size=1 << 16)
COMPACTED = {"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}}
BACKOFF = 15_000


def compacting(*roots: Path, cleaner: CleanerConfig = CLEANER) -> LogManager:
    return a_manager(roots, replace(SMALL_INDEXES, segment_bytes=1024), topic_configs=COMPACTED, cleaner=cleaner)


def say(log: UnifiedLog, count: int) -> None:
    """Append values of one key, which compaction leaves one of."""
    for number in range(count):
        lead(log, batch([NewRecord(b"key", b"%d" % number, NOW)]))
    all_replicated(log)


def claim(root: Path, **offsets: int) -> None:
    """Have the cleaner's checkpoint say up to where partitions 0 of some topics are clean."""
    file = OffsetCheckpoint(LocalFileSystem(), f"{root}/{CLEANER_CHECKPOINT}")
    file.write({ORDERS._replace(topic=topic): offset for topic, offset in offsets.items()})


def claims_in(root: Path) -> dict[str, int]:
    return offsets_in_file(root, CLEANER_CHECKPOINT)


def state_of(manager: LogManager) -> State | None:
    assert manager.cleaner is not None
    return manager.cleaner.state_of(ORDERS)


# -- a log of an old name ----------------------------------------------------------------------------------------------


def test_what_is_said_into_a_new_log_is_not_clean_because_an_old_one_was(tmp_path: Path) -> None:
    with compacting(tmp_path) as manager:
        claim(tmp_path, orders=40, views=6)  # as a crash leaves it between the deletion and the writing of checkpoints
        log = manager.get_or_create(ORDERS)
        assert claims_in(tmp_path) == {"views-0": 6}
        say(log, 60)
        log.roll()
        after(manager, ms=BACKOFF)
        assert [record.value for record in records_in(log)] == [b"59"]


@pytest.mark.parametrize("cleaner", [CLEANER, NO_CLEANER])
def test_an_entry_goes_before_another_log_has_its_name_whether_or_not_a_cleaner_runs(
    tmp_path: Path, cleaner: CleanerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, int]] = []
    make = LocalFileSystem.make_directory

    def look(fs: LocalFileSystem, path: str) -> None:
        if path.endswith("/orders-0"):
            seen.append(claims_in(tmp_path))
        make(fs, path)

    with compacting(tmp_path, cleaner=cleaner) as manager:
        manager.get_or_create(ORDERS)
        claim(tmp_path, orders=40)
        manager.delete(ORDERS)
        assert claims_in(tmp_path) == ({} if cleaner.enable else {"orders-0": 40})
        claim(tmp_path, orders=40)
        monkeypatch.setattr(LocalFileSystem, "make_directory", look)
        manager.get_or_create(ORDERS)
        assert seen == [{}]


def test_a_log_is_cleaned_again_where_it_was_truncated_while_no_cleaner_ran(tmp_path: Path) -> None:
    with compacting(tmp_path, cleaner=NO_CLEANER) as manager:
        fill(manager.get_or_create(ORDERS), [10, 10, 10])
        claim(tmp_path, orders=20)
        manager.truncate_to({ORDERS: 25})
        assert claims_in(tmp_path) == {"orders-0": 20}
        manager.truncate_to({ORDERS: 10})
        assert claims_in(tmp_path) == {"orders-0": 10}
        manager.truncate_fully_and_start_at(ORDERS, 4)
        assert claims_in(tmp_path) == {"orders-0": 4}


# -- moving ------------------------------------------------------------------------------------------------------------


def moving(tmp_path: Path, cleaner: CleanerConfig = CLEANER) -> LogManager:
    """A compacted log in a, its copy in b."""
    manager = compacting(tmp_path / "a", tmp_path / "b", cleaner=cleaner)
    say(manager.get_or_create(ORDERS, root=tmp_path / "a"), 60)
    manager.get_or_create(ORDERS, root=tmp_path / "b", future=True)
    return manager


def copied(manager: LogManager) -> LogManager:
    """The manager, whose copy says now what the log says."""
    say(manager.future_logs[ORDERS], 60)
    return manager


def test_a_log_is_not_cleaned_while_it_is_moved(tmp_path: Path) -> None:
    with moving(tmp_path) as manager:
        say(manager.future_logs[ORDERS], 60)
        log = manager.logs[ORDERS]
        assert state_of(manager) == Paused(1)
        after(manager, ms=BACKOFF)
        assert len(offsets_in(log)) == 60
        manager.replace_current_with_future(ORDERS)
        assert state_of(manager) is None
        assert claims_in(tmp_path / "b") == {}
        after(manager, ms=BACKOFF)
        assert len(offsets_in(manager.logs[ORDERS])) < 30


def test_a_round_that_is_under_way_ends_where_a_move_begins(tmp_path: Path) -> None:
    with compacting(tmp_path / "a", tmp_path / "b") as manager:
        say(manager.get_or_create(ORDERS, root=tmp_path / "a"), 60)
        manager.clock.advance(BACKOFF)  # type: ignore[attr-defined]
        assert manager.cleaner is not None
        while manager.cleaner.running is None:
            manager.schedule.run_due(0)
        manager.get_or_create(ORDERS, root=tmp_path / "b", future=True)
        assert state_of(manager) == Paused(1)
        assert manager.cleaner.running is None


def test_a_copy_that_was_found_at_the_start_keeps_the_cleaner_away(tmp_path: Path) -> None:
    moving(tmp_path).close()
    with compacting(tmp_path / "a", tmp_path / "b") as manager:
        assert state_of(manager) == Paused(1)
        after(manager, ms=BACKOFF)
        assert len(offsets_in(manager.logs[ORDERS])) == 60
        manager.delete(ORDERS, future=True)
        assert state_of(manager) is None
        after(manager, ms=BACKOFF)
        assert len(offsets_in(manager.logs[ORDERS])) < 30


@pytest.mark.parametrize(
    "end",
    [
        lambda manager, roots: copied(manager).replace_current_with_future(ORDERS),
        lambda manager, roots: manager.promote_future(ORDERS),
        lambda manager, roots: manager.delete(ORDERS, future=True),
        lambda manager, roots: manager.delete(ORDERS, future=True, stray=True),
        lambda manager, roots: manager.delete_all([ORDERS]),
        lambda manager, roots: manager.fail_root(roots[1], StorageError("pulled out")),
        lambda manager, roots: [manager.fail_root(root, StorageError("pulled out")) for root in roots],
        lambda manager, roots: (manager.delete(ORDERS), manager.promote_future(ORDERS)),
        lambda manager, roots: (manager.truncate_to({ORDERS: 0}), manager.replace_current_with_future(ORDERS)),
    ],
)  # fmt: skip
def test_however_a_move_ends_nothing_is_left_of_its_pause(tmp_path: Path, end: object) -> None:
    manager = moving(tmp_path)
    manager.pause_cleaning(ORDERS)  # somebody else's
    assert state_of(manager) == Paused(2)
    assert callable(end)
    end(manager, [tmp_path / "a", tmp_path / "b"])
    assert state_of(manager) == Paused(1)
    manager.resume_cleaning(ORDERS)
    assert state_of(manager) is None
    assert dict(manager.future_logs) == {}


def test_a_current_log_that_is_lost_leaves_its_copy_paused(tmp_path: Path) -> None:
    manager = moving(tmp_path)
    manager.fail_root(tmp_path / "a", StorageError("pulled out"))
    assert state_of(manager) == Paused(1)
    manager.promote_future(ORDERS)
    assert state_of(manager) is None


def test_retention_goes_on_while_a_log_is_moved(tmp_path: Path) -> None:
    with a_manager([tmp_path / "a", tmp_path / "b"], cleaner=CLEANER) as manager:
        for log in (manager.get_or_create(VIEWS), manager.get_or_create(VIEWS, root=tmp_path / "b", future=True)):
            fill(log, [2, 2, 2])
            all_replicated(log)
        manager.update_topic_config("views", {"retention.bytes": "1"})
        assert manager.delete_old_segments() == 4
        assert manager.cleaner is not None
        assert manager.cleaner.state_of(VIEWS) == Paused(1)


# -- a copy without a log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cleaner", [CLEANER, NO_CLEANER])
def test_a_copy_becomes_the_log_where_there_is_none(tmp_path: Path, cleaner: CleanerConfig) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    manager = moving(tmp_path, cleaner)
    copy = manager.future_logs[ORDERS]
    say(copy, 5)
    copy.update_high_watermark(3)
    copy.flush()
    manager.fail_root(roots[0], StorageError("pulled out"))
    with pytest.raises(StorageError, match="has no log, or it is in a root that is offline"):
        manager.replace_current_with_future(ORDERS)
    claim(roots[1], orders=4)  # of one that was there before
    manager.promote_future(ORDERS)
    assert manager.logs[ORDERS] is copy
    assert dict(manager.future_logs) == {}
    assert (copy.directory, copy.high_watermark) == (f"{roots[1]}/orders-0", 3)
    assert claims_in(roots[1]) == {}
    assert offsets_in_file(roots[1], RECOVERY_POINT_CHECKPOINT) == {"orders-0": 5}
    manager.checkpoint_high_watermarks()
    assert offsets_in_file(roots[1], HIGH_WATERMARK_CHECKPOINT) == {"orders-0": 3}
    with pytest.raises(StorageError, match="has no future log"):
        manager.promote_future(ORDERS)
    crashed(manager)
    with compacting(roots[1]) as manager:
        assert offsets_in(manager.logs[ORDERS]) == [0, 1, 2, 3, 4]


# -- pauses ------------------------------------------------------------------------------------------------------------


def test_a_host_can_keep_the_cleaner_away_from_a_partition(tmp_path: Path) -> None:
    with compacting(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        say(log, 60)
        manager.pause_cleaning(ORDERS)
        after(manager, ms=BACKOFF)
        assert len(offsets_in(log)) == 60
        manager.resume_cleaning(ORDERS)
        with pytest.raises(InvalidRequestError, match="cannot be resumed"):
            manager.resume_cleaning(ORDERS)
        after(manager, ms=BACKOFF)
        assert len(offsets_in(log)) < 30


def test_without_a_cleaner_there_is_nothing_to_pause(tmp_path: Path) -> None:
    with moving(tmp_path, NO_CLEANER) as manager:
        manager.pause_cleaning(ORDERS)
        manager.resume_cleaning(ORDERS)
        manager.resume_cleaning(ORDERS)
        copied(manager).replace_current_with_future(ORDERS)
        assert manager.cleaner is None


def test_a_person_is_told_of_a_log_that_is_not_cleaned_any_more(tmp_path: Path) -> None:
    with compacting(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        say(log, 60)
        log.roll()
        all_replicated(log)
        log.flush()
        first = Path(log.segments[0].log.path)
        data = bytearray(first.read_bytes())
        data[70] ^= 1
        first.write_bytes(data)
        after(manager, ms=BACKOFF)
        assert [notice for notice in manager.notices if "is not cleaned any more" in notice and "crc" in notice]
