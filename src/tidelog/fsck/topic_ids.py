"""Topic ids across the partitions of a topic: all of them carry the same one."""

import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.errors import CheckpointError, StorageError
from tidelog.fsck.findings import Severity
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.verdict import Verdict
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import read_topic_id, uuid_text

__all__ = ["KnownId", "known_topic_id", "note_topic_ids"]


class KnownId(NamedTuple):
    """The id of a topic, and what has it."""

    topic_id: uuid.UUID
    source: str


def note_topic_ids(fs: ReadFileSystem, checks: Sequence[PartitionCheck]) -> None:
    """Find partitions of one root and topic whose ids differ, and those that alone have none."""
    topics: dict[tuple[str | None, str], list[tuple[PartitionCheck, uuid.UUID]]] = {}
    for one in checks:
        if one.place.is_live and (found := _topic_id(fs, one)) is not None:
            topics.setdefault((one.notes.root, one.place.topic_partition.topic), []).append((one, found))
    _note_odd_ones(fs, checks, {root for root, _ in topics})
    for partitions in topics.values():
        usual, _ = Counter(topic_id for _, topic_id in partitions).most_common(1)[0]
        for one, topic_id in partitions:
            if topic_id != usual:
                one.notes.add(
                    "PAR-TOPIC-ID", join(one.place.path, PARTITION_METADATA),
                    f"topic id {uuid_text(topic_id)}, other partitions have {uuid_text(usual)}",
                )  # fmt: skip


def _note_odd_ones(fs: ReadFileSystem, checks: Sequence[PartitionCheck], with_ids: Collection[str | None]) -> None:
    """Find partitions without an id beside others that have one, where no meta.properties says that each needs it."""
    for one in checks:
        if not one.place.is_live or one.is_quorum or one.needs_topic_id or one.notes.root not in with_ids:
            continue
        path = join(one.place.path, PARTITION_METADATA)
        if fs.stat(path) is None:
            message = "it is missing, and other partitions beside it have theirs: a broker would set it aside"
            one.notes.add("PAR-METADATA", path, message, severity=Severity.WARNING)


def known_topic_id(
    fs: ReadFileSystem, topic: str, checks: Sequence[PartitionCheck], verdicts: Sequence[Verdict] = ()
) -> KnownId | None:
    """The id that the metadata has for a topic, else the one that its partitions agree on; None if there is none."""
    by_metadata = {verdict.topic_ids[topic] for verdict in verdicts if topic in verdict.topic_ids}
    if by_metadata:
        return KnownId(by_metadata.pop(), "the metadata log") if len(by_metadata) == 1 else None
    found = {
        topic_id
        for one in checks
        if one.place.is_live and one.place.topic_partition.topic == topic
        for topic_id in (_topic_id(fs, one),)
        if topic_id is not None
    }
    return KnownId(found.pop(), "the topic's other partitions") if len(found) == 1 else None


def _topic_id(fs: ReadFileSystem, one: PartitionCheck) -> uuid.UUID | None:
    try:
        return read_topic_id(fs, join(one.place.path, PARTITION_METADATA))
    except (CheckpointError, StorageError):
        return None
