"""JSON for many records: the text of `protocol.json_text`, made by Python's own encoder where the two agree.

They differ in doubles, which the values given here must not have, and in how control characters are escaped.
"""

import json
from typing import Any

from tidelog.protocol import json_text

__all__ = ["json_line"]

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def json_line(node: dict[str, Any]) -> str:
    """The JSON of a value without doubles.

    >>> json_line({"type": "1", "data": {"topic": "a\\x1f/é", "partition": 0}})
    '{"type":"1","data":{"topic":"a\\\\u001F/é","partition":0}}'
    """
    text = _encode(node)
    return json_text(node) if "\\u00" in text else text
