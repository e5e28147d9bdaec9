"""Logs to scan, and their rows as the records path reads them: what a scan must give.

write_log(root, steps)         a log by the engine, as steps say
rows_read(partition, ...)      rows out of `PartitionView.read`
rows_scanned(scan)             the same out of a scan
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.log.logs import ABORT, COMMIT, NOW, a_log, batch, end_txn, in_txn, lead
from tests.property.reference import rows_in
from tidelog.records import NewRecord, Record, build_message_set
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.scan import Scan

COLUMNS = ("key", "value", "offset", "timestamp", "headers", "sequence", "timestampType")
Step = tuple[Any, ...]


def write_log(root: Path, steps: Iterable[Step], name: str = "topic-0", **config: Any) -> Path:
    """A log that is closed in good order.

    ("old", magic, codec, [records])     a message set of the old formats; only before all others
    ("put", codec, [records])            a plain batch
    ("txn", producer, [records])         a batch of a transaction; ("end", producer, is_commit) ends it
    ("roll",)                            the next batch begins a segment
    """
    steps = list(steps)
    old = [step for step in steps if step[0] == "old"]
    directory = root / name
    directory.mkdir(parents=True, exist_ok=True)
    data, offset = b"", 0
    for _, magic, codec, records in old:
        data += bytes(build_message_set(magic, records, base_offset=offset, codec=codec))
        offset += len(records)
    (directory / "00000000000000000000.log").write_bytes(data)
    log = a_log(root, name=name, **{"index_interval_bytes": 100, **config})
    sequences: dict[int, int] = {}
    open_producers: set[int] = set()
    for step in steps[len(old) :]:
        match step:
            case ("put", codec, records):
                lead(log, batch(records, codec=codec))
            case ("txn", producer, records):
                sequence = sequences.get(producer, 0)
                lead(log, in_txn(producer, sequence, records))
                sequences[producer] = sequence + len(records)
                open_producers.add(producer)
            case ("end", producer, is_commit):
                if producer in open_producers:
                    end_txn(log, producer, COMMIT if is_commit else ABORT)
                    open_producers.remove(producer)
            case ("roll",):
                if log.active_segment.size:
                    log.roll()
            case ("old", *_):
                pass
    log.update_high_watermark(log.log_end_offset)
    log.close()
    return directory


def view(directory: Path, files: Any = None) -> PartitionView:
    return PartitionView.at(files or ReadOnlyFiles(), str(directory))


def scan_of(directory: Path, files: Any = None, **options: Any) -> Scan:
    """A scan of one partition, with the columns that `rows_read` has."""
    return Scan.of(lambda: [view(directory, files)], columns=COLUMNS, **options)


def rows_scanned(batches: Iterable[Any]) -> list[tuple[Any, ...]]:
    return rows_in(batches)


def rows_read(
    partition: PartitionView, wanted: Callable[[Record], bool] = lambda record: True, **options: Any
) -> list[tuple[Any, ...]]:
    return [
        (
            record.key,
            record.value,
            record.offset,
            record.timestamp_ms,
            [header._asdict() for header in record.headers] or None,
            record.sequence,
            int(record.timestamp_type),
        )
        for record in partition.read(**options)
        if wanted(record)
    ]


def some(count: int, *, time: int = NOW, key: bytes | None = b"k") -> list[NewRecord]:
    return [NewRecord(key, b"value %d" % number, time + number) for number in range(count)]
