"""The batches of a metadata log in the order in which Kafka reads them when it starts.

A read begins at the first batch whose last offset is not before the wanted one, as the index of a segment finds it, and
goes on to the end of that segment, whatever the offsets are. The next read begins after the last batch of the segment.
So batches that are out of order are read where they stand: some a second time, some not at all, and some for ever.

Kafka: KRaftControlRecordStateMachine.maybeLoadLog, KafkaRaftClient.updateListenersProgress, LocalLog.read.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tidelog.errors import CorruptionError
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log.files import read_whole
from tidelog.log.segment import LogSegment
from tidelog.log.unified_log import UnifiedLog
from tidelog.records.batches import Batch, read_batches

__all__ = ["UnreachableEndError", "batches_as_read", "batches_read_again"]


class UnreachableEndError(CorruptionError):
    """Kafka reads without reaching the end of the log, so it does not start."""


def batches_as_read(fs: RehearsalFileSystem, log: UnifiedLog, start: int) -> Iterator[tuple[Batch, str]]:
    """Each batch that Kafka reads from an offset on, with the path of its file."""
    offset, end, seen = start, log.log_end_offset, set()
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    while offset < end:
        seen.add(offset)
        following, number = offset, bisect_right(bases, offset) - 1
        for batch, path in _read(fs, segments[number:] if number >= 0 else (), offset):
            yield batch, path
            following = batch.next_offset
        if following in seen:  # what is read depends on the offset alone: Kafka would read the same again
            raise UnreachableEndError(f"Kafka does not get from offset {following} to the end of the log, {end}")
        offset = following


def batches_read_again(fs: RehearsalFileSystem, log: UnifiedLog) -> Iterator[tuple[Batch, str]]:
    """Each batch that a new leader reads a second time: it appends one to the log, and reads from its offset on.

    None, unless an earlier batch reaches beyond the end of the log.
    """
    return _read(fs, log.segments[-1:], log.log_end_offset)


def _read(fs: RehearsalFileSystem, segments: Sequence[LogSegment], offset: int) -> Iterator[tuple[Batch, str]]:
    """One read: of the first segment that reaches as far as the offset."""
    for segment in segments:
        path = segment.log.path
        is_found = False
        for batch in read_batches(read_whole(fs, path), segment.offset_index.lookup(offset).position):
            is_found = is_found or batch.last_offset >= offset
            if is_found:
                yield batch, path
        if is_found:
            return
