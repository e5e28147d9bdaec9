"""Batches written anew on their way into a log: with another codec, or in version 2 from an older format.

Everything that a producer said stays: keys, values, headers, times, producer, sequence, transaction. Offsets count up
from the end of the log, the base timestamp is that of the first record, and the codec is the topic's.

Where the records of a version 2 batch already lie like this, their bytes are taken as they are: decompress, compress,
and a new header.

Kafka: LogValidator.buildRecordsAndAssignOffsets, MemoryRecordsBuilder.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import InvalidTimestampError, RecordError
from tidelog.log.config import LogConfig
from tidelog.records.batch import BATCH_HEADER_SIZE, PREFIX_SIZE, RecordBatch
from tidelog.records.builder import BatchBuilder
from tidelog.records.compression import Codec, compress
from tidelog.records.record import NO_TIMESTAMP, NewRecord, Record, TimestampType
from tidelog.records.varint import read_varint, read_varlong

__all__ = ["Rebuild", "are_as_written", "plain_copy"]

_LENGTH_FIELD = slice(8, PREFIX_SIZE)
_CODEC_BYTE, _CODEC_BITS = 22, 0x07


class Rebuild(NamedTuple):
    """What a rebuilt batch gets from the log it goes into."""

    base_offset: int
    leader_epoch: int
    codec: Codec
    level: int | None
    timestamp_type: TimestampType
    append_time_ms: int  # -1 where records keep their own

    @classmethod
    def of(cls, config: LogConfig, source: Codec, *, base_offset: int, leader_epoch: int, now_ms: int) -> "Rebuild":
        """What a batch that came in `source` gets."""
        codec = config.codec_for(source)
        return cls(
            base_offset,
            leader_epoch,
            codec,
            config.level_for(codec),
            TimestampType.LOG_APPEND_TIME if config.uses_append_time else TimestampType.CREATE_TIME,
            now_ms if config.uses_append_time else NO_TIMESTAMP,
        )

    def recompressed(self, batch: RecordBatch, records: memoryview, max_timestamp_ms: int) -> bytearray:
        """A batch around the plain `records` of `batch`, for which `are_as_written` was true."""
        is_append_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        header = batch.header._replace(
            base_offset=self.base_offset,
            partition_leader_epoch=self.leader_epoch,
            attributes=batch.attributes._replace(codec_id=self.codec, timestamp_type=self.timestamp_type).pack(),
            max_timestamp_ms=self.append_time_ms if is_append_time else max_timestamp_ms,
        )
        return header.seal(compress(self.codec, records, level=self.level))

    def rewritten(self, batch: RecordBatch, records: Iterable[Record]) -> bytearray:
        """A batch of `records`, one by one, with the producer of `batch`."""
        builder = BatchBuilder(
            base_offset=self.base_offset,
            codec=self.codec,
            level=self.level,
            timestamp_type=self.timestamp_type,
            log_append_time_ms=self.append_time_ms,
            partition_leader_epoch=self.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
        )
        return _filled(builder, records)

    def converted(self, records: Iterable[Record]) -> bytearray:
        """A batch of records from the old formats, which know no producers."""
        builder = BatchBuilder(
            base_offset=self.base_offset,
            codec=self.codec,
            level=self.level,
            timestamp_type=self.timestamp_type,
            log_append_time_ms=self.append_time_ms,
            partition_leader_epoch=self.leader_epoch,
        )
        return _filled(builder, records)


def _filled(builder: BatchBuilder, records: Iterable[Record]) -> bytearray:
    for index, record in enumerate(records):
        if record.timestamp_ms < NO_TIMESTAMP:  # stored as it came where it can be, never written by a broker
            message = f"timestamp {record.timestamp_ms}: a batch with a time below -1 cannot be written anew"
            raise InvalidTimestampError(message, (RecordError(index, message),))
        builder.append(NewRecord(record.key, record.value, record.timestamp_ms, record.headers))
    return builder.build()


def plain_copy(batch: RecordBatch) -> memoryview:
    """The batch with its records decompressed. The checksum is not made anew: it is for reading only."""
    records = batch.records_bytes()
    copy = bytearray(BATCH_HEADER_SIZE + len(records))
    copy[:BATCH_HEADER_SIZE] = batch.buffer[:BATCH_HEADER_SIZE]
    copy[BATCH_HEADER_SIZE:] = records
    copy[_LENGTH_FIELD] = (len(copy) - PREFIX_SIZE).to_bytes(4, "big")
    copy[_CODEC_BYTE] &= ~_CODEC_BITS
    return memoryview(copy)


def are_as_written(batch: RecordBatch, records: memoryview) -> bool:
    """Whether the plain `records`, whose offsets count up by one, are what writing them anew would give.

    Their times are differences to the base timestamp, so that must be the first record's, and must be what counts.
    """
    if batch.timestamp_type is not TimestampType.CREATE_TIME or batch.delete_horizon_ms is not None:
        return False
    _, position = read_varint(records, 0, len(records))
    first_difference, _ = read_varlong(records, position + 1, len(records))  # behind the record's attributes
    return first_difference == 0
