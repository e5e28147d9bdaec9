"""What is done to rows on their way into a file: Kafka's own records put into words, and secrets taken out.

Decoding comes first, so that the mark of a record is that of its words. It needs offset, key and value of a record,
whichever of them are wanted: `needed` tells what to read, and what was not wanted is dropped again.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.tables.redaction import Redaction
from tidelog.tables.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowChanges"]

_FOR_DECODING = ("offset", "key", "value")


class RowChanges:
    """Changes rows of some columns. `decode` names the topic if its records are to be put into words."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        decode: str | None = None,
        redact: Iterable[str] = (),
        salt: bytes | None = None,
    ) -> None:
        """`redact` are names out of REDACTABLE; without a salt it is one that nobody knows."""
        if decode is not None:
            from tidelog.tables.decoding import ensure_decodable  # Kafka's messages take time to load

            ensure_decodable(decode)
        self.columns = tuple(columns)
        self._topic = decode
        names = list(redact)
        self._redaction = Redaction(names, os.urandom(32) if salt is None else salt) if names else None

    @property
    def is_decoding(self) -> bool:
        """Whether records are put into words."""
        return self._topic is not None

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that rows must come with."""
        missing = (name for name in _FOR_DECODING if name not in self.columns)
        return (*self.columns, *missing) if self._topic is not None else self.columns

    def of_row(self, row: Row) -> Row:
        """The row as it is written."""
        if self._topic is not None:
            from tidelog.tables.decoding import decoded_row

            row = decoded_row(row, self._topic)
            row = {name: row[name] for name in self.columns}
        return row if self._redaction is None else self._redaction.apply_to_row(row)

    def of_batch(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The rows as they are written."""
        if self._topic is not None:
            from tidelog.tables.decoding import decoded

            batch = decoded(batch, self._topic).select(list(self.columns))
        return batch if self._redaction is None else self._redaction.apply(batch)
