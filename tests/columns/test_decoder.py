"""What a decoder does with logs that are damaged, hostile, large, or read by several threads."""

import os
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.behaviours import behaviour
from tests.property.reference import rows_in
from tidelog.columns import ColumnDecoder, decode, decode_file, schema_of
from tidelog.errors import (
    CorruptRecordError,
    DecompressedSizeError,
    DecompressionError,
    InvalidRecordError,
    InvalidRequestError,
    StorageError,
    TidelogError,
    UnsupportedCompressionError,
)
from tidelog.kernels.bodies import open_bodies
from tidelog.kernels.headers import scan_headers
from tidelog.records import BatchHeader, Codec, NewRecord, RecordBatch, build_batch, build_message_set, compress
from tidelog.records.varint import write_unsigned_varint, write_varint

T = 1_700_000_000_000


class LogUnderTest:
    """A log written batch by batch, damaged on purpose, read as columns."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.starts: list[int] = []

    def append(self, *values: str, **options: Any) -> "LogUnderTest":
        """One batch of version 2."""
        self.starts.append(len(self.data))
        records = [NewRecord(b"key", value.encode(), T + index) for index, value in enumerate(values)]
        self.data += build_batch(records, **options)
        return self

    def append_messages(self, magic: int, *values: str, **options: Any) -> "LogUnderTest":
        """A message set of an old format."""
        self.starts.append(len(self.data))
        self.data += build_message_set(magic, [NewRecord(b"key", v.encode(), T) for v in values], **options)
        return self

    def append_body(self, body: bytes, **fields: int) -> "LogUnderTest":
        """One batch whose records are these bytes, whatever they are, under a checksum that holds."""
        self.starts.append(len(self.data))
        header = BatchHeader.unpack(build_batch([NewRecord(None, None, T)]))
        self.data += header._replace(**fields).seal(body)
        return self

    def poke(self, batch: int, position: int, data: bytes) -> "LogUnderTest":
        """Overwrite bytes of a batch; its checksum stays as it was."""
        start = self.starts[batch] + position
        self.data[start : start + len(data)] = data
        return self

    def shrink(self, by: int) -> "LogUnderTest":
        """Cut bytes off the end."""
        del self.data[-by:]
        return self

    def batches(self, columns: list[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        return decode(self.data, columns, **options)

    def values(self, **options: Any) -> list[str]:
        """The values of all records. An error that ends the reading is raised."""
        return [value.decode() for (value,) in rows_in(self.batches(["value"], **options))]

    def values_before_the_error(self, error: type[TidelogError]) -> tuple[list[str], str]:
        """What was delivered before the reading ended with `error`, and what the error says."""
        values: list[str] = []

        def read() -> None:
            for batch in self.batches(["value"]):
                values.extend(value.decode() for value in batch["value"].to_pylist())

        with pytest.raises(error) as raised:
            read()
        assert raised.type is error
        return values, str(raised.value)


@pytest.fixture
def log() -> LogUnderTest:
    return LogUnderTest()


# -- where a log ends --------------------------------------------------------------------------------------------------


def test_no_bytes_are_no_records(log: LogUnderTest) -> None:
    assert list(log.batches()) == []


@behaviour("REC-096", "REC-099")
@pytest.mark.parametrize("lost", [1, 13, 60, 70])
def test_an_incomplete_batch_is_the_end(log: LogUnderTest, lost: int) -> None:
    log.append("a", "b").append("c").shrink(by=lost)
    assert log.values() == ["a", "b"]


@behaviour("REC-089")
def test_a_log_one_byte_shorter_than_its_batch_is_empty(log: LogUnderTest) -> None:
    assert log.append("a").shrink(by=1).values() == []


@behaviour("REC-100")
@pytest.mark.parametrize("length", [13, 9, 0, -1, -(2**31)])
def test_a_length_that_no_batch_can_have_is_corruption(log: LogUnderTest, length: int) -> None:
    log.append("a").append("b").append("c").poke(1, 8, length.to_bytes(4, "big", signed=True))
    values, message = log.values_before_the_error(CorruptRecordError)
    assert values == ["a"]
    assert f"position {log.starts[1]}" in message
    assert str(length) in message


@behaviour("REC-020")
def test_a_length_shorter_than_the_batch_is_corruption(log: LogUnderTest) -> None:
    log.append("a").append("b").poke(1, 8, (40).to_bytes(4, "big"))
    assert log.values_before_the_error(CorruptRecordError)[0] == ["a"]


# -- checksums ---------------------------------------------------------------------------------------------------------


@behaviour("REC-021")
def test_a_wrong_checksum_is_named_after_the_good_rows(log: LogUnderTest) -> None:
    log.append("a", "b").append("c").append("d").poke(1, 23, b"\0\0\0\x17")
    damaged = RecordBatch(log.data[log.starts[1] : log.starts[2]])
    values, message = log.values_before_the_error(CorruptRecordError)
    assert values == ["a", "b"]
    assert f"{damaged.crc:#010x}" in message
    assert f"{damaged.compute_crc():#010x}" in message


@behaviour("REC-109")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_wrong_checksum_of_a_message_is_named_too(log: LogUnderTest, magic: int, codec: Codec) -> None:
    log.append_messages(magic, "a").append_messages(magic, "b", codec=codec).poke(1, 17, b"\x05")
    values, message = log.values_before_the_error(CorruptRecordError)
    assert values == ["a"]
    assert "stored crc" in message


def test_checksums_are_not_looked_at_when_nobody_asks(log: LogUnderTest) -> None:
    log.append("a").append_messages(1, "b").poke(0, 17, b"\0\0\0\0").poke(1, 12, b"\0\0\0\0")
    assert log.values(verify=False) == ["a", "b"]


def test_a_batch_too_small_for_its_header_is_corrupt_even_then(log: LogUnderTest) -> None:
    log.append("a")
    log.data += bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(15)
    with pytest.raises(CorruptRecordError):
        log.values(verify=False)


# -- hostile batches ---------------------------------------------------------------------------------------------------


def refused_batch(log: LogUnderTest, codec: Codec, count: int) -> None:
    """A body of one record and a header that claims another number."""
    body = bytes(build_batch([NewRecord(None, None, T)])[61:])
    log.append_body(compress(codec, body), attributes=int(codec), records_count=count)
    with pytest.raises(InvalidRecordError) as raised:
        log.values()
    assert raised.type is InvalidRecordError


@behaviour("REC-022")
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [2**31 - 1, 2, -1, -(2**31)])
def test_a_wrong_number_of_records_is_an_invalid_record(log: LogUnderTest, codec: Codec, count: int) -> None:
    refused_batch(log, codec, count)


def test_a_negative_count_is_refused_before_anything_is_decompressed(log: LogUnderTest) -> None:
    log.append("a").append_body(b"no gzip", attributes=1, records_count=-1)
    assert log.values_before_the_error(InvalidRecordError)[0] == ["a"]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_claimed_number_of_records_allocates_nothing(log: LogUnderTest, codec: Codec) -> None:
    refused_batch(log, codec, 2**31 - 1)  # everything that is loaded once is loaded now
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        refused_batch(LogUnderTest(), codec, 2**31 - 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 1 << 20


@behaviour("REC-023")
@pytest.mark.parametrize("codec", list(Codec))
def test_bytes_behind_the_last_record_are_an_invalid_record(log: LogUnderTest, codec: Codec) -> None:
    body = bytes(build_batch([NewRecord(None, None, T)] * 3)[61:])
    log.append_body(compress(codec, body), attributes=int(codec), records_count=2)
    with pytest.raises(InvalidRecordError):
        log.values()


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_decompression_stops_at_the_cap(log: LogUnderTest, codec: Codec) -> None:
    log.append("a").append("0" * 3_000_000, codec=codec)
    assert len(log.values()) == 2
    with pytest.raises(DecompressedSizeError):
        log.values(max_decompressed=1_000_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_decompression_of_messages_stops_at_the_cap(log: LogUnderTest, codec: Codec) -> None:
    log.append_messages(1, "0" * 3_000_000, codec=codec)
    assert len(log.values()) == 1
    with pytest.raises(DecompressedSizeError):
        log.values(max_decompressed=1_000_000)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(log: LogUnderTest, codec_id: int) -> None:
    log.append_body(bytes(build_batch([NewRecord(None, None, T)])[61:]), attributes=codec_id)
    with pytest.raises(UnsupportedCompressionError):
        log.values()


@pytest.mark.parametrize("attributes", [0, 1, 4, 7])
def test_the_body_of_an_empty_batch_is_not_looked_at(log: LogUnderTest, attributes: int) -> None:
    log.append("a").append_body(b"anything", attributes=attributes, records_count=0).append("b")
    assert log.values() == ["a", "b"]


def test_a_log_of_empty_batches_has_no_rows(log: LogUnderTest) -> None:
    log.append_body(b"", records_count=0)
    assert rows_in(log.batches()) == []


def test_what_lies_before_a_broken_batch_is_delivered(log: LogUnderTest) -> None:
    log.append("a", "b").append("c").append_body(b"\x7f").append("d")
    assert log.values_before_the_error(InvalidRecordError)[0] == ["a", "b", "c"]


def test_of_two_broken_batches_the_first_is_named(log: LogUnderTest) -> None:
    log.append("a").append_body(b"\x7f").append_body(b"no gzip", attributes=1).append_body(b"", attributes=7)
    assert log.values_before_the_error(InvalidRecordError)[0] == ["a"]


def test_what_lies_before_a_broken_wrapper_is_delivered(log: LogUnderTest) -> None:
    log.append_messages(1, "a").append_messages(1, "b", codec=Codec.LZ4).append_messages(0, "c", codec=Codec.GZIP)
    entry = log.data[log.starts[2] :]
    entry[-8] ^= 0xFF  # the checksum inside the gzip stream
    entry[12:16] = zlib.crc32(entry[16:]).to_bytes(4, "big")
    log.poke(2, 0, entry)
    assert log.values_before_the_error(DecompressionError)[0] == ["a", "b"]


# -- header names ------------------------------------------------------------------------------------------------------

BROKEN_NAMES = {
    b"caf\xc3\xa9": "caf\u00e9",
    b"\xff": "\ufffd",
    b"a\xc3": "a\ufffd",
    b"\xe2\x82": "\ufffd",
    b"\xf0\x9f\x8c": "\ufffd",
    b"\xed\xa0\x80!": "\ufffd!",  # a surrogate: one character to Java, three to others
    b"\xc0\x80": "\ufffd\ufffd",
    b"\x80\x80": "\ufffd\ufffd",
}


def record_with_headers(names: list[bytes]) -> bytes:
    body = bytearray(b"\0\0\0\x01\x01")  # attributes, two deltas, no key, no value
    write_varint(body, len(names))
    for name in names:
        write_varint(body, len(name))
        body += name + b"\x01"
    record = bytearray()
    write_varint(record, len(body))
    return bytes(record + body)


def test_names_that_are_not_utf8_come_out_as_java_would_decode_them(log: LogUnderTest) -> None:
    log.append_body(record_with_headers(list(BROKEN_NAMES)))
    (batch,) = log.batches(["headers"])
    batch.validate(full=True)
    (headers,) = batch["headers"].to_pylist()
    assert [header["key"] for header in headers] == list(BROKEN_NAMES.values())


@pytest.mark.parametrize("name", BROKEN_NAMES)
def test_one_broken_name_leaves_the_others_alone(log: LogUnderTest, name: bytes) -> None:
    log.append_body(record_with_headers([b"first", name])).append_body(record_with_headers([b"second"]))
    (batch,) = log.batches(["headers"])
    batch.validate(full=True)
    first, second = batch["headers"].to_pylist()
    assert [header["key"] for header in first + second] == ["first", BROKEN_NAMES[name], "second"]


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_positions_count_from_where_the_buffer_begins(log: LogUnderTest) -> None:
    log.append("a", "b").append("c")
    decoded = ColumnDecoder(["position"]).decode(log.data, base_position=1000)
    assert rows_in(decoded) == [(1000,), (1000,), (1000 + log.starts[1],)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["key", "colour"], "colour"),
        (["key", "value", "key"], "twice"),
        (["topic"], "constant"),
        (["partition"], "constant"),
    ],
)
def test_columns_that_cannot_be_given_are_refused(columns: list[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        ColumnDecoder(columns)


def test_a_unit_other_than_milli_or_microseconds_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="timestamp unit"):
        schema_of(["timestamp"], "ns")  # type: ignore[arg-type]


def test_a_constant_of_one_column_does_not_help_the_other() -> None:
    with pytest.raises(InvalidRequestError, match="'partition'"):
        ColumnDecoder(["topic", "partition"], constants={"topic": "orders"})


@pytest.mark.parametrize("value", ["three", 2**31])
def test_a_constant_must_fit_its_column(value: object) -> None:
    with pytest.raises(InvalidRequestError):
        ColumnDecoder(["partition"], constants={"partition": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("bound", ["max_rows", "max_bytes"])
def test_a_record_batch_has_room_for_something(bound: str) -> None:
    with pytest.raises(InvalidRequestError, match=bound):
        ColumnDecoder(**{bound: 0})


def test_no_columns_are_rows_without_content(log: LogUnderTest) -> None:
    log.append("a", "b").append("c")
    assert all(batch.num_columns == 0 for batch in log.batches([]))


def test_one_batch_of_many_records_is_cut_into_slices(log: LogUnderTest) -> None:
    count = 100_000
    log.append(*(f"{index}" for index in range(count)))
    batches = list(log.batches(["offset", "value", "headers", "codec", "sequence"], max_rows=32_768))
    assert [batch.num_rows for batch in batches] == [32_768, 32_768, 32_768, 1_696]
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches)
    assert table["offset"].to_pylist() == list(range(count))
    assert table["value"].to_pylist() == [b"%d" % index for index in range(count)]


def test_many_batches_are_cut_into_shares_of_about_equal_size(log: LogUnderTest) -> None:
    for index in range(34):
        log.append(*(f"{index}-{number}" for number in range(1000)))
    rows = [batch.num_rows for batch in log.batches(["value"], max_rows=32_768)]
    assert sum(rows) == 34_000
    assert len(rows) == 2
    assert min(rows) > 15_000


def test_threads_decode_side_by_side(log: LogUnderTest) -> None:
    for index in range(60):
        log.append(*(f"{index}-{number}" for number in range(100)), codec=list(Codec)[index % 5])
    expected = log.values()
    found: dict[int, list[str]] = {}
    together = threading.Barrier(2)

    def work(number: int) -> None:
        together.wait()
        for _ in range(5):
            found[number] = log.values(max_rows=500 + number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: expected, 1: expected}


def test_a_path_is_not_bytes() -> None:
    with pytest.raises(InvalidRequestError, match="decode_file"):
        decode("00000000000000000000.log")


def test_one_column_is_named_in_a_list() -> None:
    with pytest.raises(InvalidRequestError, match=r"\['key'\]"):
        decode(b"", "key")


def test_a_constant_that_no_column_has_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'topik'"):
        ColumnDecoder(["key"], constants={"topik": "orders"})


def test_errors_of_a_file_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(100))
    with pytest.raises(CorruptRecordError, match=r"00000000000000000000\.log, position 0: "):
        list(decode_file(path))
    with pytest.raises(StorageError, match="a directory"):
        list(decode_file(tmp_path))
    with pytest.raises(StorageError, match="No such file"):
        list(decode_file(tmp_path / "absent.log"))


def test_a_body_that_fills_its_scratch_to_the_last_bytes_is_not_moved_from_before_it() -> None:
    """The scratch of a run of streams is a guess that a sender can compute; so is a body that just fits it."""
    literal, copies = b"0123456789", 1260
    plain_size = len(literal) + 64 * copies
    preamble = bytearray()
    write_unsigned_varint(preamble, plain_size)
    stream = (
        bytes(preamble) + bytes([(len(literal) - 1) << 2]) + literal + (bytes([63 << 2 | 2]) + b"\x0a\x00") * copies
    )
    header = BatchHeader(0, 0, -1, 2, 0, Codec.SNAPPY, 0, 0, 0, -1, -1, -1, 1)
    log = bytes(header.seal(stream))
    scratch = 4 * len(stream) + 64 * 1024
    assert scratch - 64 < plain_size <= scratch
    bodies = open_bodies(log, scan_headers(log))
    assert bodies.table[0, 2] - bodies.table[0, 1] >= 64
    assert len(bodies.owners) == 4  # the buffer, two columns of the scan, the scratch: nothing was moved
    with pytest.raises(InvalidRecordError):
        list(decode(log))


def test_small_batches_that_grow_together_are_opened_a_few_at_a_time() -> None:
    body = compress(Codec.ZSTD, bytes(16 << 20))
    log = b"".join(bytes(BatchHeader(0, 0, -1, 2, 0, Codec.ZSTD, 0, 0, 0, -1, -1, -1, 1).seal(body)) for _ in range(40))
    scan = scan_headers(log)
    bodies = open_bodies(log, scan)
    assert bodies.broken is None
    assert len(bodies.table) == 4  # of 40: 64 MiB
    assert bodies.size == 64 << 20


def test_rows_of_batches_opened_in_several_steps_are_all_there() -> None:
    value = bytes(24 << 20)
    log = b"".join(
        bytes(build_batch([NewRecord(b"%d" % number, value)], base_offset=number, codec=Codec.LZ4))
        for number in range(7)
    )
    assert [row for rows in decode(log, ["key"]) for row in rows["key"].to_pylist()] == [b"%d" % n for n in range(7)]


def test_a_scan_of_another_buffer_is_refused() -> None:
    log = bytes(build_batch([NewRecord(b"k", b"v" * 100)]) * 3)
    for verify in (True, False):
        with pytest.raises(InvalidRequestError, match="not of this buffer"):
            list(ColumnDecoder(verify=verify).decode_scanned(log[:200], scan_headers(log)))


def test_a_buffer_cannot_be_resized_while_it_is_decoded() -> None:
    log = bytearray(build_batch([NewRecord(b"k", b"v")]) * 3)
    rows = ColumnDecoder(max_rows=1).decode_scanned(log, scan_headers(log))
    next(rows)
    with pytest.raises(BufferError):
        log.clear()
    assert sum(batch.num_rows for batch in rows) == 2


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "00000000000000000000.log")
    with pytest.raises(StorageError, match="name a regular file"):
        list(decode_file(tmp_path / "00000000000000000000.log"))
