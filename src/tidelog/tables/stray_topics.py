"""Warn about topics that are written into a broker's log directory but unknown to its cluster.

When the broker starts, it renames the partitions of such topics to `-stray` and does not serve them. The metadata log
of the cluster lists the topics and their ids. Every node that is a controller has it in a log directory; without it,
topics that were not in the directory before are taken for unknown.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence

from tidelog.errors import TidelogError
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import CLUSTER_METADATA_DIRECTORY, META_PROPERTIES
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.root import PartitionDirectory, RootView
from tidelog.view.topic_configs import ClusterTopic, cluster_topics

__all__ = ["known_topics", "stray_warning"]

_MOST_NAMED = 5  # topics, in a sentence


def stray_warning(
    fs: ReadFileSystem, roots: Sequence[str], topics: Mapping[str, uuid.UUID | None], new: Collection[str]
) -> str | None:
    """A warning about the topics that a broker would set aside, given the ids that they have in log directories.

    `new` are those that this write creates. None if no broker uses the directories, or all topics are known.
    """
    if not any(fs.stat(join(root, META_PROPERTIES)) is not None for root in roots):
        return None
    try:
        known = known_topics(fs, roots)
    except TidelogError:
        known = None  # `tidelog fsck` reports what is wrong with it
    if known is None:
        return _warning(roots, sorted(set(topics) & set(new)), "may not know")
    unknown = sorted(name for name in topics if name not in known)
    other = sorted(name for name, topic_id in topics.items() if name in known and known[name].topic_id != topic_id)
    if unknown:
        return _warning(roots, [*unknown, *other], "does not know")
    return _warning(roots, other, "knows under another id")


def _warning(roots: Sequence[str], strays: Sequence[str], what: str) -> str | None:
    if not strays:
        return None
    named = ", ".join(strays) if len(strays) <= _MOST_NAMED else f"{len(strays)} topics"
    ways = f"kafka-topics.sh --bootstrap-server HOST:PORT --create --topic {strays[0]} --partitions N, stop the broker"
    if what == "knows under another id":  # it cannot be created: it is there
        ways = f"move the directories of {strays[0]} that have the other id out of the log directories"
    return (
        f"{', '.join(roots)}: the cluster of this broker {what} {named}; when the broker starts it sets their "
        f"partitions aside as -stray and does not serve them. To write what it serves: {ways}, write, start the broker"
    )


def known_topics(fs: ReadFileSystem, roots: Sequence[str]) -> dict[str, ClusterTopic] | None:
    """The topics of the cluster; None where its metadata log is not here. Raises TidelogError if it cannot be read."""
    for root in roots:
        if fs.stat(join(root, CLUSTER_METADATA_DIRECTORY)) is not None:
            directory = PartitionDirectory.parse(CLUSTER_METADATA_DIRECTORY)
            return cluster_topics(PartitionView(RootView(ReadOnlyFiles(fs), root), directory))
    return None
