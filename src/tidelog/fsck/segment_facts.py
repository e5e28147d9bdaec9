"""What is known of a `.log` file once it was read: its indexes and snapshots are compared with these facts."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from tidelog.kernels.record_walk import COLUMNS
from tidelog.log.batch_info import BatchInfo
from tidelog.records.batch import MAGIC
from tidelog.records.control import EndTxnMarker

__all__ = ["Batches", "Damage", "ProducerStep", "RightBytes", "SegmentFacts", "span_of"]

_NUMBER_OF = {name: number for number, name in enumerate(COLUMNS)}
_HAS_DELETE_HORIZON = 0x40


Mask = np.ndarray[Any, np.dtype[Any]]


class Batches:
    """Sound batches in the order of the file, a column of numbers for each thing that is known of them: COLUMNS.

    Taken by a name it is a column; by a number, a slice or a mask it is one batch or some of them, of which columns are
    made when they are asked for.
    """

    __slots__ = ("_columns", "_reached", "_which")

    def __init__(self, columns: Any, which: Any = None) -> None:
        self._columns = columns  # one row per name
        self._which = which
        self._reached: Any = None

    @classmethod
    def joined(cls, parts: "list[Any]") -> "Batches":
        """The batches of several tables of columns, one after the other."""
        if len(parts) == 1:
            return cls(parts[0])
        return cls(np.concatenate(parts, axis=1) if parts else np.empty((len(COLUMNS), 0), np.int64))

    @property
    def columns(self) -> Any:
        """A row of numbers for each name."""
        return self._columns if self._which is None else self._columns[:, self._which]

    @property
    def reached(self) -> Any:
        """For each batch, the largest last offset up to and including it. Computed once: many findings need it."""
        if self._reached is None:
            self._reached = np.maximum.accumulate(self["last"])
        return self._reached

    def __len__(self) -> int:
        return len(self["position"])

    @overload
    def __getitem__(self, what: str) -> Any: ...

    @overload
    def __getitem__(self, what: "int | slice | Mask") -> "Batches": ...

    def __getitem__(self, what: "str | int | slice | Mask") -> Any:
        if isinstance(what, str):
            column = self._columns[_NUMBER_OF[what]]
            return column if self._which is None else column[self._which]
        if self._which is None and isinstance(what, np.ndarray) and what.shape == self._columns[0].shape and what.all():
            return self
        return Batches(self._columns, what if self._which is None else self._numbers()[what])

    def __iter__(self) -> "Iterator[Batches]":
        return (Batches(self._columns, number) for number in self._numbers().tolist())

    def _numbers(self) -> Any:
        """Which columns' entries these batches are."""
        numbers = np.arange(self._columns.shape[1])
        return numbers if self._which is None else numbers[self._which]


def span_of(batch: Batches) -> int:
    """How far the last offset of one batch is after its first, also where 64 bits do not hold the last."""
    return (int(batch["last"]) - int(batch["first"])) % (1 << 64)


class RightBytes(NamedTuple):
    """What must be written into the header of a damaged batch."""

    at: int  # from the start of the batch
    data: bytes
    why: str  # what becomes what
    offset: int = -1  # that stands there, if more of the header is damaged than its version
    span: int = -1  # how far the last offset of the batch is after its first
    is_overwritten: bool = False  # several fields are damaged, so nothing before them can be believed
    missing: int = 0  # so many bytes of the header are not there: `data` is longer than what it replaces,
    known: bytes = b""  # and of the offset, which is not known, these are left;
    epochs: tuple[int, ...] = ()  # the leader epoch is one of these, the likeliest first
    is_zeroed: bool = False  # the offset and the length are zero, and so would be whatever was there


class Damage(NamedTuple):
    """Bytes that are no sound batch."""

    position: int
    size: int
    code: str
    why: str
    right: "RightBytes | None" = None  # with which it would be a sound batch

    @property
    def end(self) -> int:
        return self.position + self.size


class ProducerStep(NamedTuple):
    """A batch that changes what is known of producers."""

    batch: BatchInfo
    marker: EndTxnMarker | None


class SegmentFacts:
    """What lies in a `.log` file."""

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.batches = Batches.joined([])
        self.damage: list[Damage] = []
        self.buried: list[Sequence[int]] = []  # sound batches inside of damaged ones, a row of COLUMNS each
        self.remarks: list[tuple[int, str, str]] = []  # on batches that are kept: position, code and words
        self.steps: list[ProducerStep] = []
        self.records = 0
        self.has_producers = False
        self.is_unread = False  # the file is there, and nothing is known of what it holds

    def unbury(self, row: Sequence[int]) -> None:
        """Take a batch that lies inside of damage for one that belongs to the log: the damage ends where it begins."""
        position, end = row[0], row[0] + row[1]
        columns = np.concatenate([self.batches.columns, np.array(row, np.int64).reshape(-1, 1)], axis=1)
        self.batches = Batches(columns[:, np.argsort(columns[0], kind="stable")])
        rest = []
        for damage in self.damage:
            if damage.position <= position and end <= damage.end:
                parts = ((damage.position, position), (end, damage.end))
                rest += [damage._replace(position=low, size=high - low) for low, high in parts if high > low]
            else:
                rest.append(damage)
        self.damage = rest
        self.buried = [other for other in self.buried if other[0] != position]

    @property
    def next_offset(self) -> int:
        """The offset after the last sound batch."""
        return int(self.batches["last"][-1]) + 1 if len(self.batches) else self.base_offset

    @property
    def sound_end(self) -> int:
        """Where the last sound batch ends."""
        return int(self.batches["position"][-1] + self.batches["size"][-1]) if len(self.batches) else 0

    @property
    def max_timestamp_ms(self) -> int:
        return int(self.batches["time"].max()) if len(self.batches) else -1

    @property
    def looks_compacted(self) -> bool:
        """Whether a batch holds fewer records than it was written with."""
        batches = self.batches
        is_short = batches["count"] < batches["last"] - batches["first"] + 1
        is_short |= (batches["attributes"] & _HAS_DELETE_HORIZON) != 0
        return bool((is_short & (batches["magic"] >= MAGIC)).any())
