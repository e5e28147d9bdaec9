"""Arithmetic and text as a JVM does them, where the formats depend on it.

Kafka adds a delta to a base in 64 bits and lets it wrap; a damaged batch must give the same number here, in the
kernels and there. Header names are UTF-8, and Java has its own view of how many replacement characters a broken
sequence is worth.
"""

import re

__all__ = ["MAX_INT32", "decode_utf8", "decrement_sequence", "increment_sequence", "wrap_int32", "wrap_int64"]

MAX_INT32 = 2**31 - 1


def wrap_int32(value: int) -> int:
    """The number a Java `int` would hold.

    >>> wrap_int32(2**31)
    -2147483648
    """
    return (value + 2**31) % 2**32 - 2**31


def wrap_int64(value: int) -> int:
    """The number a Java `long` would hold."""
    return (value + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` records later: 2147483647 is followed by 0.

    A negative `by` occurs only in damaged batches; it gives what Java's overflowing comparison gives.

    >>> increment_sequence(5, 5), increment_sequence(2147483647, 1), increment_sequence(2147483642, 10)
    (10, 0, 4)
    """
    following = sequence + by
    if by < 0 or following > MAX_INT32:
        return wrap_int32(following - 2**31)
    return following


def decrement_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` records earlier: 0 is preceded by 2147483647.

    >>> decrement_sequence(5, 5), decrement_sequence(0, 1)
    (0, 2147483647)
    """
    preceding = sequence - by
    return preceding + 2**31 if preceding < 0 else preceding


# Java counts an encoded surrogate as one broken character, Python as two or three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8 with the replacement characters that Java would put for what is broken.

    >>> decode_utf8(b"h\\xc3\\xa9") == "h\\u00e9", decode_utf8(b"\\xed\\xa0\\x80!") == "\\ufffd!"
    (True, True)
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", data).decode(errors="replace")
