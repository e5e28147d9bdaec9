"""Removing the directory of a log that was deleted, a few files at a time.

A large log has thousands of files, and a file system takes its time to let go of a gigabyte. So the directory has a
name by which every start recognises it (`-delete`), and its files go one by one while other work goes on between them.

Kafka: LogManager.deleteLogs.
"""

from collections.abc import Generator

from tidelog.log.files import FileSystem
from tidelog.log.unified_log import UnifiedLog

__all__ = ["DeletedLog"]


class DeletedLog:
    """A log that waits for its removal: its directory, and the log itself if it was open."""

    def __init__(self, fs: FileSystem, directory: str, log: UnifiedLog | None = None) -> None:
        self.directory = directory
        self._fs = fs
        self._log = log

    def release(self) -> None:
        """Give all descriptors back. The files stay."""
        if self._log is not None:
            self._log.release()
            self._log = None

    def remove(self) -> Generator[None, None, bool]:
        """Remove the files and the directory; whether there was one."""
        self.release()
        return (yield from self._fs.remove_in_steps(self.directory))
