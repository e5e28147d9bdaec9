"""Whole directories: every file in them, in the order of names, as if each had been given to the tool."""

import os
from collections.abc import Iterator

from tidelog.dump.java_text import JavaFile

__all__ = ["files_of"]

_KINDS = (".checkpoint", ".index", ".log", ".snapshot", ".timeindex", ".txnindex")


def files_of(file: JavaFile) -> Iterator[JavaFile]:
    """The file itself, or the dumpable files of a directory and of the partition directories in it."""
    if not file.path or not os.path.isdir(file.absolute):
        yield file
        return
    for name in sorted(os.listdir(file.absolute)):
        entry = JavaFile(os.path.join(file.path, name), os.path.join(file.absolute, name))
        if os.path.isdir(entry.absolute):
            yield from files_of(entry)
        elif name.endswith(_KINDS):
            yield entry
