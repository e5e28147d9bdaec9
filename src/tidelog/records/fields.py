"""Fixed-width fields that a caller asks to be written: what does not fit is the caller's mistake, and is told so."""

import struct

from tidelog.errors import InvalidRequestError
from tidelog.records.varint import Buffer

__all__ = ["pack", "pack_into"]


def pack(structure: struct.Struct, *values: int) -> bytes:
    """The values as bytes.

    >>> pack(struct.Struct(">h"), 40_000)
    Traceback (most recent call last):
      ...
    tidelog.errors.InvalidRequestError: (40000,) do not fit the fields '>h'
    """
    try:
        return structure.pack(*values)
    except struct.error:
        raise InvalidRequestError(f"{values} do not fit the fields {structure.format!r}") from None


def pack_into(structure: struct.Struct, buffer: Buffer, position: int, *values: int) -> None:
    """Write the values into a buffer that can be written to."""
    if memoryview(buffer).readonly:
        raise InvalidRequestError("the bytes are read-only, and are to be changed in place")
    memoryview(buffer)[position : position + structure.size] = pack(structure, *values)
