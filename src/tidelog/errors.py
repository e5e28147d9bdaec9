"""Every error tidelog raises, split by whose fault it is.

    TidelogError
      · CorruptionError            what the bytes say cannot be
          · CorruptRecordError     the size or the checksum of a batch is wrong
          · InvalidRecordError     the checksum holds, but the structure inside does not, or breaks a rule of the topic
              · DecompressionError     a compressed stream is broken
                  · DecompressedSizeError  it would grow beyond the cap the caller set
              · InvalidTimestampError  a record is too old or too far ahead for its topic
          · CorruptIndexError      an index or a snapshot beside the log contradicts itself
          · CheckpointError        a checkpoint or metadata file is not of its format
          · ProtocolError          a message is not of its schema
      · InvalidRequestError        what the caller asked for cannot be done
          · InvalidConfigError     a config name, value or pair of values that Kafka refuses
          · InvalidTopicError      a name that no topic or partition directory can have
          · OffsetOutOfRangeError  an offset below the log start or beyond the log end
          · PolicyViolationError   what the cleanup policy of the topic does not allow
      · AppendError                a sound batch that does not fit this log
          · MessageTooLargeError       above max.message.bytes
          · RecordListTooLargeError    above segment.bytes
          · OffsetsOutOfOrderError     the offsets of a buffer do not increase
          · UnexpectedAppendOffsetError    below the log end
          · OffsetOverflowError        more than 2^31 - 1 above the base of its segment, or above 2^63 - 2
          · OutOfOrderSequenceError    a gap or a repetition in a producer's sequence
          · InvalidProducerEpochError  from a producer that has been fenced
          · InvalidTxnStateError       a transaction that is not open, or not this producer's
          · CoordinatorFencedError     a marker from a transaction coordinator that has been replaced
          · InconsistentTopicIdError   the directory belongs to another topic
      · CleaningAbortedError       a compaction that was given up, to be tried again
      · UnsupportedError           what the bytes or the caller ask for is outside this implementation
          · UnsupportedCompressionError   a codec id or a pair of codec and format that does not exist
      · StorageError               what the disk refused
          · LockedError            another process, or another part of this one, has the directory open
          · LogClosedError         the log was closed, or its directory went offline
          · SegmentGoneError       a segment was deleted or replaced while it was looked at; look again
          · TooManyFilesError      the process, or the system, may not open another file now

Each error that can reach a Kafka client carries `error_code`, the number of Kafka's protocol. Bytes from outside
(files, frames, compressed streams) can raise nothing that is not in this tree.
"""

from typing import NamedTuple

__all__ = [
    "AppendError",
    "CheckpointError",
    "CleaningAbortedError",
    "CoordinatorFencedError",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptionError",
    "DecompressedSizeError",
    "DecompressionError",
    "InconsistentTopicIdError",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "LockedError",
    "LogClosedError",
    "MessageTooLargeError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "PolicyViolationError",
    "ProtocolError",
    "RecordError",
    "RecordListTooLargeError",
    "SegmentGoneError",
    "StorageError",
    "TidelogError",
    "TooManyFilesError",
    "UnexpectedAppendOffsetError",
    "UnsupportedCompressionError",
    "UnsupportedError",
]


class RecordError(NamedTuple):
    """What is wrong with one record of a refused batch, as a produce response lists it."""

    batch_index: int  # of the record, inside its batch
    message: str


class TidelogError(Exception):
    """The root of the tree. `error_code` is Kafka's protocol number; -1 is UNKNOWN_SERVER_ERROR."""

    error_code: int = -1


class CorruptionError(TidelogError):
    """The bytes contradict the format. The message says where, what was found and what was wanted."""

    error_code = 2  # CORRUPT_MESSAGE


class CorruptRecordError(CorruptionError):
    """The size field or the checksum of a batch is wrong: nothing inside it can be believed."""


class InvalidRecordError(CorruptionError):
    """The batch is what was once written (its checksum holds), but what was written is not valid.

    Where single records are to blame, `record_errors` names them.
    """

    error_code = 87  # INVALID_RECORD

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class DecompressionError(InvalidRecordError):
    """A compressed stream does not follow the format of its codec."""


class DecompressedSizeError(DecompressionError):
    """A compressed stream would grow beyond the cap, as a small hostile batch can."""


class InvalidTimestampError(InvalidRecordError):
    """A record is older than message.timestamp.before.max.ms allows, or further ahead than .after.max.ms."""

    error_code = 32  # INVALID_TIMESTAMP


class CorruptIndexError(CorruptionError):
    """An index, a transaction index or a producer snapshot contradicts itself. All of them can be rebuilt."""


class CheckpointError(CorruptionError):
    """A checkpoint, partition.metadata or another small text file is not of its format."""

    error_code = 56  # KAFKA_STORAGE_ERROR


class ProtocolError(CorruptionError):
    """The bytes of a message (a request, an answer, a record of an internal topic) do not follow its schema."""

    error_code = 42  # INVALID_REQUEST


class InvalidRequestError(TidelogError, ValueError):
    """The caller asked for something that cannot be done."""

    error_code = 42  # INVALID_REQUEST


class InvalidConfigError(InvalidRequestError):
    """A config name, value, or pair of values that Kafka refuses."""

    error_code = 40  # INVALID_CONFIG


class InvalidTopicError(InvalidRequestError):
    """A name that no topic, or no partition directory, can have."""

    error_code = 17  # INVALID_TOPIC_EXCEPTION


class OffsetOutOfRangeError(InvalidRequestError):
    """An offset below the log start, beyond the log end, or (where records are deleted) beyond the high watermark."""

    error_code = 1  # OFFSET_OUT_OF_RANGE


class PolicyViolationError(InvalidRequestError):
    """Records of a topic without `delete` in its cleanup policy cannot be deleted by offset."""

    error_code = 44  # POLICY_VIOLATION


class AppendError(TidelogError):
    """A batch that is sound in itself does not fit this log, now. Nothing was written."""


class MessageTooLargeError(AppendError):
    """A batch above the topic's max.message.bytes."""

    error_code = 10  # MESSAGE_TOO_LARGE


class RecordListTooLargeError(AppendError):
    """A buffer that would not fit an empty segment."""

    error_code = 18  # RECORD_LIST_TOO_LARGE


class OffsetsOutOfOrderError(AppendError):
    """A replicated buffer whose offsets do not increase from batch to batch."""


class UnexpectedAppendOffsetError(AppendError):
    """A replicated buffer that begins below the log end. `first_offset` and `last_offset` are the buffer's."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetOverflowError(AppendError):
    """An offset that does not fit the 31 bits above the base offset of its segment, or the 63 bits of any log."""


class OutOfOrderSequenceError(AppendError):
    """A gap, or a repetition too old to be recognised, in the sequence of an idempotent producer."""

    error_code = 45  # OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(AppendError):
    """A batch or a marker of an epoch below the one last seen: its producer has been fenced."""

    error_code = 47  # INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(AppendError):
    """A transactional batch without a verified or open transaction, or a plain one inside an open transaction."""

    error_code = 48  # INVALID_TXN_STATE


class CoordinatorFencedError(AppendError):
    """A transaction marker from a coordinator that another one has replaced."""

    error_code = 52  # TRANSACTION_COORDINATOR_FENCED


class InconsistentTopicIdError(AppendError):
    """The partition directory belongs to a topic of the same name and another id."""

    error_code = 103  # INCONSISTENT_TOPIC_ID


class CleaningAbortedError(TidelogError):
    """The compaction of a log was given up because the log changed under it. Nothing is lost; it can be tried again."""


class UnsupportedError(TidelogError):
    """Neither wrong nor broken, but outside what this implementation or this format version can do."""

    error_code = 35  # UNSUPPORTED_VERSION


class UnsupportedCompressionError(UnsupportedError):
    """Codec ids 5 to 7, or a codec that the message format does not allow (zstd before version 2)."""

    error_code = 76  # UNSUPPORTED_COMPRESSION_TYPE


class StorageError(TidelogError):
    """The disk refused: an I/O error, a full file system, a directory that is gone."""

    error_code = 56  # KAFKA_STORAGE_ERROR


class LockedError(StorageError):
    """Another process (a JVM may be one), or another part of this one, has the directory open for writing."""


class LogClosedError(StorageError):
    """The log was closed, or a disk error took its directory offline."""


class TooManyFilesError(StorageError):
    """No more files can be opened now. The disk is well, and what was asked can be asked again."""


class SegmentGoneError(StorageError):
    """A segment was deleted, renamed or replaced since it was listed. A fresh look tells what is there now."""
