"""A file that has its name once it is complete."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tidelog.errors import InvalidRequestError, StorageError

__all__ = ["ensure_free", "written_beside"]


@contextmanager
def written_beside(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside its place, synced, and then gets its name; if that fails it goes.

    A file that is there already is replaced with `force` only. A link is followed, and what is no file at all, such as
    a pipe or a device, is written into.
    """
    place = os.path.realpath(path)
    ensure_free(place, force=force)
    try:
        if os.path.exists(place) and not os.path.isfile(place):
            with open(place, "wb") as sink:
                yield sink
            return
        if not os.path.isdir(os.path.dirname(place)):
            raise InvalidRequestError(f"{os.path.dirname(place)} is no directory: make it first")
        with _beside(place) as sink:
            yield sink
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"{where}: the disk is full; free space, or write to another one") from error
        raise StorageError(f"{where}: {error.strerror or error}") from error


@contextmanager
def _beside(place: str) -> Iterator[BinaryIO]:
    beside = f"{place}.{os.getpid()}.part"
    with open(beside, "xb") as sink:
        try:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        except BaseException:
            os.unlink(beside)
            raise
    os.replace(beside, place)
    directory = os.open(os.path.dirname(place), os.O_RDONLY)
    try:
        os.fsync(directory)  # the name, too, is on the disk
    finally:
        os.close(directory)


def ensure_free(path: str, *, force: bool = False) -> None:
    """Raise InvalidRequestError if there is something in the place of a file that must not be replaced."""
    if os.path.isdir(path):
        raise InvalidRequestError(f"{path} is a directory")
    if os.path.isfile(path) and not force:
        raise InvalidRequestError(f"{path} is there already: --force replaces it")
