"""`spark.readStream.format("tidelog")`: offsets as Spark's Kafka source writes them, each row once."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from tests.spark.logs import record, write
from tidelog.errors import InvalidRequestError, OffsetOutOfRangeError
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, TopicPartition
from tidelog.spark.row_schema import default_schema, schema_of_columns
from tidelog.spark.source import stream_reader
from tidelog.spark.stream_reader import StreamReader

DEADLINE_S = 60


class Sink:
    """Takes micro-batches, by number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = sorted((row.partition, row.offset) for row in frame.collect())

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for batch in self.batches.values() for row in batch)


def start(spark: SparkSession, root: Path, checkpoint: Path, sink: Sink, *, once: bool = True, **options: Any) -> Any:
    frame = spark.readStream.format("tidelog").options(startingOffsets="earliest", **options).load(str(root))
    writer = frame.select("partition", "offset").writeStream.foreachBatch(sink.take)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(availableNow=True) if once else writer).start()
    if once:
        query.awaitTermination()
    return query


def logged(checkpoint: Path) -> list[Any]:
    """The offsets behind each micro-batch."""
    files = sorted((int(file.name), file) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
    return [json.loads(file.read_text(encoding="utf-8").splitlines()[-1]) for _, file in files]


def test_a_stream_goes_on_from_its_checkpoint_with_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint, sink = tmp_path / "logs", tmp_path / "checkpoint", Sink()
    write(root, "orders", 0, (record(number) for number in range(60)))
    write(root, "orders", 1, (record(number) for number in range(30)))
    start(spark, root, checkpoint, sink, maxOffsetsPerTrigger="45")
    assert logged(checkpoint) == [{"orders": {"0": 30, "1": 15}}, {"orders": {"0": 60, "1": 30}}]
    write(root, "orders", 0, (record(number) for number in range(60, 70)))
    write(root, "orders", 2, (record(number) for number in range(5)))  # a partition that is new
    start(spark, root, checkpoint, sink, maxOffsetsPerTrigger="45")
    assert logged(checkpoint)[-1] == {"orders": {"0": 70, "1": 30, "2": 5}}
    assert sink.rows == [(p, n) for p, count in ((0, 70), (1, 30), (2, 5)) for n in range(count)]
    assert len(sink.batches) == 3


def test_a_running_stream_sees_what_is_appended(spark: SparkSession, tmp_path: Path) -> None:
    root, sink = tmp_path / "logs", Sink()
    write(root, "orders", 0, (record(number) for number in range(10)))
    query = start(spark, root, tmp_path / "checkpoint", sink, once=False)
    try:
        for known, count in ((10, 25), (25, 90)):  # the second goes on in other segments
            write(root, "orders", 0, (record(number) for number in range(known, count)), segment_bytes=2_000)
            deadline = time.monotonic() + DEADLINE_S
            while len(sink.rows) < count:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, f"{len(sink.rows)} rows of {count}"
                time.sleep(0.05)  # between two looks
        assert sink.rows == [(0, number) for number in range(90)]
        assert logged(tmp_path / "checkpoint")[-1] == {"orders": {"0": 90}}
    finally:
        query.stop()


def test_options_of_a_batch_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "orders", 0, [record(0)])
    with pytest.raises(PySparkException, match="'endingOffsets' has no meaning for a stream"):
        start(spark, tmp_path / "logs", tmp_path / "checkpoint", Sink(), endingOffsets="latest")


# -- the reader alone --------------------------------------------------------------------------------------------------


class Clock:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def reader(root: Path, clock: Clock | None = None, **options: str) -> StreamReader:
    made = stream_reader({"path": str(root), "refreshInterval": "1ms", **options}, default_schema())
    assert isinstance(made, StreamReader)
    if clock is not None:
        made._clock, made._pause = clock, clock.pause
    return made


def test_a_new_query_begins_with_the_latest_offsets(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(7)))
    assert reader(tmp_path).initialOffset() == {"orders": {"0": 7}}
    assert reader(tmp_path, startingOffsets="earliest").initialOffset() == {"orders": {"0": 0}}


def test_a_listing_is_as_old_as_the_refresh_interval_at_most(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    clock = Clock()
    stream = reader(tmp_path, clock, refreshInterval="200ms")
    begun = stream.initialOffset()
    write(tmp_path, "orders", 0, [record(1)])
    clock.now += 0.1
    assert stream.watch.ends() == {TopicPartition("orders", 0): 1}
    assert stream.latestOffset(begun, ReadAllAvailable()) == {"orders": {"0": 2}}  # it has waited for the next look
    assert clock.now == pytest.approx(1000.2)


def test_too_few_offsets_are_waited_for_until_the_delay_is_over(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(20)))
    clock = Clock()
    stream = reader(tmp_path, clock, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert stream.getDefaultReadLimit() == ReadMinRows(10)
    begun = stream.latestOffset(stream.initialOffset(), ReadMinRows(10))
    assert begun == {"orders": {"0": 20}}
    write(tmp_path, "orders", 0, (record(number) for number in range(20, 25)))
    clock.now += 59
    assert stream.latestOffset(begun, ReadMinRows(10)) == begun
    clock.now += 1
    assert stream.latestOffset(begun, ReadMinRows(10)) == {"orders": {"0": 25}}
    begun = {"orders": {"0": 25}}
    write(tmp_path, "orders", 0, (record(number) for number in range(25, 36)))
    clock.now += 1
    assert stream.latestOffset(begun, ReadMinRows(10)) == {"orders": {"0": 36}}


def test_a_limit_is_shared_out_and_small_partitions_are_not_starved(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(997)), segment_bytes=10**6)
    write(tmp_path, "orders", 1, (record(number) for number in range(3)))
    stream = reader(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert stream.getDefaultReadLimit() == ReadMaxRows(100)
    assert stream.latestOffset(stream.initialOffset(), ReadMaxRows(100)) == {"orders": {"0": 99, "1": 1}}


def test_what_retention_took_is_an_error_or_left_out(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(100)), segment_bytes=2_000)
    start_at = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / LOG_START_CHECKPOINT))
    begun, ended = {"orders": {"0": 10}}, {"orders": {"0": 100}}
    start_at.write({TopicPartition("orders", 0): 40})
    with pytest.raises(OffsetOutOfRangeError, match="offsets 10 to 39 of orders-0 are gone; failOnDataLoss=false"):
        reader(tmp_path).partitions(begun, ended)
    tasks = reader(tmp_path, failOnDataLoss="false").partitions(begun, ended)
    assert min(piece.first_offset for task in tasks for piece in task.value) == 40


def test_a_partition_that_is_gone_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    gone = {"orders": {"0": 0, "1": 5}}
    with pytest.raises(OffsetOutOfRangeError, match="orders-1 are gone"):
        reader(tmp_path).partitions(gone, {"orders": {"0": 1, "1": 9}})


def test_a_partition_that_was_away_is_an_error_though_it_is_back(tmp_path: Path) -> None:
    """The checkpoint has forgotten how far it was read: the next micro-batch would begin with 0 again."""
    for partition in range(2):
        write(tmp_path, "orders", partition, (record(number) for number in range(10)))
    begun, ended = {"orders": {"0": 10, "1": 10}}, {"orders": {"0": 10}}
    for _ in range(2):  # as often as the query is started
        with pytest.raises(OffsetOutOfRangeError, match="orders-1 are gone, .* failOnDataLoss=false"):
            reader(tmp_path).partitions(begun, ended)
    assert reader(tmp_path, failOnDataLoss="false").partitions(begun, ended) == []


def test_what_retention_takes_behind_the_plan_is_an_error_or_left_out(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(100)), segment_bytes=2_000)
    begun, ended = {"orders": {"0": 0}}, {"orders": {"0": 100}}
    strict, lenient = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    tasks = strict.partitions(begun, ended)
    second = sorted((tmp_path / "orders-0").glob("*.log"))[1]
    for path in (tmp_path / "orders-0").glob(f"{0:020}.*"):
        path.unlink()
    with pytest.raises(OffsetOutOfRangeError, match=rf"offsets 0 to {int(second.stem) - 1} of orders-0 are gone"):
        offsets_read(strict, tasks)
    assert offsets_read(lenient, tasks) == list(range(int(second.stem), 100))


def offsets_read(stream: StreamReader, tasks: list[InputPartition]) -> list[int]:
    return [offset for task in tasks for batch in stream.read(task) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("first", [0, 43])  # before the damaged batch, and in its midst
def test_damage_is_told_of_once_however_many_micro_batches_it_lies_in(tmp_path: Path, first: int) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(100)), segment_bytes=10**6)
    [log] = (tmp_path / "orders-0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"value-42")] ^= 1  # of offsets 40 to 44
    log.write_bytes(content)
    options = {"path": str(tmp_path), "onCorruption": "skip", "startingOffsets": f'{{"orders":{{"0":{first}}}}}'}
    stream = stream_reader(options, schema_of_columns("offset, corruption"))
    assert isinstance(stream, StreamReader)
    begun, rows = stream.initialOffset(), []
    while (ended := stream.latestOffset(begun, ReadMaxRows(2))) != begun:
        if begun == {"orders": {"0": 44}}:
            stream.stop()
            stream = stream_reader(options, schema_of_columns("offset, corruption"))  # started again
            assert isinstance(stream, StreamReader)
        for task in stream.partitions(begun, ended):
            rows += [row for batch in stream.read(task) for row in batch.to_pylist()]
        begun = ended
    left = [row["offset"] for row in rows if row["corruption"] is None]
    assert left == [number for number in range(first, 100) if not 40 <= number < 45]
    assert len(rows) == len(left) + 1


def test_offsets_of_another_source_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, [record(0)])
    with pytest.raises(InvalidRequestError, match="it is of another source"):
        reader(tmp_path).latestOffset({"index": 5}, ReadAllAvailable())


def test_what_comes_behind_the_start_of_available_now_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(5)))
    stream = reader(tmp_path, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    write(tmp_path, "orders", 0, (record(number) for number in range(5, 9)))
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == {"orders": {"0": 5}}


# -- how far a stream reads --------------------------------------------------------------------------------------------


def set_watermark(root: Path, **offsets: int) -> None:
    """What a broker notes every five seconds: `orders=8` is that of orders-0."""
    marks = {TopicPartition(topic, 0): offset for topic, offset in offsets.items()}
    OffsetCheckpoint(LocalFileSystem(), str(root / HIGH_WATERMARK_CHECKPOINT)).write(marks)


def rows_between(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    tasks = stream.partitions(start, end)
    return [offset for task in tasks for batch in stream.read(task) for offset in batch.column("offset").to_pylist()]


def test_a_stream_reads_no_further_than_all_replicas_have(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(10)))
    write(tmp_path, "paid", 0, (record(number) for number in range(10)))
    set_watermark(tmp_path, orders=5)  # nothing is known of the other one: it is read to its end
    stream = reader(tmp_path, startingOffsets="earliest")
    begun = stream.initialOffset()
    ended = stream.latestOffset(begun, ReadAllAvailable())
    assert ended == {"orders": {"0": 5}, "paid": {"0": 10}}
    assert rows_between(stream, begun, ended) == [*range(5), *range(10)]
    set_watermark(tmp_path, orders=10, paid=10)
    stream.watch.ends(now=True)
    assert stream.latestOffset(ended, ReadAllAvailable()) == {"orders": {"0": 10}, "paid": {"0": 10}}
    assert reader(tmp_path).initialOffset() == {"orders": {"0": 10}, "paid": {"0": 10}}


def test_a_stream_can_be_told_to_read_to_the_end(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(10)))
    set_watermark(tmp_path, orders=5)
    assert reader(tmp_path, endBound="logEnd").initialOffset() == {"orders": {"0": 10}}


def test_a_watermark_that_falls_back_takes_nothing_back(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(10)))
    set_watermark(tmp_path, orders=10)
    stream = reader(tmp_path, startingOffsets="earliest")
    begun = stream.initialOffset()
    ended = stream.latestOffset(begun, ReadAllAvailable())
    set_watermark(tmp_path, orders=5)  # as another copy has it, or a checkpoint from before a crash
    stream.watch.ends(now=True)
    assert stream.latestOffset(ended, ReadAllAvailable()) == ended == {"orders": {"0": 10}}
    again = reader(tmp_path, startingOffsets="earliest")  # a restart, which has this micro-batch to do again
    assert rows_between(again, begun, ended) == list(range(10))
    again = reader(tmp_path, startingOffsets="earliest")
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(ended, ReadAllAvailable()) == ended


def test_a_partition_that_goes_while_its_watermark_is_behind_is_told_of(tmp_path: Path) -> None:
    for topic in ("orders", "paid"):
        write(tmp_path, topic, 0, (record(number) for number in range(10)))
    set_watermark(tmp_path, orders=5, paid=10)
    stream = reader(tmp_path, failOnDataLoss="false")
    stream.prepareForTriggerAvailableNow()
    shutil.rmtree(tmp_path / "orders-0")
    stream.watch.ends(now=True)
    begun = {"orders": {"0": 10}, "paid": {"0": 0}}
    ended = stream.latestOffset(begun, ReadAllAvailable())
    assert ended == {"orders": {"0": 10}, "paid": {"0": 10}}
    assert rows_between(stream, begun, ended) == list(range(10))
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 are gone"):
        reader(tmp_path).partitions(begun, ended)


def test_what_was_read_and_is_cut_off_is_an_error_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, (record(number) for number in range(10)))
    set_watermark(tmp_path, orders=5)
    stream = reader(tmp_path, startingOffsets="earliest")
    begun = {"orders": {"0": 20}}
    ended = stream.latestOffset(begun, ReadAllAvailable())
    assert ended == {"orders": {"0": 10}}
    with pytest.raises(OffsetOutOfRangeError, match="goes back from offset 20 to 10"):
        stream.partitions(begun, ended)
