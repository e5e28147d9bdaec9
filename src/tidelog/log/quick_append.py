"""The everyday append, without detours: one plain batch of a known producer behind its last one.

Nearly every batch that a broker takes is uncompressed or of the topic's codec, continues its producer's sequence, fits
the active segment and needs no new checksum. For those this function does in one piece what the general path
(`append_batches` in full_append.py) does in many: same checks, same bytes, same state. Whatever is the least unusual,
it leaves alone, untouched, for the general path to take, refuse and explain.

The general path is the truth; tests/property/test_quick_append.py compares the two.
"""

from __future__ import annotations

import struct
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

from tidelog.log.analysis import AppendInfo
from tidelog.log.files import fail_midway
from tidelog.log.offsets import MAX_OFFSET, OffsetMetadata
from tidelog.log.producer_entry import MAX_CACHED_BATCHES, BatchMetadata
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.java import MAX_INT32

if TYPE_CHECKING:
    from tidelog.log.unified_log import UnifiedLog

__all__ = ["QUICK_APPEND", "QuickAppend"]

_HEADER = struct.Struct(">qiibIhiqqqhii")  # as in records.batch
_STAMP = struct.Struct(">qii")  # base offset, length, leader epoch: what the checksum does not cover
_READABLE_BYTES = 64 * 1024  # appended before the kernels are worth loading
_SOUND = 0  # kernels.validate
_MAX_INT64 = 2**63 - 1


class QuickAppend:
    """Appends what is ordinary. `append` gives None for the rest, and has then changed nothing."""

    __slots__ = ("_bytes_left", "_walk")

    def __init__(self) -> None:
        self._bytes_left = _READABLE_BYTES
        self._walk: Any = None  # the kernel that checks checksum and records of a batch

    def append(self, log: UnifiedLog, buffer: memoryview, leader_epoch: int) -> AppendInfo | None:
        """Append a client's batch if it is an ordinary one."""
        walk = self._walk
        size = len(buffer)
        if walk is None:
            walk = self._load(size)
            if walk is None:
                return None
        if size < BATCH_HEADER_SIZE or buffer.readonly:
            return None
        base, length, _, magic, _, bits, delta, _, header_time_ms, producer_id, producer_epoch, sequence, count = (
            _HEADER.unpack_from(buffer)
        )
        local = log.local
        config = local.config
        if (
            base != 0
            or length + 12 != size
            or magic != 2
            or bits != 0
            or count <= 0
            or count != delta + 1
            or size > config.max_message_bytes
            or size > config.segment_bytes
            or config.target_codec
            or config.uses_append_time
            or leader_epoch != log.leader_epochs.settled_epoch
        ):
            return None

        entry = None
        if producer_id >= 0:
            entry = log.producers.ordinary_entry(producer_id, producer_epoch, sequence)
            if entry is None or sequence + delta > MAX_INT32:
                return None

        now_ms = local.clock.now_ms()
        address = addressof(c_char.from_buffer(buffer))
        earliest_ms = now_ms - config.message_timestamp_before_max_ms
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        status, max_timestamp_ms, outside, without_key, _ = walk(
            address,
            size,
            address + BATCH_HEADER_SIZE,
            address + size,
            1,
            -1 if earliest_ms < -1 else earliest_ms,
            _MAX_INT64 if latest_ms > _MAX_INT64 else latest_ms,
        )
        if (
            status != _SOUND
            or outside >= 0
            or max_timestamp_ms != header_time_ms
            or (without_key >= 0 and config.is_compacted)
        ):
            return None

        first_offset = local.log_end.offset
        last_offset = first_offset + delta
        segment = local.segments.active
        file = segment.log._file
        if (
            file is None
            or last_offset >= MAX_OFFSET
            or not segment.is_ready
            or segment.should_roll(config, size, max_timestamp_ms, last_offset, now_ms)
        ):
            return None
        next_offset = last_offset + 1
        _STAMP.pack_into(buffer, 0, first_offset, length, leader_epoch)
        try:
            position = segment.append_one(file, buffer, size, last_offset, max_timestamp_ms)
            local.log_end = OffsetMetadata(next_offset, segment.base_offset, position + size)
            if entry is not None:
                batches = entry.batches
                batches.append(BatchMetadata(sequence + delta, last_offset, delta, max_timestamp_ms))
                if len(batches) > MAX_CACHED_BATCHES:
                    del batches[0]
                entry.last_timestamp_ms = max_timestamp_ms
            log.producers.map_end_offset = next_offset
            if next_offset - local.recovery_point >= config.flush_messages:
                log.flush()
        except BaseException as error:  # KeyboardInterrupt too: there may be bytes in the file that nobody knows of
            fail_midway(error, log.fail)
            raise
        return AppendInfo(first_offset, last_offset, max_timestamp_ms, -1, log.log_start_offset, size)

    def _load(self, size: int) -> Any:
        """The kernel, once enough bytes have come to pay for it."""
        self._bytes_left -= size
        if self._bytes_left > 0:
            return None
        try:
            from tidelog.kernels.validate import walk_batch
        except OSError:  # no descriptor left to read the code: the general path does without
            return None
        self._walk = walk_batch.compiled
        return self._walk


QUICK_APPEND = QuickAppend()  # of the process: volume is what all its logs append together
