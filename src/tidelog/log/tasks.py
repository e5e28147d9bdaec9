"""Work that takes time, cut into slices, and the schedule that runs it.

Nothing in the engine has a thread of its own. Whatever takes long (loading, recovery, deletion, flushing) is a `Task`
that its host moves on, a budget of milliseconds at a time. A `Schedule` holds the tasks of a log, or of many logs, by
the time they are due; `run_due` is the heartbeat. Tasks that wait for the disk say so (`waits_for_disk`), so that a
host with threads to spare can take those out and run them beside its own.
"""

import heapq
from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidelog.log.clock import Clock

Result = TypeVar("Result")

__all__ = ["Call", "Schedule", "SlicedTask", "Task"]


class Task(Protocol):
    """Work in slices."""

    name: str
    waits_for_disk: bool

    def step(self, budget_ms: float) -> bool:
        """Work for about `budget_ms`; whether all is done."""

    def abandon(self) -> None:
        """Stop for good. What was done so far stays, as after a crash."""


class Call:
    """A task of one step."""

    def __init__(self, name: str, function: Callable[[], object], *, waits_for_disk: bool = False) -> None:
        self.name = name
        self.waits_for_disk = waits_for_disk
        self._function = function
        self._is_abandoned = False

    def step(self, budget_ms: float) -> bool:
        if not self._is_abandoned:
            self._function()
        return True

    def abandon(self) -> None:
        self._is_abandoned = True


class SlicedTask(Generic[Result]):
    """A task over a generator that yields wherever it can be interrupted. `result` is what it returned.

    >>> from tidelog.log.clock import ManualClock
    >>> def count():
    ...     yield
    ...     yield
    ...     return 2
    >>> task = SlicedTask("count", count(), ManualClock())
    >>> task.run()
    2
    """

    waits_for_disk = False

    def __init__(self, name: str, work: Generator[object, None, Result], clock: Clock) -> None:
        self.name = name
        self.result: Result | None = None
        self.is_done = False
        self._work = work
        self._clock = clock

    def step(self, budget_ms: float) -> bool:
        """Run until the budget is spent; at least one slice."""
        deadline = self._clock.monotonic_ms() + budget_ms
        while not self.is_done:
            try:
                next(self._work)
            except StopIteration as end:
                self.is_done, self.result = True, end.value
                break
            if self._clock.monotonic_ms() >= deadline:
                break
        return self.is_done

    def run(self) -> Result:
        """Run to the end."""
        while not self.is_done:
            self.step(float("inf"))
        assert self.result is not None
        return self.result

    def abandon(self) -> None:
        self._work.close()
        self.is_done = True


class _Due(NamedTuple):
    due_ms: int
    number: int  # first come, first served
    task: Task


class Schedule:
    """Tasks by the time they are due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[_Due] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def after(self, delay_ms: int, task: Task) -> None:
        """Run `task` when `delay_ms` have passed."""
        self._number += 1
        heapq.heappush(self._heap, _Due(self._clock.now_ms() + delay_ms, self._number, task))

    def soon(self, task: Task) -> None:
        """Run `task` at the next heartbeat."""
        self.after(0, task)

    @property
    def next_due_ms(self) -> int | None:
        """When the next task is due, if there is one."""
        return self._heap[0].due_ms if self._heap else None

    def run_due(self, budget_ms: float = float("inf")) -> int:
        """Run what is due until the budget is spent; how many tasks were finished."""
        deadline = self._clock.monotonic_ms() + budget_ms
        finished = 0
        while self._heap and self._heap[0].due_ms <= self._clock.now_ms():
            due = heapq.heappop(self._heap)
            if due.task.step(deadline - self._clock.monotonic_ms()):
                finished += 1
            else:
                heapq.heappush(self._heap, due)
            if self._clock.monotonic_ms() >= deadline:
                break
        return finished

    def take_disk_tasks(self) -> list[Task]:
        """Take out what is due and waits for the disk: the caller runs it, in a thread of its own if it likes."""
        now = self._clock.now_ms()
        taken = [due for due in self._heap if due.task.waits_for_disk and due.due_ms <= now]
        if taken:
            self._heap = [due for due in self._heap if due not in taken]
            heapq.heapify(self._heap)
        return [due.task for due in sorted(taken)]
