"""Rows one by one, as dicts with the columns of a scan: for a few of them Arrow is not worth its loading.

few_rows     those of some partitions, if they are few
rows_of      those of a RecordBatch
LineRows     writes them as lines for eyes, JsonRows as JSON, CsvRows as CSV, to the byte as Arrow does

Times are milliseconds, headers a list of dicts, or None where there are none.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from tidelog.errors import CorruptionError
from tidelog.records.record import Record
from tidelog.tables.spreadsheets import safe_cell
from tidelog.tables.text import csv_text, json_headers, json_value, line_text, time_text
from tidelog.view.partition import PartitionView
from tidelog.view.request import Request

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CsvRows", "JsonRows", "LineRows", "Row", "few_rows", "json_cell", "rows_of"]

Row = dict[str, Any]

_FEW_BYTES = 1 << 20  # of log: record by record that takes as long as to load Arrow and the kernels
_FEW_ROWS = 2000


# -- where they come from ----------------------------------------------------------------------------------------------


def few_rows(
    partitions: Sequence[PartitionView],
    request: Request,
    columns: Sequence[str],
    limit: int | None,
    on_transactional: Callable[[int, int, int], None] = lambda partition, producer_id, offset: None,
) -> Iterator[Row] | None:
    """The rows that a scan of the partitions would give, up to a limit; None if there may be many of them.

    None as well where something is found to be damaged or lost: the scan says more about it. `on_transactional` is told
    of each row of a transaction: the partition, the producer and the offset.
    """
    chosen = request.choose(partitions)
    if any(request.lost_segments(partition) for partition in chosen):
        return None
    if limit is None or limit > _FEW_ROWS or request.rows.columns:
        try:
            if not _is_little(chosen, request):
                return None
        except CorruptionError:
            return None
    return islice(_rows(chosen, request, columns, on_transactional), limit)


def _is_little(partitions: Iterable[PartitionView], request: Request) -> bool:
    """Whether all that must be read is little."""
    size = 0
    for partition in partitions:
        for stretch in partition.stretches(*request.offsets(partition)):
            size += stretch.end - stretch.start
            if size > _FEW_BYTES:
                return False
    return True


def _rows(
    partitions: Iterable[PartitionView],
    request: Request,
    columns: Sequence[str],
    on_transactional: Callable[[int, int, int], None],
) -> Iterator[Row]:
    for partition in partitions:
        first, limit = request.offsets(partition)
        if first >= limit:
            continue
        for batch in partition.batches(first, limit, committed=request.committed, end_bound=request.end_bound):
            if not batch.is_control:
                for record in list(batch.records()):  # what cannot be read whole is not read at all
                    if first <= record.offset < limit and _is_wanted(record, request):
                        if batch.is_transactional:
                            on_transactional(partition.partition, batch.producer_id, record.offset)
                        yield _row(partition, record, columns)


def _is_wanted(record: Record, request: Request) -> bool:
    return (
        (request.key is None or record.key == request.key)
        and (request.from_time_ms is None or record.timestamp_ms >= request.from_time_ms)
        and (request.to_time_ms is None or record.timestamp_ms < request.to_time_ms)
    )


_CELLS: dict[str, Callable[[PartitionView, Record], Any]] = {
    "key": lambda partition, record: record.key,
    "value": lambda partition, record: record.value,
    "topic": lambda partition, record: partition.topic,
    "partition": lambda partition, record: partition.partition,
    "offset": lambda partition, record: record.offset,
    "timestamp": lambda partition, record: record.timestamp_ms,
    "timestampType": lambda partition, record: int(record.timestamp_type),
    "headers": lambda partition, record: [header._asdict() for header in record.headers] or None,
}


def _row(partition: PartitionView, record: Record, columns: Sequence[str]) -> Row:
    return {name: _CELLS[name](partition, record) for name in columns}


def rows_of(batch: "pa.RecordBatch") -> Iterator[Row]:
    """The rows of a RecordBatch."""
    import pyarrow as pa

    def values(column: pa.Array) -> list[Any]:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        return list(column.to_pylist())

    names = batch.schema.names
    for row in zip(*(values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, row, strict=True))


# -- where they go -----------------------------------------------------------------------------------------------------


class LineRows:
    """One line per row, for eyes: offset, time, key, value and headers; the partition first, if so wished."""

    def __init__(self, sink: BinaryIO, *, with_partition: bool) -> None:
        self._sink = sink
        self._with_partition = with_partition

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            cells = [str(row["partition"])] if self._with_partition else []
            cells += [str(row["offset"]), time_text(row["timestamp"])]
            cells += [line_text(row["key"]), line_text(row["value"])]
            cells += [
                f"{line_text(header['key'].encode())}={line_text(header['value'])}"
                for header in row.get("headers") or ()
            ]
            self._sink.write(("\t".join(cells) + "\n").encode())


class JsonRows:
    """One JSON object per line."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            line = self._encode({name: json_cell(value) for name, value in row.items()})
            self._sink.write(f"{line}\n".encode())


def json_cell(value: Any) -> Any:
    """A cell of a row as a JSON value."""
    if isinstance(value, bytes):
        return json_value(value)
    return json_headers(value) if isinstance(value, list) else value


class CsvRows:
    """A heading, and a line per row. All text is quoted; null is an empty field.

    With `is_safe` no cell is a formula to a spreadsheet.
    """

    def __init__(self, sink: BinaryIO, columns: Sequence[str], *, is_safe: bool = False) -> None:
        self._sink = sink
        self._is_safe = is_safe
        self._write_line(columns)

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            cells = map(_csv_cell, row.values())
            self._write_line(map(_safe, cells) if self._is_safe else cells)

    def _write_line(self, cells: Iterable[str | int | None]) -> None:
        texts = (
            "" if cell is None else f'"{_doubled(cell)}"' if isinstance(cell, str) else str(cell) for cell in cells
        )
        self._sink.write((",".join(texts) + "\n").encode())


def _doubled(text: str) -> str:
    return text.replace('"', '""')


def _safe(cell: str | int | None) -> str | int | None:
    return safe_cell(cell) if isinstance(cell, str) else cell


def _csv_cell(value: Any) -> str | int | None:
    if isinstance(value, bytes):
        return csv_text(value)
    return json.dumps(json_headers(value)) if isinstance(value, list) else value
