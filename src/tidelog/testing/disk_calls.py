"""The calls that change a simulated disk: counted, written down, and made to fail.

Most calls are neither cut nor failing, and campaigns make millions of them, so a call costs one comparison: with the
number from which on somebody has to look.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tidelog.errors import StorageError
from tidelog.log.local_files import storage_error

__all__ = ["NEVER", "NO_SPACE", "Calls", "Fault", "PowerLost", "refusal"]

NEVER = 1 << 63
NO_SPACE = os.strerror(errno.ENOSPC)

_EVENTS_KEPT = 10_000
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


class PowerLost(BaseException):
    """The power went. Not an Exception, so that no handler in the engine can go on as if it had not."""


@dataclass(slots=True)
class Fault:
    """Calls that are to fail: those that match all of it."""

    calls: Container[int] | None
    error: str
    operation: str
    path: str
    times: int
    partly: bool

    def hits(self, number: int | None, operation: str, path: str) -> bool:
        """Whether a call is to fail; if so, one time less is left. Reads have no number."""
        is_hit = (
            self.times > 0
            and (self.calls is None or (number is not None and number in self.calls))
            and fnmatchcase(operation, self.operation)
            and fnmatchcase(path, self.path)
        )
        self.times -= is_hit
        return is_hit


class Calls:
    """The counter, and what is to happen at which number."""

    __slots__ = ("_cut_at", "events", "faults", "number", "watched_from")

    def __init__(self) -> None:
        self.number = 0
        self.watched_from = NEVER
        self.events: deque[tuple[object, ...]] = deque(maxlen=_EVENTS_KEPT)  # tuples: words are made when asked for
        self.faults: list[Fault] = []
        self._cut_at = NEVER

    def cut_at(self, number: int) -> None:
        """Let this call be the last. One that is past: the next."""
        self._cut_at = max(number, self.number + 1)
        self._set_watch()

    def add_fault(self, fault: Fault) -> None:
        """Let calls fail."""
        self.faults.append(fault)
        self._set_watch()

    def heal(self) -> None:
        """Let nothing fail any more."""
        self.faults.clear()
        self._set_watch()

    def _set_watch(self) -> None:
        self.watched_from = 0 if self.faults else self._cut_at

    def begin(self, *event: str | int) -> bool:
        """Count a call (operation, path, more words for the journal); whether the power goes with it."""
        self.number += 1
        self.events.append((self.number, *event))
        return self.number >= self.watched_from and self.watch(str(event[0]), str(event[1]))

    def watch(self, operation: str, path: str, leave_part: Callable[[], None] | None = None) -> bool:
        """Look at a call that was counted: it is the last one (True), comes too late, fails, or goes on (False)."""
        if self.number > self._cut_at:
            raise PowerLost
        for fault in self.faults:
            if fault.hits(self.number, operation, path):
                if fault.partly and leave_part is not None:
                    leave_part()
                raise refusal(path, fault.error)
        return self.number == self._cut_at

    def check_read(self, operation: str, path: str) -> None:
        """Let a call fail that changes nothing."""
        for fault in self.faults:
            if fault.hits(None, operation, path):
                raise refusal(path, fault.error)


def refusal(path: str, reason: str | int) -> StorageError:
    """The error that the local disk would raise, with the system's own as its cause."""
    number = reason if isinstance(reason, int) else _NUMBERS.get(reason, errno.EIO)
    cause = OSError(number, os.strerror(number) if isinstance(reason, int) else reason)
    error = storage_error(path, cause)
    error.__cause__ = cause
    return error
