"""What a view reads from. There is no way to write, to lock or to create in it.

    list, stat, open     as any `ReadFileSystem`
    is_still             whether a path still names the file that was opened under it: renames happen under a reader
    fresh                the same files, looked at anew, where listings are remembered

On the local disk files are opened with O_RDONLY and nothing else, and links are followed as Kafka follows them.
"""

import os
from typing import Protocol

from tidelog.errors import StorageError
from tidelog.log.files import FileStat, ReadFile, ReadFileSystem
from tidelog.log.local_files import LocalReadFiles, storage_error

__all__ = ["ReadOnlyFiles", "ViewFiles", "is_gone"]


class ViewFiles(ReadFileSystem, Protocol):
    """Files that somebody else may be changing."""

    @property
    def is_remote(self) -> bool:
        """Whether every read is a request that travels."""

    def is_still(self, file: ReadFile) -> bool:
        """Whether the path of an open file still names this very file."""

    def fresh(self) -> "ViewFiles":
        """The same files, with nothing remembered of them."""


class ReadOnlyFiles:
    """The readable half of a file system, the local disk unless another one is given."""

    __slots__ = ("_fs",)

    def __init__(self, fs: ReadFileSystem | None = None) -> None:
        self._fs: ReadFileSystem = LocalReadFiles() if fs is None else fs

    @property
    def is_remote(self) -> bool:
        """They are at hand."""
        return False

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return self._fs.list(directory)

    def stat(self, path: str) -> FileStat | None:
        """Size and time of a file, or that it is a directory; None if there is nothing."""
        return self._fs.stat(path)

    def open(self, path: str) -> ReadFile:
        """Open an existing file for reading."""
        return self._fs.open(path)

    def is_still(self, file: ReadFile) -> bool:
        """Whether the path of an open file still names this very file."""
        if file.descriptor is None:
            found = self._fs.stat(file.path)
            return found is not None and found.size >= file.size
        try:
            return os.path.samestat(os.stat(file.path), os.fstat(file.descriptor))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error(file.path, error) from error

    def fresh(self) -> "ReadOnlyFiles":
        """Itself: nothing is remembered."""
        return self


def is_gone(files: ReadFileSystem, path: str, error: StorageError) -> bool:
    """Whether a file could not be opened because it is not there, or was not at that moment."""
    return isinstance(error.__cause__, FileNotFoundError) or files.stat(path) is None
