"""Building batches, as a producer or a broker does.

`BatchBuilder` makes one version 2 batch, `build_message_set` the legacy formats, and `cut_batches` turns a stream of
records into the batches a producer would send with `batch.size`: base offset 0, leader epoch -1, the next record goes
into the open batch if it still fits.

The size that is compared with `batch.size` is the one before compression, as librdkafka does it. Java's producer also
guesses the compression ratio and overfills accordingly; how a stream is cut is each producer's own business.

Kafka: MemoryRecordsBuilder, RecordAccumulator.
"""

from collections.abc import Iterable, Iterator

from tidelog.errors import InvalidRequestError, UnsupportedCompressionError
from tidelog.records.batch import (
    BATCH_HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchAttributes,
    BatchHeader,
)
from tidelog.records.compression import Codec, compress
from tidelog.records.java import MAX_INT32, increment_sequence, wrap_int64
from tidelog.records.legacy import write_message
from tidelog.records.record import (
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NewRecord,
    TimestampType,
    record_size,
    record_size_upper_bound,
    write_record,
)

__all__ = ["DEFAULT_BATCH_SIZE", "BatchBuilder", "build_batch", "build_message_set", "cut_batches", "plain_batch_size"]

DEFAULT_BATCH_SIZE = 16384  # batch.size of the Java producer


class BatchBuilder:
    """One version 2 batch in the making.

    Offsets are consecutive unless given; they must increase. `build` may be called once there is a record, more than
    once, and gives a fresh bytearray each time.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time_ms: int = NO_TIMESTAMP,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        check_producer(producer_id, producer_epoch, base_sequence, is_transactional, is_control)
        _check_timestamp_type(timestamp_type, log_append_time_ms)
        self.base_offset = base_offset
        self.codec = Codec.from_id(codec)
        self.level = level
        self.log_append_time_ms = log_append_time_ms
        self.partition_leader_epoch = partition_leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.attributes = BatchAttributes(
            codec, timestamp_type, is_transactional, is_control, delete_horizon_ms is not None
        )
        self.count = 0
        self._body = bytearray()
        self._last_offset = base_offset - 1
        self._base_timestamp_ms = delete_horizon_ms  # else the first record's
        self._max_timestamp_ms = NO_TIMESTAMP

    @property
    def size_in_bytes(self) -> int:
        """Bytes so far, header included, before compression."""
        return BATCH_HEADER_SIZE + len(self._body)

    @property
    def next_offset(self) -> int:
        return self._last_offset + 1

    def size_with(self, record: NewRecord) -> int:
        """Bytes, before compression, if `record` came next."""
        return self.size_in_bytes + record_size(self._offset_delta(self.next_offset), self._time_delta(record), record)

    def append(self, record: NewRecord, offset: int | None = None) -> "BatchBuilder":
        """Add a record, at `offset` or at the next one."""
        if offset is None:
            offset = self.next_offset
        elif offset < self.next_offset:
            raise InvalidRequestError(f"offset {offset} after {self._last_offset}: offsets must increase in a batch")
        _check_timestamp(record.timestamp_ms)
        _check_bytes(record)
        offset_delta, time_delta = self._offset_delta(offset), self._time_delta(record)
        if self._base_timestamp_ms is None:
            self._base_timestamp_ms = record.timestamp_ms
        write_record(self._body, offset_delta, time_delta, record)
        self._last_offset = offset
        self._max_timestamp_ms = max(self._max_timestamp_ms, record.timestamp_ms)
        self.count += 1
        return self

    def _offset_delta(self, offset: int) -> int:
        delta = offset - self.base_offset
        if delta > MAX_INT32:
            raise InvalidRequestError(f"offset {offset} is more than 2**31 - 1 above the base {self.base_offset}")
        return delta

    def _time_delta(self, record: NewRecord) -> int:
        base = record.timestamp_ms if self._base_timestamp_ms is None else self._base_timestamp_ms
        return wrap_int64(record.timestamp_ms - base)  # adding it to the base wraps back

    def build(self, *, last_offset: int | None = None) -> bytearray:
        """The bytes of the batch. Without records there is no batch, and the answer is empty.

        `last_offset` is for compaction: the batch keeps the last offset it had, though the record there is gone.
        """
        if not self.count:
            return bytearray()
        if last_offset is None:
            last_offset = self._last_offset
        elif last_offset < self._last_offset:
            raise InvalidRequestError(f"last offset {last_offset}, below that of a record, {self._last_offset}")
        is_append_time = self.attributes.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert self._base_timestamp_ms is not None
        return BatchHeader(
            base_offset=self.base_offset,
            batch_length=0,  # sealed below
            partition_leader_epoch=self.partition_leader_epoch,
            magic=MAGIC,
            crc=0,  # sealed below
            attributes=self.attributes.pack(),
            last_offset_delta=self._offset_delta(last_offset),
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=self.log_append_time_ms if is_append_time else self._max_timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            records_count=self.count,
        ).seal(self._body if self.codec is Codec.NONE else compress(self.codec, self._body, level=self.level))


def check_producer(
    producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool, is_control: bool
) -> None:
    if is_transactional and producer_id == NO_PRODUCER_ID:
        raise InvalidRequestError("a transactional batch needs a producer id")
    if producer_id == NO_PRODUCER_ID:
        return
    if producer_epoch == NO_PRODUCER_EPOCH:
        raise InvalidRequestError(f"producer {producer_id} without a producer epoch")
    if base_sequence < 0 and not is_control:
        raise InvalidRequestError(f"producer {producer_id} with base sequence {base_sequence}")


def _check_timestamp_type(timestamp_type: TimestampType, log_append_time_ms: int) -> None:
    if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
        raise InvalidRequestError("a batch has a timestamp type, CreateTime or LogAppendTime")
    if timestamp_type is TimestampType.LOG_APPEND_TIME and log_append_time_ms == NO_TIMESTAMP:
        raise InvalidRequestError("LogAppendTime needs the time of the append")


def _check_timestamp(timestamp_ms: int) -> None:
    if not NO_TIMESTAMP <= timestamp_ms < 2**63:
        raise InvalidRequestError(f"timestamp {timestamp_ms}: a record has a time >= 0, or -1 for none")


def _check_bytes(record: NewRecord) -> None:
    """Before a byte is written: a record that fails half-way would spoil the batch."""
    for field in (record.key, record.value, *(header.value for header in record.headers)):
        if not isinstance(field, bytes | bytearray | memoryview | None):
            raise InvalidRequestError(f"a {type(field).__name__}, {field!r}: keys and values are bytes, or None")
    for header in record.headers:
        if not isinstance(header.key, str):
            raise InvalidRequestError(f"header name {header.key!r}: names are str")


def build_batch(records: Iterable[NewRecord], **options: object) -> bytearray:
    """One batch of all `records`; the options are those of `BatchBuilder`.

    >>> one = NewRecord(b"key1", b"value1", 1_700_000_000_000)
    >>> len(build_batch([one])), len(build_batch([one, one]))
    (78, 95)
    """
    builder = BatchBuilder(**options)  # type: ignore[arg-type]
    for record in records:
        builder.append(record)
    return builder.build()


def plain_batch_size(records: Iterable[NewRecord]) -> int:
    """Bytes of an uncompressed batch of `records`, header included; 0 for none.

    >>> plain_batch_size([NewRecord(b"key1", b"value1")])
    78
    """
    size, base_timestamp_ms = 0, 0
    for delta, record in enumerate(records):
        if not size:
            size, base_timestamp_ms = BATCH_HEADER_SIZE, record.timestamp_ms
        size += record_size(delta, wrap_int64(record.timestamp_ms - base_timestamp_ms), record)
    return size


def cut_batches(
    records: Iterable[NewRecord],
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> Iterator[bytearray]:
    """The batches a producer would send. A record larger than `batch_size` gets a batch of its own size."""

    def new_builder(sequence: int) -> BatchBuilder:
        return BatchBuilder(
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    builder = new_builder(base_sequence)
    limit = batch_size
    for record in records:
        if builder.count and builder.size_with(record) > limit:
            yield builder.build()
            if base_sequence != NO_SEQUENCE:
                base_sequence = increment_sequence(base_sequence, builder.count)
            builder = new_builder(base_sequence)
        if not builder.count:  # the room a producer takes is at least what its first record may need
            limit = max(batch_size, BATCH_HEADER_SIZE + record_size_upper_bound(record))
        builder.append(record)
    if builder.count:
        yield builder.build()


def build_message_set(
    magic: int,
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
) -> bytearray:
    """Messages of magic 0 or 1: one entry each, or one wrapper around all of them where a codec is given."""
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionError(f"zstd came with magic 2, it cannot be used with magic {magic}")
    if magic != 0:  # which has no timestamps at all
        _check_timestamp_type(timestamp_type, log_append_time_ms)
    by_broker = timestamp_type is TimestampType.LOG_APPEND_TIME
    out = bytearray()
    offset, last_inner_offset, max_timestamp_ms = base_offset, -1, NO_TIMESTAMP
    for offset, record in enumerate(records, base_offset):
        _check_timestamp(record.timestamp_ms)
        _check_bytes(record)
        if by_broker and codec is Codec.NONE:
            record = record._replace(timestamp_ms=log_append_time_ms)
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        is_relative = codec is not Codec.NONE and magic == 1
        last_inner_offset = offset - base_offset if is_relative else offset
        write_message(out, magic, last_inner_offset, record, timestamp_type=timestamp_type)
    if codec is Codec.NONE or not out:
        return out
    wrapper = bytearray()
    content = NewRecord(
        None, compress(codec, out, level=level, magic=magic), log_append_time_ms if by_broker else max_timestamp_ms
    )
    write_message(wrapper, magic, offset, content, codec=codec, timestamp_type=timestamp_type)
    return wrapper
