"""Records of the metadata log, `__cluster_metadata`, as JSON.

payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"orders","topicId":"…"}}
"""

from tidelog.dump.decoders.framed_records import read_framed, read_framed_by_2_8
from tidelog.dump.decoders.java_reading import as_json, lengths_are_checked, reason_of
from tidelog.dump.decoders.known_messages import metadata_record
from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import Release
from tidelog.protocol import MessageType, json_text
from tidelog.records import Record

__all__ = ["MetadataLogDecoder", "record_type_name"]


class MetadataLogDecoder:
    """Decodes the values; there are no keys."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._is_preview = not release.is_at_least(3, 0)

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """No key, and the payload or a sentence."""
        try:
            return None, self._payload(record.value)
        except JavaError as error:
            return None, f"Error at {record.offset}, skipping. {reason_of(error)}"

    def _payload(self, value: bytes | None) -> str:
        if value is None:
            raise JavaError("java.lang.NullPointerException", self._null_value())
        if self._is_preview:
            framed = read_framed_by_2_8(value, self._message, checked=lengths_are_checked(self._release))
        else:
            framed = read_framed(value, self._message)
        return json_text(
            {
                "type": record_type_name(framed.message),
                "version": framed.version,
                "data": as_json(framed.message, framed.value, framed.version),
            }
        )

    def _message(self, api_key: int) -> MessageType | None:
        return metadata_record(api_key, self._release)

    def _null_value(self) -> str:
        if self._is_preview:
            return 'Cannot invoke "java.nio.ByteBuffer.get()" because "buffer" is null'
        return "Error while reading frame version"


def record_type_name(message: MessageType) -> str:
    """The name of a record's type in Kafka's enumeration: `PARTITION_CHANGE_RECORD`."""
    words = [letter if letter.islower() or letter.isdigit() else "_" + letter for letter in message.name]
    return "".join(words).removeprefix("_").upper()
