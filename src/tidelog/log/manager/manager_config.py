"""The config of a broker's storage, beside that of its topics: how often the background work is done.

>>> config = ManagerConfig.from_properties({"log.retention.check.interval.ms": "1000", "node.id": "1"})
>>> config.retention_check_interval_ms, config.initial_task_delay_ms
(1000, 30000)

Kafka: the part of KafkaConfig that LogManager and ReplicaManager's checkpoints are given.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.errors import InvalidConfigError
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.config_values import (
    ANYTHING,
    Kind,
    at_least,
    check_broker_values,
    parse_broker_values,
    setting,
)

__all__ = ["ManagerConfig", "log_dirs_of"]

_FOREVER = 2**63 - 1
_DEFAULT_ROOT = "/tmp/kafka-logs"
_COMMA = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """What a LogManager must know beside the configs of topics. What Kafka refuses raises InvalidConfigError."""

    initial_task_delay_ms: int = setting(30_000, Kind.LONG, at_least(0), "log.initial.task.delay.ms")
    retention_check_interval_ms: int = setting(300_000, Kind.LONG, at_least(1), "log.retention.check.interval.ms")
    flush_scheduler_interval_ms: int = setting(_FOREVER, Kind.LONG, ANYTHING, "log.flush.scheduler.interval.ms")
    recovery_point_checkpoint_interval_ms: int = setting(
        60_000, Kind.INT, at_least(0), "log.flush.offset.checkpoint.interval.ms"
    )
    log_start_checkpoint_interval_ms: int = setting(
        60_000, Kind.INT, at_least(0), "log.flush.start.offset.checkpoint.interval.ms"
    )
    high_watermark_checkpoint_interval_ms: int = setting(
        5_000, Kind.LONG, ANYTHING, "replica.high.watermark.checkpoint.interval.ms"
    )
    file_delete_delay_ms: int = setting(60_000, Kind.LONG, at_least(0), "log.segment.delete.delay.ms")
    recovery_threads: int = setting(  # taken and not used: logs are loaded in slices, by their owner
        2, Kind.INT, at_least(1), "num.recovery.threads.per.data.dir"
    )
    producer_id_expiration_ms: int = setting(86_400_000, Kind.INT, at_least(1), "producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, Kind.INT, at_least(1), "producer.id.expiration.check.interval.ms"
    )
    verification: bool = setting(True, Kind.BOOLEAN, ANYTHING, "transaction.partition.verification.enable")
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)

    def __post_init__(self) -> None:
        check_broker_values(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "ManagerConfig":
        """What a broker's `server.properties` say about its storage. Names of anything else are passed over."""
        return cls(cleaner=CleanerConfig.from_properties(properties), **parse_broker_values(cls, properties))


def log_dirs_of(properties: Mapping[str, object]) -> list[str]:
    """The roots that a broker's properties name: `log.dirs`, or `log.dir` where that is not set.

    >>> log_dirs_of({"log.dirs": "/disk1/kafka, /disk2/kafka"})
    ['/disk1/kafka', '/disk2/kafka']
    """
    text = str(properties.get("log.dirs") or properties.get("log.dir") or _DEFAULT_ROOT).strip()
    roots = [root for root in _COMMA.split(text) if root]
    if not roots:
        raise InvalidConfigError(f"log.dirs is {text!r}, wanted is at least one directory")
    return roots
