"""`tidelog load`: files of records as a topic of a log directory."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.bounds import topic_option
from tidelog.cli.interrupted import settle_writes
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import config_option, ensure_all_named, log_dirs
from tidelog.cli.on_master import load_on, master_option
from tidelog.cli.output import interruptible, print_json, progress, table, tell
from tidelog.cli.settings import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load"]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--to", "directories", multiple=True, type=LOCAL_PATH, metavar="DIR",
    help="The log directory; a new one is made. Of a broker with several name all, or give --config; repeatable.",
)  # fmt: skip
@config_option
@topic_option
@click.option("--format", "form", type=click.Choice(["parquet", "csv", "jsonl", "arrow"]),
              help="Without it the name of a file tells.")  # fmt: skip
@click.option(
    "--csv-safe", is_flag=True, help="The CSV was written with --csv-safe: an apostrophe in front of a cell goes."
)
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N",
    help="How many partitions the topic has, if the metadata log does not say so. Rows that name one go there.",
)  # fmt: skip
@click.option(
    "--compression", default="none", show_default=True, metavar="CODEC",
    help="Of the batches: none, gzip, snappy, lz4 or zstd.",
)  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A config of the topic (segment.bytes=…).")
@click.option("--many-segments", is_flag=True, help="Load even if that makes more than 10,000 segments.")
@click.option(
    "--topic-id",
    metavar="ID",
    help="The id of a new topic, as Kafka writes it; without it that of the metadata log, or a random one.",
)
@click.option("--internal", is_flag=True, help="Load into a topic of Kafka's own, such as __consumer_offsets.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition.")
@master_option
def load(
    paths: tuple[str, ...],
    directories: tuple[str, ...],
    config: str | None,
    topic: str,
    form: str | None,
    csv_safe: bool,
    partitions: int | None,
    compression: str,
    settings: tuple[str, ...],
    many_segments: bool,
    topic_id: str | None,
    internal: bool,
    as_json: bool,
    master: str | None,
) -> None:
    """Append the records in files to a topic of a broker's log directories, while no broker has them open.

    PATH is a parquet, CSV, JSON Lines or Arrow file, a directory of such files, an address of either, such as
    s3://bucket/orders.parquet, or - for standard input. Of the columns
    key, value, partition, timestamp and headers any may be missing; topic, offset and the others that `tidelog export`
    writes are passed over.

    A record goes to the partition that it names. Without one it goes where Kafka's producers put its key (murmur2);
    records without a key are dealt out in turn. Offsets are given anew, behind those that are there.

    Where a log directory holds the metadata log of the cluster (__cluster_metadata-0) and it knows the topic, it says
    how many partitions there are; a record for one that it does not assign to this node is rejected.

    Of several log directories each partition is loaded where it lies, and a new one goes into the directory with the
    fewest, as with a broker. Name all of them: Kafka does not start if a partition lies in two.

    If something is wrong nothing is loaded. A load that is killed leaves a journal in the log directory; no broker
    starts there until `tidelog recover` or the next load has taken back what was appended.

    Run it as the user of the broker, or as root: new files then get the owner of the old ones. A broker serves the
    topic if its cluster knows it by this id.

    With --master it is done on Spark, from parquet files; `tidelog spark load` does more of that.
    """
    roots = log_dirs(directories, config, "--to DIR")
    if master is not None:
        if len(roots) > 1:
            raise click.UsageError("with --master there is one log directory; `tidelog load` writes into several")
        load_on(
            master, paths, roots[0], topic, form=form, csv_safe=csv_safe, partitions=partitions,
            compression=compression, settings=settings, many_segments=many_segments, topic_id=topic_id,
            internal=internal, as_json=as_json,
        )  # fmt: skip
        return
    from tidelog.log.partition_metadata import parse_uuid
    from tidelog.tables.load import load_table
    from tidelog.tables.reading import read_table, table_files

    files = [file for path in paths for file in table_files(path)]
    total = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    kind: Any = form
    counted = _Rows()
    settle_writes(roots)
    try:
        with interruptible() as ensure_wanted, _terminable(), progress("loading", ensure_wanted) as show:
            update = show(topic)
            done = load_table(
                (batch for file in files for batch in counted.of(file, read_table(file, kind, csv_safe=csv_safe))),
                roots,
                topic,
                partitions=partitions,
                configs=settings_of(settings),
                compression=compression,
                topic_id=None if topic_id is None else parse_uuid(topic_id),
                allow_internal=internal,
                many_segments=many_segments,
                on_bytes=lambda size: update(size, max(size, total)),
                on_notice=tell,
                name_row=counted.name,
                before_new=ensure_all_named(roots),
            )
    except KeyboardInterrupt:
        tell("interrupted: nothing was loaded")
        raise
    if as_json:
        for each in done:
            print_json(
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "records": each.rows,
                    "first_offset": each.first_offset,
                    "next_offset": each.next_offset,
                }
            )
    else:
        rows = [(str(each.partition), f"{each.rows:,}", _offsets(each.first_offset, each.next_offset)) for each in done]
        table(("partition", "records", "offsets"), rows)


class _Rows:
    """Knows which row of which file a row of the whole input is."""

    def __init__(self) -> None:
        self._file = ""
        self._before = 0  # rows of the files before
        self._taken = 0

    def of(self, file: str, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """The same batches, counted."""
        self._file, self._before = file, self._taken
        for batch in batches:
            self._taken += batch.num_rows
            yield batch

    def name(self, row: int) -> str:
        """A row of the file that is being read, by its number in the whole input."""
        return f"{self._file}, row {row - self._before:,}"


@contextmanager
def _terminable() -> Iterator[None]:
    """Inside, to be asked to end is as Ctrl-C: the load is taken back first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _offsets(first: int, following: int) -> str:
    return f"{first} to {following - 1}" if following > first else "-"
