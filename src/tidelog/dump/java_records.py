"""The records of a batch, for the tool: sound ones by `tidelog.records`, broken ones as far as Kafka gets.

Kafka reads the records of a plain batch one by one, so what stands before a broken one is printed. A compressed batch
is read as a whole first, and nothing of it is printed if anything is wrong.

Kafka: DefaultRecordBatch, DefaultRecord, AbstractLegacyRecordBatch.
"""

from collections.abc import Iterator

from tidelog.dump.java_bytes import JavaBytes, Underflow, varint_of
from tidelog.dump.java_errors import REFERENCE_SIZE, JavaError, ensure_heap, illegal_argument, null_pointer
from tidelog.dump.java_messages import carriers, message_codec, read_old_records
from tidelog.dump.java_streams import JavaStream, open_stream
from tidelog.dump.log_file import KAFKA_EXCEPTION, FileBatch, codec_of
from tidelog.dump.releases import Release
from tidelog.errors import CorruptionError, UnsupportedError
from tidelog.records.batch import BATCH_HEADER_SIZE, RecordBatch
from tidelog.records.compression import Codec
from tidelog.records.java import decode_utf8, increment_sequence, wrap_int64
from tidelog.records.record import NO_SEQUENCE, NO_TIMESTAMP, Header, Record, RecordBases, TimestampType

__all__ = ["each_record", "first_offset", "latest_timestamp", "read_records"]


def latest_timestamp(batch: FileBatch, release: Release) -> int:
    """The largest timestamp of the records, or -1; of messages nothing else is looked at."""
    if batch.is_legacy:
        timestamps = [carrier.timestamp_under(wrapper) for _, carrier, wrapper in carriers(batch, release)]
    else:
        timestamps = [record.timestamp_ms for record in read_records(batch, release)]
    return max([NO_TIMESTAMP, *timestamps])


def first_offset(batch: FileBatch, release: Release) -> int | None:
    """The offset of the first record, if there is one; of a single message nothing else is looked at."""
    if batch.is_legacy and message_codec(batch, release) is Codec.NONE:
        return int(batch.offset)
    return next((record.offset for record in each_record(batch, release)), None)


def each_record(batch: FileBatch, release: Release) -> Iterator[Record]:
    """The records of a batch of any format."""
    if batch.is_legacy:
        return (old.record for old in read_old_records(batch, release))
    return read_records(batch, release)


def read_records(batch: FileBatch, release: Release) -> Iterator[Record]:
    """The records of a batch of version 2."""
    if batch.size >= BATCH_HEADER_SIZE:
        if batch.header.records_count == 0:
            return iter(())
        codec_of(batch.attributes & 0x07, release)
        try:
            return iter(list(RecordBatch(batch.data).records()))
        except (CorruptionError, UnsupportedError):
            pass
    return _Reader(batch, release).records()


class _Reader:
    """Reads the records of one batch of version 2 that is broken somewhere."""

    def __init__(self, batch: FileBatch, release: Release) -> None:
        if batch.size < BATCH_HEADER_SIZE:
            raise JavaError("java.lang.IndexOutOfBoundsException")
        self._batch = batch
        self._release = release
        self._unrolled = release.streams == "input"
        header = batch.header
        self._bases = RecordBases(
            header.base_offset,
            header.base_timestamp_ms,
            header.base_sequence,
            header.max_timestamp_ms if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None,
        )

    def records(self) -> Iterator[Record]:
        batch = self._batch
        count = batch.header.records_count
        if count == 0:
            return iter(())
        if batch.codec is not Codec.NONE:
            body = batch.data[BATCH_HEADER_SIZE:]
            stream = open_stream(batch.codec, body, batch.magic, self._release, start=BATCH_HEADER_SIZE)
            self._ensure_count(count)
            ensure_heap(count, REFERENCE_SIZE)
            return iter(list(self._from_stream(stream, count)))
        self._ensure_count(count)
        return self._from_buffer(JavaBytes(batch.data, BATCH_HEADER_SIZE), count)

    def _ensure_count(self, count: int) -> None:
        if count < 0:
            raise self._invalid(f"Found invalid record count {count} in magic v{self._batch.magic} batch")

    def _invalid(self, message: str, cause: JavaError | None = None) -> JavaError:
        return JavaError(self._release.invalid_record, message, cause)

    def _from_buffer(self, buffer: JavaBytes, count: int) -> Iterator[Record]:
        for index in range(count):
            try:
                size = buffer.varint(unrolled=self._unrolled)
                if buffer.remaining < size and self._release.short_record == "error":
                    raise self._short_record(size, buffer.remaining)
                record = None if buffer.remaining < size else self._read_body(buffer, size)
            except Underflow:
                raise self._invalid("Incorrect declared batch size, premature EOF reached") from None
            if index == count - 1 and buffer.remaining:
                raise self._invalid("Incorrect declared batch size, records still remaining in file")
            if record is None:
                raise null_pointer("org.apache.kafka.common.record.Record.offset()", '"record"')
            yield record

    def _short_record(self, size: int, remaining: int) -> JavaError:
        return self._invalid(
            f"Invalid record size: expected {size} bytes in record payload, but instead the buffer has only "
            f"{remaining} remaining bytes."
        )

    def _read_body(self, buffer: JavaBytes, size: int) -> Record:
        try:
            return self._read_fields(buffer, size)
        except JavaError as error:
            if isinstance(error, Underflow) or error.class_name == "java.lang.IllegalArgumentException":
                raise self._invalid("Found invalid record structure", error) from None
            raise

    def _read_fields(self, buffer: JavaBytes, size: int) -> Record:
        start = buffer.position
        unrolled = self._unrolled
        bases = self._bases
        buffer.byte()
        timestamp_delta = buffer.varlong()
        offset_delta = buffer.varint(unrolled=unrolled)
        key = buffer.field(buffer.varint(unrolled=unrolled))
        value = buffer.field(buffer.varint(unrolled=unrolled))
        headers = self._read_headers(buffer)
        if buffer.position - start != size:
            raise self._invalid(
                f"Invalid record size: expected to read {size} bytes in record payload, but instead read "
                f"{buffer.position - start}"
            )
        timestamp_ms = bases.log_append_time_ms
        return Record(
            offset=wrap_int64(bases.base_offset + offset_delta),
            timestamp_ms=wrap_int64(bases.base_timestamp_ms + timestamp_delta)
            if timestamp_ms is None
            else timestamp_ms,
            key=key,
            value=value,
            headers=headers,
            sequence=increment_sequence(bases.base_sequence, offset_delta) if bases.base_sequence >= 0 else NO_SEQUENCE,
        )

    def _read_headers(self, buffer: JavaBytes) -> tuple[Header, ...]:
        count = buffer.varint(unrolled=self._unrolled)
        if count < 0:
            raise self._invalid(f"Found invalid number of record headers {count}")
        if count > buffer.remaining and _header_count_is_bounded(self._release):
            raise self._invalid(
                f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer"
            )
        ensure_heap(count, REFERENCE_SIZE)
        headers = []
        for _ in range(count):
            key_size = buffer.varint(unrolled=self._unrolled)
            if key_size < 0:
                raise self._invalid(f"Invalid negative header key size {key_size}")
            if key_size > buffer.remaining and not self._release.is_at_least(2, 7):
                raise JavaError(
                    "java.lang.StringIndexOutOfBoundsException",
                    f"offset {buffer.position}, count {key_size}, length {len(buffer.data)}",
                )
            key = buffer.field(key_size)
            assert key is not None
            value = buffer.field(buffer.varint(unrolled=self._unrolled))
            headers.append(Header(decode_utf8(key), value))
        return tuple(headers)

    # -- compressed ----------------------------------------------------------------------------------------------

    def _from_stream(self, stream: JavaStream, count: int) -> Iterator[Record]:
        for _ in range(count):
            yield self._next_of_stream(stream)
        try:
            is_done = stream.read(1) == b""
        except JavaError as error:
            if not error.is_io:
                raise
            raise JavaError(KAFKA_EXCEPTION, "Error checking for remaining bytes after reading batch", error) from None
        if not is_done:
            raise self._invalid("Incorrect declared batch size, records still remaining in file")

    def _next_of_stream(self, stream: JavaStream) -> Record:
        try:
            return self._read_stream(stream)
        except _EndOfStream:
            raise self._invalid("Incorrect declared batch size, premature EOF reached") from None
        except JavaError as error:
            if error.class_name == "java.io.EOFException" and not self._unrolled:
                raise self._invalid("Incorrect declared batch size, premature EOF reached") from None
            if error.is_io:
                raise JavaError(KAFKA_EXCEPTION, "Failed to decompress record stream", error) from None
            if error.class_name == "java.lang.IllegalArgumentException" and self._unrolled:
                raise self._invalid("Incorrect declared batch size, premature EOF reached", error) from None
            raise

    def _read_stream(self, stream: JavaStream) -> Record:
        size = varint_of(lambda: self._byte_of(stream), unrolled=self._unrolled)
        if size < 0:
            raise illegal_argument(f"capacity < 0: ({size} < 0)")
        ensure_heap(size)
        body = stream.read(size)
        if len(body) != size:
            if not self._unrolled:
                raise _EndOfStream
            raise self._invalid(
                f"Invalid record size: expected {size} bytes in record payload, but the record payload reached EOF."
            )
        return self._read_body(JavaBytes(body), size)

    def _byte_of(self, stream: JavaStream) -> int:
        byte = stream.read(1)
        if byte:
            return byte[0]
        if self._unrolled:
            return 0xFF  # the -1 of a stream that has ended, taken for a byte
        raise _EndOfStream


class _EndOfStream(Exception):
    """An EOFException on its way to the words it is replaced by."""


def _header_count_is_bounded(release: Release) -> bool:
    """A fix that came to four lines of releases at once."""
    version = release.version
    return version >= (3, 2, 3) or any(
        since <= version < until for since, until in (((2, 8, 2), (3,)), ((3, 0, 2), (3, 1)), ((3, 1, 2), (3, 2)))
    )
