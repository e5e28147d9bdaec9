"""Addresses of Python's buffers, for kernels.

The caller keeps the object alive while a kernel works on its address.
"""

from typing import Any

import numpy as np

__all__ = ["address_of", "writable_address_of"]


def address_of(buffer: Any) -> tuple[int, int]:
    """Address and size in bytes of any object with contiguous bytes: bytes, memoryview, mmap, array, Arrow buffer."""
    array = np.frombuffer(buffer, np.uint8)
    return array.__array_interface__["data"][0], array.size


def writable_address_of(buffer: Any) -> tuple[int, int]:
    """The same for bytes that a kernel will change; anything read-only is refused with a TypeError."""
    view = memoryview(buffer)
    if view.readonly:
        raise TypeError("the buffer is read-only, and its bytes are to be changed in place")
    return address_of(view)
