"""A log directory of Kafka, made, looked into, and worked on by Spark: what `make demo` runs.

First the store alone: three partitions of the topic `orders`, a segment for each codec, appended batch by batch as a
leader appends them; then a lookup by offset and one by time, and what a crash leaves. The files are Kafka's own: its
tools read them, its broker serves them.

Then Spark on the same directory, without a broker: a query in SQL; a stream that picks the large orders and writes them
as a topic of another log directory, stopped and taken up again; a check of every file; a profile with a report.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import tidelog
from tidelog import __version__
from tidelog.columns import ColumnEncoder, partition_for_keys, summarize
from tidelog.errors import TidelogError
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.records import Codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
ORDERS_A_CODEC = 24_000
STEP_MS = 50  # between two orders
FIRST_TIME_MS = 1_700_000_000_000
CONFIG = LogConfig(index_interval_bytes=4096)
LEADER_EPOCH = 0
LARGE_CENTS = 9_500
SMALL = {  # Spark for minutes, not for days
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


# -- the store ---------------------------------------------------------------------------------------------------------


def orders(first: int, count: int) -> pa.Table:
    """Orders from a number on. One customer in forty orders more than all others."""
    numbers = np.arange(first, first + count)
    customers = np.where(numbers % 5 == 0, 7, numbers * 7 % 40)
    tide = 380_000 * np.sin(2 * np.pi * numbers / 60_000)  # orders come in waves
    values = [
        b'{"order":%d,"customer":%d,"cents":%d,"status":"%s"}'
        % (n, c, 100 + n * 97 % 9900, b"open" if n % 11 else b"paid")
        for n, c in zip(numbers.tolist(), customers.tolist(), strict=True)
    ]
    return pa.table(
        {
            "key": pa.array([b"customer-%d" % number for number in customers], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(FIRST_TIME_MS + STEP_MS * numbers + tide.astype(np.int64)),
        }
    )


def append(root: Path, rows: pa.Table, codec: Codec) -> None:
    """Append rows to their partitions, as the leader of each, in a segment of its own."""
    homes = partition_for_keys(rows["key"], PARTITIONS).combine_chunks()
    clock = ManualClock(int(rows["timestamp"][-1].as_py()))
    for partition in range(PARTITIONS):
        with UnifiedLog.open(root / f"orders-{partition}", CONFIG, clock=clock) as log:
            if log.size:
                log.roll()
            encoder = ColumnEncoder(codec=codec, base_offset=None)  # as a producer sends them: the log gives offsets
            mine = rows.filter(pa.compute.equal(homes, partition)).combine_chunks()
            for part in encoder.encode(mine):
                for batch in part.batches():
                    log.append_as_leader(memoryview(bytearray(batch)), LEADER_EPOCH)


def print_codecs(console: Console, root: Path) -> None:
    """What each codec makes of as many orders: a line for the segments of each."""
    table = _table(("codec", "*segments", "*batches", "*records", "*size"))
    segments = {partition: sorted((root / f"orders-{partition}").glob("*.log")) for partition in range(PARTITIONS)}
    for number, codec in enumerate(Codec):
        files = [segments[partition][number] for partition in segments]
        found = [summarize([file.read_bytes()], verify=True) for file in files]
        assert not any(summary.wrong_checksums for summary in found)
        table.add_row(
            codec.name.lower(),
            str(len(files)),
            str(sum(summary.batches for summary in found)),
            str(sum(summary.records for summary in found)),
            f"{round(sum(file.stat().st_size for file in files) / 1000)} KB",
        )
    console.print(table)


def print_lookups(console: Console, root: Path) -> None:
    """How an offset and a time are found."""
    part = tidelog.open(root)["orders", 0]
    offset = part.log_end_offset // 2
    record = next(part.read(from_offset=offset))
    console.print(f"offset {offset} of orders-0: {record.value.decode()}", soft_wrap=True)
    found = part.offset_for_time(FIRST_TIME_MS + 3_600_000)
    assert found is not None
    console.print(f"an hour after the first order: offset {found.offset}")


def print_crash(console: Console, root: Path) -> None:
    """Cut a copy of a partition inside its last batch, as a power failure may, and open it."""
    copy = Path(tempfile.mkdtemp(prefix="tidelog-crash-")) / "orders-0"
    shutil.copytree(root / "orders-0", copy)
    last = max(copy.glob("*.log"))
    with open(last, "r+b") as file:
        file.truncate(last.stat().st_size - 100)
    end = tidelog.open(root)["orders", 0].log_end_offset
    with UnifiedLog.open(copy, CONFIG) as log:
        console.print(f"a copy, cut 100 bytes short, recovers: it ends at {log.log_end_offset} instead of {end}")
    shutil.rmtree(copy.parent)


# -- Spark -------------------------------------------------------------------------------------------------------------


def query(spark: "SparkSession", root: Path) -> list[tuple[str, str, str]]:
    """SQL over the log."""
    spark.read.format("tidelog").option("subscribe", "orders").load(str(root)).createOrReplaceTempView("log")
    customers = spark.sql(
        "SELECT CAST(key AS STRING) AS customer, count(*) AS orders, "
        "sum(get_json_object(CAST(value AS STRING), '$.cents')) AS cents FROM log GROUP BY key ORDER BY orders DESC"
    ).collect()
    total, cents = sum(one.orders for one in customers), sum(one.cents for one in customers)
    return [
        ("orders", f"{total:,} of {len(customers)} customers, worth {cents / 100:,.2f}", "SQL"),
        ("best customer", f"{customers[0].customer} with {customers[0].orders:,} of them", "SQL"),
    ]


def stream(spark: "SparkSession", root: Path, target: Path) -> int:
    """Write the large orders that have come since the last time as the topic `large`, and say how many."""
    from pyspark.sql import functions as F

    records = spark.readStream.format("tidelog").option("subscribe", "orders").option("startingOffsets", "earliest")
    order = F.from_json(F.col("value").cast("string"), "customer INT, cents INT")
    large = records.load(str(root)).where(order.cents >= LARGE_CENTS).select("key", "value", "timestamp")
    before = _end_of(target, "large")
    writer = large.writeStream.format("tidelog").option("topic", "large").option("compression", "zstd")
    writer = writer.option("checkpointLocation", str(target.with_name("checkpoint")))
    writer.trigger(availableNow=True).start(str(target)).awaitTermination()
    return _end_of(target, "large") - before


def _end_of(root: Path, topic: str) -> int:
    return sum(part.log_end_offset for part in tidelog.open(root)[topic]) if root.exists() else 0


def streamed(spark: "SparkSession", root: Path, target: Path) -> list[tuple[str, str, str]]:
    """The stream, stopped and taken up again when more has come."""
    first = stream(spark, root, target)
    append(root, orders(ORDERS_A_CODEC * len(Codec), ORDERS_A_CODEC // 4), Codec.LZ4)
    second = stream(spark, root, target)
    large = [json.loads(one.value) for part in tidelog.open(target)["large"] for one in part.read()]
    assert len({one["order"] for one in large}) == len(large) == first + second  # each of them once
    assert all(one["cents"] >= LARGE_CENTS for one in large)
    return [
        ("large orders", f"{first:,} in a log of their own, and {second:,} when more orders had come", "stream"),
        ("read back", f"{len(large):,}, each of them once", "store"),
    ]


def examined(spark: "SparkSession", roots: list[Path], report: Path) -> list[tuple[str, str, str]]:
    """The jobs: every file checked, every topic profiled."""
    from tidelog.spark.jobs.advice import advice_for
    from tidelog.spark.jobs.profile import profile
    from tidelog.spark.jobs.report import write_report
    from tidelog.spark.jobs.verify import verify

    checked = verify(spark, roots, deep=True)
    found = profile(spark, roots)
    write_report(found, str(report))
    advice = [one for topic in found.topics for one in advice_for(topic) if one.weight == "change"]
    return [
        (
            "every file",
            f"{checked.counts['segments']} segments, {checked.counts['batches']:,} batches: "
            f"{'nothing wrong' if checked.is_clean else 'findings'}",
            "verify",
        ),
        ("could be better", ", ".join(f"{one.subject} of {one.topic}" for one in advice) or "nothing", "profile"),
    ]


# -- the show ----------------------------------------------------------------------------------------------------------


def _table(names: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name.lstrip("*"), justify="right" if name.startswith("*") else "left", no_wrap=name != "what")
    return table


def pipeline(console: Console, root: Path) -> None:
    """Everything that takes Spark."""
    from tidelog.spark.jobs.session import SparkWishes, session_for
    from tidelog.spark.jobs.tasks import plain_errors

    work = root.with_name(f"{root.name}.work")
    work.mkdir()
    target, report = work / "large-logs", work / "profile.html"
    with session_for("tidelog demo", SparkWishes("local[2]", SMALL)) as spark, plain_errors():
        found = [*query(spark, root), *streamed(spark, root, target), *examined(spark, [root, target], report)]
    table = _table(("finding", "what", "by"))
    for row in found:
        table.add_row(*row)
    console.print(table)
    console.print(f"\nreport: {report}", soft_wrap=True)


@click.command()
@click.option(
    "--dir", "root", type=click.Path(path_type=Path), help="Where to write; a new temporary folder if not given."
)
def main(root: Path | None) -> None:
    """Make a log directory of Kafka, and work on it with Spark."""
    console = Console(width=100, highlight=False)
    root = (root or Path(tempfile.mkdtemp(prefix="tidelog-demo-")) / "logs").absolute()
    if (root / "orders-0").exists():
        raise click.UsageError(f"{root / 'orders-0'} exists; name another folder with --dir")
    for number, codec in enumerate(Codec):
        append(root, orders(ORDERS_A_CODEC * number, ORDERS_A_CODEC), codec)
    console.print(f"tidelog {__version__}: {PARTITIONS} partitions of orders in {root}\n", soft_wrap=True)
    print_codecs(console, root)
    console.print()
    print_lookups(console, root)
    print_crash(console, root)
    console.print()
    try:
        pipeline(console, root)
    except TidelogError as error:
        raise click.ClickException(" ".join(str(error).split())) from error
    console.print("\nNext, with .venv/bin in your PATH:")
    for words in (
        f"ls -l {root}",
        f"explain {root} --topic orders --partition 0 --offset 4500",
        f"cat {root}.work/large-logs --topic large --limit 5",
        f"spark export {root} --topic orders --to orders.parquet --value json --schema 'order INT, cents INT'",
    ):
        console.print(f"  tidelog {words}", soft_wrap=True)


if __name__ == "__main__":
    main()
