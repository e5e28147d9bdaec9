"""The order in which Scala's hash tables give their elements back.

Up to 4.0 the dump tool keeps the partitions of a transaction, and up to 3.7 the members of a group, in mutable hash
tables, and prints them as they come. Scala changed its tables in 2.13, which Kafka's builds are made with since 2.6:

    set of 2.11, 2.12    32 slots, doubled at 45 %; a taken slot sends the element to the next one (linear probing)
    map of 2.11, 2.12    16 buckets, doubled above 75 %; newest first in a bucket; given back from the last bucket on
    set and map of 2.13  16 buckets, doubled before 75 %; by rising hash in a bucket

Where two elements want one slot, the order in which they came counts. The partitions of a topic come from an
immutable set: in their stored order up to four, and in the order of a trie above, five bits of the hash to a level.

Elements are paired with their hash codes, as Java computes these:

    >>> java_hash("orders"), topic_partition_hash("orders", 0)
    (-1008770331, -1008769370)
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.records.java import wrap_int32

__all__ = ["Hashed", "immutable_set_order", "java_hash", "map_order", "set_order", "topic_partition_hash"]

_LARGEST_PLAIN_SET = 4
_BITS_PER_LEVEL = 5
_MAX_UINT32 = 0xFFFFFFFF

_T = TypeVar("_T")


class Hashed(NamedTuple):
    """An element and its hash code, a signed 32 bit number."""

    text: str
    code: int


def java_hash(text: str) -> int:
    """String.hashCode(): over UTF-16 units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _MAX_UINT32
    return wrap_int32(code)


def topic_partition_hash(topic: str, partition: int) -> int:
    """TopicPartition.hashCode()."""
    return wrap_int32(31 * (31 + partition) + java_hash(topic))


def set_order(groups: Iterable[Sequence[Hashed]], *, is_scala_213: bool) -> list[str]:
    """The elements of a mutable set to which one immutable set after the other was added."""
    arrivals = [immutable_set_order(group, is_scala_213=is_scala_213) for group in groups]
    if is_scala_213:
        return _chained_order(arrivals, with_hints=True)
    return _probed_order([element for group in arrivals for element in group])


def map_order(keys: Iterable[Hashed], *, is_scala_213: bool) -> list[str]:
    """The keys of a mutable map into which they were put one after the other."""
    distinct = _distinct(keys)
    if is_scala_213:
        return _chained_order([[key] for key in distinct], with_hints=False)
    return _stacked_order(distinct)


def immutable_set_order(elements: Sequence[Hashed], *, is_scala_213: bool) -> list[Hashed]:
    """The elements of an immutable set, built from a sequence."""
    distinct = _distinct(elements)
    if len(distinct) <= _LARGEST_PLAIN_SET:
        return distinct
    if is_scala_213:
        return _trie_order_213(distinct, 0)
    return sorted(distinct, key=lambda element: _trie_path(_improved_212_trie(element.code)))


def _distinct(elements: Iterable[Hashed]) -> list[Hashed]:
    return list(dict.fromkeys(elements))


# --- 2.11 and 2.12 -----------------------------------------------------------------------------------------------


def _scrambled(code: int, seed: int) -> int:
    """The hash code with its bytes swapped between two multiplications, turned right by `seed` bits."""
    mixed = int.from_bytes((code * 0x9E3775CD & _MAX_UINT32).to_bytes(4, "big"), "little") * 0x9E3775CD & _MAX_UINT32
    return (mixed >> seed | mixed << 32 - seed) & _MAX_UINT32


def _slot(code: int, table_size: int, seed: int) -> int:
    """The upper bits choose the slot."""
    return _scrambled(code, seed) >> 32 - (table_size - 1).bit_length()


def _probed_order(elements: Iterable[Hashed]) -> list[str]:
    table: list[Hashed | None] = [None] * 32
    size = 0
    for element in elements:
        if not _probe(table, element):
            continue
        size += 1
        if size >= len(table) * 450 // 1000:
            smaller, table = table, [None] * (2 * len(table))
            for moved in smaller:
                if moved:
                    _probe(table, moved)
    return [element.text for element in table if element]


def _probe(table: list[Hashed | None], element: Hashed) -> bool:
    slot = _slot(element.code, len(table), (len(table) - 1).bit_count())
    while (taken := table[slot]) is not None:
        if taken == element:
            return False
        slot = (slot + 1) % len(table)
    table[slot] = element
    return True


def _stacked_order(keys: Iterable[Hashed]) -> list[str]:
    seed = (16 - 1).bit_count()  # that of the first table, however large it grows
    table: list[list[Hashed]] = [[] for _ in range(16)]
    for size, key in enumerate(keys, start=1):
        table[_slot(key.code, len(table), seed)].insert(0, key)
        if size > len(table) * 750 // 1000:
            smaller, table = table, [[] for _ in range(2 * len(table))]
            for bucket in reversed(smaller):
                for moved in bucket:
                    table[_slot(moved.code, len(table), seed)].insert(0, moved)
    return [key.text for bucket in reversed(table) for key in bucket]


def _improved_212_trie(code: int) -> int:
    """The hash of the immutable tries, of a code of 32 bits."""
    h = (code + ~(code << 9)) & _MAX_UINT32
    h ^= h >> 14
    h = (h + (h << 4)) & _MAX_UINT32
    return h ^ h >> 10


def _trie_path(improved: int) -> tuple[int, ...]:
    return tuple(improved >> shift & 0x1F for shift in range(0, 32, _BITS_PER_LEVEL))


# --- 2.13 --------------------------------------------------------------------------------------------------------


def _improved_213(code: int) -> int:
    return wrap_int32(code ^ (code & _MAX_UINT32) >> 16)


def _chained_order(groups: Iterable[Sequence[Hashed]], *, with_hints: bool) -> list[str]:
    """Buckets sorted by hash. Sorting is stable, so equal hashes stay in the order in which they came.

    A set makes room for the size of what is added, and then adds the elements of a trie without a look at its own.
    """
    table_size = 16
    found: dict[Hashed, int] = {}
    for group in groups:
        if with_hints:
            table_size = max(table_size, _table_size_for(int((len(group) + 1) / 0.75)))
        for element in group:
            if len(group) <= _LARGEST_PLAIN_SET and len(found) + 1 >= int(table_size * 0.75):
                table_size *= 2
            found.setdefault(element, _improved_213(element.code))
    ordered = sorted(found, key=lambda element: (found[element] & table_size - 1, found[element]))
    return [element.text for element in ordered]


def _table_size_for(capacity: int) -> int:
    return 1 << max(capacity - 1, 4 - 1).bit_length()


def _trie_order_213(elements: Sequence[Hashed], shift: int) -> list[Hashed]:
    """Below each node first the elements that are alone under their five bits, then the nodes of the others."""
    if shift >= 32:
        return list(elements)
    branches = _grouped(elements, lambda element: (_improved_213(element.code) & _MAX_UINT32) >> shift & 0x1F)
    alone = [branch[0] for branch in branches if len(branch) == 1]
    crowded = [branch for branch in branches if len(branch) > 1]
    return alone + [element for branch in crowded for element in _trie_order_213(branch, shift + _BITS_PER_LEVEL)]


def _grouped(elements: Sequence[_T], key: Callable[[_T], int]) -> list[list[_T]]:
    groups: dict[int, list[_T]] = {}
    for element in elements:
        groups.setdefault(key(element), []).append(element)
    return [groups[number] for number in sorted(groups)]
