"""Messages of magic 0 and 1 for the tool: each with its own checksum, alone or inside a wrapper, sound or broken.

All that old tools and new ones do with them differently is here: which magic they believe, when they unwrap, and what
they say of a wrapper that cannot be read.

Kafka: AbstractLegacyRecordBatch, LegacyRecord; before 0.10.2 kafka.message.Message and ByteBufferMessageSet.
"""

import struct
from collections.abc import Iterator

from tidelog.dump.batch_lines import OldRecord, codec_name
from tidelog.dump.java_errors import (
    JavaError,
    ensure_heap,
    illegal_argument,
    made_by_reflection,
    no_such_element,
    null_pointer,
)
from tidelog.dump.java_streams import JavaStream, open_stream
from tidelog.dump.log_file import CORRUPT_RECORD, KAFKA_EXCEPTION, FileBatch, codec_of
from tidelog.dump.releases import Release
from tidelog.records.checksum import crc32_of
from tidelog.records.compression import Codec
from tidelog.records.java import wrap_int64
from tidelog.records.record import Record, TimestampType

__all__ = ["carriers", "message_codec", "read_message", "read_old_records"]

_PREFIX = struct.Struct(">qi")
_HEAD = struct.Struct(">Ibb")  # crc, magic, attributes
_MIN_LENGTH = 14


def read_old_records(batch: FileBatch, release: Release) -> Iterator[OldRecord]:
    """The records of a message, or of those inside a wrapper."""
    for offset, carrier, wrapper in carriers(batch, release):
        yield carrier.old_record(offset, wrapper)


def message_codec(batch: FileBatch, release: Release) -> Codec:
    """The codec of a message, whatever its magic, for the tools that knew no other format."""
    return codec_of(Message(batch.data[12:], release).attributes & 0x07, release)


def read_message(batch: FileBatch, release: Release) -> OldRecord:
    """A message as it stands in the file; of a wrapper the value is the compressed stream."""
    return Message(batch.data[12:], release).old_record(batch.offset, None)


class Message:
    """One message of magic 0 or 1, whose fields may lie outside of it."""

    def __init__(self, data: memoryview | bytes, release: Release) -> None:
        self.data = memoryview(data)
        self.release = release
        self.crc, self.magic, self.attributes = _HEAD.unpack_from(self.data)
        self._is_first_format = self.magic == 0 or release.one_message_format

    @property
    def timestamp_type(self) -> TimestampType:
        if self._is_first_format:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & 0x08 else TimestampType.CREATE_TIME

    @property
    def timestamp_ms(self) -> int:
        return -1 if self._is_first_format else self._int64(6)

    def timestamp_under(self, wrapper: "Message | None") -> int:
        """The timestamp, which is that of the wrapper where the broker set it."""
        if wrapper is not None and self.magic == 1 and wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return wrapper.timestamp_ms
        return self.timestamp_ms

    @property
    def key_size(self) -> int:
        return self._int32(6 if self._is_first_format else 14)

    @property
    def value_size(self) -> int:
        return self._int32(self.value_position)

    @property
    def value_position(self) -> int:
        return (10 if self._is_first_format else 18) + max(self.key_size, 0)

    def key(self) -> bytes | None:
        return self._field(10 if self._is_first_format else 18, self.key_size)

    def value(self) -> bytes | None:
        return self._field(self.value_position + 4, self.value_size)

    def describe(self) -> str:
        """How the exceptions of 0.10 name it."""
        times = "" if self._is_first_format else f" {self.timestamp_type.label} = {self.timestamp_ms},"
        key, value = (
            "null" if size < 0 else f"java.nio.HeapByteBuffer[pos=0 lim={size} cap={len(self.data) - position}]"
            for position, size in (
                (10 if self._is_first_format else 18, self.key_size),
                (self.value_position + 4, self.value_size),
            )
        )
        return (
            f"Message(magic = {self.magic}, attributes = {self.attributes},{times} crc = {self.crc}, key = {key}, "
            f"payload = {value})"
        )

    def _field(self, position: int, size: int) -> bytes | None:
        if size < 0:
            return None
        if position + size > len(self.data):
            raise illegal_argument(f"newLimit > capacity: ({size} > {len(self.data) - position})")
        return bytes(self.data[position : position + size])

    def _int32(self, position: int) -> int:
        return self._number(">i", position, 4)

    def _int64(self, position: int) -> int:
        return self._number(">q", position, 8)

    def _number(self, form: str, position: int, size: int) -> int:
        if position + size > len(self.data):
            raise JavaError("java.lang.IndexOutOfBoundsException")
        number: int = struct.unpack_from(form, self.data, position)[0]
        return number

    def old_record(self, offset: int, wrapper: "Message | None") -> OldRecord:
        """The record that the message is, under the timestamp of its wrapper."""
        timestamp_type = self.timestamp_type
        if wrapper is not None and self.magic == 1 and (wrapper.magic > 0 or self.release.broken_wrappers == "record"):
            timestamp_type = wrapper.timestamp_type
        key_size = value_size = -1
        key = value = size_error = data_error = None
        try:
            key_size, value_size = self.key_size, self.value_size
        except JavaError as error:
            size_error = error
        try:
            key = self.key()
            value = self.value()
        except JavaError as error:
            data_error = error
        record = Record(offset, self.timestamp_under(wrapper), key, value, timestamp_type=timestamp_type)
        is_valid = self.crc == crc32_of(self.data[4:])
        return OldRecord(
            record,
            is_valid,
            self.crc,
            self.magic,
            key_size,
            value_size,
            self.attributes & 0x07,
            size_error=size_error,
            data_error=data_error,
        )


Carrier = tuple[int, Message, Message | None]  # offset, message, the wrapper around it


def carriers(batch: FileBatch, release: Release) -> Iterator[Carrier]:
    """The message itself, or those inside it. All of those are found before the first is given back."""
    message = Message(batch.data[12:], release)
    codec = codec_of(message.attributes & 0x07, release)
    if codec is Codec.NONE:
        return iter(((int(batch.offset), message, None),))
    if release.broken_wrappers == "plain":
        return _nested_messages(message, codec, release)
    if release.broken_wrappers != "record":
        return _wrapped_messages(int(batch.offset), message, codec, release)
    inner = _unwrap(message, codec, release)
    if not inner:
        return iter(())
    return _absolute(inner, _base_offset(int(batch.offset), inner[-1][0], message, release), message, release)


def _nested_messages(wrapper: Message, codec: Codec, release: Release) -> Iterator[Carrier]:
    """The messages inside a wrapper by the rules of 0.8.2: all of it is opened first, and it may hold wrappers."""
    for offset, message in _inner_messages(JavaStream(_open_wrapper(wrapper, codec, release).read_all()), release):
        inner_codec = codec_of(message.attributes & 0x07, release)
        if inner_codec is Codec.NONE:
            yield offset, message, wrapper
        else:
            yield from _nested_messages(message, inner_codec, release)


def _wrapped_messages(offset: int, wrapper: Message, codec: Codec, release: Release) -> Iterator[Carrier]:
    """The messages inside a wrapper by the rules up to 0.10.1: the end of the stream is the end, wherever it comes."""
    lazily = _messages_of(wrapper, codec, release)
    if release.broken_wrappers == "lazy":
        return ((inner_offset, message, wrapper) for inner_offset, message in lazily)
    inner = list(lazily)
    base = offset - inner[-1][0] if inner and wrapper.magic > 0 and not release.one_message_format else 0
    return iter([(wrap_int64(base + inner_offset), message, wrapper) for inner_offset, message in inner])


def _open_wrapper(wrapper: Message, codec: Codec, release: Release) -> JavaStream:
    value = wrapper.value()
    if value is None and release.broken_wrappers == "invalid message":
        raise JavaError("kafka.common.KafkaException", f"Message payload is null: {wrapper.describe()}")
    if value is None:
        raise null_pointer("java.nio.ByteBuffer.hasRemaining()", '"this.buffer"')
    try:
        magic = 0 if release.one_message_format else wrapper.magic
        return open_stream(codec, memoryview(value), magic, release, start=0)
    except JavaError as error:
        assert error.cause is not None  # noqa: PT017
        if release.broken_wrappers != "invalid message":
            raise error.cause from None
        text = f"Failed to instantiate input stream compressed with {codec_name(codec, release)}"
        raise JavaError("kafka.message.InvalidMessageException", text, error.cause) from None


def _messages_of(wrapper: Message, codec: Codec, release: Release) -> Iterator[tuple[int, Message]]:
    stream = _open_wrapper(wrapper, codec, release)
    try:
        for offset, message in _inner_messages(stream, release):
            if message.magic != wrapper.magic and release.wrappers_fix_magic:
                raise JavaError(
                    "java.lang.IllegalStateException",
                    f"Compressed message has magic value {wrapper.magic} but inner message has magic value "
                    f"{message.magic}",
                )
            yield offset, message
    except JavaError as error:
        if error.class_name == "java.io.EOFException":
            return
        if not error.is_io:
            raise
        if release.broken_wrappers == "lazy":
            raise JavaError("kafka.common.KafkaException", "", error) from None
        text = f"Error while reading message from stream compressed with {codec_name(codec, release)}"
        raise JavaError("kafka.message.InvalidMessageException", text, error) from None


def _unwrap(wrapper: Message, codec: Codec, release: Release) -> list[tuple[int, Message]]:
    """The messages inside a wrapper, with the offsets that stand there."""
    if wrapper.magic not in (0, 1) and release.log_lines != "messages":
        raise JavaError(
            release.invalid_record, f"Invalid wrapper magic found in legacy deep record iterator {wrapper.magic}"
        )
    if codec is Codec.ZSTD:
        raise JavaError(
            release.invalid_record,
            f"Invalid wrapper compressionType found in legacy deep record iterator {wrapper.magic}",
        )
    value = wrapper.value()
    if value is None and release.log_lines == "messages":
        raise _null_buffer(codec, release)
    if value is None:
        raise JavaError(
            release.invalid_record, f"Found invalid compressed record set with null value (magic = {wrapper.magic})"
        )
    start = wrapper.value_position + 4 + (0 if release.log_lines == "messages" else _PREFIX.size)
    stream = open_stream(codec, memoryview(value), wrapper.magic, release, start=start)
    try:
        inner = list(_inner_messages(stream, release))
    except JavaError as error:
        if error.is_io:
            raise JavaError(KAFKA_EXCEPTION, str(error), error) from None
        raise
    if not inner and release.log_lines != "messages":
        raise JavaError(release.invalid_record, "Found invalid compressed record set with no inner records")
    if not inner and wrapper.magic > 0:
        raise no_such_element()
    return inner


def _null_buffer(codec: Codec, release: Release) -> JavaError:
    """What 0.10.2 ends with at a wrapper without a value; all but one of its readers are made by reflection."""
    error = null_pointer("java.nio.ByteBuffer.hasRemaining()", '"this.buffer"')
    if codec is Codec.LZ4 and release.is_at_least(0, 10, 2, 2):
        error = null_pointer("java.nio.ByteBuffer.duplicate()", '"in"')
    return error if codec is Codec.GZIP else made_by_reflection(error)


def _base_offset(offset: int, last_inner: int, wrapper: Message, release: Release) -> int:
    """What is added to the offsets inside a wrapper of magic 1."""
    if release.log_lines == "messages":
        return max(offset - last_inner, 0) if wrapper.magic > 0 else 0
    if wrapper.magic == 0 or offset == 0:
        return 0
    if offset < last_inner:
        raise JavaError(
            release.invalid_record,
            f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{offset}' is less than the "
            f"last inner message offset '{last_inner}' and it is not zero.",
        )
    return offset - last_inner


def _absolute(
    inner: list[tuple[int, Message]], base_offset: int, wrapper: Message, release: Release
) -> Iterator[Carrier]:
    for inner_offset, message in inner:
        if codec_of(message.attributes & 0x07, release) is not Codec.NONE:
            raise JavaError(release.invalid_record, "Inner messages must not be compressed")
        yield wrap_int64(base_offset + inner_offset), message, wrapper


def _inner_messages(stream: JavaStream, release: Release) -> Iterator[tuple[int, Message]]:
    while len(head := stream.read(_PREFIX.size)) == _PREFIX.size:
        offset, size = _PREFIX.unpack(head)
        if size < _MIN_LENGTH:
            raise _too_short(size, release)
        if release.broken_wrappers != "plain":
            ensure_heap(size)
        data = stream.read(size)
        if len(data) < size:
            return
        yield offset, Message(data, release)


def _too_short(size: int, release: Release) -> JavaError:
    kind = "kafka.message.InvalidMessageException"
    match release.broken_wrappers:
        case "plain":
            return JavaError(kind, f"Message found with corrupt size ({size})")
        case "lazy":
            return JavaError(kind, f"Message found with corrupt size ({size}) in deep iterator")
        case "invalid message":
            return JavaError(kind)  # which forgets what it is told
    return JavaError(CORRUPT_RECORD, f"Record size is less than the minimum record overhead ({_MIN_LENGTH})")
