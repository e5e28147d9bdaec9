"""Columns of rows as the encoder's kernel wants them: addresses of Arrow's buffers."""

from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.columns.schema import ALL_COLUMNS, HEADERS_TYPE
from tidelog.columns.soundness import ensure_sound
from tidelog.errors import InvalidRequestError
from tidelog.kernels.encode import Input
from tidelog.records.batch import BATCH_HEADER_SIZE
from tidelog.records.record import MAX_RECORD_OVERHEAD, NO_TIMESTAMP

__all__ = ["Inputs", "binary_words", "cast_column"]

_COLUMNS = ("key", "value", "timestamp", "headers")
_LENGTHS = 5 + 5 + 5  # of key, value and the number of headers
_HEADER_LENGTHS = 5 + 5
_TICKS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def binary_words(array: pa.Array) -> tuple[int, int, int, int, int]:
    """Addresses of a binary array's offsets, data, end of data and validity (0 for none), and its first bit."""
    validity, offsets, data = array.buffers()
    start = data.address if data is not None else 0
    return (
        offsets.address + 4 * array.offset if len(array) else 0,
        start,
        start + (data.size if data is not None else 0),
        validity.address if validity is not None and array.null_count else 0,
        array.offset,
    )


class Inputs:
    """The columns of one RecordBatch, cast to what is stored. Holds on to their memory.

    Every column that a kernel will read is validated first, unless `is_sound` says that the caller has done so. Times
    before 1970 are rejected, as Kafka's own producers reject them, unless `any_time`: brokers store what they are sent.
    """

    def __init__(self, batch: pa.RecordBatch, *, is_sound: bool = False, any_time: bool = False) -> None:
        for name in batch.schema.names:
            if batch.schema.names.count(name) > 1:
                raise InvalidRequestError(f"there are two columns {name!r}")
            if name not in ALL_COLUMNS:  # a typing error would otherwise store nulls
                raise InvalidRequestError(f"column {name!r} cannot be stored; there are {', '.join(_COLUMNS)}")
            if name in _COLUMNS and not is_sound:
                ensure_sound(batch.column(name), name)
        self.rows = batch.num_rows
        self._key = _binary(batch, "key")
        self._value = _binary(batch, "value")
        self._timestamps = _milliseconds(batch, any_time=any_time)
        self._headers = _headers(batch)
        if not set(_COLUMNS) & set(batch.schema.names):
            raise InvalidRequestError(f"none of the columns {', '.join(_COLUMNS)} is there")

    def fill(self, words: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Tell the kernel where everything is."""
        words[Input.ROWS] = self.rows
        words[Input.KEY : Input.KEY + 5] = binary_words(self._key) if self._key is not None else 0
        words[Input.VALUE : Input.VALUE + 5] = binary_words(self._value) if self._value is not None else 0
        words[Input.TIMESTAMPS] = self._timestamps.ctypes.data
        words[Input.HEADER_LISTS] = 0
        if self._headers is not None:
            names, values = _name_and_value(self._headers)
            validity, offsets = self._headers.buffers()[:2]
            words[Input.HEADER_KEY : Input.HEADER_KEY + 5] = binary_words(names)
            words[Input.HEADER_VALUE : Input.HEADER_VALUE + 5] = binary_words(values)
            words[Input.HEADER_LISTS] = offsets.address + 4 * self._headers.offset
            words[Input.HEADER_VALIDITY] = validity.address if validity is not None else 0
            words[Input.HEADER_FIRST_BIT] = self._headers.offset

    def max_encoded_size(self) -> int:
        """Bytes that suffice for all rows, were each to begin a batch."""
        size = self.rows * (BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD + _LENGTHS)
        for column in (self._key, self._value):
            size += column.nbytes if column is not None else 0
        if self._headers is not None:
            size += self._headers.nbytes + _HEADER_LENGTHS * len(self._headers.values)
        return int(size)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def cast_column(array: pa.Array, data_type: pa.DataType, name: str) -> pa.Array:
    """The column as another type, or InvalidRequestError."""
    if array.type == data_type:
        return array
    try:
        return array.cast(data_type)
    except pa.ArrowException as error:
        raise InvalidRequestError(f"column {name!r} of type {array.type} cannot become {data_type}: {error}") from None


def _binary(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    array = _column(batch, name)
    if array is None or pa.types.is_null(array.type):
        return None
    return cast_column(array, pa.binary(), name)


def _milliseconds(batch: pa.RecordBatch, *, any_time: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Timestamps as int64 milliseconds; null, or no column at all, is -1. What is finer is cut, towards the past."""
    array = _column(batch, "timestamp")
    if array is None:
        return np.full(batch.num_rows, NO_TIMESTAMP, np.int64)
    if not (pa.types.is_timestamp(array.type) or pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise InvalidRequestError(f"timestamps of type {array.type}: they are Arrow timestamps or milliseconds")
    ticks_per_ms = 1
    if pa.types.is_timestamp(array.type):
        if array.type.unit == "s":
            array = cast_column(array, pa.timestamp("ms", array.type.tz), "timestamp")
        ticks_per_ms = _TICKS_PER_MS[array.type.unit]
    ticks = cast_column(array, pa.int64(), "timestamp")
    if ticks.null_count:
        ticks = ticks.fill_null(NO_TIMESTAMP * ticks_per_ms)
    values: np.ndarray[Any, np.dtype[np.int64]] = ticks.to_numpy()
    if ticks_per_ms > 1:
        values = values // ticks_per_ms
    lowest = int(values.min(initial=NO_TIMESTAMP))
    if lowest < NO_TIMESTAMP and not any_time:
        raise InvalidRequestError(
            f"timestamp {lowest}: a record has a time >= 0, or -1 for none; `tidelog load` stores it all the same"
        )
    return np.ascontiguousarray(values)


def _headers(batch: pa.RecordBatch) -> pa.ListArray | None:
    array = _column(batch, "headers")
    if array is None or array.null_count == len(array):
        return None
    if not pa.types.is_map(array.type):  # a cast would take a child of another name for absent, and store nulls
        element = getattr(array.type, "value_type", None)
        names = [field.name for field in element] if element is not None and pa.types.is_struct(element) else []
        if sorted(names) != ["key", "value"]:
            raise InvalidRequestError(f"headers of type {array.type}: they are lists of structs of key and value")
    array = cast_column(array, HEADERS_TYPE, "headers")
    if array.flatten().null_count or array.flatten().field(0).null_count:
        raise InvalidRequestError("a header without a name: names cannot be null")
    return array


def _name_and_value(headers: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    pairs = headers.values
    return pairs.field(0), pairs.field(1)
