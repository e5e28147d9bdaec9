"""Control batches: the records a broker writes for itself, which no consumer delivers.

The key is two i16: a version (0) and a type. A transaction ends with one record of type ABORT or COMMIT, whose value
is an i16 version (0) and the i32 epoch of the coordinator that decided. The metadata quorum writes the other types;
their values are messages of the protocol.

    transaction marker: attributes 0x30, one record of 17 bytes, base sequence -1, 78 bytes in all

Kafka: ControlRecordType, EndTransactionMarker.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from tidelog.errors import InvalidRecordError, InvalidRequestError
from tidelog.records.batch import NO_LEADER_EPOCH, RecordBatch
from tidelog.records.builder import BatchBuilder
from tidelog.records.fields import pack
from tidelog.records.record import NewRecord, Record

__all__ = ["ControlType", "EndTxnMarker", "build_control_batch", "build_end_txn_marker", "end_txn_marker_of"]

_KEY = struct.Struct(">hh")  # version, type
_END_TXN_VALUE = struct.Struct(">hi")  # version, coordinator_epoch
_VERSION = 0


class ControlType(IntEnum):
    """What a control record says. Types of a later release read as UNKNOWN and are passed over."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @classmethod
    def parse(cls, key: bytes | None) -> "ControlType":
        """The type that a control record's key names; versions above 0 are read as 0.

        >>> ControlType.parse(bytes.fromhex("00000001"))
        <ControlType.COMMIT: 1>
        """
        if key is None or len(key) < _KEY.size:
            raise InvalidRecordError(f"a control key of {0 if key is None else len(key)} bytes, it takes {_KEY.size}")
        version, number = _KEY.unpack_from(key)
        if version < 0:
            raise InvalidRecordError(f"a control key of version {version}")
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN

    def to_key(self) -> bytes:
        """The key of a control record of this type."""
        if self is ControlType.UNKNOWN:
            raise InvalidRequestError("a control record of unknown type cannot be written")
        return _KEY.pack(_VERSION, self)


class EndTxnMarker(NamedTuple):
    """The end of a transaction."""

    control_type: ControlType
    coordinator_epoch: int

    @classmethod
    def parse(cls, record: Record) -> "EndTxnMarker":
        """Read the marker that `record`, of a control batch, holds."""
        control_type = ControlType.parse(record.key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            raise InvalidRecordError(f"offset {record.offset}: a {control_type.name} record is no end of a transaction")
        value = record.value or b""
        if len(value) < _END_TXN_VALUE.size:
            raise InvalidRecordError(f"offset {record.offset}: an end-transaction value of {len(value)} bytes")
        version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
        if version < 0:
            raise InvalidRecordError(f"offset {record.offset}: an end-transaction value of version {version}")
        return cls(control_type, coordinator_epoch)

    def to_record(self, timestamp_ms: int) -> NewRecord:
        """The record to be written for this marker."""
        if self.control_type not in (ControlType.ABORT, ControlType.COMMIT):
            raise InvalidRequestError(f"a transaction ends with ABORT or COMMIT, not with {self.control_type.name}")
        return NewRecord(
            self.control_type.to_key(), pack(_END_TXN_VALUE, _VERSION, self.coordinator_epoch), timestamp_ms
        )


def end_txn_marker_of(batch: RecordBatch) -> EndTxnMarker | None:
    """The marker of a transaction's end, or None for any other batch.

    A control batch with a producer is one, whether or not its header says "transactional": so Kafka takes it.
    """
    if not batch.is_control or batch.producer_id < 0:
        return None
    record = next(batch.records(), None)
    return None if record is None else EndTxnMarker.parse(record)


def build_end_txn_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The 78 bytes that end a transaction.

    >>> marker = EndTxnMarker(ControlType.COMMIT, coordinator_epoch=7)
    >>> len(build_end_txn_marker(marker, producer_id=1000, producer_epoch=3, timestamp_ms=1_700_000_001_000))
    78
    """
    builder = BatchBuilder(
        base_offset=offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return builder.append(marker.to_record(timestamp_ms)).build()


def build_control_batch(
    records: list[tuple[ControlType, bytes]],
    *,
    timestamp_ms: int,
    partition_leader_epoch: int,
    base_offset: int = 0,
) -> bytearray:
    """A control batch of the metadata quorum: typed values, no producer, a leader epoch that must be known."""
    if partition_leader_epoch < 0:
        raise InvalidRequestError(f"a quorum's control batch with leader epoch {partition_leader_epoch}")
    builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=partition_leader_epoch, is_control=True)
    for control_type, value in records:
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            raise InvalidRequestError(f"{control_type.name} belongs into a transactional control batch")
        builder.append(NewRecord(control_type.to_key(), value, timestamp_ms))
    return builder.build()
