"""Cutting the power at every call of a round of compaction, and of the deletions that follow it.

A log is prepared by a workload of `compaction_model`. The round runs once, to know the log as it is before it and
behind each of its groups. Then it runs again, and behind every call that changes something on the disk, what a crash at
this moment would leave is opened and judged:

    open       the log opens, unclean
    whole      its batches are those before the swap of a group or behind it, never a mix, and nothing flushed is lost
    leftovers  no `.cleaned` and no `.swap` is left, and `.deleted` not for long
    readers    every key has its last value
    producers  they are known, and their last batches recognised
    lookups    every offset is found
    again      a second recovery changes nothing
    use        the round can be run again, and ends with the same records

There is a third state beside before and behind, as in Kafka. A swap that start-up completes removes what begins before
the end of the new segment. If that ends early, because the last records of the group are gone, the old segments from
there on stay, whole, and the next round takes them (`Course.between`).

    run(seed, cuts)               random workloads in all of these ways, until there were so many cuts
    cut_everywhere(workload)      one workload; fail_everywhere: the disk refuses each call; abandon_everywhere: the
                                  round is given up wherever it waits
    python -m tests.property.crash_compaction <seed> <number>     one random workload again
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from tests.log.compaction.compacting import finished
from tests.property.compaction_model import DIRECTORY, CompactionRun, Snapshot, batches_in, check_lookups
from tests.property.compaction_steps import FULL, TXN_PRODUCERS, Workload, random_workload
from tidelog.errors import StorageError, TidelogError
from tidelog.log import Isolation, ManualClock, UnifiedLog
from tidelog.log.compaction.cleanable import cleanable_log
from tidelog.log.files import read_whole
from tidelog.log.names import CLEANED, DELETED, SWAP
from tidelog.log.segment import LogSegment
from tidelog.records import RecordBatch
from tidelog.records.batches import read_batches
from tidelog.testing.disk import SimulatedFileSystem

State = tuple[bytes, ...]
Values = dict[bytes | None, tuple[int, bytes | None]]

_NEVER = 1 << 62
_NO_VALUE = (-1, None)


class Broken(AssertionError):
    """A property does not hold. `kind` is its name."""

    def __init__(self, kind: str, text: object) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Round:
    """A log with everything ready for a round, and that round."""

    def __init__(
        self, workload: Workload, on_change: Callable[["Round"], None] | None = None, *, unordered: bool = False
    ) -> None:
        self._on_change = on_change
        self._is_watched = False
        self.run = CompactionRun(workload, self._changed if on_change else None, unordered=unordered, judges=False)
        self.run.run()
        for number, producer_id in enumerate(TXN_PRODUCERS):
            self.run.do(["end", producer_id, number % 2 == 0])
        self.run.do(["roll"])
        self.run.do(["wait", 60_000])  # tombstones may go, and old files are gone
        self.run.do(["put", [[1, 5], [2, None], [3, 5]], 0])
        self.log.flush()
        self.run.disk.sync_all()
        self.run.do(["put", [[1, 5]], 0])  # not flushed: it may be lost
        self.cleanable = self.run.cleanable()
        self.floor = self.log.recovery_point
        self.swapped = 0  # groups
        self.first_call = self.run.disk.calls

    @property
    def log(self) -> UnifiedLog:
        return self.run.log

    def _changed(self) -> None:
        if self._is_watched and self._on_change is not None:
            self._on_change(self)

    def perform(self, on_swap: Callable[[], None] = lambda: None, steps: int = _NEVER) -> int:
        """Run the round, or so many steps of it; how many there were."""
        work = self.run.cleaner(FULL).clean(self.cleanable)
        segments, number = self.log.segments, 0
        self._is_watched = True
        try:
            while number < steps:
                number += 1
                try:
                    next(work)
                except StopIteration:
                    break
                finally:
                    if self.log.segments != segments and not _has_suffix(self.log):
                        segments = self.log.segments
                        self.swapped += 1
                        on_swap()
        finally:
            work.close()
            self._is_watched = False
        return number

    def tidy(self) -> None:
        """Let the old files go."""
        self._is_watched = True
        self.run.clock.advance(self.log.config.file_delete_delay_ms)
        self.log.tick()
        self._is_watched = False


class Course:
    """What a round makes of a log, group by group: batches and last values, and how many steps and calls it takes."""

    def __init__(self, workload: Workload) -> None:
        round_ = Round(workload)
        self.states: list[State] = [_state(round_.log)]
        self.between: list[State] = []  # what a swap can leave that is completed by start-up
        self.values: list[Values] = [values_of(round_.log)]
        old = _by_segment(round_.log)

        def on_swap() -> None:
            nonlocal old
            new = _by_segment(round_.log)
            self.states.append(_state(round_.log))
            self.values.append(values_of(round_.log))
            self.between.append(_joined(old, new))
            old = new

        self.steps = round_.perform(on_swap)
        self.calls = round_.run.disk.calls - round_.first_call
        self.records = _data(round_.log)


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(
    disk: SimulatedFileSystem, course: Course, round_: Round, rng: Random, *, allowed: Sequence[int] | None = None
) -> None:
    """Open what is left of a log, and check everything."""
    run, clock = round_.run, ManualClock(round_.run.clock.now_ms())
    recovery_point = rng.choice((0, round_.floor))
    try:
        log = _open(run, disk, clock, recovery_point)
        number, is_whole = _matched(log, course, round_, allowed or (round_.swapped, round_.swapped + 1))
        names = disk.list(DIRECTORY)
        _require(not [name for name in names if name.endswith((CLEANED, SWAP))], "leftovers", names)
        log.update_high_watermark(log.log_end_offset)
        if is_whole:
            _check_values(log, course.values[number])
            run.check_known_again(log)
        check_lookups(log)
        clock.advance(log.config.file_delete_delay_ms)
        log.tick()
        _require(not [n for n in disk.list(DIRECTORY) if n.endswith(DELETED)], "leftovers", disk.list(DIRECTORY))
        log = _check_again(log, run, disk, clock, recovery_point)
        if is_whole and rng.random() < 0.3:
            _check_use(log, course, round_)
    except TidelogError as error:
        raise Broken("open", f"{type(error).__name__}: {error}") from error


def _open(run: CompactionRun, disk: SimulatedFileSystem, clock: ManualClock, recovery_point: int) -> UnifiedLog:
    return run.open(disk, log_start=run.log.log_start_offset, recovery_point=recovery_point, clock=clock)


def _matched(log: UnifiedLog, course: Course, round_: Round, allowed: Sequence[int]) -> tuple[int, bool]:
    """Which state of the round the log is in, and whether nothing is missing of it."""
    found = _state(log)
    states = [(number, course.states[number]) for number in allowed if number < len(course.states)]
    states += [(number + 1, course.between[number]) for number in allowed[:1] if number < len(course.between)]
    for number, state in states:
        lost = [RecordBatch(data) for data in state[len(found) :]]
        if state[: len(found)] == found and all(batch.last_offset >= round_.floor for batch in lost):
            return number, not lost
    raise Broken("whole", f"{_words(found)}, not one of {[_words(course.states[n]) for n in allowed[:2]]}")


def _check_again(
    log: UnifiedLog, run: CompactionRun, disk: SimulatedFileSystem, clock: ManualClock, recovery_point: int
) -> UnifiedLog:
    before = Snapshot(log)
    log.release()
    again = _open(run, disk, clock, recovery_point)
    again.update_high_watermark(again.log_end_offset)
    after = Snapshot(again)
    changed = [name for name in {*before.files, *after.files} if before.files.get(name) != after.files.get(name)]
    _require(after == before, "again", changed)
    return again


def _check_values(log: UnifiedLog, wanted: Values) -> None:
    """Every key has its last value. A tombstone may be there or not."""
    found = values_of(log)
    for key in {*found, *wanted}:
        values = [values[key] for values in (found, wanted) if values.get(key, _NO_VALUE)[1] is not None]
        _require(len(values) != 1 and len({*values}) <= 1, "readers", f"{key!r}: {values}")


def _check_use(log: UnifiedLog, course: Course, round_: Round) -> None:
    cleaner = round_.run.cleaner(FULL)
    cleanable = cleanable_log(log, round_.run.checkpoint, round_.run.clock.now_ms())
    finished(cleaner.clean(cleanable, round_.run.clock.now_ms()))
    _require(_data(log) == course.records, "use", f"{_data(log)}, not {course.records}")


def _require(is_so: bool, kind: str, text: object) -> None:
    if not is_so:
        raise Broken(kind, text)


def values_of(log: UnifiedLog) -> Values:
    """The last value of each key, as a reader of committed records sees it."""
    log.update_high_watermark(log.log_end_offset)
    return {record.key: (record.offset, record.value) for record in log.records(isolation=Isolation.COMMITTED)}


def _state(log: UnifiedLog) -> State:
    return tuple(bytes(batch.buffer) for batch in batches_in(log))


def _data(log: UnifiedLog) -> list[int]:
    """The offsets of all records that have a value, but for markers. A second round may let go of a tombstone."""
    data = [record for batch in batches_in(log) if not batch.is_control for record in batch.records()]
    return [record.offset for record in data if record.value is not None and record.offset >= log.log_start_offset]


def _by_segment(log: UnifiedLog) -> dict[LogSegment, State]:
    content = {segment: read_whole(log.local.fs, segment.log.path)[: segment.size] for segment in log.segments}
    return {segment: tuple(bytes(part.buffer) for part in read_batches(data)) for segment, data in content.items()}


def _joined(old: dict[LogSegment, State], new: dict[LogSegment, State]) -> State:
    """The new segment, and those of the old ones that begin behind its last record."""
    (segment,) = set(new) - set(old)
    group = [one for one in old if one not in new]
    kept = [one for one in group if one.base_offset >= max(segment.next_offset(), segment.base_offset + 1)]
    parts = {**{one: old[one] for one in kept}, **new}
    in_order = sorted(parts, key=lambda one: one.base_offset)
    return tuple(data for one in in_order for data in parts[one])


def _words(state: State) -> str:
    return " ".join(f"{int.from_bytes(data[:8], 'big')}:{len(data)}" for data in state)


def _has_suffix(log: UnifiedLog) -> bool:
    return any(not segment.log.path.endswith(".log") for segment in log.segments)


# -- everywhere --------------------------------------------------------------------------------------------------------


def cut_everywhere(workload: Workload, variants: int = 1, *, unordered: bool = False, salt: str = "") -> int:
    """Judge every cut of a round, and of what follows it; how many there were."""
    course = Course(workload)
    cuts = 0

    def on_change(round_: Round) -> None:
        nonlocal cuts
        for variant in range(variants):
            rng = Random(f"{salt} {cuts} {variant}")
            image = round_.run.disk.after_crash(rng) if rng.random() < 0.8 else round_.run.disk.copy()  # killed
            try:
                judge(image, course, round_, rng)
            except AssertionError as broken:
                told = "\n    ".join(round_.run.disk.journal[-12:])
                raise AssertionError(f"cut {cuts}, variant {variant}: {broken}\n    {told}") from broken
        cuts += 1

    round_ = Round(workload, on_change, unordered=unordered)
    round_.perform()
    if round_.swapped != len(course.states) - 1:
        raise AssertionError(f"{round_.swapped} swaps, {len(course.states) - 1} expected")
    round_.tidy()
    return cuts * variants


def fail_everywhere(workload: Workload, every: int = 1, *, for_good: bool = False, salt: str = "") -> int:
    """Let the disk refuse one call after the other, or all from one on, and judge what is left; how many there were."""
    course = Course(workload)
    refused = 0
    for call in range(1, course.calls + 1, every):
        rng = Random(f"{salt} {call}")
        round_ = Round(workload)
        disk, number = round_.run.disk, round_.first_call + call
        disk.fail(range(number, _NEVER) if for_good else {number}, partly=rng.random() < 0.5)
        try:
            round_.perform()
            is_told = False
        except StorageError:
            is_told = True
        disk.heal()
        try:
            _require(is_told, "told", "the disk has refused something, and nobody was told")
            judge(disk.copy(), course, round_, rng)
            judge(disk.after_crash(rng), course, round_, rng)
            if round_.log.failure is None:
                _check_values(round_.log, course.values[round_.swapped])
                _check_use(round_.log, course, round_)
        except AssertionError as broken:
            told = "\n    ".join(disk.journal[-12:])
            raise AssertionError(f"call {call} of {course.calls} refused: {broken}\n    {told}") from broken
        refused += 1
    return refused


def abandon_everywhere(workload: Workload) -> int:
    """Give a round up wherever it waits, and judge what is left; how often."""
    course = Course(workload)
    for steps in range(course.steps):
        round_ = Round(workload)
        round_.perform(steps=steps)
        log, number = round_.log, round_.swapped
        names = round_.run.disk.list(DIRECTORY)
        _require(not [name for name in names if name.endswith((CLEANED, SWAP))], "leftovers", names)
        _require(_state(log) == course.states[number], "whole", f"{steps} steps, {_words(_state(log))}")
        _check_values(log, course.values[number])
        check_lookups(log)
        judge(round_.run.disk.copy(), course, round_, Random(steps), allowed=[number])
        _check_use(log, course, round_)
    return course.steps


def run(seed: int, cuts: int, every: int = 1) -> Counter[str]:
    """Judge random workloads until there were so many cuts, in every way there is; one of so many calls is refused."""
    done: Counter[str] = Counter()
    number = 0
    while done["compaction-cuts"] < cuts:
        workload, salt = random_workload(seed, number), f"{seed} {number}"
        try:
            done["compaction-cuts"] += cut_everywhere(workload, salt=salt)
            done["compaction-cuts"] += cut_everywhere(workload, salt=salt, unordered=True)
            done["compaction-refusals"] += fail_everywhere(workload, every, for_good=number % 2 == 0, salt=salt)
            done["compaction-abandoned"] += abandon_everywhere(workload)
        except AssertionError as broken:
            again = f"python -m tests.property.crash_compaction {seed} {number}"
            raise AssertionError(f"seed {seed}, workload {number}: {broken}\nagain: {again}") from broken
        number += 1
    done["compaction-logs"] = number
    return done


def replay(seed: int, number: int) -> str:
    """One random workload again, in every way; what went wrong."""
    workload, salt = random_workload(seed, number), f"{seed} {number}"
    told = [str(workload.settings), *(str(step) for step in workload.steps)]
    try:
        cut_everywhere(workload, salt=salt)
        cut_everywhere(workload, salt=salt, unordered=True)
        fail_everywhere(workload, for_good=number % 2 == 0, salt=salt)
        abandon_everywhere(workload)
    except AssertionError as broken:
        told.append(str(broken))
    return "\n".join([*told, ""])


if __name__ == "__main__":
    sys.stdout.write(replay(int(sys.argv[1]), int(sys.argv[2])))
