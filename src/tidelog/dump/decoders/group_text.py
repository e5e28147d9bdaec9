"""Group records as text, as releases from 0.9 to 3.7 print them: committed offsets and classic groups.

    2.4.1 to 3.7    key: offset_commit::group=g,partition=t-0 payload: offset=5,metadata=m
                    key: group_metadata::group=g payload: {"protocolType":"consumer",…,"assignment":"{member=[t-0]}"}
    1.0 to 2.4.0    key: offset::g:t:0 payload: 5:m
                    key: {"metadata":"g"} payload: the same JSON
    up to 0.11      key: metadata::g payload: consumer:range:1:{member=[t-0]}

Tombstones are `<DELETE>` since 2.4.1; before, nothing of them is printed. What cannot be decoded ends the tool, except
that 3.4.1 and later print `unknown::version=3` for a key of another kind.
"""

from typing import Literal

from tidelog import protocol
from tidelog.dump.decoders.java_reading import JavaBuffer, lengths_are_checked, read_message
from tidelog.dump.decoders.known_messages import known_coordinator_record
from tidelog.dump.decoders.scala_order import Hashed, java_hash, map_order
from tidelog.dump.decoders.struct_reading import SCHEMA_EXCEPTION, SchemaRules, read_by_schema, schema_error
from tidelog.dump.java_errors import JavaError, null_pointer
from tidelog.dump.releases import Release
from tidelog.protocol import Struct, json_text
from tidelog.records import Record

__all__ = ["GroupTextDecoder"]

_OFFSET_KEY = 1
_OFFSET_KEYS = (0, _OFFSET_KEY)
_GROUP_KEY = 2
_UNDERFLOW = "java.nio.BufferUnderflowException"


class GroupTextDecoder:
    """Decodes the records of `__consumer_offsets` for a release before 3.8."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._is_newer_text = release.is_at_least(2, 4, 1)
        self._reads_by_schema = not release.is_at_least(2, 8)
        self._checks_lengths = lengths_are_checked(release)
        self._schema_rules = SchemaRules(
            null_text=release.is_at_least(0, 10, 1), checked_lengths=release.is_at_least(0, 10)
        )
        self._messages = {key: known_coordinator_record("group", key, release) for key in (_OFFSET_KEY, _GROUP_KEY)}

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """Key and payload."""
        if record.value is None and not self._is_newer_text:
            return None, None
        if record.key is None:
            raise JavaError(
                "org.apache.kafka.common.KafkaException",
                "Failed to decode message using offset topic decoder (message had a missing key)",
            )
        buffer = JavaBuffer(record.key)
        version = buffer.read_short()
        if version in _OFFSET_KEYS:
            key = self._read("key", _OFFSET_KEY, buffer, 0)
            return self._offset_key(key), self._offset_value(record.value)
        if version == _GROUP_KEY:
            key = self._read("key", _GROUP_KEY, buffer, 0)
            return self._group_key(key.group), self._group_value(record.value)
        return self._unknown_key(version), None

    def _read(self, part: Literal["key", "value"], record_type: int, buffer: JavaBuffer, version: int) -> Struct:
        key, value = self._messages[record_type]
        message = key if part == "key" else value
        if not self._reads_by_schema:
            return read_message(message, buffer, version, checked=self._checks_lengths)
        names = _NAMES_IN_VERSION_0 if version == 0 else None
        return read_by_schema(message, buffer, version, names, self._schema_rules)

    def _unknown_key(self, version: int) -> str:
        if self._release.is_at_least(3, 4, 1):
            return f"unknown::version={version}"
        if self._reads_by_schema:
            what = "message key" if self._release.is_at_least(2, 4) else "offset"
            raise self._kafka_exception(f"Unknown {what} schema version {version}")
        raise JavaError("java.lang.IllegalStateException", f"Unknown group metadata message version: {version}")

    def _kafka_exception(self, message: str) -> JavaError:
        package = "org.apache.kafka.common" if self._release.is_at_least(2, 0) else "kafka.common"
        return JavaError(f"{package}.KafkaException", message)

    # --- offsets -------------------------------------------------------------------------------------------------

    def _offset_key(self, key: Struct) -> str:
        if self._is_newer_text:
            return f"offset_commit::group={key.group},partition={key.topic}-{key.partition}"
        return f"offset::{key.group}:{key.topic}:{key.partition}"

    def _offset_value(self, data: bytes | None) -> str:
        if data is None:
            return "<DELETE>"
        buffer = JavaBuffer(data)
        version = buffer.read_short()
        if not 0 <= version <= self._newest_offset_version():
            if self._reads_by_schema:
                raise self._kafka_exception(f"Unknown offset schema version {version}")
            raise JavaError("java.lang.IllegalStateException", f"Unknown offset message version: {version}")
        value = self._read("value", _OFFSET_KEY, buffer, version)
        if self._is_newer_text:
            return f"offset={value.offset}" + (f",metadata={value.metadata}" if value.metadata else "")
        return str(value.offset) + (f":{value.metadata}" if value.metadata else "")

    def _newest_offset_version(self) -> int:
        return 4 if self._release.is_at_least(3, 4, 1) else 3 if self._release.is_at_least(2, 1) else 1

    # --- groups --------------------------------------------------------------------------------------------------

    def _group_key(self, group: str) -> str:
        if self._is_newer_text:
            return f"group_metadata::group={group}"
        if self._release.is_at_least(1, 0):
            return self._json({"metadata": group})
        return f"metadata::{group}"

    def _group_value(self, data: bytes | None) -> str:
        if data is None:
            return "<DELETE>"
        buffer = JavaBuffer(data)
        version = buffer.read_short()
        if not 0 <= version <= self._newest_group_version():
            if self._reads_by_schema:
                raise self._kafka_exception(f"Unknown group metadata version {version}")
            raise JavaError("java.lang.IllegalStateException", f"Unknown group metadata message version: {version}")
        value = self._read("value", _GROUP_KEY, buffer, version)
        return self._group_text(value)

    def _newest_group_version(self) -> int:
        since = ((3, 4, 1), 4), ((2, 3), 3), ((2, 1), 2), ((0, 10, 1), 1)
        return next((version for release, version in since if self._release.is_at_least(*release)), 0)

    def _group_text(self, value: Struct) -> str:
        protocol_type = value.protocol_type if value.members or self._keeps_protocol_type() else ""
        members = self._in_order(value.members)
        if protocol_type == "consumer" and value.protocol is not None and self._release.is_at_least(2, 7):
            self._check_subscriptions(members)
        assignments = (f"{member.member_id}={self._assignment(member.assignment, protocol_type)}" for member in members)
        assignment = "{" + ",".join(assignments) + "}"
        if not self._release.is_at_least(1, 0):
            name = "null" if value.protocol is None else value.protocol
            return f"{protocol_type}:{name}:{value.generation}:{assignment}"
        return self._json(
            {
                "protocolType": protocol_type,
                "protocol": value.protocol,
                "generationId": value.generation,
                "assignment": assignment,
            }
        )

    def _keeps_protocol_type(self) -> bool:
        """From 0.10.1 to 1.0.0 a group takes its protocol type from its members alone."""
        return self._release.is_at_least(1, 0, 1) or not self._release.is_at_least(0, 10, 1)

    def _json(self, node: dict[str, str | int | None]) -> str:
        if self._release.is_at_least(1, 1):
            return json_text(node)
        return "{" + ",".join(f'"{name}":{_unescaped(value)}' for name, value in node.items()) + "}"

    def _in_order(self, members: list[Struct]) -> list[Struct]:
        """The members in the order of the table that the tool keeps them in."""
        by_id = {member.member_id: member for member in members}
        order = map_order(
            (Hashed(member_id, java_hash(member_id)) for member_id in by_id),
            is_scala_213=self._release.is_at_least(2, 6),
        )
        return [by_id[member_id] for member_id in order]

    def _check_subscriptions(self, members: list[Struct]) -> None:
        """Since 2.7 a subscription that cannot be read ends the tool, unless it just ends too soon."""
        subscription = protocol.message("ConsumerProtocolSubscription")
        for member in members:
            buffer = JavaBuffer(member.subscription)
            try:
                buffer.read_short()
                read_message(subscription, buffer, 0, checked=self._checks_lengths)
            except JavaError as error:
                if error.class_name != _UNDERFLOW:
                    raise
                return  # and the other members are not looked at

    def _assignment(self, data: bytes, protocol_type: str) -> str:
        if protocol_type != "consumer":
            return self._hex(data)
        value = self._read_assignment(JavaBuffer(data))
        if value.user_data is None and not self._is_newer_text:
            call = "remaining" if self._release.is_at_least(0, 11) else "limit"
            raise null_pointer(f"java.nio.ByteBuffer.{call}()", '"buffer"')
        partitions = [f"{entry.topic}-{number}" for entry in value.assigned_partitions for number in entry.partitions]
        user_data = self._hex(value.user_data or b"")
        return f"[{', '.join(partitions)}]" + (f":{user_data}" if user_data else "")

    def _hex(self, data: bytes) -> str:
        """The bytes as one large number, which releases up to 0.10.0 do not know how to print."""
        if not data:
            return ""
        if not self._release.is_at_least(0, 10, 1):
            raise JavaError("java.util.IllegalFormatConversionException", "x != scala.math.BigInt")
        return f"{int.from_bytes(data, 'big'):X}"

    def _read_assignment(self, buffer: JavaBuffer) -> Struct:
        by_schema = not self._release.is_at_least(2, 7)
        try:
            version = buffer.read_short()
        except JavaError as error:
            if by_schema:
                raise schema_error("version", error) from error
            raise JavaError(
                SCHEMA_EXCEPTION, "Buffer underflow while parsing consumer protocol's header", error
            ) from error
        if version < 0:
            what = "assignment" if self._release.is_at_least(2, 4) else "subscription"
            raise JavaError(SCHEMA_EXCEPTION, f"Unsupported {what} version: {version}")
        message = protocol.message("ConsumerProtocolAssignment")
        version = min(version, message.valid_versions[-1])
        if by_schema:
            return read_by_schema(message, buffer, version, _NAMES_IN_ASSIGNMENTS, self._schema_rules)
        try:
            return read_message(message, buffer, version, checked=self._checks_lengths)
        except JavaError as error:
            if error.class_name != _UNDERFLOW:
                raise
            raise JavaError(
                SCHEMA_EXCEPTION, "Buffer underflow while parsing consumer protocol's assignment", error
            ) from error


_NAMES_IN_VERSION_0 = {"commit_timestamp": "timestamp"}
_NAMES_IN_ASSIGNMENTS = {"assigned_partitions": "topic_partitions"}


def _unescaped(value: str | int | None) -> str:
    """JSON as Kafka 1.0 wrote it, by its own hand: nothing is escaped."""
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
