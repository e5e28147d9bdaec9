"""The everyday append and the general one: the same answers, the same bytes, the same state, whatever is sent.

Two logs get the same buffers. One takes the quick way wherever that is willing, with the kernel loaded; the other never
does, and its records are looked at by the readable path or by the kernel.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.property.append_pair import NOW, OTHERS, Batch, Damage, Do, Pair
from tidelog.log import LogConfig
from tidelog.records import Codec

ALWAYS = 2**63 - 1

mostly = st.sampled_from
steps_of_sequence = mostly([0, 0, 0, 0, 0, 0, -1, -2, -4, 1, 5])
damage = st.builds(
    Damage,
    mostly(["byte", "sealed byte", "header", "header", "cut", "longer", "magic", "length", "base offset"]),
    st.integers(0, 400),
    st.integers(1, 255),
)
batches = st.builds(
    Batch,
    producer_id=mostly([-1, -1, 1, 1, 1, 2, 2, 3]),
    epoch_step=mostly([0, 0, 0, 0, 0, 0, 0, -1, 1]),
    sequence_step=steps_of_sequence,
    times=st.lists(mostly([0, 0, 1, 5, -5, -2000, 2000, -NOW - 1]), min_size=1, max_size=4).map(tuple),
    value_size=mostly([0, 3, 3, 30, 200]),
    has_keys=mostly([True, True, False]),
    codec=mostly([Codec.NONE, Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]),
    damage=st.one_of(st.none(), st.none(), st.none(), st.none(), damage),
    is_transactional=mostly([False, False, False, False, False, False, True]),
)
ordinary = st.builds(
    Batch,
    producer_id=mostly([-1, 1, 2, 3]),
    epoch_step=st.just(0),
    sequence_step=st.just(0),
    times=st.lists(st.integers(-3, 3), min_size=1, max_size=4).map(tuple),
    value_size=mostly([3, 30]),
    has_keys=st.just(True),
    codec=st.just(Codec.NONE),
    damage=st.none(),
)
others = st.builds(
    Do,
    mostly(OTHERS),
    st.integers(0, 3000),
)
steps = st.lists(st.one_of(batches, batches, *[ordinary] * 5, others), min_size=1, max_size=30).map(
    lambda todo: todo * 2
)

plain_configs = st.builds(LogConfig, segment_bytes=mostly([700, 100_000]), index_interval_bytes=mostly([0, 100, 4096]))
strange_configs = st.builds(
    LogConfig,
    segment_bytes=mostly([300, 700, 100_000, 100_000]),
    segment_ms=mostly([ALWAYS, 1000, 1]),
    segment_jitter_ms=mostly([0, 500]),
    segment_index_bytes=mostly([24, 4096]),
    index_interval_bytes=mostly([0, 100, 4096]),
    max_message_bytes=mostly([150, 10_000, 10_000]),
    cleanup_policy=mostly([("delete",), ("delete",), ("compact",)]),
    compression_type=mostly(["producer", "producer", "producer", "uncompressed", "gzip", "lz4"]),
    message_timestamp_type=mostly(["CreateTime", "CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=mostly([ALWAYS, ALWAYS, 1000]),
    message_timestamp_after_max_ms=mostly([3_600_000, 1000, ALWAYS]),
    flush_messages=mostly([ALWAYS, 3]),
)
configs = st.one_of(plain_configs, strange_configs)


@settings(max_examples=300, deadline=None)
@given(config=configs, todo=steps, by_kernel=st.booleans())
def test_both_ways_of_appending_do_the_same(config: LogConfig, todo: list[Batch | Do], by_kernel: bool) -> None:
    pair = Pair(config, by_kernel=by_kernel)
    for step in todo:
        pair.do(step)
    pair.stop()
    event("quick" if pair.quick.taken else "never quick")


def a_batch(rng: Random) -> Batch:
    """A batch with at most a few things that are unusual."""

    def seldom(usual: Any, *unusual: Any) -> Any:
        return rng.choice(unusual) if rng.random() < 0.05 else usual

    return Batch(
        producer_id=rng.choice([-1, 1, 2, 3]),
        epoch_step=seldom(0, -1, 1),
        sequence_step=seldom(0, -1, -2, -4, 1, 5),
        times=tuple(seldom(rng.randint(-3, 3), -2000, 2000, -NOW - 1) for _ in range(rng.randint(1, 3))),
        value_size=rng.choice([0, 3, 30]),
        has_keys=seldom(True, False),
        codec=seldom(Codec.NONE, *Codec),
        damage=seldom(
            None, Damage("header", rng.randrange(99), rng.randint(1, 255)), Damage("byte", rng.randrange(99), 1)
        ),
        is_transactional=seldom(False, True),
    )


@pytest.mark.parametrize(
    "topic",
    [
        {},
        {"segment_bytes": 1000, "index_interval_bytes": 200},
        {"cleanup_policy": ("compact",), "segment_index_bytes": 64, "index_interval_bytes": 0},
        {"segment_ms": 2000, "segment_jitter_ms": 500, "flush_messages": 3},
        {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000, "max_message_bytes": 120},
    ],
)
def test_both_ways_do_the_same_on_long_runs_of_ordinary_batches(topic: dict[str, Any]) -> None:
    taken = 0
    for seed in range(15):
        rng = Random(seed)
        pair = Pair(LogConfig(**topic), by_kernel=bool(seed % 2))
        for _ in range(250):
            pair.do(Do(rng.choice(OTHERS), rng.randrange(3000)) if rng.random() < 0.07 else a_batch(rng))
        pair.stop()
        taken += pair.quick.taken
    assert taken > 1000


def an_ordinary(producer_id: int, **changes: Any) -> Batch:
    return Batch(producer_id, 0, 0, (1, 2), 10, True, Codec.NONE, None)._replace(**changes)


def taken_of(todo: list[Batch | Do], config: LogConfig | None = None) -> int:
    """How many batches the quick way takes."""
    pair = Pair(config or LogConfig(), by_kernel=True)
    for step in todo:
        pair.do(step)
    pair.stop()
    return pair.quick.taken


def test_the_quick_way_takes_what_is_ordinary() -> None:
    assert taken_of([an_ordinary(-1)] * 5) == 4  # the first batch of a segment is not ordinary
    assert taken_of([an_ordinary(1)] * 5) == 4  # of a producer that is not known it is not the first


@pytest.mark.parametrize(
    "unusual",
    [
        an_ordinary(1, sequence_step=-2),
        an_ordinary(1, sequence_step=3),
        an_ordinary(1, epoch_step=1, sequence_step=-2),
        an_ordinary(1, codec=Codec.GZIP),
        an_ordinary(1, damage=Damage("byte", 70, 1)),
        an_ordinary(1, damage=Damage("longer", 1, 1)),
        an_ordinary(1, times=(1, 7_200_000)),
        Do("leader epoch"),
    ],
)
def test_the_quick_way_leaves_alone_what_is_unusual(unusual: Batch | Do) -> None:
    before = taken_of([an_ordinary(1)] * 3)
    assert taken_of([*[an_ordinary(1)] * 3, unusual]) == before == 2


def test_the_sequence_begins_again_behind_its_largest_number() -> None:
    # Not the first, and from the one that begins with 0 again on none while larger numbers are remembered.
    assert taken_of([an_ordinary(3)] * 12) == 6


def test_topics_that_stamp_the_time_of_append_have_no_quick_way() -> None:
    append_time = LogConfig(message_timestamp_type="LogAppendTime")
    assert taken_of([an_ordinary(-1)] * 3, append_time) == 0
