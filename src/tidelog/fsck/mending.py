"""Repair log directories: what can be read stays, and the quarantine keeps what is removed.

    result = repair("kafka-logs")
    result.is_clean, result.quarantine, result.left

A repair holds the lock of the root, so no broker can start meanwhile; it refuses a root that a broker has open. While
logs are changed, the marker of the clean shutdown is removed: after an interrupted repair the next broker recovers the
logs, and the next repair starts over. Every piece is in the quarantine, and flushed, before it is removed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidelog.errors import LockedError, StorageError, TidelogError
from tidelog.fsck.applier import Applier
from tidelog.fsck.checker import Checked, check_places
from tidelog.fsck.findings import Finding, Report, Severity
from tidelog.fsck.index_configs import Given
from tidelog.fsck.places import find_places
from tidelog.fsck.plan import RepairPlan, plan_checked
from tidelog.fsck.quarantine import quarantine_of
from tidelog.fsck.rehearsal import RehearsalFileSystem, is_local
from tidelog.fsck.root_files import is_in_use
from tidelog.log.checkpoints import CleanShutdownFile
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.files import FileSystem, join, read_whole, write_atomically
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LOCK_FILE
from tidelog.log.write_journal import ensure_no_unfinished_write
from tidelog.view.addresses import ensure_no_address, local_path

__all__ = ["RepairResult", "apply", "repair"]

_ROUNDS = 6


@dataclass
class RepairResult:
    """What was done, and what is left."""

    before: Report
    after: Report
    done: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)  # what only people can mend, and what they should know
    failures: list[str] = field(default_factory=list)  # partitions that could not be mended, and why
    quarantine: list[str] = field(default_factory=list)  # directories; empty if nothing had to go
    pieces: int = 0
    bytes: int = 0
    in_use: list[str] = field(default_factory=list)  # in a dry run: roots that somebody has open, which are refused

    @property
    def is_clean(self) -> bool:
        return self.after.is_clean and not self.failures

    @property
    def is_settled(self) -> bool:
        """Whether it is clean, and nothing is left to people. What was worth knowing before is no reason to come."""
        is_left = bool(self.left) if self.done else any(one.severity is not Severity.INFO for one in self.left)
        return self.is_clean and not is_left


def repair(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    dry_run: bool = False,
    deep: bool = True,
    quarantine: str | None = None,
    config: Given | None = None,
    progress: Callable[[int, int], None] | None = None,
    jobs: int | None = None,
    clock: Clock | None = None,
    fs: FileSystem | None = None,
) -> RepairResult:
    """Mend all that lies at or below some paths, and check it again.

    `config` is what indexes are rebuilt with: all configs of the topics, or some by Kafka's names; what is not given is
    taken from the metadata log, from the sound indexes of each log, or from Kafka's defaults.

    With `dry_run` everything happens in memory: the result says what would be done, to the last round, and nothing is
    written or locked.
    """
    names = [local_path(os.fspath(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    ensure_no_address(names, "a repair")
    return _Repair(
        names, deep, quarantine, config, progress, jobs, clock or SystemClock(), fs or LocalFileSystem(),
        dry_run,
    ).run()  # fmt: skip


class _Repair:
    def __init__(
        self,
        paths: list[str],
        deep: bool,
        quarantine: str | None,
        config: Given | None,
        progress: Callable[[int, int], None] | None,
        jobs: int | None,
        clock: Clock,
        fs: FileSystem,
        dry_run: bool,
    ) -> None:
        self._paths = paths
        self._deep = deep
        self._quarantine = quarantine
        self._config = config
        self._progress = progress
        self._jobs = jobs
        self._clock = clock
        self._fs = RehearsalFileSystem(fs) if dry_run else fs
        self._first_look = fs  # owners are known to a real file system alone
        self._markers: dict[str, bytes] = {}
        self._held: list[str] = []  # roots whose lock is ours

    def run(self) -> RepairResult:
        places = find_places(self._fs, self._paths)
        for place in places:
            quarantine_of(self._fs, place.path, self._quarantine)  # refuses one that lies inside
            ensure_no_unfinished_write(self._fs, place.path)  # what is half done is not damage
        is_rehearsal = isinstance(self._fs, RehearsalFileSystem)
        in_use = [place.path for place in places if is_rehearsal and is_local(self._fs) and is_in_use(place.path)]
        with ExitStack() as held:
            for place in places:
                held.callback(self._lock(place.path, place.has_files))
                if place.path not in in_use:
                    self._held.append(place.path)
            checked = self._check(self._first_look)
            result = RepairResult(checked.report, checked.report, in_use=in_use)
            applier = Applier(self._fs, self._clock, self._quarantine, _stamp(self._clock), self._take_marker)
            held.callback(applier.close)
            told: list[Finding] = []
            for _ in range(_ROUNDS):
                plan = plan_checked(checked, self._fs, without=applier.failed, config=self._config)
                told += [finding for finding in plan.notices if finding not in told]
                result.left = plan.left + told
                if plan.is_empty:
                    break
                result.done += plan.lines()
                result.done += applier.apply(plan)
                checked = self._check(self._fs)
            result.done += self._put_markers_back(applier)
            result.after = checked.report
            result.failures = applier.failures
            result.quarantine = applier.quarantines
            result.pieces, result.bytes = applier.pieces, applier.size
        return result

    def _check(self, fs: FileSystem) -> Checked:
        return check_places(
            self._paths, deep=self._deep, progress=self._progress, jobs=self._jobs, quarantine=self._quarantine,
            fs=fs, held_roots=self._held, held_markers=self._markers,
        )  # fmt: skip

    def _lock(self, root: str, has_files: bool) -> Callable[[], None]:
        path = join(root, LOCK_FILE) if has_files else root
        is_there = self._fs.stat(path) is not None
        try:
            lock = self._fs.lock(path)
        except LockedError as error:
            raise LockedError(f"a broker or another tidelog has {root} open: stop it first") from error

        def unlock() -> None:
            try:
                if has_files and not is_there:
                    self._fs.remove(path)
            except StorageError:
                pass  # an empty .lock is what every broker leaves in its root
            finally:
                lock.release()

        return unlock

    def _take_marker(self, root: str) -> None:
        marker = CleanShutdownFile(self._fs, root)
        if root not in self._markers and marker.exists():
            self._markers[root] = read_whole(self._fs, marker.path)
            marker.delete()

    def _put_markers_back(self, applier: Applier) -> Iterator[str]:
        """Where nothing is half done, a broker need not look more closely than before; a line where something is."""
        for root, marker in self._markers.items():
            if root in applier.half_done:
                path = CleanShutdownFile(self._fs, root).path
                yield f"{path}: removed, since a partition is half repaired: a broker must recover the logs"
                continue
            try:
                write_atomically(self._fs, CleanShutdownFile(self._fs, root).path, marker)
                applier.give_back(root)
            except TidelogError as error:
                applier.failures.append(f"{root}: {error}")


def _stamp(clock: Clock) -> str:
    return f"{datetime.fromtimestamp(clock.now_ms() / 1000, UTC):%Y%m%dT%H%M%S}Z"


def apply(plan: RepairPlan, *, quarantine: str | None = None, fs: FileSystem | None = None) -> list[str]:
    """Do what one plan says, and no more; what could not be done. `repair` does this until nothing is left to do.

    The caller sees to it that no broker has the directories open.
    """
    clock = SystemClock()
    applier = Applier(fs or LocalFileSystem(), clock, quarantine, _stamp(clock), lambda root: None)
    try:
        applier.apply(plan)
    finally:
        applier.close()
    return applier.failures
