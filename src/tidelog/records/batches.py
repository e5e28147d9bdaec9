"""From bytes to batches: where one ends and the next begins, whatever their format.

Every batch starts with an i64 offset, an i32 length of what follows, and has its magic in byte 16. The rules of the
end are Kafka's: fewer than 18 bytes are no batch, a batch that reaches beyond the end is incomplete, and both simply
end the iteration, since a crash leaves such tails. A length below 14 is corruption.

In a file, magic below 2 is read as legacy and everything else as version 2. In memory, where bytes come from a
client, a magic outside 0, 1, 2 is corruption, and so is a batch above the caller's limit.

Kafka: FileLogInputStream, ByteBufferLogInputStream.
"""

import struct
from collections.abc import Iterator

from tidelog.errors import CorruptRecordError, InvalidRequestError
from tidelog.records.batch import MAGIC, PREFIX_SIZE, RecordBatch
from tidelog.records.legacy import MIN_MESSAGE_SIZE, LegacyBatch
from tidelog.records.varint import Buffer

__all__ = ["Batch", "batch_of", "first_batch_size", "read_batches", "read_memory_batches"]

Batch = RecordBatch | LegacyBatch

MAGIC_POSITION = 16
HEADER_SIZE_UP_TO_MAGIC = MAGIC_POSITION + 1
_PREFIX_AND_MAGIC = struct.Struct(
    ">q"  # offset
    "i"  #  length  bytes that follow this field
    "i"  #  leader epoch (version 2) or crc (before)
    "b"  #  magic
)
assert _PREFIX_AND_MAGIC.size == HEADER_SIZE_UP_TO_MAGIC


def read_batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[Batch]:
    """The complete batches of a file's bytes between two positions, of which `start` must be that of a batch."""
    view = memoryview(buffer)
    position, end = start, len(view) if end is None else min(end, len(view))
    if start < 0:
        raise InvalidRequestError(f"position {start}: a file begins at 0")
    while end - position > HEADER_SIZE_UP_TO_MAGIC:
        size, _ = _size_and_magic(view, position)
        if size > end - position:
            return
        try:
            batch = batch_of(view[position : position + size])
        except CorruptRecordError as error:
            raise CorruptRecordError(f"position {position}: {error}") from None
        yield batch
        position += size


def batch_of(data: Buffer) -> Batch:
    """The batch that `data` is, from its first byte to its last, by the rule for files."""
    view = memoryview(data)
    if len(view) < HEADER_SIZE_UP_TO_MAGIC:
        raise CorruptRecordError(f"{len(view)} bytes are no batch")
    _, magic = _size_and_magic(view, 0)
    return LegacyBatch(view) if magic < MAGIC else RecordBatch(view)


def read_memory_batches(buffer: Buffer, max_batch_size: int | None = None) -> Iterator[Batch]:
    """The complete batches of bytes that came from a client, by the stricter rules for those."""
    view = memoryview(buffer)
    while (size := first_batch_size(view, max_batch_size)) is not None and size <= len(view):
        yield batch_of(view[:size])
        view = view[size:]


def first_batch_size(buffer: Buffer, max_batch_size: int | None = None) -> int | None:
    """The size of the batch that `buffer` begins with, or None while its header is not there up to the magic.

    The batch itself may still be incomplete.
    """
    if len(buffer) < HEADER_SIZE_UP_TO_MAGIC:
        return None
    size, magic = _size_and_magic(buffer, 0)
    if not 0 <= magic <= MAGIC:
        raise CorruptRecordError(f"a batch of magic {magic}, known are 0, 1 and 2")
    if max_batch_size is not None and size > max_batch_size:
        raise CorruptRecordError(f"a batch of {size} bytes, the limit is {max_batch_size}")
    return size


def _size_and_magic(buffer: Buffer, position: int) -> tuple[int, int]:
    _, length, _, magic = _PREFIX_AND_MAGIC.unpack_from(buffer, position)
    if length < MIN_MESSAGE_SIZE:
        raise CorruptRecordError(f"position {position}: a batch length of {length}, the smallest is {MIN_MESSAGE_SIZE}")
    return PREFIX_SIZE + length, magic
