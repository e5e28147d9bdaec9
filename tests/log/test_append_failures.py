"""An append that fails: before the first byte nothing has moved and it can be repeated; after it the log is offline.

A retry on the live log must never write the same offsets twice.
"""

import os
import resource
import subprocess
import sys
import textwrap
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.log.logs import (
    ABORT,
    NOW,
    a_log,
    all_replicated,
    batch,
    end_txn,
    epochs_of,
    follow,
    in_txn,
    lead,
    of_producer,
    offsets_in,
    opened_again,
)
from tidelog.errors import (
    InvalidRequestError,
    LogClosedError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    RecordListTooLargeError,
    StorageError,
    TidelogError,
    TooManyFilesError,
)
from tidelog.fsck import check
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.open_files import OPEN_FILES
from tidelog.records import NewRecord
from tidelog.testing.disk import SimulatedFileSystem

EMFILE = "Too many open files"
IO_ERROR = "Input/output error"
MAX_OFFSET = 2**63 - 1


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem(ManualClock(NOW))


def let_go(log: UnifiedLog) -> None:
    """Close all files of the active segment, as happens when many logs are in use."""
    segment = log.active_segment
    for file in (segment.log, segment.offset_index, segment.time_index):
        file.release()


def large(log: UnifiedLog) -> None:
    """Append a batch after which an index entry is due."""
    lead(log, batch([NewRecord(b"k", b"v" * 6000, NOW)]))


def errors_in(log: UnifiedLog) -> list[str]:
    report = check([log.directory], fs=log.local.fs, jobs=1)
    return [f"{finding.code}: {finding.message}" for finding in report.findings if str(finding.severity) == "error"]


# -- descriptors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["*.log", "*.index", "*.timeindex", "*"])
def test_an_append_that_finds_no_descriptor_can_be_repeated(disk: SimulatedFileSystem, path: str) -> None:
    log = a_log("/data", fs=disk)
    for _ in range(40):
        large(log)  # more than an index keeps in memory
        let_go(log)
        disk.fail(operation="open", path=path, error=EMFILE)
        end = log.log_end_offset
        try:
            large(log)
        except TooManyFilesError:
            assert log.log_end_offset == end
        disk.heal()
    assert log.failure is None
    expected = list(range(log.log_end_offset))
    assert offsets_in(log) == expected
    assert log.active_segment.offset_index.entries == len(expected) - 1
    assert errors_in(log) == []
    assert offsets_in(opened_again(log)) == expected


def test_index_entries_wait_in_memory_while_their_files_cannot_be_opened(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk)
    large(log)
    segment = log.active_segment
    disk.fail(operation="open", path="*index", error=EMFILE)
    for _ in range(40):
        segment.release_indexes()
        large(log)
    disk.heal()
    assert [entry.offset for entry in segment.offset_index.reader()] == list(range(1, 41))
    log.flush()
    log.release()
    again = opened_again(log, clean_shutdown=True)
    assert again.active_segment.offset_index.lookup(30).offset == 30


def test_an_abort_marker_that_finds_no_descriptor_can_be_repeated(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk)
    lead(log, in_txn(1, 0))
    disk.fail(operation="open", path="*.txnindex", error=EMFILE)
    with pytest.raises(TooManyFilesError):
        end_txn(log, 1, ABORT)
    disk.heal()
    assert log.log_end_offset == 1
    end_txn(log, 1, ABORT)
    all_replicated(log)
    assert [txn.last_offset for txn in log.local.collect_aborted(0, 9)] == [1]
    assert log.last_stable_offset == 2


def test_an_append_whose_guard_was_good_is_good_again_when_it_is_repeated(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk, verification=True)
    lead(log, 1)
    guard = log.producers.maybe_start_verification(1, 0, 0)
    let_go(log)
    disk.fail(operation="open", path="*.log", error=EMFILE)
    with pytest.raises(TooManyFilesError):
        lead(log, in_txn(1, 0), guard=guard)
    disk.heal()
    assert lead(log, in_txn(1, 0), guard=guard).first_offset == 1


def test_a_roll_that_finds_no_descriptor_can_be_repeated(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk, segment_bytes=20_000)
    for path in ("*.index", "*.timeindex", "*.snapshot", "*.log"):
        while log.active_segment.size < 14_000:
            large(log)
        disk.fail(operation="open", path=path, error=EMFILE)
        let_go(log)
        with pytest.raises(TooManyFilesError):
            large(log)
        disk.heal()
        large(log)
    expected = list(range(log.log_end_offset))
    assert offsets_in(log) == expected
    assert errors_in(log) == []
    assert offsets_in(opened_again(log)) == expected


# -- from the first byte on ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [EMFILE, IO_ERROR, "No space left on device"])
@pytest.mark.parametrize("partly", [False, True])
def test_a_write_that_fails_takes_the_log_offline(disk: SimulatedFileSystem, error: str, partly: bool) -> None:
    failures: list[StorageError] = []
    log = a_log("/data", fs=disk, on_failure=lambda root, failure: failures.append(failure))
    large(log)
    large(log)
    disk.fail(operation="write", path="*.log", error=error, partly=partly)
    with pytest.raises(StorageError) as refused:
        large(log)
    disk.heal()
    assert not isinstance(refused.value, TooManyFilesError)
    assert failures == [log.failure]
    with pytest.raises(LogClosedError):
        large(log)
    assert offsets_in(opened_again(log)) == [0, 1]


def test_an_index_that_vanishes_under_an_append_takes_the_log_offline(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk)
    for _ in range(16):
        large(log)
    disk.remove(log.active_segment.offset_index.path)
    log.active_segment.release_indexes()
    with pytest.raises(StorageError, match="in the middle of a change"):
        large(log)
    with pytest.raises(LogClosedError):
        large(log)


def test_a_flush_that_an_append_asks_for_and_that_fails_takes_the_log_offline(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk, flush_messages=1)
    lead(log, 1)
    disk.fail(operation="open", path="*.timeindex", error=EMFILE)
    log.active_segment.release_indexes()
    with pytest.raises(StorageError, match="in the middle of a change"):
        lead(log, of_producer(1, 0))
    assert log.failure is not None


# -- leader epochs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_a_leader_epoch_that_is_not_written_is_not_known(disk: SimulatedFileSystem, operation: str) -> None:
    log = a_log("/data", fs=disk)
    lead(log, 5, epoch=1)
    path = "*/leader-epoch-checkpoint*" if operation == "open" else "*"
    disk.fail(operation=operation, path=path, error=EMFILE, times=1)
    with pytest.raises(TooManyFilesError):
        lead(log, 1, epoch=2)
    assert epochs_of(log) == [(1, 0)]
    assert log.log_end_offset == 5
    lead(log, 1, epoch=2)
    assert epochs_of(log) == epochs_of(opened_again(log)) == [(1, 0), (2, 5)]


def test_an_epoch_that_reached_the_file_alone_is_gone_before_the_next_append(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk)
    follow(log, batch(5, partition_leader_epoch=1))
    disk.fail(operation="sync_directory", error=EMFILE, times=1)
    with pytest.raises(TooManyFilesError):
        follow(log, batch(1, base_offset=5, partition_leader_epoch=2))
    follow(log, batch(3, base_offset=5, partition_leader_epoch=1))
    log.flush()
    again = opened_again(log, recovery_point=8)
    assert epochs_of(log) == epochs_of(again) == [(1, 0)]


def test_epochs_that_could_not_be_cleared_are_still_known(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk)
    lead(log, 1, epoch=1)
    disk.fail(operation="open", path="*/leader-epoch-checkpoint*", error=EMFILE, times=1)
    with pytest.raises(TooManyFilesError):
        log.leader_epochs.clear_and_flush()
    assert epochs_of(log) == [(1, 0)]


# -- offsets that do not fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 2])
def test_offsets_beyond_64_bits_are_rejected_before_they_are_written(tmp_path: Path, left: int) -> None:
    log = a_log(tmp_path)
    log.truncate_fully_and_start_at(MAX_OFFSET - left)
    with pytest.raises(OffsetOverflowError):
        lead(log, 3)
    with pytest.raises(OffsetOverflowError):
        follow(log, batch(3, base_offset=MAX_OFFSET - left, partition_leader_epoch=0))
    assert (log.size, log.log_end_offset) == (0, MAX_OFFSET - left)
    if left:
        lead(log, left)
    assert log.log_end_offset == MAX_OFFSET
    log.close()
    again = opened_again(log)
    assert offsets_in(again) == [*range(MAX_OFFSET - left, MAX_OFFSET)]


def test_the_quick_append_rejects_offsets_beyond_64_bits_too(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for _ in range(40):
        large(log)  # enough for the quick path to be used
    log.truncate_fully_and_start_at(MAX_OFFSET - 3)
    lead(log, 2)
    with pytest.raises(OffsetOverflowError):
        lead(log, 2)
    lead(log, 1)
    assert offsets_in(opened_again(log)) == [MAX_OFFSET - 3, MAX_OFFSET - 2, MAX_OFFSET - 1]


def test_replicated_batches_that_overlap_are_rejected(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    with pytest.raises(OffsetsOutOfOrderError):
        follow(log, batch(3, partition_leader_epoch=0), batch(3, base_offset=2, partition_leader_epoch=0))
    assert log.size == 0


# -- descriptors that are given back -----------------------------------------------------------------------------------


def open_descriptors(directory: Path) -> list[str]:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [target for link in links if os.path.lexists(link) and str(directory) in (target := os.readlink(link))]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to list open descriptors")
@pytest.mark.parametrize("end", ["close", "release"])
def test_a_log_that_is_closed_has_no_descriptor_of_what_waits_for_deletion(tmp_path: Path, end: str) -> None:
    before = len(OPEN_FILES)
    log = a_log(tmp_path, segment_bytes=500)
    for _ in range(20):
        lead(log, 2)
    log.truncate_to(10)
    log.truncate_fully_and_start_at(100)
    assert open_descriptors(tmp_path)
    getattr(log, end)()
    assert open_descriptors(tmp_path) == []
    assert len(OPEN_FILES) == before


def test_a_log_that_is_closed_deletes_what_waits_for_deletion(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=500)
    for number in range(20):
        lead(log, of_producer(1, number))
    log.truncate_to(5)
    log.close()
    assert [path.name for path in Path(log.directory).iterdir() if path.name.endswith(".deleted")] == []


def test_what_waits_for_deletion_moves_with_its_directory(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=500)
    for _ in range(10):
        lead(log, 2)
    log.truncate_to(2)
    log.rename("topic-0.0123456789abcdef0123456789abcdef-delete")
    log.local.clock.advance(minutes=2)  # type: ignore[attr-defined]
    log.tick()
    assert [path.name for path in Path(log.directory).iterdir() if path.name.endswith(".deleted")] == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to list open descriptors")
def test_a_log_that_cannot_be_opened_leaves_no_descriptor(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    log.close()
    (Path(log.directory) / "partition.metadata").write_text("no such thing")
    with pytest.raises(Exception, match=r"partition\.metadata"):
        opened_again(log)
    assert open_descriptors(tmp_path) == []


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_NOFILE"), reason="needs a limit on descriptors")
def test_a_process_that_runs_out_of_descriptors_writes_every_record_once(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        from tests.log.logs import NOW, batch, offsets_in
        from tidelog.errors import TooManyFilesError
        from tidelog.log import LogConfig, LogManager, ManualClock, TopicPartition
        from tidelog.records import NewRecord

        clock = ManualClock(NOW)
        manager = LogManager.open(sys.argv[1], LogConfig(retention_ms=-1, segment_bytes=30_000), clock=clock)
        logs = [manager.get_or_create(TopicPartition("t", number)) for number in range(30)]
        refused = 0
        for number in range(900):
            log = logs[number * 7 % 30]
            data = memoryview(bytearray(batch([NewRecord(b"k", b"v" * 3000, NOW)])))
            held = []
            if number > 100:
                try:
                    while True:
                        held.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    for _ in range(number % 5):
                        os.close(held.pop())
            end = log.log_end_offset
            try:
                log.append_as_leader(data, 0)
            except TooManyFilesError:
                assert log.log_end_offset == end
                refused += 1
            for descriptor in held:
                os.close(descriptor)
            if log.log_end_offset == end:
                log.append_as_leader(memoryview(bytearray(batch([NewRecord(b"k", b"v" * 3000, NOW)]))), 0)
            assert log.log_end_offset == end + 1
        assert refused > 10, refused
        for log in logs:
            assert offsets_in(log) == list(range(log.log_end_offset)), log
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "root")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = check([tmp_path / "root"])
    assert [finding.message for finding in report.findings if str(finding.severity) == "error"] == []


def test_a_follower_that_has_rolled_beyond_a_gap_knows_it_when_the_append_fails(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk, segment_bytes=500)
    while log.log_end_offset < 6:
        follow(log, batch(1, base_offset=log.log_end_offset, partition_leader_epoch=0))
    missing = [batch(3, base_offset=10, partition_leader_epoch=0)]
    disk.fail(operation="open", path=f"*{10:020}.timeindex", error=EMFILE)
    with pytest.raises(TooManyFilesError):
        follow(log, *missing)
    disk.heal()
    assert log.log_end_offset == opened_again(log).log_end_offset == 10
    follow(log, *missing)
    assert offsets_in(log) == [0, 1, 2, 3, 4, 5, 10, 11, 12]


# -- beside the append, and in the middle of other changes -----------------------------------------------------------


def test_an_append_that_is_done_does_not_fail_because_its_index_cannot_be_written(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk, index_interval_bytes=0)
    for _ in range(3):
        log.append(NewRecord(b"k", b"v"))
    log.active_segment.release_indexes()
    disk.fail(operation="open", path="*index", error=EMFILE)
    assert [log.append(NewRecord(b"k", b"v")).last_offset for _ in range(40)] == list(range(3, 43))
    disk.heal()
    log.tick()
    assert log.active_segment.offset_index.entries == 42


def test_transaction_indexes_count_as_open_files_and_are_let_go(
    disk: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OPEN_FILES, "limit", 5)
    log = a_log("/data", fs=disk)
    for number in range(10):
        lead(log, in_txn(1, number))
        end_txn(log, 1, ABORT)
        log.roll()
    all_replicated(log)
    assert len(list(log.local.collect_aborted(0, 20))) == 10
    assert sum(segment.txn_index._file is not None for segment in log.segments) <= 5


@pytest.mark.parametrize(("epoch", "start"), [(2**31, 0), (0, 2**63), (-1, 0), (0, -1)])
def test_an_epoch_that_its_file_cannot_hold_is_rejected(disk: SimulatedFileSystem, epoch: int, start: int) -> None:
    log = a_log("/data", fs=disk)
    with pytest.raises(InvalidRequestError):
        log.assign_epoch_start_offset(epoch, start)
    assert epochs_of(opened_again(log)) == []


def test_an_append_that_is_too_large_leaves_no_epoch(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=500)
    with pytest.raises(RecordListTooLargeError):
        follow(log, *(batch(4, base_offset=4 * number, partition_leader_epoch=7) for number in range(5)))
    assert epochs_of(log) == []


@pytest.mark.parametrize("work", ["truncate_to", "truncate_fully_and_start_at", "delete_old_segments"])
def test_a_keyboard_interrupt_in_the_middle_of_a_change_takes_the_log_offline(
    disk: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    log = a_log("/data", fs=disk, retention_bytes=0)
    for _ in range(4):
        lead(log, 1)
        log.roll()
    all_replicated(log)
    rename = disk.rename

    def interrupted(source: str, target: str) -> None:
        rename(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(disk, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(log, work)(*([] if work == "delete_old_segments" else [2]))
    assert log.failure is not None
    with pytest.raises(LogClosedError):
        lead(log, 1)


def test_retention_that_finds_no_descriptor_can_be_repeated(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk, retention_bytes=0)
    for _ in range(4):
        lead(log, 1)
        log.roll()
    log.flush()
    all_replicated(log)
    for operation in ("open", "sync_directory"):
        disk.fail(operation=operation, error=EMFILE)
    with pytest.raises(TooManyFilesError):
        log.delete_old_segments()
    disk.heal()
    assert log.failure is None
    assert len(log.segments) == 5
    assert log.delete_old_segments() == 4


@pytest.mark.parametrize("number", range(1, 9))
def test_indexes_that_cannot_take_their_names_take_the_log_offline_and_are_rebuilt_by_the_next_start(
    disk: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = a_log("/data", fs=disk)
    for _ in range(5):
        large(log)
    log.roll()
    segment = log.segments[0]
    segment.wrong_index = "found to be wrong"
    calls = 0

    def refuse(path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise TooManyFilesError(f"{path}: {EMFILE}")

    rename, remove = disk.rename, disk.remove
    monkeypatch.setattr(disk, "rename", lambda source, target: (refuse(source), rename(source, target))[1])
    monkeypatch.setattr(disk, "remove", lambda path: (refuse(path), remove(path))[1])
    with suppress(TidelogError):
        for _ in range(4):
            log.tick()
    monkeypatch.undo()
    if log.failure is None:
        assert offsets_in(log) == [0, 1, 2, 3, 4]
        log.tick()
        assert segment.offset_index.lookup(4).offset == 4
    log.release()
    assert offsets_in(opened_again(log)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("topic", [{}, {"message_timestamp_type": "LogAppendTime"}])
def test_the_buffer_of_an_append_that_failed_can_be_appended_again(disk: SimulatedFileSystem, topic: Any) -> None:
    log = a_log("/data", fs=disk, **topic)
    lead(log, 3)
    buffer = memoryview(batch(2))
    before = bytes(buffer)
    let_go(log)
    disk.fail(operation="open", path="*.log", error=EMFILE)
    with pytest.raises(TooManyFilesError):
        log.append_as_leader(buffer, 0)
    disk.heal()
    assert bytes(buffer) == before
    assert log.append_as_leader(buffer, 0).first_offset == 3
    assert offsets_in(log) == [0, 1, 2, 3, 4]


def test_a_topic_id_that_cannot_be_noted_is_not_the_logs(disk: SimulatedFileSystem) -> None:
    log = a_log("/data", fs=disk)
    disk.fail(operation="stat", path="*/partition.metadata", error=IO_ERROR, times=1)
    with pytest.raises(StorageError):
        log.assign_topic_id(uuid.UUID(int=7))
    assert log.topic_id is None
    log.assign_topic_id(uuid.UUID(int=8))
    lead(log, 1)
    assert opened_again(log).topic_id == uuid.UUID(int=8)
