"""The headers of a log as rows of numbers, window by window: what comparing and fingerprinting go by.

A row is the header of a batch as it lies in the file, 61 bytes and three zeros; of an entry of the old formats its
first 61 bytes, or all of them and zeros. Batches whose rows are equal have the same offsets, leader epoch, checksum,
producer and size. Records are not looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np

from tidelog.errors import CorruptRecordError
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.segment_reader import SegmentReader
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC

__all__ = [
    "BatchRows",
    "HeaderSource",
    "HeaderStretch",
    "checksums_of",
    "counting",
    "epochs_of",
    "read_rows",
    "rows_in",
]

_ROW_SIZE = 64
_KERNELS_FROM = 1 << 20  # bytes of log: below, loading the kernels takes longer than the walk
_MAGIC_AT = 16
_OFFSET, _EPOCH, _CRC, _DELTA = slice(0, 8), slice(12, 16), slice(17, 21), slice(23, 27)
_LEGACY_CRC = _EPOCH

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
OnBytes = Callable[[int], None]  # how many bytes of log were passed over since the last call


class HeaderStretch(Protocol):
    """Batches one behind the other in a file, from `start` to `end`."""

    @property
    def reader(self) -> SegmentReader: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class HeaderSource(Protocol):
    """A log, as far as its headers are concerned."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def stretches(self, from_offset: int | None = None, to_offset: int | None = None) -> Iterator[HeaderStretch]:
        """Where the batches lie that hold these offsets, in their order."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Batches, one behind the other, as columns."""

    rows: Bytes  # of 64 bytes each
    first: Numbers  # offsets; an entry of the old formats has one, which is both
    last: Numbers

    @classmethod
    def none(cls) -> "BatchRows":
        """No batches."""
        return cls(np.empty((0, _ROW_SIZE), np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, which: slice | np.ndarray[Any, Any]) -> "BatchRows":
        """Some of them."""
        return BatchRows(self.rows[which], self.first[which], self.last[which])

    def equal_to(self, others: "BatchRows") -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of them are equal to their counterparts among as many others."""
        equal: np.ndarray[Any, np.dtype[np.bool_]] = (_words(self.rows) == _words(others.rows)).all(axis=1)
        return equal

    def without_epochs(self) -> "BatchRows":
        """The same batches as if all had been written in one leader epoch."""
        rows = self.rows.copy()
        rows[_magic_of(rows) >= MAGIC, _EPOCH] = 0
        return BatchRows(rows, self.first, self.last)


def checksums_of(batches: BatchRows) -> np.ndarray[Any, np.dtype[Any]]:
    """The checksums that the batches carry."""
    is_legacy = _magic_of(batches.rows) < MAGIC
    return np.where(is_legacy, _field(batches.rows, _LEGACY_CRC, ">u4"), _field(batches.rows, _CRC, ">u4"))


def epochs_of(batches: BatchRows) -> np.ndarray[Any, np.dtype[Any]]:
    """The leader epochs; -1 of the old formats, which have none."""
    return np.where(_magic_of(batches.rows) < MAGIC, -1, _field(batches.rows, _EPOCH, ">i4"))


def read_rows(
    log: HeaderSource, start: int, end: int, *, verify: bool = False, on_bytes: OnBytes = lambda count: None
) -> Iterator[BatchRows]:
    """The batches that hold an offset from `start` to before `end`, some thousand at a time.

    Raises CorruptRecordError where the log cannot be walked on, where offsets do not increase, and with `verify` where
    a checksum is wrong.
    """
    before = -1
    passed = 0
    for stretch in log.stretches(start, end):
        path = stretch.reader.log.path
        position = stretch.start
        passed += stretch.end - stretch.start
        fast = passed >= _KERNELS_FROM
        for window in read_windows(stretch.reader.log.file, stretch.start, stretch.end, verify=verify, fast=fast):
            on_bytes(window.end - position)
            position = window.end
            if len(window):
                batches = rows_in(window)
                _ensure_increasing(batches, before, path, window)
                before = int(batches.last[-1])
                wanted = slice(np.searchsorted(batches.last, start), np.searchsorted(batches.first, end))
                if wanted.start < wanted.stop:
                    yield batches.pick(wanted)
            if window.problem is not None:
                raise window.problem
        if position < stretch.end:
            raise CorruptRecordError(
                f"{path}, position {position}: {stretch.end - position} bytes that are no complete batch"
            )


def counting(total: int, on_progress: Callable[[int, int], None]) -> OnBytes:
    """Report bytes that were read as so many out of all. Several threads may call it."""
    done = 0
    lock = Lock()

    def count(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            on_progress(min(done, total), total)

    return count


def rows_in(window: BatchWindow) -> BatchRows:
    """The batches of a window."""
    if window.scan is not None:
        rows = window.scan.rows.view(np.uint8).reshape(-1, _ROW_SIZE).copy()
        rows[:, BATCH_HEADER_SIZE:] = 0  # the scan leaves there what it found
    else:
        rows = np.zeros((len(window), _ROW_SIZE), np.uint8)
        for row, batch in zip(rows, window.batches, strict=True):
            head = window.bytes_of(batch)[:BATCH_HEADER_SIZE]
            row[: len(head)] = np.frombuffer(head, np.uint8)
    first = _field(rows, _OFFSET, ">i8").astype(np.int64)
    delta = np.where(_magic_of(rows) < MAGIC, 0, _field(rows, _DELTA, ">i4"))
    return BatchRows(rows, first, first + delta)


def _ensure_increasing(batches: BatchRows, before: int, path: str, window: BatchWindow) -> None:
    follows = np.concatenate(([before], batches.last[:-1]))
    is_wrong = (batches.last < batches.first) | (batches.first <= follows)
    if is_wrong.any():
        at = int(is_wrong.argmax())
        raise CorruptRecordError(
            f"{path}, position {window.batch(at).position}: offsets {batches.first[at]} to {batches.last[at]} behind "
            f"offset {follows[at]}: run tidelog fsck"
        )


def _magic_of(rows: Bytes) -> np.ndarray[Any, np.dtype[np.int8]]:
    return rows[:, _MAGIC_AT].view(np.int8)


def _words(rows: Bytes) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Rows as words, which are compared faster than bytes."""
    return np.ascontiguousarray(rows).view(np.uint64)


def _field(rows: Bytes, at: slice, kind: str) -> np.ndarray[Any, np.dtype[Any]]:
    return np.ascontiguousarray(rows[:, at]).view(kind)[:, 0]
