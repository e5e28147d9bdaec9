"""Neighbouring batches that become one RecordBatch.

Two kinds, version 2 batches and legacy entries, with the same face: how many records each batch holds, the columns of
the records, and the values that all records of a batch share. Groups are cut so that a RecordBatch stays below a
number of rows and of bytes; bodies are opened (decompressed) group by group, so memory stays bounded too.
"""

from collections.abc import Iterator, Set
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from tidelog.columns import batch_columns
from tidelog.columns.arrow_memory import as_numpy
from tidelog.columns.batch_columns import BatchColumns
from tidelog.columns.record_columns import RecordColumns, decode_batch_records, decode_message_records
from tidelog.errors import TidelogError
from tidelog.kernels.bodies import Bodies, Int64Array, open_bodies
from tidelog.kernels.headers import Checksum, HeaderScan, Seen
from tidelog.kernels.messages import open_messages

__all__ = ["BatchGroup", "Group", "MessageGroup", "Stretch", "groups_of"]


class Stretch(NamedTuple):
    """Bytes of a log, and where they stand in their file."""

    buffer: Any
    base_position: int
    max_decompressed: int
    verify: bool  # compare checksums that are not known yet

    def explain(self, scan: HeaderScan, index: int) -> NoReturn:
        """Let the readable path say what is wrong with a batch that the kernels refuse, and add the position."""
        try:
            batch = scan.batch_in(self.buffer, index)
            if self.verify or scan.checksums[index] == Checksum.WRONG:
                batch.ensure_valid()
            for _ in batch.records(self.max_decompressed):
                pass
        except TidelogError as error:
            raise type(error)(f"position {self.base_position + int(scan.positions[index])}: {error}") from None
        raise AssertionError(f"{batch}: the kernels refuse what tidelog.records can read")


class _GroupOfBatches:
    """What both kinds share. `length` is the number of records."""

    def __init__(self, stretch: Stretch, scan: HeaderScan, bodies: Bodies, length: int) -> None:
        self.length = length
        self._stretch = stretch
        self._scan = scan
        self.bodies = bodies

    def positions(self) -> Int64Array:
        """Of each batch in its file."""
        return self._scan.positions + self._stretch.base_position

    def explain(self, index: int) -> NoReturn:
        """Raise what is wrong with a batch that could not be decoded."""
        self._stretch.explain(self._scan, index)


class BatchGroup(_GroupOfBatches):
    """Version 2 batches."""

    @cached_property
    def counts(self) -> Int64Array:
        """Records of each batch. A negative count is none here, and is refused when its batch is decoded."""
        return _counts(self._scan)

    def pick(self, which: slice) -> "BatchGroup":
        """Some of the batches."""
        scan = self._scan.pick(which)
        return BatchGroup(self._stretch, scan, self.bodies.pick(which), int(_counts(scan).sum()))

    def decode(self, wanted: Set[str]) -> RecordColumns:
        """The columns of the records; BrokenBatch where one cannot be decoded."""
        verify = self._stretch.verify and not self._scan.seen & Seen.CHECKED
        return decode_batch_records(self._scan.rows, self.bodies, self.length, wanted, verify=verify)

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

    def __init__(self, stretch: Stretch, scan: HeaderScan, bodies: Bodies, counts: Int64Array) -> None:
        super().__init__(stretch, scan, bodies, int(counts.sum()))
        self.counts = counts

    def pick(self, which: slice) -> "MessageGroup":
        """Some of the entries."""
        return MessageGroup(self._stretch, self._scan.pick(which), self.bodies.pick(which), self.counts[which])

    def decode(self, wanted: Set[str]) -> RecordColumns:
        """The columns of the records; BrokenBatch where one cannot be decoded."""
        return decode_message_records(self._scan.rows, self.bodies, self.length, wanted)

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


def _counts(scan: HeaderScan) -> Int64Array:
    counts: Int64Array = np.maximum(scan.rows["records_count"], 0).astype(np.int64)
    return counts


def groups_of(stretch: Stretch, run: HeaderScan, max_rows: int, max_bytes: int) -> Iterator[Group]:
    """The groups of a run of version 2 batches, or of legacy entries.

    They are cut twice: by the sizes that the headers tell, then, where something was decompressed, by the sizes that
    came out. A batch that cannot be opened raises its error once those before it have been delivered.
    """
    for part in _parts(run, max_rows, max_bytes):
        rest = part
        while len(rest.rows):
            group = _open(stretch, rest)
            if group.bodies.were_compressed:
                for inner in _cut(group.counts, group.bodies.sizes, max_rows, max_bytes):
                    yield group.pick(inner)
            else:
                yield group
            if group.bodies.broken is not None:
                stretch.explain(rest, group.bodies.broken)
            opened = len(group.bodies.table)
            rest = rest.pick(slice(opened, None)) if opened < len(rest.rows) else rest.pick(slice(0))


def _open(stretch: Stretch, part: HeaderScan) -> Group:
    """The batches at the beginning of `part` whose bodies could be opened at once: all, as a rule."""
    if part.seen & Seen.LEGACY and part.rows["magic"][0] < 2:
        bodies, counts = open_messages(stretch.buffer, part, max_size=stretch.max_decompressed)
        return MessageGroup(stretch, part.first(len(bodies.table)), bodies, counts)
    bodies = open_bodies(stretch.buffer, part, max_size=stretch.max_decompressed)
    opened = part.first(len(bodies.table))
    length = int(_counts(opened).sum()) if opened.records is None else opened.records
    return BatchGroup(stretch, opened, bodies, length)


def _parts(run: HeaderScan, max_rows: int, max_bytes: int) -> Iterator[HeaderScan]:
    """A run cut by what its headers tell; most often it is one part, and then nothing is computed."""
    if run.records is not None and run.records <= max_rows and not run.seen & Seen.LEGACY:
        size = int(run.positions[-1]) - int(run.positions[0]) + int(run.rows["batch_length"][-1])
        if size <= max_bytes:
            yield run
            return
    # Only its content tells how many records a legacy wrapper holds.
    counts = np.where(run.is_legacy, 1, _counts(run))
    for which in _cut(counts, run.sizes, max_rows, max_bytes):
        yield run.pick(which)
