"""A simulated disk that refuses one call, or every call from one on until it is healed.

Every call is counted to which its error can happen: a process without descriptors cannot open, list, lock or resolve a
name; a broken disk can refuse anything; a full one refuses whatever needs space, and may have written a part. A call
can also bring a KeyboardInterrupt instead of an error.
"""

import errno
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from tests.property.crash_disk import WatchedDisk, WatchedFile
from tidelog.log.files import Creation, FileLock, FileStat, ReadFile, WriteFile
from tidelog.log.local_files import storage_error
from tidelog.records.varint import Buffer

_NAMES = ("rename", "remove", "make_directory", "remove_directory", "set_modified")
INTERRUPT = 0  # in the place of an error number
OPERATIONS = {
    errno.EMFILE: frozenset(("open", "list", "lock", "sync_directory", *_NAMES)),
    errno.EIO: frozenset(
        ("open", "list", "lock", "stat", "sync_directory", *_NAMES, "read", "write", "resize", "sync")
    ),
    INTERRUPT: frozenset(("open", "list", "lock", "sync_directory", *_NAMES, "write", "resize", "sync")),
    errno.ENOSPC: frozenset(("open", "rename", "make_directory", "sync_directory", "write", "resize", "sync")),
}


class Refusal(NamedTuple):
    """Which call is refused: the how-manieth of those that can meet the error."""

    error: int
    number: int
    is_lasting: bool = False  # and all calls after it, until the disk is healed

    def __str__(self) -> str:
        name = errno.errorcode.get(self.error, "KeyboardInterrupt")
        return f"call {self.number}{' and all after it' if self.is_lasting else ''}: {name}"


def sample(every: Sequence[Refusal], count: int, rng: Random) -> list[Refusal]:
    """About as many refusals of each error, in any order: calls that need a descriptor are few."""
    by_error = [[one for one in every if one.error == error] for error in OPERATIONS]
    chosen = [one for some in by_error for one in rng.sample(some, min(len(some), -(-count // len(by_error))))]
    return rng.sample(chosen, min(len(chosen), count))


class Refuser:
    """Counts calls and refuses some of them."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.calls = 0
        self.refused: list[str] = []
        self.is_healed = False
        self.is_interrupted = False
        self._is_paused = False
        self._operations = OPERATIONS[refusal.error]

    def call(self, operation: str, path: str) -> None:
        """Count a call, and raise if it is to be refused."""
        if operation not in self._operations or self._is_paused:
            return
        self.calls += 1
        error, number, is_lasting = self.refusal
        if not self.is_healed and (self.calls == number or (is_lasting and self.calls > number)):
            self.refused.append(f"{operation} {path}")
            if error == INTERRUPT:
                self.heal()
                self.is_interrupted = True
                raise KeyboardInterrupt
            cause = OSError(error, os.strerror(error))
            raise storage_error(path, cause) from cause

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let everything pass, uncounted: for what looks at the disk and is no part of the work."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def heal(self) -> None:
        """Refuse nothing any more."""
        self.is_healed = True


class RefusingDisk(WatchedDisk):
    """A disk of which a refuser has the say."""

    refuser: Refuser

    def list(self, directory: str) -> list[str]:
        self.refuser.call("list", directory)
        return super().list(directory)

    def stat(self, path: str) -> FileStat | None:
        self.refuser.call("stat", path)
        return super().stat(path)

    def open(self, path: str) -> ReadFile:
        self.refuser.call("open", path)
        return super().open(path)

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        self.refuser.call("open", path)
        return RefusingFile(self.disk.open_write(path, create=create), self)

    def rename(self, source: str, target: str) -> None:
        self.refuser.call("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> bool:
        self.refuser.call("remove", path)
        return super().remove(path)

    def make_directory(self, path: str) -> None:
        self.refuser.call("make_directory", path)
        super().make_directory(path)

    def remove_directory(self, path: str) -> bool:
        self.refuser.call("remove_directory", path)
        return super().remove_directory(path)

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        self.refuser.call("remove_directory", path)
        return (yield from super().remove_in_steps(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        self.refuser.call("set_modified", path)
        super().set_modified(path, modified_ms)

    def sync_directory(self, path: str) -> None:
        self.refuser.call("sync_directory", path)
        super().sync_directory(path)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        self.refuser.call("lock", path)
        return super().lock(path, shared=shared)


class RefusingFile(WatchedFile):
    """A file of such a disk."""

    __slots__ = ("_refuser",)

    def __init__(self, file: WriteFile, disk: RefusingDisk) -> None:
        super().__init__(file, disk)
        self._refuser = disk.refuser

    def read(self, position: int, size: int) -> bytes:
        self._refuser.call("read", self.path)
        return super().read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        self._refuser.call("read", self.path)
        return super().read_into(position, target)

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            self._refuser.call("write", self.path)
        except (Exception, KeyboardInterrupt):
            if self._refuser.calls % 2:  # a disk that fills up, or breaks, may have taken the first half
                super().write_at(position, bytes(data)[: len(data) // 2])
            raise
        super().write_at(position, data)

    def resize(self, size: int) -> None:
        self._refuser.call("resize", self.path)
        super().resize(size)

    def sync(self) -> None:
        self._refuser.call("sync", self.path)
        super().sync()
