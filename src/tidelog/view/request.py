"""What is asked for of some partitions: offsets, times, a key, whose transactions; in numbers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.view.lost_segments import LostSegment
from tidelog.view.partition import EndBound, PartitionView, ensure_flag

__all__ = ["Offsets", "Request", "RowChoice", "Time", "time_ms"]

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


class RowChoice(NamedTuple):
    """What single rows are asked for: a time in [from, to), one key. None asks for nothing."""

    from_time_ms: int | None = None
    to_time_ms: int | None = None
    key: bytes | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be there to decide."""
        has_times = self.from_time_ms is not None or self.to_time_ms is not None
        return (*(("timestamp",) if has_times else ()), *(("key",) if self.key is not None else ()))


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
        """The same out of what people write.

        Args:
            partitions: a number, or several.
            from_offset, to_offset: [from, to), for all partitions or by partition: `{0: 15}`, `{("orders", 0): 15}`.
            from_time, to_time: [from, to) by the records' own times: milliseconds, a date, or its text (UTC).
            max_lateness: by how much a record can be older than one before it, in milliseconds. Where that is known,
                reading ends soon behind `to_time`; otherwise all that follows must be looked at.
            key: only records with this key.
            key_partitions: how many partitions the topic has, where Kafka's default partitioner chose them by key:
                then only the partition of the key is read.
            committed: leave out transactions that were aborted, or are open.
            end_bound: read to the log's end, or only up to the high watermark.
        """
        ensure_flag(committed, "committed")
        if end_bound not in ("logEnd", "highWatermark"):
            raise InvalidRequestError(f"end_bound {end_bound!r}, known are 'logEnd' and 'highWatermark'")
        if key_partitions is not None and key is None:
            raise InvalidRequestError("key_partitions without a key: it says which partition a key lies in")
        if isinstance(max_lateness, timedelta):
            max_lateness = max_lateness // _ONE_MS
        if max_lateness is not None and (isinstance(max_lateness, bool) or not isinstance(max_lateness, int)):
            raise InvalidRequestError(f"max_lateness {max_lateness!r} is no number of milliseconds, and no timedelta")
        if max_lateness is not None and max_lateness < 0:
            raise InvalidRequestError(f"max_lateness {max_lateness} ms: records are late by 0 at least")
        return cls(
            partitions=None if partitions is None else frozenset(_numbers(partitions)),
            from_offset=_checked(from_offset, "from_offset"),
            to_offset=_checked(to_offset, "to_offset"),
            from_time_ms=None if from_time is None else time_ms(from_time),
            to_time_ms=None if to_time is None else time_ms(to_time),
            max_lateness_ms=max_lateness,
            key=None if key is None else _key(key),
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
            import pyarrow as pa

            from tidelog.columns.partitioner import partition_for_keys

            [home] = partition_for_keys(pa.array([self.key], pa.binary()), self.key_partitions).to_pylist()
            wanted = frozenset({home}) if wanted is None else wanted & {home}
        return [partition for partition in partitions if wanted is None or partition.partition in wanted]

    def offsets(self, partition: PartitionView, notices: list[str] | None = None) -> tuple[int, int]:
        """The first offset of a partition that can be wanted, and the first behind that cannot.

        Where a list of notices is given, damage that a lookup by time meets is noted there, and all is wanted.
        """
        first = max(partition.log_start_offset, _offset_of(self.from_offset, partition) or 0)
        limit = partition.limit_of(committed=self.committed, end_bound=self.end_bound)
        to_offset = _offset_of(self.to_offset, partition)
        if to_offset is not None:
            limit = min(limit, to_offset)
        try:
            if self.from_time_ms is not None and self.from_time_ms > 0:
                reached = partition.first_offset_reaching(self.from_time_ms)
                first = max(first, limit if reached is None else reached)
            if self.to_time_ms is not None and self.max_lateness_ms is not None:
                reached = partition.first_offset_reaching(max(self.to_time_ms + self.max_lateness_ms, 0))
                limit = limit if reached is None else min(limit, reached)
        except CorruptionError as error:
            if notices is None:
                raise
            notices.append(f"{error}: the time index of {partition.topic_partition} is of no help, all of it is read")
        return first, limit

    def lost_segments(self, partition: PartitionView) -> list[LostSegment]:
        """The lost segments of a partition that may have held what is wanted."""
        lost = partition.lost_segments
        if not lost:
            return []
        try:
            first, limit = self.offsets(partition, [])
        except CorruptionError:  # which of the offsets are wanted is not known
            return list(lost)
        return [one for one in lost if first < one.limit_offset and one.first_offset < limit]

    def reaches(self, partition: PartitionView, offset: int) -> bool:
        """Whether records at an offset of a partition and after it are asked for, by their offsets."""
        to_offset = _offset_of(self.to_offset, partition)
        return self.end_bound == "logEnd" and (to_offset is None or to_offset > offset)


def _key(key: bytes | str) -> bytes:
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(f"the key {ascii(key)} has no UTF-8: pass its bytes") from None
    if not isinstance(key, bytes | bytearray | memoryview):
        raise InvalidRequestError(f"a key is bytes or text, not {key!r}: a number is stored as some bytes, pass those")
    return bytes(key)


def _numbers(partitions: int | Collection[int]) -> Collection[int]:
    if not isinstance(partitions, int | Collection):
        raise InvalidRequestError(f"partitions are a number or several, not {partitions!r}")
    numbers = [partitions] if isinstance(partitions, int) else list(partitions)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidRequestError(f"partitions are numbers, not {number!r}")
    return numbers


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, sorted(set(numbers)))) or "none"


def _checked(offsets: Offsets | None, name: str) -> Offsets | None:
    for key in offsets if isinstance(offsets, Mapping) else ():
        is_pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int)
        if isinstance(key, bool) or not (isinstance(key, int) or is_pair):
            raise InvalidRequestError(f"{name} has the key {key!r}: a partition is a number, or a topic and a number")
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
