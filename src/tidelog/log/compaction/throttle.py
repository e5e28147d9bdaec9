"""How fast the cleaner may read and write, on average.

What was done is added up. When more than an interval has passed since the count began, the rate of it is compared with
the desired one: if it was higher, whoever asks is told how long to wait so that it becomes the desired one, and the
count begins anew behind that wait. Nothing here sleeps: who is told to wait, waits.

Kafka: org.apache.kafka.storage.internals.utils.Throttler.
"""

import math

from tidelog.log.clock import Clock

__all__ = ["Throttle"]


class Throttle:
    """The desired rate, and what was observed since the count began. `rate_per_s` may be set at any time.

    >>> from tidelog.log.clock import ManualClock
    >>> clock = ManualClock()
    >>> throttle = Throttle(1000, clock)
    >>> clock.advance(500)
    >>> throttle.observe(2000)
    1500.0
    """

    def __init__(self, rate_per_s: float, clock: Clock, check_interval_ms: float = 300) -> None:
        self._rate_per_s = rate_per_s
        self._clock = clock
        self._check_interval_ms = check_interval_ms
        self._began_ms = clock.monotonic_ms()
        self._observed = 0.0

    @property
    def rate_per_s(self) -> float:
        return self._rate_per_s

    @rate_per_s.setter
    def rate_per_s(self, rate_per_s: float) -> None:
        """Set the desired rate. A wait that was imposed by the old one need not be kept."""
        self._rate_per_s = rate_per_s
        self._began_ms = min(self._began_ms, self._clock.monotonic_ms())

    def observe(self, amount: float) -> float:
        """Count `amount`; how many milliseconds to wait before doing more, most of the time none."""
        self._observed += amount
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = now_ms - self._began_ms
        if elapsed_ms <= self._check_interval_ms or self._observed <= 0:
            return 0.0
        wait_ms = 0.0
        if self._observed * 1000 / elapsed_ms > self._rate_per_s:
            wait_ms = self._wait_ms(elapsed_ms)
        self._began_ms = now_ms + (wait_ms if math.isfinite(wait_ms) else 0)
        self._observed = 0.0
        return wait_ms

    def _wait_ms(self, elapsed_ms: float) -> float:
        """What is missing to the time in which the desired rate would have done as much. At a rate of 0, for ever."""
        per_ms = self._rate_per_s / 1000
        wait_ms = self._observed / per_ms - math.floor(elapsed_ms) if per_ms else math.inf
        return float(max(math.floor(wait_ms + 0.5), 0)) if math.isfinite(wait_ms) else math.inf
