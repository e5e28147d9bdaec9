"""Records of Kafka's internal topics as plain values: what a group committed, how a transaction stands, who leads.

    decode_internal("__consumer_offsets", record)    a DecodedRecord, for every record that is not a control record

Keys and values are dicts with the names and the order of Kafka's own JSON. What a consumer group's members carry as
bytes (subscription and assignment) is opened, and the state of a transaction is named. Nothing here raises for what is
in a record: what cannot be decoded has a `problem`, and as much as could be read.
"""

import base64
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.errors import CorruptionError, InvalidRequestError, ProtocolError, UnsupportedError
from tidelog.protocol import MessageType, coordinator_record, message, metadata_record
from tidelog.records.record import Record
from tidelog.records.varint import read_unsigned_varint

__all__ = ["INTERNAL_TOPICS", "TRANSACTION_STATES", "DecodedRecord", "decode_internal", "read_frame"]

TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

_VERSION = struct.Struct(">h")
_FRAME_VERSION = 1
_EMBEDDED = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
_REMOTE_LOG_RECORDS = (
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
)

Fields = dict[str, Any]


class DecodedRecord(NamedTuple):
    """What a record of an internal topic says. A tombstone has a key and no value, and no problem."""

    key: Fields | None
    value: Fields | None
    type: str  # of the record, as Kafka's tables call it: "OffsetCommit", "TopicRecord"; "" if it is not known
    problem: str | None = None  # why key or value is missing
    version: int | None = None  # of the value


def decode_internal(topic: str, record: Record) -> DecodedRecord:
    """Decode a record of one of the INTERNAL_TOPICS."""
    if topic not in _DECODERS:
        raise InvalidRequestError(f"{topic!r} is no internal topic that can be decoded: {', '.join(_DECODERS)}")
    return _DECODERS[topic](record)


# --- records of coordinators: a type and a key, a version and a value ------------------------------------------------


def _decode_group(record: Record) -> DecodedRecord:
    decoded = _decode_coordinator("group", record)
    if decoded.type == "GroupMetadata" and decoded.value and decoded.value["protocolType"] == "consumer":
        for member in decoded.value["members"]:
            _open_consumer_protocol(member)
    return decoded


def _decode_transaction(record: Record) -> DecodedRecord:
    decoded = _decode_coordinator("transaction", record)
    if decoded.value:
        status = decoded.value["transactionStatus"]
        if 0 <= status < len(TRANSACTION_STATES):
            decoded.value["transactionStatus"] = TRANSACTION_STATES[status]
    return decoded


def _decode_share_state(record: Record) -> DecodedRecord:
    return _decode_coordinator("share", record)


def _decode_coordinator(family: str, record: Record) -> DecodedRecord:
    if record.key is None:
        return DecodedRecord(None, None, "", "the record has no key")
    key, record_type, version = None, "", None
    try:
        type_number = _leading_number(record.key)
        key_message, value_message = coordinator_record(family, type_number)
        record_type = key_message.name.removesuffix("Key").removeprefix("Legacy")
        key = _fields(key_message, record.key, 0)
        if record.value is None:
            return DecodedRecord(key, None, record_type)
        version = _leading_number(record.value)
        value = _fields(_readable_by(value_message, version), record.value, version)
    except (CorruptionError, UnsupportedError) as error:
        return DecodedRecord(key, None, record_type, str(error), version)
    return DecodedRecord(key, value, record_type, None, version)


def _leading_number(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes are too few for the number that comes first")
    number: int = _VERSION.unpack_from(data)[0]
    return number


def _readable_by(value_message: MessageType | None, version: int) -> MessageType:
    """The message of a value. Values below the first kind of key may have any version of an offset commit."""
    if value_message is None:
        raise UnsupportedError("records of this type have no value")
    if value_message.name == "LegacyOffsetCommitValue" and version not in value_message.valid_versions:
        return message("OffsetCommitValue")
    return value_message


def _fields(message_type: MessageType, data: bytes, version: int) -> Fields:
    return message_type.to_json(message_type.read(data, version, _VERSION.size), version)


def _open_consumer_protocol(member: Fields) -> None:
    """Put what the bytes mean in their place, where they can be read; newer versions begin like the newest known."""
    for field, name in _EMBEDDED.items():
        data = base64.b64decode(member[field])
        try:
            version = min(_leading_number(data), message(name).valid_versions[-1])
            member[field] = _fields(message(name), data, version)
        except (CorruptionError, UnsupportedError):
            continue


# --- framed records: a frame version, a key, a version, a record ------------------------------------------------------


def read_frame(data: bytes) -> tuple[int, int, int]:
    """The key and the version of a framed record, and the position where its fields begin."""
    frame_version, position = read_unsigned_varint(data, 0, len(data))
    if frame_version != _FRAME_VERSION:
        raise UnsupportedError(f"a frame of version {frame_version}; only version {_FRAME_VERSION} is known")
    api_key, position = read_unsigned_varint(data, position, len(data))
    version, position = read_unsigned_varint(data, position, len(data))
    return api_key, version, position


def _decode_metadata(record: Record) -> DecodedRecord:
    return _decode_framed(record, metadata_record)


def _decode_remote_log(record: Record) -> DecodedRecord:
    return _decode_framed(record, _remote_log_record)


def _remote_log_record(api_key: int) -> MessageType:
    if not 0 <= api_key < len(_REMOTE_LOG_RECORDS):
        raise UnsupportedError(f"no record of remote log metadata has the key {api_key} in Kafka 4.3")
    return message(_REMOTE_LOG_RECORDS[api_key])


def _decode_framed(record: Record, message_of: Callable[[int], MessageType]) -> DecodedRecord:
    if record.value is None:
        return DecodedRecord(None, None, "", "the record has no value")
    data, record_type, version = record.value, "", None
    try:
        api_key, version, position = read_frame(data)
        message_type = message_of(api_key)
        record_type = message_type.name
        content, end = message_type.read_from(data, version, position)
        if end != len(data):
            raise ProtocolError(f"{len(data) - end} bytes follow the {record_type}")
    except (CorruptionError, UnsupportedError) as error:
        return DecodedRecord(None, None, record_type, str(error), version)
    return DecodedRecord(None, message_type.to_json(content, version), record_type, None, version)


_DECODERS: dict[str, Callable[[Record], DecodedRecord]] = {
    "__consumer_offsets": _decode_group,
    "__transaction_state": _decode_transaction,
    "__share_group_state": _decode_share_state,
    "__cluster_metadata": _decode_metadata,
    "__remote_log_metadata": _decode_remote_log,
}
INTERNAL_TOPICS = tuple(_DECODERS)
