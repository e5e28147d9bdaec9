"""Work that takes time, cut into slices, and the schedule that runs it.

Nothing in the engine has a thread of its own. Whatever takes long (loading, recovery, deletion, flushing) is a `Task`
that its host moves on, a budget of milliseconds at a time. A `Schedule` holds the tasks of a log, or of many logs, by
the time they are due; `run_due` is the heartbeat. It goes by the monotonic clock: an administrator who sets the wall
clock back does not put off a flush.

Tasks that wait for the disk say so (`waits_for_disk`). A host with threads to spare takes those out
(`take_disk_tasks`), runs `step` in a thread of its own, and calls `finish` where it calls everything else of the log:
in the thread of its owner. What `step` does beside the owner is to wait; what it found out is noted in `finish`.
"""

import heapq
from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidelog.errors import StorageError
from tidelog.log.clock import Clock

Result = TypeVar("Result")

__all__ = ["Call", "Later", "OnError", "OwnTasks", "Schedule", "SlicedTask", "Task"]

OnError = Callable[[StorageError], object]

_FEW = 64


class Task(Protocol):
    """Work in slices."""

    name: str
    waits_for_disk: bool
    on_error: OnError | None  # told of a disk error, which is then not raised; the log the task belongs to

    def step(self, budget_ms: float) -> bool:
        """Work for about `budget_ms`; whether all is done."""

    def finish(self) -> None:
        """What is left to do in the thread of the owner, after the last step."""

    def abandon(self) -> None:
        """Stop for good. What was done so far stays, as after a crash."""


class Call:
    """A task of one step, and of what its owner does behind it.

    A disk error goes to `on_error`, which takes its log offline; without one it is raised to whoever runs the task.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], object],
        *,
        then: Callable[[], object] | None = None,
        waits_for_disk: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        self.name = name
        self.waits_for_disk = waits_for_disk
        self._function = function
        self._then = then
        self.on_error = on_error
        self._is_abandoned = False
        self._is_finished = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it: it was finished, it failed, or it was abandoned."""
        return self._is_finished or self._is_abandoned

    def step(self, budget_ms: float) -> bool:
        self._run(self._function)
        return True

    def finish(self) -> None:
        if self._then is not None:
            self._run(self._then)
        self._is_finished = True

    def abandon(self) -> None:
        self._is_abandoned = True

    def _run(self, function: Callable[[], object]) -> None:
        if self._is_abandoned:
            return
        try:
            function()
        except StorageError as error:
            self._is_abandoned = True
            if self.on_error is None:
                raise
            self.on_error(error)


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

    def __init__(
        self, name: str, work: Generator[object, None, Result], clock: Clock, *, on_error: OnError | None = None
    ) -> None:
        self.name = name
        self.result: Result | None = None
        self.is_done = False
        self._work = work
        self._clock = clock
        self.on_error = on_error
        self._failure: BaseException | None = None

    def step(self, budget_ms: float) -> bool:
        """Run until the budget is spent; at least one slice. Work that failed fails again."""
        if self._failure is not None:
            raise self._failure
        deadline = self._clock.monotonic_ms() + budget_ms
        while not self.is_done:
            try:
                next(self._work)
            except StopIteration as end:
                self.is_done, self.result = True, end.value
                break
            except StorageError as error:
                if self.on_error is None:
                    self._failure = error
                    raise
                self.is_done = True
                self.on_error(error)
                break
            except BaseException as error:
                self._failure = error
                raise
            if self._clock.monotonic_ms() >= deadline:
                break
        return self.is_done

    def run(self) -> Result:
        """Run to the end."""
        while not self.is_done:
            self.step(float("inf"))
        assert self.result is not None
        return self.result

    def finish(self) -> None:
        """Nothing: a sliced task runs in the thread of its owner."""

    def abandon(self) -> None:
        self._work.close()
        self.is_done = True


class _Due(NamedTuple):
    due_ms: float
    task: Task
    owner: object


class Later(Protocol):
    """Where work can be put that is to be done later."""

    def after(self, delay_ms: float, task: Task, owner: object = None) -> None:
        """Run `task` when `delay_ms` have passed."""


class Schedule:
    """Tasks by the time they are due, each with the log it belongs to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[int, _Due] = {}  # by number: first come, first served
        self._owned: dict[object, set[int]] = {}
        self._heap: list[tuple[float, int]] = []  # when, and which; of tasks that were dropped too
        self._number = 0
        self.hands_out_disk_tasks = False  # whether a host runs what waits for the disk elsewhere

    def __len__(self) -> int:
        return len(self._tasks)

    def __bool__(self) -> bool:
        return True  # a schedule without tasks is a schedule

    def after(self, delay_ms: float, task: Task, owner: object = None) -> None:
        """Run `task` when `delay_ms` have passed."""
        self._number += 1
        self._put(self._number, _Due(self._clock.monotonic_ms() + delay_ms, task, owner))

    def soon(self, task: Task, owner: object = None) -> None:
        """Run `task` at the next heartbeat."""
        self.after(0, task, owner)

    def _put(self, number: int, due: _Due) -> None:
        self._tasks[number] = due
        self._owned.setdefault(due.owner, set()).add(number)
        heapq.heappush(self._heap, (due.due_ms, number))

    def _take(self, number: int) -> _Due:
        due = self._tasks.pop(number)
        owned = self._owned[due.owner]
        owned.discard(number)
        if not owned:
            del self._owned[due.owner]
        self._forget_dropped()
        return due

    def _forget_dropped(self) -> None:
        """Keep the heap from being full of tasks that are not there any more."""
        if len(self._heap) > 2 * len(self._tasks) + _FEW:
            self._heap = [entry for entry in self._heap if entry[1] in self._tasks]
            heapq.heapify(self._heap)

    def _first(self) -> tuple[float, int] | None:
        """When the next task is due, and its number."""
        while self._heap and self._heap[0][1] not in self._tasks:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    @property
    def next_due_in_ms(self) -> float | None:
        """How long until the next task is due, if there is one; 0 if it already is."""
        first = self._first()
        return None if first is None else max(first[0] - self._clock.monotonic_ms(), 0)

    def run_due(self, budget_ms: float = float("inf")) -> int:
        """Run what is due until the budget is spent; how many tasks were finished.

        What is put in meanwhile waits for the next call, so that work which makes more work does not keep the caller.
        """
        deadline = self._clock.monotonic_ms() + budget_ms
        last, later, finished = self._number, [], 0
        try:
            while (first := self._first()) is not None and first[0] <= self._clock.monotonic_ms():
                heapq.heappop(self._heap)
                if first[1] > last:
                    later.append(first)
                    continue
                finished += self._run(first[1], deadline)
                if self._clock.monotonic_ms() >= deadline:
                    break
        finally:
            for entry in later:
                heapq.heappush(self._heap, entry)
        return finished

    def run_due_of(self, owner: object, budget_ms: float = float("inf")) -> int:
        """Run what is due of one owner until the budget is spent; how many tasks were finished."""
        now, finished = self._clock.monotonic_ms(), 0
        for due_ms, number in sorted((self._tasks[number].due_ms, number) for number in self._owned.get(owner, ())):
            if due_ms <= now and number in self._tasks:
                finished += self._run(number, now + budget_ms)
                if self._clock.monotonic_ms() >= now + budget_ms:
                    break
        return finished

    def _run(self, number: int, deadline: float) -> bool:
        """Run a task; whether that was its end. One that needs longer stands behind the others then."""
        due = self._take(number)
        if due.task.step(deadline - self._clock.monotonic_ms()):
            due.task.finish()
            return True
        self.soon(due.task, due.owner)
        return False

    def take_disk_tasks(self) -> list[Task]:
        """Take out what is due and waits for the disk: the caller runs `step`, in a thread or not, then `finish`."""
        self.hands_out_disk_tasks = True
        now = self._clock.monotonic_ms()
        numbers = [number for number, due in self._tasks.items() if due.task.waits_for_disk and due.due_ms <= now]
        return [due.task for due in sorted(map(self._take, sorted(numbers)), key=lambda due: due.due_ms)]

    def of(self, owner: object) -> list[Task]:
        """The tasks of one owner, in the order in which they were put in."""
        return [self._tasks[number].task for number in sorted(self._owned.get(owner, ()))]

    def drop(self, owner: object) -> None:
        """Forget the tasks of a log that is closed: whoever opens its directory next settles what they left."""
        for number in sorted(self._owned.pop(owner, ())):
            self._tasks.pop(number).task.abandon()
        self._forget_dropped()


class OwnTasks:
    """The tasks of one log, in a schedule that many logs may share: their disk errors are its own."""

    def __init__(self, schedule: Schedule, on_error: OnError) -> None:
        self._schedule = schedule
        self._on_error = on_error

    def after(self, delay_ms: float, task: Task, owner: object = None) -> None:
        """Run `task` when `delay_ms` have passed."""
        if task.on_error is None:
            task.on_error = self._on_error
        self._schedule.after(delay_ms, task, owner=self)

    def soon(self, task: Task) -> None:
        """Run `task` at the next heartbeat."""
        self.after(0, task)

    def run_due(self, budget_ms: float = float("inf")) -> None:
        """Run what is due of them, and nothing of others, until the budget is spent."""
        self._schedule.run_due_of(self, budget_ms)

    def waiting(self) -> list[Task]:
        """All of them, due or not."""
        return self._schedule.of(self)

    def drop(self) -> None:
        """Forget them all: the log is closed, and its directory may be somebody else's."""
        self._schedule.drop(self)
