"""The file of a kernel: object code and the names in it, as plain bytes.

    file   := magic field{6}
    magic  := "tidelog kernel 1\\n"
    field  := length (4 bytes, little-endian) bytes

The fields are the name of the library, the symbol of the function that Python calls, the symbol of its environment, the
symbols of the environments of the functions it calls (one per line), the object code, and the bitcode that numba keeps
beside it. Reading the file executes nothing, as unpickling it would: code runs when the kernel is called.
"""

import struct
from typing import NamedTuple

__all__ = ["KeptCode", "pack", "unpack"]

_MAGIC = b"tidelog kernel 1\n"
_LENGTH = struct.Struct("<I")
_FIELDS = 6


class KeptCode(NamedTuple):
    """A compiled kernel, to be linked."""

    library: str
    entry: str  # called with Python's numbers
    environment: str
    others: tuple[str, ...]
    code: bytes
    bitcode: bytes


def pack(kept: KeptCode) -> bytes:
    """The bytes of the file."""
    texts = kept.library, kept.entry, kept.environment, "\n".join(kept.others)
    fields = [*(text.encode() for text in texts), kept.code, kept.bitcode]
    return _MAGIC + b"".join(_LENGTH.pack(len(field)) + field for field in fields)


def unpack(data: bytes) -> KeptCode | None:
    """What a file holds; None if it is not of this format.

    >>> unpack(pack(KeptCode("a", "b", "c", ("d", "e"), b"code", b"")))
    KeptCode(library='a', entry='b', environment='c', others=('d', 'e'), code=b'code', bitcode=b'')
    """
    if not data.startswith(_MAGIC):
        return None
    position, fields = len(_MAGIC), list[bytes]()
    while len(fields) < _FIELDS:
        if len(data) - position < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if size > len(data) - position:
            return None
        fields.append(data[position : position + size])
        position += size
    if position != len(data):
        return None
    library, entry, environment, others = (field.decode() for field in fields[:4])
    return KeptCode(library, entry, environment, tuple(others.split("\n")) if others else (), *fields[4:])
