"""The record batch, version 2 (magic 2): what producers send, brokers store and consumers receive.

A header of 61 bytes, then the records, plain or as one compressed stream. The CRC covers everything behind itself;
base offset, length and leader epoch stand before it, so a broker stamps them without computing it again.

Attributes, of which only the low byte is ever read:

    bits 0-2  codec              0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    bit  3    timestamp type     1: the broker's clock; every record then has the batch's max timestamp
    bit  4    transactional
    bit  5    control batch
    bit  6    delete horizon     base timestamp is the time after which tombstones and markers may go

Compaction keeps base offset, last offset delta and base sequence of the original batch, so a batch may begin and end
with offsets it no longer holds, and may be empty (61 bytes, count 0). See docs/formats/record-batch.md.

Kafka: org.apache.kafka.common.record.DefaultRecordBatch.
"""

import struct
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from tidelog.errors import CorruptRecordError, InvalidRecordError, InvalidRequestError
from tidelog.records.checksum import crc32c_of
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from tidelog.records.fields import pack_into
from tidelog.records.java import MAX_INT32, increment_sequence, wrap_int64
from tidelog.records.record import NO_SEQUENCE, NO_TIMESTAMP, Record, RecordBases, TimestampType, read_record
from tidelog.records.varint import Buffer

__all__ = [
    "BATCH_HEADER_SIZE",
    "BatchAttributes",
    "BatchHeader",
    "RecordBatch",
    "empty_batch",
]

_HEADER = struct.Struct(
    ">q"  # base_offset             offset of the first record of the batch as it was produced
    "i"  #  batch_length            bytes that follow this field
    "i"  #  partition_leader_epoch  outside the CRC: the broker sets it on append
    "b"  #  magic                   2
    "I"  #  crc                     CRC-32C of every byte after this field
    "h"  #  attributes              see BatchAttributes
    "i"  #  last_offset_delta       last offset - base offset; kept by compaction
    "q"  #  base_timestamp_ms       the first record's, or the delete horizon; -1 in an empty batch
    "q"  #  max_timestamp_ms        the largest of the records, or the time of the append
    "q"  #  producer_id             -1 without idempotence
    "h"  #  producer_epoch          -1 without idempotence
    "i"  #  base_sequence           -1 without idempotence, and in control batches
    "i"  #  records_count           records physically present
)
BATCH_HEADER_SIZE = _HEADER.size
assert BATCH_HEADER_SIZE == 61

PREFIX_SIZE = 8 + 4  # base_offset and batch_length: what a length does not count
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21  # the first byte under the CRC
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_LEADER_EPOCH = -1

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_LEADER_EPOCH_POSITION = 12
_MAX_TIMESTAMP_POSITION = 35


class BatchAttributes(NamedTuple):
    """The attribute bits by name. Bits without a name are not kept when a broker rewrites the field."""

    codec_id: int = 0
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    is_transactional: bool = False
    is_control: bool = False
    has_delete_horizon: bool = False

    @classmethod
    def unpack(cls, bits: int) -> "BatchAttributes":
        """Name the bits of an attributes field."""
        return cls(
            codec_id=bits & 0x07,
            timestamp_type=TimestampType.LOG_APPEND_TIME if bits & 0x08 else TimestampType.CREATE_TIME,
            is_transactional=bool(bits & 0x10),
            is_control=bool(bits & 0x20),
            has_delete_horizon=bool(bits & 0x40),
        )

    def pack(self) -> int:
        """The attributes field of these values.

        >>> hex(BatchAttributes(is_transactional=True, is_control=True).pack())
        '0x30'
        """
        if self.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
            raise InvalidRequestError("a version 2 batch has a timestamp type, CreateTime or LogAppendTime")
        return (
            self.codec_id
            | self.timestamp_type << 3
            | self.is_transactional << 4
            | self.is_control << 5
            | self.has_delete_horizon << 6
        )


class BatchHeader(NamedTuple):
    """The 13 fields, in the order of the bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @classmethod
    def unpack(cls, buffer: Buffer, position: int = 0) -> "BatchHeader":
        """Read the header at `position`, of which 61 bytes must be there."""
        if len(buffer) - position < BATCH_HEADER_SIZE:
            raise CorruptRecordError(f"a batch of {len(buffer) - position} bytes, its header alone takes 61")
        return cls(*_HEADER.unpack_from(buffer, position))

    def seal(self, body: bytes | bytearray) -> bytearray:
        """The whole batch: this header with its length and CRC filled in, and the body behind it."""
        batch = bytearray(BATCH_HEADER_SIZE + len(body))
        batch[BATCH_HEADER_SIZE:] = body
        pack_into(_HEADER, batch, 0, *self._replace(batch_length=len(batch) - PREFIX_SIZE))
        pack_into(_CRC, batch, CRC_POSITION, crc32c_of(memoryview(batch)[ATTRIBUTES_POSITION:]))
        return batch


class RecordBatch:
    """A version 2 batch over the bytes it lies in. Nothing is decompressed or copied before it is asked for.

    `buffer` holds the batch and nothing else. The setters write through to it (it must then be writable) and keep
    the checksum right. Not safe for use by several threads while one of them writes.
    """

    __slots__ = ("attributes", "buffer", "header")

    HEADER_SIZE: ClassVar[int] = BATCH_HEADER_SIZE

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = memoryview(buffer)
        self._read_header()

    def _read_header(self) -> None:
        self.header = BatchHeader.unpack(self.buffer)
        self.attributes = BatchAttributes.unpack(self.header.attributes)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset} to {self.last_offset}, {self.count} records, "
            f"{self.size_in_bytes} bytes)"
        )

    # -- what the header says ------------------------------------------------------------------------------------

    @property
    def magic(self) -> int:
        return self.header.magic

    @property
    def size_in_bytes(self) -> int:
        return len(self.buffer)

    @property
    def crc(self) -> int:
        return self.header.crc

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return wrap_int64(self.header.base_offset + self.header.last_offset_delta)

    @property
    def next_offset(self) -> int:
        return wrap_int64(self.last_offset + 1)

    @property
    def count(self) -> int:
        return self.header.records_count

    @property
    def partition_leader_epoch(self) -> int:
        return self.header.partition_leader_epoch

    @property
    def producer_id(self) -> int:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self.header.base_sequence

    @property
    def last_sequence(self) -> int:
        if self.header.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.header.base_sequence, self.header.last_offset_delta)

    @property
    def base_timestamp_ms(self) -> int:
        return self.header.base_timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        return self.header.max_timestamp_ms

    @property
    def timestamp_type(self) -> TimestampType:
        return self.attributes.timestamp_type

    @property
    def codec(self) -> Codec:
        """The codec; ids 5 to 7 raise UnsupportedCompressionError."""
        return Codec.from_id(self.attributes.codec_id)

    @property
    def is_transactional(self) -> bool:
        return self.attributes.is_transactional

    @property
    def is_control(self) -> bool:
        return self.attributes.is_control

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.header.base_timestamp_ms if self.attributes.has_delete_horizon else None

    # -- validity ------------------------------------------------------------------------------------------------

    def compute_crc(self) -> int:
        return crc32c_of(self.buffer[ATTRIBUTES_POSITION:])

    @property
    def is_valid(self) -> bool:
        """Whether the checksum holds. It says nothing about the structure of the records."""
        return self.header.crc == self.compute_crc()

    def ensure_valid(self) -> None:
        """Raise CorruptRecordError unless the checksum holds."""
        computed = self.compute_crc()
        if self.header.crc != computed:
            raise CorruptRecordError(
                f"batch at offset {self.base_offset}: stored crc {self.header.crc:#010x}, computed {computed:#010x}"
            )

    # -- the records ---------------------------------------------------------------------------------------------

    def records_bytes(self, max_size: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
        """The records as plain bytes, decompressed where they are compressed, at most `max_size` of them."""
        body = self.buffer[BATCH_HEADER_SIZE:]
        codec = self.codec
        if codec is Codec.NONE:
            return body
        return memoryview(decompress(codec, body, magic=MAGIC, max_size=max_size))

    def records(self, max_size: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """The records, in order. The checksum is not verified: call `ensure_valid` first where it matters.

        An empty batch yields nothing and its body is not looked at. Otherwise exactly `count` records must fill the
        body, or InvalidRecordError is raised when the iteration gets there.
        """
        if self.count == 0:
            return
        if self.count < 0:
            raise InvalidRecordError(f"batch at offset {self.base_offset}: {self.count} records")
        body = self.records_bytes(max_size)
        bases = RecordBases(
            self.base_offset,
            self.base_timestamp_ms,
            self.base_sequence,
            self.max_timestamp_ms if self.timestamp_type is TimestampType.LOG_APPEND_TIME else None,
        )
        position, end = 0, len(body)
        for _ in range(self.count):
            if position == end:
                raise InvalidRecordError(f"batch at offset {self.base_offset}: fewer records than its {self.count}")
            record, position = read_record(body, position, end, bases)
            yield record
        if position != end:
            raise InvalidRecordError(
                f"batch at offset {self.base_offset}: {end - position} bytes behind its {self.count} records"
            )

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    # -- what a broker stamps ------------------------------------------------------------------------------------

    def set_last_offset(self, offset: int) -> None:
        """Move the batch so that its last record gets `offset`. The checksum does not cover it."""
        pack_into(_BASE_OFFSET, self.buffer, 0, wrap_int64(offset - self.header.last_offset_delta))
        self._read_header()

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Stamp the epoch of the leader that appends. The checksum does not cover it."""
        pack_into(_LEADER_EPOCH, self.buffer, _LEADER_EPOCH_POSITION, epoch)
        self._read_header()

    def set_max_timestamp(self, timestamp_type: TimestampType, timestamp_ms: int) -> None:
        """Set who timed the batch and its largest time; the checksum is computed again only if one of them changes.

        Attribute bits without a name are cleared by it, as Kafka clears them.
        """
        if timestamp_type is self.timestamp_type and timestamp_ms == self.max_timestamp_ms:
            return
        bits = self.attributes._replace(timestamp_type=timestamp_type).pack()
        pack_into(_MAX_TIMESTAMP, self.buffer, _MAX_TIMESTAMP_POSITION, timestamp_ms)  # first: it may be refused
        pack_into(_ATTRIBUTES, self.buffer, ATTRIBUTES_POSITION, bits)
        pack_into(_CRC, self.buffer, CRC_POSITION, self.compute_crc())
        self._read_header()


def empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp_ms: int,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: BatchAttributes = BatchAttributes(),  # noqa: B008 - an immutable tuple
) -> bytearray:
    """The 61 bytes that compaction leaves of a batch whose producer or last offset must be remembered.

    Codec and delete horizon of `attributes` are dropped; timestamp type and the transactional and control bits stay.
    """
    if not base_offset <= last_offset <= base_offset + MAX_INT32:
        raise InvalidRequestError(f"a batch from offset {base_offset} to {last_offset}")
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes._replace(codec_id=0, has_delete_horizon=False).pack(),
        last_offset_delta=last_offset - base_offset,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=0,
    ).seal(b"")
