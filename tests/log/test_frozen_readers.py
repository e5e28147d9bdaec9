"""A reader works on the segments as they were when it began, whatever its owner does to the list meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.compaction.compacting import a_compacted_log, compact, put
from tests.log.logs import ABORT, COMMITTED, all_replicated, clock_of, end_txn, in_txn, lead, names_in
from tidelog.errors import LogClosedError, StorageError, TooManyFilesError
from tidelog.log import UnifiedLog
from tidelog.log.files import ReadFile
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.log_reader import LogReader
from tidelog.log.segment_reader import SegmentReader


def a_log_to_clean(home: Path) -> UnifiedLog:
    log = a_compacted_log(home)
    for key in (1, 1, 2):
        put(log, key)
    log.roll()
    all_replicated(log)
    return log


def swap_and_delete(log: UnifiedLog) -> None:
    """Compact, and let the old files go."""
    compact(log)
    clock_of(log).advance(log.config.file_delete_delay_ms)
    log.tick()


def test_a_swap_between_the_data_and_its_transactions_hides_no_abort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_compacted_log(tmp_path)
    lead(log, in_txn(7, 0))
    log.roll()
    end_txn(log, 7, ABORT)
    put(log, 1)
    log.roll()
    all_replicated(log)
    expected = log.read(0, 1000, COMMITTED).aborted
    assert expected

    collect = LogReader.collect_aborted

    def swap_first(reader: LogReader[Any], *arguments: Any) -> Any:
        monkeypatch.undo()
        compact(log)  # both segments become one
        return collect(reader, *arguments)

    monkeypatch.setattr(LogReader, "collect_aborted", swap_first)
    region = log.read(0, 1000, COMMITTED)
    assert region.size
    assert region.aborted == expected


def test_a_reader_whose_segment_was_swapped_and_deleted_reads_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log_to_clean(tmp_path)
    read = LogReader.read

    def swap_first(reader: LogReader[Any], *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        swap_and_delete(log)
        for segment in log.segments:
            segment.release()  # as when too many files are open
        return read(reader, *arguments, **options)

    monkeypatch.setattr(LogReader, "read", swap_first)
    assert log.read(0, 1000).start.offset == 1


def refuse_beside(suffix: str) -> Callable[[LocalFileSystem, str], None]:
    """A `sync_directory` that finds no descriptor once there is a file of such a name."""
    sync = LocalFileSystem.sync_directory

    def refuse(fs: LocalFileSystem, path: str) -> None:
        if any(name.endswith(suffix) for name in fs.list(path)):
            raise TooManyFilesError(f"{path}: Too many open files")
        sync(fs, path)

    return refuse


def test_a_swap_without_descriptors_takes_the_log_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `.swap` that is left in a log which goes on would replace, at the next start, what was appended since."""
    log = a_compacted_log(tmp_path)
    for _ in range(3):
        put(log, 1)
    log.roll()
    all_replicated(log)

    monkeypatch.setattr(LocalFileSystem, "sync_directory", refuse_beside(".swap"))
    with pytest.raises(StorageError, match="in the middle of a change"):
        compact(log)
    assert log.failure is not None


def test_a_swap_does_not_begin_without_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_compacted_log(tmp_path)
    for _ in range(3):
        put(log, 1)
    log.roll()
    all_replicated(log)
    open_file = LocalFileSystem.open

    def refuse_once_cleaned(fs: LocalFileSystem, path: str) -> ReadFile:
        if names_in(log, ".log.cleaned"):
            raise TooManyFilesError(f"{path}: Too many open files")
        return open_file(fs, path)

    monkeypatch.setattr(LocalFileSystem, "open", refuse_once_cleaned)
    with pytest.raises(TooManyFilesError):
        compact(log)
    monkeypatch.undo()
    assert log.failure is None
    assert not names_in(log, ".cleaned")
    compact(log)
    assert log.read(0, 1000).start.offset == 2


def test_a_truncation_without_descriptors_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_compacted_log(tmp_path)
    for _ in range(3):
        put(log, 1)
        log.roll()

    monkeypatch.setattr(LocalFileSystem, "sync_directory", refuse_beside(".log.deleted"))
    with pytest.raises(StorageError, match="in the middle of a change"):
        log.truncate_to(1)
    assert log.failure is not None


def test_a_roll_of_an_empty_segment_without_descriptors_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file has another name by then: what was appended to it would be gone after the next start."""
    log = a_compacted_log(tmp_path)

    def refuse(fs: LocalFileSystem, path: str) -> None:
        raise TooManyFilesError(f"{path}: Too many open files")

    monkeypatch.setattr(LocalFileSystem, "sync_directory", refuse)
    with pytest.raises(StorageError, match="in the middle of a change"):
        log.roll()
    assert log.failure is not None


def test_a_log_whose_closing_was_interrupted_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may have its directory: two owners would write over each other."""
    log = a_compacted_log(tmp_path)
    put(log, 1)

    def press_a_key(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log.producers, "take_snapshot", press_a_key)
    with pytest.raises(KeyboardInterrupt):
        log.close()
    with pytest.raises(LogClosedError):
        put(log, 1)


def test_a_lookup_by_time_whose_segment_was_swapped_and_deleted_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log_to_clean(tmp_path)
    expected = log.offset_for_time(0)
    find = SegmentReader.find_time

    def swap_first(segment: SegmentReader, *arguments: Any) -> Any:
        monkeypatch.undo()
        swap_and_delete(log)
        segment.release()  # type: ignore[attr-defined]
        return find(segment, *arguments)

    monkeypatch.setattr(SegmentReader, "find_time", swap_first)
    found = log.offset_for_time(0)
    assert expected is not None
    assert found is not None
    assert (expected.offset, found.offset) == (0, 1)
