"""Paths that are addresses of another file system, such as s3://bucket/kafka-logs; and commands that need a disk."""

from collections.abc import Sequence

from tidelog.errors import InvalidRequestError

__all__ = ["ensure_no_address", "is_address", "local_path"]


def is_address(path: str) -> bool:
    """Whether a path is one of another file system, such as s3://bucket/kafka-logs."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str) -> str:
    """The path that a file address means; every other path is itself."""
    if not path.startswith("file://"):
        return path
    from tidelog.view.remote_files import files_at

    return files_at(path, None, None)[1]


def ensure_no_address(paths: Sequence[str], deed: str) -> None:
    """Raise if a command that writes was given an address."""
    for path in filter(is_address, paths):
        raise InvalidRequestError(
            f"{path}: {deed} needs a directory on a disk; copy the backup there, and copy it back afterwards"
        )
