"""What a repair does to the files of a root: foreign directories go, checkpoints are rewritten, carefully.

A recovery point that is not certain is left out, so that Kafka recovers the log; a log start is kept wherever it is
known, so that nothing comes back that was deleted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.fsck.directory_use import CHECKPOINTS
from tidelog.fsck.findings import Finding, Severity
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.root_files import LOST_AND_FOUND, LogEnds, RootFiles
from tidelog.log.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)

__all__ = ["RootPlan", "plan_root", "set_aside_line"]


def set_aside_line(finding: Finding, empty: Collection[str]) -> str:
    """What is done with a file or directory that goes. Of an `empty` one there is nothing to keep."""
    deed = "removed, since it holds no file" if finding.file in empty else "to the quarantine"
    return f"{finding.file}: {deed} ({finding.code})"


@dataclass
class RootPlan:
    """What is done to the files of one root."""

    root: RootFiles
    set_aside: list[Finding] = field(default_factory=list)
    empty: set[str] = field(default_factory=set)  # directories among them that hold no file
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)  # why, by checkpoint
    losses: list[tuple[str, int, int]] = field(default_factory=list)  # file and offsets that were behind its end

    @property
    def is_empty(self) -> bool:
        return not self.set_aside and not self.checkpoints

    def lines(self) -> Iterator[str]:
        """What is done, in words."""
        for finding in self.set_aside:
            yield set_aside_line(finding, self.empty)
        for name, entries in self.checkpoints.items():
            count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
            yield f"{self.root.place.path}/{name}: rewritten with {count} ({self.codes[name]})"
        for path, first, last in self.losses:
            partition = path.rpartition("/")[0].rpartition("/")[2]
            yield f"{partition}: it is noted in the manifest that the offsets {first} to {last} are gone (CHK-RANGE)"


def plan_root(root: RootFiles, partitions: Sequence[PartitionCheck], left: list[Finding]) -> RootPlan:
    """The plan for one root, whose logs are sound."""
    plan = RootPlan(root)
    for finding in root.notes.findings:
        if finding.severity is Severity.INFO:
            continue
        name = finding.file.rpartition("/")[2]
        if finding.code == "ROOT-FOREIGN":
            (left if name == LOST_AND_FOUND else plan.set_aside).append(finding)
        elif finding.code.startswith("CHK-") and name in CHECKPOINTS:
            plan.codes.setdefault(name, finding.code)
    plan.losses = [
        (one.last_log, *root.losses[one.place.topic_partition])
        for one in partitions
        if one.place.is_live and one.place.topic_partition in root.losses
    ]
    ends = {one.place.topic_partition: one.ends for one in partitions if one.place.is_live and one.ends is not None}
    here = {place.topic_partition for place in root.place.partitions}
    for name in plan.codes:
        offsets = root.salvaged(name)
        if name == LOG_START_CHECKPOINT and not root.is_known(name):
            offsets = {**_starts_by_epochs(partitions), **offsets}
        if name == RECOVERY_POINT_CHECKPOINT and not root.is_known(name):
            offsets = {}
        plan.checkpoints[name] = {
            partition: kept
            for partition, offset in offsets.items()
            if (partition in here or not root.place.is_wanted)
            and (kept := _kept(name, offset, ends.get(partition), root.is_clean)) is not None
        }
    return plan


def _starts_by_epochs(partitions: Sequence[PartitionCheck]) -> Mapping[TopicPartition, int]:
    return {
        one.place.topic_partition: one.start_by_epochs
        for one in partitions
        if one.place.is_live and one.start_by_epochs is not None
    }


def _kept(name: str, offset: int, log: LogEnds | None, is_clean: bool) -> int | None:
    """The offset that a checkpoint may go on naming; None: better none."""
    if log is None:
        return offset
    if offset < 0:
        return None
    if name == HIGH_WATERMARK_CHECKPOINT:
        return min(offset, log.end)
    if offset > log.end or (name == RECOVERY_POINT_CHECKPOINT and is_clean and offset < log.end):
        return None
    return None if name == LOG_START_CHECKPOINT and offset <= log.first else offset
