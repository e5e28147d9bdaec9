"""A log to try things on: batches as producers and leaders send them, the log itself, and what lies in it.

    log = a_log(tmp_path, segment_bytes=1000)
    lead(log, 3)                              three records in one batch, from a client
    follow(log, batch(2, base_offset=3))      what a leader sent
    offsets_in(log)                           [0, 1, 2, 3, 4]

The clock stands at NOW, where all records come from, until somebody moves it: `clock_of(log).advance(...)`.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelog.errors import StorageError
from tidelog.log import AppendInfo, AppendOrigin, Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.log.files import FileSystem
from tidelog.log.names import SNAPSHOT_SUFFIX, file_name
from tidelog.log.verification import NO_GUARD, VerificationGuard
from tidelog.records import (
    ControlType,
    EndTxnMarker,
    NewRecord,
    Record,
    build_batch,
    build_end_txn_marker,
    read_batches,
)
from tidelog.records.checksum import crc32c_of

CLIENT, COORDINATOR, RAFT_LEADER = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
LOG_END, HIGH_WATERMARK, COMMITTED = Isolation.LOG_END, Isolation.HIGH_WATERMARK, Isolation.COMMITTED
NOW = 1_700_000_000_000
HOUR = 60 * 60 * 1000
DAY = 24 * HOUR
MEGABYTE = 1 << 20
SMALL_INDEXES = LogConfig(segment_index_bytes=4096)


def a_log(
    root: Path | str,
    *,
    name: str = "topic-0",
    clock: ManualClock | None = None,
    fs: FileSystem | None = None,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean_shutdown: bool = False,
    topic_id: uuid.UUID | None = None,
    producer_id_expiration_ms: int = DAY,
    producer_id_expiration_check_interval_ms: int = 600_000,
    verification: bool = False,
    on_failure: Callable[[str, StorageError], None] | None = None,
    config: LogConfig = SMALL_INDEXES,
    **topic: Any,
) -> UnifiedLog:
    """The log of a directory, not locked, so that a test can open it again as after a crash."""
    return UnifiedLog.open(
        f"{root}/{name}",
        replace(config, **topic),
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_shutdown=clean_shutdown,
        topic_id=topic_id,
        producer_id_expiration_ms=producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=producer_id_expiration_check_interval_ms,
        verification=verification,
        clock=clock or ManualClock(NOW),
        fs=fs,
        lock=False,
        on_failure=on_failure,
    )


def opened_again(log: UnifiedLog, **opening: Any) -> UnifiedLog:
    """What another process makes of the directory as it is now: a crash, unless the log was closed before."""
    root, _, name = log.directory.rpartition("/")
    return a_log(root, name=name, clock=clock_of(log), fs=log.local.fs, config=log.config, **opening)


def clock_of(log: UnifiedLog) -> ManualClock:
    clock = log.local.clock
    assert isinstance(clock, ManualClock)
    return clock


# -- batches -----------------------------------------------------------------------------------------------------------


def batch(records: int | Iterable[NewRecord] = 1, *, timestamp_ms: int = NOW, **options: Any) -> bytearray:
    """A batch of that many records, or of these."""
    if isinstance(records, int):
        records = [NewRecord(b"k%d" % number, b"value", timestamp_ms) for number in range(records)]
    return build_batch(records, **options)


def of_producer(
    producer_id: int, sequence: int, records: int | Iterable[NewRecord] = 1, *, epoch: int = 0, **options: Any
) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def in_txn(producer_id: int, sequence: int, records: int = 1, *, epoch: int = 0, **options: Any) -> bytearray:
    """A batch of a transaction."""
    return of_producer(producer_id, sequence, records, epoch=epoch, is_transactional=True, **options)


def marker(
    producer_id: int, kind: ControlType = COMMIT, *, epoch: int = 0, coordinator_epoch: int = 0, offset: int = 0
) -> bytearray:
    """The end of a transaction."""
    end = EndTxnMarker(kind, coordinator_epoch)
    return build_end_txn_marker(
        end, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=NOW, offset=offset, partition_leader_epoch=0
    )


def unreadable_marker(offset: int, producer_id: int = 5) -> bytearray:
    """A marker whose checksum holds and whose key is of a version that cannot be."""
    data = marker(producer_id, COMMIT, offset=offset)
    return sealed(data, {data.rindex(COMMIT.to_key()): 0xFF})


def sealed(data: bytes | bytearray, changes: Mapping[int, int]) -> bytearray:
    """A batch with other bytes, given by their positions, and the checksum that goes with them."""
    changed = bytearray(data)
    for position, byte in changes.items():
        changed[position] = byte
    changed[17:21] = crc32c_of(memoryview(changed)[21:]).to_bytes(4, "big")
    return changed


# -- appending ---------------------------------------------------------------------------------------------------------


def lead(
    log: UnifiedLog,
    data: int | bytes | bytearray = 1,
    *,
    epoch: int = 0,
    origin: AppendOrigin = CLIENT,
    guard: VerificationGuard = NO_GUARD,
    **options: Any,
) -> AppendInfo:
    """Append a batch, or as many records as said, as the leader."""
    buffer = batch(data, **options) if isinstance(data, int) else bytearray(data)
    return log.append_as_leader(memoryview(buffer), epoch, origin, guard)


def end_txn(log: UnifiedLog, producer_id: int, kind: ControlType = COMMIT, **options: Any) -> AppendInfo:
    """Append a marker, as the transaction coordinator does."""
    return lead(log, marker(producer_id, kind, **options), origin=COORDINATOR)


def follow(log: UnifiedLog, *batches: bytes | bytearray) -> AppendInfo:
    """Append what a leader sent, all batches in one buffer."""
    return log.append_as_follower(memoryview(bytearray(b"".join(batches))))


def fill(log: UnifiedLog, segments: Sequence[int], **options: Any) -> None:
    """Append one batch per record, and roll behind as many as each number says, but not behind the last."""
    for number, count in enumerate(segments):
        if number:
            log.roll()
        for _ in range(count):
            lead(log, 1, **options)


def all_replicated(log: UnifiedLog) -> None:
    """Let the high watermark reach the log end."""
    log.update_high_watermark(log.log_end_offset)


# -- looking -----------------------------------------------------------------------------------------------------------


def records_from(
    log: UnifiedLog, offset: int, isolation: Isolation = LOG_END, max_bytes: int = MEGABYTE
) -> list[Record]:
    """The records that one read gives."""
    return [record for part in read_batches(log.read(offset, max_bytes, isolation).read()) for record in part]


def records_in(log: UnifiedLog, isolation: Isolation = LOG_END) -> list[Record]:
    """All records that a reader can see."""
    found: list[Record] = []
    offset = log.log_start_offset
    while part := records_from(log, offset, isolation):
        found += part
        offset = part[-1].offset + 1
    return found


def offsets_in(log: UnifiedLog, isolation: Isolation = LOG_END) -> list[int]:
    return [record.offset for record in records_in(log, isolation)]


def bases_of(log: UnifiedLog) -> list[int]:
    """The base offsets of the segments."""
    return [segment.base_offset for segment in log.segments]


def snapshots_of(log: UnifiedLog) -> list[int]:
    """The offsets of the producer snapshots that lie in the directory."""
    return [int(name.partition(".")[0]) for name in names_in(log) if name.endswith(SNAPSHOT_SUFFIX)]


def names_in(log: UnifiedLog, suffix: str = "") -> list[str]:
    """The names in the directory that end so."""
    return [name for name in log.local.fs.list(log.directory) if name.endswith(suffix)]


def remove_snapshots(log: UnifiedLog) -> None:
    """Take the snapshot files away behind the log's back."""
    for offset in snapshots_of(log):
        log.local.fs.remove(f"{log.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")


def last_sequences(log: UnifiedLog) -> dict[int, int]:
    """The last sequence of every producer that is known."""
    return {producer.producer_id: producer.last_sequence for producer in log.producers.active_producers()}


def epochs_of(log: UnifiedLog) -> list[tuple[int, int]]:
    """The leader epochs, each with its first offset."""
    return [tuple(entry) for entry in log.leader_epochs.entries]  # type: ignore[misc]
