"""What lies below a path: roots, partition directories, and trees that hold them.

What a repair has put into a quarantine looks like a root, and is none: it stays as it was put there, and nobody looks
for logs in it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import InvalidRequestError, InvalidTopicError, StorageError
from tidelog.fsck.rehearsal import is_local
from tidelog.log.files import ReadFileSystem, ensure_named, join, parent_of
from tidelog.log.local_files import storage_error
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_INDEX_CACHE,
    UNFINISHED_WRITE,
    TopicPartition,
    is_delete_directory,
    is_future_directory,
    is_stray_directory,
    parse_directory_name,
)

__all__ = [
    "MANIFEST",
    "PartitionPlace",
    "RootPlace",
    "ensure_no_link",
    "find_log_dirs",
    "find_places",
    "plain_path",
    "real_path",
]

_ROOT_FILES = (
    META_PROPERTIES, CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT,
)  # fmt: skip
_PLACES_BY_DOTS = (".", "..")
MANIFEST = "manifest.jsonl"  # in every directory of a quarantine
_OF_ONE_REPAIR = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


class PartitionPlace(NamedTuple):
    """A partition directory."""

    path: str
    topic_partition: TopicPartition
    is_live: bool  # not on its way out or in

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class RootPlace(NamedTuple):
    """A directory of partition directories."""

    path: str
    partitions: tuple[PartitionPlace, ...]
    has_files: bool  # the files that a broker keeps there; a copy of some partitions has none
    is_wanted: bool = True  # to be looked at itself, and not only for what it says of its partitions
    is_lost: bool = False  # a log directory by name: nothing is there, or nothing of a broker


class _NoLogsError(InvalidRequestError):
    """A path at or below which there are no logs."""


def plain_path(path: str) -> str:
    """A path as places have it: without a slash at its end, or dots there."""
    return os.path.abspath(path) if path.rpartition("/")[2] in _PLACES_BY_DOTS else path.rstrip("/") or "/"


def real_path(fs: ReadFileSystem, path: str) -> str:
    """The one path of a directory that may be named in many ways."""
    return os.path.realpath(path) if is_local(fs) else path.rstrip("/") or "/"


def ensure_no_link(fs: ReadFileSystem, path: str) -> None:
    """Raise if a partition directory is a link into another root, whose lock nobody here holds."""
    real = real_path(fs, path)
    if parent_of(real) != real_path(fs, parent_of(path)):
        raise InvalidRequestError(f"it is a link to {real}: name that directory itself")


def find_places(fs: ReadFileSystem, paths: Sequence[str]) -> list[RootPlace]:
    """The roots at or below some paths, each once. A partition directory by itself is the only partition of its parent.

    However often, and under however many names, a root or a partition is given: it is looked at once.
    """
    found: dict[str, RootPlace] = {}
    for path in map(plain_path, map(ensure_named, paths)):
        stat = fs.stat(path)
        if stat is None or not stat.is_directory:
            raise _NoLogsError(f"{path} is no directory: name a log directory, a partition directory, or a tree")
        _ensure_no_quarantine(fs, path)
        places = list(_below(fs, path))
        if not places:
            raise _NoLogsError(f"{path} holds no log directory: one has files like {META_PROPERTIES} or orders-0/")
        for place in places:
            name = real_path(fs, place.path)
            found[name] = _together(found.get(name), place)
    return list(found.values())


def find_log_dirs(fs: ReadFileSystem, paths: Sequence[str], *, are_log_dirs: bool = False) -> list[RootPlace]:
    """Find the roots as `find_places` does, and those that are lost: a disk may not be mounted, or be empty.

    A path without logs is one of these if it is named beside the log directories of a node, or if a node's properties
    name it (`are_log_dirs`). Beside logs that were never formatted for a broker, an empty directory of the properties
    is a new disk, and left out.
    """
    try:
        return find_places(fs, paths)
    except _NoLogsError:
        found, lost = _apart(fs, paths)
        roots = find_places(fs, found)
        are_named = all(place.is_wanted and place.path in found for place in roots)
        if roots and are_named and any(fs.stat(join(place.path, META_PROPERTIES)) is not None for place in roots):
            return [*roots, *lost]
        if not are_log_dirs:
            raise
        if not roots:
            return lost
        if any(not _is_directory(fs, place.path) or fs.list(place.path) for place in lost):
            raise
        return roots


def _apart(fs: ReadFileSystem, paths: Sequence[str]) -> tuple[list[str], list[RootPlace]]:
    """The paths at or below which there are logs, and the others."""
    found, lost = [], []
    for path in paths:
        try:
            find_places(fs, [path])
            found.append(plain_path(path))
        except _NoLogsError:
            lost.append(RootPlace(plain_path(path), (), has_files=False, is_lost=True))
    return found, lost


def _together(one: RootPlace | None, other: RootPlace) -> RootPlace:
    """A root that was named twice: the whole of it if one of the names was its own."""
    if one is None or (other.is_wanted and not one.is_wanted):
        return other
    if one.is_wanted:
        return one
    known = {place.name for place in one.partitions}
    more = [place for place in other.partitions if place.name not in known]
    return one._replace(
        partitions=(*one.partitions, *(place._replace(path=join(one.path, place.name)) for place in more))
    )


def _below(fs: ReadFileSystem, top: str) -> Iterator[RootPlace]:
    """The roots in a tree, in the order of names. A directory that several links lead to is visited once."""
    pending, seen = [top], set[object]()
    while pending:
        path = pending.pop()
        identity = _identity(fs, path)
        if identity not in seen:
            seen.add(identity)
            place, below = _at(fs, path)
            if place is not None:
                yield place
            pending += reversed(below)


def _identity(fs: ReadFileSystem, path: str) -> object:
    """What a directory is known by, under whatever path."""
    if not is_local(fs):
        return path
    try:
        found = os.stat(path)
    except OSError as error:
        raise storage_error(path, error) from error
    return found.st_dev, found.st_ino


def _at(fs: ReadFileSystem, path: str) -> tuple[RootPlace | None, list[str]]:
    """The root at a path, and the directories in which there may be others."""
    names = fs.list(path)
    if _is_quarantine(fs, path):
        return None, []
    has_files = any(name in names for name in _ROOT_FILES)
    place = _partition(path)
    if place is not None and not has_files and any(name.endswith(LOG_SUFFIX) for name in names):
        path = real_path(fs, path)  # its root is where it lies, whatever link leads there: that one has the lock
        root, place = parent_of(path), _partition(path)
        if place is None:
            return None, []
        return RootPlace(root, (place,), _has_root_files(fs, root), is_wanted=False), []
    directories = [name for name in names if _is_directory(fs, join(path, name))]
    partitions = [place for name in directories if (place := _partition(join(path, name))) is not None]
    if has_files or UNFINISHED_WRITE in directories or any(_is_partition(fs, place.path) for place in partitions):
        if has_files:
            return RootPlace(path, tuple(partitions), has_files), []
        # Partitions that were copied to where roots are: the others are looked at, too.
        ours = {place.path for place in partitions}
        below = [join(path, name) for name in directories if name not in (REMOTE_INDEX_CACHE, UNFINISHED_WRITE)]
        return RootPlace(path, tuple(partitions), has_files), [one for one in below if one not in ours]
    return None, [join(path, name) for name in directories if name != REMOTE_INDEX_CACHE]


def _ensure_no_quarantine(fs: ReadFileSystem, path: str) -> None:
    """Raise if a path lies in what a repair has kept."""
    above = real_path(fs, path)
    while above != parent_of(above):
        if _is_quarantine(fs, above):
            raise InvalidRequestError(
                f"{path} lies in the quarantine {above}, which stays as it is: copy it elsewhere to look for logs in it"
            )
        above = parent_of(above)


def _is_quarantine(fs: ReadFileSystem, path: str) -> bool:
    """Whether a directory is what one repair has kept."""
    name = path.rpartition("/")[2]
    return _OF_ONE_REPAIR.fullmatch(name) is not None and fs.stat(join(path, MANIFEST)) is not None


def _partition(path: str) -> PartitionPlace | None:
    name = path.rpartition("/")[2]
    try:
        partition = parse_directory_name(name)
    except InvalidTopicError:
        return None
    is_marked = is_delete_directory(name) or is_stray_directory(name) or is_future_directory(name)
    return PartitionPlace(path, partition, not is_marked)


def _has_root_files(fs: ReadFileSystem, path: str) -> bool:
    return any(fs.stat(join(path, name)) is not None for name in _ROOT_FILES)


def _is_partition(fs: ReadFileSystem, path: str) -> bool:
    return any(name.endswith(LOG_SUFFIX) for name in fs.list(path))


def _is_directory(fs: ReadFileSystem, path: str) -> bool:
    try:
        stat = fs.stat(path)
    except StorageError:
        return False
    return stat is not None and stat.is_directory
