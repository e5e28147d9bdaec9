"""Who appends, which decides what is checked and who assigns offsets."""

from enum import Enum

__all__ = ["AppendOrigin"]


class AppendOrigin(Enum):
    """The four ways by which batches reach a log."""

    CLIENT = "client"  # a producer: everything is checked, offsets are assigned
    COORDINATOR = "coordinator"  # group and transaction coordinators: no sequence checks, offsets are assigned
    REPLICATION = "replication"  # a leader's bytes on a follower: taken as they are
    RAFT_LEADER = "raft leader"  # the metadata log: offsets are given, the epoch must be the leader's

    @property
    def assigns_offsets(self) -> bool:
        return self is AppendOrigin.CLIENT or self is AppendOrigin.COORDINATOR
