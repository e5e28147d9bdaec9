"""The columns of any log are the records of that log, whatever is asked for and however it is cut."""

import mmap
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.property.reference import Row, header_rows, rows_in, rows_of, summary_of
from tests.property.strategies import legacy_entries, legacy_logs, logs, mixed_logs, record_batches
from tidelog.columns import ColumnDecoder, FileSource, decode, read_chunks, scan, summarize
from tidelog.columns.schema import DEFAULT_COLUMNS
from tidelog.errors import CorruptRecordError, InvalidRecordError
from tidelog.kernels.headers import scan_headers
from tidelog.records import NewRecord, build_batch, build_message_set, read_batches


def project(rows: list[Row], columns: list[str]) -> list[Row]:
    places = [DEFAULT_COLUMNS.index(name) for name in columns]
    return [tuple(row[place] for place in places) for row in rows]


@behaviour("REC-015", "REC-032", "REC-033")
@given(logs)
def test_columns_of_version_2_batches_are_their_records(log: bytes) -> None:
    assert rows_in(decode(log)) == list(rows_of(log))


@behaviour("REC-048", "REC-049")
@given(legacy_logs)
def test_columns_of_message_sets_are_their_records(log: bytes) -> None:
    assert rows_in(decode(log)) == list(rows_of(log))


@given(mixed_logs, st.integers(0, 2**40))
def test_columns_of_mixed_logs_are_their_records(log: bytes, base_position: int) -> None:
    decoded = ColumnDecoder().decode(log, base_position=base_position)
    assert rows_in(decoded) == list(rows_of(log, base_position=base_position))


@given(mixed_logs, st.lists(st.sampled_from(DEFAULT_COLUMNS), unique=True, min_size=1))
def test_any_choice_of_columns_is_a_projection(log: bytes, columns: list[str]) -> None:
    batches = list(decode(log, columns))
    assert all(batch.schema.names == columns for batch in batches)
    assert rows_in(batches) == project(list(rows_of(log)), columns)


@given(mixed_logs, st.sampled_from([1, 2, 3, 7, 32_768]), st.sampled_from([1, 100, 1000, 4 << 20]))
def test_bounds_of_a_record_batch_change_its_cut_and_nothing_else(log: bytes, max_rows: int, max_bytes: int) -> None:
    batches = list(decode(log, max_rows=max_rows, max_bytes=max_bytes))
    assert all(batch.num_rows <= max_rows for batch in batches)
    assert rows_in(batches) == list(rows_of(log))


@given(mixed_logs)
def test_constants_stand_beside_every_record(log: bytes) -> None:
    columns = ["partition", "offset", "topic"]
    rows = rows_in(decode(log, columns, constants={"topic": "orders", "partition": 3}))
    assert rows == [(3, row[2], "orders") for row in rows_of(log)]


@given(mixed_logs)
def test_microseconds_are_a_thousand_times_milliseconds(log: bytes) -> None:
    microseconds = [(row[3] * 1000,) for row in rows_of(log)]
    if any(abs(time) >= 2**63 for (time,) in microseconds):  # beyond the year 294,246
        with pytest.raises(InvalidRecordError, match="microseconds"):
            list(decode(log, ["timestamp"], timestamp_unit="us"))
    else:
        assert rows_in(decode(log, ["timestamp"], timestamp_unit="us")) == microseconds


@given(mixed_logs, st.data())
def test_a_selection_of_batches_gives_their_records(log: bytes, data: st.DataObject) -> None:
    found = scan_headers(log, verify=True)
    chosen = data.draw(st.lists(st.booleans(), min_size=len(found.rows), max_size=len(found.rows)))
    picked = found.pick(np.array(chosen, bool))
    positions = set(picked.positions.tolist())
    expected = [row for row in rows_of(log) if row[-1] in positions]
    assert rows_in(ColumnDecoder(max_rows=3).decode_scanned(log, picked)) == expected


@given(mixed_logs, st.integers(0, 70), st.integers(1, 600))
def test_chunks_of_a_file_hold_all_its_batches(log: bytes, torn: int, chunk_size: int) -> None:
    log += log[:torn]  # an incomplete batch, as a crash leaves it, or a whole one
    decoder = ColumnDecoder()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "00000000000000000000.log")
        path.write_bytes(log)
        with FileSource(path) as source:
            for chunk in read_chunks(source, chunk_size=chunk_size):
                rows += rows_in(decoder.decode_scanned(chunk.data, chunk.scan, base_position=chunk.position))
    assert rows == list(rows_of(log))


def as_mmap(log: bytes) -> mmap.mmap:
    mapped = mmap.mmap(-1, max(len(log), 1))
    mapped.write(log)
    return mapped


BUFFERS: dict[str, Callable[[bytes], Any]] = {
    "bytearray": bytearray,
    "a slice of a memoryview": lambda log: memoryview(b"head" + log + b"tail")[4 : 4 + len(log)],
    "mmap": as_mmap,
    "numpy": lambda log: np.frombuffer(log, np.uint8),
    "a slice of a numpy array": lambda log: np.frombuffer(b"x" + log, np.uint8)[1:],
    "Arrow": pa.py_buffer,
    "a slice of an Arrow buffer": lambda log: pa.py_buffer(b"head" + log).slice(4),
}


@given(st.sampled_from(list(BUFFERS)), mixed_logs)
def test_any_object_with_contiguous_bytes_is_a_log(kind: str, log: bytes) -> None:
    assert rows_in(decode(BUFFERS[kind](log))) == list(rows_of(log))


@behaviour("REC-014")
@given(mixed_logs, st.integers(0, 2**40))
def test_a_scan_tells_what_the_headers_say(log: bytes, base_position: int) -> None:
    table = scan(log, verify=True, base_position=base_position)
    table.validate(full=True)
    assert table.to_pylist() == list(header_rows(log, base_position=base_position))


def test_a_scan_that_does_not_verify_does_not_claim_validity() -> None:
    log = bytes(build_batch([NewRecord(b"k", b"v")]) + build_message_set(1, [NewRecord(b"k", b"v", 5)]))
    assert scan(log)["isValid"].to_pylist() == [None, None]


@given(st.lists(mixed_logs, max_size=3), st.booleans())
def test_a_summary_adds_up_what_the_batches_say(stretches: list[bytes], verify: bool) -> None:
    batches = [batch for log in stretches for batch in read_batches(log)]
    expected = summary_of(batches)
    expected.wrong_checksums = 0 if verify and stretches else None
    assert summarize(stretches, verify=verify) == expected


def test_a_summary_counts_the_bytes_behind_the_last_batch() -> None:
    log = bytes(build_batch([NewRecord(b"k", b"v")]))
    assert summarize([log]).trailing_bytes == 0
    assert summarize([log + log[:-1]]).trailing_bytes == len(log) - 1
    assert summarize([b"\x7f" * 100]).trailing_bytes == 100


def test_a_summary_refuses_a_length_that_no_batch_has() -> None:
    with pytest.raises(CorruptRecordError, match="position 0"):
        summarize([bytes(100)])


@given(st.lists(record_batches, min_size=1, max_size=4), st.data())
def test_a_summary_counts_batches_with_wrong_checksums_apart(batches: list[bytes], data: st.DataObject) -> None:
    damaged = data.draw(st.integers(0, len(batches) - 1))
    torn = bytearray(batches[damaged])
    torn[-1] ^= 1
    summary = summarize([b"".join([*batches[:damaged], torn, *batches[damaged + 1 :]])], verify=True)
    others = [batch for log in [*batches[:damaged], *batches[damaged + 1 :]] for batch in read_batches(log)]
    expected = summary_of(others)
    expected.wrong_checksums = 1
    assert summary == expected


@behaviour("REC-096", "REC-099")
@given(st.lists(st.one_of(record_batches, legacy_entries), min_size=1, max_size=3), st.data())
def test_a_log_may_end_anywhere_inside_a_batch(batches: list[bytes], data: st.DataObject) -> None:
    log = b"".join(batches)
    cut = log[: data.draw(st.integers(len(log) - len(batches[-1]), len(log)))]
    assert rows_in(decode(cut)) == list(rows_of(cut))


@behaviour("REC-085")
@given(st.sampled_from([0, 2, 4, 5, 6]), mixed_logs)
def test_a_few_stray_zeros_behind_the_last_batch_change_nothing(stray: int, log: bytes) -> None:
    assert rows_in(decode(log + bytes(stray))) == list(rows_of(log))
