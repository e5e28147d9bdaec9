"""Keys, values and header values that nobody is to see, replaced by their length and a mark.

    <17 bytes, 9f86d081884c7d65>

The mark is the beginning of an HMAC-SHA-256 with a salt: equal bytes have equal marks under one salt, so that records
can still be told apart and joined, and without the salt what was there cannot be guessed by trying. Null stays null.
"""

import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import InvalidRequestError
from tidelog.tables.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REDACTABLE", "Redaction"]

REDACTABLE = ("key", "value", "headers")
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
        return {
            name: value
            if name not in self.columns
            else self._marked_headers(value)
            if name == "headers"
            else self.mark(value)
            for name, value in row.items()
        }

    def apply(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The same rows with marks in place of bytes."""
        for name in self.columns & set(batch.schema.names):
            column = batch.column(name)
            place = batch.schema.get_field_index(name)
            batch = batch.set_column(place, name, self._headers(column) if name == "headers" else self._bytes(column))
        return batch

    def _bytes(self, column: "pa.Array") -> "pa.Array":
        import pyarrow as pa

        return pa.array([self.mark(data) for data in column.to_pylist()], pa.binary())

    def _headers(self, column: "pa.Array") -> "pa.Array":
        import pyarrow as pa

        return pa.array([self._marked_headers(headers) for headers in column.to_pylist()], column.type)

    def _marked_headers(self, headers: list[Row] | None) -> list[Row] | None:
        return None if headers is None else [{**header, "value": self.mark(header["value"])} for header in headers]
