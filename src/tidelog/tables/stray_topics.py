"""Topics that a broker would set aside: written into its log directory, and not known to its cluster.

A broker that starts renames the partitions of such topics to `-stray` and serves nothing of them. The metadata log of
the cluster says which topics it knows, and by which ids. It lies in a log directory of every node that is a controller;
where it is not at hand, topics that were not in the directory before are taken for unknown.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence

from tidelog.errors import TidelogError
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import CLUSTER_METADATA_TOPIC, META_PROPERTIES
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.root import PartitionDirectory, RootView
from tidelog.view.topic_configs import topic_ids

__all__ = ["stray_warning"]

_MOST_NAMED = 5  # topics, in a sentence


def stray_warning(
    fs: ReadFileSystem, roots: Sequence[str], topics: Mapping[str, uuid.UUID | None], new: Collection[str]
) -> str | None:
    """What to tell of topics, with the ids they have in log directories, that a broker there would set aside.

    `new` are those that are made by this write. None where no broker uses the directories, or all topics are known.
    """
    if not any(fs.stat(join(root, META_PROPERTIES)) is not None for root in roots):
        return None
    known = _known_topics(fs, roots)
    if known is None:
        strays = sorted(set(topics) & set(new))
        what = "may not know"
    else:
        strays = sorted(name for name, topic_id in topics.items() if name not in known or known[name] != topic_id)
        other = [name for name in strays if name in known]
        what = "knows under another id" if other and other == strays else "does not know"
    if not strays:
        return None
    named = ", ".join(strays) if len(strays) <= _MOST_NAMED else f"{len(strays)} topics"
    return (
        f"{', '.join(roots)}: the cluster of this broker {what} {named}; when the broker starts it sets their "
        f"partitions aside as -stray and serves nothing of them. To write what it serves: kafka-topics.sh "
        f"--bootstrap-server HOST:PORT --create --topic {strays[0]} --partitions N, stop the broker, write, start the "
        "broker"
    )


def _known_topics(fs: ReadFileSystem, roots: Sequence[str]) -> dict[str, uuid.UUID] | None:
    """The topics of the cluster; None where its metadata log is not here, or cannot be read."""
    name = f"{CLUSTER_METADATA_TOPIC}-0"
    for root in roots:
        if fs.stat(join(root, name)) is not None:
            try:
                view = RootView(ReadOnlyFiles(fs), root)
                return topic_ids(PartitionView(view, PartitionDirectory.parse(name)))
            except TidelogError:
                return None  # `tidelog fsck` reports what is wrong with it
    return None
