"""Who has written to a partition: duplicates, fencing, open transactions, and snapshots of all that.

The state of every producer is kept in memory, by producer id, and follows the log up to `map_end_offset`. A snapshot
writes it to disk where a segment begins, so that loading a log replays no more than the last segment. Batches are
checked and noted in three steps, so that nothing changes before the bytes are written:

    manager.find_duplicate(batch)                the answer of last time, if this batch was appended before
    manager.stage(updates, batch, origin)        check it against the state and the batches before it
    manager.apply(updates)                       after the write

Transactions that are open hold back readers of committed data; those that have ended do so until their marker is
replicated. `first_unstable_offset` is the lowest offset of both. Producers that wrote nothing for a day are forgotten,
unless a transaction of theirs is open.

Only the owner of the log changes it. Kafka: ProducerStateManager.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.errors import (
    CorruptIndexError,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
)
from tidelog.log.batch_info import BatchInfo
from tidelog.log.clock import Clock
from tidelog.log.files import FileSystem, read_whole
from tidelog.log.java_map import JavaLongMap, computed_order
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import UNKNOWN_TRANSACTION_VERSION, ProducerAppendInfo
from tidelog.log.producer_entry import BatchMetadata, ProducerEntry
from tidelog.log.producer_snapshot import parse_snapshot, write_snapshot
from tidelog.log.producer_txn import CompletedTxn, ProducerTxn, TxnsByOffset
from tidelog.log.snapshot_files import SnapshotFiles
from tidelog.log.verification import NO_GUARD, VerificationEntry, VerificationGuard
from tidelog.records.control import EndTxnMarker
from tidelog.records.java import wrap_int64

__all__ = ["LATE_TRANSACTION_BUFFER_MS", "ActiveProducer", "LastRecord", "ProducerStateManager"]

LATE_TRANSACTION_BUFFER_MS = 300_000


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers tells of it; -1 where there is no sequence, coordinator or transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


class LastRecord(NamedTuple):
    """Where the data of a producer ends, if any is remembered, and its epoch."""

    last_data_offset: int | None
    epoch: int


class ProducerStateManager:
    """The producers of one partition. `producers` is for reading; `map_end_offset` may be set."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        clock: Clock,
        *,
        expiration_ms: int = 86_400_000,
        max_transaction_timeout_ms: int = 900_000,
        verification: bool = False,
    ) -> None:
        self.producers: JavaLongMap[ProducerEntry] = JavaLongMap()
        self.map_end_offset = 0
        self.last_snapshot_offset = 0  # of the snapshot taken or loaded last
        # Configs that a broker may change while it runs.
        self.expiration_ms = expiration_ms
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.verification = verification
        self._fs = fs
        self._clock = clock
        self._snapshots = SnapshotFiles(fs, directory)
        self._ongoing = TxnsByOffset()
        self._unreplicated = TxnsByOffset()  # ended by a marker at or above the high watermark
        self._verifications: dict[int, VerificationEntry] = {}

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._unreplicated

    def last_entry(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer, if it is known."""
        return self.producers.get(producer_id)

    def active_producers(self) -> list[ActiveProducer]:
        """All producers, in the order of Kafka's answer."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                -1 if entry.txn_first_offset is None else entry.txn_first_offset,
            )
            for entry in self._in_java_order()
        ]

    def last_records(self) -> dict[int, LastRecord]:
        """What compaction must leave of each producer, so that it can be told a duplicate and an old epoch later."""
        return {
            entry.producer_id: LastRecord(entry.last_offset if entry.batches else None, entry.epoch)
            for entry in self._in_java_order()
        }

    def _in_java_order(self) -> list[ProducerEntry]:
        return [self.producers[producer_id] for producer_id in self.producers.java_order()]

    # -- appending ---------------------------------------------------------------------------------------------------

    def find_duplicate(self, batch: BatchInfo) -> BatchMetadata | None:
        """The batch that was appended before with the same epoch and sequences. Asked for clients only."""
        entry = self.producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    def ordinary_entry(self, producer_id: int, epoch: int, sequence: int) -> ProducerEntry | None:
        """The state of a producer whose next batch is the expected one, outside of any transaction."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.epoch != epoch or entry.txn_first_offset is not None or self._verifications:
            return None
        batches = entry.batches
        if not batches or sequence != batches[-1].last_sequence + 1:
            return None
        # Batches that are out of order, as replication may leave them, could be repeated by this one.
        return entry if max(batches).last_sequence < sequence else None

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Begin to check batches of a producer; nothing changes before `update`."""
        return ProducerAppendInfo(
            producer_id, self.producers.get(producer_id), origin, self._verifications.get(producer_id)
        )

    def stage(
        self,
        updates: dict[int, ProducerAppendInfo],
        batch: BatchInfo,
        origin: AppendOrigin,
        marker: EndTxnMarker | None = None,
        start: OffsetMetadata | None = None,
        transaction_version: int = UNKNOWN_TRANSACTION_VERSION,
    ) -> CompletedTxn | None:
        """Check one batch of an append, behind those in `updates`; the transaction that it completes."""
        producer_id = batch.producer_id
        info = updates.get(producer_id)
        if info is None:
            info = updates[producer_id] = self.prepare_update(producer_id, origin)
        completed = info.append(batch, marker, start, transaction_version)
        if self._verifications:
            self.spend_verification(batch)
        return completed

    def update(self, info: ProducerAppendInfo) -> None:
        """Take over what `info` has checked. It is used up by that."""
        producer_id = info.producer_id
        if producer_id < 0:
            raise InvalidRequestError(f"producer id {producer_id} names no producer")
        known = self.producers.get(producer_id)
        if known is None:
            self.producers[producer_id] = info.entry
        else:
            known.take_over(info.entry)
        for txn in info.started:
            self._ongoing.add(txn)

    def apply(self, updates: Mapping[int, ProducerAppendInfo]) -> None:
        """Take over a whole append. New producers are put in as Kafka does it, which decides on their order."""
        if len(updates) == 1:
            (info,) = updates.values()
            self.update(info)
            return
        for producer_id in computed_order(updates):
            self.update(updates[producer_id])

    # -- transactions ------------------------------------------------------------------------------------------------

    @property
    def first_unstable(self) -> OffsetMetadata | None:
        """Where the lowest transaction begins that is open, or whose marker is not replicated."""
        undecided, unreplicated = self._ongoing.first, self._unreplicated.first
        if unreplicated is None:
            return None if undecided is None else undecided.start
        if undecided is None or unreplicated.first_offset <= undecided.first_offset:
            return unreplicated.start
        return undecided.start

    @property
    def first_unstable_offset(self) -> int | None:
        unstable = self.first_unstable
        return None if unstable is None else unstable.offset

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the lowest open transaction begins."""
        undecided = self._ongoing.first
        return None if undecided is None else undecided.first_offset

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the oldest transaction has been idle for longer than a coordinator would leave it open."""
        oldest = self._ongoing.first
        entry = None if oldest is None else self.producers.get(oldest.producer_id)
        if entry is None or entry.last_timestamp_ms <= 0:
            return False
        idle_ms = wrap_int64(now_ms - entry.last_timestamp_ms)
        return idle_ms > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Up to where committed data can be read once this transaction, still open here, is completed."""
        other = self._ongoing.first_of_others(completed.producer_id)
        return completed.last_offset + 1 if other is None else other.first_offset

    def complete_txn(self, completed: CompletedTxn) -> None:
        """Move a transaction from the open ones to those whose marker is to be replicated."""
        txn = self._ongoing.pop(completed.first_offset)
        if txn is None:
            raise InvalidRequestError(f"{completed} ends a transaction that was never opened")
        self._unreplicated.add(txn._replace(last_offset=completed.last_offset))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Let go of the transactions whose marker is replicated."""
        self._unreplicated.remove_ended_before(high_watermark)

    def on_log_start(self, log_start: int) -> None:
        """Follow the log start. Producers stay known when their batches are deleted."""
        self._unreplicated.remove_ended_before(log_start)
        self.map_end_offset = max(self.map_end_offset, log_start)
        latest = self._snapshots.latest
        self.last_snapshot_offset = log_start if latest is None else latest

    # -- verification ------------------------------------------------------------------------------------------------

    def maybe_start_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard:
        """The guard with which the first batch of a transaction is to be appended; NO_GUARD if it is open already."""
        self._refuse_stale(producer_id, epoch)
        if self._has_open_txn(producer_id, epoch):
            return NO_GUARD
        return self.verification_entry(producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump).guard

    def verification_entry(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool = False
    ) -> VerificationEntry:
        """The verification of a producer, begun now or earlier, with this sequence and epoch noted."""
        entry = self._verifications.get(producer_id)
        if entry is None:
            entry = VerificationEntry(self._clock.now_ms(), sequence, epoch, supports_epoch_bump)
            self._verifications[producer_id] = entry
        entry.lower_to(sequence, epoch)
        return entry

    def guard_of(self, producer_id: int) -> VerificationGuard:
        """The guard that is out for a producer, or NO_GUARD."""
        entry = self._verifications.get(producer_id)
        return NO_GUARD if entry is None else entry.guard

    def spend_verification(self, batch: BatchInfo) -> None:
        """Clear the guard of a transactional batch that has passed its checks: its transaction is open now, or ended.

        In transactions of version 2 a marker carries the epoch of the transaction to come. If that is the one being
        verified, the marker ends the transaction before, and the guard stays good.
        """
        entry = self._verifications.get(batch.producer_id)
        if entry is None or not batch.is_transactional:
            return
        if not (entry.supports_epoch_bump and batch.is_control and batch.producer_epoch == entry.epoch):
            self.clear_verification(batch.producer_id)

    def clear_verification(self, producer_id: int) -> None:
        """Make the guard of a producer worthless."""
        self._verifications.pop(producer_id, None)

    def check_verification(self, batch: BatchInfo, guard: VerificationGuard = NO_GUARD) -> None:
        """Refuse a transactional batch that belongs to no open transaction and comes without its guard.

        Asked for clients and coordinators, before the batch is staged.
        """
        if not batch.is_transactional or self._has_open_txn(batch.producer_id, batch.producer_epoch):
            return
        self._refuse_stale(batch.producer_id, batch.producer_epoch)
        if self.verification and not batch.is_control and not self.guard_of(batch.producer_id).verifies(guard):
            raise InvalidTxnStateError(
                f"a transactional batch of producer {batch.producer_id}, whose transaction is neither open nor verified"
            )

    def _has_open_txn(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.epoch == epoch

    def _refuse_stale(self, producer_id: int, epoch: int) -> None:
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"epoch {epoch} of producer {producer_id}, where {entry.epoch} has been seen"
            )

    # -- forgetting, and starting over -------------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> None:
        """Forget the producers that wrote nothing for `expiration_ms`, and guards that were not used for so long."""
        for producer_id in [key for key, entry in self.producers.items() if self._is_expired(entry, now_ms)]:
            del self.producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.created_ms >= self.expiration_ms:
                del self._verifications[producer_id]

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        if entry.txn_first_offset is not None:
            return False
        return wrap_int64(now_ms - entry.last_timestamp_ms) >= self.expiration_ms

    def truncate_and_reload(self, log_start: int, log_end: int, now_ms: int) -> None:
        """Go back to the newest snapshot in (log_start, log_end], unless the state already ends at `log_end`.

        The caller replays the log from `map_end_offset`.
        """
        self._snapshots.remove_outside(log_start, log_end)
        if self.map_end_offset == log_end:
            self.on_log_start(log_start)
        else:
            self._clear()
            self._load_latest(log_start, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, delete every snapshot, and begin anew at an offset."""
        self._clear()
        for known in self._snapshots.offsets:
            self._snapshots.remove(known)
        self.last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_latest(self, log_start: int, now_ms: int) -> None:
        while (offset := self._snapshots.latest) is not None:
            path = self._snapshots.path(offset)
            assert path is not None
            try:
                entries = parse_snapshot(read_whole(self._fs, path))
            except CorruptIndexError:
                self._snapshots.remove(offset)  # what it held is replayed from the log
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self.load(entry)
            self.last_snapshot_offset = self.map_end_offset = offset
            return
        self.last_snapshot_offset = self.map_end_offset = log_start

    def load(self, entry: ProducerEntry) -> None:
        """Put in a producer as a snapshot has it, with its open transaction."""
        self.producers[entry.producer_id] = entry
        if entry.txn_first_offset is not None:
            self._ongoing.add(ProducerTxn(entry.producer_id, OffsetMetadata(entry.txn_first_offset)))

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write a snapshot at `map_end_offset`; its path, or None if the last one is not older."""
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return None
        path = self._snapshots.new_path(offset)
        write_snapshot(self._fs, path, self._in_java_order(), sync=sync)
        self._snapshots.add(offset)
        self.last_snapshot_offset = offset
        return path

    @property
    def directory(self) -> str:
        """The partition directory; set it when that is renamed."""
        return self._snapshots.directory

    @directory.setter
    def directory(self, directory: str) -> None:
        self._snapshots.directory = directory

    @property
    def snapshot_offsets(self) -> list[int]:
        """Where snapshots are, in ascending order."""
        return self._snapshots.offsets

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots.latest

    @property
    def oldest_snapshot_offset(self) -> int | None:
        return self._snapshots.oldest

    def snapshot_path(self, offset: int) -> str | None:
        """Where the snapshot at an offset lies; None if there is none."""
        return self._snapshots.path(offset)

    def reload_snapshots(self) -> None:
        """Look into the directory for snapshots again."""
        self._snapshots.reload()

    def remove_stray_snapshots(self, segment_bases: Collection[int]) -> None:
        """Delete the snapshots that belong to no segment, but not the one of a clean shutdown."""
        self._snapshots.remove_stray(segment_bases)

    def mark_snapshot_for_deletion(self, offset: int) -> str | None:
        """Rename a snapshot to `.deleted` and forget it; its new path, or None if it was not there."""
        return self._snapshots.mark_for_deletion(offset)

    def delete_snapshots_before(self, offset: int) -> None:
        """Delete the snapshots below an offset."""
        self._snapshots.remove_before(offset)
