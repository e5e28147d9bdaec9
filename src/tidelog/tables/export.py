"""Rows into a file, which has its name once it is complete."""

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from tidelog.tables.changes import RowChanges
from tidelog.tables.formats import Format, open_writer
from tidelog.tables.new_file import written_beside

__all__ = ["Exported", "export_table"]


class Exported(NamedTuple):
    """A file that was written."""

    path: str
    rows: int
    size: int


def export_table(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    path: str,
    format: Format,
    *,
    compression: str | None = None,
    changes: RowChanges | None = None,
    csv_safe: bool = False,
    force: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Exported:
    """Write rows into a file. `schema` is that of the file, `on_rows` is told how many rows are written so far.

    With `csv_safe` no cell of CSV is a formula to a spreadsheet.
    """
    rows = 0
    with written_beside(path, force=force) as sink:
        writer = open_writer(format, sink, schema, compression=compression, changes=changes, csv_safe=csv_safe)
        with closing(writer):  # while the file is open
            for batch in batches:
                writer.write(batch)
                rows += batch.num_rows
                on_rows(rows)
        size = sink.tell()
    return Exported(path, rows, size)
