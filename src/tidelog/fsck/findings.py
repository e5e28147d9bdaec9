"""What a check can find: codes that stay the same from release to release, and the report that holds them.

A code is the kind of file and what is wrong with it, `LOG-CRC`. Its severity says what follows if nobody does anything:

    error     readers get something else than was written, or Kafka does not start
    warning   Kafka repairs it by itself, or is slower, or something is missing, perhaps on purpose
    info      worth knowing

docs/fsck.md lists all codes, from the table below.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from tidelog.fsck.verdict import Verdict
from tidelog.log.names import TopicPartition

__all__ = ["CODES", "Code", "Finding", "Report", "Severity"]


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def is_at_least(self, other: str) -> bool:
        """Whether it is as serious as another one, or more."""
        order = list(Severity)
        return order.index(self) <= order.index(Severity(other))


ERROR, WARNING, INFO = Severity


class Code(NamedTuple):
    """A kind of finding."""

    severity: Severity  # the usual one; where a file is decides in some cases
    meaning: str
    remedy: str


_REPAIR = "tidelog fsck --repair"
_CUT = f"{_REPAIR} moves these bytes to the quarantine and keeps everything around them"
_MEND = f"{_REPAIR} writes the right value in its place"
_REBUILD = f"{_REPAIR} rebuilds it from the log"
_MOVE = f"{_REPAIR} moves it to the quarantine"
_REWRITE = f"{_REPAIR} rewrites it from what is known"

CODES: dict[str, Code] = {
    # The log.
    "LOG-CRC": Code(ERROR, "the checksum of a batch does not match its bytes", _CUT),
    "LOG-LENGTH": Code(ERROR, "bytes in the middle of a segment are no batch", _CUT),
    "LOG-TAIL": Code(WARNING, "the last segment ends inside a batch", _CUT),
    "LOG-TORN": Code(ERROR, "a segment that is not the last ends inside a batch", _CUT),
    "LOG-ZEROS": Code(ERROR, "a segment ends with zeros", _CUT),
    "LOG-MAGIC": Code(ERROR, "a batch of a version that does not exist", _MEND),
    "LOG-CODEC": Code(ERROR, "a batch of a compression that does not exist", _CUT),
    "LOG-RECORDS": Code(ERROR, "the records of a batch cannot be read, though its checksum holds", _CUT),
    "LOG-DELTAS": Code(ERROR, "the offsets of records lie outside their batch", _CUT),
    "LOG-TIMES": Code(INFO, "the largest timestamp of a batch is not that of its records", "none: it was written so"),
    "LOG-LARGE": Code(
        INFO,
        "a batch that decompresses to more than 256 MiB: its checksum holds, its records were not checked",
        "none: a repair keeps it",
    ),
    "LOG-OFFSET": Code(ERROR, "the offset of a batch is damaged, and its neighbours show the right one", _MEND),
    "LOG-ORDER": Code(ERROR, "a batch whose offsets do not lie between those of its neighbours", _CUT),
    "LOG-RANGE": Code(
        ERROR,
        "a batch whose offsets belong to another segment, or to another place in its own",
        f"{_REPAIR} moves it to where it belongs",
    ),
    "LOG-GAP": Code(
        WARNING,
        "offsets are missing in a log that does not look compacted",
        "restore the batches from a replica; in a compacted topic it is as it should be",
    ),
    "LOG-EPOCH": Code(ERROR, "the leader epoch of a batch contradicts other batches, or the epoch checkpoint", _MEND),
    # Segments, their indexes and snapshots.
    "SEG-NAME": Code(ERROR, "a segment whose name is not the offset of its first batch", f"{_REPAIR} renames it"),
    "SEG-DOUBT": Code(
        ERROR,
        "a .log whose batches are sound, but not those that its indexes and snapshots describe: it may belong to "
        "another partition, or be an older copy",
        "compare it with a replica of the partition (tidelog diff), and put the right .log back if it is another one; "
        f"{_REPAIR} takes it as it is, rebuilds the files that disagree, and keeps the old ones in the quarantine",
    ),
    "SEG-NO-LOG": Code(ERROR, "an index without its segment", _MOVE),
    "IDX-MISSING": Code(WARNING, "a segment without its offset index", _REBUILD),
    "IDX-SIZE": Code(WARNING, "an offset index that does not end with a whole entry", _REBUILD),
    "IDX-ZEROS": Code(ERROR, "an offset index that ends with zeros, which Kafka takes for entries", _REBUILD),
    "IDX-ORDER": Code(ERROR, "an offset index whose entries do not increase", _REBUILD),
    "IDX-ENTRY": Code(ERROR, "an entry of an offset index that the log contradicts", _REBUILD),
    "IDX-STALE": Code(WARNING, "an offset index that ends long before its segment", _REBUILD),
    "TIX-MISSING": Code(ERROR, "a segment without its time index", _REBUILD),
    "TIX-SIZE": Code(WARNING, "a time index that does not end with a whole entry", _REBUILD),
    "TIX-ZEROS": Code(ERROR, "a time index that ends with zeros, which Kafka takes for entries", _REBUILD),
    "TIX-ORDER": Code(ERROR, "a time index whose entries do not increase", _REBUILD),
    "TIX-ENTRY": Code(ERROR, "an entry of a time index that the log contradicts", _REBUILD),
    "TIX-STALE": Code(ERROR, "a time index that does not know the largest timestamp of its segment", _REBUILD),
    "TXN-SIZE": Code(WARNING, "a transaction index that does not end with a whole entry", _REBUILD),
    "TXN-VERSION": Code(ERROR, "an entry of a transaction index of an unknown version", _REBUILD),
    "TXN-ENTRY": Code(ERROR, "an entry of a transaction index that the log contradicts", _REBUILD),
    "TXN-MISSING": Code(ERROR, "an aborted transaction that no transaction index names", _REBUILD),
    "TXN-MARKER": Code(
        INFO,
        "the end of a transaction is lost, or may be: readers of committed data wait for it, or get its records",
        "see kafka-transactions.sh find-hanging and abort; compare with a replica (tidelog diff)",
    ),
    "SNP-FORMAT": Code(WARNING, "a producer snapshot that cannot be read", _REBUILD),
    "SNP-STATE": Code(ERROR, "a producer snapshot that the log contradicts", _REBUILD),
    "SNP-EXPIRED": Code(
        INFO,
        "a producer snapshot without a producer that Kafka forgets early if producer.id.expiration.ms is below a day",
        "none: if it is not below, the producer was lost, and Kafka no longer recognises its duplicates",
    ),
    "SNP-MISSING": Code(ERROR, "no producer snapshot at all, though there are producers", _REBUILD),
    "SNP-STRAY": Code(WARNING, "a producer snapshot that belongs to no segment", _MOVE),
    # The other files of a partition.
    "EPO-FORMAT": Code(ERROR, "a leader epoch checkpoint that cannot be read", _REWRITE),
    "EPO-MISSING": Code(WARNING, "no leader epoch checkpoint, though batches have epochs", _REWRITE),
    "EPO-ENTRY": Code(ERROR, "a leader epoch checkpoint that the log contradicts", _REWRITE),
    "EPO-START": Code(
        WARNING,
        "leader epochs that begin before the log start that the checkpoint names: its start was moved; info if they "
        "begin before the first segment, as after a crash during retention, or if segments are missing; info if they "
        "begin after the log start: it was moved, and is lost",
        f"restore the segments, or the log start, from a replica; {_REPAIR} takes the log as it is",
    ),
    "PAR-METADATA": Code(
        ERROR,
        "partition.metadata is missing or cannot be read",
        f"{_REPAIR} writes it with the id that the metadata log, or another partition of the topic, has",
    ),
    "PAR-TOPIC-ID": Code(
        ERROR,
        "a topic id that is not the one that the metadata log or, where that does not know the topic, most partitions "
        "of the root have; a warning if no partition has the one of the metadata log",
        "restore partition.metadata from a replica if the records are those of the topic (tidelog diff); a topic that "
        "was deleted and recreated needs nothing: Kafka sets the directory aside",
    ),
    "PAR-NAME": Code(ERROR, "a file with a suffix of a segment and no offset in its name", _MOVE),
    "PAR-FOREIGN": Code(WARNING, "a file that Kafka did not write", _MOVE),
    "PAR-LEFTOVER": Code(
        WARNING, "what an interrupted compaction left", f"{_REPAIR} settles it as Kafka does when it starts"
    ),
    "PAR-DELETED": Code(INFO, "a file that waits for its deletion", "Kafka removes it"),
    "PAR-EMPTY": Code(WARNING, "a partition directory without a segment", "Kafka creates one at the log start"),
    # Roots.
    "ROOT-META": Code(
        ERROR,
        "meta.properties, the identity of a root, is missing or cannot be read; info if the root was never formatted",
        "restore it from a backup, or create it: kafka-storage.sh format, with the ids of the cluster and the node",
    ),
    "ROOT-FOREIGN": Code(
        ERROR,
        "a directory whose name is not that of a partition: Kafka does not start; info beside a metadata log alone",
        _MOVE,
    ),
    "ROOT-LOAD": Code(
        ERROR,
        "an interrupted load or Spark write: Kafka does not start; info while it is running",
        "tidelog recover, or tidelog fsck --repair: a load is taken back, a Spark write is finished",
    ),
    "ROOT-FILE": Code(INFO, "a file that Kafka did not write", "none: Kafka ignores it"),
    "ROOT-DUPLICATE": Code(
        ERROR, "two directories of the same partition: Kafka does not start", "move one away; see tidelog diff"
    ),
    "ROOT-ID": Code(
        ERROR,
        "two directories with one directory.id: Kafka does not start",
        "give the copy an id of its own, or move it away",
    ),
    "ROOT-UNCLEAN": Code(INFO, "the root was not shut down cleanly", "Kafka recovers its logs when it starts"),
    "CHK-MISSING": Code(WARNING, "a checkpoint of the root is missing", _REWRITE),
    "CHK-FORMAT": Code(
        ERROR,
        "a checkpoint of the root cannot be read, and Kafka takes the directory offline; a warning if Kafka starts "
        "without it",
        _REWRITE,
    ),
    "CHK-UNKNOWN": Code(WARNING, "a checkpoint names a partition that is not there", _REWRITE),
    "CHK-RANGE": Code(
        ERROR,
        "a checkpoint names an offset that the log does not reach; a warning after an unclean stop, since the "
        "checkpoints of a copy of a live directory may be newer than its logs",
        _REWRITE,
    ),
    # The metadata log, and a node as a whole.
    "META-SNAPSHOT": Code(
        ERROR,
        "a snapshot of the metadata log that cannot be read to its end; a warning where a newer one is sound, or if "
        "Kafka does not notice the damage",
        "restore it from a backup, or from another controller of the quorum",
    ),
    "META-QUORUM": Code(
        ERROR,
        "quorum-state, which records elections, cannot be read: Kafka does not start",
        "move it away: Kafka continues with the epochs of the metadata log",
    ),
    "META-BOOTSTRAP": Code(
        ERROR,
        "bootstrap.checkpoint cannot be used: Kafka does not start; a warning if Kafka does not notice the damage, "
        "since it verifies no checksum there",
        "move it away if the node has a metadata log, which has its records; otherwise restore it from a backup or "
        "another controller: a new cluster is created from it",
    ),
    "NODE-START": Code(
        ERROR, "Kafka 4.3 does not start on these directories", "fix the reason; see tidelog fsck --would-start"
    ),
    "NODE-OFFLINE": Code(
        ERROR, "Kafka starts without these partitions", "fix the reason; see tidelog fsck --would-start"
    ),
    "NODE-STRAY": Code(
        WARNING,
        "a partition that the metadata does not assign to this node: Kafka renames it to -stray when it starts",
        "restore the metadata log if it is older than the partition; if only its partition.metadata is wrong, remove "
        "that file and run tidelog fsck --repair; otherwise nothing: the topic was deleted",
    ),
    "NODE-MISSING": Code(
        WARNING,
        "a partition of the metadata that has no directory: Kafka creates it, empty",
        "name all log.dirs of the node; restore the directory from a replica or a backup",
    ),
    # Any file.
    "FILE-READ": Code(
        ERROR,
        "a file or directory that cannot be read",
        "check its permissions and the disk; move away what is not a regular file",
    ),
    "FILE-OWNER": Code(
        WARNING, "a file that the owner of its directory may not write", f"{_REPAIR} gives it the owner's rights"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One problem, and where it is."""

    code: str
    severity: Severity
    root: str | None
    topic_partition: TopicPartition | None
    file: str  # its whole path
    position: int | None
    size: int | None
    offsets: tuple[int, int] | None  # first and last
    message: str
    remedy: str

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        partition = self.topic_partition
        return {
            "code": self.code,
            "severity": self.severity.value,
            "root": self.root,
            "topic": None if partition is None else partition.topic,
            "partition": None if partition is None else partition.partition,
            "file": self.file,
            "position": self.position,
            "size": self.size,
            "offsets": None if self.offsets is None else list(self.offsets),
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass
class Report:
    """All findings of a check, and how much was checked."""

    paths: tuple[str, ...] = ()
    is_deep: bool = False
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # roots, partitions, segments, batches, records, files
    bytes: int = 0
    verdicts: list[Verdict] = field(default_factory=list)  # of the nodes whose directories were checked
    lost: list[str] = field(default_factory=list)  # log directories that are missing, empty, or files
    evidence: object = field(default=None, repr=False, compare=False)  # what a repair is planned from

    @property
    def is_clean(self) -> bool:
        """Whether nothing worse than info was found."""
        return all(finding.severity is INFO for finding in self.findings)

    def of(self, severity: Severity) -> Iterator[Finding]:
        """The findings of one severity."""
        return (finding for finding in self.findings if finding.severity is severity)

    def codes(self) -> set[str]:
        """The codes of the findings that are worse than info."""
        return {finding.code for finding in self.findings if finding.severity is not INFO}

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(findings)

    def sort(self) -> None:
        """Order findings by severity, errors first, then by file and position."""
        order = list(Severity)
        self.findings.sort(key=lambda one: (order.index(one.severity), one.file, one.position or 0, one.code))

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        severities = Counter(finding.severity for finding in self.findings)
        return {
            "paths": list(self.paths),
            "deep": self.is_deep,
            "clean": self.is_clean,
            **{
                f"{severity.value}s" if severity is not INFO else "infos": severities[severity] for severity in Severity
            },
            **{name: self.counts[name] for name in ("roots", "partitions", "segments", "batches", "records")},
            "bytes": self.bytes,
            "would_start": [verdict.to_dict() for verdict in self.verdicts],
            "findings": [finding.to_dict() for finding in self.findings],
        }
