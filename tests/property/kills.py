"""Real kill -9 of a process that appends, compacts, truncates, rolls, deletes and moves, on a real disk.

Each kill has a directory and a workload of its own. The process says after every step that it is done, and is killed at
a random moment of a random step. Then its directory is opened here and judged as in `manager_crashes`: every batch
whose append had returned is there exactly once, or was let go by the rules of its log; every key has its last committed
value; no sequence goes back; fsck finds no error, before and after.

    run(seed, cases)    so many kills
    python -m tests.property.kills <seed> <number>    one workload again; the moment of the kill is another one
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.property.manager_crashes import Broken, judge
from tests.property.manager_run import Workload, random_workload
from tests.property.real_runs import Course, DiskBelow, RealRun, for_one_process, make_roots

_A_STEP_TAKES_MS = 8  # about: the process is killed within a step


class Killed(AssertionError):
    """What a kill has left is not right."""


def kill(workload: Workload, directory: Path, rng: Random) -> int:
    """Do a workload in another process until it is killed; how many steps it had done."""
    last = rng.randrange(len(workload.steps))
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        _work(workload, directory, writing)
    os.close(writing)
    done = 0
    with os.fdopen(reading, "rb", buffering=0) as said:
        while done < last and (steps := said.read(1)):
            done += len(steps)
        time.sleep(rng.random() * _A_STEP_TAKES_MS / 1000)  # into the next step: nothing is waited for
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        done += len(said.read())
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise Killed(f"the process failed by itself, in step {done + 1}: {workload.steps[done]}")
    return done


def _work(workload: Workload, directory: Path, writing: int) -> None:
    """Do a workload, and never come back."""
    code = 1
    try:
        RealRun(workload, directory, lambda _: say_step(writing)).run()
        code = 0
    finally:
        os._exit(code)  # nothing of the process that was forked is run here, its error handlers neither


def say_step(writing: int) -> None:
    """Say that a step is done."""
    os.write(writing, b".")


def kill_and_judge(seed: int, number: int, directory: Path) -> int:
    """One kill; how many steps had been done."""
    workload = for_one_process(random_workload(seed, number))
    course = Course(workload)
    rng = Random(f"kill {seed} {number}")
    make_roots(directory)
    done = kill(workload, directory, rng)
    try:
        judge(course.interrupted(done), DiskBelow(directory), rng, is_power_loss=False)
    except Broken as broken:
        raise Killed(
            f"{broken}\n  killed in step {done + 1}: {workload.steps[done:][:1]}\n"
            f"  python -m tests.property.kills {seed} {number}"
        ) from broken
    return done


def run(seed: int, cases: int) -> Counter[str]:
    """Kill so many processes and judge what each has left."""
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="tidelog-kills-", ignore_cleanup_errors=True) as home:
        for number in range(cases):
            directory = Path(home) / "killed"
            done["kill-steps"] += kill_and_judge(seed, number, directory)
            done["kills"] += 1
            shutil.rmtree(directory)
    return done


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        for _ in range(20):
            kill_and_judge(int(sys.argv[1]), int(sys.argv[2]), Path(home) / "killed")
            shutil.rmtree(Path(home) / "killed")
