"""Lines at memory speed, for eyes and as JSON: whole columns of text, joined by Arrow.

`LineRows` and `JsonRows` (rows.py) write the same lines row by row and are the truth about them; the tests hold both
together. Nearly all keys and values are plain text, in which a backslash or a quote is all that needs care. Those that
are not are written one by one, by the functions that write rows.
"""

import json
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.tables.rows import JsonRows, LineRows, json_cell, rows_of
from tidelog.tables.text import LAST_NAMED_MS, NULL_IN_LINES, line_text
from tidelog.visible import INVISIBLE

__all__ = ["JsonColumns", "LineColumns"]

# A column of text has at most 2 GiB, and a byte can become six characters.
_MOST_BYTES = 128 << 20
_ODD_IN_LINES = "[" + "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in INVISIBLE) + "]"  # as RE2 spells
_ODD_IN_JSON = "[\\x{0}-\\x{1f}]"


class LineColumns:
    """One line per row: offset, time, key, value and headers; the partition first, if so wished."""

    def __init__(self, sink: BinaryIO, *, with_partition: bool) -> None:
        self._sink = sink
        self._rows = LineRows(sink, with_partition=with_partition)
        self._with_partition = with_partition

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.nbytes > _MOST_BYTES:  # a few huge records
            self._rows.write(rows_of(batch))
        elif batch.num_rows:
            self._sink.write(_characters(self._lines(batch)))

    def _lines(self, batch: pa.RecordBatch) -> pa.Array:
        cells = [batch.column("partition").cast(pa.string())] if self._with_partition else []
        cells += [batch.column("offset").cast(pa.string()), _times(batch.column("timestamp"))]
        cells += [_texts(batch.column("key")), _texts(batch.column("value"))]
        parts: list[Any] = [part for cell in cells for part in (cell, "\t")]
        parts[-1] = "\n"
        if "headers" in batch.schema.names:
            parts[-1:] = [_headers(batch.column("headers")), "\n"]
        return pc.binary_join_element_wise(*parts, "")

    def close(self) -> None:
        """Every line is written already."""


def _texts(column: pa.Array) -> pa.Array:
    """`line_text` of every value."""
    return _written(column, {"\\": "\\\\"}, _ODD_IN_LINES, line_text).fill_null(NULL_IN_LINES)


def _written(
    column: pa.Array, escapes: dict[str, str], odd: str, write: Callable[[bytes], str], quote: str = ""
) -> pa.Array:
    """Text with some characters escaped, in quotes; null stays null. What matches `odd`, or is no text, goes singly."""
    try:
        texts = column.cast(pa.string())
    except pa.ArrowInvalid:  # some are no UTF-8
        return pa.array((None if data is None else write(data) for data in column.to_pylist()), pa.string())
    is_odd = pc.match_substring_regex(texts, odd).fill_null(False)
    for character, escape in escapes.items():
        texts = pc.replace_substring(texts, character, escape)
    if quote:
        texts = pc.binary_join_element_wise(quote, texts, quote, "")
    if not is_odd.true_count:
        return texts
    singly = pa.array(map(write, column.filter(is_odd).to_pylist()), pa.string())
    return pc.replace_with_mask(texts, is_odd, singly)


def _times(column: pa.Array) -> pa.Array:
    """`time_text` of every time."""
    times = column.cast(pa.int64())
    is_named = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, LAST_NAMED_MS))
    named = pc.if_else(is_named, times, 0).cast(pa.timestamp("ms"))  # with a zone Arrow takes 15 times as long
    texts = pc.binary_join_element_wise(pc.binary_replace_slice(named.cast(pa.string()), 10, 11, "T"), "Z", "")
    return texts if is_named.true_count == len(times) else pc.if_else(is_named, texts, times.cast(pa.string()))


def _headers(column: pa.Array) -> pa.Array:
    """Of every row a tab and `name=value` for each header; nothing where there is none."""
    if column.null_count == len(column):
        return pa.array([""] * len(column))
    pairs = column.flatten()
    names, values = (_texts(pairs.field(name).cast(pa.binary())) for name in ("key", "value"))
    cells = pc.binary_join_element_wise("\t", names, "=", values, "")
    counts = column.value_lengths().fill_null(0).to_numpy()
    ends = pa.array([0, *counts.cumsum().tolist()], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(ends, cells), "")


# -- JSON --------------------------------------------------------------------------------------------------------------


class JsonColumns:
    """One JSON object per line."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._rows = JsonRows(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.nbytes > _MOST_BYTES:
            self._rows.write(rows_of(batch))
        elif batch.num_rows:
            self._sink.write(_characters(_objects(batch)))


def _objects(batch: pa.RecordBatch) -> pa.Array:
    parts: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [f"{',' if parts else '{'}{_json(name)}:", _values(column)]
    return pc.binary_join_element_wise(*parts, "}\n", "")


def _values(column: pa.Array) -> pa.Array:
    """Every cell as JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        escapes = {"\\": "\\\\", '"': '\\"'}
        texts = _written(
            column.cast(pa.binary()), escapes, _ODD_IN_JSON, lambda data: _json(json_cell(data)), quote='"'
        )
    elif pa.types.is_list(kind):
        cells = column.to_pylist() if column.null_count < len(column) else [None] * len(column)
        texts = pa.array((None if cell is None else _json(json_cell(cell)) for cell in cells), pa.string())
    else:
        texts = column.cast(pa.string())  # numbers, true and false
    return texts.fill_null("null")


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _characters(lines: pa.Array) -> memoryview:
    """The bytes of all texts of a column, one behind the other."""
    _, offsets, data = lines.buffers()
    bounds = memoryview(offsets).cast("i")
    return memoryview(data)[bounds[lines.offset] : bounds[lines.offset + len(lines)]]
