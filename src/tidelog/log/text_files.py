"""Lines, fields and numbers of Kafka's small text files, as Java reads them.

Checkpoints and `partition.metadata` are read with these, by a log and by fsck, which judges what a broker would do.
"""

import re

from tidelog.errors import CheckpointError
from tidelog.log.files import ReadFileSystem, read_whole

__all__ = ["WHITE_SPACE", "read_lines", "split_fields", "to_number"]

WHITE_SPACE = re.compile(r"\s+", re.ASCII)
_LINE_END = re.compile(r"\r\n|\r|\n")
_NUMBER = re.compile(r"[+-]?((?![\U00010000-\U0010ffff])\d){1,255}")  # digits of any script that Java knows as one char


def read_lines(fs: ReadFileSystem, path: str) -> list[str]:
    """The lines of a file; none if it is empty. Raises CheckpointError if it is not UTF-8."""
    try:
        lines = _LINE_END.split(read_whole(fs, path).decode())
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 at position {error.start}") from error
    if not lines[-1]:
        lines.pop()  # there is no line after the last line end
    return lines


def split_fields(line: str, separator: re.Pattern[str] = WHITE_SPACE) -> list[str]:
    """The fields of a line. A separator at the end is ignored; one at the beginning makes an empty field, as in Java.

    >>> split_fields("orders 0  5120 "), split_fields(" 0")
    (['orders', '0', '5120'], ['', '0'])
    """
    fields = separator.split(line)
    if not fields[-1]:
        fields.pop()
    return fields


def to_number(text: str, bits: int) -> int | None:
    """A number as Java parses it: a sign, also a plus, and decimal digits that fit its type; None for anything else.

    >>> to_number("+12", 32), to_number("2147483648", 32), to_number("1_0", 32)
    (12, None, None)
    """
    value = int(text) if _NUMBER.fullmatch(text) else None
    return value if value is not None and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None
