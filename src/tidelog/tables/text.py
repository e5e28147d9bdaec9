"""Bytes as text and back, without loss.

JSON    text where the bytes are UTF-8; otherwise an object: {"base64": "/w=="}
CSV     text where the bytes are UTF-8; otherwise, or where the text begins with it, `base64:` and the rest;
        null is an empty field, the empty text is ""; headers are JSON
lines   for eyes: the backslash, bytes that are no UTF-8 and all that `tidelog.visible` names are escaped, \\N is null
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.errors import InvalidRequestError
from tidelog.visible import LAST_NAMED_MS, time_text, visible_exactly

__all__ = [
    "BASE64_FIELD",
    "BASE64_PREFIX",
    "LAST_NAMED_MS",
    "bytes_of_csv",
    "bytes_of_json",
    "csv_text",
    "json_value",
    "line_text",
    "time_text",
]

BASE64_PREFIX = "base64:"
BASE64_FIELD = "base64"
NULL_IN_LINES = "\\N"


class JsonText(bytes):
    """Bytes that are the text of a JSON value, made of what stood there. In JSON they are that value."""


def json_value(data: bytes | None) -> Any:
    """Bytes as a JSON value.

    >>> json_value(b"caf\\xc3\\xa9"), json_value(b"\\xff"), json_value(None)
    ('café', {'base64': '/w=='}, None)
    """
    if data is None:
        return None
    if isinstance(data, JsonText):
        return json.loads(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64_FIELD: base64.b64encode(data).decode()}


def bytes_of_json(value: Any) -> bytes | None:
    """The bytes that a JSON value stands for.

    >>> bytes_of_json("café"), bytes_of_json({"base64": "/w=="}), bytes_of_json(None)
    (b'caf\\xc3\\xa9', b'\\xff', None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, Mapping) and value.keys() == {BASE64_FIELD} and isinstance(value[BASE64_FIELD], str):
        return _decoded(value[BASE64_FIELD])
    raise InvalidRequestError(f'{_shown(value)}: bytes are a text, null, or {{"base64": "…"}}')


def _shown(value: Any) -> str:
    """The beginning of a JSON value, for a message. It may be nested more deeply than it can be printed."""
    try:
        return repr(str(value)[:40])
    except RecursionError:
        return "a value that is nested too deeply"


def _encoded(text: str) -> bytes:
    """Text in UTF-8. JSON can name half of a surrogate pair, which no UTF-8 has."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f'{ascii(text[:40])} is no text: write such bytes as {{"base64": "…"}}') from None


def csv_text(data: bytes | None) -> str | None:
    """Bytes as the text of a CSV field.

    >>> csv_text(b"text"), csv_text(b"\\xff"), csv_text(b"base64:x")
    ('text', 'base64:/w==', 'base64:YmFzZTY0Ong=')
    """
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = BASE64_PREFIX
    return f"{BASE64_PREFIX}{base64.b64encode(data).decode()}" if text.startswith(BASE64_PREFIX) else text


def bytes_of_csv(text: str | None) -> bytes | None:
    """The bytes that the text of a CSV field stands for.

    >>> bytes_of_csv("text"), bytes_of_csv("base64:/w==")
    (b'text', b'\\xff')
    """
    if text is None:
        return None
    return _decoded(text.removeprefix(BASE64_PREFIX)) if text.startswith(BASE64_PREFIX) else text.encode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequestError(f"{text[:40]!r} is no base64") from None


def line_text(data: bytes | None) -> str:
    """Bytes on one line of a terminal.

    >>> line_text(b"a\\tb\\\\"), line_text(b"caf\\xc3\\xa9\\xff"), line_text(None)
    ('a\\\\tb\\\\\\\\', 'café\\\\xff', '\\\\N')
    """
    return NULL_IN_LINES if data is None else visible_exactly(data.decode(errors="surrogateescape"))


def json_headers(headers: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """The headers of a record as a JSON value, in their order."""
    if headers is None:
        return None
    return [{"key": header["key"], "value": json_value(header["value"])} for header in headers]


def headers_of_json(value: Any) -> list[dict[str, Any]] | None:
    """The headers that a JSON value stands for: a list of objects with `key` and `value`."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(pair, Mapping) and "key" in pair for pair in value):
        raise InvalidRequestError(f'headers {_shown(value)}: they are [{{"key": "…", "value": "…"}}, …]')
    return [{"key": _header_key(pair["key"]), "value": bytes_of_json(pair.get("value"))} for pair in value]


def _header_key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidRequestError(f"the key {_shown(key)} of 'headers' is not text")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"the key {ascii(key[:40])} of 'headers' is no text that UTF-8 can write") from None
    return key
