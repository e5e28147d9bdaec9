"""Workloads of the crash campaign: settings, and steps that are legal whatever came before them.

A step is a list that JSON can hold: a name and numbers. Steps that need something (a transaction to end, offsets to
truncate) make the best of what there is, so a workload stays one when steps are taken out of it.

    ["append", records, size, codec]      a plain batch, as a leader
    ["produce", producer, records]        a batch of an idempotent producer; ["again", producer] sends its last again
    ["txn", producer, records]            a batch of a transaction; ["end", producer, is_commit] ends it
    ["fence", producer]                   its next batch comes with the next producer epoch
    ["follow", batches, gap]              batches of a leader in one buffer, some offsets further on
    ["roll"] ["flush"] ["tick"] ["wait", seconds]
    ["truncate", back] ["begin", ahead]   truncate_to that many offsets before the end; truncate_fully_and_start_at
    ["delete", forward] ["retain"]        delete_records that many offsets behind the start; delete_old_segments
    ["lead"] ["id"]                       assign_epoch_start_offset at the log end; assign_topic_id
    ["checkpoint"]                        what LogManager does every minute
    ["stop"] ["kill"] ["crash", n]        close and open cleanly; open again without a close; lose the power
"""

from random import Random
from typing import Any, NamedTuple

Step = list[Any]

PLAIN_PRODUCERS, TXN_PRODUCERS = (1, 2), (11, 12, 13)
CODECS = (0, 0, 0, 1, 2, 3, 4)


class Workload(NamedTuple):
    """Settings and steps. `salt` decides on what each crash leaves."""

    settings: dict[str, Any]
    steps: list[Step]
    salt: str


_WEIGHTS = {
    "append": 14, "produce": 10, "again": 1, "txn": 12, "end": 8, "fence": 1, "follow": 4, "roll": 4, "flush": 7,
    "tick": 6, "wait": 3, "truncate": 4, "begin": 1, "delete": 3, "retain": 3, "lead": 3, "id": 1, "checkpoint": 6,
    "stop": 2, "kill": 2, "crash": 3,
}  # fmt: skip


def random_workload(seed: int, number: int, *, unordered: bool = False) -> Workload:
    """A workload that depends on the two numbers alone."""
    rng = Random(f"crashes {seed} {number}")
    settings = {
        "segment_bytes": rng.choice((700, 1200, 2500, 6000)),
        "index_interval_bytes": rng.choice((0, 100, 300, 1000)),
        "segment_index_bytes": rng.choice((36, 100, 1024)),
        "preallocate": rng.random() < 0.35,
        "flush_messages": rng.choice((2**63 - 1, 2**63 - 1, 1, 7)),
        "segment_ms": rng.choice((600_000, 7 * 86_400_000)),
        "segment_jitter_ms": rng.choice((0, 60_000)),
        "retention_bytes": rng.choice((-1, -1, 1500)),
        "file_delete_delay_ms": rng.choice((60_000, 60_000, 0)),
        "has_files": rng.random() < 0.5,  # checkpoints are files of the root, or somebody remembers them
        "unordered": unordered,
    }
    names = list(_WEIGHTS)
    # A workload has moods: some kinds of steps come more often in it, some never.
    weights = [_WEIGHTS[name] * rng.choice((0, 1, 1, 2)) for name in names]
    weights[0] = max(weights[0], 5)
    chosen = rng.choices(names, weights, k=rng.randint(4, 45))
    return Workload(settings, [_step(name, rng) for name in chosen], f"{seed}.{number}")


def _step(name: str, rng: Random) -> Step:
    if name == "append":
        return [name, rng.randint(1, 4), rng.choice((0, 5, 40, 200, 400)), rng.choice(CODECS)]
    if name in ("produce", "again"):
        producer = rng.choice(PLAIN_PRODUCERS)
        return [name, producer, rng.choice((1, 1, 2, 5))] if name == "produce" else [name, producer]
    if name == "txn":
        return [name, rng.choice(TXN_PRODUCERS), rng.choice((1, 1, 2, 4))]
    if name == "end":
        return [name, rng.choice(TXN_PRODUCERS), rng.random() < 0.5]
    if name == "fence":
        return [name, rng.choice((*PLAIN_PRODUCERS, *TXN_PRODUCERS))]
    if name == "follow":
        return [name, rng.randint(1, 4), rng.choice((0, 0, 0, 3))]
    if name in ("truncate", "delete"):
        return [name, rng.choice((0, 1, 2, 3, 5, 8, 20))]
    if name == "begin":
        return [name, rng.choice((-5, 0, 1, 50))]
    if name == "wait":
        return [name, rng.choice((1, 61, 400, 1300))]
    if name == "crash":
        return [name, rng.randint(0, 999)]
    return [name]


_PLAIN: dict[str, Any] = {
    "segment_bytes": 900, "index_interval_bytes": 100, "segment_index_bytes": 100, "preallocate": False,
    "flush_messages": 2**63 - 1, "segment_ms": 600_000, "segment_jitter_ms": 0, "retention_bytes": -1,
    "file_delete_delay_ms": 60_000, "has_files": False, "unordered": False,
}  # fmt: skip
_SMALL_SEGMENTS = {"segment_bytes": 300}

_ONE: Step = ["append", 1, 40, 0]
_LARGE: Step = ["append", 1, 400, 0]
_ROLL: Step = ["roll"]
_FLUSH: Step = ["flush"]
_TICK: Step = ["tick"]
_CHECKPOINT: Step = ["checkpoint"]
_STOP: Step = ["stop"]
_DELETE_FILES: list[Step] = [["wait", 61], _TICK]


def _txn(producer: int) -> Step:
    return ["txn", producer, 2]


def _abort(producer: int) -> Step:
    return ["end", producer, False]


# What a mistake would break, each in a few steps; the last ones are what random workloads have found, made small.
_SCRIPTS: dict[str, tuple[dict[str, Any], list[Step]]] = {
    "append and flush": ({}, [["id"], *([_ONE, _FLUSH] * 8), _CHECKPOINT, _STOP]),
    "rolls by size": ({}, [*([["append", 3, 100, 0]] * 9), _TICK, _CHECKPOINT, *([["append", 2, 200, 4]] * 5)]),
    "rolls by time": ({}, [*([_ONE, ["wait", 1300]] * 2), _ONE, _TICK, _CHECKPOINT, ["wait", 1300], _ONE]),
    "rolls by a full index": (
        {"segment_index_bytes": 24, "index_interval_bytes": 0},
        [_ONE, ["append", 1, 0, 0], *([["append", 1, 40, 3]] * 8), _FLUSH, _ONE],
    ),
    "a roll when all is flushed": (
        {"preallocate": True, "has_files": True},
        [*([_LARGE, _FLUSH, _CHECKPOINT] * 2), _ROLL, _ONE, _TICK, _STOP, _LARGE, _LARGE],
    ),
    "transactions": (
        {},
        [
            *(_txn(11), _txn(12), _ONE, _abort(11), _txn(13), _ROLL, ["end", 12, True], _txn(11), _FLUSH, _CHECKPOINT),
            *(_abort(13), _abort(11), ["fence", 11], _txn(11), _ROLL, _TICK, _abort(11), ["crash", 1]),
            *(_txn(12), _abort(12)),
        ],
    ),
    "truncation, then other batches of the same size": (
        {},
        [
            *(["lead"], *[_ONE] * 6, _FLUSH, _CHECKPOINT, ["lead"], *[_ONE] * 6, _FLUSH),
            *(["truncate", 5], *[_ONE] * 5, _FLUSH, ["truncate", 8], ["lead"], *[["produce", 1, 1]] * 9, _TICK),
        ],
    ),
    "truncation of whole segments": (
        _SMALL_SEGMENTS,
        [
            *(*[["produce", 1, 1]] * 10, _FLUSH, _CHECKPOINT, ["truncate", 7], *[["produce", 2, 1]] * 6),
            *(["truncate", 20], _ONE, *_DELETE_FILES),
        ],
    ),
    "a log begun anew": (
        _SMALL_SEGMENTS,
        [
            *(*[_txn(11)] * 4, _FLUSH, _CHECKPOINT, ["begin", 50], _ONE, _FLUSH),
            *(["begin", -5], _ONE, ["begin", 0], _ROLL, _ONE, *_DELETE_FILES),
        ],
    ),
    "deletion": (
        _SMALL_SEGMENTS,
        [
            *(*[["produce", 1, 1]] * 8, ["delete", 5], _FLUSH, ["retain"], _CHECKPOINT, *_DELETE_FILES),
            *(*[["produce", 2, 1]] * 4, ["delete", 20], ["retain"], _ONE, *_DELETE_FILES, _STOP),
        ],
    ),
    "crash after crash": (
        {"preallocate": True},
        [
            *(*[["append", 1, 200, 0]] * 4, ["crash", 1]),
            *(*[["append", 1, 200, 0]] * 4, ["crash", 2]),
            *(["append", 1, 200, 0], _FLUSH, ["crash", 4], ["append", 1, 200, 0], ["kill"], _ONE),
        ],
    ),
    "clean stops": (
        {"preallocate": True, "has_files": True},
        [
            *(["id"], _txn(11), _STOP, _LARGE, _abort(11), _STOP, _LARGE, _LARGE, _ROLL, _STOP),
            *(["produce", 1, 2], _STOP, _STOP),
        ],
    ),
    "a follower": (
        {},
        [
            *(["follow", 3, 0], ["follow", 2, 3], ["lead"], ["follow", 4, 0], ["truncate", 3], ["follow", 2, 0]),
            *(_FLUSH, ["follow", 3, 5]),
        ],
    ),
    "the offset of a batch ends with a sector": (
        {"segment_bytes": 1200}, [_ONE, *([_ROLL, ["append", 1, 430, 0], _FLUSH, ["append", 1, 5, 0]] * 8)]
    ),
    "the flush of a roll comes behind a truncation": ({}, [_txn(12), _ROLL, ["truncate", 5], _TICK, _ONE, ["lead"]]),
    "an empty segment is rolled": ({}, [["lead"], _ROLL, _txn(12), ["begin", 9], _FLUSH, _ROLL, _ROLL, _ONE, _ONE]),
    "an empty segment is rolled, preallocated": (
        {"preallocate": True}, [_ROLL, _ONE, ["begin", 5], _FLUSH, _ROLL, _ROLL]
    ),
    "more batches than an index has room for": (
        {"segment_index_bytes": 36, "index_interval_bytes": 0},
        [["follow", 6, 0], ["follow", 6, 0], _FLUSH, ["follow", 6, 0], ["kill"]],
    ),
    "deletion of what was never flushed": (
        _SMALL_SEGMENTS,
        [*[["produce", 1, 1]] * 5, ["delete", 4], _FLUSH, _CHECKPOINT, ["retain"], ["lead"], _ONE, _TICK],
    ),
    "snapshots of what was cut": (
        {},
        [*[["produce", 1, 1]] * 3, _ROLL, ["produce", 1, 1], _FLUSH, ["truncate", 2], *[["produce", 2, 1]] * 3, _FLUSH],
    ),
    "epochs behind a truncation": (
        {}, [["lead"], _ONE, _FLUSH, ["lead"], _ONE, ["lead"], _ONE, ["truncate", 2], _FLUSH, _ONE, _ONE, _ONE, _FLUSH]
    ),
}  # fmt: skip


def scripted_workloads(*, unordered: bool = False) -> dict[str, Workload]:
    """The workloads that are written by hand, by name."""
    return {
        name: Workload({**_PLAIN, **settings, "unordered": unordered}, steps, name)
        for name, (settings, steps) in _SCRIPTS.items()
    }
