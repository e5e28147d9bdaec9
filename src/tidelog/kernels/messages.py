"""Legacy entries to columns.

The body of an entry is a message set: the entry itself, or what its wrapper holds, decompressed. Decompression is
left to `tidelog.records`, wrapper by wrapper; messages are counted and decoded by kernels.
"""

from typing import Any

import numpy as np

from tidelog.errors import TidelogError
from tidelog.kernels.bodies import DEFAULT_BUDGET, Bodies, Int64Array
from tidelog.kernels.buffers import address_of, hold
from tidelog.kernels.decode import (
    ALL_DECODED,
    BODY_WORDS,
    KEY_BYTES,
    KEY_OFFSETS,
    OFFSETS,
    ROW_SIZE,
    ROWS,
    TIMESTAMPS,
    VALUE_BYTES,
    VALUE_OFFSETS,
    clear_bit,
)
from tidelog.kernels.headers import HeaderScan
from tidelog.kernels.memory import big_i32, big_i64, copy_wide, load_u8, put_int32, put_word, word_at
from tidelog.kernels.runtime import inlined, inner, kernel
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.legacy import MIN_MESSAGE_SIZE

__all__ = ["decode_messages", "open_messages"]

_PREFIX = 12


@kernel("int64(int64, int64, int64)")
def count_messages(bodies: int, sets: int, counts: int) -> int:
    """Count the messages of each set; the index of the first with an impossible size, or -1.

    A message that is cut off ends its set, as in Kafka.
    """
    for index in range(sets):
        address = word_at(bodies, BODY_WORDS * index)
        end = word_at(bodies, BODY_WORDS * index + 1)
        count = 0
        while end - address >= _PREFIX:
            size = big_i32(address + 8)
            if size < MIN_MESSAGE_SIZE:
                return index
            if size > end - address - _PREFIX:
                break
            address += _PREFIX + size
            count += 1
        put_word(counts, index, count)
    return ALL_DECODED


@inner
def _last_offset(address: int, end: int) -> int:
    """The offset written into the last complete message of a set."""
    last = 0
    while end - address >= _PREFIX and MIN_MESSAGE_SIZE <= big_i32(address + 8) <= end - address - _PREFIX:
        last = big_i64(address)
        address += _PREFIX + big_i32(address + 8)
    return last


@inlined
def _put_field(slots: int, column: int, total: int, row: int, field: int, end: int, limit: int) -> int:
    """Copy a key or a value to its column; the address behind it, or one beyond `end` where it does not fit.

    `column` is the first of the column's three slots, `total` that of its bytes, which that of its nulls follows.
    """
    if end - field < 4:
        return end + 1
    size = big_i32(field)
    field += 4
    if size > end - field:
        return end + 1
    if word_at(slots, column):
        filled = word_at(slots, total)
        if size >= 0:
            copy_wide(word_at(slots, column + 1) + filled, field, size, limit)
            filled += size
            put_word(slots, total, filled)
        else:
            clear_bit(word_at(slots, column + 2), row)
            put_word(slots, total + 1, word_at(slots, total + 1) + 1)
        put_int32(word_at(slots, column), row + 1, filled)
    return field + (size & ~(size >> 63))  # a null takes no bytes


@kernel("int64(int64, int64, int64, int64)")
def decode_messages(entries: int, bodies: int, sets: int, slots: int) -> int:
    """Decode the messages of `sets` counted message sets, or give the index of the first that is broken.

    ROWS tells how many messages were counted: there is room for no more.
    """
    row = 0
    for index in range(sets):
        entry = entries + index * ROW_SIZE
        address = word_at(bodies, BODY_WORDS * index)
        end = word_at(bodies, BODY_WORDS * index + 1)
        limit = word_at(bodies, BODY_WORDS * index + 2)
        magic = load_u8(entry + 16)
        attributes = load_u8(entry + 17)
        is_wrapper = attributes & 7 != 0
        is_append_time = magic != 0 and attributes & 8 != 0
        base_offset = 0
        if is_wrapper and magic == 1 and big_i64(entry) != 0:
            last_offset = _last_offset(address, end)
            if big_i64(entry) < last_offset:
                return index
            base_offset = big_i64(entry) - last_offset  # wraps as Java's does
        first = row
        while end - address >= _PREFIX:
            size = big_i32(address + 8)
            if size > end - address - _PREFIX:
                break  # cut off: the set ends here
            message_end = address + _PREFIX + size
            if size < MIN_MESSAGE_SIZE or row == word_at(slots, ROWS):
                return index
            if load_u8(address + 16) != magic or (is_wrapper and load_u8(address + 17) & 7 != 0):
                return index
            put_word(word_at(slots, OFFSETS), row, base_offset + big_i64(address))
            field = address + 18
            timestamp = -1
            if magic != 0:
                timestamp = big_i64(entry + 18) if is_append_time else big_i64(field)
                field += 8
            put_word(word_at(slots, TIMESTAMPS), row, timestamp)
            field = _put_field(slots, KEY_OFFSETS, KEY_BYTES, row, field, message_end, limit)
            field = _put_field(slots, VALUE_OFFSETS, VALUE_BYTES, row, field, message_end, limit)
            if field > message_end:  # what follows the value is not looked at, as in Kafka
                return index
            address = message_end
            row += 1
        if row == first:  # a wrapper around nothing
            return index
    return ALL_DECODED


def open_messages(
    buffer: Any, scan: HeaderScan, *, max_size: int = MAX_DECOMPRESSED_BYTES, budget: int = DEFAULT_BUDGET
) -> tuple[Bodies, Int64Array]:
    """The message sets of legacy entries that a scan of `buffer` found, and how many messages each holds.

    The table may end early, as that of `open_bodies`.
    """
    view = hold(buffer)
    scan.ensure_of(view)
    address, size = address_of(view)
    table = np.empty((len(scan.rows), 3), np.int64)
    table[:, 0] = scan.positions + address
    table[:, 1] = table[:, 0] + scan.sizes
    table[:, 2] = address + size
    owners: list[object] = [view]
    broken: int | None = None
    end = len(table)
    total = 0
    for index in np.flatnonzero(scan.legacy["attributes"] & 7).tolist():
        if total >= budget:
            end = index
            break
        try:
            content = hold(scan.batch_in(view, index).records_bytes(max_size))
        except TidelogError:  # whoever asks for this entry again will be told why
            end = broken = index
            break
        total += len(content)
        first, length = address_of(content)
        table[index] = first, first + length, first + length
        owners.append(content)
    table = table[:end]
    counts = np.zeros(len(table), np.int64)
    uncounted = count_messages(table.ctypes.data, len(table), counts.ctypes.data)
    if uncounted != ALL_DECODED:
        broken, table, counts = uncounted, table[:uncounted], counts[:uncounted]
    size_of_all = int((table[:, 1] - table[:, 0]).sum())
    return Bodies(table, owners, size_of_all, len(owners) > 1, broken), counts
