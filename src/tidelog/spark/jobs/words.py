"""Numbers, sizes, times and keys as people read them, in reports."""

import html
from datetime import UTC, datetime

from tidelog.visible import visible

__all__ = ["batch_size", "counted", "duration", "key_text", "moment", "number", "share", "short", "size"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MOST_OF_A_KEY = 48


def number(value: float) -> str:
    """A count.

    >>> number(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}"


def counted(value: int, noun: str) -> str:
    """How many of something.

    >>> counted(1, "record"), counted(1200, "batch")
    ('1 record', '1,200 batches')
    """
    ending = "" if value == 1 else "es" if noun.endswith(("s", "ch", "x")) else "s"
    return f"{value:,} {noun}{ending}"


def short(value: float) -> str:
    """A count in few characters.

    >>> short(950), short(12_345), short(4_200_000), short(0.15)
    ('950', '12k', '4.2M', '0.15')
    """
    if 0 < abs(value) < 0.995:
        return f"{value:.2g}"
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5 or unit == "T":
            return f"{value:.1f}{unit}" if abs(value) < 9.95 and value % 1 else f"{value:.0f}{unit}"
        value /= 1000
    raise AssertionError("the last unit takes everything")


def size(value: float) -> str:
    """Bytes.

    >>> size(17), size(1_234_567)
    ('17 B', '1.2 MB')
    """
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            return f"{value:.1f} {unit}" if unit != "B" and abs(value) < 9.95 else f"{value:.0f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes everything")


def batch_size(value: int) -> str:
    """A size that is a power of two, as configs have it.

    >>> batch_size(16384)
    '16 KiB'
    """
    return f"{value >> 10} KiB"


def share(value: float) -> str:
    """A part of a whole.

    >>> share(0.314), share(0.0021), share(0.00001)
    ('31 %', '0.2 %', 'less than 0.1 %')
    """
    if 0 < value < 0.001:
        return "less than 0.1 %"
    return f"{value:.1%}".replace("%", " %") if 0 < value < 0.0995 else f"{value:.0%}".replace("%", " %")


def duration(ms: float) -> str:
    """A length of time.

    >>> duration(250), duration(90_000), duration(200_000_000)
    ('250 ms', '1.5 minutes', '2.3 days')
    """
    if ms < 1000:
        return f"{ms:.0f} ms"
    value, unit = ms / 1000, "second"
    for longest, following in ((60, "minute"), (60, "hour"), (24, "day")):
        if value < longest:
            break
        value, unit = value / longest, following
    text = f"{value:.1f}".removesuffix(".0")
    return f"{text} {unit}{'' if text == '1' else 's'}"


def moment(ms: int | None) -> str:
    """A time, in UTC."""
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def escape(text: str) -> str:
    """Text in HTML, in which nothing hides.

    >>> escape("<a\\u202e>")
    '&lt;a\\\\u202e&gt;'
    """
    return html.escape(visible(text))


def key_text(key: bytes) -> str:
    """A key: as text if it is some, else its bytes.

    >>> key_text(b"customer-7"), key_text(b"\\x00\\x01")
    ('customer-7', '0x0001')
    """
    try:
        text = key.decode()
        shown = text if text.isprintable() and visible(text) == text else f"0x{key.hex()}"
    except UnicodeDecodeError:
        shown = f"0x{key.hex()}"
    return shown if len(shown) <= _MOST_OF_A_KEY else f"{shown[: _MOST_OF_A_KEY - 1]}…"
