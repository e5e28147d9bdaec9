"""Scans over damage: what is only being written is looked at again, and what is broken costs as little as it can."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.log.logs import NOW, a_log, batch, fill, lead
from tests.view.scans import COLUMNS, rows_scanned, scan_of, some, view, write_log
from tidelog.errors import CorruptRecordError
from tidelog.log import LogConfig, UnifiedLog
from tidelog.log.files import ReadFile
from tidelog.records import Codec, NewRecord, build_batch
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.pieces import read_piece
from tidelog.view.scan import Scan

LOG = f"{0:020}.log"
NO_LENGTH = b"\x00\x00\x00\x02"
BATCHES = 40


def offsets_of(batches: Any) -> list[int]:
    return [row[2] for row in rows_scanned(batches)]


# -- what is being written ---------------------------------------------------------------------------------------------


class Rewritten(ReadOnlyFiles):
    """The local disk, on which `change` happens to the log between the planning of a scan and its reading."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__()
        self.change = change
        self.opened = 0

    __slots__ = ("change", "opened")

    def open(self, path: str) -> ReadFile:
        if path.endswith(".log"):
            self.opened += 1
            if self.opened == 3:  # for the end of the log, for the plan, and for its reader
                self.change()
        return super().open(path)


def test_a_batch_that_was_being_rewritten_is_looked_at_again(tmp_path: Path) -> None:
    """Its second half is not there yet when it is read first."""
    directory = write_log(tmp_path, [("put", Codec.NONE, some(5)), ("put", Codec.LZ4, some(5))])
    path = directory / LOG
    whole = path.read_bytes()

    class Settling(ReadOnlyFiles):
        """What is read of the log is half written until it is looked at anew."""

        __slots__ = ()

        def fresh(self) -> ReadOnlyFiles:
            path.write_bytes(whole)
            return ReadOnlyFiles()

    files = Settling()
    [piece] = scan_of(directory, files).pieces()
    path.write_bytes(whole[:-20] + bytes(20))
    assert offsets_of(read_piece(piece, COLUMNS, files=files)) == list(range(10))
    path.write_bytes(whole[:-20] + bytes(20))
    notices: list[str] = []
    assert offsets_of(read_piece(piece, COLUMNS, files=files, on_corruption="skip", notices=notices)) == list(range(10))
    assert notices == []


def test_a_log_that_was_cut_behind_the_plan_ends_where_it_was_cut(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [5, 5])

    def cut() -> None:
        log.truncate_to(7)
        lead(log, batch(1))
        with (Path(log.directory) / LOG).open("ab") as file:
            file.write(bytes(batch(4, base_offset=8))[:40])

    files = Rewritten(cut)
    assert offsets_of(scan_of(Path(log.directory), files)) == list(range(8))
    assert files.opened > 3


def test_what_is_wrong_twice_is_damage(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [("put", Codec.NONE, some(5))] * 3)
    path = directory / LOG
    size = path.stat().st_size // 3
    content = bytearray(path.read_bytes())
    content[size + 70] ^= 1
    path.write_bytes(content)
    batches = iter(scan_of(directory))
    assert offsets_of([next(batches)]) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecordError, match=rf"{LOG}, position {size}: .*crc"):
        next(batches)


# -- what is broken ----------------------------------------------------------------------------------------------------


def a_log_of_batches(root: Path, codec: Codec = Codec.NONE) -> tuple[Path, list[int]]:
    """Batches of three records, an index entry for about every third, and where they begin."""
    steps = [
        ("put", codec, [NewRecord(b"k", bytes([number]) * 60, NOW + number) for _ in range(3)])
        for number in range(BATCHES)
    ]
    directory = write_log(root, steps, index_interval_bytes=600)
    return directory, [header.position for header in view(directory).segments[0].batches()]


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def without(*lost: int) -> list[int]:
    return [offset for offset in range(3 * BATCHES) if offset // 3 not in lost]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_length_that_cannot_be_and_a_damaged_record_cost_one_batch(tmp_path: Path, threads: int) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    overwrite(directory / LOG, starts[10] + 8, NO_LENGTH)
    overwrite(directory / LOG, starts[10] + 70, b"??")
    scan = scan_of(directory, on_corruption="skip", threads=threads)
    assert offsets_of(scan) == without(10)
    [notice] = scan.notices
    assert f"{LOG}, position {starts[10]}: a batch length of 2" in notice
    assert f"these {starts[11] - starts[10]} bytes are left out, and offsets 30 to 32 with them" in notice


def test_an_index_entry_that_points_to_no_batch_is_passed_over(tmp_path: Path) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    index = view(directory).segments[0].open().offset_index
    first = index.upper_bound(starts[10] + 1)
    assert first is not None
    overwrite(directory / LOG, starts[10] + 8, NO_LENGTH + b"\xff" * 9)
    overwrite(directory / LOG, starts[10] + 70, b"??")
    overwrite(directory / LOG, first.position + 70, b"??")
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == without(10, starts.index(first.position))


def test_a_length_that_leads_into_the_midst_of_another_batch_costs_nothing(tmp_path: Path) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    size = starts[1] - starts[0]
    overwrite(directory / LOG, starts[10] + 8, (size + 30).to_bytes(4, "big"))
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == without()
    [notice] = scan.notices
    assert f"position {starts[10]}: " in notice
    assert notice.endswith(f": with a length of {size - 12} its checksum holds, and it is read")


@pytest.mark.parametrize("longer", [10, 268, 536, 600, -1])
def test_without_checksums_a_wrong_length_costs_nothing_either(tmp_path: Path, longer: int) -> None:
    """Also one that leads to another batch and covers those between."""
    directory, starts = a_log_without_an_index(tmp_path, False)
    size = starts[1] - starts[0]
    assert size == 268
    overwrite(directory / LOG, starts[10] + 8, (size - 12 + longer).to_bytes(4, "big"))
    scan = scan_of(directory, on_corruption="skip", verify=False)
    assert offsets_of(scan) == without()
    [notice] = scan.notices
    assert f"position {starts[10]}: " in notice
    assert notice.endswith(f": with a length of {size - 12} its checksum holds, and it is read")


@pytest.mark.parametrize("longer", [10, 536])
def test_without_checksums_what_is_left_out_is_told_with_its_own_bytes_and_offsets(tmp_path: Path, longer: int) -> None:
    directory, starts = a_log_without_an_index(tmp_path, False)
    size = starts[1] - starts[0]
    overwrite(directory / LOG, starts[10] + 8, (size - 12 + longer).to_bytes(4, "big"))
    overwrite(directory / LOG, starts[10] + 70, b"??")  # so that no length can be proven
    overwrite(directory / LOG, starts[20] + 61, b"\xff\xff")  # the length of a record
    overwrite(directory / LOG, starts[30] + 70, b"??")  # a value
    overwrite(directory / LOG, starts[31] + 70, b"??")
    scan = scan_of(directory, on_corruption="skip", verify=False)
    assert offsets_of(scan) == without(10, 20)
    lengthened, broken = scan.notices
    for number, notice in ((10, lengthened), (20, broken)):
        assert f"position {starts[number]}: " in notice
        assert notice.endswith(
            f": these {size} bytes are left out, and offsets {3 * number} to {3 * number + 2} with them"
        )


@pytest.mark.parametrize("number", [0, BATCHES - 2])
def test_without_checksums_all_is_read_that_is_read_with_them(tmp_path: Path, number: int) -> None:
    """Whichever bit of a header is flipped."""
    directory, starts = a_log_without_an_index(tmp_path, is_closed=True)
    whole = (directory / LOG).read_bytes()
    for bit in range(8 * 61):
        at = starts[number] + bit // 8
        overwrite(directory / LOG, at, bytes([whole[at] ^ 1 << bit % 8]))
        sound = offsets_of(scan_of(directory, on_corruption="skip"))
        scan = scan_of(directory, on_corruption="skip", verify=False)
        assert set(sound) <= set(offsets_of(scan)), f"bit {bit}"
        overwrite(directory / LOG, at, whole[at : at + 1])


def a_log_without_an_index(root: Path, is_closed: bool) -> tuple[Path, list[int]]:
    """The batches in one segment, and if that is closed one more in the next; where they begin."""
    put = ("put", Codec.NONE, [NewRecord(b"k", b"v" * 60, NOW)] * 3)
    steps: list[Any] = [put] * BATCHES + ([("roll",), put] if is_closed else [])
    directory = write_log(root, steps, index_interval_bytes=1 << 20)
    return directory, [each.position for each in view(directory).segments[0].batches()]


LENGTHS = {
    "none": NO_LENGTH,
    "huge": b"\x7f\xff\xff\xff",
    "too short": (64).to_bytes(4, "big"),
    "too long": (900).to_bytes(4, "big"),
}


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("number", [0, 10, BATCHES - 2])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "active"])
@pytest.mark.parametrize("is_damaged", [True, False], ids=["and a record", "alone"])
def test_a_wrong_length_costs_no_other_batch_without_an_index_too(
    tmp_path: Path, length: bytes, number: int, is_closed: bool, is_damaged: bool
) -> None:
    directory, starts = a_log_without_an_index(tmp_path, is_closed)
    overwrite(directory / LOG, starts[number] + 8, length)
    if is_damaged:
        overwrite(directory / LOG, starts[number] + 70, b"??")
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == without(*[number] * is_damaged) + [120, 121, 122] * is_closed
    assert len(scan.notices) == 1
    with pytest.raises(CorruptRecordError, match=LOG):
        offsets_of(scan_of(directory))


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "active"])
def test_a_page_of_zeros_and_an_inserted_byte_cost_the_batches_they_lie_in(tmp_path: Path, is_closed: bool) -> None:
    directory, starts = a_log_without_an_index(tmp_path, is_closed)
    more = [120, 121, 122] * is_closed
    path = directory / LOG
    whole = path.read_bytes()
    overwrite(path, 1024, bytes(512))
    hit = [n for n, at in enumerate(starts[:-1]) if at < 1536 and starts[n + 1] > 1024]
    assert offsets_of(scan_of(directory, on_corruption="skip")) == without(*hit) + more
    assert view(directory).log_end_offset == 120 + len(more)
    path.write_bytes(whole[: starts[20]] + b"?" + whole[starts[20] :])
    assert offsets_of(scan_of(directory, on_corruption="skip")) == without() + more


def test_a_batch_that_a_record_holds_is_no_batch_of_the_log(tmp_path: Path) -> None:
    """Its offset would fit, and the record around it is damaged."""
    held = bytearray(write_log(tmp_path / "other", [("put", Codec.NONE, some(2))]).joinpath(LOG).read_bytes())
    held[:8] = (4).to_bytes(8, "big")
    around = [NewRecord(b"k", b"?" * 50 + bytes(held) + b"!", NOW)] * 8
    steps = [("put", Codec.NONE, some(3)), ("put", Codec.NONE, around), ("put", Codec.NONE, some(3))]
    directory = write_log(tmp_path, steps)
    start = [each.position for each in view(directory).segments[0].batches()][1]
    overwrite(directory / LOG, start + 80, b"!!")
    assert offsets_of(scan_of(directory, on_corruption="skip")) == [0, 1, 2, 11, 12, 13]
    path = directory / LOG
    path.write_bytes(path.read_bytes()[: start + 12 + int.from_bytes(path.read_bytes()[start + 8 : start + 12], "big")])
    assert view(directory).log_end_offset == 3


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_neighbours_of_damaged_batches_are_all_there(tmp_path: Path, codec: Codec) -> None:
    directory, starts = a_log_of_batches(tmp_path, codec)
    for number in (0, 4, 5, 6, 20, BATCHES - 2):
        overwrite(directory / LOG, starts[number] + 70, b"??")
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == without(0, 4, 5, 6, 20, BATCHES - 2)
    assert len(scan.notices) == 4  # neighbours go together
    assert offsets_of(scan_of(directory, on_corruption="skip", from_offset=13, to_offset=61)) == [*range(21, 60)]


def test_a_length_that_leads_beyond_the_end_is_damage_to_every_reader(tmp_path: Path) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    overwrite(directory / LOG, starts[12] + 8, b"\x00\x75")
    what = rf"{LOG}, position {starts[12]}: the file ends inside a batch"
    with pytest.raises(CorruptRecordError, match=what):
        offsets_of(scan_of(directory))
    with pytest.raises(CorruptRecordError, match=what):
        list(view(directory).read())
    with pytest.raises(CorruptRecordError, match=what):
        list(view(directory).read(37, 60))
    assert offsets_of(scan_of(directory, on_corruption="skip")) == without()


def test_an_offset_that_cannot_be_costs_one_batch(tmp_path: Path) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    overwrite(directory / LOG, starts[10], b"\x01")
    with pytest.raises(CorruptRecordError, match=rf"position {starts[10]}: offset \d+ before 33"):
        offsets_of(scan_of(directory))
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == without(10)
    assert len(scan.notices) == 1


@pytest.mark.parametrize(
    ("position", "data"),
    [(0, b"\x01"), (23, b"\x00\x00\x00\x14"), (70, b"??")],
    ids=["a first offset behind the end", "a last offset further on", "a record"],
)
def test_a_header_that_lies_costs_no_other_batch_wherever_reading_begins(
    tmp_path: Path, position: int, data: bytes
) -> None:
    """Every two offsets are read alone, as the tasks of an engine would."""
    directory, starts = a_log_of_batches(tmp_path)
    overwrite(directory / LOG, starts[10] + position, data)
    for first in range(3 * BATCHES - 1):
        bounds = {"from_offset": first, "to_offset": first + 2}
        expected = [offset for offset in (first, first + 1) if offset // 3 != 10]
        assert offsets_of(scan_of(directory, on_corruption="skip", **bounds)) == expected
        try:
            found = offsets_of(scan_of(directory, **bounds))
        except CorruptRecordError:
            continue
        assert found == [first, first + 1]


def read_by_twos(directory: Path) -> list[int]:
    """Every two offsets alone, as the tasks of an engine would read them."""
    pairs = ({"from_offset": first, "to_offset": first + 2} for first in range(0, 3 * BATCHES, 2))
    return [offset for pair in pairs for offset in offsets_of(scan_of(directory, on_corruption="skip", **pair))]


def test_a_length_that_leads_past_other_batches_costs_none_wherever_reading_begins(tmp_path: Path) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    overwrite(directory / LOG, starts[4] + 8, (starts[20] + 40 - starts[4] - 12).to_bytes(4, "big"))
    assert offsets_of(scan_of(directory, on_corruption="skip")) == without()
    assert read_by_twos(directory) == without()
    overwrite(directory / LOG, starts[4] + 70, b"??")
    assert offsets_of(scan_of(directory, on_corruption="skip")) == without(4)
    assert read_by_twos(directory) == without(4)


def test_a_segment_whose_end_lies_too_costs_no_other_batch(tmp_path: Path) -> None:
    """Two first offsets cannot be, one of them that of the last batch: where the segment ends is not to be had."""
    records = [NewRecord(b"k", bytes(60), NOW) for _ in range(3)]
    directory = tmp_path / "orders-0"
    with UnifiedLog.open(directory, LogConfig(segment_bytes=5000, index_interval_bytes=600)) as log:
        for _ in range(BATCHES):
            log.append(records)
    batches = list(view(directory).segments[0].batches())
    assert len(batches) < BATCHES
    for number in (10, len(batches) - 1):
        overwrite(directory / LOG, batches[number].position, b"\x01")
    assert read_by_twos(directory) == without(10, len(batches) - 1)


def test_of_two_batches_that_overlap_the_one_behind_a_gap_is_wrong(tmp_path: Path) -> None:
    directory, starts = a_log_of_batches(tmp_path)
    overwrite(directory / LOG, starts[10], (75).to_bytes(8, "big"))  # as if it came behind many that follow it
    with pytest.raises(CorruptRecordError, match=rf"position {starts[10]}: offset 77 before 33"):
        offsets_of(scan_of(directory))
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == without(10)
    assert len(scan.notices) == 1


@pytest.mark.parametrize("index_interval_bytes", [200, 100_000])
@pytest.mark.parametrize("further", [1, 2, 3, 100, 1 << 33])
def test_a_last_batch_is_given_after_one_whose_first_offset_is_too_far_on(
    tmp_path: Path, further: int, index_interval_bytes: int
) -> None:
    """Nothing follows the last batch; but without gaps before it, the one that fits before it is the wrong one."""
    steps = [("put", Codec.NONE, some(2)) for _ in range(6)]
    directory = write_log(tmp_path, steps, index_interval_bytes=index_interval_bytes)
    position = list(view(directory).segments[0].batches())[4].position
    overwrite(directory / LOG, position, (8 + further).to_bytes(8, "big"))
    for verify in (True, False):
        scan = scan_of(directory, on_corruption="skip", verify=verify)
        assert offsets_of(scan) == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
        [notice] = scan.notices
        assert "offsets 8 to 9 with them" in notice


class Counting(ReadOnlyFiles):
    """The local disk, on which the bytes that are read of a log are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    __slots__ = ("count",)

    def open(self, path: str) -> ReadFile:
        file = super().open(path)
        return CountingFile(self, file) if path.endswith(".log") else file  # type: ignore[return-value]

    def fresh(self) -> "Counting":
        return self


class CountingFile:
    def __init__(self, files: Counting, file: ReadFile) -> None:
        self._files = files
        self._file = file

    def read_into(self, position: int, target: memoryview) -> int:
        count = self._file.read_into(position, target)
        self._files.count += count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_log_of_many_damaged_batches_is_not_read_as_often(tmp_path: Path) -> None:
    batches = [bytearray(batch([NewRecord(b"k", bytes(4000), NOW)], base_offset=offset)) for offset in range(1000)]
    for each in batches[::10]:
        each[-1] ^= 1
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / LOG).write_bytes(b"".join(batches))
    files = Counting()
    scan = Scan.of(lambda: [PartitionView.at(files, str(directory))], columns=COLUMNS, on_corruption="skip")
    assert offsets_of(scan) == [offset for offset in range(1000) if offset % 10]
    assert files.count < 10 * sum(map(len, batches))


def test_a_first_offset_too_far_on_is_told_where_one_chunk_ends_and_the_next_begins(tmp_path: Path) -> None:
    """The file is read in chunks of 8 MiB; the batch that lies is the last that the first of them holds whole."""
    directory = tmp_path / "orders-0"
    with UnifiedLog.open(directory, LogConfig()) as log:
        for number in range(20):
            log.append([NewRecord(b"k", bytes(1_000_000), NOW + number)])
    inside = [each for each in view(directory).segments[0].batches() if each.position + each.size <= 8 << 20]
    overwrite(directory / LOG, inside[-1].position, (15).to_bytes(8, "big"))
    for read in (lambda: offsets_of(scan_of(directory)), lambda: list(view(directory).read())):
        with pytest.raises(CorruptRecordError, match=f"position {inside[-1].position}: offset 15 before {len(inside)}"):
            read()
    scan = scan_of(directory, on_corruption="skip")
    assert offsets_of(scan) == [offset for offset in range(20) if offset != len(inside) - 1]
    assert len(scan.notices) == 1


def a_log_without_entries(root: Path) -> tuple[Path, list[int]]:
    """The same batches with an index that leads nowhere, and where they begin."""
    steps = [("put", Codec.NONE, [NewRecord(b"k", bytes(60), NOW)] * 3) for _ in range(BATCHES)]
    directory = write_log(root, steps, index_interval_bytes=1 << 20)
    return directory, [each.position for each in view(directory).segments[0].batches()]


@pytest.mark.parametrize("make", [a_log_of_batches, a_log_without_entries])
@pytest.mark.parametrize("offset", [75, 200, 27], ids=["further on", "behind the end", "further back"])
def test_no_piece_begins_with_a_batch_whose_first_offset_lies(
    tmp_path: Path, make: Callable[[Path], tuple[Path, list[int]]], offset: int
) -> None:
    directory, starts = make(tmp_path)
    overwrite(directory / LOG, starts[10], offset.to_bytes(8, "big"))
    for max_bytes in range(100, 3000, 100):
        pieces = scan_of(directory, on_corruption="skip").pieces(max_bytes)
        found = [offsets_of(read_piece(piece, COLUMNS, on_corruption="skip")) for piece in pieces]
        assert sum(found, []) == without(10)


def test_a_range_that_begins_behind_a_first_offset_that_lies_is_not_taken_for_empty(tmp_path: Path) -> None:
    directory, starts = a_log_without_entries(tmp_path)
    overwrite(directory / LOG, starts[10], (75).to_bytes(8, "big"))
    assert offsets_of(scan_of(directory, on_corruption="skip", from_offset=40, to_offset=50)) == list(range(40, 50))
    with pytest.raises(CorruptRecordError, match=rf"position {starts[10]}: offset 77 before 33"):
        offsets_of(scan_of(directory, from_offset=40, to_offset=50))


@pytest.mark.parametrize("seed", range(40))
def test_over_any_damage_the_count_is_that_of_the_rows_and_every_row_is_a_true_one(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    directory, starts = a_log_of_batches(tmp_path, rng.choice([Codec.NONE, Codec.GZIP]))
    true = rows_scanned(scan_of(directory))
    path = directory / LOG
    hit = set()
    for _ in range(rng.randrange(1, 6)):
        number = rng.randrange(BATCHES - 3)  # the last ones, if damaged, would be the end
        hit.add(number)
        # The first eight bytes are the base offset, which is under no checksum.
        overwrite(path, rng.randrange(starts[number] + 8, starts[number + 1]), rng.randbytes(1))
    options: dict[str, Any] = {"on_corruption": "skip"}
    if rng.random() < 0.5:
        options["from_offset"], options["to_offset"] = rng.randrange(60), rng.randrange(60, 120)
    wanted = [row for row in true if options.get("from_offset", 0) <= row[2] < options.get("to_offset", 200)]
    scan = scan_of(directory, **options)
    rows = rows_scanned(scan)
    assert scan.count() == len(rows)
    assert rows == [row for row in wanted if row in rows]
    assert len(rows) >= len(wanted) - 3 * len(hit)
    for pieces in (scan.pieces(700), scan.pieces()):
        batches = (piece_batch for piece in pieces for piece_batch in read_piece(piece, COLUMNS, on_corruption="skip"))
        assert rows_scanned(batches) == rows


# -- segments that are not where they belong ---------------------------------------------------------------------------


@pytest.mark.parametrize("exchanged", [(1, 2), (0, 1), (-2, -1)])
def test_segments_that_were_exchanged_are_told_of_and_not_passed_over(
    tmp_path: Path, exchanged: tuple[int, int]
) -> None:
    with a_log(tmp_path) as log:
        fill(log, [5, 4, 6, 3])
        count = log.log_end_offset
    one, other = (sorted(tmp_path.glob("*/*.log"))[number] for number in exchanged)
    one_content, other_content = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_content)
    other.write_bytes(one_content)
    logs = tidelog.open(tmp_path)
    [partition] = logs
    with pytest.raises(CorruptRecordError, match=r"holds offsets up to .* `tidelog fsck`"):
        list(partition.read())
    with pytest.raises(CorruptRecordError, match="holds offsets up to"):
        partition.scan().to_table()
    scan = partition.scan(columns=["offset"], on_corruption="skip")
    assert scan.to_table().num_rows < count
    assert any("holds offsets up to" in notice for notice in scan.notices)


def test_an_old_batch_after_the_end_is_not_the_end_of_the_log(tmp_path: Path) -> None:
    """A page of another place: its batch is sound, and its offsets are smaller than those before it."""
    batches = [build_batch([NewRecord(None, b"%d" % number, 0)], base_offset=number) for number in range(50)]
    (tmp_path / "orders-0").mkdir()
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.write_bytes(b"".join(batches) + b"\xff" * 40 + batches[7])
    partition = tidelog.open(tmp_path)["orders", 0]
    assert partition.log_end_offset == 50
    assert partition.notices
