"""The records of two logs, compared by offset: what is the same in other batches is the same.

Compression, the bounds of batches, leader epochs and producers do not matter here; key, value, headers and timestamp
do. The markers that end transactions are compared with them: they decide on what a consumer is given.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.columns import ColumnDecoder
from tidelog.fsck.batch_rows import HeaderSource
from tidelog.log.batch_windows import read_windows

__all__ = ["RecordTally", "compare_records", "read_records"]

_COLUMNS = ("offset", "timestamp", "key", "value", "headers", "isControl")
_NOWHERE = 2**63 - 1
_Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass
class RecordTally:
    """How many records two logs have in common."""

    equal: int = 0
    different: int = 0
    only_left: int = 0
    only_right: int = 0
    first_offset: int | None = None  # of a record that has no equal

    @property
    def is_equal(self) -> bool:
        return self.first_offset is None

    def __str__(self) -> str:
        """What differs, in words."""
        if self.different or (self.only_left and self.only_right):
            return f"different records from offset {self.first_offset} on"
        side, count = ("A", self.only_left) if self.only_left else ("B", self.only_right)
        return f"{side} has {count} records more, the first at offset {self.first_offset}; those in both are the same"


def read_records(log: HeaderSource, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The records of a log from `start` to before `end`, as chunks of columns."""
    decoder = ColumnDecoder(list(_COLUMNS))
    for stretch in log.stretches(start, end):
        for window in read_windows(stretch.reader.log.file, stretch.start, stretch.end, fast=True):
            if window.problem is not None:
                raise window.problem
            for batch in decoder.decode(window.data[: window.end - window.position]):
                first, behind = np.searchsorted(_offsets(batch), (start, end))
                yield batch.slice(first, behind - first)


def compare_records(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> RecordTally:
    """Count the records that two logs have in common. Both come in the order of their offsets."""
    tally = RecordTally()
    one, two = _Side(left), _Side(right)
    while one.fill() | two.fill():
        horizon = min(one.horizon, two.horizon)
        _count(tally, one.up_to(horizon), two.up_to(horizon))
    return tally


class _Side:
    """Records that are not counted yet."""

    def __init__(self, chunks: Iterator[pa.RecordBatch]) -> None:
        self._chunks = chunks
        self._known: pa.RecordBatch | None = None

    def fill(self) -> bool:
        """Have records, unless there are none any more; whether there are."""
        while self._known is None or not self._known.num_rows:
            self._known = next(self._chunks, None)
            if self._known is None:
                return False
        return True

    @property
    def horizon(self) -> int:
        """Up to which offset all records are known."""
        return int(_offsets(self._known)[-1]) if self._known is not None else _NOWHERE

    def up_to(self, horizon: int) -> pa.RecordBatch | None:
        """Take the records up to the horizon."""
        if self._known is None:
            return None
        count = int(np.searchsorted(_offsets(self._known), horizon, side="right"))
        taken, self._known = self._known.slice(0, count), self._known.slice(count)
        return taken


def _offsets(batch: pa.RecordBatch | None) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.empty(0, np.int64) if batch is None else batch.column("offset").to_numpy()


def _count(tally: RecordTally, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> None:
    ones, twos = _offsets(left), _offsets(right)
    common = ones
    if not np.array_equal(ones, twos):
        common, at_left, at_right = np.intersect1d(ones, twos, assume_unique=True, return_indices=True)
        only_left, only_right = np.delete(ones, at_left), np.delete(twos, at_right)
        tally.only_left += len(only_left)
        tally.only_right += len(only_right)
        _note(tally, only_left)
        _note(tally, only_right)
        left, right = _taken(left, at_left), _taken(right, at_right)
    if left is not None and right is not None:
        is_same = _equal_rows(left, right)
        tally.equal += int(is_same.sum())
        tally.different += int((~is_same).sum())
        _note(tally, common[~is_same])


def _taken(batch: pa.RecordBatch | None, rows: Any) -> pa.RecordBatch | None:
    return None if batch is None else batch.take(pa.array(rows))


def _note(tally: RecordTally, offsets: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
    """Note the first of some offsets, if it is the first of all."""
    if len(offsets) and (tally.first_offset is None or offsets[0] < tally.first_offset):
        tally.first_offset = int(offsets[0])


def _equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> _Flags:
    """Which rows are equal in every column."""
    is_same = np.ones(left.num_rows, bool)
    for name in _COLUMNS[1:]:
        one, two = left.column(name), right.column(name)
        if one.equals(two):
            continue
        if name == "headers":  # Arrow compares lists as a whole only
            is_same &= np.fromiter(map(_is_equal, one.to_pylist(), two.to_pylist()), bool, left.num_rows)
        else:
            both_null = pc.and_(one.is_null(), two.is_null())
            alike = pc.or_(pc.fill_null(pc.equal(one, two), False), both_null)
            is_same &= alike.to_numpy(zero_copy_only=False)
    return is_same


def _is_equal(one: object, two: object) -> bool:
    return one == two
