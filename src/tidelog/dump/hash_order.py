"""The order in which a Java HashMap with string keys gives its entries back.

Reports of 4.3 about several files come in it. They are put in by computeIfAbsent(): a map starts with 16 buckets and
doubles when a key comes and three quarters are exceeded already; a new key stands at the head of its bucket. Buckets
are listed from the first to the last.
"""

__all__ = ["hash_order", "java_hash"]

_FIRST_TABLE = 16
_MASK = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """String.hashCode(), without sign.

    >>> java_hash("abc")
    96354
    """
    code = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = code * 31 + unit & _MASK
    return code


def hash_order(keys: list[str], *, last_came_again: bool = False) -> list[str]:
    """Different keys, given in the order in which they were put in, as the map lists them.

    The map looks at its size whenever it is asked, so it matters whether the last key was asked for again.

    >>> hash_order(["b", "a"])
    ['a', 'b']
    """
    table, noticed = _FIRST_TABLE, len(keys) - (not last_came_again)
    while 4 * noticed > 3 * table:
        table *= 2
    arrival = {key: index for index, key in enumerate(keys)}
    return sorted(keys, key=lambda key: (_bucket(key, table), -arrival[key]))


def _bucket(key: str, table: int) -> int:
    code = java_hash(key)
    return (code ^ code >> 16) & (table - 1)
