"""Other people's programs read one Scan, each of them twice."""

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

import tidelog
from tests.view.scans import some, write_log
from tidelog.records import Codec
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.pieces import read_piece
from tidelog.view.scan import Scan


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    for number, codec in enumerate((Codec.NONE, Codec.ZSTD)):
        write_log(tmp_path, [("put", codec, some(5)), ("roll",), ("put", codec, some(3))], f"orders-{number}")
    scan = tidelog.open(str(tmp_path)).scan("orders")
    assert isinstance(scan, Scan)
    return scan


def test_duckdb_reads_a_scan_twice(scan: Scan) -> None:
    for _ in range(2):
        assert duckdb.sql('select count(*), sum("offset") from scan').fetchall() == [(16, 56)]


def test_polars_reads_a_scan_twice(scan: Scan) -> None:
    for _ in range(2):
        frame = pl.DataFrame(scan)
        assert frame.height == 16
        assert frame["value"].unique().sort().to_list() == [b"value %d" % number for number in range(5)]


def test_pandas_reads_a_scan_twice(scan: Scan) -> None:
    for _ in range(2):
        frame = scan.to_pandas()
        assert isinstance(frame, pd.DataFrame)
        assert frame.groupby("partition").size().to_dict() == {0: 8, 1: 8}
        assert scan.to_reader().read_pandas()["offset"].max() == 7


def test_a_scan_that_is_taken_for_an_array_says_what_to_call(scan: Scan) -> None:
    """pandas would make a table of one column of it, whose cells are batches."""
    with pytest.raises(TypeError, match=r"scan.to_pandas\(\) makes a DataFrame"):
        pd.DataFrame(scan)
    with pytest.raises(TypeError, match=r"scan.to_table\(\)"):
        np.asarray(scan)


def test_a_schema_that_the_reader_asks_for_is_given(scan: Scan) -> None:
    wanted = pa.schema([field if field.name != "offset" else pa.field("offset", pa.float64()) for field in scan.schema])
    table = pa.RecordBatchReader.from_stream(scan, schema=wanted).read_all()
    assert table.schema == wanted
    assert pa.table(scan).schema == scan.schema


def test_a_stream_stops_reading_when_its_reader_leaves(scan: Scan) -> None:
    with scan.to_reader() as reader:
        assert reader.read_next_batch().num_rows == 5
    assert scan.count() == 16


def test_roots_of_unequal_length_give_each_record_once(tmp_path: Path) -> None:
    steps = [("put", Codec.NONE, some(4)) for _ in range(3)]
    for number in range(3):
        write_log(tmp_path / f"broker-{number}", steps[: number + 1], "orders-0")
    logs = tidelog.open([str(tmp_path / f"broker-{number}") for number in (1, 2, 0)])
    scan = logs.scan("orders", columns=["offset"])
    assert scan.to_table().column(0).to_pylist() == list(range(12))
    assert scan.count() == 12


def test_a_scan_reads_through_any_file_system_of_arrow(tmp_path: Path) -> None:
    write_log(tmp_path, [("put", Codec.LZ4, some(5)), ("roll",), ("put", Codec.NONE, some(3))], "orders-0")
    logs = tidelog.open(str(tmp_path), filesystem=LocalFileSystem())
    assert not isinstance(logs["orders", 0].files, ReadOnlyFiles)
    scan = logs.scan("orders", columns=["offset"], from_offset=1)
    assert scan.to_table().column(0).to_pylist() == list(range(1, 8))
    [first, *_] = scan.pieces(1)
    [batch] = read_piece(first, ["offset"], files=logs["orders", 0].files)
    assert batch.column(0).to_pylist() == [1, 2, 3, 4]
