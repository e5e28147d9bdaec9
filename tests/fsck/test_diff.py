"""Two log directories compared: what is told of every way in which copies come to differ."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fsck.batch_lists import Part, expected
from tests.fsck.roots import a_partition, a_root, cut
from tests.golden.corpus import case, undamaged_partitions
from tests.log.segments_language import batch, marker
from tidelog.errors import InvalidRequestError
from tidelog.fsck.diff import DiffOptions, diff
from tidelog.fsck.diff_result import Comparison, PartitionComparison
from tidelog.log.batch_windows import WINDOW_BYTES
from tidelog.log.checkpoints import EpochEntry
from tidelog.log.names import TopicPartition
from tidelog.records import ControlType

ORDERS = TopicPartition("orders", 0)


def compared(a: Path | list[Path], b: Path | list[Path], **options: Any) -> Comparison:
    given = {key: options.pop(key) for key in ("verify", "epochs", "records") if key in options}
    sides = [[str(path) for path in side] if isinstance(side, list) else str(side) for side in (a, b)]
    return diff(*sides, options=DiffOptions(**given), **options)


def the_one(a: Path | list[Path], b: Path | list[Path], **options: Any) -> PartitionComparison:
    (found,) = compared(a, b, **options).partitions
    return found


def pair(home: Path, a: list[bytearray], b: list[bytearray]) -> tuple[Path, Path]:
    return a_root(home / "a", {"orders-0": a}), a_root(home / "b", {"orders-0": b})


TEN = [batch(offset, b"value", epoch=offset // 4) for offset in range(10)]


# -- copies that do not contradict -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kafka-4.3/1-codecs", "kafka-4.3/4-transactions", "legacy"])
def test_a_copy_of_any_log_is_equal(name: str, tmp_path: Path) -> None:
    for number, partition in enumerate(undamaged_partitions(name)):
        copy = tmp_path / str(number) / partition.path.name
        shutil.copytree(partition.path, copy)
        found = the_one(partition.path, copy, verify=True)
        assert (found.sentence, found.tally and found.tally.equal) == ("equal", len(batches_in(partition.path)))


def batches_in(directory: Path) -> list[Any]:
    from tidelog.records import read_batches

    return [found for log in sorted(directory.glob("*.log")) for found in read_batches(log.read_bytes())]


def test_segments_and_indexes_do_not_matter(tmp_path: Path) -> None:
    a, b = pair(tmp_path, TEN, TEN)
    cut(b / "orders-0", 3)
    cut(b / "orders-0", 7)
    (a / "orders-0" / "00000000000000000000.index").write_bytes(bytes(8))
    assert compared(a, b, strict=True).is_equal


def test_one_that_lacks_the_end_is_behind_and_only_strictly_different(tmp_path: Path) -> None:
    a, b = pair(tmp_path, TEN, TEN[:7])
    found = compared(a, b)
    assert found.partitions[0].sentence == "B is behind by 3, equal up to there"
    assert (found.is_equal, compared(a, b, strict=True).is_equal) == (True, False)
    assert the_one(b, a).sentence == "A is behind by 3, equal up to there"


def test_one_that_lacks_the_beginning_is_compared_from_where_it_begins(tmp_path: Path) -> None:
    a, b = pair(tmp_path, TEN, TEN)
    cut(b / "orders-0", 4)
    (b / "orders-0" / "00000000000000000000.log").unlink()
    found = the_one(a, b)
    assert found.sentence == "equal (from 4 on, where the later one begins)"
    assert found.tally is not None
    assert found.tally.equal == 6
    assert not found.is_equal(strict=True)


def test_a_log_start_inside_of_a_batch_counts_the_batch(tmp_path: Path) -> None:
    log = [batch(0, b"a", b"b", b"c"), batch(3, b"d")]
    a = a_root(tmp_path / "a", {"orders-0": log})
    b = a_root(tmp_path / "b", {"orders-0": log}, {ORDERS: 1})
    found = the_one(a, b)
    assert (found.common, found.tally and found.tally.equal) == ((1, 4), 2)


def test_an_empty_copy_is_behind(tmp_path: Path) -> None:
    assert the_one(*pair(tmp_path, TEN, [])).sentence == "B is behind by 10, equal up to there"


def test_logs_without_a_common_offset_are_no_copies(tmp_path: Path) -> None:
    a = a_root(tmp_path / "a", {"orders-0": TEN[:4]})
    b = a_root(tmp_path / "b", {})
    a_partition(b / "orders-0", TEN[4:], base_offset=4)
    found = compared(a, b)
    assert (found.partitions[0].sentence, found.is_equal) == ("no offset is in both", False)


def test_large_copies_are_read_side_by_side_with_the_same_result(tmp_path: Path) -> None:
    """Both sides span several windows, and one of them is read in a thread."""
    large = [batch(offset, b"%d" % offset * 200_000) for offset in range(80)]
    other = [*large[:70], batch(70, b"another"), *large[71:]]
    a, b = pair(tmp_path, large, other)
    assert sum(map(len, large)) > 3 * WINDOW_BYTES
    for ones, twos in ((a, b), (b, a)):
        found = the_one(ones, twos)
        assert found.first is not None
        assert (found.first.offset, found.tally and found.tally.equal) == (70, 79)
    assert the_one(a, a).sentence == "equal"
    log = b / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    position = sum(map(len, large[:60]))
    data[position + 1_000] ^= 1
    log.write_bytes(data)
    for ones, twos in ((a, b), (b, a)):
        error = the_one(ones, twos).error
        assert error is not None
        assert error.startswith(f"{log}, position {position}: batch at offset 60: stored crc")


# -- differences ---------------------------------------------------------------------------------------------------


def test_the_first_difference_is_shown_with_its_place_and_both_headers(tmp_path: Path) -> None:
    other = [*TEN[:6], batch(6, b"other", epoch=1), *TEN[7:9], batch(9, b"more", epoch=2)]
    found = the_one(*pair(tmp_path, TEN, other))
    assert found.sentence == "different from offset 6 on: batches of the same offsets have other contents"
    assert (found.tally, found.first) == (expected_tally(TEN, other), (6, "records"))
    assert found.a_place is not None
    assert found.b_place is not None
    assert found.a_place.position == found.b_place.position == sum(map(len, TEN[:6]))
    assert found.b_place.file.endswith("b/orders-0/00000000000000000000.log")
    ours, theirs = batches_in(tmp_path / "a" / "orders-0")[6], batches_in(tmp_path / "b" / "orders-0")[6]
    assert (found.a_place.header["crc"], found.b_place.header["crc"]) == (ours.crc, theirs.crc)
    assert found.a_place.header == ours.header._asdict()


def expected_tally(left: list[bytearray], right: list[bytearray]) -> Any:
    """By the definition, of batches that all have the same size."""
    return expected(*([part_of(data) for data in side] for side in (left, right)))


def part_of(data: bytes | bytearray) -> Part:
    from tidelog.records import RecordBatch

    found = RecordBatch(data)
    return Part(found.base_offset, found.last_offset, found.crc, found.partition_leader_epoch)


def test_the_larger_leader_epoch_is_right(tmp_path: Path) -> None:
    """Offsets 6 and 7 were written by the leader of epoch 1, who had lost its place, and again by that of epoch 3."""
    lost = [*TEN[:4], *(batch(offset, b"lost", epoch=1) for offset in range(4, 8))]
    kept = [*TEN[:4], *(batch(offset, b"lost", epoch=1) for offset in range(4, 6)), batch(6, b"kept", epoch=3)]
    found = the_one(*pair(tmp_path, lost, kept))
    assert found.epochs is not None
    assert (found.epochs.a_epoch, found.epochs.b_epoch, found.epochs.truncated) == (1, 3, "A")
    assert found.epochs.a_history == (EpochEntry(1, 4),)
    assert found.epochs.b_history == (EpochEntry(3, 6),)
    assert str(found.epochs) == "B has it from the larger leader epoch: a replica with A's log cuts it there"
    assert found.sentence.endswith(", and B is behind by 1")


def test_the_same_epoch_with_two_contents_is_no_matter_of_truncation(tmp_path: Path) -> None:
    found = the_one(*pair(tmp_path, TEN, [*TEN[:9], batch(9, b"other", epoch=2)]))
    assert found.epochs is not None
    assert found.epochs.truncated is None
    assert "no matter of truncation" in str(found.epochs)


def test_leader_epochs_stand_outside_the_checksum_and_are_compared(tmp_path: Path) -> None:
    other = [*TEN[:8], batch(8, b"value", epoch=3), batch(9, b"value", epoch=3)]
    a, b = pair(tmp_path, TEN, other)
    found = the_one(a, b)
    assert found.sentence == "different from offset 8 on: batches are equal but for the leader epoch"
    assert found.tally is not None
    assert (found.tally.different, found.tally.different_epoch) == (2, 2)
    assert compared(a, b, epochs=False).is_equal


def test_a_batch_at_another_offset_is_another_batch(tmp_path: Path) -> None:
    shifted = bytearray(TEN[9])
    shifted[7] = 11  # the base offset, which no checksum covers
    found = the_one(*pair(tmp_path, [*TEN, batch(10), batch(11)], [*TEN[:9], shifted]))
    assert found.first == (9, "only in A")


def test_a_partition_of_one_side_is_a_difference(tmp_path: Path) -> None:
    a = a_root(tmp_path / "a", {"orders-0": TEN, "orders-1": TEN})
    b = a_root(tmp_path / "b", {"orders-0": TEN, "sales-0": TEN})
    found = compared(a, b)
    assert [(row.name, row.sentence) for row in found.partitions] == [
        ("orders-0", "equal"),
        ("orders-1", "only in A"),
        ("sales-0", "only in B"),
    ]
    assert not found.is_equal
    assert compared(a, b, topics=["orders"]).partitions == found.partitions[:2]
    with pytest.raises(InvalidRequestError, match="no partition of topic order; the nearest is orders"):
        compared(a, b, topics=["order"])


def test_two_partition_directories_are_compared_whatever_they_are_called(tmp_path: Path) -> None:
    a = a_root(tmp_path / "a", {"orders-0": TEN})
    b = a_root(tmp_path / "b", {"old-orders-7": TEN})
    assert the_one(a / "orders-0", b / "old-orders-7").sentence == "equal"


def test_random_edits_are_told_as_the_definition_says(tmp_path: Path) -> None:
    rng = random.Random(6)
    for number in range(25):
        left = random_log(rng)
        right = [data for data in left if rng.random() < 0.9] if rng.random() < 0.5 else random_log(rng)
        found = the_one(*pair(tmp_path / str(number), left, right), records=rng.random() < 0.5)
        start, end = found.common or (0, 0)
        sides = (
            [part for part in map(part_of, log) if part.last >= start and part.first < end] for log in (left, right)
        )
        assert found.error is None
        assert found.tally == expected(*sides)


def random_log(rng: random.Random) -> list[bytearray]:
    log, offset = [], 0
    for _ in range(rng.randrange(1, 20)):
        values = [b"v"] * rng.choice([1, 1, 2, 4])
        offset += rng.choice([0, 0, 0, 2])
        log.append(batch(offset, *values, epoch=offset // 8, timestamp_ms=rng.choice([0, 0, 1])))
        offset += len(values)
    return log


# -- records -------------------------------------------------------------------------------------------------------


def test_the_same_records_in_other_batches_are_told(tmp_path: Path) -> None:
    one_by_one = [batch(offset, b"v%d" % offset) for offset in range(6)]
    together = [batch(0, *(b"v%d" % offset for offset in range(4))), batch(4, b"v4", b"v5")]
    a, b = pair(tmp_path, one_by_one, together)
    assert the_one(a, b).sentence.startswith("different from offset 0 on: different batches, of which --records tells")
    found = compared(a, b, records=True)
    assert found.partitions[0].sentence == "different batches from offset 0 on, the same records"
    assert found.is_equal


def test_other_records_in_other_batches_are_told(tmp_path: Path) -> None:
    a, b = pair(tmp_path, [batch(0, b"a"), batch(1, b"b"), batch(2, b"c")], [batch(0, b"a", b"x", b"c")])
    found = the_one(a, b, records=True)
    assert found.sentence == "different records from offset 1 on"
    assert found.records is not None
    assert (found.records.equal, found.records.different) == (2, 1)


def test_a_marker_that_ends_a_transaction_otherwise_is_another_record(tmp_path: Path) -> None:
    data = batch(0, b"a", producer_id=7, sequence=0, is_transactional=True)
    sides = [[data, marker(1, kind, 7)] for kind in (ControlType.COMMIT, ControlType.ABORT)]
    assert the_one(*pair(tmp_path, *sides), records=True).sentence == "different records from offset 1 on"


@pytest.mark.parametrize(("topic", "gone"), [("k-basic", 20), ("k-gzip", 26), ("k-zstd", 25)])
def test_what_kafka_compacted_is_a_part_of_what_was_there(topic: str, gone: int) -> None:
    home = case("kafka-4.3/5-compaction")
    found = the_one(home / "1-before" / f"{topic}-0", home / "1-after" / f"{topic}-0", records=True)
    assert found.sentence.startswith(f"A has {gone} records more, the first at offset 0; those in both are the same")


# -- what cannot be read -------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_a_record_is_found_unless_checksums_are_believed(tmp_path: Path) -> None:
    a, b = pair(tmp_path, TEN, TEN)
    log = b / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(TEN[0]) + 65] ^= 1
    log.write_bytes(data)
    assert compared(a, b, verify=False).is_equal
    found = compared(a, b)
    assert not found.is_readable
    assert f"{log}, position {len(TEN[0])}:" in str(found.partitions[0].error)


def test_a_log_that_cannot_be_walked_on_does_not_end_the_run(tmp_path: Path) -> None:
    a = a_root(tmp_path / "a", {"orders-0": TEN, "orders-1": TEN})
    b = a_root(tmp_path / "b", {"orders-0": TEN, "orders-1": TEN})
    cut(b / "orders-0", 5)
    log = b / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[8:12] = bytes(4)  # the size of the first batch
    log.write_bytes(data)
    first, second = compared(a, b).partitions
    assert str(log) in str(first.error)
    assert second.sentence == "equal"


def test_offsets_that_go_back_are_refused(tmp_path: Path) -> None:
    a, b = pair(tmp_path, TEN, [*TEN[:5], *TEN[3:10]])
    assert "run tidelog fsck" in str(the_one(a, b).error)


# -- several roots -------------------------------------------------------------------------------------------------


def test_three_roots_of_a_side_are_one_side(tmp_path: Path) -> None:
    whole = a_root(tmp_path / "whole", {"orders-0": TEN, "orders-1": TEN[:8], "sales-0": TEN[:3]})
    parts = [
        a_root(tmp_path / "one", {"orders-0": TEN[:6], "orders-1": TEN[:8]}),
        a_root(tmp_path / "two", {"orders-0": TEN, "sales-0": TEN[:3]}),
        a_root(tmp_path / "three", {"orders-0": TEN[:9], "orders-1": TEN[:2]}),
    ]
    found = compared(whole, parts, strict=True)  # of several copies the longest is compared
    assert [row.sentence for row in found.partitions] == ["equal"] * 3
    assert found.is_equal


def test_everything_is_there_for_programs(tmp_path: Path) -> None:
    found = the_one(*pair(tmp_path, TEN, [*TEN[:9], batch(9, b"other", epoch=2)])).to_dict()
    assert (found["outcome"], found["common"]) == ("different", {"start": 0, "end": 10})
    assert found["batches"]["equal"] == 9
    assert found["first_difference"]["a"]["header"]["base_offset"] == 9
    assert found["leader_epochs"] == {
        "a": 2,
        "b": 2,
        "a_history": [{"epoch": 2, "start_offset": 8}],
        "b_history": [{"epoch": 2, "start_offset": 8}],
        "truncated": None,
    }
