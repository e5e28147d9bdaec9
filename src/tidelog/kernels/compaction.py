"""Compaction of version 2 batches: their keys into a table, and what is left of them by that table.

Some thousand records go through three steps, each a kernel of its own, while their bytes are in the caches:

    note_batches      reads the records: where each lies, its offset and time, a hash of its key
    put_batches       for the map: puts the hashes into the table
    choose_batches    for the filter: asks the table which records stay, and what becomes of each batch
    write_batches     writes it

Steps two ask for the memory of a slot some records before they look at it: a table of a million keys is in no cache.

A kernel stops at whatever is not its own and says so (`Stop`). compaction_runs.py sees to it and calls again. What is
broken, or was written by nobody's rules (a length in more bytes than it needs, a header with a name beyond ASCII), is
left to the readable path: `log.offset_map.map_batch` and `log.record_filter.filter_batch` say all of this in words.
"""

from enum import IntEnum, auto

from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.decode import BODY_WORDS, ROW_SIZE
from tidelog.kernels.key_table import ABSENT, State, ask_for, find_slot, hash_key, is_taken, take_slot
from tidelog.kernels.memory import (
    SLACK,
    big_i32,
    big_i64,
    copy_bytes,
    copy_roomy,
    load_i64,
    load_u8,
    opaque,
    put_big_16,
    put_big_32,
    put_big_64,
    put_word,
    store_8,
    store_64,
    word_at,
)
from tidelog.kernels.runtime import inlined, inner, kernel
from tidelog.kernels.varint import fold, put_folded, size_of_folded, varint_at, varlong_at
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC, PREFIX_SIZE
from tidelog.records.record import MAX_RECORD_OVERHEAD

__all__ = [
    "AHEAD",
    "MARKER",
    "NOTE_SIZE",
    "UNWRITABLE",
    "Found",
    "Job",
    "Stop",
    "Verdict",
    "choose_batches",
    "note_batches",
    "put_batches",
    "write_batches",
]

_MIN_RECORD = 7  # bytes: length, attributes, two deltas, two fields, headers
AHEAD = 16  # records by which a slot is asked for before it is looked at
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL, _HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40

# What the filter is told of a batch beside its fate.
MARKER = 1  # of a transaction of which no data is left
UNWRITABLE = 2  # it says of its producer what no producer may say, so it is not written anew

# A note: two words of hash, the offset, the time, the address of the key's length, and the bytes from there to the end
# of the record, shifted, with three flags.
NOTE_SIZE = 48
_HASH, _HASH_2, _OFFSET, _TIME, _PAYLOAD, _SIZE = range(0, NOTE_SIZE, 8)
_HAS_KEY, _HAS_VALUE, _IS_ODD, _FLAG_BITS = 1, 2, 4, 3


class Stop(IntEnum):
    """Why a kernel came back."""

    END = 0  # all is done that was to be
    FULL = auto()  # the map may take no more keys
    ROOM = auto()  # there is too little room: for NEEDED notes, or NEEDED bytes of the target
    COMPRESS = auto()  # what is left of a batch stands plain in the target, PLAIN bytes, and must be compressed
    READABLE = auto()  # this batch is for the readable path


class Job(IntEnum):
    """The int64 words through which the kernels are given a stretch of batches."""

    ROWS = 0  # headers, 64 bytes each
    BODIES = auto()  # of those batches that are looked at
    LOOKED_AT = auto()  # a byte per batch: 0 if not. For the filter, its fate
    TABLE = auto()  # state of the table of keys
    NOTES = auto()
    MAX_NOTES = auto()  # there is room for AHEAD more
    LOWEST = auto()  # offsets between which keys are hashed
    HIGHEST = auto()
    NEEDED = auto()
    # of the map
    MAX_SIZE = auto()  # keys that the map may take
    SLOTS = auto()
    LATEST_OFFSET = auto()
    RECORDS = auto()
    # of the filter
    FOUND = auto()  # a row of words per batch
    MARKS = auto()  # a byte per batch: MARKER, UNWRITABLE
    KEEPS = auto()  # a byte per note
    NOW = auto()
    NEW_HORIZON = auto()  # negative for none
    DATA = auto()  # what was scanned
    POSITIONS = auto()  # of the batches in it
    TARGET = auto()
    CAPACITY = auto()
    WRITTEN = auto()  # bytes in the target
    RUN = auto()  # position of batches that are kept as they are and not yet copied
    RUN_SIZE = auto()
    PLAIN = auto()
    WORDS = auto()  # how many there are


class Found(IntEnum):
    """What is found out about a batch by looking at it: words of a row."""

    VERDICT = 0
    FIRST = auto()  # index of its first note
    KEPT = auto()  # records
    NULLS = auto()  # of those, without a value
    INVALID = auto()  # dropped: without a key
    SUPERSEDED = auto()  # dropped: there is a later one
    EXPIRED = auto()  # dropped: tombstones whose time is up
    BYTES = auto()  # of those kept, from the key on
    MAX_TIME = auto()  # of those kept
    HORIZON = auto()  # of the batch when it is written anew, negative for none
    WORDS = auto()  # how many there are


class Verdict(IntEnum):
    """What becomes of a batch."""

    GONE = 0
    EMPTY = auto()
    AS_IT_IS = auto()
    ANEW = auto()
    ODD = auto()  # anew, by the readable path


# Kernels take plain numbers.
_END, _FULL, _ROOM, _COMPRESS, _READABLE = (int(value) for value in Stop)
_GONE, _EMPTY, _AS_IT_IS, _ANEW, _ODD = (int(value) for value in Verdict)
_LOOK, _EMPTY_RETAIN = 1, 3  # of `log.record_filter.Fate`
(
    _ROWS, _BODIES, _LOOKED_AT, _TABLE, _NOTES, _MAX_NOTES, _LOWEST, _HIGHEST, _NEEDED,
    _MAX_SIZE, _SLOTS, _LATEST_OFFSET, _RECORDS,
    _FOUND, _MARKS, _KEEPS, _NOW, _NEW_HORIZON,
    _DATA, _POSITIONS, _TARGET, _CAPACITY, _WRITTEN, _RUN, _RUN_SIZE, _PLAIN,
) = range(Job.WORDS)  # fmt: skip
(
    _VERDICT, _FIRST, _KEPT, _NULLS, _INVALID, _SUPERSEDED, _EXPIRED, _BYTES, _MAX_TIME, _NEXT_HORIZON,
) = range(Found.WORDS)  # fmt: skip
_FOUND_WORDS = Found.WORDS.value
_TABLE_SIZE = State.SIZE.value


# -- reading -----------------------------------------------------------------------------------------------------------


@inlined
def _is_long(size: int, width: int) -> bool:
    """Whether a length that takes `width` bytes is one that we would write in another way."""
    return size < -1 or width != 1 and (width > 4 or fold(size) >> 7 * (width - 1) == 0)


@inner
def _walk_headers(address: int, end: int, count: int) -> int:
    """0 if `count` headers fill the bytes up to `end` as we would write them, 1 if in another way, -1 if not at all."""
    if count < 0 or count > end - address:
        return -1
    is_odd = False
    for _ in range(count):
        size, name = varint_at(address)
        if size < 0 or size > end - name:
            return -1
        is_odd |= _is_long(size, name - address)
        for byte in range(name, name + size):
            is_odd |= load_u8(byte) > 0x7F  # it may be no UTF-8, and is then not copied but mended
        address = name + size
        size, value = varint_at(address)
        if size > end - value:
            return -1
        is_odd |= _is_long(size, value - address)
        address = value + (size & ~(size >> 63))
    if address != end:
        return -1
    return 1 if is_odd else 0


@kernel("UniTuple(int64, 4)(int64, int64, int64, int64)")
def note_batches(job: int, batch: int, last: int, body: int) -> tuple[int, int, int, int]:
    """Note the records of the batches up to `last` that are looked at, as many batches as there is room for.

    Gives back why it stopped, the batch and body that come next, and how many records were noted.
    """
    notes = word_at(job, _NOTES)
    table = word_at(job, _TABLE)
    lowest = word_at(job, _LOWEST)
    highest = word_at(job, _HIGHEST)
    left = word_at(job, _MAX_NOTES)
    note = notes
    while batch < last:
        if load_u8(word_at(job, _LOOKED_AT) + batch) == 0:
            batch += 1
            continue
        row = word_at(job, _ROWS) + ROW_SIZE * batch
        address = word_at(word_at(job, _BODIES), BODY_WORDS * body)
        end = word_at(word_at(job, _BODIES), BODY_WORDS * body + 1)
        count = big_i32(row + 57)
        noted = (note - notes) // NOTE_SIZE
        if count < 0 or count > (end - address) // _MIN_RECORD:
            return _READABLE, batch, body, noted
        if count > left:
            put_word(job, _NEEDED, count)
            return _END if noted else _ROOM, batch, body, noted
        base_offset = big_i64(row)
        is_append_time = load_u8(row + 22) & _APPEND_TIME
        base_time = big_i64(row + 35) if is_append_time else big_i64(row + 27)
        time_mask = 0 if is_append_time else -1
        for _ in range(count):  # up to one that is broken; the body of an empty batch is not looked at
            size, address = varint_at(address)
            if size <= 0 or size > end - address:
                break
            record_end = address + size
            next_record = opaque(record_end)  # see decode.py
            time, address = varlong_at(address + 1)
            if address > record_end:
                break
            offset, payload = varint_at(address)
            if payload > record_end:
                break
            key_size, key = varint_at(payload)
            if key_size > record_end - key:
                break
            flags = _IS_ODD if _is_long(key_size, key - payload) else 0
            address = key + (key_size & ~(key_size >> 63))  # a null takes no bytes
            value_size, value = varint_at(address)
            if value_size > record_end - value:
                break
            if _is_long(value_size, value - address):
                flags = _IS_ODD
            address = value + (value_size & ~(value_size >> 63))
            headers, behind = varint_at(address)
            if headers or behind != address + 1:
                walked = _walk_headers(behind, record_end, headers)
                if walked < 0:
                    break
                if walked or _is_long(headers, behind - address):
                    flags = _IS_ODD
            elif behind != record_end:
                break
            offset += base_offset
            flags |= (0 if key_size < 0 else _HAS_KEY) | (0 if value_size < 0 else _HAS_VALUE)
            if key_size >= 0 and lowest <= offset <= highest:
                first, second = hash_key(table, key, key_size)
                store_64(note + _HASH, first)
                store_64(note + _HASH_2, second)
            store_64(note + _OFFSET, offset)
            store_64(note + _TIME, base_time + (time & time_mask))
            store_64(note + _PAYLOAD, payload)
            store_64(note + _SIZE, record_end - payload << _FLAG_BITS | flags)
            note += NOTE_SIZE
            address = next_record
        if note != notes + NOTE_SIZE * (noted + count) or count != 0 and address != end:
            return _READABLE, batch, body, noted
        left -= count
        batch += 1
        body += 1
    return _END, batch, body, (note - notes) // NOTE_SIZE


# -- the map -----------------------------------------------------------------------------------------------------------


@kernel("UniTuple(int64, 2)(int64, int64, int64)")
def put_batches(job: int, batch: int, last: int) -> tuple[int, int]:
    """Put the keys that were noted, of the batches up to `last`, into the table, which has been given room for them.

    Gives back why it stopped and the batch it stopped at; READABLE if every slot is taken.
    """
    table = word_at(job, _TABLE)
    max_size = word_at(job, _MAX_SIZE)
    slots = word_at(job, _SLOTS)
    start_offset = word_at(job, _LOWEST)
    latest = word_at(job, _LATEST_OFFSET)
    records = 0
    note = word_at(job, _NOTES)
    stop = _END
    while batch < last:
        row = word_at(job, _ROWS) + ROW_SIZE * batch
        count = big_i32(row + 57)
        if load_u8(word_at(job, _LOOKED_AT) + batch) == 0:
            records += 1 if load_u8(row + 22) & _CONTROL else count
            count = 0
        for _ in range(count):
            ask_for(table, load_i64(note + AHEAD * NOTE_SIZE + _HASH))
            offset = load_i64(note + _OFFSET)
            if load_i64(note + _SIZE) & _HAS_KEY and offset >= start_offset:
                size = word_at(table, _TABLE_SIZE)
                if size >= max_size or size >= slots:
                    stop = _FULL if size >= max_size else _READABLE
                    break
                first = load_i64(note + _HASH)
                second = load_i64(note + _HASH_2)
                slot = find_slot(table, first, second)
                if not is_taken(slot):
                    take_slot(table, slot, first, second)
                store_64(slot + 16, offset)
                latest = offset
            records += 1
            note += NOTE_SIZE
        if stop != _END:
            break
        last_offset = big_i64(row) + big_i32(row + 23)
        if last_offset >= start_offset:
            latest = last_offset
        batch += 1
    put_word(job, _LATEST_OFFSET, latest)
    put_word(job, _RECORDS, word_at(job, _RECORDS) + records)
    return stop, batch


# -- the filter --------------------------------------------------------------------------------------------------------


@kernel("int64(int64, int64, int64)")
def choose_batches(job: int, batch: int, last: int) -> int:
    """Decide about the records that were noted, of the batches up to `last`, and about the batches.

    A byte for each record is written, and a row for each batch. Gives back how many records were looked at.
    """
    table = word_at(job, _TABLE)
    latest = word_at(job, _HIGHEST)
    keeps = word_at(job, _KEEPS)
    index = 0
    while batch < last:
        row = word_at(job, _ROWS) + ROW_SIZE * batch
        found = word_at(job, _FOUND) + 8 * _FOUND_WORDS * batch
        fate = load_u8(word_at(job, _LOOKED_AT) + batch)
        attributes = load_u8(row + 22)
        looks = fate != _EMPTY_RETAIN and attributes & _CONTROL == 0
        drops_tombstones = attributes & _HORIZON and word_at(job, _NOW) >= big_i64(row + 27)
        put_word(found, _FIRST, index)
        kept = 0
        nulls = 0
        invalid = 0
        superseded = 0
        expired = 0
        size = 0
        max_time = -1
        previous = 0
        is_odd = 0
        for _ in range(big_i32(row + 57) if fate else 0):
            note = word_at(job, _NOTES) + NOTE_SIZE * index
            ask_for(table, load_i64(note + AHEAD * NOTE_SIZE + _HASH))
            offset = load_i64(note + _OFFSET)
            known = load_i64(note + _SIZE)
            keep = 0 if fate == _EMPTY_RETAIN else 1
            if looks and offset <= latest:
                if known & _HAS_KEY:
                    slot = find_slot(table, load_i64(note + _HASH), load_i64(note + _HASH_2))
                    if (load_i64(slot + 16) if is_taken(slot) else ABSENT) > offset:
                        superseded += 1
                        keep = 0
                    elif drops_tombstones and known & _HAS_VALUE == 0:
                        expired += 1
                        keep = 0
                else:
                    invalid += 1
                    keep = 0
            store_8(keeps + index, keep)
            if keep:
                time = load_i64(note + _TIME)
                if time < -1 or kept and offset <= previous:
                    is_odd = 1
                is_odd |= known & _IS_ODD
                if time > max_time:
                    max_time = time
                previous = offset
                nulls += known >> 1 & 1 ^ 1
                size += known >> _FLAG_BITS
                kept += 1
            index += 1
        put_word(found, _KEPT, kept)
        put_word(found, _NULLS, nulls)
        put_word(found, _INVALID, invalid)
        put_word(found, _SUPERSEDED, superseded)
        put_word(found, _EXPIRED, expired)
        put_word(found, _BYTES, size)
        put_word(found, _MAX_TIME, max_time)
        marks = load_u8(word_at(job, _MARKS) + batch)
        horizon = -1
        starts_waiting = 0
        if attributes & _HORIZON:
            horizon = big_i64(row + 27)
        elif nulls or marks & MARKER:
            horizon = word_at(job, _NEW_HORIZON)
            starts_waiting = 1
        put_word(found, _NEXT_HORIZON, horizon)
        if kept == 0:
            verdict = _EMPTY if fate > _LOOK else _GONE
        elif kept == big_i32(row + 57) and starts_waiting == 0:
            verdict = _AS_IT_IS
        else:
            verdict = _ODD if is_odd or marks & UNWRITABLE else _ANEW
        put_word(found, _VERDICT, verdict)
        batch += 1
    return index


@inner
def _write_batch(job: int, row: int, found: int, kept: int, target: int) -> int:
    """Write the records that are kept, and a header in which the rest stays as it was; the bytes of both.

    The checksum is for batches that stay plain.
    """
    attributes = load_u8(row + 22) & (_APPEND_TIME | _TRANSACTIONAL | _CONTROL)
    out = target + BATCH_HEADER_SIZE
    base_time = -1
    max_time = big_i64(row + 35)
    if kept:
        horizon = word_at(found, _NEXT_HORIZON)
        first = word_at(found, _FIRST)
        base_time = horizon
        for index in range(first, first + big_i32(row + 57)):
            if load_u8(word_at(job, _KEEPS) + index):
                note = word_at(job, _NOTES) + NOTE_SIZE * index
                if base_time < 0 and out == target + BATCH_HEADER_SIZE:
                    base_time = load_i64(note + _TIME)
                time_delta = fold(load_i64(note + _TIME) - base_time)
                offset_delta = fold(load_i64(note + _OFFSET) - big_i64(row))
                size = load_i64(note + _SIZE) >> _FLAG_BITS
                out = put_folded(out, 1 + size_of_folded(time_delta) + size_of_folded(offset_delta) + size << 1)
                store_8(out, 0)
                out = put_folded(out + 1, time_delta)
                out = put_folded(out, offset_delta)
                copy_roomy(out, load_i64(note + _PAYLOAD), size)
                out += size
        attributes |= load_u8(row + 22) & _CODEC | (_HORIZON if horizon >= 0 else 0)
        max_time = word_at(found, _MAX_TIME)
    copy_bytes(target, row, BATCH_HEADER_SIZE)
    put_big_32(target + 8, out - target - PREFIX_SIZE)
    store_8(target + 16, MAGIC)
    put_big_16(target + 21, attributes)
    put_big_64(target + 27, base_time)
    put_big_64(target + 35, max_time)
    put_big_32(target + 57, kept)
    if attributes & _CODEC == 0:
        put_big_32(target + 17, crc32c_at(target + 21, out - target - 21))
    return out - target


@kernel("UniTuple(int64, 2)(int64, int64, int64)")
def write_batches(job: int, batch: int, last: int) -> tuple[int, int]:
    """Write what is left of the batches up to `last`, of which all is decided.

    Gives back why it stopped, and the batch: the one that has no room, is odd, or stands plain behind the target.
    """
    while batch < last:
        row = word_at(job, _ROWS) + ROW_SIZE * batch
        found = word_at(job, _FOUND) + 8 * _FOUND_WORDS * batch
        verdict = word_at(found, _VERDICT)
        kept = word_at(found, _KEPT)
        position = word_at(word_at(job, _POSITIONS), batch)
        run_size = word_at(job, _RUN_SIZE)
        goes_on = verdict == _AS_IT_IS and position == word_at(job, _RUN) + run_size
        if verdict != _GONE and not goes_on:
            needed = run_size + BATCH_HEADER_SIZE + word_at(found, _BYTES) + MAX_RECORD_OVERHEAD * kept + SLACK
            written = word_at(job, _WRITTEN)
            if needed > word_at(job, _CAPACITY) - written:
                put_word(job, _NEEDED, needed)
                return _ROOM, batch
            copy_bytes(word_at(job, _TARGET) + written, word_at(job, _DATA) + word_at(job, _RUN), run_size)
            put_word(job, _WRITTEN, written + run_size)
            put_word(job, _RUN, position)
            put_word(job, _RUN_SIZE, 0)
        if verdict == _ODD:
            return _READABLE, batch
        if verdict == _AS_IT_IS:
            put_word(job, _RUN_SIZE, word_at(job, _RUN_SIZE) + big_i32(row + 8) + PREFIX_SIZE)
        elif verdict != _GONE:
            size = _write_batch(job, row, found, kept, word_at(job, _TARGET) + word_at(job, _WRITTEN))
            if kept and load_u8(row + 22) & _CODEC:
                put_word(job, _PLAIN, size)
                return _COMPRESS, batch
            put_word(job, _WRITTEN, word_at(job, _WRITTEN) + size)
        batch += 1
    return _END, batch
