"""Control records of the metadata quorum as JSON: leader changes, snapshot headers and footers, versions and voters.

The tool reads them all in version 0, and writes JSON in the version that the record itself names.
"""

from tidelog import protocol
from tidelog.dump.decoders.java_reading import JavaBuffer, as_json, read_message
from tidelog.protocol import json_text

__all__ = ["quorum_record_json"]


def quorum_record_json(message_name: str, value: bytes) -> str:
    """The JSON of a control record; raises the exception of the tool where the value cannot be read."""
    message = protocol.message(message_name)
    record = read_message(message, JavaBuffer(value), 0)
    return json_text(as_json(message, record, record.version))
