"""A file that has its name once it is complete, on the disk or in an object store."""

import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.log.guarded_paths import parent_directory, resolved_place
from tidelog.log.local_files import DISK_FULL, FULL, storage_error
from tidelog.view.addresses import is_address, local_path

__all__ = ["ensure_free", "ensure_outside", "written_beside"]

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/dev/std(?:out|err)|/(?:dev|proc/self)/fd/([0-9]+)", re.ASCII)


@contextmanager
def written_beside(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside its place, synced, and then gets its name; if that fails it goes.

    A file that is there already is replaced with `force` only. A link is followed, by root only if root has made it,
    and what is no file at all, such as a pipe or a device, is written into. What goes to an address, such as
    s3://bucket/orders.parquet, is written into a temporary file and sent when it is complete.
    """
    if is_address(path):
        with _sent(path, force) as sink:
            yield sink
        return
    own = _own_descriptor(local_path(path))
    place = path if own is not None else _place(path)
    try:
        if own is not None:
            with _Stream(io.FileIO(os.dup(own), "wb")) as sink:
                yield sink
            return
        _ensure_free(place, force)
        if not os.path.isdir(os.path.dirname(place)):
            raise InvalidRequestError(f"{os.path.dirname(place)} is no directory: make it first")
        with _opened(place) as sink:
            yield sink
    except OSError as error:
        where = os.path.join(os.path.dirname(place), error.filename) if error.filename else path
        if error.errno in FULL:
            raise StorageError(f"{where}: {DISK_FULL}; free space, or write to another one") from error
        raise StorageError(f"{where}: {error.strerror or error}") from error


def _place(path: str) -> str:
    """Where a file on the disk is to be written, by the rules for links."""
    try:
        return resolved_place(local_path(path))
    except (OSError, ValueError) as error:
        raise storage_error(path, error) from error


def _own_descriptor(path: str) -> int | None:
    """The open pipe or device of this process that a path means; the system has no path for a pipe without a name."""
    found = _DESCRIPTOR.fullmatch(path)
    if found is None:
        return None
    number = _STREAMS.get(path) or int(found[1])
    try:
        mode = os.fstat(number).st_mode
    except (OSError, OverflowError):
        return None
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else number


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


class _Stream(io.BufferedWriter):
    """A pipe or a device. The system does not say how much was written to it."""

    _written = 0

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._written += written
        return written

    def tell(self) -> int:
        return self._written


@contextmanager
def _opened(place: str) -> Iterator[BinaryIO]:
    """What is no file is opened as it is, and a file is made beside it, in a directory that stays open."""
    with ExitStack() as stack:
        try:
            name, directory = stack.enter_context(parent_directory(place))
        except ValueError as error:  # a link has come in between
            raise storage_error(place, error) from error
        try:
            is_file = stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            is_file = True
        if not is_file:
            with _Stream(io.FileIO(os.open(name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=directory), "wb")) as sink:
                yield sink
            return
        with _beside(name, directory) as sink:
            yield sink


@contextmanager
def _beside(name: str, directory: int | None) -> Iterator[BinaryIO]:
    beside = f"{name}.{os.getpid()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(beside, flags, 0o666, dir_fd=directory), "wb") as sink:
        try:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        except BaseException:
            os.unlink(beside, dir_fd=directory)
            raise
    os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    above = os.open("." if directory is not None else os.path.dirname(name), os.O_RDONLY, dir_fd=directory)
    try:
        os.fsync(above)  # the name, too, is on the disk
    finally:
        os.close(above)


def ensure_free(path: str, *, force: bool = False) -> None:
    """Raise InvalidRequestError if there is something in the place of a file that must not be replaced."""
    if is_address(path):
        from tidelog.view.remote_files import files_at

        files, place = files_at(path, None, None)
        found = files.stat(place)
        if found is not None and not found.is_directory and not force:
            raise InvalidRequestError(f"{path} is there already: --force replaces it")
        return
    if _own_descriptor(local_path(path)) is None:
        _ensure_free(_place(path), force)


def _ensure_free(place: str, force: bool) -> None:
    if os.path.isdir(place):
        raise InvalidRequestError(f"{place} is a directory")
    if os.path.isfile(place) and not force:
        raise InvalidRequestError(f"{place} is there already: --force replaces it")


def ensure_outside(path: str, directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if a file that would be replaced lies in a log directory that is read."""
    if is_address(path):
        return
    place = os.path.realpath(local_path(path))
    for directory in directories:
        if not is_address(directory) and os.path.lexists(place) and place.startswith(f"{os.path.realpath(directory)}/"):
            raise InvalidRequestError(f"{path} is a file of {directory}, which is read: name a file elsewhere")
