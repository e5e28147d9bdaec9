"""What a repair leaves as it is: the remedy of such a finding names what people have to do, and offers no repair."""

import os
import stat
from collections.abc import Sequence
from dataclasses import replace

from tidelog.fsck.findings import Finding, Severity
from tidelog.fsck.partition_check import PartitionCheck
from tidelog.fsck.rehearsal import is_local
from tidelog.fsck.root_files import RootFiles
from tidelog.fsck.topic_ids import known_topic_id
from tidelog.fsck.verdict import Verdict
from tidelog.log.files import ReadFileSystem, join

__all__ = ["CODES_SET_ASIDE", "is_movable", "name_what_stays"]

CODES_SET_ASIDE = ("PAR-NAME", "PAR-FOREIGN", "SEG-NO-LOG", "SNP-FORMAT", "SNP-STATE", "SNP-STRAY")
_UNMOVABLE = "left as it is, since it is, or holds, no regular file but a link or the like: move it away yourself"
_NO_ID = (
    "left as it is, since no metadata log and no other partition of the topic here names the id, or what is left of "
    "the file names another one: restore partition.metadata from a replica"
)
_UNREAD = "left as it is, since a file of the partition cannot be read: see its FILE-READ"
_OFFER = "--repair"


def name_what_stays(
    fs: ReadFileSystem, roots: Sequence[RootFiles], checks: Sequence[PartitionCheck], verdicts: Sequence[Verdict]
) -> None:
    """Give the findings that a repair leaves to people a remedy that says so."""
    for one in checks:
        is_unread = one.notes.has("FILE-READ")
        for number, finding in enumerate(one.notes.findings):
            if finding.severity is Severity.INFO or _OFFER not in finding.remedy:
                continue
            if is_unread:
                one.notes.findings[number] = replace(finding, remedy=_UNREAD)
            elif finding.code == "PAR-METADATA":
                if known_topic_id(fs, one, checks, verdicts) is None:
                    one.notes.findings[number] = replace(finding, remedy=_NO_ID)
            elif finding.code in CODES_SET_ASIDE and not is_movable(fs, finding):
                one.notes.findings[number] = replace(finding, remedy=_UNMOVABLE)
    for root in roots:
        for number, finding in enumerate(root.notes.findings):
            if finding.code == "ROOT-FOREIGN" and _OFFER in finding.remedy and not is_movable(fs, finding):
                root.notes.findings[number] = replace(finding, remedy=_UNMOVABLE)


def is_movable(fs: ReadFileSystem, finding: Finding) -> bool:
    """Whether a repair moves what a finding is about: links, pipes and the like may lead to anything."""
    return not is_local(fs) or _is_plain(finding.file)


def _is_plain(path: str) -> bool:
    mode = os.lstat(path).st_mode if os.path.lexists(path) else stat.S_IFREG
    if stat.S_ISDIR(mode):
        return all(_is_plain(join(path, name)) for name in os.listdir(path))
    return stat.S_ISREG(mode)
