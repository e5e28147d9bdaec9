"""Columns to version 2 batches, cut as a producer cuts them.

Rows are taken as they stand, or by numbers that are given, in their order. A row goes into the open batch while the
batch stays within `batch.size`; the room of a batch is at least what its first record may need, so that a large record
gets a batch of its own size. Lengths are minimal, the bytes are those of `records.builder.cut_batches` and of Kafka's
own producer.

Columns have the shape of Arrow's binary arrays. A bitmap may begin in the middle of a byte, as it does in a slice.
"""

from enum import IntEnum, auto

from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.memory import (
    copy_wide,
    int32_at,
    load_u8,
    put_big_16,
    put_big_32,
    put_big_64,
    put_word,
    store_8,
    word_at,
)
from tidelog.kernels.runtime import inlined, inner, kernel
from tidelog.kernels.varint import fold, put_folded, size_of_folded
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.record import MAX_RECORD_OVERHEAD

__all__ = [
    "CUT_WORDS",
    "LARGEST_BATCH",
    "TOO_LARGE",
    "Input",
    "encode",
    "headers_size",
    "is_valid",
    "put_field",
    "put_headers",
    "seal",
    "size_of",
    "written_size",
]

CUT_WORDS = 3  # of each batch made: its position, its size, its records
TOO_LARGE = -1
LARGEST_BATCH = 2**31 - 1 - 12
_NULL = 1  # -1, folded


class Input(IntEnum):
    """The int64 words that describe the columns (addresses, 0 for absent) and the batches to be made."""

    ROWS = 0  # how many are to be written
    KEY = 1  # five words: offsets, data, end of data, validity, first bit of it
    VALUE = 6
    HEADER_KEY = 11
    HEADER_VALUE = 16
    HEADER_LISTS = 21  # int32 offsets of each row's headers
    HEADER_VALIDITY = auto()
    HEADER_FIRST_BIT = auto()
    TIMESTAMPS = auto()  # int64 milliseconds, -1 for none
    TARGET = auto()
    CAPACITY = auto()
    CUTS = auto()  # where to write CUT_WORDS a batch
    MAX_CUTS = auto()
    BATCH_SIZE = auto()
    BASE_OFFSET = auto()  # of the first row; -1: every batch begins at 0, as a producer sends it
    LEADER_EPOCH = auto()
    PRODUCER_ID = auto()
    PRODUCER_EPOCH = auto()
    BASE_SEQUENCE = auto()
    ATTRIBUTES = auto()
    ORDER = auto()  # int64 numbers of the rows to be written; 0: all of them as they stand
    WORDS = auto()  # how many there are


# Kernels take plain numbers.
_ROWS = Input.ROWS.value
_KEY = Input.KEY.value
_VALUE = Input.VALUE.value
_HEADER_KEY = Input.HEADER_KEY.value
_HEADER_VALUE = Input.HEADER_VALUE.value
_HEADER_LISTS = Input.HEADER_LISTS.value
_HEADER_VALIDITY = Input.HEADER_VALIDITY.value
_HEADER_FIRST_BIT = Input.HEADER_FIRST_BIT.value
_TIMESTAMPS = Input.TIMESTAMPS.value
_TARGET = Input.TARGET.value
_CAPACITY = Input.CAPACITY.value
_CUTS = Input.CUTS.value
_MAX_CUTS = Input.MAX_CUTS.value
_BATCH_SIZE = Input.BATCH_SIZE.value
_BASE_OFFSET = Input.BASE_OFFSET.value
_LEADER_EPOCH = Input.LEADER_EPOCH.value
_PRODUCER_ID = Input.PRODUCER_ID.value
_PRODUCER_EPOCH = Input.PRODUCER_EPOCH.value
_BASE_SEQUENCE = Input.BASE_SEQUENCE.value
_ATTRIBUTES = Input.ATTRIBUTES.value
_ORDER = Input.ORDER.value


@inlined
def _row_at(order: int, row: int) -> int:
    """Where the columns have a row that is to be written."""
    return word_at(order, row) if order else row


@inlined
def is_valid(validity: int, bit: int) -> bool:
    """Whether a bit of a bitmap is set; without a bitmap all are."""
    return validity == 0 or load_u8(validity + (bit >> 3)) >> (bit & 7) & 1 != 0


@inlined
def size_of(words: int, column: int, row: int) -> int:
    """Bytes of a field, -1 for null. A column that is absent is null everywhere."""
    offsets = word_at(words, column)
    if offsets == 0 or not is_valid(word_at(words, column + 3), word_at(words, column + 4) + row):
        return -1
    return int32_at(offsets, row + 1) - int32_at(offsets, row)


@inlined
def written_size(size: int) -> int:
    """Bytes that a field takes in a record, its length included."""
    return 1 if size < 0 else size_of_folded(size << 1) + size


@inlined
def put_field(address: int, words: int, column: int, row: int, size: int) -> int:
    """Write a field with its length; the address behind it."""
    if size < 0:
        store_8(address, _NULL)
        return address + 1
    address = put_folded(address, size << 1)
    data = word_at(words, column + 1) + int32_at(word_at(words, column), row)
    copy_wide(address, data, size, word_at(words, column + 2))
    return address + size


@inner
def headers_size(words: int, first: int, last: int) -> int:
    """Bytes that some headers take in a record."""
    total = 0
    for header in range(first, last):
        total += written_size(size_of(words, _HEADER_KEY, header))
        total += written_size(size_of(words, _HEADER_VALUE, header))
    return total


@inner
def put_headers(address: int, words: int, first: int, last: int) -> int:
    """Write some headers; the address behind them."""
    for header in range(first, last):
        address = put_field(address, words, _HEADER_KEY, header, size_of(words, _HEADER_KEY, header))
        address = put_field(address, words, _HEADER_VALUE, header, size_of(words, _HEADER_VALUE, header))
    return address


@inner
def seal(batch: int, size: int, words: int, first_row: int, count: int, base_time: int, max_time: int) -> None:
    """Write the header of a batch in front of its records."""
    base_offset = word_at(words, _BASE_OFFSET)
    put_big_64(batch, 0 if base_offset < 0 else base_offset + first_row)
    put_big_32(batch + 8, size - 12)
    put_big_32(batch + 12, word_at(words, _LEADER_EPOCH))
    store_8(batch + 16, 2)
    put_big_16(batch + 21, word_at(words, _ATTRIBUTES))
    put_big_32(batch + 23, count - 1)
    put_big_64(batch + 27, base_time)
    put_big_64(batch + 35, max_time)
    put_big_64(batch + 43, word_at(words, _PRODUCER_ID))
    put_big_16(batch + 51, word_at(words, _PRODUCER_EPOCH))
    base_sequence = word_at(words, _BASE_SEQUENCE)
    put_big_32(batch + 53, base_sequence if base_sequence < 0 else base_sequence + first_row & 0x7FFFFFFF)
    put_big_32(batch + 57, count)
    put_big_32(batch + 17, crc32c_at(batch + 21, size - 21))


@kernel("UniTuple(int64, 3)(int64, int64)")
def encode(words: int, row: int) -> tuple[int, int, int]:
    """Encode rows from `row` on, until they, the target or the table of cuts come to an end.

    Gives back the first row not encoded (all of a batch or none of it), the bytes written and the batches made; the
    row is TOO_LARGE where a record does not fit a batch of any size.
    """
    rows = word_at(words, _ROWS)
    order = word_at(words, _ORDER)
    lists = word_at(words, _HEADER_LISTS)
    timestamps = word_at(words, _TIMESTAMPS)
    target = word_at(words, _TARGET)
    capacity = word_at(words, _CAPACITY)
    position = 0
    cuts = 0
    while row < rows and cuts < word_at(words, _MAX_CUTS):
        first_row = row
        size = BATCH_HEADER_SIZE
        limit = word_at(words, _BATCH_SIZE)
        base_time = word_at(timestamps, _row_at(order, row))
        max_time = -1
        is_full = False
        while row < rows:
            at = _row_at(order, row)
            time = word_at(timestamps, at)
            key_size = size_of(words, _KEY, at)
            value_size = size_of(words, _VALUE, at)
            first_header = 0
            last_header = 0
            if lists and is_valid(word_at(words, _HEADER_VALIDITY), word_at(words, _HEADER_FIRST_BIT) + at):
                first_header = int32_at(lists, at)
                last_header = int32_at(lists, at + 1)
            payload = (
                written_size(key_size) + written_size(value_size) + size_of_folded(last_header - first_header << 1)
            )
            if last_header > first_header:
                payload += headers_size(words, first_header, last_header)
            time_delta = fold(time - base_time)
            offset_delta = row - first_row << 1
            body = 1 + size_of_folded(time_delta) + size_of_folded(offset_delta) + payload
            record = size_of_folded(body << 1) + body
            if row == first_row:
                limit = max(limit, BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD + payload)
                if record > LARGEST_BATCH - BATCH_HEADER_SIZE:
                    return TOO_LARGE, position, cuts
            elif size + record > limit or size + record > LARGEST_BATCH:
                break
            if record > capacity - position - size:
                is_full = True
                break
            address = put_folded(target + position + size, body << 1)
            store_8(address, 0)
            address = put_folded(address + 1, time_delta)
            address = put_folded(address, offset_delta)
            address = put_field(address, words, _KEY, at, key_size)
            address = put_field(address, words, _VALUE, at, value_size)
            address = put_folded(address, last_header - first_header << 1)
            if last_header > first_header:
                put_headers(address, words, first_header, last_header)
            size += record
            max_time = max(max_time, time)
            row += 1
        if is_full:  # the caller comes again with another target, from the first row of this batch
            return first_row, position, cuts
        seal(target + position, size, words, first_row, row - first_row, base_time, max_time)
        put_word(word_at(words, _CUTS), CUT_WORDS * cuts, position)
        put_word(word_at(words, _CUTS), CUT_WORDS * cuts + 1, size)
        put_word(word_at(words, _CUTS), CUT_WORDS * cuts + 2, row - first_row)
        position += size
        cuts += 1
    return row, position, cuts
