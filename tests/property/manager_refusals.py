"""The refusal campaign for a LogManager: any call of its work is refused, and the work is tried again.

Partitions in two log directories are created, written to, truncated, copied and moved, deleted, kept up and closed. One
call is refused (no descriptor left, an I/O error, a full disk), once or until the step has failed. Then the disk is
healed, and

    all roots are online    every partition is what it was before the step, or after it; a second manager finds the same
                            in the files; the same step, tried again, succeeds
    a root is offline       the manager serves the partitions of the other one as they were; a new manager finds all
                            partitions, what was acknowledged in them once and in order, and goes on

At the end the manager is closed, fsck finds no error, and a new manager finds the same.

    run(seed, cases)             judges refusals of random workloads until there were so many
    python -m tests.property.manager_refusals '<json>'    one case again, as a failure prints it
"""

import json
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from tests.property import refusal_campaign
from tests.property.refusal_campaign import judge_refusals, replayed
from tests.property.refusing_disk import Refusal, Refuser, RefusingDisk
from tidelog.errors import StorageError, TidelogError
from tidelog.fsck import check as fsck
from tidelog.log import LogConfig, LogManager, ManagerConfig, ManualClock, TopicPartition, UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.files import FileSystem
from tidelog.log.open_files import OPEN_FILES
from tidelog.records import NewRecord, build_batch
from tidelog.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
ROOTS = ("/a", "/b")
PARTITIONS = tuple(TopicPartition(f"orders{number}", number) for number in range(3))
PER_WORKLOAD = 100
_OPEN_FILES = (1, 3, 100)
_WEIGHTS = {
    "create": 6, "append": 16, "lead": 2, "roll": 3, "flush": 3, "truncate": 3, "begin": 1, "trim": 2, "retain": 2,
    "tick": 6, "checkpoint": 3, "copy": 3, "move": 3, "delete": 2, "stop": 2, "kill": 1,
}  # fmt: skip

Step = list[Any]


class Workload(NamedTuple):
    """Steps, each legal whatever came before it, and what decides on everything else."""

    steps: list[Step]
    salt: str


class Partition(NamedTuple):
    """A partition as it should be: the values from the log start on."""

    start: int = 0
    values: tuple[bytes, ...] = ()
    number: int = 0  # how often a log of this name was made: each has another topic id

    @property
    def end(self) -> int:
        return self.start + len(self.values)


State = dict[TopicPartition, Partition]


class Broken(AssertionError):
    """Something does not hold."""


class Failure(AssertionError):
    """A refusal after which something did not hold, with the line that shows it again."""

    def __init__(self, problem: str, run: "Run") -> None:
        case = {**run.workload._asdict(), "refusal": list(run.refuser.refusal)}
        command = f"python -m tests.property.manager_refusals '{json.dumps(case, separators=(',', ':'))}'"
        super().__init__(f"{problem}\n  {run.refuser.refusal}, {run.refuser.refused}, in step {run.step}\n  {command}")


class Run:
    """A workload one call of which is refused."""

    def __init__(self, workload: Workload, refusal: Refusal) -> None:
        self.workload = workload
        self.refuser = refuser = Refuser(refusal)
        self.outcomes: Counter[str] = Counter()
        self.clock = ManualClock(NOW)
        self.disk = SimulatedFileSystem(self.clock)
        self.step: Step = []
        self._rng = Random(workload.salt)
        self._config = LogConfig(
            segment_bytes=self._rng.choice((500, 1500)), index_interval_bytes=self._rng.choice((0, 200)),
            segment_index_bytes=120, retention_bytes=self._rng.choice((-1, 1500)), retention_ms=-1,
            flush_messages=self._rng.choice((2**63 - 1, 3)),
            preallocate=self._rng.random() < 0.3, file_delete_delay_ms=self._rng.choice((0, 60_000)),
        )  # fmt: skip
        self._manager: LogManager | None = None
        self._state: State = {}
        self._after: State = {}  # the state once the step is done
        self._copied: set[TopicPartition] = set()
        self._number = 0
        self._made: Counter[TopicPartition] = Counter()

        class Disk(RefusingDisk):
            def __init__(self, disk: SimulatedFileSystem) -> None:
                self.refuser = refuser
                super().__init__(disk, lambda: None)

        self._fs: FileSystem = Disk(self.disk)
        self._roots = ROOTS

    def files(self) -> SimulatedFileSystem:
        """The files as another process finds them now."""
        return self.disk.copy()

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None
        return self._manager

    def run(self) -> None:
        """Run all steps, each tried again if it was refused."""
        limit, OPEN_FILES.limit = OPEN_FILES.limit, self._rng.choice(_OPEN_FILES)
        try:
            self._run()
        finally:
            OPEN_FILES.limit = limit
            if self._manager is not None:
                kill(self._manager)

    def _run(self) -> None:
        for step in [["open"], *self.workload.steps, ["stop"]]:
            self.step, number, made = step, self._number, self._made.copy()
            self._after = dict(self._state)
            try:
                self._do(step)
            except KeyboardInterrupt:
                self._after_refusal(step, number, made)
            except TidelogError as error:
                if not self.refuser.refused or self.refuser.is_healed:
                    raise Broken(f"{type(error).__name__} in {step}: {error}") from error
                if not isinstance(error, StorageError):
                    raise Broken(f"{type(error).__name__} in {step}: {error}") from error
                self.refuser.heal()
                self._after_refusal(step, number, made)
            if self.refuser.refused and not self.refuser.is_healed:  # noted, and not raised
                self.refuser.heal()
                self._after_refusal(step, number, made, is_raised=False)
            self._state = self._after
            with self.refuser.paused():
                require_same(self.manager, self._state)
        errors = [
            f"{one.code} {one.file} {one.message}"
            for one in fsck(ROOTS, fs=self.files(), jobs=1).findings
            if str(one.severity) == "error"
        ]
        if errors:
            raise Broken(f"fsck: {errors}")
        self._check_files(self._state)

    def _do(self, step: Step) -> None:
        getattr(self, f"_do_{step[0]}")(*step[1:])

    # -- after a refusal -----------------------------------------------------------------------------------------------

    def _after_refusal(self, step: Step, number: int, made: Counter[TopicPartition], *, is_raised: bool = True) -> None:
        manager = self._manager
        if manager is not None and not manager.is_closed:
            with suppress(StorageError):
                manager.checkpoint_recovery_points()  # whatever it is: the owner lets go of what has failed
        if manager is not None and not manager.is_closed and not manager.root_set.has_offline:
            self.outcomes["online"] += 1
            now = self._matched(manager)
            self._check_files(now)
            if is_raised and now != self._after:
                self._number, self._made = number, made
                self._state, self._after = now, dict(now)
                try:
                    self._do(step)
                except TidelogError as error:
                    raise Broken(f"the retry: {type(error).__name__} in {step}: {error}") from error
            return
        self.outcomes["offline"] += 1
        if manager is not None:
            if not manager.is_closed:
                self._matched(manager, is_whole=False)
            kill(manager)
            self._manager = None
        self._take(self._opened(self._fs, self._roots))
        self._after = self._matched(self.manager)

    def _matched(self, manager: LogManager, *, is_whole: bool = True) -> State:
        """The state that the logs of a manager are in: of each partition the one before the step, or after it."""
        found: State = {}
        for partition in PARTITIONS:
            before, after = self._state.get(partition), self._after.get(partition)
            log = manager.logs.get(partition)
            if log is None:
                if is_whole and before is not None and after is not None:
                    raise Broken(f"{partition} is gone")
                continue
            now = contents(log)
            if self.step[0] == "begin" and after is not None and before is not None:
                is_cut = now.start == before.start and now.values == before.values[: len(now.values)]
                if is_cut or not now.values:  # half of it is dropped, or all, and it is not begun anew yet
                    found[partition] = before._replace(start=now.start, values=now.values)
                    continue
            for wanted in (before, after):
                if wanted is not None and is_same(now, wanted, log):
                    found[partition] = wanted._replace(start=now.start, values=now.values)
                    break
            else:
                raise Broken(f"{log}: {now}, by the model {before} or {after}")
        return found

    def _check_files(self, state: State) -> None:
        """Another process finds in the files what is in memory."""
        other = self._opened(self.files(), ROOTS)
        half_made = {tp: self._after[tp] for tp in other.logs if tp not in state and tp in self._after}
        if self.step[0] in ("trim", "retain", "tick"):
            self._matched(other)  # a log start is in memory first
        else:
            require_same(other, state | half_made)
        kill(other)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _opened(self, fs: FileSystem, roots: Sequence[str]) -> LogManager:
        return LogManager.open(
            roots, self._config, config=ManagerConfig(cleaner=CleanerConfig(enable=False)), clock=self.clock, fs=fs,
            rng=Random(self.workload.salt),
        )  # fmt: skip

    def _do_open(self) -> None:
        self._manager = None
        self._take(self._opened(self._fs, self._roots))

    def _take(self, manager: LogManager) -> None:
        self._manager = manager
        self._copied &= set(manager.future_logs)
        for log in manager.all_logs():
            log.update_high_watermark(log.log_end_offset)

    def _do_stop(self) -> None:
        self.manager.close()
        self._do_open()

    def _do_kill(self) -> None:
        kill(self.manager)
        self._do_open()

    def _log(self, number: int) -> UnifiedLog | None:
        return self.manager.logs.get(PARTITIONS[number])

    def _do_create(self, number: int, root: int) -> None:
        partition = PARTITIONS[number]
        if partition not in self._state:
            self._made[partition] += 1
            self._after[partition] = Partition(number=self._made[partition])
        made = uuid.UUID(int=1000 * number + self._made[partition], version=4)
        self.manager.get_or_create(partition, topic_id=made, root=self._roots[root])

    def _batch(self, count: int) -> tuple[tuple[bytes, ...], bytes]:
        self._number += 1
        values = tuple(b"%d.%d" % (self._number, each) + b"." * (self._number * 37 % 70) for each in range(count))
        return values, bytes(build_batch([NewRecord(b"k", value, self.clock.now_ms()) for value in values]))

    def _do_append(self, number: int, count: int) -> None:
        log = self._log(number)
        if log is not None:
            values, data = self._batch(count)
            before = self._state[PARTITIONS[number]]
            self._after[PARTITIONS[number]] = before._replace(values=before.values + values)
            log.append_as_leader(memoryview(bytearray(data)), log.latest_epoch or 0)
            log.update_high_watermark(log.log_end_offset)

    def _do_lead(self, number: int) -> None:
        log = self._log(number)
        if log is not None:
            latest = log.latest_epoch
            log.assign_epoch_start_offset(0 if latest is None else latest + 1, log.log_end_offset)

    def _do_roll(self, number: int) -> None:
        log = self._log(number)
        if log is not None:
            log.roll()

    def _do_flush(self, number: int) -> None:
        log = self._log(number)
        if log is not None:
            log.flush()

    def _do_truncate(self, number: int, back: int) -> None:
        before = self._state.get(PARTITIONS[number])
        if before is not None:
            offset = max(before.end - back, before.start)
            self._after[PARTITIONS[number]] = before._replace(values=before.values[: offset - before.start])
            self.manager.truncate_to({PARTITIONS[number]: offset})

    def _do_begin(self, number: int, ahead: int) -> None:
        before = self._state.get(PARTITIONS[number])
        if before is not None:
            self._after[PARTITIONS[number]] = before._replace(start=before.end + ahead, values=())
            self.manager.truncate_fully_and_start_at(PARTITIONS[number], before.end + ahead)

    def _do_trim(self, number: int, forward: int) -> None:
        log, before = self._log(number), self._state.get(PARTITIONS[number])
        if log is not None and before is not None:
            forward = min(forward, len(before.values))
            self._after[PARTITIONS[number]] = before._replace(
                start=before.start + forward, values=before.values[forward:]
            )
            log.delete_records(before.start + forward)
            self.manager.checkpoint_log_starts()

    def _do_retain(self) -> None:
        self.manager.delete_old_segments()
        self.manager.checkpoint_log_starts()
        self._follow_starts()

    def _follow_starts(self) -> None:
        """What retention takes is the engine's choice."""
        for partition, log in self.manager.logs.items():
            known = self._after[partition]
            gone = log.log_start_offset - known.start
            self._after[partition] = known._replace(start=known.start + gone, values=known.values[gone:])

    def _do_tick(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        for _ in range(3):
            self.manager.tick()
        self._follow_starts()

    def _do_checkpoint(self) -> None:
        self.manager.checkpoint_log_starts()
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_high_watermarks()

    def _do_copy(self, number: int) -> None:
        """Bring the copy of a log in the other root up to date, or begin one."""
        partition = PARTITIONS[number]
        log = self._log(number)
        if log is None:
            return
        first, second = self._roots
        other = second if log.directory.startswith(f"{first}/") else first
        copy = self.manager.get_or_create(partition, root=other, future=True)
        ends = log.log_start_offset <= copy.log_end_offset <= log.log_end_offset
        if not ends or copy.log_start_offset > log.log_start_offset or partition not in self._copied:
            self.manager.truncate_fully_and_start_at(partition, log.log_start_offset, future=True)
        while copy.log_end_offset < log.log_end_offset:
            data = bytearray(log.read(copy.log_end_offset, 1).read())
            copy.append_as_follower(memoryview(data))
        self._copied.add(partition)

    def _do_move(self, number: int) -> None:
        partition = PARTITIONS[number]
        if self._log(number) is not None and partition in self._copied and partition in self.manager.future_logs:
            self._do_copy(number)
            self.manager.replace_current_with_future(partition)
            self._copied.discard(partition)

    def _do_delete(self, number: int) -> None:
        self._after.pop(PARTITIONS[number], None)
        self._copied.discard(PARTITIONS[number])
        self.manager.delete_all([PARTITIONS[number]])


def kill(manager: LogManager) -> None:
    """Let the process that has the roots end."""
    for log in manager.all_logs():
        log.release()
    for root in manager.root_set:
        root.unlock()


def contents(log: UnifiedLog) -> Partition:
    """What is in a log. Offsets must follow each other without a gap."""
    records = list(log.records())
    start, end = log.log_start_offset, log.log_end_offset
    offsets = [record.offset for record in records]
    if offsets != list(range(start, end)):
        raise Broken(f"{log} has offsets {offsets}")
    return Partition(start, tuple(record.value or b"" for record in records))


def is_same(now: Partition, wanted: Partition, log: UnifiedLog) -> bool:
    """Whether a log is what it should be; retention may have taken more from its start."""
    gone = now.start - wanted.start
    is_so = now.values == wanted.values[gone:] if gone >= 0 else False
    return is_so and (gone == 0 or log.config.retention_bytes > 0)


def require_same(manager: LogManager, state: State) -> None:
    """All partitions are what they should be."""
    if set(manager.logs) != set(state):
        raise Broken(f"there are {sorted(manager.logs)}, not {sorted(state)}")
    for partition, log in manager.logs.items():
        now = contents(log)
        if not is_same(now, state[partition], log):
            raise Broken(f"{log}: {now}, by the model {state[partition]}")


def random_workload(seed: int, number: int) -> Workload:
    """A workload that depends on the two numbers alone."""
    rng = Random(f"managers {seed} {number}")
    names = list(_WEIGHTS)
    weights = [_WEIGHTS[name] * rng.choice((0, 1, 1, 2)) for name in names]
    weights[0], weights[1] = max(weights[0], 4), max(weights[1], 8)
    chosen = ["create", *rng.choices(names, weights, k=rng.randint(4, 30))]
    return Workload([_step(name, rng) for name in chosen], f"{seed}.{number}")


def _step(name: str, rng: Random) -> Step:
    number = rng.choice((0, 0, 1, 2))
    if name == "create":
        return [name, number, rng.randint(0, 1)]
    if name == "append":
        return [name, number, 1]  # a batch is cut as a whole: one record each keeps the model simple
    if name in ("truncate", "begin", "trim"):
        return [name, number, rng.choice((0, 1, 3, 7))]
    if name == "tick":
        return [name, rng.choice((1, 61, 400))]
    return [name] if name in ("retain", "checkpoint", "stop", "kill") else [name, number]


def refuse(workload: Workload, refusal: Refusal) -> Run:
    """Run a workload with one refusal. Raises Failure if something does not hold."""
    run = Run(workload, refusal)
    try:
        run.run()
    except Exception as error:
        problem = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        raise Failure(problem, run) from error
    return run


def refusals_of(workload: Workload) -> list[Refusal]:
    """Every refusal that a workload can meet."""
    return refusal_campaign.refusals_of(workload, refuse)


def run(seed: int, cases: int) -> Counter[str]:
    """Judge refusals of random workloads until there were so many. The first failure is raised."""
    return judge_refusals("manager-refusals", seed, cases, PER_WORKLOAD, random_workload, refuse)


def replay(case: dict[str, Any]) -> str:
    """Judge one case again."""
    return replayed(Run(Workload(case["steps"], case["salt"]), Refusal(*case["refusal"])))


if __name__ == "__main__":
    sys.stdout.write(replay(json.loads(sys.argv[1])))
