"""An offset checkpoint of a root: all logs of the root in one file, written by whoever has time to wait for the disk.

What is in the file matters beyond the next start: a recovery point in it must not be above what a truncation has left,
and an entry of a log that is gone must not be taken for one of its successor. So what was written is remembered.

Kafka: OffsetCheckpointFile and LazyOffsetCheckpoints.
"""

import threading
from collections.abc import Callable, Mapping

from tidelog.errors import CheckpointError
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.names import TopicPartition

__all__ = ["RootCheckpoint"]


class RootCheckpoint:
    """The file, and what is in it. Read when somebody first asks, and once; written as a whole."""

    def __init__(self, file: OffsetCheckpoint) -> None:
        self.file = file
        self._entries: Mapping[TopicPartition, int] | None = None
        self._lock = threading.Lock()
        self._asked = 0  # how often somebody asked for a write
        self._written = 0  # and which of these the file holds
        self._is_stopped = False

    def load(self) -> CheckpointError | None:
        """Read the file, which is created empty if it is missing. One that is not of its form holds no entries, and
        what is wrong with it is given back.

        If the disk refuses, nothing is known of the entries: whoever asks for them, a stop for instance, reads the file
        again rather than write an empty one.
        """
        self.file.create()
        try:
            self._entries = self.file.read()
        except CheckpointError as error:
            self._entries = {}
            return error
        return None

    @property
    def entries(self) -> Mapping[TopicPartition, int]:
        """What is in the file. Raises CheckpointError, if it is not of its form and nobody has looked at it before."""
        if self._entries is None:
            self._entries = self.file.read()
        return self._entries

    def get(self, partition: TopicPartition) -> int | None:
        """The entry of a partition; None if it is not listed."""
        return self.entries.get(partition)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file."""
        self.later(offsets)()

    def later(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """What replaces the file, to be called at any time and in any thread.

        It does nothing when offsets that were asked for later are in the file by then, and after `stop`.
        """
        self._asked += 1
        number = self._asked

        def write() -> None:
            with self._lock:
                if number > self._written and not self._is_stopped:
                    self.file.write(offsets)
                    self._entries = offsets
                    self._written = number

        return write

    def supersede(self) -> None:
        """Let what was asked for and is not written yet be forgotten: it is about to be wrong."""
        with self._lock:  # one that is being written ends first
            self._written = self._asked

    def stop(self) -> None:
        """Write no more: the root has failed, and may be somebody else's. Waits for nobody."""
        self._is_stopped = True
