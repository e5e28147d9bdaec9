"""What the batch headers of a segment say together: how many records, of which codecs, from when to when.

No checksum is compared. Large segments are walked by a kernel. A header has the time of the first record and the
largest one, but not the smallest. Who wants that has the records read, which is all that needs them decompressed.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from tidelog.errors import TidelogError, UnsupportedCompressionError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_windows import BatchWindow, read_windows
from tidelog.log.files import ReadFile
from tidelog.records.batches import batch_of
from tidelog.records.compression import Codec

__all__ = ["SegmentSummary", "summary_of"]

_BASE_TIMESTAMP = slice(27, 35)  # of a header of version 2
_KERNEL_FROM = 1 << 20  # bytes of a segment: below, loading the kernels takes longer than reading the records
_KERNEL_FROM_RECORDS = 100_000  # of so many, too, which may be few bytes if they are compressed
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
    smallest_timestamp_ms: int | None  # of all records if they were read, else of the first ones of batches


def summary_of(file: ReadFile, size: int, *, reads_records: bool = False) -> SegmentSummary:
    """The summary of the batches before position `size`, up to the first that has no valid length.

    Of a batch that cannot be decoded the header has the word, whatever `reads_records` says.
    """
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
        if reads_records and any(map(_may_hold_smaller, window.batches)):
            is_much = size >= _KERNEL_FROM or records >= _KERNEL_FROM_RECORDS
            times = [*_times_in(window, fast=is_much), *([] if smallest is None else [smallest])]
            smallest = min(times, default=None)
    return SegmentSummary(
        batches, records, control, transactional, tuple(sorted(magics)), _names_of(codec_ids), first, last, largest,
        smallest,
    )  # fmt: skip


def _first_time(data: memoryview, batch: BatchInfo) -> int:
    """The timestamp of the first record of a batch; the largest one where the header does not tell."""
    if batch.is_legacy or batch.attributes & (_LOG_APPEND_TIME | _DELETE_HORIZON):
        return batch.max_timestamp_ms
    return int.from_bytes(data[_BASE_TIMESTAMP], "big", signed=True)


def _may_hold_smaller(batch: BatchInfo) -> bool:
    """Whether a batch may hold a record with a time below that of the header."""
    if batch.is_legacy:
        return bool(batch.codec_id)
    return batch.records_count > 1 and not batch.attributes & _LOG_APPEND_TIME


def _times_in(window: BatchWindow, *, fast: bool) -> Iterator[int]:
    """The smallest times that are in a window, among others."""
    if fast:
        try:
            yield from _decoded_times(window.data[: window.end - window.position])
            return
        except TidelogError:
            pass  # one by one, the others can be decoded
    for batch in filter(_may_hold_smaller, window.batches):
        data = window.bytes_of(batch)
        with suppress(TidelogError):
            if fast:
                yield from _decoded_times(data)
            else:
                yield from (record.timestamp_ms for record in batch_of(data).records() if record.timestamp_ms >= 0)


def _decoded_times(data: memoryview) -> list[int]:
    """The smallest times of batches, by the kernels: one of each stretch that is decoded at once."""
    from tidelog.columns.decoder import ColumnDecoder  # which takes Arrow

    found = []
    for rows in ColumnDecoder(["timestamp"], verify=False).decode(data):
        times = rows.column("timestamp").to_numpy(zero_copy_only=False).astype("datetime64[ms]").astype("int64")
        if (times >= 0).any():
            found.append(int(times[times >= 0].min()))
    return found


def _names_of(codec_ids: Iterable[int]) -> tuple[str, ...]:
    names = []
    for codec_id in sorted(codec_ids):
        try:
            names.append(Codec.from_id(codec_id).label)
        except UnsupportedCompressionError:
            names.append(f"codec {codec_id}")
    return tuple(names)
