"""Facts about the records of one batch, by the readable path or by a kernel.

A kernel finds them fastest, but loading the compiler costs more than a process that appends a few records will ever
win. So the first batches are read by `tidelog.records`, and the kernel is loaded when there is volume. Both ways
raise the same errors and give the same facts.
"""

from typing import Any, Protocol

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.java import wrap_int64

__all__ = ["FACT_FINDER", "BatchFacts", "FactFinder", "read_facts"]

BatchFacts = tuple[int, int, int, bool]
"""The largest timestamp (-1 without any), the index of the first record outside the allowed times and of the first
without a key (-1 if there is none), and whether offsets count up by one."""


class _Find(Protocol):
    def __call__(self, buffer: Any, *, earliest_ms: int, latest_ms: int, verify: bool = True) -> BatchFacts:
        """The facts of the version 2 batch that `buffer` is; -1, no time, is always an allowed one."""


class FactFinder:
    """Finds facts, with `readable_bytes` bytes of batches still to be read the readable way."""

    __slots__ = ("_readable_bytes", "find")

    def __init__(self, readable_bytes: int = 64 * 1024) -> None:
        self._readable_bytes = readable_bytes
        self.find: _Find = self._find_readably

    def _find_readably(self, buffer: Any, *, earliest_ms: int, latest_ms: int, verify: bool = True) -> BatchFacts:
        if self._readable_bytes <= 0:
            try:
                from tidelog.kernels.validate import validate_batch
            except OSError:  # no descriptor left to read the code: the readable way does without
                return read_facts(buffer, earliest_ms=earliest_ms, latest_ms=latest_ms, verify=verify)
            self.find = validate_batch
            return validate_batch(buffer, earliest_ms=earliest_ms, latest_ms=latest_ms, verify=verify)
        self._readable_bytes -= len(buffer)
        return read_facts(buffer, earliest_ms=earliest_ms, latest_ms=latest_ms, verify=verify)


def read_facts(buffer: Any, *, earliest_ms: int, latest_ms: int, verify: bool = True) -> BatchFacts:
    """The facts, read record by record."""
    batch = RecordBatch(buffer)
    size = batch.header.batch_length + PREFIX_SIZE
    if batch.magic != MAGIC or size != batch.size_in_bytes:  # neither is under the checksum
        raise CorruptRecordError(
            f"a batch of magic {batch.magic} and {size} bytes by its header; "
            f"magic {MAGIC} and {batch.size_in_bytes} bytes were expected"
        )
    if verify:
        batch.ensure_valid()
    max_timestamp_ms, first_outside, first_without_key, is_consecutive = -1, -1, -1, True
    for index, record in enumerate(batch):
        timestamp_ms = record.timestamp_ms
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        if first_outside < 0 and timestamp_ms != -1 and not earliest_ms <= timestamp_ms <= latest_ms:
            first_outside = index
        if first_without_key < 0 and record.key is None:
            first_without_key = index
        is_consecutive &= record.offset == wrap_int64(batch.base_offset + index)
    return max_timestamp_ms, first_outside, first_without_key, is_consecutive


FACT_FINDER = FactFinder()  # of the process: volume is what all its logs append together
