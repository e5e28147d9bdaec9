"""The offset index: what Kafka's own tests say of it, its file, its readers, and the files that Kafka wrote."""

import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import (
    CorruptIndexError,
    InvalidRequestError,
    LogClosedError,
    OffsetOverflowError,
    StorageError,
)
from tidelog.log.files import WriteFile
from tidelog.log.index_file import TAIL_ROWS
from tidelog.log.local_files import LocalFile, LocalFileSystem, LocalReadFile
from tidelog.log.offset_index import OffsetEntries, OffsetIndex, OffsetPosition
from tidelog.records.varint import Buffer

FS = LocalFileSystem()
BASE = 45
ROOM = 30 * 8


def an_index(directory: Path, *entries: tuple[int, int], base: int = BASE, room: int = ROOM) -> OffsetIndex:
    index = OffsetIndex(FS, str(directory / f"{base:020}.index"), base, room)
    for offset, position in entries:
        index.append(offset, position)
    return index


def rows(*numbers: int) -> bytes:
    """Relative offset, position, relative offset, position, …"""
    return struct.pack(f">{len(numbers)}i", *numbers)


def entries_of(path: Path, data: bytes, base: int = 0, count: int | None = None) -> OffsetEntries:
    path.write_bytes(data)
    return OffsetEntries(FS.open(str(path)), base, count)


# -- lookups ---------------------------------------------------------------------------------------------------------


@behaviour("IDX-001", "IDX-009")
def test_an_empty_index_knows_the_start_of_the_segment_and_no_upper_bound(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    assert index.lookup(92) == OffsetPosition(BASE, 0)
    assert index.upper_bound(5) is None
    assert (index.entries, index.last_offset, index.reader().last) == (0, BASE, (BASE, 0))


@behaviour("IDX-002", "IDX-003")
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1_024, 1_025, 1_026, 1_090, 5_000])
def test_a_lookup_finds_the_greatest_entry_not_above_the_target(tmp_path: Path, count: int) -> None:
    entries = [OffsetPosition(BASE + 1 + 3 * n, 100 * n) for n in range(count)]
    index = an_index(tmp_path, *entries, room=count * 8)
    assert index.lookup(BASE) == OffsetPosition(BASE, 0)
    assert index.lookup(-1) == OffsetPosition(BASE, 0)
    for entry in entries:
        assert index.lookup(entry.offset) == entry
        assert index.lookup(entry.offset + 1) == entry
        assert index.lookup(entry.offset + 2) == entry
    assert index.lookup(2**62) == entries[-1]


@behaviour("IDX-008")
def test_an_upper_bound_lies_at_or_behind_the_end_of_what_was_fetched(tmp_path: Path) -> None:
    first, second, third, fourth = entries = [
        OffsetPosition(BASE, 0),
        OffsetPosition(BASE + 1, 10),
        OffsetPosition(BASE + 2, 23),
        OffsetPosition(BASE + 3, 37),
    ]
    index = an_index(tmp_path, *entries)
    assert [index.upper_bound(first.position + size) for size in (5, 10)] == [second, second]
    assert [index.upper_bound(first.position + size) for size in (22, 23)] == [third, third]
    assert index.upper_bound(first.position + 200) is None
    assert index.upper_bound(second.position + 14) == fourth
    assert [index.upper_bound(fourth.position + size) for size in (1, 100)] == [None, None]


def test_an_upper_bound_that_meets_the_first_entry_is_the_second_as_in_kafka(tmp_path: Path) -> None:
    index = an_index(tmp_path, (BASE + 4, 100), (BASE + 9, 200))
    assert index.upper_bound(99) == OffsetPosition(BASE + 4, 100)
    assert index.upper_bound(100) == OffsetPosition(BASE + 9, 200)
    assert index.upper_bound(200) == OffsetPosition(BASE + 9, 200)
    assert an_index(tmp_path, (5, 100), base=0).upper_bound(100) is None


@pytest.mark.parametrize("count", [1, 2, 1_025, 1_026, 3_000])
def test_upper_bounds_of_long_indexes_are_the_first_entry_at_or_behind(tmp_path: Path, count: int) -> None:
    entries = [OffsetPosition(BASE + 1 + n, 100 + 10 * n) for n in range(count)]
    index = an_index(tmp_path, *entries, room=count * 8)
    for number, entry in enumerate(entries):
        following = entries[number + 1] if number + 1 < count else None
        assert index.upper_bound(entry.position - 1) == entry
        assert index.upper_bound(entry.position) == (entry if number else following)
        assert index.upper_bound(entry.position + 1) == following


def kafkas_search(keys: list[int], target: int) -> int:
    """AbstractIndex's search, told without its reads: -1 or the slot."""
    warm = max(0, len(keys) - 1 - 1_024)
    if not keys:
        return -1
    if keys[warm] < target:
        low, high = warm, len(keys) - 1
    elif keys[0] > target:
        return -1
    else:
        low, high = 0, warm
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] == target:
            return middle
        low, high = (low, middle - 1) if keys[middle] > target else (middle, high)
    return low


@given(
    st.sampled_from([1, 5, 64, 65, 1_025, 1_100, 1_300, 2_500]),
    st.randoms(use_true_random=False),
    st.integers(-50, 3_000),
)
def test_rows_in_no_order_give_the_answer_that_kafka_gives(
    tmp_path_factory: pytest.TempPathFactory, count: int, rng: random.Random, target: int
) -> None:
    keys = [rng.randrange(-10, 3_000) for _ in range(count)]
    path = tmp_path_factory.getbasetemp() / "unsorted.index"
    found = entries_of(path, rows(*(n for slot, key in enumerate(keys) for n in (key, slot))), count=count)
    slot = kafkas_search(keys, target)
    assert found.lookup(target) == ((keys[slot], slot) if slot >= 0 else (0, 0))


class CountedFile(LocalReadFile):
    """A file that notes the size of each read."""

    __slots__ = ("reads",)
    reads: list[int]

    def read(self, position: int, size: int) -> bytes:
        self.reads.append(size)
        return super().read(position, size)


def test_a_lookup_near_the_end_is_one_read_and_any_other_a_few_small_ones(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(rows(*(n for slot in range(100_000) for n in (slot + 1, slot))))
    file = CountedFile(str(path), os.open(path, os.O_RDONLY))
    entries = OffsetEntries(file, 0, 100_000)
    for target, most in ((100_000, 1), (98_977, 1), (98_976, 14), (50_000, 14), (123, 14), (0, 2)):
        file.reads = []
        entries.lookup(target)
        assert len(file.reads) <= most
        assert file.reads[0] == 8_200
        assert all(size <= 512 for size in file.reads[1:])


@behaviour("IDX-004")
def test_an_entry_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    with pytest.raises(InvalidRequestError, match="entry 0 of an index of 0"):
        index.entry(0)
    index.append(51, 0)
    assert index.entry(0) == OffsetPosition(51, 0)
    for number in (-1, 1):
        with pytest.raises(InvalidRequestError, match=f"entry {number} of an index of 1"):
            index.entry(number)


# -- appending -------------------------------------------------------------------------------------------------------


@behaviour("IDX-005")
def test_an_index_takes_as_many_entries_as_it_has_room_for(tmp_path: Path) -> None:
    index = an_index(tmp_path, room=ROOM + 7)
    assert index.max_entries == 30
    for n in range(30):
        assert not index.is_full
        index.append(BASE + n, 10 * n)
    assert index.is_full
    with pytest.raises(InvalidRequestError, match="full, with 30 entries"):
        index.append(BASE + 30, 300)
    assert (index.entries, index.last_offset) == (30, BASE + 29)


@behaviour("IDX-006")
def test_offsets_must_increase(tmp_path: Path) -> None:
    index = an_index(tmp_path, (51, 0))
    for offset in (50, 51):
        with pytest.raises(CorruptIndexError, match=f"offset {offset} in slot 1, behind offset 51"):
            index.append(offset, 1)
    assert list(index.reader()) == [(51, 0)]


@behaviour("IDX-007")
def test_the_first_entry_may_be_the_base_offset(tmp_path: Path) -> None:
    index = an_index(tmp_path, (BASE, 0))
    index.sanity_check()
    assert index.lookup(BASE) == OffsetPosition(BASE, 0)
    assert index.last_offset == BASE
    with pytest.raises(CorruptIndexError, match="behind offset 45"):
        index.append(BASE, 1)


def test_what_does_not_fit_31_bits_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    for offset in (BASE - 1, BASE + 2**31):
        with pytest.raises(OffsetOverflowError, match=f"offset {offset}"):
            index.append(offset, 0)
    for position in (-1, 2**31):
        with pytest.raises(InvalidRequestError, match=f"position {position}"):
            index.append(BASE, position)
    assert index.entries == 0
    index.append(BASE + 2**31 - 1, 2**31 - 1)
    assert index.entry(0) == OffsetPosition(BASE + 2**31 - 1, 2**31 - 1)


class WatchedFile(LocalFile):
    """A file that tells before and after each write."""

    __slots__ = ("watcher",)
    watcher: Callable[[str], None]

    def write_at(self, position: int, data: Buffer) -> None:
        self.watcher("before")
        super().write_at(position, data)
        self.watcher("after")


class WatchedFileSystem(LocalFileSystem):
    """The local disk with a watcher at every write."""

    __slots__ = ("watcher",)

    def __init__(self, watcher: Callable[[str], None]) -> None:
        self.watcher = watcher

    def open_write(self, path: str) -> WriteFile:
        file = WatchedFile(path, os.open(path, os.O_RDWR | os.O_CREAT))
        file.watcher = self.watcher
        return file


def test_a_reader_never_sees_an_entry_before_it_is_written(tmp_path: Path) -> None:
    seen: list[tuple[str, int, OffsetPosition, OffsetPosition | None]] = []

    def look(moment: str) -> None:
        seen.append((moment, len(index.reader()), index.lookup(1_000), index.upper_bound(10)))

    index = OffsetIndex(WatchedFileSystem(look), str(tmp_path / "0.index"), 0, ROOM)
    for number in range(TAIL_ROWS - 1):
        index.append(7 + number, 10 * number)
    assert seen == []
    last = OffsetPosition(5 + TAIL_ROWS, 10 * (TAIL_ROWS - 2))
    assert index.lookup(1_000) == last
    index.append(100, 200)
    assert seen == [("before", TAIL_ROWS - 1, last, (8, 10)), ("after", TAIL_ROWS - 1, last, (8, 10))]
    assert (index.lookup(1_000), index.entries) == ((100, 200), TAIL_ROWS)


def test_a_write_that_fails_leaves_the_entries_as_they_were(tmp_path: Path) -> None:
    def refuse(moment: str) -> None:
        if is_full:
            raise StorageError("No space left on device")

    is_full = False
    index = OffsetIndex(WatchedFileSystem(refuse), str(tmp_path / "0.index"), 0, ROOM)
    entries = [OffsetPosition(7 + number, 10 * number) for number in range(TAIL_ROWS - 1)]
    for entry in entries:
        index.append(*entry)
    is_full = True
    for use in (lambda: index.append(90, 900), index.flush, index.trim):
        with pytest.raises(StorageError, match="No space"):
            use()
        assert (list(index.reader()), index.last_offset, index.lookup(90)) == (entries, entries[-1][0], entries[-1])
    is_full = False
    index.append(80, 900)
    assert list(index.reader()) == [*entries, (80, 900)]
    assert list(OffsetEntries(FS.open(index.path), 0)) == [*entries, (80, 900)]


# -- the file --------------------------------------------------------------------------------------------------------


@behaviour("IDX-013")
def test_an_entry_takes_eight_bytes(tmp_path: Path) -> None:
    index = an_index(tmp_path, (BASE + 6, 300))
    assert index.size_in_bytes == 8
    index.flush()
    assert Path(index.path).read_bytes() == rows(6, 300) + bytes(ROOM - 8)
    index.close()
    assert Path(index.path).read_bytes() == rows(6, 300)


def test_the_file_appears_with_its_full_size_when_it_is_first_used(tmp_path: Path) -> None:
    index = an_index(tmp_path, room=1_000_003)
    assert not index.exists()
    assert not index.is_loaded
    assert index.entries == 0
    assert index.is_loaded
    assert Path(index.path).stat().st_size == 1_000_000
    assert index.max_entries == 125_000


def test_a_new_index_needs_room_for_an_entry(tmp_path: Path) -> None:
    index = an_index(tmp_path, room=7)
    with pytest.raises(InvalidRequestError, match="7 bytes, an entry takes 8"):
        index.append(BASE, 0)
    assert not index.exists()


@behaviour("IDX-010")
def test_a_trimmed_index_that_is_opened_again_is_full(tmp_path: Path) -> None:
    first = an_index(tmp_path, (51, 10), (52, 20))
    first.close()
    index = OffsetIndex(FS, first.path, BASE)
    assert (index.entries, index.max_entries, index.last_offset) == (2, 2, 52)
    assert index.lookup(51) == OffsetPosition(51, 10)
    assert index.is_full
    with pytest.raises(InvalidRequestError, match="full"):
        index.append(53, 30)
    assert index.resize(ROOM)
    index.append(53, 30)
    assert list(index.reader()) == [(51, 10), (52, 20), (53, 30)]


@behaviour("IDX-011")
def test_truncating_drops_the_entries_from_an_offset_on(tmp_path: Path) -> None:
    index = an_index(tmp_path, *((n, n) for n in range(1, 10)), base=0)
    for offset in (12, 10):
        index.truncate_to(offset)
        assert index.lookup(10) == OffsetPosition(9, 9)
    index.append(10, 10)
    assert index.last_offset == 10
    index.truncate_to(10)
    assert (index.entries, index.lookup(10), index.last_offset) == (9, (9, 9), 9)
    index.append(10, 10)
    index.truncate_to(9)
    assert (index.entries, index.last_offset) == (8, 8)
    index.append(9, 9)
    index.truncate_to(5)
    assert (index.entries, index.lookup(10), index.last_offset) == (4, (4, 4), 4)
    index.append(5, 50)
    assert index.lookup(10) == OffsetPosition(5, 50)
    index.truncate_to(1)
    assert (index.entries, index.last_offset) == (0, 0)


def test_truncating_between_two_entries_keeps_the_lower_one(tmp_path: Path) -> None:
    index = an_index(tmp_path, (50, 1), (60, 2))
    index.truncate_to(55)
    assert list(index.reader()) == [(50, 1)]
    index.truncate_to(BASE)
    assert list(index.reader()) == []


@behaviour("IDX-012")
def test_truncating_all_leaves_an_index_that_can_be_used_again(tmp_path: Path) -> None:
    index = an_index(tmp_path, *((BASE + n, n) for n in range(30)))
    index.truncate()
    assert (index.entries, index.last_offset, index.lookup(BASE + 5)) == (0, BASE, (BASE, 0))
    for n in range(30):
        index.append(BASE + n, 2 * n)
    assert index.lookup(BASE + 5) == OffsetPosition(BASE + 5, 10)


def test_reset_makes_a_trimmed_index_like_new(tmp_path: Path) -> None:
    an_index(tmp_path, (51, 10)).close()
    index = an_index(tmp_path)
    index.reset()
    assert (index.entries, index.max_entries) == (0, 30)


def test_entries_that_were_built_elsewhere_are_written_in_one_piece(tmp_path: Path) -> None:
    index = an_index(tmp_path, (BASE + 1, 10))
    two = memoryview(rows(2, 20, 3, 30))
    assert index.has_room(two)
    index.extend(two)
    assert (list(index.reader()), index.last_offset) == ([(46, 10), (47, 20), (48, 30)], 48)
    index.extend(memoryview(b""))
    index.append(BASE + 4, 40)
    assert index.entries == 4
    assert not index.has_room(memoryview(bytes(26 * 8)))


@behaviour("IDX-022")
def test_resizing_says_whether_it_changed_the_file_and_keeps_what_fits(tmp_path: Path) -> None:
    index = an_index(tmp_path, *((BASE + n, n) for n in range(20)))
    assert not index.resize(ROOM)
    assert not index.resize(ROOM + 7)
    assert index.resize(2 * ROOM)
    assert (index.max_entries, index.entries) == (60, 20)
    assert index.resize(ROOM // 2)
    assert (index.max_entries, index.entries, index.last_offset) == (15, 15, BASE + 14)
    assert index.resize(0)
    assert (index.max_entries, index.entries, index.last_offset) == (0, 0, BASE)
    assert Path(index.path).stat().st_size == 0
    with pytest.raises(InvalidRequestError, match="-1 bytes"):
        index.resize(-1)


def test_the_sanity_check_refuses_ragged_files_and_offsets_below_the_base(tmp_path: Path) -> None:
    path = tmp_path / "45.index"
    path.write_bytes(rows(1, 2) + b"\0\0\0")
    ragged = OffsetIndex(FS, str(path), BASE)
    assert ragged.entries == 1
    with pytest.raises(CorruptIndexError, match="11 bytes are not a multiple of 8"):
        ragged.sanity_check()
    path.write_bytes(rows(1, 2, -5, 3))
    with pytest.raises(CorruptIndexError, match="last offset 40 is below the base 45"):
        OffsetIndex(FS, str(path), BASE).sanity_check()
    path.write_bytes(b"")
    OffsetIndex(FS, str(path), BASE).sanity_check()


def test_an_index_is_renamed_whether_or_not_its_file_exists(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.rename_to(str(tmp_path / "a"))
    assert not index.exists()
    index.append(51, 1)
    index.rename_to(str(tmp_path / "b"))
    index.append(52, 2)
    index.close()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_bytes() == rows(6, 1, 7, 2)


def test_an_index_follows_its_directory(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    index = an_index(tmp_path / "t-0", (51, 1))
    (tmp_path / "t-0").rename(tmp_path / "t-0.x-delete")
    index.moved_to(str(tmp_path / "t-0.x-delete" / Path(index.path).name))
    assert index.exists()
    index.append(52, 2)
    assert index.delete()
    assert list((tmp_path / "t-0.x-delete").iterdir()) == []


def test_a_released_index_is_opened_again_with_the_entries_it_had(tmp_path: Path) -> None:
    index = an_index(tmp_path, (51, 1))
    index.release()
    assert not index.is_loaded
    assert Path(index.path).stat().st_size == ROOM
    index.append(52, 2)
    assert list(index.reader()) == [(51, 1), (52, 2)]
    index.trim()
    index.release()
    Path(index.path).write_bytes(rows(6, 1))
    with pytest.raises(CorruptIndexError, match="8 bytes, there were 2 entries"):
        index.lookup(51)
    Path(index.path).unlink()
    with pytest.raises(StorageError, match="gone"):
        index.lookup(51)
    assert not index.exists()


def test_an_index_that_was_never_used_is_left_as_it_is_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "45.index"
    path.write_bytes(rows(6, 1) + bytes(11))
    OffsetIndex(FS, str(path), BASE, ROOM).close()
    assert path.read_bytes() == rows(6, 1) + bytes(11)
    new = an_index(tmp_path)
    new.close()
    assert not new.exists()


@pytest.mark.parametrize("end", [OffsetIndex.close, OffsetIndex.delete], ids=["close", "delete"])
def test_a_closed_index_does_not_come_back(tmp_path: Path, end: Callable[[OffsetIndex], object]) -> None:
    index = an_index(tmp_path, (51, 1))
    reader = index.reader()
    end(index)
    existed = index.exists()
    for use in (lambda: index.lookup(51), lambda: index.append(52, 1), lambda: index.is_full, index.flush):
        with pytest.raises(LogClosedError, match="closed"):
            use()
    assert index.exists() is existed
    assert reader.lookup(60) == OffsetPosition(51, 1), "who held the file may finish"


def test_deleting_says_whether_there_was_a_file(tmp_path: Path) -> None:
    assert not an_index(tmp_path).delete()
    assert an_index(tmp_path, (51, 1)).delete()


def test_flushing_creates_the_file_as_kafka_does(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.flush()
    assert Path(index.path).stat().st_size == ROOM


# -- reading files of others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 127, 128])
def test_without_a_count_the_entries_end_where_the_zeros_begin(tmp_path: Path, count: int) -> None:
    data = rows(*(n for slot in range(count) for n in (slot + 1, 100 * slot)))
    entries = entries_of(tmp_path / "i", data.ljust(128 * 8, b"\0"), base=10)
    assert len(entries) == count
    assert [entry.offset for entry in entries] == [11 + slot for slot in range(count)]
    assert entries.last == ((10 + count, 100 * (count - 1)) if count else (10, 0))


def test_a_first_entry_of_zeros_counts_if_it_is_alone_or_not_the_last(tmp_path: Path) -> None:
    assert list(entries_of(tmp_path / "a", rows(0, 0))) == [(0, 0)]
    assert list(entries_of(tmp_path / "b", rows(0, 0, 0, 0))) == []
    assert list(entries_of(tmp_path / "c", rows(0, 0, 3, 100, 0, 0))) == [(0, 0), (3, 100)]
    assert list(entries_of(tmp_path / "d", b"")) == []


def test_without_a_count_a_lookup_distrusts_entries_that_do_not_increase(tmp_path: Path) -> None:
    stale = rows(1, 10, 2, 20, 30, 300, 4, 40, 5, 50)
    entries = entries_of(tmp_path / "i", stale)
    assert entries.lookup(1) == OffsetPosition(1, 10)
    with pytest.raises(CorruptIndexError, match="do not increase"):
        entries.lookup(30)
    assert OffsetEntries(FS.open(str(tmp_path / "i")), 0, 3).lookup(30) == OffsetPosition(30, 300)


def test_a_position_below_zero_is_corrupt_when_it_is_found(tmp_path: Path) -> None:
    entries = entries_of(tmp_path / "i", rows(5, -1))
    assert list(entries) == [(5, -1)]
    with pytest.raises(CorruptIndexError, match="slot 0 points to position -1"):
        entries.lookup(7)


def test_a_file_that_is_shorter_than_its_count_is_corrupt(tmp_path: Path) -> None:
    entries = entries_of(tmp_path / "i", rows(1, 10, 2, 20) + b"\0\0", count=3)
    for use in (lambda: entries.lookup(1), lambda: entries.entry(2), lambda: list(entries)):
        with pytest.raises(CorruptIndexError, match="were wanted"):
            use()


# -- what Kafka wrote ------------------------------------------------------------------------------------------------

LINE = re.compile(r"^offset: (-?\d+) position: (-?\d+)$", re.MULTILINE)

# Files of each case, so that none drops out unseen, and how many of them made the tool give up: it looks into the log.
FILES_OF_4_3 = {
    "kafka-4.3/1-codecs": (16, 0),
    "kafka-4.3/2-records": (12, 0),
    "kafka-4.3/3-rolls": (35, 0),
    "kafka-4.3/4-transactions": (30, 0),
    "kafka-4.3/5-compaction": (523, 0),
    "kafka-4.3/6-recovery": (711, 18),
    "kafka-4.3/7-lookups": (20, 0),
    "kafka-4.3/8-consumer-offsets": (4, 0),
    "kafka-4.3/9-metadata": (6, 0),
}


def kafkas_files(case: str) -> Iterator[tuple[Path, corpus.Dump]]:
    for partition in corpus.partitions(case):
        for path in sorted(partition.path.glob("*.index")):
            yield path, corpus.dump(partition, path.name)


@pytest.mark.parametrize("case", FILES_OF_4_3)
def test_entries_are_read_as_kafka_prints_them_and_written_as_kafka_wrote_them(case: str, tmp_path: Path) -> None:
    files, broken = 0, 0
    for path, dump in kafkas_files(case):
        base = int(path.stem)
        entries = list(OffsetEntries(FS.open(str(path)), base))
        printed = [(int(offset), int(position)) for offset, position in LINE.findall(dump.visible)]
        files += 1
        if dump.exit:
            broken += 1
            assert (path, entries[: len(printed)]) == (path, printed)
            continue
        assert (path, entries) == (path, printed)
        copy = OffsetIndex(FS, str(tmp_path / str(files)), base, 65_536)
        for entry in entries:
            copy.append(*entry)
        copy.trim()
        assert Path(copy.path).read_bytes() == path.read_bytes()[: 8 * len(entries)]
    assert (files, broken) == FILES_OF_4_3[case]


def test_releases_up_to_1_1_stored_the_first_offset_of_a_batch_and_later_ones_the_last() -> None:
    for release, expected in (("1.0.0", [3, 6, 9, 12, 15, 18, 20]), ("3.9.1", [5, 8, 11, 14, 17, 19, 20])):
        path = corpus.case("index-content") / f"by-{release}" / "probe-0" / f"{0:020}.index"
        assert [entry.offset for entry in OffsetEntries(FS.open(str(path)), 0)] == expected
