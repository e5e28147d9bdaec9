"""The batches of a piece, wherever they lie by the time it is read.

First the place that was planned is read. If the file is gone, or what lies there is not what lay there when the plan
was made, the next offset that is wanted is looked up in the directory as it is now. A broker that compacts swaps files
under the same name, one that deletes renames them: what was open stays readable, what was not yet open is found again
or is gone, as it is for a consumer. Offsets that are below the start of the log by now, or behind its end, are gone;
those that a compaction took out between the two were never promised.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tidelog.columns.chunks import Chunk, read_chunks
from tidelog.errors import CorruptionError, CorruptRecordError, StorageError
from tidelog.kernels.headers import Checksum, HeaderScan, check_headers
from tidelog.log.batch_info import BatchInfo
from tidelog.log.files import ReadFile
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.segment_reader import SegmentReader
from tidelog.records.batch import MAGIC, PREFIX_SIZE
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC
from tidelog.view.damage import framed_until, next_sound, offset_of_damage, stretches_around_damage
from tidelog.view.files import ViewFiles
from tidelog.view.mended_file import MendedFile, header_proven
from tidelog.view.partition import PartitionView
from tidelog.view.row_choice import BoolArray, Int64Array, last_offsets
from tidelog.view.segment import with_advice
from tidelog.view.stretches import Stretch

if TYPE_CHECKING:
    from tidelog.view.pieces import Piece

__all__ = ["PieceWalk", "Window", "left_out"]


CHUNK_SIZE_AFTER_DAMAGE = 64 << 10  # where one batch is damaged, the next ones often are, and each is a new beginning
DENSE_RUN = 3  # after so many batches without a gap between them, a gap is taken for damage


class Window(NamedTuple):
    """Some batches of a segment, and the offset from which on their records are wanted."""

    segment: int
    path: str
    chunk: Chunk
    first_offset: int


class PieceWalk:
    """The windows of a piece. A window is valid until the next one is asked for.

    What is damaged, or is no batch, is looked at a second time, by a fresh look: the end of a log may be cut and
    written anew while it is read. What is wrong twice in the same place is raised, or, where a list of notices is
    given, noted there and left out. Without `verify` a batch whose only fault is its checksum is given, but a length
    that the checksum proves to be wrong is not believed: it would cost the batches that it covers. `on_loss` hears of
    offsets that were planned and are not in the log any more.
    """

    def __init__(
        self,
        files: ViewFiles,
        piece: "Piece",
        *,
        verify: bool = True,
        notices: list[str] | None = None,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self._files = files
        self._piece = piece
        self._verify = verify
        self._notices = notices
        self._on_loss = on_loss
        self._next_offset = piece.first_offset  # everything below was delivered,
        self._dense_run = 0  # the last so many batches of it without a gap between them
        self._chunk_size: int | None = None  # of what is read next
        self._doubt = ""  # what was wrong at the look before
        self._damaged = ""  # the file in which that was so again; nobody is rewriting it
        # Without checksums they still tell which lengths are wrong, where that is not an error.
        self._compares = verify or (notices is not None and not piece.is_after_end)
        self._unproven = range(0)  # positions of batches that are given although their checksums fail
        self.left_out = 0  # how often bytes were, so far
        self._told_end: int | None = None  # the end of the log that was told of as too early

    def __iter__(self) -> Iterator[Window]:
        if (yield from self._read_planned()):
            return
        while self._next_offset < self._piece.limit_offset:
            partition = self._partition_now()
            try:
                self._tell_of_lost(partition.log_start_offset, partition.log_end_offset)
                yield from self._read_as_it_is(partition)
                return
            except CorruptionError as error:
                if self._doubt == str(error):
                    raise with_advice(error) if isinstance(error, DamagedBatchError) else error from None
                self._doubt = str(error)

    def _read_planned(self) -> Generator[Window, None, bool]:
        """Read what was planned; whether all of it was there, and the same as then."""
        piece = self._piece
        try:
            file = self._files.open(piece.path)
            windows = self._read(piece.segment, file, piece.start, piece.end, piece.segment_limit)
            first = next(windows, None)
            if first is None or int(first.chunk.scan.rows["base_offset"][0]) != piece.start_offset:
                return False
            self._doubt_gap_before(piece.start_offset)
            yield first
            yield from windows
            self._doubt_gap_before(piece.limit_offset)
        except StorageError:  # if it lasts, whoever looks again will meet it
            return False
        except CorruptionError as error:
            self._doubt = str(error)
            return False
        return True

    def _read_as_it_is(self, partition: PartitionView) -> Iterator[Window]:
        """What the log holds by now of the offsets that are still wanted."""
        limit = self._piece.limit_offset
        if self._notices is None:
            for stretch in partition.stretches(self._next_offset, limit):
                self._doubt_gap_before(stretch.segment.base_offset)
                segment, file = stretch.segment.base_offset, stretch.reader.log.file
                yield from self._read(segment, file, stretch.start, stretch.end, MAX_OFFSET)
        else:
            for stretch in stretches_around_damage(partition, self._next_offset, limit, to_segment_ends=True):
                self._doubt_gap_before(stretch.segment.base_offset)
                behind = partition.look.next_of(stretch.segment)
                own_limit = partition.log_end_offset if behind is None else behind.base_offset
                yield from self._read_around_damage(stretch, own_limit, self._notices)
        self._doubt_gap_before(limit)

    def _partition_now(self) -> PartitionView:
        return PartitionView.at(self._files.fresh(), self._piece.directory)

    def _doubt_gap_before(self, offset: int) -> None:
        """Where offsets are left out, see whether they were deleted since the log was looked at."""
        if self._on_loss is not None and self._next_offset < offset:
            self._tell_of_lost(self._partition_now().log_start_offset)

    def _tell_of_lost(self, start: int, end: int | None = None) -> None:
        """Tell of the offsets, among those that are still wanted, that lie outside a log; they are not wanted then."""
        name, limit = f"{self._piece.topic}-{self._piece.partition}", self._piece.limit_offset
        if self._next_offset < start:
            first, self._next_offset = self._next_offset, min(start, limit)
            if self._on_loss is not None:
                self._on_loss(f"offsets {first} to {self._next_offset - 1} of {name} are gone since they were planned")
        if end is not None and max(end, self._next_offset) < limit and self._on_loss is not None:
            if end != self._told_end:
                self._on_loss(f"{name} ends with offset {end} by now, before {limit}")
            self._told_end = end

    def _read_around_damage(self, stretch: Stretch, own_limit: int, notices: list[str]) -> Iterator[Window]:
        """The sound batches of a stretch, whose segment has the offsets below `own_limit`."""
        reader, position = stretch.reader, stretch.start
        file = MendedFile(reader.log.file)
        self._unproven = range(0)
        while position < stretch.end and self._next_offset < stretch.limit_offset:
            try:
                limit = MAX_OFFSET if stretch.segment.is_active else own_limit  # where a log ends, its batches tell
                yield from self._read(stretch.segment.base_offset, file, position, stretch.end, limit)
                return
            except DamagedBatchError as error:
                self._believe(error, reader.log.path)
                self._chunk_size = CHUNK_SIZE_AFTER_DAMAGE
                is_first = self._next_offset == self._piece.first_offset
                following = next_sound(
                    reader, error.last_doubtful, stretch.end, self._next_offset, own_limit, may_begin_before=is_first
                )
                position = stretch.end if following is None else following.position
                before = own_limit if following is None else following.base_offset
                is_told = self._was_told_before(reader, error.position, before)
                proven = header_proven(reader, error.position, position)
                if proven is not None and self._fits(proven[1], before) and not file.is_mended(error.position):
                    position = error.position
                    file.mend(position, proven[0])
                    if not is_told:
                        length = proven[1].size - PREFIX_SIZE
                        notices.append(f"{error}: with a length of {length} its checksum holds, and it is read")
                    continue
                if not self._verify and error.position not in self._unproven:
                    framed = framed_until(reader, error.position, position, partial(self._fits, before=before))
                    if error.position < framed:
                        self._unproven, position = range(error.position, framed), error.position
                        continue
                self.left_out += 1
                if not is_told:
                    notices.append(f"{error}: {left_out(position - error.position, self._next_offset, before)}")
                if before >= stretch.limit_offset:
                    return

    def _fits(self, batch: BatchInfo, before: int) -> bool:
        """Whether the offsets of a batch lie between what was read and those of what follows it."""
        is_first = self._next_offset == self._piece.first_offset
        reached = batch.last_offset if is_first else batch.base_offset
        return self._next_offset <= reached and batch.base_offset <= batch.last_offset < before

    def _was_told_before(self, reader: SegmentReader, position: int, before: int) -> bool:
        """Whether damage that lies before an offset begins with offsets of another piece, which tells of it."""
        bound = self._piece.told_from
        return bound > 0 and offset_of_damage(reader, position, before) < bound

    def _believe(self, error: CorruptionError, path: str) -> None:
        """Raise it at the first time, so that a fresh look is taken."""
        if self._damaged != path:
            if self._doubt != str(error):
                raise error
            self._damaged = path

    def _read(
        self, segment: int, file: ReadFile, start: int, end: int, own_limit: int
    ) -> Generator[Window, None, None]:
        """The batches between two positions, up to the limit. The segment has the offsets below `own_limit`."""
        position, first_offset = start, self._next_offset
        try:
            for chunk in read_chunks(file, start=start, end=end, first_size=self._chunk_size):
                position = chunk.position + chunk.scan.end
                known = self._known_of(chunk, segment, own_limit, is_first=self._next_offset == first_offset)
                behind = _first_offset_behind(known.chunk, file, end)
                order = _Order.of(known.chunk.scan, known.before, behind, own_limit, self._dense_run)
                sound = order.how_many_are_sound(known.chunk.scan, self._piece.limit_offset, segment, own_limit)
                if sound > known.below:
                    scan = known.chunk.scan.pick(slice(known.below, sound))
                    yield Window(segment, file.path, known.chunk._replace(scan=scan), self._next_offset)
                    self._next_offset = int(last_offsets(scan)[-1]) + 1
                    self._dense_run = order.dense_run(known.below, sound, self._dense_run)
                if sound < len(known.chunk.scan.rows):
                    limit = min(self._piece.limit_offset, own_limit)
                    raise _damage(file.path, known.chunk, order, sound, limit)
                if self._next_offset >= self._piece.limit_offset:
                    return
        except DamagedBatchError:
            raise
        except CorruptRecordError as error:
            raise DamagedBatchError(f"{file.path}, {error}", position) from None
        if position < end:
            raise DamagedBatchError(f"{file.path}, position {position}: the file ends inside a batch", position)

    def _known_of(self, chunk: Chunk, segment: int, own_limit: int, *, is_first: bool) -> "_Known":
        """The batches of a chunk up to the last that is wanted, their checksums compared if so wished.

        Where an offset could not be looked up, there are others before and behind those that are wanted. The length of
        one that is damaged leads past what is wanted, or it is itself wanted and its first offset is wrong.
        """
        scan, below, before = chunk.scan, 0, self._next_offset - 1
        if self._notices is not None:
            if is_first:
                below = _how_many_below(last_offsets(scan), self._next_offset)
                first = int(scan.rows["base_offset"][0])
                before = segment - 1 if chunk.position == 0 else before if before < first else first - 1
            scan = scan.first(max(below, _how_many_begin_below(scan, self._piece.limit_offset, own_limit)))
        if self._compares:
            scan = check_headers(chunk.data, scan)
        if self._unproven:
            scan = self._with_unproven(scan, chunk.position)
        return _Known(chunk._replace(scan=scan), below, before)

    def _with_unproven(self, scan: HeaderScan, position: int) -> HeaderScan:
        """The same scan of bytes at a position, without a word about the checksums of what is given all the same."""
        at = scan.positions + position
        is_unproven = (at >= self._unproven.start) & (at < self._unproven.stop)
        return scan._replace(checksums=np.where(is_unproven, np.uint8(Checksum.UNKNOWN), scan.checksums))


class DamagedBatchError(CorruptRecordError):
    """There is no sound batch at a position of a file."""

    def __init__(self, message: str, position: int, last_doubtful: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        # Of the last batch that is not to be believed: of two that overlap it may be unknown which one is damaged.
        self.last_doubtful = position if last_doubtful is None else last_doubtful


class _Known(NamedTuple):
    """Batches of a chunk, of which the first `below` are not wanted, and the offset that they must lie behind."""

    chunk: Chunk
    below: int
    before: int


class _Order(NamedTuple):
    """The offsets of the batches of a scan, and what their neighbours say about them."""

    first: Int64Array
    last: Int64Array
    known: Int64Array  # the last offset of the batch before each
    following: Int64Array  # the first offset of the batch behind each
    is_over: BoolArray  # whether a batch reaches over the one behind it
    is_first: BoolArray  # and whether that can be because its own offset is wrong,
    is_second: BoolArray  # or because that of the one behind it is

    @classmethod
    def of(cls, scan: HeaderScan, before: int, behind: int | None, own_limit: int, dense_run: int) -> "_Order":
        """A first offset is under no checksum. Of two batches that reach over each other the one may be wrong that has
        room between its neighbours without it.

        The last one is compared with `behind`, the first offset of what follows the scan. Before the scan there were
        `dense_run` batches without a gap between them.
        """
        first, last, is_new = scan.rows["base_offset"].astype(np.int64), last_offsets(scan), ~scan.is_legacy
        known = np.append(before, last)[: len(last)]
        following = np.append(first, own_limit if behind is None else behind)[1:]
        is_over = is_new & np.append(is_new, behind is not None)[1:] & (last >= following)
        count = scan.rows["last_offset_delta"].astype(np.int64) + 1
        is_first = is_over & (following > known) & (following - known > count)
        beyond = np.append(following, own_limit)[1:]
        of_following = np.append(count, 0)[1:]
        is_second = is_over & (beyond > last) & (beyond - last > of_following)
        # In a log without gaps the first one is wrong if it fits exactly between its neighbours.
        fits_exactly = is_first & (following - known - 1 == count)
        is_dense = np.logical_and.accumulate(np.append(True, first == known + 1))[:-1]
        is_second &= ~(fits_exactly & is_dense & (np.arange(len(first)) + dense_run >= DENSE_RUN))
        return cls(first, last, known, following, is_over, is_first, is_second)

    def dense_run(self, start: int, stop: int, before: int) -> int:
        """How many batches without a gap between them end before `stop`, if so many ended before `start`."""
        gaps = np.flatnonzero(self.first[start:stop] != self.known[start:stop] + 1)
        return stop - start - int(gaps[-1]) if len(gaps) else before + stop - start

    def how_many_are_sound(self, scan: HeaderScan, limit: int, segment: int, own_limit: int) -> int:
        """How many batches at the front have right checksums, and offsets above those of the one before, up to a limit.

        The segment has the offsets from `segment` to before `own_limit`.
        """
        first, last, is_new = self.first, self.last, ~scan.is_legacy
        is_wrong = last <= self.known
        is_wrong |= is_new & ((first < segment) | (first >= limit) | (last >= own_limit) | (last < first))
        is_wrong |= (scan.checksums == int(Checksum.WRONG)) | self.is_first
        is_wrong[1:] |= (self.is_over & ~self.is_first)[:-1]
        wrong = np.flatnonzero(is_wrong)
        return int(wrong[0]) if len(wrong) else len(last)


def _damage(path: str, chunk: Chunk, order: _Order, index: int, limit_offset: int) -> DamagedBatchError:
    """What is wrong with a batch of a chunk, in words."""
    scan = chunk.scan
    first, last, known = (int(column[index]) for column in (order.first, order.last, order.known))
    position = chunk.position + int(scan.positions[index])
    try:
        scan.batch_in(chunk.data, index).ensure_valid()
    except CorruptionError as error:
        return DamagedBatchError(f"{path}, position {position}: {error}", position)
    if not scan.is_legacy[index] and first <= known:
        what = f"offset {first} behind {known}"
    elif last <= known:
        what = f"offset {last} behind {known}"
    else:
        what = f"offset {last} before {int(order.following[index]) if first < limit_offset else limit_offset}"
    is_either = order.is_first[index] and order.is_second[index]
    behind = position + int(scan.sizes[index])
    return DamagedBatchError(f"{path}, position {position}: {what}", position, behind if is_either else None)


def _first_offset_behind(chunk: Chunk, file: ReadFile, end: int) -> int | None:
    """The first offset of what follows the batches of a chunk before a position, if that is a batch of version 2."""
    if not len(chunk.scan.rows):
        return None
    start = int(chunk.scan.positions[-1] + chunk.scan.sizes[-1])
    behind = start + HEADER_SIZE_UP_TO_MAGIC
    if chunk.position + behind > end:
        return None
    if behind <= chunk.scan.end:
        head = bytes(chunk.data[start:behind])
    else:
        head = file.read(chunk.position + start, HEADER_SIZE_UP_TO_MAGIC)
    if len(head) < HEADER_SIZE_UP_TO_MAGIC or head[-1] != MAGIC:
        return None
    return int.from_bytes(head[:8], "big", signed=True)


def _how_many_below(offsets: Int64Array, bound: int) -> int:
    """How many offsets at the front are below a bound."""
    others = np.flatnonzero(offsets >= bound)
    return int(others[0]) if len(others) else len(offsets)


def _how_many_begin_below(scan: HeaderScan, limit: int, own_limit: int) -> int:
    """How many batches at the front may have offsets below a limit: up to the last that says so, and those behind it
    that say they reach over the one that follows them, or out of the segment. That is not so, and they are damaged."""
    first, last, is_new = scan.rows["base_offset"], last_offsets(scan), ~scan.is_legacy
    inside = np.flatnonzero(scan.is_legacy | (first < limit))
    count = int(inside[-1]) + 1 if len(inside) else 0
    reaches_over = is_new & ((last >= own_limit) | (last < first))
    reaches_over[:-1] |= (last[:-1] >= first[1:]) & is_new[:-1]
    while count < len(first) and reaches_over[count]:
        count += 1
    return count


def left_out(size: int, first: int, behind: int) -> str:
    """Say how many bytes are left out, and the offsets that they held, from the first to before another."""
    with_them = f", and offsets {first} to {behind - 1} with them" if first < behind else ""
    return f"these {size} bytes are left out{with_them}"
