"""The configs that indexes are rebuilt with: `index.interval.bytes` and `segment.index.bytes`.

A directory does not say them. In this order they are: those that were given; those that the metadata log of the cluster
has for the topic, where it lies in the root or in another root of the cluster that is checked; the interval that the
sound indexes of the log show; Kafka's defaults.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import InvalidConfigError
from tidelog.fsck.index_spacing import IndexSpacing
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.root_files import RootFiles
from tidelog.fsck.topic_policies import configs_in
from tidelog.log.config import LogConfig
from tidelog.log.files import ReadFileSystem

__all__ = ["DEFAULT", "Given", "IndexConfig", "IndexConfigs", "index_config", "is_interval_known", "known_configs"]

INTERVAL = "index.interval.bytes"
_OF_INDEXES = (INTERVAL, "segment.index.bytes")

Given = LogConfig | Mapping[str, str]


class IndexConfig(NamedTuple):
    """The configs of one topic, and how the interval is known."""

    config: LogConfig
    source: str

    @property
    def is_given(self) -> bool:
        """Whether somebody said the interval."""
        return self.source == _GIVEN

    @property
    def is_found(self) -> bool:
        """Whether nobody said the interval, and it is not simply the default."""
        return self.source not in (_GIVEN, DEFAULT.source)

    def __str__(self) -> str:
        return f"{INTERVAL}={self.config.index_interval_bytes}, {self.source}"


DEFAULT = IndexConfig(LogConfig(), "Kafka's default")
_GIVEN = "as given"


def index_config(given: Given, known: Mapping[str, str], spacing: IndexSpacing | None = None) -> IndexConfig:
    """What to rebuild the indexes of a log with: what was given, else is known of the topic, else is seen."""
    if isinstance(given, LogConfig):
        return IndexConfig(given, _GIVEN)
    try:
        config = LogConfig.from_properties({**known, **given})
    except InvalidConfigError:
        config = LogConfig.from_properties(given)  # where this is refused too, that was the reason
        known = {}
    if INTERVAL in given:
        return IndexConfig(config, _GIVEN)
    if INTERVAL in known:
        return IndexConfig(config, "the topic's by the metadata log")
    shown = None if spacing is None else spacing.interval(config.index_interval_bytes)
    if shown is None:
        return IndexConfig(config, DEFAULT.source)
    config = LogConfig.from_properties({**known, **given, INTERVAL: str(shown)})
    return IndexConfig(config, "as the sound indexes of the log show")


class IndexConfigs:
    """The configs of the topics in some roots. `given` is all of them, or some by Kafka's names."""

    def __init__(self, fs: ReadFileSystem, roots: Sequence[RootFiles], given: Given | None = None) -> None:
        self._fs = fs
        self._roots = roots
        self._given = {} if given is None else given
        self._known: dict[str, Mapping[str, Mapping[str, str]]] = {}  # by root

    def of(self, check: PartitionCheck) -> IndexConfig:
        """Those for the indexes of one partition."""
        return index_config(self._given, self._of_topic(check), check.spacing)

    def _of_topic(self, check: PartitionCheck) -> Mapping[str, str]:
        own = [root for root in self._roots if root.place.path == check.notes.root]
        cluster = next((root.meta.cluster_id for root in own if root.meta is not None), None)
        others = [root for root in self._roots if root.meta is not None and root.meta.cluster_id == cluster]
        for root in [*own, *(others if cluster is not None else ())]:
            path = root.place.path
            if path not in self._known:
                self._known[path] = known_configs(self._fs, path)
            if check.place.topic_partition.topic in self._known[path]:
                return self._known[path][check.place.topic_partition.topic]
        return {}


def is_interval_known(given: Given, known: Mapping[str, str]) -> bool:
    """Whether the interval need not be looked for in indexes."""
    return isinstance(given, LogConfig) or INTERVAL in given or INTERVAL in known


def known_configs(fs: ReadFileSystem, root: str) -> Mapping[str, Mapping[str, str]]:
    """By topic, the configs of indexes that the metadata log in a root has; none where it is not there or damaged."""
    found = configs_in(fs, root) or {}
    return {topic: {name: configs[name] for name in _OF_INDEXES if name in configs} for topic, configs in found.items()}
