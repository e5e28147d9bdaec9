"""The engine: one partition's log on a disk, as Kafka keeps it.

    with UnifiedLog.open("kafka-logs/orders-0", LogConfig(segment_bytes=1 << 30)) as log:
        log.append([NewRecord(b"key", b"value")])

    with LogManager.open(["/disk1/kafka-logs", "/disk2/kafka-logs"]) as manager:     all logs of a broker
        log = manager.get_or_create(TopicPartition("orders", 0))

A walk through the rooms: `unified_log` (watermarks, producers, epochs) calls `local_log` (segments, files), which calls
`segment` (one `.log` and its indexes). `loader` opens a directory after a stop or a crash. Time, files and chance are
passed in: `clock`, `files`, an `rng`.

A name is imported when it is asked for: whoever wants one of the rooms, such as `files`, does not pay for the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.log.analysis import AppendInfo
    from tidelog.log.clock import Clock, ManualClock, SystemClock
    from tidelog.log.config import LogConfig
    from tidelog.log.manager.log_manager import LogManager
    from tidelog.log.manager.manager_config import ManagerConfig
    from tidelog.log.names import TopicPartition
    from tidelog.log.offsets import OffsetMetadata, TimestampAndOffset
    from tidelog.log.origin import AppendOrigin
    from tidelog.log.region import Region
    from tidelog.log.unified_log import UnifiedLog
    from tidelog.log.watermarks import Isolation

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "Clock",
    "Isolation",
    "LogConfig",
    "LogManager",
    "ManagerConfig",
    "ManualClock",
    "OffsetMetadata",
    "Region",
    "SystemClock",
    "TimestampAndOffset",
    "TopicPartition",
    "UnifiedLog",
]

_ROOMS = {
    "AppendInfo": "analysis",
    "Clock": "clock",
    "ManualClock": "clock",
    "SystemClock": "clock",
    "LogConfig": "config",
    "LogManager": "manager.log_manager",
    "ManagerConfig": "manager.manager_config",
    "TopicPartition": "names",
    "OffsetMetadata": "offsets",
    "TimestampAndOffset": "offsets",
    "AppendOrigin": "origin",
    "Region": "region",
    "UnifiedLog": "unified_log",
    "Isolation": "watermarks",
}


def __getattr__(name: str) -> Any:
    """One of the names above, from the room it lives in."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
