"""Carry out a repair plan, one partition and one root after the other.

Everything that will be removed or overwritten is copied to the quarantine first: if the quarantine is full or
unreachable, nothing has been changed. Then the marker of the clean shutdown is removed, and the files are changed.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.errors import LockedError, StorageError, TidelogError
from tidelog.fsck.findings import Finding
from tidelog.fsck.kept_logs import KeptLogs
from tidelog.fsck.owners import Owners
from tidelog.fsck.places import ensure_no_link
from tidelog.fsck.plan import PartitionPlan, RepairPlan
from tidelog.fsck.quarantine import Quarantine, quarantine_of
from tidelog.fsck.recorded_files import RecordedFiles
from tidelog.fsck.relay import replace_group
from tidelog.fsck.root_plan import RootPlan
from tidelog.fsck.settling import settle
from tidelog.log.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.clock import Clock
from tidelog.log.files import FileSystem, join, opened
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.log.partition_metadata import PartitionMetadataFile
from tidelog.log.unified_log import UnifiedLog

__all__ = ["Applier"]

_NEVER_MS = 1 << 62
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Applier:
    """Carries out repair plans."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        quarantine: str | None,
        stamp: str,
        take_marker: Callable[[str], None],
    ) -> None:
        self.failures: list[str] = []
        self.failed: set[str] = set()  # partition directories whose repair failed
        self.half_done: set[str] = set()  # roots with a partition that was being changed when it did
        self._fs = fs
        self._files = RecordedFiles(fs)  # through which everything is changed
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

    def close(self) -> None:
        """Leave the quarantine to others."""
        for one in self._quarantines.values():
            one.close()

    def apply(self, plan: RepairPlan) -> list[str]:
        """Carry out a plan; a line for each file that changed and that no line of the plan names.

        A partition whose repair fails is added to `failures`, and the others are still repaired.
        """
        self._files.forget()
        for partition in plan.partitions:
            path, root = partition.check.place.path, partition.check.notes.root or ""
            was_half_done = root in self.half_done
            try:
                with self._held(partition):
                    self._remember(root)
                    self._remember(path)
                    try:
                        self._mend(partition, root, self._quarantine_of(root))
                    finally:
                        self.give_back(path)
            except TidelogError as error:
                self.failures.append(f"{path}: {error}")
                self.failed.add(path)
            else:
                if not was_half_done:
                    self.half_done.discard(root)
        for root_plan in plan.roots:
            path = root_plan.root.place.path
            try:
                self._remember(path)
                try:
                    self._mend_root(root_plan, self._quarantine_of(path))
                finally:
                    self.give_back(path)
            except TidelogError as error:
                self.failures.append(f"{path}: {error}")
                self.failed.add(path)
        return list(self._files.lines(plan.named_files()))

    @contextmanager
    def _held(self, plan: PartitionPlan) -> Iterator[None]:
        """Inside, nobody else opens the log of a partition, and it is as it was when it was looked at.

        The lock of the root keeps brokers out; whoever opens a single log takes that of its directory alone.
        """
        path, files = plan.check.place.path, plan.check.files
        ensure_no_link(self._fs, path)
        try:
            lock = self._fs.lock(path)
        except LockedError as error:
            raise LockedError("somebody has this log open: close it first") from error
        try:
            for name, about in files.stats.items():
                now = self._fs.stat(join(path, name))
                if now is None or (now.size, now.modified_ms) != (about.size, about.modified_ms):
                    raise StorageError(f"{name} has changed since it was looked at: run it again")
            yield
        finally:
            lock.release()

    def _quarantine_of(self, root: str) -> Quarantine:
        if root not in self._quarantines:
            directory = quarantine_of(self._fs, root, self._directory)
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

    def _mend(self, plan: PartitionPlan, root: str, quarantine: Quarantine) -> None:
        def begin() -> None:
            self._take_marker(root)
            if not (plan.mends or plan.renames):  # each of those is done or not, and nothing follows from it
                self.half_done.add(root)

        for doubt in plan.doubts:
            quarantine.note_notice(doubt.file, code=doubt.code, why=doubt.message)
        if plan.settle:
            settle(self._files, plan.check, quarantine, plan.index_config.config, self._clock, begin)
        else:
            self._keep(plan, quarantine)
            self._change(plan, quarantine, begin)
        if isinstance(self._fs, LocalFileSystem):
            for finding in plan.owners:
                self._owners[plan.check.place.path].give_to_directory(finding.file.rpartition("/")[2])

    def _keep(self, plan: PartitionPlan, quarantine: Quarantine) -> None:
        """Put everything into the quarantine that goes or changes."""
        check, directory = plan.check, plan.check.place.path
        for finding in plan.set_aside:
            quarantine.keep_file(finding.file, code=finding.code, why=finding.message)
        for mend in plan.mends:
            with opened(self._fs.open(mend.path)) as file:
                quarantine.keep_bytes(file, mend.position, len(mend.data), code=mend.code, why=mend.why, mended=True)
        for cut in plan.cuts:
            missing = {} if cut.missing is None else {"missing_offsets": list(cut.missing)}
            with opened(self._fs.open(cut.path)) as file:
                quarantine.keep_bytes(file, cut.position, cut.size, code=cut.code, why=cut.why, **missing)
        for segment in (one for group in plan.groups for one in group if not one.is_same):
            for suffix in SEGMENT_SUFFIXES[1:]:
                path = check.files.path(segment.base_offset, suffix)
                if segment.keeps_txn_index and suffix == TXN_INDEX_SUFFIX:
                    continue
                quarantine.keep_file(path, code=plan.code_of(segment.base_offset), why="its segment is rewritten")
        for one in plan.rebuild.values():
            quarantine.keep_file(one.path, code=one.code, why=f"rebuilt: {one.why}")
        if plan.groups or plan.reload:
            for name in check.files.deleted:
                quarantine.keep_file(join(directory, name), code="PAR-DELETED", why="loading the log removes it")
        if plan.epochs is not None:
            quarantine.keep_file(join(directory, LEADER_EPOCH_CHECKPOINT), code=plan.epochs_code, why="rewritten")
        if plan.topic_id is not None:
            quarantine.keep_file(join(directory, PARTITION_METADATA), code=plan.topic_id.code, why="rewritten")
        for path, first, last in plan.gaps:
            quarantine.note_missing(path, first, last, code="LOG-GAP", why="found so, taken as it is")

    def _change(self, plan: PartitionPlan, quarantine: Quarantine, begin: Callable[[], None]) -> None:
        """Change what is to be changed."""
        check, directory = plan.check, plan.check.place.path
        for group in plan.groups:
            replace_group(self._files, directory, group, check.segments[-1].base_offset, begin)
        if not (plan.set_aside or plan.mends or plan.renames or plan.reload or plan.is_rewriting):
            return
        begin()
        for finding in plan.set_aside:
            self._remove(finding)
        for mend in plan.mends:
            self._write_over(mend.path, mend.position, mend.data)
        for source, target in plan.renames:
            if self._files.stat(target) is not None:
                raise StorageError(f"{source}: {target} is there already")
            self._files.rename(source, target)
            self._files.sync_directory(directory)
        if plan.epochs is not None:
            LeaderEpochCheckpoint(self._files, join(directory, LEADER_EPOCH_CHECKPOINT)).write(plan.epochs)
        if plan.topic_id is not None:
            self._files.remove(join(directory, PARTITION_METADATA))
            metadata = PartitionMetadataFile(self._files, join(directory, PARTITION_METADATA))
            metadata.record(plan.topic_id.topic_id)
            metadata.flush()
        if plan.reload:
            self._reload(plan, quarantine)

    def _remove(self, finding: Finding) -> None:
        stat = self._files.stat(finding.file)
        if stat is not None and stat.is_directory:
            self._files.remove_directory(finding.file)
        else:
            self._files.remove(finding.file)

    def _write_over(self, path: str, position: int, data: bytes) -> None:
        stat = self._files.stat(path)
        file = self._files.open_write(path, create=False)
        try:
            file.write_at(position, data)
            file.sync()
        finally:
            file.close()
        if stat is not None:
            self._files.set_modified(path, stat.modified_ms)

    def _reload(self, plan: PartitionPlan, quarantine: Quarantine) -> None:
        """Load the log as a broker does after a crash, which rebuilds what is missing, and close it."""
        check = plan.check
        for path in sorted(plan.rebuild):
            self._files.remove(path)
        indexes = {check.files.path(base, suffix) for base in check.files.bases for suffix in _INDEX_SUFFIXES}
        kept = KeptLogs(self._files, _keeper(quarantine), indexes - plan.rebuild.keys())
        for path in plan.rebuild:
            kept.hide(f"{path.rpartition('.')[0]}{INDEX_SUFFIX}")  # a segment without it is recovered as a whole
        ends = check.ends
        end = 0 if ends is None else ends.end
        start = 0 if check.log_start is None else check.log_start
        log = UnifiedLog.open(
            check.place.path,
            plan.index_config.config,
            recovery_point=end if plan.recover_from is None else plan.recover_from,
            log_start_offset=start if start <= end else 0,
            clean_shutdown=False,
            producer_id_expiration_ms=_NEVER_MS,  # whom to forget is for the broker to decide
            clock=self._clock,
            fs=kept,
            rng=random.Random(0),
            lock=False,
        )
        log.close()

    # -- roots ---------------------------------------------------------------------------------------------------

    def _mend_root(self, plan: RootPlan, quarantine: Quarantine) -> None:
        for finding in plan.set_aside:
            quarantine.keep_file(finding.file, code=finding.code, why=finding.message)
        for name in plan.checkpoints:
            quarantine.keep_file(join(plan.root.place.path, name), code=plan.codes[name], why="rewritten")
        for file, first, last in plan.losses:
            why = f"its log has reached {last + 1}, and was found to end at {first}"
            quarantine.note_notice(file, code="CHK-RANGE", why=why, missing=(first, last))
        self._take_marker(plan.root.place.path)
        for finding in plan.set_aside:
            self._remove(finding)
        for name, entries in plan.checkpoints.items():
            OffsetCheckpoint(self._files, join(plan.root.place.path, name)).write(entries)


def _keeper(quarantine: Quarantine) -> Callable[[str], None]:
    """Keeps what the loading of a log is about to remove or to replace."""

    def keep(path: str) -> None:
        code = "EPO-ENTRY" if path.endswith(LEADER_EPOCH_CHECKPOINT) else "SNP-STRAY"
        quarantine.keep_file(path, code=code, why="loading the log removes or rewrites it")

    return keep
