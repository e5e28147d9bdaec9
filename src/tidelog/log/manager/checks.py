"""What a LogManager refuses at the door: each wrong thing in one sentence, which says what is wanted.

Kafka: the types of Scala, and ReplicaAlterLogDirsThread, which replaces a log when its copy has caught up.
"""

import os
from collections.abc import Iterable, Mapping

from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.log.config import LogConfig
from tidelog.log.manager.manager_config import ManagerConfig
from tidelog.log.names import TopicPartition
from tidelog.log.unified_log import UnifiedLog

__all__ = [
    "Paths",
    "check_complete",
    "checked_budget",
    "checked_config",
    "checked_defaults",
    "checked_overrides",
    "checked_path",
    "checked_paths",
    "checked_properties",
    "checked_several",
    "two_directories",
]

Paths = Iterable[str | os.PathLike[str]] | str | os.PathLike[str]


def checked_path(given: object) -> str:
    """The path of a root, as text. No shell looks at it, so `~` would be a directory of that name."""
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise InvalidRequestError(f"logs are kept in one directory or more, each a str or a Path, not {given!r}")
    if path.startswith("~"):
        raise InvalidRequestError(f"{path}: the ~ is not expanded here, pass os.path.expanduser({path!r})")
    return path


def checked_paths(given: object) -> list[str]:
    """The paths of all roots, of which there is one or more."""
    if isinstance(given, str | os.PathLike):
        return [checked_path(given)]
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise InvalidRequestError(f"logs are kept in one directory or more, not in {given!r}")
    paths = [checked_path(each) for each in given]
    if not paths:
        raise InvalidRequestError("logs are kept in one directory or more, and none is named")
    return paths


def checked_defaults(given: object) -> LogConfig:
    """The defaults of all topics."""
    if not isinstance(given, LogConfig):
        raise InvalidRequestError(f"the defaults of all topics are a LogConfig, not {given!r}")
    return given


def checked_config(given: object) -> ManagerConfig:
    """The config of a manager."""
    if not isinstance(given, ManagerConfig):
        raise InvalidRequestError(f"the config of a LogManager is a ManagerConfig, not {given!r}")
    return given


def checked_properties(topic: object, given: object) -> dict[str, object]:
    """What is set for a topic, each with a value: what is left out is not set."""
    if type(topic) is not str or not topic:
        raise InvalidRequestError(f"configs belong to a topic, which is named by a str, not by {topic!r}")
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidRequestError(f"{topic}: configs are a mapping of names to values ({{}} for none), not {given!r}")
    unset = [name for name, value in given.items() if value is None]
    if unset:
        raise InvalidRequestError(f"{topic}: {unset[0]} is None; leave out what is not to be set")
    return dict(given)


def checked_overrides(given: object) -> dict[str, dict[str, object]]:
    """What is set for all topics, by their names."""
    if not isinstance(given, Mapping):
        raise InvalidRequestError(f"topic configs are a mapping of topics to their configs, not {given!r}")
    return {topic: checked_properties(topic, properties) for topic, properties in given.items()}


def checked_several(given: object) -> list[TopicPartition]:
    """Partitions, however many. One alone is also a tuple, and a name of one is also a row of letters."""
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise InvalidRequestError(f"pass several TopicPartitions, a list for instance, not {given!r}")
    return list(given)


def checked_budget(given: object) -> float:
    """How many milliseconds may be spent."""
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        raise InvalidRequestError(f"a budget is a number of milliseconds, not {given!r}")
    return given


def check_complete(current: UnifiedLog, copy: UnifiedLog) -> None:
    """Raise InvalidRequestError unless all that is in a log is in its copy, too."""
    if copy.log_end_offset < current.log_end_offset or copy.log_start_offset > current.log_start_offset:
        raise InvalidRequestError(
            f"the copy of {current.topic_partition} is not complete: it starts at {copy.log_start_offset} and ends at "
            f"{copy.log_end_offset}, the log starts at {current.log_start_offset} and ends at {current.log_end_offset}"
        )


def two_directories(one: UnifiedLog, other: UnifiedLog) -> CorruptionError:
    """What to say of two logs of one partition, so that nobody removes the wrong one."""
    found = " and ".join(
        f"{log.directory} (offsets {log.log_start_offset} to {log.log_end_offset}, {log.size} bytes)"
        for log in (one, other)
    )
    return CorruptionError(
        f"{one.topic_partition} has two directories, {found}: move the one away that you do not want. If a disk failed "
        "while the partition was moved, it is the one on that disk"
    )
