"""Framed records, of the metadata log and of remote log metadata: a frame version, a key, a version, the record.

    0x01 varint    frame version, 1
    varint         the key of the record
    varint         its version
    …              the record, up to the end

The frames of 2.8, the preview of KRaft, have version 0, and its tool is less careful with what it reads.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.dump.decoders.java_reading import JavaBuffer, read_message, wrap_int16
from tidelog.dump.java_errors import JavaError
from tidelog.protocol import MessageType, Struct

__all__ = ["FramedRecord", "read_framed", "read_framed_by_2_8"]

_MAX_INT16 = 2**15 - 1
_PARSE_EXCEPTION = "org.apache.kafka.server.common.serialization.MetadataParseException"


class FramedRecord(NamedTuple):
    """What was in a frame."""

    message: MessageType
    value: Struct
    version: int


def read_framed(data: bytes, message_of: Callable[[int], MessageType | None]) -> FramedRecord:
    """The record in a frame, or the exception of the tool; `message_of` knows the messages by their keys."""
    buffer = JavaBuffer(data)
    frame_version = _read_short(buffer, "frame version")
    if frame_version == 0:
        raise JavaError(
            _PARSE_EXCEPTION,
            "Could not deserialize metadata record with frame version 0. "
            "Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported.",
        )
    if frame_version != 1:
        raise JavaError(_PARSE_EXCEPTION, _unknown_frame(frame_version, known=1))
    api_key, version = _read_short(buffer, "type"), _read_short(buffer, "version")
    message = message_of(api_key)
    if message is None:
        unknown = _unknown_key(api_key)
        raise JavaError(_PARSE_EXCEPTION, str(unknown), unknown)
    try:
        value = read_message(message, buffer, version)
    except JavaError as error:
        raise JavaError(_PARSE_EXCEPTION, f"Failed to deserialize record with type {api_key}", error) from error
    if buffer.remaining:
        raise JavaError(_PARSE_EXCEPTION, f"Found {buffer.remaining} byte(s) of garbage after {api_key}")
    return FramedRecord(message, value, version)


def read_framed_by_2_8(data: bytes, message_of: Callable[[int], MessageType | None], *, checked: bool) -> FramedRecord:
    """The same in the preview, which lets out what the message itself complains of."""
    buffer = JavaBuffer(data)
    frame_version = wrap_int16(buffer.read_unsigned_varint())
    if frame_version != 0:
        raise JavaError("org.apache.kafka.common.errors.SerializationException", _unknown_frame(frame_version, known=0))
    api_key, version = wrap_int16(buffer.read_unsigned_varint()), wrap_int16(buffer.read_unsigned_varint())
    message = message_of(api_key)
    if message is None:
        raise _unknown_key(api_key)
    return FramedRecord(message, read_message(message, buffer, version, checked=checked), version)


def _read_short(buffer: JavaBuffer, entity: str) -> int:
    try:
        number = buffer.read_unsigned_varint()
    except JavaError as error:
        raise JavaError(_PARSE_EXCEPTION, f"Error while reading {entity}", error) from error
    if number > _MAX_INT16:
        raise JavaError(_PARSE_EXCEPTION, f"Value for {entity} was too large.")
    return wrap_int16(number)


def _unknown_frame(version: int, known: int) -> str:
    return (
        f"Could not deserialize metadata record due to unknown frame version {version}"
        f"(only frame version {known} is supported)"
    )


def _unknown_key(api_key: int) -> JavaError:
    return JavaError("org.apache.kafka.common.errors.UnsupportedVersionException", f"Unknown metadata id {api_key}")
