"""How many partitions a topic has by the cluster's metadata log, and which of them are assigned to this node.

A node of a cluster may hold only some partitions of a topic, so its directories do not show how many there are. Keys
are hashed over all of them, as producers do; a row for a partition of another node is rejected.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.log.files import FileSystem, join
from tidelog.log.manager.meta_properties import read_meta_properties
from tidelog.log.names import PARTITION_METADATA, TopicPartition
from tidelog.log.partition_metadata import read_topic_id
from tidelog.tables.stray_topics import known_topics

__all__ = ["Assignment", "assignment_of", "known_sizes"]


class Assignment(NamedTuple):
    """Where the partitions of a topic belong. `node` is this node; None where no meta.properties says which it is."""

    topic: str
    topic_id: uuid.UUID
    replicas: Mapping[int, tuple[int, ...]]
    node: int | None

    @property
    def size(self) -> int:
        """How many partitions the topic has."""
        return len(self.replicas)

    def ours(self, there: Collection[int]) -> list[int]:
        """The partitions of this node; `there` are those that have a directory here."""
        return [
            number
            for number, brokers in sorted(self.replicas.items())
            if (number in there if self.node is None else self.node in brokers)
        ]

    def why_not_ours(self, number: int) -> str:
        """Why nothing can be written to a partition here, and what to do: the rest of a sentence that names it."""
        brokers = self.replicas[number]
        named = f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"
        if self.node is None:
            return f"which has no directory here and is assigned to {named} by the metadata log: write it there"
        return f"which the metadata log assigns to {named}, and not to this node, {self.node}: write it there"


def assignment_of(fs: FileSystem, roots: Sequence[str], topic: str) -> Assignment | None:
    """The assignment of a topic; None where the metadata log is not in the log directories, or does not know it.

    Raises a TidelogError where the metadata log cannot be read.
    """
    known = (known_topics(fs, roots) or {}).get(topic)
    if known is None or sorted(known.replicas) != list(range(len(known.replicas))) or not known.replicas:
        return None
    found = (read_meta_properties(fs, root) for root in roots)
    node = next((each.node_id for each in found if each is not None), None)
    return Assignment(topic, known.topic_id, known.replicas, node)


def known_sizes(fs: FileSystem, root: str, there: Iterable[TopicPartition]) -> dict[str, int]:
    """How many partitions each topic has, by the metadata log in a log directory.

    A topic that is in the directory with another id is another topic, and is left out. Empty if there is no metadata
    log, or it cannot be read, which `tidelog fsck` reports.
    """
    try:
        known = known_topics(fs, [root]) or {}
    except TidelogError:
        return {}
    sizes = {name: len(topic.replicas) for name, topic in known.items() if topic.replicas}
    for place in {place.topic: place for place in there}.values():
        if place.topic in sizes:
            topic_id = read_topic_id(fs, join(join(root, str(place)), PARTITION_METADATA))
            if topic_id not in (None, known[place.topic].topic_id):
                del sizes[place.topic]
    return sizes
