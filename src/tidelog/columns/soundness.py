"""Validate Arrow arrays from untrusted sources before anything follows their offsets.

Kernels, and most of Arrow's own functions, read where the offsets of an array point. An array that was built by Arrow
can be trusted. One that was read from a file, or assembled from buffers, may claim offsets, indices and lengths that
its buffers do not have: following them reads other memory of the process, or crashes it.

Arrow's full validation compares every offset, dictionary index and bitmap with the size of its buffer. It takes less
than a nanosecond per row for binary columns. For text it would also check the encoding, at a nanosecond per 8 bytes;
keys and values are bytes to us, so they are validated as what they are stored as.
"""

import pyarrow as pa

from tidelog.errors import InvalidRequestError

__all__ = ["ensure_sound", "ensure_sound_batch"]


def ensure_sound_batch(batch: pa.RecordBatch) -> None:
    """Raise InvalidRequestError if a column of a batch refers to memory that it does not have."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if len(column) != batch.num_rows:
            raise InvalidRequestError(
                f"column {name!r} has {len(column)} of {batch.num_rows} rows: write the file again"
            )
        ensure_sound(column, name)


def ensure_sound(array: pa.Array, name: str) -> None:
    """Raise InvalidRequestError if an array refers to memory that it does not have."""
    try:
        _read_names(array.type)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"column {name!r} is damaged: a field in it has no readable name: {error}") from None
    try:
        _as_bytes(array).validate(full=True)
    except pa.ArrowException as error:
        words = " ".join(str(error).split())
        raise InvalidRequestError(f"column {name!r} is damaged: {words}; write the file or the array again") from None


def _read_names(data_type: pa.DataType) -> None:
    """Read the names of nested fields, which can be any bytes. UnicodeDecodeError if one is not UTF-8."""
    for number in range(data_type.num_fields):
        field = data_type.field(number)
        assert field.name is not None
        _read_names(field.type)


def _as_bytes(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    return array.view(pa.large_binary()) if pa.types.is_large_string(array.type) else array
