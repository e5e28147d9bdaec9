"""The answer to "would Kafka start on these directories, and with what?"; would_start.py finds it."""

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.log.names import TopicPartition

if TYPE_CHECKING:
    from tidelog.fsck.recovery_cuts import RecoveryCut

__all__ = ["Offsets", "Verdict"]


class Offsets(NamedTuple):
    """Where a log begins and ends."""

    first: int
    end: int


@dataclass
class Verdict:
    """Whether Kafka would start on the log directories of a node, and what it would serve."""

    roots: list[str]
    starts: bool | None = None
    reason: str | None = None  # why not, or why it is unknown
    reason_path: str | None = None  # the file or directory that is the reason
    node_id: int | None = None
    cluster_id: str | None = None
    topics: dict[str, dict[int, Offsets | None]] = field(default_factory=dict)  # None: it would not be served
    strays: dict[str, str] = field(default_factory=dict)  # directories that would be set aside, and why
    deleted: list[str] = field(default_factory=list)  # directories that would be removed
    missing: list[TopicPartition] = field(default_factory=list)  # would be created, empty
    offline: dict[TopicPartition, str] = field(default_factory=dict)  # would not be served, and why
    offline_roots: dict[str, str] = field(default_factory=dict)
    uncertain: dict[TopicPartition, str] = field(default_factory=dict)  # served or not, by the timing of the start
    cut_short: "dict[TopicPartition, list[RecoveryCut]]" = field(default_factory=dict)  # by more than a torn end
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    metadata_end: int | None = None  # of the copy of a broker that follows a quorum, and fetches what the copy lacks

    @property
    def is_whole(self) -> bool:
        """Whether Kafka would start with everything that is there."""
        lacks = (self.strays, self.missing, self.offline, self.offline_roots, self.uncertain, self.cut_short)
        return self.starts is True and not any(lacks)

    def __str__(self) -> str:
        """In a line."""
        where = f"{self.reason_path}: {self.reason}" if self.reason_path is not None else self.reason
        if self.starts is None:
            return f"Would Kafka 4.3 start? unknown: {where}"
        if not self.starts:
            return f"Would Kafka 4.3 start? no: {where}"
        partitions = sum(map(len, self.topics.values()))
        yes = f"Would Kafka 4.3 start? yes, with {_many(len(self.topics), 'topic')}, {_many(partitions, 'partition')}"
        lacks = [
            f"{number} {words}"
            for number, words in (
                (len(self.strays), "set aside as strays"),
                (len(self.cut_short), "cut short by recovery"),
                (len(self.missing), "created empty"),
                (len(self.offline), "offline"),
                (len(self.uncertain), "perhaps not served"),
            )
            if number
        ]
        if self.metadata_end is not None:
            lacks.append(f"by its copy of the metadata, which ends at offset {self.metadata_end}")
        return f"{yes}; {', '.join(lacks)}" if lacks else yes

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "roots": self.roots,
            "would_start": self.starts,
            "with_everything": self.is_whole,
            "reason": self.reason if self.reason_path is None else f"{self.reason_path}: {self.reason}",
            "node_id": self.node_id,
            "cluster_id": self.cluster_id,
            "metadata_copy_end": self.metadata_end,
            "topics": {
                topic: {
                    str(number): None if offsets is None else {"log_start": offsets.first, "log_end": offsets.end}
                    for number, offsets in sorted(partitions.items())
                }
                for topic, partitions in sorted(self.topics.items())
            },
            "strays": self.strays,
            "deleted": self.deleted,
            "cut_short": {
                str(partition): [cut.to_dict() for cut in cuts] for partition, cuts in self.cut_short.items()
            },
            "created_empty": [str(partition) for partition in self.missing],
            "offline_partitions": {str(partition): why for partition, why in self.offline.items()},
            "offline_roots": self.offline_roots,
            "uncertain_partitions": {str(partition): why for partition, why in self.uncertain.items()},
        }


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
