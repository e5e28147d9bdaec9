"""An append, step by step: validate and give offsets, note epochs, roll, check producers, write, follow transactions.

Nothing is written before everything is checked and everything the write needs is at hand (`prepare`). An append that is
rejected until then leaves the log as it was, but for a new epoch and a roll that was due. From the first byte on there
is no way back: whatever fails takes the log offline. The everyday case takes another path to the same end:
quick_append.py.

Kafka: UnifiedLog.append.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import (
    MessageTooLargeError,
    OffsetOverflowError,
    RecordListTooLargeError,
    UnexpectedAppendOffsetError,
)
from tidelog.log.analysis import AppendInfo
from tidelog.log.batch_info import BatchInfo
from tidelog.log.files import WriteFile, fail_midway
from tidelog.log.offsets import MAX_OFFSET, OffsetMetadata
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_entry import BatchMetadata
from tidelog.log.producer_txn import CompletedTxn
from tidelog.log.validator import validate_and_assign
from tidelog.log.verification import VerificationGuard
from tidelog.records.batch import MAGIC, RecordBatch
from tidelog.records.batches import batch_of
from tidelog.records.control import end_txn_marker_of
from tidelog.records.java import MAX_INT32

if TYPE_CHECKING:
    from tidelog.log.unified_log import UnifiedLog

__all__ = ["append_batches"]


def append_batches(
    log: UnifiedLog,
    buffer: memoryview,
    batches: list[BatchInfo],
    origin: AppendOrigin,
    leader_epoch: int,
    guard: VerificationGuard,
    transaction_version: int,
) -> AppendInfo:
    """Append the batches that `analyse` found at the start of `buffer`."""
    local = log.local
    config = local.config
    log_end = local.log_end.offset
    now_ms = local.clock.now_ms()
    log_append_time_ms = -1
    if origin.assigns_offsets:
        validated = validate_and_assign(
            buffer, batches, config=config, origin=origin, first_offset=log_end, now_ms=now_ms,
            leader_epoch=leader_epoch,
        )  # fmt: skip
        buffer, batches = validated.buffer, validated.batches
        max_timestamp_ms, log_append_time_ms = validated.max_timestamp_ms, validated.log_append_time_ms
        if validated.size_may_have_changed:
            _ensure_sizes(batches, config.max_message_bytes)
    else:
        _ensure_behind(buffer, batches, log_end)
        max_timestamp_ms = max(batch.max_timestamp_ms for batch in batches)
    last = batches[-1]
    if last.last_offset >= MAX_OFFSET:
        raise OffsetOverflowError(
            f"{log.directory}: offsets {batches[0].base_offset} to {last.last_offset} are not appended, "
            f"the last offset of a log is {MAX_OFFSET - 1}"
        )
    size = last.position + last.size
    if size > config.segment_bytes:
        raise RecordListTooLargeError(f"{size} bytes in one append, a segment holds {config.segment_bytes}")
    _assign_epochs(log, batches)
    if local.segments.active.should_roll(config, size, max_timestamp_ms, last.last_offset, now_ms):
        log.roll(_first_offset(batches))
    active = local.segments.active
    file = active.prepare(last.last_offset)  # before producers are looked at: that spends the guard of a transaction
    first_offset = batches[0].base_offset
    info = AppendInfo(first_offset, last.last_offset, max_timestamp_ms, log_append_time_ms, log.log_start_offset)
    updates, completed, duplicate = _check_producers(log, buffer, batches, origin, guard, transaction_version)
    if duplicate is not None:
        info.first_offset, info.last_offset = duplicate.first_offset, duplicate.last_offset
        info.log_append_time_ms, info.is_duplicate = duplicate.timestamp_ms, True
        return info
    aborted_file = active.prepare_aborted() if any(txn.is_aborted for txn in completed) else None
    data = buffer[:size] if len(buffer) != size else buffer
    try:
        _write(log, data, batches, file, updates, completed, aborted_file)
        if local.log_end.offset - local.recovery_point >= config.flush_messages:
            log.flush()
    except BaseException as error:  # KeyboardInterrupt too: there may be bytes in the file that nobody knows of
        fail_midway(error, log.fail)
        raise
    info.size = size
    return info


def _write(
    log: UnifiedLog,
    buffer: memoryview,
    batches: Sequence[BatchInfo],
    file: WriteFile,
    updates: dict[int, ProducerAppendInfo],
    completed: Sequence[CompletedTxn],
    aborted_file: WriteFile | None,
) -> None:
    """Write what was checked, and take over what it changes."""
    log.local.append(buffer, batches, file)
    if updates:
        log.producers.apply(updates)
    for txn in completed:
        if txn.is_aborted:
            log.active_segment.add_aborted(txn, log.producers.last_stable_offset(txn), aborted_file)
        log.producers.complete_txn(txn)
    log.producers.map_end_offset = batches[-1].last_offset + 1
    if updates:
        log.watermarks.follow_transactions()


def _assign_epochs(log: UnifiedLog, batches: Sequence[BatchInfo]) -> None:
    epochs = log.leader_epochs
    epochs.settle()
    for batch in batches:
        if batch.magic >= MAGIC:
            if batch.leader_epoch != epochs.latest_epoch:
                epochs.assign(batch.leader_epoch, batch.base_offset)
        elif epochs.entries:
            epochs.clear_and_flush()  # the old formats know no epochs: what is cached would mislead a follower


def _check_producers(
    log: UnifiedLog,
    buffer: memoryview,
    batches: Sequence[BatchInfo],
    origin: AppendOrigin,
    guard: VerificationGuard,
    transaction_version: int,
) -> tuple[dict[int, ProducerAppendInfo], list[CompletedTxn], BatchMetadata | None]:
    """Producer state as it will be, the transactions that end, and the batch that this append repeats."""
    producers = log.producers
    updates: dict[int, ProducerAppendInfo] = {}
    completed: list[CompletedTxn] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        if origin is AppendOrigin.CLIENT:
            duplicate = producers.find_duplicate(batch)
            if duplicate is not None:
                return {}, [], duplicate
        marker = start = None
        if batch.is_transactional:
            if origin.assigns_offsets:
                producers.check_verification(batch, guard)
            active = log.local.segments.active
            start = OffsetMetadata(batch.base_offset, active.base_offset, active.size + batch.position)
        if batch.is_control:
            marker = end_txn_marker_of(RecordBatch(buffer[batch.position : batch.position + batch.size]))
        txn = producers.stage(updates, batch, origin, marker, start=start, transaction_version=transaction_version)
        if txn is not None:
            completed.append(txn)
    return updates, completed, None


def _ensure_sizes(batches: Sequence[BatchInfo], limit: int) -> None:
    for batch in batches:
        if batch.size > limit:
            raise MessageTooLargeError(f"a batch of {batch.size} bytes after recompression, the topic allows {limit}")


def _ensure_behind(buffer: memoryview, batches: Sequence[BatchInfo], log_end: int) -> None:
    first = batches[0]
    if first.base_offset < log_end:
        # A follower whose log is empty may begin anew there, so the true first offset is worth a decompression.
        first_offset = batch_of(buffer[: first.size]).base_offset if first.is_legacy else first.base_offset
        raise UnexpectedAppendOffsetError(
            f"offsets {first_offset} to {batches[-1].last_offset} appended to a log that ends at {log_end}",
            first_offset,
            batches[-1].last_offset,
        )


def _first_offset(batches: Sequence[BatchInfo]) -> int:
    """Where a segment for these batches must begin at the latest.

    The first offset of a legacy wrapper is not known without decompression; it is less than 2^31 below the last.
    """
    first = batches[0]
    return batches[-1].last_offset - MAX_INT32 if first.is_legacy else first.base_offset
