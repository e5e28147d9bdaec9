"""The ends of many logs, watched: what a stream asks for a hundred times a second.

A listing is as old as `refresh_ms` at most. On a local disk looking again means a stat of each active segment, which
grows, and every few looks one of each directory, in which segments and partitions come and go; only what has changed is
opened. An object store has nothing like it: there everything is listed anew, less often.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, LOG_SUFFIX, TopicPartition
from tidelog.spark.bounds import Reach
from tidelog.spark.places import Places
from tidelog.spark.topics import TopicChoice
from tidelog.view.log_dirs import LogDirView

__all__ = ["LOCAL_REFRESH_MS", "REMOTE_REFRESH_MS", "Watch"]

LOCAL_REFRESH_MS = 200
REMOTE_REFRESH_MS = 30_000
_LOOKS_A_DIRECTORY = 5  # so often are segments looked at for each look at directories

_State = tuple[int, ...]


class _Seen(NamedTuple):
    """What a partition looked like, and where its log ended then. Its copies count as one."""

    directories: tuple["_Path", ...]
    segments: tuple["_Path", ...]  # the active ones
    state: _State
    segment_state: _State
    end: int


class _Path(NamedTuple):
    """A path as the system finds it fastest: from an open directory."""

    directory: int
    name: str


class Watch:
    """The partitions that are chosen of some directories, and their ends."""

    def __init__(
        self,
        places: Places,
        topics: TopicChoice,
        reach: Reach,
        refresh_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._topics = topics
        self._reach = reach
        self._refresh_s = refresh_ms / 1000
        self._clock = clock
        self._logs: LogDirView | None = None
        self._looked_at = 0.0
        self._looks = 0
        self._open_roots: dict[str, int] = {}
        self._roots: _State = ()
        self._seen: dict[TopicPartition, _Seen] = {}
        self._ends: dict[TopicPartition, int] = {}  # another one whenever something has changed

    @property
    def logs(self) -> LogDirView:
        """The directories, as they were looked at last."""
        if self._logs is None:
            self._look(everything=True)
        assert self._logs is not None
        return self._logs

    @property
    def chosen(self) -> list[TopicPartition]:
        """The partitions, as of the last look."""
        self.ends()
        return list(self._seen)

    def ends(self, *, now: bool = False) -> dict[TopicPartition, int]:
        """The first offset of each partition that is not there yet; with `now` after a new look at everything.

        As long as nothing changes it is the same object.
        """
        if now or self._logs is None or not self.fresh_for_s:
            self._look(everything=now)
        return self._ends

    @property
    def fresh_for_s(self) -> float:
        """How long the last look will do."""
        return max(0.0, self._looked_at + self._refresh_s - self._clock())

    def close(self) -> None:
        """Let go of the roots."""
        for descriptor in self._open_roots.values():
            os.close(descriptor)
        self._open_roots, self._logs = {}, None

    def _look(self, *, everything: bool) -> None:
        started = self._clock()
        self._looks += 1
        if self._logs is None:
            self._logs = self._places.open()
            self._take_all()
        elif self._places.is_remote:
            self._logs = self._logs.refresh()
            self._take_all()
        else:
            self._take_changed(with_directories=everything or self._looks % _LOOKS_A_DIRECTORY == 0)
        self._looked_at = started

    def _take_all(self) -> None:
        assert self._logs is not None
        if not self._places.is_remote:
            self._roots = self._state_of_roots()
        self._seen = {partition: self._opened(partition) for partition in self._topics.choose(self._logs)}
        self._ends = {partition: seen.end for partition, seen in self._seen.items()}

    def _take_changed(self, *, with_directories: bool) -> None:
        """Open what does not look as it did; if partitions have come or gone, those too."""
        assert self._logs is not None
        changed = {p for p, seen in self._seen.items() if _state(seen.segments) != seen.segment_state}
        are_roots_changed = False
        if with_directories:
            changed |= {p for p, seen in self._seen.items() if _state(seen.directories) != seen.state}
            are_roots_changed = self._state_of_roots() != self._roots
        if not changed and not are_roots_changed:
            return
        self._logs = self._logs.refresh()
        if are_roots_changed:
            self._roots = self._state_of_roots()
            present = self._topics.choose(self._logs)
            changed = {p for p in present if p not in self._seen or p in changed or self._sees_watermarks}
            self._seen = {p: self._seen[p] for p in present if p in self._seen}
        for partition in changed:
            self._seen[partition] = self._opened(partition)
        self._seen = dict(sorted(self._seen.items()))
        self._ends = {partition: seen.end for partition, seen in self._seen.items()}

    def _opened(self, partition: TopicPartition) -> _Seen:
        """A partition as it is now; what changes while it is opened is seen the next time."""
        assert self._logs is not None
        if self._places.is_remote:
            return _Seen((), (), (), (), self._reach.limit(self._logs[partition]))
        directories, segments = [], []
        for copy in self._logs.copies(*partition):
            directories.append(self._path(copy.path))
            names = [name for name in os.listdir(copy.path) if name.endswith(LOG_SUFFIX)]
            if names:
                segments.append(self._path(f"{copy.path}/{max(names)}"))
        state, segment_state = _state(directories), _state(segments)
        return _Seen(
            tuple(directories), tuple(segments), state, segment_state, self._reach.limit(self._logs[partition])
        )

    def _path(self, path: str) -> _Path:
        assert self._logs is not None
        root = next(root.path for root in self._logs.roots if path.startswith(f"{root.path}/"))
        if root not in self._open_roots:
            try:
                self._open_roots[root] = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise StorageError(f"{root}: {error.strerror}") from error
        return _Path(self._open_roots[root], path[len(root) + 1 :])

    @property
    def _sees_watermarks(self) -> bool:
        return self._reach.end_bound == "highWatermark"

    def _state_of_roots(self) -> _State:
        """What tells that partitions come and go, and to whom it matters that the high watermark has moved."""
        assert self._logs is not None
        names = (".", HIGH_WATERMARK_CHECKPOINT) if self._sees_watermarks else (".",)
        return _state([self._path(f"{root.path}/{name}") for root in self._logs.roots for name in names])


def _state(paths: tuple[_Path, ...] | list[_Path]) -> _State:
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
