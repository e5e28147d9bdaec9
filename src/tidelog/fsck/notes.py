"""Where findings about one partition, or one root, are written down while it is looked at."""

from tidelog.errors import StorageError
from tidelog.fsck.findings import CODES, Finding, Severity
from tidelog.log.names import TopicPartition

__all__ = ["Notes"]


class Notes:
    """The findings about one place."""

    def __init__(self, root: str | None, topic_partition: TopicPartition | None = None) -> None:
        self.root = root
        self.topic_partition = topic_partition
        self.findings: list[Finding] = []

    def add(
        self,
        code: str,
        file: str,
        message: str,
        *,
        position: int | None = None,
        size: int | None = None,
        offsets: tuple[int, int] | None = None,
        severity: Severity | None = None,
        partition: TopicPartition | None = None,
        remedy: str | None = None,
    ) -> None:
        """Note a finding; severity and remedy are those of its code unless the place changes them."""
        kind = CODES[code]
        self.findings.append(
            Finding(
                code,
                kind.severity if severity is None else severity,
                self.root,
                self.topic_partition if partition is None else partition,
                file,
                position,
                size,
                offsets,
                message,
                kind.remedy if remedy is None else remedy,
            )
        )

    def add_unreadable(
        self,
        path: str,
        error: StorageError,
        *,
        severity: Severity | None = None,
        partition: TopicPartition | None = None,
    ) -> None:
        """Note a file that the disk does not give, and what it says."""
        message = str(error).removeprefix(f"{path}: ")
        self.add("FILE-READ", path, message, severity=severity, partition=partition)

    def has(self, *codes: str) -> bool:
        """Whether one of these was noted."""
        return any(finding.code in codes for finding in self.findings)
