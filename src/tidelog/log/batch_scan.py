"""Walking over the batches of a `.log` file, headers only, by the rules for files.

A lookup wants the few batches behind an index entry: it reads a window of some KiB and jumps from header to header. A
walk over a whole segment (rebuilding producer state, recovery) takes longer steps: batch_windows.py.
"""

from collections.abc import Iterator

from tidelog.errors import CorruptRecordError
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.files import ReadFile
from tidelog.records.batch import BATCH_HEADER_SIZE, PREFIX_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC
from tidelog.records.legacy import MIN_MESSAGE_SIZE

__all__ = ["read_batch", "scan_batches"]

_WINDOW = 8192
_LEGACY_ENTRY_HEAD = 26  # up to the timestamp of magic 1
_ENOUGH = max(BATCH_HEADER_SIZE, _LEGACY_ENTRY_HEAD)


def scan_batches(file: ReadFile, start: int, end: int) -> Iterator[BatchInfo]:
    """The complete batches between two positions; `start` must be that of a batch.

    A tail that is no complete batch ends the walk. A length that no batch can have raises CorruptRecordError.
    """
    window, window_start = b"", start
    position = start
    while end - position > HEADER_SIZE_UP_TO_MAGIC:
        at = position - window_start
        if len(window) - at < _ENOUGH:
            window, window_start, at = file.read(position, min(_WINDOW, end - position)), position, 0
            if len(window) <= HEADER_SIZE_UP_TO_MAGIC:
                return  # the file is shorter than it was said to be: somebody cut it
        length = int.from_bytes(window[at + 8 : at + PREFIX_SIZE], "big", signed=True)
        if length < MIN_MESSAGE_SIZE:
            raise CorruptRecordError(
                f"{file.path}, position {position}: a batch length of {length}, the smallest is {MIN_MESSAGE_SIZE}"
            )
        if length + PREFIX_SIZE > end - position:
            return
        yield batch_info(window, at, position)
        position += length + PREFIX_SIZE


def read_batch(file: ReadFile, batch: BatchInfo) -> bytes:
    """The bytes of a batch that a scan found."""
    data = file.read(batch.position, batch.size)
    if len(data) < batch.size:
        raise CorruptRecordError(f"{file.path}, position {batch.position}: the file ends inside the batch")
    return data
