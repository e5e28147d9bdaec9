"""What people read: times in UTC, and text in which characters that move, hide or reorder others are escaped.

Keys, values and the names of topics, directories and files come from anybody, and a terminal obeys what it prints:
a control sequence can rewrite the screen, a bidirectional mark reverses a line, a zero-width character hides in a name.
Everything that a person reads passes through `visible`. Formats for programs (JSON, CSV, Parquet, Arrow) hold the
characters themselves, except where a terminal shows them: JSON has escapes of its own (`visible_json`).

    \\t \\n \\r \\xNN     control characters of ASCII
    \\xNN from 80 on   a byte that is no UTF-8: Python decodes it to a surrogate (PEP 383)
    \\uNNNN \\UNNNNNNNN every other one
"""

import re
from datetime import UTC, datetime

__all__ = ["INVISIBLE", "LAST_NAMED_MS", "time_text", "visible", "visible_exactly", "visible_json", "visible_lines"]

# First and last code point: control characters, and all that Unicode calls ignorable by default, bidirectional, or a
# separator of lines. The list is fixed, so that a message does not depend on the Unicode of an interpreter.
INVISIBLE = (
    (0x00, 0x1F), (0x7F, 0x9F),  # control characters
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C),  # soft hyphen, grapheme joiner, Arabic letter mark
    (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),  # fillers and selectors of scripts
    (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F),  # zero-width, separators, bidirectional
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),  # shorthand, music, tags
)  # fmt: skip
_CLASS = "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in INVISIBLE) + "\ud800-\udfff"
_ODD = re.compile(f"[{_CLASS}]")  # no text has surrogates, and nothing can print them
_ODD_OR_BACKSLASH = re.compile(rf"[{_CLASS}\\]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}
LAST_NAMED_MS = 253_402_300_799_999  # of the year 9999, after which dates have no name
_NO_BYTE = 0xDC00  # a byte that is no UTF-8 is this much more


def visible(text: str) -> str:
    """A text for eyes, on one line.

    >>> visible("orders-0"), visible("a\\x1b[2Jb\\n"), visible("\\u202egpj.exe"), visible("caf\\udce9")
    ('orders-0', 'a\\\\x1b[2Jb\\\\n', '\\\\u202egpj.exe', 'caf\\\\xe9')
    """
    return _ODD.sub(_escape, text)


def visible_exactly(text: str) -> str:
    """The same with backslashes doubled, so that no two texts look alike.

    >>> visible_exactly("a\\\\n"), visible_exactly("a\\n")
    ('a\\\\\\\\n', 'a\\\\n')
    """
    return _ODD_OR_BACKSLASH.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The same of a text whose line ends and tabs are mostly meant.

    >>> visible_lines("a\\tb\\n\\x1b[2J")
    'a\\tb\\n\\\\x1b[2J'
    """
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


def visible_json(text: str) -> str:
    """JSON that is the same to a program, and that a terminal can show. Line ends stay.

    >>> visible_json('{"key":"\\x9b\\u202e\\U000e0001"}')
    '{"key":"\\\\u009b\\\\u202e\\\\udb40\\\\udc01"}'
    """
    return "\n".join(_ODD.sub(_escape_json, line) for line in text.split("\n"))


def _escape_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if _NO_BYTE + 0x80 <= code <= _NO_BYTE + 0xFF:
        return f"\\x{code - _NO_BYTE:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def time_text(timestamp_ms: int) -> str:
    """A time in UTC; the bare number where no calendar has it.

    >>> time_text(1_547_033_949_062), time_text(-1)
    ('2019-01-09T11:39:09.062Z', '-1')
    """
    if not 0 <= timestamp_ms <= LAST_NAMED_MS:
        return str(timestamp_ms)
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"
