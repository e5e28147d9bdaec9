"""`cleaner-offset-checkpoint` of every root: up to which offset each partition is clean.

A file is always rewritten as a whole: the entries of others stay, those of partitions that no longer exist go. What the
disk refuses, and a file that is not of its form, fail the root. That there is no file to be opened just now fails
nothing and is raised: it can be asked again.

Kafka: LogCleanerManager, OffsetCheckpointFile.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager

from tidelog.errors import CheckpointError, InvalidRequestError, StorageError, TooManyFilesError
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.names import TopicPartition

__all__ = ["CleanerCheckpoints"]


class CleanerCheckpoints:
    """The checkpoints of the roots that have not failed. `partitions` are those that exist."""

    def __init__(
        self,
        checkpoints: Mapping[str, OffsetCheckpoint],
        partitions: Container[TopicPartition],
        on_failure: Callable[[str, StorageError], None],
    ) -> None:
        self._checkpoints = dict(checkpoints)
        self._failed: set[str] = set()
        self._partitions = partitions
        self._on_failure = on_failure

    def has_failed(self, root: str) -> bool:
        """Whether a root is not to be touched any more."""
        return root in self._failed

    def _is_usable(self, root: str) -> bool:
        """Whether a root has not failed; raises InvalidRequestError for a path that is none."""
        if root not in self._checkpoints and root not in self._failed:
            raise InvalidRequestError(f"{root} is no root that the cleaner knows")
        return root in self._checkpoints

    def forget(self, root: str) -> None:
        """Never touch the file of a root again."""
        self._checkpoints.pop(root, None)
        self._failed.add(root)

    def read_all(self) -> dict[TopicPartition, int]:
        """The first dirty offsets of all roots that can be read."""
        return {partition: offset for root in list(self._checkpoints) for partition, offset in self.read(root).items()}

    def read(self, root: str) -> dict[TopicPartition, int]:
        """The first dirty offsets of a root; none if it failed."""
        if self._is_usable(root):
            with self._or_failed(root):
                return self._checkpoints[root].read()
        return {}

    def update(
        self, root: str, *, add: tuple[TopicPartition, int] | None = None, remove: TopicPartition | None = None
    ) -> None:
        """Rewrite the file of a root with one entry set, or without one."""
        if not self._is_usable(root):
            return
        with self._or_failed(root):
            checkpoint = self._checkpoints[root]
            offsets = {
                partition: offset
                for partition, offset in checkpoint.read().items()
                if partition in self._partitions and partition != remove
            }
            checkpoint.write(offsets if add is None else {**offsets, add[0]: add[1]})

    def lower(self, root: str, partition: TopicPartition, offset: int) -> None:
        """Lower the entry of a partition to `offset`, if it is above: what lay there was cut."""
        if not self._is_usable(root):
            return
        with self._or_failed(root):
            checkpoint = self._checkpoints[root]
            offsets = checkpoint.read()
            if offsets.get(partition, offset) > offset:
                checkpoint.write({**offsets, partition: offset})

    def move(self, partition: TopicPartition, from_root: str, to_root: str) -> None:
        """Take the entry of a partition, if it has one, from one root to another."""
        offset = self.read(from_root).get(partition)
        if offset is not None:
            self.update(from_root, remove=partition)
            self.update(to_root, add=(partition, offset))

    @contextmanager
    def _or_failed(self, root: str) -> Iterator[None]:
        """Whatever the disk refuses inside fails the root."""
        try:
            yield
        except TooManyFilesError:
            raise
        except StorageError as error:
            self._on_failure(root, error)
        except CheckpointError as error:
            self._on_failure(root, StorageError(str(error)))
