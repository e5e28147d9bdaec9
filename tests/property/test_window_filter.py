"""Compaction by kernels is compaction in words: the same map, the same bytes, the same counts, the same errors."""

import functools
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.compaction_pair import NOW, CompactionPair, Plan, batches_of
from tests.property.hostile import Cases
from tests.property.strategies import record_batches
from tidelog.errors import InvalidRequestError
from tidelog.kernels import compaction_runs
from tidelog.kernels.bodies import Bodies, open_bodies
from tidelog.kernels.headers import HeaderScan
from tidelog.log.compaction import offset_map, window_filter
from tidelog.log.compaction.record_filter import FilterCounts, FilterRules
from tidelog.records import (
    BatchAttributes,
    BatchBuilder,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    NewRecord,
    TimestampType,
    build_end_txn_marker,
    empty_batch,
)

PAIR = CompactionPair()
KEYS = [None, b"", *(b"key-%d" % number for number in range(6)), b"k" * 63, b"k" * 64, b"long" * 70]
VALUES = [None, b"", b"v", b"value" * 8, b"v" * 63, b"v" * 64, b"v" * 3000]
TIMES = [-1, 0, NOW, NOW + 1, NOW - 70, NOW + 9000, 2**62, 2**63 - 1]
NAMES = ["", "trace", "n" * 64, "h\u00e9"]


def some_record(rng: random.Random) -> NewRecord:
    headers: tuple[Header, ...] = ()
    if rng.random() < 0.2:
        headers = tuple(Header(rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.choice((1, 2, 5))))
    return NewRecord(rng.choice(KEYS), rng.choice(VALUES), rng.choice(TIMES), headers)


def some_batch(rng: random.Random, offset: int) -> bytes:
    """A batch from `offset` on: data of any kind, what compaction left of some, or a marker."""
    kind = rng.random()
    producer: dict[str, Any] = {}
    if rng.random() < 0.5:
        producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": rng.choice((0, 2**31 - 1))}
    if kind < 0.1:
        marker = EndTxnMarker(rng.choice((ControlType.COMMIT, ControlType.ABORT)), 3)
        return bytes(build_end_txn_marker(marker, producer_id=7, producer_epoch=1, timestamp_ms=NOW, offset=offset))
    if kind < 0.2:
        attributes = BatchAttributes(Codec.NONE, TimestampType.LOG_APPEND_TIME, is_transactional=bool(producer))
        last = offset + rng.randrange(9)
        empty = empty_batch(
            base_offset=offset, last_offset=last, max_timestamp_ms=NOW, attributes=attributes, **producer
        )
        return bytes(empty)
    by_broker = rng.random() < 0.2
    builder = BatchBuilder(
        base_offset=offset,
        codec=rng.choice([Codec.NONE] * 5 + list(Codec)),
        timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
        log_append_time_ms=NOW if by_broker else -1,
        partition_leader_epoch=rng.choice((-1, 67)),
        is_transactional=bool(producer) and rng.random() < 0.5,
        delete_horizon_ms=rng.choice((None, None, None, NOW - 1, NOW, NOW + 1)),
        **producer,
    )
    for _ in range(rng.choice((1, 2, 3, 10, 200))):
        builder.append(some_record(rng), builder.next_offset + rng.choice((0, 0, 0, 0, 1, 100, 2**20)))
    return bytes(builder.build(last_offset=builder.next_offset - 1 + rng.choice((0, 0, 3))))


def some_window(rng: random.Random) -> bytes:
    offset = rng.choice((0, 0, 1000, 2**40))
    batches = []
    for _ in range(rng.choice((1, 3, 8))):
        batches.append(some_batch(rng, offset))
        offset += 300 * 2**20
    return b"".join(batches)


def judge(data: bytes, seed: int) -> str:
    return PAIR.judge(data, Plan.of(random.Random(seed), batches_of(PAIR.window(data))))


@pytest.mark.parametrize("seed", range(8))
def test_windows_of_sound_batches_come_out_the_same(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = Counter(judge(some_window(rng), rng.randrange(2**32)) for _ in range(60))
    assert outcomes == {"bytes": 60}


@pytest.mark.parametrize("seed", range(3))
def test_bodies_that_are_opened_a_few_at_a_time_come_out_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_runs, "open_bodies", functools.partial(open_bodies, budget=500))
    rng = random.Random(100 + seed)
    assert {judge(some_window(rng), rng.randrange(2**32)) for _ in range(40)} == {"bytes"}


def test_batches_that_only_the_readable_path_can_open_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none that we know of."""
    rng = random.Random(11)

    def refuse_some(data: Any, scan: HeaderScan) -> Bodies:
        bodies = open_bodies(data, scan)
        refused = rng.randrange(len(scan.rows) + 2)
        return bodies if refused >= len(bodies.table) else bodies.pick(slice(refused))._replace(broken=refused)

    monkeypatch.setattr(compaction_runs, "open_bodies", refuse_some)
    assert {judge(some_window(rng), rng.randrange(2**32)) for _ in range(60)} == {"bytes"}


def test_a_batch_of_very_many_records_comes_out_the_same() -> None:
    rng = random.Random(5)
    builder = BatchBuilder(codec=Codec.LZ4)
    for _ in range(10_000):  # more than the kernels look at together
        builder.append(NewRecord(rng.randbytes(2), rng.choice((None, b"v", b"v")), NOW))
    assert {judge(bytes(builder.build()), seed) for seed in range(3)} == {"bytes"}


def test_sound_batches_are_not_left_to_the_readable_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be right, and a hundred times slower."""
    monkeypatch.setitem(globals(), "NAMES", ["plain"])
    calls: list[object] = []
    monkeypatch.setattr(window_filter, "filter_batch", lambda *args: calls.append(args))
    monkeypatch.setattr(offset_map, "map_batch", lambda *args: calls.append(args))
    rng, counts = random.Random(7), FilterCounts()
    for _ in range(40):
        window, table = PAIR.window(some_window(rng)), offset_map.TableOffsetMap(100_000)
        ones = np.ones(len(window), np.uint8)
        offset_map.map_window(table, window, ones, 0)
        window_filter.filter_window(window, ones, ones, table, FilterRules(2**62, NOW, 1000, False), counts)
    assert counts.records_read > counts.records_kept > 0
    assert calls == []


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_there_is_one_decision_a_batch(counts: tuple[int, int]) -> None:
    window = PAIR.window(some_batch(random.Random(1), 0) * 2)
    fates, marks = (np.ones(count, np.uint8) for count in counts)
    table, rules = offset_map.TableOffsetMap(10), FilterRules(0, NOW, 0, False)
    with pytest.raises(InvalidRequestError, match="about 2 batches"):
        window_filter.filter_window(window, fates, marks, table, rules, FilterCounts())


@settings(max_examples=150)
@given(st.lists(record_batches, max_size=5).map(b"".join), st.integers(0, 2**32))
def test_windows_of_any_batches_come_out_the_same(data: bytes, seed: int) -> None:
    judge(data, seed)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_batches_come_out_the_same_or_raise_the_same_error(seed: int) -> None:
    cases = Cases(seed)
    outcomes = Counter(judge(cases[number], number) for number in range(1000))
    assert outcomes["bytes"] > 200
    assert outcomes["InvalidRecordError"] > 50
    assert outcomes["DecompressionError"] > 5
