"""`verify` and `diff` on Spark give what `fsck` and `diff` give, however their work is cut."""

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.golden.corpus import case
from tests.spark.logs import record, write
from tidelog.errors import InvalidRequestError, StorageError
from tidelog.fsck import check, repair
from tidelog.fsck.diff import DiffOptions
from tidelog.fsck.diff import diff as plain_diff
from tidelog.fsck.segment_scan import scan_segment
from tidelog.log.files import opened
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN
from tidelog.spark.jobs import verify as verify_module
from tidelog.spark.jobs.diff import diff
from tidelog.spark.jobs.segment_parts import joined, parts_of, scan_part
from tidelog.spark.jobs.verify import verify

SMALL = 1_500  # bytes of a part: most segments of the corpus are cut
COMPARED = ("position", "size", "first", "last", "time", "epoch", "count", "attributes", "magic", "producer")


def a_log(
    root: Path, topic: str = "orders", partition: int = 0, records: int = 400, segment_bytes: int = 1 << 20
) -> Path:
    """A partition whose index has an entry for every few batches."""
    write(root, topic, partition, (record(number) for number in range(records)), segment_bytes)
    return root / f"{topic}-{partition}"


# -- parts of a segment --------------------------------------------------------------------------------------------


def read_in_parts(log: Path, part_bytes: int = SMALL, *, deep: bool = False) -> tuple[int, object]:
    fs = LocalFileSystem()
    parts = parts_of(fs, str(log), int(log.stem), log.stat().st_size, part_bytes)
    return len(parts), joined([(part, scan_part(fs, part, deep=deep)) for part in reversed(parts)])


@pytest.mark.parametrize("deep", [False, True])
def test_a_segment_read_in_parts_is_the_segment_read_as_a_whole(tmp_path: Path, deep: bool) -> None:
    (log,) = a_log(tmp_path, records=2_000).glob("*.log")
    with opened(LocalFileSystem().open(str(log))) as file:
        whole = scan_segment(file, 0, deep=deep)
    count, found = read_in_parts(log, 8_000, deep=deep)
    assert count > 5
    assert all(np.array_equal(found.batches[name], whole.batches[name]) for name in COMPARED)  # type: ignore[attr-defined]
    for name in ("path", "base_offset", "size", "records", "has_producers", "remarks", "damage", "steps"):
        assert getattr(found, name) == getattr(whole, name), name


def test_parts_of_a_damaged_segment_tell_that_the_whole_has_to_be_read(tmp_path: Path) -> None:
    (log,) = a_log(tmp_path, records=2_000).glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    count, found = read_in_parts(log, 8_000)
    assert count > 5
    assert found is None


def test_an_index_that_lies_does_not_change_what_is_found(tmp_path: Path, spark: SparkSession) -> None:
    directory = a_log(tmp_path, records=2_000)
    (index,) = directory.glob("*.index")
    entries = bytearray(index.read_bytes())
    for at in range(4, len(entries), 8):
        (position,) = struct.unpack_from(">i", entries, at)
        struct.pack_into(">i", entries, at, position + 7)
    index.write_bytes(entries)
    (tmp_path / CLEAN_SHUTDOWN).touch()  # or a start would rebuild the index, and it would be no finding
    expected = check(tmp_path).to_dict()
    assert not expected["clean"]
    assert verify(spark, tmp_path, part_bytes=8_000).to_dict() == expected


# -- verify --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    "name",
    ["dump-formats", "kafka-4.3/4-transactions", "kafka-4.3/5-compaction", "kafka-4.3/6-recovery", "legacy"],
)
def test_verify_finds_what_fsck_finds(spark: SparkSession, name: str, deep: bool) -> None:
    directory = case(name)
    assert verify(spark, directory, deep=deep, part_bytes=SMALL).to_dict() == check(directory, deep=deep).to_dict()


def test_verify_of_some_partition_directories_is_that_of_fsck(spark: SparkSession) -> None:
    root = case("kafka-4.3/5-compaction") / "1-before"
    some = [str(root / "k-basic-0"), str(root / "k-txn-0")]
    assert verify(spark, some).to_dict() == check(some).to_dict()


def test_a_segment_of_another_partition_is_recognised_across_tasks(tmp_path: Path, spark: SparkSession) -> None:
    one, two = a_log(tmp_path, partition=0), tmp_path / "orders-1"
    write(tmp_path, "orders", 1, (record(number, value=b"longer than that" * 3) for number in range(400)), 1 << 20)
    shutil.copy(one / "00000000000000000000.log", two / "00000000000000000000.log")
    (tmp_path / CLEAN_SHUTDOWN).touch()
    expected = check(tmp_path).to_dict()
    assert "SEG-DOUBT" in {finding["code"] for finding in expected["findings"]}
    assert verify(spark, tmp_path).to_dict() == expected


def test_what_a_repair_has_left_to_people_is_recalled(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "root"
    shutil.copytree(case("kafka-4.3/1-codecs") / "image", root)
    logs = [next((root / name).glob("*.log")) for name in ("j-gzip-0", "j-lz4-0")]
    one, other = (log.read_bytes() for log in logs)
    logs[0].write_bytes(other)
    logs[1].write_bytes(one)
    repair(root)
    expected = check(root).to_dict()
    assert any("was in doubt when it was repaired" in finding["message"] for finding in expected["findings"])
    assert verify(spark, root).to_dict() == expected


def test_a_segment_that_cannot_be_read_is_told_as_fsck_tells_it(tmp_path: Path, spark: SparkSession) -> None:
    directory = a_log(tmp_path)
    (log,) = directory.glob("*.log")
    log.unlink()
    log.mkdir()
    assert verify(spark, tmp_path).to_dict() == check(tmp_path).to_dict()


def test_verify_of_nothing_says_so(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(InvalidRequestError, match="holds no log directory"):
        verify(spark, tmp_path)


def test_a_worker_that_does_not_see_the_directory_is_an_error_and_not_an_empty_log(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not to be seen on"):
        verify_module._ensure_seen_here(str(tmp_path / "gone"))


def test_who_watches_hears_of_every_task(tmp_path: Path, spark: SparkSession) -> None:
    a_log(tmp_path)
    heard: list[tuple[int, int]] = []
    verify(spark, tmp_path, on_tasks=lambda done, total: heard.append((done, total)))
    assert heard
    assert all(done <= total for done, total in heard)
    assert heard[-1][1] > 0


# -- diff ----------------------------------------------------------------------------------------------------------


def flipped(log: Path, rng: random.Random) -> None:
    data = bytearray(log.read_bytes())
    data[rng.randrange(len(data))] ^= rng.choice([1, 0x80, 0xFF])
    log.write_bytes(data)


def torn(log: Path, rng: random.Random) -> None:
    data = log.read_bytes()
    log.write_bytes(data[: rng.randrange(len(data))])


def unchanged(log: Path, rng: random.Random) -> None:
    pass


@pytest.mark.parametrize("change", [unchanged, flipped, torn])
@pytest.mark.parametrize("options", [DiffOptions(), DiffOptions(verify=True, epochs=False, records=True)])
def test_diff_of_copies_is_that_of_the_plain_one(
    tmp_path: Path, spark: SparkSession, change: Callable[[Path, random.Random], None], options: DiffOptions
) -> None:
    rng = random.Random(7)
    for number in range(4):
        directory = a_log(tmp_path / "a", partition=number, records=600, segment_bytes=9_000)
        copy = shutil.copytree(directory, tmp_path / "b" / directory.name)
        change(rng.choice(sorted(copy.glob("*.log"))), rng)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    expected = plain_diff(a, b, options=options).to_dict()
    assert diff(spark, a, b, options=options).to_dict() == expected
    assert diff(spark, a, b, options=options, part_bytes=SMALL).to_dict() == expected


@pytest.mark.parametrize("records", [False, True])
def test_diff_of_batches_with_other_bounds_is_cut_where_both_sides_allow_it(
    tmp_path: Path, spark: SparkSession, records: bool
) -> None:
    golden = case("kafka-4.3/5-compaction")
    before = golden / "1-before"
    options = DiffOptions(records=records)
    for after in sorted(golden.glob("*-after")):
        a, b = str(before), str(after)
        expected = plain_diff(a, b, options=options).to_dict()
        assert any(found["first_difference"] for found in expected["partitions"]), after
        assert diff(spark, a, b, options=options, part_bytes=300).to_dict() == expected


def test_diff_of_another_topic_says_so(tmp_path: Path, spark: SparkSession) -> None:
    a_log(tmp_path)
    with pytest.raises(InvalidRequestError, match="there is no partition of topic ordres; the nearest is orders"):
        diff(spark, str(tmp_path), str(tmp_path), topics=["ordres"])


def test_diff_of_partitions_that_are_empty_on_both_sides_is_that_of_the_plain_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The first one has no bytes: as one of many it has a task with others, and the others have one without it."""
    for side in ("a", "b"):
        write(tmp_path / side, "empty", 0, [])
        write(tmp_path / side, "full", 0, (record(number) for number in range(20)))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    found = diff(spark, a, b)
    assert found.is_equal
    assert found.to_dict() == plain_diff(a, b).to_dict()
