"""`compact` on Spark does what `tidelog compact` does, and leaves the root as a broker expects it."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.golden.corpus import case
from tidelog.errors import LockedError, StorageError
from tidelog.fsck import check
from tidelog.log.checkpoints import read_offsets
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN, CLEANER_CHECKPOINT, LOCK_FILE, TopicPartition
from tidelog.log.offline_compaction import CompactionSettings, compact_partition
from tidelog.log.offline_root import OfflineRoot
from tidelog.spark.jobs.compact import compact

MARKER = '{"version":0,"brokerEpoch":14}'
TOPICS = ("k-basic", "k-gzip", "k-txn")
SETTINGS = CompactionSettings.parse({})


def a_root(home: Path, *topics: str) -> Path:
    """A root as a broker left it: some compacted topics of the golden corpus, not compacted yet."""
    root = home / "data"
    root.mkdir(parents=True)
    golden = case("kafka-4.3/5-compaction") / "1-before"
    for topic in topics:
        shutil.copytree(golden / f"{topic}-0", root / f"{topic}-0")
    for checkpoint in golden.glob("*-checkpoint"):
        shutil.copy(checkpoint, root / checkpoint.name)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (root / CLEAN_SHUTDOWN).write_text(MARKER)
    return root


def wanted(*topics: str) -> dict[TopicPartition, CompactionSettings]:
    return {TopicPartition(topic, 0): SETTINGS for topic in topics}


def sizes_in(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("dry_run", [True, False])
def test_it_does_what_the_plain_one_does(tmp_path: Path, spark: SparkSession, dry_run: bool) -> None:
    one, two = a_root(tmp_path / "one", *TOPICS), a_root(tmp_path / "two", *TOPICS)
    with OfflineRoot(str(one), dry_run=dry_run) as root:
        expected = [compact_partition(root, partition, SETTINGS) for partition in wanted(*TOPICS)]
    done = compact(spark, str(two), wanted(*TOPICS), dry_run=dry_run)
    assert done.partitions == expected
    assert done.unclean_because is None
    assert sizes_in(two) == sizes_in(one)
    checkpoints = [read_offsets(LocalFileSystem(), str(each / CLEANER_CHECKPOINT)) for each in (one, two)]
    assert checkpoints[0] == checkpoints[1]
    assert (two / CLEAN_SHUTDOWN).read_text() == MARKER
    assert not (two / LOCK_FILE).exists()
    assert check(two).to_dict()["errors"] == 0


def test_a_dry_run_changes_nothing(tmp_path: Path, spark: SparkSession) -> None:
    root = a_root(tmp_path, *TOPICS)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    compact(spark, str(root), wanted(*TOPICS), dry_run=True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_root_that_somebody_has_open_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    root = a_root(tmp_path, "k-basic")
    with OfflineRoot(str(root)), pytest.raises(LockedError, match="stop it first"):
        compact(spark, str(root), wanted("k-basic"))


def test_a_partition_that_is_not_there_is_refused_before_anything_is_touched(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = a_root(tmp_path, "k-basic")
    with pytest.raises(StorageError, match="has no partition k-nothing-0"):
        compact(spark, str(root), wanted("k-basic", "k-nothing"))
    assert (root / CLEAN_SHUTDOWN).read_text() == MARKER


def test_a_damaged_partition_is_told_and_the_others_are_compacted(tmp_path: Path, spark: SparkSession) -> None:
    root = a_root(tmp_path, "k-basic", "k-gzip")
    first = min((root / "k-basic-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[80] ^= 0xFF
    first.write_bytes(data)
    bad, good = compact(spark, str(root), wanted("k-basic", "k-gzip")).partitions
    assert bad.error is not None
    assert first.name in bad.error
    assert good.error is None
    assert good.bytes_after < good.bytes_before


def test_a_job_that_fails_leaves_no_mark_of_a_clean_stop(tmp_path: Path, spark: SparkSession) -> None:
    root = a_root(tmp_path, "k-basic")
    broken = SETTINGS._replace(cleaner=None)  # type: ignore[arg-type]  # a mistake that only the task meets
    with pytest.raises(StorageError, match="Spark failed"):
        compact(spark, str(root), {TopicPartition("k-basic", 0): broken})
    assert not (root / CLEAN_SHUTDOWN).exists()
    assert not (root / LOCK_FILE).exists()
