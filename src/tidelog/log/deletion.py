"""Files that are no longer part of a log and wait for file.delete.delay.ms: segments and producer snapshots.

Their names end in `.deleted` already, so a start that finds them removes them. A deletion is a task of the log in the
schedule of its host. While it waits, its segments may have descriptors open. A log that is closed runs its deletions at
once; a log that fails gives the descriptors back and leaves the files to the next start.

Kafka: LocalLog.deleteSegmentFiles.
"""

from collections.abc import Iterable

from tidelog.errors import StorageError, TooManyFilesError
from tidelog.log.files import FileSystem, join
from tidelog.log.segment import LogSegment
from tidelog.log.tasks import OnError

__all__ = ["Deletion"]


class Deletion:
    """The deletion of the files of some segments, and of other files by their paths."""

    name = "delete files"
    waits_for_disk = False

    def __init__(self, fs: FileSystem, segments: Iterable[LogSegment] = (), paths: Iterable[str] = ()) -> None:
        self.on_error: OnError | None = None
        self._fs = fs
        self._segments = list(segments)
        self._paths = list(paths)

    def step(self, budget_ms: float) -> bool:
        """Delete everything; False if the process has no descriptor left, and the next heartbeat goes on."""
        try:
            self.run()
        except TooManyFilesError:
            return False
        except StorageError as error:
            self.abandon()
            if self.on_error is None:
                raise
            self.on_error(error)
        return True

    def run(self) -> None:
        """Delete everything now. What is refused stays, and can be tried again."""
        while self._segments:
            self._segments[-1].delete()
            self._segments.pop()
        while self._paths:
            self._fs.remove(self._paths[-1])
            self._paths.pop()

    def finish(self) -> None:
        """Do nothing: a deletion runs in the thread of its owner."""

    def abandon(self) -> None:
        """Give all descriptors back. The files stay, for the next start to remove."""
        for segment in self._segments:
            segment.release()
        self._segments.clear()
        self._paths.clear()

    def moved_to(self, directory: str) -> None:
        """Note that the directory of the log has another name now."""
        for segment in self._segments:
            segment.moved_to(directory)
        self._paths = [join(directory, path.rpartition("/")[2]) for path in self._paths]
