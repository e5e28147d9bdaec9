"""A partition of Kafka's log, written and read back: what `make demo` runs.

Five segments of the topic `orders`, one for each codec, appended batch by batch as a leader appends them; some records
have headers, and the last segment ends with the COMMIT marker of a transaction. The files are Kafka's own, indexes and
snapshots too: its tools read them, its broker serves them. Then lookups by offset and time, the same files as Arrow
columns, and what a crash leaves.
"""

import shutil
import tempfile
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from tidelog import __version__
from tidelog.columns import ColumnDecoder, ColumnEncoder, LogSummary, summarize
from tidelog.log import AppendOrigin, LogConfig, ManualClock, UnifiedLog
from tidelog.log.lookup import BatchWalked, IndexUsed, SegmentChosen, Step
from tidelog.records import Codec, ControlType, EndTxnMarker, build_end_txn_marker, read_batches

ROWS_A_SEGMENT = 2_000
FIRST_TIME_MS = 1_700_000_000_000
CONFIG = LogConfig(index_interval_bytes=4096)
LEADER_EPOCH = 0
PRODUCER_ID = 1000
PRODUCER_EPOCH = 0


def orders(first: int) -> pa.Table:
    """Rows of one segment. Every tenth order carries two headers."""
    numbers = range(first, first + ROWS_A_SEGMENT)
    headers = [{"key": "source", "value": b"web"}, {"key": "trace", "value": None}]
    return pa.table(
        {
            "key": pa.array([b"customer-%d" % (number * 7 % 40) for number in numbers], pa.binary()),
            "value": pa.array(
                [b'{"item":%d,"cents":%d}' % (n * 31 % 500, 100 + n * 97 % 9900) for n in numbers], pa.binary()
            ),
            "timestamp": pa.array([FIRST_TIME_MS + 250 * number for number in numbers], pa.int64()),
            "headers": pa.array([headers if number % 10 == 0 else None for number in numbers]),
        }
    )


def write_log(folder: Path) -> None:
    """One segment per codec. The last one is a transaction."""
    clock = ManualClock(FIRST_TIME_MS + 250 * ROWS_A_SEGMENT * len(Codec))
    with UnifiedLog.open(folder, CONFIG, clock=clock) as log:
        for codec in Codec:
            is_transaction = codec is Codec.ZSTD
            encoder = ColumnEncoder(
                codec=codec,
                base_offset=None,  # as a producer sends them: the log gives the offsets
                producer_id=PRODUCER_ID if is_transaction else -1,
                producer_epoch=PRODUCER_EPOCH if is_transaction else -1,
                base_sequence=0 if is_transaction else -1,
                is_transactional=is_transaction,
            )
            if log.size:
                log.roll()
            for part in encoder.encode(orders(log.log_end_offset)):
                for batch in part.batches():
                    log.append_as_leader(memoryview(bytearray(batch)), LEADER_EPOCH)
        log.append_as_leader(memoryview(commit_marker(clock.now_ms())), LEADER_EPOCH, AppendOrigin.COORDINATOR)


def commit_marker(timestamp_ms: int) -> bytearray:
    """The batch of 78 bytes that ends the transaction."""
    return build_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, coordinator_epoch=0),
        producer_id=PRODUCER_ID,
        producer_epoch=PRODUCER_EPOCH,
        timestamp_ms=timestamp_ms,
    )


def print_lookups(console: Console, folder: Path) -> None:
    """How an offset and a time are found."""
    with UnifiedLog.open(folder, CONFIG, clean_shutdown=True) as log:
        for offset in (4500, 8999):
            steps: list[Step] = []
            region = log.read(offset, max_bytes=0, trace=steps)
            console.print(f"offset {offset}: {' -> '.join(map(in_words, steps))}", soft_wrap=True)
            assert region.start.offset <= offset
        found = log.offset_for_time(FIRST_TIME_MS + 250 * 6100)
    assert found is not None
    console.print(f"time {found.timestamp_ms}: offset {found.offset}")


def in_words(step: Step) -> str:
    """One step of a lookup."""
    match step:
        case SegmentChosen(base_offset):
            return f"segment {base_offset}"
        case IndexUsed(offset, position):
            return f"index entry ({offset}, {position})"
        case BatchWalked(batch):
            return f"batch {batch.base_offset}"
        case _:
            return str(step)


def print_crash(console: Console, folder: Path) -> None:
    """Cut a copy of the last segment inside its last batch, as a power failure may, and open it."""
    copy = folder.with_name("orders-1")
    shutil.copytree(folder, copy)
    last = max(copy.glob("*.log"))
    with open(last, "r+b") as file:
        file.truncate(last.stat().st_size - 100)
    with UnifiedLog.open(copy, CONFIG) as log:
        ends, opens = log.log_end_offset, log.first_unstable_offset
    console.print(
        f"a copy, cut 100 bytes short, recovers: it ends at {ends}, its transaction is open from {opens}",
        soft_wrap=True,
    )


def read_segment(path: Path) -> tuple[LogSummary, pa.Table]:
    """What the headers of a segment tell, and its records as columns, checksums compared."""
    data, decoder = path.read_bytes(), ColumnDecoder()
    return summarize([data], verify=True), pa.Table.from_batches(decoder.decode(data), decoder.schema)


def print_segments(console: Console, segments: list[tuple[Path, LogSummary, pa.Table]]) -> None:
    """A line for each file."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("segment", "codec", "offsets"):
        table.add_column(name, no_wrap=True)
    for name in ("batches", "records", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for path, summary, columns in segments:
        table.add_row(
            path.name,
            columns["codec"][0].as_py(),
            f"{summary.first_offset} to {summary.last_offset}",
            str(summary.batches),
            str(summary.records),
            f"{round(path.stat().st_size / 1000)} KB",
        )
    console.print(table)


def print_rows(console: Console, columns: pa.Table) -> None:
    """Some records as a table."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("offset", justify="right", no_wrap=True)
    for name in ("time", "key", "value", "headers"):
        table.add_column(name, no_wrap=True)
    for row in columns.to_pylist():
        table.add_row(
            str(row["offset"]),
            row["timestamp"].strftime("%H:%M:%S"),
            text(row["key"]),
            text(row["value"]),
            ", ".join(f"{name}={text(value)}" for name, value in map(dict.values, row["headers"] or ())),
        )
    console.print(table)


def text(value: bytes | None) -> str:
    """A field for people to read."""
    return "null" if value is None else value.decode()


def print_totals(console: Console, segments: list[tuple[Path, LogSummary, pa.Table]]) -> None:
    """Facts that need every record."""
    log = pa.concat_tables([columns for _, _, columns in segments])
    orders_only = log.filter(pc.invert(log["isControl"]))
    wrong = sum(summary.wrong_checksums for _, summary, _ in segments)
    again = sum(1 for path, _, _ in segments for batch in read_batches(path.read_bytes()) for _ in batch)
    busiest = orders_only.group_by("key").aggregate([("value", "count")]).sort_by([("key", "ascending")])
    console.print(f"{len(log)} records, of which {len(log) - len(orders_only)} is the COMMIT marker of a transaction")
    console.print(f"{orders_only['headers'].length() - orders_only['headers'].null_count} orders with headers")
    console.print(f"{len(busiest)} customers, {busiest['value_count'][0]} orders each")
    console.print(f"{wrong} wrong checksums; tidelog.records, the readable path, finds {again} records too")


@click.command()
@click.option(
    "--dir", "root", type=click.Path(path_type=Path), help="Where to write; a new temporary folder if not given."
)
def main(root: Path | None) -> None:
    """Write a partition of Kafka's log and read it back as Arrow columns."""
    console = Console(width=80, highlight=False)
    folder = (root or Path(tempfile.mkdtemp(prefix="tidelog-demo-"))) / "orders-0"
    if folder.exists():
        raise click.UsageError(f"{folder} exists; name another folder with --dir")
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_log(folder)
    segments = [(path, *read_segment(path)) for path in sorted(folder.glob("*.log"))]
    console.print(f"tidelog {__version__}: wrote and read {folder}\n", soft_wrap=True)
    print_segments(console, segments)
    console.print()
    print_rows(console, segments[0][2].slice(0, 3))
    console.print()
    print_totals(console, segments)
    console.print()
    print_lookups(console, folder)
    print_crash(console, folder)
    console.print("\nNext, with .venv/bin in your PATH:")
    for words in (
        f"ls -l {folder.parent}",
        f"explain {folder.parent} --topic orders --offset 4500",
        f"cat {folder.parent} --topic orders --key customer-7 --limit 5 --committed",
        f"fsck {folder.parent} --deep",
    ):
        console.print(f"  tidelog {words}", soft_wrap=True)
    console.print("or open docs/formats/record-batch.md and follow the first header with")
    console.print(f"  od -A d -t x1 -N 61 {segments[0][0]}", soft_wrap=True)


if __name__ == "__main__":
    main()
