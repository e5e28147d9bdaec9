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
    KEY_DATA,
    KEY_NULLS,
    KEY_OFFSETS,
    KEY_VALIDITY,
    OFFSETS,
    ROW_SIZE,
    ROWS,
    TIMESTAMPS,
    VALUE_BYTES,
    VALUE_DATA,
    VALUE_NULLS,
    VALUE_OFFSETS,
    VALUE_VALIDITY,
    clear_bit,
)
from tidelog.kernels.headers import HeaderScan
from tidelog.kernels.memory import big_i32, big_i64, copy_wide, load_u8, put_int32, put_word, word_at
from tidelog.kernels.runtime import inner, kernel
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
    while end - address >= _PREFIX and big_i32(address + 8) <= end - address - _PREFIX:
        last = big_i64(address)
        address += _PREFIX + big_i32(address + 8)
    return last


@kernel("int64(int64, int64, int64, int64)")
def decode_messages(entries: int, bodies: int, sets: int, slots: int) -> int:
    """Decode the messages of `sets` counted message sets, or give the index of the first that is broken."""
    key_offsets = word_at(slots, KEY_OFFSETS)
    value_offsets = word_at(slots, VALUE_OFFSETS)
    row = 0
    key_bytes = 0
    key_nulls = 0
    value_bytes = 0
    value_nulls = 0
    for index in range(sets):
        entry = entries + index * ROW_SIZE
        address = word_at(bodies, BODY_WORDS * index)
        end = word_at(bodies, BODY_WORDS * index + 1)
        limit = word_at(bodies, BODY_WORDS * index + 2)
        magic = load_u8(entry + 16)
        attributes = load_u8(entry + 17)
        is_append_time = magic != 0 and attributes & 8 != 0
        base_offset = 0
        if attributes & 7 != 0:
            if end - address < _PREFIX:
                return index
            if magic == 1 and big_i64(entry) != 0:
                last_offset = _last_offset(address, end)
                if big_i64(entry) < last_offset:
                    return index
                base_offset = big_i64(entry) - last_offset  # wraps as Java's does
        first = address
        while end - address >= _PREFIX:
            message_end = address + _PREFIX + big_i32(address + 8)
            if message_end > end:
                if address == first:
                    return index
                break
            if load_u8(address + 16) != magic or (attributes & 7 != 0 and load_u8(address + 17) & 7 != 0):
                return index
            put_word(word_at(slots, OFFSETS), row, base_offset + big_i64(address))
            field = address + 18
            timestamp = -1
            if magic != 0:
                timestamp = big_i64(entry + 18) if is_append_time else big_i64(field)
                field += 8
            put_word(word_at(slots, TIMESTAMPS), row, timestamp)
            if message_end - field < 4:
                return index
            size = big_i32(field)
            field += 4
            if size > message_end - field:
                return index
            if key_offsets:
                if size >= 0:
                    copy_wide(word_at(slots, KEY_DATA) + key_bytes, field, size, limit)
                    key_bytes += size
                else:
                    clear_bit(word_at(slots, KEY_VALIDITY), row)
                    key_nulls += 1
                put_int32(key_offsets, row + 1, key_bytes)
            field += size & ~(size >> 63)
            if message_end - field < 4:
                return index
            size = big_i32(field)
            field += 4
            if size > message_end - field:
                return index
            if value_offsets:
                if size >= 0:
                    copy_wide(word_at(slots, VALUE_DATA) + value_bytes, field, size, limit)
                    value_bytes += size
                else:
                    clear_bit(word_at(slots, VALUE_VALIDITY), row)
                    value_nulls += 1
                put_int32(value_offsets, row + 1, value_bytes)
            address = message_end
            row += 1
    put_word(slots, ROWS, row)
    put_word(slots, KEY_BYTES, key_bytes)
    put_word(slots, KEY_NULLS, key_nulls)
    put_word(slots, VALUE_BYTES, value_bytes)
    put_word(slots, VALUE_NULLS, value_nulls)
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
