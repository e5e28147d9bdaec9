"""Where one batch ends and the next begins, in a file and in memory; what is incomplete, and what is corrupt."""

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.behaviours import behaviour
from tidelog.errors import CorruptRecordError
from tidelog.records import (
    Batch,
    Codec,
    LegacyBatch,
    NewRecord,
    RecordBatch,
    batch_of,
    build_batch,
    build_message_set,
    compress,
    empty_batch,
    first_batch_size,
    read_batches,
    read_memory_batches,
)

RECORDS = [NewRecord(b"a", b"1", 5), NewRecord(None, b"2", 10), NewRecord(b"c", None, 15)]
V2 = bytes(build_batch(RECORDS, base_offset=10))
V1 = bytes(build_message_set(1, RECORDS[:1], base_offset=5))
V0 = bytes(build_message_set(0, RECORDS[:1], base_offset=5))
EMPTY = bytes(empty_batch(base_offset=13, last_offset=20, max_timestamp_ms=15))
ONES = {"v0": V0, "v1": V1, "v2": V2, "empty": EMPTY}
FORMATS = pytest.mark.parametrize("data", ONES.values(), ids=ONES)
READERS = pytest.mark.parametrize("read", [read_batches, read_memory_batches], ids=["file", "memory"])

Reader = Callable[[bytes], Iterator[Batch]]


def with_length(data: bytes, length: int) -> bytes:
    return data[:8] + struct.pack(">i", length) + data[12:]


def with_magic(data: bytes, magic: int) -> bytes:
    return data[:16] + struct.pack(">b", magic) + data[17:]


# -- both readers --------------------------------------------------------------------------------------------------


@READERS
def test_batches_of_all_formats_follow_each_other(read: Reader) -> None:
    log = V0 + V1 + V2 + EMPTY + V2
    batches = list(read(log))
    assert b"".join(batch.buffer for batch in batches) == log
    assert [batch.magic for batch in batches] == [0, 1, 2, 2, 2]
    assert [type(batch) for batch in batches] == [LegacyBatch, LegacyBatch, RecordBatch, RecordBatch, RecordBatch]
    assert [len(list(batch)) for batch in batches] == [1, 1, 3, 0, 3]
    assert all(batch.is_valid for batch in batches)


@behaviour("REC-096", "REC-099")
@READERS
@FORMATS
def test_a_second_batch_cut_off_anywhere_ends_the_iteration(read: Reader, data: bytes) -> None:
    for size in range(len(data)):
        assert [bytes(batch.buffer) for batch in read(V2 + data[:size])] == [V2]
    assert [bytes(batch.buffer) for batch in read(V2 + data)] == [V2, data]


@READERS
def test_bytes_that_are_fewer_than_a_header_up_to_the_magic_are_no_batch(read: Reader) -> None:
    for size in range(17):
        assert list(read(b"\xff" * size)) == []


def test_seventeen_bytes_are_not_looked_at_in_a_file_and_eighteen_are() -> None:
    tail = with_length(V2, 0)
    assert len(list(read_batches(V2 + tail[:17]))) == 1
    with pytest.raises(CorruptRecordError, match=f"position {len(V2)}: a batch length of 0"):
        list(read_batches(V2 + tail[:18]))
    with pytest.raises(CorruptRecordError):  # in memory seventeen are enough
        list(read_memory_batches(V2 + tail[:17]))


@READERS
def test_zeros_behind_the_last_batch_as_a_crash_leaves_them_are_corrupt(read: Reader) -> None:
    batches = read(V2 + bytes(100))
    assert next(batches).last_offset == 12
    with pytest.raises(CorruptRecordError, match="a batch length of 0, the smallest is 14"):
        next(batches)


@behaviour("REC-100")
@READERS
@FORMATS
@pytest.mark.parametrize("length", [9, 13, 0, -1, -(2**31)])
def test_a_length_too_small_for_any_batch_is_corrupt_after_the_first_was_given(
    read: Reader, data: bytes, length: int
) -> None:
    batches = read(V2 + with_length(data, length))
    assert bytes(next(batches).buffer) == V2
    with pytest.raises(CorruptRecordError, match=f"a batch length of {length}, the smallest is 14"):
        next(batches)


@READERS
@pytest.mark.parametrize("length", [14, 48])
def test_a_length_too_small_for_a_header_of_version_2_is_corrupt(read: Reader, length: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"a batch of {12 + length} bytes, its header alone takes 61"):
        list(read(with_length(V2, length)))
    assert len(list(read(with_length(EMPTY, 49)))) == 1


def test_the_position_of_a_batch_too_short_for_its_header_is_told() -> None:
    with pytest.raises(CorruptRecordError, match=f"position {len(V2)}: a batch of 26 bytes, its header"):
        list(read_batches(V2 + with_length(V2, 14)))


@READERS
@pytest.mark.parametrize("length", [2**31 - 1, 2**31 - 12, 1_000_000])
def test_a_length_beyond_the_end_is_an_incomplete_batch(read: Reader, length: int) -> None:
    assert [bytes(batch.buffer) for batch in read(V2 + with_length(V2, length))] == [V2]


# -- files ---------------------------------------------------------------------------------------------------------


@behaviour("REC-095")
def test_producer_data_offsets_and_times_are_told_batch_by_batch() -> None:
    idempotent = build_batch(RECORDS, producer_id=15, producer_epoch=1, base_sequence=0)
    transactional = build_batch(
        RECORDS[:2], base_offset=3, producer_id=99, producer_epoch=2, base_sequence=7, is_transactional=True
    )
    batches = read_batches(idempotent + transactional)
    told = [
        (b.producer_id, b.producer_epoch, b.base_sequence, b.last_sequence, b.is_transactional)
        + (b.base_offset, b.last_offset, b.max_timestamp_ms)
        for b in batches
    ]
    assert told == [(15, 1, 0, 2, False, 0, 2, 15), (99, 2, 7, 8, True, 3, 4, 10)]
    with pytest.raises(StopIteration):
        next(batches)


@behaviour("REC-097")
@pytest.mark.parametrize("position", [0, len(V2), 2147483647])
def test_between_equal_positions_there_is_nothing(position: int) -> None:
    assert list(read_batches(V2 + V1, position, position)) == []


def test_a_file_is_read_between_two_positions() -> None:
    log = V2 + V1 + V0
    assert [b.magic for b in read_batches(log, len(V2))] == [1, 0]
    assert [b.magic for b in read_batches(log, len(V2), len(V2 + V1))] == [1]
    assert [b.magic for b in read_batches(log, len(V2), len(V2 + V1) - 1)] == []
    assert [b.magic for b in read_batches(log, 0, len(log) - 1)] == [2, 1]


@pytest.mark.parametrize("magic", [3, 10, 127])
def test_in_a_file_a_magic_above_2_is_read_as_version_2(magic: int) -> None:
    [batch] = read_batches(with_magic(V2, magic))
    assert isinstance(batch, RecordBatch)
    assert (batch.magic, batch.is_valid, len(list(batch))) == (magic, True, 3)  # the checksum does not cover it


@pytest.mark.parametrize("magic", [-1, -128])
def test_in_a_file_a_negative_magic_is_read_as_legacy(magic: int) -> None:
    [batch] = read_batches(with_magic(V1, magic))
    assert isinstance(batch, LegacyBatch)
    assert (batch.magic, batch.is_valid) == (magic, False)


@behaviour("REC-098")
@pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec < Codec.ZSTD]
)
def test_a_batch_of_a_file_is_decoded_in_memory_alike(magic: int, codec: Codec) -> None:
    log = build_message_set(magic, RECORDS, codec=codec) if magic < 2 else build_batch(RECORDS, codec=codec)
    for batch in read_batches(log):
        copy = bytes(batch.buffer)
        [in_memory] = read_memory_batches(copy)
        assert list(in_memory) == list(batch) == list(batch_of(copy))
        assert in_memory.crc == batch.crc


# -- memory --------------------------------------------------------------------------------------------------------


@behaviour("REC-101")
@FORMATS
@pytest.mark.parametrize("magic", [37, 3, -1])
def test_in_memory_an_unknown_magic_is_corrupt_after_the_first_was_given(data: bytes, magic: int) -> None:
    batches = read_memory_batches(V2 + with_magic(data, magic))
    assert bytes(next(batches).buffer) == V2
    with pytest.raises(CorruptRecordError, match=f"a batch of magic {magic}, known are 0, 1 and 2"):
        next(batches)


@behaviour("REC-102")
def test_in_memory_a_batch_above_the_callers_limit_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match=f"a batch of {len(V2)} bytes, the limit is 60"):
        list(read_memory_batches(V2, max_batch_size=60))
    assert len(list(read_memory_batches(V2 + V1, max_batch_size=len(V2)))) == 2
    with pytest.raises(CorruptRecordError):  # even if it has not arrived in full
        list(read_memory_batches(V2[:20], max_batch_size=len(V2) - 1))


@behaviour("REC-067")
@FORMATS
def test_the_size_of_the_first_batch_is_known_from_seventeen_bytes_on(data: bytes) -> None:
    for size in range(17):
        assert first_batch_size(data[:size]) is None
    for size in range(17, len(data) + 1):
        assert first_batch_size(data[:size]) == len(data)
    view = memoryview(data + V2)
    assert first_batch_size(view) == first_batch_size(view) == len(data)


@behaviour("REC-068")
@FORMATS
def test_an_unknown_magic_or_a_length_too_small_is_corrupt_at_a_glance(data: bytes) -> None:
    for magic in (10, 3, -1):
        with pytest.raises(CorruptRecordError, match=f"magic {magic}"):
            first_batch_size(with_magic(data, magic)[:17])
    for length in (13, 0, -1):
        with pytest.raises(CorruptRecordError, match=f"a batch length of {length}"):
            first_batch_size(with_length(data, length)[:17])
    with pytest.raises(CorruptRecordError, match="the limit is 20"):
        first_batch_size(data[:17], max_batch_size=20)


# -- one batch -----------------------------------------------------------------------------------------------------


@FORMATS
def test_one_batch_is_told_by_its_magic(data: bytes) -> None:
    assert isinstance(batch_of(data), LegacyBatch if data[16] < 2 else RecordBatch)
    assert list(batch_of(bytearray(data))) == list(batch_of(memoryview(data)))


@FORMATS
def test_too_few_bytes_for_a_batch_are_corrupt(data: bytes) -> None:
    for size in range(26 if data[16] < 2 else 61):
        with pytest.raises(CorruptRecordError):
            batch_of(data[:size])


# -- streams of codecs, inside batches -----------------------------------------------------------------------------


def holding(stream: bytes, codec: Codec) -> RecordBatch:
    """A batch of the three records around a stream of our own."""
    header = RecordBatch(build_batch(RECORDS)).header
    return RecordBatch(header._replace(attributes=codec).seal(stream))


PLAIN = bytes(RecordBatch(V2).records_bytes())
HEADER = 16  # bytes of the header of a snappy stream


@pytest.mark.parametrize(
    ("codec", "stream"),
    [
        pytest.param(Codec.SNAPPY, compress(Codec.SNAPPY, PLAIN)[HEADER + 4 :], id="snappy without its framing"),
        pytest.param(
            Codec.SNAPPY, compress(Codec.SNAPPY, PLAIN[:9]) + compress(Codec.SNAPPY, PLAIN[9:]), id="two snappy streams"
        ),
        pytest.param(
            Codec.GZIP, compress(Codec.GZIP, PLAIN[:9]) + compress(Codec.GZIP, PLAIN[9:]), id="two members of gzip"
        ),
        pytest.param(
            Codec.ZSTD, compress(Codec.ZSTD, PLAIN[:9]) + compress(Codec.ZSTD, PLAIN[9:]), id="two frames of zstd"
        ),
    ],
)
def test_streams_that_others_write_in_pieces_or_without_framing_are_read(codec: Codec, stream: bytes) -> None:
    records = list(holding(stream, codec))
    assert [(r.key, r.value, r.timestamp_ms) for r in records] == [(r.key, r.value, r.timestamp_ms) for r in RECORDS]
