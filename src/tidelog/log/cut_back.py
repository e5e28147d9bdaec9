"""Take back what a write has appended to a log that was closed cleanly before it, and touch nothing before that.

Recovery after a crash would do it, too, but it reads the segment from its beginning and ends the log at the first
damaged batch. Damage that was there before the write then takes every batch after it along. Here the place where the
write began is found as the write has found it: from the last index entry before it on. Entries that the write has added
are dropped first.
"""

import random
import struct
from contextlib import closing

from tidelog.errors import CorruptionError
from tidelog.log.batch_scan import scan_batches
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem, ReadFile, join
from tidelog.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    is_segment_file,
    offset_of,
)
from tidelog.log.segment import LogSegment

__all__ = ["cut_back", "trim_indexes"]

_OFFSET_ENTRY = struct.Struct(">ii")  # offset and position
_TIME_ENTRY = struct.Struct(">qi")  # time and offset; offsets are relative to the base offset of the segment
_NO_END = 1 << 32


def cut_back(fs: FileSystem, directory: str, end: int, *, clock: Clock, rng: random.Random) -> str | None:
    """Cut a log back to its end at offset `end`. What lay there before and is no batch is named in a sentence.

    Raises CorruptionError, with segments after `end` gone and no batch before it touched, if the log cannot be read up
    to that offset. It may be done again from the beginning.
    """
    names = fs.list(directory)
    for name in sorted(names, reverse=True):  # the last one first: what a crash leaves has no hole
        if (is_segment_file(name) or name.endswith(SNAPSHOT_SUFFIX)) and offset_of(name) > end:
            fs.remove(join(directory, name))
    fs.sync_directory(directory)
    bases = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX) and offset_of(name) <= end]
    if not bases:
        raise CorruptionError(f"{directory}: no segment begins at offset {end} or before it")
    trim_indexes(fs, directory, end)
    segment = LogSegment.open(fs, directory, max(bases), LogConfig(), clock, rng)
    try:
        position = _position_of_end(segment, end)
        notice = _foreign_bytes(segment, position, end)
        if position < segment.size:
            segment.log.truncate_to(position)
            segment.log.flush()
    finally:
        segment.release()
    return notice


def trim_indexes(fs: FileSystem, directory: str, end: int | None = None) -> None:
    """Drop the entries of the last segment from an offset on, and the room for others that an open log keeps.

    A log that is opened to be appended to makes its indexes larger. After a clean stop Kafka takes that room for
    entries.
    """
    names = fs.list(directory)
    base = max((offset_of(name) for name in names if name.endswith(LOG_SUFFIX)), default=None)
    for suffix, entry in ((INDEX_SUFFIX, _OFFSET_ENTRY), (TIME_INDEX_SUFFIX, _TIME_ENTRY)):
        if base is not None and (name := file_name(base, suffix)) in names:
            with closing(fs.open_write(join(directory, name), create=False)) as file:
                size = entry.size * _count_of_entries(file, entry, _NO_END if end is None else end - base)
                if size != file.size:
                    file.resize(size)
                    file.sync()


def _count_of_entries(file: ReadFile, entry: struct.Struct, end: int) -> int:
    """How many entries at the front increase, and have offsets below `end`, which is relative to the segment."""
    before, count = (-1, -1), 0
    data = file.read(0, file.size - file.size % entry.size)
    may_be_zero = entry is _TIME_ENTRY and any(data)  # time 0 at the first offset; the rest is room for entries
    for first, second in entry.iter_unpack(data):
        offset = first if entry is _OFFSET_ENTRY else second
        is_room = first == second == 0 and not may_be_zero
        if first <= before[0] or second < before[1] or is_room or offset >= end:
            break
        before, count = (first, second), count + 1
    return count


def _position_of_end(segment: LogSegment, end: int) -> int:
    """Where the last batch below an offset ends."""
    position, reached = 0, segment.base_offset
    try:
        for batch in segment.lookup().batches_from(end):
            if batch.last_offset >= end:
                break
            position, reached = batch.position + batch.size, batch.next_offset
    except CorruptionError:
        pass  # the write was interrupted inside a batch, unless the end is not reached
    if reached != end:
        raise CorruptionError(
            f"{segment.log.path}: its batches can be read up to offset {reached}, and the log ended at {end}"
        )
    return position


def _foreign_bytes(segment: LogSegment, position: int, end: int) -> str | None:
    """Say what lies after the end of a log and need not be of a write that began there: it has appended no batch."""
    size = segment.size - position
    try:
        first = next(scan_batches(segment.log.file, position, segment.size), None)
    except CorruptionError:
        first = None
    if not size or (first is not None and first.base_offset >= end):
        return None
    return (
        f"{size} bytes of {segment.log.path} from position {position} on were cut off: they follow offset {end - 1}, "
        "the last of the log, and are no batch"
    )
