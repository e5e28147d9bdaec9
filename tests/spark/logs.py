"""Small logs for Spark to read: written by the log engine itself."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import NewRecord

START_MS = 1_700_000_000_000


def record(number: int, *, value: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()) -> NewRecord:
    """A record that can be told from others: its key and time follow from a number."""
    return NewRecord(
        b"key-%d" % (number % 7), b"value-%d" % number if value is None else value, START_MS + 250 * number, headers
    )


def write(root: Path, topic: str, partition: int, records: Iterable[NewRecord], segment_bytes: int = 5_000) -> None:
    """Append records to a partition, a batch of five at a time."""
    waiting: list[NewRecord] = []
    with UnifiedLog.open(root / f"{topic}-{partition}", LogConfig(segment_bytes=segment_bytes)) as log:
        for one in records:
            waiting.append(one)
            if len(waiting) == 5:
                log.append(waiting)
                waiting = []
        if waiting:
            log.append(waiting)
