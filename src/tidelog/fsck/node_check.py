"""Group the directories that are checked by node, and judge whether Kafka would start on each node.

Directories that are named together are the `log.dirs` of one node, unless several have a metadata log of their own and
their `meta.properties` name different nodes. Directories found in a tree are grouped by the cluster and the node they
name.
"""

from collections.abc import Collection, Iterator, Sequence

from tidelog.errors import StorageError
from tidelog.fsck.findings import Severity
from tidelog.fsck.metadata_log import (
    Unstartable,
    read_quorum_state,
    snapshots_in,
)
from tidelog.fsck.places import plain_path
from tidelog.fsck.root_files import RootFiles
from tidelog.fsck.snapshot_files import check_bootstrap, check_snapshots
from tidelog.fsck.verdict import Verdict
from tidelog.fsck.would_start import would_start
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import CLUSTER_METADATA_DIRECTORY, TopicPartition
from tidelog.log.partition_metadata import uuid_text
from tidelog.view.addresses import is_address

__all__ = ["judge_nodes"]

_END_EVERY_START = {"ROOT-FOREIGN", "ROOT-LOAD", "ROOT-META", "ROOT-DUPLICATE", "ROOT-ID"}

Nodes = list[list[RootFiles]]


def judge_nodes(
    fs: ReadFileSystem,
    roots: Sequence[RootFiles],
    named: Collection[str],
    held_markers: Collection[str] = (),
    *,
    is_one_node: bool = False,
) -> list[Verdict]:
    """Judge the nodes whose directories were checked, and note what keeps them from starting with everything.

    `is_one_node`: a broker's own properties name the directories, so they are those of one node whatever they say.
    """
    named = set(map(plain_path, named))
    wanted = [root for root in roots if root.place.is_lost or (root.place.has_files and root.place.is_wanted)]
    verdicts = []
    for node in [wanted] if is_one_node and wanted else _nodes(fs, wanted, named):
        for root in node:
            _check_metadata_files(fs, root)
        if any(map(is_address, named)):  # it would have to be downloaded again, and Kafka cannot start there
            reason = "the directories are in an object store; copy them to a disk first"
            verdicts.append(Verdict([root.place.path for root in node], reason=reason))
            continue
        doubt = _why_unrelated(node, named, is_only=len(node) == len(wanted))
        if doubt is not None:
            verdicts.append(Verdict([root.place.path for root in node], reason=doubt))
            continue
        _note_twins(node)
        verdicts.append(_judge(fs, node, held_markers))
    return verdicts


def _why_unrelated(node: list[RootFiles], named: Collection[str], *, is_only: bool) -> str | None:
    """Why directories are not known to be the log.dirs of one node; None if they are judged as those.

    Directories that a tree was searched for may be copies of each other, or of several nodes. `is_only`: nothing else
    was found.
    """
    if all(root.place.path in named for root in node) or (len(node) == 1 and (is_only or node[0].meta is not None)):
        return None
    ids = [None if root.meta is None else root.meta.directory_id for root in node]
    known = [directory_id for directory_id in ids if directory_id is not None]
    if len(set(known)) < len(known):
        return "several copies of one directory: name the log.dirs of one node"
    if len(known) < len(ids):
        return "nothing here says which directories are log.dirs of one node: name those of one node"
    return None


def _nodes(fs: ReadFileSystem, roots: Sequence[RootFiles], named: Collection[str]) -> Nodes:
    with_metadata = [root for root in roots if fs.stat(join(root.place.path, CLUSTER_METADATA_DIRECTORY)) is not None]
    are_named = all(root.place.path in named for root in roots)
    if roots and are_named and len(with_metadata) <= 1:
        return [list(roots)]
    groups: dict[object, list[RootFiles]] = {}
    for root in roots:
        groups.setdefault(None if root.meta is None else (root.meta.cluster_id, root.meta.node_id), []).append(root)
    unknown = groups.pop(None, [])
    if len(groups) == 1:
        return [next(iter(groups.values())) + unknown]
    return [*groups.values(), *([root] for root in unknown)]


def _judge(fs: ReadFileSystem, node: list[RootFiles], held_markers: Collection[str]) -> Verdict:
    paths = [root.place.path for root in node]
    in_use = [root.place.path for root in node if root.is_in_use]
    if in_use:
        return Verdict(paths, reason="a broker has it open", reason_path=in_use[0])
    verdict = would_start(fs, paths, held_markers=held_markers)
    _note(node, verdict)
    return verdict


# -- findings ----------------------------------------------------------------------------------------------------------


def _check_metadata_files(fs: ReadFileSystem, root: RootFiles) -> None:
    """Check the files of the metadata log other than its segments, and `bootstrap.checkpoint`."""
    if root.is_in_use:
        return
    directory = join(root.place.path, CLUSTER_METADATA_DIRECTORY)
    has_metadata = fs.stat(directory) is not None
    check_bootstrap(fs, root, has_metadata=has_metadata)
    if not has_metadata:
        return
    try:
        read_quorum_state(fs, directory)
    except Unstartable as error:
        root.notes.add("META-QUORUM", error.path, error.reason)
    try:
        snapshots = snapshots_in(fs, directory)
    except Unstartable as error:
        root.notes.add("META-SNAPSHOT", error.path, error.reason)
        return
    except StorageError as error:
        root.notes.add_unreadable(directory, error)
        return
    check_snapshots(fs, root, directory, snapshots)


def _note_twins(node: list[RootFiles]) -> None:
    """Note what two directories of one node must not share: a partition, and an id."""
    seen: dict[TopicPartition, str] = {}
    ids: dict[object, str] = {}
    for root in node:
        for place in root.place.partitions:
            other = seen.setdefault(place.topic_partition, place.path) if place.is_live else place.path
            if other != place.path and not other.startswith(f"{root.place.path}/"):
                message = f"{other} is the same partition"
                root.notes.add("ROOT-DUPLICATE", place.path, message, partition=place.topic_partition)
        directory_id = None if root.meta is None else root.meta.directory_id
        if directory_id is None:
            continue
        other = ids.setdefault(directory_id, root.place.path)
        if other != root.place.path:
            root.notes.add(
                "ROOT-ID", root.place.path, f"directory.id {uuid_text(directory_id)} is that of {other}, too"
            )


def _note(node: list[RootFiles], verdict: Verdict) -> None:
    if verdict.starts is False and not _is_reported(node):
        path = verdict.reason_path or node[0].place.path
        _owner(node, path).notes.add("NODE-START", path, verdict.reason or "")
    for root, why in verdict.offline_roots.items():
        _owner(node, root).notes.add("NODE-OFFLINE", root, f"Kafka would take the directory offline: {why}")
    for path, why in verdict.strays.items():
        _owner(node, path).notes.add("NODE-STRAY", path, why)
    notes = node[0].notes
    for partition in verdict.missing:
        notes.add("NODE-MISSING", node[0].place.path, f"{partition} has no directory", partition=partition)
    for partition, why in _unserved(verdict):
        notes.add("NODE-OFFLINE", node[0].place.path, f"{partition}: {why}", partition=partition)


def _is_reported(node: list[RootFiles]) -> bool:
    """Whether a finding is the reason already: without a metadata log nothing else is checked."""
    has_metadata = any(place.name == CLUSTER_METADATA_DIRECTORY for root in node for place in root.place.partitions)
    errors = {one.code for root in node for one in root.notes.findings if one.severity is Severity.ERROR}
    return not has_metadata and bool(errors & _END_EVERY_START)


def _unserved(verdict: Verdict) -> Iterator[tuple[TopicPartition, str]]:
    yield from verdict.offline.items()
    yield from verdict.uncertain.items()


def _owner(node: list[RootFiles], path: str) -> RootFiles:
    """The directory of a node that a path is in."""
    return next((root for root in node if f"{path}/".startswith(f"{root.place.path}/")), node[0])
