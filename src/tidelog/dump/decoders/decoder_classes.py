"""Decoder classes that --key-decoder-class and --value-decoder-class can name: those that Kafka brings along.

    kafka.serializer.*           up to 3.9; 3.8 and 3.9 print that they are deprecated
    org.apache.kafka.tools.api.* since 3.8

Other classes would have to be loaded by a JVM. They are answered as by a JVM that does not find them.
"""

import struct
import zlib
from collections.abc import Callable

from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import Release
from tidelog.records.java import decode_utf8
from tidelog.records.record import Record

__all__ = ["ClassDecoder", "class_decoder"]

_OLD_PACKAGE = "kafka.serializer."
_NEW_PACKAGE = "org.apache.kafka.tools.api."


class ClassDecoder:
    """Decodes keys by one class and values by another. `notices` are lines that the tool prints on loading them."""

    def __init__(
        self, key_text: Callable[[bytes], str], value_text: Callable[[bytes], str], notices: list[str]
    ) -> None:
        self._key_text = key_text
        self._value_text = value_text
        self.notices = tuple(notices)

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """Key and payload; nothing is printed of what is null."""
        key = None if record.key is None else self._key_text(record.key)
        value = None if record.value is None else self._value_text(record.value)
        return key, value


def class_decoder(key_class: str | None, value_class: str | None, release: Release) -> ClassDecoder:
    """The decoder of two classes; None, an option without a class, means text. The one for values is loaded first."""
    notices: list[str] = []
    value_text = _load(value_class, release, notices)
    key_text = _load(key_class, release, notices)
    return ClassDecoder(key_text, value_text, notices)


def _load(class_name: str | None, release: Release, notices: list[str]) -> Callable[[bytes], str]:
    if class_name is None:
        return decode_utf8
    package, name = _OLD_PACKAGE, class_name.removeprefix(_OLD_PACKAGE)
    if release.is_at_least(3, 8):
        package = _NEW_PACKAGE
        if name in _CLASSES and name != class_name and not release.is_at_least(4, 0):
            notices.append(f"{class_name} is deprecated. Please use {_NEW_PACKAGE}{name} instead")
            return _CLASSES[name]
    name = class_name.removeprefix(package)
    if name == class_name or name not in _classes_of(release):
        raise _not_found(class_name, release)
    return _CLASSES[name]


def _classes_of(release: Release) -> tuple[str, ...]:
    return tuple(_CLASSES) if release.is_at_least(0, 11) else ("DefaultDecoder", "StringDecoder")


def _not_found(class_name: str, release: Release) -> JavaError:
    not_found = JavaError("java.lang.ClassNotFoundException", class_name)
    if release.is_at_least(4, 3):
        return JavaError("java.lang.RuntimeException", "Failed to load decoder class", not_found)
    return not_found


def _array(data: bytes) -> str:
    """Java prints an array by the number that its object happens to have in memory; here it is one of its content."""
    return f"[B@{zlib.crc32(data):x}"


def _number(layout: str) -> Callable[[bytes], str]:
    def text(data: bytes) -> str:
        if len(data) < struct.calcsize(layout):
            raise JavaError("java.nio.BufferUnderflowException")
        return str(struct.unpack_from(layout, data)[0])

    return text


_CLASSES: dict[str, Callable[[bytes], str]] = {
    "DefaultDecoder": _array,
    "StringDecoder": decode_utf8,
    "LongDecoder": _number(">q"),
    "IntegerDecoder": _number(">i"),
}
