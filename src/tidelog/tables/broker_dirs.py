"""Ensure that a write knows all log directories of a broker before it creates a partition in one of them.

A partition that has no directory here may be in another log directory of the same broker. Creating it would make a
second copy, and Kafka does not start if a partition is in two log directories. The metadata log lists the directories
that each broker has registered (since Kafka 3.7), by the ids in their `meta.properties`. A directory that is formatted
belongs to a broker; without the metadata log nothing here says how many others that broker has.

A partition without a directory that a checkpoint lists with an offset had records. It is lost, or in a directory that
is not named: recreated, it would begin at offset 0 and hide that.
"""

import uuid
from collections.abc import Sequence

from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.log.checkpoints import read_offsets
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.manager.meta_properties import MetaProperties, read_meta_properties
from tidelog.log.names import (
    CLUSTER_METADATA_DIRECTORY,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from tidelog.log.partition_metadata import uuid_text
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.topic_configs import broker_log_dirs

__all__ = ["LIST_ALL", "NAME_ALL", "BrokerDirs"]

NAME_ALL = "name all of them (--to DIR --to DIR, or --config server.properties)"
LIST_ALL = "pass --config server.properties, whose log.dirs are all of them (load_table: are_all_dirs=True)"


class BrokerDirs:
    """The log directories that a write knows. `are_all`: somebody says that the broker has no others.

    `ways` is what a person can do about directories that the metadata log lists and nobody has named. `ways_unlisted`
    is that where no metadata log lists them: naming more of them does not show that these are all, so somebody has to
    say it.
    """

    def __init__(
        self,
        fs: ReadFileSystem,
        roots: Sequence[str],
        *,
        are_all: bool = False,
        ways: str = NAME_ALL,
        ways_unlisted: str = LIST_ALL,
    ) -> None:
        self._fs = fs
        self._roots = list(roots)
        self._are_all = are_all
        self._ways = ways
        self._ways_unlisted = ways_unlisted
        self._is_checked = False
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # that the checkpoints have, by directory

    @property
    def may_lack_some(self) -> bool:
        """Whether the broker may have other directories, and nothing here could tell.

        Then the partitions that are here do not show how many the topic has.
        """
        return not self._are_all and self._metadata_root() is None and bool(self._identities())

    def ensure_creatable(self, partition: TopicPartition) -> None:
        """Raise InvalidRequestError if a partition that is to be created may be in a directory that is not named.

        Raise it, too, if a checkpoint knows that the partition had records.
        """
        if not self._is_checked:
            self._ensure_all_named(partition)
            self._is_checked = True
        self._ensure_had_no_records(partition)

    def _ensure_had_no_records(self, partition: TopicPartition) -> None:
        for root in self._roots:
            if partition in self._offsets_of(root):
                offset = self._offsets_of(root)[partition]
                raise InvalidRequestError(
                    f"{partition} has no directory in {root}, and the checkpoints there say that it reached offset "
                    f"{offset}: restore {join(root, str(partition))} or name the log directory that holds it; if its "
                    f"records are given up, `tidelog fsck --repair {root}` removes it from the checkpoints"
                )

    def _offsets_of(self, root: str) -> dict[TopicPartition, int]:
        """The largest offset above 0 that the checkpoints of a directory have for each partition."""
        if root not in self._offsets:
            found: dict[TopicPartition, int] = {}
            for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
                for partition, offset in read_offsets(self._fs, join(root, name)).items():
                    if offset > found.get(partition, 0):
                        found[partition] = offset
            self._offsets[root] = found
        return self._offsets[root]

    def _ensure_all_named(self, partition: TopicPartition) -> None:
        known = self._identities()
        if not known:
            return  # of no broker so far
        node = next((meta.node_id for _, meta in known if meta.node_id is not None), None)
        registered = self._registered(node)
        ids = {uuid_text(meta.directory_id) for _, meta in known if meta.directory_id is not None}
        missing = len(set(registered) - ids)
        if missing:
            named = "1 directory is" if len(self._roots) == 1 else f"{len(self._roots)} directories are"
            raise InvalidRequestError(
                f"broker {node} has {len(self._roots) + missing} log directories by its metadata log, and {named} "
                f"named: {partition} may be in another one; {self._ways}"
            )
        if not registered and not self._are_all:
            raise InvalidRequestError(
                f"{known[0][0]} belongs to {'a broker' if node is None else f'broker {node}'}, and no metadata log "
                f"here lists the log directories of that broker: {partition} may be in another one; "
                f"{self._ways_unlisted}"
            )

    def _registered(self, node: int | None) -> Sequence[str]:
        """The ids of the log directories that the broker has registered; none if nothing here lists them."""
        root = self._metadata_root()
        if root is None or node is None:
            return ()
        directory = join(root, CLUSTER_METADATA_DIRECTORY)
        try:
            return broker_log_dirs(PartitionView.at(ReadOnlyFiles(self._fs), directory)).get(node, ())
        except TidelogError:
            if self._are_all:
                return ()
            raise

    def _metadata_root(self) -> str | None:
        return next((root for root in self._roots if self._has_metadata(root)), None)

    def _has_metadata(self, root: str) -> bool:
        return self._fs.stat(join(root, CLUSTER_METADATA_DIRECTORY)) is not None

    def _identities(self) -> list[tuple[str, MetaProperties]]:
        found = ((root, read_meta_properties(self._fs, root)) for root in self._roots)
        return [(root, meta) for root, meta in found if meta is not None]

    def ensure_one_broker(self) -> None:
        """Raise InvalidRequestError if Kafka does not take the directories for those of one broker."""
        ids: dict[uuid.UUID, str] = {}
        known = self._identities()
        for root, meta in known:
            other, first = known[0]
            if (meta.cluster_id, meta.node_id) != (first.cluster_id, first.node_id):
                raise InvalidRequestError(
                    f"{other} belongs to {_owner(first)}, {root} to {_owner(meta)}: name the log directories of one "
                    "broker"
                )
            twin = root if meta.directory_id is None else ids.setdefault(meta.directory_id, root)
            if twin is not root:
                raise InvalidRequestError(
                    f"{twin} and {root} have the same directory.id: Kafka does not start on them; if one is a copy, "
                    "move it away"
                )


def _owner(meta: MetaProperties) -> str:
    return f"node {meta.node_id} of cluster {meta.cluster_id}"
