"""How far apart the entries of a log's offset indexes lie: which `index.interval.bytes` they were written with.

A batch gets an entry when more than the interval lies between it and the batch that got the last one. So every step
from entry to entry is larger than the interval, and the batch before the one with the entry was not far enough. Any
interval between the two bounds makes the same entries. A broker that was restarted has counted from 0 again: then a
step is longer than it need be, and the lower bound says nothing.
"""

from tidelog.kernels.index_check import Steps

__all__ = ["IndexSpacing"]


class IndexSpacing:
    """What the sound indexes of one log tell."""

    def __init__(self) -> None:
        self._at_least = 0
        self._at_most: int | None = None  # None: no entry was seen

    def take(self, steps: Steps) -> None:
        """Take in how far apart the entries of an index lie."""
        if not steps.shortest:
            return
        self._at_least = max(self._at_least, steps.not_enough)
        largest = steps.shortest - 1
        self._at_most = largest if self._at_most is None else min(self._at_most, largest)

    def interval(self, default: int) -> int | None:
        """The interval: the default if it makes the same entries, else the largest that may; None if none was seen."""
        if self._at_most is None:
            return None
        return default if self._at_least <= default <= self._at_most else self._at_most
