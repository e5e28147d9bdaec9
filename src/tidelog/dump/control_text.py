"""What is printed of a control record: the end of a transaction, or a record of the metadata quorum."""

import struct

from tidelog.dump.java_bytes import Underflow
from tidelog.dump.java_errors import JavaError, null_pointer
from tidelog.dump.releases import Release
from tidelog.records.control import ControlType
from tidelog.records.record import Record

__all__ = ["control_text"]

_KEY = struct.Struct(">hh")  # version, type
_MARKER = struct.Struct(">hi")  # version, coordinator epoch
_VERSION = struct.Struct(">h")

# The types by the release that got to know them; others are UNKNOWN.
_KNOWN_SINCE = {
    ControlType.ABORT: (0, 11),
    ControlType.COMMIT: (0, 11),
    ControlType.LEADER_CHANGE: (3, 0),
    ControlType.SNAPSHOT_HEADER: (3, 0),
    ControlType.SNAPSHOT_FOOTER: (3, 0),
    ControlType.KRAFT_VERSION: (3, 8),
    ControlType.KRAFT_VOTERS: (3, 8),
}

# The numbers of 2.7 and 2.8, whose quorum was a preview.
_PREVIEW_TYPES = {2: "QUORUM_REASSIGNMENT", 3: "LEADER_CHANGE"}

# What stands before the JSON of a record, the name of its message, and since which step it is spelt out.
_QUORUM_RECORDS = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", "LeaderChangeMessage", "leader"),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", "SnapshotHeaderRecord", "snapshot"),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", "SnapshotFooterRecord", "snapshot"),
    ControlType.KRAFT_VERSION: ("KRaftVersion", "KRaftVersionRecord", "voters"),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", "VotersRecord", "voters"),
}
_STEPS = ("type", "snapshot", "voters", "leader")


def control_text(record: Record, release: Release) -> str:
    """The part of the line that tells what a control record says."""
    number = _type_number(record.key, release)
    control_type = _known_type(number, release)
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        epoch = _coordinator_epoch(record.value, release)
        return f" endTxnMarker: {control_type.name} coordinatorEpoch: {epoch}"
    if control_type in _QUORUM_RECORDS:
        label, message_name, step = _QUORUM_RECORDS[control_type]
        if _STEPS.index(step) <= _STEPS.index(release.quorum_records):
            return f" {label} {_quorum_json(message_name, record.value)}"
    name = control_type.name
    if release.is_at_least(2, 7) and not release.is_at_least(3, 0):
        name = _PREVIEW_TYPES.get(number, name)
    return f" controlType: {name}({number})"


def _known_type(number: int, release: Release) -> ControlType:
    for control_type, since in _KNOWN_SINCE.items():
        if control_type == number and release.is_at_least(*since):
            return control_type
    return ControlType.UNKNOWN


def _type_number(key: bytes | None, release: Release) -> int:
    is_shared = release.is_at_least(4, 3)  # by the readers of transactions and of the quorum
    if key is None:
        raise null_pointer(f"java.nio.ByteBuffer.{'duplicate' if is_shared else 'remaining'}()", '"key"')
    if len(key) < _KEY.size:
        raise JavaError(
            release.invalid_record,
            f"Invalid value size found for {'' if is_shared else 'end '}control record key. Must have at least "
            f"{_KEY.size} bytes, but found only {len(key)}",
        )
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise JavaError(
            release.invalid_record,
            f"Invalid version found for control record: {version}. May indicate data corruption",
        )
    return int(number)


def _coordinator_epoch(value: bytes | None, release: Release) -> int:
    is_message = release.is_at_least(4, 1)  # which is read field by field
    if value is None:
        raise null_pointer(f"java.nio.ByteBuffer.{'getShort' if is_message else 'remaining'}()", '"value"')
    if len(value) < _MARKER.size and not is_message:
        raise JavaError(
            release.invalid_record,
            f"Invalid value size found for end transaction marker. Must have at least {_MARKER.size} bytes, but found "
            f"only {len(value)}",
        )
    if len(value) < _VERSION.size:
        raise Underflow
    (version,) = _VERSION.unpack_from(value)
    if version < 0:
        raise JavaError(
            release.invalid_record,
            f"Invalid version found for end transaction marker: {version}. May indicate data corruption",
        )
    if len(value) < _MARKER.size:
        raise Underflow
    return int(_MARKER.unpack_from(value)[1])


def _quorum_json(message_name: str, value: bytes | None) -> str:
    from tidelog.dump.decoders import quorum_record_json

    if value is None:
        raise null_pointer("java.nio.ByteBuffer.slice()", '"data"')
    return quorum_record_json(message_name, value)
