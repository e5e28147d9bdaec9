"""How Java reads numbers, cuts names and spells paths, where the tool's text depends on it."""

import os
import re
from typing import NamedTuple

from tidelog.dump.java_errors import JavaError, number_format
from tidelog.records.java import MAX_INT32

__all__ = ["JavaFile", "base_offset_of", "java_bool", "java_split", "parse_int", "parse_long"]

_MAX_INT64 = (1 << 63) - 1


class JavaFile(NamedTuple):
    """A path as java.io.File holds it: repeated and trailing slashes are gone, nothing else is resolved.

    >>> JavaFile.at("a//b/", "/c").path
    'a/b'
    """

    path: str  # as the tool prints it
    absolute: str

    @classmethod
    def at(cls, argument: str, directory: str) -> "JavaFile":
        path = re.sub("/+", "/", argument)
        if len(path) > 1:
            path = path.removesuffix("/")
        return cls(path, path if path.startswith("/") else f"{directory}/{path}" if path else directory)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def suffix(self) -> str | None:
        """From the last dot on, or None where there is none."""
        position = self.name.rfind(".")
        return None if position < 0 else self.name[position:]

    @property
    def stem(self) -> str:
        """What stands before the first dot, as the tool cuts it."""
        parts = java_split(self.name, ".")
        if not parts:  # a name of dots only
            raise JavaError("java.lang.ArrayIndexOutOfBoundsException", "Index 0 out of bounds for length 0")
        return parts[0]

    def beside(self, suffix: str) -> "JavaFile":
        """The file of the same segment with another suffix; it is always named by its absolute path."""
        path = os.path.join(os.path.dirname(self.absolute), self.stem + suffix)
        return JavaFile(path, path)


def java_split(text: str, separator: str) -> list[str]:
    """Java's split() at one character: empty parts at the end are dropped, a text without separators is itself.

    >>> java_split("a,,b,,", ","), java_split("", ","), java_split(",", ",")
    (['a', '', 'b'], [''], [])
    """
    parts = text.split(separator)
    if len(parts) == 1:
        return parts
    while parts and not parts[-1]:
        parts.pop()
    return parts


def parse_long(text: str) -> int:
    """Long.parseLong: decimal digits with an optional sign."""
    return _parse(text, _MAX_INT64)


def parse_int(text: str) -> int:
    """Integer.parseInt."""
    return _parse(text, MAX_INT32)


def _parse(text: str, largest: int) -> int:
    if re.fullmatch(r"[+-]?\d+", text) is None:
        raise number_format(text)
    number = int(text)
    if not -largest - 1 <= number <= largest:
        raise number_format(text)
    return number


def base_offset_of(file: JavaFile) -> int:
    """The offset in the name of a segment's file."""
    return parse_long(file.stem)


def java_bool(value: bool) -> str:
    """As Java prints it."""
    return "true" if value else "false"
