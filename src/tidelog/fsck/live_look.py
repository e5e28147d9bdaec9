"""Check a root again while a broker is writing to it, and keep only the findings that persist.

A check reads one file after the other while the broker continues, so a finding may only be the difference between two
moments. What is worse than info is checked again, with the checkpoints of the root, after waits that grow. A finding is
reported only if every look finds it, with the same message.
"""

import time
from collections.abc import Sequence

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.fsck.findings import Finding, Severity
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.places import RootPlace, find_places
from tidelog.fsck.root_files import LogEnds, RootFiles
from tidelog.log.files import ReadFileSystem
from tidelog.log.names import TopicPartition

__all__ = ["look_again"]

_WAITS_S = (0.02, 0.1, 0.5, 1.0)  # a busy broker may need a second for what usually takes milliseconds


def look_again(fs: ReadFileSystem, root: RootFiles, checks: Sequence[PartitionCheck]) -> None:
    """Drop the findings of a root and its partitions that are not found again."""
    for wait in _WAITS_S:
        named = {finding.topic_partition for finding in root.notes.findings if _is_bad(finding)}
        suspects = [one for one in checks if one.place.topic_partition in named or _has_bad(one)]
        if not suspects and not any(map(_is_bad, root.notes.findings)):
            return
        time.sleep(wait)
        again = RootFiles(fs, _place_now(fs, root.place))
        ends = {one.place.topic_partition: one.ends for one in checks if one.place.is_live}
        for one in suspects:
            found, end = _looked(fs, one, again)
            one.notes.findings = _in_both(one.notes.findings, found)
            if one.place.is_live:
                ends[one.place.topic_partition] = end
        again.check_offsets(_known(ends))
        root.notes.findings = _in_both(root.notes.findings, again.notes.findings)


def _known(ends: dict[TopicPartition, LogEnds | None]) -> dict[TopicPartition, LogEnds]:
    return {partition: end for partition, end in ends.items() if end is not None}


def _place_now(fs: ReadFileSystem, place: RootPlace) -> RootPlace:
    """The partitions that are in a root now: topics come and go."""
    if not place.is_wanted:
        return place
    try:
        return next((one for one in find_places(fs, [place.path]) if one.path == place.path), place)
    except (InvalidRequestError, StorageError):
        return place


def _looked(fs: ReadFileSystem, one: PartitionCheck, root: RootFiles) -> tuple[list[Finding], LogEnds | None]:
    """The findings of a partition now, and where its log begins and ends; nothing if it was deleted."""
    try:
        again = one.again(root)
    except StorageError:
        if fs.stat(one.place.path) is None:
            return [], None
        return one.notes.findings, one.ends
    again.finish([facts for base in again.files.bases if (facts := again.scan(base)) is not None])
    return again.notes.findings, again.ends


def _in_both(before: Sequence[Finding], now: Sequence[Finding]) -> list[Finding]:
    words = {_words(finding) for finding in now if _is_bad(finding)}
    return [finding for finding in before if not _is_bad(finding) or _words(finding) in words]


def _has_bad(one: PartitionCheck) -> bool:
    return any(map(_is_bad, one.notes.findings))


def _is_bad(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO


def _words(finding: Finding) -> tuple[str, str, int | None, str]:
    """What two looks must have in common for a finding to be the same one."""
    return finding.code, finding.file, finding.position, finding.message
