"""The first look at bytes that somebody wants to append: which batches they are, and what is wrong on the face of it.

Kafka: UnifiedLog.analyzeAndValidateRecords.
"""

from dataclasses import dataclass

from tidelog.errors import (
    InvalidRecordError,
    MessageTooLargeError,
    OffsetsOutOfOrderError,
)
from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.origin import AppendOrigin
from tidelog.records.batch import MAGIC
from tidelog.records.batches import batch_of, first_batch_size

__all__ = ["AppendInfo", "analyse"]

_NONE = -1


@dataclass(slots=True)
class AppendInfo:
    """What became of an append."""

    first_offset: int  # of the first batch; the original one where the batch had been appended before
    last_offset: int
    max_timestamp_ms: int = _NONE
    log_append_time_ms: int = _NONE  # of a duplicate: the timestamp of the original
    log_start_offset: int = _NONE
    size: int = 0  # bytes written
    is_duplicate: bool = False


def analyse(buffer: memoryview, origin: AppendOrigin, leader_epoch: int, max_batch_size: int) -> list[BatchInfo]:
    """The complete batches at the start of `buffer`; an incomplete one behind them is left out.

    Where offsets are assigned, the validator compares the checksums in the same walk in which it looks at the records.
    Elsewhere nobody looks at the records, so it is done here.
    """
    batches: list[BatchInfo] = []
    position, end = 0, len(buffer)
    assigns_offsets = origin.assigns_offsets
    last_offset = _NONE
    while position < end:
        rest = buffer[position:] if position else buffer
        size = first_batch_size(rest)
        if size is None or size > end - position:
            break
        batch = batch_info(buffer, position)
        if assigns_offsets:
            if origin is AppendOrigin.CLIENT and batch.magic >= MAGIC and batch.base_offset != 0:
                raise InvalidRecordError(f"a client's batch begins with offset {batch.base_offset}, it must be 0")
            if size > max_batch_size:
                raise MessageTooLargeError(f"a batch of {size} bytes, the topic allows {max_batch_size}")
        else:
            if origin is AppendOrigin.RAFT_LEADER:
                if batch.leader_epoch != leader_epoch:
                    raise InvalidRecordError(f"a batch of leader epoch {batch.leader_epoch} in epoch {leader_epoch}")
                if size > max_batch_size:
                    raise MessageTooLargeError(f"a batch of {size} bytes, the topic allows {max_batch_size}")
            elif batch.leader_epoch > leader_epoch:
                break  # written by a leader this follower has not heard of yet: it will be fetched again
            if not last_offset < batch.base_offset <= batch.last_offset:
                raise OffsetsOutOfOrderError(
                    f"offsets {batch.base_offset} to {batch.last_offset} after offset {last_offset} in one buffer"
                )
            batch_of(rest[:size]).ensure_valid()
        last_offset = batch.last_offset
        batches.append(batch)
        position += size
    return batches
