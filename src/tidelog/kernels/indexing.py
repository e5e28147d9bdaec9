"""Index entries of a stretch of batches, as recovery makes them.

One entry of the offset index, and at most one of the time index, whenever more than `interval` bytes lie between a
batch and the last one that got an entry. `tidelog.log.recovery` has the same rule in words, batch by batch.
"""

from typing import NamedTuple

import numpy as np

from tidelog.kernels.decode import ROW_SIZE
from tidelog.kernels.headers import HeaderScan
from tidelog.kernels.memory import big_i32, big_i64, put_big_32, put_big_64, word_at
from tidelog.kernels.runtime import kernel

__all__ = ["IndexEntries", "IndexState", "index_batches"]

_OFFSET_ENTRY, _TIME_ENTRY = 8, 12
_MAX_RELATIVE = 2**31 - 1


class IndexState(NamedTuple):
    """What the next batch is compared with."""

    last_indexed: int  # position of the last batch that got an entry; 0 at the start
    max_timestamp_ms: int
    offset_of_max: int
    last_offset: int  # in the offset index; one below the base offset while it is empty
    last_time_ms: int  # in the time index; -1 while it is empty
    last_time_offset: int


class IndexEntries(NamedTuple):
    """The entries of both indexes as they are written, and the state behind them."""

    offsets: memoryview
    times: memoryview
    state: IndexState


@kernel(f"UniTuple(int64, 9)({', '.join(['int64'] * 14)})")
def write_entries(
    rows: int, positions: int, count: int, start: int, base_offset: int, interval: int,
    last_indexed: int, max_time: int, offset_of_max: int, last_offset: int, last_time: int, last_time_offset: int,
    offsets: int, times: int,
) -> tuple[int, int, int, int, int, int, int, int, int]:  # fmt: skip
    """Write the entries of `count` batches; how many batches were taken, how many bytes written, and the new state."""
    offsets_size = 0
    times_size = 0
    taken = 0
    for index in range(count):
        row = rows + index * ROW_SIZE
        position = start + word_at(positions, index)
        batch_end = big_i64(row) + big_i32(row + 23)
        if not 0 <= batch_end - base_offset <= _MAX_RELATIVE:
            break
        time = big_i64(row + 35)
        if time > max_time:
            max_time = time
            offset_of_max = batch_end
        if position - last_indexed > interval:
            if batch_end <= last_offset or offset_of_max < last_time_offset:
                break
            put_big_32(offsets + offsets_size, batch_end - base_offset)
            put_big_32(offsets + offsets_size + 4, position)
            offsets_size += _OFFSET_ENTRY
            last_offset = batch_end
            last_indexed = position
            if max_time > last_time:
                put_big_64(times + times_size, max_time)
                put_big_32(times + times_size + 8, offset_of_max - base_offset)
                times_size += _TIME_ENTRY
                last_time = max_time
                last_time_offset = offset_of_max
        taken += 1
    return (
        taken, offsets_size, times_size,
        last_indexed, max_time, offset_of_max, last_offset, last_time, last_time_offset,
    )  # fmt: skip


def index_batches(
    scan: HeaderScan, *, start: int, base_offset: int, interval: int, state: IndexState
) -> IndexEntries | None:
    """The entries for version 2 batches whose first stands at `start`; None if a batch among them cannot be indexed.

    Then offsets go back, or leave the 31 bits above the base offset, and the readable path says which.
    """
    count = len(scan.rows)
    rows, positions = np.ascontiguousarray(scan.rows), np.ascontiguousarray(scan.positions)
    offsets, times = np.empty(count * _OFFSET_ENTRY, np.uint8), np.empty(count * _TIME_ENTRY, np.uint8)
    taken, offsets_size, times_size, *new = write_entries(
        rows.ctypes.data, positions.ctypes.data, count, start, base_offset, interval, *state,
        offsets.ctypes.data, times.ctypes.data,
    )  # fmt: skip
    if taken < count:
        return None
    return IndexEntries(offsets.data[:offsets_size], times.data[:times_size], IndexState(*new))
