"""The order of Scala's hash tables: what the collections of its libraries gave back for the same elements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.dump.decoders.scala_order import (
    Hashed,
    immutable_set_order,
    java_hash,
    map_order,
    set_order,
    topic_partition_hash,
)

PARTITIONS = st.lists(st.tuples(st.sampled_from(["t", "orders", "日本"]), st.integers(-5, 200)), max_size=40)


def hashed(topic: str, partition: int) -> Hashed:
    return Hashed(f"{topic}-{partition}", topic_partition_hash(topic, partition))


def partitions(topic: str, numbers: range | list[int]) -> list[Hashed]:
    return [hashed(topic, number) for number in numbers]


# Printed by scala.collection.mutable.HashSet and HashMap of scala-library 2.11.12 and 2.12.10, and of 2.13.15.
SETS = [
    (
        [partitions("t", range(4)), partitions("orders", range(3))],
        "t-3 orders-1 t-1 orders-2 t-2 orders-0 t-0",
        "t-3 t-2 t-1 t-0 orders-0 orders-1 orders-2",
    ),
    (
        [partitions("t", list(range(9, -1, -1)))],
        "t-8 t-5 t-3 t-1 t-9 t-7 t-2 t-0 t-6 t-4",
        "t-5 t-4 t-3 t-2 t-1 t-0 t-9 t-8 t-7 t-6",
    ),
    (
        [partitions("orders", range(16)), partitions("t", [1]), partitions("__consumer_offsets", [7])],
        "orders-1 orders-9 orders-12 orders-5 orders-13 orders-2 orders-6 __consumer_offsets-7 orders-10 orders-14 "
        "orders-3 t-1 orders-7 orders-0 orders-11 orders-15 orders-4 orders-8",
        "orders-7 orders-8 orders-9 orders-10 orders-11 orders-12 orders-13 orders-14 orders-15 t-1 "
        "__consumer_offsets-7 orders-0 orders-1 orders-2 orders-3 orders-4 orders-5 orders-6",
    ),
]
MAPS = [
    ("a b c d e f g h i j k l m n o p", "e n h b k j d m p g a i c l f o", "a b c d e f g h i j k l m n o p"),
    (
        "consumer-1-1 consumer-1-2 consumer-1-3 grüße 日本",
        "日本 consumer-1-3 grüße consumer-1-2 consumer-1-1",
        "consumer-1-1 consumer-1-2 grüße 日本 consumer-1-3",
    ),
]


@pytest.mark.parametrize(("groups", "of_2_12", "of_2_13"), SETS)
def test_sets_come_as_scala_gives_them(groups: list[list[Hashed]], of_2_12: str, of_2_13: str) -> None:
    assert set_order(groups, is_scala_213=False) == of_2_12.split()
    assert set_order(groups, is_scala_213=True) == of_2_13.split()


@pytest.mark.parametrize(("keys", "of_2_12", "of_2_13"), MAPS)
def test_maps_come_as_scala_gives_them(keys: str, of_2_12: str, of_2_13: str) -> None:
    elements = [Hashed(key, java_hash(key)) for key in keys.split()]
    assert map_order(elements, is_scala_213=False) == of_2_12.split()
    assert map_order(elements, is_scala_213=True) == of_2_13.split()


def test_up_to_four_elements_of_an_immutable_set_stay_in_their_order() -> None:
    four = partitions("orders", [3, 1, 2, 0])
    for is_scala_213 in (False, True):
        assert immutable_set_order(four, is_scala_213=is_scala_213) == four
        assert immutable_set_order([*four, hashed("orders", 9)], is_scala_213=is_scala_213) != [*four, "orders-9"]


@given(st.lists(PARTITIONS, max_size=4), st.booleans())
def test_nothing_is_lost_or_doubled(groups: list[list[tuple[str, int]]], is_scala_213: bool) -> None:
    elements = [[hashed(*partition) for partition in group] for group in groups]
    given_texts = {element.text for group in elements for element in group}
    found = set_order(elements, is_scala_213=is_scala_213)
    assert sorted(found) == sorted(given_texts)
    keys = [element for group in elements for element in group]
    assert sorted(map_order(keys, is_scala_213=is_scala_213)) == sorted(given_texts)
