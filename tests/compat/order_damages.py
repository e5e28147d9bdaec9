"""Damage to the order of a metadata log, each with a name: sound batches that stand in the wrong place.

ORDER_DAMAGES["a late batch of the metadata log again near the start of its segment"](roots, random.Random(5))
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.compat.file_damages import put
from tests.compat.record_damages import METADATA, RECORD_DAMAGES
from tidelog.records import read_batches

Roots = Sequence[Path]
Damage = Callable[[Roots, random.Random], object]
AT_END = 1 << 30
EARLIER_EPOCH = 0


def repeats(number: int, at: int, *, moved: bool = False) -> Damage:
    """A batch of the active segment stands before another one, too, or only there."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        path = max((roots[0] / METADATA).glob("*.log"))
        batches = [bytes(batch.buffer) for batch in read_batches(path.read_bytes())]
        batch = batches.pop(number) if moved else batches[number]
        batches.insert(at, batch)
        put(path, b"".join(batches))

    return hurt


def ends_snapshot(back: int, epoch: int | None = None) -> Damage:
    """The newest snapshot gets another end offset, so far before the end of the log."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        *others, path = sorted((roots[0] / METADATA).glob("*.checkpoint"))
        *_, last = read_batches(max((roots[0] / METADATA).glob("*.log")).read_bytes())
        for other in others:
            other.unlink()
        known = int(path.stem[21:31]) if epoch is None else epoch
        path.rename(path.with_name(f"{last.next_offset - back:020}-{known:010}.checkpoint"))

    return hurt


def without_snapshots(roots: Roots, rng: random.Random) -> None:
    for path in (roots[0] / METADATA).glob("*.checkpoint"):
        path.unlink()


def both(first: Damage, second: Damage) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        first(roots, rng)
        second(roots, rng)

    return hurt


NEW_LEADER, NEW_VERSION = (
    RECORD_DAMAGES[name] for name in ("a change of leaders", "kraft.version 0 as a control record")
)
ORDER_DAMAGES: dict[str, Damage] = {
    "a late batch of the metadata log again near the start of its segment": repeats(-3, 1),
    "a late batch of the metadata log again before its successor": repeats(-3, -2),
    "a late batch of the metadata log only near the start of its segment": repeats(-3, 1, moved=True),
    "the last batch of the metadata log but one again at its end": repeats(-2, AT_END),
    "the newest snapshot ends inside of a batch of topics": ends_snapshot(33),
    "the newest snapshot ends after the log": ends_snapshot(-1, EARLIER_EPOCH),
    "a control batch of the metadata log again in the middle": both(NEW_LEADER, repeats(-1, -5)),
    "a control record that a new leader reads again": both(NEW_VERSION, repeats(-2, AT_END)),
    "no snapshots, and a late batch near the start": both(without_snapshots, repeats(-3, 1)),
}  # fmt: skip
