"""Version 2 records to columns, in one pass over the bodies of many batches.

Variable-length columns take the shape of Arrow's binary arrays: int32 offsets, data, and a bitmap of validity in
which only nulls are cleared. Data buffers are as large as all bodies together, an upper bound, and have slack behind
them for wide copies; the caller cuts them to what was used.

Headers are checked here but gathered by a second kernel, `gather_headers`, and only when somebody wants them: this one
notes where each record's headers begin.

The kernel says which batch is broken and no more. `tidelog.records` reads that batch again and says why.
"""

from enum import IntEnum, auto

from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.memory import (
    big_i32,
    big_i64,
    big_u32,
    copy_roomy,
    copy_wide,
    int32_at,
    load_u8,
    opaque,
    put_int32,
    put_word,
    store_8,
    word_at,
)
from tidelog.kernels.runtime import inner, kernel
from tidelog.kernels.varint import read_varint, varint_at, varlong_at
from tidelog.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_SIZE

__all__ = ["ALL_DECODED", "BODY_WORDS", "ROW_SIZE", "Slot", "decode", "gather_headers"]

BODY_WORDS = 3  # of the table of bodies: first address, end, end of readable memory
ROW_SIZE = 64  # a row of the table of headers
ALL_DECODED = -1
_UNDER_CRC = BATCH_HEADER_SIZE - ATTRIBUTES_POSITION  # bytes of a header that the checksum covers


class Slot(IntEnum):
    """The int64 words through which the decoder is given its targets (addresses) and gives back its totals."""

    OFFSETS = 0
    TIMESTAMPS = auto()
    KEY_OFFSETS = auto()  # 0 where keys are not wanted
    KEY_DATA = auto()
    KEY_VALIDITY = auto()
    VALUE_OFFSETS = auto()  # 0 where values are not wanted
    VALUE_DATA = auto()
    VALUE_VALIDITY = auto()
    HEADER_OFFSETS = auto()  # 0 where headers are not wanted: int32, headers before each record
    HEADER_PLACES = auto()  # two addresses: each record's first header, and its end
    HEADER_VALIDITY = auto()  # of the lists: a record without headers
    VERIFY = auto()  # 1: compare the checksums, for which the 61 bytes before each body must be its header
    ROWS = auto()  # for which there is room; then, of version 2, how many there are
    KEY_BYTES = auto()
    KEY_NULLS = auto()
    VALUE_BYTES = auto()
    VALUE_NULLS = auto()
    HEADER_COUNT = auto()
    HEADER_BYTES = auto()  # of all headers, lengths included
    RECORDS_WITH_HEADERS = auto()


# Kernels take plain numbers.
OFFSETS = Slot.OFFSETS.value
TIMESTAMPS = Slot.TIMESTAMPS.value
KEY_OFFSETS = Slot.KEY_OFFSETS.value
KEY_DATA = Slot.KEY_DATA.value
KEY_VALIDITY = Slot.KEY_VALIDITY.value
VALUE_OFFSETS = Slot.VALUE_OFFSETS.value
VALUE_DATA = Slot.VALUE_DATA.value
VALUE_VALIDITY = Slot.VALUE_VALIDITY.value
HEADER_OFFSETS = Slot.HEADER_OFFSETS.value
HEADER_PLACES = Slot.HEADER_PLACES.value
HEADER_VALIDITY = Slot.HEADER_VALIDITY.value
VERIFY = Slot.VERIFY.value
ROWS = Slot.ROWS.value
KEY_BYTES = Slot.KEY_BYTES.value
KEY_NULLS = Slot.KEY_NULLS.value
VALUE_BYTES = Slot.VALUE_BYTES.value
VALUE_NULLS = Slot.VALUE_NULLS.value
HEADER_COUNT = Slot.HEADER_COUNT.value
HEADER_BYTES = Slot.HEADER_BYTES.value
RECORDS_WITH_HEADERS = Slot.RECORDS_WITH_HEADERS.value


@inner
def clear_bit(bitmap: int, index: int) -> None:
    """Mark entry `index` of a validity bitmap as null."""
    store_8(bitmap + (index >> 3), load_u8(bitmap + (index >> 3)) & ~(1 << (index & 7)))


@inner
def skip_headers(address: int, end: int, count: int) -> int:
    """The address behind `count` headers, or one beyond `end` where they are broken."""
    if count < 0 or count > end - address:
        return end + 1
    for _ in range(count):
        size, address = read_varint(address, end)
        if size < 0 or size > end - address:
            return end + 1
        size, address = read_varint(address + size, end)
        if size > end - address:
            return end + 1
        if size > 0:
            address += size
    return address


@kernel("int64(int64, int64, int64, int64)")
def decode(headers: int, bodies: int, batches: int, slots: int) -> int:
    """Decode the records of `batches` version 2 batches, or give the index of the first that is broken.

    SLACK bytes behind each body may be read, so a field is read first and compared with the record's end afterwards,
    before the next one is read: a broken one stands beyond every end.
    """
    offsets = word_at(slots, OFFSETS)
    timestamps = word_at(slots, TIMESTAMPS)
    key_offsets = word_at(slots, KEY_OFFSETS)
    key_data = word_at(slots, KEY_DATA)
    key_validity = word_at(slots, KEY_VALIDITY)
    value_offsets = word_at(slots, VALUE_OFFSETS)
    value_data = word_at(slots, VALUE_DATA)
    value_validity = word_at(slots, VALUE_VALIDITY)
    header_offsets = word_at(slots, HEADER_OFFSETS)
    header_places = word_at(slots, HEADER_PLACES)
    header_validity = word_at(slots, HEADER_VALIDITY)
    verify = word_at(slots, VERIFY)
    row = 0
    key_bytes = 0
    key_nulls = 0
    value_bytes = 0
    value_nulls = 0
    header_count = 0
    header_bytes = 0
    records_with_headers = 0
    for batch in range(batches):
        header = headers + batch * ROW_SIZE
        address = word_at(bodies, BODY_WORDS * batch)
        end = word_at(bodies, BODY_WORDS * batch + 1)
        base_offset = big_i64(header)
        # A record's time is base + delta, or, where the broker set it, the batch's largest for all of them.
        is_append_time = load_u8(header + 22) & 8
        base_timestamp = big_i64(header + 35) if is_append_time else big_i64(header + 27)
        timestamp_mask = 0 if is_append_time else -1
        count = big_i32(header + 57)
        if count < 0:
            return batch
        # Here and not in a pass of its own: the records are then walked while they are in the nearest cache.
        if verify and crc32c_at(address - _UNDER_CRC, end - address + _UNDER_CRC) != big_u32(header + 17):
            return batch
        for _ in range(count):
            size, address = varint_at(address)
            if size <= 0 or size > end - address:
                return batch
            record_end = address + size
            # Where this record ends, the next begins. That is known here, from its first bytes: a processor that
            # goes by it, and not by the lengths of key and value, works on several records at once. The compiler,
            # which sees below that both agree, must not be free to choose.
            next_record = opaque(record_end)
            delta, address = varlong_at(address + 1)
            if address > record_end:
                return batch
            put_word(timestamps, row, base_timestamp + (delta & timestamp_mask))
            delta, address = varint_at(address)
            if address > record_end:
                return batch
            put_word(offsets, row, base_offset + delta)
            size, address = varint_at(address)
            if size > record_end - address:
                return batch
            if key_offsets:
                if size >= 0:
                    copy_roomy(key_data + key_bytes, address, size)
                    key_bytes += size
                else:
                    clear_bit(key_validity, row)
                    key_nulls += 1
                put_int32(key_offsets, row + 1, key_bytes)
            size, address = varint_at(address + (size & ~(size >> 63)))  # a null takes no bytes
            if size > record_end - address:
                return batch
            if value_offsets:
                if size >= 0:
                    copy_roomy(value_data + value_bytes, address, size)
                    value_bytes += size
                else:
                    clear_bit(value_validity, row)
                    value_nulls += 1
                put_int32(value_offsets, row + 1, value_bytes)
            size, address = varint_at(address + (size & ~(size >> 63)))
            if header_offsets:
                put_word(header_places, 2 * row, address)
                put_word(header_places, 2 * row + 1, record_end)
                if size:
                    header_bytes += record_end - address
                    records_with_headers += 1
                else:
                    clear_bit(header_validity, row)
            if size:
                address = skip_headers(address, record_end, size)
                header_count += size
            if address != record_end:
                return batch
            if header_offsets:
                put_int32(header_offsets, row + 1, header_count)
            address = next_record
            row += 1
        if count != 0 and address != end:  # the body of an empty batch is not looked at
            return batch
    put_word(slots, ROWS, row)
    put_word(slots, KEY_BYTES, key_bytes)
    put_word(slots, KEY_NULLS, key_nulls)
    put_word(slots, VALUE_BYTES, value_bytes)
    put_word(slots, VALUE_NULLS, value_nulls)
    put_word(slots, HEADER_COUNT, header_count)
    put_word(slots, HEADER_BYTES, header_bytes)
    put_word(slots, RECORDS_WITH_HEADERS, records_with_headers)
    return ALL_DECODED


@kernel("UniTuple(int64, 4)(int64, int64, int64, int64, int64, int64, int64, int64)")
def gather_headers(
    places: int,
    list_offsets: int,
    rows: int,
    key_offsets: int,
    key_data: int,
    value_offsets: int,
    value_data: int,
    value_validity: int,
) -> tuple[int, int, int, int]:
    """Copy the headers that `decode` has checked: bytes of names, bytes of values, null values, and whether any
    name holds bytes beyond ASCII, which must then be checked to be UTF-8."""
    header = 0
    key_bytes = 0
    value_bytes = 0
    value_nulls = 0
    high_bits = 0
    last = int32_at(list_offsets, 0)
    for row in range(rows):
        first = last
        last = int32_at(list_offsets, row + 1)
        address = word_at(places, 2 * row)
        end = word_at(places, 2 * row + 1)
        for _ in range(last - first):
            size, address = read_varint(address, end)
            for index in range(size):
                byte = load_u8(address + index)
                high_bits |= byte
                store_8(key_data + key_bytes + index, byte)
            key_bytes += size
            size, address = read_varint(address + size, end)
            if size >= 0:
                copy_wide(value_data + value_bytes, address, size, end)
                value_bytes += size
                address += size
            else:
                clear_bit(value_validity, header)
                value_nulls += 1
            header += 1
            put_int32(key_offsets, header, key_bytes)
            put_int32(value_offsets, header, value_bytes)
    return key_bytes, value_bytes, value_nulls, high_bits & 0x80
