"""The transaction index: what Kafka's own tests say of it, its bytes, and the files that Kafka wrote."""

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import CorruptIndexError, InvalidRequestError, LogClosedError, UnsupportedError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.transaction_index import AbortedTxnEntry, TransactionEntries, TransactionIndex

FS = LocalFileSystem()
FIVE = [
    AbortedTxnEntry(0, 0, 10, 2),
    AbortedTxnEntry(1, 5, 15, 16),
    AbortedTxnEntry(2, 18, 35, 25),
    AbortedTxnEntry(3, 32, 50, 40),
    AbortedTxnEntry(4, 100, 164, 165),
]
FOUR = [
    AbortedTxnEntry(0, 0, 10, 11),
    AbortedTxnEntry(1, 5, 15, 13),
    AbortedTxnEntry(2, 18, 35, 25),
    AbortedTxnEntry(3, 32, 50, 40),
]


def an_index(directory: Path, *entries: AbortedTxnEntry, base: int = 0) -> TransactionIndex:
    index = TransactionIndex(FS, str(directory / f"{0:020}.txnindex"), base)
    for entry in entries:
        index.append(entry)
    return index


# -- appending -------------------------------------------------------------------------------------------------------


@behaviour("IDX-033")
def test_an_entry_is_its_version_and_four_numbers(tmp_path: Path) -> None:
    entry = AbortedTxnEntry(producer_id=983_493, first_offset=137, last_offset=299, last_stable_offset=200)
    index = an_index(tmp_path, entry)
    data = Path(index.path).read_bytes()
    assert data == struct.pack(">hqqqq", 0, 983_493, 137, 299, 200)
    assert len(data) == 34
    assert list(an_index(tmp_path).entries()) == [entry]


@behaviour("IDX-024")
def test_an_index_that_is_opened_again_appends_behind_what_is_there(tmp_path: Path) -> None:
    first = an_index(tmp_path, *FIVE[:3])
    first.close()
    again = an_index(tmp_path, *FIVE[3:])
    assert list(again.entries()) == FIVE
    again.sanity_check()


@behaviour("IDX-026")
def test_markers_must_lie_one_behind_the_other(tmp_path: Path) -> None:
    index = an_index(tmp_path, AbortedTxnEntry(0, 0, 10, 11))
    for last_offset in (9, 10):
        with pytest.raises(InvalidRequestError, match=f"last offset {last_offset} behind last offset 10"):
            index.append(AbortedTxnEntry(1, 5, last_offset, 11))
    assert len(list(index.entries())) == 1
    assert index.last_offset == 10


def test_numbers_that_do_not_fit_are_refused_before_there_is_a_file(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    with pytest.raises(InvalidRequestError, match="do not fit"):
        index.append(AbortedTxnEntry(2**63, 0, 1, 2))
    assert not index.exists()
    assert index.last_offset is None


def test_what_an_earlier_run_left_is_no_bound_for_what_is_appended_now(tmp_path: Path) -> None:
    an_index(tmp_path, AbortedTxnEntry(0, 0, 10, 11)).close()
    index = an_index(tmp_path)
    assert index.last_offset is None
    index.append(AbortedTxnEntry(1, 2, 5, 6))
    assert [entry.last_offset for entry in index.entries()] == [10, 5]


# -- collecting ------------------------------------------------------------------------------------------------------


@behaviour("IDX-027", "IDX-028", "IDX-029", "IDX-030", "IDX-031")
@pytest.mark.parametrize(
    ("fetch_offset", "upper", "expected", "is_complete"),
    [
        (0, 100, FOUR, False),
        (0, 32, FOUR[:3], True),
        (0, 35, FOUR, True),
        (0, 40, FOUR, True),
        (10, 35, FOUR, True),
        (11, 35, FOUR[1:], True),
        (20, 41, FOUR[2:], False),
        (51, 100, [], False),
        (0, 0, [], True),
    ],
)
def test_collecting_finds_the_transactions_that_overlap(
    tmp_path: Path, fetch_offset: int, upper: int, expected: list[AbortedTxnEntry], is_complete: bool
) -> None:
    index = an_index(tmp_path, *FOUR)
    assert index.collect(fetch_offset, upper) == (expected, is_complete)
    assert TransactionEntries(FS.open(index.path)).collect(fetch_offset, upper) == (expected, is_complete)


def test_without_a_file_nothing_is_found_and_the_search_goes_on(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    assert index.collect(0, 100) == ([], False)
    assert list(index.entries()) == []
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    assert not index.exists()


def test_a_reader_sees_the_entries_that_were_there_when_it_began(tmp_path: Path) -> None:
    index = an_index(tmp_path, *FIVE[:2])
    reader = index.entries()
    assert next(reader) == FIVE[0]
    index.append(FIVE[2])
    assert list(reader) == FIVE[1:2]
    reader = index.entries()
    index.truncate_to(15)
    assert list(reader) == FIVE[:1], "what was cut meanwhile is not there"


def test_many_entries_are_read_in_order(tmp_path: Path) -> None:
    many = [AbortedTxnEntry(n, n, n, n + 1) for n in range(3_000)]
    index = an_index(tmp_path, *many)
    assert list(index.entries()) == many
    assert index.collect(2_990, 2_995).transactions == many[2_990:2_995]
    assert len(TransactionEntries(FS.open(index.path))) == 3_000


# -- the file --------------------------------------------------------------------------------------------------------


@behaviour("IDX-025")
def test_the_sanity_check_refuses_markers_before_the_segment(tmp_path: Path) -> None:
    an_index(tmp_path, *FIVE[:4]).close()
    with pytest.raises(CorruptIndexError, match="ends before the base offset 100"):
        an_index(tmp_path, base=100).sanity_check()
    an_index(tmp_path, base=10).sanity_check()
    with pytest.raises(CorruptIndexError, match="ends before the base offset 11"):
        an_index(tmp_path, base=11).sanity_check()


def test_a_later_version_cannot_be_read_and_its_second_byte_is_not_looked_at(tmp_path: Path) -> None:
    index = an_index(tmp_path, *FIVE[:2])
    data = bytearray(Path(index.path).read_bytes())
    data[35] = 2
    Path(index.path).write_bytes(data)
    assert list(index.entries()) == FIVE[:2]
    data[34] = 1
    Path(index.path).write_bytes(data)
    for use in (lambda: list(index.entries()), lambda: index.collect(0, 100), index.sanity_check):
        with pytest.raises(UnsupportedError, match="entry 1 has version 1, 0 is known"):
            use()
    data[34] = 0xFF  # Kafka reads a signed byte, and -1 is not above 0
    Path(index.path).write_bytes(data)
    assert list(index.entries()) == FIVE[:2]


def test_a_torn_entry_at_the_end_is_ignored_and_written_over(tmp_path: Path) -> None:
    path = Path(an_index(tmp_path, FIVE[0]).path)
    path.write_bytes(path.read_bytes() + bytes(10))
    index = an_index(tmp_path)
    assert list(index.entries()) == FIVE[:1]
    index.append(FIVE[1])
    assert list(TransactionEntries(FS.open(str(path)))) == FIVE[:2]
    assert path.stat().st_size == 68


@behaviour("IDX-032")
def test_truncating_cuts_at_the_first_marker_at_or_behind_the_offset(tmp_path: Path) -> None:
    index = an_index(tmp_path, *FOUR)
    index.truncate_to(51)
    assert list(index.entries()) == FOUR
    index.truncate_to(50)
    assert list(index.entries()) == FOUR[:3]
    assert index.last_offset == 35
    assert Path(index.path).stat().st_size == 3 * 34
    index.append(AbortedTxnEntry(9, 36, 40, 41))
    index.truncate_to(36)
    index.reset()
    assert list(index.entries()) == []
    assert (index.last_offset, Path(index.path).stat().st_size) == (None, 0)
    index.append(FOUR[0])
    assert list(index.entries()) == FOUR[:1]


@behaviour("IDX-034")
def test_appends_follow_a_file_that_is_renamed(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.rename_to(str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []
    index.append(FIVE[0])
    index.rename_to(str(tmp_path / "b"))
    index.append(FIVE[1])
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert list(TransactionEntries(FS.open(str(tmp_path / "b")))) == FIVE[:2]


def test_an_index_follows_its_directory_before_its_file_exists(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    index = an_index(tmp_path / "t-0")
    assert index.collect(0, 1) == ([], False)
    (tmp_path / "t-0").rename(tmp_path / "u-0")
    index.moved_to(str(tmp_path / "u-0" / "0.txnindex"))
    index.append(FIVE[0])
    assert (tmp_path / "u-0" / "0.txnindex").stat().st_size == 34


@behaviour("IDX-035")
def test_the_file_appears_with_the_first_entry(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.flush()
    assert not index.exists()
    index.append(FIVE[0])
    index.flush()
    assert Path(index.path).stat().st_size == 34


@behaviour("IDX-036")
def test_deleting_says_whether_there_was_a_file(tmp_path: Path) -> None:
    assert not an_index(tmp_path).delete()
    index = an_index(tmp_path, FIVE[0])
    assert index.delete()
    assert not index.exists()
    assert not index.delete()


def test_a_released_index_is_opened_again(tmp_path: Path) -> None:
    index = an_index(tmp_path, FIVE[0])
    index.release()
    assert list(index.entries()) == FIVE[:1]
    index.release()
    index.append(FIVE[1])
    assert list(index.entries()) == FIVE[:2]


@pytest.mark.parametrize("end", [TransactionIndex.close, TransactionIndex.delete], ids=["close", "delete"])
def test_a_closed_index_does_not_come_back(tmp_path: Path, end: Callable[[TransactionIndex], object]) -> None:
    index = an_index(tmp_path, FIVE[0])
    reader = index.entries()
    end(index)
    existed = index.exists()
    for use in (index.entries, lambda: index.append(FIVE[1]), index.flush, index.reset):
        with pytest.raises(LogClosedError, match="closed"):
            use()
    assert index.exists() is existed
    assert list(reader) == FIVE[:1], "who held the file may finish"


# -- what Kafka wrote ------------------------------------------------------------------------------------------------

LINE = re.compile(
    r"^version: 0 producerId: (-?\d+) firstOffset: (-?\d+) lastOffset: (-?\d+) lastStableOffset: (-?\d+)$", re.MULTILINE
)

# Files of each case, so that none drops out unseen, and how many entries they hold.
FILES_OF_4_3 = {
    "kafka-4.3/4-transactions": (18, 28),
    "kafka-4.3/5-compaction": (56, 56),
    "kafka-4.3/6-recovery": (448, 600),
    "kafka-4.3/8-consumer-offsets": (1, 1),
}


@pytest.mark.parametrize("case", FILES_OF_4_3)
def test_entries_are_read_as_kafka_prints_them_and_written_as_kafka_wrote_them(case: str, tmp_path: Path) -> None:
    files, count = 0, 0
    for partition in corpus.partitions(case):
        for path in sorted(partition.path.glob("*.txnindex")):
            entries = list(TransactionEntries(FS.open(str(path))))
            printed = LINE.findall(corpus.dump(partition, path.name).visible)
            assert (path, entries) == (path, [tuple(map(int, fields)) for fields in printed])
            files, count = files + 1, count + len(entries)
            copy = TransactionIndex(FS, str(tmp_path / str(files)), int(path.stem))
            for entry in entries:
                copy.append(entry)
            written = Path(copy.path).read_bytes() if copy.exists() else b""
            data = bytearray(path.read_bytes()[: 34 * len(entries)])
            if "u-txn-version" in partition.name and path.stem == f"{0:020}":
                assert data[:2] == b"\0\2"  # put there to see that nobody minds
                data[1] = 0
            assert written == data
    assert (files, count) == FILES_OF_4_3[case]
