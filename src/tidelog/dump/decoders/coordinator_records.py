"""Records of the coordinators as JSON: groups since 3.8, share state since 4.0, transactions since 4.1.

    key: {"type":"1","data":{"group":"g","topic":"t","partition":0}} payload: {"version":"3","data":{"offset":5,…}}

A key begins with the type of the record, a value with its version, both 16 bits. What cannot be decoded is told in
place of the key, and the dump goes on.
"""

import base64
from typing import Any

from tidelog.dump.decoders.java_reading import JavaBuffer, as_json, read_message, reason_of
from tidelog.dump.decoders.json_lines import json_line
from tidelog.dump.decoders.known_messages import coordinator_record
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import Release
from tidelog.protocol import MessageType, message
from tidelog.records import Record

__all__ = ["CoordinatorDecoder"]

DELETED = "<DELETE>"

_GROUP_METADATA_TYPE = 2
_EMBEDDED = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
_NAMES_OF_DECODERS = {"group": "offset topic decoder", "share": "share group state topic decoder"}


class CoordinatorDecoder:
    """Decodes the records of one coordinator: "group", "share" or "transaction"."""

    def __init__(self, family: str, release: Release) -> None:
        self._family = family
        self._release = release
        self._known: dict[int, tuple[MessageType, MessageType] | None] = {}
        self._value_version = "version" if release.is_at_least(4, 1) or family == "group" else "type"

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """Key and payload, or a sentence and nothing."""
        if record.key is None:
            raise JavaError("java.lang.RuntimeException", self._missing_key(record.offset))
        try:
            return self._decode(record.key, record.value, record.offset)
        except JavaError as error:
            return f"Error at offset {record.offset}, skipping. {reason_of(error)}", None

    def _missing_key(self, offset: int) -> str:
        decoder = "the specified decoder" if self._release.is_at_least(4, 1) else _NAMES_OF_DECODERS[self._family]
        return f"Failed to decode message at offset {offset} using {decoder} (message had a missing key)"

    def _decode(self, key: bytes, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
        key_buffer = JavaBuffer(key)
        record_type = _read_version(key_buffer, "key")
        messages = self._messages(record_type)
        if messages is None:
            return f"Unknown record type {record_type} at offset {offset}, skipping.", None
        key_message, value_message = messages
        key_json = _read_json(key_message, key_buffer, record_type, "key")
        payload = DELETED if value is None else self._payload(value_message, value, record_type)
        return json_line({"type": str(record_type), "data": key_json}), payload

    def _messages(self, record_type: int) -> tuple[MessageType, MessageType] | None:
        if record_type not in self._known:
            self._known[record_type] = coordinator_record(self._family, record_type, self._release)
        return self._known[record_type]

    def _payload(self, value_message: MessageType, value: bytes, record_type: int) -> str:
        buffer = JavaBuffer(value)
        version = _read_version(buffer, "value")
        if version not in value_message.valid_versions and self._release.is_at_least(4, 0):
            raise JavaError(
                "java.lang.RuntimeException", f"Found an unknown record version {version} for {record_type} type"
            )
        data = _read_json(value_message, buffer, version, "value")
        if self._family == "group" and record_type == _GROUP_METADATA_TYPE and data.get("protocolType") == "consumer":
            for member in data["members"]:
                _expand_consumer_protocol(member)
        return json_line({self._value_version: str(version), "data": data})


def _read_version(buffer: JavaBuffer, part: str) -> int:
    try:
        return buffer.read_short()
    except JavaError as error:
        raise JavaError("java.lang.RuntimeException", f"Could not read version from {part}'s buffer.") from error


def _read_json(message_type: MessageType, buffer: JavaBuffer, version: int, part: str) -> dict[str, Any]:
    try:
        value = read_message(message_type, buffer, version)
    except JavaError as error:
        raise JavaError(
            "java.lang.RuntimeException",
            f"Could not read record with version {version} from {part}'s buffer due to: {reason_of(error)}.",
            error,
        ) from error
    return as_json(message_type, value, version)


def _expand_consumer_protocol(member: dict[str, Any]) -> None:
    """Put what the bytes of a consumer group's member mean in their place, as far as they mean something."""
    for field, message_name in _EMBEDDED.items():
        buffer = JavaBuffer(base64.b64decode(member[field]))
        try:
            version = buffer.read_short()
            value = read_message(message(message_name), buffer, version)
        except JavaError:
            continue
        member[field] = as_json(message(message_name), value, version)
