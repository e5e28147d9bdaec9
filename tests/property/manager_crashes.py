"""Cutting the power, and killing, at random calls of a LogManager that cleans, deletes, truncates and moves its logs.

What a cut leaves is opened and judged:

    open        the manager opens, and every log that must be there is, and none that must not
    flushed     everything that was flushed is there: the log reaches to it
    committed   of every key the last committed value is the one that was appended; in a log that is not compacted every
                record is there; no record is there that was not appended. Transactions that the cut has left open are
                ended first, by chance
    producers   the sequence of a producer whose last batch is not deleted is the last one
    fsck        it finds no error in what the cut left, nor in what the manager leaves when it is closed
    again       closed in good order and opened again, every log says the same; so it does after the cleaner was there

A kill loses nothing that was appended: the file system survives it. Power loss may lose what was not flushed.

    run(seed, cases)                judges cuts of random workloads, in order and in disorder
    python -m tests.property.manager_crashes '<json>'    one case again, as a failure prints it
"""

import json
import sys
from collections import Counter
from random import Random
from typing import Any

from tests.property.manager_model import LogModel, Written
from tests.property.manager_run import (
    PARTITIONS,
    ROOTS,
    ManagerRun,
    State,
    Workload,
    marker_of,
    open_manager,
    random_workload,
)
from tests.property.real_runs import Interrupted
from tidelog.errors import TidelogError
from tidelog.fsck import Severity, check
from tidelog.log import AppendOrigin, Isolation, LogManager, ManualClock, UnifiedLog
from tidelog.log.files import FileSystem
from tidelog.log.names import TopicPartition
from tidelog.records import ControlType

EVERY = 30  # one call of so many is cut at


class Broken(AssertionError):
    """A property does not hold. `kind` is its name."""

    def __init__(self, kind: str, text: object) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Failure(AssertionError):
    """A cut after which something did not hold, with the line that shows it again."""

    def __init__(self, broken: Broken, run: ManagerRun) -> None:
        self.kind = broken.kind
        self.workload = run.workload._replace(steps=run.workload.steps[: run.step + 1])
        case = json.dumps({**self.workload._asdict(), "cut": run.cuts}, separators=(",", ":"))
        super().__init__(
            f"{broken}\n  cut {run.cuts}, in step {run.step + 1}: {self.workload.steps[-1:]}\n"
            f"  python -m tests.property.manager_crashes '{case}'"
        )


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(
    run: ManagerRun | Interrupted, disk: FileSystem, rng: Random, *, is_power_loss: bool
) -> dict[TopicPartition, tuple[State, ...]]:
    """Judge what is left; what each log turned out to be."""
    clock = ManualClock(run.clock.now_ms())
    _settle_move(run, disk)
    _check_with_fsck(disk, "left by the cut", run)
    try:
        manager = open_manager(disk, clock, rng)
    except TidelogError as error:
        raise Broken("open", f"{type(error).__name__}: {error}") from error
    found: dict[TopicPartition, tuple[State, ...]] = {}
    decided: dict[TopicPartition, dict[int, ControlType]] = {}
    is_dropping = run.is_truncating and run.workload.steps[run.step][0] == "begin"
    try:
        for partition in PARTITIONS:
            log, states = manager.logs.get(partition), run.states[partition]
            state = _matched(
                log, states, is_power_loss=is_power_loss or run.is_truncating, is_dropping=is_dropping
            )  # fmt: skip
            found[partition] = (state,)
            if log is not None and state is not None:
                decided[partition] = _decide(log, state, rng, clock.now_ms())
                _check_view(log, state, decided[partition])
        _check_again(manager, disk, clock, found, decided, rng)
    except TidelogError as error:
        raise Broken("use", f"{type(error).__name__}: {error}") from error
    return found


def _settle_move(run: ManagerRun | Interrupted, disk: FileSystem) -> None:
    """Between the renames of a move a partition has two directories, as in Kafka: a person removes the old one."""
    if run.moving is not None:
        partition, new = run.moving
        homes = [root for root in ROOTS if str(partition) in disk.list(root)]
        for root in homes:
            if len(homes) > 1 and root != new:
                disk.remove_directory(f"{root}/{partition}")


def _check_with_fsck(disk: FileSystem, when: str, run: ManagerRun | Interrupted | None = None) -> None:
    """Check both roots. The id of a topic is written with the first append, and may be missing before."""
    states = {} if run is None else run.states
    half_made = [tp for tp, possible in states.items() if not all(state and state.entries for state in possible)]
    for root in ROOTS:
        for finding in check(root, fs=disk, jobs=1).findings:
            is_half_made = finding.code == "PAR-METADATA" and finding.topic_partition in half_made
            if finding.severity is Severity.ERROR and not is_half_made:
                raise Broken("fsck", f"{when}: {finding}")


def _matched(
    log: UnifiedLog | None, states: tuple[State, ...], *, is_power_loss: bool, is_dropping: bool = False
) -> State:
    """The state that the log is in, as it was found."""
    if log is None:
        if None not in states:
            raise Broken("open", f"a log is gone that was {states}")
        return None
    problems = []
    for state in states:
        if state is None:
            problems.append(Broken("open", f"{log} should not be there"))
            continue
        try:
            _check_ends(log, state, is_power_loss=is_power_loss)
        except Broken as broken:
            problems.append(broken)
        else:
            return LogModel(
                tuple(entry for entry in state.entries if entry.last_offset < log.log_end_offset),
                log.log_start_offset, log.log_end_offset, log.log_end_offset, state.origin,
                is_compacted=state.is_compacted, is_rest=is_dropping and log.log_end_offset < state.end,
            )  # fmt: skip
    raise problems[-1]


def _check_ends(log: UnifiedLog, state: LogModel, *, is_power_loss: bool) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    floor = state.floor if is_power_loss else state.end
    if not max(floor, state.origin) <= end <= state.end:
        raise Broken("flushed", f"{log}: everything below {floor} had been flushed, and {state.end} was the end")
    if start > state.start:
        raise Broken("open", f"{log}: it started at {state.start}")
    known = state.by_offset(end)
    for record in log.records():
        if known.get(record.offset) != Written(record.offset, record.key, record.value):
            raise Broken("committed", f"{log}: {record} was never appended, but {known.get(record.offset)}")
    open_txns = [first for first in state.open_txns(end).values() if first >= start]
    log.update_high_watermark(end)
    wanted = min([end, *open_txns])
    if len(open_txns) == len(state.open_txns(end)) and log.last_stable_offset != wanted:
        raise Broken("committed", f"{log}: the last stable offset is {log.last_stable_offset}, not {wanted}")
    for producer_id, (sequence, offset) in state.producers(end).items():
        entry = log.producers.last_entry(producer_id)
        if offset >= start and (entry is None or entry.last_sequence != sequence):
            raise Broken("producers", f"{log}: {producer_id} wrote {sequence} at {offset}, known is {entry}")


def _decide(log: UnifiedLog, state: LogModel, rng: Random, now_ms: int) -> dict[int, ControlType]:
    """End the transactions that are open, by chance."""
    decided = {}
    for producer_id in sorted(state.open_txns(log.log_end_offset)):
        decided[producer_id] = rng.choice((ControlType.COMMIT, ControlType.ABORT))
        log.append_as_leader(
            memoryview(marker_of(producer_id, decided[producer_id], now_ms)), 0, AppendOrigin.COORDINATOR
        )
    log.update_high_watermark(log.log_end_offset)
    return decided


def _check_view(log: UnifiedLog, state: LogModel, decided: dict[int, ControlType]) -> None:
    start = log.log_start_offset
    found = [Written(r.offset, r.key, r.value) for r in log.records(isolation=Isolation.COMMITTED)]
    expected = state.visible(start, state.end, decided)
    if not set(found) <= set(expected):
        raise Broken("committed", f"{log}: {sorted(set(found) - set(expected))} were not committed")
    if not state.is_compacted and found != expected:
        raise Broken("committed", f"{log}: {sorted(set(expected) - set(found))} are missing")
    latest = {record.key: record for record in found}
    if state.is_rest:
        return
    for key, record in state.latest(start, state.end, decided).items():
        if latest.get(key, record if record.value is None else None) != record:
            raise Broken("committed", f"{log}: {key!r} is {latest.get(key)}, not {record}; ended: {decided}")


def _check_again(
    manager: LogManager,
    disk: FileSystem,
    clock: ManualClock,
    found: dict[TopicPartition, tuple[State, ...]],
    decided: dict[TopicPartition, dict[int, ControlType]],
    rng: Random,
) -> None:
    """Let the cleaner work, close, open again: every log must say the same."""
    if rng.random() < 0.4:
        for _ in range(12):
            clock.advance(rng.choice((10, 600)))
            manager.tick()
    manager.close()
    _check_with_fsck(disk, "left by a clean stop")
    manager = open_manager(disk, clock, rng)
    for partition, (state,) in found.items():
        log = manager.logs.get(partition)
        if (log is None) != (state is None):
            raise Broken("again", f"{log}, {state}")
        if log is not None and state is not None:
            log.update_high_watermark(log.log_end_offset)
            _check_view(log, state, decided[partition])
    manager.close()


# -- running -----------------------------------------------------------------------------------------------------------


def judge_cut(run: ManagerRun) -> None:
    """Judge a loss of power at this moment, or a kill."""
    rng = run.rng(f"cut {run.cuts}")
    is_power_loss = rng.random() < 0.75
    image = run.disk.after_crash(rng) if is_power_loss else run.disk.copy()
    judge(run, image, rng, is_power_loss=is_power_loss)


def cut_at_some(workload: Workload, every: int = EVERY) -> int:
    """Run a workload and judge the end of every step, and one call of so many; how many. Raises Failure."""
    judged = 0

    def on_cut(run: ManagerRun) -> None:
        nonlocal judged
        if run.is_between_steps or run.rng(f"whether {run.cuts}").random() * every < 1:
            judged += 1
            judge_cut(run)

    run = ManagerRun(workload, on_cut)
    try:
        run.run()
    except Broken as broken:
        raise Failure(broken, run) from broken
    except TidelogError as error:
        raise Failure(Broken("work", f"{type(error).__name__}: {error}"), run) from error
    return judged


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cuts of random workloads until there were so many; every third workload runs in disorder."""
    done: Counter[str] = Counter()
    while done["manager-cuts"] < cases:
        number = done["manager-workloads"]
        try:
            done["manager-cuts"] += cut_at_some(random_workload(seed, number, unordered=number % 3 == 2))
        except Failure as failure:
            raise AssertionError(f"seed {seed}, workload {number}: {failure}") from None
        done["manager-workloads"] += 1
    return done


def replay(case: dict[str, Any]) -> str:
    """Judge one cut again; what the disk was told before it, and what is wrong."""
    told: list[str] = []

    def on_cut(run: ManagerRun) -> None:
        if run.cuts == case["cut"]:
            told.extend(run.disk.journal[-30:])
            judge_cut(run)

    try:
        ManagerRun(Workload(case["steps"], case["salt"], case["unordered"]), on_cut).run()
    except Broken as broken:
        told.append(str(broken))
    return "\n".join([*told, ""])


if __name__ == "__main__":
    sys.stdout.write(replay(json.loads(sys.argv[1])))
