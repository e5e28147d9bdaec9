"""A file that has its name once it is complete, on the disk or in an object store."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.view.addresses import is_address, local_path

__all__ = ["ensure_free", "ensure_outside", "written_beside"]


@contextmanager
def written_beside(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside its place, synced, and then gets its name; if that fails it goes.

    A file that is there already is replaced with `force` only. A link is followed, and what is no file at all, such as
    a pipe or a device, is written into. What goes to an address, such as s3://bucket/orders.parquet, is written into a
    temporary file and sent when it is complete.
    """
    if is_address(path):
        with _sent(path, force) as sink:
            yield sink
        return
    place = os.path.realpath(local_path(path))
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
def _sent(address: str, force: bool) -> Iterator[BinaryIO]:
    from tidelog.view.remote_files import write_address

    ensure_free(address, force=force)
    with TemporaryFile(prefix="tidelog-export-") as kept:
        try:
            yield kept
            kept.flush()
        except OSError as error:
            where = f"{gettempdir()}, where {address} is prepared"
            raise StorageError(f"{where}: {error.strerror or error}") from error
        write_address(kept, address)


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
    if is_address(path):
        from tidelog.view.remote_files import files_at

        files, place = files_at(path, None, None)
        found = files.stat(place)
        if found is not None and not found.is_directory and not force:
            raise InvalidRequestError(f"{path} is there already: --force replaces it")
        return
    path = local_path(path)
    if os.path.isdir(path):
        raise InvalidRequestError(f"{path} is a directory")
    if os.path.isfile(path) and not force:
        raise InvalidRequestError(f"{path} is there already: --force replaces it")


def ensure_outside(path: str, directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if a file that would be replaced lies in a log directory that is read."""
    if is_address(path):
        return
    place = os.path.realpath(local_path(path))
    for directory in directories:
        if not is_address(directory) and os.path.lexists(place) and place.startswith(f"{os.path.realpath(directory)}/"):
            raise InvalidRequestError(f"{path} is a file of {directory}, which is read: name a file elsewhere")
