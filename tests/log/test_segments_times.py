"""The largest timestamps of the segments: learnt beside the work, known to lookups by time, never old."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.logs import NOW, SMALL_INDEXES, a_log, batch, clock_of, follow, lead, opened_again
from tests.log.segments_language import a_segment
from tests.log.segments_language import batch as batch_at
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.open_files import OPEN_FILES
from tidelog.log.segment import LogSegment
from tidelog.log.segments import LogSegments
from tidelog.log.tasks import Schedule
from tidelog.log.upkeep import LEARNT_AT_ONCE
from tidelog.testing.disk import SimulatedFileSystem, SimulatedReadFile


def many_segments(count: int, disk: SimulatedFileSystem | None = None) -> UnifiedLog:
    """A log of so many segments of two batches each, a second from record to record."""
    log = a_log("/data", fs=disk or SimulatedFileSystem(ManualClock(NOW)), segment_bytes=170, index_interval_bytes=0)
    while len(log.segments) < count:
        lead(log, batch(1, timestamp_ms=time_of(log.log_end_offset)))
    log.close()
    return opened_again(log, clean_shutdown=True)


def time_of(offset: int) -> int:
    return NOW + 1_000 * offset


def turn(log: UnifiedLog) -> None:
    """One heartbeat, a moment after the last one."""
    clock_of(log).advance(1_000)
    log.tick()


def learn(log: UnifiedLog) -> int:
    """Heartbeats until all is learnt; how many."""
    for turns in range(100):
        if not log.local.segments.has_unknown_times:
            return turns
        turn(log)
    raise AssertionError("it does not end")


def reaching(log: UnifiedLog, timestamp_ms: int) -> LogSegment | None:
    """The first segment that reaches a time, by a look at every batch."""
    for segment in log.segments:
        largest = max((found.max_timestamp_ms for found in segment.log.batches()), default=-1)
        if (largest if largest >= 0 else segment.log.modified_ms) >= timestamp_ms:
            return segment
    return None


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path of every read of a simulated file."""
    noted: list[str] = []
    read = SimulatedReadFile.read

    def counted(file: SimulatedReadFile, position: int, size: int) -> bytes:
        noted.append(file.path)
        return read(file, position, size)

    monkeypatch.setattr(SimulatedReadFile, "read", counted)
    return noted


# -- learning ----------------------------------------------------------------------------------------------------------


def most_reads(log: UnifiedLog, reads: list[str]) -> int:
    """How many reads a lookup by time takes that is unlucky."""
    most = 0
    for offset in range(0, log.log_end_offset, 7):
        del reads[:]
        found = log.offset_for_time(time_of(offset))
        assert found is not None
        assert found.offset == offset
        most = max(most, len(reads))
    return most


def test_a_lookup_by_time_reads_as_little_in_ten_times_as_many_segments(reads: list[str]) -> None:
    few, many = many_segments(50), many_segments(500)
    for log in (few, many):
        learn(log)
    assert 0 < most_reads(few, reads) == most_reads(many, reads) <= 20


def test_a_lookup_that_comes_first_asks_the_segments_it_needs(reads: list[str]) -> None:
    log = many_segments(50)
    del reads[:]
    assert log.offset_for_time(time_of(20)).offset == 20
    asked = {int(path.rpartition("/")[2].partition(".")[0]) for path in reads}
    assert asked == {segment.base_offset for segment in log.segments if segment.base_offset <= 20}
    assert log.offset_for_time(time_of(1)).offset == 1


def test_a_heartbeat_asks_a_few_segments_and_the_first_one_none(reads: list[str]) -> None:
    log = many_segments(50)
    del reads[:]
    log.tick()
    assert reads == []
    asked: set[str] = set()
    for _ in range(3):
        turn(log)
        touched = {path for path in reads if path.endswith(".log")}
        assert len(touched - asked) == LEARNT_AT_ONCE
        asked |= touched
    assert learn(log) == 1
    tasks = len(log.local.schedule)
    del reads[:]
    turn(log)
    assert (reads, len(log.local.schedule)) == ([], tasks)


def test_a_log_whose_host_only_runs_the_schedule_learns_too() -> None:
    log = many_segments(20)
    for _ in range(2):
        clock_of(log).advance(1_000)
        log.local.schedule.run_due()
    assert not log.local.segments.has_unknown_times


def test_logs_that_were_opened_together_take_turns(reads: list[str]) -> None:
    clock = ManualClock(NOW)
    disk, schedule = SimulatedFileSystem(clock), Schedule(clock)
    config = replace(SMALL_INDEXES, segment_bytes=170)
    for number in range(20):
        with UnifiedLog.open(f"/data/topic-{number}", config, clock=clock, fs=disk) as log:
            for _ in range(4):
                lead(log, batch(1))
    logs = [
        UnifiedLog.open(f"/data/topic-{number}", config, clock=clock, fs=disk, schedule=schedule, clean_shutdown=True)
        for number in range(20)
    ]
    del reads[:]
    most = 0
    while any(log.local.segments.has_unknown_times for log in logs):
        clock.advance(10)
        schedule.run_due()
        most = max(most, len({path.rpartition("/")[0] for path in reads}))
        del reads[:]
    assert most == 1


def test_a_segment_that_was_rolled_is_learnt_without_a_read(reads: list[str]) -> None:
    log = many_segments(5)
    learn(log)
    before = len(log.segments)
    while len(log.segments) < before + 3:
        lead(log, batch(1, timestamp_ms=time_of(log.log_end_offset)))
    turn(log)  # the flush behind the roll
    assert len(log.segments) == before + 3
    del reads[:]
    learn(log)
    assert reads == []


def test_what_is_learnt_leaves_no_trace_in_files_and_no_file_open(tmp_path: Path) -> None:
    logs = []
    for name in ("learnt-0", "not-0"):
        log = a_log(tmp_path, name=name, segment_bytes=170, index_interval_bytes=0)
        for number in range(20):
            lead(log, batch(1, timestamp_ms=time_of(number)))
        log.close()
        for path in tmp_path.glob(f"{name}/*.timeindex"):
            path.write_bytes(path.read_bytes()[:-12])  # the entry that a close would add, if it were not the last
        logs.append(a_log(tmp_path, name=name, segment_bytes=170, clean_shutdown=True))
    open_before = len(OPEN_FILES)
    learn(logs[0])
    assert len(OPEN_FILES) == open_before
    assert all(segment._max is None for segment in logs[0].segments[:-1])
    for log in logs:
        log.close()
    learnt, other = (
        {path.name: path.read_bytes() for path in tmp_path.glob(f"{name}/*.*")} for name in ("learnt-0", "not-0")
    )
    assert learnt == other


def test_a_segment_without_timestamps_counts_from_when_it_was_written() -> None:
    clock = ManualClock(NOW)
    log = a_log("/data", fs=SimulatedFileSystem(clock), clock=clock, segment_bytes=170)
    while len(log.segments) < 4:
        follow(log, batch(1, timestamp_ms=-1, base_offset=log.log_end_offset, partition_leader_epoch=0))
        clock.advance(1_000)
    learn(log)
    written = [segment.log.modified_ms for segment in log.segments]
    assert written == sorted(set(written))
    assert [log.first_segment_reaching(time) for time in written] == list(log.segments)


# -- lists that change -------------------------------------------------------------------------------------------------


def cut_and_refill(log: UnifiedLog) -> None:
    """Truncate into an old segment, and fill the log up again with records that are older than what was there."""
    log.truncate_to(5)
    for number in range(12):
        lead(log, batch(1, timestamp_ms=NOW - 1_000 + number))


def test_what_was_known_of_a_segment_goes_when_it_is_the_active_one_again() -> None:
    log = many_segments(10)
    learn(log)
    cut_and_refill(log)
    assert len(log.segments) > 5
    for step in (lambda: None, lambda: learn(log)):
        step()
        for timestamp_ms in (NOW - 1_000, NOW, time_of(4), time_of(5), time_of(9)):
            assert log.first_segment_reaching(timestamp_ms) is reaching(log, timestamp_ms)


@pytest.mark.parametrize("asked", ["largest_timestamp_ms", "peek_largest_timestamp_ms"])
def test_what_a_reader_finds_out_while_a_segment_is_cut_is_not_believed_later(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    log = many_segments(10)
    doomed = log.local.segments.floor(5)
    is_cut = False

    def answer_late(segment: LogSegment) -> int:
        nonlocal is_cut
        answer = max(found.max_timestamp_ms for found in segment.log.batches())
        if segment is doomed and not is_cut:
            is_cut = True
            cut_and_refill(log)
        return answer

    monkeypatch.setattr(LogSegment, asked, property(answer_late) if asked[0] == "l" else answer_late)
    if asked == "largest_timestamp_ms":
        log.first_segment_reaching(time_of(9))
    else:
        log.local.segments.learn_times(100)
    assert is_cut
    monkeypatch.undo()
    for timestamp_ms in (NOW - 1_000, NOW, time_of(4), time_of(5), time_of(9)):
        assert log.first_segment_reaching(timestamp_ms) is reaching(log, timestamp_ms)


@pytest.mark.parametrize("seed", range(40))
def test_lookups_by_time_are_right_whatever_happens_to_the_list(seed: int) -> None:
    rng = random.Random(seed)
    log = many_segments(rng.randrange(1, 30))
    for _ in range(60):
        log = act(log, rng)
        times = [time_of(rng.randrange(-2, 60)) + rng.randrange(-1, 2) for _ in range(rng.randrange(4))]
        for timestamp_ms in times:
            assert log.first_segment_reaching(timestamp_ms) is reaching(log, timestamp_ms)


def act(log: UnifiedLog, rng: random.Random) -> UnifiedLog:
    """Something that changes the list, or what is known of it; the log, which may have been opened again."""

    def append() -> None:
        for _ in range(rng.randrange(1, 8)):
            lead(log, batch(1, timestamp_ms=time_of(rng.randrange(50))))

    def truncate() -> None:
        log.truncate_to(rng.randrange(log.log_start_offset, log.log_end_offset + 1))

    def delete() -> None:
        log.update_high_watermark(log.log_end_offset)
        log.delete_records(rng.randrange(log.log_start_offset, log.log_end_offset + 1))
        log.delete_old_segments()

    def start_anew() -> None:
        log.truncate_fully_and_start_at(rng.randrange(100))

    actions: list[tuple[Callable[[], object], int]] = [
        (append, 8), (lambda: turn(log), 6), (truncate, 3), (delete, 1), (log.roll, 2), (start_anew, 1),
    ]  # fmt: skip
    if rng.random() < 0.05:
        log.close()
        return opened_again(log, clean_shutdown=True, log_start_offset=log.log_start_offset)
    rng.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()
    return log


def test_a_segment_that_replaces_another_is_asked_itself(tmp_path: Path) -> None:
    segments: LogSegments[LogSegment] = LogSegments()
    for base in range(6):  # of the times 0, 10, 20, 30, 40, 50
        segments.add(a_segment(tmp_path, base, batch_at(base)))
    segments.learn_times(6)
    assert not segments.has_unknown_times
    (tmp_path / "new").mkdir()
    new = a_segment(tmp_path / "new", 2, batch_at(2, timestamp_ms=1_000))
    segments.add(new)
    assert segments.first_reaching(15) is new
    assert segments.first_reaching(900) is new
    segments.learn_times(6)
    segments.remove(2)
    assert [segments.first_reaching(time) for time in (10, 15, 900)] == [segments.get(1), segments.get(3), None]


# -- when something is wrong -------------------------------------------------------------------------------------------


def test_a_disk_that_refuses_takes_the_log_offline_as_everywhere() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = many_segments(5, disk)
    disk.fail(operation="read", path="*.log", error="Input/output error")
    turn(log)
    assert "Input/output error" in str(log.failure)


def test_too_many_files_are_no_failure_and_it_is_tried_again() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = many_segments(5, disk)
    disk.fail(operation="open", path="*.timeindex", error="Too many open files", times=2)
    for _ in range(3):
        turn(log)
        turn(log)
    assert log.failure is None
    assert not log.local.segments.has_unknown_times


def test_a_time_index_that_lies_hides_no_segment_and_is_rebuilt() -> None:
    log = many_segments(20)
    wrong = log.segments[3]
    file = log.local.fs.open_write(wrong.time_index.path)
    file.write_at(file.size - 12, (7).to_bytes(8, "big"))  # the last entry says 1970
    learn(log)
    for offset in range(log.log_end_offset):
        assert log.offset_for_time(time_of(offset)).offset == offset
    turn(log)
    assert wrong.wrong_index is None
    assert wrong.time_index.last_entry.timestamp_ms == wrong.largest_timestamp_ms


def test_a_time_index_that_was_cut_under_our_hands_is_rebuilt_and_the_host_lives() -> None:
    log = many_segments(20)
    cut = log.segments[3]
    entries = list(cut.time_index.reader())
    cut.time_index.release()
    log.local.fs.open_write(cut.time_index.path).resize(0)
    learn(log)
    assert log.failure is None
    assert list(cut.time_index.reader()) == entries
    for offset in range(log.log_end_offset):
        assert log.offset_for_time(time_of(offset)).offset == offset
