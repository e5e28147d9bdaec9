"""Files that the tool opens, and what Java says when it cannot."""

import errno
import os

from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_text import JavaFile
from tidelog.errors import StorageError
from tidelog.log.files import ReadFile
from tidelog.log.local_files import LocalReadFiles
from tidelog.records.java import MAX_INT32

__all__ = ["open_file", "read_file"]

_SYSTEM = LocalReadFiles()


def open_file(file: JavaFile, *, by_channel: bool = True) -> ReadFile:
    """Open a file for reading, or raise the exception of Java's channels or of its older streams."""
    try:
        return _SYSTEM.open(file.absolute)
    except StorageError as error:
        raise _refusal(file, error, by_channel=by_channel) from None


def read_file(file: JavaFile, *, by_channel: bool = True) -> bytes:
    """All bytes of a file that is small by its nature. Java has no array, and maps no file, of 2 GiB or more."""
    source = open_file(file, by_channel=by_channel)
    try:
        size = source.size
        if size > MAX_INT32:
            raise _too_large(by_channel=by_channel)
        return source.read(0, size)
    except StorageError as error:
        raise _io_error(error) from None
    finally:
        source.close()


def _refusal(file: JavaFile, error: StorageError, *, by_channel: bool) -> JavaError:
    number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
    if not by_channel:
        reason = os.strerror(number) if number is not None else str(error)
        return JavaError("java.io.FileNotFoundException", f"{file.path} ({reason})")
    if number in (errno.ENOENT, errno.ENOTDIR):
        name = "NoSuchFileException" if number == errno.ENOENT else "FileSystemException"
        return JavaError(
            f"java.nio.file.{name}", file.path if number == errno.ENOENT else f"{file.path}: Not a directory"
        )
    if number == errno.EACCES:
        return JavaError("java.nio.file.AccessDeniedException", file.path)
    reason = os.strerror(number) if number is not None else str(error)
    return JavaError("java.nio.file.FileSystemException", f"{file.path}: {reason}")


def _too_large(*, by_channel: bool) -> JavaError:
    if by_channel:
        return JavaError("java.lang.OutOfMemoryError", "Required array size too large")
    return JavaError("java.lang.IllegalArgumentException", "Size exceeds Integer.MAX_VALUE")


def _io_error(error: StorageError) -> JavaError:
    number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
    return JavaError("java.io.IOException", os.strerror(number) if number is not None else str(error))
