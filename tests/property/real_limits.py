"""A real process that runs out of descriptors, and a real file system that is full, in any step of a LogManager's work.

The work and its judge are those of `manager_refusals`; the disk is the local one. In one step of a workload the process
has only a few descriptors left (RLIMIT_NOFILE), or the file system only a few bytes: a tmpfs of its own, where this
process may mount one. Then there is room again, and the work goes on.

    run(seed, cases)             judges random workloads until there were so many
    python -m tests.property.real_limits '<json>'    one case again, as a failure prints it
"""

import errno
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.property.manager_refusals import Broken, Run, Step, Workload, random_workload
from tests.property.refusing_disk import Refusal
from tidelog.log.local_files import LocalFileSystem
from tidelog.records.checksum import crc32c_of
from tidelog.testing.disk import SimulatedFileSystem

crc32c_of(b"")  # imports what it needs when it is first called, which takes descriptors
_LIMIT = 200  # descriptors: so many are taken away quickly
_SIZE = 4 << 20  # bytes of the file system
_PAGE = 4096


class Limit(NamedTuple):
    """What is short in which step: descriptors or bytes, and how many are left."""

    kind: str
    step: int
    left: int


@contextmanager
def few_descriptors(left: int, _: Path) -> Iterator[None]:
    """Let this process open `left` more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(_LIMIT, len(os.listdir("/proc/self/fd")) + left)  # a process that ran other tests may hold many
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, soft), hard))
    held: list[int] = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(min(left, len(held))):
            os.close(held.pop())
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def little_room(left: int, home: Path) -> Iterator[None]:
    """Let a file system take about `left` more bytes, in pages."""
    filler = home / "filler"
    with filler.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(_PAGE))
        file.truncate(max(file.tell() - left // _PAGE * _PAGE, 0))
    try:
        yield
    finally:
        filler.unlink()


KINDS = {"descriptors": few_descriptors, "bytes": little_room}


class LimitedRun(Run):
    """Work on the local disk, in one step of which something is short."""

    def __init__(self, workload: Workload, limit: Limit, home: Path) -> None:
        super().__init__(workload, Refusal(errno.EIO, 0))
        self.limit = limit
        self._home = home
        self._fs = LocalFileSystem()
        self._roots = (f"{home}/a", f"{home}/b")
        self._steps_done = -1
        self._shortage = ExitStack()

    def files(self) -> SimulatedFileSystem:
        self.end_shortage()
        return SimulatedFileSystem.from_directory(str(self._home), "/", self.clock)

    def end_shortage(self) -> None:
        """There is enough of everything again."""
        self._shortage.close()

    def _do(self, step: Step) -> None:
        if not self.refuser.is_healed:
            self._steps_done += 1
        if self._steps_done != self.limit.step or self.refuser.refused:
            super()._do(step)
            return
        self._shortage.enter_context(KINDS[self.limit.kind](self.limit.left, self._home))
        self.refuser.refused.append(f"{self.limit.left} {self.limit.kind} left")
        try:
            super()._do(step)
        finally:
            self.end_shortage()


class Failure(AssertionError):
    """A case in which something did not hold, with the line that shows it again."""

    def __init__(self, problem: str, run: LimitedRun) -> None:
        case = {**run.workload._asdict(), "limit": list(run.limit)}
        command = f"python -m tests.property.real_limits '{json.dumps(case, separators=(',', ':'))}'"
        super().__init__(f"{problem}\n  {run.limit}, in step {run.step}\n  {command}")


@contextmanager
def homes() -> Iterator[dict[str, Path]]:
    """A directory for each kind of shortage that this process can make."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        plain, small = Path(name) / "plain", Path(name) / "small"
        plain.mkdir()
        small.mkdir()
        found = {"descriptors": plain}
        if can_mount(small):
            # Lazily: whatever still has a file open there keeps it until it is closed.
            stack.callback(subprocess.run, ["umount", "--lazy", str(small)], check=True)
            found["bytes"] = small
        yield found


def can_mount(directory: Path) -> bool:
    """Mount a small file system; whether this process may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(directory)]
    try:
        return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def judge(workload: Workload, limit: Limit, home: Path) -> LimitedRun:
    """Run a workload in a directory that is empty and stays so. Raises Failure if something does not hold."""
    with tempfile.TemporaryDirectory(dir=home) as name:
        run = LimitedRun(workload, limit, Path(name))
        try:
            run.run()
        except Exception as error:
            problem = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            raise Failure(problem, run) from error
        finally:
            run.end_shortage()
    return run


def run(seed: int, cases: int) -> Counter[str]:
    """Judge random workloads until there were so many. The first failure is raised."""
    done: Counter[str] = Counter()
    with homes() as found:
        while done["real-limits"] < cases:
            number = done["real-limits"]
            rng = Random(f"limits {seed} {number}")
            workload = random_workload(seed, number // 4)
            kind = rng.choice(list(found))
            left = rng.randint(0, 9) if kind == "descriptors" else rng.randint(0, 12) * _PAGE
            limit = Limit(kind, rng.randint(0, len(workload.steps) + 1), left)
            done += judge(workload, limit, found[kind]).outcomes
            done["real-limits"] += 1
            done[f"real-{kind}"] += 1
    return done


def replay(case: dict[str, Any]) -> str:
    """Judge one case again."""
    limit = Limit(*case["limit"])
    with homes() as found:
        try:
            outcomes = judge(Workload(case["steps"], case["salt"]), limit, found[limit.kind]).outcomes
        except Failure as failure:
            return f"{failure}\n"
    return f"{outcomes}\n"


if __name__ == "__main__":
    sys.stdout.write(replay(json.loads(sys.argv[1])))
