"""A file is read in chunks of whole batches, however large a batch and however small a chunk."""

from pathlib import Path

import pytest

from tidelog.columns import ColumnDecoder, FileSource, read_chunks
from tidelog.errors import CorruptRecordError, StorageError
from tidelog.records import NewRecord, build_batch


def batch(value: bytes, offset: int = 0) -> bytes:
    return bytes(build_batch([NewRecord(None, value, 5)], base_offset=offset))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def values(path: Path, **options: int) -> list[bytes]:
    decoder = ColumnDecoder(["value"])
    with FileSource(path) as source:
        return [
            value
            for chunk in read_chunks(source, **options)
            for rows in decoder.decode_scanned(chunk.data, chunk.scan, base_position=chunk.position)
            for value in rows["value"].to_pylist()
        ]


def test_an_empty_file_has_no_chunks(path: Path) -> None:
    path.write_bytes(b"")
    assert values(path) == []


@pytest.mark.parametrize("chunk_size", [1, 11, 12, 17, 18, 70, 80, 150, 10_000])
def test_a_batch_larger_than_a_chunk_gets_a_larger_one(path: Path, chunk_size: int) -> None:
    path.write_bytes(batch(b"a") + batch(b"b" * 5000) + batch(b"c"))
    assert values(path, chunk_size=chunk_size) == [b"a", b"b" * 5000, b"c"]


def test_a_small_first_chunk_is_followed_by_larger_ones(path: Path) -> None:
    path.write_bytes(b"".join(batch(b"v" * 30, offset) for offset in range(200)))
    size = path.stat().st_size // 200
    with FileSource(path) as source:
        chunks = [len(each.scan.rows) for each in read_chunks(source, chunk_size=40 * size, first_size=5 * size)]
    assert chunks == [5, 10, 20, 40, 40, 40, 40, 5]


@pytest.mark.parametrize("first_size", [1, 70, 80, 10_000])
def test_the_first_size_changes_no_value(path: Path, first_size: int) -> None:
    path.write_bytes(batch(b"a") + batch(b"b" * 5000) + batch(b"c"))
    assert values(path, first_size=first_size) == [b"a", b"b" * 5000, b"c"]


def test_reading_begins_and_ends_where_it_is_told(path: Path) -> None:
    parts = [batch(b"a"), batch(b"b"), batch(b"c")]
    path.write_bytes(b"".join(parts))
    size = len(parts[0])
    assert values(path, start=size) == [b"b", b"c"]
    assert values(path, start=size, end=2 * size) == [b"b"]
    assert values(path, start=size, end=3 * size - 1) == [b"b"]
    assert values(path, start=3 * size) == []
    assert values(path, end=10**9) == [b"a", b"b", b"c"]


def test_an_incomplete_batch_at_the_end_is_left_out(path: Path) -> None:
    path.write_bytes(batch(b"a") + batch(b"b")[:-1])
    assert values(path) == [b"a"]
    assert values(path, chunk_size=30) == [b"a"]


def test_a_claimed_size_beyond_the_file_allocates_nothing(path: Path) -> None:
    path.write_bytes(batch(b"a") + bytes(8) + b"\x7f\xff\xff\xff" + bytes(100))
    assert values(path, chunk_size=20) == [b"a"]


@pytest.mark.parametrize("chunk_size", [20, 10_000])
def test_a_corrupt_length_is_raised_after_the_batches_before_it(path: Path, chunk_size: int) -> None:
    path.write_bytes(batch(b"a") + bytes(8) + b"\0\0\0\x05" + bytes(100))
    with FileSource(path) as source:
        chunks = read_chunks(source, chunk_size=chunk_size)
        assert len(next(chunks).scan.rows) == 1
        with pytest.raises(CorruptRecordError, match=f"position {len(batch(b'a'))}: a batch length of 5"):
            next(chunks)


def test_a_file_that_shrank_under_the_reader_is_the_end(path: Path) -> None:
    path.write_bytes(batch(b"a") + batch(b"b"))
    with FileSource(path) as source:
        path.write_bytes(batch(b"a"))
        assert [len(chunk.scan.rows) for chunk in read_chunks(source)] == [1]


def test_a_file_that_is_not_there_is_a_storage_error(path: Path) -> None:
    with pytest.raises(StorageError, match=r"00000000000000000000\.log: No such file"):
        FileSource(path)


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError), FileSource(tmp_path) as source:
        source.read_into(0, memoryview(bytearray(1)))
