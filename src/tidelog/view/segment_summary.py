"""What the batch headers of a segment say together: how many records, of which codecs, from when to when.

Nothing is decompressed and no checksum is compared. Large segments are walked by a kernel.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import UnsupportedCompressionError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_windows import read_windows
from tidelog.log.files import ReadFile
from tidelog.records.compression import Codec

__all__ = ["SegmentSummary", "summary_of"]

_BASE_TIMESTAMP = slice(27, 35)  # of a header of version 2
_LOG_APPEND_TIME, _DELETE_HORIZON = 0x08, 0x40


class SegmentSummary(NamedTuple):
    """The headers of a segment, summed up. Timestamps are None where no batch has one."""

    batches: int
    records: int  # an entry of the old formats counts as one, even if it wraps several
    control_batches: int
    transactional_batches: int
    magics: tuple[int, ...]
    codecs: tuple[str, ...]
    first_timestamp_ms: int | None  # of the first record, as its batch tells it
    last_timestamp_ms: int | None  # the largest of the last such batch
    largest_timestamp_ms: int | None
    smallest_timestamp_ms: int | None  # of the first records of batches: what headers tell


def summary_of(file: ReadFile, size: int) -> SegmentSummary:
    """The summary of the batches before position `size`, up to the first that has no valid length."""
    batches = records = control = transactional = 0
    magics: set[int] = set()
    codec_ids: set[int] = set()
    first = last = largest = smallest = None
    for window in read_windows(file, 0, size):
        for batch in window.batches:
            batches += 1
            records += max(batch.records_count, 0) if not batch.is_legacy else 1
            control += batch.is_control
            transactional += batch.is_transactional
            magics.add(batch.magic)
            codec_ids.add(batch.codec_id)
            if batch.max_timestamp_ms >= 0:
                begun = _first_time(window.bytes_of(batch), batch)
                first = begun if first is None else first
                if begun >= 0:
                    smallest = begun if smallest is None else min(smallest, begun)
                last = batch.max_timestamp_ms
                largest = last if largest is None else max(largest, last)
    return SegmentSummary(
        batches, records, control, transactional, tuple(sorted(magics)), _names_of(codec_ids), first, last, largest,
        smallest,
    )  # fmt: skip


def _first_time(data: memoryview, batch: BatchInfo) -> int:
    """The timestamp of the first record of a batch; the largest one where the header does not tell."""
    if batch.is_legacy or batch.attributes & (_LOG_APPEND_TIME | _DELETE_HORIZON):
        return batch.max_timestamp_ms
    return int.from_bytes(data[_BASE_TIMESTAMP], "big", signed=True)


def _names_of(codec_ids: Iterable[int]) -> tuple[str, ...]:
    names = []
    for codec_id in sorted(codec_ids):
        try:
            names.append(Codec.from_id(codec_id).label)
        except UnsupportedCompressionError:
            names.append(f"codec {codec_id}")
    return tuple(names)
