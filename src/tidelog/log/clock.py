"""Time, passed in. Nothing in the engine asks the machine for it.

Two hands: `now_ms` is the wall clock that goes into files and is compared with timestamps of records;
`monotonic_ms` measures how long something took. A `ManualClock` moves both only when it is told to.
"""

import time
from typing import Protocol

from tidelog.errors import InvalidRequestError

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """What the engine asks about time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment, never going back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000


class ManualClock:
    """A clock that stands still until it is moved.

    >>> clock = ManualClock(1_700_000_000_000)
    >>> clock.advance(seconds=2)
    >>> clock.now_ms()
    1700000002000
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, ms: int = 0, *, seconds: int = 0, minutes: int = 0, hours: int = 0, days: int = 0) -> None:
        """Move both hands forward."""
        step = ms + 1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))
        if step < 0:
            raise InvalidRequestError(f"a clock moved by {step} ms; set_to moves the wall clock back")
        self._now_ms += step
        self._monotonic_ms += step

    def set_to(self, now_ms: int) -> None:
        """Set the wall clock, back too, as an administrator can."""
        self._now_ms = now_ms
