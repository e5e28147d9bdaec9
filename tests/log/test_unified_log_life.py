"""A log from its first opening to its deletion: topic ids, renames, overflowed segments, and disks that fail."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    ABORT,
    MEGABYTE,
    NOW,
    a_log,
    all_replicated,
    bases_of,
    batch,
    clock_of,
    end_txn,
    fill,
    follow,
    in_txn,
    lead,
    names_in,
    offsets_in,
    opened_again,
    records_in,
)
from tidelog.errors import InconsistentTopicIdError, LockedError, StorageError
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, TopicPartition, delete_directory_name
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.java import MAX_INT32
from tidelog.testing.disk import SimulatedFileSystem

TOPIC_ID = uuid.UUID(int=0x1234567890)
TO_BE_DELETED = delete_directory_name(TopicPartition("topic", 0), "a" * 32)
IO_ERROR = "Input/output error"


# -- opening -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-030")
def test_an_empty_directory_opens_where_the_checkpoint_says_it_starts(tmp_path: Path) -> None:
    log = a_log(tmp_path, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert (bases_of(log), log.size) == ([500], 0)
    assert lead(log, 1).first_offset == 500


@behaviour("LOG-054")
def test_empty_files_open_as_an_empty_log(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for suffix in ("log", "index"):
        (directory / f"{0:020}.{suffix}").touch()
    log = a_log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    lead(log, 2)
    assert offsets_in(log) == [0, 1]


@behaviour("LOG-119")
def test_an_empty_directory_that_waits_for_deletion_opens_with_one_segment(tmp_path: Path) -> None:
    (tmp_path / TO_BE_DELETED).mkdir()
    assert bases_of(a_log(tmp_path, name=TO_BE_DELETED)) == [0]


def overflowed(tmp_path: Path, *batches: bytes | bytearray) -> UnifiedLog:
    """A log whose first segment, as releases before 1.1 could write it, has offsets beyond what an index can hold."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    return a_log(tmp_path, index_interval_bytes=1)


@behaviour("LOG-093")
def test_a_segment_with_offsets_that_overflow_is_split(tmp_path: Path) -> None:
    offsets = [0, 5, MAX_INT32, MAX_INT32 + 1, 2 * MAX_INT32 + 1, 2 * MAX_INT32 + 2, 2 * MAX_INT32 + 9]
    log = overflowed(tmp_path, *(batch(1, base_offset=offset, partition_leader_epoch=0) for offset in offsets))
    assert bases_of(log) == [0, MAX_INT32 + 1, 2 * MAX_INT32 + 2]
    assert offsets_in(log) == offsets
    for segment in log.segments:
        assert all(segment.fits(part.last_offset) for part in segment.log.batches())


@pytest.mark.parametrize(
    "batches",
    [
        [batch(1, base_offset=MAX_INT32 + 1), batch(1, base_offset=MAX_INT32 + 2)],
        [batch(3, base_offset=MAX_INT32 - 1)],
    ],
)
@behaviour("LOG-094")
def test_a_segment_of_which_nothing_fits_becomes_one_that_begins_with_its_first_batch(
    tmp_path: Path, batches: list[bytearray]
) -> None:
    log = overflowed(tmp_path, *batches)
    first = int.from_bytes(batches[0][:8], "big")
    assert bases_of(log) == [first]
    assert offsets_in(log) == [*range(first, log.log_end_offset)]
    clock_of(log).advance(log.config.file_delete_delay_ms)
    log.tick()
    assert names_in(log, ".log") == [f"{first:020}.log"]
    assert names_in(log, ".deleted") == []


# -- the id of the topic -----------------------------------------------------------------------------------------------


def stored_id(log: UnifiedLog) -> uuid.UUID | None:
    """What another opener would read in the directory."""
    return opened_again(log).topic_id


@behaviour("LOG-069")
def test_the_topic_id_is_in_its_file_before_the_first_record_is_in_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    assert names_in(log, PARTITION_METADATA) == []
    lead(log, 1)
    assert stored_id(log) == TOPIC_ID


@behaviour("LOG-070")
def test_the_topic_id_is_written_when_a_log_is_closed_and_found_when_it_is_opened(tmp_path: Path) -> None:
    log = a_log(tmp_path, topic_id=TOPIC_ID)
    log.close()
    again = opened_again(log, clean_shutdown=True)
    assert again.topic_id == TOPIC_ID


@behaviour("LOG-071")
def test_a_log_of_another_topic_of_the_same_name_is_not_opened(tmp_path: Path) -> None:
    log = a_log(tmp_path, topic_id=TOPIC_ID)
    log.close()
    with pytest.raises(InconsistentTopicIdError) as refusal:
        opened_again(log, topic_id=uuid.UUID(int=7))
    assert refusal.value.error_code == 103


# -- renaming and deleting ---------------------------------------------------------------------------------------------


@behaviour("LOG-090")
def test_what_is_written_after_a_rename_goes_to_the_new_directory(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    lead(log, 1, epoch=5)
    log.rename(TO_BE_DELETED)
    lead(log, 1, epoch=10)
    assert log.leader_epochs.latest_epoch == 10
    assert (tmp_path / TO_BE_DELETED / LEADER_EPOCH_CHECKPOINT).read_text() == "0\n2\n5 0\n10 1\n"
    assert (tmp_path / TO_BE_DELETED / PARTITION_METADATA).exists()
    assert not (tmp_path / "topic-0").exists()
    assert (log.topic_id, stored_id(log)) == (TOPIC_ID, TOPIC_ID)


@behaviour("LOG-091")
def test_a_topic_id_that_waits_to_be_written_is_written_by_a_rename(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    log.rename(TO_BE_DELETED)
    assert (tmp_path / TO_BE_DELETED / PARTITION_METADATA).exists()
    assert stored_id(log) == TOPIC_ID


@behaviour("LOG-122")
def test_a_log_that_was_renamed_for_deletion_takes_records_until_it_is_deleted(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.rename(TO_BE_DELETED)
    lead(log, 1)
    assert log.log_end_offset == 1
    log.delete()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("closed", [False, True])
@behaviour("LOG-097")
def test_a_log_is_deleted_with_all_that_it_has(tmp_path: Path, closed: bool) -> None:
    log = a_log(tmp_path)
    fill(log, [2, 2, 1])
    if closed:
        log.close()
    log.delete()
    assert log.segments == ()
    assert log.leader_epochs.entries == ()
    assert not (tmp_path / "topic-0").exists()


def test_a_stop_is_clean_although_a_file_that_was_deleted_cannot_be_removed() -> None:
    disk = SimulatedFileSystem()
    log = a_log("/data", fs=disk)
    fill(log, [1, 1, 1])
    all_replicated(log)
    log.delete_records(2)
    assert log.delete_old_segments() == 2
    disk.fail(operation="remove", path="*.deleted", error="Operation not permitted")
    log.close()
    assert log.failure is None
    disk.heal()
    log = a_log("/data", fs=disk, clean_shutdown=True, log_start_offset=2)
    assert offsets_in(log) == [2]
    assert not [name for name in names_in(log) if name.endswith(".deleted")]


def test_a_closed_log_is_not_deleted_while_somebody_else_has_it(tmp_path: Path) -> None:
    log = UnifiedLog.open(tmp_path / "topic-0", clock=ManualClock(NOW))
    lead(log, 1)
    log.close()
    with UnifiedLog.open(tmp_path / "topic-0", clock=ManualClock(NOW)) as other:
        with pytest.raises(LockedError):
            log.delete()
        assert offsets_in(other) == [0]
    log.delete()
    assert not (tmp_path / "topic-0").exists()


# -- disks that fail ---------------------------------------------------------------------------------------------------


@behaviour("LOG-121")
def test_a_deletion_that_fails_takes_the_root_offline(tmp_path: Path) -> None:
    offline: list[str] = []
    log = a_log(tmp_path, on_failure=lambda root, _: offline.append(root))
    lead(log, 1)
    shutil.rmtree(tmp_path / "topic-0")
    (tmp_path / "topic-0").touch()
    with pytest.raises(StorageError) as refusal:
        log.delete()
    assert refusal.value.error_code == 56
    assert offline == [str(tmp_path)]


@pytest.mark.parametrize(
    ("operation", "attempt"),
    [
        ("sync", UnifiedLog.flush),
        ("create", UnifiedLog.roll),
        ("resize", lambda log: log.truncate_to(1)),
        ("rename", lambda log: log.truncate_fully_and_start_at(9)),
        ("rename", UnifiedLog.delete_old_segments),
        ("rename", lambda log: log.rename(TO_BE_DELETED)),
        ("create", lambda log: log.assign_epoch_start_offset(7, 3)),
        ("create", lambda log: (log.assign_topic_id(TOPIC_ID), lead(log, 1))),
        ("read", lambda log: log.read(1, MEGABYTE)),
        ("read", lambda log: log.offset_for_time(NOW - 5)),
    ],
)
def test_whatever_the_disk_refuses_takes_the_root_offline(
    operation: str, attempt: Callable[[UnifiedLog], object]
) -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    offline: list[str] = []
    log = a_log("/data", fs=disk, retention_ms=0, on_failure=lambda root, _: offline.append(root))
    fill(log, [3], timestamp_ms=NOW - 5)
    all_replicated(log)
    disk.fail(operation=operation, error=IO_ERROR)
    with pytest.raises(StorageError):
        attempt(log)
    assert offline == ["/data"]
    disk.heal()
    with pytest.raises(StorageError):
        lead(log, 1)


@behaviour("LOG-088")
def test_a_failed_write_takes_the_log_offline_for_appends_and_reads() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    offline: list[str] = []
    log = a_log("/data", fs=disk, on_failure=lambda root, _: offline.append(root))
    lead(log, in_txn(1, 0))
    disk.fail(path="*.txnindex", error=IO_ERROR)
    with pytest.raises(StorageError):
        end_txn(log, 1, ABORT)
    disk.heal()
    assert offline == ["/data"]
    for attempt in (lambda: lead(log, 1), lambda: log.read(0, MEGABYTE)):
        with pytest.raises(StorageError) as refusal:
            attempt()
        assert refusal.value.error_code == 56


@behaviour("LOG-089")
def test_a_marker_whose_index_entry_failed_is_in_the_log_and_is_indexed_when_it_is_recovered() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = a_log("/data", fs=disk)
    lead(log, in_txn(1, 0, 10))
    disk.fail(operation="write", path="*.txnindex", error=IO_ERROR)
    with pytest.raises(StorageError):
        end_txn(log, 1, ABORT)
    disk.heal()
    assert log.log_end_offset == 11
    assert log.last_stable_offset == 0
    with pytest.raises(StorageError):
        log.close()

    again = opened_again(log)
    assert again.log_end_offset == 11
    assert [*again.local.collect_aborted(0, 100)] == [AbortedTxnEntry(1, 0, 10, 11)]
    all_replicated(again)
    assert (again.first_unstable_offset, again.last_stable_offset) == (None, 11)


def test_a_full_disk_leaves_what_was_there_before(tmp_path: Path) -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = a_log("/data", fs=disk)
    lead(log, 3)
    disk.fail(operation="write", path="*.log", partly=True)
    with pytest.raises(StorageError):
        follow(log, batch(2, base_offset=3, partition_leader_epoch=0))
    disk.heal()
    again = opened_again(log)
    assert (again.log_end_offset, len(records_in(again))) == (3, 3)
