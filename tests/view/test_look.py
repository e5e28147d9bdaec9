"""Which files make up a log: what a broker that starts on the directory would make of it."""

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.log.logs import NOW, a_log, all_replicated, batch, fill, lead
from tidelog.errors import CorruptRecordError, SegmentGoneError, StorageError, TidelogError
from tidelog.log import UnifiedLog
from tidelog.records import NewRecord, build_message_set, read_batches
from tidelog.records.compression import Codec
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.look import looking_again, take_look
from tidelog.view.partition import PartitionView


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Segments 0, 3 and 6, of which the last is active, one record in a batch."""
    with a_log(tmp_path) as log:
        fill(log, [3, 3, 2])
        all_replicated(log)
    return tmp_path / "topic-0"


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def bases(directory: Path) -> list[int]:
    return [segment.base_offset for segment in take_look(ReadOnlyFiles(), str(directory)).segments]


def offsets(directory: Path) -> list[int]:
    return [record.offset for record in PartitionView.at(ReadOnlyFiles(), str(directory)).read()]


def new_segment(directory: Path, base: int, kept: list[int], suffix: str) -> None:
    """What a compaction writes: of some offsets the batches, in one segment."""
    data = b"".join(bytes(batch(1, base_offset=offset, partition_leader_epoch=0)) for offset in kept)
    (directory / name(base, f".log{suffix}")).write_bytes(data)
    (directory / name(base, f".index{suffix}")).touch()
    (directory / name(base, f".timeindex{suffix}")).touch()


def rename(directory: Path, base: int, old: str, new: str) -> None:
    for kind in (".log", ".index", ".timeindex"):
        (directory / name(base, kind + old)).rename(directory / name(base, kind + new))


def as_loaded(directory: Path) -> list[int]:
    """What the log has when a broker has started on a copy."""
    copy = directory.parent / "loaded" / directory.name
    shutil.copytree(directory, copy)
    with UnifiedLog.open(copy, clean_shutdown=True, lock=False) as log:
        found = [record.offset for record in log.records()]
    shutil.rmtree(copy.parent)
    return found


def test_at_each_step_of_a_swap_the_log_is_what_a_broker_would_make_of_it(directory: Path) -> None:
    def check(expected: list[int]) -> None:
        assert offsets(directory) == as_loaded(directory) == expected

    old, new = list(range(8)), [1, 4, 5, 6, 7]
    check(old)
    new_segment(directory, 0, [1, 4, 5], ".cleaned")
    check(old)
    (directory / name(0, ".log.cleaned")).rename(directory / name(0, ".log.swap"))
    check(old)  # its indexes are not renamed yet: not committed
    for kind in (".index", ".timeindex"):
        (directory / name(0, kind + ".cleaned")).rename(directory / name(0, kind + ".swap"))
    check(new)
    rename(directory, 0, "", ".deleted")
    check(new)
    rename(directory, 3, "", ".deleted")
    check(new)
    (directory / name(0, ".log.swap")).rename(directory / name(0))
    check(new)
    rename_rest = take_look(ReadOnlyFiles(), str(directory)).segments[0]
    assert rename_rest.files[".index"].endswith(".index.swap")
    for kind in (".index", ".timeindex"):
        (directory / name(0, kind + ".swap")).rename(directory / name(0, kind))
    check(new)


def test_of_several_new_segments_none_counts_before_the_first_is_renamed(directory: Path) -> None:
    """The last one is renamed first: a crash in between must leave the old ones."""
    new_segment(directory, 3, [5], ".swap")
    new_segment(directory, 0, [1], ".cleaned")
    assert (bases(directory), offsets(directory)) == ([0, 3, 6], list(range(8)))
    rename(directory, 0, ".cleaned", ".swap")
    assert (bases(directory), offsets(directory)) == ([0, 3, 6], [1, 5, 6, 7])
    assert offsets(directory) == as_loaded(directory)


def test_a_segment_on_top_of_old_ones_that_were_not_removed_gives_no_record_twice(directory: Path) -> None:
    new_segment(directory, 0, [0, 2, 5], "")
    assert bases(directory) == [0, 3, 6]
    assert offsets(directory) == [0, 2, 5, 6, 7]
    stretches = PartitionView.at(ReadOnlyFiles(), str(directory)).stretches()
    assert [(stretch.segment.base_offset, stretch.first_offset) for stretch in stretches] == [(0, 0), (6, 6)]


def test_a_time_is_found_in_a_segment_on_top_of_old_ones(directory: Path) -> None:
    data = [bytes(batch([NewRecord(None, b"v", NOW + offset)], base_offset=offset)) for offset in range(6)]
    (directory / name(0)).write_bytes(b"".join(data))
    (directory / name(3)).write_bytes(b"".join(data[3:]))
    found = PartitionView.at(ReadOnlyFiles(), str(directory)).offset_for_time(NOW + 5)
    assert found is not None
    assert found.offset == 5


def test_old_entries_that_wrap_records_which_compaction_removed_give_none_twice(tmp_path: Path) -> None:
    """The offset of such an entry is that of its last record, so compaction changes it."""
    directory = tmp_path / "topic-0"
    directory.mkdir()

    def wrapper(*offsets: int) -> bytes:
        records = [NewRecord(b"key %d" % offset, b"value", NOW + offset) for offset in offsets]
        return bytes(build_message_set(1, records, base_offset=offsets[0], codec=Codec.GZIP))

    (directory / name(0)).write_bytes(wrapper(0, 1) + wrapper(2, 3) + wrapper(4))
    (directory / name(2)).write_bytes(wrapper(2, 3) + wrapper(4, 5))
    (directory / name(6)).write_bytes(wrapper(6, 7))
    assert offsets(directory) == list(range(8))
    assert tidelog.open(tmp_path).scan().to_table()["offset"].to_pylist() == list(range(8))


@pytest.mark.parametrize("damaged", [50, 1])
def test_a_swap_with_a_damaged_offset_takes_no_other_segment_along(directory: Path, damaged: int) -> None:
    new_segment(directory, 0, [0, 2, 5], ".swap")
    swap = directory / name(0, ".log.swap")
    *others, last = [bytes(batch.buffer) for batch in read_batches(swap.read_bytes())]
    swap.write_bytes(b"".join([*others, damaged.to_bytes(8, "big"), last[8:]]))
    assert bases(directory)[-1] == 6
    with pytest.raises(CorruptRecordError):
        offsets(directory)
    scan = tidelog.open(directory.parent).scan(on_corruption="skip")
    found = scan.to_table()["offset"].to_pylist()
    assert (found, bool(scan.notices)) == (([0, 2, 6, 7], True) if damaged == 50 else ([0, 2, 3, 4, 5, 6, 7], False))
    with UnifiedLog.open(directory, clean_shutdown=True, lock=False) as log:  # Kafka would remove the active segment
        assert [record.offset for record in log.records(6)] == [6, 7]
        with pytest.raises(TidelogError):  # and nobody reads the same offsets for ever
            list(log.records())


def test_files_that_are_no_segments_are_passed_over(directory: Path) -> None:
    for other in ("notes.txt", "00000000000000000003.log.deleted", "00000000000000000099.snapshot", "x.log", "7.log"):
        (directory / other).write_bytes(b"")
    look = take_look(ReadOnlyFiles(), str(directory))
    assert [segment.base_offset for segment in look.segments] == [0, 3, 6]
    assert [notice.partition(":")[0] for notice in look.notices] == ["7.log", "x.log"]
    assert 99 in look.snapshots


def test_a_listing_that_a_rename_tore_is_not_believed(directory: Path) -> None:
    class Torn(ReadOnlyFiles):
        """The first listing lacks a segment that was being renamed."""

        __slots__ = ("listings",)

        def __init__(self) -> None:
            super().__init__()
            self.listings = 0

        def list(self, directory: str) -> list[str]:
            self.listings += 1
            return [n for n in super().list(directory) if self.listings > 1 or not n.startswith(name(3, ""))]

    files = Torn()
    assert [segment.base_offset for segment in take_look(files, str(directory)).segments] == [0, 3, 6]
    assert files.listings == 3


def test_a_directory_that_never_rests_is_given_up(directory: Path) -> None:
    class Restless(ReadOnlyFiles):
        __slots__ = ("number",)

        def __init__(self) -> None:
            super().__init__()
            self.number = 0

        def list(self, directory: str) -> list[str]:
            self.number += 1
            return [name(self.number)]

    with pytest.raises(StorageError, match="changes faster than it can be listed: copy it, and open the copy"):
        take_look(Restless(), str(directory))


def test_only_the_last_segment_is_active(directory: Path) -> None:
    look = take_look(ReadOnlyFiles(), str(directory))
    assert [segment.is_active for segment in look.segments] == [False, False, True]
    first, second, third = look.segments
    assert [look.holding(offset) for offset in (0, 2, 3, 7, 99)] == [first, first, second, third, third]
    assert (look.behind(first, 3), look.behind(first, 1), look.behind(first, 6)) == (second, second, third)
    assert look.behind(third, 8) is None


def test_appends_after_the_look_are_not_part_of_it(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    view = PartitionView.at(ReadOnlyFiles(), log.directory)
    assert len(view.segments) == 1
    log.roll()
    lead(log, 1)
    assert len(view.segments) == 1
    assert len(view.refresh().segments) == 2


def test_a_question_is_asked_again_after_another_look() -> None:
    looks = []

    def question() -> int:
        if len(looks) < 3:
            raise SegmentGoneError("a segment is gone")
        return 15

    assert looking_again(question, lambda: looks.append(1), "orders-0") == 15
    assert len(looks) == 3


def test_a_directory_that_never_holds_still_is_given_up() -> None:
    def question() -> int:
        raise SegmentGoneError("a segment is gone")

    with pytest.raises(StorageError, match="orders-0 changes faster than it can be read: read a copy"):
        looking_again(question, lambda: None, "orders-0")


def test_what_seems_damaged_is_damage_if_a_second_look_finds_the_same() -> None:
    looks: list[int] = []

    def asked(*answers: str) -> str:
        left = iter(answers)

        def question() -> str:
            answer = next(left)
            if answer.startswith("!"):
                raise CorruptRecordError(answer)
            return answer

        return looking_again(question, lambda: looks.append(1), "here")

    assert asked("!cut at 5", "!cut at 7", "sound") == "sound"
    assert len(looks) == 2
    with pytest.raises(CorruptRecordError, match="cut at 5"):
        asked("!cut at 5", "!cut at 5", "sound")
