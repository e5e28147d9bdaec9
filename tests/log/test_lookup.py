"""Lookups by offset and by time: what they walk over, and that no index, however wrong, changes an answer."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden.replays import replays
from tests.log.segments_language import SMALL, Partition, a_segment, batch, offsets_in, open_segment
from tidelog.log import ManualClock, TimestampAndOffset, UnifiedLog
from tidelog.log.files import join, read_whole
from tidelog.log.list_offsets import MAX_TIMESTAMP
from tidelog.log.lookup import BatchRead, BatchWalked, IndexUsed, SegmentChosen, Step, TimeIndexUsed, WrongIndex
from tidelog.testing.disk import SimulatedFileSystem

INDEXES = (".index", ".timeindex")


def at(offset: int) -> TimestampAndOffset:
    return TimestampAndOffset(offset * 10, offset, 0)


# -- the way to an answer --------------------------------------------------------------------------------------------


def steps_by_name(trace: list[Step]) -> list[str]:
    return [type(step).__name__ for step in trace]


def test_an_offset_is_found_from_the_index_entry_before_it(tmp_path: Path) -> None:
    size = len(batch(0))
    segment = a_segment(tmp_path, 0, *(batch(n) for n in range(10)), config=SMALL)
    trace: list[Step] = []
    found = segment.find_offset(7, trace)
    assert found is not None
    assert (found.base_offset, found.position) == (7, 7 * size)
    assert trace == [SegmentChosen(0), IndexUsed(7, 7 * size), BatchWalked(found)]


def test_a_time_is_found_from_the_time_entry_before_it(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 0, *(batch(n, b"one", b"two") for n in range(0, 20, 2)), config=SMALL)
    trace: list[Step] = []
    assert segment.find_time(121, 0, trace) == at(13)
    assert TimeIndexUsed(110, 11) in trace
    assert steps_by_name(trace)[-2:] == ["BatchWalked", "BatchRead"]
    last = trace[-1]
    assert isinstance(last, BatchRead)
    assert (last.batch.base_offset, last.batch.last_offset) == (12, 13)


def test_times_out_of_order_are_answered_by_the_lowest_offset(tmp_path: Path) -> None:
    times = [50, 10, 70, 20, 60, 90, 30]
    segment = a_segment(tmp_path, 0, *(batch(n, timestamp_ms=time) for n, time in enumerate(times)))
    for target in range(95):
        first = next((n for n, time in enumerate(times) if time >= target), None)
        expected = None if first is None else TimestampAndOffset(times[first], first, 0)
        assert segment.find_time(target, 0) == expected, target
    assert segment.find_max_timestamp() == TimestampAndOffset(90, 5, 0)


def test_an_entry_that_points_elsewhere_is_reported_and_the_walk_begins_at_the_start(tmp_path: Path) -> None:
    a_segment(tmp_path, 0, *(batch(n) for n in range(10))).close()
    path = tmp_path / f"{0:020}.index"
    data = bytearray(path.read_bytes())
    data[8 * 6 + 7] ^= 3  # the position in slot 6, which is of offset 7
    path.write_bytes(data)
    segment = open_segment(tmp_path)
    trace: list[Step] = []
    found = segment.find_offset(7, trace)
    assert found is not None
    assert found.base_offset == 7
    assert segment.wrong_index is not None
    assert "offset 7" in segment.wrong_index
    assert isinstance(trace[1], WrongIndex)
    assert steps_by_name(trace).count("BatchWalked") == 8


# -- every byte wrong ------------------------------------------------------------------------------------------------


def answers(log: UnifiedLog, times: list[int]) -> list[object]:
    """What the log says about every offset and every time around those it holds."""
    found: list[object] = [log.log_start_offset, log.log_end_offset]
    for offset in range(log.log_start_offset, log.log_end_offset):
        region = log.read(offset, 1)
        found.append((region.start, offsets_in(region)))
    found += [log.offset_for_time(target + near) for target in times for near in (-1, 0, 1)]
    found.append(log.offset_for_time(MAX_TIMESTAMP))
    return found


def flips(data: bytes) -> Iterator[bytes]:
    """The same with one byte changed: each of them, in a few bits or in all."""
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= (0x01, 0x80, 0xFF)[position % 3]
        yield bytes(changed)


TIMES = random.Random(4).sample(range(1_000, 9_000, 10), 36)  # in no order, and none twice


@pytest.fixture(scope="module")
def sound() -> Partition:
    """A log of several segments, closed."""
    partition = Partition(
        "/data", fs=SimulatedFileSystem(), segment_bytes=900, segment_index_bytes=200, index_interval_bytes=150
    )
    partition.clock.set_to(10_000)
    log = partition.open()
    for offset, time in enumerate(TIMES):
        log.append_as_follower(memoryview(batch(offset, timestamp_ms=time)))
    assert len(log.segments) == 4
    log.close()
    return partition


def damaged(sound: Partition, name: str, data: bytes) -> Partition:
    """A copy of the partition with other bytes in one file."""
    assert isinstance(sound.fs, SimulatedFileSystem)
    partition = Partition("/data", fs=sound.fs.copy())
    partition.config = sound.config
    partition.clock.set_to(10_000)
    partition.write(name, data)
    return partition


@behaviour("SEG-017", "SEG-018")
@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize("number", range(4))
def test_a_wrong_byte_in_an_index_changes_no_answer_and_is_mended_once_it_was_seen(
    sound: Partition, suffix: str, number: int
) -> None:
    name = sound.files(suffix)[number]
    right = answers(damaged(sound, name, sound.read(name)).open(clean=True), TIMES)
    mended = 0
    for data in flips(sound.read(name)):
        partition = damaged(sound, name, data)
        log = partition.open(clean=True)
        assert answers(log, TIMES) == right
        was_seen = log.segments[number].wrong_index is not None
        log.tick()
        assert log.segments[number].wrong_index is None
        assert answers(log, TIMES) == right
        log.close()
        if was_seen:
            assert partition.contents == sound.contents
        mended += partition.read(name) == sound.read(name)
    assert mended >= len(sound.read(name)) // 3  # an entry that no question needs is never looked at


@behaviour("SEG-017")
@pytest.mark.parametrize("suffix", INDEXES)
def test_an_index_of_noise_changes_no_answer(sound: Partition, suffix: str) -> None:
    rng = random.Random(9)
    right = answers(
        damaged(sound, "leader-epoch-checkpoint", sound.read("leader-epoch-checkpoint")).open(clean=True), TIMES
    )
    for name in sound.files(suffix)[:-1]:
        for _ in range(10):
            log = damaged(sound, name, rng.randbytes(len(sound.read(name)))).open(clean=True)
            assert answers(log, TIMES) == right


@behaviour("SEG-017", "SEG-018")
@pytest.mark.parametrize("topic", ["look-a-0", "look-start-0"])
def test_a_mended_index_has_the_bytes_that_kafka_wrote(topic: str) -> None:
    replay = next(replay for key, replay in replays().items() if key.endswith(f"7-lookups/image/{topic}"))
    kafka = SimulatedFileSystem.from_directory(str(replay.partition.path), f"/data/{topic}")
    directory = f"/data/{topic}"
    names = [name for name in kafka.list(directory) if name.endswith(INDEXES)]
    times = sorted({batch.max_timestamp_ms for batch in replay.batches()})
    seen = 0
    for name in names:
        good = read_whole(kafka, join(directory, name))
        for data in list(flips(good))[::13]:
            disk = kafka.copy()
            disk.open_write(join(directory, name)).write_at(0, data)
            log = UnifiedLog.open(
                directory,
                replay.config,
                log_start_offset=replay.log_start_offset,
                clean_shutdown=True,
                clock=ManualClock(replay.clock_ms),
                fs=disk,
            )
            answers(log, times)
            segment = next(s for s in log.segments if s.base_offset == int(name[:20]))
            was_seen = segment.wrong_index is not None
            log.tick()
            log.close()
            if was_seen:
                assert read_whole(disk, join(directory, name)) == good
                seen += 1
    assert seen
