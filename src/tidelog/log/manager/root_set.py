"""The roots of a broker: entered together, left together, each failing alone.

Kafka: LogManager.createAndValidateLogDirs, lockLogDirs, loadDirectoryIds.
"""

import os
import uuid
from collections.abc import Iterator

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.log.files import FileSystem, parent_of
from tidelog.log.manager.checks import Paths, checked_path, checked_paths
from tidelog.log.manager.log_root import LogRoot, normal_path
from tidelog.log.manager.root_loading import is_of_disk
from tidelog.log.unified_log import UnifiedLog

__all__ = ["RootSet"]


class RootSet:
    """The roots by their paths, in the order in which they were given."""

    def __init__(self, fs: FileSystem, paths: Paths) -> None:
        given = checked_paths(paths)
        self._roots = {normal_path(path): LogRoot(fs, path) for path in given}
        if len(self._roots) < len(given):
            raise InvalidRequestError(f"a log directory is named twice: {', '.join(given)}")

    def __iter__(self) -> Iterator[LogRoot]:
        return iter(self._roots.values())

    @property
    def live(self) -> list[LogRoot]:
        return [root for root in self if root.failure is None]

    @property
    def has_offline(self) -> bool:
        return any(root.failure is not None for root in self)

    def named(self, path: str | os.PathLike[str]) -> LogRoot:
        """The root of a path; raises InvalidRequestError if it is none."""
        root = self._roots.get(normal_path(checked_path(path)))
        if root is None:
            raise InvalidRequestError(f"{os.fspath(path)} is none of the log directories: {', '.join(self._roots)}")
        return root

    def of(self, log: UnifiedLog) -> LogRoot:
        """The root that a log lies in."""
        return self._roots[parent_of(log.directory)]

    def enter(self) -> list[LogRoot]:
        """Take every root; those that cannot be used are offline, and given back.

        Raises LockedError, having taken none, if somebody has one of them, and StorageError if none can be used.
        """
        try:
            for root in self:
                self._enter(root)
            if not self.live:
                raise self.all_failed()
            self._check_ids()
        except BaseException:
            self.leave()
            raise
        return [root for root in self if root.failure is not None]

    def _enter(self, root: LogRoot) -> None:
        try:
            root.enter()
        except StorageError as error:
            if not is_of_disk(error):
                raise
            root.fail(error)

    def _check_ids(self) -> None:
        seen: dict[uuid.UUID, LogRoot] = {}
        for root in self.live:
            if root.directory_id is not None:
                other = seen.setdefault(root.directory_id, root)
                if other is not root:
                    raise InvalidRequestError(f"{other.path} and {root.path} have the same directory.id")

    def leave(self) -> None:
        """Let others into the roots that are not offline."""
        for root in self:
            if root.failure is None:
                try:
                    root.leave()
                except StorageError as error:
                    root.fail(error)

    def all_failed(self) -> StorageError:
        """What to say when none is left."""
        return StorageError("no log directory can be used: " + "; ".join(str(root.failure) for root in self))
