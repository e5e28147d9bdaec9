"""A log that is compacted, rolled, cut and deleted while it is looked at, one rename after the other.

Nothing is waited for: the disk calls back behind every change of a name, and there a reader looks.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.log.compaction.compacting import (
    a_compacted_log,
    compact,
    delete,
    fill_segments,
    put,
    settle,
    transactional,
)
from tests.log.logs import a_log, all_replicated, batch, clock_of, fill, lead
from tidelog.errors import SegmentGoneError, StorageError
from tidelog.log import UnifiedLog
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import Record
from tidelog.view import PartitionView
from tidelog.view.files import ReadOnlyFiles


class Watched(LocalFileSystem):
    """The local disk, with a call behind every change of a name."""

    def __init__(self) -> None:
        self.then: Callable[[], object] = lambda: None

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.then()

    def remove(self, path: str) -> bool:
        found = super().remove(path)
        self.then()
        return found


def a_log_of_everything(root: Path, disk: Watched) -> UnifiedLog:
    log = a_compacted_log(root, fs=disk, segment_bytes=400, index_interval_bytes=50)
    one, two = transactional(log, 1, 2)
    for number in range(3):
        put(log, 1, 2, 3, number + 10)
        one(4, 5)
        two(1, 6)
        (one.abort if number % 2 else one.commit)()
        two.commit()
        delete(log, number + 9)
    fill_segments(log, len(log.segments) + 2)
    all_replicated(log)
    return log


def view_of(log: UnifiedLog) -> PartitionView:
    return PartitionView.at(ReadOnlyFiles(), log.directory)


def ascending(records: list[Record]) -> list[int]:
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    return offsets


def last_values(records: Iterator[Record]) -> dict[bytes | None, Record]:
    """The last record of each key that is not deleted."""
    found: dict[bytes | None, Record] = {}
    for record in records:
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record
    return found


def test_at_every_moment_of_a_compaction_the_last_values_are_there_and_no_record_twice(tmp_path: Path) -> None:
    disk = Watched()
    log = a_log_of_everything(tmp_path, disk)
    originals = {record.offset: record for record in view_of(log).read()}
    expected = {key: (r.offset, r.value) for key, r in last_values(view_of(log).read(committed=True)).items()}
    seen: set[tuple[int, ...]] = set()

    def look() -> None:
        offsets = ascending(list(view_of(log).read()))
        assert set(offsets) <= set(originals)
        seen.add(tuple(offsets))
        committed = last_values(view_of(log).read(committed=True))
        assert {key: (r.offset, r.value) for key, r in committed.items()} == expected

    disk.then = look
    compact(log)
    settle(log)
    clock_of(log).advance(log.config.delete_retention_ms)
    compact(log)
    settle(log)
    # The states between the first and the last are some groups of segments swapped and the others not yet.
    assert len(seen) > 2
    assert max(map(len, seen)) == len(originals) > min(map(len, seen))


def test_a_view_taken_at_any_moment_can_be_read_at_any_later_one(tmp_path: Path) -> None:
    disk = Watched()
    log = a_log_of_everything(tmp_path, disk)
    expected = {key: (r.offset, r.value) for key, r in last_values(view_of(log).read(committed=True)).items()}
    taken: list[PartitionView] = []
    read = 0

    def look() -> None:
        nonlocal read
        for view in taken[read % 9 :: 9]:  # each is read by every ninth look behind it
            committed = list(view.read(committed=True))
            ascending(committed)
            assert {key: (r.offset, r.value) for key, r in last_values(iter(committed)).items()} == expected
        read += 1
        view = view_of(log)
        assert view.look.segments
        assert view.log_end_offset == log.log_end_offset
        taken.append(view)

    disk.then = look
    compact(log)
    settle(log)
    assert len(taken) > 25


def test_a_walk_that_was_begun_before_a_compaction_goes_on_behind_it(tmp_path: Path) -> None:
    other = a_log_of_everything(tmp_path / "other", Watched())
    originals = list(view_of(other).read())
    compact(other)
    survivors = [record.offset for record in view_of(other).read()]
    again = a_log_of_everything(tmp_path / "again", Watched())
    walk = view_of(again).read()
    first = [next(walk) for _ in range(7)]
    compact(again)
    settle(again)
    rest = list(walk)
    offsets = ascending([*first, *rest])
    assert offsets[:7] == [record.offset for record in originals[:7]]
    # What was open is read to its end as it was; the segments behind it are the compacted ones.
    assert set(offsets) >= {offset for offset in survivors if offset > offsets[6]}
    assert offsets[-5:] == survivors[-5:]


def test_segments_that_retention_deletes_are_passed_over(tmp_path: Path) -> None:
    log = a_log(tmp_path, retention_bytes=1, segment_bytes=200)
    for _ in range(20):
        lead(log, 1)
    all_replicated(log)
    first, last = log.segments[0].base_offset, log.active_segment.base_offset
    walk = view_of(log).read()
    seen = [next(walk).offset]
    deleted = log.delete_old_segments()
    assert deleted > 3
    settle(log)
    seen += [record.offset for record in walk]
    # The first segment was open, and is read to its end.
    open_one = [offset for offset in seen if offset < last]
    assert open_one == list(range(first, len(open_one)))
    assert seen == [*open_one, *range(last, 20)]
    assert len(open_one) < last


def test_a_segment_whose_log_was_swapped_after_it_was_opened_is_not_taken_with_the_new_indexes(tmp_path: Path) -> None:
    disk = Watched()
    log = a_log_of_everything(tmp_path, disk)

    class Between(ReadOnlyFiles):
        """Swaps the segments when the first transaction index is looked for, behind the opening of its log."""

        __slots__ = ("is_done",)

        def __init__(self) -> None:
            super().__init__()
            self.is_done = False

        def stat(self, path: str):  # type: ignore[no-untyped-def]
            if ".txnindex" in path and not self.is_done:
                self.is_done = True
                compact(log)
            return super().stat(path)

    view = PartitionView.at(Between(), log.directory)
    with pytest.raises(SegmentGoneError, match="was replaced"):
        view.segments[0].open()
    assert ascending(list(view.read()))


def test_a_log_that_is_cut_and_written_anew_is_read_to_where_it_was_cut(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [10])
    view = view_of(log)
    walk = view.read()
    first = [next(walk) for _ in range(3)]
    log.truncate_to(5)
    for number in range(5):
        lead(log, batch(1, timestamp_ms=1_700_000_000_000 + number))
    assert ascending([*first, *walk]) == list(range(10))


def test_a_segment_that_becomes_the_active_one_again_may_be_torn(tmp_path: Path) -> None:
    """A follower cuts its log back into an earlier segment and is appending to it, while a reader has the old list."""
    log = a_log(tmp_path)
    fill(log, [5, 3])
    view = view_of(log)
    assert view.log_end_offset == 8
    log.truncate_to(4)
    with (tmp_path / "topic-0" / "00000000000000000000.log").open("ab") as file:
        file.write(bytes(batch(1, base_offset=4))[:50])
    assert ascending(list(view.read())) == [0, 1, 2, 3]


def test_a_directory_that_is_deleted_under_a_reader_says_so(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=200)
    for _ in range(10):
        lead(log, 1)
    walk = view_of(log).read()
    next(walk)
    log.rename("topic-0." + "ab" * 16 + "-delete")
    with pytest.raises(StorageError, match="topic-0 is gone: its topic was deleted, or it was moved"):
        list(walk)
    assert ascending(list(view_of(log).read())) == list(range(10))
