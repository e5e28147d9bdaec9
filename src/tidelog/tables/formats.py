"""The kinds of files that tables are written to and read from, and one writer for each.

parquet   columns as they are; compressed with zstd unless told otherwise
arrow     the same as an Arrow IPC file, or, where the target cannot be gone back in, as an IPC stream
csv       a heading, and text as text.py makes it; times in milliseconds
jsonl     one object per line, by the same rules
"""

import json
from collections.abc import Callable
from typing import BinaryIO, Protocol

import pyarrow as pa

from tidelog.errors import InvalidRequestError
from tidelog.tables.changes import RowChanges
from tidelog.tables.file_names import FORMATS, Format, format_of
from tidelog.tables.lines import JsonColumns
from tidelog.tables.rows import JsonRows, rows_of
from tidelog.tables.spreadsheets import safe_cells
from tidelog.tables.text import csv_text, json_headers

__all__ = ["ChangedRows", "Format", "TableWriter", "format_of", "open_writer"]

_COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "parquet": ("zstd", "snappy", "gzip", "lz4", "brotli", "none"),
    "arrow": ("none", "zstd", "lz4"),
    "csv": ("none",),
    "jsonl": ("none",),
}


_ROW_GROUP_BYTES = 64 << 20


class TableWriter(Protocol):
    """Takes the rows of a table, one RecordBatch after the other."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def close(self) -> None:
        """Write what is left. The file itself stays open."""


def open_writer(
    format: Format,
    sink: BinaryIO,
    schema: pa.Schema,
    *,
    compression: str | None = None,
    is_stream: bool = False,
    changes: RowChanges | None = None,
    csv_safe: bool = False,
) -> TableWriter:
    """A writer of a format into an open file, for rows that are changed on the way, if so wished.

    `schema` is that of the rows as they are written; `is_stream` where the file cannot be gone back in, or is read.
    With `csv_safe` no cell of CSV is a formula to a spreadsheet.
    """
    known = _COMPRESSIONS.get(format)
    if known is None:
        raise InvalidRequestError(f"no format {format!r}; there are {', '.join(FORMATS)}")
    if compression is None:
        compression = known[0]
    elif compression not in known:
        raise InvalidRequestError(f"{format} is not compressed with {compression!r}; it can be {', '.join(known)}")
    make: dict[str, Callable[[], TableWriter]] = {
        "parquet": lambda: _Parquet(sink, schema, compression),
        "arrow": lambda: _Arrow(sink, schema, compression, is_stream),
        "csv": lambda: _Csv(sink, schema, csv_safe),
        "jsonl": lambda: _JsonLines(sink, changes),
    }
    return make[format]() if changes is None or format == "jsonl" else ChangedRows(make[format](), changes)


class ChangedRows:
    """Changes rows before a writer gets them."""

    def __init__(self, writer: TableWriter, changes: RowChanges) -> None:
        self._writer = writer
        self._changes = changes

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(self._changes.of_batch(batch))

    def close(self) -> None:
        self._writer.close()


class _Parquet:
    """Row groups of some megabytes: RecordBatches are gathered."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, compression: str) -> None:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(pa.PythonFile(sink, "w"), schema, compression=compression)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._size += batch.nbytes
        if self._size >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting, self._size = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _Arrow:
    def __init__(self, sink: BinaryIO, schema: pa.Schema, compression: str, is_stream: bool) -> None:
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
        make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
        self._writer = make(pa.PythonFile(sink, "w"), schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Csv:
    def __init__(self, sink: BinaryIO, schema: pa.Schema, is_safe: bool) -> None:
        from pyarrow import csv

        self._is_safe = is_safe
        self._schema = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in schema])
        self._writer = csv.CSVWriter(pa.PythonFile(sink, "w"), self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = [_csv_column(column) for column in batch.columns]
        if self._is_safe:
            arrays = [safe_cells(array) if pa.types.is_string(array.type) else array for array in arrays]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _csv_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type):
        return pa.int64()
    return pa.string() if pa.types.is_binary(data_type) or pa.types.is_list(data_type) else data_type


def _csv_column(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    if pa.types.is_binary(column.type):
        return _csv_texts(column)
    if pa.types.is_list(column.type):
        texts = (None if headers is None else json.dumps(json_headers(headers)) for headers in column.to_pylist())
        return pa.array(texts, pa.string())
    return column


def _csv_texts(column: pa.Array) -> pa.Array:
    """All of a column at once where it is plain text, value by value where it is not."""
    import pyarrow.compute as pc

    try:
        texts = column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = None
    if texts is None or pc.any(pc.starts_with(texts, pattern="base64:")).as_py():
        return pa.array((csv_text(data) for data in column.to_pylist()), pa.string())
    return texts


class _JsonLines:
    """What was decoded is a value of its own here, and no text: such rows are changed one by one."""

    def __init__(self, sink: BinaryIO, changes: RowChanges | None) -> None:
        self._rows = JsonRows(sink)
        self._columns = JsonColumns(sink)
        self._changes = changes

    def write(self, batch: pa.RecordBatch) -> None:
        if self._changes is None:
            self._columns.write(batch)
        elif self._changes.is_decoding:
            self._rows.write(map(self._changes.of_row, rows_of(batch)))
        else:
            self._columns.write(self._changes.of_batch(batch))

    def close(self) -> None:
        """Every line is written already."""
