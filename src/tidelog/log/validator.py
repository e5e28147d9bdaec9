"""Batches of producers become batches of the log: checked, given offsets, and in the topic's codec.

Nothing is believed. The checksum must hold, the header must agree with the records, every record must obey the rules
of the topic. Then the batch is stamped: its base offset is the end of the log, its leader epoch the current one, and
its time the broker's clock where the topic says LogAppendTime, else the largest of its records.

    same codec as the topic's, version 2    stamped in place; the checksum is made anew only if times change
    a control batch that is not compressed  in place; the broker never compresses one
    another codec                           decompressed, compressed, under a new header
    message sets of magic 0 and 1           their records become one batch of version 2

A client's buffer holds one batch of version 2, or one wrapper, or plain messages of one magic.

Kafka: org.apache.kafka.storage.internals.log.LogValidator.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import InvalidRecordError, InvalidRequestError, OffsetsOutOfOrderError, RecordError
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.batch_rebuild import Rebuild, are_as_written, plain_copy
from tidelog.log.config import LogConfig
from tidelog.log.fact_finder import FACT_FINDER, FactFinder
from tidelog.log.origin import AppendOrigin
from tidelog.log.record_rules import RecordFault, RecordRules, refuse_faults
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_SIZE,
    CRC_POSITION,
    MAGIC,
    PREFIX_SIZE,
    RecordBatch,
)
from tidelog.records.batches import batch_of
from tidelog.records.builder import check_producer
from tidelog.records.checksum import crc32c_of
from tidelog.records.compression import Codec
from tidelog.records.legacy import LegacyBatch
from tidelog.records.record import NO_TIMESTAMP, Record, TimestampType

__all__ = ["ValidatedBatches", "validate_and_assign"]

_CODEC, _LOG_APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20
_NAMED_BITS = 0x77  # of the attributes, without the timestamp type; the others are not kept where the field is written
_MAX_INT64 = 2**63 - 1
_STAMP = struct.Struct(">qii")  # base offset, length (as it is) and leader epoch: the fields before the checksum
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


class ValidatedBatches(NamedTuple):
    """What is to be written, and what an append must know about it."""

    buffer: memoryview
    batches: list[BatchInfo]
    max_timestamp_ms: int
    offset_of_max_timestamp: int  # the last of the batch that has it, whichever record it is
    log_append_time_ms: int  # -1 where records keep their own times
    size_may_have_changed: bool  # and with it whether the batch still fits max.message.bytes
    next_offset: int


def validate_and_assign(
    buffer: memoryview,
    batches: Sequence[BatchInfo],
    *,
    config: LogConfig,
    origin: AppendOrigin,
    first_offset: int,
    now_ms: int,
    leader_epoch: int,
    finder: FactFinder = FACT_FINDER,
) -> ValidatedBatches:
    """Check the batches of `buffer` and give them offsets from `first_offset` on, in place where that is possible.

    Raises CorruptRecordError for a wrong checksum, InvalidTimestampError and InvalidRecordError (with the records at
    fault) for what the topic does not take. Nothing is changed then.
    """
    if len(batches) != 1 or batches[0].magic < MAGIC:
        return _convert(buffer, batches, config, first_offset, now_ms, leader_epoch)
    info = batches[0]
    position, size, base, last, header_time_ms, _, magic, bits, producer_id, producer_epoch, sequence, count = info
    codec_id, target = bits & _CODEC, config.target_codec
    view = buffer if size == len(buffer) else buffer[position : position + size]
    if target is not None and target != codec_id and (codec_id or not bits & _CONTROL):
        return _recompress(view, info, config, origin, first_offset, now_ms, leader_epoch, finder)

    uses_append_time = config.uses_append_time
    earliest_ms, latest_ms = _allowed_times(config, now_ms)
    max_timestamp_ms, first_outside, first_without_key, is_consecutive = finder.find(
        view, earliest_ms=earliest_ms, latest_ms=latest_ms
    )
    if count <= 0 or count != last - base + 1 or bits & _CONTROL or (producer_id >= 0 and sequence < 0):
        _check_header(info, origin)
    if first_outside >= 0 or bits & _LOG_APPEND_TIME or (first_without_key >= 0 and config.is_compacted):
        _check_records(view, config, now_ms)
    if codec_id and not is_consecutive:
        raise OffsetsOutOfOrderError(f"a compressed batch of {count} records whose offsets do not count up by one")

    last_offset = first_offset + count - 1
    try:
        _STAMP.pack_into(view, 0, first_offset, size - PREFIX_SIZE, leader_epoch)
    except (struct.error, TypeError):
        raise InvalidRequestError(
            f"offset {first_offset} and epoch {leader_epoch} cannot be written into a batch, or it is read-only"
        ) from None
    if uses_append_time:
        max_timestamp_ms = now_ms
    if uses_append_time or bits & _LOG_APPEND_TIME or max_timestamp_ms != header_time_ms:
        bits = (bits & _NAMED_BITS) | (_LOG_APPEND_TIME if uses_append_time else 0)
        _stamp_time(view, bits, max_timestamp_ms)
    stamped = BatchInfo(
        position, size, first_offset, last_offset, max_timestamp_ms, leader_epoch, magic, bits,
        producer_id, producer_epoch, sequence, count,
    )  # fmt: skip
    return ValidatedBatches(
        buffer,
        [stamped],
        max_timestamp_ms,
        last_offset if codec_id or max_timestamp_ms != NO_TIMESTAMP else -1,
        now_ms if uses_append_time else NO_TIMESTAMP,
        False,
        last_offset + 1,
    )


def _stamp_time(view: memoryview, attributes: int, max_timestamp_ms: int) -> None:
    """What `RecordBatch.set_max_timestamp` does, without a RecordBatch: topics with LogAppendTime do it every time."""
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_POSITION, attributes)
    _MAX_TIMESTAMP.pack_into(view, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _CRC.pack_into(view, CRC_POSITION, crc32c_of(view[ATTRIBUTES_POSITION:]))


def _allowed_times(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Times that are surely right. Those outside, below -1 for instance, are looked at again by `RecordRules`."""
    if config.uses_append_time:
        return NO_TIMESTAMP, _MAX_INT64
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    return (
        NO_TIMESTAMP if earliest_ms < NO_TIMESTAMP else earliest_ms,
        _MAX_INT64 if latest_ms > _MAX_INT64 else latest_ms,
    )


def _check_header(info: BatchInfo, origin: AppendOrigin) -> None:
    """Kafka looks at offsets of clients only; offsets that overlap would break a log, whoever wrote them."""
    offsets = info.last_offset - info.base_offset + 1
    if info.records_count <= 0:
        raise InvalidRecordError(f"a batch of {info.records_count} records")
    if offsets != info.records_count:
        raise InvalidRecordError(f"a batch of {info.records_count} records over {offsets} offsets")
    if origin is not AppendOrigin.CLIENT:
        return
    if info.is_control:
        raise InvalidRecordError("a control batch, which no client may write")
    if info.producer_id >= 0 and info.base_sequence < 0:
        raise InvalidRecordError(f"base sequence {info.base_sequence} from producer {info.producer_id}")


def _check_records(view: memoryview, config: LogConfig, now_ms: int) -> None:
    batch = RecordBatch(view)
    is_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    RecordRules(config, now_ms).check(batch, is_append_time=is_append_time)


def _recompress(
    view: memoryview,
    info: BatchInfo,
    config: LogConfig,
    origin: AppendOrigin,
    first_offset: int,
    now_ms: int,
    leader_epoch: int,
    finder: FactFinder,
) -> ValidatedBatches:
    """One batch of version 2 that comes in another codec than the topic's."""
    batch = RecordBatch(view)
    batch.ensure_valid()
    _check_header(info, origin)
    _check_producer(batch)
    codec = batch.codec
    plain = view if codec is Codec.NONE else plain_copy(batch)
    earliest_ms, latest_ms = _allowed_times(config, now_ms)
    max_timestamp_ms, first_outside, first_without_key, is_consecutive = finder.find(
        plain, earliest_ms=earliest_ms, latest_ms=latest_ms, verify=False
    )
    if first_outside >= 0 or info.is_append_time or (first_without_key >= 0 and config.is_compacted):
        _check_records(plain, config, now_ms)
    rebuild = Rebuild.of(config, codec, base_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms)
    records = plain[BATCH_HEADER_SIZE:]
    if is_consecutive and first_outside < 0 and are_as_written(batch, records):
        return _rebuilt(rebuild.recompressed(batch, records, max_timestamp_ms), rebuild)
    return _rebuilt(rebuild.rewritten(batch, RecordBatch(plain)), rebuild)


def _check_producer(batch: RecordBatch) -> None:
    """A header that is written anew cannot contradict itself; one that is stored as it came may."""
    try:
        check_producer(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional, batch.is_control
        )
    except InvalidRequestError as error:
        raise InvalidRecordError(str(error)) from None


def _convert(
    buffer: memoryview,
    batches: Sequence[BatchInfo],
    config: LogConfig,
    first_offset: int,
    now_ms: int,
    leader_epoch: int,
) -> ValidatedBatches:
    """Message sets, which become one batch; and whatever is more than one batch, which is refused."""
    for info in batches:
        batch_of(buffer[info.position : info.position + info.size]).ensure_valid()
    if not batches:
        raise InvalidRecordError("no batch at all")
    magic = batches[0].magic
    source = next((info.codec_id for info in reversed(batches) if info.codec_id), 0)
    if len(batches) > 1 and (magic >= MAGIC or source):
        raise InvalidRecordError(f"{len(batches)} batches, where one of version 2 or one wrapper is allowed")
    for info in batches:
        if info.magic != magic:
            raise InvalidRecordError(f"magic {info.magic} behind magic {magic} in one buffer")
    rules = RecordRules(config, now_ms)
    records: list[Record] = []
    for info in batches:
        entry = LegacyBatch(buffer[info.position : info.position + info.size])
        records += _checked_messages(entry, rules)
    rebuild = Rebuild.of(
        config, Codec.from_id(source), base_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms
    )
    return _rebuilt(rebuild.converted(records), rebuild)


def _checked_messages(entry: LegacyBatch, rules: RecordRules) -> list[Record]:
    """The records of one entry, all of which obey the rules. Their offsets are those they came with."""
    is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    records: list[Record] = []
    faults: list[RecordFault] = []
    for index, message in enumerate(_messages(entry)):
        if message.magic != entry.magic:
            text = f"magic {message.magic} inside a wrapper of magic {entry.magic}"
            faults.append(RecordFault(RecordError(index, text)))
            continue
        if message is not entry:
            message.ensure_valid()  # a message inside a wrapper has a checksum of its own
        record = next(message.records())
        if is_append_time:
            record = record._replace(timestamp_ms=entry.max_timestamp_ms)
        fault = rules.fault_of(index, record, is_append_time=is_append_time)
        if fault is not None:
            faults.append(fault)
        records.append(record)
    refuse_faults(faults)
    return records


def _messages(entry: LegacyBatch) -> Iterator[LegacyBatch]:
    """The entry itself, or the messages inside it."""
    if entry.count is not None:
        yield entry
        return
    inner = entry.inner_messages()
    if not inner:
        raise InvalidRecordError("a wrapper around nothing")
    if entry.magic == 1 and entry.last_offset != 0 and entry.last_offset < inner[-1].last_offset:
        raise InvalidRecordError(
            f"a wrapper at offset {entry.last_offset}, below the last relative offset {inner[-1].last_offset} inside"
        )
    for message in inner:
        if message.count is None:
            raise InvalidRecordError("a wrapper inside a wrapper")
        yield message


def _rebuilt(batch: bytearray, rebuild: Rebuild) -> ValidatedBatches:
    view = memoryview(batch)
    info = batch_info(view)
    return ValidatedBatches(
        view,
        [info],
        info.max_timestamp_ms,
        -1 if info.max_timestamp_ms == NO_TIMESTAMP else info.last_offset,
        rebuild.append_time_ms,
        True,
        info.next_offset,
    )
