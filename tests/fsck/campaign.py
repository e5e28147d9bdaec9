"""Damage, check, repair: for every case, what must hold.

    1. If a reader is given something else than before, the check finds something.
    2. The repair comes to its end, and a check after it is clean, but for what only people can know.
    3. What a reader is given then is a part of what was written, and no batch is missing whose bytes were still there.
    4. Bytes that are no longer in the log are in the quarantine.

The leader epoch of a batch is not under its checksum; it is compared where the epoch checkpoint can tell.
"""

import json
from collections import Counter
from functools import cache
from hashlib import sha256
from typing import Any

from tests.fsck.damages import Case, damage_of, partitions_touched
from tests.fsck.reader import Refused, View, view_of
from tests.fsck.world import CONFIG, FIRST_ORDER, KEYS, MORE_ORDERS, NOW, PARTITIONS, ROOT, directory_of, world
from tidelog.fsck import Report, check
from tidelog.fsck.mending import RepairResult, repair
from tidelog.fsck.quarantine import MANIFEST, quarantine_of
from tidelog.log import ManualClock
from tidelog.log.files import join, read_whole
from tidelog.log.names import LOG_SUFFIX, TopicPartition
from tidelog.records import read_batches
from tidelog.testing.disk import SimulatedFileSystem

LEFT_TO_PEOPLE = {"ROOT-META", "PAR-METADATA", "PAR-TOPIC-ID", "ROOT-DUPLICATE"}


class Broken(AssertionError):
    """Something did not hold."""


@cache
def sound_view(partition: TopicPartition) -> View:
    return view_of(world(), partition)


@cache
def sound_batches(partition: TopicPartition) -> tuple[bytes, ...]:
    """Every batch of the sound partition that a reader can get, as bytes."""
    directory = directory_of(partition)
    start = FIRST_ORDER if partition == MORE_ORDERS else 0
    return tuple(
        bytes(batch.buffer)
        for name in world().list(directory)
        if name.endswith(LOG_SUFFIX)
        for batch in read_batches(read_whole(world(), join(directory, name)))
        if batch.last_offset >= start
    )


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
    if harmed and not _has_found(report, harmed):
        raise Broken(f"{case}: {_difference(views[harmed[0]], sound_view(harmed[0]))}, and nothing was found")
    mended = disk.copy()
    result = repair(ROOT, config=CONFIG, clock=ManualClock(NOW), fs=mended, jobs=1)
    if result.failures:
        raise Broken(f"{case}: {result.failures}")
    _ensure_clean(case, mended, result)
    _ensure_kept(case, disk, mended)
    for partition in touched:
        _ensure_readable(case, disk, mended, partition)
    return "harm" if harmed else "found" if not report.is_clean else "unseen"


def _is_there(disk: SimulatedFileSystem, partition: TopicPartition) -> bool:
    return disk.stat(directory_of(partition)) is not None


def _has_found(report: Report, harmed: list[TopicPartition]) -> bool:
    """Whether the check says so. In a compacted log, missing offsets are only worth a word."""
    return not report.is_clean or (harmed == [KEYS] and any(finding.code == "LOG-GAP" for finding in report.findings))


def _difference(view: View, sound: View) -> str:
    wrong = [question for question, answer in view.items() if sound.get(question, "nothing") != answer]
    question = wrong[0] if wrong else ("fewer answers",)
    answer, right = str(view.get(question)), str(sound.get(question))
    at = next((at for at, (one, two) in enumerate(zip(answer, right, strict=False)) if one != two), 0)
    return f"{question} is ...{answer[max(at - 40, 0) : at + 80]}, was ...{right[max(at - 40, 0) : at + 80]}"


def _ensure_clean(case: Case, disk: SimulatedFileSystem, result: RepairResult) -> None:
    again = check(ROOT, deep=True, fs=disk, jobs=1)
    left = {finding.code for finding in result.left}
    if left - LEFT_TO_PEOPLE:
        raise Broken(f"{case}: left {left}")
    if again.codes() - left:
        told = [f"{one.code} {one.file}: {one.message}" for one in again.findings if one.code in again.codes()]
        raise Broken(f"{case}: after the repair {told[:3]}; done: {result.done}")


def _ensure_kept(case: Case, damaged: SimulatedFileSystem, mended: SimulatedFileSystem) -> None:
    """Bytes of logs are neither lost nor doubled: they are in a log or in the quarantine."""
    kept: Counter[str] = Counter()
    for entry in manifest(mended):
        if entry["piece"] is not None:
            data = read_whole(mended, join(entry["quarantine"], entry["piece"]))
            if sha256(data).hexdigest() != entry["sha256"]:
                raise Broken(f"{case}: {entry['piece']} is not what the manifest says")
            if entry["file"].endswith(LOG_SUFFIX) and not entry.get("mended"):
                kept[entry["partition_directory"]] += len(data)
    if case.deed == "leave_leftovers":
        return  # a copy replaces the original
    for partition in PARTITIONS:
        before, after = (_log_bytes(disk, partition) for disk in (damaged, mended))
        if before != after + kept[str(partition)]:
            raise Broken(f"{case}: {before} bytes of {partition} became {after} and {kept[str(partition)]} kept")


def manifest(disk: SimulatedFileSystem) -> list[dict[str, Any]]:
    """The lines of all manifests."""
    directory = quarantine_of(ROOT)
    if disk.stat(directory) is None:
        return []
    return [
        {**json.loads(line), "quarantine": join(directory, stamp)}
        for stamp in disk.list(directory)
        for line in read_whole(disk, join(join(directory, stamp), MANIFEST)).splitlines()
    ]


def _log_bytes(disk: SimulatedFileSystem, partition: TopicPartition) -> int:
    directory = directory_of(partition)
    if disk.stat(directory) is None:
        return 0
    total = 0
    for name in disk.list(directory):
        stat = disk.stat(join(directory, name))
        if name.endswith(LOG_SUFFIX) and stat is not None:
            total += stat.size
    return total


def _ensure_readable(
    case: Case, damaged: SimulatedFileSystem, mended: SimulatedFileSystem, partition: TopicPartition
) -> None:
    """What can be read after the repair was written, and is all that could be read."""
    view = view_of(mended, partition)
    refused = [question for question, answer in view.items() if isinstance(answer, Refused)]
    if refused:
        if case.kind in LEFT_UNREADABLE:
            return
        raise Broken(f"{case}: after the repair of {partition} {refused[0]} is {view[refused[0]]}")
    is_foreign = "exchanged" in case.what or "replaced" in case.what
    records = {offset: record for offset, _, record in view["records",]}
    written = {offset: record for offset, _, record in sound_view(partition)["records",]}
    start = view["log start",]
    strange = [offset for offset, record in records.items() if written.get(offset) != record and offset >= FIRST_ORDER]
    if strange and not is_foreign and not (partition == KEYS and "header" in case.what):
        raise Broken(f"{case}: after the repair offset {strange[0]} of {partition} is {records[strange[0]]}")
    directory = directory_of(partition)
    bytes_there = b"|".join(
        read_whole(damaged, join(directory, name)) for name in damaged.list(directory) if name.endswith(LOG_SUFFIX)
        and name[:20].isdecimal()
    )  # fmt: skip
    for data in sound_batches(partition):
        if data in bytes_there:
            for batch in read_batches(data):
                for record in batch:
                    if record.offset >= start and records.get(record.offset) != record and not is_foreign:
                        raise Broken(f"{case}: offset {record.offset} of {partition} was there and is lost")


LEFT_UNREADABLE = {"partition.metadata"}


def run(seed: int, cases: int) -> Counter[str]:
    """Judge so many cases from the number `seed` on; how many had which outcome."""
    return Counter(f"fsck-{judge(number)}" for number in range(seed, seed + cases))
