"""Which batches of Spark's streams are committed: the last one of each query, in a small file of the root.

A stream that is started again may write a batch once more that was committed already: what it knows of its sink is its
own checkpoint, which is behind. The id of a query stays the same for the life of its checkpoint, and its batches are
numbered; so one number for each query tells what is not to be written again.
"""

import json
from typing import NamedTuple

from tidelog.errors import CheckpointError
from tidelog.log.files import FileSystem, join, read_whole, write_atomically
from tidelog.log.names import COMMITTED_BATCHES

__all__ = ["BatchKey", "CommittedBatches"]

_VERSION = 0


class BatchKey(NamedTuple):
    """A batch of a stream."""

    query: str
    batch: int


class CommittedBatches:
    """The file. Whoever uses it has the lock of the root."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self.path = join(root, COMMITTED_BATCHES)
        self._fs = fs

    def read(self) -> dict[str, int]:
        """The last batch by query."""
        if self._fs.stat(self.path) is None:
            return {}
        try:
            content = json.loads(read_whole(self._fs, self.path))
            if content["version"] != _VERSION:
                raise ValueError("another version")
            return {str(query): int(batch) for query, batch in content["batches"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"{self.path} is no list of committed batches that this release can read ({error})"
            ) from None

    def holds(self, key: BatchKey) -> bool:
        """Whether a batch is committed."""
        return self.read().get(key.query, -1) >= key.batch

    def note(self, key: BatchKey) -> None:
        """Write down that a batch is committed."""
        batches = self.read()
        if batches.get(key.query, -1) < key.batch:
            content = {"version": _VERSION, "batches": batches | {key.query: key.batch}}
            write_atomically(self._fs, self.path, json.dumps(content).encode())
