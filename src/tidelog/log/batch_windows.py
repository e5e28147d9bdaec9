"""A stretch of a `.log` file, window by window: the bytes, and the batches in them.

What a walk over a whole segment needs (recovery, rebuilding producer state). Small stretches are read by
`tidelog.records` and need no compiler; from a megabyte on a kernel finds the headers and compares the checksums. Both
give the same windows.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.errors import CorruptionError, CorruptRecordError
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.files import ReadFile
from tidelog.records.batches import read_batches

if TYPE_CHECKING:
    from tidelog.kernels.headers import HeaderScan

__all__ = ["WINDOW_BYTES", "BatchWindow", "read_windows", "whole_window"]

_KERNEL_FROM = 1 << 20  # bytes: below, loading the kernels takes longer than the walk
WINDOW_BYTES = 8 << 20


class BatchWindow:
    """Whole batches, one behind the other.

    They end before the first one whose checksum is wrong, if checksums were asked for; `problem` then says what is
    wrong there. It is also set where a length is one that no batch can have. Bytes that are no complete batch yet
    belong to the next window, or are the tail of the file.
    """

    __slots__ = ("_batches", "data", "end", "position", "problem", "scan")

    def __init__(self, data: memoryview, position: int, scan: "HeaderScan | None" = None) -> None:
        self.data = data
        self.position = position  # of `data` in the file
        self.end = position  # in the file, of the last sound batch
        self.problem: CorruptionError | None = None
        self.scan = scan  # the batches as columns, where a kernel found them and all are of version 2
        self._batches: list[BatchInfo] | None = None if scan is not None else []

    @property
    def batches(self) -> list[BatchInfo]:
        """The batches, one by one."""
        if self._batches is None:
            assert self.scan is not None
            self._batches = _infos(self.scan, self.position)
        return self._batches

    def __len__(self) -> int:
        return len(self.scan.rows) if self.scan is not None else len(self.batches)

    def batch(self, index: int) -> BatchInfo:
        """One of the batches."""
        if self._batches is None:
            assert self.scan is not None
            at = int(self.scan.positions[index])
            return batch_info(self.data, at, self.position + at)
        return self._batches[index]

    def first(self, count: int) -> "BatchWindow":
        """A window of the first `count` batches."""
        window = BatchWindow(self.data, self.position)
        window.batches.extend(self.batches[:count])
        window.end = self.batches[count].position if count < len(self) else self.end
        return window

    def bytes_of(self, batch: BatchInfo) -> memoryview:
        """The bytes of one of the batches."""
        start = batch.position - self.position
        return self.data[start : start + batch.size]


def read_windows(
    file: ReadFile, start: int, end: int, *, verify: bool = False, fast: bool | None = None, window: int | None = None
) -> Iterator[BatchWindow]:
    """The batches between two positions. `start` must be that of a batch. A problem ends the walk.

    Kernels are used where there is volume, unless `fast` says so or not. A window is valid until the next one is asked
    for.
    """
    room = bytearray(min(window or WINDOW_BYTES, end - start))
    find = _find_fast if (end - start >= _KERNEL_FROM if fast is None else fast) else _find
    position = start
    while position < end:
        target = memoryview(room)[: end - position]
        data = target[: file.read_into(position, target)]
        found = find(data, position, file.path, verify)
        is_last = position + len(data) >= end or len(data) < len(target)
        if found.end == position and not found.problem and not is_last:
            room = bytearray(min(2 * len(room), end - position))  # a batch larger than the window
            continue
        yield found
        if found.problem is not None or is_last:
            return
        position = found.end


def whole_window(data: memoryview, position: int, path: str, *, fast: bool) -> BatchWindow:
    """The batches that `data`, which will stand at `position`, consists of; `fast` where kernels are loaded anyway."""
    return (_find_fast if fast else _find)(data, position, path, verify=False)


def _find(data: memoryview, position: int, path: str, verify: bool) -> BatchWindow:
    """The batches of a window, by the readable path."""
    window = BatchWindow(data, position)
    try:
        for batch in read_batches(data):
            info = batch_info(data, window.end - position, window.end)
            if verify:
                batch.ensure_valid()
            window.batches.append(info)
            window.end += info.size
    except CorruptionError as error:
        window.problem = CorruptRecordError(f"{path}, position {window.end}: {error}")
    return window


def _find_fast(data: memoryview, position: int, path: str, verify: bool) -> BatchWindow:
    """The same by kernels. Windows with entries of the old formats are left to the readable path."""
    from tidelog.kernels.headers import Seen, StopReason, scan_headers

    scan = scan_headers(data, verify=verify)
    if scan.seen & Seen.LEGACY:
        return _find(data, position, path, verify)
    wrong = scan.first_wrong()
    window = BatchWindow(data, position, scan if wrong is None else scan.first(wrong))
    window.end = position + (scan.end if wrong is None else int(scan.positions[wrong]))
    if wrong is not None or scan.reason is StopReason.CORRUPT:
        window.problem = _problem_at(data, window.end - position, path, window.end)
    return window


def _problem_at(data: memoryview, at: int, path: str, position: int) -> CorruptRecordError:
    """What is wrong with the batch that the kernel refuses, in words."""
    try:
        for batch in read_batches(data, at):
            batch.ensure_valid()
            break
    except CorruptionError as error:
        return CorruptRecordError(f"{path}, position {position}: {error}")
    raise AssertionError(f"{path}, position {position}: the kernels refuse a batch that tidelog.records can read")


def _infos(scan: "HeaderScan", position: int) -> list[BatchInfo]:
    rows: Any = scan.rows
    base = rows["base_offset"].astype("i8")
    columns = (
        scan.positions + position,
        scan.sizes,
        base,
        base + rows["last_offset_delta"],
        rows["max_timestamp_ms"],
        rows["partition_leader_epoch"],
        rows["magic"],
        rows["attributes"],
        rows["producer_id"],
        rows["producer_epoch"],
        rows["base_sequence"],
        rows["records_count"],
    )
    return list(map(BatchInfo, *(column.tolist() for column in columns)))
