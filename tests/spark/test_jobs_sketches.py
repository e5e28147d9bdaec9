"""Summaries against exact counts, and merged ones against those made in one go."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tidelog.spark.jobs.codec_trial import BATCH_SIZES, try_codecs
from tidelog.spark.jobs.sketches import DistinctKeys, HeavyKeys, Sizes, TimeLine


def counted(keys: list[bytes], *, per_call: int = 1_000) -> HeavyKeys:
    """The summary of keys, each of which stands for ten bytes, seen in several calls."""
    found = HeavyKeys()
    for start in range(0, len(keys), per_call):
        some = Counter(keys[start : start + per_call])
        records = np.array(list(some.values()), np.int64)
        found.add(pa.array(list(some), pa.binary()), records, records * 10)
    return found


def skewed(count: int, distinct: int, seed: int = 1) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [b"key-%d" % number for number in rng.zipf(1.2, count) % distinct]


def test_few_keys_are_counted_exactly() -> None:
    keys = skewed(20_000, 3_000)
    found = counted(keys)
    assert found.is_exact
    assert {key: records for key, records, _ in found.top(5_000)} == Counter(keys)
    assert all(size == 10 * records for _, records, size in found.top(10))
    assert [records for _, records, _ in found.top(10)] == sorted(Counter(keys).values(), reverse=True)[:10]


def test_of_many_keys_no_count_is_too_large_nor_further_off_than_it_says() -> None:
    keys = skewed(200_000, 100_000)
    truth = Counter(keys)
    found = counted(keys).trimmed()
    assert not found.is_exact
    assert 0 < found.error < truth.most_common(10)[-1][1] / 5
    told = {key: records for key, records, _ in found.top(1 << 20)}
    assert len(told) <= 4_096
    assert all(truth[key] - found.error <= records <= truth[key] for key, records in told.items())
    assert {key for key, count in truth.items() if count > found.error} <= told.keys()


def test_merged_summaries_keep_the_promise_of_one() -> None:
    keys = skewed(120_000, 60_000)
    truth = Counter(keys)
    parts = [counted(keys[start : start + 20_000]).trimmed() for start in range(0, len(keys), 20_000)]
    found = parts[0]
    for part in parts[1:]:
        found = found.merge(part)
    for key, records, _ in found.top(100):
        assert truth[key] - found.error <= records <= truth[key]


@pytest.mark.parametrize("count", [0, 1, 100, 5_000, 400_000])
def test_the_number_of_different_keys_is_known_to_a_few_percent(count: int) -> None:
    one, two = DistinctKeys(), DistinctKeys()
    keys = [b"customer:%08d" % number for number in range(count)]
    one.add(pa.array(keys[: 3 * count // 4], pa.binary()))
    two.add(pa.array(keys[count // 4 :], pa.binary()))  # half of them are in both
    assert one.merge(two).estimate == pytest.approx(count, rel=0.03)


def test_sizes_keep_their_sum_their_ends_and_about_their_percentiles() -> None:
    rng = np.random.default_rng(2)
    values = (rng.lognormal(5, 2, 50_000)).astype(np.int64)
    one, two = Sizes(), Sizes()
    one.add(values[:20_000])
    two.add(values[20_000:])
    one.merge(two)
    assert (one.count, one.total) == (len(values), values.sum())
    assert (one.smallest, one.largest) == (values.min(), values.max())
    for share in (0.5, 0.95, 0.99):
        assert one.percentile(share) == pytest.approx(np.quantile(values, share), rel=0.1)
    assert sum(count for _, count in one.octaves()) == len(values)
    for begin, count in one.octaves():
        assert count == ((values >= begin) & (values < (2 * begin or 1))).sum()


def test_sizes_that_differ_little_are_drawn_in_finer_classes() -> None:
    sizes = Sizes()
    values = np.arange(100, 130)
    sizes.add(values)
    classes = sizes.classes()
    assert len(classes) >= 3
    assert sum(count for _, _, count in classes) == len(values)
    assert classes[0][0] <= 100 < classes[0][1]
    assert classes[-1][0] <= 129 < classes[-1][1]
    assert [end for _, end, _ in classes[:-1]] == [begin for begin, _, _ in classes[1:]]


@pytest.mark.parametrize("span_ms", [10_000, 10_000_000, 10_000_000_000_000])
def test_a_time_line_loses_nothing_and_stays_small(span_ms: int) -> None:
    rng = np.random.default_rng(3)
    times, sizes = rng.integers(0, span_ms, 30_000), rng.integers(0, 1000, 30_000)
    whole, one, two = TimeLine(), TimeLine(), TimeLine()
    whole.add(times, sizes)
    one.add(times[:100], sizes[:100])
    two.add(times[100:], sizes[100:])
    for line in (whole, one.merge(two)):
        moments = line.moments()
        assert len(moments) <= 2_048
        assert sum(records for _, records, _ in moments) == len(times)
        assert sum(size for _, _, size in moments) == sizes.sum()
        at, records, _ = moments[0]
        assert records == ((times >= at) & (times < at + line.moment_ms)).sum()
    assert whole.moments() == one.moments()


def test_codecs_are_measured_by_what_comes_out() -> None:
    rows = pa.record_batch(
        {
            "key": pa.array([b"k"] * 2_000, pa.binary()),
            "value": pa.array([b'{"item":%d}' % (number % 7) for number in range(2_000)], pa.binary()),
            "timestamp": pa.array(range(2_000), pa.timestamp("ms", "UTC")),
        }
    )
    trial = try_codecs(rows)
    assert trial.records == 2_000
    assert trial.plain == sum(1 + len(value) for value in rows.column("value").to_pylist())
    assert {size for _, size in trial.measured} == set(BATCH_SIZES)
    assert trial.of("zstd", 16_384).size < trial.of("none", 16_384).size / 3
    assert trial.of("zstd", 262_144).size < trial.of("zstd", 1_024).size
    assert trial.kinds == {"json": 200}
    merged = try_codecs(rows).merge(trial)
    assert merged.of("lz4", 4_096).size == 2 * trial.of("lz4", 4_096).size
