"""Losing power in a run of a real process, whose calls to the file system strace has recorded.

The other campaigns ask the engine what it does to its file system; this one asks the kernel. A process does a workload
of `manager_run` on a real directory under strace. Its calls are replayed on a simulated disk, one by one: at the end
that disk must hold what the real directory holds, byte by byte, or the record is not complete. On the way, what a loss
of power would leave after a call is opened and judged as in `manager_crashes`.

    run(seed, cases)    records workloads, and judges so many losses of power
    python -m tests.property.recorded_calls <seed> <number>    one workload again, every call of it

Every call that names a file below the directory must be one that is known here: a call that is not is an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.property.kills import say_step
from tests.property.manager_crashes import Broken, judge
from tests.property.manager_run import ROOTS, Workload, random_workload
from tests.property.real_runs import Course, RealRun, for_one_process, make_roots
from tidelog.log import ManualClock
from tidelog.log.files import FileStat, read_whole
from tidelog.testing.disk import SimulatedFileSystem

JUDGED = 25  # losses of power in each run
_LINE = re.compile(r"^\d+ +(?P<name>\w+)\((?P<args>.*)\) += (?P<result>-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"^(?P<number>AT_FDCWD|\d+)(?:<(?P<path>(?:\\x[0-9a-f]{2}|[^>])*)>)?(?P<deleted>\(deleted\))?")
_HARMLESS = {
    "access", "close", "dup", "execve", "fadvise64", "fcntl", "fgetxattr", "flock", "fstat", "fstatfs", "getcwd",
    "getdents64", "getxattr", "ioctl", "lgetxattr", "lseek", "lstat", "mmap", "newfstatat", "pread64", "preadv",
    "preadv2", "read", "readlink", "readlinkat", "stat", "statfs", "statx",
}  # fmt: skip


class Recorded(NamedTuple):
    """A call that changed something below the directory, or the word that a step is done."""

    name: str
    path: str
    data: bytes = b""
    number: int = 0
    target: str = ""
    flags: str = ""


@cache
def why_not_here() -> str | None:
    """Why no process can be traced on this machine, if none can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True)
    return f"strace may not trace processes here: {tried.stderr.strip()}" if tried.returncode else None


# -- recording ---------------------------------------------------------------------------------------------------------


def record(workload: Workload, directory: Path, home: Path) -> list[Recorded]:
    """Do a workload in a process of its own, under strace; its calls, in order."""
    trace = home / "trace"
    work = [sys.executable, "-m", "tests.property.recorded_calls", "--work", str(directory), json.dumps(workload)]
    command = ["strace", "-f", "-y", "-xx", "-s", "10000000", "-e", "trace=desc,file", "-o", str(trace), *work]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    with trace.open(encoding="ascii") as lines:
        return [call for line in lines for call in _recorded(line, str(directory))]


def _recorded(line: str, directory: str) -> Iterator[Recorded]:
    found = _LINE.match(line)
    if found is None or int(found["result"]) < 0:
        return
    name, args = found["name"], found["args"]
    texts = [_bytes(text) for text in _TEXT.findall(args)]
    if name == "write" and args.startswith("1<") and texts == [b"."]:
        yield Recorded("step", "")
        return
    paths = list(_paths(name, args, texts))
    inside = [path.removeprefix(directory) for path in paths if path.startswith(f"{directory}/")]
    if not inside or name in _HARMLESS:
        return
    numbers = [int(number) for number in re.findall(r", (-?\d+)", args)]
    if name in ("openat", "open"):
        if "O_CREAT" in args:
            yield Recorded("create", inside[0], flags=args)
    elif name == "pwrite64":
        yield Recorded("write", inside[0], texts[0][: int(found["result"])], numbers[-1])
    elif name == "ftruncate":
        yield Recorded("resize", inside[0], number=numbers[-1])
    elif name in ("fsync", "fdatasync"):
        yield Recorded("sync", inside[0])
    elif name in ("rename", "renameat", "renameat2"):
        assert len(inside) == 2, line
        yield Recorded("rename", inside[0], target=inside[1])
    elif name in ("unlink", "unlinkat", "rmdir"):
        yield Recorded("remove", inside[0])
    elif name in ("mkdir", "mkdirat"):
        yield Recorded("make", inside[0])
    elif name == "utimensat":
        pass  # the time of a file is known by the simulated disk, and no workload goes by it
    else:
        raise AssertionError(f"a call that is not known here: {line[:300]}")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _paths(name: str, args: str, texts: list[bytes]) -> Iterator[str]:
    """The paths that a call names: by descriptors, by names, or by names relative to descriptors."""
    names = [text.decode("utf-8", "surrogateescape") for text in texts]
    if name in ("pwrite64", "write"):
        names = []
    bases = []
    for part in re.split(r", (?=AT_FDCWD|\d+<)", args):
        described = _DESCRIPTOR.match(part)
        if described is not None and described["path"] is not None and described["deleted"] is None:
            bases.append(_bytes(described["path"]).decode("utf-8", "surrogateescape"))
    if not names or names == [""]:
        yield from bases[:1]
        return
    for number, text in enumerate(names):
        base = bases[min(number, len(bases) - 1)] if bases else "/"
        yield text if text.startswith("/") else f"{base.rstrip('/')}/{text}"


# -- replaying ---------------------------------------------------------------------------------------------------------


def replay(calls: list[Recorded], disk: SimulatedFileSystem, after: Callable[[int, int], None]) -> None:
    """Do the calls to a simulated disk; `after` is told of each by its number, and how many steps were done."""
    steps = 0
    for number, call in enumerate(calls):
        if call.name == "step":
            steps += 1
        else:
            _do(call, disk)
        after(number, steps)


def _do(call: Recorded, disk: SimulatedFileSystem) -> None:
    found = disk.stat(call.path)
    if call.name == "create":
        disk.open_write(call.path)
        if "O_TRUNC" in call.flags:
            disk.open_write(call.path).resize(0)
    elif call.name == "make":
        disk.make_directory(call.path)
    elif call.name == "rename":
        disk.rename(call.path, call.target)
    elif call.name == "remove":
        disk.remove_directory(call.path) if found is not None and found.is_directory else disk.remove(call.path)
    elif call.name == "sync" and found is not None and found.is_directory:
        disk.sync_directory(call.path)
    elif found is not None:
        file = disk.open_write(call.path, create=False)
        if call.name == "write":
            file.write_at(call.number, call.data)
        elif call.name == "resize":
            file.resize(call.number)
        else:
            file.sync()


def _files(disk: SimulatedFileSystem, directory: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list(directory):
        path = f"{directory.rstrip('/')}/{name}"
        stat: FileStat | None = disk.stat(path)
        assert stat is not None
        found |= _files(disk, path) if stat.is_directory else {path: read_whole(disk, path)}
    return found


# -- running -----------------------------------------------------------------------------------------------------------


def lose_power(workload: Workload, home: Path, judged: int = JUDGED, *, unordered: bool = False) -> int:
    """Record a workload, and judge a loss of power after some of its calls; how many."""
    directory = home / "recorded"
    make_roots(directory)
    course = Course(workload)
    disk = SimulatedFileSystem.from_directory(str(directory), clock=ManualClock(), unordered_directories=unordered)
    calls = record(workload, directory, home)
    assert [call.name for call in calls].count("step") == len(workload.steps)
    rng = Random(f"recorded {workload.salt}")
    chosen = set(rng.sample(range(len(calls)), min(judged, len(calls))))

    def after(number: int, steps: int) -> None:
        if number in chosen:
            dice = Random(f"recorded {workload.salt} {number}")
            try:
                judge(course.interrupted(steps), disk.after_crash(dice), dice, is_power_loss=True)
            except Broken as broken:
                raise AssertionError(
                    f"{broken}\n  after call {number}, in step {steps + 1}: {calls[number]}"
                ) from broken

    replay(calls, disk, after)
    real = SimulatedFileSystem.from_directory(str(directory))
    for root in ROOTS:
        assert _files(disk, root) == _files(real, root), "the record is not complete"
    return len(chosen)


def run(seed: int, cases: int) -> Counter[str]:
    """Record workloads, and judge so many losses of power; every third disk keeps no order among directory changes."""
    reason = why_not_here()
    assert reason is None, reason
    done: Counter[str] = Counter()
    while done["recorded-cuts"] < cases:
        number = done["recorded-runs"]
        with tempfile.TemporaryDirectory(prefix="tidelog-recorded-") as home:
            workload = for_one_process(random_workload(seed, number))
            try:
                done["recorded-cuts"] += lose_power(workload, Path(home), unordered=number % 3 == 2)
            except AssertionError as error:
                raise AssertionError(f"{error}\n  python -m tests.property.recorded_calls {seed} {number}") from error
        done["recorded-runs"] += 1
    return done


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        steps, salt, is_unordered = json.loads(sys.argv[3])
        RealRun(Workload(steps, salt, is_unordered), Path(sys.argv[2]), lambda _: say_step(1)).run()
    else:
        for is_unordered in (False, True):
            with tempfile.TemporaryDirectory() as place:
                lose_power(
                    for_one_process(random_workload(int(sys.argv[1]), int(sys.argv[2]))), Path(place), 1 << 30,
                    unordered=is_unordered,
                )  # fmt: skip
