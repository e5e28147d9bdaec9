"""`tidelog cat`: records as data."""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from tidelog.cli.bounds import range_options, scan_options, topic_option
from tidelog.cli.output import TerminalSink, tell
from tidelog.cli.records import (
    change_options,
    csv_safe_option,
    damage_told,
    ensure_csv,
    request_of,
    row_changes,
    tell_of_bounds,
    tell_of_ends,
    tell_of_starts,
    tell_of_uncommitted,
    tell_of_unfinished,
)
from tidelog.errors import StorageError
from tidelog.log.local_files import DISK_FULL, FULL
from tidelog.visible import visible_json, visible_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.tables.changes import RowChanges
    from tidelog.tables.formats import TableWriter
    from tidelog.tables.rows import CsvRows, JsonRows, LineRows, Row
    from tidelog.tables.uncommitted import UncommittedRows
    from tidelog.view.partition import PartitionView

    RowWriter = LineRows | JsonRows | CsvRows

__all__ = ["cat"]

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_LINE_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_BINARY_FORMS = ("parquet", "arrow")
_ROW_FORMS = ("text", "jsonl", "csv")  # which need no Arrow
_LEFT_OUT = 1


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@topic_option
@range_options("--to", "--until", isolation_help="cat includes them and says how many there were.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many records.")
@click.option(
    "-o", "--output", "form", type=click.Choice(["text", "jsonl", "csv", "parquet", "arrow"]),
    help="The form of the records. Without it the name of FILE tells (.parquet, .csv, .jsonl, .arrow), or it is text.",
)  # fmt: skip
@click.option("--out", "target", metavar="FILE", help="Write into a new file instead of to standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@csv_safe_option
@click.option("--headers", "with_headers", is_flag=True, help="Headers too, in the text form; the others have them.")
@change_options
def cat(
    directories: tuple[str, ...],
    topic: str,
    limit: int | None,
    form: str | None,
    target: str | None,
    force: bool,
    csv_safe: bool,
    with_headers: bool,
    redact: tuple[str, ...],
    salt: str | None,
    decode: bool,
    **bounds: Any,
) -> None:
    """Print the records of a topic. DIR as in `tidelog ls`.

    Text has one line per record: offset, time (UTC), key and value, with tabs between them. Without --partition the
    number of the partition comes first. Bytes that are no printable text are escaped as \\xNN, and \\N is null. For
    programs there are the other forms, which hold every byte: docs/scan.md describes them. In a terminal, and only
    there, characters that it would obey or hide are escaped in JSON and CSV, too.

    What could not be read at the end of a log, or was left out by --salvage or --no-verify, is reported on standard
    error with its offsets and bytes, and the exit code is 1.

    Marks of --redact are made with --salt, or with a salt that nobody knows and that is another one in each run.
    """
    import tidelog
    from tidelog.log.clock import SystemClock
    from tidelog.tables.file_names import ensure_uncompressed
    from tidelog.tables.uncommitted import UncommittedRows

    if target is not None:
        ensure_uncompressed(target)
    form = form or _form_of(target)
    ensure_csv(form, csv_safe)
    if target is None and form in _BINARY_FORMS and sys.stdout.isatty():
        raise click.UsageError(f"{form} is not for a terminal: redirect standard output, or name a file with --out")
    columns = _COLUMNS if form != "text" else _LINE_COLUMNS if with_headers else _LINE_COLUMNS[:-1]
    changes = row_changes(columns, topic, decode=decode, redact=redact, salt=salt)
    bounds["committed"] = bool(bounds["committed"])
    options = scan_options(now_ms=SystemClock().now_ms(), **bounds)
    logs = tidelog.open(list(directories))
    tell_of_unfinished(logs)
    is_tolerant = bounds["skip_corrupt"] or bounds["no_verify"]
    uncommitted = UncommittedRows(logs[topic], tolerant=is_tolerant)
    few = _few_rows(logs[topic], columns, limit, options, uncommitted) if form in _ROW_FORMS else None
    written = _Counter()
    told = damage_told(directories, is_tolerant=is_tolerant)
    with told, _target(target, form, force, directories) as sink:
        with_partition = not bounds["partitions"]
        if few is not None:
            _row_writer(form, sink, columns, with_partition, csv_safe).write(map(changes.of_row, written.rows(few)))
            notices = []
        else:
            watched = columns if bounds["committed"] else tuple(dict.fromkeys((*columns, *UncommittedRows.COLUMNS)))
            scan = logs.scan(topic, columns=watched, **options)
            writer = _table_writer(
                form, sink, columns, changes, with_partition, is_stream=target is None, csv_safe=csv_safe
            )
            with closing(writer):  # while its target is open
                for batch in _limited(scan, limit):
                    if not bounds["committed"]:
                        uncommitted.take(batch)
                    writer.write(batch.select(columns))
                    written.count += batch.num_rows
            notices = [notice for notice in scan.notices if notice not in logs.unfinished_writes]
        sink.flush()
    is_cut = limit is not None and written.count >= limit
    has_finding = not is_cut and tell_of_ends(logs[topic], options)
    tell_of_starts(logs[topic], options)
    tell_of_uncommitted(uncommitted)
    if limit != 0:
        tell_of_bounds(logs[topic], options, is_empty=not written.count)
    for notice in notices:
        tell(notice)
    if notices or has_finding:
        raise click.exceptions.Exit(_LEFT_OUT)


def _form_of(target: str | None) -> str:
    """The form that the name of a file tells; text if it tells none."""
    from tidelog.tables.file_names import SUFFIXES

    return "text" if target is None else SUFFIXES.get(os.path.splitext(target)[1].lower(), "text")


class _Counter:
    """How many rows there were."""

    def __init__(self) -> None:
        self.count = 0

    def rows(self, rows: "Iterable[Row]") -> "Iterator[Row]":
        """The same rows, counted as they pass."""
        for row in rows:
            self.count += 1
            yield row


def _few_rows(
    partitions: "tuple[PartitionView, ...]",
    columns: tuple[str, ...],
    limit: int | None,
    options: dict[str, Any],
    uncommitted: "UncommittedRows",
) -> "Iterator[Row] | None":
    """The rows, if they are few, and nothing that is damaged is to be left out or believed."""
    from tidelog.tables.rows import few_rows

    if options["on_corruption"] == "skip" or not options.get("verify", True):
        return None
    request = request_of(options)
    if request.committed:
        return few_rows(partitions, request, columns, limit)
    return few_rows(partitions, request, columns, limit, uncommitted.take_one)


def _limited(batches: "Iterable[pa.RecordBatch]", limit: int | None) -> "Iterator[pa.RecordBatch]":
    """The first rows."""
    if limit is None:
        yield from batches
        return
    for batch in batches if limit else ():
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


# -- where it goes -----------------------------------------------------------------------------------------------


@contextmanager
def _target(path: str | None, form: str, force: bool, directories: tuple[str, ...]) -> Iterator[BinaryIO]:
    """Standard output, or a new file. A terminal must not obey what records hold; text is escaped anyway."""
    if path is None:
        stream = sys.stdout.buffer
        # Under PYTHONUNBUFFERED it has no buffer, and then a write may be cut short unseen.
        is_bare = isinstance(stream, io.RawIOBase)
        sink = io.BufferedWriter(io.FileIO(stream.fileno(), "wb", closefd=False)) if is_bare else stream
        try:
            try:
                yield _for_eyes(sink, form) if form != "text" and sys.stdout.isatty() else sink
            finally:
                sink.flush()  # what was read before an error is shown
        except OSError as error:
            if error.errno in FULL:
                raise StorageError(f"standard output: {DISK_FULL}; free space, or write to another one") from error
            raise
        return
    from tidelog.tables.new_file import ensure_outside, written_beside

    ensure_outside(path, directories)
    with written_beside(path, force=force) as sink:
        yield sink


def _for_eyes(terminal: BinaryIO, form: str) -> BinaryIO:
    return cast(BinaryIO, TerminalSink(terminal, visible_json if form == "jsonl" else visible_lines))


def _row_writer(
    form: str, sink: BinaryIO, columns: tuple[str, ...], with_partition: bool, csv_safe: bool
) -> "RowWriter":
    from tidelog.tables.rows import CsvRows, JsonRows, LineRows

    if form == "text":
        return LineRows(sink, with_partition=with_partition)
    return JsonRows(sink) if form == "jsonl" else CsvRows(sink, columns, is_safe=csv_safe)


def _table_writer(
    form: str,
    sink: BinaryIO,
    columns: tuple[str, ...],
    changes: "RowChanges",
    with_partition: bool,
    *,
    is_stream: bool,
    csv_safe: bool,
) -> "TableWriter":
    from tidelog.tables.formats import ChangedRows, open_writer
    from tidelog.tables.lines import LineColumns
    from tidelog.view.pieces import scan_schema

    if form == "text":
        return ChangedRows(LineColumns(sink, with_partition=with_partition), changes)
    kind: Any = form
    schema = scan_schema(columns)
    return open_writer(kind, sink, schema, is_stream=is_stream, changes=changes, csv_safe=csv_safe)
