"""A `.log` file as the tool reads it: slices of it, and the batches in a slice, one by one.

`tidelog.records` refuses what cannot be a batch; the tool prints it as far as it can. So batches are found here by the
tool's own rules: a batch is a length and a magic, its header is whatever bytes follow, even those of the next batch.

Kafka: FileRecords, FileLogInputStream; before 0.10.2 kafka.log.FileMessageSet.
"""

import struct
from collections.abc import Iterator

from tidelog.dump.java_errors import JavaError, illegal_argument
from tidelog.dump.java_files import open_file
from tidelog.dump.java_text import JavaFile
from tidelog.dump.releases import Release
from tidelog.log.files import ReadFile
from tidelog.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_SIZE, BatchAttributes, BatchHeader
from tidelog.records.batches import HEADER_SIZE_UP_TO_MAGIC
from tidelog.records.checksum import crc32_of, crc32c_of
from tidelog.records.compression import Codec
from tidelog.records.java import MAX_INT32, wrap_int32, wrap_int64
from tidelog.records.record import NO_SEQUENCE, NO_TIMESTAMP, TimestampType

__all__ = ["FileBatch", "LogFile", "LogSlice", "codec_of"]

_READ_AHEAD = 1 << 20
_PREFIX = struct.Struct(">qi")  # offset, bytes that follow
_LEGACY_HEADER = struct.Struct(">qiIbbq")  # offset, length, crc, magic, attributes, timestamp (not in magic 0)
_PREFIX_SIZE = 12
_MIN_LENGTH = 14
_LEGACY_MAGIC_POSITION = 16

CORRUPT_RECORD = "org.apache.kafka.common.errors.CorruptRecordException"
KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException"


def codec_of(codec_id: int, release: Release) -> Codec:
    """The codec of three attribute bits, as far as the release knows it."""
    if codec_id <= (Codec.ZSTD if release.zstd else Codec.LZ4):
        return Codec(codec_id)
    if release.codec_names == "classes":
        raise JavaError("kafka.common.UnknownCodecException", f"{codec_id} is an unknown compression codec")
    raise illegal_argument(f"Unknown compression type id: {codec_id}")


class LogFile:
    """An open `.log`. Bytes are read ahead, a megabyte at a time, and never more than a batch of them is held."""

    def __init__(self, file: JavaFile, release: Release) -> None:
        self.file = file
        self.release = release
        self.source: ReadFile = open_file(file, by_channel=release.opens_by_channel)
        self.size = self.source.size
        if self.size > MAX_INT32 and release.is_at_least(2, 1, 0):
            self.close()
            raise JavaError(
                KAFKA_EXCEPTION,
                f"The size of segment {file.path} ({self.size}) is larger than the maximum allowed segment size of "
                f"{MAX_INT32}",
            )
        self._window = memoryview(b"")
        self._window_start = 0

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.source.close()

    def bytes_at(self, position: int, size: int) -> memoryview:
        """`size` bytes, or those that are there."""
        start = position - self._window_start
        if start < 0 or start + size > len(self._window):
            self._window = memoryview(self.source.read(position, max(size, _READ_AHEAD)))
            self._window_start = position
            start = 0
        return self._window[start : start + size]

    def whole(self) -> "LogSlice":
        return LogSlice(self, 0, self.size if self.release.short_batch != "end" else MAX_INT32, is_whole=True)

    def slice(self, position: int, size: int) -> "LogSlice":
        """The part of `size` bytes from `position`, with the complaints of the release."""
        checks = self.release.slice_checks
        described = self.whole().describe()
        where = {"sign": "", "file": f" in read from {self.file.path}", "end": f" in read from {described}"}
        if position < 0:
            raise illegal_argument(f"Invalid position: {position}{where[checks]}")
        if checks == "end" and position > self.size:
            raise illegal_argument(f"Slice from position {position} exceeds end position of {described}")
        if size < 0:
            raise illegal_argument(f"Invalid size: {size}{where[checks]}")
        end = wrap_int32(position + size)
        if end < 0 and not self.release.is_at_least(0, 10, 1):
            return LogSlice(self, position, end)
        return LogSlice(self, position, self.size if end < 0 else min(end, self.size))


class LogSlice:
    """A part of a log, or all of it."""

    __slots__ = ("_is_whole", "end", "log", "start")

    def __init__(self, log: LogFile, start: int, end: int, *, is_whole: bool = False) -> None:
        self.log = log
        self.start = start
        self.end = end
        self._is_whole = is_whole

    def describe(self) -> str:
        """How Kafka's exceptions name it."""
        path, end = self.log.file.path, MAX_INT32 if self._is_whole else self.end
        if not self.log.release.is_at_least(2, 4, 0):
            return f"FileRecords(file= {path}, start={self.start}, end={end})"
        size = self.log.size if self._is_whole else end - self.start
        return f"FileRecords(size={size}, file={path}, start={self.start}, end={end})"

    def batches(self, start: int | None = None, *, max_size: int = MAX_INT32) -> "Iterator[FileBatch]":
        """The batches from a position on; the size of a message is limited up to 0.10.2 only."""
        position = self.start if start is None else start
        find = self._next if self.log.release.is_at_least(0, 11, 0) else self._next_message
        while (batch := find(position, max_size)) is not None:
            yield batch
            position += batch.size
            if position > MAX_INT32:
                raise illegal_argument(
                    f"The file channel position cannot be negative, but it is {wrap_int32(position)}"
                )

    def _next(self, position: int, max_size: int) -> "FileBatch | None":
        if position >= self.end - HEADER_SIZE_UP_TO_MAGIC:
            return None
        head = self.log.bytes_at(position, HEADER_SIZE_UP_TO_MAGIC)
        if len(head) < HEADER_SIZE_UP_TO_MAGIC:
            return None  # the file was cut under our feet
        _, length = _PREFIX.unpack_from(head)
        if length < _MIN_LENGTH:
            raise self._too_short(length)
        if self._reaches_beyond(position + _PREFIX_SIZE + length):
            return None
        return FileBatch(self.log, position, _PREFIX_SIZE + length, head, self)

    def _reaches_beyond(self, batch_end: int) -> bool:
        """Up to 1.1.0 a batch that ends above 2^31 seems to end below zero."""
        if not self.log.release.is_at_least(1, 1, 1):
            batch_end = wrap_int32(batch_end)
        return batch_end > self.end

    def _next_message(self, position: int, max_size: int) -> "FileBatch | None":
        """The rules of the old message sets: they do not look at the magic."""
        is_10 = self.log.release.is_at_least(0, 10, 0)
        if position + (_PREFIX_SIZE if is_10 else 0) >= self.end:
            return None
        head = self.log.bytes_at(position, HEADER_SIZE_UP_TO_MAGIC)
        if len(head) < _PREFIX_SIZE:
            return None
        _, length = _PREFIX.unpack_from(head)
        if self.log.release.short_batch == "end":
            if length < _MIN_LENGTH or is_10 and wrap_int32(position + _PREFIX_SIZE + length) > self.end:
                return None
        elif length < _MIN_LENGTH:
            raise self._too_short(length)
        if length > max_size:
            raise self._too_long(max_size)
        if position + _PREFIX_SIZE + length > min(self.end if is_10 else MAX_INT32, self.log.size):
            return None
        return FileBatch(self.log, position, _PREFIX_SIZE + length, head, self)

    def _too_short(self, length: int) -> JavaError:
        if self.log.release.short_batch == "plain":
            return JavaError(CORRUPT_RECORD, f"Record size is smaller than minimum record overhead ({_MIN_LENGTH}).")
        return JavaError(
            CORRUPT_RECORD,
            f"Found record size {length} smaller than minimum record overhead ({_MIN_LENGTH}) in file "
            f"{self.log.file.path}.",
        )

    def _too_long(self, max_size: int) -> JavaError:
        release = self.log.release
        what = "Record" if release.is_at_least(0, 10, 2) else "Message"
        text = f"{what} size exceeds the largest allowable message size ({max_size})."
        is_new = release.is_at_least(0, 10, 0)
        return JavaError(CORRUPT_RECORD if is_new else "kafka.message.InvalidMessageException", text)


class FileBatch:
    """A batch of any format, seen from its header. What its size says and what its header says may differ."""

    __slots__ = ("_attributes", "_header", "is_legacy", "log", "magic", "offset", "part", "position", "size")

    def __init__(self, log: LogFile, position: int, size: int, head: memoryview, part: LogSlice) -> None:
        self.log = log
        self.part = part
        self.position = position
        self.size = size
        (self.offset,) = struct.unpack_from(">q", head)
        (self.magic,) = struct.unpack_from("b", head, _LEGACY_MAGIC_POSITION)
        self.is_legacy: bool = self.magic < 2 or log.release.log_lines == "messages"
        self._header: BatchHeader | None = None
        self._attributes: int | None = None

    @property
    def data(self) -> memoryview:
        """All bytes of the batch."""
        if self.size > MAX_INT32:
            raise illegal_argument(f"capacity < 0: ({wrap_int32(self.size)} < 0)")
        return self.log.bytes_at(self.position, self.size)

    @property
    def header(self) -> BatchHeader:
        """The header of version 2, whatever the size of the batch."""
        if self._header is None:
            data = self.log.bytes_at(self.position, max(BATCH_HEADER_SIZE, self.size))
            if len(data) < BATCH_HEADER_SIZE:
                raise self._cannot_load(len(data))
            self._header = BatchHeader.unpack(data)
        return self._header

    def _cannot_load(self, available: int) -> JavaError:
        end_of_file = JavaError(
            "java.io.EOFException",
            "Failed to read `record batch header` from file channel `sun.nio.ch.FileChannelImpl`. Expected to read "
            f"{BATCH_HEADER_SIZE} bytes, but reached end of file after reading {available} bytes. Started read from "
            f"position {self.position}.",
        )
        if not self.log.release.names_loading_file:
            return JavaError(KAFKA_EXCEPTION, str(end_of_file), end_of_file)
        return JavaError(
            KAFKA_EXCEPTION,
            f"Failed to load record batch at position {self.position} from {self.part.describe()}",
            end_of_file,
        )

    # -- both formats --------------------------------------------------------------------------------------------

    @property
    def attributes(self) -> int:
        if self._attributes is None:
            self._attributes = self._legacy_header()[4] if self.is_legacy else self.header.attributes
        return self._attributes

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes & 0x07, self.log.release)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & 0x08 else TimestampType.CREATE_TIME

    @property
    def last_offset(self) -> int:
        if self.is_legacy:
            return int(self.offset)
        return wrap_int64(self.offset + self.header.last_offset_delta)

    @property
    def max_timestamp_ms(self) -> int:
        if not self.is_legacy:
            return self.header.max_timestamp_ms
        return NO_TIMESTAMP if self.magic == 0 else self._legacy_header()[5]

    @property
    def crc(self) -> int:
        return self._legacy_header()[2] if self.is_legacy else self.header.crc

    @property
    def is_valid(self) -> bool:
        if self.is_legacy:
            return self.crc == crc32_of(self.data[_LEGACY_MAGIC_POSITION:])
        return self.size >= BATCH_HEADER_SIZE and self.crc == crc32c_of(self.data[ATTRIBUTES_POSITION:])

    @property
    def is_control(self) -> bool:
        return not self.is_legacy and bool(self.attributes & 0x20)

    def ensure_known_magic(self) -> None:
        """The size of an old header can be told for magic 0 and 1 only."""
        if self.magic < 0:
            raise illegal_argument(f"Invalid magic used in LegacyRecord: {self.magic}")

    def _legacy_header(self) -> tuple[int, int, int, int, int, int]:
        data = bytes(self.log.bytes_at(self.position, max(_LEGACY_HEADER.size, self.size))[: _LEGACY_HEADER.size])
        fields: tuple[int, int, int, int, int, int] = _LEGACY_HEADER.unpack(data.ljust(_LEGACY_HEADER.size, b"\0"))
        return fields

    # -- version 2 -----------------------------------------------------------------------------------------------

    @property
    def bits(self) -> BatchAttributes:
        return BatchAttributes.unpack(self.attributes)

    @property
    def last_sequence(self) -> int:
        header = self.header
        if header.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return _increment(header.base_sequence, header.last_offset_delta)


def _increment(sequence: int, by: int) -> int:
    """Java's sum of any two numbers of 32 bits, which `tidelog.records` knows for sequences only."""
    if sequence > wrap_int32(MAX_INT32 - by):
        return wrap_int32(by - wrap_int32(MAX_INT32 - sequence) - 1)
    return wrap_int32(sequence + by)
