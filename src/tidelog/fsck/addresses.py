"""Directories in object stores: a check reads them where they are; only a repair needs a disk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import InvalidRequestError
from tidelog.log.local_files import LocalReadFiles

if TYPE_CHECKING:
    from tidelog.log.files import ReadFileSystem

__all__ = ["ensure_no_address", "file_system_of", "is_address", "local_path"]


def is_address(path: str) -> bool:
    """Whether a path is one of another file system, such as s3://bucket/kafka-logs."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str) -> str:
    """The path that a file address means; every other path is itself."""
    if not path.startswith("file://"):
        return path
    from tidelog.view.remote_files import files_at

    return files_at(path, None, None)[1]


def file_system_of(paths: Sequence[str]) -> "ReadFileSystem":
    """The file system of some paths, which must be one."""
    schemes = {path.partition("://")[0] if is_address(path) else "" for path in paths}
    if schemes <= {""}:
        return LocalReadFiles()
    if len(schemes) > 1:
        raise InvalidRequestError(
            f"{', '.join(paths)}: directories of several file systems are not checked together; check them one by one"
        )
    from tidelog.view.remote_files import files_at

    return files_at(paths[0], None, None)[0]


def ensure_no_address(paths: Sequence[str], deed: str) -> None:
    """Raise if a command that writes was given an address."""
    for path in filter(is_address, paths):
        raise InvalidRequestError(
            f"{path}: {deed} needs a directory on a disk; copy the backup there, and copy it back afterwards"
        )
