"""Workloads of compaction: settings, and steps that are legal whatever came before them.

A workload is settings and steps, as JSON can hold them:

    ["put", records, codec]                 a plain batch; a record is [key, size], either may be None
    ["produce", producer, records, codec]   a batch of an idempotent producer
    ["txn", producer, records, codec]       a batch of a transaction; ["end", producer, is_commit] ends it
    ["fence", producer]                     its next batch, or marker, comes with the next producer epoch
    ["roll"] ["wait", ms] ["delete", forward]
    ["open", is_clean]                      close and open, or open as after a crash
    ["round", capacity, lag]                clean with a map of so many keys, the high watermark so many batches behind
"""

from random import Random
from typing import Any, NamedTuple

PLAIN_PRODUCERS, TXN_PRODUCERS = (1, 2), (11, 12)
FULL = 1000  # keys: more than there are

Step = list[Any]


class Workload(NamedTuple):
    """The config of a log by name, and what is done to it."""

    settings: dict[str, Any]
    steps: list[Step]


_WEIGHTS = {
    "put": 10, "produce": 6, "txn": 8, "end": 6, "fence": 1, "roll": 5, "wait": 3, "delete": 1, "open": 1, "round": 6,
}  # fmt: skip


def random_workload(seed: int, number: int) -> Workload:
    """A workload that depends on the two numbers alone."""
    rng = Random(f"compaction {seed} {number}")
    unkeyed = rng.random() < 0.3
    settings = {
        "segment_bytes": rng.choice((700, 700, 1500, 6000)),
        "index_interval_bytes": rng.choice((0, 100, 4096)),
        "segment_index_bytes": rng.choice((60, 1024)),
        "cleanup_policy": ("delete",) if unkeyed else ("compact",),  # a compacted topic takes nothing without a key
        "message_timestamp_type": rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "compression_type": rng.choice(("producer", "producer", "producer", "gzip")),
        "delete_retention_ms": rng.choice((0, 1000, 60_000)),
        "min_compaction_lag_ms": rng.choice((0, 0, 0, 500)),
        "preallocate": rng.random() < 0.2,
        "file_delete_delay_ms": rng.choice((0, 1000)),
    }
    keys = rng.choice((2, 6, 20))
    names = list(_WEIGHTS)
    weights = [_WEIGHTS[name] * rng.choice((0, 1, 1, 2)) for name in names]
    weights[0], weights[-1] = max(weights[0], 5), max(weights[-1], 4)
    steps: list[Step] = []
    for name in [*rng.choices(names, weights, k=rng.randint(5, 50)), "round"]:
        if name == "round" and rng.random() < 0.7:  # or little can be cleaned
            steps += [["end", producer, rng.random() < 0.5] for producer in TXN_PRODUCERS]
        steps.append(_step(name, rng, keys, unkeyed))
    return Workload(settings, steps)


def _step(name: str, rng: Random, keys: int, unkeyed: bool) -> Step:
    if name in ("put", "produce", "txn"):
        records = [
            [None if unkeyed and rng.random() < 0.2 else rng.randrange(keys), rng.choice((None, 0, 5, 5, 30))]
            for _ in range(rng.choice((1, 1, 2, 5)))
        ]
        who = [] if name == "put" else [rng.choice(PLAIN_PRODUCERS if name == "produce" else TXN_PRODUCERS)]
        return [name, *who, records, rng.choice((0, 0, 0, 1, 2, 3, 4))]
    if name in ("end", "fence"):
        return [name, rng.choice(TXN_PRODUCERS), rng.random() < 0.5][: 3 if name == "end" else 2]
    if name == "wait":
        return [name, rng.choice((1, 400, 1000, 60_000))]
    if name == "delete":
        return [name, rng.choice((1, 5, 20))]
    if name == "open":
        return [name, rng.random() < 0.5]
    return [name, rng.choice((1, 2, 5, 1000, 1000)), rng.choice((0, 0, 0, 2))] if name == "round" else [name]
