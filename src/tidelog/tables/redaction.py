"""Keys, values and headers that nobody is to see, replaced by their length and a mark.

    <17 bytes, 9f86d081884c7d65>

The mark is the beginning of an HMAC-SHA-256 with a salt: equal bytes have equal marks under one salt, so that records
can still be told apart and joined, and without the salt what was there cannot be guessed by trying. Null stays null.
`headers` are the values of headers, which often are secrets; `header-names` their names, which hardly ever are.
"""

import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidRequestError
from tidelog.tables.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REDACTABLE", "Redaction"]

REDACTABLE = ("key", "value", "headers", "header-names")
_MARK_CHARACTERS = 16


class Redaction:
    """Replaces what is in some columns."""

    def __init__(self, columns: Iterable[str], salt: bytes) -> None:
        self.columns = frozenset(columns)
        for name in sorted(self.columns - set(REDACTABLE)):
            raise InvalidRequestError(f"{name!r} cannot be redacted; {', '.join(REDACTABLE)} can")
        if not salt:
            raise InvalidRequestError("an empty salt lets anybody guess what was there by trying")
        self._salt = salt

    def mark(self, data: bytes | None) -> bytes | None:
        """What stands in the place of some bytes."""
        if data is None:
            return None
        mark = hmac.digest(self._salt, data, "sha256").hex()[:_MARK_CHARACTERS]
        return f"<{len(data)} bytes, {mark}>".encode()

    def apply_to_row(self, row: Row) -> Row:
        """The same row with marks in place of bytes."""
        return {name: self._changed(name, value) for name, value in row.items()}

    def apply(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The same rows with marks in place of bytes."""
        import pyarrow as pa

        for place, field in enumerate(batch.schema):
            if field.name in self._touched:
                marked = [self._changed(field.name, value) for value in batch.column(place).to_pylist()]
                batch = batch.set_column(place, field.name, pa.array(marked, field.type))
        return batch

    @property
    def _touched(self) -> frozenset[str]:
        """The columns of a table that are not left as they are."""
        return self.columns - {"header-names"} | ({"headers"} if "header-names" in self.columns else set())

    def _changed(self, name: str, value: Any) -> Any:
        if name not in self._touched or value is None:
            return value
        return list(map(self._marked_header, value)) if name == "headers" else self.mark(value)

    def _marked_header(self, header: Row) -> Row:
        key, value = header["key"], header["value"]
        if "header-names" in self.columns:
            key = (self.mark(key.encode()) or b"").decode()
        return {"key": key, "value": self.mark(value) if "headers" in self.columns else value}
