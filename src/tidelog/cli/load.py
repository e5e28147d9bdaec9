"""`tidelog load`: append the records in files to a topic of log directories."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import click

from tidelog.cli.bounds import topic_option
from tidelog.cli.interrupted import settle_writes
from tidelog.cli.loaded import show_loaded
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import config_option, log_dirs
from tidelog.cli.on_master import load_on, master_option
from tidelog.cli.output import interruptible, progress, tell
from tidelog.cli.settings import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.tables.file_names import Format
    from tidelog.tables.load import Loaded

__all__ = ["load"]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--to", "directories", multiple=True, type=LOCAL_PATH, metavar="DIR",
    help="The log directory; it is created if need be. If the broker has several, name all, or give --config; "
    "repeatable.",
)  # fmt: skip
@config_option
@topic_option
@click.option("--format", "form", type=click.Choice(["parquet", "csv", "jsonl", "arrow"]),
              help="By default, what the name of each file says.")  # fmt: skip
@click.option(
    "--csv-safe", is_flag=True, help="The CSV was written with --csv-safe: remove the apostrophe in front of a cell."
)
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N",
    help="How many partitions the topic has, if no metadata log says so. Rows that name a partition go there.",
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
    help="The id of a new topic, as Kafka writes it; by default that of the metadata log, or a random one.",
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
    s3://bucket/orders.parquet, or - for standard input. Any of the columns key, value, partition, timestamp and headers
    may be missing; topic, offset and the other columns that `tidelog export` writes are ignored.

    A record goes to the partition that it names, otherwise to the one that Kafka's producers choose for its key
    (murmur2); records without a key are spread evenly. New offsets follow those that are there.

    If a log directory holds the metadata log of the cluster (__cluster_metadata-0) and it lists the topic, it decides
    how many partitions there are, and a record for a partition of another node is rejected.

    With several log directories, each partition is loaded in the directory that holds it, and a new one goes into the
    directory with the fewest, as with a broker. Name all of them: Kafka does not start if a partition is in two.

    A load is atomic: if it fails, nothing is loaded. A load that is killed leaves a journal in the log directory, and
    no broker starts there until `tidelog recover` or the next load has taken back what was appended.

    Run it as the broker's user, or as root: new files get the owner of the old ones. A broker serves the topic if its
    cluster knows it by this id.

    With --master it runs on Spark, from parquet files; `tidelog spark load` has more options.
    """
    roots = log_dirs(directories, config, "--to DIR", with_empty=True)
    if master is not None:
        if len(roots) > 1:
            raise click.UsageError("with --master there is one log directory; `tidelog load` writes into several")
        load_on(
            master, paths, roots[0], topic, form=form, csv_safe=csv_safe, partitions=partitions,
            compression=compression, settings=settings, many_segments=many_segments, topic_id=topic_id,
            internal=internal, as_json=as_json, is_only_log_dir=config is not None,
        )  # fmt: skip
        return
    from tidelog.log.partition_metadata import parse_uuid

    done = _load_files(
        paths, cast("Format | None", form), csv_safe, roots, topic,
        partitions=partitions, configs=settings_of(settings), compression=compression,
        topic_id=None if topic_id is None else parse_uuid(topic_id), allow_internal=internal,
        many_segments=many_segments, are_all_dirs=config is not None,
    )  # fmt: skip
    show_loaded(done, as_json=as_json)


def _load_files(
    paths: Iterable[str], form: "Format | None", csv_safe: bool, roots: list[str], topic: str, **options: Any
) -> "list[Loaded]":
    """Load the rows of files; `options` are those of load_table."""
    from tidelog.tables.load import load_table
    from tidelog.tables.reading import read_table, table_files

    files = [file for path in paths for file in table_files(path)]
    total = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    counted = _Rows()
    settle_writes(roots)
    try:
        with interruptible() as ensure_wanted, _terminable(), progress("loading", ensure_wanted) as show:
            update = show(topic)
            rows = (batch for file in files for batch in counted.of(file, read_table(file, form, csv_safe=csv_safe)))
            return load_table(
                ensure_wanted.awaited(rows),
                roots,
                topic,
                on_bytes=lambda size: update(size, max(size, total)),
                on_notice=tell,
                name_row=counted.name,
                **options,
            )
    except KeyboardInterrupt:
        tell("interrupted: nothing was loaded")
        raise


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
