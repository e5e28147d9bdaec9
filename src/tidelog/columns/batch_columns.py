"""The columns that records have from their batch, each value repeated for every record.

Batches that follow each other nearly always agree, and then a column is a slice of one constant array, made once.
"""

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidelog.columns.schema import ALL_COLUMNS
from tidelog.records.compression import Codec

__all__ = ["BatchColumns"]

Array = np.ndarray[Any, np.dtype[Any]]

_CODEC_BITS = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_MAX_CONSTANTS = 64
_CODEC_NAMES = [codec.label for codec in Codec]


class HasCounts(Protocol):
    """A group of batches: how many records each holds, and all together."""

    length: int

    @property
    def counts(self) -> Array: ...


class BatchColumns:
    """Makes columns of values per batch; keeps the constant ones between calls."""

    def __init__(self) -> None:
        self._constants: dict[tuple[str, object], pa.Array] = {}

    def constant(self, name: str, value: object, length: int) -> pa.Array:
        """A column of `length` times the same value."""
        array = self._constants.get((name, value))
        if array is None or len(array) < length:
            if len(self._constants) >= _MAX_CONSTANTS:  # positions, say, are all different
                self._constants.clear()
            array = pa.repeat(pa.scalar(value, ALL_COLUMNS[name]), length)
            self._constants[name, value] = array
        return array.slice(0, length)

    def repeat(self, name: str, values: Array, group: HasCounts) -> pa.Array:
        """A column in which value i stands as often as batch i of the group has records."""
        if values.min() == values.max():
            value = values[0].item()
            return self.constant(name, _CODEC_NAMES[value] if name == "codec" else value, group.length)
        repeated = np.repeat(values, group.counts)
        if name == "codec":
            return pa.array(_CODEC_NAMES).take(pa.array(repeated))
        return pa.array(repeated, ALL_COLUMNS[name])


def of_batches(name: str, rows: Array) -> Array:
    """One value a batch for a column, from the header rows of version 2 batches."""
    match name:
        case "timestampType":
            return (rows["attributes"] & _LOG_APPEND_TIME_BIT) >> 3
        case "isTransactional":
            return (rows["attributes"] & _TRANSACTIONAL_BIT).astype(np.bool_)
        case "isControl":
            return (rows["attributes"] & _CONTROL_BIT).astype(np.bool_)
        case "codec":
            return rows["attributes"] & _CODEC_BITS
        case _:
            return rows[_FIELDS[name]].astype(ALL_COLUMNS[name].to_pandas_dtype())


_FIELDS = {"leaderEpoch": "partition_leader_epoch", "producerId": "producer_id", "producerEpoch": "producer_epoch"}


def of_messages(name: str, rows: Array) -> Array:
    """One value an entry for a column, from the header rows of legacy entries."""
    match name:
        case "timestampType":
            return np.where(rows["magic"] == 0, -1, (rows["attributes"] & _LOG_APPEND_TIME_BIT) >> 3)
        case "isTransactional" | "isControl":
            return np.zeros(len(rows), np.bool_)
        case "codec":
            return rows["attributes"] & _CODEC_BITS
        case _:
            return np.full(len(rows), -1, ALL_COLUMNS[name].to_pandas_dtype())
