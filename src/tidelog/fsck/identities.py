"""Read `meta.properties` of all directories of a node, and compare them as Kafka 4.3 does when it starts.

A malformed file takes its directory offline; if that one holds the metadata log, Kafka does not start. Nor does it if a
file is missing, if the files name different clusters or nodes, or if two directories have the same id.

Kafka: MetaPropertiesEnsemble and KafkaRaftServer.initializeLogDirs.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.fsck.metadata_log import Unstartable
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.manager.meta_properties import parse_properties
from tidelog.log.names import CLUSTER_METADATA_DIRECTORY, META_PROPERTIES
from tidelog.log.partition_metadata import parse_uuid, uuid_text
from tidelog.log.text_files import to_number

__all__ = ["Identities", "is_directory", "read_identities"]

_RESERVED = 100  # Kafka reserves the ids below it


@dataclass
class Identities:
    """The directories of a node. Those that are offline have no id; one without an id would get a new one."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_ids: dict[str, uuid.UUID | None] = field(default_factory=dict)
    offline: dict[str, str] = field(default_factory=dict)  # and why


def read_identities(fs: ReadFileSystem, roots: Sequence[str], metadata_root: str | None) -> Identities:
    """Read and compare the identities of directories. Raises Unstartable where Kafka gives up.

    `metadata_root` is the one with the metadata log; None if it is in none of them.
    """
    found = Identities()
    for root in roots:
        path = join(root, META_PROPERTIES)
        if not is_directory(fs, root):
            found.offline[root] = "it is not a directory"
            continue
        if fs.stat(path) is None:
            raise Unstartable(path, "it is missing")
        try:
            properties = parse_properties(read_whole(fs, path).decode("iso-8859-1"))
            cluster_id, node_id, directory_id = _identity(properties)
        except (InvalidRequestError, StorageError) as error:
            if root == metadata_root:
                raise Unstartable(path, f"{error}, and the metadata log is in this directory") from error
            found.offline[root] = f"{META_PROPERTIES}: {error}"
            continue
        _compare(found, path, cluster_id, node_id, directory_id)
        found.directory_ids[root] = directory_id
    for root in found.directory_ids:
        if root != metadata_root and fs.stat(join(root, CLUSTER_METADATA_DIRECTORY)) is not None:
            path = join(root, CLUSTER_METADATA_DIRECTORY)
            raise Unstartable(path, f"a second metadata log; the other one is in {metadata_root}")
    return found


def is_directory(fs: ReadFileSystem, path: str) -> bool:
    """Whether a path leads to a directory, and not to a file or nothing."""
    about = fs.stat(path)
    return about is not None and about.is_directory


def _identity(values: dict[str, str]) -> tuple[str | None, int | None, uuid.UUID | None]:
    """Cluster, node and directory. Raises InvalidRequestError for what takes the directory offline."""
    version = _number(values.get("version", "0").strip(), "version")
    if version not in (0, 1):
        raise InvalidRequestError(f"version {version}; 0 and 1 are known")
    cluster_id = values.get("cluster.id")
    name = ("broker.id", "node.id")[version]
    if version == 1 and (name not in values or cluster_id is None):
        raise InvalidRequestError(f"{'cluster.id' if name in values else name} is missing")
    node_id = _number(values[name], name) if name in values else None
    return cluster_id, node_id, parse_uuid(values["directory.id"]) if "directory.id" in values else None


def _number(text: str, name: str) -> int:
    number = to_number(text, 32)
    if number is None:
        raise InvalidRequestError(f"{name} is {text[:30]!r}, wanted is a whole number of 32 bits")
    return number


def _compare(
    found: Identities, path: str, cluster_id: str | None, node_id: int | None, directory_id: uuid.UUID | None
) -> None:
    if node_id is None or cluster_id is None:
        raise Unstartable(path, f"it names no {'node' if node_id is None else 'cluster'}")
    if found.cluster_id not in (None, cluster_id):
        raise Unstartable(path, f"it is of cluster {cluster_id}, another directory of cluster {found.cluster_id}")
    if found.node_id not in (None, node_id):
        raise Unstartable(path, f"it is of node {node_id}, another directory of node {found.node_id}")
    if directory_id is not None:
        if directory_id.int < _RESERVED:
            raise Unstartable(path, f"directory.id {uuid_text(directory_id)} stands for no directory")
        for root, other in found.directory_ids.items():
            if other == directory_id:
                raise Unstartable(path, f"directory.id {uuid_text(directory_id)} is that of {root} as well")
    found.cluster_id, found.node_id = cluster_id, node_id
