"""Scans of a log that is compacted, rolled and cut while they are read, one rename after the other."""

from pathlib import Path
from typing import Any

from tests.log.compaction.compacting import compact
from tests.log.logs import clock_of, fill
from tests.view.scans import COLUMNS, rows_read, rows_scanned, scan_of, view
from tests.view.test_under_feet import Watched, a_log_of_everything
from tidelog.view.pieces import read_piece


def offsets_of(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[2] for row in rows]


def test_a_scan_at_any_moment_of_a_compaction_gives_what_is_read_at_that_moment(tmp_path: Path) -> None:
    disk = Watched()
    log = a_log_of_everything(tmp_path, disk)
    directory = Path(log.directory)
    moments = []

    def look() -> None:
        for committed in (False, True):
            expected = rows_read(view(directory), committed=committed)
            assert rows_scanned(scan_of(directory, committed=committed)) == expected
        moments.append(len(expected))

    disk.then = look
    compact(log)
    assert len(moments) > 10
    assert moments[-1] < moments[0]


def test_a_scan_that_was_begun_before_ends_in_order_with_everything_that_is_left(tmp_path: Path) -> None:
    disk = Watched()
    log = a_log_of_everything(tmp_path, disk)
    directory = Path(log.directory)
    before = rows_read(view(directory))
    scans = []

    def step() -> None:
        """Each rename lets every scan that is under way read one RecordBatch more, and begins another."""
        scans.append((iter(scan_of(directory, to_offset=log.log_end_offset)), []))
        for batches, found in scans:
            batch = next(batches, None)
            if batch is not None:
                found += rows_scanned([batch])

    disk.then = step
    compact(log)
    fill(log, [1, 1, 1])
    log.tick()
    clock_of(log).advance(hours=1)
    log.tick()
    disk.then = lambda: None
    left = {row[2]: row for row in rows_read(view(directory))}
    assert len(scans) > 10
    for batches, found in scans:
        rows = found + rows_scanned(batches)
        assert offsets_of(rows) == sorted(set(offsets_of(rows)))
        assert set(rows_by_offset(rows)) >= {offset for offset in left if offset <= before[-1][2]}
        for offset, row in rows_by_offset(rows).items():
            assert offset not in left or left[offset] == row


def rows_by_offset(rows: list[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    return {row[2]: row for row in rows}


def test_pieces_that_were_planned_before_a_compaction_are_read_after_it(tmp_path: Path) -> None:
    log = a_log_of_everything(tmp_path, Watched())
    directory = Path(log.directory)
    pieces = scan_of(directory).pieces(200)
    compact(log)
    clock_of(log).advance(hours=1)
    log.tick()
    rows = rows_scanned(batch for piece in pieces for batch in read_piece(piece, COLUMNS))
    assert rows == rows_read(view(directory))
