"""A reader works on the segments as they were when it began, whatever its owner does to the list meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from tests.log.compaction.compacting import a_compacted_log, compact, put
from tests.log.logs import ABORT, COMMITTED, all_replicated, clock_of, end_txn, in_txn, lead
from tidelog.errors import StorageError, TooManyFilesError
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.log_reader import LogReader


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
    log = a_compacted_log(tmp_path)
    for key in (1, 1, 2):
        put(log, key)
    log.roll()
    all_replicated(log)
    read = LogReader.read

    def swap_first(reader: LogReader[Any], *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        compact(log)
        clock_of(log).advance(log.config.file_delete_delay_ms)
        log.tick()
        for segment in log.segments:
            segment.release()  # as when too many files are open
        return read(reader, *arguments, **options)

    monkeypatch.setattr(LogReader, "read", swap_first)
    assert log.read(0, 1000).start.offset == 1


def test_a_swap_without_descriptors_takes_the_log_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `.swap` that is left in a log which goes on would replace, at the next start, what was appended since."""
    log = a_compacted_log(tmp_path)
    for _ in range(3):
        put(log, 1)
    log.roll()
    all_replicated(log)

    def refuse(fs: LocalFileSystem, path: str) -> None:
        raise TooManyFilesError(f"{path}: Too many open files")

    monkeypatch.setattr(LocalFileSystem, "sync_directory", refuse)
    with pytest.raises(StorageError, match="in the middle of a change"):
        compact(log)
    assert log.failure is not None


def test_a_truncation_without_descriptors_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_compacted_log(tmp_path)
    for _ in range(3):
        put(log, 1)
        log.roll()

    def refuse(fs: LocalFileSystem, path: str) -> None:
        raise TooManyFilesError(f"{path}: Too many open files")

    monkeypatch.setattr(LocalFileSystem, "sync_directory", refuse)
    with pytest.raises(StorageError, match="in the middle of a change"):
        log.truncate_to(1)
    assert log.failure is not None
