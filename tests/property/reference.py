"""What a log says, read by `tidelog.records` alone: the answers that kernels and columns must give."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tidelog.columns import LogSummary
from tidelog.kernels.validate import BatchFacts
from tidelog.records import Batch, LegacyBatch, RecordBatch, TimestampType, read_batches
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES

Row = tuple[Any, ...]


def rows_of(
    buffer: Any, *, verify: bool = True, base_position: int = 0, max_size: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Row]:
    """All columns of every record, in the order of DEFAULT_COLUMNS. Times are numbers, headers are dictionaries."""
    position = base_position
    for batch in read_batches(buffer):
        if verify:
            batch.ensure_valid()
        for record in batch.records(max_size):
            yield (
                record.key,
                record.value,
                record.offset,
                record.timestamp_ms,
                [header._asdict() for header in record.headers] or None,
                record.sequence,
                int(record.timestamp_type),
                batch.partition_leader_epoch,
                batch.producer_id,
                batch.producer_epoch,
                batch.is_transactional,
                batch.is_control,
                batch.codec.label,
                position,
            )
        position += batch.size_in_bytes


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """The rows of RecordBatches, in the same shape; each RecordBatch is checked to be sound."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns = [
            # Python's datetime ends in the year 9999, the times of a log do not
            (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
            for column in batch.columns
        ]
        rows += zip(*columns, strict=True) if columns else ()
    return rows


def header_rows(buffer: Any, *, base_position: int = 0) -> Iterator[dict[str, Any]]:
    """What a scan must tell about each batch."""
    for batch in read_batches(buffer):
        is_legacy = isinstance(batch, LegacyBatch)
        yield {
            "position": base_position,
            "size": batch.size_in_bytes,
            "magic": batch.magic,
            "baseOffset": None if is_legacy and batch.count is None else batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.count,
            "baseTimestamp": batch.base_timestamp_ms,
            "maxTimestamp": batch.max_timestamp_ms,
            "attributes": _signed_byte(batch.buffer[17]) if is_legacy else batch.header.attributes,
            "leaderEpoch": batch.partition_leader_epoch,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "baseSequence": batch.base_sequence,
            "isValid": batch.is_valid,
        }
        base_position += batch.size_in_bytes


def _signed_byte(byte: int) -> int:
    return (byte ^ 0x80) - 0x80


def summary_of(batches: list[Batch]) -> LogSummary:
    """What a summary of sound batches must say."""
    if not batches:
        return LogSummary()
    times = [batch.max_timestamp_ms for batch in batches]
    return LogSummary(
        batches=len(batches),
        records=sum(1 for batch in batches for _ in batch),
        size_in_bytes=sum(batch.size_in_bytes for batch in batches),
        first_offset=batches[0].base_offset,
        last_offset=batches[-1].last_offset,
        min_batch_timestamp_ms=min(times),
        max_timestamp_ms=max(times),
    )


def facts_of(buffer: Any, earliest_ms: int, latest_ms: int) -> BatchFacts:
    """What `validate_batch` must find in a version 2 batch."""
    batch = RecordBatch(buffer)
    batch.ensure_valid()
    max_timestamp_ms, outside, without_key, consecutive = -1, -1, -1, True
    for index, record in enumerate(batch):
        assert record.timestamp_type is not TimestampType.NO_TIMESTAMP_TYPE
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        is_allowed = record.timestamp_ms == -1 or earliest_ms <= record.timestamp_ms <= latest_ms
        if outside < 0 and not is_allowed:
            outside = index
        if without_key < 0 and record.key is None:
            without_key = index
        consecutive &= (record.offset - batch.base_offset) % 2**64 == index
    return BatchFacts(max_timestamp_ms, outside, without_key, consecutive)


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 as a signed 32-bit number, word by word as its Java source reads."""
    length = len(data)
    value = 0x9747B28C ^ length
    for start in range(0, length - 3, 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    rest = data[length & ~3 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    value ^= value >> 15
    return (value ^ 0x80000000) - 0x80000000
