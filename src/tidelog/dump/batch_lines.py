"""The lines of batches and records, in the words of each release.

A line is made of two parts where the tool prints it in two calls: if reading fails between them, the first part stays
on the screen.
"""

from typing import NamedTuple

from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_text import java_bool
from tidelog.dump.log_file import FileBatch
from tidelog.dump.releases import Release
from tidelog.records.compression import Codec
from tidelog.records.record import Record

__all__ = ["OldRecord", "RecordLines", "batch_line_end", "batch_line_start", "codec_name"]

# The names of Scala's case objects, which the tool printed before 0.10.2.
_CODEC_CLASSES = {
    Codec.NONE: "NoCompressionCodec",
    Codec.GZIP: "GZIPCompressionCodec",
    Codec.SNAPPY: "SnappyCompressionCodec",
    Codec.LZ4: "LZ4CompressionCodec",
}


class OldRecord(NamedTuple):
    """A record of magic 0 or 1, with the checksum of the message that carries it.

    Of a broken message `size_error` is what comes when the sizes of key and value are asked for, and `data_error` when
    key and value themselves are.
    """

    record: Record
    is_valid: bool
    crc: int
    magic: int
    key_size: int
    value_size: int
    codec_id: int = 0
    size_error: JavaError | None = None
    data_error: JavaError | None = None


def codec_name(codec: Codec, release: Release) -> str:
    """How the release spells a codec."""
    if release.codec_names == "classes":
        return _CODEC_CLASSES[codec]
    return codec.label if release.codec_names == "lower" else codec.name


def batch_line_start(batch: FileBatch, release: Release) -> str:
    """What a batch says about its producer and its offsets."""
    if batch.is_legacy:
        return f"offset: {batch.last_offset}"
    header = batch.header
    bits = batch.bits
    count = f" count: {header.records_count}" if release.batch_count else ""
    control = f" isControl: {java_bool(bits.is_control)}" if release.batch_is_control else ""
    horizon = ""
    if release.batch_delete_horizon:
        known = f"[{header.base_timestamp_ms}]" if bits.has_delete_horizon else ".empty"
        horizon = f" deleteHorizonMs: OptionalLong{known}"
    return (
        f"baseOffset: {batch.offset} lastOffset: {batch.last_offset}{count} baseSequence: {header.base_sequence} "
        f"lastSequence: {batch.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {java_bool(bits.is_transactional)}{control}{horizon}"
    )


def batch_line_end(batch: FileBatch, position: int, release: Release) -> str:
    """Where the batch lies, how large it is and whether its checksum holds."""
    batch.ensure_known_magic()
    place = f" position: {position} {batch.timestamp_type.label}: {batch.max_timestamp_ms}"
    valid = f" isvalid: {java_bool(batch.is_valid)}"
    codec = codec_name(batch.codec, release)
    rest = f" size: {batch.size} magic: {batch.magic} compresscodec: {codec} crc: {batch.crc}"
    return f"{place}{rest}{valid}\n" if release.batch_valid_last else f"{place}{valid}{rest}\n"


class RecordLines:
    """The record lines of one batch, up to where control records, keys and payloads begin."""

    def __init__(self, batch: FileBatch, position: int, release: Release) -> None:
        self._batch = batch
        self._position = position
        self._release = release
        self._label = batch.timestamp_type.label
        self._of_batch = ""
        self._tail = ""
        if release.record_line == "wide":
            self._of_batch = f" magic: {batch.magic} compresscodec: {codec_name(batch.codec, release)}"
            if not batch.is_legacy:
                epoch = f" producerEpoch: {batch.header.producer_epoch}" if release.record_producer_epoch else ""
                self._of_batch += f" producerId: {batch.header.producer_id}{epoch}"
                self._tail = f" isTransactional: {java_bool(batch.bits.is_transactional)}"
        elif release.record_line == "verbose":
            self._of_batch = self._verbose()

    def _verbose(self) -> str:
        batch = self._batch
        if batch.is_legacy:
            sequences, epochs = "baseSequence: -1 lastSequence: -1", "producerEpoch: -1 partitionLeaderEpoch: -1"
        else:
            header = batch.header
            sequences = f"baseSequence: {header.base_sequence} lastSequence: {batch.last_sequence}"
            epochs = f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch}"
        return (
            f"lastOffset: {batch.last_offset} {sequences} {epochs} batchSize: {batch.size} magic: {batch.magic} "
            f"compressType: {codec_name(batch.codec, self._release)} position: {self._position}"
        )

    def start(self, record: Record) -> str:
        """The line of a record of version 2."""
        key_size = -1 if record.key is None else len(record.key)
        value_size = -1 if record.value is None else len(record.value)
        names = ",".join([header.key for header in record.headers]) if record.headers else ""
        style = self._release.record_line
        if style == "short":
            return (
                f"| offset: {record.offset} {self._label}: {record.timestamp_ms} keySize: {key_size} "
                f"valueSize: {value_size} sequence: {record.sequence} headerKeys: [{names}]"
            )
        if style == "wide":
            return (
                f"offset: {record.offset} position: {self._position} {self._label}: {record.timestamp_ms} "
                f"isvalid: true keysize: {key_size} valuesize: {value_size}{self._of_batch} "
                f"sequence: {record.sequence}{self._tail} headerKeys: [{names}]"
            )
        if style == "indented":
            return (
                f"| offset: {record.offset} {self._label}: {record.timestamp_ms} keysize: {key_size} "
                f"valuesize: {value_size} sequence: {record.sequence} headerKeys: [{names}]"
            )
        return (
            f"| offset: {record.offset} isValid: true crc: null keySize: {key_size} valueSize: {value_size} "
            f"{self._label}: {record.timestamp_ms} baseOffset: {self._batch.offset} {self._of_batch} "
            f"sequence: {record.sequence} headerKeys: [{names}]"
        )

    def old_start(self, old: OldRecord, first_offset: int) -> str:
        """The line of a record of magic 0 or 1; `first_offset` is that of its batch."""
        if old.size_error is not None:
            raise old.size_error
        record, key_size, value_size = old.record, old.key_size, old.value_size
        valid = java_bool(old.is_valid)
        style = self._release.record_line
        if style == "short":
            brace = "}" if self._release.stray_brace else ""
            return (
                f"| offset: {record.offset} {self._label}: {record.timestamp_ms} keySize: {key_size} "
                f"valueSize: {value_size} isValid: {valid} crc: {old.crc}{brace}"
            )
        if style == "wide":
            return (
                f"offset: {record.offset} position: {self._position} {self._label}: {record.timestamp_ms} "
                f"isvalid: {valid} keysize: {key_size} valuesize: {value_size}{self._of_batch} crc: {old.crc}"
            )
        if style == "indented":
            return (
                f"| offset: {record.offset} {self._label}: {record.timestamp_ms} keysize: {key_size} "
                f"valuesize: {value_size} crc: {old.crc} isvalid: {valid}"
            )
        return (
            f"| offset: {record.offset} isValid: {valid} crc: {old.crc} keySize: {key_size} "
            f"valueSize: {value_size} {self._label}: {record.timestamp_ms} baseOffset: {first_offset} "
            f"{self._of_batch} crc: {old.crc} isvalid: {valid}"
        )
