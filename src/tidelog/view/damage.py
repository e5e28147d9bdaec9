"""Reading around damage: stretches of segments that cannot be walked, and where batches go on behind a bad one.

Behind a batch that is damaged the next one is looked for in three ways. Its length leads there, if that is not what is
damaged; entries of the offset index point to batches; and what lies before these is searched byte by byte (resync.py).
What they lead to must be sound from its first byte to its last and lie after all that was read. Where none leads
anywhere, the rest of the segment is left out.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, pairwise

from tidelog.errors import CorruptIndexError, CorruptionError, SegmentGoneError, UnsupportedError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.segment_reader import SegmentReader
from tidelog.records.batch import BATCH_HEADER_SIZE, MAGIC
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC, batch_of
from tidelog.records.java import MAX_INT32
from tidelog.view.ordered_lookup import is_exact
from tidelog.view.partition import PartitionView
from tidelog.view.resync import Resync
from tidelog.view.segment import SegmentView
from tidelog.view.stretches import MisplacedSegmentError, Stretch

__all__ = ["framed_until", "indexed_before", "next_sound", "offset_of_damage", "sound_at", "stretches_around_damage"]


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
            if _reaches_over(segment, following):  # and so may other batches
                found = _whole_segment(partition, segment, begin, end)
        except CorruptionError as error:  # whoever reads it will meet it
            if isinstance(error, MisplacedSegmentError) and notices is not None:
                notices.append(f"{error}: what is not its own is left out")
            found = _whole_segment(partition, segment, begin, end)
        yield from (stretch._replace(limit_offset=end) for stretch in found)


def _reaches_over(segment: SegmentView, following: int) -> bool:
    """Whether the last batch of a segment says that it has offsets of the next one, or behind the log."""
    try:
        _, end = segment.open_to_end()
    except SegmentGoneError:
        return False
    return end.next_offset > following


def _whole_segment(partition: PartitionView, segment: SegmentView, begin: int, end: int) -> list[Stretch]:
    try:
        reader = _open(segment)
    except SegmentGoneError:
        return list(partition.stretches(begin, end))
    return [Stretch(segment, reader, _indexed_position(reader, begin), reader.size, begin, end)]


def _open(segment: SegmentView) -> SegmentReader:
    """A segment up to its last batch, or all of a file in which that cannot be told."""
    try:
        return segment.open()
    except CorruptionError:
        return segment.open_whole()


def _indexed_position(reader: SegmentReader, offset: int) -> int:
    """The position of a sound batch at or before an offset, by the index; 0 if there is none.

    The first offset of a batch is under no checksum. If the entry does not prove it, reading begins one entry earlier.
    """
    try:
        entry = reader.offset_index.lookup(offset)
    except CorruptIndexError:
        return 0
    batch = sound_at(reader, entry.position, reader.size)
    if batch is not None and is_exact(batch, entry):
        return entry.position
    earlier = indexed_before(reader, entry.position)
    batch = sound_at(reader, earlier, reader.size)
    return earlier if batch is not None and reader.base_offset <= batch.base_offset <= offset else 0


def next_sound(
    reader: SegmentReader, position: int, end: int, next_offset: int, limit: int, *, may_begin_before: bool = False
) -> BatchInfo | None:
    """The first batch behind a damaged one at a position that is known to be sound and has `next_offset` or more.

    Where nothing was read so far it may also begin below that offset, and reach it. One that begins with the `limit` of
    the segment, or behind it, is not sound: a first offset is under no checksum.
    """

    def fits(batch: BatchInfo) -> bool:
        reaches = (batch.last_offset if may_begin_before else batch.base_offset) >= next_offset
        return reaches and (batch.is_legacy or batch.base_offset < limit)

    by_length, by_index = _by_lengths(reader, position, end, fits), _by_index(reader, position, end, fits)
    known = min(filter(None, (by_length, by_index)), key=lambda batch: batch.position, default=None)
    is_frame = known is not None and known == by_length and known.position == _frame_end(reader, position, end)
    return _by_search(reader, position, end, known, fits, is_frame=is_frame) or known


def offset_of_damage(reader: SegmentReader, position: int, before: int) -> int:
    """The offset that damage at a position begins with: what its header says, if that fits between what is sound before
    it and the offset that follows it; otherwise that behind the former."""
    sound = _offset_behind_sound(reader, position)
    try:
        header = next(reader.log.batches(position, reader.size), None)
    except CorruptionError:
        return sound
    return header.base_offset if header is not None and sound <= header.base_offset < before else sound


def _offset_behind_sound(reader: SegmentReader, position: int) -> int:
    """The offset behind the last sound batch before a position; the segment's own if there is none."""
    start = position
    while start > 0:
        start = indexed_before(reader, start)
        headers: list[BatchInfo] = []
        with suppress(CorruptionError):
            headers.extend(reader.log.batches(start, position))
        for header in reversed(headers):
            if sound_at(reader, header.position, position) is not None:
                return header.next_offset
    return reader.base_offset


def indexed_before(reader: SegmentReader, position: int) -> int:
    """The greatest position of the index before another one; 0 if there is none."""
    before, behind = reader.base_offset - 1, reader.base_offset + MAX_INT32  # offsets of entries that are
    try:
        while before + 1 < behind:
            middle = (before + behind) // 2
            if reader.offset_index.lookup(middle).position < position:
                before = middle
            else:
                behind = middle
        return reader.offset_index.lookup(before).position
    except CorruptIndexError:
        return 0


def _by_lengths(reader: SegmentReader, position: int, end: int, fits: Callable[[BatchInfo], bool]) -> BatchInfo | None:
    try:
        for header in reader.log.batches(position, end):
            if header.position > position:
                batch = sound_at(reader, header.position, end)
                if batch is not None and fits(batch):
                    return batch
    except CorruptionError:
        pass
    return None


def _by_index(reader: SegmentReader, position: int, end: int, fits: Callable[[BatchInfo], bool]) -> BatchInfo | None:
    try:
        while (entry := reader.offset_index.upper_bound(position + 1)) is not None and entry.position < end:
            batch = sound_at(reader, entry.position, end)
            if batch is not None and fits(batch) and batch.base_offset <= entry.offset:
                return batch
            position = entry.position
    except CorruptIndexError:
        pass
    return None


def _frame_end(reader: SegmentReader, position: int, end: int) -> int | None:
    """Where the length of the batch at a position leads."""
    try:
        header = next(reader.log.batches(position, end), None)
    except CorruptionError:
        return None
    return None if header is None else header.position + header.size


def _by_search(
    reader: SegmentReader,
    position: int,
    end: int,
    known: BatchInfo | None,
    fits: Callable[[BatchInfo], bool],
    *,
    is_frame: bool,
) -> BatchInfo | None:
    """The first sound batch between a damaged one and one that is known to follow it, found by looking at every byte.

    Where the length of the damaged one leads to the one that follows, what lies between them counts only if it reaches
    that exactly: a value may hold a batch, too.
    """
    search = Resync(reader.log.file, end, reader.base_offset)
    until = end if known is None else known.position
    if is_frame:
        swallowed = search.swallowed(position + 1, until)
        found = None if swallowed is None else search.sound_at(swallowed)
        return found if found is not None and fits(found) else None
    legacy = reader.log.file.read(HEADER_SIZE_UP_TO_MAGIC - 1, 1) != bytes([MAGIC])
    position += 1
    while (at := search.next_sound(position, legacy=legacy, until=until)) is not None:
        found = search.sound_at(at)
        if found is None:
            return None  # it was cut while we looked
        if fits(found):
            return found
        position = at + found.size
    return None


def framed_until(reader: SegmentReader, position: int, end: int, fits: Callable[[BatchInfo], bool]) -> int:
    """Where the batches end that lead from a position to before another by their lengths. `fits` tells whether the
    offsets of one can be right; those of the others lie after them."""
    try:
        for last, header in pairwise(chain([None], reader.log.batches(position, end))):
            assert header is not None
            is_after = last is None or last.last_offset < header.base_offset
            if not (is_after and fits(header)) or (not header.is_legacy and header.size < BATCH_HEADER_SIZE):
                break
            position = header.position + header.size
    except CorruptionError:
        pass
    return position


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
