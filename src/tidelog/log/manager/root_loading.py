"""Loading the logs of all roots, in slices: a little of one root, a little of the next.

    1. every root is looked at; a directory that does not belong there ends the start before anything was touched
    2. the marker of the clean stop goes, so that whatever happens from here on counts as a crash
    3. the logs are opened, each with what the checkpoints of its root say

What the disk refuses takes the root offline, and the others go on. What is broken in a log (after a clean stop nothing
is repaired) ends the start, as it ends Kafka's: nobody but a person can say what to do then.

Kafka: LogManager.loadLogs.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from tidelog.errors import (
    CheckpointError,
    CorruptionError,
    LockedError,
    LogClosedError,
    StorageError,
    TidelogError,
    TooManyFilesError,
)
from tidelog.log.loader import LogLoader
from tidelog.log.manager.log_directories import LogDirectory
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.unified_log import UnifiedLog

__all__ = ["LoadProgress", "RootProgress", "RootsLoading", "is_of_disk"]

Steps = Generator[None, None, None]


class RootProgress(NamedTuple):
    """How far the loading of a root is. `segments_left` are those to be recovered in the log that is being loaded."""

    root: str
    logs_done: int
    logs_total: int
    segments_left: int


class LoadProgress(NamedTuple):
    """How far the loading of all roots is."""

    roots: tuple[RootProgress, ...]

    @property
    def logs_done(self) -> int:
        return sum(root.logs_done for root in self.roots)

    @property
    def logs_total(self) -> int:
        return sum(root.logs_total for root in self.roots)

    @property
    def segments_left(self) -> int:
        return sum(root.segments_left for root in self.roots)


class Host(NamedTuple):
    """What the loading asks of whoever wants the logs."""

    loader_of: Callable[[LogRoot, LogDirectory], LogLoader]
    loaded: Callable[[LogRoot, LogDirectory, UnifiedLog], None]
    failed: Callable[[LogRoot, StorageError], None]
    notice: Callable[[str], None]
    on_disk_failure: Callable[[str, StorageError], None]  # of the logs, later


class RootsLoading:
    """The loading of several roots. Used once."""

    def __init__(
        self, roots: Sequence[LogRoot], host: Host, on_progress: Callable[[LoadProgress], None] | None = None
    ) -> None:
        self._host = host
        self._on_progress = on_progress
        self._progress = {root.path: RootProgress(root.path, 0, 0, 0) for root in roots}
        self._roots = roots

    def run(self) -> Steps:
        """Load everything."""
        self._on_each(lambda root: root.look())
        self._on_each(self._begin)
        lanes = [(root, self._load(root)) for root in self._roots if root.failure is None]
        try:
            while lanes:
                lanes = [(root, lane) for root, lane in lanes if self._goes_on(root, lane)]
                yield
        finally:
            for _, lane in lanes:
                lane.close()

    def _on_each(self, work: Callable[[LogRoot], None]) -> None:
        for root in self._roots:
            if root.failure is None:
                try:
                    work(root)
                except StorageError as error:
                    self._fail(root, error)

    def _begin(self, root: LogRoot) -> None:
        for problem in root.begin():
            self._host.notice(f"{problem}: it counts as empty")
        self._progress[root.path] = RootProgress(root.path, 0, len(root.unloaded), 0)

    def _goes_on(self, root: LogRoot, lane: Steps) -> bool:
        """Move one root on by one slice; whether there is more to come."""
        if root.failure is not None:  # a disk that fails beside the loading
            lane.close()
            return False
        try:
            next(lane)
        except StopIteration:
            return False
        except (StorageError, CheckpointError) as error:
            self._fail(root, error)
            return False
        return True

    def _fail(self, root: LogRoot, error: StorageError | CheckpointError) -> None:
        if isinstance(error, StorageError) and not is_of_disk(error):
            raise error
        self._host.failed(root, error if isinstance(error, StorageError) else StorageError(str(error)))

    def _load(self, root: LogRoot) -> Steps:
        for directory in list(root.unloaded.values()):
            yield from self._load_one(root, directory)
        root.is_loaded = True

    def _load_one(self, root: LogRoot, directory: LogDirectory) -> Steps:
        loader = self._host.loader_of(root, directory)
        task = loader.task(on_failure=self._host.on_disk_failure)
        root.is_torn = True  # until this log is closed again, a marker would not be true
        try:
            while not task.step(0):
                self._tell(root, loader.segments_left)
                yield
        except (StorageError, CheckpointError):
            raise
        except TidelogError as error:
            raise CorruptionError(f"{directory.path} cannot be loaded: {error}") from error
        finally:
            if task.result is None:
                task.abandon()
                for segment in loader.segments:
                    segment.release()
        assert task.result is not None
        self._host.loaded(root, directory, task.result)
        del root.unloaded[directory.path]
        root.is_torn = False
        self._tell(root, 0, 1)
        yield

    def _tell(self, root: LogRoot, segments_left: int, more_logs: int = 0) -> None:
        if self._on_progress is None:
            return
        before = self._progress[root.path]
        now = before._replace(logs_done=before.logs_done + more_logs, segments_left=segments_left)
        if now != before:
            self._progress[root.path] = now
            self._on_progress(LoadProgress(tuple(self._progress.values())))


def is_of_disk(error: StorageError) -> bool:
    """Whether an error says that a disk is failing, and not that a process has too much open, or a log none."""
    return not isinstance(error, LockedError | LogClosedError | TooManyFilesError)
