"""Lines for eyes and as JSON: whole columns come out as rows do one by one, whatever bytes they hold."""

import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.strategies import fields
from tidelog.columns.schema import HEADERS_TYPE
from tidelog.tables import lines
from tidelog.tables.lines import JsonColumns, LineColumns
from tidelog.tables.rows import JsonRows, LineRows, rows_of

SCHEMA = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
    }
)
ODD = [b"\\", b"\\N", b"\t\r\n", b"\x00\x1b[31m\x7f", b"\xff\xc3", b"caf\xc3\xa9", "\x85\u2028\u2029".encode(),
       b"\xed\xa0\x80", b"\xed\xb2\x80", "\U0001f30a".encode(), b"", b"plain"]  # fmt: skip

data = st.none() | st.sampled_from(ODD) | fields | st.text(max_size=5).map(str.encode)
times = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2**42) | st.sampled_from([-1, 0, 253_402_300_799_999])
pairs = st.builds(lambda key, value: {"key": key, "value": value}, st.text(max_size=4), data)
rows = st.builds(
    lambda *cells: dict(zip(SCHEMA.names, cells, strict=True)),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    times,
    data,
    data,
    st.none() | st.lists(pairs, min_size=1, max_size=3),
)


def a_batch(some: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in some] for name in SCHEMA.names}
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, pa.int64()).cast(SCHEMA.field(name).type)
            if name == "timestamp"
            else pa.array(values, SCHEMA.field(name).type)
            for name, values in columns.items()
        ],
        schema=SCHEMA,
    )


def one_by_one(batch: pa.RecordBatch, with_partition: bool) -> bytes:
    sink = io.BytesIO()
    LineRows(sink, with_partition=with_partition).write(rows_of(batch))
    return sink.getvalue()


def at_once(batch: pa.RecordBatch, with_partition: bool) -> bytes:
    sink = io.BytesIO()
    LineColumns(sink, with_partition=with_partition).write(batch)
    return sink.getvalue()


@settings(max_examples=200, deadline=None)
@given(
    some=st.lists(rows, max_size=12), with_partition=st.booleans(), with_headers=st.booleans(), first=st.integers(0, 3)
)
@example(some=[], with_partition=True, with_headers=True, first=0)
def test_columns_come_out_as_rows_do(
    some: list[dict[str, Any]], with_partition: bool, with_headers: bool, first: int
) -> None:
    batch = a_batch(some).slice(first)
    if not with_headers:
        batch = batch.drop_columns(["headers"])
    assert at_once(batch, with_partition) == one_by_one(batch, with_partition)


EXTRA = pa.schema({"topic": pa.string(), "isTransactional": pa.bool_(), "codec": pa.string()})


def as_json(writer: Any, rows_or_batch: Any) -> bytes:
    sink = io.BytesIO()
    writer(sink).write(rows_or_batch)
    return sink.getvalue()


@settings(max_examples=200, deadline=None)
@given(some=st.lists(rows, max_size=12), topic=st.none() | st.text(max_size=5), first=st.integers(0, 3))
@example(some=[], topic="", first=0)
def test_columns_of_json_come_out_as_rows_do(some: list[dict[str, Any]], topic: str | None, first: int) -> None:
    batch = a_batch(some)
    for name, cell in {"topic": topic, "isTransactional": bool(topic), "codec": "none"}.items():
        batch = batch.append_column(name, pa.array([cell] * len(some), EXTRA.field(name).type))
    batch = batch.slice(first)
    assert as_json(JsonColumns, batch) == as_json(JsonRows, rows_of(batch))


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_value_among_many_plain_ones_is_escaped(odd: bytes) -> None:
    row = {"partition": 1, "offset": 2, "timestamp": 3, "key": None, "value": b"plain", "headers": None}
    batch = a_batch([{**row, "offset": number, "value": odd if number == 500 else b"plain"} for number in range(1000)])
    text = at_once(batch, False)
    assert text == one_by_one(batch, False)
    assert as_json(JsonColumns, batch) == as_json(JsonRows, rows_of(batch))
    assert len(text.decode().splitlines()) == 1000


def test_records_too_large_for_a_column_of_text_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"partition": 0, "offset": 0, "timestamp": 0, "key": b"k", "value": b"\xff" * 100, "headers": None}
    batch = a_batch([row])
    expected = at_once(batch, True)
    monkeypatch.setattr(lines, "_MOST_BYTES", 10)
    monkeypatch.setattr(lines, "_characters", None)
    assert at_once(batch, True) == expected
    assert as_json(JsonColumns, batch) == as_json(JsonRows, rows_of(batch))
