"""Every error tidelog raises, split by whose fault it is.

    TidelogError
      · CorruptionError            what the bytes say cannot be
          · CorruptRecordError     the size or the checksum of a batch is wrong
          · InvalidRecordError     the checksum holds, but the structure inside does not
              · DecompressionError     a compressed stream is broken
                  · DecompressedSizeError  it would grow beyond the cap the caller set
      · InvalidRequestError        what the caller asked for cannot be done
      · UnsupportedError           what the bytes or the caller ask for is outside this implementation
          · UnsupportedCompressionError   a codec id or a pair of codec and format that does not exist
      · StorageError               what the disk refused

Each error that can reach a Kafka client carries `error_code`, the number of Kafka's protocol. Bytes from outside
(files, frames, compressed streams) can raise nothing that is not in this tree.
"""

__all__ = [
    "CorruptRecordError",
    "CorruptionError",
    "DecompressedSizeError",
    "DecompressionError",
    "InvalidRecordError",
    "InvalidRequestError",
    "StorageError",
    "TidelogError",
    "UnsupportedCompressionError",
    "UnsupportedError",
]


class TidelogError(Exception):
    """The root of the tree. `error_code` is Kafka's protocol number; -1 is UNKNOWN_SERVER_ERROR."""

    error_code: int = -1


class CorruptionError(TidelogError):
    """The bytes contradict the format. The message says where, what was found and what was wanted."""

    error_code = 2  # CORRUPT_MESSAGE


class CorruptRecordError(CorruptionError):
    """The size field or the checksum of a batch is wrong: nothing inside it can be believed."""


class InvalidRecordError(CorruptionError):
    """The batch is what was once written (its checksum holds), but what was written is not valid."""

    error_code = 87  # INVALID_RECORD


class DecompressionError(InvalidRecordError):
    """A compressed stream does not follow the format of its codec."""


class DecompressedSizeError(DecompressionError):
    """A compressed stream would grow beyond the cap, as a small hostile batch can."""


class InvalidRequestError(TidelogError, ValueError):
    """The caller asked for something that cannot be done."""

    error_code = 42  # INVALID_REQUEST


class UnsupportedError(TidelogError):
    """Neither wrong nor broken, but outside what this implementation or this format version can do."""

    error_code = 35  # UNSUPPORTED_VERSION


class UnsupportedCompressionError(UnsupportedError):
    """Codec ids 5 to 7, or a codec that the message format does not allow (zstd before version 2)."""

    error_code = 76  # UNSUPPORTED_COMPRESSION_TYPE


class StorageError(TidelogError):
    """The disk refused: an I/O error, a full file system, a directory that is gone."""

    error_code = 56  # KAFKA_STORAGE_ERROR
