"""Which topics are compacted, by the metadata log of a root: gaps between their offsets are normal."""

from collections.abc import Mapping

from tidelog.errors import TidelogError
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import CLUSTER_METADATA_DIRECTORY
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.topic_configs import topic_configs

__all__ = ["TopicPolicies", "configs_in"]

_COMPACTED_BY_KAFKA = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def configs_in(fs: ReadFileSystem, root: str) -> Mapping[str, Mapping[str, str]] | None:
    """The configs of topics, by the metadata log in a root; None if there is no such log, or it is damaged."""
    path = join(root, CLUSTER_METADATA_DIRECTORY)
    try:
        if fs.stat(path) is None:
            return None
        return topic_configs(PartitionView.at(ReadOnlyFiles(fs), path))
    except TidelogError:  # the check of the metadata log itself reports it
        return None


class TopicPolicies:
    """The cleanup policies of the topics of one root. The metadata log is read on first use."""

    def __init__(self, fs: ReadFileSystem, root: str) -> None:
        self._fs = fs
        self._root = root
        self._configs: Mapping[str, Mapping[str, str]] | None = None
        self._is_read = False

    def is_compacted(self, topic: str) -> bool | None:
        """Whether a topic is compacted; None if it is unknown."""
        if topic in _COMPACTED_BY_KAFKA:
            return True
        if not self._is_read:
            self._configs, self._is_read = configs_in(self._fs, self._root), True
        if self._configs is None:
            return None
        return "compact" in self._configs.get(topic, {}).get("cleanup.policy", "delete")
