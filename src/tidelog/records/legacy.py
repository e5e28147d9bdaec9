"""Message sets of magic 0 and 1: what Kafka stored before 0.11, still found on old disks.

An entry is a 12-byte prefix (offset, size) and a message:

    crc          u32   CRC-32 of everything behind it
    magic        i8    0 or 1
    attributes   i8    bits 0-2 codec, bit 3 timestamp type (magic 1)
    timestamp    i64   magic 1 only
    keyLength, key        i32, bytes; -1 is null
    valueLength, value    the same

There are no batches: an uncompressed entry is one record. A compressed entry is a *wrapper*: its value is a compressed
message set, its offset is the last one inside. Inside a wrapper of magic 0 offsets are absolute. Inside magic 1 they
are relative: the last inner message has the wrapper's offset and the others follow from it, gaps included; a wrapper
at offset 0 counts from 0 whatever is inside (some producers left it 0). When the wrapper says LogAppendTime, its own
timestamp counts for every message; the type bit of inner messages is ignored. A wrapper inside a wrapper, or around
messages of another magic, is refused, as a broker refuses to store it.

See docs/formats/legacy.md. Kafka: AbstractLegacyRecordBatch, LegacyRecord.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    UnsupportedCompressionError,
    UnsupportedError,
)
from tidelog.records.batch import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PREFIX_SIZE
from tidelog.records.checksum import crc32_of
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from tidelog.records.fields import pack, pack_into
from tidelog.records.java import wrap_int64
from tidelog.records.record import NO_SEQUENCE, NO_TIMESTAMP, NewRecord, Record, TimestampType
from tidelog.records.varint import Buffer

__all__ = ["MESSAGE_OVERHEAD", "LegacyBatch", "message_size", "write_message"]

_PREFIX = struct.Struct(
    ">q"  # offset  of the message, or of the last one inside a wrapper
    "i"  #  size    bytes that follow this field
)
_MESSAGE_HEAD = struct.Struct(
    ">I"  # crc         CRC-32 of everything behind it
    "b"  #  magic       0 or 1
    "b"  #  attributes  codec and timestamp type
)
_CRC = struct.Struct(">I")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
assert _PREFIX.size == PREFIX_SIZE

_MAGIC_POSITION = 4  # inside a message: the first byte under the CRC
_TIMESTAMP_POSITION = _MESSAGE_HEAD.size
MESSAGE_OVERHEAD = {0: _MESSAGE_HEAD.size + 4 + 4, 1: _MESSAGE_HEAD.size + 8 + 4 + 4}
assert MESSAGE_OVERHEAD == {0: 14, 1: 22}
MIN_MESSAGE_SIZE = MESSAGE_OVERHEAD[0]

_CODEC_BITS = 0x07
_TIMESTAMP_TYPE_BIT = 0x08


class _Message(NamedTuple):
    """One message as it lies in a message set; of the two byte fields only the place is known yet."""

    data: memoryview
    magic: int
    attributes: int

    @classmethod
    def at(cls, data: memoryview) -> "_Message":
        if len(data) < MIN_MESSAGE_SIZE:
            raise CorruptRecordError(f"a message of {len(data)} bytes, the smallest has {MIN_MESSAGE_SIZE}")
        _, magic, attributes = _MESSAGE_HEAD.unpack_from(data)
        return cls(data, magic, attributes)

    @property
    def codec_id(self) -> int:
        return self.attributes & _CODEC_BITS

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & _TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def timestamp_ms(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP
        timestamp_ms: int = _I64.unpack_from(self.data, _TIMESTAMP_POSITION)[0]  # 14 bytes are there: see `at`
        return timestamp_ms

    def key_and_value(self) -> tuple[memoryview | None, memoryview | None]:
        position = _TIMESTAMP_POSITION if self.magic == 0 else _TIMESTAMP_POSITION + 8
        key, position = self._field(position)
        value, _ = self._field(position)  # bytes behind the value are not looked at, as in Kafka
        return key, value

    def _field(self, position: int) -> tuple[memoryview | None, int]:
        left = len(self.data) - position
        if left < 4:
            raise InvalidRecordError(f"a message of {len(self.data)} bytes ends inside a length field")
        size = _I32.unpack_from(self.data, position)[0]
        if size > left - 4:
            raise InvalidRecordError(f"a message with a field of {size} bytes, {left - 4} are left")
        position += 4
        if size < 0:
            return None, position
        return self.data[position : position + size], position + size


class LegacyBatch:
    """One entry of a message set: a single record, or a wrapper around several. Reads like a RecordBatch.

    `buffer` holds the entry and nothing else. What the old formats do not have (leader epoch, producer, sequence,
    transactions) answers -1 or False.
    """

    __slots__ = ("_message", "buffer", "last_offset")

    partition_leader_epoch = NO_LEADER_EPOCH
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    base_sequence = NO_SEQUENCE
    last_sequence = NO_SEQUENCE
    is_transactional = False
    is_control = False
    delete_horizon_ms = None

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = memoryview(buffer)
        if len(self.buffer) < PREFIX_SIZE + MIN_MESSAGE_SIZE:
            raise CorruptRecordError(f"an entry of {len(self.buffer)} bytes, the smallest message set has 26")
        self._read_header()

    def _read_header(self) -> None:
        self.last_offset: int = _I64.unpack_from(self.buffer)[0]
        self._message = _Message.at(self.buffer[PREFIX_SIZE:])

    def __repr__(self) -> str:
        return f"LegacyBatch(magic {self.magic}, last offset {self.last_offset}, {self.size_in_bytes} bytes)"

    @property
    def magic(self) -> int:
        return self._message.magic

    @property
    def size_in_bytes(self) -> int:
        return len(self.buffer)

    @property
    def crc(self) -> int:
        crc: int = _CRC.unpack_from(self._message.data)[0]
        return crc

    @property
    def base_offset(self) -> int:
        """The first offset. A wrapper must be decompressed for it."""
        return next(self.records()).offset

    @property
    def next_offset(self) -> int:
        return wrap_int64(self.last_offset + 1)

    @property
    def count(self) -> int | None:
        """1, or None for a wrapper, which does not say how many records it holds."""
        return None if self._message.codec_id else 1

    @property
    def base_timestamp_ms(self) -> int:
        return self._message.timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        return self._message.timestamp_ms

    @property
    def timestamp_type(self) -> TimestampType:
        return self._message.timestamp_type

    @property
    def codec(self) -> Codec:
        """The codec; ids 5 to 7 raise UnsupportedCompressionError."""
        return Codec.from_id(self._message.codec_id)

    def compute_crc(self) -> int:
        return crc32_of(self._message.data[_MAGIC_POSITION:])

    @property
    def is_valid(self) -> bool:
        """Whether the checksum of the entry holds; those inside a wrapper are not looked at."""
        return self.crc == self.compute_crc()

    def ensure_valid(self) -> None:
        """Raise CorruptRecordError unless the checksum of the entry holds."""
        computed = self.compute_crc()
        if self.crc != computed:
            raise CorruptRecordError(
                f"message at offset {self.last_offset}: stored crc {self.crc:#010x}, computed {computed:#010x}"
            )

    def records(self, max_size: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """The record, or those inside the wrapper with their absolute offsets. Checksums are not verified."""
        if self._message.codec_id:
            return self._wrapped_records(max_size)
        return iter((_to_record(self.last_offset, self._message, self._message),))

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def inner_messages(self, max_size: int = MAX_DECOMPRESSED_BYTES) -> list["LegacyBatch"]:
        """The entries inside a wrapper as they lie there, with the offsets they were written with."""
        return [LegacyBatch(entry) for entry in _entries(self.records_bytes(max_size))]

    def records_bytes(self, max_size: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
        """The message set inside a wrapper as plain bytes, at most `max_size` of them."""
        if self.magic not in (0, 1):
            raise InvalidRecordError(f"message at offset {self.last_offset}: a wrapper of magic {self.magic}")
        codec = self.codec
        if codec is Codec.ZSTD:
            raise UnsupportedCompressionError(f"message at offset {self.last_offset}: zstd in magic {self.magic}")
        _, value = self._message.key_and_value()
        if value is None:
            raise InvalidRecordError(f"message at offset {self.last_offset}: a wrapper without a value")
        return memoryview(decompress(codec, value, magic=self.magic, max_size=max_size))

    def _wrapped_records(self, max_size: int) -> Iterator[Record]:
        inner = self.inner_messages(max_size)
        if not inner:
            raise InvalidRecordError(f"message at offset {self.last_offset}: a wrapper around nothing")
        base_offset = self._offset_of_relative_zero(inner[-1].last_offset)
        for entry in inner:
            if entry._message.codec_id:
                raise InvalidRecordError(f"message at offset {self.last_offset}: a wrapper inside a wrapper")
            if entry.magic != self.magic:
                raise InvalidRecordError(
                    f"message at offset {self.last_offset}: magic {entry.magic} inside a wrapper of magic {self.magic}"
                )
            yield _to_record(wrap_int64(base_offset + entry.last_offset), entry._message, self._message)

    def _offset_of_relative_zero(self, last_inner_offset: int) -> int:
        if self.magic == 0 or self.last_offset == 0:
            return 0
        if self.last_offset < last_inner_offset:
            raise InvalidRecordError(
                f"a wrapper at offset {self.last_offset}, below the last relative offset {last_inner_offset} inside"
            )
        return wrap_int64(self.last_offset - last_inner_offset)

    # -- what a broker stamps ------------------------------------------------------------------------------------

    def set_last_offset(self, offset: int) -> None:
        """Give the entry its offset. The checksum does not cover it."""
        pack_into(_I64, self.buffer, 0, offset)
        self._read_header()

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Always refused: leader epochs came with magic 2."""
        raise UnsupportedError(f"a message of magic {self.magic} has no leader epoch to set to {epoch}")

    def set_max_timestamp(self, timestamp_type: TimestampType, timestamp_ms: int) -> None:
        """Set who timed the message and its time, and the checksum with them. Magic 0 has no timestamp."""
        if self.magic == 0:
            raise UnsupportedError("a message of magic 0 has no timestamp to set")
        if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
            raise InvalidRequestError("a message of magic 1 has a timestamp type, CreateTime or LogAppendTime")
        if timestamp_type is self.timestamp_type and timestamp_ms == self.max_timestamp_ms:
            return
        data = self._message.data
        pack_into(_I64, data, _TIMESTAMP_POSITION, timestamp_ms)
        data[5] = self._message.codec_id | timestamp_type << 3
        pack_into(_CRC, data, 0, self.compute_crc())
        self._read_header()


def _entries(message_set: memoryview) -> Iterator[memoryview]:
    """The entries of a decompressed wrapper. One that is cut off ends the set, as it does in Kafka."""
    position = 0
    while len(message_set) - position >= PREFIX_SIZE:
        _, size = _PREFIX.unpack_from(message_set, position)
        if size < MIN_MESSAGE_SIZE:
            raise CorruptRecordError(f"a wrapped message of {size} bytes, the smallest has {MIN_MESSAGE_SIZE}")
        if size > len(message_set) - position - PREFIX_SIZE:
            return
        yield message_set[position : position + PREFIX_SIZE + size]
        position += PREFIX_SIZE + size


def _to_record(offset: int, message: _Message, outer: _Message) -> Record:
    """`outer` is the wrapper, or the message itself. Its timestamp type rules."""
    key, value = message.key_and_value()
    is_append_time = outer.timestamp_type is TimestampType.LOG_APPEND_TIME
    return Record(
        offset=offset,
        timestamp_ms=outer.timestamp_ms if is_append_time else message.timestamp_ms,
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        timestamp_type=outer.timestamp_type,
    )


def message_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """Bytes of one entry, prefix included."""
    return PREFIX_SIZE + MESSAGE_OVERHEAD[magic] + len(key or b"") + len(value or b"")


def write_message(
    out: bytearray,
    magic: int,
    offset: int,
    record: NewRecord,
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> None:
    """Append one entry. `codec` only sets the bits: the value of a wrapper is compressed by the caller.

    >>> out = bytearray()
    >>> write_message(out, 0, 5, NewRecord(b"k", b"v"))
    >>> out.hex()
    '0000000000000005000000101fecd70a0000000000016b0000000176'
    """
    if magic not in MESSAGE_OVERHEAD:
        raise InvalidRequestError(f"a message set has magic 0 or 1, not {magic}")
    if record.headers:
        raise UnsupportedError(f"records of magic {magic} cannot have headers")
    attributes = codec | (timestamp_type << 3 if magic == 1 else 0)
    out += pack(_PREFIX, offset, message_size(magic, record.key, record.value) - PREFIX_SIZE)
    start = len(out)
    out += pack(_MESSAGE_HEAD, 0, magic, attributes)
    if magic == 1:
        out += pack(_I64, record.timestamp_ms)
    for field in (record.key, record.value):
        out += pack(_I32, -1 if field is None else len(field))
        out += field or b""
    pack_into(_CRC, out, start, crc32_of(memoryview(out)[start + _MAGIC_POSITION :]))
