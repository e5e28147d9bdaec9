"""The throttle keeps the average at or below the rate, and is asked once per interval."""

import math

import pytest

from tests.behaviours import behaviour
from tidelog.log.clock import ManualClock
from tidelog.log.compaction.throttle import Throttle

INTERVAL = 100
RATE = 1000
PER_INTERVAL = RATE * INTERVAL / 1000


def a_throttle(rate: float = RATE) -> tuple[Throttle, ManualClock]:
    clock = ManualClock()
    return Throttle(rate, clock, INTERVAL), clock


def wait(throttle: Throttle, clock: ManualClock, amount: float) -> int:
    """Observe an amount and wait as long as asked; how long that was."""
    wait_ms = int(throttle.observe(amount))
    clock.advance(wait_ms)
    return wait_ms


@behaviour("CLN-088")
def test_more_than_the_desired_amount_in_an_interval_is_waited_for() -> None:
    throttle, clock = a_throttle()
    observed = 0.0
    for _ in range(5):
        assert wait(throttle, clock, PER_INTERVAL) == 0
        clock.advance(INTERVAL + 1)
        assert wait(throttle, clock, PER_INTERVAL) == INTERVAL - 1
        observed += 2 * PER_INTERVAL
    assert observed * 1000 / clock.monotonic_ms() <= RATE


@behaviour("CLN-088")
def test_a_new_rate_counts_at_once() -> None:
    throttle, clock = a_throttle()
    clock.advance(INTERVAL + 1)
    assert wait(throttle, clock, 2 * PER_INTERVAL) == INTERVAL - 1
    throttle.rate_per_s = 2 * RATE
    clock.advance(INTERVAL + 1)
    assert wait(throttle, clock, 2 * PER_INTERVAL) == 0
    clock.advance(INTERVAL + 1)
    assert wait(throttle, clock, 4 * PER_INTERVAL) == INTERVAL - 1


def test_nothing_is_waited_for_until_more_than_an_interval_has_passed() -> None:
    throttle, clock = a_throttle()
    clock.advance(INTERVAL)
    assert throttle.observe(1_000_000) == 0
    clock.advance(1)
    assert throttle.observe(0) == 1_000_000 - INTERVAL - 1  # both are counted together


def test_an_interval_that_was_slow_enough_is_not_saved_up() -> None:
    throttle, clock = a_throttle()
    clock.advance(seconds=10)
    assert throttle.observe(1) == 0
    clock.advance(INTERVAL + 1)
    assert throttle.observe(2 * PER_INTERVAL) == INTERVAL - 1


def test_the_wait_is_not_part_of_the_next_interval() -> None:
    throttle, clock = a_throttle()
    clock.advance(INTERVAL + 1)
    clock.advance(int(throttle.observe(1000)))
    clock.advance(INTERVAL)
    assert throttle.observe(1000) == 0
    clock.advance(1)
    assert throttle.observe(0) == 1000 - INTERVAL - 1


def test_whoever_does_not_wait_is_told_to_wait_longer() -> None:
    throttle, clock = a_throttle()
    clock.advance(INTERVAL + 1)
    first = throttle.observe(1000)
    assert throttle.observe(1000) == 0
    clock.advance(int(first) + INTERVAL + 1)
    assert throttle.observe(0) == 1000 - INTERVAL - 1


def test_a_new_rate_ends_the_wait_that_the_old_one_imposed() -> None:
    throttle, clock = a_throttle(1)
    clock.advance(INTERVAL + 1)
    assert throttle.observe(1_000_000) > 999_999_000 - INTERVAL
    throttle.rate_per_s = RATE
    clock.advance(INTERVAL + 1)
    assert throttle.observe(2 * PER_INTERVAL) == INTERVAL - 1


@pytest.mark.parametrize(
    ("rate", "expected"), [(0, math.inf), (1e-320, math.inf), (-1, 0), (1.7976931348623157e308, 0)]
)
def test_rates_without_sense_are_taken_as_kafka_takes_them(rate: float, expected: float) -> None:
    throttle, clock = a_throttle(rate)
    clock.advance(INTERVAL + 1)
    assert throttle.observe(1000) == expected
