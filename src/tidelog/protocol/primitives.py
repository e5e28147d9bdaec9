"""What the generated readers and writers call: varints, text, and the sentences for what is wrong.

Numbers are those of a JVM: an unsigned varint has at most five bytes and 32 bits, and a length of 2^31 and more is
negative there, which makes it a null. Text that is no UTF-8 is replaced as Java replaces it; Kafka refuses none.
"""

import codecs
import functools
import re
import uuid
from collections.abc import Mapping
from typing import Any, NoReturn

from tidelog.errors import InvalidRequestError, ProtocolError
from tidelog.protocol.structs import Struct

__all__ = [
    "JAVA_TEXT",
    "MAX_STRING_BYTES",
    "SMALL_VARINTS",
    "keep_unknown_tag",
    "octets",
    "read_varint",
    "refuse_array",
    "refuse_length",
    "refuse_null",
    "refuse_null_value",
    "refuse_tag",
    "refuse_tags",
    "refuse_text",
    "refuse_value",
    "tag_section",
    "uuid_of",
    "varint",
]

MAX_STRING_BYTES = 2**15 - 1
MAX_TAG = 2**31 - 2  # the one above is what Kafka marks the end of its own with
SMALL_VARINTS = tuple(bytes([value]) for value in range(128))

# --- reading -----------------------------------------------------------------------------------------------------


def read_varint(buffer: Any, at: int) -> tuple[int, int]:
    """The unsigned varint at a position, and where it ends; from 2^31 on it is the negative number a JVM would have.

    >>> read_varint(b"\\xac\\x02", 0), read_varint(b"\\xff\\xff\\xff\\xff\\x0f", 0)
    ((300, 2), (-1, 5))
    """
    value = 0
    for shift in range(0, 35, 7):
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value - 2**32 if value >= 2**31 else value), at
    raise ProtocolError(f"byte {at - 5}: a varint of more than five bytes")


# Java counts an encoded surrogate as one broken character, Python as two or three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
JAVA_TEXT = "tidelog.java-text"


def _replace_as_java(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    surrogate = _ENCODED_SURROGATE.match(error.object, error.start)
    return "\N{REPLACEMENT CHARACTER}", surrogate.end() if surrogate else error.end


codecs.register_error(JAVA_TEXT, _replace_as_java)


@functools.lru_cache(maxsize=4096)  # ids of topics come again and again, and making a UUID is slow
def uuid_of(data: bytes) -> uuid.UUID:
    """The UUID of 16 bytes."""
    return uuid.UUID(bytes=data)


def keep_unknown_tag(struct: Struct, tag: int, length: int, buffer: Any, at: int, size: int) -> int:
    """Put the bytes of a tag aside, and say where they end."""
    end = at + length
    if not at <= end <= size:
        refuse_length(f"tag {tag} of {type(struct).__name__}", at, length, size - at)
    struct.unknown_tags[tag] = bytes(buffer[at:end])
    return end


def refuse_null(field: str, at: int) -> NoReturn:
    raise ProtocolError(f"byte {at}: {field} is null, which this version does not allow")


def refuse_length(field: str, at: int, length: int, left: int) -> NoReturn:
    raise ProtocolError(f"byte {at}: {field} has a length of {length}, and {left} bytes are left")


def refuse_text(field: str, at: int, length: int) -> NoReturn:
    raise ProtocolError(f"byte {at}: {field} has a length of {length}; text has at most {MAX_STRING_BYTES} bytes")


def refuse_array(field: str, at: int, count: int, left: int) -> NoReturn:
    raise ProtocolError(f"byte {at}: {field} has {count} elements, more than the {left} bytes left can hold")


def refuse_tag(tag: int, struct_name: str, at: int) -> NoReturn:
    raise ProtocolError(f"byte {at}: tag {tag} of {struct_name} does not exist in this version")


# --- writing -----------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """
    >>> varint(127).hex(), varint(300).hex()
    ('7f', 'ac02')
    """
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def octets(data: Any) -> memoryview:
    """Anything that is bytes, as bytes."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def tag_section(
    struct_name: str, known: Mapping[int, bytes] | None, unknown: Mapping[int, bytes], defined: int
) -> bytes:
    """The tagged fields that end a struct, by rising tag. Tags below `defined` are those of the tables."""
    for tag in unknown:
        if not defined <= tag <= MAX_TAG:
            raise InvalidRequestError(f"{struct_name} has its own tag {tag}, which cannot be an unknown one")
    both = [*(known or {}).items(), *sorted(unknown.items())]
    parts = [varint(len(both))]
    for tag, data in both:
        parts += (varint(tag), varint(len(data)), data)
    return b"".join(parts)


def refuse_null_value(field: str) -> NoReturn:
    raise InvalidRequestError(f"{field} is None, which this version cannot say")


def refuse_value(field: str) -> NoReturn:
    raise InvalidRequestError(f"{field} has a value, and this version has no such field; leave it at its default")


def refuse_tags(struct_name: str) -> NoReturn:
    raise InvalidRequestError(f"{struct_name} has unknown tags, and this version has no tagged fields at all")
