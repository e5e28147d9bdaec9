"""Lines of text about batches and records: what a dump of a log prints, built at memory speed.

`line_templates` says what a line is; the kernel here walks the batches and the records and fills the lines in.

Only batches that raise no question are written: version 2, a sound header, and where records are wanted a checksum
that is right, records that can be read to the end, and no control records. Before any other the kernel stops, nothing
of it written, and the caller lets the readable path have it.
"""

from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.decode import BODY_WORDS, skip_headers
from tidelog.kernels.line_templates import (
    FIRST_CODEC,
    FIRST_TIMESTAMP_TYPE,
    NAME_SIZE,
    PIECE_WORDS,
    Field,
    Kind,
    Met,
    Slot,
    Stop,
)
from tidelog.kernels.memory import (
    SLACK,
    big_i16,
    big_i32,
    big_i64,
    big_u32,
    copy_32,
    copy_roomy,
    load_u8,
    opaque,
    put_word,
    store_8,
    word_at,
)
from tidelog.kernels.runtime import inner
from tidelog.kernels.standalone import standalone
from tidelog.kernels.text import LARGEST_GROWTH, put_decimal, put_utf8
from tidelog.kernels.varint import read_varint, varint_at, varlong_at
from tidelog.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_SIZE, PREFIX_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC
from tidelog.records.java import MAX_INT32

__all__ = ["write_lines"]


# Kernels take plain numbers.
_NUMBER, _NAME, _KEY, _VALUE, _HEADER_NAMES = (int(kind) for kind in list(Kind)[1:])
_MET_KEY, _MET_NO_KEY, _MET_VALUE, _MET_HORIZON, _MET_NO_HORIZON = (int(met) for met in Met)
_END, _FULL, _COMPRESSED, _IN_DOUBT = (int(stop) for stop in Stop)
(
    _BASE_OFFSET,
    _LAST_OFFSET,
    _COUNT,
    _BASE_SEQUENCE,
    _LAST_SEQUENCE,
    _PRODUCER_ID,
    _PRODUCER_EPOCH,
    _PARTITION_LEADER_EPOCH,
    _IS_TRANSACTIONAL,
    _IS_CONTROL,
    _BASE_TIMESTAMP,
    _MAX_TIMESTAMP,
    _TIMESTAMP_TYPE,
    _POSITION,
    _SIZE,
    _CODEC,
    _CRC,
    _IS_VALID,
    _OFFSET,
    _TIMESTAMP,
    _KEY_SIZE,
    _VALUE_SIZE,
    _SEQUENCE,
    _KEY_ADDRESS,
    _VALUE_ADDRESS,
    _HEADERS_ADDRESS,
    _HEADERS_COUNT,
    _RECORD_END,
) = (int(field) for field in Field)
(
    SLOT_DATA,
    SLOT_DATA_SIZE,
    SLOT_BASE_POSITION,
    SLOT_WITH_RECORDS,
    SLOT_CODECS,
    SLOT_BODIES,
    SLOT_BODIES_COUNT,
    SLOT_BATCH_LINE,
    SLOT_BATCH_PIECES,
    SLOT_BATCH_ROOM,
    SLOT_RECORD_LINE,
    SLOT_RECORD_PIECES,
    SLOT_RECORD_ROOM,
    SLOT_NAMES,
    SLOT_FIELDS,
    SLOT_TEXT,
    SLOT_TEXT_SIZE,
    SLOT_GAPS,
    SLOT_GAPS_SIZE,
    SLOT_DONE,
    SLOT_WRITTEN,
    SLOT_GAPS_FOUND,
    SLOT_RECORDS,
    SLOT_FIRST_OFFSET,
    SLOT_LAST_OFFSET,
    SLOT_WANTED_ROOM,
    SLOT_WANTED_GAPS,
) = (int(slot) for slot in Slot)

_SMALLEST_RECORD = 7
_LARGEST_OFFSET = 1 << 62  # of a batch: sums with a delta then stay far from where Java wraps
_COMMA = ord(",")


# -- one line ----------------------------------------------------------------------------------------------------------


@inner
def put_header_names(text: int, fields: int) -> int:
    """The names of a record's headers, which have been walked before."""
    address = word_at(fields, _HEADERS_ADDRESS)
    end = word_at(fields, _RECORD_END)
    for index in range(word_at(fields, _HEADERS_COUNT)):
        if index:
            store_8(text, _COMMA)
            text += 1
        size, address = read_varint(address, end)
        text = put_utf8(text, address, size)
        size, address = read_varint(address + size, end)
        if size > 0:
            address += size
    return text


@inner
def put_line(text: int, line: int, pieces: int, met: int, slots: int) -> int:
    """Write the pieces of a line whose conditions are met; the address behind them."""
    fields = word_at(slots, SLOT_FIELDS)
    names = word_at(slots, SLOT_NAMES)
    for index in range(pieces):
        piece = line + 8 * PIECE_WORDS * index
        conditions = word_at(piece, 4)
        if conditions & ~met:
            continue
        size = word_at(piece, 1)
        copy_roomy(text, word_at(piece, 0), size)
        text += size
        kind = word_at(piece, 2)
        value = word_at(fields, word_at(piece, 3))
        if kind == _NUMBER:
            text = put_decimal(text, value)
        elif kind == _NAME:
            name = names + NAME_SIZE * value
            copy_32(text, name + 8)  # no name is longer
            text += word_at(name, 0)
        elif kind == _KEY:
            text = put_utf8(text, word_at(fields, _KEY_ADDRESS), word_at(fields, _KEY_SIZE))
        elif kind == _VALUE:
            text = put_utf8(text, word_at(fields, _VALUE_ADDRESS), word_at(fields, _VALUE_SIZE))
        elif kind == _HEADER_NAMES:
            text = put_header_names(text, fields)
    return text


# -- a batch -----------------------------------------------------------------------------------------------------------


@inner
def sequence_behind(base: int, by: int) -> int:
    """The sequence number `by` records after `base`, neither of them negative; -1 stays -1."""
    if base < 0:
        return base
    return base + by & MAX_INT32


@inner
def fill_batch_fields(fields: int, batch: int, size: int, position: int, codecs: int) -> int:
    """Put down what a line may print of a batch. The conditions that it meets, or -1 if it is in doubt."""
    if load_u8(batch + 16) != 2 or size < BATCH_HEADER_SIZE:
        return -1
    base_offset = big_i64(batch)
    last_offset_delta = big_i32(batch + 23)
    base_sequence = big_i32(batch + 53)
    attributes = big_i16(batch + ATTRIBUTES_POSITION)
    codec = attributes & 7
    is_odd = base_offset < 0 or base_offset > _LARGEST_OFFSET or last_offset_delta < 0 or base_sequence < -1
    if is_odd or codec >= codecs:
        return -1
    crc = big_u32(batch + 17)
    is_valid = crc32c_at(batch + ATTRIBUTES_POSITION, size - ATTRIBUTES_POSITION) == crc
    put_word(fields, _BASE_OFFSET, base_offset)
    put_word(fields, _LAST_OFFSET, base_offset + last_offset_delta)
    put_word(fields, _COUNT, big_i32(batch + 57))
    put_word(fields, _BASE_SEQUENCE, base_sequence)
    put_word(fields, _LAST_SEQUENCE, sequence_behind(base_sequence, last_offset_delta))
    put_word(fields, _PRODUCER_ID, big_i64(batch + 43))
    put_word(fields, _PRODUCER_EPOCH, big_i16(batch + 51))
    put_word(fields, _PARTITION_LEADER_EPOCH, big_i32(batch + 12))
    put_word(fields, _IS_TRANSACTIONAL, attributes >> 4 & 1)
    put_word(fields, _IS_CONTROL, attributes >> 5 & 1)
    put_word(fields, _BASE_TIMESTAMP, big_i64(batch + 27))
    put_word(fields, _MAX_TIMESTAMP, big_i64(batch + 35))
    put_word(fields, _TIMESTAMP_TYPE, FIRST_TIMESTAMP_TYPE + (attributes >> 3 & 1))
    put_word(fields, _POSITION, position)
    put_word(fields, _SIZE, size)
    put_word(fields, _CODEC, FIRST_CODEC + codec)
    put_word(fields, _CRC, crc)
    put_word(fields, _IS_VALID, is_valid)
    return _MET_HORIZON if attributes & 0x40 else _MET_NO_HORIZON


@inner
def put_records(text: int, slots: int, address: int, end: int, met: int) -> int:
    """The lines of the records between two addresses, and the gaps before them; -1 if they cannot be read.

    Checks what `decode` checks, in the same order, and for the same reason reads before it asks.
    """
    fields = word_at(slots, SLOT_FIELDS)
    line = word_at(slots, SLOT_RECORD_LINE)
    pieces = word_at(slots, SLOT_RECORD_PIECES)
    gaps = word_at(slots, SLOT_GAPS)
    gaps_found = word_at(slots, SLOT_GAPS_FOUND)
    has_last = word_at(slots, SLOT_RECORDS) != 0
    first_offset = word_at(slots, SLOT_FIRST_OFFSET)
    last_offset = word_at(slots, SLOT_LAST_OFFSET)
    count = word_at(fields, _COUNT)
    base_offset = word_at(fields, _BASE_OFFSET)
    base_sequence = word_at(fields, _BASE_SEQUENCE)
    is_append_time = word_at(fields, _TIMESTAMP_TYPE) != FIRST_TIMESTAMP_TYPE
    base_timestamp = word_at(fields, _MAX_TIMESTAMP) if is_append_time else word_at(fields, _BASE_TIMESTAMP)
    timestamp_mask = 0 if is_append_time else -1
    for _ in range(count):
        size, address = varint_at(address)
        if size <= 0 or size > end - address:
            return -1
        record_end = address + size
        next_record = opaque(record_end)
        delta, address = varlong_at(address + 1)
        if address > record_end:
            return -1
        put_word(fields, _TIMESTAMP, base_timestamp + (delta & timestamp_mask))
        delta, address = varint_at(address)
        if address > record_end or delta < 0:
            return -1
        offset = base_offset + delta
        put_word(fields, _OFFSET, offset)
        put_word(fields, _SEQUENCE, sequence_behind(base_sequence, delta))
        size, address = varint_at(address)
        if size > record_end - address:
            return -1
        put_word(fields, _KEY_ADDRESS, address)
        put_word(fields, _KEY_SIZE, size | size >> 63)  # a null is -1, whatever stands there
        met_by_record = met | (_MET_KEY if size >= 0 else _MET_NO_KEY)
        size, address = varint_at(address + (size & ~(size >> 63)))  # a null takes no bytes
        if size > record_end - address:
            return -1
        put_word(fields, _VALUE_ADDRESS, address)
        put_word(fields, _VALUE_SIZE, size | size >> 63)
        if size >= 0:
            met_by_record |= _MET_VALUE
        size, address = varint_at(address + (size & ~(size >> 63)))
        put_word(fields, _HEADERS_ADDRESS, address)
        put_word(fields, _HEADERS_COUNT, size)
        put_word(fields, _RECORD_END, record_end)
        if size:
            address = skip_headers(address, record_end, size)
        if address != record_end:
            return -1
        if not has_last:
            first_offset = offset
            has_last = True
        elif offset != last_offset + 1:
            put_word(gaps, 2 * gaps_found, last_offset)
            put_word(gaps, 2 * gaps_found + 1, offset)
            gaps_found += 1
        last_offset = offset
        text = put_line(text, line, pieces, met_by_record, slots)
        address = next_record
    if address != end:
        return -1
    put_word(slots, SLOT_FIRST_OFFSET, first_offset)
    put_word(slots, SLOT_RECORDS, word_at(slots, SLOT_RECORDS) + count)
    put_word(slots, SLOT_LAST_OFFSET, last_offset)
    put_word(slots, SLOT_GAPS_FOUND, gaps_found)
    return text


@inner
def records_in_doubt(fields: int, size: int) -> bool:
    """Whether the records of a batch are nothing for this kernel, or are more than a body of `size` bytes can hold."""
    count = word_at(fields, _COUNT)
    is_plain_data = word_at(fields, _IS_VALID) and not word_at(fields, _IS_CONTROL)
    return not is_plain_data or count < 0 or count > size // _SMALLEST_RECORD


# -- a stretch of log --------------------------------------------------------------------------------------------------


@standalone
def write_lines(slots: int) -> int:
    """Write the lines of the batches, as far as it goes, and say why it ended: a number of `Stop`."""
    data = word_at(slots, SLOT_DATA)
    data_size = word_at(slots, SLOT_DATA_SIZE)
    base_position = word_at(slots, SLOT_BASE_POSITION)
    with_records = word_at(slots, SLOT_WITH_RECORDS)
    codecs = word_at(slots, SLOT_CODECS)
    bodies = word_at(slots, SLOT_BODIES)
    batch_room = word_at(slots, SLOT_BATCH_ROOM) + SLACK
    record_room = word_at(slots, SLOT_RECORD_ROOM)
    fields = word_at(slots, SLOT_FIELDS)
    start = word_at(slots, SLOT_TEXT)
    text_end = start + word_at(slots, SLOT_TEXT_SIZE)
    put_word(slots, SLOT_GAPS_FOUND, 0)
    put_word(slots, SLOT_RECORDS, 0)
    text = start
    stop = _END
    position = 0
    index = 0
    while data_size - position > HEADER_SIZE_UP_TO_MAGIC:
        batch = data + position
        size = big_i32(batch + 8) + PREFIX_SIZE
        if size > data_size - position:
            break
        met = fill_batch_fields(fields, batch, size, base_position + position, codecs)
        if met < 0:
            stop = _IN_DOUBT
            break
        address = batch + BATCH_HEADER_SIZE
        end = batch + size
        count = word_at(fields, _COUNT) if with_records else 0
        if index < word_at(slots, SLOT_BODIES_COUNT):
            address = word_at(bodies, BODY_WORDS * index)
            end = word_at(bodies, BODY_WORDS * index + 1)
        elif count and word_at(fields, _CODEC) != FIRST_CODEC:
            stop = _COMPRESSED
            break
        room = batch_room
        if with_records:
            if records_in_doubt(fields, end - address):
                stop = _IN_DOUBT
                break
            room += count * record_room + LARGEST_GROWTH * (end - address)
        if room > text_end - text or count > word_at(slots, SLOT_GAPS_SIZE) - word_at(slots, SLOT_GAPS_FOUND):
            put_word(slots, SLOT_WANTED_ROOM, room)
            put_word(slots, SLOT_WANTED_GAPS, count)
            stop = _FULL
            break
        behind = put_line(text, word_at(slots, SLOT_BATCH_LINE), word_at(slots, SLOT_BATCH_PIECES), met, slots)
        if count:
            behind = put_records(behind, slots, address, end, met)
            if behind < 0:
                stop = _IN_DOUBT
                break
        text = behind
        position += size
        index += 1
    put_word(slots, SLOT_DONE, position)
    put_word(slots, SLOT_WRITTEN, text - start)
    return stop
