"""What happens beside the owner of a log: readers, threads that wait for the disk, other logs on the same schedule.

Races are not waited for. The moment is chosen: a file system that calls back where the owner stands still.
"""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.logs import NOW, a_log, batch, clock_of, lead, of_producer
from tidelog.errors import LogClosedError, OffsetOutOfRangeError, StorageError, TooManyFilesError
from tidelog.log import Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.log.local_files import LocalFileSystem, storage_error
from tidelog.log.offset_index import OffsetIndex
from tidelog.log.open_files import OPEN_FILES, OpenFiles
from tidelog.log.tasks import Schedule
from tidelog.testing.disk import SimulatedFileSystem

SMALL = LogConfig(segment_bytes=300, segment_index_bytes=1024, index_interval_bytes=0)


class Watched(LocalFileSystem):
    """The local disk, with a call in the middle of a rename."""

    def __init__(self) -> None:
        self.after_rename: Callable[[], object] = lambda: None

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.after_rename()


def several_segments(root: Path | str, **options: object) -> UnifiedLog:
    log = a_log(root, segment_bytes=200, **options)  # type: ignore[arg-type]
    for number in range(12):
        lead(log, batch(1, timestamp_ms=NOW + number))
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    return log


# -- readers ---------------------------------------------------------------------------------------------------------


def test_a_reader_that_comes_while_a_segment_is_deleted_makes_no_file(tmp_path: Path) -> None:
    disk = Watched()
    log = several_segments(tmp_path, fs=disk)
    doomed = log.segments[-1]
    log.local.segments.active.log.release()
    doomed.release()
    answers: list[object] = []

    def read() -> None:
        try:
            answers.append(doomed.log.file)
        except LogClosedError as error:
            answers.append(error)

    readers: list[threading.Thread] = []

    def start_reading() -> None:
        readers.append(threading.Thread(target=read))
        readers[-1].start()

    disk.after_rename = start_reading
    log.truncate_to(3)
    disk.after_rename = lambda: None
    for reader in readers:
        reader.join()
    assert len(answers) == len(readers) > 0
    bases = {segment.base_offset for segment in log.segments}
    assert {int(path.stem) for path in tmp_path.rglob("*.log")} == bases


def test_a_region_outlives_its_segment_and_a_new_read_is_told_that_it_is_gone(tmp_path: Path) -> None:
    log = several_segments(tmp_path)
    region = log.read(0, 1000)
    kept = region.read()
    log.delete_records(5)
    log.delete_old_segments()
    clock_of(log).advance(days=1)
    log.tick()
    assert region.read() == kept
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 1000)


def test_a_log_that_is_being_renamed_is_no_failed_disk(tmp_path: Path) -> None:
    disk, told = Watched(), []
    log = several_segments(tmp_path, fs=disk, on_failure=lambda root, error: told.append(error))
    for segment in log.segments:
        segment.release()
    answers: list[object] = []

    def read() -> None:
        try:
            answers.append(log.read(0, 1000))
        except StorageError as error:
            answers.append(error)

    disk.after_rename = read
    log.rename("topic-0.00000000000000000000000000000000-delete")
    assert [type(answer) for answer in answers] == [LogClosedError]
    assert (told, log.failure) == ([], None)
    assert log.read(0, 1000).size > 0
    assert str(log.topic_partition) == "topic-0"


def test_a_place_that_a_reader_looked_up_is_not_a_watermark(tmp_path: Path) -> None:
    log = several_segments(tmp_path)
    log.update_high_watermark(5)
    old = log.watermarks.limit(Isolation.HIGH_WATERMARK)
    assert (old.offset, old.is_offset_only) == (5, False)
    log.update_high_watermark(9)
    assert log.watermarks.limit(Isolation.HIGH_WATERMARK).offset == 9
    log.truncate_to(7)
    assert log.watermarks.limit(Isolation.HIGH_WATERMARK) == log.local.log_end
    assert log.high_watermark == 7


# -- open files ------------------------------------------------------------------------------------------------------


def test_more_segments_than_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPEN_FILES, "limit", 8)
    log = several_segments(tmp_path)
    for _ in range(2):
        offsets = [log.read(offset, 1).start.offset for offset in range(12)]
        times = [log.offset_for_time(NOW + number) for number in range(12)]
    assert offsets == list(range(12))
    assert [found.offset for found in times if found] == list(range(12))
    assert len(OPEN_FILES) <= 8
    lead(log, batch(1))
    log.close()
    assert len(list(tmp_path.rglob("*.log"))) == len(log.segments)


def test_the_file_that_was_opened_first_is_let_go_first() -> None:
    class Holder:
        released = 0

        def release(self) -> None:
            Holder.released += 1

    files, holders = OpenFiles(limit=2), [Holder() for _ in range(4)]
    for holder in holders[:2]:
        files.opened(holder)
    files.opened(holders[0])  # again: now it is the younger one
    files.opened(holders[2])
    assert (Holder.released, len(files)) == (1, 2)
    files.closed(holders[0])
    assert len(files) == 1


def test_a_process_with_too_many_files_has_no_broken_disk(tmp_path: Path) -> None:
    log = several_segments(tmp_path)
    log.fail(storage_error("f", OSError(24, "Too many open files")))
    assert log.failure is None
    assert isinstance(storage_error("f", OSError(24, "Too many open files")), TooManyFilesError)
    lead(log, batch(1))


# -- loading on a disk that refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "path", "error"),
    [
        ("write", "*.snapshot", "No space left on device"),
        ("read", "*.log", "Input/output error"),
        ("open", "*.timeindex", "Too many open files"),
    ],
)
def test_what_the_disk_refuses_while_loading_costs_no_record(operation: str, path: str, error: str) -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = several_segments("/data", fs=disk)
    log.flush()
    log.release()
    disk.fail(operation=operation, path=path, error=error, times=1)
    with pytest.raises(StorageError, match=error.replace("No space left on device", "the disk is full")):
        a_log("/data", fs=disk, segment_bytes=200)
    disk.heal()
    assert a_log("/data", fs=disk, segment_bytes=200).log_end_offset == 12


# -- appends that are interrupted ------------------------------------------------------------------------------------


def test_an_append_that_is_interrupted_takes_the_log_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(tmp_path, index_interval_bytes=0)
    lead(log, of_producer(1, 0))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(OffsetIndex, "append", interrupt)  # behind the bytes, whichever way the batch takes
    with pytest.raises(KeyboardInterrupt):
        lead(log, of_producer(1, 1))
    with pytest.raises(LogClosedError, match="KeyboardInterrupt"):
        lead(log, of_producer(1, 2))
    log.release()
    monkeypatch.undo()
    assert a_log(tmp_path).log_end_offset == 2  # what was written is whole, and found again


# -- schedules -------------------------------------------------------------------------------------------------------


def test_logs_share_a_schedule_and_each_keeps_its_own_failures() -> None:
    clock = ManualClock(NOW)
    disk, schedule = SimulatedFileSystem(clock), Schedule(clock)

    def open_log(name: str) -> UnifiedLog:
        return UnifiedLog.open(
            f"/data/{name}", SMALL, clock=clock, fs=disk, schedule=schedule, lock=False, rng=random.Random(1)
        )

    one, other = open_log("one-0"), open_log("other-0")
    assert one.local.schedule is other.local.schedule is schedule
    for log in (one, other):
        for number in range(12):
            lead(log, batch(1, timestamp_ms=NOW + number))
        log.update_high_watermark(12)
        log.delete_records(6)
        assert log.delete_old_segments() > 0
    disk.fail(operation="remove", path="/data/one-0/*", error="Input/output error")
    clock.advance(days=1)
    other.tick()
    assert "Input/output error" in str(one.failure)
    assert other.failure is None
    assert not [name for name in disk.list("/data/other-0") if name.endswith(".deleted")]
    other.close()
    assert len(schedule) == 0  # a log that failed, or is closed, asks for nothing more


def test_what_waits_for_the_disk_is_done_elsewhere_and_noted_by_the_owner(tmp_path: Path) -> None:
    log = several_segments(tmp_path)
    tasks = log.local.schedule.take_disk_tasks()
    assert tasks
    assert log.recovery_point == 0
    for task in tasks:
        assert task.step(1)
    assert log.recovery_point == 0
    for task in tasks:
        task.finish()
    assert log.recovery_point == log.active_segment.base_offset


def test_a_flush_that_was_begun_before_a_truncation_proves_nothing(tmp_path: Path) -> None:
    log = several_segments(tmp_path)
    tasks = log.local.schedule.take_disk_tasks()
    for task in tasks:
        task.step(1)
    log.truncate_to(2)
    for task in tasks:
        task.finish()
    assert log.recovery_point == 0


# -- what people pass in ---------------------------------------------------------------------------------------------


def test_a_path_may_end_with_a_slash_and_a_buffer_may_be_a_bytearray(tmp_path: Path) -> None:
    with UnifiedLog.open(f"{tmp_path}/orders-0/") as log:
        info = log.append_as_leader(bytearray(batch(2)), 0)
    assert (info.first_offset, info.last_offset, str(log.topic_partition)) == (0, 1, "orders-0")
