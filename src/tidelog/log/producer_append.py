"""The checks that a batch of a producer must pass, made on a copy of the producer's state.

An append may hold several batches of one producer. Each is checked against the state as the earlier ones leave it,
and nothing of that shows until the bytes are written: only then the copy replaces the state.

    data     1. epoch not below the known one         else InvalidProducerEpochError
             2. sequence follows (clients only)       else OutOfOrderSequenceError
             3. transactional while one is open       else InvalidTxnStateError
    marker   1. epoch not below, or above, the known  else InvalidProducerEpochError
             2. coordinator not older                 else CoordinatorFencedError

What replication brings has passed these checks elsewhere; epochs and sequences are taken as they are.

Kafka: ProducerAppendInfo.
"""

from tidelog.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from tidelog.log.batch_info import BatchInfo
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_entry import MAX_CACHED_BATCHES, NO_EPOCH, NO_SEQUENCE, BatchMetadata, ProducerEntry
from tidelog.log.producer_txn import CompletedTxn, ProducerTxn
from tidelog.log.verification import VerificationEntry
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.records.java import MAX_INT32

__all__ = ["UNKNOWN_TRANSACTION_VERSION", "ProducerAppendInfo"]

UNKNOWN_TRANSACTION_VERSION = -1  # counts as one before 2

_MAX_EPOCH = 2**15 - 1

# Every idempotent batch passes here. Members of an enum, properties of a batch and the constructor of a named tuple
# each take as long as a whole check, so the plain path does without.
_CLIENT, _REPLICATION = AppendOrigin.CLIENT, AppendOrigin.REPLICATION
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_new_tuple = tuple.__new__


class ProducerAppendInfo:
    """What an append makes of one producer. `entry` is the state to be; `started` the transactions that begin."""

    __slots__ = ("_current", "_origin", "_verification", "entry", "producer_id", "started")

    def __init__(
        self,
        producer_id: int,
        current: ProducerEntry | None,
        origin: AppendOrigin,
        verification: VerificationEntry | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.started: tuple[ProducerTxn, ...] = ()
        self._current = current
        self._origin = origin
        self._verification = verification
        self.entry = (
            ProducerEntry(producer_id)
            if current is None
            else ProducerEntry(
                producer_id,
                current.epoch,
                current.coordinator_epoch,
                current.last_timestamp_ms,
                current.txn_first_offset,
            )
        )

    def append(
        self,
        batch: BatchInfo,
        marker: EndTxnMarker | None = None,
        start: OffsetMetadata | None = None,
        transaction_version: int = UNKNOWN_TRANSACTION_VERSION,
    ) -> CompletedTxn | None:
        """Check a batch and note it; the transaction that it completes, if any.

        `marker` is the first record of a control batch. Without one the batch is empty, as compaction can leave it,
        and changes nothing. `start` says where in the files the batch will lie, for the transaction it may begin;
        `transaction_version` is the protocol by which the coordinator that sends a marker works.
        """
        bits = batch.attributes
        if bits & _CONTROL:
            return None if marker is None else self._append_marker(batch, marker, transaction_version)
        epoch, first_offset, last_offset = batch.producer_epoch, batch.base_offset, batch.last_offset
        entry = self.entry
        if epoch < entry.epoch:
            self._refuse_epoch(batch)
        if self._origin is _CLIENT:
            self._check_sequence(batch, epoch, batch.base_sequence)
        if epoch != entry.epoch:
            entry.set_epoch(epoch)
        batches = entry.batches
        if len(batches) == MAX_CACHED_BATCHES:
            del batches[0]
        fields = (batch.last_sequence, last_offset, last_offset - first_offset, batch.max_timestamp_ms)
        batches.append(_new_tuple(BatchMetadata, fields))
        entry.last_timestamp_ms = batch.max_timestamp_ms
        if bits & _TRANSACTIONAL:
            if entry.txn_first_offset is None:
                entry.txn_first_offset = first_offset
                self.started += (ProducerTxn(self.producer_id, start or OffsetMetadata(first_offset)),)
        elif entry.txn_first_offset is not None:
            raise InvalidTxnStateError(
                f"offset {first_offset}: a plain batch of producer {self.producer_id}, whose transaction has been open "
                f"since offset {entry.txn_first_offset}"
            )
        return None

    def _append_marker(self, batch: BatchInfo, marker: EndTxnMarker, transaction_version: int) -> CompletedTxn | None:
        entry = self.entry
        if self._is_stale_marker(batch.producer_epoch, transaction_version):
            self._refuse_epoch(batch)
        if marker.coordinator_epoch < entry.coordinator_epoch and self._origin is not _REPLICATION:
            raise CoordinatorFencedError(
                f"offset {batch.base_offset}: a marker for producer {self.producer_id} from coordinator epoch "
                f"{marker.coordinator_epoch}, where {entry.coordinator_epoch} has been seen"
            )
        first_offset = entry.txn_first_offset
        entry.set_epoch(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.txn_first_offset = None
        entry.last_timestamp_ms = batch.max_timestamp_ms
        if first_offset is None:  # a marker without data holds nobody up
            return None
        is_aborted = marker.control_type is ControlType.ABORT
        return CompletedTxn(self.producer_id, first_offset, batch.base_offset, is_aborted)

    def _is_stale_marker(self, epoch: int, transaction_version: int) -> bool:
        """Whether a marker's epoch is too low.

        From version 2 on every transaction ends with a higher epoch, so that what is late cannot join the next one.
        The same epoch is then a marker sent again, if no transaction is open, or an epoch that can go no higher.
        """
        known = self.entry.epoch
        if transaction_version < 2 or epoch != known:
            return epoch < known
        return self.entry.txn_first_offset is not None and epoch != _MAX_EPOCH

    def _refuse_epoch(self, batch: BatchInfo) -> None:
        if self._origin is not _REPLICATION:
            raise InvalidProducerEpochError(
                f"offset {batch.base_offset}: epoch {batch.producer_epoch} of producer {self.producer_id}, "
                f"where {self.entry.epoch} has been seen"
            )

    def _check_sequence(self, batch: BatchInfo, epoch: int, sequence: int) -> None:
        current, entry = self._current, self.entry
        if self._verification is not None:
            self._check_verified_sequence(batch, self._verification)
        if epoch != entry.epoch:
            if sequence != 0 and entry.epoch != NO_EPOCH:
                raise OutOfOrderSequenceError(
                    f"offset {batch.base_offset}: sequence {sequence} of producer {self.producer_id} opens epoch "
                    f"{epoch}; the one before was {entry.epoch}, and an epoch opens with 0"
                )
            return
        if current is None or current.epoch == NO_EPOCH:
            return  # of a producer that is not known, or no longer, any sequence is taken
        if entry.batches:
            last = entry.batches[-1].last_sequence
        elif current.batches and current.epoch == epoch:
            last = current.batches[-1].last_sequence
        else:
            last = NO_SEQUENCE
        if sequence != last + 1 and not (sequence == 0 and last == MAX_INT32):
            raise OutOfOrderSequenceError(
                f"offset {batch.base_offset}: sequence {sequence} of producer {self.producer_id} follows {last}"
            )

    def _check_verified_sequence(self, batch: BatchInfo, verification: VerificationEntry) -> None:
        sequence = batch.base_sequence
        is_unknown = self._current is None or not self._current.batches
        if verification.supports_epoch_bump and sequence != 0 and is_unknown:
            raise OutOfOrderSequenceError(
                f"offset {batch.base_offset}: sequence {sequence} of producer {self.producer_id}, of which nothing is "
                "known; in transactions of version 2 it begins with 0"
            )
        if sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"offset {batch.base_offset}: sequence {sequence} of producer {self.producer_id}, while "
                f"{verification.lowest_sequence} is being verified"
            )
