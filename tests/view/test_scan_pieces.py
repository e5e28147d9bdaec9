"""Pieces of a scan: what is read of a file, what happens when files change or are damaged under the reader."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.log.logs import NOW
from tests.view.scans import COLUMNS, rows_read, rows_scanned, scan_of, some, view, write_log
from tidelog.errors import CorruptionError, CorruptRecordError
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.records import Codec, NewRecord
from tidelog.view.counted_files import CountedFiles
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.pieces import Piece, read_piece
from tidelog.view.scan import Scan


def offsets_of(batches: Any) -> list[int]:
    return [row[2] for row in rows_scanned(batches)]


def read_all(pieces: list[Piece]) -> list[int]:
    return offsets_of(batch for piece in pieces for batch in read_piece(piece, COLUMNS))


def a_long_log(root: Path, batches: int, **config: Any) -> Path:
    """Batches of 5 records and about 5 KiB, each a second behind the last."""
    value = bytes(1000)
    steps = [
        ("put", Codec.NONE, [NewRecord(b"key", value, NOW - 10_000_000 + 1000 * number + n) for n in range(5)])
        for number in range(batches)
    ]
    return write_log(root, steps, **{"index_interval_bytes": 4096, "segment_index_bytes": 1 << 20, **config})


def bytes_read(files: CountedFiles) -> int:
    return sum(reads.bytes for reads in files.reads.values())


# -- what is read ------------------------------------------------------------------------------------------------------


def test_pieces_are_about_as_large_as_asked_for_and_hold_each_row_once(tmp_path: Path) -> None:
    log = a_long_log(tmp_path, 600, segment_bytes=1 << 20)
    pieces = scan_of(log).pieces(150_000)
    assert len(view(log).segments) == 3
    assert 18 <= len(pieces) <= 24
    assert max(piece.size for piece in pieces) < 165_000
    assert read_all(pieces) == list(range(3000))
    assert [piece.limit_offset for piece in pieces[:-1]] == [piece.first_offset for piece in pieces[1:]]


@pytest.mark.parametrize("is_missing", [True, False])
def test_pieces_are_cut_without_an_index_too(tmp_path: Path, is_missing: bool) -> None:
    log = a_long_log(tmp_path, 100)
    index = log / "00000000000000000000.index"
    if is_missing:
        index.unlink()
    else:
        index.write_bytes(b"\x00\x00\x00\x07\x00\x00\x03\xe8" + b"\x00\x00\x01\x00\x00\x03\x00\x00")
    pieces = scan_of(log).pieces(50_000)
    assert len(pieces) == 10
    assert read_all(pieces) == list(range(500))


def test_a_hundredth_of_the_time_is_a_hundredth_of_the_bytes(tmp_path: Path) -> None:
    log = a_long_log(tmp_path, 4000, segment_bytes=8 << 20)
    whole = sum(path.stat().st_size for path in log.glob("*.log"))
    files = CountedFiles(ReadOnlyFiles())
    start = NOW - 10_000_000 + 2_000_000
    scan = scan_of(log, files, from_time=start, to_time=start + 40_000, max_lateness=0)
    assert offsets_of(scan) == list(range(10_000, 10_200))
    assert bytes_read(files) <= 0.012 * whole + (1 << 20)


def test_some_offsets_are_some_of_the_bytes(tmp_path: Path) -> None:
    log = a_long_log(tmp_path, 2000)
    files = CountedFiles(ReadOnlyFiles())
    assert offsets_of(scan_of(log, files, from_offset=5003, to_offset=5018)) == list(range(5003, 5018))
    assert bytes_read(files) < 200_000


def test_a_count_by_headers_opens_no_record(tmp_path: Path) -> None:
    """A body that cannot be decompressed does not matter to who counts."""
    log = write_log(tmp_path, [("put", Codec.GZIP, some(7)), ("put", Codec.GZIP, some(2))])
    _damage(log, 61)
    assert scan_of(log).count() == 9
    with pytest.raises(CorruptionError):
        offsets_of(scan_of(log, verify=False))


# -- what changes ------------------------------------------------------------------------------------------------------


def test_every_reading_takes_a_new_look_unless_the_scan_is_pinned(tmp_path: Path) -> None:
    log = write_log(tmp_path, [("put", Codec.NONE, some(2))])
    scan = scan_of(log)
    pinned = scan.pinned()
    assert (scan.count(), pinned.count()) == (2, 2)
    with UnifiedLog.open(str(log), LogConfig(), clock=ManualClock(NOW)) as more:
        more.append(some(3))
    assert (offsets_of(scan), scan.count()) == ([0, 1, 2, 3, 4], 5)
    assert (offsets_of(pinned), pinned.count()) == ([0, 1], 2)


def test_a_piece_whose_segment_was_swapped_is_found_by_its_offsets(tmp_path: Path) -> None:
    put = [("put", Codec.NONE, some(2)), ("put", Codec.NONE, some(3))]
    log = write_log(tmp_path / "a", [*put, ("roll",), *put, ("roll",), *put])
    pieces = scan_of(log).pieces(1)
    assert len(pieces) == 6
    merged = write_log(tmp_path / "b", [*put, *put, *put])  # as if compaction had made one segment of three
    for name in os.listdir(log):
        if "." in name and not name.endswith("metadata"):
            (log / name).unlink()
    for name in os.listdir(merged):
        os.replace(merged / name, log / name)
    assert [read_all([piece]) for piece in pieces] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9], [10, 11], [12, 13, 14]]


def test_a_piece_in_whose_place_other_batches_lie_is_found_by_its_offsets(tmp_path: Path) -> None:
    log = write_log(tmp_path, [("put", Codec.NONE, some(2))] * 4)
    pieces = scan_of(log).pieces(1)
    path = log / f"{0:020}.log"
    compacted = tmp_path / "compacted"
    compacted.write_bytes(path.read_bytes()[path.stat().st_size // 4 :])  # the first batch is gone, the others move up
    os.replace(compacted, path)
    (log / f"{0:020}.index").write_bytes(b"")
    assert len(pieces) == 3
    assert [read_all([piece]) for piece in pieces] == [[2, 3], [4, 5], [6, 7]]


def test_a_piece_whose_segment_was_deleted_is_empty(tmp_path: Path) -> None:
    put = ("put", Codec.NONE, some(2))
    log = write_log(tmp_path, [put, ("roll",), put])
    pieces = scan_of(log).pieces()
    for path in log.glob("00000000000000000000.*"):
        path.unlink()
    assert [read_all([piece]) for piece in pieces] == [[], [2, 3]]


def test_a_segment_that_is_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    log = a_long_log(tmp_path, 4000)  # 20 MB: several windows
    batches = iter(scan_of(log))
    seen = offsets_of([next(batches)])
    for path in log.glob("*.log"):
        path.rename(path.with_suffix(".log.deleted"))
    assert seen + offsets_of(batches) == list(range(20_000))


# -- what is damaged ---------------------------------------------------------------------------------------------------


def _damage(log: Path, position: int, segment: int = 0, data: bytes | None = None) -> None:
    path = log / f"{segment:020}.log"
    content = bytearray(path.read_bytes())
    content[position : position + len(data or b"x")] = data or bytes([content[position] ^ 0xFF])
    path.write_bytes(content)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three segments of three batches of two records; a batch has 93 bytes."""
    puts = [("put", Codec.NONE, some(2))] * 3
    return write_log(tmp_path, [*puts, ("roll",), *puts, ("roll",), *puts])


def _batch_size(log: Path) -> int:
    return (log / f"{0:020}.log").stat().st_size // 3


def test_rows_before_the_damage_are_given_and_then_it_is_named(damaged: Path) -> None:
    _damage(damaged, _batch_size(damaged) + 70)
    batches = iter(scan_of(damaged))
    assert offsets_of([next(batches)]) == [0, 1]
    with pytest.raises(CorruptRecordError, match=r"00000000000000000000.log, position \d+: .*crc"):
        next(batches)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_damaged_batch_is_left_out_and_told_of_if_so_wanted(damaged: Path, threads: int) -> None:
    size = _batch_size(damaged)
    _damage(damaged, size + 70)
    scan = scan_of(damaged, on_corruption="skip", threads=threads)
    for _ in range(2):
        assert offsets_of(scan) == [0, 1, *range(4, 18)]
        [notice] = scan.notices
        assert f"00000000000000000000.log, position {size}: " in notice
        assert f"these {size} bytes are left out" in notice


def test_a_length_that_cannot_be_is_proven_by_the_next_batch_if_no_index_helps(damaged: Path) -> None:
    size = _batch_size(damaged)
    _damage(damaged, size + 8, segment=6, data=b"\x00\x00\x00\x02")
    (damaged / f"{6:020}.index").unlink()
    with pytest.raises(CorruptionError, match="00000000000000000006.log"):
        offsets_of(scan_of(damaged))
    scan = scan_of(damaged, on_corruption="skip")
    assert offsets_of(scan) == [*range(18)]
    [notice] = scan.notices
    assert notice.endswith(f"with a length of {size - 12} its checksum holds, and it is read")
    _damage(damaged, size + 70, segment=6)
    scan = scan_of(damaged, on_corruption="skip")
    assert offsets_of(scan) == [*range(8), *range(10, 18)]
    [notice] = scan.notices
    assert f"these {size} bytes are left out, and offsets 8 to 9 with them" in notice


def test_a_segment_that_ends_inside_a_batch_is_damaged_unless_it_is_the_last(damaged: Path) -> None:
    for segment in (6, 12):
        path = damaged / f"{segment:020}.log"
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptionError, match="00000000000000000006.log"):
        offsets_of(scan_of(damaged))
    scan = scan_of(damaged, on_corruption="skip")
    assert offsets_of(scan) == [*range(10), *range(12, 16)]
    assert len(scan.notices) == 1


def test_a_header_that_keeps_its_batch_out_must_be_sound(damaged: Path) -> None:
    """A flipped bit must not make a control batch of data, and so lose its records in silence."""
    _damage(damaged, 21, data=b"\x00\x20")
    with pytest.raises(CorruptRecordError):
        offsets_of(scan_of(damaged))
    scan = scan_of(damaged, on_corruption="skip")
    assert offsets_of(scan) == list(range(2, 18))
    assert len(scan.notices) == 1
    assert offsets_of(scan_of(damaged, verify=False)) == list(range(2, 18))


def test_damage_that_no_row_is_asked_of_is_no_matter(damaged: Path) -> None:
    _damage(damaged, 70)
    assert offsets_of(scan_of(damaged, from_offset=6)) == list(range(6, 18))


def test_a_time_lookup_over_damage_reads_all_of_the_log(damaged: Path) -> None:
    (damaged / f"{0:020}.timeindex").unlink()
    _damage(damaged, 8, data=b"\x00\x00\x00\x02")
    scan = scan_of(damaged, from_time=NOW + 1, on_corruption="skip")
    assert offsets_of(scan) == [1, 3, 5, 7, 9, 11, 13, 15, 17]
    assert scan.notices


def test_committed_rows_over_pieces_are_those_that_are_read(tmp_path: Path) -> None:
    steps: list[Any] = []
    for number in range(30):
        steps += [("txn", 11, some(2)), ("put", Codec.NONE, some(1)), ("txn", 12, some(1))]
        steps += [("end", 11 + number % 2, number % 3 == 0)] + [("roll",)] * (number % 7 == 0)
    log = write_log(tmp_path, steps)
    expected = rows_read(view(log), committed=True)
    scan = scan_of(log, committed=True)
    assert 0 < len(expected) < len(rows_read(view(log)))
    assert read_all(scan.pieces(200)) == [row[2] for row in expected]


def test_a_scan_of_no_partition_is_empty() -> None:
    scan = Scan.of(list)
    assert scan.count() == 0
    assert scan.to_table().num_rows == 0
