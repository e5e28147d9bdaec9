"""Messages of magic 0 and 1, plain and inside wrappers."""

import struct
from typing import NamedTuple

import pytest

from tests.behaviours import behaviour
from tidelog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    UnsupportedCompressionError,
    UnsupportedError,
)
from tidelog.records import (
    Codec,
    LegacyBatch,
    NewRecord,
    Record,
    TimestampType,
    batch_of,
    build_message_set,
    compress,
    read_batches,
)
from tidelog.records.legacy import message_size, write_message

NO_TYPE, CREATE_TIME = TimestampType.NO_TIMESTAMP_TYPE, TimestampType.CREATE_TIME
APPEND_TIME = TimestampType.LOG_APPEND_TIME
LEGACY_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
WRAPPERS = pytest.mark.parametrize("codec", LEGACY_CODECS, ids=[codec.label for codec in LEGACY_CODECS])
MAGICS = pytest.mark.parametrize("magic", [0, 1])
THREE = [NewRecord(b"a", b"1", 1), NewRecord(b"b", b"2", 2), NewRecord(b"c", b"3", 3)]


class Case(NamedTuple):
    magic: int
    offset: int
    record: NewRecord
    hex: str  # of the message, behind the prefix


CASES = {
    "v0 key and value": Case(0, 5, NewRecord(b"k", b"v"), "1fecd70a 00 00 00000001 6b 00000001 76"),
    "v1 key and value": Case(
        1, 5, NewRecord(b"k", b"v", 1_700_000_000_000), "39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76"
    ),
    "v0 both null": Case(0, 0, NewRecord(None, None), "a7ec6803 00 00 ffffffff ffffffff"),
    "v1 both null": Case(1, 0, NewRecord(None, None, 0), "cc2f79d9 01 00 0000000000000000 ffffffff ffffffff"),
    "v0 both empty": Case(0, 2**40, NewRecord(b"", b""), "e38a6876 00 00 00000000 00000000"),
    "v1 both empty": Case(1, 2**40, NewRecord(b"", b"", -1), "1f27f496 01 00 ffffffffffffffff 00000000 00000000"),
}
ALL_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def entry(case: Case) -> bytes:
    message = bytes.fromhex(case.hex)
    return struct.pack(">qi", case.offset, len(message)) + message


def wrapper(
    magic: int,
    offset: int,
    inner: bytes,
    codec: Codec = Codec.GZIP,
    *,
    timestamp_ms: int = 9,
    timestamp_type: TimestampType = CREATE_TIME,
) -> bytearray:
    """A wrapper around any bytes."""
    out = bytearray()
    content = NewRecord(None, compress(codec, inner, magic=magic), timestamp_ms)
    write_message(out, magic, offset, content, codec=codec, timestamp_type=timestamp_type)
    return out


def inner_set(magic: int, offsets: list[int], **options: object) -> bytes:
    """Plain messages with exactly these offsets, as they lie inside a wrapper."""
    out = bytearray()
    for record, offset in zip(THREE, offsets, strict=False):
        write_message(out, magic, offset, record, **options)
    return bytes(out)


def resealed(data: bytearray) -> bytearray:
    """The checksum of a message computed again, after something under it was changed."""
    struct.pack_into(">I", data, 12, LegacyBatch(data).compute_crc())
    return data


# -- plain messages ------------------------------------------------------------------------------------------------


@ALL_CASES
def test_a_message_is_written_as_its_bytes_in_the_size_predicted(case: Case) -> None:
    out = bytearray(b"before")
    write_message(out, case.magic, case.offset, case.record)
    assert out.hex(" ") == (b"before" + entry(case)).hex(" ")
    assert message_size(case.magic, case.record.key, case.record.value) == len(entry(case))


@ALL_CASES
def test_bytes_are_read_as_their_message_and_what_follows_is_left_alone(case: Case) -> None:
    timestamp = case.record.timestamp_ms if case.magic else -1
    wanted = Record(
        case.offset,
        timestamp,
        case.record.key,
        case.record.value,
        timestamp_type=CREATE_TIME if case.magic else NO_TYPE,
    )
    for data in (entry(case), entry(case) + bytes(17), entry(case) * 2):
        batch = next(read_batches(data))
        assert isinstance(batch, LegacyBatch)
        batch.ensure_valid()
        assert list(batch) == [wanted]
        assert (batch.base_offset, batch.last_offset, batch.next_offset) == (case.offset, case.offset, case.offset + 1)
        assert (batch.magic, batch.count, batch.codec) == (case.magic, 1, Codec.NONE)
        assert batch.size_in_bytes == len(entry(case))


@behaviour("REC-112")
@ALL_CASES
def test_a_message_cut_off_anywhere_is_corrupt(case: Case) -> None:
    data = entry(case)
    for size in range(len(data)):
        assert list(read_batches(data[:size])) == []  # incomplete at the end of a file
        shortened = bytearray(data[:size])
        if size >= 12:
            struct.pack_into(">i", shortened, 8, size - 12)
        if size < 26:
            with pytest.raises(CorruptRecordError, match=f"an entry of {size} bytes"):
                LegacyBatch(shortened)
        else:
            batch = LegacyBatch(shortened)
            assert not batch.is_valid
            with pytest.raises(InvalidRecordError, match="a message "):
                list(batch.records())


@behaviour("REC-108")
@MAGICS
@pytest.mark.parametrize("codec_id", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("key", [None, b"", b"key", bytes(1000)], ids=["null", "empty", "three", "1000"])
@pytest.mark.parametrize("value", [None, b"", b"value", bytes(1000)], ids=["null", "empty", "five", "1000"])
def test_every_field_of_a_message_reads_back(magic: int, codec_id: int, key: bytes | None, value: bytes | None) -> None:
    out = bytearray()
    write_message(out, magic, 7, NewRecord(key, value, 1234))
    out[17] |= codec_id
    batch = LegacyBatch(resealed(out))
    assert batch.is_valid
    assert (batch.last_offset, batch.magic) == (7, magic)
    assert batch.max_timestamp_ms == (1234 if magic else -1)
    if codec_id == 0:
        [record] = batch
        assert (record.key, record.value, record.timestamp_ms) == (key, value, 1234 if magic else -1)
        assert record.headers == ()
    elif codec_id < 5:
        assert batch.codec == codec_id
        assert batch.count is None
    else:
        with pytest.raises(UnsupportedCompressionError):
            _ = batch.codec


@behaviour("REC-109")
@ALL_CASES
def test_any_flipped_bit_behind_the_checksum_makes_a_message_invalid(case: Case) -> None:
    data = bytearray(entry(case))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        batch = LegacyBatch(data)
        assert batch.is_valid == (bit // 8 < 12), f"position {bit // 8}"
        if not batch.is_valid:
            with pytest.raises(CorruptRecordError, match=f"message at offset {case.offset}: stored crc"):
                batch.ensure_valid()
        data[bit // 8] ^= 1 << bit % 8


@behaviour("REC-048", "REC-049")
@MAGICS
@pytest.mark.parametrize("codec", [Codec.NONE, *LEGACY_CODECS])
def test_what_the_old_formats_do_not_have_is_minus_one_or_false(magic: int, codec: Codec) -> None:
    for batch in read_batches(build_message_set(magic, THREE, codec=codec)):
        assert (batch.partition_leader_epoch, batch.producer_id, batch.producer_epoch) == (-1, -1, -1)
        assert (batch.base_sequence, batch.last_sequence) == (-1, -1)
        assert (batch.is_transactional, batch.is_control, batch.delete_horizon_ms) == (False, False, None)
        assert batch.timestamp_type is (CREATE_TIME if magic else NO_TYPE)
        for record in batch:
            assert (record.sequence, record.headers) == (-1, ())
            assert record.timestamp_type is (CREATE_TIME if magic else NO_TYPE)
            assert (record.timestamp_ms == -1) == (magic == 0)


@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_any_negative_length_reads_as_null(length: int) -> None:
    data = bytearray(entry(CASES["v0 both null"]))
    struct.pack_into(">ii", data, 18, length, length)
    assert [(r.key, r.value) for r in LegacyBatch(resealed(data))] == [(None, None)]


@pytest.mark.parametrize(("position", "length"), [(18, 2), (18, 2**31 - 1), (23, 2), (23, 2**31 - 1)])
def test_a_length_beyond_the_message_is_invalid(position: int, length: int) -> None:
    data = bytearray(entry(CASES["v0 key and value"]))
    struct.pack_into(">i", data, position, length)
    with pytest.raises(InvalidRecordError, match="a message "):
        list(LegacyBatch(resealed(data)))


def test_bytes_behind_the_value_of_a_message_are_ignored() -> None:
    data = bytearray(entry(CASES["v0 key and value"]) + b"more")
    struct.pack_into(">i", data, 8, len(data) - 12)
    assert [(r.key, r.value) for r in LegacyBatch(resealed(data))] == [(b"k", b"v")]


def test_a_batch_is_shown_by_its_magic_offset_and_size() -> None:
    assert repr(batch_of(entry(CASES["v0 key and value"]))) == "LegacyBatch(magic 0, last offset 5, 28 bytes)"


# -- sets of messages ----------------------------------------------------------------------------------------------

SIX = [
    NewRecord(b"1", b"first", 1),
    NewRecord(b"2", b"second", 3),
    NewRecord(None, b"no key", 2),
    NewRecord(b"4", None, 9),
    NewRecord(None, None, 4),
    NewRecord(b"", b"", 0),
]


@behaviour("REC-046")
@MAGICS
@pytest.mark.parametrize("codec", [Codec.NONE, *LEGACY_CODECS])
@pytest.mark.parametrize("base_offset", [0, 57])
def test_six_records_are_read_twice_alike(magic: int, codec: Codec, base_offset: int) -> None:
    batches = list(read_batches(build_message_set(magic, SIX, codec=codec, base_offset=base_offset)))
    first, second = ([record for batch in batches for record in batch] for _ in range(2))
    assert first == second
    assert [(r.key, r.value) for r in first] == [(r.key, r.value) for r in SIX]
    assert [r.timestamp_ms for r in first] == ([r.timestamp_ms for r in SIX] if magic else [-1] * 6)
    assert [record.offset for record in first] == list(range(base_offset, base_offset + 6))
    assert batches[0].base_offset == base_offset
    assert batches[-1].last_offset == base_offset + 5


@MAGICS
def test_plain_messages_are_a_batch_each_and_wrapped_ones_a_batch_of_unknown_count(magic: int) -> None:
    assert [batch.count for batch in read_batches(build_message_set(magic, THREE))] == [1, 1, 1]
    for codec in LEGACY_CODECS:
        assert [batch.count for batch in read_batches(build_message_set(magic, THREE, codec=codec))] == [None]


# -- wrappers ------------------------------------------------------------------------------------------------------


@WRAPPERS
def test_inside_magic_1_offsets_are_relative_and_inside_magic_0_absolute(codec: Codec) -> None:
    for magic, stored in [(0, [57, 58, 59]), (1, [0, 1, 2])]:
        [batch] = read_batches(build_message_set(magic, THREE, codec=codec, base_offset=57))
        assert isinstance(batch, LegacyBatch)
        assert [message.last_offset for message in batch.inner_messages()] == stored
        assert [record.offset for record in batch] == [57, 58, 59]
        assert all(message.is_valid and message.codec is Codec.NONE for message in batch.inner_messages())


@behaviour("REC-103")
@WRAPPERS
def test_setting_the_last_offset_of_a_wrapper_moves_the_messages_inside(codec: Codec) -> None:
    batch = LegacyBatch(build_message_set(1, THREE, codec=codec))
    batch.set_last_offset(500)
    assert [record.offset for record in batch] == [498, 499, 500]
    assert batch.is_valid
    assert batch.last_offset == 500


@behaviour("REC-104")
@WRAPPERS
@MAGICS
def test_a_wrapper_at_offset_0_counts_from_0(magic: int, codec: Codec) -> None:
    batch = LegacyBatch(wrapper(magic, 0, inner_set(magic, [0, 1, 2]), codec))
    assert [record.offset for record in batch] == [0, 1, 2]
    assert (batch.base_offset, batch.last_offset) == (0, 0)


@behaviour("REC-105")
@WRAPPERS
def test_a_wrapper_below_its_last_relative_offset_is_invalid(codec: Codec) -> None:
    batch = LegacyBatch(wrapper(1, 1, inner_set(1, [0, 1, 2]), codec))
    with pytest.raises(InvalidRecordError, match="at offset 1, below the last relative offset 2"):
        list(batch)


@WRAPPERS
def test_gaps_inside_a_compacted_wrapper_are_kept(codec: Codec) -> None:
    batch = LegacyBatch(wrapper(1, 109, inner_set(1, [1, 4, 9]), codec))
    assert [record.offset for record in batch] == [101, 104, 109]
    batch = LegacyBatch(wrapper(0, 109, inner_set(0, [101, 104, 109]), codec))
    assert [record.offset for record in batch] == [101, 104, 109]


@WRAPPERS
def test_the_timestamp_type_of_the_wrapper_rules_and_that_inside_is_ignored(codec: Codec) -> None:
    for inside in (CREATE_TIME, APPEND_TIME):
        messages = inner_set(1, [0, 1, 2], timestamp_type=inside)
        created = LegacyBatch(wrapper(1, 2, messages, codec))
        assert [(r.timestamp_ms, r.timestamp_type) for r in created] == [(t, CREATE_TIME) for t in (1, 2, 3)]
        appended = LegacyBatch(wrapper(1, 2, messages, codec, timestamp_type=APPEND_TIME))
        assert [(r.timestamp_ms, r.timestamp_type) for r in appended] == [(9, APPEND_TIME)] * 3


@behaviour("REC-110")
@MAGICS
def test_a_wrapper_without_a_value_is_invalid(magic: int) -> None:
    out = bytearray()
    write_message(out, magic, 0, NewRecord(None, None), codec=Codec.GZIP)
    with pytest.raises(InvalidRecordError, match="a wrapper without a value"):
        list(LegacyBatch(out))


@behaviour("REC-111")
@WRAPPERS
@MAGICS
@pytest.mark.parametrize("inner", [b"", bytes(11), inner_set(1, [0])[:-1]], ids=["nothing", "a crumb", "half of one"])
def test_a_wrapper_around_no_message_is_invalid(magic: int, codec: Codec, inner: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="a wrapper around nothing"):
        list(LegacyBatch(wrapper(magic, 0, inner, codec)))


@WRAPPERS
def test_a_message_cut_off_at_the_end_of_a_wrapper_ends_the_set(codec: Codec) -> None:
    messages = inner_set(1, [0, 1, 2])
    for missing in range(1, 36):
        batch = LegacyBatch(wrapper(1, 11, messages[:-missing], codec))
        assert [record.offset for record in batch] == [10, 11]


@WRAPPERS
def test_a_message_too_small_inside_a_wrapper_is_corrupt(codec: Codec) -> None:
    inner = inner_set(1, [0]) + struct.pack(">qi", 1, 13) + bytes(13)
    with pytest.raises(CorruptRecordError, match="a wrapped message of 13 bytes"):
        list(LegacyBatch(wrapper(1, 1, inner, codec)))


@MAGICS
def test_a_wrapper_inside_a_wrapper_or_around_another_magic_is_invalid(magic: int) -> None:
    inner = wrapper(magic, 0, inner_set(magic, [0]))
    with pytest.raises(InvalidRecordError, match="a wrapper inside a wrapper"):
        list(LegacyBatch(wrapper(magic, 0, inner)))
    with pytest.raises(InvalidRecordError, match=f"magic {1 - magic} inside a wrapper of magic {magic}"):
        list(LegacyBatch(wrapper(magic, 0, inner_set(1 - magic, [0]))))


@MAGICS
def test_zstd_in_an_old_format_is_unsupported(magic: int) -> None:
    out = bytearray()
    write_message(out, magic, 0, NewRecord(None, compress(Codec.ZSTD, inner_set(magic, [0]))), codec=Codec.ZSTD)
    batch = LegacyBatch(out)
    assert batch.is_valid
    with pytest.raises(UnsupportedCompressionError, match=f"zstd in magic {magic}"):
        list(batch)


def test_the_broken_lz4_checksum_is_for_magic_0_alone() -> None:
    broken, right = (compress(Codec.LZ4, inner_set(magic, [0]), magic=magic) for magic in (0, 1))
    assert (broken[6], right[6]) == (0x1A, 0x82)
    for magic, stream in [(0, broken), (0, right), (1, right)]:
        out = bytearray()
        inner = compress(Codec.LZ4, inner_set(magic, [0]), magic=magic)
        write_message(out, magic, 0, NewRecord(None, inner[:6] + stream[6:7] + inner[7:]), codec=Codec.LZ4)
        assert len(list(LegacyBatch(out))) == 1
    out = bytearray()
    write_message(out, 1, 0, NewRecord(None, right[:6] + b"\x1a" + right[7:]), codec=Codec.LZ4)
    with pytest.raises(InvalidRecordError):
        list(LegacyBatch(out))


def test_the_cap_on_decompression_holds_for_wrappers() -> None:
    messages = inner_set(1, [0, 1, 2])
    batch = LegacyBatch(wrapper(1, 2, messages))
    assert len(list(batch.records(max_size=len(messages)))) == 3
    with pytest.raises(InvalidRecordError):
        list(batch.records(max_size=len(messages) - 1))


# -- what a broker stamps ------------------------------------------------------------------------------------------


@behaviour("REC-106")
@WRAPPERS
def test_times_of_a_wrapper_are_stamped_and_create_time_leaves_those_inside(codec: Codec) -> None:
    batch = LegacyBatch(build_message_set(1, THREE, codec=codec))
    batch.set_max_timestamp(APPEND_TIME, 77)
    assert batch.is_valid
    assert (batch.timestamp_type, batch.max_timestamp_ms, batch.codec) == (APPEND_TIME, 77, codec)
    assert [record.timestamp_ms for record in batch] == [77, 77, 77]
    batch.set_max_timestamp(CREATE_TIME, 3)
    assert batch.is_valid
    assert [record.timestamp_ms for record in batch] == [1, 2, 3]
    assert batch.buffer == build_message_set(1, THREE, codec=codec)


def test_the_time_of_a_plain_message_is_stamped() -> None:
    batch = LegacyBatch(build_message_set(1, THREE[:1]))
    batch.set_max_timestamp(APPEND_TIME, 77)
    assert batch.is_valid
    assert [(r.timestamp_ms, r.timestamp_type) for r in batch] == [(77, APPEND_TIME)]


@behaviour("REC-106")
@pytest.mark.parametrize("codec", [Codec.NONE, *LEGACY_CODECS])
def test_magic_0_has_no_time_to_stamp(codec: Codec) -> None:
    data = build_message_set(0, THREE, codec=codec)
    before = bytes(data)
    for timestamp_type in TimestampType:
        with pytest.raises(UnsupportedError, match="no timestamp to set"):
            next(read_batches(data)).set_max_timestamp(timestamp_type, 5)
    assert data == before


@behaviour("REC-027")
@pytest.mark.parametrize("codec", [Codec.NONE, *LEGACY_CODECS])
def test_magic_1_always_has_a_timestamp_type(codec: Codec) -> None:
    batch = next(read_batches(build_message_set(1, THREE, codec=codec)))
    with pytest.raises(InvalidRequestError, match="has a timestamp type"):
        batch.set_max_timestamp(NO_TYPE, -1)


def test_stamping_the_time_that_is_already_there_changes_nothing() -> None:
    data = build_message_set(1, THREE[:1])
    data[17] |= 0x40  # a bit without a name, which stamping would clear
    before = bytes(resealed(data))
    batch = LegacyBatch(data)
    batch.set_max_timestamp(CREATE_TIME, 1)
    assert data == before
    batch.set_max_timestamp(CREATE_TIME, 2)
    assert data[17] == 0
    assert batch.is_valid


@behaviour("REC-107")
@MAGICS
def test_a_leader_epoch_cannot_be_set_before_version_2(magic: int) -> None:
    for batch in read_batches(build_message_set(magic, THREE)):
        with pytest.raises(UnsupportedError, match="no leader epoch"):
            batch.set_partition_leader_epoch(5)
