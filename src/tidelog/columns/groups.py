"""Neighbouring batches that become one RecordBatch.

Two kinds, version 2 batches and legacy entries, with the same face: how many records each batch holds, the columns of
the records, and the values that all records of a batch share. Groups are cut so that a RecordBatch stays below a
number of rows and of bytes; bodies are opened (decompressed) group by group, so memory stays bounded too.
"""

from collections.abc import Iterator, Set
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.columns import batch_columns
from tidelog.columns.arrow_memory import as_numpy
from tidelog.columns.batch_columns import BatchColumns
from tidelog.columns.record_columns import (
    BrokenBatch,
    RecordColumns,
    decode_batch_records,
    decode_message_records,
)
from tidelog.kernels.bodies import Bodies, open_bodies
from tidelog.kernels.headers import HeaderScan
from tidelog.kernels.messages import open_messages
from tidelog.records.batches import Batch, batch_of

__all__ = ["BatchGroup", "BatchGroups", "Group", "MessageGroup", "MessageGroups", "batch_at"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


def batch_at(buffer: Any, scan: HeaderScan, index: int) -> Batch:
    """One batch of a scan, for the readable path."""
    start = int(scan.positions[index])
    return batch_of(memoryview(buffer).cast("B")[start : start + int(scan.sizes[index])])


class _GroupOfBatches:
    """What both kinds share."""

    def __init__(self, buffer: Any, scan: HeaderScan, bodies: Bodies, counts: Int64Array, max_size: int) -> None:
        self.counts = counts
        self.length = int(counts.sum())
        self._buffer = buffer
        self._scan = scan
        self._bodies = bodies
        self._max_size = max_size

    def _explain(self, broken: BrokenBatch) -> None:
        """Let the readable path say what is wrong with a batch that the kernels refuse."""
        batch = batch_at(self._buffer, self._scan, broken.index)
        for _ in batch.records(self._max_size):
            pass
        raise AssertionError(f"{batch}: the kernels refuse records that tidelog.records can read")


class BatchGroup(_GroupOfBatches):
    """Version 2 batches."""

    def decode(self, wanted: Set[str]) -> RecordColumns:
        """The columns of the records."""
        try:
            return decode_batch_records(self._scan.rows, self._bodies, self.counts, wanted)
        except BrokenBatch as broken:
            self._explain(broken)
            raise

    def batch_values(self, name: str, base_position: int) -> np.ndarray[Any, Any]:
        """One value a batch of a column that records have from their batch."""
        if name == "position":
            return self._scan.positions + base_position
        return batch_columns.of_batches(name, self._scan.rows)

    def sequences(self, records: RecordColumns, repeated: BatchColumns) -> pa.Array:
        """Base sequence + offset delta, which wraps to 0 behind 2**31 - 1; -1 without a base."""
        bases = self._scan.rows["base_sequence"].astype(np.int64)
        if not self.length or (bases < 0).all():
            return repeated.constant("sequence", -1, self.length)
        base = np.repeat(bases, self.counts)
        first = np.repeat(self._scan.rows["base_offset"].astype(np.int64), self.counts)
        delta = as_numpy(records.offsets, np.int64) - first
        following = base + delta
        # int32 arithmetic as in `records.java.increment_sequence`: both cases that wrap lose 2**31
        following -= ((delta < 0) | (following > 0x7FFFFFFF)).astype(np.int64) << 31
        return pa.array(np.where(base < 0, -1, following).astype(np.int32))


class MessageGroup(_GroupOfBatches):
    """Legacy entries: single messages, and wrappers."""

    def decode(self, wanted: Set[str]) -> RecordColumns:
        """The columns of the records."""
        try:
            return decode_message_records(self._scan.rows, self._bodies, self.counts, wanted)
        except BrokenBatch as broken:
            self._explain(broken)
            raise

    def batch_values(self, name: str, base_position: int) -> np.ndarray[Any, Any]:
        """One value an entry of a column that records have from their entry."""
        if name == "position":
            return self._scan.positions + base_position
        return batch_columns.of_messages(name, self._scan.legacy)

    def sequences(self, records: RecordColumns, repeated: BatchColumns) -> pa.Array:
        """Always -1: sequences came with version 2."""
        return repeated.constant("sequence", -1, self.length)


Group = BatchGroup | MessageGroup


def _cut(counts: Int64Array, sizes: Int64Array, max_rows: int, max_bytes: int) -> Iterator[slice]:
    """Slices of neighbours within both limits, of one batch at least, and of about equal size.

    Equal shares matter: a chunk of 34,000 rows cut at 32,768 would pay for a second group that is nearly empty.
    """
    if not len(counts):
        return
    total_rows, total_size = int(counts.sum()), int(sizes.sum())
    parts = max(-(-total_rows // max_rows), -(-total_size // max_bytes))
    if parts <= 1:
        yield slice(0, len(counts))
        return
    rows, size = counts.cumsum(), sizes.cumsum()
    max_rows = min(max_rows, total_rows // parts + int(counts.max()))
    max_bytes = min(max_bytes, total_size // parts + int(sizes.max()))
    first = 0
    while first < len(counts):
        rows_before, size_before = (rows[first - 1], size[first - 1]) if first else (0, 0)
        last = min(
            int(np.searchsorted(rows, rows_before + max_rows, "right")),
            int(np.searchsorted(size, size_before + max_bytes, "right")),
        )
        last = max(last, first + 1)
        yield slice(first, last)
        first = last


class BatchGroups:
    """The groups of a run of version 2 batches.

    They are cut twice: by the sizes that the headers tell, then, where there was something to decompress, by the
    sizes that came out.
    """

    def __init__(self, buffer: Any, scan: HeaderScan, max_rows: int, max_bytes: int, max_size: int) -> None:
        self._buffer, self._scan, self._max_size = buffer, scan, max_size
        self._max_rows, self._max_bytes = max_rows, max_bytes

    def __iter__(self) -> Iterator[BatchGroup]:
        counts = self._scan.rows["records_count"].astype(np.int64)
        np.maximum(counts, 0, out=counts)  # a negative count is refused when its batch is decoded
        for outer in _cut(counts, self._scan.sizes, self._max_rows, self._max_bytes):
            part = self._scan.pick(outer)
            bodies = open_bodies(self._buffer, part.rows, part.positions, max_size=self._max_size)
            if bodies.are_stored:
                yield BatchGroup(self._buffer, part, bodies, counts[outer], self._max_size)
                continue
            for inner in _cut(counts[outer], bodies.sizes, self._max_rows, self._max_bytes):
                yield BatchGroup(
                    self._buffer, part.pick(inner), bodies.pick(inner), counts[outer][inner], self._max_size
                )


class MessageGroups:
    """The groups of a run of legacy entries. Only the content of a wrapper tells how many records it holds."""

    def __init__(self, buffer: Any, scan: HeaderScan, max_rows: int, max_bytes: int, max_size: int) -> None:
        self._buffer, self._scan, self._max_size = buffer, scan, max_size
        self._max_rows, self._max_bytes = max_rows, max_bytes

    def __iter__(self) -> Iterator[MessageGroup]:
        at_least_one = np.ones(len(self._scan.rows), np.int64)
        for outer in _cut(at_least_one, self._scan.sizes, self._max_rows, self._max_bytes):
            part = self._scan.pick(outer)
            bodies, counts = open_messages(self._buffer, part, max_size=self._max_size)
            for inner in _cut(counts, bodies.sizes, self._max_rows, self._max_bytes):
                yield MessageGroup(self._buffer, part.pick(inner), bodies.pick(inner), counts[inner], self._max_size)
