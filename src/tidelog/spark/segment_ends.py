"""Whether the active segments of many partitions have changed, asked for several times a second.

A file that is kept open tells its size for a fifth of what it takes to find it by its path. How many files a process
may have open is limited: segments beyond a share of that are found by their paths each time.

The size tells what was appended or cut off. It does not tell of a segment that was cut and has grown by as much since,
and a network's file system may be late with it: a thorough look, now and then, asks for the time of the last write too.
"""

import os
import resource
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.names import TopicPartition

__all__ = ["Path", "SegmentEnds", "State", "state_of"]

State = tuple[int, ...]


class Path(NamedTuple):
    """A path as the system finds it fastest: from an open directory."""

    directory: int
    name: str


class SegmentEnds:
    """The active segments of some partitions. At most `most_open` are kept open; None is what the system leaves."""

    def __init__(self, most_open: int | None = None) -> None:
        self._most_open = _descriptors_to_spare() if most_open is None else most_open
        self._sizes: dict[int, int] = {}  # by descriptor, as are the next two
        self._times: dict[int, int] = {}
        self._owners: dict[int, TopicPartition] = {}
        self._open: dict[TopicPartition, list[int]] = {}
        self._by_path: dict[TopicPartition, tuple[Sequence[Path], State]] = {}

    def follow(self, partition: TopicPartition, segments: Sequence[Path]) -> None:
        """Let these be the segments of a partition, as they are now."""
        self.drop(partition)
        if len(self._sizes) + len(segments) > self._most_open or not self._keep_open(partition, segments):
            self._by_path[partition] = segments, state_of(segments)

    def _keep_open(self, partition: TopicPartition, segments: Sequence[Path]) -> bool:
        self._open[partition] = []
        try:
            for directory, name in segments:
                descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
                self._sizes[descriptor] = -1  # it is closed with the others, whatever comes
                self._owners[descriptor] = partition
                self._open[partition].append(descriptor)
                about = os.fstat(descriptor)
                self._sizes[descriptor], self._times[descriptor] = about.st_size, about.st_mtime_ns
        except OSError:  # it is gone by now, or others have too much open
            self.drop(partition)
            return False
        return True

    def drop(self, partition: TopicPartition) -> None:
        """Follow a partition no longer."""
        self._by_path.pop(partition, None)
        for descriptor in self._open.pop(partition, ()):
            del self._sizes[descriptor], self._owners[descriptor]
            self._times.pop(descriptor, None)
            os.close(descriptor)

    def changed(self, *, thoroughly: bool) -> set[TopicPartition]:
        """The partitions whose segments are not as they were when `follow` was called."""
        found = {partition for partition, (paths, state) in self._by_path.items() if state_of(paths) != state}
        owners = self._owners
        try:
            found |= {owners[file] for file, size in self._sizes.items() if os.lseek(file, 0, os.SEEK_END) != size}
            if thoroughly:
                found |= {owners[file] for file, time in self._times.items() if os.fstat(file).st_mtime_ns != time}
        except OSError:  # a network's file system has lost an open file: which one is not told
            found |= self._open.keys()
        return found

    def close(self) -> None:
        """Follow nothing any longer."""
        for partition in [*self._open, *self._by_path]:
            self.drop(partition)


def state_of(paths: Iterable[Path]) -> State:
    """What changes when something is written to some paths."""
    found: list[int] = []
    for directory, name in paths:
        try:
            stat = os.stat(name, dir_fd=directory)
        except FileNotFoundError:
            found.append(-1)
        except OSError as error:
            raise StorageError(f"{name}: {error.strerror}") from error
        else:
            found += (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return tuple(found)


def _descriptors_to_spare() -> int:
    """How many files can be kept open: half of what the process may have, without what it has already."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(0, limit // 2 - len(os.listdir("/dev/fd")))
