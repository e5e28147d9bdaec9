"""Cutting the power at every call: workloads over a log on a simulated disk, and what each crash leaves of it.

A workload runs once (`crash_run`). Behind every call that changes something on the disk, the disk is asked what a crash
at this moment would leave; that image is opened and judged (`crash_judge`), while the workload waits. So every call of
a run is cut at, those of recovery too. What is left of unsynced data is random, from the salt of the workload and the
number of the call.

    run(seed, cuts)              judges random workloads until there were so many cuts
    run_in_disorder(seed, cuts)  the same on a disk that does not keep directory changes in order
    python -m tests.property.crashes '<json>'    one case again, as a failure prints it
"""

import json
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from tests.property.crash_disk import WatchedDisk
from tests.property.crash_judge import Broken, Expectation, judge
from tests.property.crash_run import Run
from tests.property.crash_steps import Workload, random_workload
from tidelog.testing.disk import PowerLost


class Failure(AssertionError):
    """A cut after which something did not hold, with the line that shows it again."""

    def __init__(self, broken: Broken, run: Run, variant: int) -> None:
        self.kind = broken.kind
        self.workload = run.workload._replace(steps=run.workload.steps[: run.step + 1])
        self.cut = run.cuts
        case = {**self.workload._asdict(), "cut": run.cuts, "variant": variant}
        command = f"python -m tests.property.crashes '{json.dumps(case, separators=(',', ':'))}'"
        super().__init__(f"{broken}\n  cut {run.cuts}, in step {run.step + 1}: {self.workload.steps[-1:]}\n  {command}")


def cut_everywhere(
    workload: Workload, variants: int = 1, from_step: int = -1, watched: type[WatchedDisk] = WatchedDisk
) -> int:
    """Run a workload and judge every cut; how many there were. Raises Failure at the first that does not hold."""
    variant = 0

    def on_cut(run: Run) -> None:
        nonlocal variant
        if run.step >= from_step:
            expected = run.expectation()
            for variant in range(variants):
                judge_image(run, expected, variant)

    run = Run(workload, on_cut, watched)
    try:
        run.run()
    except Broken as broken:
        raise Failure(broken, run, variant) from broken
    return run.cuts * variants


def judge_image(run: Run, expected: Expectation, variant: int = 0) -> None:
    """Judge what a crash at this moment leaves."""
    rng = run.image_rng(variant)
    judge(run.disk.after_crash(rng), expected, run.config, run.clock.now_ms(), rng)


def run(seed: int, cuts: int, *, unordered: bool = False) -> Counter[str]:
    """Judge random workloads until there were so many cuts. The first failure is raised, made small."""
    done: Counter[str] = Counter()
    kind = "disorder-cuts" if unordered else "cuts"
    while done[kind] < cuts:
        try:
            done[kind] += cut_everywhere(random_workload(seed, done["workloads"], unordered=unordered))
        except Failure as failure:
            smallest = shrunk(failure)
            raise AssertionError(f"seed {seed}, workload {done['workloads']}: {failure}\nsmaller: {smallest}") from None
        done["workloads"] += 1
    return done


def run_in_disorder(seed: int, cuts: int) -> Counter[str]:
    """The same on a disk that keeps no order among directory changes."""
    return run(seed, cuts, unordered=True)


def shrunk(failure: Failure, attempts: int = 300, watched: type[WatchedDisk] = WatchedDisk) -> Failure:
    """The same kind of failure from fewer steps, as far as single steps can be spared."""
    smallest, number = failure, len(failure.workload.steps) - 2
    while number >= 0 and attempts:
        attempts -= 1
        steps = smallest.workload.steps
        fewer = smallest.workload._replace(steps=[*steps[:number], *steps[number + 1 :]])
        number -= 1
        try:
            cut_everywhere(fewer, variants=6, from_step=len(fewer.steps) - 2, watched=watched)
        except Failure as another:
            if another.kind == failure.kind:
                smallest, number = another, len(another.workload.steps) - 2  # what was needed may be so no longer
    return smallest


def cut_at(workload: Workload, cut: int, variant: int = 0) -> Run:
    """Run a workload to where the power really goes, with the call behind a cut; what that leaves is judged."""

    def on_cut(run: Run) -> None:
        if run.cuts == cut:
            run.disk.cut_at(run.disk.calls + 1)

    run = Run(workload, on_cut)
    with suppress(PowerLost):
        run.run()
    judge_image(run, run.expectation(), variant)
    return run


def replay(case: dict[str, Any]) -> str:
    """Judge one case again; what the disk was told before the cut, and what is wrong."""
    workload = Workload(case["settings"], case["steps"], case["salt"])
    told: list[str] = []

    def on_cut(run: Run) -> None:
        if run.cuts == case["cut"]:
            told.extend(run.disk.journal[-25:])
            judge_image(run, run.expectation(), case["variant"])

    try:
        Run(workload, on_cut).run()
    except Broken as broken:
        told.append(str(broken))
    return "\n".join([*told, ""])


if __name__ == "__main__":
    sys.stdout.write(replay(json.loads(sys.argv[1])))
