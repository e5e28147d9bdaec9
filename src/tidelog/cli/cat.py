"""`tidelog cat`: records as data."""

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tidelog.cli.bounds import range_options, scan_options, topic_option
from tidelog.cli.output import tell, when

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.tables.formats import TableWriter

    Change = Callable[[pa.RecordBatch], pa.RecordBatch]

__all__ = ["cat"]

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_LINE_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
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

    changes = [*_decoding(topic, decode), *_redaction(redact, salt)]
    options = scan_options(now_ms=SystemClock().now_ms(), **bounds)
    columns = _COLUMNS if form != "text" else _LINE_COLUMNS if with_headers else _LINE_COLUMNS[:-1]
    scan = tidelog.open(list(directories)).scan(topic, columns=columns, **options)
    rows = _limited(scan, limit)
    for change in changes:
        rows = map(change, rows)
    with _target(target, force) as sink:
        if form == "text":
            writer: TableWriter = _Lines(sink, with_partition=not bounds["partitions"])
        else:
            writer = _table_writer(form, sink, scan.schema, is_stream=target is None)
        for batch in rows:
            writer.write(batch)
        writer.close()
        sink.flush()
    for notice in scan.notices:
        tell(notice)
    if scan.notices:
        raise click.exceptions.Exit(_LEFT_OUT)


def _decoding(topic: str, decode: bool) -> "Iterator[Change]":
    if decode:
        from tidelog.tables.decoding import decoded

        yield lambda batch: decoded(batch, topic)


def _redaction(redact: tuple[str, ...], salt: str | None) -> "Iterator[Change]":
    names = [name.strip() for part in redact for name in part.split(",") if name.strip()]
    if names:
        from tidelog.tables.redaction import Redaction

        yield Redaction(names, os.urandom(32) if salt is None else salt.encode()).apply


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
        yield io.BufferedWriter(io.FileIO(stream.fileno(), "wb", closefd=False)) if is_bare else stream
        return
    from tidelog.tables.export import written_beside

    with written_beside(path, force=force) as sink:
        yield sink


def _table_writer(form: str, sink: BinaryIO, schema: "pa.Schema", *, is_stream: bool) -> "TableWriter":
    from tidelog.tables.formats import open_writer

    return open_writer(form, sink, schema, is_stream=is_stream)  # type: ignore[arg-type]


class _Lines:
    """One line per record, for eyes."""

    def __init__(self, sink: BinaryIO, *, with_partition: bool) -> None:
        self._sink = sink
        self._with_partition = with_partition

    def write(self, batch: "pa.RecordBatch") -> None:
        from tidelog.tables.text import line_text

        names = batch.schema.names
        for row in zip(*(_values(column) for column in batch.columns), strict=True):
            fields = dict(zip(names, row, strict=True))
            cells = [str(fields["partition"])] if self._with_partition else []
            cells += [str(fields["offset"]), when(fields["timestamp"])]
            cells += [line_text(fields["key"]), line_text(fields["value"])]
            cells += [
                f"{line_text(header['key'].encode())}={line_text(header['value'])}"
                for header in fields.get("headers") or ()
            ]
            self._sink.write(("\t".join(cells) + "\n").encode())

    def close(self) -> None:
        """Every line is written already."""


def _values(column: "pa.Array") -> list[Any]:
    import pyarrow as pa

    return list((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
