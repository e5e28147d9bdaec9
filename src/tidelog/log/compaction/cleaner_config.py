"""The config of the cleaner: how much memory, how fast, how often.

Every field is a broker config of Kafka 4, `log.cleaner.` in front of it but for `message.max.bytes`.

>>> config = CleanerConfig.from_properties({"log.cleaner.backoff.ms": "1000", "log.dirs": "/var/lib/kafka"})
>>> config.backoff_ms, config.slots
(1000, 5592405)

What is given for all threads is shared by them. Here a log has one owner and one round runs at a time, but the share of
a thread stays what Kafka makes it, so that a round ends where Kafka's would.

Kafka: org.apache.kafka.storage.internals.log.CleanerConfig.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.errors import InvalidConfigError
from tidelog.log.config_values import (
    ANYTHING,
    Kind,
    at_least,
    check_broker_values,
    parse_broker_values,
    setting,
    settings_of,
)
from tidelog.records.java import MAX_INT32

__all__ = ["CleanerConfig"]

_BYTES_PER_SLOT = 24  # sixteen of a key's hash and eight of an offset
_LEAST_DEDUPE_BYTES = 1024**2  # which a broker wants to have more of, for each thread


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """What the cleaner must know. A value that Kafka refuses raises InvalidConfigError."""

    threads: int = setting(1, Kind.INT, at_least(0), "log.cleaner.threads")
    dedupe_buffer_size: int = setting(128 * 1024**2, Kind.LONG, ANYTHING, "log.cleaner.dedupe.buffer.size")
    io_buffer_size: int = setting(512 * 1024, Kind.INT, at_least(0), "log.cleaner.io.buffer.size")
    load_factor: float = setting(0.9, Kind.DOUBLE, ANYTHING, "log.cleaner.io.buffer.load.factor")
    max_message_bytes: int = setting(1024**2 + 12, Kind.INT, at_least(0), "message.max.bytes")
    io_max_bytes_per_second: float = setting(
        sys.float_info.max, Kind.DOUBLE, ANYTHING, "log.cleaner.io.max.bytes.per.second"
    )
    backoff_ms: int = setting(15_000, Kind.LONG, at_least(0), "log.cleaner.backoff.ms")
    enable: bool = setting(True, Kind.BOOLEAN, ANYTHING, "log.cleaner.enable")

    def __post_init__(self) -> None:
        check_broker_values(self)
        if self.slots * self.load_factor <= 1:
            raise InvalidConfigError(
                f"an offset map of {self.slots} slots filled to {self.load_factor} does not hold two keys: "
                "raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "CleanerConfig":
        """What a broker's `server.properties` say about the cleaner. Names of anything else are passed over."""
        config = cls(**parse_broker_values(cls, properties))
        if config.threads and config.dedupe_buffer_size // config.threads <= _LEAST_DEDUPE_BYTES:
            raise InvalidConfigError(
                f"log.cleaner.dedupe.buffer.size is {config.dedupe_buffer_size}, "
                f"wanted is more than {_LEAST_DEDUPE_BYTES} for each of {config.threads} threads"
            )
        return config

    @staticmethod
    def names() -> frozenset[str]:
        """The broker configs that this is about."""
        return frozenset(known.broker_names[0] for known in settings_of(CleanerConfig).values())

    @property
    def slots(self) -> int:
        """The slots of a thread's offset map. Beyond 2 GiB its memory does not grow."""
        return min(self.dedupe_buffer_size // max(self.threads, 1), MAX_INT32) // _BYTES_PER_SLOT

    @property
    def buffer_bytes(self) -> int:
        """What a thread reads at once, and writes at once, unless a batch is larger."""
        return self.io_buffer_size // max(self.threads, 1) // 2

    def check_change(self, before: "CleanerConfig") -> None:
        """Raise InvalidConfigError where a running broker could not let this config follow `before`."""
        if self.threads < 1:
            raise InvalidConfigError("log.cleaner.threads is 0, wanted is 1 or more while the cleaner runs")
        if not before.threads // 2 <= self.threads <= before.threads * 2:
            raise InvalidConfigError(
                f"log.cleaner.threads is {self.threads}, "
                f"wanted is no less than half and no more than double of what it was, {before.threads}"
            )
