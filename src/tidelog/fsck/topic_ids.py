"""Topic ids across the partitions of a topic: all of them carry the same one.

The metadata log of the node decides which one is right. Where it does not know the topic, most partitions of the root
do; if as many have one id as another, nobody knows.

A directory with another id may hold a topic that was deleted and recreated under the same name. Its records must
never become those of the new topic, so a repair changes an id only where the id itself proves damage: ids are random,
and two of them differ in about 61 bits. One that differs from the right id in a few bits was that id before.

Kafka: LogManager.isStrayReplica.
"""

import re
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.errors import CheckpointError, StorageError
from tidelog.fsck.findings import Finding, Severity
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.verdict import Verdict
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import read_topic_id, uuid_text

__all__ = ["KnownId", "is_damaged_id", "known_topic_id", "note_topic_ids"]

_CODE = "PAR-TOPIC-ID"
_DAMAGED_BITS = 8  # one damaged byte of the file changes at most 6 of them
_RANDOM = 4  # the version of a UUID that Kafka makes: only of such ids a few bits are proof
_NAMES = 3  # of the partitions with an id, so many are named
_BY_NOBODY = (
    "kafka-topics.sh --describe prints the id of the topic: restore partition.metadata of the others from a replica"
)
_BY_METADATA = (
    "compare the records with a replica (tidelog diff): if they are of this topic, remove partition.metadata and run "
    "tidelog fsck --repair; if the topic was deleted and recreated, nothing: Kafka sets the directory aside"
)
_DAMAGED = "a few bits of the right id have changed: tidelog fsck --repair rewrites it"

# What is left of an id of 22 characters. Two random ids have the same character at one place in 64.
_ID_LEFT = re.compile(rb"topic_id: ?([^\n]{20,24})", re.DOTALL)
_ID_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_LEAST_LEFT, _LEAST_SAME = 16, 8

Found = list[tuple[PartitionCheck, uuid.UUID]]


class KnownId(NamedTuple):
    """The id of a topic, what has it, and why it is written."""

    topic_id: uuid.UUID
    source: str
    code: str = "PAR-METADATA"


def note_topic_ids(fs: ReadFileSystem, checks: Sequence[PartitionCheck], verdicts: Sequence[Verdict] = ()) -> None:
    """Find partitions whose id is not that of their topic, and those of a root that alone have none."""
    by_metadata: dict[tuple[int, str], tuple[Verdict, Found]] = {}
    by_root: dict[tuple[str | None, str], Found] = {}
    with_ids = set[str | None]()
    for one in checks:
        if not one.place.is_live or (topic_id := _topic_id(fs, one)) is None:
            continue
        with_ids.add(one.notes.root)
        topic = one.place.topic_partition.topic
        verdict = _verdict_on(one, verdicts)
        if verdict is not None and topic in verdict.topic_ids:
            by_metadata.setdefault((id(verdict), topic), (verdict, []))[1].append((one, topic_id))
        else:
            by_root.setdefault((one.notes.root, topic), []).append((one, topic_id))
    _note_odd_ones(fs, checks, with_ids)
    for (_, topic), (verdict, partitions) in by_metadata.items():
        _note_by_metadata(verdict, verdict.topic_ids[topic], partitions)
    for partitions in by_root.values():
        _note_by_most(partitions)


def _verdict_on(one: PartitionCheck, verdicts: Sequence[Verdict]) -> Verdict | None:
    """The verdict on the node that a partition is on."""
    return next((verdict for verdict in verdicts if one.notes.root in verdict.roots), None)


def _note_by_metadata(verdict: Verdict, right: uuid.UUID, partitions: Found) -> None:
    """Note the partitions whose id is not the one that the metadata log has.

    If no partition has that one, the topic was probably deleted and recreated, and Kafka sets them aside: a warning. A
    broker that only follows the quorum may have an older copy of the metadata log, which then says nothing.
    """
    is_confirmed = any(topic_id == right for _, topic_id in partitions)
    for one, topic_id in partitions:
        is_damaged = _is_close(topic_id, right)
        if topic_id == right or not (is_confirmed or is_damaged or verdict.metadata_end is None):
            continue
        one.notes.add(
            _CODE, join(one.place.path, PARTITION_METADATA),
            f"topic id {uuid_text(topic_id)}, the metadata log has {uuid_text(right)}",
            severity=None if is_confirmed or is_damaged else Severity.WARNING,
            remedy=_DAMAGED if is_damaged else _BY_METADATA,
        )  # fmt: skip


def _note_by_most(partitions: Found) -> None:
    """Note the partitions of one root whose id is not that of the most, or that there is no such id."""
    (usual, most), *others = Counter(topic_id for _, topic_id in partitions).most_common()
    if others and others[0][1] == most:
        one, _ = partitions[0]
        root = one.root
        told = "; ".join(_having(topic_id, partitions) for topic_id in dict.fromkeys(found for _, found in partitions))
        root.notes.add(_CODE, root.place.path, f"{told}: nothing here tells which is right", remedy=_BY_NOBODY)
        return
    for one, topic_id in partitions:
        if topic_id != usual:
            one.notes.add(
                _CODE, join(one.place.path, PARTITION_METADATA),
                f"topic id {uuid_text(topic_id)}, other partitions have {uuid_text(usual)}",
            )  # fmt: skip


def _having(topic_id: uuid.UUID, partitions: Found) -> str:
    """Which partitions have an id, in words."""
    names = sorted(one.place.name for one, found in partitions if found == topic_id)
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more} {'has' if len(names) == 1 else 'have'} topic id {uuid_text(topic_id)}"


def _is_close(topic_id: uuid.UUID, right: uuid.UUID) -> bool:
    """Whether an id is another one with a few changed bits, and not one of another topic."""
    return right.version == _RANDOM and 0 < (topic_id.int ^ right.int).bit_count() <= _DAMAGED_BITS


def is_damaged_id(finding: Finding) -> bool:
    """Whether a finding is about an id that a repair rewrites."""
    return finding.code == _CODE and finding.remedy == _DAMAGED


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
    fs: ReadFileSystem, one: PartitionCheck, checks: Sequence[PartitionCheck], verdicts: Sequence[Verdict] = ()
) -> KnownId | None:
    """The id to write for a partition whose own is missing, unreadable or damaged; None if it is not known.

    It is the one that the metadata of its node, else of its cluster, has for the topic, else the one that the other
    partitions agree on. An id that may be that of a deleted topic is not replaced.
    """
    known, present = _expected_id(fs, one, checks, verdicts), _topic_id(fs, one)
    if known is not None and present is not None:
        return known._replace(code=_CODE) if _is_close(present, known.topic_id) else None
    return None if known is None or _names_another(fs, one, known.topic_id) else known


def _names_another(fs: ReadFileSystem, one: PartitionCheck, right: uuid.UUID) -> bool:
    """Whether a `partition.metadata` that cannot be parsed still holds most of an id, and it is not this one."""
    path = join(one.place.path, PARTITION_METADATA)
    try:
        left = _ID_LEFT.search(read_whole(fs, path)) if fs.stat(path) is not None else None
    except StorageError:
        return False
    text = b"" if left is None else bytes(left[1])
    same = [byte for byte, wanted in zip(text, uuid_text(right).encode(), strict=False) if byte == wanted]
    return len(same) < _LEAST_SAME and sum(byte in _ID_BYTES for byte in text) >= _LEAST_LEFT


def _expected_id(
    fs: ReadFileSystem, one: PartitionCheck, checks: Sequence[PartitionCheck], verdicts: Sequence[Verdict]
) -> KnownId | None:
    topic, own = one.place.topic_partition.topic, _verdict_on(one, verdicts)
    if own is not None and topic in own.topic_ids:
        return KnownId(own.topic_ids[topic], "the metadata log")
    cluster = _cluster_of(one)
    if cluster is not None:
        found = {each.topic_ids[topic] for each in verdicts if each.cluster_id == cluster and topic in each.topic_ids}
        if found:
            return KnownId(found.pop(), "the metadata log") if len(found) == 1 else None
    roots = {one.notes.root, *(() if own is None else own.roots)}
    found = {
        topic_id
        for other in checks
        if other is not one and other.place.is_live and other.place.topic_partition.topic == topic
        and (other.notes.root in roots or (cluster is not None and _cluster_of(other) == cluster))
        for topic_id in (_topic_id(fs, other),)
        if topic_id is not None
    }  # fmt: skip
    return KnownId(found.pop(), "the topic's other partitions") if len(found) == 1 else None


def _cluster_of(one: PartitionCheck) -> str | None:
    """The cluster of a partition: another one may have a topic of the same name, with an id of its own."""
    return None if one.root.meta is None else one.root.meta.cluster_id


def _topic_id(fs: ReadFileSystem, one: PartitionCheck) -> uuid.UUID | None:
    try:
        return read_topic_id(fs, join(one.place.path, PARTITION_METADATA))
    except (CheckpointError, StorageError):
        return None
