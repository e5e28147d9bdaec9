"""Batch headers of a stretch of log, without looking at records.

The scan copies the first bytes of every batch into a table of 64-byte rows, which numpy then reads field by field
under the names of `BatchHeader`: nothing is converted before somebody looks. Rows of legacy entries hold the same
table with other fields (LEGACY_ROW); `magic` stands at the same place in both.
"""

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import CorruptRecordError, InvalidRequestError
from tidelog.kernels.buffers import address_of, hold
from tidelog.kernels.crc32 import crc32_at
from tidelog.kernels.crc32c import crc32c_at
from tidelog.kernels.decode import ROW_SIZE
from tidelog.kernels.memory import big_i32, big_u32, copy_bytes, load_u8, put_word, store_8, word_at
from tidelog.kernels.runtime import kernel
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC, Batch, batch_of
from tidelog.records.legacy import MIN_MESSAGE_SIZE

__all__ = [
    "BATCH_ROW",
    "LEGACY_ROW",
    "Checksum",
    "HeaderScan",
    "Seen",
    "StopReason",
    "check_headers",
    "ensure_not_corrupt",
    "scan_headers",
    "scan_windows",
]

DEFAULT_WINDOW_SIZE = 8 << 20

BATCH_ROW = np.dtype(
    {
        "names": [
            "base_offset",
            "batch_length",
            "partition_leader_epoch",
            "magic",
            "crc",
            "attributes",
            "last_offset_delta",
            "base_timestamp_ms",
            "max_timestamp_ms",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "records_count",
        ],
        "formats": [">i8", ">i4", ">i4", "i1", ">u4", ">i2", ">i4", ">i8", ">i8", ">i8", ">i2", ">i4", ">i4"],
        "offsets": [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57],
        "itemsize": ROW_SIZE,
    }
)
LEGACY_ROW = np.dtype(
    {
        "names": ["offset", "size", "crc", "magic", "attributes", "timestamp_ms"],
        "formats": [">i8", ">i4", ">u4", "i1", "i1", ">i8"],  # timestamp_ms of magic 1 only
        "offsets": [0, 8, 12, 16, 17, 18],
        "itemsize": ROW_SIZE,
    }
)


class Checksum(IntEnum):
    """What is known about a batch's checksum."""

    UNKNOWN = 0
    RIGHT = 1
    WRONG = 2  # or the batch is too small for its own header


class StopReason(IntEnum):
    """Why a scan ended."""

    END = 0  # the bytes end, or end inside a batch
    FULL = 1  # the table has no more rows
    CORRUPT = 2  # a length field that no batch can have


class Seen(IntFlag):
    """What a scan met on its way. A flag that is not set spares a look at every batch."""

    LEGACY = 1
    COMPRESSED = 2  # version 2 batches only
    CHECKED = 4  # the checksums were compared
    WRONG_CHECKSUM = 8  # or a batch too small to have one


class HeaderScan(NamedTuple):
    """The headers found, and where the next batch would begin."""

    rows: np.ndarray[Any, np.dtype[Any]]  # of BATCH_ROW, one per batch
    positions: np.ndarray[Any, np.dtype[np.int64]]  # of each batch, from the start of the scanned bytes
    checksums: np.ndarray[Any, np.dtype[np.uint8]]  # of Checksum
    end: int
    reason: StopReason
    seen: Seen  # among these batches, or among those they were picked from
    records: int | None = None  # of all version 2 batches, by their own count; None for a selection

    @property
    def legacy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The same rows under the names of the legacy formats."""
        return self.rows.view(LEGACY_ROW)

    @property
    def is_legacy(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows are legacy entries."""
        legacy: np.ndarray[Any, np.dtype[np.bool_]] = self.rows["magic"] < 2
        return legacy

    @property
    def sizes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Bytes of each batch."""
        return self.rows["batch_length"].astype(np.int64) + 12

    def pick(self, which: slice | np.ndarray[Any, Any]) -> "HeaderScan":
        """The same scan reduced to some of its batches."""
        rows, positions, checksums = self.rows[which], self.positions[which], self.checksums[which]
        return HeaderScan(rows, positions, checksums, self.end, self.reason, self.seen)

    def ensure_of(self, view: memoryview) -> None:
        """Raise InvalidRequestError if a batch would lie outside `view`: then another buffer was scanned."""
        if len(self.rows) and (self.positions.min() < 0 or (self.positions + self.sizes).max() > len(view)):
            raise InvalidRequestError("the scan is not of this buffer: a batch would reach beyond its end")

    def first_wrong(self) -> int | None:
        """The index of the first batch whose checksum is wrong."""
        if not self.seen & Seen.WRONG_CHECKSUM:
            return None
        is_wrong = self.checksums == int(Checksum.WRONG)
        return int(is_wrong.argmax()) if is_wrong.any() else None

    def batch_in(self, buffer: Any, index: int) -> Batch:
        """One of the batches, out of the buffer that was scanned, for `tidelog.records`."""
        start = int(self.positions[index])
        return batch_of(memoryview(buffer).cast("B")[start : start + 12 + int(self.rows["batch_length"][index])])

    def first(self, count: int) -> "HeaderScan":
        """The first `count` batches; the same scan if that is all of them."""
        return self if count >= len(self.rows) else self.pick(slice(count))

    def runs(self) -> "Iterator[HeaderScan]":
        """The scan cut where legacy entries and version 2 batches meet."""
        if not len(self.rows):
            return
        if not self.seen & Seen.LEGACY:
            yield self
            return
        edges = np.flatnonzero(np.diff(self.is_legacy)) + 1
        for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(self.rows)], strict=True):
            yield self.pick(slice(first, last))


# Kernels take plain numbers.
_UNKNOWN, _RIGHT, _WRONG = (int(value) for value in Checksum)
_END, _FULL, _CORRUPT = (int(value) for value in StopReason)
_LEGACY, _COMPRESSED, _CHECKED, _WRONG_CHECKSUM = (int(value) for value in Seen)


@kernel("UniTuple(int64, 5)(int64, int64, int64, int64, int64, int64)")
def scan(
    address: int, size: int, rows: int, positions: int, checksums: int, capacity: int
) -> tuple[int, int, int, int, int]:
    """Scan `size` bytes into tables of `capacity` rows.

    Gives back how many were filled, where the scan ended, why, what it met, and how many records the headers promise.
    """
    position = 0
    found = 0
    seen = 0
    records = 0
    while size - position > HEADER_SIZE_UP_TO_MAGIC:
        batch = address + position
        length = big_i32(batch + 8)
        if length < MIN_MESSAGE_SIZE:
            return found, position, _CORRUPT, seen, records
        batch_size = length + 12
        if batch_size > size - position:
            break
        if found == capacity:
            return found, position, _FULL, seen, records
        row = rows + found * ROW_SIZE
        if batch_size < BATCH_HEADER_SIZE:
            for word in range(ROW_SIZE // 8):
                put_word(row, word, 0)
        copy_bytes(row, batch, min(batch_size, BATCH_HEADER_SIZE))
        put_word(positions, found, position)
        checksum = _UNKNOWN
        magic = load_u8(batch + 16)
        if magic < 2 or magic >= 128:  # as a signed byte, below 2
            seen |= _LEGACY
        elif batch_size < BATCH_HEADER_SIZE:
            checksum = _WRONG
            seen |= _WRONG_CHECKSUM
        else:
            records += max(big_i32(batch + 57), 0)
            if load_u8(batch + 22) & 7:
                seen |= _COMPRESSED
        store_8(checksums + found, checksum)
        position += batch_size
        found += 1
    return found, position, _END, seen, records


@kernel("int64(int64, int64, int64, int64, int64)")
def check_batches(address: int, rows: int, positions: int, checksums: int, count: int) -> int:
    """Compare the checksums of the version 2 batches among `count` batches; how many are wrong."""
    wrong = 0
    for index in range(count):
        batch = address + word_at(positions, index)
        row = rows + index * ROW_SIZE
        size = big_i32(row + 8) + 12
        if 2 <= load_u8(row + 16) < 128 and size >= BATCH_HEADER_SIZE:
            is_right = crc32c_at(batch + 21, size - 21) == big_u32(row + 17)
            store_8(checksums + index, _RIGHT if is_right else _WRONG)
            wrong += not is_right
    return wrong


@kernel("int64(int64, int64, int64, int64, int64)")
def check_messages(address: int, rows: int, positions: int, checksums: int, count: int) -> int:
    """Compare the checksums of the legacy entries among `count` batches; how many are wrong."""
    wrong = 0
    for index in range(count):
        entry = address + word_at(positions, index)
        row = rows + index * ROW_SIZE
        magic = load_u8(row + 16)
        if magic < 2 or magic >= 128:
            size = big_i32(row + 8) + 12
            is_right = crc32_at(entry + 16, size - 16) == big_u32(row + 12)
            store_8(checksums + index, _RIGHT if is_right else _WRONG)
            wrong += not is_right
    return wrong


def scan_headers(buffer: Any, *, verify: bool = False, max_batches: int | None = None) -> HeaderScan:
    """The headers of the complete batches in `buffer`, any object with contiguous bytes.

    With `verify` every checksum is computed, which reads all bytes; without it only headers are touched.
    """
    view = hold(buffer)
    address, size = address_of(view)
    limit = size // (12 + MIN_MESSAGE_SIZE) + 1 if max_batches is None else max_batches
    capacity = min(limit, size // 4096 + 64)  # grows when batches turn out to be smaller than that
    while True:
        # One piece of memory for the three columns: asking for it and for its address costs more than the scan.
        memory = np.empty(capacity * (ROW_SIZE + 8 + 1), np.uint8)
        start = memory.ctypes.data
        positions, checksums = ROW_SIZE * capacity, (ROW_SIZE + 8) * capacity
        found, end, reason, seen, records = scan(address, size, start, start + positions, start + checksums, capacity)
        if reason != _FULL or capacity == limit:
            break
        capacity = min(limit, capacity * 8)
    result = HeaderScan(
        rows=memory[: ROW_SIZE * found].view(BATCH_ROW),
        positions=memory[positions : positions + 8 * found].view(np.int64),
        checksums=memory[checksums : checksums + found],
        end=end,
        reason=StopReason(reason),
        seen=Seen(seen),
        records=records,
    )
    return check_headers(view, result) if verify else result


def ensure_not_corrupt(buffer: Any, scan: HeaderScan, *, base_position: int = 0) -> None:
    """Raise CorruptRecordError if the scan ended at a length that no batch can have."""
    if scan.reason is StopReason.CORRUPT:
        length = int.from_bytes(hold(buffer)[scan.end + 8 : scan.end + 12], "big", signed=True)
        raise CorruptRecordError(
            f"position {base_position + scan.end}: a batch length of {length}, the smallest is {MIN_MESSAGE_SIZE}"
        )


def check_headers(buffer: Any, scan: HeaderScan) -> HeaderScan:
    """The same scan of `buffer` with every checksum compared, unless that has been done."""
    if scan.seen & Seen.CHECKED:
        return scan
    view = hold(buffer)
    scan.ensure_of(view)
    address, _ = address_of(view)
    rows, positions = np.ascontiguousarray(scan.rows), np.ascontiguousarray(scan.positions)
    checksums = scan.checksums.copy()
    arguments = address, rows.ctypes.data, positions.ctypes.data, checksums.ctypes.data, len(rows)
    wrong = check_batches(*arguments)
    if scan.seen & Seen.LEGACY:
        wrong += check_messages(*arguments)
    seen = scan.seen | Seen.CHECKED | (Seen.WRONG_CHECKSUM if wrong else Seen(0))
    return scan._replace(checksums=checksums, seen=seen)


def scan_windows(buffer: Any, *, verify: bool = False, window_size: int = DEFAULT_WINDOW_SIZE) -> Iterator[HeaderScan]:
    """Scans of a large buffer, window by window, so that what follows a scan finds the bytes still in the cache.

    Positions and ends count from the start of the buffer. The last scan says why all of it ended.
    """
    view = memoryview(buffer).cast("B")
    position, size = 0, window_size
    while True:
        window = view[position : position + size]
        found = scan_headers(window, verify=verify)
        is_last = position + len(window) == len(view) or found.reason is StopReason.CORRUPT
        if found.end or is_last:
            yield found._replace(positions=found.positions + position, end=position + found.end)
        if is_last:
            return
        # A batch that is larger than the window gets a larger one.
        position, size = position + found.end, window_size if found.end else 2 * size
