"""The map from keys to their last offsets, readable and fast: what Kafka's tests say of it, and how it is filled."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.behaviours import behaviour
from tidelog.errors import InvalidRequestError
from tidelog.kernels.headers import scan_headers
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.compaction.offset_map import (
    BYTES_PER_ENTRY,
    DictOffsetMap,
    MapWindowResult,
    OffsetMap,
    TableOffsetMap,
    map_batch,
    map_window,
    slots_of,
)
from tidelog.records import NewRecord, build_batch, build_message_set, read_batches

MakeMap = Callable[..., OffsetMap]
both_maps = pytest.mark.parametrize("make_map", [DictOffsetMap, TableOffsetMap])


def key(number: int) -> bytes:
    return b"key-%d" % number


def batch(offset: int, *keys: bytes | None) -> bytes:
    return bytes(build_batch([NewRecord(key, b"value", 0) for key in keys], base_offset=offset))


def fill(offset_map: OffsetMap, data: bytes, *, start_offset: int = 0) -> bool:
    """Put the keys of some batches into a map, each kind of map in its own way; whether it is full."""
    if isinstance(offset_map, TableOffsetMap):
        window = BatchWindow(memoryview(data), 0, scan_headers(data))
        return map_window(offset_map, window, np.ones(len(window), np.uint8), start_offset).full
    return any(map_batch(offset_map, batch, start_offset) for batch in read_batches(data))


# -- the map itself ----------------------------------------------------------------------------------------------------


@behaviour("CLN-001")
@both_maps
@pytest.mark.parametrize("count", [10, 100, 1000, 5000])
def test_every_key_is_found_with_its_offset(make_map: MakeMap, count: int) -> None:
    offset_map = make_map(slots_of(48 * count))
    for number in range(count):
        offset_map.put(key(number), number)
    assert [offset_map.get(key(number)) for number in range(count)] == list(range(count))
    assert offset_map.get(key(count)) == -1
    assert offset_map.size == count


@both_maps
def test_a_later_offset_takes_the_place_of_an_earlier_one(make_map: MakeMap) -> None:
    offset_map = make_map(10)
    for offset in (3, 8):
        offset_map.put(b"key", offset)
    assert (offset_map.get(b"key"), offset_map.size) == (8, 1)


@behaviour("CLN-002")
@both_maps
def test_a_cleared_map_knows_no_key(make_map: MakeMap) -> None:
    offset_map = make_map(1000)
    for number in range(500):
        offset_map.put(key(number), number)
    offset_map.clear()
    assert {offset_map.get(key(number)) for number in range(500)} == {-1}
    assert (offset_map.size, offset_map.latest_offset, offset_map.utilisation) == (0, -1, 0.0)
    offset_map.put(key(1), 7)
    assert (offset_map.get(key(1)), offset_map.get(key(2))) == (7, -1)


@behaviour("CLN-003")
@both_maps
@pytest.mark.parametrize("slots", [1, 7, 5000])
def test_a_full_map_still_finds_its_keys_and_no_others(make_map: MakeMap, slots: int) -> None:
    offset_map = make_map(slots)
    for number in range(slots):
        offset_map.put(key(number), number)
    assert offset_map.size == slots
    assert [offset_map.get(key(number)) for number in range(slots)] == list(range(slots))
    assert {offset_map.get(key(slots + number)) for number in range(10)} == {-1}


@both_maps
def test_a_full_map_takes_nothing_more_not_even_a_key_that_it_knows(make_map: MakeMap) -> None:
    offset_map = make_map(2)
    offset_map.put(b"a", 1)
    offset_map.put(b"b", 2)
    for again in (b"c", b"a"):
        with pytest.raises(InvalidRequestError, match="2 slots"):
            offset_map.put(again, 3)
    assert (offset_map.get(b"a"), offset_map.latest_offset) == (1, 2)


@behaviour("CLN-004")
@both_maps
def test_the_latest_offset_is_the_last_one_put_or_what_it_was_raised_to(make_map: MakeMap) -> None:
    offset_map = make_map(10)
    assert offset_map.latest_offset == -1
    offset_map.put(b"a", 7)
    assert offset_map.latest_offset == 7
    offset_map.put(b"b", 5)
    assert offset_map.latest_offset == 5
    offset_map.update_latest(33)
    assert (offset_map.latest_offset, offset_map.size) == (33, 2)


@behaviour("CLN-005")
@both_maps
def test_utilisation_is_the_part_of_the_slots_that_is_taken(make_map: MakeMap) -> None:
    offset_map = make_map(8)
    assert offset_map.utilisation == 0.0
    for number in range(6):
        offset_map.put(key(number % 2), number)
    assert offset_map.utilisation == 0.25


def test_a_buffer_has_a_slot_for_every_24_bytes() -> None:
    assert BYTES_PER_ENTRY == 24
    assert [slots_of(size) for size in (0, 23, 24, 134_217_728)] == [0, 0, 1, 5_592_405]


@both_maps
def test_a_map_is_filled_up_to_its_load_factor(make_map: MakeMap) -> None:
    assert [make_map(100, load_factor).max_size for load_factor in (0.9, 0.5, 0.999)] == [90, 50, 99]


@pytest.mark.parametrize("slots", [0, -1, 2**31 + 1])
def test_a_table_has_at_least_one_slot_and_no_more_than_an_index_can_name(slots: int) -> None:
    with pytest.raises(InvalidRequestError, match="slots"):
        TableOffsetMap(slots)


# -- filling it --------------------------------------------------------------------------------------------------------


@both_maps
def test_the_last_offset_of_each_key_is_mapped_and_records_without_a_key_are_passed_over(make_map: MakeMap) -> None:
    offset_map = make_map(100)
    assert not fill(offset_map, batch(10, b"a", None, b"b", b"a") + batch(14, b"b", b"", None))
    assert [offset_map.get(name) for name in (b"a", b"b", b"")] == [13, 14, 15]
    assert (offset_map.size, offset_map.latest_offset) == (3, 16)


@both_maps
def test_records_before_the_start_are_passed_over(make_map: MakeMap) -> None:
    offset_map = make_map(100)
    assert not fill(offset_map, batch(10, b"a", b"b", b"c"), start_offset=12)
    assert [offset_map.get(name) for name in (b"a", b"b", b"c")] == [-1, -1, 12]
    offset_map.clear()
    assert not fill(offset_map, batch(10, b"a", b"b", b"c"), start_offset=13)
    assert (offset_map.size, offset_map.latest_offset) == (0, -1)


@both_maps
def test_a_map_that_is_full_ends_at_the_last_offset_put(make_map: MakeMap) -> None:
    offset_map = make_map(4, 0.5)
    assert fill(offset_map, batch(10, b"a", None, b"b", b"a", b"c"))
    assert (offset_map.size, offset_map.latest_offset, offset_map.get(b"a")) == (2, 12, 10)


@both_maps
def test_a_map_that_is_just_filled_goes_on_while_no_key_comes(make_map: MakeMap) -> None:
    offset_map = make_map(4, 0.5)
    assert not fill(offset_map, batch(10, b"a", b"b", None) + batch(13, None))
    assert offset_map.latest_offset == 13
    assert fill(offset_map, batch(14, None, b"a"))
    assert offset_map.latest_offset == 13


@both_maps
def test_a_load_factor_above_one_ends_where_the_slots_do(make_map: MakeMap) -> None:
    with pytest.raises(InvalidRequestError, match="2 slots"):
        fill(make_map(2, 2.0), batch(0, b"a", b"b", b"c"))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_are_mapped(magic: int) -> None:
    records = [NewRecord(b"a", b"1", 5), NewRecord(None, b"2", 5), NewRecord(b"a", b"3", 5)]
    offset_map = DictOffsetMap(10)
    assert not fill(offset_map, bytes(build_message_set(magic, records, base_offset=5)))
    assert (offset_map.get(b"a"), offset_map.latest_offset) == (7, 7)


def test_of_batches_that_are_not_wanted_only_the_offsets_count() -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c", b"d", b"e") + batch(5, b"f")
    window = BatchWindow(memoryview(data), 0, scan_headers(data))
    offset_map = TableOffsetMap(100)
    assert map_window(offset_map, window, np.array([1, 0, 0], np.uint8), 0) == MapWindowResult(False, 6)
    assert (offset_map.size, offset_map.latest_offset) == (2, 5)


def test_of_an_empty_window_nothing_is_mapped() -> None:
    window = BatchWindow(memoryview(b""), 0, scan_headers(b""))
    offset_map = TableOffsetMap(100)
    assert map_window(offset_map, window, np.zeros(0, np.uint8), 0) == MapWindowResult(False, 0)
    assert offset_map.latest_offset == -1
