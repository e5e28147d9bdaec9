"""Find records that the checkpoints of a log directory know of and recovery does not find.

    for loss in recovery_losses(fs, "/disk1/kafka", ends):
        loss.is_certain     whether they had been flushed

Recovery opens what is there and then rewrites the checkpoints. Whoever compares the two afterwards finds no difference,
so this is done before. Records below the recovery point were flushed: no crash and no power loss takes them. A high
watermark may be above the log end after a power loss, if records were not flushed yet.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError
from tidelog.log.checkpoints import read_offsets
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.manager.log_directories import list_directories
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, TopicPartition

__all__ = ["RecoveryLoss", "recovery_losses"]


class RecoveryLoss(NamedTuple):
    """A partition whose log does not reach an offset in the checkpoints."""

    partition: TopicPartition
    recovery_point: int | None
    high_watermark: int | None
    log_end: int | None  # None: its directory is not there

    @property
    def is_certain(self) -> bool:
        """Whether flushed records are missing."""
        return (self.recovery_point or 0) > (self.log_end or 0)

    def __str__(self) -> str:
        """In a line."""
        found = "its directory is not there" if self.log_end is None else f"the log ends at {self.log_end}"
        if self.is_certain:
            return (
                f"{self.partition}: the recovery point was {self.recovery_point} and {found}: records are missing; "
                "restore the partition from a replica or a backup"
            )
        return (
            f"{self.partition}: note: the high watermark was {self.high_watermark} and {found}: after a power loss, "
            "records that were not flushed may be missing; a replica may have them"
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**self._asdict(), "partition": str(self.partition), "flushed": self.is_certain}


def recovery_losses(
    fs: ReadFileSystem, root: str, ends: Mapping[TopicPartition, int], elsewhere: Collection[TopicPartition] = ()
) -> list[RecoveryLoss]:
    """The partitions whose logs end before an offset in the checkpoints of a log directory, or are not there.

    `ends` are the log ends after recovery. Partitions that are `elsewhere`, in other log directories, are not missing:
    the checkpoint still lists one that was moved there. Nor are those that wait to be deleted.
    """
    points, marks = (_offsets(fs, join(root, name)) for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT))
    known = {*elsewhere, *(each.partition for each in list_directories(fs, root))}
    return [
        RecoveryLoss(place, points.get(place), marks.get(place), ends.get(place))
        for place in sorted({*points, *marks})
        if (place in ends or place not in known) and max(points.get(place, 0), marks.get(place, 0)) > ends.get(place, 0)
    ]


def _offsets(fs: ReadFileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(fs, path)
    except CheckpointError:  # it says nothing, and recovery starts from the beginning of each log
        return {}
