"""Kafka's messages: requests and answers, and the records of its internal topics, in every version of release 4.3.

    message("OffsetCommitValue").read(data, version)    bytes to a Struct
    request(0).write(value, 9)                          a Struct to bytes
    metadata_record(3).to_json(value, 0)                what Kafka's own tools would print, as a dict

Which fields a message has, and in which versions, is in `messages.jsonl`, taken from Kafka's published jars by
`generate`. Readers and writers are compiled from it on first use.
"""

from tidelog.protocol.catalogue import (
    api_keys,
    coordinator_record,
    message,
    message_names,
    metadata_record,
    request,
    response,
)
from tidelog.protocol.headers import read_request_header, request_header_version, response_header_version
from tidelog.protocol.json_text import json_text
from tidelog.protocol.message_type import MessageType
from tidelog.protocol.structs import Struct

__all__ = [
    "MessageType",
    "Struct",
    "api_keys",
    "coordinator_record",
    "json_text",
    "message",
    "message_names",
    "metadata_record",
    "read_request_header",
    "request",
    "request_header_version",
    "response",
    "response_header_version",
]
