"""Columns to the batches of several partitions at once: each row goes into the open batch of its own.

The rows are read once, in the order they have, and each is written where its partition is. What a partition gets are
the bytes that `kernels.encode` makes of its rows alone, in however many calls they come: a batch stays open from one
call to the next.
"""

from enum import IntEnum, auto

from tidelog.kernels.encode import (
    CUT_WORDS,
    LARGEST_BATCH,
    Input,
    headers_size,
    is_valid,
    put_field,
    put_headers,
    seal,
    size_of,
    written_size,
)
from tidelog.kernels.memory import int32_at, put_word, store_8, word_at
from tidelog.kernels.runtime import inlined, inner, kernel
from tidelog.kernels.varint import fold, put_folded, size_of_folded
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.record import MAX_RECORD_OVERHEAD

__all__ = ["Place", "Stop", "deal", "seal_open"]


class Place(IntEnum):
    """The int64 words of a partition: where its batches are written, and what is known of the open one."""

    TARGET = 0
    CAPACITY = auto()
    POSITION = auto()  # of the open batch in the target; before it lie those that are sealed
    SIZE = auto()  # of the open batch; 0: there is none
    FIRST_OFFSET = auto()  # of the open batch, or of the next
    COUNT = auto()
    BASE_TIME = auto()
    MAX_TIME = auto()
    LIMIT = auto()
    CUTS = auto()  # where to write CUT_WORDS a batch
    CUTS_MADE = auto()
    MAX_CUTS = auto()
    WORDS = auto()  # how many there are


class Stop(IntEnum):
    """Why a call ends."""

    DONE = 0
    FULL = 1  # what is sealed of a partition is to be taken away, or its target is too small for one batch
    TOO_LARGE = 2  # a record fits no batch


# Kernels take plain numbers.
_PLACE_SIZE = 8 * Place.WORDS.value
_TARGET = Place.TARGET.value
_CAPACITY = Place.CAPACITY.value
_POSITION = Place.POSITION.value
_SIZE = Place.SIZE.value
_FIRST_OFFSET = Place.FIRST_OFFSET.value
_COUNT = Place.COUNT.value
_BASE_TIME = Place.BASE_TIME.value
_MAX_TIME = Place.MAX_TIME.value
_LIMIT = Place.LIMIT.value
_CUTS = Place.CUTS.value
_CUTS_MADE = Place.CUTS_MADE.value
_MAX_CUTS = Place.MAX_CUTS.value
_DONE, _FULL, _TOO_LARGE = (int(stop) for stop in Stop)
_ROWS = Input.ROWS.value
_KEY = Input.KEY.value
_VALUE = Input.VALUE.value
_HEADER_LISTS = Input.HEADER_LISTS.value
_HEADER_VALIDITY = Input.HEADER_VALIDITY.value
_HEADER_FIRST_BIT = Input.HEADER_FIRST_BIT.value
_TIMESTAMPS = Input.TIMESTAMPS.value
_BATCH_SIZE = Input.BATCH_SIZE.value


@inner
def _close(words: int, place: int) -> None:
    """Seal the open batch of a partition, and note it."""
    position = word_at(place, _POSITION)
    size = word_at(place, _SIZE)
    count = word_at(place, _COUNT)
    first = word_at(place, _FIRST_OFFSET)
    batch = word_at(place, _TARGET) + position
    seal(batch, size, words, first, count, word_at(place, _BASE_TIME), word_at(place, _MAX_TIME))
    made = word_at(place, _CUTS_MADE)
    cuts = word_at(place, _CUTS)
    put_word(cuts, CUT_WORDS * made, position)
    put_word(cuts, CUT_WORDS * made + 1, size)
    put_word(cuts, CUT_WORDS * made + 2, count)
    put_word(place, _CUTS_MADE, made + 1)
    put_word(place, _POSITION, position + size)
    put_word(place, _SIZE, 0)
    put_word(place, _FIRST_OFFSET, first + count)
    put_word(place, _COUNT, 0)


@kernel("int64(int64, int64)")
def seal_open(words: int, place: int) -> int:
    """Seal the open batch of a partition, for whose note there is room; how many there were."""
    if word_at(place, _SIZE) == 0:
        return 0
    _close(words, place)
    return 1


@inlined
def _record_size(time_delta: int, offset_delta: int, payload: int) -> int:
    body = 1 + size_of_folded(time_delta) + size_of_folded(offset_delta) + payload
    return size_of_folded(body << 1) + body


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64)")
def deal(words: int, numbers: int, places: int, row: int) -> tuple[int, int]:
    """Write rows from `row` on, each to the partition whose number it has; the first that is not written, and why."""
    rows = word_at(words, _ROWS)
    lists = word_at(words, _HEADER_LISTS)
    timestamps = word_at(words, _TIMESTAMPS)
    while row < rows:
        place = places + word_at(numbers, row) * _PLACE_SIZE
        time = word_at(timestamps, row)
        key_size = size_of(words, _KEY, row)
        value_size = size_of(words, _VALUE, row)
        first_header = 0
        last_header = 0
        if lists and is_valid(word_at(words, _HEADER_VALIDITY), word_at(words, _HEADER_FIRST_BIT) + row):
            first_header = int32_at(lists, row)
            last_header = int32_at(lists, row + 1)
        payload = written_size(key_size) + written_size(value_size) + size_of_folded(last_header - first_header << 1)
        if last_header > first_header:
            payload += headers_size(words, first_header, last_header)
        size = word_at(place, _SIZE)
        count = word_at(place, _COUNT)
        time_delta = fold(time - word_at(place, _BASE_TIME))
        record = _record_size(time_delta, count << 1, payload)
        if size and (size + record > word_at(place, _LIMIT) or size + record > LARGEST_BATCH):
            if word_at(place, _CUTS_MADE) == word_at(place, _MAX_CUTS):
                return row, _FULL
            _close(words, place)
            size = 0
        if size == 0:
            size = BATCH_HEADER_SIZE
            count = 0
            time_delta = 0
            record = _record_size(0, 0, payload)
            if record > LARGEST_BATCH - BATCH_HEADER_SIZE:
                return row, _TOO_LARGE
            put_word(place, _COUNT, 0)
            put_word(place, _BASE_TIME, time)
            put_word(place, _MAX_TIME, -1)
            put_word(place, _LIMIT, max(word_at(words, _BATCH_SIZE), BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD + payload))
        start = word_at(place, _POSITION) + size
        if record > word_at(place, _CAPACITY) - start:
            return row, _FULL
        body = 1 + size_of_folded(time_delta) + size_of_folded(count << 1) + payload
        address = put_folded(word_at(place, _TARGET) + start, body << 1)
        store_8(address, 0)
        address = put_folded(address + 1, time_delta)
        address = put_folded(address, count << 1)
        address = put_field(address, words, _KEY, row, key_size)
        address = put_field(address, words, _VALUE, row, value_size)
        address = put_folded(address, last_header - first_header << 1)
        if last_header > first_header:
            put_headers(address, words, first_header, last_header)
        put_word(place, _SIZE, size + record)
        put_word(place, _COUNT, count + 1)
        put_word(place, _MAX_TIME, max(word_at(place, _MAX_TIME), time))
        row += 1
    return row, _DONE
