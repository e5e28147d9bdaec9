"""Mending directories around what is broken: what can be read stays, what goes lies in the quarantine.

    result = repair("kafka-logs")
    result.is_clean, result.quarantine, result.left

The root's lock is held, so no broker starts meanwhile; a root that one has open is refused. While logs are changed the
mark of the clean stop is away: whatever interrupts a repair makes the next broker look closely, and the next repair
begins anew. Every piece is in the quarantine, and on the disk, before it is taken from where it was.
"""

import os
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidelog.errors import LockedError, TidelogError
from tidelog.fsck.checker import Checked, check_places
from tidelog.fsck.findings import Finding, Report
from tidelog.fsck.kept_logs import KeptLogs
from tidelog.fsck.owners import Owners
from tidelog.fsck.places import find_places
from tidelog.fsck.plan import PartitionPlan, RepairPlan, plan_checked
from tidelog.fsck.quarantine import Quarantine, quarantine_of
from tidelog.fsck.relay import replace_group
from tidelog.fsck.root_plan import RootPlan
from tidelog.fsck.settling import settle
from tidelog.log.checkpoints import CleanShutdownFile, LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.clock import Clock, SystemClock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, join, opened, read_whole, write_atomically
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.log.partition_metadata import PartitionMetadataFile
from tidelog.log.unified_log import UnifiedLog

__all__ = ["RepairResult", "apply", "repair"]

_ROUNDS = 6
_NEVER_MS = 1 << 62


@dataclass
class RepairResult:
    """What was done, and what is left."""

    before: Report
    after: Report
    done: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # partitions that could not be mended, and why
    quarantine: list[str] = field(default_factory=list)  # directories; empty if nothing had to go
    pieces: int = 0
    bytes: int = 0

    @property
    def is_clean(self) -> bool:
        return self.after.is_clean and not self.failures


def repair(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    deep: bool = True,
    quarantine: str | None = None,
    config: LogConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
    jobs: int | None = None,
    clock: Clock | None = None,
    fs: FileSystem | None = None,
) -> RepairResult:
    """Mend all that lies at or below some paths, and check it again."""
    return _Repair(
        [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)],
        deep, quarantine, config or LogConfig(), progress, jobs, clock or SystemClock(), fs or LocalFileSystem(),
    ).run()  # fmt: skip


class _Repair:
    def __init__(
        self,
        paths: list[str],
        deep: bool,
        quarantine: str | None,
        config: LogConfig,
        progress: Callable[[int, int], None] | None,
        jobs: int | None,
        clock: Clock,
        fs: FileSystem,
    ) -> None:
        self._paths = paths
        self._deep = deep
        self._quarantine = quarantine
        self._config = config
        self._progress = progress
        self._jobs = jobs
        self._clock = clock
        self._fs = fs
        self._markers: dict[str, bytes] = {}
        self._held: list[str] = []  # roots whose lock is ours
        self._stamp = f"{datetime.fromtimestamp(clock.now_ms() / 1000, UTC):%Y%m%dT%H%M%S}Z"

    def run(self) -> RepairResult:
        with ExitStack() as held:
            for place in find_places(self._fs, self._paths):
                held.callback(self._lock(place.path, place.has_files))
                self._held.append(place.path)
            checked = self._check()
            result = RepairResult(checked.report, checked.report)
            applier = Applier(self._fs, self._config, self._clock, self._quarantine, self._stamp, self._take_marker)
            for _ in range(_ROUNDS):
                plan = plan_checked(checked, self._fs)
                result.left = plan.left
                if plan.is_empty:
                    break
                result.done += plan.lines()
                applier.apply(plan)
                if applier.failures:
                    break
                checked = self._check()
            result.failures = applier.failures
            if not applier.failures:
                for root_path, marker in self._markers.items():
                    write_atomically(self._fs, CleanShutdownFile(self._fs, root_path).path, marker)
                    applier.give_back(root_path)
            result.after = checked.report
            result.quarantine = applier.quarantines
            result.pieces, result.bytes = applier.pieces, applier.size
        return result

    def _check(self) -> Checked:
        return check_places(
            self._paths, deep=self._deep, progress=self._progress, jobs=self._jobs, quarantine=self._quarantine,
            fs=self._fs, held_roots=self._held, held_markers=self._markers,
        )  # fmt: skip

    def _lock(self, root: str, has_files: bool) -> Callable[[], None]:
        path = join(root, LOCK_FILE) if has_files else root
        is_there = self._fs.stat(path) is not None
        try:
            lock = self._fs.lock(path)
        except LockedError as error:
            raise LockedError(f"a broker or another tidelog has {root} open: stop it first") from error

        def unlock() -> None:
            if has_files and not is_there:
                self._fs.remove(path)
            lock.release()

        return unlock

    def _take_marker(self, root: str) -> None:
        marker = CleanShutdownFile(self._fs, root)
        if root not in self._markers and marker.exists():
            self._markers[root] = read_whole(self._fs, marker.path)
            marker.delete()


def apply(plan: RepairPlan, *, quarantine: str | None = None, fs: FileSystem | None = None) -> list[str]:
    """Do what one plan says, and no more; what could not be done. `repair` does this until nothing is left to do.

    The caller sees to it that no broker has the directories open.
    """
    clock = SystemClock()
    stamp = f"{datetime.fromtimestamp(clock.now_ms() / 1000, UTC):%Y%m%dT%H%M%S}Z"
    applier = Applier(fs or LocalFileSystem(), LogConfig(), clock, quarantine, stamp, lambda root: None)
    applier.apply(plan)
    return applier.failures


class Applier:
    """Does what plans say."""

    def __init__(
        self,
        fs: FileSystem,
        config: LogConfig,
        clock: Clock,
        quarantine: str | None,
        stamp: str,
        take_marker: Callable[[str], None],
    ) -> None:
        self.failures: list[str] = []
        self._fs = fs
        self._config = config
        self._clock = clock
        self._directory = quarantine
        self._stamp = stamp
        self._take_marker = take_marker
        self._quarantines: dict[str, Quarantine] = {}
        self._owners: dict[str, Owners] = {}

    @property
    def quarantines(self) -> list[str]:
        return sorted({one.path for one in self._quarantines.values() if one.is_used})

    @property
    def pieces(self) -> int:
        return sum(one.pieces for one in self._quarantines.values())

    @property
    def size(self) -> int:
        return sum(one.bytes for one in self._quarantines.values())

    def apply(self, plan: RepairPlan) -> None:
        """Do it. A partition that refuses is told in `failures`; the others are mended all the same."""
        for partition in plan.partitions:
            root = partition.check.notes.root or ""
            self._remember(root)
            self._remember(partition.check.place.path)
            self._take_marker(root)
            try:
                self._mend(partition, self._quarantine_of(root))
            except TidelogError as error:
                self.failures.append(f"{partition.check.place.path}: {error}")
            finally:
                self.give_back(partition.check.place.path)
        for root_plan in plan.roots:
            path = root_plan.root.place.path
            self._remember(path)
            self._take_marker(path)
            self._mend_root(root_plan, self._quarantine_of(path))
            self.give_back(path)

    def _quarantine_of(self, root: str) -> Quarantine:
        if root not in self._quarantines:
            directory = self._directory or quarantine_of(root)
            self._quarantines[root] = Quarantine(self._fs, directory, root, self._stamp)
        return self._quarantines[root]

    def _remember(self, directory: str) -> None:
        if isinstance(self._fs, LocalFileSystem) and directory not in self._owners:
            self._owners[directory] = Owners(directory)

    def give_back(self, directory: str) -> None:
        """Give the files of a directory back to their owners."""
        if directory in self._owners:
            self._owners[directory].give_back()

    # -- partitions ----------------------------------------------------------------------------------------------

    def _mend(self, plan: PartitionPlan, quarantine: Quarantine) -> None:
        check = plan.check
        directory = check.place.path
        if plan.settle:
            settle(self._fs, check, quarantine, self._config, self._clock)
            return
        for finding in plan.set_aside:
            self._set_aside(finding, quarantine)
        for mend in plan.mends:
            with opened(self._fs.open(mend.path)) as file:
                quarantine.keep_bytes(file, mend.position, len(mend.data), code=mend.code, why=mend.why, mended=True)
            self._write_over(mend.path, mend.position, mend.data)
        for source, target in plan.renames:
            self._fs.rename(source, target)
            self._fs.sync_directory(directory)
        self._cut(plan, quarantine)
        if plan.epochs is not None:
            path = join(directory, LEADER_EPOCH_CHECKPOINT)
            quarantine.keep_file(path, code="EPO-ENTRY", why="written anew")
            LeaderEpochCheckpoint(self._fs, path).write(plan.epochs)
        if plan.topic_id is not None:
            path = join(directory, PARTITION_METADATA)
            quarantine.keep_file(path, code="PAR-METADATA", why="written anew")
            self._fs.remove(path)
            metadata = PartitionMetadataFile(self._fs, path)
            metadata.record(plan.topic_id)
            metadata.flush()
        for finding in plan.gaps:
            assert finding.offsets is not None
            quarantine.note_missing(finding.file, *finding.offsets, code=finding.code, why="found so, taken as it is")
        for finding in plan.owners:
            self._owners[directory].give_to_directory(finding.file.rpartition("/")[2])
        if plan.reload:
            self._reload(plan, quarantine)

    def _set_aside(self, finding: Finding, quarantine: Quarantine) -> None:
        quarantine.keep_file(finding.file, code=finding.code, why=finding.message)
        stat = self._fs.stat(finding.file)
        if stat is not None and stat.is_directory:
            self._fs.remove_directory(finding.file)
        else:
            self._fs.remove(finding.file)

    def _write_over(self, path: str, position: int, data: bytes) -> None:
        stat = self._fs.stat(path)
        file = self._fs.open_write(path, create=False)
        try:
            file.write_at(position, data)
            file.sync()
        finally:
            file.close()
        if stat is not None:
            self._fs.set_modified(path, stat.modified_ms)

    def _cut(self, plan: PartitionPlan, quarantine: Quarantine) -> None:
        for cut in plan.cuts:
            missing = {} if cut.missing is None else {"missing_offsets": list(cut.missing)}
            with opened(self._fs.open(cut.path)) as file:
                quarantine.keep_bytes(file, cut.position, cut.size, code=cut.code, why=cut.why, **missing)
        if plan.groups:
            last_base = plan.check.segments[-1].base_offset
            for group in plan.groups:
                for segment in group:
                    for suffix in SEGMENT_SUFFIXES[1:]:
                        path = plan.check.files.path(segment.base_offset, suffix)
                        quarantine.keep_file(path, code="LOG-ORDER", why="of a segment that is written anew")
                replace_group(self._fs, plan.check.place.path, group, last_base)

    def _reload(self, plan: PartitionPlan, quarantine: Quarantine) -> None:
        """Load the log as a broker does after a crash, which rebuilds what is missing, and close it."""
        check = plan.check
        for base in sorted(plan.rebuild):
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                path = check.files.path(base, suffix)
                quarantine.keep_file(path, code="IDX-ENTRY", why="rebuilt")
                self._fs.remove(path)
        for name in check.files.deleted:
            quarantine.keep_file(join(check.place.path, name), code="PAR-DELETED", why="loading the log removes it")
        ends = check.ends
        end = 0 if ends is None else ends.end
        start = 0 if check.log_start is None else check.log_start
        log = UnifiedLog.open(
            check.place.path,
            self._config,
            recovery_point=end if plan.recover_from is None else plan.recover_from,
            log_start_offset=start if start <= end else 0,
            clean_shutdown=False,
            producer_id_expiration_ms=_NEVER_MS,  # whom to forget is for the broker to decide
            clock=self._clock,
            fs=KeptLogs(self._fs),
            rng=random.Random(0),
            lock=False,
        )
        log.close()

    # -- roots ---------------------------------------------------------------------------------------------------

    def _mend_root(self, plan: RootPlan, quarantine: Quarantine) -> None:
        for finding in plan.set_aside:
            self._set_aside(finding, quarantine)
        for name, entries in plan.checkpoints.items():
            path = join(plan.root.place.path, name)
            quarantine.keep_file(path, code=plan.codes[name], why="written anew")
            OffsetCheckpoint(self._fs, path).write(entries)
