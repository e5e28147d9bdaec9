"""The ends of many logs, watched: what a stream asks for a hundred times a second.

A listing is as old as `refresh_ms` at most. On a local disk looking again means to ask for the size of each active
segment, which grows (segment_ends.py), and every few looks for the state of each directory, in which segments and
partitions come and go; only what has changed is opened. An object store has nothing like it: there everything is listed
anew, less often.
"""

import os
import time
import weakref
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from tidelog.errors import StorageError, TidelogError
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, LOG_SUFFIX, TopicPartition
from tidelog.spark.bounds import Reach
from tidelog.spark.places import Places
from tidelog.spark.segment_ends import Path, SegmentEnds, State, state_of
from tidelog.spark.topics import TopicChoice
from tidelog.view.log_dirs import LogDirView
from tidelog.view.root import PartitionDirectory, RootView

__all__ = ["LOCAL_REFRESH_MS", "REMOTE_REFRESH_MS", "Watch"]

LOCAL_REFRESH_MS = 200
REMOTE_REFRESH_MS = 30_000
_LOOKS_A_DIRECTORY = 5  # so often are segments looked at for each look at directories


class _Seen(NamedTuple):
    """What a partition looked like, and where its log ended then. Its copies count as one."""

    directories: tuple[Path, ...]
    state: State
    marks: tuple[int | None, ...]  # what their roots say of the ends of its copies
    end: int


class _Copy(NamedTuple):
    """A directory that holds a partition."""

    root: RootView
    directory: PartitionDirectory

    @property
    def path(self) -> str:
        return f"{self.root.path}/{self.directory.name}"

    @property
    def high_watermark(self) -> int | None:
        return self.root.checkpointed(HIGH_WATERMARK_CHECKPOINT, self.directory)

    @property
    def undone_from(self) -> int | None:
        undone = self.root.undone(self.directory)
        return None if undone is None else undone[0]


class Watch:
    """The partitions that are chosen of some directories, and their ends. `most_open` is as for `SegmentEnds`."""

    def __init__(
        self,
        places: Places,
        topics: TopicChoice,
        reach: Reach,
        refresh_ms: int,
        clock: Callable[[], float] = time.monotonic,
        most_open: int | None = None,
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
        self._segments = SegmentEnds(most_open)
        self._roots: State = ()
        self._seen: dict[TopicPartition, _Seen] = {}
        self._ends: dict[TopicPartition, int] = {}  # another one whenever something has changed
        weakref.finalize(self, _let_go, self._open_roots, self._segments)

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
        """Let go of everything that is open."""
        _let_go(self._open_roots, self._segments)
        self._logs = None

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
        self._take(self._topics.choose(self._logs), {})

    def _take_changed(self, *, with_directories: bool) -> None:
        """Open what does not look as it did; if partitions have come or gone, those too."""
        assert self._logs is not None
        changed, roots = self._segments.changed(thoroughly=with_directories), self._roots
        if with_directories:
            changed |= {p for p, seen in self._seen.items() if state_of(seen.directories) != seen.state}
            roots = self._state_of_roots()
        if not changed and roots == self._roots:
            return
        self._logs = self._logs.refresh()
        known = self._seen
        if roots != self._roots or not changed.issubset(self._logs.partitions):
            self._roots = roots
            present = self._topics.choose(self._logs)
            for partition in known.keys() - present:
                self._segments.drop(partition)
            known = {p: known[p] for p in present if p in known}
            copies = self._copies()
            moved = {p for p, seen in known.items() if seen.marks != self._marks(copies.get(p, []))}
            changed = {p for p in present if p not in known or p in changed or p in moved}
        self._take(changed, known)

    def _take(self, opened: Iterable[TopicPartition], known: dict[TopicPartition, _Seen]) -> None:
        """Let what is seen be what is known, with some partitions opened anew."""
        assert self._logs is not None
        seen = dict(known)
        copies = {} if self._places.is_remote else self._copies()
        directories = {p: [copy.path for copy in found] for p, found in copies.items()}
        states = {partition: self._follow(partition, directories.get(partition, [])) for partition in opened}
        if any(len(directories.get(partition, [])) > 1 for partition in states):
            self._logs = self._logs.refresh()  # to choose among copies their ends were read, before they were followed
            copies = self._copies()
        for partition, (paths, state) in states.items():
            try:
                marks = self._marks(copies.get(partition, []))
                seen[partition] = _Seen(paths, state, marks, self._reach.limit(self._logs[partition]))
            except TidelogError:
                if self._places.is_remote or any(map(os.path.isdir, directories.get(partition, []))):
                    raise
                seen.pop(partition, None)  # deleted while it was opened
                self._segments.drop(partition)
        self._seen = dict(sorted(seen.items()))
        self._ends = {partition: each.end for partition, each in self._seen.items()}

    def _follow(self, partition: TopicPartition, directories: list[str]) -> tuple[tuple[Path, ...], State]:
        """Have the active segments of a partition followed; its directories, and what they looked like before that.

        What is written from here on is seen by a later look, so the end of the log is read after it.
        """
        paths = tuple(map(self._path, directories))
        state = state_of(paths)
        active = [self._path(path) for path in map(_active_segment, directories) if path]
        self._segments.follow(partition, active)
        return paths, state

    def _copies(self) -> dict[TopicPartition, list["_Copy"]]:
        """Where the copies of each partition lie, without a look into them."""
        assert self._logs is not None
        found: dict[TopicPartition, list[_Copy]] = {}
        for root in self._logs.roots:
            for directory in root.logs:
                found.setdefault(directory.topic_partition, []).append(_Copy(root, directory))
        return found

    def _marks(self, copies: Iterable["_Copy"]) -> tuple[int | None, ...]:
        """What ends the copies of a partition though their files do not tell: a write that is not done, a watermark.

        A journal goes when all is written, and nothing of the partition changes any more.
        """
        found = [(copy.undone_from, copy.high_watermark if self._sees_watermarks else None) for copy in copies]
        return tuple(chain.from_iterable(found))

    def _path(self, path: str) -> Path:
        assert self._logs is not None
        root = next(root.path for root in self._logs.roots if path.startswith(f"{root.path}/"))
        if root not in self._open_roots:
            try:
                self._open_roots[root] = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise StorageError(f"{root}: {error.strerror}") from error
        return Path(self._open_roots[root], path[len(root) + 1 :])

    @property
    def _sees_watermarks(self) -> bool:
        return self._reach.end_bound == "highWatermark"

    def _state_of_roots(self) -> State:
        """What tells that partitions and journals come and go, and to whom it matters that the watermark has moved."""
        assert self._logs is not None
        names = (".", HIGH_WATERMARK_CHECKPOINT) if self._sees_watermarks else (".",)
        return state_of([self._path(f"{root.path}/{name}") for root in self._logs.roots for name in names])


def _active_segment(directory: str) -> str | None:
    """The path of the last segment of a partition; None if there is none, or no such directory any more."""
    try:
        names = [name for name in os.listdir(directory) if name.endswith(LOG_SUFFIX)]
    except FileNotFoundError:
        return None
    return f"{directory}/{max(names)}" if names else None


def _let_go(roots: dict[str, int], segments: SegmentEnds) -> None:
    segments.close()
    while roots:
        os.close(roots.popitem()[1])
