"""Tell local paths from addresses of object stores, such as s3://bucket/kafka-logs.

Commands that read accept both; commands that write to log directories need a local disk.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import InvalidRequestError

if TYPE_CHECKING:
    from tidelog.log.files import ReadFileSystem

__all__ = ["ensure_bucket", "ensure_no_address", "ensure_spelled", "file_system_of", "is_address", "local_path"]

_MISSPELLED = re.compile(
    r"(s3[an]?|gs|gcs|abfss?|az|adl|wasbs?|hdfs|viewfs|dbfs|oss|https?|ftp|file):(?!//)", re.IGNORECASE
)
_STORES = ("s3", "s3a", "gs", "gcs")


def is_address(path: str) -> bool:
    """Whether a path is an address of another file system, such as s3://bucket/kafka-logs."""
    return "://" in path and not path.startswith("file://")


def ensure_spelled(path: str) -> None:
    """Raise if a path is an address with too few slashes: taken as it is, it would be a folder called `s3:`.

    >>> ensure_spelled("s3:/bucket/logs")
    Traceback (most recent call last):
    tidelog.errors.InvalidRequestError: s3:/bucket/logs: an address is written s3://…, and a path on this disk ./s3:…
    """
    found = _MISSPELLED.match(path)
    if found:
        scheme = found[1]
        raise InvalidRequestError(f"{path}: an address is written {scheme}://…, and a path on this disk ./{scheme}:…")


def ensure_bucket(address: str) -> None:
    """Raise if an address of an object store names no bucket.

    >>> ensure_bucket("s3://")
    Traceback (most recent call last):
    tidelog.errors.InvalidRequestError: s3:// names no bucket: an address is written s3://bucket/path
    """
    scheme, _, rest = address.partition("://")
    if scheme in _STORES and (not rest or rest.startswith("/")):
        raise InvalidRequestError(f"{address} names no bucket: an address is written {scheme}://bucket/path")


def local_path(path: str) -> str:
    """The path that a file address means; every other path is itself."""
    if path.startswith("file:/") and not path.startswith("file://"):
        return "/" + path.removeprefix("file:").lstrip("/")  # as Hadoop writes it
    if not path.startswith("file://"):
        ensure_spelled(path)
        return path
    from tidelog.view.remote_files import files_at

    return files_at(path, None, None)[1]


def ensure_no_address(paths: Sequence[str], work: str) -> None:
    """Raise if a command that writes was given an address. `work` is what it does: "a repair"."""
    for path in filter(is_address, paths):
        raise InvalidRequestError(
            f"{path}: {work} needs a directory on a disk; copy the backup there, and copy it back afterwards"
        )


def file_system_of(paths: Sequence[str]) -> "ReadFileSystem":
    """The file system that all of some paths are in."""
    schemes = {path.partition("://")[0] if is_address(path) else "" for path in paths}
    if schemes <= {""}:
        from tidelog.log.local_files import LocalFileSystem

        return LocalFileSystem()  # which, as root, reads through no link of another user
    if len(schemes) > 1:
        raise InvalidRequestError(
            f"{', '.join(paths)}: directories of several file systems are not checked together; check them one by one"
        )
    from tidelog.view.remote_files import files_at

    return files_at(paths[0], None, None)[0]
