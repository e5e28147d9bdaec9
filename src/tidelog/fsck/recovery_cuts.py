"""Find out what recovery after an unclean shutdown would cut off logs, by rehearsing it in memory.

    cuts, ends = rehearsed_recovery(fs, "/disk1/kafka", clock)
    for cut in cuts:
        cut.loses_sound_batches     whether it cuts batches that a repair would keep

Recovery ends a log at the first damaged batch, as Kafka does when it starts. Usually that is the incomplete batch
that a crash leaves at the end. If damage is further inside, every sound batch after it is cut, too; `fsck --repair`
keeps these.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.fsck.segment_facts import Batches, SegmentFacts, span_of
from tidelog.fsck.segment_scan import scan_segment
from tidelog.log.clock import Clock
from tidelog.log.files import ReadFileSystem, join, opened
from tidelog.log.manager.log_manager import LogManager
from tidelog.log.names import LOG_SUFFIX, TopicPartition, offset_of
from tidelog.log.recovery import LogCut

__all__ = ["RecoveryCut", "judged_cut", "rehearsed_recovery"]

_OF_A_TORN_END = ("LOG-TORN", "LOG-ZEROS")


class RecoveryCut(NamedTuple):
    """Bytes that recovery cuts off the log of a partition."""

    directory: str  # of the partition, in the root
    cut: LogCut
    log_end: int  # afterwards
    first_offset: int
    last_offset: int | None  # that is known of
    is_torn_end: bool  # an incomplete batch, or zeros, at the end of the log: what a crash leaves
    loses_sound_batches: bool

    @property
    def size(self) -> int:
        """The number of bytes that are cut."""
        return self.cut.size + self.cut.following_size

    def __str__(self) -> str:
        """In a line."""
        after = len(self.cut.following)
        file = self.cut.path.rpartition("/")[2]
        more = f" and {after} segment{'' if after == 1 else 's'} after it" if after else ""
        kept = ", kept in the partition directory as set-aside-*" if self.cut.is_kept else ""
        return (
            f"{self.directory}: {self.size} bytes ({file} from position {self.cut.position} on{more}), {self.offsets}"
            f"{kept}; the log ends at {self.log_end}: {self.cut.reason}"
        )

    @property
    def offsets(self) -> str:
        """The offsets that are cut, in words."""
        if self.last_offset is None:
            return f"offsets from {self.first_offset} on"
        return f"offsets {self.first_offset} to {self.last_offset}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "partition": self.directory,
            "file": self.cut.path,
            "position": self.cut.position,
            "bytes": self.size,
            "segments_after": len(self.cut.following),
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "log_end": self.log_end,
            "reason": self.cut.reason,
            "torn_end": self.is_torn_end,
            "sound_batches": self.loses_sound_batches,
            "set_aside": self.cut.is_kept,
        }


def rehearsed_recovery(
    fs: ReadFileSystem, root: str, clock: Clock
) -> tuple[list[RecoveryCut], dict[TopicPartition, int]]:
    """What recovery would cut off the logs of a root, and where they would end.

    Nothing is written; the caller holds the lock.
    """
    manager = LogManager.open(root, fs=RehearsalFileSystem(fs), clock=clock)
    try:
        found = [(log.directory, log.log_end_offset, log.cuts) for log in manager.all_logs() if log.cuts]
        ends = {log.topic_partition: log.log_end_offset for log in manager.all_logs()}
    finally:
        manager.close()
    return [judged_cut(fs, directory, end, cut) for directory, end, cuts in sorted(found) for cut in cuts], ends


def judged_cut(fs: ReadFileSystem, directory: str, log_end: int, cut: LogCut) -> RecoveryCut:
    """Find out what a cut loses, from the files as they are before it. `log_end` is that of the log afterwards."""
    later = [path for path in _logs_after(fs, cut.path) if (about := fs.stat(path)) is not None and about.size]
    facts = [_scanned(fs, path) for path in (cut.path, *cut.following)]
    first, last, is_sound, fits = log_end, None, False, False
    if facts[0] is not None:
        batches = facts[0].batches
        kept = batches[batches["position"] < cut.position]
        first = int(kept["last"][-1]) + 1 if len(kept) else facts[0].base_offset
    for number, one in enumerate(facts):
        if one is None:  # it comes from an interrupted compaction, and was not checked
            is_sound = True
            continue
        at = 0 if number else cut.position
        lost = one.batches[one.batches["position"] >= at]
        is_sound |= bool(len(lost)) or any(damage.right is not None for damage in one.damage if damage.position >= at)
        fits |= bool((lost["first"] >= log_end).any())
        if len(lost):
            last = max(last or 0, *(int(row["first"]) + span_of(row) for row in _far_ones(lost)))
            first = min(first, int(lost["first"].min()))
    if last is None and later and not cut.following:
        last = offset_of(later[0].rpartition("/")[2]) - 1
    damage = [] if facts[0] is None else [one for one in facts[0].damage if one.position >= cut.position]
    is_torn = not later and not is_sound and all(one.code in _OF_A_TORN_END for one in damage)
    return RecoveryCut(
        directory.rpartition("/")[2], cut, log_end, first, last, is_torn,
        loses_sound_batches=is_sound and (fits or not cut.is_kept),
    )  # fmt: skip


def _far_ones(batches: Batches) -> Batches:
    """The batches among which is the one with the largest last offset: the last one may not fit into 64 bits."""
    far: Batches = batches[(batches["last"] == batches["last"].max()) | (batches["last"] < batches["first"])]
    return far


def _logs_after(fs: ReadFileSystem, path: str) -> Iterator[str]:
    directory, _, name = path.rpartition("/")
    return (join(directory, one) for one in sorted(fs.list(directory)) if one.endswith(LOG_SUFFIX) and one > name)


def _scanned(fs: ReadFileSystem, path: str) -> SegmentFacts | None:
    if fs.stat(path) is None:
        return None
    with opened(fs.open(path)) as file:
        return scan_segment(file, offset_of(path.rpartition("/")[2]))
