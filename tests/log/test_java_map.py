"""The order of Java's HashMap. The orders expected here were printed by a JVM (17), not computed."""

import pytest

from tidelog.log.java_map import JavaLongMap, computed_order, java_bucket

TWELVE = [1009, 993, 17, 16, 33, 0, 48, 49, 1, 65, 2, 4000]
THIRTEEN = [*TWELVE, 32]
FOURTEEN = [*THIRTEEN, 81]


def one_bucket(count: int) -> list[int]:
    """So many keys of bucket 0 in a table of 16, highest first, and one of bucket 1."""
    return [*(16 * step for step in range(count, 0, -1)), 1]


def filled(keys: list[int]) -> JavaLongMap[None]:
    result: JavaLongMap[None] = JavaLongMap()
    for key in keys:
        result[key] = None
    return result


@pytest.mark.parametrize(("keys", "order"), [
    ([], []),
    (TWELVE, [16, 0, 48, 4000, 1009, 993, 17, 33, 49, 1, 65, 2]),
    (THIRTEEN, [0, 4000, 32, 993, 33, 1, 65, 2, 16, 48, 1009, 17, 49]),
    (FOURTEEN, [0, 4000, 32, 993, 33, 1, 65, 2, 16, 48, 1009, 17, 49, 81]),
    (one_bucket(8), [128, 112, 96, 80, 64, 48, 32, 16, 1]),
    (one_bucket(9), [128, 96, 64, 32, 1, 144, 112, 80, 48, 16]),
    (one_bucket(11), [160, 128, 96, 64, 32, 1, 176, 144, 112, 80, 48, 16]),
])  # fmt: skip
def test_put_orders_by_bucket_and_then_as_keys_came(keys: list[int], order: list[int]) -> None:
    assert filled(keys).java_order() == order


@pytest.mark.parametrize(("keys", "order"), [
    ([], []),
    (TWELVE, [4000, 48, 0, 16, 65, 1, 49, 33, 17, 993, 1009, 2]),
    (THIRTEEN, [32, 4000, 48, 0, 16, 65, 1, 49, 33, 17, 993, 1009, 2]),
    (FOURTEEN, [32, 4000, 0, 65, 1, 33, 993, 2, 48, 16, 81, 49, 17, 1009]),
    (one_bucket(7), [16, 32, 48, 64, 80, 96, 112, 1]),
    (one_bucket(8), [32, 64, 96, 128, 1, 16, 48, 80, 112]),
    (one_bucket(11), [32, 64, 96, 128, 160, 1, 16, 48, 80, 112, 144, 176]),
])  # fmt: skip
def test_compute_if_absent_puts_new_keys_first_and_grows_later(keys: list[int], order: list[int]) -> None:
    assert computed_order(keys) == order


def test_high_halves_and_signs_take_part_in_the_hash() -> None:
    keys = [2**32, 2**32 + 1, 2**48, -1, -2, -(2**63), 2**63 - 1, 65536, 65537, 131072 * 5 + 3]
    order = [2**32 + 1, -1, -(2**63), 2**63 - 1, 65537, 2**32, 2**48, -2, 65536, 655363]
    assert filled(keys).java_order() == order
    assert all(0 <= java_bucket(key, 16) < 16 for key in keys)


def test_a_table_never_shrinks_and_what_comes_back_comes_last() -> None:
    producers = filled(THIRTEEN)
    for key in THIRTEEN[:9]:
        del producers[key]
    assert producers.java_order() == [4000, 32, 65, 2]
    for key in (17, 1, 33):
        producers[key] = None
    assert producers.java_order() == [4000, 32, 65, 1, 33, 2, 17]
    producers.clear()
    again = [17, 16, 33, 0, 1, 32]
    for key in again:
        producers[key] = None
    assert producers.java_order() == [0, 32, 33, 1, 16, 17]
    assert filled(again).java_order() == [16, 0, 32, 17, 33, 1]


def test_a_key_that_is_put_again_keeps_its_place() -> None:
    producers = filled([35, 19, 3])
    producers[35] = None
    assert producers.java_order() == [35, 19, 3]
    assert producers.table_size == 16


def test_a_long_bucket_doubles_small_tables_only() -> None:
    producers = filled(list(range(25)))
    assert producers.table_size == 64
    for step in range(1, 12):
        producers[64 * step] = None
    assert producers.table_size == 64
