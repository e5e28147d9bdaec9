"""Which partition a row goes to: what its column `partition` says, else what its key does, else its turn.

The key decides as in Kafka's own producers (murmur2). Rows without a key are dealt out in runs, as the producer does,
not one by one: neighbours stay together, which costs less and compresses better. Rows of a partition keep their order.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.columns import partition_for_keys
from tidelog.columns.inputs import Inputs
from tidelog.columns.soundness import ensure_sound_batch
from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.spark.write_options import ensure_writable_topic

__all__ = ["MOST_NAMED", "Dealer", "Dealt", "TopicShape", "ensure_counted", "shapes_of"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]

MOST_NAMED = 1000  # partitions that rows can ask for by themselves: a wrong number must not make as many directories
_NARROW = 1 << 16  # numbers below it are sorted by their digits


class TopicShape(NamedTuple):
    """How many partitions a topic has. `only` are those that are here, where some are not.

    `in_cluster` is how many there are by the metadata log, where that is more than are here.
    """

    partitions: int
    only: frozenset[int] | None = None
    in_cluster: int | None = None

    @classmethod
    def settled(
        cls, topic: str, there: Iterable[int], wanted: int | None, known: int | None = None, *, may_lack: bool = False
    ) -> "TopicShape":
        """The shape of a topic of which partitions are there, for a write that was told a number, or none.

        `known` is how many it has by the metadata log of the cluster, if that knows it. `may_lack`: more of them may be
        in other log directories of the broker.
        """
        numbers = frozenset(there)
        if known is not None and wanted not in (None, known):
            raise InvalidRequestError(
                f"partitions={wanted}: {topic} has {known} by the metadata log of the cluster; leave the option out, "
                "or add partitions with kafka-topics.sh --alter before the write"
            )
        if not numbers:
            return cls(known or wanted or 1)
        count = max(numbers) + 1
        if known is not None and len(numbers) < known:
            return cls(count, numbers, known)
        if len(numbers) == count:
            if wanted not in (None, count):
                raise InvalidRequestError(
                    f"{topic} has {count} partitions already: partitions={wanted} is for a new topic, leave it out"
                )
            return cls(count, numbers if may_lack and wanted is None and known is None else None)
        if wanted is None:
            return cls(count, numbers)
        if wanted < count:
            raise InvalidRequestError(f"{topic} has a partition {count - 1} already: partitions={wanted} is too few")
        return cls(wanted)


def shapes_of(
    partitions: Iterable[TopicPartition],
    topic: str | None,
    wanted: int | None,
    known: Mapping[str, int] | None = None,
    *,
    may_lack: bool = False,
) -> dict[str, TopicShape]:
    """The shapes of the topics of a root; of one topic only, new or not, where the write is for one.

    Where rows name their topics, `wanted` is for those that are new. `known` is how many partitions topics have by the
    metadata log of the cluster. `may_lack`: the broker may have more partitions in other log directories.
    """
    known = known or {}
    there: dict[str, set[int]] = {} if topic is None else {topic: set()}
    for name, number in partitions:
        if topic in (None, name):
            there.setdefault(name, set()).add(number)
    return {
        name: TopicShape.settled(name, found, wanted if topic else None, known.get(name), may_lack=may_lack)
        for name, found in there.items()
    }


class Dealt(NamedTuple):
    """Rows of a topic, and the number of the partition that each goes to."""

    topic: str
    rows: Inputs
    numbers: Int64Array


class Dealer:
    """Deals out the rows of one task. `first` is where rows without a key begin, so that not all begin with 0.

    `wanted` is how many partitions new topics get, all of them or each. One of which nobody says it gets as many as its
    rows name, or one.
    """

    def __init__(
        self, topic: str | None, shapes: Mapping[str, TopicShape], wanted: int | Mapping[str, int] | None, first: int
    ) -> None:
        self.shapes = dict(shapes)  # of all topics that have rows, also new ones
        self.dealt: set[str] = set()  # new topics of unknown size that have rows which name no partition
        self._topic = topic
        self._wanted = wanted
        self._growing: set[str] = set()  # new topics of unknown size
        self._turn = first

    def deal(self, rows: pa.RecordBatch) -> Iterator[Dealt]:
        """The rows of each topic, with what is stored of them."""
        ensure_sound_batch(rows)
        for topic, part in self._by_topic(rows):
            numbers = self.numbers(topic, part)
            stored = part.select([name for name in part.schema.names if name not in ("topic", "partition")])
            yield Dealt(topic, Inputs(stored, is_sound=True), numbers)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        named = rows.column("topic").dictionary_encode()
        if named.null_count:
            raise InvalidRequestError("a row whose topic is null: every row needs one, or set the option topic")
        topics = named.dictionary.to_pylist()
        for index, order in _orders(named.indices.to_numpy().astype(np.int64)):
            yield topics[index], rows if order is None else rows.take(pa.array(order))

    def shape_of(self, topic: str) -> TopicShape:
        """The shape of a topic, which may be new."""
        ensure_writable_topic(topic)  # Kafka's own are there, and so are their shapes
        if topic not in self.shapes:
            wanted = self._wanted.get(topic) if isinstance(self._wanted, Mapping) else self._wanted
            self.shapes[topic] = TopicShape(wanted or 1)
            if wanted is None:
                self._growing.add(topic)
        return self.shapes[topic]

    def _grow(self, topic: str, numbers: pa.Array) -> TopicShape:
        """Let a new topic have the partitions that its rows name."""
        shape = self.shapes[topic]
        if numbers.null_count:
            self.dealt.add(topic)
        highest = pc.max(numbers).as_py()
        if highest is not None and shape.partitions <= highest < MOST_NAMED:
            shape = self.shapes[topic] = TopicShape(highest + 1)
        if topic in self.dealt:
            ensure_counted(topic, shape.partitions)
        return shape

    def numbers(self, topic: str, rows: pa.RecordBatch) -> Int64Array:
        """The partition of each row."""
        shape = self.shape_of(topic)
        names = rows.schema.names
        if "partition" in names:
            numbers = rows.column("partition").cast(pa.int64())
            if topic in self._growing:
                shape = self._grow(topic, numbers)
            _ensure_there(topic, numbers, shape)
        else:
            numbers = pa.nulls(rows.num_rows, pa.int64())
            if topic in self._growing:
                shape = self._grow(topic, numbers)
        if numbers.null_count and shape.only is not None:
            ways = (
                "if the broker has other log directories, `tidelog load --config server.properties` writes to all of "
                "them; otherwise the option partitions says how many there are"
            )
            if shape.in_cluster is not None:
                ways = (
                    f"the cluster has {shape.in_cluster} in all, and `tidelog load` without --master makes this node's"
                )
            raise InvalidRequestError(
                f"a row without a partition, and of {topic} only some are here: {_listed(shape.only)}; {ways}"
            )
        if numbers.null_count and shape.partitions == 1:
            numbers = numbers.fill_null(0)
        elif numbers.null_count and "key" in names:
            by_key = partition_for_keys(rows.column("key"), shape.partitions).cast(pa.int64())
            numbers = by_key if numbers.null_count == len(numbers) else pc.coalesce(numbers, by_key)
        return self._with_turns(numbers, shape.partitions)

    def _with_turns(self, numbers: pa.Array, count: int) -> Int64Array:
        """The numbers, with those that are missing dealt out in runs."""
        missing = numbers.null_count
        if not missing:
            return np.asarray(numbers, np.int64)
        values = np.array(numbers.fill_null(-1), np.int64)
        values[values < 0] = (np.arange(missing) * count // missing + self._turn) % count
        self._turn += min(missing, count)
        return values


def ensure_counted(topic: str, partitions: int) -> None:
    """Raise if nobody has said how many partitions a new topic has, and its rows do not all name one."""
    if partitions > 1:
        raise InvalidRequestError(
            f"some rows of the new topic {topic} name partitions, up to {partitions - 1}, and some name none: the "
            f'option partitions says how many there are, as a number or as {{"{topic}": {partitions}}}'
        )


def _ensure_there(topic: str, numbers: pa.Array, shape: TopicShape) -> None:
    """Raise InvalidRequestError if a row names a partition that there is not."""
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None:
        return
    wrong = low if low < 0 else high if high >= shape.partitions else None
    if wrong is None and shape.only is not None:
        named = pc.unique(numbers).drop_null().to_pylist()
        wrong = next((number for number in named if number not in shape.only), None)
    if wrong is not None:
        there = _listed(shape.only) if shape.only is not None else f"{shape.partitions} of them, from 0 on"
        raise InvalidRequestError(
            f"a row names partition {wrong} of {topic}, which has {there}; "
            "the option partitions says how many a new topic gets"
        )


def _orders(numbers: Int64Array) -> Iterator[tuple[int, Int64Array | None]]:
    """Which rows have each number, in the order they have; None where all of them have one."""
    if not len(numbers):
        return
    if not np.diff(numbers).any():
        yield int(numbers[0]), None
        return
    is_narrow = numbers.max() < _NARROW
    order = np.argsort(numbers.astype(np.uint16) if is_narrow else numbers, kind="stable")
    numbers = numbers[order]
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(edges):
        yield int(numbers[start]), order[start:end]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
