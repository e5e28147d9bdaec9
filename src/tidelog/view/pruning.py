"""The pieces of the log that can hold what a scan is asked for.

By offset: the index gives the position where reading begins, and where it ends. By time: below the first record that
reaches the earlier bound nothing does, which the time index finds; segments whose largest time lies before it are
passed over. Times need not be in order, so behind the first record that reaches the later bound there may be more that
lie before it: all that follows is read, unless the caller says by how much records can be late. By key: nothing, unless
the caller says that the default partitioner chose the partition.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise

from tidelog.errors import CorruptionError
from tidelog.log.batch_info import TRANSACTIONAL, BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.offsets import MAX_OFFSET
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.batches import batch_of
from tidelog.view.damage import indexed_before, sound_at, stretches_around_damage
from tidelog.view.partition import PartitionView
from tidelog.view.pieces import Piece
from tidelog.view.request import Request, RowChoice, time_ms
from tidelog.view.salvaged_transactions import salvaged_transactions
from tidelog.view.stretches import Stretch, reaches_over

__all__ = ["plan", "time_ms", "unverified_tail"]


def plan(
    partition: PartitionView, request: Request, *, max_bytes: int | None = None, notices: list[str] | None = None
) -> Iterator[Piece]:
    """The pieces of a partition that can hold what is asked for, in the order of offsets.

    They are cut at batches into about `max_bytes` each. Where a list of notices is given, what is damaged is noted
    there, and planned around.
    """
    partition.ensure_copies_agree()
    try:
        first, limit = request.offsets(partition, notices)
        aborted = partition.aborted_transactions(first, limit) if request.committed and first < limit else []
    except CorruptionError:
        if notices is None or not request.committed:
            raise
        first, limit, aborted = _committed_around_damage(partition, request, notices)
    if first >= limit:
        return
    stretches = (
        partition.stretches(first, limit)
        if notices is None
        else stretches_around_damage(partition, first, limit, notices=notices)
    )
    for stretch in _told_apart(stretches):
        if request.from_time_ms is not None and stretch.reader.largest_timestamp_ms < request.from_time_ms:
            continue
        for cut in _cut(stretch, max_bytes):
            yield _piece(partition, cut, aborted, request.rows)


def _committed_around_damage(
    partition: PartitionView, request: Request, notices: list[str]
) -> tuple[int, int, list[AbortedTxnEntry]]:
    """The first offset, the limit and the aborted transactions, where damage hides some of the transactions."""
    known = salvaged_transactions(partition, plan(partition, Request(), notices=[]))
    notice = known.notice(partition)
    if notice is not None and notice not in notices:
        notices.append(notice)
    first, limit = replace(request, committed=False).offsets(partition, notices)
    return first, min(limit, known.last_stable_offset), known.aborted


def unverified_tail(partition: PartitionView, request: Request) -> Piece | None:
    """The batches after the end of the log that are complete, whatever their checksums say, if they are asked for.

    Only for a reader that compares no checksums: for any other the log ends before them. Of transactions nobody can
    tell there how they ended: one who wants committed data gets none of them, and nothing after the first.
    """
    end, left_out = partition.log_end_offset, partition.left_out
    if left_out is None or left_out.offset != end or not request.reaches(partition, end):
        return None
    if request.committed and not _is_stable(partition):
        return None
    reader = partition.segments[-1].open_whole()
    batches: list[BatchInfo] = []
    try:
        for batch in reader.log.batches(left_out.position, left_out.position + left_out.size):
            if batch.base_offset < (batches[-1].next_offset if batches else end) or batch.next_offset > MAX_OFFSET:
                break
            if request.committed and (batch.attributes & TRANSACTIONAL or batch.is_control):
                break
            batches.append(batch)
    except CorruptionError:
        pass  # a length that no batch can have: what is before it can be read
    if not batches:
        return None
    stop = batches[-1].position + batches[-1].size
    return Piece(
        partition.topic, partition.partition, partition.path, reader.base_offset, reader.log.path, left_out.position,
        stop, batches[0].base_offset, end, batches[-1].next_offset, (), request.rows,
        is_after_end=True,
    )  # fmt: skip


def _is_stable(partition: PartitionView) -> bool:
    """Whether no transaction is open at the end of a log."""
    try:
        return partition.limit_of(committed=True) == partition.log_end_offset
    except CorruptionError:
        return False


def _told_apart(stretches: Iterator[Stretch]) -> Iterator[Stretch]:
    """The same stretches, each with its own offsets only: those below the first of the next."""
    for stretch, following in pairwise(chain(stretches, [None])):
        assert stretch is not None
        yield stretch if following is None else stretch._replace(limit_offset=following.first_offset)


def _cut(stretch: Stretch, max_bytes: int | None) -> Iterator[Stretch]:
    """A stretch in parts of about `max_bytes`, each of which begins with a batch."""
    rest = stretch
    while max_bytes is not None and rest.end - rest.start > max_bytes:
        batch = _batch_behind(rest, rest.start + max_bytes)
        if batch is None:
            break
        offset = _first_offset(rest.reader, batch)
        part = rest._replace(end=batch.position, limit_offset=min(offset, rest.limit_offset))
        rest = rest._replace(start=batch.position, first_offset=max(offset, rest.first_offset))
        if part.first_offset < part.limit_offset:
            yield part
    yield rest


def _batch_behind(stretch: Stretch, position: int) -> BatchInfo | None:
    """A sound batch of a stretch at or after a position: by the index, or if that does not help by walking there."""
    reader = stretch.reader
    try:
        entry = reader.offset_index.upper_bound(position)
        if entry is not None:
            if entry.position >= stretch.end:
                return None
            start = max(stretch.start, indexed_before(reader, entry.position))
            batch = next(_cuts(stretch, start, entry.position), None)
            is_entry = batch is not None and batch.position == entry.position
            if batch is not None and is_entry and reader.base_offset <= _first_offset(reader, batch) <= entry.offset:
                return batch
    except CorruptionError:  # an index that does not fit the log is no help
        pass
    try:
        return next(_cuts(stretch, stretch.start, position), None)
    except CorruptionError:  # all that follows is one piece, and its reader will meet it
        return None


def _cuts(stretch: Stretch, start: int, position: int) -> Iterator[BatchInfo]:
    """The batches at or after a position that a piece can begin with, found by walking from `start` on.

    They are sound, and their offsets are wanted and lie between those of their neighbours. A first offset is under no
    checksum: a cut at one that is wrong would leave out the batches that it passes over.
    """
    before = None
    for batch, behind in pairwise(chain(stretch.reader.log.batches(start, stretch.end), [None])):
        assert batch is not None
        is_wrong = (before is not None and reaches_over(before, batch)) or (
            behind is not None and reaches_over(batch, behind)
        )
        is_wanted = batch.is_legacy or batch.base_offset < stretch.limit_offset
        is_cut = batch.position >= position and is_wanted and not is_wrong
        if is_cut and sound_at(stretch.reader, batch.position, stretch.end) is not None:
            yield batch
        before = batch


def _first_offset(reader: SegmentReader, batch: BatchInfo) -> int:
    """The first offset of a batch, which a wrapper of the old formats holds inside."""
    if batch.is_legacy and batch.codec_id:
        return batch_of(read_batch(reader.log.file, batch)).base_offset
    return batch.base_offset


def _piece(partition: PartitionView, stretch: Stretch, aborted: list[AbortedTxnEntry], rows: RowChoice) -> Piece:
    reader = stretch.reader
    try:
        first = next(reader.log.batches(stretch.start, stretch.end), None)
    except CorruptionError:
        first = None
    return Piece(
        partition.topic,
        partition.partition,
        partition.path,
        reader.base_offset,
        reader.log.path,
        stretch.start,
        stretch.end,
        -1 if first is None else first.base_offset,
        stretch.first_offset,
        stretch.limit_offset,
        tuple(
            entry
            for entry in aborted
            if entry.first_offset < stretch.limit_offset and entry.last_offset >= stretch.first_offset
        ),
        rows,
        segment_limit=_segment_limit(partition, stretch),
    )


def _segment_limit(partition: PartitionView, stretch: Stretch) -> int:
    following = partition.look.next_of(stretch.segment)
    return MAX_OFFSET if following is None else following.base_offset
