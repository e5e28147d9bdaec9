"""An offset index beside the batches of its segment: whether it is what Kafka writes, told in one pass.

`tidelog.fsck.index_check` says in words what is wrong where this says that anything is.
"""

from typing import Any, NamedTuple

import numpy as np

from tidelog.kernels.memory import big_i32, put_word, word_at
from tidelog.kernels.runtime import kernel

__all__ = ["Steps", "steps_of_index"]

_ENTRY = 8
_NO_STEP = 1 << 62


class Steps(NamedTuple):
    """How far apart the entries of an index lie."""

    shortest: int  # from one entry to the next, or from the start of the log to the first; 0 if there is none
    not_enough: int  # from an entry to the last batch that did not get the next one
    longest: int


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def compare_entries(
    entries: int, count: int, base_offset: int, positions: int, lasts: int, batches: int, steps: int
) -> int:
    """Whether each entry names the position and the last offset of a batch, and each another one than that before."""
    shortest = _NO_STEP
    not_enough = 0
    longest = 0
    batch = 0
    before = 0
    for index in range(count):
        position = big_i32(entries + index * _ENTRY + 4)
        if index and position <= before:
            return 0
        start = 0  # of the batch before the one with the entry
        while batch < batches and word_at(positions, batch) < position:
            start = word_at(positions, batch)
            batch += 1
        if batch == batches or word_at(positions, batch) != position:
            return 0
        if word_at(lasts, batch) != big_i32(entries + index * _ENTRY) + base_offset:
            return 0
        step = position - before
        if step:
            shortest = min(shortest, step)
        longest = max(longest, step)
        not_enough = max(not_enough, start - before)
        before = position
    if count:
        not_enough = max(not_enough, word_at(positions, batches - 1) - before)
    put_word(steps, 0, 0 if shortest == _NO_STEP else shortest)
    put_word(steps, 1, not_enough)
    put_word(steps, 2, longest)
    return 1


def steps_of_index(entries: Any, base_offset: int, positions: Any, lasts: Any) -> Steps | None:
    """The steps of an index with entries, as Kafka writes it since 2.0; None if it is not, or may not be.

    `positions` and `lasts` are those of the batches, in the order of the file.
    """
    steps = np.empty(3, np.int64)
    positions, lasts = np.ascontiguousarray(positions), np.ascontiguousarray(lasts)
    is_right = compare_entries(
        entries.ctypes.data, len(entries), base_offset, positions.ctypes.data, lasts.ctypes.data, len(positions),
        steps.ctypes.data,
    )  # fmt: skip
    return Steps(*steps.tolist()) if is_right else None
