"""Whole directories: every file in them, in the order of names, as if each had been given to the tool."""

import os
from collections.abc import Iterator

from tidelog.dump.java_text import JavaFile
from tidelog.errors import InvalidRequestError

__all__ = ["files_of"]

_KINDS = (".checkpoint", ".index", ".log", ".snapshot", ".timeindex", ".txnindex")


def files_of(file: JavaFile) -> list[JavaFile]:
    """The file itself, or the dumpable files of a directory and of the partition directories in it."""
    if not file.path or not os.path.isdir(file.absolute):
        return [file]
    found = list(_files_in(file))
    if not found:
        raise InvalidRequestError(f"{file.path} holds no file that can be dumped: none ends in {', '.join(_KINDS)}")
    return found


def _files_in(directory: JavaFile) -> Iterator[JavaFile]:
    """The files of a tree. A directory that several links lead to is looked at once."""
    pending, seen = [directory], set[tuple[int, int]]()
    while pending:
        entry = pending.pop()
        if os.path.isdir(entry.absolute):
            found = os.stat(entry.absolute)
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                pending += [_child(entry, name) for name in sorted(os.listdir(entry.absolute), reverse=True)]
        elif entry.absolute.endswith(_KINDS):
            yield entry


def _child(directory: JavaFile, name: str) -> JavaFile:
    return JavaFile(os.path.join(directory.path, name), os.path.join(directory.absolute, name))
