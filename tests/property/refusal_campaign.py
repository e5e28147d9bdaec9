"""What the refusal campaigns share: every refusal that a workload can meet, a sample of them, and one case again."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar

from tests.property.crash_disk import WatchedDisk
from tests.property.refusing_disk import OPERATIONS, Refusal, Refuser, sample

Workload = TypeVar("Workload")


class RefusedRun(Protocol):
    """A workload one call of which is refused."""

    refuser: Refuser
    outcomes: Counter[str]

    @property
    def disk(self) -> WatchedDisk: ...

    def run(self) -> None:
        """Run it. Raises an AssertionError if something does not hold."""


def refusals_of(workload: Workload, refuse: Callable[[Workload, Refusal], RefusedRun]) -> list[Refusal]:
    """Every refusal that a workload can meet: it is run once for each error, without one, to count the calls."""
    found: list[Refusal] = []
    for error in OPERATIONS:
        calls = refuse(workload, Refusal(error, 0)).refuser.calls
        found += [Refusal(error, number, lasts) for number in range(1, calls + 1) for lasts in (False, True)]
    return found


def judge_refusals(
    kind: str,
    seed: int,
    cases: int,
    per_workload: int,
    workload_of: Callable[[int, int], Workload],
    refuse: Callable[[Workload, Refusal], RefusedRun],
) -> Counter[str]:
    """Judge refusals of random workloads until there were so many. The first failure is raised."""
    done: Counter[str] = Counter()
    number = 0
    while done[kind] < cases:
        workload = workload_of(seed, number)
        every = refusals_of(workload, refuse)
        rng = Random(f"{kind.replace('-', ' ')} {seed} {number}")
        for refusal in sample(every, min(per_workload, cases - done[kind]), rng):
            done += refuse(workload, refusal).outcomes
            done[kind] += 1
        number += 1
    return done


def replayed(run: RefusedRun) -> str:
    """Judge one case again: the last calls and what did not hold, or the outcomes."""
    try:
        run.run()
    except AssertionError as broken:
        return "\n".join([*run.disk.journal[-25:], *run.refuser.refused, str(broken), ""])
    return f"{run.outcomes}\n"
