"""A file of a segment: opened when it is first used, let go when too many are open, renamed and removed beside readers.

`release` gives the descriptor back and the next use opens the file again; after `close` or `delete` there is no next
use. A descriptor that another thread still reads from is closed when that thread has done, never under its hands.
"""

import threading

from tidelog.errors import LogClosedError
from tidelog.log.files import FileSystem, WriteFile, open_existing
from tidelog.log.open_files import OPEN_FILES

__all__ = ["HeldFile"]


class HeldFile:
    """The file, open or not."""

    __slots__ = ("_file", "_fs", "_is_closed", "_lock", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path  # where it is, or will be
        self._fs = fs
        self._file: WriteFile | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # whoever comes first opens the file, and not while it gets another name

    def exists(self) -> bool:
        """Whether there is a file."""
        return self._fs.stat(self.path) is not None

    def release(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        with self._lock:
            self._file = None
        OPEN_FILES.closed(self)

    def delete(self) -> bool:
        """Let go of the file and remove it; whether there was one. Regions that hold it keep their bytes."""
        self._let_go()
        return self._fs.remove(self.path)

    def rename_to(self, path: str) -> None:
        """Give the file another name, if there is one already."""
        with self._lock:
            if self.exists():
                self._fs.rename(self.path, path)
            self._move(path)

    def moved_to(self, path: str) -> None:
        """Note that the file has another path now, because its directory was renamed."""
        with self._lock:
            self._move(path)

    def _move(self, path: str) -> None:
        self.path = path
        if self._file is not None:
            self._file.path = path

    def _let_go(self) -> None:
        with self._lock:
            self._is_closed = True
            self._file = None
        OPEN_FILES.closed(self)

    def _open(self) -> WriteFile:
        """The open file."""
        file = self._file
        if file is not None:
            return file
        with self._lock:
            file = self._file
            if file is None:
                self._check_not_closed()
                file = self._file = self._open_file()
        OPEN_FILES.opened(self)
        return file

    def _open_file(self) -> WriteFile:
        """Open it, which must be there."""
        return open_existing(self._fs, self.path)

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise LogClosedError(f"{self.path}: the file was closed")
