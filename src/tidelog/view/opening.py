"""`tidelog.open`: from what a user types to roots.

A path may be a directory of `log.dirs` (a root), a partition directory in one, a pattern of either, or a list of all
these; or an address that pyarrow knows (s3://, gs://, hdfs://, file://). What a directory is, its content says:
segments make a partition, partitions make a root.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidRequestError, InvalidTopicError
from tidelog.log.files import parent_of
from tidelog.log.names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    STRAY_DIRECTORY,
    SWAP,
    parse_directory_name,
)
from tidelog.view.files import ReadOnlyFiles, ViewFiles
from tidelog.view.log_dirs import LogDirView
from tidelog.view.root import FILES_OF_A_ROOT, RootView

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["open"]

_PATTERN = frozenset("*?[")
_MARKS = (DELETE_DIRECTORY, STRAY_DIRECTORY, FUTURE_DIRECTORY)
_FILES_OF_A_PARTITION = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA})


def open(
    path: "str | PathLike[str] | Sequence[str | PathLike[str]]",
    *,
    replica: "str | PathLike[str] | None" = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> LogDirView:
    """A read-only view of log directories, local or remote. Nothing in them is changed or locked.

    `replica` is the root whose copies are read where several roots hold copies of a partition. `storage_options` go to
    the file system that pyarrow makes of an address; `filesystem` is one that is made already.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path) if isinstance(path, Iterable) else [path]
    for one in (*paths, *(() if replica is None else (replica,))):
        if not isinstance(one, str | os.PathLike):
            raise InvalidRequestError(f"{one!r} is no path of a directory: pass a text or a Path")
    if not paths:
        raise InvalidRequestError("no directory is named: pass the path of a log directory or of a partition in it")
    places = [place for one in paths for place in _places_of(os.fspath(one), storage_options, filesystem)]
    roots = _roots_of(places)
    return LogDirView(roots, None if replica is None else _replica_among(roots, os.fspath(replica)))


class _Place:
    """A directory on some file system."""

    def __init__(self, files: ViewFiles, path: str) -> None:
        self.files = files
        self.path = path


def _places_of(typed: str, storage_options: Mapping[str, Any] | None, filesystem: Any) -> Iterator[_Place]:
    files: ViewFiles
    if filesystem is not None or "://" in typed:
        from tidelog.view.remote_files import files_at

        files, path = files_at(typed, storage_options, filesystem)
    else:
        if storage_options:
            raise InvalidRequestError(f"storage options are for addresses such as s3://bucket/path, not for {typed!r}")
        files, path = ReadOnlyFiles(), os.path.abspath(os.path.expanduser(typed))
    path = path.rstrip("/") or "/"
    found = files.stat(path)
    if found is None and _PATTERN & set(path):
        matches = [match for match in _matches(files, path) if _is_meant(match, path) and _is_directory(files, match)]
        if not matches:
            raise InvalidRequestError(f"no directory matches {typed!r}")
        yield from (_Place(files, match) for match in matches)
        return
    if found is None:
        raise InvalidRequestError(f"{typed} does not exist")
    if not found.is_directory:
        raise InvalidRequestError(f"{typed} is a file: name the directory {parent_of(path)} that it lies in")
    yield _Place(files, path)


def _matches(files: ViewFiles, pattern: str) -> list[str]:
    """The paths that match a pattern, in order. `*`, `?` and `[...]` do not cross a slash."""
    start, *parts = pattern.split("/")
    found = [start]
    for part in parts:
        if _PATTERN & set(part):
            found = [
                f"{directory}/{name}"
                for directory in found
                if _is_directory(files, directory or "/")
                for name in files.list(directory or "/")
                if fnmatchcase(name, part)
            ]
        else:
            found = [f"{directory}/{part}" for directory in found]
    return found


def _is_meant(match: str, pattern: str) -> bool:
    """Whether a pattern asks for a directory: for one that was deleted or set aside only if it says so itself."""
    mark = next((mark for mark in _MARKS if match.endswith(mark)), "")
    return pattern.endswith(mark)


def _is_directory(files: ViewFiles, path: str) -> bool:
    found = files.stat(path)
    return found is not None and found.is_directory


# -- what a directory is -------------------------------------------------------------------------------------------


def _roots_of(places: Sequence[_Place]) -> list[RootView]:
    """The roots, each once; partition directories of one root are put together."""
    whole: dict[str, ViewFiles] = {}
    parts: dict[str, tuple[ViewFiles, set[str]]] = {}
    for place in places:
        names = place.files.list(place.path)
        if _is_partition(names):
            directory, name = parent_of(place.path), place.path.rpartition("/")[2]
            _ensure_partition_name(place.path, name)
            parts.setdefault(directory, (place.files, set()))[1].add(name)
        else:
            _ensure_root(place, names)
            whole.setdefault(place.path, place.files)
    roots = [RootView(files, path) for path, files in whole.items()]
    return roots + [
        RootView(files, path, frozenset(names)) for path, (files, names) in parts.items() if path not in whole
    ]


def _is_partition(names: Sequence[str]) -> bool:
    return any(
        name in _FILES_OF_A_PARTITION or (name.removesuffix(SWAP).endswith(SEGMENT_SUFFIXES) and name[0].isdigit())
        for name in names
    )


def _ensure_partition_name(path: str, name: str) -> None:
    try:
        parse_directory_name(name)
    except InvalidTopicError as error:
        raise InvalidRequestError(
            f"{path} holds segments, but is not named after a topic and a partition, as in orders-0: rename the copy"
        ) from error


def _ensure_root(place: _Place, names: Sequence[str]) -> None:
    if FILES_OF_A_ROOT & set(names):
        return
    if not names:
        raise InvalidRequestError(f"{place.path} is empty: name a log directory of a broker, or a partition in it")
    if not RootView(place.files, place.path).named:
        raise InvalidRequestError(
            f"{place.path} holds neither partitions nor segments: name a log directory of a broker (its log.dirs), "
            f"or a directory in it that holds {LOG_SUFFIX} files"
        )


def _replica_among(roots: Sequence[RootView], replica: str) -> str:
    typed = replica.rstrip("/") or "/"
    local = os.path.abspath(os.path.expanduser(typed))
    address = typed.partition("://")[2]
    for root in roots:
        if root.path in (typed, local, address):
            return root.path
    raise InvalidRequestError(f"replica {replica!r} is none of the roots: {', '.join(root.path for root in roots)}")
