"""A window compacted both ways: batch by batch in plain words, and at once by kernels. Both must say the same.

    plan = Plan.of(rng, data)         what is to be done with the batches of `data`, by chance
    CompactionPair().judge(data, plan)

The bytes lie against a guard page. An error must be the same one; what a half-filled map then holds is not compared.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.property.guard_pages import Guarded
from tidelog.errors import TidelogError
from tidelog.kernels.compaction_runs import Room
from tidelog.kernels.headers import Seen, scan_headers
from tidelog.log.batch_windows import BatchWindow
from tidelog.log.compaction.offset_map import DictOffsetMap, TableOffsetMap, map_batch, map_window
from tidelog.log.compaction.record_filter import Fate, FilterCounts, FilterRules, filter_batch
from tidelog.log.compaction.window_filter import filter_window
from tidelog.records import RecordBatch
from tidelog.records.java import wrap_int64

NOW = 1_700_000_000_000


class Plan(NamedTuple):
    """What is done with a window."""

    wanted: list[int]  # a flag per batch: whether its keys go into the map
    fates: list[Fate]
    marks: list[int]
    start_offset: int
    slots: int
    load_factor: float
    notes: int  # records that the kernels look at together
    rules: FilterRules

    @classmethod
    def of(cls, rng: random.Random, batches: list[RecordBatch]) -> "Plan":
        """A plan for these batches."""
        some_fates = rng.choice(([Fate.LOOK], [Fate.LOOK, Fate.LOOK_RETAIN], list(Fate)))
        offsets = [offset for batch in batches for offset in (batch.base_offset, batch.last_offset)] or [0]
        middle = wrap_int64(rng.choice(offsets) + rng.choice((-1, 0, 0, 1, 2)))
        return cls(
            wanted=[int(not batch.is_control and rng.random() < 0.9) for batch in batches],
            fates=[rng.choice(some_fates) for _ in batches],
            marks=[int(batch.is_control and rng.random() < 0.4) for batch in batches],
            start_offset=rng.choice((0, 0, 0, middle)),
            slots=rng.choice((2, 5, 10, 1000, 1000)),
            load_factor=rng.choice((0.5, 0.9, 1.0, 1.5)),
            notes=rng.choice((1, 5, 100, 8192)),
            rules=FilterRules(
                latest_offset=rng.choice((-1, 2**63 - 1, 2**63 - 1, middle)),
                now_ms=rng.choice((NOW, NOW, 0, 2**41)),
                delete_retention_ms=rng.choice((0, 1000, 86_400_000, 2**63 - 1)),
                retains_legacy_deletes=False,
            ),
        )


class Outcome(NamedTuple):
    """What one way gave, or the error it ended with."""

    value: Any
    error: str | None = None


class CompactionPair:
    """Compacts windows both ways."""

    def __init__(self) -> None:
        self._memory = Guarded(1 << 20)

    def judge(self, data: bytes, plan: Plan) -> str:
        """Compare all there is to compare. The word to count the case under."""
        window = self.window(data)
        batches = batches_of(window)
        readable, fast = DictOffsetMap(plan.slots, plan.load_factor), TableOffsetMap(plan.slots, plan.load_factor)
        fast.room = Room(notes=plan.notes)
        mapped = _attempt(lambda: _map_in_words(readable, batches, plan))
        assert _attempt(lambda: _map_by_kernels(fast, window, plan)) == mapped, plan
        if mapped.error is None:
            assert (fast.size, fast.latest_offset) == (readable.size, readable.latest_offset), plan
            assert all(fast.get(key) == offset for key, offset in readable._offsets.items()), plan
        else:
            readable.clear()
            fast.clear()
        filtered = _attempt(lambda: _filter_in_words(readable, batches, plan))
        assert _attempt(lambda: _filter_by_kernels(fast, window, plan)) == filtered, plan
        return "bytes" if filtered.error is None else filtered.error.partition(":")[0]

    def window(self, data: bytes) -> BatchWindow:
        """The window of these bytes, up to what no kernel takes."""
        view = self._memory.put(data)
        scan = scan_headers(view)
        cut = next((i for i, row in enumerate(scan.rows) if row["magic"] < 2), len(scan.rows))
        if scan.seen & Seen.WRONG_CHECKSUM:  # too small for its own header
            wrong = scan.first_wrong()
            assert wrong is not None
            cut = min(cut, wrong)
        return BatchWindow(view, 0, scan.first(cut))


def batches_of(window: BatchWindow) -> list[RecordBatch]:
    assert window.scan is not None
    batches = [window.scan.batch_in(window.data, index) for index in range(len(window))]
    return [batch for batch in batches if isinstance(batch, RecordBatch)]


def _attempt(action: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(action())
    except TidelogError as error:
        return Outcome(None, f"{type(error).__name__}: {error}")


def _map_in_words(offset_map: DictOffsetMap, batches: list[RecordBatch], plan: Plan) -> tuple[bool, int | None]:
    """Whether the map is full, and the records that were read, where that can be told from outside."""
    records = 0
    for batch, is_wanted in zip(batches, plan.wanted, strict=True):
        if is_wanted:
            if map_batch(offset_map, batch, plan.start_offset):
                return True, None
            records += batch.count
        else:
            if batch.last_offset >= plan.start_offset:
                offset_map.update_latest(batch.last_offset)
            records += 1 if batch.is_control else batch.count
    return False, records


def _map_by_kernels(offset_map: TableOffsetMap, window: BatchWindow, plan: Plan) -> tuple[bool, int | None]:
    result = map_window(offset_map, window, np.array(plan.wanted, np.uint8), plan.start_offset)
    return result.full, None if result.full else result.records


def _filter_in_words(
    offset_map: DictOffsetMap, batches: list[RecordBatch], plan: Plan
) -> tuple[list[bytes], FilterCounts]:
    counts = FilterCounts()
    rests = [
        filter_batch(batch, fate, bool(mark), offset_map, plan.rules, counts)
        for batch, fate, mark in zip(batches, plan.fates, plan.marks, strict=True)
    ]
    return [b"".join(rest for rest in rests if rest is not None)], counts


def _filter_by_kernels(offset_map: TableOffsetMap, window: BatchWindow, plan: Plan) -> tuple[list[bytes], FilterCounts]:
    counts = FilterCounts()
    fates, marks = np.array(plan.fates, np.uint8), np.array(plan.marks, np.uint8)
    rest = filter_window(window, fates, marks, offset_map, plan.rules, counts)
    return [bytes(rest)], counts
