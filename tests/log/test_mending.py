"""Indexes that are made anew while the log goes on: what may happen to the segment, and to the work."""

from pathlib import Path

import pytest

from tests.log.logs import NOW, a_log, batch, lead
from tidelog.errors import TooManyFilesError
from tidelog.log import UnifiedLog
from tidelog.log.files import WriteFile
from tidelog.log.indexer import rebuild_indexes
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.offset_index import OffsetIndex
from tidelog.log.time_index import TimeIndex


def a_filled_log(home: Path) -> UnifiedLog:
    log = a_log(home, index_interval_bytes=0)
    for number in range(20):
        lead(log, batch(1, timestamp_ms=NOW + number))
    return log


def rebuilt_files(log: UnifiedLog) -> list[str]:
    return [path.name for path in Path(log.directory).iterdir() if "rebuilt" in path.name]


def test_a_segment_that_is_rolled_meanwhile_gets_indexes_without_spare_room(tmp_path: Path) -> None:
    log = a_filled_log(tmp_path)
    segment = log.active_segment
    work = rebuild_indexes(log.local.fs, segment, log.config, is_active=lambda: segment is log.active_segment)
    next(work)
    log.roll()
    for _ in work:
        pass
    assert Path(segment.offset_index.path).stat().st_size == 19 * 8
    assert segment.time_index.last_entry.offset == 19
    assert rebuilt_files(log) == []


def test_a_segment_that_is_cut_meanwhile_keeps_the_indexes_that_were_cut_with_it(tmp_path: Path) -> None:
    log = a_filled_log(tmp_path)
    segment = log.active_segment
    work = log._upkeep._mend(segment)
    next(work)
    log.truncate_to(5)
    for _ in work:
        pass
    assert segment.offset_index.last_offset == 4
    assert rebuilt_files(log) == []


def test_work_that_found_no_descriptor_has_another_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_filled_log(tmp_path)
    log.active_segment.wrong_index = "something"
    open_write = LocalFileSystem.open_write

    def refuse(fs: LocalFileSystem, path: str, *, create: bool = True) -> WriteFile:
        if "rebuilt" in path:
            raise TooManyFilesError(f"{path}: Too many open files")
        return open_write(fs, path, create=create)

    monkeypatch.setattr(LocalFileSystem, "open_write", refuse)
    log.tick()
    assert (log.failure, log.active_segment.wrong_index) == (None, "something")
    monkeypatch.undo()
    log.tick()
    assert log.active_segment.wrong_index is None


def test_a_flush_beside_the_exchange_writes_nothing_into_the_new_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_filled_log(tmp_path)
    segment = log.active_segment
    old = segment.offset_index
    assert old._tail[1]  # rows that the file lacks
    rename = OffsetIndex.rename_to

    def flush_behind(index: OffsetIndex, path: str) -> None:
        rename(index, path)
        old.flush()  # by a thread that took the index before

    offsets = OffsetIndex(log.local.fs, f"{old.path}.new", 0, log.config.segment_index_bytes)
    times = TimeIndex(log.local.fs, f"{segment.time_index.path}.new", 0, log.config.segment_index_bytes)
    times.flush()
    offsets.flush()
    monkeypatch.setattr(OffsetIndex, "rename_to", flush_behind)
    segment.take_indexes(offsets, times)
    assert not any(Path(old.path).read_bytes())
