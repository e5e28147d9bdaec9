"""Which batches of a window a scan wants, and which rows of those.

Headers decide about whole batches, before anything is decompressed: control batches are never rows, transactions that
were aborted are left out, and so is what lies beside the offsets and before the times wanted. Only where a batch lies
across a bound, or a key or a time is asked for, are rows looked at one by one, all at once in Arrow's memory.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.columns.schema import TimestampUnit
from tidelog.kernels.headers import HeaderScan, Seen
from tidelog.log.batch_info import CONTROL, TRANSACTIONAL
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.view.request import RowChoice

__all__ = ["BatchChoice", "BoolArray", "ChosenBatches", "Int64Array", "last_offsets", "wanted_rows"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

_CODEC, _APPEND_TIME = 0x07, 0x08
_BEFORE_ALL = -(2**63)


class ChosenBatches(NamedTuple):
    """Batches that may hold rows, and whether some of their rows lie outside."""

    scan: HeaderScan
    has_edges: bool


class BatchChoice:
    """Chooses batches by their headers."""

    def __init__(self, limit_offset: int, aborted: Iterable[AbortedTxnEntry], rows: RowChoice) -> None:
        self._limit = limit_offset
        self._aborted = _by_producer(aborted)
        self._rows = rows

    def choose(self, scan: HeaderScan, first_offset: int) -> ChosenBatches:
        """The batches of a window that can hold rows from an offset on."""
        last = last_offsets(scan)
        first = _first_offsets(scan)
        wanted = (last >= first_offset) & (first < self._limit) & ~self._is_left_out(scan, first, last)
        is_inside = (first >= first_offset) & (last < self._limit)
        return ChosenBatches(scan if wanted.all() else scan.pick(wanted), bool((wanted & ~is_inside).any()))

    def _is_left_out(self, scan: HeaderScan, first: Int64Array, last: Int64Array) -> BoolArray:
        attributes = np.where(scan.is_legacy, 0, scan.rows["attributes"])
        left_out: BoolArray = attributes & CONTROL != 0
        if self._aborted:
            left_out |= (attributes & TRANSACTIONAL != 0) & self._is_aborted(scan, first, last)
        if self._rows.from_time_ms is not None:
            left_out |= _largest_times(scan) < self._rows.from_time_ms
        if self._rows.to_time_ms is not None:
            # Only times that a broker gave are the same for all records of a batch.
            left_out |= (attributes & _APPEND_TIME != 0) & (scan.rows["max_timestamp_ms"] >= self._rows.to_time_ms)
        return left_out

    def _is_aborted(self, scan: HeaderScan, first: Int64Array, last: Int64Array) -> BoolArray:
        """Whether a batch lies in an aborted transaction of its producer: before its marker, not before it began.

        The transactions of one producer follow each other, so the one whose marker comes next is the only candidate.
        """
        producers = scan.rows["producer_id"].astype(np.int64)
        aborted: BoolArray = np.zeros(len(producers), np.bool_)
        for producer in np.unique(producers).tolist():
            if producer not in self._aborted:
                continue
            begins, markers = self._aborted[producer]
            where = np.flatnonzero(producers == producer)
            following = np.searchsorted(markers, first[where], "right")
            is_in_one = following < len(markers)
            where, following = where[is_in_one], following[is_in_one]
            aborted[where] = begins[following] <= last[where]
        return aborted


def _by_producer(aborted: Iterable[AbortedTxnEntry]) -> dict[int, tuple[Int64Array, Int64Array]]:
    """First offsets and markers of the transactions of each producer, in the order of the markers."""
    found: dict[int, list[tuple[int, int]]] = {}
    for entry in aborted:
        found.setdefault(entry.producer_id, []).append((entry.last_offset, entry.first_offset))
    return {
        producer: (
            np.array([first for _, first in sorted(entries)], np.int64),
            np.array([marker for marker, _ in sorted(entries)], np.int64),
        )
        for producer, entries in found.items()
    }


def last_offsets(scan: HeaderScan) -> Int64Array:
    """The last offset of each batch."""
    first = scan.rows["base_offset"].astype(np.int64)
    last = first + scan.rows["last_offset_delta"]
    return np.where(scan.is_legacy, first, last) if scan.seen & Seen.LEGACY else last


def _first_offsets(scan: HeaderScan) -> Int64Array:
    """The first offset of each batch, or one before it: where a wrapper of the old formats begins it does not tell."""
    first: Int64Array = scan.rows["base_offset"].astype(np.int64)
    if scan.seen & Seen.LEGACY:
        is_wrapper = scan.is_legacy & (scan.legacy["attributes"] & _CODEC != 0)
        first = np.where(is_wrapper, _BEFORE_ALL, first)
    return first


def _largest_times(scan: HeaderScan) -> Int64Array:
    """A time that no record of a batch exceeds. A wrapper of the old formats does not tell."""
    times = scan.rows["max_timestamp_ms"].astype(np.int64)
    if scan.seen & Seen.LEGACY:
        legacy = scan.legacy
        single = np.where(legacy["magic"] == 0, -1, legacy["timestamp_ms"].astype(np.int64))
        of_legacy = np.where(legacy["attributes"] & _CODEC != 0, np.iinfo(np.int64).max, single)
        times = np.where(scan.is_legacy, of_legacy, times)
    return times


def wanted_rows(
    batch: pa.RecordBatch, choice: RowChoice, offsets: tuple[int, int] | None, unit: TimestampUnit
) -> pa.RecordBatch:
    """The rows that are asked for, of a RecordBatch that has the columns to tell; `offsets` are [first, limit)."""
    wanted = np.ones(batch.num_rows, np.bool_)
    if offsets is not None:
        column = batch.column("offset").to_numpy()
        wanted &= (column >= offsets[0]) & (column < offsets[1])
    ticks = 1 if unit == "ms" else 1000
    if choice.from_time_ms is not None:
        wanted &= batch.column("timestamp").view(pa.int64()).to_numpy() >= choice.from_time_ms * ticks
    if choice.to_time_ms is not None:
        wanted &= batch.column("timestamp").view(pa.int64()).to_numpy() < choice.to_time_ms * ticks
    if choice.key is not None:
        is_key = pc.equal(batch.column("key"), pa.scalar(choice.key, pa.binary()))
        wanted &= is_key.fill_null(False).to_numpy(zero_copy_only=False)
    return _picked(batch, wanted)


def _picked(batch: pa.RecordBatch, wanted: BoolArray) -> pa.RecordBatch:
    """The rows of a mask, without a copy where they are neighbours."""
    rows = np.flatnonzero(wanted)
    if len(rows) == batch.num_rows:
        return batch
    if not len(rows) or int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return batch.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return batch.filter(pa.array(wanted))
