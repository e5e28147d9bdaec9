"""Cutting a segment whose offsets do not fit the 31 bits of its indexes into several that do.

Releases before 1.1 could write such segments into highly compacted topics. Batches are copied as they are.

Kafka: LocalLog.splitOverflowedSegment.
"""

import random

from tidelog.errors import CorruptRecordError, InvalidRequestError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem
from tidelog.log.names import CLEANED
from tidelog.log.segment import LogSegment
from tidelog.log.segment_swap import replace_segments
from tidelog.log.segments import LogSegments
from tidelog.log.tasks import Later
from tidelog.records.batches import batch_of

__all__ = ["split_overflowed"]


def split_overflowed(
    fs: FileSystem,
    directory: str,
    segment: LogSegment,
    segments: LogSegments[LogSegment],
    config: LogConfig,
    clock: Clock,
    rng: random.Random,
    later: Later,
) -> list[LogSegment]:
    """Replace `segment` by several; the segments whose base offset is in use no longer."""
    ends = [batch.last_offset for batch in segment.log.batches()]
    outside = [offset for offset in ends if not segment.fits(offset)]
    if not outside:
        raise InvalidRequestError(f"{segment}: all of its offsets fit")
    if segment.fits(ends[-1]):
        # Offsets that leave the range and come back were never appended: bytes that no checksum covers are damaged.
        # Cutting here would make a log of it that claims trillions of records.
        raise CorruptRecordError(f"{segment.log.path}: offset {outside[0]} before offset {ends[-1]}")
    parts: list[LogSegment] = []
    modified_ms = segment.log.modified_ms
    try:
        for batch in segment.log.batches():
            data = read_batch(segment.log.file, batch)
            if not parts or not parts[-1].fits(batch.last_offset):
                first_offset = batch_of(data).base_offset
                parts.append(LogSegment.create(fs, directory, first_offset, config, clock, rng, suffix=CLEANED))
            parts[-1].append(data, [BatchInfo(0, *batch[1:])])
        for part in parts:
            part.become_inactive()
            for file in (part.log, part.offset_index, part.time_index):
                fs.set_modified(file.path, modified_ms)  # before the flush, or a crash could make the segment young
            part.flush()
        if sum(part.size for part in parts) != segment.size:
            raise InvalidRequestError(f"{segment}: it ends with bytes that are no batch")
    except BaseException:
        for part in parts:
            part.delete()
        raise
    return replace_segments(fs, directory, segments, parts, [segment], config, later)
