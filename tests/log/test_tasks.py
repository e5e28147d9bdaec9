"""Work in slices and the schedule that runs it: budgets, order, giving up."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import ABORT, Partition, batch, marker, offsets_of
from tidelog.errors import CorruptionError, LockedError, StorageError
from tidelog.log import ManualClock
from tidelog.log.tasks import Call, Schedule, SlicedTask

# -- tasks in slices -------------------------------------------------------------------------------------------------


class Work:
    """Slices that take a number of milliseconds each."""

    def __init__(self, clock: ManualClock, *slices_ms: int) -> None:
        self.done: list[int] = []
        self.is_cleaned_up = False
        self._clock = clock
        self._slices_ms = slices_ms

    def run(self) -> Generator[None, None, str]:
        try:
            for slice_ms in self._slices_ms:
                self._clock.advance(slice_ms)
                self.done.append(slice_ms)
                yield
            return "finished"
        finally:
            self.is_cleaned_up = True


def test_a_step_ends_when_its_budget_is_spent() -> None:
    clock = ManualClock()
    work = Work(clock, 3, 3, 3, 3)
    task = SlicedTask("work", work.run(), clock)
    assert not task.step(5)
    assert work.done == [3, 3]
    assert not task.step(6)
    assert work.done == [3, 3, 3, 3]
    assert task.result is None
    assert task.step(0)
    assert (task.is_done, task.result) == (True, "finished")


def test_a_step_without_budget_still_moves_on() -> None:
    clock = ManualClock()
    work = Work(clock, 1, 1)
    task = SlicedTask("work", work.run(), clock)
    assert [task.step(0), task.step(0), task.step(0)] == [False, False, True]
    assert task.step(0)  # done stays done


def test_a_task_runs_to_its_end_at_once_on_demand() -> None:
    clock = ManualClock()
    assert SlicedTask("work", Work(clock, 100, 100).run(), clock).run() == "finished"


def test_an_abandoned_task_cleans_up_and_does_nothing_more() -> None:
    clock = ManualClock()
    work = Work(clock, 1, 1, 1)
    task = SlicedTask("work", work.run(), clock)
    task.step(0)
    task.abandon()
    assert work.is_cleaned_up
    assert task.step(100)
    assert (work.done, task.result) == ([1], None)


def test_an_abandoned_call_is_not_made() -> None:
    made: list[str] = []
    call = Call("call", lambda: made.append("made"))
    call.abandon()
    assert call.step(1)
    assert made == []


# -- the schedule ----------------------------------------------------------------------------------------------------


def test_tasks_run_when_they_are_due_in_the_order_of_their_time_and_then_of_their_coming() -> None:
    clock = ManualClock(1000)
    schedule = Schedule(clock)
    made: list[str] = []
    for name, delay in (("late", 20), ("b", 10), ("c", 10), ("now", 0)):
        schedule.after(delay, Call(name, lambda name=name: made.append(name)))  # type: ignore[misc]
    assert (schedule.run_due(), made, schedule.next_due_in_ms) == (1, ["now"], 10)
    assert schedule.run_due() == 0
    clock.advance(10)
    schedule.soon(Call("sooner", lambda: made.append("sooner")))
    assert (schedule.run_due(), made) == (3, ["now", "b", "c", "sooner"])
    clock.advance(10)
    assert (schedule.run_due(), len(schedule), schedule.next_due_in_ms) == (1, 0, None)


def test_a_heartbeat_ends_with_its_budget_and_the_next_one_goes_on_with_the_same_task() -> None:
    clock = ManualClock(1000)
    schedule = Schedule(clock)
    first, second = Work(clock, 4, 4, 4), Work(clock, 4)
    schedule.soon(SlicedTask("first", first.run(), clock))
    schedule.soon(SlicedTask("second", second.run(), clock))
    assert schedule.run_due(5) == 0
    assert (first.done, second.done) == ([4, 4], [])
    assert schedule.run_due(5) == 1  # the first finishes with 1 ms to spare, in which the second begins
    assert (first.done, second.done) == ([4, 4, 4], [4])
    assert schedule.run_due() == 1
    assert len(schedule) == 0


def test_a_task_that_a_task_plans_for_now_waits_for_the_next_heartbeat() -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    made: list[str] = []

    def again() -> None:
        made.append("run")
        schedule.soon(Call("again", again))

    schedule.soon(Call("first", again))
    schedule.soon(Call("second", lambda: made.append("second")))
    assert schedule.run_due() == 2  # and it comes to an end
    assert made == ["run", "second"]
    assert schedule.next_due_in_ms == 0
    assert schedule.run_due() == 1
    assert made == ["run", "second", "run"]


def test_one_owner_can_have_its_own_tasks_run() -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    made: list[str] = []
    for name, delay, owner in (("b", 0, "log"), ("other", 0, "cleaner"), ("late", 5, "log"), ("a", -1, "log")):
        schedule.after(delay, Call(name, lambda name=name: made.append(name)), owner)  # type: ignore[misc]
    assert schedule.run_due_of("log") == 2
    assert made == ["a", "b"]
    assert len(schedule) == 2


def test_dropping_the_tasks_of_one_owner_leaves_those_of_the_others_in_their_order() -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    made: list[int] = []
    for number in range(1000):
        schedule.after(1000 - number, Call("task", lambda number=number: made.append(number)), number % 2)  # type: ignore[misc]
    schedule.drop(0)
    assert len(schedule) == 500
    clock.advance(1000)
    assert schedule.run_due() == 500
    assert made == list(range(999, 0, -2))
    assert schedule.next_due_in_ms is None


def test_tasks_that_wait_for_the_disk_can_be_taken_out_when_they_are_due() -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    made: list[str] = []
    for name, delay, waits in (("flush", 0, True), ("delete", 0, False), ("later", 5, True), ("flush 2", 0, True)):
        schedule.after(delay, Call(name, lambda name=name: made.append(name), waits_for_disk=waits))  # type: ignore[misc]
    assert [task.name for task in schedule.take_disk_tasks()] == ["flush", "flush 2"]
    assert schedule.take_disk_tasks() == []
    assert (schedule.run_due(), made) == (1, ["delete"])
    assert len(schedule) == 1


def test_a_task_that_fails_is_gone_and_the_others_are_still_there() -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    made: list[str] = []

    def refuse() -> None:
        raise StorageError("refused")

    schedule.soon(Call("refuse", refuse))
    schedule.soon(Call("work", lambda: made.append("work")))
    with pytest.raises(StorageError, match="refused"):
        schedule.run_due()
    assert schedule.run_due() == 1
    assert made == ["work"]


# -- loading in slices -----------------------------------------------------------------------------------------------


def a_crashed_partition(root: Path) -> Partition:
    """Several segments with producers, epochs and an aborted transaction, and a torn batch at the end."""
    partition = Partition(root, segment_bytes=700, segment_index_bytes=400, index_interval_bytes=100)
    log = partition.open()
    for offset in range(0, 40, 2):
        data = batch(offset, b"one", b"two", epoch=offset // 10, producer_id=offset % 6, sequence=offset // 6 * 2)
        log.append_as_follower(memoryview(data))
    log.append_as_follower(memoryview(batch(40, producer_id=9, sequence=0, is_transactional=True, epoch=3)))
    log.append_as_follower(memoryview(marker(41, ABORT, 9)))
    partition.crash(log)
    last = partition.files(".log")[-1]
    partition.write(last, partition.read(last) + batch(42)[:50])
    return partition


@behaviour("LDR-005")
def test_a_log_loaded_in_slices_is_the_log_loaded_at_once(tmp_path: Path) -> None:
    at_once, in_slices = a_crashed_partition(tmp_path / "a"), a_crashed_partition(tmp_path / "b")
    one = at_once.open()
    task = in_slices.loader().task()
    steps = 1
    while not task.step(0):
        steps += 1
    two = task.result
    assert two is not None
    assert steps > len(one.segments)
    assert (two.log_end_offset, offsets_of(two)) == (one.log_end_offset, offsets_of(one)) == (42, [*range(42)])
    assert two.leader_epochs.entries == one.leader_epochs.entries
    assert two.producers.producers.keys() == one.producers.producers.keys()
    one.close()
    two.close()
    assert in_slices.contents == at_once.contents
    assert any(name.endswith(".txnindex") for name in at_once.contents)


def test_loading_can_be_abandoned_after_any_slice_and_begun_again(tmp_path: Path) -> None:
    partition, other = a_crashed_partition(tmp_path / "a"), a_crashed_partition(tmp_path / "b")
    slices = 0
    while True:
        task = partition.loader().task()
        for _ in range(slices):
            task.step(0)
        if task.is_done:
            break
        if slices:
            with pytest.raises(LockedError):
                partition.open()
        task.abandon()
        slices += 1
    assert slices >= 5
    assert task.result is not None
    task.result.close()
    other.open().close()
    assert partition.contents == other.contents


def test_a_directory_that_cannot_be_loaded_is_free_for_the_next(tmp_path: Path) -> None:
    partition = a_crashed_partition(tmp_path)
    good = partition.read("leader-epoch-checkpoint")
    partition.write("leader-epoch-checkpoint", b"nonsense")
    for _ in range(2):
        with pytest.raises(CorruptionError):
            partition.open()
    partition.write("leader-epoch-checkpoint", good)
    assert partition.open().log_end_offset == 42


def test_a_task_that_raises_takes_no_other_with_it() -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    made: list[str] = []

    def plan() -> None:
        schedule.soon(Call("planned", lambda: made.append("planned")))
        clock.advance(1)  # now the next one is due as well, behind the planned one

    def fail() -> None:
        raise ValueError("a bug")

    schedule.soon(Call("plan", plan))
    schedule.after(1, Call("fail", fail))
    with pytest.raises(ValueError, match="a bug"):
        schedule.run_due()
    assert schedule.run_due() == 1
    assert made == ["planned"]


def test_a_long_task_lets_others_have_their_turn() -> None:
    clock = ManualClock(1000)
    schedule = Schedule(clock)
    long, short = Work(clock, *[5] * 100), Work(clock, 1)
    schedule.soon(SlicedTask("long", long.run(), clock))
    schedule.soon(SlicedTask("short", short.run(), clock))
    for _ in range(2):
        schedule.run_due(5)
    assert short.done == [1]


def test_what_was_run_is_not_remembered() -> None:
    schedule = Schedule(ManualClock())
    for _ in range(1000):
        schedule.soon(Call("task", lambda: None), "log")
        schedule.run_due_of("log")
    assert len(schedule) == 0
    assert len(schedule._heap) < 200
