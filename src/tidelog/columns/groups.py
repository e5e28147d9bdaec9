"""Neighbouring batches that become one RecordBatch.

Two kinds, version 2 batches and legacy entries, with the same face: how many records each batch holds, the columns of
the records, and the values that all records of a batch share. Groups are cut so that a RecordBatch stays below a
number of rows and of bytes; bodies are opened (decompressed) group by group, so memory stays bounded too.
"""

from collections.abc import Iterator, Set
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa

from tidelog.columns import batch_columns
from tidelog.columns.arrow_memory import as_numpy
from tidelog.columns.batch_columns import BatchColumns
from tidelog.columns.record_columns import RecordColumns, decode_batch_records, decode_message_records
from tidelog.errors import TidelogError
from tidelog.kernels.bodies import Bodies, Int64Array, open_bodies
from tidelog.kernels.headers import Checksum, HeaderScan
from tidelog.kernels.messages import open_messages

__all__ = ["BatchGroup", "Group", "MessageGroup", "Stretch", "groups_of"]


class Stretch(NamedTuple):
    """Bytes of a log, and where they stand in their file."""

    buffer: Any
    base_position: int
    max_decompressed: int

    def explain(self, scan: HeaderScan, index: int) -> NoReturn:
        """Let the readable path say what is wrong with a batch that the kernels refuse, and add the position."""
        try:
            batch = scan.batch_in(self.buffer, index)
            if scan.checksums[index] == Checksum.WRONG:
                batch.ensure_valid()
            for _ in batch.records(self.max_decompressed):
                pass
        except TidelogError as error:
            raise type(error)(f"position {self.base_position + int(scan.positions[index])}: {error}") from None
        raise AssertionError(f"{batch}: the kernels refuse what tidelog.records can read")


class _GroupOfBatches:
    """What both kinds share."""

    def __init__(self, stretch: Stretch, scan: HeaderScan, bodies: Bodies, counts: Int64Array) -> None:
        self.counts = counts
        self.length = int(counts.sum())
        self._stretch = stretch
        self._scan = scan
        self._bodies = bodies

    def pick(self, which: slice) -> Self:
        """Some of the batches."""
        return type(self)(self._stretch, self._scan.pick(which), self._bodies.pick(which), self.counts[which])

    def positions(self) -> Int64Array:
        """Of each batch in its file."""
        return self._scan.positions + self._stretch.base_position

    def explain(self, index: int) -> NoReturn:
        """Raise what is wrong with a batch that could not be decoded."""
        self._stretch.explain(self._scan, index)


class BatchGroup(_GroupOfBatches):
    """Version 2 batches."""

    def decode(self, wanted: Set[str]) -> RecordColumns:
        """The columns of the records; BrokenBatch where one cannot be decoded."""
        return decode_batch_records(self._scan.rows, self._bodies, self.counts, wanted)

    def batch_values(self, name: str) -> np.ndarray[Any, Any]:
        """One value a batch of a column that records have from their batch."""
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
        """The columns of the records; BrokenBatch where one cannot be decoded."""
        return decode_message_records(self._scan.rows, self._bodies, self.counts, wanted)

    def batch_values(self, name: str) -> np.ndarray[Any, Any]:
        """One value an entry of a column that records have from their entry."""
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


def groups_of(stretch: Stretch, run: HeaderScan, max_rows: int, max_bytes: int) -> Iterator[Group]:
    """The groups of a run of version 2 batches, or of legacy entries.

    They are cut twice: by the sizes that the headers tell, then, where something was decompressed, by the sizes that
    came out. A batch that cannot be opened raises its error once those before it have been delivered.
    """
    is_legacy = bool(run.rows["magic"][0] < 2)
    # Only its content tells how many records a legacy wrapper holds; a negative count is refused when decoding.
    counts = (
        np.ones(len(run.rows), np.int64) if is_legacy else np.maximum(run.rows["records_count"], 0).astype(np.int64)
    )
    for outer in _cut(counts, run.sizes, max_rows, max_bytes):
        part = run.pick(outer)
        if is_legacy:
            bodies, opened = open_messages(stretch.buffer, part, max_size=stretch.max_decompressed)
            whole: Group = MessageGroup(stretch, part.pick(slice(bodies.broken)), bodies, opened)
        else:
            bodies = open_bodies(stretch.buffer, part.rows, part.positions, max_size=stretch.max_decompressed)
            whole = BatchGroup(stretch, part.pick(slice(bodies.broken)), bodies, counts[outer][: bodies.broken])
        if bodies.were_compressed:
            for inner in _cut(whole.counts, bodies.sizes, max_rows, max_bytes):
                yield whole.pick(inner)
        else:
            yield whole
        if bodies.broken is not None:
            stretch.explain(part, bodies.broken)
