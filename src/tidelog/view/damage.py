"""Reading around damage: stretches of segments that cannot be walked, and where batches go on behind a bad one.

Behind a batch that is damaged the next one is looked for in two ways. Its length leads there, if that is not what is
damaged; and entries of the offset index point to batches. What they lead to must be sound from its first byte to its
last and lie behind all that was read. Where neither leads anywhere, the rest of the segment is left out.
"""

from collections.abc import Iterator

from tidelog.errors import CorruptIndexError, CorruptionError, SegmentGoneError, UnsupportedError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.segment_reader import SegmentReader
from tidelog.records.batches import batch_of
from tidelog.view.partition import PartitionView
from tidelog.view.segment import SegmentView
from tidelog.view.stretches import MisplacedSegmentError, Stretch

__all__ = ["next_sound", "sound_at", "stretches_around_damage"]


def stretches_around_damage(
    partition: PartitionView,
    first_offset: int,
    limit_offset: int,
    *,
    to_segment_ends: bool = False,
    notices: list[str] | None = None,
) -> Iterator[Stretch]:
    """The stretches that hold a range of offsets. Of a segment that cannot be walked it is all that may hold them.

    A damaged header can lie about where the last offset is. `to_segment_ends` gives all that follows the first one. Of
    a segment that is not where it belongs `notices` are told: whoever reads it would pass over its batches.
    """
    bases = [segment.base_offset for segment in partition.segments]
    for segment, following in zip(partition.segments, [*bases[1:], partition.log_end_offset], strict=True):
        begin, end = max(first_offset, segment.base_offset), min(limit_offset, following)
        if begin >= end:
            continue
        try:
            found = list(partition.stretches(begin, following if to_segment_ends else end))
        except CorruptionError as error:  # whoever reads it will meet it
            if isinstance(error, MisplacedSegmentError) and notices is not None:
                notices.append(f"{error}: what is not its own is left out")
            found = _whole_segment(partition, segment, begin, end)
        yield from (stretch._replace(limit_offset=end) for stretch in found)


def _whole_segment(partition: PartitionView, segment: SegmentView, begin: int, end: int) -> list[Stretch]:
    try:
        reader = segment.open_whole()
    except SegmentGoneError:
        return list(partition.stretches(begin, end))
    return [Stretch(segment, reader, _indexed_position(reader, begin), reader.size, begin, end)]


def _indexed_position(reader: SegmentReader, offset: int) -> int:
    """The position of a sound batch at or before an offset, by the index; 0 if there is none."""
    try:
        entry = reader.offset_index.lookup(offset)
    except CorruptIndexError:
        return 0
    batch = sound_at(reader, entry.position, reader.size)
    return entry.position if batch is not None and batch.base_offset <= offset else 0


def next_sound(reader: SegmentReader, position: int, end: int, next_offset: int) -> BatchInfo | None:
    """The first batch behind a damaged one at a position that is known to be sound and has `next_offset` or more."""
    found = [
        batch
        for batch in (_by_lengths(reader, position, end, next_offset), _by_index(reader, position, end, next_offset))
        if batch is not None
    ]
    return min(found, key=lambda batch: batch.position, default=None)


def _by_lengths(reader: SegmentReader, position: int, end: int, next_offset: int) -> BatchInfo | None:
    try:
        for header in reader.log.batches(position, end):
            if header.position > position:
                batch = sound_at(reader, header.position, end)
                if batch is not None and batch.base_offset >= next_offset:
                    return batch
    except CorruptionError:
        pass
    return None


def _by_index(reader: SegmentReader, position: int, end: int, next_offset: int) -> BatchInfo | None:
    try:
        while (entry := reader.offset_index.upper_bound(position + 1)) is not None and entry.position < end:
            batch = sound_at(reader, entry.position, end)
            if batch is not None and next_offset <= batch.base_offset <= entry.offset:
                return batch
            position = entry.position
    except CorruptIndexError:
        pass
    return None


def sound_at(reader: SegmentReader, position: int, end: int) -> BatchInfo | None:
    """The batch at a position, if there is one and its checksum is right."""
    try:
        header = next(reader.log.batches(position, end), None)
        if header is None:
            return None
        batch_of(read_batch(reader.log.file, header)).ensure_valid()
    except (CorruptionError, UnsupportedError):
        return None
    return header
