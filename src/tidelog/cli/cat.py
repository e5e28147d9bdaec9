"""`tidelog cat`: records as data."""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tidelog.cli.bounds import range_options, scan_options, topic_option
from tidelog.cli.output import tell, when

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.tables.formats import TableWriter
    from tidelog.tables.redaction import Redaction
    from tidelog.tables.rows import CsvRows, JsonRows, LineRows, Row
    from tidelog.view.partition import PartitionView
    from tidelog.view.scan import Scan

    RowWriter = LineRows | JsonRows | CsvRows

__all__ = ["cat"]

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_LINE_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_ROW_FORMS = ("text", "jsonl", "csv")  # which need no Arrow
_LEFT_OUT = 1


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@topic_option
@range_options("--to", "--until")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many records.")
@click.option(
    "-o", "--output", "form", type=click.Choice(["text", "jsonl", "csv", "parquet", "arrow"]), default="text",
    show_default=True, help="The form of the records.",
)  # fmt: skip
@click.option("--out", "target", metavar="FILE", help="Write into a new file instead of to standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--headers", "with_headers", is_flag=True, help="Headers too, in the text form; the others have them.")
@click.option(
    "--redact", multiple=True, metavar="WHAT",
    help="Replace key, value or headers (separated by commas) by their length and a mark.",
)  # fmt: skip
@click.option("--salt", metavar="TEXT", help="Of the marks of --redact: the same salt gives the same marks.")
@click.option("--decode", is_flag=True, help="Show what the records of Kafka's internal topics say, as JSON.")
def cat(
    directories: tuple[str, ...],
    topic: str,
    limit: int | None,
    form: str,
    target: str | None,
    force: bool,
    with_headers: bool,
    redact: tuple[str, ...],
    salt: str | None,
    decode: bool,
    **bounds: Any,
) -> None:
    """Print the records of a topic. DIR as in `tidelog ls`.

    Text has one line per record: offset, time (UTC), key and value, with tabs between them. Without --partition the
    number of the partition comes first. Bytes that are no printable text are escaped as \\xNN, and \\N is null. For
    programs there are the other forms, which hold every byte: docs/scan.md describes them.

    Marks of --redact are made with --salt, or with a salt that nobody knows and that is another one in each run.
    """
    import tidelog
    from tidelog.log.clock import SystemClock

    changes = _Changes(topic if decode else None, redact, salt)
    options = scan_options(now_ms=SystemClock().now_ms(), **bounds)
    columns = _COLUMNS if form != "text" else _LINE_COLUMNS if with_headers else _LINE_COLUMNS[:-1]
    logs = tidelog.open(list(directories))
    few = _few_rows(logs[topic], columns, limit, options) if form in _ROW_FORMS else None
    with _target(target, force) as sink:
        with_partition = not bounds["partitions"]
        if few is not None:
            _row_writer(form, sink, columns, with_partition).write(map(changes.of_row, few))
            notices = []
        else:
            scan = logs.scan(topic, columns=columns, **options)
            writer = _Lines(sink, with_partition) if form == "text" else _table_writer(form, sink, scan, target is None)
            with closing(writer):  # while its target is open
                for batch in _limited(scan, limit):
                    writer.write(changes.of_batch(batch))
            notices = scan.notices
        sink.flush()
    for notice in notices:
        tell(notice)
    if notices:
        raise click.exceptions.Exit(_LEFT_OUT)


class _Changes:
    """What is done to rows before they are written."""

    def __init__(self, internal_topic: str | None, redact: tuple[str, ...], salt: str | None) -> None:
        self._internal_topic = internal_topic
        names = [name.strip() for part in redact for name in part.split(",") if name.strip()]
        self._redaction = _redaction(names, os.urandom(32) if salt is None else salt.encode()) if names else None

    def of_row(self, row: "Row") -> "Row":
        if self._internal_topic is not None:
            from tidelog.tables.decoding import decoded_row

            row = decoded_row(row, self._internal_topic)
        return row if self._redaction is None else self._redaction.apply_to_row(row)

    def of_batch(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        if self._internal_topic is not None:
            from tidelog.tables.decoding import decoded

            batch = decoded(batch, self._internal_topic)
        return batch if self._redaction is None else self._redaction.apply(batch)


def _redaction(names: list[str], salt: bytes) -> "Redaction":
    from tidelog.tables.redaction import Redaction

    return Redaction(names, salt)


def _few_rows(
    partitions: "tuple[PartitionView, ...]", columns: tuple[str, ...], limit: int | None, options: dict[str, Any]
) -> "Iterator[Row] | None":
    """The rows, if they are few and nothing damaged is to be passed over."""
    from tidelog.tables.rows import few_rows
    from tidelog.view.request import Request

    wishes = dict(options)
    if wishes.pop("on_corruption") == "skip":
        return None
    return few_rows(partitions, Request.of(**wishes), columns, limit)


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
def _target(path: str | None, force: bool) -> Iterator[BinaryIO]:
    """Standard output, or a new file."""
    if path is None:
        stream = sys.stdout.buffer
        # Under PYTHONUNBUFFERED it has no buffer, and then a write may be cut short unseen.
        is_bare = isinstance(stream, io.RawIOBase)
        sink = io.BufferedWriter(io.FileIO(stream.fileno(), "wb", closefd=False)) if is_bare else stream
        try:
            yield sink
        finally:
            sink.flush()  # what was read before an error is shown
        return
    from tidelog.tables.new_file import written_beside

    with written_beside(path, force=force) as sink:
        yield sink


def _row_writer(form: str, sink: BinaryIO, columns: tuple[str, ...], with_partition: bool) -> "RowWriter":
    from tidelog.tables.rows import CsvRows, JsonRows, LineRows

    if form == "text":
        return LineRows(sink, when, with_partition=with_partition)
    return JsonRows(sink) if form == "jsonl" else CsvRows(sink, columns)


def _table_writer(form: str, sink: BinaryIO, scan: "Scan", is_stream: bool) -> "TableWriter":
    from tidelog.tables.formats import open_writer

    return open_writer(form, sink, scan.schema, is_stream=is_stream)  # type: ignore[arg-type]


class _Lines:
    """One line per record, for eyes."""

    def __init__(self, sink: BinaryIO, with_partition: bool) -> None:
        from tidelog.tables.rows import LineRows

        self._rows = LineRows(sink, when, with_partition=with_partition)

    def write(self, batch: "pa.RecordBatch") -> None:
        from tidelog.tables.rows import rows_of

        self._rows.write(rows_of(batch))

    def close(self) -> None:
        """Every line is written already."""
