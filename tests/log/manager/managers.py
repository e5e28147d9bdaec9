"""A log manager to try things on.

    manager = a_manager(tmp_path)                    one root, small indexes, no cleaner, the clock at NOW
    log = manager.get_or_create(ORDERS)
    after(manager, seconds=60)                       the clock moved, and what is due by then done
    offsets_in_file(tmp_path, RECOVERY_POINT_CHECKPOINT)

A manager that is not closed and opened again is one that crashed: `crashed(manager)` lets go of its lock, as the end of
a process does.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.log.logs import NOW, SMALL_INDEXES
from tidelog.log import LogConfig, LogManager, ManagerConfig, ManualClock
from tidelog.log.checkpoints import read_offsets
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN, TopicPartition

ORDERS = TopicPartition("orders", 0)
VIEWS = TopicPartition("views", 0)
INITIAL_DELAY = 30_000
NO_CLEANER = CleanerConfig(enable=False)

Roots = str | Path | Sequence[str | Path]


def a_manager(
    roots: Roots, defaults: LogConfig = SMALL_INDEXES, *, clock: ManualClock | None = None, **options: Any
) -> LogManager:
    """A manager whose logs are loaded. Options that are configs of the manager need not be wrapped in one."""
    return LogManager.open(roots, defaults, clock=clock or ManualClock(NOW), **_wrapped(options))


def unloaded(
    roots: Roots, defaults: LogConfig = SMALL_INDEXES, *, clock: ManualClock | None = None, **options: Any
) -> LogManager:
    """A manager that has its roots, and no logs yet."""
    return LogManager(roots, defaults, clock=clock or ManualClock(NOW), **_wrapped(options))


def _wrapped(options: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in options if name in ManagerConfig.__dataclass_fields__]
    given = {name: options.pop(name) for name in names}
    return {"config": ManagerConfig(**{"cleaner": NO_CLEANER, **given}), **options}


def crashed(manager: LogManager) -> None:
    """Let the process that has the roots end: everything stays as it is, but the lock."""
    for log in manager.all_logs():
        log.release()
    for root in manager.roots:
        root.unlock()


def after(manager: LogManager, **time: int) -> None:
    """Let time pass, and let the manager do what is due by then, as a host does that has nothing else to do."""
    assert isinstance(manager.clock, ManualClock)
    manager.clock.advance(**time)
    manager.tick()
    while manager.schedule.next_due_in_ms == 0:
        manager.tick()


def partitions(count: int, topic: str = "orders") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def offsets_in_file(root: Path | str, name: str, fs: Any = None) -> dict[str, int]:
    """What a checkpoint of a root says, by the text of the partitions."""
    found = read_offsets(LocalFileSystem() if fs is None else fs, f"{root}/{name}")
    return {str(partition): offset for partition, offset in found.items()}


def directories_in(root: Path | str, fs: Any = None) -> list[str]:
    """The names of the directories of a root."""
    fs = LocalFileSystem() if fs is None else fs
    return [name for name in fs.list(str(root)) if fs.stat(f"{root}/{name}").is_directory]


def is_marked_clean(root: Path | str, fs: Any = None) -> bool:
    return (LocalFileSystem() if fs is None else fs).stat(f"{root}/{CLEAN_SHUTDOWN}") is not None


def open_files(below: Path) -> set[str]:
    """The files below a directory that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # that of the listing itself
    return {path for path in found if path.startswith(f"{below}/")}
