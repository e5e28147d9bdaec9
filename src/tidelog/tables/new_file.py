"""A file that has its name once it is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tidelog.errors import InvalidRequestError, StorageError

__all__ = ["ensure_free", "written_beside"]


@contextmanager
def written_beside(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside its place, synced, and then gets its name; if that fails it goes.

    A file that is there already is replaced with `force` only.
    """
    ensure_free(path, force=force)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "xb") as sink:
            try:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            except BaseException:
                os.unlink(beside)
                raise
        os.replace(beside, path)
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error


def ensure_free(path: str, *, force: bool = False) -> None:
    """Raise InvalidRequestError if there is something in the place of a file that must not be replaced."""
    if os.path.isdir(path):
        raise InvalidRequestError(f"{path} is a directory")
    if os.path.exists(path) and not force:
        raise InvalidRequestError(f"{path} is there already: --force replaces it")
