"""Log directories in object stores and on other machines, through pyarrow's file systems.

A request to an object store takes as long as reading a megabyte from it, so requests are saved: a directory is listed
once and answers every question about its files until `fresh` forgets it; a file is opened when it is first read; small
ones are remembered; and a reader that goes on where it has been is given more each time, up to 8 MiB at once.

Files are not held open as on a disk: an object that is deleted or overwritten while it is read fails, or shows its new
bytes, whose checksums tell. Copies of logs do not change.
"""

import errno
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO
from urllib.parse import unquote

from pyarrow import ArrowException
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, GcsFileSystem, HadoopFileSystem, S3FileSystem

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.log.files import FileStat, ReadFile, parent_of
from tidelog.log.local_files import storage_error
from tidelog.view.addresses import ensure_bucket
from tidelog.view.files import ReadOnlyFiles, ViewFiles

__all__ = ["RemoteFiles", "files_at", "read_address", "write_address"]

_FIRST_READ = 64 << 10
_LARGEST_READ = 8 << 20
_MOST_SMALL_FILES = 1024  # at most 64 KiB each

_REFUSALS = (OSError, ArrowException, ValueError)  # what pyarrow raises for what the store said
_FIRST_ANSWER_S = 2
_MOST_WORDS = 300  # of what a store says: hdfs lists every place where it has looked for a JVM
_KNOWN_SCHEMES = ("file", "gs", "gcs", "hdfs", "s3", "s3a")


def files_at(typed: str, storage_options: Mapping[str, Any] | None, filesystem: Any) -> tuple[ViewFiles, str]:
    """The files that an address means, and the path in them. A file system that is given is used as it is."""
    scheme, _, rest = typed.partition("://")
    if filesystem is not None:
        if not isinstance(filesystem, FileSystem):
            raise InvalidRequestError(f"a file system is one of pyarrow.fs, not {type(filesystem).__name__}")
        if storage_options:
            raise InvalidRequestError("storage options are for a file system that is made here: pass one or the other")
        return RemoteFiles(filesystem, f"{scheme}://" if rest else ""), typed
    if scheme == "file":
        return ReadOnlyFiles(), _local_path(typed, rest)
    return RemoteFiles(_connected(scheme, typed, dict(storage_options or {})), f"{scheme}://"), typed


def _local_path(address: str, rest: str) -> str:
    """The path of a file address, in which odd characters are written as %20. A host is none, or this one."""
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidRequestError(f"{address}: an address of a local path has three slashes, as in file:///data/kafka")
    return unquote(f"/{path}")


def _connected(scheme: str, address: str, options: dict[str, Any]) -> FileSystem:
    ensure_bucket(address)
    try:
        if scheme in ("s3", "s3a"):
            return S3FileSystem(**options) if options else FileSystem.from_uri(address.replace("s3a:", "s3:", 1))[0]
        if scheme in ("gs", "gcs"):
            if not options:
                _ensure_store_answers(address)
            return GcsFileSystem(**options) if options else FileSystem.from_uri(address)[0]
        if scheme == "hdfs":
            return HadoopFileSystem(**options) if options else FileSystem.from_uri(address)[0]
    except TypeError as error:
        raise InvalidRequestError(f"{address}: {error}: storage options are those of pyarrow.fs") from error
    except _REFUSALS as error:
        raise _error_at(address, error) from error
    raise InvalidRequestError(f"{address}: {scheme}:// is not known; known are {', '.join(_KNOWN_SCHEMES)}")


def read_address(address: str, target: BinaryIO) -> None:
    """Copy what lies at an address into an open file."""
    store, path = _store_of(address)
    try:
        with store.open_input_stream(path) as source:
            while data := source.read(_LARGEST_READ):
                target.write(data)
    except _REFUSALS as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # of the target: its owner knows what it is for
        raise _error_at(address, error) from error


def write_address(source: BinaryIO, address: str) -> None:
    """Copy an open file, from its beginning, to an address. An object appears once all of it was sent.

    What is sent in part counts as an object for some stores once the stream is let go: it is deleted then.
    """
    store, path = _store_of(address)
    source.seek(0)
    try:
        with store.open_output_stream(path) as target:
            while data := source.read(_LARGEST_READ):
                target.write(data)
    except BaseException as error:
        with suppress(*_REFUSALS):
            store.delete_file(path)
        if isinstance(error, _REFUSALS):
            raise _error_at(address, error) from error
        raise


def _store_of(address: str) -> tuple[FileSystem, str]:
    scheme, _, path = address.partition("://")
    return _connected(scheme, address, {}), path


def _ensure_store_answers(address: str) -> None:
    """Ask a store of Google's once, briefly: its client would try again for a quarter of an hour."""
    if "?" not in address:
        store, path = FileSystem.from_uri(f"{address}?retry_limit_seconds={_FIRST_ANSWER_S}")
        store.get_file_info([path])


class RemoteFiles:
    """Files of a pyarrow file system. Their paths begin with `prefix`, which the file system is not told."""

    is_remote = True

    def __init__(self, filesystem: FileSystem, prefix: str = "", requests: Counter[str] | None = None) -> None:
        self.requests: Counter[str] = Counter() if requests is None else requests  # made so far, by kind
        self._filesystem = filesystem
        self._prefix = prefix
        self._listed: dict[str, dict[str, FileStat]] = {}
        self._small: dict[str, bytes] = {}  # whole files, by path: indexes and checkpoints are opened again and again

    def __repr__(self) -> str:
        return f"RemoteFiles({self._filesystem.type_name})"

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        inner = self._inner(directory)
        if inner not in self._listed:
            self.requests["list"] += 1
            try:
                infos = self._filesystem.get_file_info(FileSelector("" if inner == "." else inner))
            except _REFUSALS as error:
                raise _error_at(directory, error) from error
            self._listed[inner] = {info.base_name: _stat_of(info) for info in infos}
        return sorted(self._listed[inner])

    def stat(self, path: str) -> FileStat | None:
        """Size and time of a file, or that it is a directory; None if there is nothing."""
        inner = self._inner(path)
        listing = self._listed.get(parent_of(inner))
        if listing is not None:
            return listing.get(inner.rpartition("/")[2])
        self.requests["stat"] += 1
        try:
            (info,) = self._filesystem.get_file_info([inner])
        except _REFUSALS as error:
            raise _error_at(path, error) from error
        return None if info.type == FileType.NotFound else _stat_of(info)

    def open(self, path: str) -> ReadFile:
        """Open an existing file for reading."""
        found = self.stat(path)
        if found is None:
            raise storage_error(path, FileNotFoundError(2, "No such file")) from FileNotFoundError(path)
        if found.is_directory:
            raise StorageError(f"{path}: Is a directory")
        return _RemoteFile(self._filesystem, path, self._inner(path), found.size, self.requests, self._small)

    def is_still(self, file: ReadFile) -> bool:
        """Objects are not renamed: what was listed is what is read."""
        return True

    def fresh(self) -> "RemoteFiles":
        """The same files, with nothing remembered of them."""
        return RemoteFiles(self._filesystem, self._prefix, self.requests)

    def _inner(self, path: str) -> str:
        """The path as the file system knows it."""
        return path.removeprefix(self._prefix).removeprefix("./").rstrip("/")


class _RemoteFile:
    """A file of which stretches are fetched ahead."""

    descriptor = None

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        inner: str,
        size: int,
        requests: Counter[str],
        small: dict[str, bytes],
    ) -> None:
        self.path = path
        self.size = size  # when it was listed
        self._filesystem = filesystem
        self._inner = inner
        self._requests = requests
        self._file: Any = None
        self._small = small
        self._fetched: tuple[int, bytes] = (0, small.get(path, b""))  # where it begins, and the bytes
        self._ahead = _FIRST_READ

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only where the file ends."""
        if position < 0 or size < 0:
            raise StorageError(f"{self.path}: a read of {size} bytes at {position}")
        size = max(min(size, self.size - position), 0)
        start, data = self._fetched
        if not start <= position <= position + size <= start + len(data):
            start, data = self._fetched = (
                position,
                self._fetch(position, size, is_going_on=start <= position <= start + len(data)),
            )
        return data[position - start : position - start + size]

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position`; how many bytes were there."""
        data = self.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let go of what was fetched."""
        self._fetched = (0, b"")

    def _fetch(self, position: int, size: int, *, is_going_on: bool) -> bytes:
        self._ahead = min(2 * self._ahead, _LARGEST_READ) if is_going_on else _FIRST_READ
        wanted = min(max(size, self._ahead), self.size - position)
        if wanted <= 0:
            return b""
        try:
            if self._file is None:
                self._requests["open"] += 1
                self._file = self._filesystem.open_input_file(self._inner)
            self._requests["read"] += 1
            self._requests["bytes"] += wanted
            data: bytes = self._file.read_at(wanted, position)
        except _REFUSALS as error:
            raise _error_at(self.path, error) from error
        if len(data) == self.size <= _FIRST_READ and len(self._small) < _MOST_SMALL_FILES:
            self._small[self.path] = data
        return data


def _stat_of(info: FileInfo) -> FileStat:
    is_directory = info.type == FileType.Directory
    modified_ns = info.mtime_ns or 0
    return FileStat(0 if is_directory else info.size or 0, modified_ns // 1_000_000, is_directory)


def _error_at(path: str, error: Exception) -> StorageError:
    """What the store said, on one line."""
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{path}: No such file or directory")
    words = " ".join(str(error).split())
    return StorageError(f"{path}: {words if len(words) <= _MOST_WORDS else f'{words[:_MOST_WORDS]}…'}")
