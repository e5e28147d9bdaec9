"""What `df.writeStream.format("tidelog")` writes: each batch once, however often it is tried."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.test_writer import ensure_sound, numbered, save, values
from tidelog.columns import partition_for_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def source(spark: "SparkSession", root: Path, most: int = 100) -> "DataFrame":
    reader = spark.readStream.format("tidelog").option("subscribe", "orders").option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", most).load(str(root)).select("key", "value")


def run(frame: "DataFrame", work: Path, mode: str = "append", **options: Any) -> list[int]:
    """Write all there is; the batches that were run."""
    writer = frame.writeStream.format("tidelog").outputMode(mode).option("topic", "copies")
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start(
        str(work / "sink")
    )  # fmt: skip
    query.awaitTermination()
    return [progress["batchId"] for progress in query.recentProgress]


def written(work: Path) -> list[int]:
    return sorted(int(v or b"") for each in values(work / "sink", "copies").values() for v in each)


def forget_last_commit(work: Path) -> None:
    """Let Spark believe that it has not finished its last batch."""
    commits = work / "checkpoint" / "commits"
    last = max(int(name) for name in os.listdir(commits) if name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


def test_a_batch_that_is_run_again_is_written_once(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 250), tmp_path / "source", partitions=2)
    frame = source(spark, tmp_path / "source")
    assert run(frame, tmp_path, partitions=3) == [0, 1, 2]
    assert written(tmp_path) == list(range(250))
    forget_last_commit(tmp_path)
    assert run(frame, tmp_path) == [2]
    assert written(tmp_path) == list(range(250))
    save(spark.range(250, 260, 1, 1).selectExpr("cast(id as string) as value"), tmp_path / "source")
    assert run(frame, tmp_path) == [3]
    assert written(tmp_path) == list(range(260))
    committed = json.loads((tmp_path / "sink" / "tidelog-commit.batches").read_text())
    assert list(committed["batches"].values()) == [3]
    ensure_sound(tmp_path / "sink")


def test_a_stream_that_has_a_name_is_written(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark hands the name on as an option of the sink."""
    save(numbered(spark, 50), tmp_path / "source")
    writer = source(spark, tmp_path / "source").writeStream.format("tidelog").queryName("copy of orders")
    writer = writer.option("topic", "copies").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "sink"))
    query.awaitTermination()
    assert query.name == "copy of orders"
    assert written(tmp_path) == list(range(50))


def test_another_checkpoint_is_another_query(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 50), tmp_path / "source")
    frame = source(spark, tmp_path / "source")
    run(frame, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    run(frame, tmp_path)
    assert written(tmp_path) == sorted([*range(50), *range(50)])
    committed = json.loads((tmp_path / "sink" / "tidelog-commit.batches").read_text())
    assert list(committed["batches"].values()) == [0, 0]


def test_batches_without_rows_are_committed_too(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 250), tmp_path / "source")
    frame = source(spark, tmp_path / "source").where("cast(value as string) = '240'")
    assert run(frame, tmp_path) == [0, 1, 2]
    assert written(tmp_path) == [240]
    forget_last_commit(tmp_path)
    run(frame, tmp_path)
    assert written(tmp_path) == [240]
    committed = json.loads((tmp_path / "sink" / "tidelog-commit.batches").read_text())
    assert list(committed["batches"].values()) == [2]


def test_a_stream_that_fails_in_the_middle_goes_on_where_it_was(spark: "SparkSession", tmp_path: Path) -> None:
    """The second batch fails while its tasks write, once; what it had staged is not in the way."""
    save(numbered(spark, 300), tmp_path / "source", partitions=2)
    broken = tmp_path / "broken"
    broken.touch()
    flag = str(broken)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if os.path.exists(flag) and b"150" in batch.column("value").to_pylist():
                raise RuntimeError("this task fails")
            yield batch

    frame = source(spark, tmp_path / "source").mapInArrow(fail, "key binary, value binary")
    with pytest.raises(Exception, match="this task fails"):
        run(frame, tmp_path, partitions=2)
    assert 0 < len(written(tmp_path)) < 300
    broken.unlink()
    run(frame, tmp_path)
    assert written(tmp_path) == list(range(300))
    ensure_sound(tmp_path / "sink")


def test_a_topic_that_gets_other_partitions_under_a_stream_keeps_keys_together(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Spark prepares a write for each batch, so the next one knows them."""
    save(numbered(spark, 100), tmp_path / "source")
    sink = tmp_path / "sink"
    save(numbered(spark, 0), sink, topic="copies", partitions=2)
    writer = source(spark, tmp_path / "source").writeStream.format("tidelog").option("topic", "copies")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(sink))
    try:
        query.processAllAvailable()
        save(numbered(spark, 0), sink, mode="overwrite", topic="copies", partitions=5, overwriteTopic=True)
        save(numbered(spark, 100), tmp_path / "source")
        query.processAllAvailable()
    finally:
        query.stop()
    assert written(tmp_path) == list(range(100))
    for number, each in values(sink, "copies").items():
        keys = [b"%d" % (int(value or b"") % 7) for value in each]
        assert set(partition_for_keys(pa.array(keys, pa.binary()), 5).to_pylist()) <= {number}
    ensure_sound(sink)


def test_complete_mode_replaces_the_topic_if_it_is_said(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark, 70), tmp_path / "source")
    counts = source(spark, tmp_path / "source", 35).groupBy("key").count()
    frame = counts.selectExpr("key", "cast(count as string) as value")
    with pytest.raises(Exception, match="overwriteTopic=true"):
        run(frame, tmp_path, "complete")
    shutil.rmtree(tmp_path / "checkpoint")
    run(frame, tmp_path, "complete", overwriteTopic=True)
    assert written(tmp_path) == [10] * 7
