"""`tidelog spark profile`: what is in the topics of log directories, and what could be better.

    driver   cuts partitions into pieces at batch boundaries, and marks some of each topic as samples
    tasks    read pieces, count in numpy and Arrow                          (profile_facts.py, sketches.py)
             and measure what codecs make of the samples                    (codec_trial.py)
    tasks    merge what was counted of a partition
    driver   merges partitions into topics, and draws conclusions           (advice.py, report.py)

A task gives back some hundred kilobytes, whatever it has read.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import TidelogError
from tidelog.log.names import TopicPartition
from tidelog.spark.bounds import OffsetRange, Reach
from tidelog.spark.jobs.codec_trial import try_codecs
from tidelog.spark.jobs.profile_facts import PartitionFacts
from tidelog.spark.jobs.tasks import OnTasks, Refusal, watched
from tidelog.spark.option_values import OptionValues
from tidelog.spark.places import Places
from tidelog.spark.planning import Splits, plan_tasks
from tidelog.spark.topics import TopicChoice
from tidelog.view.files import ReadOnlyFiles, ViewFiles
from tidelog.view.piece_walk import PieceWalk
from tidelog.view.pieces import Piece, PieceReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.view.log_dirs import LogDirView

__all__ = ["Profile", "TopicProfile", "profile"]

PART_BYTES = 64 << 20
_SAMPLES = 8  # pieces of a topic that codecs are tried on, where there are few topics:
_ALL_SAMPLES = 200  # each takes a third of a second
_MOST_DAMAGE_TOLD = 20
_COLUMNS = ("key", "value", "offset", "timestamp")
_MAX_ROWS, _MAX_BYTES = 131_072, 16 << 20
_LONG_AGO_MS = -(1 << 62)


class TopicProfile:
    """What was counted of a topic: as a whole, and by partition."""

    def __init__(self, name: str, partitions: dict[int, PartitionFacts]) -> None:
        self.name = name
        self.partitions = dict(sorted(partitions.items()))
        self.facts = PartitionFacts()
        for facts in self.partitions.values():
            self.facts.merge(facts)

    @property
    def is_whole(self) -> bool:
        """Whether every partition from 0 on is here: the directories of one broker hold some of them only."""
        return list(self.partitions) == list(range(len(self.partitions)))


class Profile(NamedTuple):
    """What was counted of all topics."""

    paths: tuple[str, ...]
    topics: list[TopicProfile]


class _Wanted(NamedTuple):
    """A piece to count; whether codecs are tried on it; how many partitions its topic has, 0 if that is not known."""

    piece: Piece
    is_sample: bool
    partitions: int


def profile(
    spark: "SparkSession",
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    topics: Sequence[str] | None = None,
    committed: bool = False,
    part_bytes: int = PART_BYTES,
    storage: dict[str, str] | None = None,
    on_tasks: OnTasks | None = None,
) -> Profile:
    """Profile some topics, or all but Kafka's own, of directories that driver and workers see under the same names."""
    names = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    options = {f"storage.{name}": value for name, value in (storage or {}).items()}
    places = [Places.of(OptionValues({"path": name, **options})) for name in names]
    where = Places(tuple(path for place in places for path in place.paths), None, places[0].storage)
    logs = where.open()
    choice = TopicChoice(topics=tuple(topics or ()))
    chosen = choice.choose(logs)
    tasks = _tasks(logs, chosen, Reach(committed=committed), part_bytes)
    counted: dict[TopicPartition, PartitionFacts] = {name: PartitionFacts() for name in chosen}
    if tasks:
        counted |= _run(spark, tasks, where, on_tasks)
    by_topic: dict[str, dict[int, PartitionFacts]] = {}
    for name, facts in sorted(counted.items()):
        by_topic.setdefault(name.topic, {})[name.partition] = facts
    return Profile(where.paths, [TopicProfile(topic, facts) for topic, facts in by_topic.items()])


def _tasks(logs: "LogDirView", chosen: Sequence[TopicPartition], reach: Reach, part_bytes: int) -> list[list[_Wanted]]:
    """The pieces of each task."""
    views = {name: logs[name] for name in chosen}
    ranges = [OffsetRange(name, view.log_start_offset, reach.limit(view)) for name, view in views.items()]
    wanted = [one for one in ranges if one.first < one.limit]
    planned = plan_tasks(logs, wanted, Splits(part_bytes), reach, skip_damage=True)
    samples = _samples([piece for task in planned for piece in task.pieces])
    counts = _partition_counts(logs)
    return [[_Wanted(piece, piece in samples, counts.get(piece.topic, 0)) for piece in task.pieces] for task in planned]


def _samples(pieces: Sequence[Piece]) -> set[Piece]:
    """Some pieces of each topic, spread over all of it."""
    by_topic: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_topic.setdefault(piece.topic, []).append(piece)
    most = max(min(_SAMPLES, _ALL_SAMPLES // max(len(by_topic), 1)), 1)
    found: set[Piece] = set()
    for those in by_topic.values():
        step = max(len(those) / most, 1)
        found.update(those[int(number * step)] for number in range(min(len(those), most)))
    return found


def _partition_counts(logs: "LogDirView") -> dict[str, int]:
    """How many partitions each topic has, of which all are here."""
    numbers: dict[str, set[int]] = {}
    for name in logs.partitions:
        numbers.setdefault(name.topic, set()).add(name.partition)
    return {topic: len(those) for topic, those in numbers.items() if those == set(range(len(those)))}


def _run(
    spark: "SparkSession", tasks: Sequence[list[_Wanted]], where: Places, on_tasks: OnTasks | None
) -> dict[TopicPartition, PartitionFacts]:
    """What was counted, by partition."""
    context = spark.sparkContext
    rows: Any = context.parallelize(tasks, len(tasks)).flatMap(partial(_count, where))
    merged = rows.reduceByKey(_merged, max(min(len(tasks), 2 * context.defaultParallelism), 1))
    found: dict[TopicPartition, PartitionFacts] = {}
    with watched(spark, "profile", on_tasks):
        for name, facts in merged.collect():
            if isinstance(facts, Refusal):
                raise facts.error()
            found[TopicPartition(*name)] = facts
    return found


def _merged(one: "PartitionFacts | Refusal", two: "PartitionFacts | Refusal") -> "PartitionFacts | Refusal":
    if isinstance(one, Refusal):
        return one
    return two if isinstance(two, Refusal) else one.merge(two)


# -- in a worker -------------------------------------------------------------------------------------------------------


def _count(where: Places, task: Sequence[_Wanted]) -> Iterator[tuple[tuple[str, int], "PartitionFacts | Refusal"]]:
    """What lies in the pieces of a task, by partition."""
    from tidelog.spark.worker import prepare_worker

    prepare_worker()
    found: dict[tuple[str, int], PartitionFacts] = {}
    for wanted in task:
        piece = wanted.piece
        facts = found.setdefault((piece.topic, piece.partition), PartitionFacts())
        try:
            _count_piece(facts, wanted, _files(piece.path, where))
        except TidelogError as error:
            yield (piece.topic, piece.partition), Refusal.of(error)
            return
    for name, facts in found.items():
        yield name, facts.trimmed()


def _count_piece(facts: PartitionFacts, wanted: _Wanted, files: ViewFiles) -> None:
    piece, newest_ms = wanted.piece, _LONG_AGO_MS
    reader = PieceReader(piece, _COLUMNS, True, "ms", _MAX_ROWS, _MAX_BYTES)
    notices: list[str] = []
    is_tried = not wanted.is_sample
    for window in PieceWalk(files, piece, verify=True, notices=notices):
        facts.add_batches(window.chunk.scan)
        for rows in reader.sound_rows(window, notices):
            newest_ms = facts.add_rows(rows, piece.partition, wanted.partitions, newest_ms)
            if not is_tried:
                facts.trial.merge(try_codecs(rows))
                is_tried = True
    facts.damage += notices[:_MOST_DAMAGE_TOLD]


def _files(path: str, where: Places) -> ViewFiles:
    if "://" not in path:
        return ReadOnlyFiles()
    from tidelog.view.remote_files import files_at

    return files_at(path, dict(where.storage) or None, None)[0]
