"""Where a source begins and ends: the options that say it, and the offsets that they come to.

    Bound.starting(values)   "earliest"            a Bound, on the driver, from the options alone
    ranges(...)              [23, 50) of orders-0  offsets, from what lies in the directories now

As in Spark's Kafka source a time stands for an offset, that of the first record at or after it: rows behind that one
are there whatever their own time is. In offsets given by partition -1 is the latest, -2 the earliest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.spark.committed_offsets import offsets_of_group
from tidelog.spark.option_values import OptionValues, is_long, parsed_json, shown
from tidelog.spark.topics import names_of
from tidelog.view.log_dirs import LogDirView
from tidelog.view.partition import EndBound, PartitionView

__all__ = ["EARLIEST", "LATEST", "Bound", "OffsetRange", "Reach", "parse_offsets", "ranges"]

LATEST, EARLIEST = -1, -2
_GROUP = "group:"

Offsets = Mapping[TopicPartition, int]
Kind = Literal["earliest", "latest", "offsets", "time", "times", "group"]


class OffsetRange(NamedTuple):
    """Offsets [first, limit) of a partition."""

    partition: TopicPartition
    first: int
    limit: int
    told_from: int = 0  # damage that begins below was told of by whoever has read that


class Reach(NamedTuple):
    """How far a reader sees into a log."""

    committed: bool = False
    end_bound: EndBound = "logEnd"

    @classmethod
    def of(cls, values: OptionValues, default: EndBound) -> "Reach":
        """What options say of it, also by the consumer's own name for it."""
        known = ("read_uncommitted", "read_committed")
        level = values.word("kafka.isolation.level", known, default=known[0])
        level = values.word("isolationLevel", known, default=level)
        bound = values.word("endBound", ("logEnd", "highWatermark"), default=default)
        return cls(level == "read_committed", "highWatermark" if bound == "highWatermark" else "logEnd")

    @property
    def to_log_end(self) -> "Reach":
        """The same, whatever the high watermark is."""
        return self._replace(end_bound="logEnd")

    def limit(self, partition: PartitionView) -> int:
        """The first offset of a partition that is not seen."""
        return partition.limit_of(committed=self.committed, end_bound=self.end_bound)


class Bound(NamedTuple):
    """A beginning or an end as it was asked for."""

    kind: Kind
    option: str = ""  # that said so
    time_ms: int = 0
    by_partition: tuple[tuple[TopicPartition, int], ...] = ()
    group: str = ""
    late_is_latest: bool = False  # where no record is as late as a time that something begins with

    @classmethod
    def starting(cls, values: OptionValues, *, default: Literal["earliest", "latest"]) -> "Bound":
        """The beginning. A time counts more than times by partition, and those more than offsets."""
        strategy = values.word("startingOffsetsByTimestampStrategy", ("error", "latest"), default="error")
        return _bound(values, "starting", default)._replace(late_is_latest=strategy == "latest")

    @classmethod
    def ending(cls, values: OptionValues) -> "Bound":
        """The end."""
        bound = _bound(values, "ending", "latest")
        if bound.kind == "offsets" and any(offset == EARLIEST for _, offset in bound.by_partition):
            raise InvalidRequestError(
                f"{bound.option} can not be the earliest, -2, of a partition: it would have no rows"
            )
        if bound.kind in ("earliest", "group"):
            raise InvalidRequestError(f"{bound.option} says where reading ends: latest, or offsets by partition")
        return bound._replace(late_is_latest=True)

    def ensure_is_no_end(self) -> None:
        """Refuse a batch that begins where it ends."""
        if self.kind == "latest" or any(offset == LATEST for _, offset in self.by_partition if self.kind == "offsets"):
            raise InvalidRequestError(f"{self.option} can be latest in a stream only: a batch would have no rows")

    def ensure_fits(self, ending: "Bound") -> None:
        """Refuse two bounds by partition that name different ones, or that are the wrong way round."""
        if self.kind not in ("offsets", "times") or ending.kind != self.kind:
            return
        first, limit = dict(self.by_partition), dict(ending.by_partition)
        if first.keys() != limit.keys():
            ours, theirs = names_of(first), names_of(limit)
            raise InvalidRequestError(
                f"{self.option} names {ours}, {ending.option} {theirs}: both name the same partitions"
            )
        for partition, offset in first.items():
            if offset > limit[partition] >= 0:
                raise InvalidRequestError(
                    f"{self.option} begins {partition} with {offset}, after its end {limit[partition]}"
                )

    def offsets(self, logs: LogDirView, chosen: Sequence[TopicPartition], reach: Reach) -> dict[TopicPartition, int]:
        """The offset of each partition."""
        if self.kind in ("offsets", "times"):
            given = dict(self.by_partition)
            if given.keys() != set(chosen):
                raise InvalidRequestError(
                    f"{self.option} names {names_of(given)}, there are {names_of(chosen)}: name every partition, "
                    "-1 is the latest offset and -2 the earliest"
                )
            if self.kind == "times":
                return {p: self._offset_of_time(logs[p], given[p], reach) for p in chosen}
            return {p: _resolved(given[p], logs[p], reach) for p in chosen}
        if self.kind == "time":
            return {p: self._offset_of_time(logs[p], self.time_ms, reach) for p in chosen}
        if self.kind == "group":
            committed = offsets_of_group(logs, self.group, chosen)
            return {p: committed.get(p, logs[p].log_start_offset) for p in chosen}
        simple = LATEST if self.kind == "latest" else EARLIEST
        return {p: _resolved(simple, logs[p], reach) for p in chosen}

    def _offset_of_time(self, partition: PartitionView, time_ms: int, reach: Reach) -> int:
        limit = reach.limit(partition)
        found = partition.offset_for_time(time_ms)
        if found is not None and 0 <= found.offset < limit:
            return found.offset
        if not self.late_is_latest and time_ms != LATEST:
            raise InvalidRequestError(
                f"{self.option}: no record of {partition.topic_partition} is at or after {time_ms}; "
                "startingOffsetsByTimestampStrategy=latest begins with its end"
            )
        return limit


def ranges(
    logs: LogDirView,
    chosen: Sequence[TopicPartition],
    starting: Bound,
    ending: Bound,
    reach: Reach,
    on_loss: Callable[[str], None],
) -> list[OffsetRange]:
    """The offsets to read of each partition. What is asked for and not there is told to `on_loss`, then left out.

    A beginning behind the end is refused, wherever the two come from and whatever may be lost, as in Spark's Kafka
    source.
    """
    first = starting.offsets(logs, chosen, reach)
    limit = ending.offsets(logs, chosen, reach)
    found = []
    for partition in chosen:
        if first[partition] > limit[partition]:
            raise InvalidRequestError(
                f"{starting.option} begins {partition} with {first[partition]}, after its end {limit[partition]}"
            )
        found.append(kept(OffsetRange(partition, first[partition], limit[partition]), logs[partition], reach, on_loss))
    return [one for one in found if one.first < one.limit]


def kept(wanted: OffsetRange, view: PartitionView, reach: Reach, on_loss: Callable[[str], None]) -> OffsetRange:
    """The part of a range that is there; `on_loss` hears of the rest."""
    start, end = view.log_start_offset, reach.limit(view)
    if wanted.first < start and wanted.first < wanted.limit:
        on_loss(f"offsets {wanted.first} to {min(start, wanted.limit) - 1} of {wanted.partition} are gone")
    if wanted.limit > end:
        on_loss(f"{wanted.partition} ends with offset {end}, before {wanted.limit}")
    return wanted._replace(first=max(wanted.first, start), limit=min(wanted.limit, end))


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int]:
    """Numbers by partition, as Spark's Kafka source writes them.

    >>> parse_offsets('{"orders":{"0":23}}', "startingOffsets")
    {TopicPartition(topic='orders', partition=0): 23}
    """
    try:
        parsed = parsed_json(text)
        numbers = {
            TopicPartition(topic, int(partition)): number
            for topic, offsets in parsed.items()
            for partition, number in offsets.items()
        }
        if not all(is_long(number) for number in numbers.values()):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise InvalidRequestError(
            f'{option} is written {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, not {shown(text)}'
        ) from None
    return numbers


def _bound(values: OptionValues, side: str, default: Literal["earliest", "latest"]) -> Bound:
    option = f"{side}Timestamp"
    text = values.text(option)
    if text is not None:
        try:
            time_ms = int(text)
            if not is_long(time_ms):
                raise ValueError
        except ValueError:
            raise InvalidRequestError(f"{option} is a number of milliseconds since 1970, not {shown(text)}") from None
        return Bound("time", option, time_ms)
    option = f"{side}OffsetsByTimestamp"
    text = values.text(option)
    if text is not None:
        return Bound("times", option, by_partition=tuple(parse_offsets(text, option).items()))
    option = f"{side}Offsets"
    text = values.text(option)
    if text is None:
        return Bound(default, option)
    if text.lower() == "earliest":
        return Bound("earliest", option)
    if text.lower() == "latest":
        return Bound("latest", option)
    if text.lower().startswith(_GROUP):
        return Bound("group", option, group=text[len(_GROUP) :])
    offsets = parse_offsets(text, option)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise InvalidRequestError(f"{option}: offset {offset} of {partition}; -1 is the latest, -2 the earliest")
    return Bound("offsets", option, by_partition=tuple(offsets.items()))


def _resolved(offset: int, partition: PartitionView, reach: Reach) -> int:
    if offset == EARLIEST:
        return partition.log_start_offset
    return reach.limit(partition) if offset == LATEST else offset
