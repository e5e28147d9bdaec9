"""Several copies of one partition, as the roots of several brokers hold them: which one is read, and do they agree?

Read is the copy of the highest leader epoch, and among those the longest: it is the one that would lead. The others are
never added to it, so no record is there twice. Below the high watermark all copies must say the same. That is checked
before the first read, at a bounded number of places (the first and the last batch in common, and where segments begin),
by the epochs of leaders and by checksums of batches. `tidelog diff` compares them batch by batch.

A broker compacts its copy alone, so a batch of which records were removed says nothing against one that has them all.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import CorruptionError, TidelogError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.files import ReadFile
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.view.stretches import stretches_between

if TYPE_CHECKING:
    from tidelog.view.partition import PartitionView

__all__ = ["Copy", "chosen_first", "copy_of", "ensure_agreement"]

_MOST_PLACES = 32
_DELETE_HORIZON = 0x40  # set by compaction, which changes the base timestamp with it
_CRC, _LEGACY_CRC = slice(17, 21), slice(12, 16)


class Copy(NamedTuple):
    """A directory that holds a copy of a partition."""

    root: str
    path: str
    latest_epoch: int | None  # of the last leader it knows
    log_end_offset: int | None  # None where it cannot be read
    is_chosen: bool  # whether it is the one that is read
    problem: str | None = None  # why it cannot be read


def copy_of(view: "PartitionView", *, is_chosen: bool) -> Copy:
    """What is to be said of a copy, whether it can be read or not."""
    try:
        return Copy(view.root, view.path, view.latest_epoch, view.log_end_offset, is_chosen)
    except TidelogError as error:
        return Copy(view.root, view.path, None, None, is_chosen, str(error))


def chosen_first(copies: Sequence["PartitionView"], replica: str | None) -> "tuple[PartitionView, ...]":
    """The copies, the one to be read first: that of the root `replica`, if one is named, whatever the others are."""
    if len(copies) < 2:
        return tuple(copies)
    if replica is not None:
        return tuple(sorted(copies, key=lambda view: view.root != replica))
    return tuple(sorted(copies, key=_rank))


def _rank(view: "PartitionView") -> tuple[bool, int, int, int]:
    """What is read before what: a copy that cannot be read comes last, one that begins later behind its equals."""
    copy = copy_of(view, is_chosen=False)
    epoch = -1 if copy.latest_epoch is None else copy.latest_epoch
    start = view.log_start_offset if copy.problem is None else 0
    return copy.log_end_offset is None, -epoch, -(copy.log_end_offset or 0), start


def ensure_agreement(chosen: "PartitionView", others: Sequence["PartitionView"]) -> None:
    """Raise CorruptionError if a copy contradicts the one that is read. One that cannot be read contradicts nobody."""
    for other in others:
        if copy_of(other, is_chosen=False).problem is not None:
            continue  # `LogDirView.notices` tells of it
        difference = _difference(chosen, other)
        if difference is not None:
            raise CorruptionError(
                f"two copies of {chosen.topic_partition} contradict each other below the high watermark: {difference}; "
                f"`tidelog diff {chosen.path} {other.path}` shows where, "
                f"and replica={chosen.root!r} or replica={other.root!r} reads one of them"
            )


def _difference(one: "PartitionView", other: "PartitionView") -> str | None:
    first = max(one.log_start_offset, other.log_start_offset)
    limit = min(one.high_watermark, other.high_watermark)
    if first >= limit:
        return None
    if one.topic_id is not None and other.topic_id is not None and one.topic_id != other.topic_id:
        return f"{one.path} and {other.path} belong to topics of different ids"
    return _different_epoch(one, other, first, limit) or _different_batch(one, other, first, limit)


def _different_epoch(one: "PartitionView", other: "PartitionView", first: int, limit: int) -> str | None:
    if not (one.leader_epochs and other.leader_epochs):
        return None
    starts = {entry.start_offset for view in (one, other) for entry in view.leader_epochs}
    for offset in sorted({first, *(start for start in starts if first < start < limit)}):
        epochs = [_epoch_at(view, offset) for view in (one, other)]
        if None not in epochs and epochs[0] != epochs[1]:
            return f"offset {offset} is of leader epoch {epochs[0]} in {one.path} and of {epochs[1]} in {other.path}"
    return None


def _epoch_at(view: "PartitionView", offset: int) -> int | None:
    return next((entry.epoch for entry in reversed(view.leader_epochs) if entry.start_offset <= offset), None)


def _different_batch(one: "PartitionView", other: "PartitionView", first: int, limit: int) -> str | None:
    bases = {segment.base_offset for view in (one, other) for segment in view.segments}
    places = sorted(base for base in bases if first < base < limit - 1)
    step = -(-len(places) // _MOST_PLACES) or 1
    for offset in dict.fromkeys((first, *places[::step], limit - 1)):
        found = [_batch_at(view, offset, limit) for view in (one, other)]
        if found[0] is not None and found[1] is not None and _contradict(found[0], found[1]):
            return f"offset {offset} lies in different batches in {one.path} and {other.path}"
    return None


class _Header(NamedTuple):
    batch: BatchInfo
    crc: bytes

    @property
    def is_whole(self) -> bool:
        """Whether it can be as it was produced: no record was taken out of it."""
        batch = self.batch
        span = batch.last_offset - batch.base_offset + 1
        return batch.is_legacy or (batch.records_count == span and not batch.attributes & _DELETE_HORIZON)


def _batch_at(view: "PartitionView", offset: int, limit: int) -> _Header | None:
    """The batch that holds an offset, or the next one below `limit`."""
    for stretch in stretches_between(view.look, view.take_look, offset, limit):
        file = stretch.reader.log.file
        batch = next(stretch.reader.log.batches(stretch.start, stretch.end), None)
        return None if batch is None else _Header(batch, _crc_of(file, batch))
    return None


def _crc_of(file: ReadFile, batch: BatchInfo) -> bytes:
    return file.read(batch.position, BATCH_HEADER_SIZE)[_LEGACY_CRC if batch.is_legacy else _CRC]


def _contradict(one: _Header, other: _Header) -> bool:
    if one.batch.is_legacy != other.batch.is_legacy:
        return False  # one copy was converted
    ranges = [(header.batch.base_offset, header.batch.last_offset) for header in (one, other)]
    if ranges[0] != ranges[1]:
        # Where compaction took batches out of one copy the next batch was found. It must not lie across the other.
        return ranges[0][0] <= ranges[1][1] and ranges[1][0] <= ranges[0][1]
    return one.is_whole and other.is_whole and one.crc != other.crc
