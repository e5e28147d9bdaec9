"""Segments whose offsets do not fit their indexes: cutting them, and crashes while that is done."""

import random
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import FS, SMALL, Partition, a_segment, all_offsets, bases, batch, offsets_of
from tidelog.errors import CorruptRecordError, InvalidRequestError, StorageError
from tidelog.log import ManualClock, UnifiedLog
from tidelog.log.names import LOG_SUFFIX, SEGMENT_SUFFIXES, file_name
from tidelog.log.segment import LogSegment
from tidelog.log.segment_split import split_overflowed
from tidelog.log.segments import LogSegments
from tidelog.log.tasks import Schedule
from tidelog.records.java import MAX_INT32
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

FAR = MAX_INT32 + 1
OFFSETS = [0, 1, 5, FAR - 1, FAR, FAR + 1, 3 * FAR, 3 * FAR + 7]
PARTS = [0, FAR, 3 * FAR]  # where the segments begin after the split


def raw_segment(directory: Path, base_offset: int, *batches: bytearray) -> LogSegment:
    """A segment as old releases could write it: batches without regard to the base offset."""
    segment = a_segment(directory, base_offset)
    for data in batches:
        segment.log.append(data)
    return segment


def singles(offsets: list[int]) -> list[bytearray]:
    return [batch(offset, timestamp_ms=100) for offset in offsets]


class Split:
    """What became of a segment that was cut."""

    def __init__(self, directory: Path, segment: LogSegment) -> None:
        self.clock = ManualClock(1_000)
        self.schedule = Schedule(self.clock)
        self.segments = LogSegments()
        self.segments.add(segment)
        self.gone = split_overflowed(
            FS, str(directory), segment, self.segments, SMALL, self.clock, random.Random(1), self.schedule
        )

    @property
    def bases(self) -> list[int]:
        return list(self.segments.base_offsets)

    @property
    def offsets(self) -> list[list[int]]:
        return [all_offsets(segment) for segment in self.segments]


# -- cutting ---------------------------------------------------------------------------------------------------------


@behaviour("SEG-026", "LOG-093")
def test_each_part_takes_what_fits_and_the_next_begins_with_the_first_batch_that_does_not(tmp_path: Path) -> None:
    segment = raw_segment(tmp_path, 0, *singles(OFFSETS))
    segment.log.flush()
    FS.set_modified(segment.log.path, 77_000)
    split = Split(tmp_path, segment)
    assert split.bases == PARTS
    assert split.offsets == [[0, 1, 5, FAR - 1], [FAR, FAR + 1], [3 * FAR, 3 * FAR + 7]]
    assert all(part.fits(offset) for part in split.segments for offset in all_offsets(part))
    assert [part.log.modified_ms for part in split.segments] == [77_000] * 3
    assert split.gone == []  # its base is still in use
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith(LOG_SUFFIX)) == [
        file_name(base, LOG_SUFFIX) for base in PARTS
    ]
    split.clock.advance(SMALL.file_delete_delay_ms)
    split.schedule.run_due()
    assert not [path.name for path in tmp_path.iterdir() if not path.name.endswith(SEGMENT_SUFFIXES)]


@behaviour("LOG-093")
def test_the_parts_have_indexes_of_their_own(tmp_path: Path) -> None:
    split = Split(tmp_path, raw_segment(tmp_path, 0, *singles(OFFSETS)))
    size = len(singles([0])[0])
    first, second, _ = split.segments
    assert list(first.offset_index.reader()) == [(1, size), (5, 2 * size), (FAR - 1, 3 * size)]
    assert list(second.offset_index.reader()) == [(FAR + 1, len(singles([FAR])[0]))]
    assert [part.time_index.entries for part in split.segments] == [1, 1, 1]


@behaviour("LOG-094")
@pytest.mark.parametrize(
    ("base", "batches", "expected"),
    [
        (0, singles([FAR, FAR + 4]), [[FAR, FAR + 4]]),
        (5, singles([FAR + 5]), [[FAR + 5]]),
        (0, [batch(MAX_INT32, b"one", b"two", timestamp_ms=1)], [[MAX_INT32, FAR]]),
    ],
)
def test_where_nothing_fits_one_segment_begins_with_the_first_batch(
    tmp_path: Path, base: int, batches: list[bytearray], expected: list[list[int]]
) -> None:
    segment = raw_segment(tmp_path, base, *batches)
    split = Split(tmp_path, segment)
    assert split.bases == [expected[0][0]]
    assert split.offsets == expected
    assert split.gone == [segment]


@behaviour("LDR-027")
def test_a_segment_whose_offsets_fit_is_not_cut(tmp_path: Path) -> None:
    segment = raw_segment(tmp_path, 0, *singles([0, MAX_INT32]))
    with pytest.raises(InvalidRequestError, match="fit"):
        Split(tmp_path, segment)
    assert [path.name for path in tmp_path.iterdir()] == [file_name(0, LOG_SUFFIX)]


def test_offsets_that_leave_the_range_and_come_back_are_damage(tmp_path: Path) -> None:
    segment = raw_segment(tmp_path, 0, *singles([0, 1 << 56, 2]))
    with pytest.raises(CorruptRecordError, match="offset 72057594037927936 before offset 2"):
        Split(tmp_path, segment)
    assert [path.name for path in tmp_path.iterdir()] == [file_name(0, LOG_SUFFIX)]


def test_a_segment_that_ends_with_half_a_batch_is_left_as_it_is(tmp_path: Path) -> None:
    segment = raw_segment(tmp_path, 0, *singles(OFFSETS), batch(5 * FAR, timestamp_ms=1)[:30])
    with pytest.raises(InvalidRequestError, match="no batch"):
        Split(tmp_path, segment)
    assert [path.name for path in tmp_path.iterdir()] == [file_name(0, LOG_SUFFIX)]


# -- on opening ------------------------------------------------------------------------------------------------------


def overflowed(partition: Partition, *, with_indexes: bool = True) -> dict[str, bytes]:
    """The files of a log whose first segment must be cut."""
    partition.fs.make_directory(partition.directory)
    partition.write(file_name(0, LOG_SUFFIX), b"".join(singles(OFFSETS)))
    if with_indexes:
        for suffix in (".index", ".timeindex"):
            partition.write(file_name(0, suffix), b"")
    partition.write(file_name(6 * FAR, LOG_SUFFIX), b"".join(singles([6 * FAR])))
    return partition.contents


def a_partition(root: Path) -> Partition:
    return Partition(root, segment_index_bytes=400, index_interval_bytes=10)


def assert_whole(log: UnifiedLog) -> None:
    assert bases(log) == [*PARTS, 6 * FAR]
    assert offsets_of(log) == [*OFFSETS, 6 * FAR]
    for offset in OFFSETS:
        first = log.read(offset, 1).first_batch
        assert first is not None
        assert first.base_offset == offset


@behaviour("LDR-027", "LOG-093")
@pytest.mark.parametrize("with_indexes", [True, False])
def test_a_segment_that_overflows_is_cut_when_the_log_is_recovered(tmp_path: Path, with_indexes: bool) -> None:
    partition = a_partition(tmp_path)
    overflowed(partition, with_indexes=with_indexes)
    log = partition.open()
    assert_whole(log)
    log.close()
    assert_whole(partition.open(clean=True))


@pytest.fixture
def split_files(tmp_path: Path) -> dict[str, bytes]:
    """The files of the three parts, under their final names."""
    partition = a_partition(tmp_path / "model")
    overflowed(partition)
    log = partition.open()
    log.close()
    names = [file_name(base, suffix) for base in PARTS for suffix in (".log", ".index", ".timeindex")]
    return {name: partition.read(name) for name in names}


def put(partition: Partition, files: dict[str, bytes], suffix: str, *base_offsets: int) -> None:
    """Lay down the files of some parts, with a suffix."""
    for name, data in files.items():
        if int(name[:20]) in base_offsets:
            partition.write(name + suffix, data)


def assert_settled(partition: Partition) -> None:
    """The log opens as a whole, with nothing left to do."""
    log = partition.open()
    assert_whole(log)
    partition.clock.advance(partition.config.file_delete_delay_ms)
    log.tick()
    assert [name for name in partition.files() if name.endswith((".cleaned", ".swap", ".deleted"))] == []
    partition.crash(log)
    assert_whole(partition.open())


@behaviour("LDR-028")
@pytest.mark.parametrize("written", [PARTS[:1], PARTS[:2], PARTS])
def test_a_crash_before_the_first_rename_begins_again(
    tmp_path: Path, split_files: dict[str, bytes], written: list[int]
) -> None:
    partition = a_partition(tmp_path)
    overflowed(partition)
    put(partition, split_files, ".cleaned", *written)
    assert_settled(partition)


@behaviour("LDR-029")
@pytest.mark.parametrize("renamed", [1, 2])
def test_a_crash_among_the_renames_begins_again(tmp_path: Path, split_files: dict[str, bytes], renamed: int) -> None:
    partition = a_partition(tmp_path)
    overflowed(partition)
    put(partition, split_files, ".cleaned", *PARTS[:-renamed])
    put(partition, split_files, ".swap", *PARTS[-renamed:])
    assert_settled(partition)


@behaviour("LDR-030")
def test_a_crash_after_the_renames_goes_on_and_the_old_segment_goes(
    tmp_path: Path, split_files: dict[str, bytes]
) -> None:
    partition = a_partition(tmp_path)
    overflowed(partition)
    put(partition, split_files, ".swap", *PARTS)
    assert_settled(partition)


@behaviour("LDR-031")
def test_a_crash_after_the_old_segment_was_set_aside_goes_on(tmp_path: Path, split_files: dict[str, bytes]) -> None:
    partition = a_partition(tmp_path)
    overflowed(partition)
    partition.remove(file_name(0, LOG_SUFFIX))
    partition.remove(file_name(0, ".index"))
    put(partition, split_files, ".swap", *PARTS)
    assert_settled(partition)


@behaviour("LDR-032")
@pytest.mark.parametrize("renamed", [1, 2])
def test_a_crash_among_the_last_renames_goes_on(tmp_path: Path, split_files: dict[str, bytes], renamed: int) -> None:
    partition = a_partition(tmp_path)
    overflowed(partition)
    partition.remove(file_name(0, LOG_SUFFIX))
    put(partition, split_files, "", *PARTS[:renamed])
    put(partition, split_files, ".swap", *PARTS[renamed:])
    assert_settled(partition)


def on_simulated_disk(seed: int, *, unordered: bool = False) -> tuple[SimulatedFileSystem, Partition]:
    disk = SimulatedFileSystem(ManualClock(1_000), seed=seed, unordered_directories=unordered)
    disk.make_directory("/data")
    partition = Partition("/data", fs=disk, segment_index_bytes=400, index_interval_bytes=10)
    overflowed(partition)
    disk.sync_all()
    return disk, partition


@behaviour("LDR-028", "LDR-029", "LDR-030", "LDR-031", "LDR-032")
@pytest.mark.parametrize("unordered", [False, True])
def test_power_can_be_lost_at_any_moment_of_the_cutting(unordered: bool) -> None:
    disk, partition = on_simulated_disk(0)
    before = disk.calls
    partition.open()
    calls = disk.calls - before
    assert calls > 50
    for call in range(1, calls + 1):
        disk, partition = on_simulated_disk(call, unordered=unordered)
        disk.cut_at(disk.calls + call)
        with pytest.raises(PowerLost):
            partition.open()
        partition.fs = disk.after_crash(random.Random(call))
        partition.schedule = Schedule(partition.clock)
        assert_whole(partition.open())


@behaviour("LDR-027")
def test_a_full_disk_while_cutting_leaves_the_old_segment(tmp_path: Path) -> None:
    disk, partition = on_simulated_disk(0)
    log = file_name(0, LOG_SUFFIX)
    disk.fail(operation="write", path=f"/data/orders-0/{file_name(FAR, LOG_SUFFIX)}.cleaned")
    with pytest.raises(StorageError):
        partition.open()
    assert partition.read(log) == b"".join(singles(OFFSETS))
    disk.heal()
    partition.schedule = Schedule(partition.clock)
    assert_whole(partition.open())
