"""The refusal campaign: any call of a workload is refused, and the step is tried again on the live log.

A case is a workload, an error (no descriptor left, an I/O error, a full disk) or a KeyboardInterrupt, and the number of
the call that meets it. A refusal may last until the step has failed. Then the disk is healed, and

    the log is online     what is in memory is what another process finds in the files, and all that was acknowledged is
                          there once, in order; the same step, tried again, succeeds
    the log is offline    it takes nothing any more; opened again it has all that was acknowledged, once and in order,
                          and of the step that failed everything, nothing, or the first batches

and the workload goes on. At its end the log is closed and opened again, and fsck finds no error.

    run(seed, cases)             judges refusals of random workloads until there were so many
    python -m tests.property.refusals '<json>'    one case again, as a failure prints it
"""

import copy
import json
import sys
from collections import Counter
from random import Random
from typing import Any

from tests.property import refusal_campaign
from tests.property.crash_disk import WatchedDisk
from tests.property.crash_judge import (
    DIRECTORY,
    PARTITION,
    ROOT,
    Broken,
    Expectation,
    check,
    open_log,
    read_stop,
    require,
)
from tests.property.crash_model import State
from tests.property.crash_run import Run, require_same
from tests.property.crash_steps import Step, Workload, random_workload
from tests.property.refusal_campaign import judge_refusals, replayed
from tests.property.refusing_disk import Refusal, Refuser, RefusingDisk
from tidelog.errors import LogClosedError, StorageError, TidelogError
from tidelog.fsck import check as fsck
from tidelog.log import Isolation, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import join
from tidelog.log.names import LOG_START_CHECKPOINT
from tidelog.log.open_files import OPEN_FILES

PER_WORKLOAD = 120  # refusals of one random workload
_REMEMBERED = (
    "_number", "_state", "_floor", "_is_cutting", "_topic_id", "_id_from", "_deleted_to", "_last_of", "_epoch_of",
)  # fmt: skip
_OPEN_FILES = (1, 2, 3, 100)  # that a workload may have open


class Failure(AssertionError):
    """A refusal after which something did not hold, with the line that shows it again."""

    def __init__(self, broken: Broken, run: "RefusedRun") -> None:
        workload = run.workload
        case = {**workload._asdict(), "refusal": list(run.refuser.refusal)}
        command = f"python -m tests.property.refusals '{json.dumps(case, separators=(',', ':'))}'"
        super().__init__(
            f"{broken}\n  {run.refuser.refusal}, {run.refuser.refused}, in step {run.step + 1}:"
            f" {workload.steps[run.step : run.step + 1]}\n  {command}"
        )


class RefusedRun(Run):
    """A workload one call of which is refused."""

    def __init__(self, workload: Workload, refusal: Refusal) -> None:
        self.refuser = refuser = Refuser(refusal)
        self.outcomes: Counter[str] = Counter()

        class Disk(RefusingDisk):
            def __init__(self, *args: Any) -> None:
                self.refuser = refuser
                super().__init__(*args)

        watched: type[WatchedDisk] = Disk
        super().__init__(workload, lambda _: None, watched)

    def run(self) -> None:
        """Run all steps, each tried again if it was refused, and stop. Few files may be open, or many."""
        limit, OPEN_FILES.limit = OPEN_FILES.limit, Random(self.workload.salt).choice(_OPEN_FILES)
        try:
            self._run()
        finally:
            OPEN_FILES.limit = limit
            if self._log is not None:
                self._log.release()

    def _run(self) -> None:
        steps: list[Step] = [["open"], *self.workload.steps, ["stop"]]
        for number, step in enumerate(steps):
            self.step = number - 1
            before = {name: copy.copy(getattr(self, name)) for name in _REMEMBERED}
            try:
                self._do(step)
            except KeyboardInterrupt:
                self._after_refusal(step, before)
            except TidelogError as error:
                if not self.refuser.refused or self.refuser.is_healed:
                    raise Broken("work", f"{type(error).__name__} in {step}: {error}") from error
                self.refuser.heal()
                require(isinstance(error, StorageError), "error", f"{type(error).__name__} in {step}: {error}")
                self._after_refusal(step, before)
            if self._next is not None:
                self._state, self._next = self._next, None
            self._is_cutting = False
            self._deleted_to = max(self._deleted_to, self._state.start)
            require_same(self.log, self._state)
        self._check_files(self._state)

    def _do(self, step: Step) -> None:
        getattr(self, f"_do_{step[0]}")(*step[1:])

    def _do_open(self) -> None:
        self._open()

    def _lower_log_start(self, offset: int) -> None:
        """As a LogManager does: before a log is cut, no checkpoint names what the cut takes, whoever fails then."""
        noted = self._noted
        if offset < max(noted.log_start, noted.recovery_point):
            self._note(
                noted._replace(log_start=min(noted.log_start, offset), recovery_point=min(noted.recovery_point, offset))
            )

    def _open(self) -> None:
        before = self._state
        self._log, self._next = None, None
        self._state = self._opened((before,))
        require(self._state.batches == before.batches, "work", f"{self._log}, by the model {before.batches}")

    def _after_refusal(self, step: Step, before: dict[str, Any]) -> None:
        log = self._log
        if log is None or log.failure is not None or log.local.is_closed:
            self._after_offline(step, before)
        else:
            self._after_online(log, step, before)

    def _after_online(self, log: UnifiedLog, step: Step, before: dict[str, Any]) -> None:
        """The log goes on. It may have done the step, or nothing of it."""
        self.outcomes["online"] += 1
        states = [before["_state"], self._next or self._state]
        if step[0] == "follow" and log.log_end_offset == log.active_segment.base_offset:
            states[0] = before["_state"] = states[0]._replace(end=log.log_end_offset)  # a roll beyond a gap
        now = [state for state in states if (state.start, state.end) == (log.log_start_offset, log.log_end_offset)]
        require(bool(now), "live", f"{log} after {step}, by the model {states}")
        self._check_live(log, now[0])
        if now[0] is not before["_state"]:  # all is done but to write it down
            self._state, self._next = now[0], None
            return
        for name, value in before.items():
            setattr(self, name, value)
        self._next = None
        try:
            self._do(step)
        except TidelogError as error:
            raise Broken("retry", f"{type(error).__name__} in {step}: {error}") from error

    def _check_live(self, log: UnifiedLog, state: State) -> None:
        """What is in memory is in the files."""
        for batch in state.batches[state.first_from(log.log_start_offset) :]:
            offset = max(batch.last_offset, log.log_start_offset)
            data = log.read(offset, 1, Isolation.LOG_END).read()
            require(data == batch.data, "live", f"a read of {offset} gives {data.hex()}, not {batch}")
        other = self._check_files(state)
        ours, theirs = log.leader_epochs, other.leader_epochs
        for offset in range(max(log.log_start_offset, self._deleted_to), min(log.log_end_offset, other.log_end_offset)):
            is_so = ours.epoch_for_offset(offset) == theirs.epoch_for_offset(offset)
            require(is_so, "live", f"epoch of {offset}: {ours.entries}, in the file {theirs.entries}")

    def _check_files(self, state: State) -> UnifiedLog:
        """Another process finds all that is acknowledged, and fsck nothing."""
        found = self._disk.copy()
        stop = read_stop(found) if self._has_files else self._noted._replace(is_clean=False)
        opened = open_log(found, stop, self.config, self.clock)
        now = Expectation((state,), state.end, None, self._topic_id, self._id_from, max(self._deleted_to, state.start))
        check(found, opened, stop, now)
        opened.close()
        if not self._has_files:  # the log start that the log was opened with is nowhere else
            OffsetCheckpoint(found, join(ROOT, LOG_START_CHECKPOINT)).write({PARTITION: stop.log_start})
        report = fsck([DIRECTORY], fs=found, jobs=1)
        errors = [f"{one.code} {one.message}" for one in report.findings if str(one.severity) == "error"]
        require(not errors, "fsck", errors)
        return opened

    def _after_offline(self, step: Step, before: dict[str, Any]) -> None:
        """The log takes nothing any more. Another process opens it, and goes on."""
        self.outcomes["offline"] += 1
        if self._log is not None:
            self._require_refused(self._log)
            self._log.release()
            self._log = None
        after = self._next or self._state
        states = (before["_state"],) if after is before["_state"] else (before["_state"], after)
        if not self._is_cutting and after.end >= before["_state"].end:
            self._floor = max(self._floor, before["_state"].end)
        self._next, self._is_cutting = None, False
        found = self._opened(states)
        is_done = found.end != before["_state"].end or found.start != before["_state"].start
        if not is_done:
            for name in ("_number", "_last_of", "_epoch_of"):
                setattr(self, name, before[name])
        self._state = found
        if step[0] not in ("open", "stop", "kill", "crash") and not is_done:
            self._do(step)

    def _require_refused(self, log: UnifiedLog) -> None:
        try:
            log.append_as_leader(memoryview(bytearray(100)), 0)
        except LogClosedError:
            return
        raise Broken("offline", f"{log} takes appends")

    def _opened(self, states: tuple[State, ...]) -> State:
        stop = read_stop(self._fs) if self._has_files else self._noted
        self._noted = self._noted._replace(is_clean=False)
        expected = Expectation(
            states,
            max(self._floor, states[0].end) if len(states) == 1 else self._floor,
            None,
            self._topic_id,
            self._id_from,
            self._deleted_to,
        )
        log = open_log(self._fs, stop, self.config, self.clock)
        with self.refuser.paused():
            found = check(self._fs, log, stop, expected).state
        self._log = log
        self._floor = min(self._floor, found.end)
        self._topic_id = log.topic_id
        log.update_high_watermark(log.log_end_offset)
        return found


def refuse(workload: Workload, refusal: Refusal) -> RefusedRun:
    """Run a workload with one refusal. Raises Failure if something does not hold."""
    run = RefusedRun(workload, refusal)
    try:
        run.run()
    except Broken as broken:
        raise Failure(broken, run) from broken
    except Exception as error:
        raise Failure(Broken("crash", f"{type(error).__name__}: {error}"), run) from error
    return run


def refusals_of(workload: Workload) -> list[Refusal]:
    """Every refusal that a workload can meet."""
    return refusal_campaign.refusals_of(workload, refuse)


def workload_of(seed: int, number: int) -> Workload:
    """A random workload without power cuts."""
    workload = random_workload(seed, number)
    return workload._replace(steps=[step for step in workload.steps if step[0] != "crash"])


def run(seed: int, cases: int) -> Counter[str]:
    """Judge refusals of random workloads until there were so many. The first failure is raised."""
    return judge_refusals("refusals", seed, cases, PER_WORKLOAD, workload_of, refuse)


def replay(case: dict[str, Any]) -> str:
    """Judge one case again."""
    workload = Workload(case["settings"], case["steps"], case["salt"])
    return replayed(RefusedRun(workload, Refusal(*case["refusal"])))


if __name__ == "__main__":
    sys.stdout.write(replay(json.loads(sys.argv[1])))
