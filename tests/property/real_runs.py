"""The work of `manager_run` done by a real process on a real directory, and what a moment of it may have left.

A workload is the same wherever it runs: time is counted by hand, and chance comes from its salt. So it runs here on a
simulated disk, to know what its logs are after every step, and in another process on a real one. That process says
after every step that it is done; whatever ends it ends it in the step that follows.
"""

import os
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

from tests.property.manager_model import LogModel
from tests.property.manager_run import PARTITIONS, ROOTS, ManagerRun, State, Workload
from tidelog.log import ManualClock
from tidelog.log.files import Creation, FileLock, FileStat, FileSystem, ReadFile, WriteFile
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition

States = dict[TopicPartition, tuple[State, ...]]

NOT_IN_ONE_PROCESS = ("kill", "crash")  # steps that take the directory away from a process that goes on
TRUNCATIONS = ("truncate", "begin")


def for_one_process(workload: Workload) -> Workload:
    """A workload without the steps that only a simulated disk can do."""
    return workload._replace(steps=[step for step in workload.steps if step[0] not in NOT_IN_ONE_PROCESS])


def make_roots(directory: Path) -> None:
    """Make the roots of a workload, empty, below a directory."""
    for root in ROOTS:
        os.makedirs(f"{directory}{root}")
        Path(f"{directory}{root}/meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=c\n")


class DiskBelow:
    """The files below a directory of the local disk, with paths that begin there."""

    def __init__(self, directory: Path) -> None:
        self._below = str(directory)
        self._disk = LocalFileSystem()

    def _path(self, path: str) -> str:
        return self._below + path

    def list(self, directory: str) -> list[str]:
        return self._disk.list(self._path(directory))

    def stat(self, path: str) -> FileStat | None:
        return self._disk.stat(self._path(path))

    def open(self, path: str) -> ReadFile:
        return self._disk.open(self._path(path))

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        return self._disk.open_write(self._path(path), create=create)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(self._path(source), self._path(target))

    def remove(self, path: str) -> bool:
        return self._disk.remove(self._path(path))

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(self._path(path))

    def remove_directory(self, path: str) -> bool:
        return self._disk.remove_directory(self._path(path))

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        return self._disk.remove_in_steps(self._path(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._disk.set_modified(self._path(path), modified_ms)

    def sync_directory(self, path: str) -> None:
        self._disk.sync_directory(self._path(path))

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        return self._disk.lock(self._path(path), shared=shared)


class RealRun(ManagerRun):
    """A workload on a real directory. `on_step` is called after every step; cuts are not known here."""

    def __init__(self, workload: Workload, directory: Path, on_step: Callable[[int], None]) -> None:
        super().__init__(workload, lambda _: on_step(self.step))
        self._real = DiskBelow(directory)

    def _watched(self) -> FileSystem:
        return self._real


class Course:
    """What the logs of a workload are after every step, known from a run on a simulated disk."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.states: list[States] = []  # before the first step, and after each
        self.times: list[int] = []
        self.homes: list[dict[TopicPartition, str]] = []
        run = ManagerRun(workload, self._look)
        self._note(run, dict.fromkeys(PARTITIONS, (None,)))
        run.run()

    def _look(self, run: ManagerRun) -> None:
        if run.is_between_steps:
            self._note(run, dict(run.states))

    def _note(self, run: ManagerRun, states: States) -> None:
        self.states.append(states)
        self.times.append(run.clock.now_ms())
        logs = run.manager.logs if run.step >= 0 else {}
        self.homes.append({partition: log.directory.rpartition("/")[0] for partition, log in logs.items()})

    def interrupted(self, done: int) -> "Interrupted":
        """What a process may have left that had done so many steps."""
        return Interrupted(self, done)


class Interrupted:
    """A run that ended in the middle of a step, for the judge of `manager_crashes`: as it was, or as it was to be."""

    def __init__(self, course: Course, done: int) -> None:
        following = min(done + 1, len(course.states) - 1)
        before, after = course.states[done], course.states[following]
        step = course.workload.steps[following - 1]
        self.workload = course.workload
        self.step = following - 1
        self.clock = ManualClock(course.times[following])
        self.is_truncating = step[0] in TRUNCATIONS
        self.moving: tuple[TopicPartition, str] | None = None
        if step[0] == "move" and PARTITIONS[step[1]] in course.homes[following]:
            self.moving = PARTITIONS[step[1]], course.homes[following][PARTITIONS[step[1]]]
        self.states: States = {tp: self._either(before[tp][-1], after[tp][-1]) for tp in before}

    def _either(self, before: State, after: State) -> tuple[State, ...]:
        if before is None and after is not None:
            return None, LogModel(is_compacted=after.is_compacted), after  # it was made first
        if before is None or after is None:
            return before, after
        start = max(before.start, after.start)
        floor = min(before.floor, after.floor)
        if before.origin != after.origin:
            return replace(before, floor=0), *before.without_segments(), after
        return replace(before, start=start, floor=floor), replace(after, start=start, floor=floor)
