"""Damage, check, repair: for every case, what must hold.

    1. If a reader is given something else than before, the check says what it does not say of the sound world.
    2. A dry run says what the repair then does, and changes nothing.
    3. The repair comes to its end, and a check after it is clean, but for what only people can know.
    4. What a reader is given then is a part of what was written, and no batch is missing whose bytes were still there.
       Where a sound file of another place was put in, the repair says that it is in doubt.
    5. Every file is as it was, or lies in the quarantine; every byte of a log is in a log or in the quarantine.
    6. No file changes, appears or goes without a line of the repair that begins with its path.
    7. A second repair has nothing to do and changes no byte, and no finding after the first offers one.

The leader epoch of a batch is not under its checksum; it is compared where the epoch checkpoint can tell. In a
compacted log a batch may have been moved inside a gap: it is given at another offset then, and the check tells of other
gaps than it did.
"""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from tests.fsck.damages import Case, damage_of, partitions_touched, tree
from tests.fsck.reader import Refused, View, view_of
from tests.fsck.world import CONFIG, KEYS, NOW, PARTITIONS, ROOT, directory_of, world
from tidelog.fsck import Report, Severity, check
from tidelog.fsck.mending import RepairResult, repair
from tidelog.fsck.quarantine import MANIFEST, quarantine_of
from tidelog.log import ManualClock
from tidelog.log.files import join, parent_of, read_whole
from tidelog.log.names import LOG_SUFFIX, META_PROPERTIES, TopicPartition
from tidelog.records import Record, read_batches
from tidelog.testing.disk import SimulatedFileSystem

LEFT_TO_PEOPLE = {"ROOT-META", "PAR-METADATA", "PAR-TOPIC-ID", "ROOT-DUPLICATE"}
ONLY_TOLD = {"SEG-DOUBT", "TXN-MARKER"}


Told = tuple[str, Severity, str, tuple[int, int] | None]  # code, severity, file, offsets


class Broken(AssertionError):
    """Something did not hold."""


@cache
def sound_view(partition: TopicPartition) -> View:
    return view_of(world(), partition)


@cache
def sound_batches(partition: TopicPartition) -> tuple[bytes, ...]:
    """Every batch of the sound partition, deleted records too, as bytes."""
    return tuple(bytes(batch.buffer) for data in logs_of(world(), partition) for batch in read_batches(data))


@cache
def written(partition: TopicPartition) -> dict[int, Record]:
    """Every record of the sound partition, deleted ones too."""
    return {record.offset: record for data in sound_batches(partition) for record in next(read_batches(data))}


@cache
def sound_words() -> frozenset[Told]:
    return words_of(check(ROOT, deep=True, fs=world(), jobs=1))


def words_of(report: Report) -> frozenset[Told]:
    """What a check says."""
    return frozenset((one.code, one.severity, one.file, one.offsets) for one in report.findings)


def judge(number: int) -> str:
    """Run one case; in a word what it was."""
    case, disk = damage_of(number)
    try:
        return _judge(case, disk)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{case}: {type(error).__name__}: {error}") from error


def _judge(case: Case, disk: SimulatedFileSystem) -> str:
    touched = partitions_touched(case, disk)
    views = {partition: view_of(disk, partition) for partition in touched if _is_there(disk, partition)}
    harmed = [partition for partition, view in views.items() if view != sound_view(partition)]
    report = check(ROOT, deep=True, fs=disk, jobs=1)
    if harmed and words_of(report) == sound_words():
        raise Broken(f"{case}: {_difference(views[harmed[0]], sound_view(harmed[0]))}, and nothing was found")
    before = disk.calls
    planned = repair(ROOT, config=CONFIG, clock=ManualClock(NOW), fs=disk, jobs=1, dry_run=True)
    if disk.calls != before:
        raise Broken(f"{case}: the dry run has changed {disk.journal[-1]}")
    mended = disk.copy()
    result = repair(ROOT, config=CONFIG, clock=ManualClock(NOW), fs=mended, jobs=1)
    if (planned.done, planned.left, planned.failures) != (result.done, result.left, result.failures):
        raise Broken(f"{case}: planned {planned.done}, {planned.failures}, done {result.done}, {result.failures}")
    if result.failures:
        raise Broken(f"{case}: {result.failures}")
    _ensure_clean(case, mended, result)
    _ensure_kept(case, disk, mended)
    _ensure_told(case, disk, mended, result)
    ensure_settled(f"{case}", mended, result)
    for partition in touched:
        _ensure_readable(case, disk, mended, partition, result)
    return "harm" if harmed else "found" if not report.is_clean else "unseen"


def _is_there(disk: SimulatedFileSystem, partition: TopicPartition) -> bool:
    return disk.stat(directory_of(partition)) is not None


def _difference(view: View, sound: View) -> str:
    wrong = [question for question, answer in view.items() if sound.get(question, "nothing") != answer]
    question = wrong[0] if wrong else ("fewer answers",)
    answer, right = str(view.get(question)), str(sound.get(question))
    at = next((at for at, (one, two) in enumerate(zip(answer, right, strict=False)) if one != two), 0)
    return f"{question} is ...{answer[max(at - 40, 0) : at + 80]}, was ...{right[max(at - 40, 0) : at + 80]}"


def _ensure_clean(case: Case, disk: SimulatedFileSystem, result: RepairResult) -> None:
    again = check(ROOT, deep=True, fs=disk, jobs=1)
    left = {finding.code for finding in result.left}
    unknown_node = {one.code for one in result.left if one.code == "NODE-START" and one.file.endswith(META_PROPERTIES)}
    if left - LEFT_TO_PEOPLE - ONLY_TOLD - unknown_node:
        raise Broken(f"{case}: left {left}")
    if again.codes() - left:
        told = [f"{one.code} {one.file}: {one.message}" for one in again.findings if one.code in again.codes()]
        raise Broken(f"{case}: after the repair {told[:3]}; done: {result.done}")


def ensure_settled(case: str, disk: SimulatedFileSystem, result: RepairResult, root: str = ROOT) -> None:
    """A repair has done all that it can do: nothing offers another one, and another one does nothing."""
    before, left = tree(disk, "/"), {(one.code, one.file) for one in result.left}
    offers = [
        f"{one.code} {one.file}: {one.message}"
        for one in check(root, deep=True, fs=disk, jobs=1).findings
        if one.severity is not Severity.INFO and "--repair" in one.remedy and (one.code, one.file) not in left
    ]
    if offers:
        raise Broken(f"{case}: after the repair another one is offered: {offers[:3]}; done: {result.done}")
    again = repair(root, config=CONFIG, clock=ManualClock(NOW + 1000), fs=disk, jobs=1)
    now = tree(disk, "/")
    changed = [path for path in sorted({*before, *now}) if before.get(path) != now.get(path)]
    if again.done or changed:
        raise Broken(f"{case}: a second repair has changed {changed}: {again.done}; the first: {result.done}")


def _ensure_kept(case: Case, damaged: SimulatedFileSystem, mended: SimulatedFileSystem) -> None:
    """Nothing is lost: a file is as it was, or in the quarantine; bytes of logs are in a log or in the quarantine."""
    kept: Counter[str] = Counter()
    whole: set[tuple[str, bytes]] = set()
    for entry in manifest(mended):
        if entry["piece"] is not None:
            data = read_whole(mended, join(entry["quarantine"], entry["piece"]))
            if sha256(data).hexdigest() != entry["sha256"]:
                raise Broken(f"{case}: {entry['piece']} is not what the manifest says")
            whole.add((entry["file"], data))
            if entry["file"].endswith(LOG_SUFFIX) and not entry.get("mended"):
                kept[entry["partition_directory"]] += len(data)
    now = tree(mended, ROOT)
    for path, data in tree(damaged, ROOT).items():
        if data and now.get(path) != data and (path, data) not in whole and not path.endswith(LOG_SUFFIX):
            raise Broken(f"{case}: {path} became {now.get(path)!r}, was {data!r}, and is not in the quarantine")
    for partition in PARTITIONS:
        before, after = (sum(map(len, logs_of(disk, partition))) for disk in (damaged, mended))
        again = len(tree(damaged, ROOT)[case.path]) if case.what == "a copy of it as .swap" else 0  # it was replaced
        if before + (again if partition == case.partition else 0) != after + kept[str(partition)]:
            raise Broken(f"{case}: {before} bytes of {partition} became {after} and {kept[str(partition)]} kept")


def _ensure_told(case: Case, damaged: SimulatedFileSystem, mended: SimulatedFileSystem, result: RepairResult) -> None:
    """Every file that is not as it was is named by a line, or lies in a directory that is."""
    silent = untold(tree(damaged, ROOT), tree(mended, ROOT), result)
    if silent:
        raise Broken(f"{case}: {silent} changed without a line; done: {result.done}")


def untold(before: Mapping[str, bytes], after: Mapping[str, bytes], result: RepairResult) -> list[str]:
    """The files that a repair has changed and no line of it names."""
    named = {line.partition(": ")[0] for line in result.done}
    renamed = {
        join(parent_of(path), rest.split(" ")[0])
        for path, _, rest in (line.partition(": renamed to ") for line in result.done)
        if rest
    }
    return [
        path
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
        and not any(path == name or path.startswith(f"{name}/") for name in named | renamed if name != ROOT)
    ]


def manifest(disk: SimulatedFileSystem) -> list[dict[str, Any]]:
    """The lines of all manifests."""
    directory = quarantine_of(disk, ROOT)
    if disk.stat(directory) is None:
        return []
    return [
        {**json.loads(line), "quarantine": join(directory, stamp)}
        for stamp in disk.list(directory)
        for line in read_whole(disk, join(join(directory, stamp), MANIFEST)).splitlines()
    ]


def logs_of(disk: SimulatedFileSystem, partition: TopicPartition) -> list[bytes]:
    """The logs of a partition; what is named as one and is none counts."""
    directory = directory_of(partition)
    files = tree(disk, directory) if disk.stat(directory) is not None else {}
    return [data for path, data in files.items() if path.endswith(LOG_SUFFIX) and parent_of(path) == directory]


def _ensure_readable(
    case: Case,
    damaged: SimulatedFileSystem,
    mended: SimulatedFileSystem,
    partition: TopicPartition,
    result: RepairResult,
) -> None:
    """What can be read after the repair was written, and is all that could be read."""
    view = view_of(mended, partition)
    refused = [question for question, answer in view.items() if isinstance(answer, Refused)]
    if refused:
        if case.kind in LEFT_UNREADABLE:
            return
        raise Broken(f"{case}: after the repair of {partition} {refused[0]} is {view[refused[0]]}")
    is_foreign = case.kind == LOG_SUFFIX and case.deed in ("swap", "replace", "replace_set")
    records = {offset: record for offset, _, record in view["records",]}
    strange = [offset for offset, record in records.items() if written(partition).get(offset) != record]
    if strange and is_foreign:
        doubted = {one.topic_partition for one in result.left if one.code == "SEG-DOUBT"}
        if partition not in doubted:
            raise Broken(f"{case}: offset {strange[0]} of {partition} is of another log, and nobody says so")
    elif strange and not _is_moved(case, partition, records):
        raise Broken(f"{case}: after the repair offset {strange[0]} of {partition} is {records[strange[0]]}")
    bytes_there, bytes_now = (b"|".join(logs_of(disk, partition)) for disk in (damaged, mended))
    kept = b"|".join(
        read_whole(mended, join(one["quarantine"], one["piece"]))
        for one in manifest(mended)
        if one["piece"] is not None
    )
    for data in sound_batches(partition):
        if data in bytes_there and data not in bytes_now and not (is_foreign and data in kept):
            raise Broken(f"{case}: the batch {data[:30]!r} of {partition} was there and is lost")
        for record in next(read_batches(data)) if data in bytes_now else ():
            if record.offset >= view["log start",] and records.get(record.offset) != record:
                raise Broken(f"{case}: offset {record.offset} of {partition} is there and is not given")


def _is_moved(case: Case, partition: TopicPartition, records: Mapping[int, Record]) -> bool:
    """Whether records of a compacted log are given at another offset, and otherwise as they were written."""
    if partition != KEYS or case.kind != LOG_SUFFIX or not case.deed.startswith("flip"):
        return False
    originals = {record._replace(offset=0) for record in written(partition).values()}
    return all(record._replace(offset=0) in originals for record in records.values())


LEFT_UNREADABLE = {"partition.metadata"}


def run(seed: int, cases: int) -> Counter[str]:
    """Judge so many cases from the number `seed` on, and interrupt as many repairs; how many had which outcome."""
    from tests.fsck.interrupted import interrupt

    found: Counter[str] = Counter()
    for number in range(seed, seed + cases):
        found[f"fsck-{judge(number)}"] += 1
        found[f"fsck-{interrupt(number)}"] += 1
    return found
