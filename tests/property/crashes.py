"""Cutting the power at every call: workloads over a log on a simulated disk, and what each crash leaves of it.

A workload runs once (`crash_run`). Behind every call that changes something on the disk, the disk is asked what a crash
at this moment would leave; that image is opened and judged (`crash_judge`), while the workload waits. So every call of
a run is cut at, those of recovery too. What is left of unsynced data is random, from the salt of the workload and the
number of the call.

    run(seed, cuts)              judges random workloads until there were so many cuts
    survey(seed, cuts)           the same on a disk that does not keep directory changes in order: findings are counted
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


def run(seed: int, cuts: int) -> Counter[str]:
    """Judge random workloads until there were so many cuts. The first failure is raised, made small."""
    done: Counter[str] = Counter()
    while done["cuts"] < cuts:
        try:
            done["cuts"] += cut_everywhere(random_workload(seed, done["workloads"]))
        except Failure as failure:
            smallest = shrunk(failure)
            raise AssertionError(f"seed {seed}, workload {done['workloads']}: {failure}\nsmaller: {smallest}") from None
        done["workloads"] += 1
    return done


def survey(seed: int, cuts: int) -> tuple[Counter[str], dict[str, Failure]]:
    """Count what goes wrong on a disk without order among directory changes, with one example of each kind."""
    done: Counter[str] = Counter()
    examples: dict[str, Failure] = {}

    def on_cut(run: Run) -> None:
        done["disorder-cuts"] += 1
        try:
            judge_image(run, run.expectation())
        except Broken as broken:
            note(run, broken)

    def note(run: Run, broken: Broken) -> None:
        done[f"disorder-{broken.kind.replace(' ', '-')}"] += 1
        examples.setdefault(broken.kind, Failure(broken, run, 0))

    number = 0
    while done["disorder-cuts"] < cuts:
        run = Run(random_workload(seed, number, unordered=True), on_cut)
        number += 1
        try:
            run.run()
        except Broken as broken:  # a crash that was a step of the workload: there is no going on from it
            note(run, broken)
    return done, examples


def count_disorder(seed: int, cuts: int) -> Counter[str]:
    """The counts of a survey."""
    return survey(seed, cuts)[0]


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
