"""The order in which a Java HashMap with long keys gives its entries back.

Kafka writes producer snapshots in that order, so equal bytes need it. A HashMap is a table of buckets, 16 at first,
doubled when there are more entries than three quarters of it and never made smaller, not even by clear(). Entries
come bucket by bucket, and in a bucket in the order in which put() brought them:

    hash   := low 32 bits of (key xor key >>> 32)
    bucket := (hash xor hash >>> 16) and (table size - 1)

A ninth entry in one bucket doubles a table below 64 as well. In a larger table Java turns that bucket into a tree,
whose order also depends on the shape of the tree; it is not followed here, and the entries stay in the order in which
they came. Ids that are handed out one after the other never fill a bucket like that.

computeIfAbsent(), with which Kafka collects the producers of one append, differs in three ways: a new entry goes to
the head of its bucket, the table is doubled by the entry after the one that was too many, and by the eighth of one
bucket.

    >>> producers = JavaLongMap[str]()
    >>> for producer_id in (35, 19, 3, 16, 1):
    ...     producers[producer_id] = ""
    >>> list(producers.java_order())
    [16, 1, 35, 19, 3]
    >>> computed_order([35, 19, 3, 16, 1])
    [16, 1, 3, 19, 35]
"""

from collections.abc import Collection
from typing import TypeVar

__all__ = ["JavaLongMap", "computed_order", "java_bucket"]

_Value = TypeVar("_Value")

_FIRST_TABLE = 16
_TREE_TABLE = 64  # tables of this size and above grow trees
_LONG_BUCKET = 9


def java_bucket(key: int, table_size: int) -> int:
    """The bucket of a long in a table whose size is a power of two."""
    mixed = (key ^ key >> 32) & 0xFFFFFFFF
    return (mixed ^ mixed >> 16) & (table_size - 1)


class JavaLongMap(dict[int, _Value]):
    """A dict that knows how large Java's table would be. Entries are put in with `map[key] = value` alone."""

    __slots__ = ("table_size",)

    def __init__(self) -> None:
        super().__init__()
        self.table_size = _FIRST_TABLE

    def __setitem__(self, key: int, value: _Value) -> None:
        is_new = key not in self
        super().__setitem__(key, value)
        if is_new:
            if _has_long_bucket(self, key, self.table_size, _LONG_BUCKET):
                self.table_size *= 2
            if 4 * len(self) > 3 * self.table_size:
                self.table_size *= 2

    def java_order(self) -> list[int]:
        """The keys as Java would list them."""
        return _by_bucket(self, self.table_size)  # a dict keeps the order in which keys came


def computed_order(keys: Collection[int]) -> list[int]:
    """Different keys, put into a new map by computeIfAbsent one after the other, as Java would list them."""
    table_size, seen = _FIRST_TABLE, list[int]()
    for key in keys:
        if 4 * len(seen) > 3 * table_size:
            table_size *= 2
        seen.append(key)
        if _has_long_bucket(seen, key, table_size, _LONG_BUCKET - 1):
            table_size *= 2
    return _by_bucket(seen[::-1], table_size)


def _by_bucket(keys: Collection[int], table_size: int) -> list[int]:
    return sorted(keys, key=lambda key: java_bucket(key, table_size))  # stable


def _has_long_bucket(keys: Collection[int], newest: int, table_size: int, length: int) -> bool:
    """Whether the newest key makes a bucket of this length, in a table too small for trees."""
    if table_size >= _TREE_TABLE or len(keys) < length:
        return False
    bucket = java_bucket(newest, table_size)
    return sum(java_bucket(key, table_size) == bucket for key in keys) >= length
