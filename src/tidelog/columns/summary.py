"""What batch headers tell without a look at records: a table of batches, and totals.

Headers of a gigabyte are read in milliseconds, so counting rows, planning splits and finding ranges of offsets and
times never decode a record. Checksums are compared on request, which reads every byte once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.columns.groups import Stretch
from tidelog.kernels.headers import Checksum, HeaderScan, Seen, ensure_not_corrupt, scan_headers
from tidelog.kernels.messages import open_messages
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.java import wrap_int64

__all__ = ["LogSummary", "scan", "summarize"]


def scan(buffer: Any, *, verify: bool = False, base_position: int = 0) -> pa.RecordBatch:
    """The batches of `buffer`, a row each, under the names of the header's fields.

    `count` and `baseOffset` of a legacy wrapper are null: only its content tells. `isValid` is null without `verify`.
    """
    found = scan_headers(buffer, verify=verify)
    ensure_not_corrupt(buffer, found, base_position=base_position)
    return to_arrow(found, base_position=base_position)


def to_arrow(found: HeaderScan, *, base_position: int = 0) -> pa.RecordBatch:
    """A scan as a RecordBatch."""
    rows, legacy, is_legacy = found.rows, found.legacy, found.is_legacy
    is_wrapper = is_legacy & (legacy["attributes"] & 7 != 0)
    attributes = np.where(is_legacy, legacy["attributes"], rows["attributes"])
    base_offset = rows["base_offset"].astype(np.int64)
    last_offset = np.where(is_legacy, base_offset, base_offset + rows["last_offset_delta"])
    legacy_time = np.where(rows["magic"] == 0, -1, legacy["timestamp_ms"])

    def modern(field: str, otherwise: int, dtype: Any) -> np.ndarray[Any, Any]:
        return np.where(is_legacy, otherwise, rows[field]).astype(dtype)

    columns = {
        "position": pa.array(found.positions + base_position),
        "size": pa.array(found.sizes),
        "magic": pa.array(rows["magic"].astype(np.int8)),
        "baseOffset": pa.array(base_offset, mask=is_wrapper),
        "lastOffset": pa.array(last_offset),
        "count": pa.array(modern("records_count", 1, np.int32), mask=is_wrapper),
        "baseTimestamp": pa.array(np.where(is_legacy, legacy_time, rows["base_timestamp_ms"]).astype(np.int64)),
        "maxTimestamp": pa.array(np.where(is_legacy, legacy_time, rows["max_timestamp_ms"]).astype(np.int64)),
        "attributes": pa.array(attributes.astype(np.int16)),
        "leaderEpoch": pa.array(modern("partition_leader_epoch", -1, np.int32)),
        "producerId": pa.array(modern("producer_id", -1, np.int64)),
        "producerEpoch": pa.array(modern("producer_epoch", -1, np.int16)),
        "baseSequence": pa.array(modern("base_sequence", -1, np.int32)),
        "isValid": pa.array(found.checksums == Checksum.RIGHT, mask=found.checksums == Checksum.UNKNOWN),
    }
    return pa.RecordBatch.from_pydict(columns)


@dataclass
class LogSummary:
    """Totals over batches, control batches included. Without batches offsets and times are None."""

    batches: int = 0
    records: int = 0
    size_in_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    min_batch_timestamp_ms: int | None = None  # the smallest of the batches' largest times
    max_timestamp_ms: int | None = None
    wrong_checksums: int | None = None  # None where checksums were not compared
    trailing_bytes: int = 0  # behind the last complete batch of the last stretch

    def add(self, buffer: Any, found: HeaderScan) -> None:
        """Count the batches of one more stretch, which follows those counted so far."""
        self.trailing_bytes = len(memoryview(buffer).cast("B")) - found.end
        sound = found.pick(found.checksums != Checksum.WRONG)
        wrong = len(found.rows) - len(sound.rows)
        if wrong or found.seen & Seen.CHECKED:
            self.wrong_checksums = (self.wrong_checksums or 0) + wrong
        if not len(sound.rows):
            return
        for run in sound.runs():
            if run.rows["magic"][0] < 2:
                self._add_messages(buffer, run)
            else:
                self._add_batches(run)
        self.batches += len(sound.rows)
        self.size_in_bytes += int(sound.sizes.sum())

    def _add_batches(self, run: HeaderScan) -> None:
        base = run.rows["base_offset"].astype(np.int64)
        self.records += int(
            np.maximum(run.rows["records_count"], 0).sum(dtype=np.int64)
        )  # without `verify` a count may lie
        last = wrap_int64(int(base[-1]) + int(run.rows["last_offset_delta"][-1]))
        self._extend(int(base[0]), last, run.rows["max_timestamp_ms"])

    def _add_messages(self, buffer: Any, run: HeaderScan) -> None:
        rest = run
        while len(rest.rows):
            bodies, counts = open_messages(buffer, rest)
            self.records += int(counts.sum())
            if bodies.broken is not None:
                Stretch(buffer, 0, MAX_DECOMPRESSED_BYTES, verify=False).explain(rest, bodies.broken)
            rest = rest.pick(slice(len(counts), None))
        times = np.where(run.rows["magic"] == 0, -1, run.legacy["timestamp_ms"])
        self._extend(run.batch_in(buffer, 0).base_offset, int(run.legacy["offset"][-1]), times)

    def _extend(self, first: int, last: int, times: np.ndarray[Any, Any]) -> None:
        self.first_offset = first if self.first_offset is None else self.first_offset
        self.last_offset = last
        low, high = int(times.min()), int(times.max())
        self.min_batch_timestamp_ms = min(
            low, low if self.min_batch_timestamp_ms is None else self.min_batch_timestamp_ms
        )
        self.max_timestamp_ms = max(high, high if self.max_timestamp_ms is None else self.max_timestamp_ms)


def summarize(buffers: Iterable[Any], *, verify: bool = False) -> LogSummary:
    """Totals over stretches of log that follow each other; a length that no batch can have raises CorruptRecordError.

    >>> from tidelog.records import NewRecord, build_batch
    >>> summary = summarize([build_batch([NewRecord(b"k", b"v", 5), NewRecord(b"k", b"w", 9)])])
    >>> summary.records, summary.first_offset, summary.last_offset, summary.max_timestamp_ms
    (2, 0, 1, 9)
    """
    summary = LogSummary()
    for buffer in buffers:
        found = scan_headers(buffer, verify=verify)
        summary.add(buffer, found)
        ensure_not_corrupt(buffer, found)
    return summary
