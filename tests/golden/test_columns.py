"""Every log of real Kafka through the kernels: the rows are those of `tidelog.records`.

`test_records.py` compares those with Kafka's own dumps and consumers.
"""

import pytest

import tidelog
from tests.golden import corpus
from tests.property.reference import Row, rows_in, rows_of
from tidelog.columns import FileSource, decode, encode, read_chunks, scan, summarize
from tidelog.columns.decoder import ColumnDecoder
from tidelog.errors import TidelogError
from tidelog.records import RecordBatch, read_batches

CASES = corpus.case_names()


def readable(data: bytes) -> tuple[list[Row], type[TidelogError] | None]:
    rows: list[Row] = []
    try:
        for row in rows_of(data):
            rows.append(row)  # noqa: PERF402 - the rows before an error count
    except TidelogError as error:
        return rows, type(error)
    return rows, None


def fast(data: bytes) -> tuple[list[Row], type[TidelogError] | None]:
    rows: list[Row] = []
    try:
        for batch in decode(data):
            rows += rows_in([batch])
    except TidelogError as error:
        return rows, type(error)
    return rows, None


@pytest.mark.parametrize("case", CASES)
def test_columns_hold_what_records_hold(case: str) -> None:
    for path in (path for partition in corpus.partitions(case) for path in partition.logs):
        data = path.read_bytes()
        rows, error = readable(data)
        fast_rows, fast_error = fast(data)
        assert fast_error == error, path
        # Up to an error both deliver records, the kernels in larger steps.
        assert fast_rows == rows if error is None else fast_rows == rows[: len(fast_rows)], path


def test_all_logs_are_read_and_hold_what_they_are_known_to_hold() -> None:
    logs = corpus.log_files()
    assert len(logs) == 1499
    assert sum(len(fast(path.read_bytes())[0]) for path in logs) == sum(
        len(readable(path.read_bytes())[0]) for path in logs
    )


@pytest.mark.parametrize("case", CASES)
def test_header_scans_agree_with_the_batches(case: str) -> None:
    for partition in corpus.undamaged_partitions():
        if partition.case != case:
            continue
        data = partition.read()
        batches = list(read_batches(data))
        table = scan(data, verify=True)
        assert table.column("lastOffset").to_pylist() == [batch.last_offset for batch in batches]
        assert table.column("maxTimestamp").to_pylist() == [batch.max_timestamp_ms for batch in batches]
        assert table.column("size").to_pylist() == [batch.size_in_bytes for batch in batches]
        assert table.column("count").to_pylist() == [batch.count for batch in batches]
        assert table.column("isValid").to_pylist() == [batch.is_valid for batch in batches]
        assert summarize([data]).records == sum(1 for batch in batches for _ in batch)


def test_a_file_read_in_small_chunks_gives_the_same_rows() -> None:
    for partition in corpus.partitions("kafka-4.3/1-codecs"):
        for path in partition.logs:
            decoder = ColumnDecoder()
            rows: list[Row] = []
            with FileSource(path) as source:
                for chunk in read_chunks(source, chunk_size=5000):
                    rows += rows_in(decoder.decode_scanned(chunk.data, chunk.scan, base_position=chunk.position))
            assert rows == list(rows_of(path.read_bytes()))


def test_rows_written_again_are_the_same_rows() -> None:
    for partition in corpus.partitions("kafka-4.3/2-records"):
        for batch in decode(partition.read(), ["key", "value", "timestamp", "headers"]):
            if batch.column("timestamp").cast("int64").to_numpy().min(initial=0) < -1:
                continue  # hand-made, refused by every writer
            again = decode(encode(batch), ["key", "value", "timestamp", "headers"], max_rows=1 << 20)
            assert rows_in(again) == rows_in([batch])
            assert all(isinstance(one, RecordBatch) and one.is_valid for one in read_batches(encode(batch)))


def test_a_scan_gives_the_records_of_a_batch_as_they_are_stored() -> None:
    """Its offsets need not ascend: docs/scan.md says so."""
    logs = tidelog.open(str(corpus.case("kafka-4.3/2-records") / "image"))
    rows = logs.scan("rec-times", columns=["offset"], from_offset=34, to_offset=39)
    assert rows.to_table().column("offset").to_pylist() == [34, 36, 35, 37, 38]
