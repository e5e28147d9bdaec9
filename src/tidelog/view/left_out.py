"""The bytes after the last readable batch of a log, described for a person.

An incomplete or failing batch at the very end of the active segment is the end of the log, not corruption: a broker
that crashed leaves one, and so does a broker that is just writing. Readers stop before it. A user who copies the data
elsewhere should still learn that there was more.

Zeros there are no batch at all. A broker with `preallocate=true` writes them before there are records, and a crash may
leave them in place of records: the bytes do not tell which.
"""

from typing import NamedTuple

__all__ = ["LeftOut", "Zeros"]


class LeftOut(NamedTuple):
    """Bytes at the end of a partition that readers leave out."""

    path: str  # of the active segment's log
    position: int
    size: int
    offset: int  # the first that is left out
    problem: str | None  # what is wrong with the first batch of them; None if the file ends inside it

    @property
    def is_incomplete(self) -> bool:
        """Whether a writer that is at work may have left it so."""
        return self.problem is None

    def __str__(self) -> str:
        what = self.problem or f"{self.path}, position {self.position}: the file ends inside a batch"
        return f"{what}: these {self.size} bytes are left out, which held offset {self.offset} and what follows it"


class Zeros(NamedTuple):
    """Zeros at the end of a partition."""

    path: str  # of the active segment's log
    position: int
    size: int
    offset: int  # the first that they may have held
    are_records: bool  # whether a checkpoint knows that there were records

    def __str__(self) -> str:
        after = f"follow offset {self.offset - 1}" if self.position else "and no batch"
        where = f"{self.path}, position {self.position}: {self.size} bytes of zeros {after}"
        held = f"held offset {self.offset} and what follows it"
        return f"{where}; they {held}" if self.are_records else f"{where}; they were preallocated, or {held}"
