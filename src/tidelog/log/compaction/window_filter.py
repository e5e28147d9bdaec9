"""What compaction leaves of a window of version 2 batches, at memory speed.

The same bytes and counts as `filter_batch`, batch by batch, gives. Batches that are broken or oddly written are left to
it, and so are the errors.
"""

from typing import Any

from tidelog.log.batch_windows import BatchWindow
from tidelog.log.compaction.offset_map import TableOffsetMap
from tidelog.log.compaction.record_filter import Fate, FilterCounts, FilterRules, filter_batch

__all__ = ["filter_window"]


def filter_window(
    window: BatchWindow,
    fates: Any,
    marks: Any,
    offset_map: TableOffsetMap,
    rules: FilterRules,
    counts: FilterCounts,
) -> memoryview:
    """The bytes that take the place of the window's batches; valid until the window or the map is used again.

    `fates` and `marks` are arrays of bytes, one a batch: a `Fate`, and 1 for the marker of a transaction without data.
    """
    from tidelog.kernels.compaction_runs import FilterRun

    scan = window.scan
    assert scan is not None
    run = FilterRun(
        window.data, scan, fates, marks, offset_map.table, offset_map.room,
        latest_offset=rules.latest_offset, now_ms=rules.now_ms, new_horizon_ms=rules.new_horizon_ms,
    )  # fmt: skip
    by_hand = FilterCounts()
    for index in run.odd_batches():
        batch = scan.batch_in(window.data, index)
        rest = filter_batch(batch, Fate(fates[index]), bool(marks[index]), offset_map, rules, by_hand)
        if rest is not None:
            run.put(rest)
    result = run.result()
    counts.add(by_hand)
    counts.add(FilterCounts(bytes_kept=len(result) - by_hand.bytes_kept, **run.counts()._asdict()))
    return result
