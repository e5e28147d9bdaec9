"""What compaction leaves of one batch, in plain words. `window_filter` does the same at memory speed.

A record stays if no later one has its key, unless it is a tombstone whose time is up, or has no key at all. A batch
that loses nothing is copied as it is. Otherwise it is written anew, with its base offset, last offset, producer and
sequence, so that a producer who sends it again is still recognised; if it loses everything, it goes, or its header
stays behind as an empty batch.

The first time that a tombstone, or the marker of a transaction without data, is kept, its batch gets a delete horizon:
the time from which it may go.

Batches of the old formats come out in version 2, as Kafka 4 writes them.

Kafka: Cleaner.shouldRetainRecord, MemoryRecords.filterTo, MemoryRecordsBuilder.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

from tidelog.errors import InvalidRecordError, InvalidTimestampError
from tidelog.log.compaction.offset_map import OffsetMap
from tidelog.records.batch import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchAttributes,
    BatchHeader,
    RecordBatch,
)
from tidelog.records.batches import Batch
from tidelog.records.compression import Codec, compress
from tidelog.records.java import MAX_INT32, wrap_int64
from tidelog.records.record import NO_TIMESTAMP, NewRecord, Record, TimestampType, write_record

__all__ = ["Fate", "FilterCounts", "FilterRules", "filter_batch"]


class Fate(IntEnum):
    """What was decided about a batch before its records are looked at."""

    DELETE = 0  # it goes, and nobody looks
    LOOK = 1  # it goes if none of its records is kept
    LOOK_RETAIN = 2  # if none is kept, it stays as an empty batch
    EMPTY_RETAIN = 3  # its records go, whatever they are, and it stays as an empty batch


class FilterRules(NamedTuple):
    """What is the same for all records of a segment."""

    latest_offset: int  # of the map: records behind it are kept
    now_ms: int
    delete_retention_ms: int
    retains_legacy_deletes: bool  # whether tombstones of the old formats, which have no horizon, are kept

    @property
    def new_horizon_ms(self) -> int:
        """The horizon of a batch that gets one now; negative, and that is none, for a retention beyond all clocks."""
        return wrap_int64(self.now_ms + self.delete_retention_ms)


@dataclass(slots=True)
class FilterCounts:
    """What went in and what came out."""

    batches_read: int = 0
    batches_kept: int = 0  # empty ones included
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0  # control records too, but none of batches that went unlooked
    records_kept: int = 0
    invalid: int = 0  # dropped: they have no key
    superseded: int = 0  # dropped: a later record has their key
    tombstones_dropped: int = 0  # those whose time was up
    tombstones_kept: int = 0
    unlooked: int = 0  # dropped with batches of aborted transactions that nobody looked into
    markers_read: int = 0  # control records, among those of records_read
    markers_kept: int = 0

    @property
    def data_read(self) -> int:
        """How many records there were that a producer has sent, those of aborted transactions included."""
        return self.records_read - self.markers_read + self.unlooked

    @property
    def data_kept(self) -> int:
        """How many of these are left."""
        return self.records_kept - self.markers_kept

    @property
    def aborted(self) -> int:
        """How many went because their transaction was aborted."""
        return self.data_read - self.data_kept - self.superseded - self.tombstones_dropped - self.invalid

    def add(self, other: "FilterCounts") -> None:
        """Add the counts of another stretch."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def filter_batch(
    batch: Batch,
    fate: Fate,
    marker_of_empty_txn: bool,
    offset_map: OffsetMap,
    rules: FilterRules,
    counts: FilterCounts,
) -> bytearray | memoryview | None:
    """The bytes that take the place of `batch`, or None if it goes.

    `marker_of_empty_txn` is for a control batch that ends a transaction of which no data is left.
    """
    seen = FilterCounts(batches_read=1, bytes_read=batch.size_in_bytes)
    result = None
    if fate is not Fate.DELETE:
        records = list(batch.records())
        kept = [record for record in records if _is_kept(batch, record, fate, offset_map, rules, seen)]
        seen.records_read, seen.records_kept = len(records), len(kept)
        if batch.is_control:
            seen.markers_read, seen.markers_kept = len(records), len(kept)
        if kept:
            result = _with_records(batch, records, kept, marker_of_empty_txn, rules)
        elif fate is not Fate.LOOK:
            result = _without_records(batch)
    elif not batch.is_control:
        seen.unlooked = batch.count if isinstance(batch, RecordBatch) else 1
    if result is not None:
        seen.batches_kept, seen.bytes_kept = 1, len(result)
    counts.add(seen)
    return result


def _is_kept(
    batch: Batch, record: Record, fate: Fate, offset_map: OffsetMap, rules: FilterRules, counts: FilterCounts
) -> bool:
    if fate is Fate.EMPTY_RETAIN:
        return False
    is_tombstone = record.value is None and not batch.is_control
    if not batch.is_control and record.offset <= rules.latest_offset:
        if record.key is None:
            counts.invalid += 1
            return False
        if offset_map.get(record.key) > record.offset:
            counts.superseded += 1
            return False
        if is_tombstone and not _keeps_tombstones(batch, rules):
            counts.tombstones_dropped += 1
            return False
    counts.tombstones_kept += is_tombstone
    return True


def _keeps_tombstones(batch: Batch, rules: FilterRules) -> bool:
    if batch.magic < MAGIC:
        return rules.retains_legacy_deletes
    return batch.delete_horizon_ms is None or rules.now_ms < batch.delete_horizon_ms


def _with_records(
    batch: Batch, records: list[Record], kept: list[Record], marker_of_empty_txn: bool, rules: FilterRules
) -> bytearray | memoryview:
    starts_waiting = batch.delete_horizon_ms is None and (
        marker_of_empty_txn or any(record.value is None for record in kept)
    )
    if len(kept) == len(records) and not starts_waiting and batch.magic >= MAGIC:
        return batch.buffer
    horizon_ms = rules.new_horizon_ms if starts_waiting else batch.delete_horizon_ms
    return _rebuilt(batch, kept, horizon_ms if horizon_ms is not None and horizon_ms >= 0 else None)


def _rebuilt(batch: Batch, kept: list[Record], horizon_ms: int | None) -> bytearray:
    """The batch with the records that are left, everything else as it was."""
    _ensure_producer(batch)
    is_old = batch.magic < MAGIC
    base_offset = kept[0].offset if is_old else batch.base_offset
    last_offset = kept[-1].offset if is_old else batch.last_offset
    base_timestamp_ms = kept[0].timestamp_ms if horizon_ms is None else horizon_ms
    body = bytearray()
    previous: int | None = None
    for record in kept:
        _ensure_writable(record, previous, base_offset)
        delta, time_delta = (record.offset - base_offset, record.timestamp_ms - base_timestamp_ms)
        new = NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
        write_record(body, wrap_int64(delta), wrap_int64(time_delta), new)
        previous = record.offset
    by_broker = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    header = _header(
        batch,
        base_offset=base_offset,
        last_offset=last_offset,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms if by_broker else max(record.timestamp_ms for record in kept),
        records_count=len(kept),
        codec=batch.codec,
        has_delete_horizon=horizon_ms is not None,
    )
    return header.seal(compress(batch.codec, body))


def _without_records(batch: Batch) -> bytearray:
    """The 61 bytes of a batch that has lost everything: who sent it, and up to which offset it went."""
    # An entry of the old formats, of which Kafka leaves no empty batch (it gives the whole log up), ends like this too.
    return _header(
        batch,
        base_offset=batch.last_offset if batch.magic < MAGIC else batch.base_offset,
        last_offset=batch.last_offset,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=batch.max_timestamp_ms,
        records_count=0,
    ).seal(b"")


def _header(
    batch: Batch,
    *,
    base_offset: int,
    last_offset: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    records_count: int,
    codec: Codec = Codec.NONE,
    has_delete_horizon: bool = False,
) -> BatchHeader:
    by_broker = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    attributes = BatchAttributes(
        codec,
        TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,  # magic 0 has neither
        batch.is_transactional,
        batch.is_control,
        has_delete_horizon,
    )
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,  # sealed later
        partition_leader_epoch=batch.partition_leader_epoch,
        magic=MAGIC,
        crc=0,  # sealed later
        attributes=attributes.pack(),
        last_offset_delta=wrap_int64(last_offset - base_offset),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        records_count=records_count,
    )


def _ensure_producer(batch: Batch) -> None:
    """A broker stores whatever a producer says of itself, but writes nothing anew that no producer may say."""
    if batch.producer_id == NO_PRODUCER_ID:
        problem = "a transaction without a producer" if batch.is_transactional else None
    elif batch.producer_epoch == NO_PRODUCER_EPOCH:
        problem = f"producer {batch.producer_id} without an epoch"
    elif batch.base_sequence < 0 and not batch.is_control:
        problem = f"producer {batch.producer_id} with sequence {batch.base_sequence}"
    else:
        return
    if problem is not None:
        raise InvalidRecordError(f"batch at offset {batch.base_offset} cannot be written anew: {problem}")


def _ensure_writable(record: Record, previous: int | None, base_offset: int) -> None:
    if previous is not None and record.offset <= previous:
        raise InvalidRecordError(f"offset {record.offset} after {previous}: offsets must increase in a batch")
    if wrap_int64(record.offset - base_offset) > MAX_INT32:  # only the old formats can say so
        raise InvalidRecordError(f"offset {record.offset} is too far from the first of its batch, {base_offset}")
    if record.timestamp_ms < NO_TIMESTAMP:
        raise InvalidTimestampError(f"offset {record.offset}: a time of {record.timestamp_ms} cannot be written anew")
