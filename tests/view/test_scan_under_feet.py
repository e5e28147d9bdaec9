"""Scans of a log that is compacted, rolled and cut while they are read, one rename after the other."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.log.compaction.compacting import compact
from tests.log.logs import clock_of, fill
from tests.view.scans import COLUMNS, rows_read, rows_scanned, scan_of, some, view, write_log
from tests.view.test_under_feet import Watched, a_log_of_everything
from tidelog.log.files import ReadFile
from tidelog.records import Codec
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.pieces import Piece, read_piece


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


# -- what is gone ------------------------------------------------------------------------------------------------------


def a_log_of_three_segments(root: Path) -> Path:
    put = ("put", Codec.NONE, some(5))
    return write_log(root, [put, ("roll",), put, ("roll",), put])


def delete(directory: Path, segment: int) -> None:
    """Take a segment away, as retention does."""
    for path in directory.glob(f"{segment:020}.*"):
        path.unlink()


class Deleting(ReadOnlyFiles):
    """The local disk, on which a segment is deleted just before it is opened for the nth time."""

    __slots__ = ("directory", "opened", "segment", "turn")

    def __init__(self, directory: Path, segment: int, turn: int) -> None:
        super().__init__()
        self.directory, self.segment, self.turn, self.opened = directory, segment, turn, 0

    def open(self, path: str) -> ReadFile:
        if path.endswith(f"{self.segment:020}.log"):
            self.opened += 1
            if self.opened == self.turn:
                delete(self.directory, self.segment)
        return super().open(path)


def read_all(pieces: list[Piece], files: ReadOnlyFiles | None = None) -> tuple[list[int], list[str]]:
    """The offsets that pieces give, and what they say is lost."""
    lost: list[str] = []
    batches = (b for piece in pieces for b in read_piece(piece, COLUMNS, files=files, on_loss=lost.append))
    return offsets_of(rows_scanned(batches)), lost


def test_segments_that_are_deleted_behind_the_plan_are_told_of(tmp_path: Path) -> None:
    directory = a_log_of_three_segments(tmp_path)
    pieces = scan_of(directory).pieces()
    delete(directory, 0)
    assert read_all(pieces) == ([*range(5, 15)], ["offsets 0 to 4 of topic-0 are gone since they were planned"])
    notices: list[str] = []
    batches = (batch for piece in pieces for batch in read_piece(piece, COLUMNS, notices=notices))
    assert offsets_of(rows_scanned(batches)) == [*range(5, 15)]
    assert notices == ["offsets 0 to 4 of topic-0 are gone since they were planned"]


def test_a_scan_notes_what_was_deleted_under_its_feet(tmp_path: Path) -> None:
    directory = a_log_of_three_segments(tmp_path)
    scan = scan_of(directory)
    batches = iter(scan)
    assert offsets_of(rows_scanned([next(batches)])) == [*range(5)]
    delete(directory, 0)
    delete(directory, 5)
    assert offsets_of(rows_scanned(batches)) == [*range(10, 15)]
    assert scan.notices == ["offsets 5 to 9 of topic-0 are gone since they were planned"]


def test_a_log_that_ends_before_the_plan_is_told_of(tmp_path: Path) -> None:
    """As on a machine where another broker's copy lies at the same path."""
    directory = a_log_of_three_segments(tmp_path / "here")
    pieces = scan_of(directory).pieces()
    other = write_log(tmp_path / "there", [("put", Codec.NONE, some(5)), ("roll",), ("put", Codec.NONE, some(2))])
    shutil.rmtree(directory)
    shutil.copytree(other, directory)
    assert read_all(pieces) == (
        [*range(7)],
        ["topic-0 ends with offset 7 by now, before 10", "topic-0 ends with offset 7 by now, before 15"],
    )


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_segment_that_is_deleted_at_any_moment_is_told_of_or_read(tmp_path: Path, turn: int) -> None:
    """While it is planned, while the planned place is opened, and while its offsets are looked up anew."""
    directory = a_log_of_three_segments(tmp_path)
    files = Deleting(directory, 0, turn)
    pieces = scan_of(directory, files).pieces()
    if turn == 3:
        pieces[0] = pieces[0]._replace(start_offset=-1)  # what was planned does not lie there any more
    offsets, lost = read_all(pieces, files)
    assert files.opened >= turn
    assert offsets == [*range(5, 15)]
    assert lost == ["offsets 0 to 4 of topic-0 are gone since they were planned"]


def test_what_a_compaction_takes_out_is_no_loss(tmp_path: Path) -> None:
    log = a_log_of_everything(tmp_path, Watched())
    directory = Path(log.directory)
    pieces = scan_of(directory).pieces(200)
    compact(log)
    clock_of(log).advance(hours=1)
    log.tick()
    offsets, lost = read_all(pieces)
    assert offsets == offsets_of(rows_read(view(directory)))
    assert offsets != [*range(len(offsets))]
    assert lost == []
