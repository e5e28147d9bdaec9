"""Where a new log goes: into the live root with the fewest logs, unless somebody says where.

Kafka: LogManager.nextLogDirs and getOrCreateLog.
"""

import uuid
from collections.abc import Sequence

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.log.manager.log_root import LogRoot
from tidelog.log.manager.meta_properties import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.log.names import TopicPartition

__all__ = ["candidates"]

_NOWHERE = (None, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)


def candidates(
    partition: TopicPartition,
    roots: Sequence[LogRoot],
    *,
    root: LogRoot | None = None,
    directory_id: uuid.UUID | None = None,
    current_root: LogRoot | None = None,
    is_future: bool = False,
) -> list[LogRoot]:
    """The roots to try, in order.

    A root that is named is the only one, and so is the one of a directory id. An id that nobody here has, and those
    that stand for no directory, name none; the id of a root that is offline counts as one that nobody has. A future log
    must be told where to go: not where the current one is.
    """
    live = [each for each in roots if each.failure is None]
    named = root
    if named is None and directory_id not in _NOWHERE:
        named = next((each for each in live if each.directory_id == directory_id), None)
    if is_future:
        if named is None:
            raise InvalidRequestError(f"a future log of {partition} goes to a root that is named, and none is")
        if current_root is None:
            raise InvalidRequestError(f"{partition} has no log that a future one could replace")
        if named is current_root:
            raise InvalidRequestError(f"the log of {partition} is in {named.path} already")
    if named is not None:
        if named.failure is not None:
            raise StorageError(f"{named.path} is offline, so {partition} cannot be there: {named.failure}")
        return [named]
    return sorted(live, key=lambda each: each.log_count)
