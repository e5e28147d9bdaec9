"""Whatever was written to a log and however often it is cleaned, it stays the log that it was.

The model and the checks are in `compaction_model`, what a crash leaves of a round in `crash_compaction`. Each is tried
by the readable path and by kernels, however little there is to do.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property import crash_compaction
from tests.property.compaction_model import CompactionRun, batches_in
from tests.property.compaction_steps import PLAIN_PRODUCERS, TXN_PRODUCERS, Workload, random_workload
from tidelog.log import batch_windows
from tidelog.log.compaction import cleaner

SEEDS = range(25)

PATHS = pytest.mark.parametrize("by", ["readable", "kernels"])

sizes = st.sampled_from([None, 0, 5, 30])
codecs = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
capacities = st.sampled_from([1, 2, 5, 1000, 1000])


def steps_of(unkeyed: bool) -> st.SearchStrategy[list[list[Any]]]:
    keys = st.sampled_from([0, 1, 2, 3, 4, None] if unkeyed else [0, 1, 2, 3, 4])
    records = st.lists(st.tuples(keys, sizes), min_size=1, max_size=4)
    plain, txn = st.sampled_from(PLAIN_PRODUCERS), st.sampled_from(TXN_PRODUCERS)
    step = st.one_of(
        st.tuples(st.just("put"), records, codecs),
        st.tuples(st.just("produce"), plain, records, codecs),
        st.tuples(st.just("txn"), txn, records, codecs),
        st.tuples(st.just("end"), txn, st.booleans()),
        st.tuples(st.just("fence"), txn),
        st.tuples(st.just("roll")),
        st.tuples(st.just("wait"), st.sampled_from([1, 1000, 60_000])),
        st.tuples(st.just("delete"), st.integers(1, 9)),
        st.tuples(st.just("open"), st.booleans()),
        st.tuples(st.just("round"), capacities, st.integers(0, 2)),
    )
    return st.lists(step.map(list), min_size=3, max_size=40)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    unkeyed = draw(st.booleans())
    settings = {
        "segment_bytes": draw(st.sampled_from([700, 2000])),
        "index_interval_bytes": draw(st.sampled_from([0, 100])),
        "segment_index_bytes": 1024,
        "cleanup_policy": ("delete",) if unkeyed else ("compact",),
        "message_timestamp_type": draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
        "delete_retention_ms": draw(st.sampled_from([0, 1000])),
    }
    return Workload(settings, [*draw(steps_of(unkeyed)), ["roll"], ["round", 1000, 0]])


@pytest.fixture
def path(by: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use(by, patch)
        yield


def use(by: str, patch: pytest.MonkeyPatch) -> None:
    """Let rounds go by kernels, or not."""
    if by == "kernels":
        patch.setattr(cleaner, "_KERNEL_FROM", 0)
        patch.setattr(batch_windows, "_KERNEL_FROM", 0)


# -- rounds ------------------------------------------------------------------------------------------------------------


@PATHS
@given(workload=workloads())
def test_a_round_leaves_of_every_key_the_last_value(by: str, workload: Workload) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use(by, patch)
        CompactionRun(workload).run()


@PATHS
@pytest.mark.usefixtures("path")
def test_rounds_over_random_logs_leave_of_every_key_the_last_value_and_come_to_rest() -> None:
    removed = 0
    for number in SEEDS:
        workload = random_workload(1, number)
        run = CompactionRun(workload)
        run.run()
        for producer_id in TXN_PRODUCERS:
            run.do(["end", producer_id, number % 2 == 0])
        run.do(["roll"])
        # One round cleans, a second one stamps the markers of what the first one took and joins what has become small.
        at_once = workload.settings["delete_retention_ms"] == 0  # a tombstone goes with the next round
        assert run.rounds_to_rest() <= (5 if at_once else 2)
        removed += len(run.written) - sum(batch.count for batch in batches_in(run.log) if not batch.is_control)
    assert removed > 300


# -- crashes -----------------------------------------------------------------------------------------------------------

_SETTINGS = {
    "segment_bytes": 700,
    "segment_index_bytes": 1024,
    "index_interval_bytes": 100,
    "cleanup_policy": ("compact",),
}


def _put(*keys: int) -> list[Any]:
    return ["put", [[key, 20] for key in keys], 0]


SCRIPTS = {
    "several groups": Workload(
        {**_SETTINGS, "segment_bytes": 400}, [_put(1, 2, 3, 4, 5), _put(6, 7), ["roll"], _put(1, 2, 3, 4)] * 2
    ),
    "small segments become one": Workload(_SETTINGS, [_put(1, 2), ["roll"], _put(2, 3), ["roll"], _put(3, 1)]),
    "tombstones whose time is up": Workload(
        {**_SETTINGS, "delete_retention_ms": 1000},
        [_put(1, 2, 3), ["put", [[1, None], [2, None]], 0], ["roll"], ["round", 1000, 0], ["wait", 2000], _put(4)],
    ),
    "transactions over segments": Workload(
        _SETTINGS,
        [
            *(["txn", 11, [[1, 5]], 0], ["txn", 12, [[2, 5]], 0], ["produce", 1, [[1, 5], [3, 5]], 1], ["roll"]),
            *(["txn", 12, [[3, 5]], 0], ["end", 12, False], ["roll"], ["txn", 11, [[2, 5]], 0], ["end", 11, True]),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_whatever_a_crash_leaves_of_a_round_is_the_log_before_it_or_behind_it(name: str) -> None:
    assert crash_compaction.cut_everywhere(SCRIPTS[name]) > 30


def test_so_it_is_on_a_disk_that_keeps_no_order_among_names() -> None:
    assert crash_compaction.cut_everywhere(SCRIPTS["small segments become one"], unordered=True) > 30


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_refuses_anything_in_a_round_costs_nothing(for_good: bool) -> None:
    workload = SCRIPTS["transactions over segments"]
    assert crash_compaction.fail_everywhere(workload, 3, for_good=for_good) > 10


def test_a_round_that_is_given_up_leaves_what_is_done_and_nothing_half_done() -> None:
    assert crash_compaction.abandon_everywhere(SCRIPTS["several groups"]) > 5


def test_random_rounds_survive_as_well() -> None:
    done = crash_compaction.run(seed=7, cuts=1, every=20)
    assert min(done.values()) > 0
