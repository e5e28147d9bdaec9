"""How many files are open at once.

A segment has a log and two or three indexes, a log has many segments, a broker many logs. Files are opened when they
are first used and stay open, up to a limit over the whole process; then the ones opened longest ago are let go, to be
opened again by whoever needs them next. Letting go does not close a file under the hands of a reader: the descriptor
goes with the last reference to it.
"""

import threading
from typing import Protocol

__all__ = ["OPEN_FILES", "OpenFiles"]

_FEW = 200  # where the system does not say how many files a process may open


class Holder(Protocol):
    """Who has a file open and can open it again."""

    def release(self) -> None:
        """Let go of the file."""


class OpenFiles:
    """Those who have a file open, the longest first. `limit` may be set."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = _half_of_what_is_allowed() if limit is None else limit
        self._mutex = threading.Lock()
        self._holders: dict[Holder, None] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder) -> None:
        """Note that `holder` has opened its file. Others may have to let go of theirs."""
        with self._mutex:
            self._holders.pop(holder, None)
            self._holders[holder] = None
            others = []
            while len(self._holders) > self.limit:
                others.append(next(iter(self._holders)))
                del self._holders[others[-1]]
        for other in others:
            other.release()

    def closed(self, holder: Holder) -> None:
        """Note that `holder` has let go of its file."""
        with self._mutex:
            self._holders.pop(holder, None)


def _half_of_what_is_allowed() -> int:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return _FEW
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(allowed // 2, 16) if allowed != resource.RLIM_INFINITY else 1 << 20


OPEN_FILES = OpenFiles()  # descriptors are the process's, so is the limit
