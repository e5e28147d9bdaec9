"""Batches that stand where another one belongs: they go where their offsets say, and are never given another's."""

import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fsck import roots
from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.test_check import batch_starts
from tests.fsck.test_repair import manifest, offsets_in, repaired
from tests.fsck.test_segment_scan import scanned
from tidelog.fsck import RepairResult
from tidelog.fsck.batch_order import lay_out
from tidelog.records import NewRecord, build_batch

LARGEST_OFFSET = (1 << 63) - 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def batches_in(log: Path) -> list[bytes]:
    starts, data = batch_starts(log), log.read_bytes()
    return [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=False) if end > start]


def codes_in(result: RepairResult) -> set[str]:
    return {finding.code for finding in result.before.findings}


@pytest.mark.parametrize("partition", ["orders-0", "orders-1", "old-0"])
@pytest.mark.parametrize(("one", "two"), [(0, 1), (1, 2), (0, -1), (1, -2)])
def test_batches_that_changed_places_within_a_file_are_put_back(root: Path, partition: str, one: int, two: int) -> None:
    log = segment(root, 1, partition=partition)
    before, batches = contents(root), batches_in(log)
    batches[one], batches[two] = batches[two], batches[one]
    log.write_bytes(b"".join(batches))
    result = repaired(root)
    assert result.is_clean
    assert contents(root)[f"{partition}/{log.name}"] == before[f"{partition}/{log.name}"]
    assert not [entry for entry in manifest(result) if str(entry["file"]).endswith(".log")]


def test_batches_of_one_size_that_changed_places_beside_other_damage_keep_their_offsets(root: Path) -> None:
    """Each fills the hole that the other has left, and no offset is damaged."""
    log = segment(root)
    batches = batches_in(log)
    wanted = [offset for offset in offsets_in(log) if offset not in (6, 7)]
    batches[1], batches[5] = batches[5], batches[1]  # one record each
    batches[3] = batches[3][:-1] + b"\xff"
    log.write_bytes(b"".join(batches))
    assert "LOG-OFFSET" not in codes_in(result := repaired(root))
    assert result.is_clean
    assert offsets_in(log) == wanted


def test_a_segment_behind_another_in_the_same_file_is_a_copy(root: Path) -> None:
    """Together they leave no gap; but the offsets of the first belong to the file before."""
    before = contents(root)
    log = segment(root, 1)
    log.write_bytes(log.read_bytes() + segment(root).read_bytes())
    assert repaired(root).is_clean
    assert contents(root)[f"orders-0/{log.name}"] == before[f"orders-0/{log.name}"]


def test_a_batch_that_was_written_over_another_is_not_given_its_offset(root: Path) -> None:
    log = segment(root, 3)
    batches = batches_in(log)
    records = offsets_in(log)
    lost = records[-2:]
    copied = next(number for number, batch in enumerate(batches) if len(batch) == len(batches[-1]) and number < 8)
    log.write_bytes(b"".join([*batches[:-1], batches[copied]]))
    result = repaired(root)
    assert result.is_clean
    assert offsets_in(log) == [offset for offset in records if offset not in lost]
    assert "LOG-OFFSET" not in codes_in(result)


@pytest.mark.parametrize("number", [0, 2, -1])
def test_an_offset_that_leaves_no_room_for_the_records_of_its_batch_is_put_right(root: Path, number: int) -> None:
    """The last offset of such a batch is no number of 64 bits: it must not pass for a small one."""
    log = segment(root, 1, partition="orders-1")
    before = log.read_bytes()
    start = batch_starts(log)[: len(batches_in(log))][number]
    log.write_bytes(before[:start] + LARGEST_OFFSET.to_bytes(8, "big") + before[start + 8 :])
    result = repaired(root)
    assert result.is_clean
    assert "LOG-OFFSET" in codes_in(result)
    assert log.read_bytes() == before


def test_where_the_neighbours_do_not_tell_it_such_a_batch_goes_to_the_quarantine(root: Path) -> None:
    log = segment(root, partition="keys-0")
    before = log.read_bytes()
    damaged = LARGEST_OFFSET.to_bytes(8, "big") + before[8:]
    log.write_bytes(damaged)
    result = repaired(root)
    assert result.is_clean
    (entry,) = [one for one in manifest(result) if one["code"] == "LOG-ORDER" and str(one["file"]).endswith(".log")]
    assert (Path(result.quarantine[0]) / str(entry["piece"])).read_bytes() == damaged


@given(st.permutations(range(7)), st.lists(st.integers(1, 3), min_size=7, max_size=7), st.booleans())
@example([0, 3, 2, 1, 4, 5, 6], [2] * 7, True)
@example([0, 1, 6, 3, 4, 5, 2], [1] * 7, False)
@settings(deadline=None)
def test_in_whatever_order_all_batches_of_a_file_stand_each_gets_its_place(
    order: list[int], counts: list[int], is_closed: bool
) -> None:
    batches, offset = [], 0
    for count in counts:
        records = [NewRecord(b"k", b"v", offset)] * count
        batches.append(bytes(build_batch(records, base_offset=offset)))
        offset += count
    facts = scanned(b"".join(batches[number] for number in order))
    layout = lay_out([facts], closed_at=offset if is_closed else None)
    moved = [one for placed in layout.moved for one in placed.run.of([facts])["first"].tolist()]
    kept = facts.batches[layout.in_place[0]]["first"].tolist()
    assert (layout.shifted, layout.out_of_order) == ([], [])
    assert kept == sorted(kept)
    assert sorted([*kept, *moved]) == sorted(facts.batches["first"].tolist())


# -- headers, and batches that came with a page ------------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 3, 9, 13, 17, 24, 30, 31])
@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_flipped_bit_of_a_batch_length_costs_no_record(root: Path, number: int, bit: int) -> None:
    """The checksum holds with the length that the next batch, or the end of the file, proves."""
    log = segment(root, 2)
    before = log.read_bytes()
    flip(log, batch_starts(log)[number] + 8 + bit // 8, bit % 8)
    result = repaired(root)
    assert result.is_clean
    assert log.read_bytes() == before
    assert {entry["code"] for entry in manifest(result)} == {"LOG-LENGTH"}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_bit_of_a_batch_length_costs_no_batch_of_megabytes(number: int) -> None:
    """Of whatever records: in those that hold small numbers, many positions look like the start of a batch."""
    rng = random.Random(number)
    numbers = b"".join(rng.randrange(300).to_bytes(rng.choice((2, 4, 8)), "big") for _ in range(1000))
    values = rng.randbytes(5 << 20), bytes(5 << 20), numbers * 1100
    batches = [bytearray(build_batch([NewRecord(b"k", one, 9)], base_offset=at)) for at, one in enumerate(values)]
    for bit in (0, 6):
        for prefix in (b"", b"\x07"):
            damaged = [bytes(batch) for batch in batches]
            header = bytearray(batches[number][:12])
            header[8] ^= 1 << bit
            damaged[number] = prefix + bytes(header) + damaged[number][12:]
            facts = scanned(b"".join(damaged), window=1 << 20, deep=False)
            start = sum(len(batch) for batch in damaged[:number]) + len(prefix)
            *_, damage = facts.damage
            assert (damage.position, damage.size) == (start, len(batches[number]))
            assert damage.right is not None
            assert damage.right.data[:4] == batches[number][8:12]


def test_wrong_lengths_of_all_batches_are_put_right_in_one_round(tmp_path: Path) -> None:
    batches = [bytes(build_batch([NewRecord(b"k", b"v" * at, 9)] * 2, base_offset=2 * at)) for at in range(30)]
    log = roots.a_root(tmp_path / "logs", {"t-0": batches}) / "t-0" / f"{0:020}.log"
    before = log.read_bytes()
    for start in reversed(batch_starts(log)):
        flip(log, start + 8, 6)
    facts = scanned(log.read_bytes())
    assert [(damage.size, damage.right is not None) for damage in facts.damage] == [(len(one), True) for one in batches]
    repaired(tmp_path / "logs")
    assert log.read_bytes() == before


@pytest.mark.parametrize("partition", ["orders-0", "orders-1"])
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 7), (5, 1), (7, 1), (9, 1), (11, 2), (13, 1), (16, 1)])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_bytes_that_are_missing_before_the_checksum_of_a_batch_cost_no_record(
    root: Path, partition: str, number: int, start: int, count: int
) -> None:
    """The neighbours tell the offset, and the records are what they were."""
    log = segment(root, 1, partition=partition)
    before = log.read_bytes()
    at = batch_starts(log)[number] + start
    log.write_bytes(before[:at] + before[at + count :])
    result = repaired(root)
    assert result.is_clean
    assert log.read_bytes() == before
    (entry,) = [entry for entry in manifest(result) if entry["file"] == str(log)]
    assert (entry["code"], entry["position"], entry["size"]) == ("LOG-LENGTH", at - start, 17 - count)


@pytest.mark.parametrize("start", range(17))
def test_in_a_compacted_log_a_short_header_is_completed_if_its_offset_is_certain(tmp_path: Path, start: int) -> None:
    """The neighbours do not imply it there, but between theirs may be one only that has the bytes which are left."""
    for number, offsets in enumerate(([290, 300, 310], [3, 300, 4000], [3, 300, 1 << 30])):
        batches = [bytes(build_batch([NewRecord(b"k", b"v", 9)], base_offset=offset)) for offset in offsets]
        root = roots.a_root(tmp_path / f"logs{number}", {"t-0": batches})
        (root / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 300\n")
        log = root / "t-0" / f"{0:020}.log"
        before = log.read_bytes()
        at = len(batches[0]) + start
        log.write_bytes(before[:at] + before[at + 1 :])
        repaired(root)
        is_certain = start not in ((7,), (6, 7), range(8))[number]  # 300 is 0x012c; 0x2c is left of others, too
        assert (log.read_bytes() == before) == is_certain
        assert offsets_in(log) == (offsets if is_certain else [offsets[0], offsets[2]])


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_offset_that_one_inserted_byte_made_is_not_believed(root: Path, is_clean: bool) -> None:
    """The byte after the offset makes it a hundred times as large; everything else of the batch is sound."""
    log = segment(root, -1)
    before, records = log.read_bytes(), offsets_in(log)
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink()
    start = batch_starts(log)[-1]
    log.write_bytes(before[: start + 8] + b"\x62" + before[start + 8 :])
    result = repaired(root)
    assert result.is_clean
    assert log.read_bytes() == before
    assert offsets_in(log) == records
    epochs = (root / "orders-0" / "leader-epoch-checkpoint").read_text().split()
    assert epochs[-2:] == ["2", "59"]


def test_a_header_that_was_zeroed_is_written_by_what_its_neighbours_tell(root: Path) -> None:
    log = segment(root, 2)
    before = log.read_bytes()
    start = batch_starts(log)[3]
    log.write_bytes(before[:start] + bytes(17) + before[start + 17 :])
    assert repaired(root).is_clean
    assert log.read_bytes() == before


def test_the_offset_0_of_a_zeroed_header_is_not_believed_where_the_log_begins_with_it(root: Path) -> None:
    """What precedes the batch is zero too, so only the batch after it tells its offset."""
    log = segment(root, 0)
    before, records = log.read_bytes(), offsets_in(log)
    start = batch_starts(log)[2]
    first = records.index(int.from_bytes(before[start : start + 8], "big"))
    log.write_bytes(bytes(start + 17) + before[start + 17 :])
    repaired(root)
    assert offsets_in(log) == records[first:]


def test_a_sound_batch_inside_of_a_damaged_one_goes_to_where_it_is_missing(tmp_path: Path) -> None:
    """A page with a whole batch was written into a larger batch, and lost where it was."""
    batches = [
        bytes(build_batch([NewRecord(b"k", bytes([65 + number]) * size)], base_offset=number))
        for number, size in enumerate((30, 30, 2000, 30, 30))
    ]
    root = roots.a_root(tmp_path / "r", {"t-0": batches})
    log = root / "t-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    moved, size = len(batches[0]), len(batches[1])
    data[1000 : 1000 + size] = batches[1]
    data[moved + 20 : moved + size] = bytes(size - 20)
    log.write_bytes(data)
    repaired(root)
    assert batches_in(log) == [batches[0], batches[1], batches[3], batches[4]]


def test_a_batch_in_a_record_of_a_damaged_batch_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    inner = bytes(build_batch([NewRecord(b"inner", b"x" * 40)], base_offset=1))
    batches = [
        bytes(build_batch([NewRecord(b"k", value)], base_offset=number))
        for number, value in enumerate((b"a" * 30, inner, b"c" * 30))
    ]
    root = roots.a_root(tmp_path / "r", {"t-0": batches})
    log = root / "t-0" / f"{0:020}.log"
    flip(log, len(batches[0]) + 22 + 8)
    repaired(root)
    assert batches_in(log) == [batches[0], batches[2]]


def test_a_damaged_header_that_came_with_a_page_gets_the_offset_that_its_own_neighbour_tells(tmp_path: Path) -> None:
    """Damage with no room for a batch lies before it, and a batch of another place of the log beside it."""
    batches = [
        bytes(build_batch([NewRecord(b"k", bytes([65 + number]) * 40)], base_offset=number)) for number in range(12)
    ]
    size = len(batches[0])
    broken = bytes(12) + batches[2][12:]
    damaged = [*batches[:2], bytes(2 * size), *batches[4:9], b"x" * 30, broken, batches[3], b"x" * 40, *batches[10:]]
    root = roots.a_root(tmp_path / "r", {"t-0": batches})
    log = root / "t-0" / f"{0:020}.log"
    log.write_bytes(b"".join(damaged))
    repaired(root)
    assert batches_in(log) == [*batches[:9], *batches[10:]]
