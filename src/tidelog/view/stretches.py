"""The walk over a log that changes under the walker's feet.

A stretch is a piece of one segment that is held open. Between two stretches everything may have changed: a segment that
was listed may be deleted, have its name changed, or be replaced by one that holds the offsets of several. Then a fresh
look is taken and the walk goes on at the next offset. Offsets only go up, so no record is given twice, whatever
segments lie on top of each other; and what a fresh look does not have any more was deleted.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.errors import CorruptionError, CorruptRecordError, SegmentGoneError, StorageError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.batch_windows import read_windows
from tidelog.log.segment_reader import SegmentReader
from tidelog.records.batches import Batch, batch_of
from tidelog.view.look import Look
from tidelog.view.ordered_lookup import Fault, OffsetOrder
from tidelog.view.segment import ADVICE, SegmentEnd, SegmentView, with_advice

__all__ = [
    "MisplacedSegmentError",
    "Stretch",
    "batches_between",
    "lies_on_old_ones",
    "reaches_over",
    "stretches_between",
]

TakeLook = Callable[[], Look]

_MOST_LOOKS = 1000  # in a row without a step forward
_WINDOW_BYTES = 256 << 10  # records are read one by one here: large windows and kernels would not pay


class MisplacedSegmentError(CorruptRecordError):
    """A segment whose batches are not those that its name, or the next one's, lets expect."""


class Stretch(NamedTuple):
    """Batches of one segment, and the offsets wanted of them."""

    segment: SegmentView
    reader: SegmentReader  # held open
    start: int  # position of the first batch
    end: int  # position behind the last
    first_offset: int  # records below are not wanted,
    limit_offset: int  # nor are those from here on


def stretches_between(look: Look, take_look: TakeLook, first_offset: int, limit_offset: int) -> Iterator[Stretch]:
    """The stretches that hold the offsets from `first_offset` to before `limit_offset`, in order."""
    looks, doubt = 0, ""
    segment = look.holding(first_offset)
    while segment is not None and first_offset < limit_offset and segment.base_offset < limit_offset:
        try:
            reader, end = segment.open_to_end()
            _ensure_in_place(look, segment, reader, end)
            stretch = _stretch_of(segment, reader, end, first_offset, limit_offset)
        except (SegmentGoneError, CorruptRecordError) as error:
            looks += 1
            if looks == _MOST_LOOKS:
                raise StorageError(f"{look.directory} changes faster than it can be read: read a copy") from error
            if isinstance(error, CorruptRecordError):
                if doubt == str(error):
                    raise
                doubt = str(error)  # unless it was read while it was cut, it is so at a second look, too
            look = take_look()
            segment = look.holding(first_offset)
            continue
        if stretch is not None:
            looks, doubt = 0, ""
            yield stretch
        first_offset = max(first_offset, end.next_offset)
        segment = look.behind(segment, first_offset)


def _ensure_in_place(look: Look, segment: SegmentView, reader: SegmentReader, end: SegmentEnd) -> None:
    """Raise if a segment cannot be the one of its name: it holds no offset from its own first to the next one's.

    Reading on would pass over records without a word. The same holds for one that reaches over the next segment because
    its last batch has a damaged first offset. But it may have been compacted, and the old ones were not removed.
    """
    path, following = reader.log.path, look.next_of(segment)
    if end.position and end.next_offset <= segment.base_offset:
        raise MisplacedSegmentError(f"{path} holds offsets up to {end.next_offset - 1}, which are not its own{ADVICE}")
    if following is not None and end.next_offset > following.base_offset:
        first = next(reader.log.batches(0, end.position), None)
        what, begins = (
            f"{path} holds offsets up to {end.next_offset - 1}",
            f"begins with {following.base_offset}{ADVICE}",
        )
        if first is not None and first.base_offset >= following.base_offset:
            raise MisplacedSegmentError(f"{what} and none of its own: the next segment {begins}")
        if not lies_on_old_ones(look, reader, end):
            raise CorruptRecordError(f"{what}: the next segment {begins}")


def lies_on_old_ones(look: Look, reader: SegmentReader, end: SegmentEnd) -> bool:
    """Whether the records of the last batch of a segment are those of the old one whose name lets expect them.

    Compaction changes the offset of an entry of the old formats that wraps others: it is that of the last one left.
    """
    try:
        last = reader.lookup().find_offset(end.next_offset - 1)
        old = look.holding(end.next_offset - 1)
        if last is None or old is None:
            return False
        old_reader = old.open()
        found = old_reader.lookup().find_offset(last.base_offset)
        if found is None or found.is_legacy != last.is_legacy:
            return False
        if not last.is_legacy and _writer_of(found) != _writer_of(last):
            return False
        records = {one.offset: one for one in batch_of(read_batch(old_reader.log.file, found)).records()}
        kept = batch_of(read_batch(reader.log.file, last)).records()
        return all(records.get(record.offset) == record for record in kept)
    except CorruptionError:
        return False


def _writer_of(batch: BatchInfo) -> tuple[int, ...]:
    """What compaction keeps of a batch, whatever records it takes out."""
    return batch.base_offset, batch.last_offset, batch.producer_id, batch.producer_epoch, batch.base_sequence


def _stretch_of(
    segment: SegmentView, reader: SegmentReader, end: SegmentEnd, first_offset: int, limit_offset: int
) -> Stretch | None:
    if first_offset >= end.next_offset or not end.position:
        return None
    try:
        first = _batch_at(reader, first_offset, end)
        stop = end.position if limit_offset >= end.next_offset else _position_behind(reader, limit_offset, end)
    except CorruptionError as error:
        raise with_advice(error) from error
    if first.position >= stop:
        return None
    return Stretch(segment, reader, first.position, stop, first_offset, limit_offset)


def _position_behind(reader: SegmentReader, limit_offset: int, end: SegmentEnd) -> int:
    """Where the batches end that have offsets below `limit_offset`.

    The walk there begins with an offset below it: the last batch that is wanted is compared with what follows it, too.
    """
    batch = _batch_at(reader, limit_offset, end, walk_from=limit_offset - 1)
    # An entry of the old formats tells its last offset only: it may wrap some that are wanted.
    begins_before = batch.base_offset < limit_offset or (batch.is_legacy and batch.codec_id)
    return batch.position + batch.size if begins_before else batch.position


def _batch_at(reader: SegmentReader, offset: int, end: SegmentEnd, walk_from: int | None = None) -> BatchInfo:
    """The first batch that reaches an offset, which is not above the last one.

    A first offset is under no checksum: the lookup raises where offsets do not rise (ordered_lookup.py). One that lies
    behind the end of the segment cannot be, either.
    """
    position = 0
    for batch in reader.lookup().batches_from(offset if walk_from is None else walk_from):
        if batch.last_offset >= offset:
            break
        position = batch.position + batch.size
    else:
        raise CorruptRecordError(f"{reader.log.path}, position {position}: the file ends inside a batch")
    if batch.base_offset >= end.next_offset:
        what = f"offset {batch.base_offset} before {end.next_offset}"
        raise CorruptRecordError(f"{reader.log.path}, position {batch.position}: {what}")
    return batch


def reaches_over(batch: BatchInfo, following: BatchInfo) -> bool:
    """Whether a batch says that it has offsets of the one that follows it, which no sound ones of version 2 do."""
    is_new = not batch.is_legacy and not following.is_legacy
    return is_new and following.base_offset <= batch.last_offset


def batches_between(
    look: Look, take_look: TakeLook, first_offset: int, limit_offset: int, *, verify: bool
) -> Iterator[Batch]:
    """The batches that hold the offsets of a range, each once and in order; a copy of their bytes.

    Bytes that cannot be read are looked at a second time, by a fresh look: the end of a log may be cut and written anew
    while it is read. What is wrong twice in the same place is damage.
    """
    doubt: CorruptionError | None = None
    while True:
        walk = _Walk(first_offset, limit_offset, verify)
        yield from walk.batches(stretches_between(look, take_look, first_offset, limit_offset))
        if walk.problem is None:
            return
        if doubt is not None and str(doubt) == str(walk.problem):
            raise with_advice(doubt)
        doubt, first_offset = walk.problem, walk.next_offset
        look = take_look()


class _Walk:
    """One attempt. `problem` says what ended it too early, `next_offset` how far it came."""

    def __init__(self, first_offset: int, limit_offset: int, verify: bool) -> None:
        self.next_offset = first_offset
        self.problem: CorruptionError | None = None
        self._limit_offset = limit_offset
        self._verify = verify

    def batches(self, stretches: Iterator[Stretch]) -> Iterator[Batch]:
        for stretch in stretches:
            file, position = stretch.reader.log.file, stretch.start
            order = OffsetOrder(stretch.segment.base_offset)
            last: tuple[BatchInfo, Batch] | None = None  # given once it is known what follows it
            for window in read_windows(
                file, position, stretch.end, verify=self._verify, fast=False, window=_WINDOW_BYTES
            ):
                for info in window.batches:
                    fault = order.fault_of(info) or self._fault_of(info)
                    if last is not None and (fault is None or fault.position == info.position):
                        yield self._given(*last)
                    if fault is not None:
                        self.problem = CorruptRecordError(f"{file.path}, {fault}")
                        return
                    last = info, batch_of(bytes(window.bytes_of(info)))
                position = window.end
                self.problem = window.problem
                if self.problem is not None:
                    break
            if last is not None:
                yield self._given(*last)
            if self.problem is None and position < stretch.end:
                self.problem = CorruptRecordError(f"{file.path}, position {position}: the file ends inside a batch")
            if self.problem is not None:
                return

    def _fault_of(self, info: BatchInfo) -> Fault | None:
        """What is wrong with a batch by what was asked for: a segment before this one may have had its offsets."""
        if info.last_offset < self.next_offset:
            return Fault(info.position, f"offset {info.last_offset} behind {self.next_offset - 1}")
        if not info.is_legacy and info.base_offset >= self._limit_offset:
            return Fault(info.position, f"offset {info.base_offset} before {self._limit_offset}")
        return None

    def _given(self, info: BatchInfo, batch: Batch) -> Batch:
        self.next_offset = info.next_offset
        return batch
