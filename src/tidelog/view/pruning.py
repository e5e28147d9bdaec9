"""What a scan is asked for, and the pieces of the log that can hold it.

By offset: the index gives the position where reading begins, and where it ends. By time: below the first record that
reaches the earlier bound nothing does, which the time index finds; segments whose largest time lies before it are
passed over. Times need not be in order, so behind the first record that reaches the later bound there may be more that
lie before it: all that follows is read, unless the caller says by how much records can be late. By key: nothing, unless
the caller says that the default partitioner chose the partition.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa

from tidelog.columns.partitioner import partition_for_keys
from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import read_batch
from tidelog.log.names import TopicPartition
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records.batches import batch_of
from tidelog.view.partition import EndBound, PartitionView
from tidelog.view.pieces import Piece
from tidelog.view.row_choice import RowChoice
from tidelog.view.stretches import Stretch

__all__ = ["Offsets", "Request", "Time", "plan", "time_ms"]

Time = int | str | date | datetime
Offsets = int | Mapping[int | TopicPartition | tuple[str, int], int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS = timedelta(milliseconds=1)


def time_ms(value: Time) -> int:
    """A time in milliseconds since 1970, of such a number, of a date, or of its text; without a zone it is UTC.

    What is finer than a millisecond is rounded up: then a record at the time itself is not before it.

    >>> time_ms(1_547_033_949_062), time_ms("2019-01-09T11:39:09.062Z"), time_ms("1970-01-02")
    (1547033949062, 1547033949062, 86400000)
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidRequestError(
                f"{value!r} is no time; write it as 2026-11-01 or 2026-11-01T08:00:00Z, or as milliseconds"
            ) from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return -((_EPOCH - aware) // _ONE_MS)
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day, tzinfo=UTC) - _EPOCH) // _ONE_MS
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{value!r} is no time: it is a number of milliseconds, a date or its text")
    return value


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a scan is asked for, in numbers."""

    partitions: frozenset[int] | None = None
    from_offset: Offsets | None = None
    to_offset: Offsets | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    max_lateness_ms: int | None = None
    key: bytes | None = None
    key_partitions: int | None = None
    committed: bool = False
    end_bound: EndBound = "logEnd"

    @classmethod
    def of(
        cls,
        *,
        partitions: int | Collection[int] | None = None,
        from_offset: Offsets | None = None,
        to_offset: Offsets | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        max_lateness: int | timedelta | None = None,
        key: bytes | str | None = None,
        key_partitions: int | None = None,
        committed: bool = False,
        end_bound: EndBound = "logEnd",
    ) -> "Request":
        """The same out of what people write."""
        if end_bound not in ("logEnd", "highWatermark"):
            raise InvalidRequestError(f"end_bound {end_bound!r}, known are 'logEnd' and 'highWatermark'")
        if key_partitions is not None and key is None:
            raise InvalidRequestError("key_partitions without a key: it says which partition a key lies in")
        if isinstance(max_lateness, timedelta):
            max_lateness = max_lateness // _ONE_MS
        if max_lateness is not None and max_lateness < 0:
            raise InvalidRequestError(f"max_lateness {max_lateness} ms: records are late by 0 at least")
        return cls(
            partitions=None if partitions is None else frozenset(_numbers(partitions)),
            from_offset=_checked(from_offset, "from_offset"),
            to_offset=_checked(to_offset, "to_offset"),
            from_time_ms=None if from_time is None else time_ms(from_time),
            to_time_ms=None if to_time is None else time_ms(to_time),
            max_lateness_ms=max_lateness,
            key=key.encode() if isinstance(key, str) else key,
            key_partitions=key_partitions,
            committed=committed,
            end_bound=end_bound,
        )

    @property
    def rows(self) -> RowChoice:
        """What single rows are asked for."""
        return RowChoice(self.from_time_ms, self.to_time_ms, self.key)

    def choose(self, partitions: Sequence[PartitionView]) -> list[PartitionView]:
        """The partitions that are asked for."""
        wanted = self.partitions
        if wanted is not None:
            for number in sorted(wanted - {partition.partition for partition in partitions}):
                raise InvalidRequestError(
                    f"there is no partition {number}; there are {_listed(p.partition for p in partitions)}"
                )
        if self.key_partitions is not None:
            [home] = partition_for_keys(pa.array([self.key], pa.binary()), self.key_partitions).to_pylist()
            wanted = frozenset({home}) if wanted is None else wanted & {home}
        return [partition for partition in partitions if wanted is None or partition.partition in wanted]


def _numbers(partitions: int | Collection[int]) -> Collection[int]:
    numbers = [partitions] if isinstance(partitions, int) else list(partitions)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidRequestError(f"partitions are numbers, not {number!r}")
    return numbers


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, sorted(set(numbers)))) or "none"


def _checked(offsets: Offsets | None, name: str) -> Offsets | None:
    for offset in offsets.values() if isinstance(offsets, Mapping) else () if offsets is None else (offsets,):
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise InvalidRequestError(f"{name} {offset!r}: an offset is a number from 0 on")
    return offsets


def _offset_of(offsets: Offsets | None, partition: PartitionView) -> int | None:
    """The bound of one partition: the same for all, or out of a mapping by number or by name and number."""
    if not isinstance(offsets, Mapping):
        return offsets
    by_name = offsets.get(partition.topic_partition)
    return offsets.get(partition.partition) if by_name is None else by_name


def plan(
    partition: PartitionView, request: Request, *, max_bytes: int | None = None, notices: list[str] | None = None
) -> Iterator[Piece]:
    """The pieces of a partition that can hold what is asked for, in the order of offsets.

    They are cut at batches into about `max_bytes` each. Where a list of notices is given, what is damaged is noted
    there, and planned around.
    """
    partition.ensure_copies_agree()
    first, limit = _offsets(partition, request, notices)
    if first >= limit:
        return
    aborted = partition.aborted_transactions(first, limit) if request.committed else []
    for stretch in _told_apart(_stretches(partition, first, limit, notices)):
        if request.from_time_ms is not None and stretch.reader.largest_timestamp_ms < request.from_time_ms:
            continue
        for cut in _cut(stretch, max_bytes):
            yield _piece(partition, cut, aborted, request.rows)


def _offsets(partition: PartitionView, request: Request, notices: list[str] | None) -> tuple[int, int]:
    """The first offset that can be wanted, and the first behind that cannot."""
    first = max(partition.log_start_offset, _offset_of(request.from_offset, partition) or 0)
    limit = partition.limit_of(committed=request.committed, end_bound=request.end_bound)
    to_offset = _offset_of(request.to_offset, partition)
    if to_offset is not None:
        limit = min(limit, to_offset)
    try:
        if request.from_time_ms is not None and request.from_time_ms > 0:
            reached = partition.offset_for_time(request.from_time_ms)
            first = max(first, limit if reached is None else reached.offset)
        if request.to_time_ms is not None and request.max_lateness_ms is not None:
            reached = partition.offset_for_time(max(request.to_time_ms + request.max_lateness_ms, 0))
            limit = limit if reached is None else min(limit, reached.offset)
    except CorruptionError as error:
        if notices is None:
            raise
        notices.append(f"{error}: the time index of {partition.topic_partition} is of no help, all of it is read")
    return first, limit


def _stretches(partition: PartitionView, first: int, limit: int, notices: list[str] | None) -> Iterator[Stretch]:
    """The stretches of the log between two offsets. One that is damaged, if that is no matter, is a whole segment."""
    if notices is None:
        yield from partition.stretches(first, limit)
        return
    bases = [segment.base_offset for segment in partition.segments]
    for segment, following in zip(partition.segments, [*bases[1:], limit], strict=True):
        begin, end = max(first, segment.base_offset), min(limit, following)
        if begin >= end:
            continue
        try:
            found = list(partition.stretches(begin, end))
        except CorruptionError:  # whoever reads it will meet it, and note it
            found = [Stretch(segment, segment.open(), 0, segment.file_size, begin, end)]
        yield from found


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
    """A batch of a stretch at or behind a position: by the index, or if that does not help by walking there."""
    reader = stretch.reader
    try:
        entry = reader.offset_index.upper_bound(position)
        if entry is not None:
            if entry.position >= stretch.end:
                return None
            batch = next(reader.log.batches(entry.position, stretch.end), None)
            if batch is not None and reader.base_offset <= _first_offset(reader, batch) <= entry.offset:
                return batch
    except CorruptionError:  # an index that does not fit the log is no help
        pass
    try:
        walk = reader.log.batches(stretch.start, stretch.end)
        return next((batch for batch in walk if batch.position >= position), None)
    except CorruptionError:  # all that follows is one piece, and its reader will meet it
        return None


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
    )
