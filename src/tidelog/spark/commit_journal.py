"""What makes a commit one step: a note of all that is to be done, on the disk before the first of it is done.

    1. the journal is written: before it nothing of the commit can be seen, after it everything will be
    2. the marker of the clean stop goes, the pieces are appended to the logs, the checkpoints are written
    3. the batch of the stream is noted, the marker comes back, and the journal goes

It is a plain file in the root, which Kafka passes over. Whoever finds one, with the root locked, does all of it again
from its beginning: a log that is longer than the note says was in the middle of it, and is cut back first.

A broker that was started on the root meanwhile has given the records to its clients, has perhaps taken more, and has
removed what was staged. It leaves its traces, a new leader epoch or offsets in the checkpoints that no commit has
written; then nothing is touched.
"""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError, InvalidRequestError, StorageError
from tidelog.log.checkpoints import OffsetCheckpoint, read_epochs
from tidelog.log.files import FileSystem, join, read_whole, write_atomically
from tidelog.log.names import (
    COMMIT_JOURNAL,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    check_partition,
)
from tidelog.log.partition_metadata import read_topic_id
from tidelog.spark.committed_batches import BatchKey
from tidelog.spark.staged_pieces import Piece, piece_of

__all__ = ["CommitJournal", "PartitionPlan", "ensure_untouched"]

_VERSION = 0


class PartitionPlan(NamedTuple):
    """What is to become of a partition, and how it was."""

    topic: str
    partition: int
    is_fresh: bool  # it begins with offset 0, whatever lies there
    end: int  # where the log ended
    epoch: int  # of the leader in whose name is appended
    recovery_point: int | None
    high_watermark: int | None
    pieces: tuple[Piece, ...]

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def end_then(self) -> int:
        """Where the log ends when all is appended."""
        return self.end + sum(piece.records for piece in self.pieces)


@dataclass
class CommitJournal:
    """The journal of a root. Nothing is on the disk until `write`."""

    fs: FileSystem
    root: str
    marker: bytes | None  # of the clean stop; None where there was none
    configs: dict[str, str]
    key: BatchKey | None  # of a stream
    topic_ids: dict[str, uuid.UUID | None]
    partitions: list[PartitionPlan] = field(default_factory=list)
    dropped: list[TopicPartition] = field(default_factory=list)  # of a topic that gets fewer partitions

    @property
    def path(self) -> str:
        return join(self.root, COMMIT_JOURNAL)

    @property
    def pieces(self) -> list[Piece]:
        """All of them."""
        return [piece for plan in self.partitions for piece in plan.pieces]

    @property
    def directories(self) -> set[str]:
        """Where they are."""
        return {piece.directory for piece in self.pieces}

    def what_to_do(self) -> str:
        """What is left to people where it cannot be done: some of it may have been."""
        places = ", ".join(f"{plan.place} from offset {plan.end} on" for plan in self.partitions if plan.pieces)
        return (
            f"A commit of Spark's was interrupted, and cannot be brought to its end; some of its records may lie in "
            f"{places}. See what is missing, write it again, and remove {self.path}"
        )

    def write(self) -> None:
        """Write the file, synced: from here on the commit is decided."""
        content = {
            "version": _VERSION,
            "marker": None if self.marker is None else self.marker.decode("latin-1"),
            "configs": self.configs,
            "key": self.key,
            "topic_ids": {name: None if known is None else known.hex for name, known in self.topic_ids.items()},
            "partitions": self.partitions,
            "dropped": self.dropped,
        }
        write_atomically(self.fs, self.path, json.dumps(content).encode())

    def remove(self) -> None:
        """Let the commit be done."""
        self.fs.remove(f"{self.path}.tmp")
        self.fs.remove(self.path)
        self.fs.sync_directory(self.root)

    @classmethod
    def read(cls, fs: FileSystem, root: str) -> "CommitJournal | None":
        """The journal in a root; None if there is none."""
        path = join(root, COMMIT_JOURNAL)
        if fs.stat(path) is None:
            return None
        try:
            return cls._of(fs, root, json.loads(read_whole(fs, path)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidRequestError) as error:
            raise CheckpointError(
                f"{path} is no journal of a commit that this release can read ({error}): use the release that wrote it"
            ) from None

    @classmethod
    def _of(cls, fs: FileSystem, root: str, content: dict[str, Any]) -> "CommitJournal":
        if content["version"] != _VERSION:
            raise ValueError("another version")
        marker, key = content["marker"], content["key"]
        return cls(
            fs,
            root,
            None if marker is None else marker.encode("latin-1"),
            dict(content["configs"]),
            None if key is None else BatchKey(str(key[0]), int(key[1])),
            {name: None if text is None else uuid.UUID(hex=text) for name, text in content["topic_ids"].items()},
            [_plan_of(each) for each in content["partitions"]],
            [_place_of(each) for each in content["dropped"]],
        )


def _plan_of(content: Any) -> PartitionPlan:
    plan = PartitionPlan(*content)
    plan = plan._replace(pieces=tuple(piece_of(each) for each in plan.pieces))
    check_partition(plan.place)
    if type(plan.is_fresh) is not bool or type(plan.end) is not int or type(plan.epoch) is not int:
        raise ValueError("a partition is noted in another form")
    for piece in plan.pieces:
        if "/" in piece.directory:
            raise ValueError("a piece that lies elsewhere")
    return plan


def _place_of(content: Any) -> TopicPartition:
    place = TopicPartition(*content)
    check_partition(place)
    return place


def ensure_untouched(journal: CommitJournal) -> None:
    """Raise if a broker had the logs since the commit was interrupted: what it wrote must not be cut off."""
    recovery_points, high_watermarks = (
        OffsetCheckpoint(journal.fs, join(journal.root, name)).read()
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
    )
    for plan in journal.partitions:
        directory = join(journal.root, str(plan.place))
        epochs = read_epochs(journal.fs, join(directory, LEADER_EPOCH_CHECKPOINT))
        metadata = join(directory, PARTITION_METADATA)
        known, wanted = read_topic_id(journal.fs, metadata), journal.topic_ids[plan.topic]
        if (
            None not in (known, wanted)
            and known != wanted
            or recovery_points.get(plan.place) not in (None, plan.recovery_point, plan.end_then)
            or high_watermarks.get(plan.place) not in (None, plan.high_watermark, plan.end_then)
            or max((entry.epoch for entry in epochs), default=0) > plan.epoch
        ):
            raise StorageError(f"a broker has had {plan.place} since. {journal.what_to_do()}")
