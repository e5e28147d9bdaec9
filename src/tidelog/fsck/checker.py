"""Checking directories: every file of every partition of every root below some paths.

Nothing is written and nothing is locked, so a live broker's directories can be looked at as well. Segments are read by
several threads: the kernels, and the reading itself, leave Python to the others meanwhile.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.fsck.doubts import note_twins
from tidelog.fsck.findings import Report, Severity
from tidelog.fsck.left_alone import name_what_stays
from tidelog.fsck.live_look import look_again
from tidelog.fsck.node_check import judge_nodes
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.places import RootPlace, find_log_dirs, find_places
from tidelog.fsck.quarantine import Remembered, quarantine_of, remembered
from tidelog.fsck.root_files import LogEnds, RootFiles
from tidelog.fsck.segment_scan import SegmentFacts
from tidelog.fsck.topic_ids import note_topic_ids
from tidelog.fsck.verdict import Verdict
from tidelog.log.files import ReadFileSystem
from tidelog.log.names import LOG_SUFFIX, is_delete_directory
from tidelog.view.addresses import file_system_of, local_path

__all__ = ["Checked", "check", "check_places", "conclude", "planned_checks", "verdicts"]

Progress = Callable[[int, int], None]  # bytes read so far, and in all
Find = Callable[[ReadFileSystem, Sequence[str]], list[RootPlace]]
_AHEAD = 4  # segments per thread that may wait to be compared


class Checked(NamedTuple):
    """A check, and what it knows: what a repair starts from."""

    report: Report
    roots: list[RootFiles]
    partitions: list[PartitionCheck]


def check(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    deep: bool = False,
    progress: Progress | None = None,
    jobs: int | None = None,
    quarantine: str | None = None,
    fs: ReadFileSystem | None = None,
    are_log_dirs: bool = False,
) -> Report:
    """Check all that lies at or below some paths: roots, partition directories, trees, and addresses of them (s3://…).

    With `deep` every record is looked at, decompressed where need be, and producer snapshots are compared with a replay
    of the log. What an earlier repair has taken out is looked up in its quarantine, beside the root or where it is said
    to be.

    Of paths that are named together, those of a node's log directories that are missing, empty or files are judged,
    too: so are all paths if the properties of a node name them (`are_log_dirs`).
    """
    return check_places(
        paths, deep=deep, progress=progress, jobs=jobs, quarantine=quarantine, fs=fs,
        find=partial(find_log_dirs, are_log_dirs=are_log_dirs), are_log_dirs=are_log_dirs,
    ).report  # fmt: skip


def verdicts(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    fs: ReadFileSystem | None = None,
    are_log_dirs: bool = False,
) -> list[Verdict]:
    """Whether Kafka would start on the directories of each node at or below some paths, and with what."""
    names = [local_path(os.fspath(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    fs = file_system_of(names) if fs is None else fs
    places = find_log_dirs(fs, names, are_log_dirs=are_log_dirs)
    return judge_nodes(fs, [RootFiles(fs, place) for place in places], names, is_one_node=are_log_dirs)


def check_places(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    deep: bool = False,
    progress: Progress | None = None,
    jobs: int | None = None,
    quarantine: str | None = None,
    fs: ReadFileSystem | None = None,
    held_roots: Collection[str] = (),
    held_markers: Collection[str] = (),
    find: Find = find_places,
    are_log_dirs: bool = False,
) -> Checked:
    """`check`, with everything that was found out. A repair holds the locks of roots, and marks of their clean stop."""
    names = [local_path(os.fspath(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    fs = file_system_of(names) if fs is None else fs
    report = Report(tuple(names), deep)
    roots, checks = planned_checks(
        fs, names, deep=deep, quarantine=quarantine, held_roots=held_roots, held_markers=held_markers, find=find
    )
    _run(checks, report, progress, jobs or os.cpu_count() or 1)
    report.verdicts = judge_nodes(fs, roots, names, held_markers, is_one_node=are_log_dirs)
    report.lost = [root.place.path for root in roots if root.place.is_lost]
    conclude(fs, report, roots, checks, [one.ends for one in checks])
    checked = Checked(report, roots, checks)
    report.evidence = checked
    return checked


def planned_checks(
    fs: ReadFileSystem,
    names: Sequence[str],
    *,
    deep: bool,
    quarantine: str | None,
    held_roots: Collection[str] = (),
    held_markers: Collection[str] = (),
    find: Find = find_places,
) -> tuple[list[RootFiles], list[PartitionCheck]]:
    """What there is to check at some paths. A partition that cannot even be listed is noted, and left out."""
    roots: list[RootFiles] = []
    checks: list[PartitionCheck] = []
    for place in find(fs, names):
        is_ours = place.path in held_roots
        root = RootFiles(fs, place, is_marker_held=place.path in held_markers, is_ours=is_ours)
        roots.append(root)
        kept = quarantine_of(fs, place.path, quarantine)
        try:
            memory = remembered(fs, kept, place.path)
        except StorageError as error:
            root.notes.add_unreadable(kept, error, severity=Severity.WARNING)
            memory = {}
        for partition in place.partitions:
            if is_delete_directory(partition.name):
                continue
            known = memory.get(partition.name, Remembered())
            try:
                checks.append(
                    PartitionCheck(fs, partition, root, deep=deep, explained=known.missing, notices=known.notices)
                )
            except StorageError as error:
                if fs.stat(partition.path) is not None:  # else a live broker has removed it
                    root.notes.add_unreadable(partition.path, error, partition=partition.topic_partition)
    return roots, checks


def conclude(
    fs: ReadFileSystem,
    report: Report,
    roots: Sequence[RootFiles],
    checks: Sequence[PartitionCheck],
    ends: Sequence[LogEnds | None],
) -> None:
    """Compare what only all partitions together tell, and put all findings into the report. `ends` is one a check."""
    for root in roots:
        known = {
            one.place.topic_partition: end
            for one, end in zip(checks, ends, strict=True)
            if one.root is root and one.place.is_live and end is not None
        }
        root.check_offsets(known)
        if root.is_in_use:
            look_again(fs, root, [one for one in checks if one.root is root])
    note_topic_ids(fs, checks, report.verdicts)
    note_twins((one.notes, one.segments, one.layout) for one in checks)
    name_what_stays(fs, roots, checks, report.verdicts)
    for root in roots:
        report.add(root.notes.findings)
    for one in checks:
        one.recall()
        report.add(one.notes.findings)
    report.counts.update(roots=len(roots), partitions=len(checks))
    report.sort()


def _run(checks: Sequence[PartitionCheck], report: Report, progress: Progress | None, jobs: int) -> None:
    """Read all segments, some ahead of the partition that is being compared."""
    total = sum(stat.size for one in checks for name, stat in one.files.stats.items() if name.endswith(LOG_SUFFIX))
    done = _Counter(total, progress)
    segments = ((one, base) for one in checks for base in one.files.bases)
    with ThreadPoolExecutor(jobs) as pool:
        results: Iterator[SegmentFacts | None]
        if jobs == 1:
            results = (one.scan(base, done.add) for one, base in segments)
        else:
            results = _in_order(pool, segments, done.add, ahead=_AHEAD * jobs)
        for one in checks:
            found = [facts for _ in one.files.bases if (facts := next(results)) is not None]
            one.finish(found)
            report.counts["segments"] += len(found)
            report.counts["batches"] += sum(len(facts.batches) for facts in found)
            report.counts["records"] += sum(facts.records for facts in found)
            report.bytes += sum(facts.size for facts in found)


def _in_order(
    pool: ThreadPoolExecutor,
    segments: Iterator[tuple[PartitionCheck, int]],
    on_bytes: Callable[[int], None],
    *,
    ahead: int,
) -> Iterator[SegmentFacts | None]:
    waiting: deque[Future[SegmentFacts | None]] = deque()
    for one, base in segments:
        waiting.append(pool.submit(one.scan, base, on_bytes))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Counter:
    """Bytes that were read, by all threads together."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._progress is not None:
                self._progress(self._done, self._total)
