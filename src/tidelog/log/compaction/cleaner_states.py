"""What is being done to each partition, so that cleaning, retention, truncation and deletion do not meet in one log.

    nothing ----------> IN_PROGRESS --> nothing       a round, or the deletion of old segments
                            `--> ABORTED --> Paused(1)
    nothing --> Paused(1) <--> Paused(2) ...          retention, truncation and deletion; each resumes what it paused

Kafka: LogCleaningState, LogCleanerManager.
"""

from enum import Enum
from typing import Final, NamedTuple

from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition

__all__ = ["ABORTED", "IN_PROGRESS", "Busy", "CleaningStates", "Paused", "State"]


class Busy(Enum):
    """The states in which somebody has the log."""

    IN_PROGRESS = "in progress"
    ABORTED = "aborted"  # whoever has it is to let go


IN_PROGRESS: Final = Busy.IN_PROGRESS
ABORTED: Final = Busy.ABORTED


class Paused(NamedTuple):
    """Not to be cleaned until everybody who paused it has resumed it."""

    times: int = 1

    def __str__(self) -> str:
        return f"paused {self.times} times"


State = Busy | Paused


class CleaningStates:
    """The state of every partition that has one."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, State] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def get(self, partition: TopicPartition) -> State | None:
        return self._states.get(partition)

    def begin(self, partition: TopicPartition) -> None:
        """Note that somebody has begun to clean a partition, or to delete segments of it."""
        if partition in self._states:
            raise self._refusal(partition, "begun")
        self._states[partition] = IN_PROGRESS

    def pause(self, partition: TopicPartition) -> State:
        """Keep cleaners away, once more; who has it is told to let go. What the state is now."""
        state = self._states.get(partition)
        if state is None:
            paused: State = Paused()
        elif state is IN_PROGRESS:
            paused = ABORTED
        elif isinstance(state, Paused):
            paused = Paused(state.times + 1)
        else:
            raise self._refusal(partition, "aborted and paused")
        self._states[partition] = paused
        return paused

    def resume(self, partition: TopicPartition) -> None:
        """Undo one pause."""
        state = self._states.get(partition)
        if not isinstance(state, Paused):
            raise self._refusal(partition, "resumed")
        if state.times == 1:
            del self._states[partition]
        else:
            self._states[partition] = Paused(state.times - 1)

    def done(self, partition: TopicPartition) -> bool:
        """Let go of a partition; whether nobody has aborted it meanwhile. An aborted one is paused from now on."""
        state = self._states.get(partition)
        if state is IN_PROGRESS:
            del self._states[partition]
            return True
        if state is ABORTED:
            self._states[partition] = Paused()
            return False
        raise self._refusal(partition, "done with")

    def _refusal(self, partition: TopicPartition, what: str) -> InvalidRequestError:
        state = self._states.get(partition)
        told = state.value if isinstance(state, Busy) else state or "not in the hands of the cleaner"
        return InvalidRequestError(f"the cleaning of {partition} cannot be {what}: it is {told}")
