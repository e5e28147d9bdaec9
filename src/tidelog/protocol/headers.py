"""The headers in front of requests and answers: which version they have, and reading one.

A header is flexible where its message is. ApiVersions is the exception: a client that does not know yet what the
broker speaks must be able to read the answer, so its header never is. The header of a version that does not exist must
be read too, to say so to the client; below the first version it is that of the first.
"""

import struct
from typing import Any

from tidelog.errors import ProtocolError
from tidelog.protocol.catalogue import message, request, response
from tidelog.protocol.message_type import MessageType
from tidelog.protocol.structs import Struct

__all__ = ["API_VERSIONS", "read_request_header", "request_header_version", "response_header_version"]

API_VERSIONS = 18
_KEY_AND_VERSION = struct.Struct(">hh")


def request_header_version(api_key: int, api_version: int) -> int:
    """
    >>> request_header_version(0, 8), request_header_version(0, 9), request_header_version(18, 99)
    (1, 2, 2)
    """
    return 2 if _is_flexible(request(api_key), api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """
    >>> response_header_version(0, 8), response_header_version(0, 9), response_header_version(18, 3)
    (0, 1, 0)
    """
    return 1 if api_key != API_VERSIONS and _is_flexible(response(api_key), api_version) else 0


def _is_flexible(body: MessageType, api_version: int) -> bool:
    return max(api_version, body.valid_versions.start) in body.flexible_versions


def read_request_header(buffer: Any, start: int = 0) -> tuple[Struct, int]:
    """The header of a request, and where its body begins. What version the header has, its first four bytes say."""
    try:
        api_key, api_version = _KEY_AND_VERSION.unpack_from(buffer, start)
    except struct.error:
        raise ProtocolError("a request begins with the key and the version of its API: four bytes at least") from None
    return message("RequestHeader").read_from(buffer, request_header_version(api_key, api_version), start)
