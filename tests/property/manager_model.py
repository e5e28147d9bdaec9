"""What a log was told, batch by batch, and what may be read of it after a crash: the judge's memory.

`LogModel` holds every batch that was appended and not truncated, whatever compaction or retention did to it since. For
a log that was found to reach from `start` to `end`, it answers what a reader of committed records must be given:

    latest(start, end, decided)    of every key the last committed record; `decided` are transactions that were open at
                                   `end` and were ended afterwards
    visible(start, end, decided)   all committed records
    producers(end)                 the last sequence of every producer, and where its batch ends
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.records import ControlType, RecordBatch, read_batches


class Written(NamedTuple):
    """A record as it was appended."""

    offset: int
    key: bytes | None
    value: bytes | None


class Entry(NamedTuple):
    """A batch as it was appended."""

    last_offset: int
    records: tuple[Written, ...]
    producer_id: int
    last_sequence: int
    is_transactional: bool
    marker: ControlType | None


def entries_of(data: bytes | bytearray, base_offset: int) -> Iterator[Entry]:
    """The batches of a buffer as they lie in the log, if the first of them gets `base_offset`."""
    for batch in read_batches(bytes(data)):
        assert isinstance(batch, RecordBatch)
        shift = base_offset - batch.base_offset
        records = tuple(Written(record.offset + shift, record.key, record.value) for record in batch.records())
        marker = ControlType.parse(records[0].key) if batch.is_control else None
        yield Entry(
            batch.last_offset + shift, records, batch.producer_id, batch.last_sequence, batch.is_transactional, marker
        )
        base_offset = batch.last_offset + shift + 1


@dataclass(frozen=True)
class LogModel:
    """One incarnation of a log: what was appended to it, where it starts, and how much of it is flushed."""

    entries: tuple[Entry, ...] = ()
    start: int = 0
    end: int = 0
    floor: int = 0  # everything below is on the disk
    origin: int = 0  # where it was begun
    is_compacted: bool = field(default=False, kw_only=True)
    # What is left of a log that was to be dropped as a whole: newer values of its keys may be gone already.
    is_rest: bool = field(default=False, kw_only=True)

    def appended(self, data: bytes | bytearray) -> "LogModel":
        entries = (*self.entries, *entries_of(data, self.end))
        return replace(self, entries=entries, end=entries[-1].last_offset + 1)

    def cut(self, offset: int) -> "LogModel":
        kept = tuple(entry for entry in self.entries if entry.last_offset < offset)
        return replace(self, entries=kept, end=offset, start=min(self.start, offset), floor=min(self.floor, offset))

    def begun_at(self, offset: int) -> "LogModel":
        return replace(self, entries=(), start=offset, end=offset, floor=0, origin=offset)

    def without_segments(self) -> "tuple[LogModel, LogModel]":
        """Between its old segments and the new one a log has none: it begins at 0, or at its written log start."""
        return self.begun_at(0), self.begun_at(self.start)

    def open_txns(self, end: int) -> dict[int, int]:
        """The first offset of each transaction that is open at `end`, by producer."""
        found: dict[int, int] = {}
        for entry in self._below(end):
            if entry.marker is not None:
                found.pop(entry.producer_id, None)
            elif entry.is_transactional:
                found.setdefault(entry.producer_id, entry.records[0].offset)
        return found

    def visible(self, start: int, end: int, decided: Mapping[int, ControlType]) -> list[Written]:
        """The records that a reader of committed data is given, in order."""
        pending: dict[int, list[Written]] = {}
        found: list[Written] = []
        for entry in self._below(end):
            if entry.marker is not None:
                of_txn = pending.pop(entry.producer_id, [])
                found += of_txn if entry.marker is ControlType.COMMIT else []
            elif entry.is_transactional:
                pending.setdefault(entry.producer_id, []).extend(entry.records)
            else:
                found += entry.records
        for producer_id, of_txn in pending.items():
            found += of_txn if decided[producer_id] is ControlType.COMMIT else []
        return sorted(record for record in found if record.offset >= start)

    def latest(self, start: int, end: int, decided: Mapping[int, ControlType]) -> dict[bytes | None, Written]:
        """Of every key the last committed record, tombstones too."""
        return {record.key: record for record in self.visible(start, end, decided)}

    def by_offset(self, end: int) -> dict[int, Written]:
        """Every record below `end`, committed or not."""
        return {record.offset: record for entry in self._below(end) if entry.marker is None for record in entry.records}

    def producers(self, end: int) -> dict[int, tuple[int, int]]:
        """The last sequence of each producer, and the offset of the batch that has it."""
        return {
            entry.producer_id: (entry.last_sequence, entry.last_offset)
            for entry in self._below(end)
            if entry.producer_id >= 0 and entry.marker is None
        }

    def _below(self, end: int) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.last_offset < end)
