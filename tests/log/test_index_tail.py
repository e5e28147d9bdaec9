"""Index entries that are not in the file yet: who finds them, who writes them, and what happens beside the owner."""

import os
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.log.logs import NOW, a_log, batch, lead
from tidelog.errors import StorageError
from tidelog.log.files import Creation, WriteFile
from tidelog.log.index_file import TAIL_ROWS, IndexFile
from tidelog.log.local_files import LocalFile, LocalFileSystem
from tidelog.log.offset_index import OffsetEntries, OffsetIndex, OffsetPosition
from tidelog.log.time_index import TimeEntries, TimeIndex, TimestampOffset
from tidelog.records.varint import Buffer
from tidelog.testing.disk import SimulatedFileSystem

FS = LocalFileSystem()
ROOM = 4_000 * 8


class CountedFile(LocalFile):
    """A file that notes its reads and writes, and calls somebody before each write."""

    __slots__ = ("system",)
    system: "CountedFileSystem"

    def read(self, position: int, size: int) -> bytes:
        self.system.reads.append((position, size))
        return super().read(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        self.system.writes.append((position, len(data)))
        self.system.before_write()
        super().write_at(position, data)


class CountedFileSystem(LocalFileSystem):
    """The local disk, watched."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.before_write: Callable[[], object] = lambda: None

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        file = CountedFile(path, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0)))
        file.system = self
        return file


@pytest.fixture
def disk() -> CountedFileSystem:
    return CountedFileSystem()


@pytest.fixture
def index(tmp_path: Path, disk: CountedFileSystem) -> OffsetIndex:
    return OffsetIndex(disk, str(tmp_path / f"{0:020}.index"), 0, ROOM)


def fill(index: OffsetIndex, count: int) -> list[OffsetPosition]:
    entries = [OffsetPosition(number + 1, 10 * number) for number in range(index.entries, index.entries + count)]
    for entry in entries:
        index.append(*entry)
    return entries


def in_file(index: IndexFile) -> list[OffsetPosition] | list[TimestampOffset]:
    """What another process finds."""
    kind = OffsetEntries if isinstance(index, OffsetIndex) else TimeEntries
    return list(kind(FS.open(index.path), index.base_offset))


# -- what is written when ----------------------------------------------------------------------------------------------


def test_entries_are_written_several_at_a_time_and_each_once(index: OffsetIndex, disk: CountedFileSystem) -> None:
    entries = fill(index, 3 * TAIL_ROWS + 5)
    assert disk.writes == [(turn * TAIL_ROWS * 8, TAIL_ROWS * 8) for turn in range(3)]
    assert in_file(index) == entries[: 3 * TAIL_ROWS]
    assert list(index.reader()) == entries


def test_time_entries_are_written_several_at_a_time(tmp_path: Path, disk: CountedFileSystem) -> None:
    index = TimeIndex(disk, str(tmp_path / f"{0:020}.timeindex"), 0, ROOM)
    entries = [TimestampOffset(100 + number, number) for number in range(TAIL_ROWS + 3)]
    for entry in entries:
        index.maybe_append(*entry)
    assert disk.writes == [(0, TAIL_ROWS * 12)]
    assert list(index.reader()) == entries
    assert [index.lookup(entry.timestamp_ms) for entry in entries] == entries
    index.close()
    assert in_file(index) == entries


@pytest.mark.parametrize("count", [1, TAIL_ROWS - 1, TAIL_ROWS, TAIL_ROWS + 1, 1_030, 1_040, 1_060])
def test_entries_are_found_in_the_file_and_in_memory(index: OffsetIndex, count: int) -> None:
    entries = fill(index, count)
    for slot, entry in enumerate(entries):
        assert index.lookup(entry.offset) == index.entry(slot) == entry
        assert index.upper_bound(entry.position - 1) == entry
    assert (index.lookup(0), index.upper_bound(entries[-1].position + 1)) == ((0, 0), None)


def test_what_is_in_memory_is_found_without_a_read(index: OffsetIndex, disk: CountedFileSystem) -> None:
    entries = fill(index, TAIL_ROWS - 1)
    assert [index.lookup(entry.offset) for entry in entries] == entries
    assert disk.reads == []
    entries += fill(index, TAIL_ROWS)
    assert index.entry(index.entries - 1) == index.reader().last == entries[-1]
    assert disk.reads == []


WRITERS: dict[str, Callable[[OffsetIndex], object]] = {
    "flush": IndexFile.flush,
    "trim": IndexFile.trim,
    "close": IndexFile.close,
    "resize": lambda index: index.resize(ROOM * 2),
    "resize to what it is": lambda index: index.resize(ROOM),
}


def test_entries_that_come_together_are_written_as_if_they_came_one_by_one(
    index: OffsetIndex, disk: CountedFileSystem
) -> None:
    entries = fill(index, 3)
    for count in (5, TAIL_ROWS - 8, 2 * TAIL_ROWS + 3, 1):
        more = [OffsetPosition(index.last_offset + 1 + number, number) for number in range(count)]
        index.extend(memoryview(b"".join(struct.pack(">ii", *entry) for entry in more)))
        entries += more
        assert (list(index.reader()), index.last_offset) == (entries, entries[-1].offset)
        assert in_file(index) == entries[: len(entries) // TAIL_ROWS * TAIL_ROWS]
    assert disk.writes == [(0, TAIL_ROWS * 8), (TAIL_ROWS * 8, 2 * TAIL_ROWS * 8)]


@pytest.mark.parametrize("is_released", [False, True], ids=["open", "released"])
@pytest.mark.parametrize("writer", WRITERS)
def test_whoever_needs_the_whole_file_has_it(index: OffsetIndex, writer: str, is_released: bool) -> None:
    entries = fill(index, TAIL_ROWS + 3)
    if is_released:
        index.release()
    assert len(in_file(index)) == TAIL_ROWS
    WRITERS[writer](index)
    assert in_file(index)[: len(entries)] == entries


def test_a_full_index_is_whole_when_it_is_trimmed(tmp_path: Path) -> None:
    index = OffsetIndex(FS, str(tmp_path / f"{0:020}.index"), 0, 5 * 8)
    entries = fill(index, 5)
    index.trim()
    assert in_file(index) == entries


def test_a_released_index_keeps_what_is_not_written(index: OffsetIndex, disk: CountedFileSystem) -> None:
    entries = fill(index, TAIL_ROWS + 3)
    index.release()
    assert len(disk.writes) == 1
    assert list(index.reader()) == entries
    index.release()
    entries += fill(index, TAIL_ROWS)
    index.release()
    index.rename_to(f"{index.path}.moved")
    index.close()
    assert in_file(index) == entries


@pytest.mark.parametrize("kept", [0, 5, TAIL_ROWS - 1, TAIL_ROWS, TAIL_ROWS + 1, TAIL_ROWS + 3])
def test_what_was_truncated_is_neither_found_nor_written(index: OffsetIndex, kept: int) -> None:
    entries = fill(index, TAIL_ROWS + 5)[:kept]
    index.truncate_to(kept + 1)
    assert (list(index.reader()), index.entries, index.last_offset) == (entries, kept, kept)
    index.append(3_000, 77)
    index.trim()
    assert in_file(index) == [*entries, (3_000, 77)]


@pytest.mark.parametrize("seed", range(30))
def test_an_index_is_the_list_of_its_entries_whatever_is_done_to_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    index = OffsetIndex(FS, str(tmp_path / f"{0:020}.index"), 0, ROOM)
    entries: list[OffsetPosition] = []
    for _ in range(200):
        last = entries[-1].offset if entries else 0
        match rng.randrange(9):
            case 0:
                cut = rng.randrange(last + 2)
                index.truncate_to(cut)
                entries = [entry for entry in entries if entry.offset < cut]
            case 1:
                index.flush()
                assert in_file(index)[: len(entries)] == entries
            case 2:
                index.release()
            case 3:
                index.trim()
                assert in_file(index) == entries
                index.resize(ROOM)
            case 4:
                more = [OffsetPosition(last + 1 + number, rng.randrange(1_000)) for number in range(rng.randrange(4))]
                index.extend(memoryview(b"".join(struct.pack(">ii", *entry) for entry in more)))
                entries += more
            case _:
                for offset in range(last + 1, last + 1 + rng.randrange(2 * TAIL_ROWS)):
                    entries.append(OffsetPosition(offset, rng.randrange(1_000)))
                    index.append(*entries[-1])
        assert (list(index.reader()), index.entries) == (entries, len(entries))
        assert index.last_offset == (entries[-1].offset if entries else 0)
    index.close()
    assert in_file(index) == entries


# -- beside the owner --------------------------------------------------------------------------------------------------


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_entries_that_come_while_another_thread_flushes_are_kept(index: OffsetIndex, disk: CountedFileSystem) -> None:
    entries = fill(index, 3)

    def append_meanwhile() -> None:
        disk.before_write = lambda: None
        entries.extend(fill(index, TAIL_ROWS + 4))  # once more than a tail: it is written under the flush

    disk.before_write = append_meanwhile
    index.flush()
    assert list(index.reader()) == entries
    index.trim()
    assert in_file(index) == entries


def test_a_flush_does_not_bring_back_what_is_truncated(index: OffsetIndex, disk: CountedFileSystem) -> None:
    kept = fill(index, 5)[:2]
    others = [OffsetPosition(100 + number, 7) for number in range(TAIL_ROWS)]

    def truncate() -> None:
        index.truncate_to(3)
        for entry in others:  # enough of them to be written
            index.append(*entry)

    owner = threading.Thread(target=truncate)

    def begin_truncating() -> None:
        disk.before_write = lambda: None
        owner.start()
        owner.join(0.1)  # it has to wait for the flush; if it did not, it would be through by then

    disk.before_write = begin_truncating
    index.flush()
    owner.join()
    index.trim()
    assert list(index.reader()) == in_file(index) == [*kept, *others]


@pytest.mark.usefixtures("hasty_threads")
def test_readers_see_every_entry_that_was_there_when_they_looked(index: OffsetIndex) -> None:
    faults: list[object] = []
    is_done = threading.Event()

    def look() -> None:
        while not is_done.is_set():
            before = index.entries
            reader = index.reader()
            seen = list(reader)
            if len(seen) < before or seen != [(number + 1, 10 * number) for number in range(len(seen))]:
                faults.append((before, seen[-2:]))
            if before and reader.lookup(before) != (before, 10 * (before - 1)):
                faults.append(before)

    def disturb() -> None:
        while not is_done.is_set():
            index.release()
            index.flush()

    threads = [threading.Thread(target=work) for work in (look, look, disturb)]
    for thread in threads:
        thread.start()
    try:
        entries = fill(index, 3_000)
    finally:
        is_done.set()
        for thread in threads:
            thread.join()
    assert faults == []
    index.close()
    assert in_file(index) == entries


@pytest.mark.usefixtures("hasty_threads")
def test_flushes_of_other_threads_leave_the_file_as_the_owner_wants_it(tmp_path: Path) -> None:
    rng = random.Random(7)
    index = OffsetIndex(FS, str(tmp_path / f"{0:020}.index"), 0, ROOM)
    is_done = threading.Event()
    faults: list[object] = []

    def flush() -> None:
        try:
            while not is_done.is_set():
                index.flush()
        except StorageError as error:
            faults.append(error)

    threads = [threading.Thread(target=flush) for _ in range(3)]
    for thread in threads:
        thread.start()
    entries: list[OffsetPosition] = []
    for turn in range(300):
        cut = rng.randrange(len(entries) + 2)
        index.truncate_to(cut + 1)
        del entries[cut:]
        for _ in range(rng.randrange(2 * TAIL_ROWS)):
            entries.append(OffsetPosition(len(entries) + 1, turn))
            index.append(*entries[-1])
        if rng.random() < 0.3:
            index.trim()
            if in_file(index) != entries:
                faults.append(turn)
            index.resize(ROOM)
    is_done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    index.close()
    assert in_file(index) == entries


# -- in a log ----------------------------------------------------------------------------------------------------------


def test_below_the_recovery_point_no_entry_is_missing_after_a_crash() -> None:
    for seed in range(20):
        disk = SimulatedFileSystem()
        log = a_log("/data", fs=disk, segment_bytes=4_000, index_interval_bytes=0)
        for number in range(150):
            lead(log, batch(1, timestamp_ms=NOW + number))
        log.tick()  # the flushes that the rolls have asked for
        assert log.recovery_point == log.active_segment.base_offset
        flushed = {s.base_offset: list(s.offset_index.reader()) for s in log.segments[:-1]}
        assert all(len(entries) > TAIL_ROWS for entries in flushed.values())
        point = log.recovery_point
        after = disk.after_crash(random.Random(seed))
        found = a_log("/data", fs=after, segment_bytes=4_000, index_interval_bytes=0, recovery_point=point)
        assert {s.base_offset: list(s.offset_index.reader()) for s in found.segments[: len(flushed)]} == flushed


def test_a_flushed_log_has_whole_indexes_and_a_closed_one_too(tmp_path: Path) -> None:
    log = a_log(tmp_path, index_interval_bytes=0)
    for number in range(TAIL_ROWS + 5):
        lead(log, batch(1, timestamp_ms=NOW + number))
    active = log.active_segment
    expected = list(active.offset_index.reader()), list(active.time_index.reader())
    assert (len(in_file(active.offset_index)), len(expected[0])) == (TAIL_ROWS, TAIL_ROWS + 4)
    log.flush()
    assert (in_file(active.offset_index), in_file(active.time_index)) == expected
    active.release_indexes()  # as when too many files are open
    lead(log, batch(1, timestamp_ms=NOW + 1_000))
    active.release_indexes()
    log.close()
    offsets, times = in_file(active.offset_index), in_file(active.time_index)
    assert (len(offsets), times[-1]) == (len(expected[0]) + 1, (NOW + 1_000, TAIL_ROWS + 5))
    assert all(entry.offset < following.offset for entry, following in pairwise(offsets))


def test_an_index_that_was_replaced_writes_nothing_into_its_successor(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000000.index")
    old = OffsetIndex(LocalFileSystem(), path, 0, 800)
    old.append(5, 100)
    old.flush()
    old.append(9, 200)  # not in the file yet
    new = OffsetIndex(LocalFileSystem(), path + ".rebuilt", 0, 800)
    new.flush()
    new.rename_to(path)
    old.retire()
    old.flush()
    assert Path(path).read_bytes() == bytes(800)


def test_a_time_in_the_file_can_be_looked_up_by_an_offset_in_the_file(tmp_path: Path) -> None:
    """Other processes read both files of an open log: Kafka's tool complains of a time whose offset is not there."""
    log = a_log(tmp_path, index_interval_bytes=0)
    times = log.active_segment.time_index
    for number in range(100):
        lead(log, batch(1, timestamp_ms=NOW + number // 3))  # two of three batches have no new time
        offset_rows = OffsetEntries(LocalFileSystem().open(log.active_segment.offset_index.path), 0)
        time_rows = TimeEntries(LocalFileSystem().open(times.path), 0)
        assert not time_rows.entries or time_rows.last.offset <= offset_rows.last.offset
    assert time_rows.entries


def test_a_heartbeat_has_all_entries_in_the_files(tmp_path: Path) -> None:
    log = a_log(tmp_path, index_interval_bytes=0)
    for number in range(5):
        lead(log, batch(1, timestamp_ms=NOW + number))
    active = log.active_segment
    assert (in_file(active.offset_index), in_file(active.time_index)) == ([], [])
    log.look_around()
    assert (len(in_file(active.offset_index)), len(in_file(active.time_index))) == (4, 4)
