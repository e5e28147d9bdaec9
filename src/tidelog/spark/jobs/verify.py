"""`tidelog spark verify`: what `tidelog fsck` finds, read by many.

    driver   lists the partitions, cuts their segments into parts
    tasks    read a part each: checksums, with `deep` every record       (segment_parts.py)
    tasks    one for each partition: put its parts together and compare indexes, snapshots, epochs with them
    driver   compares what only all partitions together tell, and the files of the roots

Between the two steps 80 bytes travel for every batch; to the driver come findings and a digest for each segment. The
report is that of `tidelog.fsck.check` to the letter.
"""

import hashlib
import os
import socket
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tidelog.errors import StorageError, TidelogError
from tidelog.fsck.batch_order import Layout
from tidelog.fsck.checker import conclude, planned_checks
from tidelog.fsck.doubts import LIKENESS
from tidelog.fsck.findings import Finding, Report
from tidelog.fsck.node_check import judge_nodes
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.places import PartitionPlace
from tidelog.fsck.root_files import LogEnds, RootFiles
from tidelog.fsck.segment_facts import Batches, SegmentFacts
from tidelog.kernels.record_walk import COLUMNS
from tidelog.log.names import LOG_SUFFIX, file_name
from tidelog.spark.jobs.segment_parts import SegmentPart, joined, parts_of, scan_part
from tidelog.spark.jobs.tasks import Guarded, OnTasks, Refusal, answers, watched
from tidelog.view.addresses import file_system_of, is_address, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PART_BYTES", "absolute_paths", "verify"]

PART_BYTES = 64 << 20
_SMALL_PARTS_TOGETHER = 16 << 20  # bytes of small segments that one task takes on


class _Place(NamedTuple):
    """A partition to be checked, and the number of its root."""

    place: PartitionPlace
    root: int
    explained: Sequence[tuple[int, int]]


class _Plan(NamedTuple):
    """What every task knows."""

    roots: list[RootFiles]
    places: list[_Place]
    deep: bool


class _Checked(NamedTuple):
    """What is left of a partition when it has been checked."""

    findings: list[Finding]
    ends: LogEnds | None
    segments: list[SegmentFacts]  # with a digest in place of their batches
    layout: Layout
    counts: dict[str, int]
    size: int


def verify(
    spark: "SparkSession",
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    deep: bool = False,
    quarantine: str | None = None,
    part_bytes: int = PART_BYTES,
    on_tasks: OnTasks | None = None,
) -> Report:
    """Check all that lies at or below some paths, which driver and workers see under the same names.

    `deep` and `quarantine` as in `tidelog.fsck.check`. Segments larger than `part_bytes` are read by several tasks.
    """
    names = absolute_paths([paths] if isinstance(paths, str | os.PathLike) else paths)
    fs = file_system_of(names)
    report = Report(tuple(names), deep)
    roots, checks = planned_checks(fs, names, deep=deep, quarantine=quarantine)
    number_of = {id(root): number for number, root in enumerate(roots)}
    places = [_Place(one.place, number_of[id(one.root)], one.explained) for one in checks]
    done = _run(spark, _Plan(roots, places, deep), checks, part_bytes, on_tasks)
    for one, found in zip(checks, done, strict=True):
        one.notes.findings = found.findings
        one.segments, one.layout = found.segments, found.layout
        report.counts.update(found.counts)
        report.bytes += found.size
    report.verdicts = judge_nodes(fs, roots, names)
    conclude(fs, report, roots, checks, [found.ends for found in done])
    return report


def absolute_paths(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Paths that mean the same to driver and workers. Addresses do already."""
    named = [local_path(os.fspath(path)) for path in paths]
    return [path if is_address(path) else os.path.abspath(path) for path in named]


# -- on Spark ----------------------------------------------------------------------------------------------------------


def _run(
    spark: "SparkSession", plan: _Plan, checks: Sequence[PartitionCheck], part_bytes: int, on_tasks: OnTasks | None
) -> list[_Checked]:
    """The checks of all partitions, in their order."""
    if not checks:
        return []
    context = spark.sparkContext
    tasks = list(_tasks(checks, part_bytes))
    shared = context.broadcast(plan)
    reduced = max(min(len(checks), 4 * context.defaultParallelism), 1)
    scanned: Any = context.parallelize(tasks, max(len(tasks), 1)).flatMap(partial(_scan_all, deep=plan.deep))
    empty = context.parallelize([(number, None) for number in range(len(checks))], 1)  # those without a segment, too
    finished = scanned.union(empty).groupByKey(reduced).map(Guarded(partial(_finish, shared)))
    with watched(spark, "verify", on_tasks):
        found = dict(answers(finished.collect()))
    shared.unpersist()
    return [found[number] for number in range(len(checks))]


def _tasks(checks: Sequence[PartitionCheck], part_bytes: int) -> Iterable[list[tuple[int, SegmentPart]]]:
    """The parts of all segments, each with the number of its partition; small ones share a task."""
    together = min(_SMALL_PARTS_TOGETHER, 4 * part_bytes)
    small: list[tuple[int, SegmentPart]] = []
    filled = 0
    fs = file_system_of([one.place.path for one in checks])
    for number, one in enumerate(checks):
        for base in one.files.bases:
            size = one.files.stats[file_name(base, LOG_SUFFIX)].size
            parts = parts_of(fs, one.files.path(base, LOG_SUFFIX), base, size, part_bytes)
            if size >= together:
                yield from ([(number, part)] for part in parts)
                continue
            small += [(number, part) for part in parts]
            filled += size
            if filled >= together:
                yield small
                small, filled = [], 0
    if small:
        yield small


def _scan_all(task: list[tuple[int, SegmentPart]], *, deep: bool) -> list[tuple[int, Any]]:
    """The parts of a task, read. What cannot be read is left to the check of its partition, which can tell why."""
    found: list[tuple[int, Any]] = []
    for number, part in task:
        try:
            found.append((number, (part, scan_part(file_system_of([part.path]), part, deep=deep))))
        except TidelogError as error:
            _ensure_seen_here(part.path.rpartition("/")[0])
            found.append((number, (part, Refusal.of(error))))
    return found


def _finish(shared: Any, parts_of_partition: tuple[int, Iterable[Any]]) -> tuple[int, _Checked]:
    """The check of a partition whose segments have been read."""
    number, parts = parts_of_partition
    plan: _Plan = shared.value
    place, root, explained = plan.places[number]
    _ensure_seen_here(place.path)
    one = PartitionCheck(file_system_of([place.path]), place, plan.roots[root], deep=plan.deep, explained=explained)
    by_base: dict[int, list[Any]] = {}
    for pair in parts:
        if pair is not None:
            by_base.setdefault(pair[0].base_offset, []).append(pair)
    segments = [facts for base in one.files.bases if (facts := _segment(one, base, by_base.get(base))) is not None]
    one.finish(segments)
    counts = {
        "segments": len(segments),
        "batches": sum(len(facts.batches) for facts in segments),
        "records": sum(facts.records for facts in segments),
    }
    size = sum(facts.size for facts in segments)
    layout = one.layout._replace(in_place=[])
    return number, _Checked(one.notes.findings, one.ends, [_digested(f) for f in segments], layout, counts, size)


def _segment(one: PartitionCheck, base: int, parts: list[Any] | None) -> SegmentFacts | None:
    """What lies in a segment: what its parts say if they can, else what a reading of the whole says."""
    if parts and not any(isinstance(found, Refusal) for _, found in parts):
        whole = joined(parts)
        if whole is not None:
            return whole
    return one.scan(base)


def _ensure_seen_here(directory: str) -> None:
    if not is_address(directory) and not os.path.isdir(directory):
        raise StorageError(
            f"{directory} is not to be seen on {socket.gethostname()}: driver and workers need the same directories"
        )


def _digested(facts: SegmentFacts) -> SegmentFacts:
    """A segment with one batch made of a digest: two are alike, for `note_twins`, if and only if their batches were."""
    slim = SegmentFacts(facts.path, facts.base_offset, facts.size)
    if len(facts.batches):
        digest = hashlib.sha256()
        for name in LIKENESS:
            digest.update(np.ascontiguousarray(facts.batches[name]).tobytes())
        words = np.frombuffer(digest.digest(), np.int64)
        columns = np.zeros((len(COLUMNS), 1), np.int64)
        for name, word in zip(LIKENESS, words.tolist(), strict=False):
            columns[COLUMNS.index(name), 0] = word
        slim.batches = Batches(columns)
    return slim
