"""A partition as the metadata of a cluster describes it: its replicas, and who may lead it.

Kafka: PartitionRegistration, and PartitionChangeBuilder for elections.
"""

import uuid
from dataclasses import dataclass, replace
from typing import Any

from tidelog.errors import CorruptionError
from tidelog.log.manager.meta_properties import MIGRATING_DIRECTORY

__all__ = ["NO_LEADER", "Replicas"]

NO_LEADER = -1
_NO_CHANGE_OF_LEADER = -2
_RECOVERY_STATES = (0, 1)
_NO_CHANGE_OF_RECOVERY = -1


@dataclass(frozen=True)
class Replicas:
    """The brokers that hold a partition, the log directory of each, in the same order, and who may lead it."""

    brokers: tuple[int, ...]
    directories: tuple[uuid.UUID, ...]
    leader: int = NO_LEADER
    in_sync: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()  # may lead when nobody is in sync
    last_known: tuple[int, ...] = ()  # who led last, where nobody is eligible

    @classmethod
    def of(cls, record: Any) -> "Replicas":
        """As a PartitionRecord says. Raises CorruptionError for one that Kafka rejects."""
        _ensure_recovery(record.leader_recovery_state, _RECOVERY_STATES)
        return cls(
            tuple(record.replicas), tuple(record.directories), record.leader, tuple(record.isr),
            tuple(record.eligible_leader_replicas or ()), tuple(record.last_known_elr or ()),
        )._with_all_directories()  # fmt: skip

    def changed_by(self, record: Any) -> "Replicas":
        """After a PartitionChangeRecord."""
        _ensure_recovery(record.leader_recovery_state, (*_RECOVERY_STATES, _NO_CHANGE_OF_RECOVERY))
        changes: dict[str, Any] = {
            ours: tuple(getattr(record, theirs))
            for ours, theirs in (
                ("brokers", "replicas"), ("directories", "directories"), ("in_sync", "isr"),
                ("eligible", "eligible_leader_replicas"), ("last_known", "last_known_elr"),
            )
            if getattr(record, theirs) is not None
        }  # fmt: skip
        if record.leader != _NO_CHANGE_OF_LEADER:
            changes["leader"] = record.leader
        return replace(self, **changes)._with_all_directories()

    def without_eligible(self) -> "Replicas":
        """After a ClearElrRecord."""
        return replace(self, eligible=(), last_known=())

    def directory_of(self, broker: int) -> uuid.UUID | None:
        """The directory that the partition is assigned to on a broker; None if there is none."""
        return self.directories[self.brokers.index(broker)] if broker in self.brokers else None

    def is_led_by(self, broker: int, *, is_clean: bool, is_unclean_allowed: bool) -> bool:
        """Whether a broker leads the partition once it has started, if no other broker runs.

        `is_clean` is whether it was stopped in good order: otherwise it is not in sync any more.
        """
        if broker not in self.brokers:
            return False
        if not is_clean:
            return self._after_crash_of(broker).is_led_by(broker, is_clean=True, is_unclean_allowed=is_unclean_allowed)
        if broker in self.in_sync:
            return True
        if self.leader != NO_LEADER:
            return False
        if self.in_sync:
            return is_unclean_allowed
        return broker in self.eligible or is_unclean_allowed or (not self.eligible and self.last_known == (broker,))

    def is_in_doubt(self, broker: int, *, is_clean: bool) -> bool:
        """Whether the order in which a controller looks at things decides who leads: it did not write this itself."""
        is_foreign = not set(self.in_sync) <= set(self.brokers)
        return is_foreign or (not is_clean and broker in self.in_sync and self.leader != broker)

    def _after_crash_of(self, broker: int) -> "Replicas":
        """As a controller changes it when a broker registers that was not stopped in good order."""
        others = [tuple(one for one in brokers if one != broker) for brokers in (self.in_sync, self.eligible)]
        found = replace(self, in_sync=others[0], eligible=others[1])
        if broker not in self.in_sync or self.leader == NO_LEADER:
            return found
        return replace(found, leader=NO_LEADER, last_known=(self.leader,))

    def _with_all_directories(self) -> "Replicas":
        if not self.directories:
            return replace(self, directories=(MIGRATING_DIRECTORY,) * len(self.brokers))
        if len(self.directories) != len(self.brokers):
            there = f"{len(self.brokers)} replicas in {len(self.directories)} directories"
            raise CorruptionError(f"a partition with {there}")
        return self


def _ensure_recovery(state: int, known: tuple[int, ...]) -> None:
    if state not in known:
        raise CorruptionError(f"a leader recovery state {state}")
