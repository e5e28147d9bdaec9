"""Files of tables as RecordBatches with the columns of records: key, value, partition, timestamp, headers.

Any of them may be missing, but not all. Other columns that a scan gives (topic, offset, ...) are passed over, since a
log that is loaded gives its own; a column of any other name is refused, because it may be a typing error.
"""

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from tidelog.columns.schema import ALL_COLUMNS, HEADERS_TYPE
from tidelog.columns.soundness import ensure_sound_batch
from tidelog.errors import InvalidRequestError, StorageError, TidelogError
from tidelog.log.local_files import DISK_FULL, FULL
from tidelog.tables.file_names import Format, ensure_uncompressed, format_of
from tidelog.tables.spreadsheets import unsafe_cells
from tidelog.tables.text import bytes_of_csv, bytes_of_json, headers_of_json
from tidelog.view.addresses import is_address, local_path
from tidelog.view.files import ReadOnlyFiles, ViewFiles

__all__ = ["RECORD_COLUMNS", "STANDARD_INPUT", "read_table", "table_files"]

RECORD_COLUMNS = ("key", "value", "partition", "timestamp", "headers")
_PASSED_OVER = {*ALL_COLUMNS, "segment"} - set(RECORD_COLUMNS)
STANDARD_INPUT = "-"
_ROWS_AT_ONCE = 65_536
_LINES_BYTES = 16 << 20  # of JSON, that become one RecordBatch
_CSV_BLOCK = 128 << 20  # a row must fit: the largest record that a broker takes by default is 1 MiB


def table_files(path: str) -> list[str]:
    """The file of a path, or the files in a directory: those whose names tell a format.

    A path may be an address, such as s3://bucket/orders.parquet.
    """
    if path == STANDARD_INPUT:
        return [path]
    files: ViewFiles = ReadOnlyFiles()
    if is_address(path):
        from tidelog.view.remote_files import files_at

        files, _ = files_at(path, None, None)
    path = local_path(path)
    about = files.stat(path)
    if about is None:
        raise InvalidRequestError(f"{path} does not exist")
    if not about.is_directory:
        return [path]
    found = []
    for name in files.list(path):
        try:
            format_of(name)
        except InvalidRequestError:
            continue
        place = os.path.join(path, name)
        if not is_address(path) and not os.path.isfile(place):
            raise InvalidRequestError(f"{place} is no regular file: name a pipe by itself, or take it away")
        found.append(place)
    if not found:
        raise InvalidRequestError(f"{path}: no file in it has a name that ends with .parquet, .csv, .jsonl or .arrow")
    return found


def read_table(path: str, format: Format | None = None, *, csv_safe: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of a file. What is wrong with it is said with its name, and where that is known with the place.

    `csv_safe` is for CSV that was written so: the first apostrophe of a cell does not belong to it.
    """
    readers: dict[str, Callable[[str], Iterator[pa.RecordBatch]]] = {
        "parquet": _parquet,
        "arrow": _arrow,
        "csv": partial(_csv, is_safe=csv_safe),
        "jsonl": _json_lines,
    }
    if path == STANDARD_INPUT and format is None:
        raise InvalidRequestError("standard input has no name that tells its format: --format does")
    ensure_uncompressed(path)
    read = readers[format or format_of(path)]
    try:
        with _seekable(path) as place:
            try:
                for batch in read(place):
                    ensure_sound_batch(batch)  # before a kernel, or Arrow itself, follows an offset of the file
                    if batch.num_rows:
                        yield batch
            except TidelogError as error:
                raise type(error)(str(error).replace(place, path)) from None
    except (pa.ArrowException, UnicodeDecodeError) as error:  # a name of a column can be any bytes
        raise InvalidRequestError(f"{path} cannot be read as {format or format_of(path)}: {error}") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except TidelogError as error:
        raise type(error)(str(error) if path in str(error) else f"{path}: {error}") from None


@contextmanager
def _seekable(path: str) -> Iterator[str]:
    """A file that can be read from any place: that of a path, or what comes out of a pipe or a store, put aside."""
    if path != STANDARD_INPUT and not is_address(path) and os.path.isfile(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="tidelog-load-") as kept:
        try:
            _keep(path, kept)
        except OSError as error:
            if error.errno in FULL:
                where = f"{tempfile.gettempdir()}, where {path} is put aside to be read"
                raise StorageError(f"{where}: {DISK_FULL}; TMPDIR names another one") from error
            raise
        yield kept.name


def _keep(path: str, kept: Any) -> None:
    if is_address(path):
        from tidelog.view.remote_files import read_address

        read_address(path, kept)
    else:
        with open(0 if path == STANDARD_INPUT else path, "rb", closefd=path != STANDARD_INPUT) as pipe:
            shutil.copyfileobj(pipe, kept, 1 << 20)
    kept.flush()


def _wanted(names: Iterable[str]) -> list[str]:
    """The columns that a record is made of."""
    names = list(names)
    for name in names:
        if name not in RECORD_COLUMNS and name not in _PASSED_OVER:
            raise InvalidRequestError(f"column {name!r} is none of a record's, which are {', '.join(RECORD_COLUMNS)}")
        if names.count(name) > 1:
            raise InvalidRequestError(f"there are two columns {name!r}")
    found = [name for name in RECORD_COLUMNS if name in names]
    if not set(found) - {"partition"}:
        raise InvalidRequestError(f"none of a record's columns is there: {', '.join(RECORD_COLUMNS)}")
    return found


def _parquet(path: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        yield from file.iter_batches(_ROWS_AT_ONCE, columns=_wanted(file.schema_arrow.names))


def _arrow(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            reader = pa.ipc.open_file(file)
            names = _wanted(reader.schema.names)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(names)
        else:
            stream = pa.ipc.open_stream(file)
            names = _wanted(stream.schema.names)
            for batch in stream:
                yield batch.select(names)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def _csv(path: str, *, is_safe: bool) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    if not os.path.getsize(path):
        return
    with open(path, "rb") as file:
        names = _heading(file)
    wanted = _wanted(names)
    reader = csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=min(os.path.getsize(path), _CSV_BLOCK)),
        # where there is one column, an empty line is a row whose field is null
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=wanted,
        ),
    )
    for batch in reader:
        cells = {name: batch.column(name) for name in wanted}
        if is_safe:
            cells = {name: unsafe_cells(column) for name, column in cells.items()}
        columns = {name: _of_csv(name, column) for name, column in cells.items()}
        yield pa.RecordBatch.from_pydict(columns)


def _heading(file: io.BufferedReader) -> list[str]:
    import csv

    try:
        return next(csv.reader([file.readline(1 << 20).decode("utf-8-sig")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequestError(f"the first line is no heading of a CSV file: {error}") from None


def _of_csv(name: str, column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if name == "headers":
        return pa.array([_headers_of_text(text) for text in column.to_pylist()], HEADERS_TYPE)
    if name == "partition":
        return _numbers(name, column, pa.int32())
    if name == "timestamp":
        is_number = pc.all(pc.match_substring_regex(column, r"^-?[0-9]+$")).as_py() is not False
        return _numbers(name, column, pa.int64() if is_number else pa.timestamp("ms", "UTC"))
    if pc.any(pc.starts_with(column, pattern="base64:")).as_py():
        return pa.array([bytes_of_csv(text) for text in column.to_pylist()], pa.binary())
    return column.cast(pa.binary())


def _numbers(name: str, column: pa.Array, data_type: pa.DataType) -> pa.Array:
    try:
        return column.cast(data_type)
    except pa.ArrowInvalid as error:
        what = "milliseconds, or a date and time with its zone" if name == "timestamp" else "a number"
        raise InvalidRequestError(f"column {name!r} holds {what}: {error}") from None


def _headers_of_text(text: str | None) -> list[dict[str, Any]] | None:
    if text is None:
        return None
    try:
        return headers_of_json(json.loads(text))
    except TidelogError:
        raise
    except (ValueError, RecursionError) as error:  # brackets within brackets
        raise InvalidRequestError(f"headers {text[:40]!r} are not JSON: {error}") from None


# -- JSON Lines --------------------------------------------------------------------------------------------------------


def _json_lines(path: str) -> Iterator[pa.RecordBatch]:
    with open(path, "rb") as file:
        done = 0
        while lines := file.readlines(_LINES_BYTES):
            rows = []
            for number, line in enumerate(lines, done + 1):
                try:
                    if line.strip():
                        rows.append(_row_of(line))
                except TidelogError as error:
                    raise InvalidRequestError(f"{path}, line {number}: {error}") from None
            done += len(lines)
            if rows:
                yield _of_rows(path, rows)


def _row_of(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InvalidRequestError("a line is a JSON object, a record")
    wanted = _wanted(row)
    row = {name: row[name] for name in wanted}
    for name in ("key", "value"):
        if name in row:
            row[name] = bytes_of_json(row[name])
    if "headers" in row:
        row["headers"] = headers_of_json(row["headers"])
    return row


def _of_rows(path: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    types = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "headers": HEADERS_TYPE}
    names = [name for name in RECORD_COLUMNS if any(name in row for row in rows)]
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            if name in ("partition", "timestamp"):
                _ensure_whole(values)
            columns[name] = _times(values) if name == "timestamp" else pa.array(values, types[name])
        except (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError) as error:
            raise InvalidRequestError(f"{path}: column {name!r}: {error}") from None
    return pa.RecordBatch.from_pydict(columns)


def _ensure_whole(values: list[Any]) -> None:
    for value in values:
        if isinstance(value, float | bool):
            raise TypeError(f"{value} is no whole number")


def _times(values: list[Any]) -> pa.Array:
    """Milliseconds, or texts of dates and times."""
    if any(isinstance(value, str) for value in values):
        return _numbers("timestamp", pa.array(values, pa.string()), pa.timestamp("ms", "UTC"))
    return pa.array(values, pa.int64())
