"""JSON as Jackson, Kafka's library for it, prints it: no spaces, its escapes, doubles as Java spells them."""

import json
import math
import re
from typing import Any

__all__ = ["java_double", "json_text"]

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES = {ord(char): escape for char, escape in _SHORT_ESCAPES.items()}
_ESCAPES |= {code: f"\\u{code:04X}" for code in range(0x20) if code not in _ESCAPES}


def json_text(node: Any) -> str:
    """
    >>> json_text({"name": "a/\\u00e9\\x01\\n", "rate": 1e7, "limit": None, "ids": [1, True]})
    '{"name":"a/é\\\\u0001\\\\n","rate":1.0E7,"limit":null,"ids":[1,true]}'
    """
    if isinstance(node, dict):
        return "{" + ",".join(f"{_quoted(name)}:{json_text(value)}" for name, value in node.items()) + "}"
    if isinstance(node, list | tuple):
        return "[" + ",".join(map(json_text, node)) + "]"
    if isinstance(node, str):
        return _quoted(node)
    if isinstance(node, float):
        return java_double(node) if math.isfinite(node) else f'"{java_double(node)}"'
    return json.dumps(node)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def java_double(value: float) -> str:
    """A double as Java's Double.toString spells it: the fewest digits that mean it, one behind the point at least.

    Java before release 19 has a digit too many now and then; that is not imitated.

    >>> java_double(100.0), java_double(0.001), java_double(1e-4), java_double(12345678.0), java_double(-1.5e300)
    ('100.0', '0.001', '1.0E-4', '1.2345678E7', '-1.5E300')
    """
    shortest = repr(value)
    if shortest in _NOT_FINITE:
        return _NOT_FINITE[shortest]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return shortest
    sign, digits, exponent = _parts(shortest)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _parts(shortest: str) -> tuple[str, str, int]:
    """Sign, digits without leading or trailing zeros, and the exponent of the first of them."""
    found = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?", shortest)
    assert found
    sign, whole, fraction, power = found[1], found[2], found[3] or "", int(found[4] or 0)
    digits = whole + fraction
    leading_zeros = len(digits) - len(digits.lstrip("0"))
    return sign, digits.strip("0") or "0", len(whole) - 1 - leading_zeros + power
