"""The time index: what Kafka's own tests say of it, its bytes, and the files that Kafka wrote."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import CorruptIndexError, InvalidRequestError, LogClosedError, OffsetOverflowError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.time_index import TimeEntries, TimeIndex, TimestampOffset

FS = LocalFileSystem()
BASE = 45
ROOM = 30 * 12
THREE = ((10, 55), (20, 65), (30, 75))


def an_index(directory: Path, *entries: tuple[int, int], room: int = ROOM) -> TimeIndex:
    index = TimeIndex(FS, str(directory / f"{BASE:020}.timeindex"), BASE, room)
    for entry in entries:
        index.maybe_append(*entry)
    return index


def rows(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def an_existing_index(path: Path, data: bytes) -> TimeIndex:
    path.write_bytes(data)
    return TimeIndex(FS, str(path), BASE)


# -- lookups ---------------------------------------------------------------------------------------------------------


@behaviour("IDX-014", "IDX-020")
def test_an_empty_index_knows_no_timestamp_and_the_base_offset(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    assert index.lookup(100) == TimestampOffset(-1, BASE)
    assert index.last_entry == TimestampOffset(-1, BASE)
    index.maybe_append(10, 55)
    assert index.last_entry == TimestampOffset(10, 55)
    assert index.last_offset == 55


@behaviour("IDX-015")
def test_a_lookup_finds_the_greatest_timestamp_not_above_the_target(tmp_path: Path) -> None:
    index = an_index(tmp_path, *THREE)
    answers = {9: (-1, 45), 10: (10, 55), 19: (10, 55), 20: (20, 65), 25: (20, 65), 30: (30, 75), 2**62: (30, 75)}
    assert {target: index.lookup(target) for target in answers} == answers


@pytest.mark.parametrize("count", [1, 42, 43, 683, 684, 2_000])
def test_a_lookup_finds_every_entry_of_a_long_index(tmp_path: Path, count: int) -> None:
    entries = [TimestampOffset(1_000 + 10 * n, BASE + n) for n in range(count)]
    index = an_index(tmp_path, *entries, room=(count + 1) * 12)
    assert index.lookup(999) == TimestampOffset(-1, BASE)
    for entry in entries:
        assert index.lookup(entry.timestamp_ms) == index.lookup(entry.timestamp_ms + 9) == entry


@behaviour("IDX-004")
def test_an_entry_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    with pytest.raises(InvalidRequestError, match="entry 0 of an index of 0"):
        index.entry(0)
    index.maybe_append(10, 55)
    assert index.entry(0) == TimestampOffset(10, 55)


# -- appending -------------------------------------------------------------------------------------------------------


@behaviour("IDX-017", "IDX-018")
def test_the_last_slot_is_kept_for_the_last_entry_of_the_segment(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    assert index.max_entries == 30
    for n in range(29):
        assert not index.is_full
        index.maybe_append(10 + n, BASE + n)
    assert index.is_full
    with pytest.raises(InvalidRequestError, match="full, with 29 entries"):
        index.maybe_append(100, BASE + 100)
    assert index.entries == 29
    index.maybe_append(100, BASE + 100, skip_full=True)
    assert (index.entries, index.last_entry) == (30, (100, BASE + 100))
    index.maybe_append(100, BASE + 100, skip_full=True)
    with pytest.raises(InvalidRequestError, match="slot 30 of 30"):
        index.maybe_append(101, BASE + 101, skip_full=True)


@behaviour("IDX-019")
def test_an_offset_below_the_last_one_is_refused_even_where_full_is_not_asked(tmp_path: Path) -> None:
    index = an_index(tmp_path, *THREE)
    for skip_full in (False, True):
        with pytest.raises(CorruptIndexError, match="offset 74 in slot 3, behind offset 75"):
            index.maybe_append(31, 74, skip_full=skip_full)
    assert list(index.reader()) == list(THREE)


def test_a_timestamp_below_the_last_one_is_refused_and_an_equal_one_is_passed_over(tmp_path: Path) -> None:
    index = an_index(tmp_path, *THREE)
    with pytest.raises(InvalidRequestError, match="timestamp 29 in slot 3, behind 30"):
        index.maybe_append(29, 80)
    index.maybe_append(30, 80)
    assert list(index.reader()) == list(THREE)
    index.maybe_append(31, 75)
    assert index.last_entry == TimestampOffset(31, 75), "only the timestamp has to grow"


def test_no_timestamp_is_no_entry(tmp_path: Path) -> None:
    index = an_index(tmp_path, (-1, 50), (-1, 60), (-2, 70))
    assert index.entries == 0
    index.maybe_append(0, 70)
    assert list(index.reader()) == [(0, 70)]


def test_what_does_not_fit_an_entry_is_refused(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    for offset in (BASE - 1, BASE + 2**31):
        with pytest.raises(OffsetOverflowError, match=f"offset {offset}"):
            index.maybe_append(1, offset)
    with pytest.raises(InvalidRequestError, match="no room"):
        index.maybe_append(2**63, BASE)
    assert index.entries == 0


# -- the file --------------------------------------------------------------------------------------------------------


@behaviour("IDX-013", "IDX-023")
def test_an_entry_is_twelve_bytes_of_timestamp_and_relative_offset(tmp_path: Path) -> None:
    index = an_index(tmp_path, *THREE, room=ROOM + 11)
    assert index.size_in_bytes == 36
    written = rows((10, 10), (20, 20), (30, 30))
    index.flush()
    assert Path(index.path).read_bytes() == written + bytes(ROOM - 36)
    assert [index.entry(n) for n in range(3)] == list(THREE)
    index.close()
    assert Path(index.path).read_bytes() == written


@behaviour("IDX-016")
def test_truncating_drops_the_entry_of_exactly_that_offset(tmp_path: Path) -> None:
    index = an_index(tmp_path, *((10 * n, BASE + n) for n in range(1, 20)))
    index.truncate_to(BASE + 10)
    assert (index.entries, index.last_entry) == (9, (90, BASE + 9))
    index.maybe_append(91, BASE + 10)
    assert index.lookup(1_000) == TimestampOffset(91, BASE + 10)


@behaviour("IDX-012")
def test_truncating_goes_by_offsets_and_can_drop_all(tmp_path: Path) -> None:
    index = an_index(tmp_path, *THREE)
    index.truncate_to(66)
    assert list(index.reader()) == [(10, 55), (20, 65)]
    index.truncate_to(20)
    assert list(index.reader()) == []
    index.maybe_append(5, 50)
    index.truncate()
    assert (index.entries, index.last_entry) == (0, (-1, BASE))
    index.maybe_append(3, 47)
    assert list(index.reader()) == [(3, 47)]


@behaviour("IDX-021")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (rows((10, 1), (20, -1)), "last offset 44 is below the base 45"),
        (rows((10, 1), (9, 2)), "last timestamp 9 is below 10"),
        (rows((10, 1)) + b"\0", "13 bytes are not a multiple of 12"),
        (rows((10, 1)) + bytes(12), "last timestamp 0 is below 10"),
    ],
)
def test_the_sanity_check_refuses_what_cannot_be_an_index(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CorruptIndexError, match=message):
        an_existing_index(tmp_path / "45.timeindex", data).sanity_check()


@behaviour("IDX-021")
def test_the_sanity_check_passes_what_may_be_an_index(tmp_path: Path) -> None:
    an_index(tmp_path).sanity_check()
    for data in (b"", rows((10, 0)), rows((10, 0), (10, 1))):
        an_existing_index(tmp_path / "45.timeindex", data).sanity_check()


@behaviour("IDX-022")
def test_resizing_says_whether_it_changed_the_file_and_keeps_the_last_entry_right(tmp_path: Path) -> None:
    index = an_index(tmp_path, *THREE)
    assert not index.resize(ROOM)
    assert index.resize(ROOM // 2)
    assert (index.max_entries, index.entries, index.last_entry) == (15, 3, (30, 75))
    assert index.resize(ROOM * 2)
    assert (index.max_entries, index.entries, index.last_entry) == (60, 3, (30, 75))
    assert index.resize(24)
    assert (index.max_entries, index.entries, index.last_entry) == (2, 2, (20, 65))
    assert index.resize(0)
    assert (index.entries, index.last_entry) == (0, (-1, BASE))


def test_an_index_that_is_opened_again_knows_its_last_entry_and_is_full(tmp_path: Path) -> None:
    an_index(tmp_path, *THREE).close()
    index = an_index(tmp_path)
    assert (index.last_entry, index.entries, index.is_full) == ((30, 75), 3, True)
    index.resize(ROOM)
    index.maybe_append(40, 85)
    assert index.lookup(35) == TimestampOffset(30, 75)
    index.delete()
    with pytest.raises(LogClosedError, match="closed"):
        index.maybe_append(50, 95)
    assert not index.exists()


# -- what Kafka wrote ------------------------------------------------------------------------------------------------

LINE = re.compile(r"^timestamp: (-?\d+) offset: (-?\d+)$", re.MULTILINE)

# Files of each case, so that none drops out unseen, and how many of them made the tool give up: it looks into the log.
FILES_OF_4_3 = {
    "kafka-4.3/1-codecs": (16, 0),
    "kafka-4.3/2-records": (12, 0),
    "kafka-4.3/3-rolls": (35, 0),
    "kafka-4.3/4-transactions": (30, 0),
    "kafka-4.3/5-compaction": (523, 0),
    "kafka-4.3/6-recovery": (708, 24),
    "kafka-4.3/7-lookups": (20, 0),
    "kafka-4.3/8-consumer-offsets": (4, 0),
    "kafka-4.3/9-metadata": (6, 0),
}


def kafkas_files(case: str) -> Iterator[tuple[Path, corpus.Dump]]:
    for partition in corpus.partitions(case):
        for path in sorted(partition.path.glob("*.timeindex")):
            yield path, corpus.dump(partition, path.name)


@pytest.mark.parametrize("case", FILES_OF_4_3)
def test_entries_are_read_as_kafka_prints_them_and_written_as_kafka_wrote_them(case: str, tmp_path: Path) -> None:
    files, broken = 0, 0
    for path, dump in kafkas_files(case):
        base = int(path.stem)
        entries = list(TimeEntries(FS.open(str(path)), base))
        printed = [(int(timestamp), int(offset)) for timestamp, offset in LINE.findall(dump.visible)]
        files += 1
        if dump.exit:
            broken += 1
            assert (path, entries[: len(printed)]) == (path, printed)
            continue
        assert (path, entries) == (path, printed)
        copy = TimeIndex(FS, str(tmp_path / str(files)), base, 65_536)
        for entry in entries:
            copy.maybe_append(*entry)
        copy.trim()
        assert Path(copy.path).read_bytes() == path.read_bytes()[: 12 * len(entries)]
    assert (files, broken) == FILES_OF_4_3[case]


def test_the_offset_of_a_timestamp_was_the_records_up_to_3_6_and_is_the_batchs_last_since() -> None:
    for release, expected in (("1.0.0", [4, 8, 9, 14, 18, 20]), ("3.9.1", [5, 8, 11, 14, 19, 20])):
        path = corpus.case("index-content") / f"by-{release}" / "probe-0" / f"{0:020}.timeindex"
        assert [entry.offset for entry in TimeEntries(FS.open(str(path)), 0)] == expected
